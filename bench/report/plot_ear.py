"""Competence, repair and EAR by what the words were masked with, each with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.report import series
from bench.report.blocks import Figure
from bench.report.runs import ReportedRun
from bench.report.svg import Frame, Scale, drawing, element, label, ticks
from bench.report.tables_ear import MEASURES, masks_of, why_no_ear
from bench.report.wording import percent

_WIDTH = 380.0
_LEFT, _RIGHT = 108.0, 364.0
_TOP = 34.0
_ROW = 17.0
_BETWEEN = 12.0


def ear_figure(runs: Sequence[ReportedRun]) -> Figure:
    """One drawing for each of C, R and EAR."""
    masks = masks_of(runs)
    drawn = [run for run in runs if run.summary["ear"]["by_mask"]]
    return Figure(
        "EAR by mask",
        tuple(_drawing(measure, masks, drawn) for measure in MEASURES) if masks else (),
        tuple((run.number, run.title) for run in drawn),
        (
            "A mark is a rate, its line the 95% interval. +wide: the mask reaches beyond the words. Further to the "
            "right is better. Where there is no mark, its row says why.",
        ),
    )


def _drawing(measure: str, masks: Sequence[str], runs: Sequence[ReportedRun]) -> str:
    height = _TOP + len(masks) * (_ROW * len(runs) + _BETWEEN) + 6
    x = Scale(0, 1, _LEFT, _RIGHT)
    parts = [label(MEASURES[measure], 4, 16, class_="panel")]
    for value in ticks(0, 1):
        at = x(value)
        parts.append(element("line", x1=at, x2=at, y1=_TOP - 4, y2=height, class_="grid"))
        parts.append(label(f"{value * 100:g}%", at, height + 16, text_anchor="middle", class_="tick"))
    told = []
    top = _TOP
    for mask in masks:
        parts.append(label(mask, 4, top + _ROW * len(runs) / 2 + 5, class_="entry"))
        for run in runs:
            at = top + _ROW / 2
            rate = run.summary["ear"]["by_mask"].get(mask, {}).get(measure)
            parts.append(label(run.key, _LEFT - 8, at + 4, text_anchor="end", class_="tick"))
            parts.append(_mark(run, x, at, rate) if rate is not None else _absent(run, at, mask, measure))
            if rate is not None:
                told.append(f"{mask} {run.key} {percent(rate['rate'])} (n {rate['n']})")
            top += _ROW
        top += _BETWEEN
    frame = Frame(_LEFT, _TOP - 4, _RIGHT, height)
    parts.append(element("path", d=f"M{frame.left} {frame.top}V{frame.bottom}H{frame.right}", class_="axis"))
    description = "; ".join(told) + "." if told else "No rate is known yet."
    return drawing(f"ear-{measure}", f"{MEASURES[measure]} by mask", description, _WIDTH, height + 24, parts)


def _mark(run: ReportedRun, x: Scale, at: float, rate: Mapping[str, Any]) -> str:
    parts = []
    if rate["ci95"] is not None:
        low, high = (x(bound) for bound in rate["ci95"])
        parts.append(element("line", x1=low, x2=high, y1=at, y2=at, class_=f"whisker {series.colour(run.number)}"))
    parts.append(series.mark(run.number, x(rate["rate"]), at))
    return "".join(parts)


def _absent(run: ReportedRun, at: float, mask: str, measure: str) -> str:
    why = why_no_ear(run, measure, mask)
    return label(", ".join((why.main, *why.lines)), _LEFT + 8, at + 4, class_="tick")
