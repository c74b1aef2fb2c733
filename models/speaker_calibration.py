"""From a cosine score to owner, other or unsure, by how much speech stood on either side and how the owner was met.

One score means different things at different lengths: one second of the same person scores as low as four seconds
of somebody else. So a score is first made a log-likelihood ratio, by a logistic regression on the score, the logarithms
of both durations and their products (Ferrer, McLaren and Brümmer, "A speaker verification backend with robust
performance across conditions", 2022). A span is the owner's where that ratio exceeds what one in a hundred strangers
reaches at these durations, and speaks for her at all. Both are fitted on the speakers of a development set by
:mod:`models.training.speaker_calibration`, apart for an enrolled wearer and for an initiator, and belong to one
network.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol, Self, runtime_checkable

from gate.evidence import SpeakerVerdict
from models.protocols import SpeakerThresholds

_UNREACHABLE = 2.0
"""Beyond any cosine, yet a number that every log format can hold."""
_WEIGHTS = Path(__file__).parent / "weights"

LLR_TERMS: Final = 8
BOUND_TERMS: Final = 6


class CalibrationError(Exception):
    """The file is no calibration, or belongs to another network. The message says which."""


class Situation(StrEnum):
    """What the owner's reference rests on."""

    ENROLLED = "enrolled"
    """Clean clips that were checked when she enrolled."""
    INITIATOR = "initiator"
    """The first near turn of a session, as short, noisy and reverberant as it was."""


@runtime_checkable
class SituatedThresholds(Protocol):
    """Thresholds that differ by situation."""

    def of(self, situation: Situation) -> SpeakerThresholds:
        """Those of one situation."""
        ...


def in_situation(thresholds: SpeakerThresholds, situation: Situation) -> SpeakerThresholds:
    """The thresholds of a situation; those that make no difference serve in both."""
    return thresholds.of(situation) if isinstance(thresholds, SituatedThresholds) else thresholds


def llr_terms(log_reference: Any, log_test: Any) -> tuple[Any, Any, Any, Any]:
    """What both the offset and the slope of a log-likelihood ratio are linear in: numbers, or arrays of one shape.

    Args:
        log_reference: natural logarithm of the seconds behind the reference.
        log_test: likewise of the span.
    """
    return log_reference * 0.0 + 1.0, log_reference, log_test, log_reference * log_test


def bound_terms(log_reference: Any, log_test: Any) -> tuple[Any, ...]:
    """What a bound on log-likelihood ratios is linear in; arguments as for :func:`llr_terms`."""
    return *llr_terms(log_reference, log_test), log_reference * log_reference, log_test * log_test


@dataclass(frozen=True, slots=True)
class SituationThresholds:
    """Thresholds of one network in one situation. Implements :class:`models.protocols.SpeakerThresholds`.

    Attributes:
        reference_s: the shortest and the longest reference that was calibrated; others are judged as the nearer one.
        test_s: likewise for the span.
        llr: eight weights: four of the offset, four of the slope over the score (:func:`llr_terms`).
        owner_llr: six weights of the ratio that the stated share of strangers exceeds (:func:`bound_terms`).
        other_llr: six weights of the ratio that the stated share of the owner's own spans stays below.

    Raises:
        ValueError: when durations do not rise, weights are missing or not finite, or a higher score would ever speak
            less for the owner.
    """

    reference_s: tuple[float, float]
    test_s: tuple[float, float]
    llr: tuple[float, ...]
    owner_llr: tuple[float, ...]
    other_llr: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("reference_s", "test_s"):
            range_s = getattr(self, name)
            if len(range_s) != 2 or not 0.0 < range_s[0] < range_s[1] < math.inf:
                raise ValueError(f"{name} must be two rising positive numbers, not {range_s}")
        for name, count in (("llr", LLR_TERMS), ("owner_llr", BOUND_TERMS), ("other_llr", BOUND_TERMS)):
            weights = getattr(self, name)
            if len(weights) != count or not all(math.isfinite(weight) for weight in weights):
                raise ValueError(f"{name} must be {count} finite numbers, not {weights}")
        # The slope is bilinear in the logarithms, so it is smallest in a corner.
        corners = [(reference, test) for reference in self.reference_s for test in self.test_s]
        if min(self._line(*corner)[1] for corner in corners) <= 0.0:
            raise ValueError("llr falls with the score")

    def log_likelihood_ratio(self, score: float, reference_s: float, test_s: float) -> float:
        """How much a score speaks for the owner: the natural logarithm of how much likelier her own span is to have it.

        Args:
            score: cosine similarity.
            reference_s: seconds of speech behind the reference.
            test_s: seconds of speech behind the span.
        """
        offset, slope = self._line(reference_s, test_s)
        return offset + slope * score

    def verdict(self, score: float, reference_s: float, test_s: float) -> tuple[SpeakerVerdict, float, float]:
        """The verdict on a score, and the two thresholds that it was held against.

        Args:
            score: cosine similarity; anything not finite is unsure.
            reference_s: seconds of speech behind the reference.
            test_s: seconds of speech behind the span.

        Returns:
            The verdict, the score from which it is owner, the score below which it is other. Durations that are not
            positive numbers give ``UNSURE`` whatever the score.
        """
        owner_at, other_below = self._thresholds(reference_s, test_s)
        if not math.isfinite(score) or not (reference_s > 0 and test_s > 0):
            return SpeakerVerdict.UNSURE, owner_at, other_below
        if score >= owner_at:
            return SpeakerVerdict.OWNER, owner_at, other_below
        return SpeakerVerdict.OTHER if score < other_below else SpeakerVerdict.UNSURE, owner_at, other_below

    def _thresholds(self, reference_s: float, test_s: float) -> tuple[float, float]:
        terms = bound_terms(_log_within(reference_s, self.reference_s), _log_within(test_s, self.test_s))
        # However few strangers get there: what speaks against the owner is not hers, nor what speaks for her another's.
        owner_llr = max(0.0, _dot(self.owner_llr, terms))
        other_llr = min(0.0, _dot(self.other_llr, terms))
        offset, slope = self._line(reference_s, test_s)
        return _cosine((owner_llr - offset) / slope), _cosine((other_llr - offset) / slope)

    def _line(self, reference_s: float, test_s: float) -> tuple[float, float]:
        """Offset and slope over the score."""
        terms = llr_terms(_log_within(reference_s, self.reference_s), _log_within(test_s, self.test_s))
        return _dot(self.llr[:4], terms), _dot(self.llr[4:], terms)


@dataclass(frozen=True, slots=True)
class SpeakerCalibration:
    """Thresholds of one network. Implements :class:`models.protocols.SpeakerThresholds`: an enrolled wearer's.

    Attributes:
        model: the network's name.
        sha256: hash of the network's weights.
        enrolled: for clean references.
        initiator: for the first near turn.
    """

    model: str
    sha256: str
    enrolled: SituationThresholds
    initiator: SituationThresholds

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
            ValueError: when a field contradicts itself.
        """
        situations = [
            SituationThresholds(
                _pair(part["reference_s"]), _pair(part["test_s"]),
                *(_numbers(part[name]) for name in ("llr", "owner_llr", "other_llr")),
            )
            for part in (content["situations"][situation.value] for situation in Situation)
        ]  # fmt: skip
        return cls(str(content["model"]), str(content["sha256"]), *situations)

    def of(self, situation: Situation) -> SituationThresholds:
        """The thresholds of one situation."""
        return self.enrolled if situation is Situation.ENROLLED else self.initiator

    def verdict(self, score: float, reference_s: float, test_s: float) -> tuple[SpeakerVerdict, float, float]:
        """As an enrolled wearer's: see :meth:`SituationThresholds.verdict`."""
        return self.enrolled.verdict(score, reference_s, test_s)


@dataclass(frozen=True, slots=True)
class Uncalibrated:
    """Thresholds of a network that nobody has calibrated: every verdict is unsure, so nothing risky is licensed."""

    def verdict(self, score: float, reference_s: float, test_s: float) -> tuple[SpeakerVerdict, float, float]:
        """Unsure, whatever the score; no cosine reaches the thresholds that are returned."""
        return SpeakerVerdict.UNSURE, _UNREACHABLE, -_UNREACHABLE


def shipped(model: str, sha256: str) -> SpeakerThresholds:
    """The calibration beside the project's weights; without one, every verdict is unsure.

    Args:
        model: the network's name in the file's.
        sha256: hash of its weights.

    Raises:
        CalibrationError: when there is one, unreadable or made for other weights.
    """
    file = _WEIGHTS / f"speaker_{model}_calibration.json"
    return SpeakerCalibration.read(file, sha256) if file.is_file() else Uncalibrated()


def _log_within(duration_s: float, range_s: tuple[float, float]) -> float:
    """Logarithm of a duration, moved into the range; what is no positive number counts as the shortest."""
    return math.log(min(max(duration_s, range_s[0]), range_s[1]) if duration_s > 0 else range_s[0])


def _dot(weights: Sequence[float], terms: Sequence[float]) -> float:
    return math.fsum(weight * term for weight, term in zip(weights, terms, strict=True))


def _cosine(value: float) -> float:
    """Just outside what a cosine can be where the threshold lies further out."""
    return min(max(value, -_UNREACHABLE), _UNREACHABLE)


def _pair(value: Any) -> tuple[float, float]:
    low, high = _numbers(value)
    return low, high


def _numbers(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise TypeError(f"a list of numbers is needed, not {value!r}")
    return tuple(float(number) for number in value)
