"""``voicegate bench parity``: do the charged clock's figures hold in real time?

Plays the same trials on the charged clock and on the wall clock, one after the other on the same machine, and compares
every decision and the time from the detected end of speech to it. Real time takes as long as the audio is.

Latencies are compared decision by decision, and the median of their differences counts: the medians of either clock
alone are printed, but over a few trials they jump from one cluster of latencies to the next. The models do not compute
equally fast twice, least of all on a machine that does something else beside. That is not the clocks' doing, so
latencies may lie as far apart as compute does, and a tolerance more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.clock import Pace
from agent.events import TimingRecord
from bench.provenance import write_json
from bench.rates import rounded
from bench.results import DecisionRecord, TrialResult
from bench.run import MakeCluster, RunOptions, cluster_of, run, select
from bench.runlog import RUN_LOG, read_log
from bench.stats import Interval, median_difference, quantile
from bench.trials import Trial, load_manifest

PARITY = "parity.json"
TOLERANCE_SHARE = 0.1
PACES = (Pace.CHARGED, Pace.WALL)


@dataclass(frozen=True, slots=True)
class Parity:
    """How two clocks compare.

    Attributes:
        trials: how many were played on both.
        differing: what differs, by the trial's id: its decisions on either clock.
        median_s: the median latency on each clock, by its name; None without a decision.
        compute_s: the median compute of a decision on each clock.
        latency_apart_s: the median over decisions of wall less charged, with its interval; None without a decision.
        compute_apart_s: the same of compute.
        tolerance_share: how far latencies may lie apart beyond compute, as a share of the wall clock's median.
    """

    trials: int
    differing: dict[str, dict[str, list[str]]]
    median_s: dict[str, float | None]
    compute_s: dict[str, float | None]
    latency_apart_s: tuple[float, Interval] | None
    compute_apart_s: tuple[float, Interval] | None
    tolerance_share: float

    @property
    def holds(self) -> bool:
        """Whether all decisions are the same, and latencies are near enough."""
        wall_s = self.median_s[Pace.WALL.value]
        if wall_s is None or self.latency_apart_s is None or self.compute_apart_s is None:
            return not self.differing and set(self.median_s.values()) == {None}
        most_s = self.tolerance_share * wall_s + abs(self.compute_apart_s[0])
        return not self.differing and abs(self.latency_apart_s[0]) <= most_s

    def as_json(self) -> dict[str, Any]:
        """As it is written."""
        return {
            "trials": self.trials,
            "differing": self.differing,
            "median_latency_s": self.median_s,
            "median_compute_s": self.compute_s,
            "latency_apart_s": self.latency_apart_s,
            "compute_apart_s": self.compute_apart_s,
            "tolerance_share": self.tolerance_share,
            "holds": self.holds,
        }


def spread(trials: Sequence[Trial], limit: int) -> list[Trial]:
    """At most ``limit`` trials with audio, evenly over the manifest, so that every family has a part in it."""
    spoken = [trial for trial in trials if trial.audio is not None]
    count = min(limit, len(spoken))
    return [spoken[index * len(spoken) // count] for index in range(count)]


def parity(
    options: RunOptions, limit: int, tolerance_share: float = TOLERANCE_SHARE, make_cluster: MakeCluster = cluster_of
) -> Parity:
    """Play trials on both clocks.

    Args:
        options: what is asked for; one folder for each clock is made in ``out``.
        limit: how many trials at most.
        tolerance_share: how far latencies may lie apart (see ``Parity``).
        make_cluster: makes the workers.

    Raises:
        Exception: as ``bench.run.run``.
    """
    trials = select(load_manifest(options.manifest), options.split, options.ids, None)
    ids = tuple(trial.id for trial in spread(trials, limit))
    results = {
        pace.value: _results(
            run(replace(options, pace=pace, ids=ids, limit=None, out=options.out / pace.value), make_cluster).out
        )
        for pace in PACES
    }
    found = compared(results, tolerance_share)
    write_json(options.out / PARITY, found.as_json())
    return found


def compared(results: Mapping[str, Mapping[str, TrialResult]], tolerance_share: float) -> Parity:
    """Compare what came of the same trials on the two clocks, given by the clock's name and the trial's id."""
    charged, wall = (results[pace.value] for pace in PACES)
    differing = {
        name: {"charged": _told(charged[name]), "wall": _told(wall[name])}
        for name in charged
        if _told(charged[name]) != _told(wall[name])
    }
    timings = {
        pace.value: [decision.timing for result in results[pace.value].values() for decision in result.decisions]
        for pace in PACES
    }
    return Parity(
        len(charged),
        differing,
        {pace: _median([timing.latency_s for timing in found]) for pace, found in timings.items()},
        {pace: _median([sum(timing.compute.values()) for timing in found]) for pace, found in timings.items()},
        _paired(charged, wall, lambda timing: timing.latency_s),
        _paired(charged, wall, lambda timing: sum(timing.compute.values())),
        tolerance_share,
    )


def _paired(
    charged: Mapping[str, TrialResult], wall: Mapping[str, TrialResult], of: Callable[[TimingRecord], float]
) -> tuple[float, Interval] | None:
    """The median difference over the decisions of trials that have as many on both clocks."""
    pairs = [
        (name, of(ours.timing), of(theirs.timing))
        for name in charged
        if len(charged[name].decisions) == len(wall[name].decisions)
        for ours, theirs in zip(charged[name].decisions, wall[name].decisions, strict=True)
    ]
    found = median_difference([p[1] for p in pairs], [p[2] for p in pairs], [p[0] for p in pairs], seed=0)
    return None if found is None else (rounded(found[0]), (rounded(found[1][0]), rounded(found[1][1])))


def _median(values: Sequence[float]) -> float | None:
    median = quantile(values, 0.5)
    return None if median is None else rounded(median)


def _results(folder: Path) -> dict[str, TrialResult]:
    return {result.id: result for result in read_log(folder / RUN_LOG)}


def _told(result: TrialResult) -> list[str]:
    """A trial's status and decisions, without its times and without what rounding may change."""
    return [result.status, *(_decision(decision) for decision in result.decisions)]


def _decision(decision: DecisionRecord) -> str:
    call = f" {decision.tool} {decision.params}" if decision.tool else ""
    said = f" {decision.answer!r}" if decision.answer else ""
    return f"{decision.turn} {decision.action} {decision.reason}{call}{said}"
