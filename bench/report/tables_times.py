"""How long it took: latency by what came of the trial, the compute of each stage, throughput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.report.blocks import Cell, Group, Row, Table
from bench.report.latencies import OUTCOME_NAMES, Bounds, latencies_of, quantile_interval
from bench.report.runs import ReportedRun
from bench.report.tables_gate import columns_of
from bench.report.wording import absent_cell, seconds
from bench.results import compute_s
from bench.score_times import OUTCOMES

_BOUNDS_NOTE = (
    "p50 and p95 stand with a 95% interval from order statistics, which takes trials as independent; with few of them "
    "a quantile is not bounded on one side."
)


def latency_table(runs: Sequence[ReportedRun]) -> Table:
    """p50, p95 and the longest, by outcome."""
    rows = tuple(Row(OUTCOME_NAMES[name], tuple(_latency(run, name) for run in runs)) for name in OUTCOMES)
    return Table(
        "Latency from the labelled end of speech to the decision", "Outcome", columns_of(runs), (Group("", rows),),
        (
            _BOUNDS_NOTE,
            "A Pardon to a command is a false rejection too, and is in both rows. Trials without a latency were "
            "decided about other speech, or typed.",
        ),
    )  # fmt: skip


def compute_table(runs: Sequence[ReportedRun]) -> Table:
    """Seconds of compute a turn, by stage, and the throughput."""
    by_run = [(run.summary["compute"], _stages(run)) for run in runs]
    stages = sorted({stage for found, _ in by_run for stage in found})
    rows = tuple(
        Row(stage, tuple(_compute(found.get(stage), ordered.get(stage, ())) for found, ordered in by_run))
        for stage in stages
    )
    speed = Row("Audio a second", tuple(_throughput(run.summary["throughput"]) for run in runs), "throughput")
    return Table(
        "Compute of each stage, a turn", "Stage", columns_of(runs), (Group("", (*rows, speed)),), (_BOUNDS_NOTE,)
    )


def _stages(run: ReportedRun) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for one in run.played:
        for turn in compute_s(one.result.decisions):
            for stage, value in turn.items():
                found.setdefault(stage, []).append(value)
    return {stage: sorted(values) for stage, values in found.items()}


def _latency(run: ReportedRun, outcome: str) -> Cell:
    found: Mapping[str, Any] | None = run.summary["latency"][outcome]
    if found is None:
        happened = sum(OUTCOMES[outcome](one) for one in run.played)
        return absent_cell(f"none timed (n {happened})" if happened else "none")
    lines = _quantile_lines(found, latencies_of(run, outcome))
    without = f", {found['without']} without" if found["without"] else ""
    return Cell(lines[0], (*lines[1:], f"max {seconds(found['max'])}", f"n {found['n']}{without}"))


def _compute(found: Mapping[str, Any] | None, ordered: Sequence[float]) -> Cell:
    if found is None:
        return absent_cell()
    lines = _quantile_lines(found, ordered)
    return Cell(lines[0], (*lines[1:], f"n {found['n']}"))


def _quantile_lines(found: Mapping[str, Any], ordered: Sequence[float]) -> tuple[str, ...]:
    """``p50 0.812 s``, its interval, ``p95 1.204 s (1.100 to 1.402)``."""
    half, most = (_within(quantile_interval(ordered, share)) for share in (0.5, 0.95))
    return f"p50 {seconds(found['p50'])}", half, f"p95 {seconds(found['p95'])} ({most})"


def _within(bounds: Bounds) -> str:
    low, high = bounds
    if low is None and high is None:
        return "not bounded"
    if low is None:
        return f"at most {high:.3f}"
    return f"{low:.3f} to {high:.3f}" if high is not None else f"at least {low:.3f}"


def _throughput(found: Mapping[str, Any] | None) -> Cell:
    if found is None:
        return absent_cell()
    return Cell(
        f"{found['audio_seconds_per_second']:.2f} s",
        (f"{found['audio_seconds']:.0f} s of audio in {found['busy_seconds']:.0f} s",),
    )
