"""Each run against the first one: what has changed, and whether it is noise. ``bench.compare`` says so, not this."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bench.compare import Change, Comparison, compare
from bench.rates import DIGITS
from bench.report.blocks import Block, Cell, Column, Folded, Group, Listing, Paragraph, Row, Table, Tone
from bench.report.runs import ReportedRun
from bench.report.wording import count_of, percent
from bench.score import ScoreError

_FLIPPED_SHOWN = 12
_VALUE_CHARS = 60
_TONES: dict[str, Tone] = {"better": "better", "worse": "worse"}
_TEST_NOTE = (
    "Over the trials that both runs have. Flipped: how many trials have more credit in the first, and in the second. "
    "p is McNemar's exact test over those, Holm p corrects it for the number of measures; from 5% on, a difference is "
    "noise. same: no trial flipped."
)


def comparisons(runs: Sequence[ReportedRun]) -> tuple[Block, ...]:
    """The comparison of every other run with the first."""
    blocks: list[Block] = []
    for run in runs[1:]:
        try:
            found = compare(runs[0].folder, run.folder, run.labels)
        except ScoreError as error:
            blocks.append(Paragraph(f"{run.title} against {runs[0].title}: not compared. {error}."))
            continue
        blocks += _comparison(runs[0], run, found)
    return tuple(blocks)


def _comparison(first: ReportedRun, second: ReportedRun, found: Comparison) -> list[Block]:
    rows = tuple(Row(change.name, _cells(change)) for change in found.changes)
    table = Table(
        f"{second.title} against {first.title}", "Measure",
        (
            Column("n"), Column(first.key, first.name, first.number), Column(second.key, second.name, second.number),
            Column("Flipped"), Column("p"), Column("Holm p"), Column("Verdict"),
        ),
        (Group("", rows),), (_TEST_NOTE, _latency(first, second, found)),
    )  # fmt: skip
    blocks: list[Block] = [Paragraph(_common(first, second, found)), table]
    differing = tuple(f"{key}: {_shown(one)} | {_shown(other)}" for key, one, other in found.configuration)
    if differing:
        blocks.append(Folded(f"Made differently: {count_of(len(differing), 'setting')}", (Listing(differing),)))
    flips = tuple(_flips(first, second, found.changes))
    if flips:
        blocks.append(Folded("Trials that flipped, by measure", (Listing(flips),)))
    return blocks


def _cells(change: Change) -> tuple[Cell, ...]:
    return (
        Cell(str(change.n)),
        Cell(percent(change.first)),
        Cell(percent(change.second)),
        Cell(f"-{len(change.only_first)} +{len(change.only_second)}"),
        Cell(_p(change.p)),
        Cell(_p(change.p_holm)),
        Cell(change.verdict, (), _TONES.get(change.verdict, "")),
    )


def _p(value: float) -> str:
    """A p-value; the comparison rounds it, and none is zero."""
    return f"{value:.3g}" if value > 0 else f"<{10**-DIGITS:.0e}"


def _common(first: ReportedRun, second: ReportedRun, found: Comparison) -> str:
    return (
        f"{second.title} against {first.title}: {found.common} trials in both, {found.only_first} in {first.key} only, "
        f"{found.only_second} in {second.key} only."
    )


def _latency(first: ReportedRun, second: ReportedRun, found: Comparison) -> str:
    if found.latency is None:
        return "Latency: no trial has one in both runs."
    low, high = found.latency["ci95"]
    verdict = "noise" if found.latency["noise"] else "slower" if found.latency["median_difference"] > 0 else "faster"
    return (
        f"Latency, median of {second.key} less {first.key} trial by trial: "
        f"{found.latency['median_difference']:+.3f} s (95% {low:+.3f} to {high:+.3f} s, n {found.latency['n']}): "
        f"{verdict}."
    )


def _flips(first: ReportedRun, second: ReportedRun, changes: Sequence[Change]) -> list[str]:
    return [
        f"{change.name}, more credit in {run.key} ({len(ids)}): {_listed(ids)}"
        for change in changes
        for run, ids in ((first, change.only_first), (second, change.only_second))
        if ids
    ]


def _listed(ids: Sequence[str]) -> str:
    rest = len(ids) - _FLIPPED_SHOWN
    return ", ".join(ids[:_FLIPPED_SHOWN]) + (f" and {rest} more (bench compare --json lists all)" if rest > 0 else "")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _VALUE_CHARS else f"{text[: _VALUE_CHARS - 1]}…"
