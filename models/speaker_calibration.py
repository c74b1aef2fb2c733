"""From a cosine score to owner, other or unsure, by how much speech stood on either side.

One score means different things at different lengths: one second of the same person scores as low as four seconds
of somebody else. So the thresholds are a grid over the two durations. They are fitted on the speakers of a
development set to a stated rate of false accepts and false rejects by :mod:`models.training.speaker_calibration`,
and belong to one network.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gate.evidence import SpeakerVerdict

_UNREACHABLE = 2.0
"""Beyond any cosine, yet a number that every log format can hold."""


class CalibrationError(Exception):
    """The file is no calibration, or belongs to another network. The message says which."""


@dataclass(frozen=True, slots=True)
class SpeakerCalibration:
    """Thresholds of one network. Implements :class:`models.protocols.SpeakerThresholds`.

    Attributes:
        model: the network's name.
        sha256: hash of the network's weights.
        durations_s: the grid's axis, rising, float64 ``(n,)``.
        owner_at: score from which a span is the owner's, float64 ``(n, n)``, symmetric, over the two durations.
        other_below: score below which it is someone else's, likewise; nowhere above ``owner_at``.
    """

    model: str
    sha256: str
    durations_s: npt.NDArray[np.float64]
    owner_at: npt.NDArray[np.float64]
    other_below: npt.NDArray[np.float64]

    @classmethod
    def read(cls, path: Path, sha256: str) -> Self:
        """Read a calibration file.

        Args:
            path: JSON, as the training command writes it.
            sha256: hash of the weights whose scores are to be judged.

        Raises:
            CalibrationError: when the file cannot be read, is inconsistent, or was made for other weights.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CalibrationError(f"{path}: cannot be read: {error}") from error
        try:
            calibration = cls.from_mapping(content)
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationError(f"{path}: {error!r}") from error
        if calibration.sha256 != sha256:
            raise CalibrationError(
                f"{path} was made for weights {calibration.sha256[:12]} of {calibration.model}, not for {sha256[:12]}"
            )
        return calibration

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any]) -> Self:
        """Make one of the file's content.

        Raises:
            KeyError: when a field is missing.
            TypeError: when a field has the wrong kind.
            ValueError: when the fields contradict each other.
        """
        durations_s, owner_at, other_below = (
            np.asarray(content[name], dtype=np.float64) for name in ("durations_s", "owner_at", "other_below")
        )
        count = durations_s.size
        if durations_s.shape != (count,) or count < 2 or not (durations_s[0] > 0 and (np.diff(durations_s) > 0).all()):
            raise ValueError("durations_s must be two or more rising positive numbers")
        for name, grid in (("owner_at", owner_at), ("other_below", other_below)):
            if grid.shape != (count, count) or not (np.abs(grid) <= 1.0).all() or not (grid == grid.T).all():
                raise ValueError(f"{name} must be a symmetric {count} by {count} grid of cosines")
        if not (other_below <= owner_at).all():
            raise ValueError("other_below exceeds owner_at")
        return cls(str(content["model"]), str(content["sha256"]), durations_s, owner_at, other_below)

    def verdict(self, score: float, reference_s: float, test_s: float) -> tuple[SpeakerVerdict, float, float]:
        """The verdict on a score, and the two thresholds that it was held against.

        Args:
            score: cosine similarity; anything not finite is unsure.
            reference_s: seconds of speech behind the reference.
            test_s: seconds of speech behind the span. Durations outside the grid are judged as its edge.

        Returns:
            The verdict, the score from which it is owner, the score below which it is other. Durations that are not
            positive numbers give ``UNSURE`` whatever the score.
        """
        owner_at, other_below = (
            self._at(self.owner_at, reference_s, test_s),
            self._at(self.other_below, reference_s, test_s),
        )
        if not math.isfinite(score) or not (reference_s > 0 and test_s > 0):
            return SpeakerVerdict.UNSURE, owner_at, other_below
        if score >= owner_at:
            return SpeakerVerdict.OWNER, owner_at, other_below
        return SpeakerVerdict.OTHER if score < other_below else SpeakerVerdict.UNSURE, owner_at, other_below

    def _at(self, grid: npt.NDArray[np.float64], reference_s: float, test_s: float) -> float:
        """Bilinear in the logarithm of the durations."""
        (row, row_share), (column, column_share) = self._place(reference_s), self._place(test_s)
        low = grid[row, column] * (1.0 - column_share) + grid[row, column + 1] * column_share
        high = grid[row + 1, column] * (1.0 - column_share) + grid[row + 1, column + 1] * column_share
        return float(low * (1.0 - row_share) + high * row_share)

    def _place(self, duration_s: float) -> tuple[int, float]:
        """The grid cell that a duration falls in, and where in it, 0 to 1."""
        shortest, longest = float(self.durations_s[0]), float(self.durations_s[-1])
        inside_s = min(max(duration_s, shortest), longest) if duration_s > 0 else shortest
        axis = np.log(self.durations_s)
        cell = min(int(np.searchsorted(axis, math.log(inside_s), side="right")) - 1, axis.size - 2)
        return cell, float((math.log(inside_s) - axis[cell]) / (axis[cell + 1] - axis[cell]))


@dataclass(frozen=True, slots=True)
class Uncalibrated:
    """Thresholds of a network that nobody has calibrated: every verdict is unsure, so nothing risky is licensed."""

    def verdict(self, score: float, reference_s: float, test_s: float) -> tuple[SpeakerVerdict, float, float]:
        """Unsure, whatever the score; no cosine reaches the thresholds that are returned."""
        return SpeakerVerdict.UNSURE, _UNREACHABLE, -_UNREACHABLE
