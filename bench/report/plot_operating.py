"""False executions against false rejections while a threshold moves, one drawing for each way to move it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.operating import SWEEPS
from bench.report import series
from bench.report.blocks import Cell, Column, Figure, Group, Row, Table
from bench.report.runs import ReportedRun
from bench.report.svg import Frame, Scale, axes, drawing, element, label, polyline, rounded_up
from bench.report.wording import NOT_RUN, absent_cell, interval, percent
from bench.stats import wilson

_NAMES = {
    "speaker": "Speaker threshold moved", "distance": "Distance threshold moved", "both": "Both moved by as much",
}  # fmt: skip
_WIDTH, _HEIGHT = 380.0, 350.0
_FRAME = Frame(46, 44, 366, 300)
_LEAST = 0.1
"""The axes reach to 10% at least, so that a good gate does not look like a bad one under a lens."""

Point = tuple[float, float, float]
"""Shift, false executions, false rejections."""


def operating_figure(runs: Sequence[ReportedRun]) -> Figure:
    """The curves of all runs that have one."""
    curves = {sweep: {run.number: curve_of(run, sweep) for run in runs} for sweep in SWEEPS}
    drawn = [run for run in runs if any(curves[sweep][run.number] for sweep in SWEEPS)]
    without = [run.title for run in runs if run not in drawn]
    notes = [
        "A filled mark is the gate as it ran, with the 95% intervals of both rates; a hollow mark is where the rates "
        "meet. Down and to the left is better.",
        "Proposals are taken as they were made: a policy that reads the verdicts might propose otherwise.",
    ]
    if without:
        notes.append(f"No curve: {', '.join(without)} (no call could be moved, or only one of the rates was run).")
    reach = _reach([point for by_run in curves.values() for curve in by_run.values() for point in curve])
    return Figure(
        "Operating curves: what a stricter or a looser gate would have done",
        tuple(_drawing(sweep, curves[sweep], drawn, reach) for sweep in SWEEPS) if drawn else (),
        tuple((run.number, run.title) for run in drawn),
        tuple(notes),
    )


def curve_of(run: ReportedRun, sweep: str) -> list[Point]:
    """The points of a run's curve at which both rates are known; empty without a curve."""
    found = run.summary["operating"]
    return [
        (point["shift"], point["false_execution"]["rate"], point["false_rejection"]["rate"])
        for point in (found[sweep]["points"] if found else ())
        if point["false_execution"] is not None and point["false_rejection"] is not None
    ]


def _reach(points: Sequence[Point]) -> tuple[float, float]:
    """How far both axes go."""
    x = max((point[1] for point in points), default=1.0)
    y = max((point[2] for point in points), default=1.0)
    return min(1.0, rounded_up(max(_LEAST, x))), min(1.0, rounded_up(max(_LEAST, y)))


def _drawing(
    sweep: str, curves: Mapping[int, list[Point]], runs: Sequence[ReportedRun], reach: tuple[float, float]
) -> str:
    x = Scale(0, reach[0], _FRAME.left, _FRAME.right)
    y = Scale(0, reach[1], _FRAME.bottom, _FRAME.top)
    parts = [
        label(_NAMES[sweep], 4, 16, class_="panel"),
        axes(_FRAME, x, y, "false executions", "false rejections", in_percent="xy"),
    ]
    told = []
    for run in runs:
        curve = curves[run.number]
        if not curve:
            continue
        parts.append(series.line(polyline([(at, value) for _, at, value in curve], x, y), run.number))
        now = next((point for point in curve if point[0] == 0.0), None)
        if now is not None:
            parts.append(_whiskers(run, x, y, now))
            parts.append(series.mark(run.number, x(now[1]), y(now[2])))
            told.append(f"{run.title} ran at {percent(now[1])} false executions and {percent(now[2])} false rejections")
        met = run.summary["operating"][sweep]["equal_error"]
        if met is not None:
            at, value = x(met["false_execution"]), y(met["false_rejection"])
            parts.append(series.mark(run.number, at, value, 5.5, hollow=True))
            told.append(f"its rates meet at {percent(met['rate'])}")
    description = "False rejections over false executions as the threshold moves. " + "; ".join(told) + "."
    return drawing(f"operating-{sweep}", _NAMES[sweep], description, _WIDTH, _HEIGHT, parts)


def _whiskers(run: ReportedRun, x: Scale, y: Scale, now: Point) -> str:
    """The intervals of both rates, as far as they lie in the drawing."""
    gate, parts = run.summary["gate"], []
    for name, scale, across in (("false_execution", x, True), ("false_rejection", y, False)):
        rate = gate[name]
        if rate is None or rate["ci95"] is None:
            continue
        low, high = (scale(min(bound, scale.high)) for bound in rate["ci95"])
        places = (
            {"x1": low, "x2": high, "y1": y(now[2]), "y2": y(now[2])}
            if across
            else {"x1": x(now[1]), "x2": x(now[1]), "y1": low, "y2": high}
        )
        parts.append(element("line", **places, class_=f"whisker {series.colour(run.number)}"))
    return "".join(parts)


def operating_table(runs: Sequence[ReportedRun]) -> Table:
    """The equal-error points with both rates and their counts."""
    rows = tuple(Row(_NAMES[sweep], tuple(_equal_error(run, sweep) for run in runs)) for sweep in SWEEPS)
    calls = Row("Calls", tuple(_calls(run) for run in runs))
    return Table(
        "Where false executions and false rejections meet", "Threshold",
        tuple(Column(run.key, run.name, run.number) for run in runs), (Group("", (*rows, calls)),),
        (
            "The shift is added to the threshold; FE are false executions and FR false rejections at that shift. These "
            "intervals are Wilson's and take trials as independent. Where the two rates do not cross, there is no such "
            "point.",
        ),
    )  # fmt: skip


def _equal_error(run: ReportedRun, sweep: str) -> Cell:
    found = run.summary["operating"]
    if found is None:
        return absent_cell(NOT_RUN)
    met = found[sweep]["equal_error"]
    if met is None:
        return absent_cell("rates do not cross" if curve_of(run, sweep) else NOT_RUN)
    sizes = found[sweep]["points"][0]
    return Cell(
        percent(met["rate"]),
        (
            f"shift {met['shift']:+.3f}",
            *(
                _counted(short, met[name], sizes[name]["n"])
                for short, name in (("FE", "false_execution"), ("FR", "false_rejection"))
            ),
        ),
    )


def _counted(name: str, rate: float, n: int) -> str:
    k = round(rate * n)
    return f"{name} {k}/{n}, {interval(*wilson(k, n))}"


def _calls(run: ReportedRun) -> Cell:
    found: Mapping[str, Any] | None = run.summary["operating"]
    if found is None:
        return absent_cell(NOT_RUN)
    calls = found["calls"]
    return Cell(f"{calls['moved']} moved", (f"{calls['kept_as_they_were']} kept as they were",))
