"""A run over real people as it lies on disk: each trial with what it was made for and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.measures import Played
from bench.people.errors import PeopleError
from bench.results import DecisionRecord
from bench.score import load_run

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Replayed:
    """One trial, played.

    Attributes:
        played: trial and result.
        study: what it is for.
        kind: which kind of recording it is.
        distance: how near the talkers were.
        recording: which recording it is, however it is played.
        wearer: who is enrolled, or None.
        judged: whether it is known what is right.
        used_for: what the voices in it have been used for.
    """

    played: Played
    study: str
    kind: str
    distance: str
    recording: str
    wearer: str | None
    judged: bool
    used_for: frozenset[str]

    def field(self, name: str) -> Any:
        """Another field of the trial, or None."""
        return (self.played.trial.model_extra or {}).get(name)

    @property
    def decided(self) -> bool:
        """Whether it came to an end, or a tool ran: only then does doing nothing mean anything."""
        return self.played.ok or self.played.ran

    @property
    def hours(self) -> float:
        """Length of the recording."""
        return self.played.result.timing.audio / _SECONDS_PER_HOUR

    @property
    def decisions(self) -> Sequence[DecisionRecord]:
        """What was decided, in order."""
        return self.played.result.decisions

    def count(self, action: str) -> int:
        """How many decisions were of an action; of tools, those that ran."""
        if action == "tool":
            return len(self.played.result.tools_run)
        return sum(decision.action == action for decision in self.decisions)


@dataclass(frozen=True, slots=True)
class PeopleRun:
    """All of a run.

    Attributes:
        trials: those that were played.
        not_run: how many were not.
        config: what it was made with.
    """

    trials: tuple[Replayed, ...]
    not_run: int
    config: dict[str, Any] = field(repr=False)

    @property
    def seed(self) -> int:
        """Of the bootstrap."""
        return int(self.config["seed"])

    def of(self, *studies: str) -> list[Replayed]:
        """The trials of some studies."""
        return [one for one in self.trials if one.study in studies]


def load_people(folder: Path) -> PeopleRun:
    """Read a run.

    Args:
        folder: the run's.

    Raises:
        PeopleError: when its trials are not those of ``python -m bench.real_people build``.
        ScoreError, ManifestError, RunLogError, ConfigurationDiffersError: when a file cannot be read.
    """
    played, missing, config = load_run(folder)
    if not played:
        raise PeopleError(f"{folder}: nothing was played")
    return PeopleRun(tuple(_replayed(one) for one in played), len(missing), config)


def _replayed(played: Played) -> Replayed:
    extra = played.trial.model_extra or {}
    try:
        return Replayed(
            played, extra["study"], extra["kind"], extra["distance"], extra["recording"], extra["wearer"],
            extra["judged"], frozenset(extra["used_for"]),
        )  # fmt: skip
    except KeyError as error:
        raise PeopleError(
            f"{played.trial.id}: no field {error}; it is in what `python -m bench.real_people build` writes"
        ) from error
