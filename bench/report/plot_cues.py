"""The cue conditions of speaker-switch as a heat map: how often each was muted, and how often the right tool ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.report.blocks import Figure
from bench.report.conditions import condition_order, wants_a_tool
from bench.report.runs import ReportedRun
from bench.report.svg import drawing, element, label
from bench.report.wording import NOT_RUN, counts, percent
from bench.trials import TEXT_ONLY

_HEAD = 62.0
_LEFT = 116.0
_CELL = (128.0, 40.0)
_GAP = 4.0
_COLUMNS = (("mute", "muted"), ("select", "right tool ran"))
LEVELS = 10
"""Shades above the lightest one: one for every ten percent."""


def cue_figure(runs: Sequence[ReportedRun]) -> Figure:
    """One heat map for each run that has a condition of speaker-switch."""
    switch = {run.number: run.summary["vgbench"]["speaker_switch"] for run in runs}
    conditions = sorted(
        {name for found in switch.values() for name, rates in found.items() if any(rates.values())},
        key=condition_order,
    )
    drawn = [run for run in runs if any(rate for rates in switch[run.number].values() for rate in rates.values())]
    return Figure(
        "Cue conditions: who spoke, how near, after which pause",
        tuple(_drawing(run, switch[run.number], conditions) for run in drawn),
        (),
        (
            "The darker (in dark mode: the brighter), the more often. An outline with a dot marks what is right in a "
            "condition: there, 100% is best; beside it, 0%. A condition is the speaker, the distance and the pause "
            "before the command in ms.",
        ),
    )


def _drawing(run: ReportedRun, found: Mapping[str, Any], conditions: Sequence[str]) -> str:
    width, height = _CELL
    parts = [label(run.title, 4, 16, class_="panel")]
    told = []
    for column, (_, name) in enumerate(_COLUMNS):
        parts.append(
            label(name, _LEFT + column * (width + _GAP) + width / 2, _HEAD - 12, text_anchor="middle", class_="name")
        )
    for row, condition in enumerate(conditions):
        top = _HEAD + row * (height + _GAP)
        parts.append(label(condition, 4, top + height / 2 + 4, class_="entry"))
        for column, (key, name) in enumerate(_COLUMNS):
            left = _LEFT + column * (width + _GAP)
            if key == "mute" and condition == TEXT_ONLY:
                continue  # a typed command is never to be muted: that is no figure of the benchmark
            rate = found.get(condition, {}).get(key)
            right = wants_a_tool(condition) == (key == "select")
            parts.append(_cell(left, top, rate, right=right))
            if rate is not None:
                told.append(f"{condition} {name} {percent(rate['rate'])} ({counts(rate)})")
    return drawing(
        f"cues-{run.key}", f"Cue conditions, {run.title}", "; ".join(told) + ".",
        _LEFT + len(_COLUMNS) * (width + _GAP), _HEAD + len(conditions) * (height + _GAP) + 4, parts,
    )  # fmt: skip


def _cell(left: float, top: float, rate: Mapping[str, Any] | None, *, right: bool) -> str:
    width, height = _CELL
    level = "none" if rate is None else f"h{round(rate['rate'] * LEVELS)}"
    parts = [
        element("rect", x=left, y=top, width=width, height=height, rx=3, class_=f"cell {level}"),
    ]
    if right:
        parts.append(
            element(
                "rect", x=left + 2, y=top + 2, width=width - 4, height=height - 4, rx=2, class_=f"target {level}"
            )
        )  # fmt: skip
        parts.append(element("circle", cx=left + 11, cy=top + 11, r=3, class_=f"dot {level}"))
    middle = left + width / 2
    if rate is None:
        parts.append(label(NOT_RUN, middle, top + height / 2 + 4, text_anchor="middle", class_="tick"))
    else:
        parts.append(label(percent(rate["rate"]), middle, top + 18, text_anchor="middle", class_=f"value {level}"))
        parts.append(label(counts(rate), middle, top + 33, text_anchor="middle", class_=f"count {level}"))
    return "".join(parts)
