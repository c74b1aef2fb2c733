"""Latency by what came of the trial: the share of decisions that were made within so many seconds (ECDF)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.report import series
from bench.report.blocks import Figure
from bench.report.latencies import OUTCOME_NAMES, latencies_of
from bench.report.runs import ReportedRun
from bench.report.svg import Frame, Scale, axes, drawing, label, rounded_up, steps
from bench.score_times import OUTCOMES
from bench.stats import quantile

_WIDTH = 380.0
_FRAME = Frame(46, 44, 366, 230)
_ROW = 20.0
_SHOWN = 0.98
"""The axis ends at this quantile of the slowest curve: one time-out must not squeeze all the rest."""


def latency_figure(runs: Sequence[ReportedRun]) -> Figure:
    """One drawing for each outcome that any run has, all on the same axis."""
    found = {name: {run.number: latencies_of(run, name) for run in runs} for name in OUTCOMES}
    shown = [name for name in OUTCOMES if any(found[name].values())]
    curves = [values for name in shown for values in found[name].values() if values]
    notes = (
        "From the labelled end of the speech that matters to the decision about it. The mark is the median. Further "
        "to the left is faster.",
    )
    if not curves:
        return Figure("Latency by what came of the trial", (), (), notes)
    high = rounded_up(max(0.1, *(quantile(values, _SHOWN) or 0.0 for values in curves)))
    low = min(0.0, math.floor(min(values[0] for values in curves) * 10) / 10)
    return Figure(
        "Latency by what came of the trial",
        tuple(_drawing(name, found[name], runs, low, high) for name in shown),
        tuple((run.number, run.title) for run in runs if any(found[name][run.number] for name in shown)),
        notes,
    )


def _drawing(
    name: str, by_run: dict[int, list[float]], runs: Sequence[ReportedRun], low: float, high: float
) -> str:  # fmt: skip
    x = Scale(low, high, _FRAME.left, _FRAME.right)
    y = Scale(0, 1, _FRAME.bottom, _FRAME.top)
    title = OUTCOME_NAMES[name]
    parts = [
        label(title, 4, 16, class_="panel"),
        axes(_FRAME, x, y, "seconds after the end of speech", "share decided", in_percent="y"),
    ]
    told = []
    bottom = _FRAME.bottom + 44
    for run in runs:
        values = by_run[run.number]
        if not values:
            continue
        parts.append(series.line(steps(_ecdf(values, low, high), x, y), run.number))
        median_s = quantile(values, 0.5)
        assert median_s is not None, "there are values"
        if x.holds(median_s):
            parts.append(series.mark(run.number, x(median_s), y(0.5)))
        beyond = sum(value > high for value in values)
        entry = f"{run.key}: n {len(values)}, median {median_s:.2f} s"
        entry += f", {beyond} beyond {high:g} s" if beyond else ""
        told.append(entry)
        bottom += _ROW
        parts.append(series.line(f"M{_FRAME.left} {bottom - 4}h34", run.number))
        parts.append(series.mark(run.number, _FRAME.left + 17, bottom - 4, 4.5))
        parts.append(label(entry, _FRAME.left + 42, bottom, class_="entry"))
    description = f"Cumulative share of decisions over seconds. {'; '.join(told)}."
    return drawing(f"latency-{name.replace('_', '-')}", title, description, _WIDTH, bottom + 10, parts)


def _ecdf(ordered: Sequence[float], low: float, high: float) -> list[tuple[float, float]]:
    """The distribution's steps within an axis; it ends at its height there."""
    n, points = len(ordered), [(low, 0.0)]
    for index, value in enumerate(ordered, 1):
        if value > high:
            break
        if index == n or ordered[index] > value:
            points.append((value, index / n))
    return [*points, (high, points[-1][1])]
