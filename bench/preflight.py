"""Before a long run: is there room, and does one trial of each family come to an end?"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from bench.results import TrialResult
from bench.trials import Trial

LINE_BYTES = 20_000
"""A generous line of the run log; one with six decisions of twelve words has about half of it."""
SPARE_BYTES = 200_000_000
"""What must stay free: a disk that is full to the brim breaks more than this run."""
_FAILED = frozenset({"error", "timeout", "no_audio"})


class PreflightError(Exception):
    """A run would not go well. The message says what to do."""

    @classmethod
    def of(cls, unsound: Sequence[TrialResult]) -> Self:
        """The error that names these results."""
        lines = [f"  {result.id}: {result.status}: {result.reason}" for result in unsound]
        return cls(
            "the first trial of each family is played before the rest, and this went wrong:\n"
            + "\n".join(lines)
            + "\nmend it, or run with --no-preflight: such trials then count as failed"
        )


def require_space(folder: Path, trials: int) -> None:
    """Check that the log will fit.

    Raises:
        PreflightError: when it will not.
    """
    need = trials * LINE_BYTES + SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < need:
        raise PreflightError(
            f"{folder}: {free / 1e6:.0f} MB free, {need / 1e6:.0f} MB needed for {trials} trials; free some, or name "
            "another folder with --out"
        )


def one_of_each_family(trials: Sequence[Trial]) -> list[Trial]:
    """The first trial of each family, in the order of the manifest."""
    first: dict[str, Trial] = {}
    for trial in trials:
        first.setdefault(trial.family, trial)
    return list(first.values())


def is_sound(result: TrialResult) -> bool:
    """Whether a trial was played to its end. What came of it does not matter: a policy may write what it likes."""
    return result.status not in _FAILED
