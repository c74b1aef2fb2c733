"""What each replica of a run on a Ray cluster has played, and how fast: ``replicas.jsonl`` beside the log.

A line is written when a replica ends, whatever ended it, so the file of a run that was continued holds the replicas of
all its parts. It says nothing about a trial: the log alone does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from bench.durable_lines import DurableLines
from bench.rates import rounded
from bench.results import TrialResult

REPLICAS = "replicas.jsonl"
CLOSED = "closed"
"""How a replica ended that nothing went wrong with."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a replica runs.

    Attributes:
        node: the node's host name.
        pid: its process there.
        gpus: the ids of its GPUs.
    """

    node: str
    pid: int
    gpus: tuple[str, ...] = ()


class ReplicaRecord(BaseModel):
    """One line.

    Attributes:
        replica: its number, from 1, in its part of the run.
        node: the node's host name, or empty when it never loaded.
        pid: its process there.
        gpus: the ids of its GPUs.
        trials: trials that it has played.
        audio_s: seconds of audio in them.
        busy_s: real seconds that they took.
        ended: ``closed``, or what ended it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    replica: int
    node: str
    pid: int
    gpus: tuple[str, ...]
    trials: int
    audio_s: float
    busy_s: float
    ended: str

    @property
    def audio_seconds_per_second(self) -> float | None:
        """Its throughput while it played; None when it has played nothing."""
        return self.audio_s / self.busy_s if self.busy_s > 0 else None

    def line(self) -> str:
        """As it is printed."""
        gpus = f", GPU {'+'.join(self.gpus)}" if self.gpus else ""
        speed = self.audio_seconds_per_second
        fast = "" if speed is None else f", {speed:.2f} s of audio a second"
        ended = "" if self.ended == CLOSED else f"; {self.ended}"
        return f"replica {self.replica} on {self.node or 'no node'}{gpus}: {self.trials} trials{fast}{ended}"


@dataclass(slots=True)
class _Running:
    place: Place = field(default_factory=lambda: Place("", 0))
    trials: int = 0
    audio_s: float = 0.0
    busy_s: float = 0.0


class Replicas:
    """Counts what replicas do.

    Args:
        path: where lines go; None writes none.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._running: dict[int, _Running] = {}
        self.ended: list[ReplicaRecord] = []
        """The replicas that have ended, in the order of their ends."""

    def started(self, replica: int) -> None:
        """A replica is being started."""
        self._running[replica] = _Running()

    def loaded(self, replica: int, place: Place) -> None:
        """A replica has loaded its models."""
        self._running[replica].place = place

    def played(self, replica: int, result: TrialResult) -> None:
        """A replica has played a trial."""
        running = self._running[replica]
        running.trials += 1
        running.audio_s += result.timing.audio
        running.busy_s += max(0.0, result.timing.ended_unix - result.timing.began_unix)

    def over(self, replica: int, ended: str = CLOSED) -> None:
        """A replica has ended; said a second time, nothing changes.

        Raises:
            OSError: when its line cannot be written.
        """
        running = self._running.pop(replica, None)
        if running is None:
            return
        place = running.place
        record = ReplicaRecord(
            replica=replica, node=place.node, pid=place.pid, gpus=place.gpus, trials=running.trials,
            audio_s=rounded(running.audio_s), busy_s=rounded(running.busy_s), ended=ended,
        )  # fmt: skip
        self.ended.append(record)
        if self._path is not None:
            with DurableLines(self._path) as lines:
                lines.append(record.model_dump_json())


def read_replicas(folder: Path) -> list[ReplicaRecord]:
    """The replicas of a run; none where it ran on no Ray cluster. A torn last line is passed over.

    Raises:
        OSError, ValueError: when the file cannot be read.
    """
    path = folder / REPLICAS
    if not path.exists():
        return []
    return [ReplicaRecord.model_validate_json(line) for line in path.read_bytes().split(b"\n")[:-1]]


def replica_lines(replicas: Sequence[ReplicaRecord]) -> Iterator[str]:
    """Each replica in a line, and how far the slowest lies behind."""
    for record in replicas:
        yield record.line()
    speeds = [speed for record in replicas if (speed := record.audio_seconds_per_second) is not None]
    if len(speeds) > 1:
        yield f"replicas: {min(speeds):.2f} to {max(speeds):.2f} s of audio a second each"


def replica_scores(replicas: Sequence[ReplicaRecord]) -> list[dict[str, Any]] | None:
    """For the summary; None where the run had no replicas."""
    scores = [
        {**record.model_dump(mode="json"), "audio_seconds_per_second": _maybe_rounded(record.audio_seconds_per_second)}
        for record in replicas
    ]
    return scores or None


def _maybe_rounded(value: float | None) -> float | None:
    return None if value is None else rounded(value)
