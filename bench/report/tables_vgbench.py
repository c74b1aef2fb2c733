"""VGBench's tables: its five figures, the cue conditions, the proximity rule, with the published rows below ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.measures import SIDE_TALK
from bench.report.blocks import Cell, Column, Group, Row, Table
from bench.report.conditions import condition_order, spelt_out, wants_a_tool
from bench.report.published import published, published_groups, sources
from bench.report.runs import ReportedRun
from bench.report.tables_gate import columns_of
from bench.report.wording import DOES_NOT_APPLY, INTERVAL_NOTE, absent_cell, rate_cell, why_absent
from bench.score_vgbench import EIGHT_CONDITIONS
from bench.trials import TEXT_ONLY

COLUMNS = {
    "side_talk": "Side-talk correct", "self_talk": "Self-talk mute", "switch_mute": "Switch mute",
    "same_speaker_select": "Same-speaker select", "text_only_select": "Text-only select",
}  # fmt: skip
SWITCH = "diff/far/600"
"""The paper's switch: another speaker, far, after 600 ms."""
_OURS = "Ours"


def vgbench_table(runs: Sequence[ReportedRun]) -> Table:
    """The figures of VGBench's first table."""
    rows = tuple(Row(run.title, _figures(run), run.policy, run.number) for run in runs)
    return Table(
        "VGBench: acting only when addressed", "System", tuple(Column(name) for name in COLUMNS.values()),
        (Group(_OURS, rows), *published_groups("vgbench", tuple(COLUMNS))),
        (
            "More is better in every column. Switch mute means little without the two selections beside it: whoever "
            "always mutes has 100% there and 0% here. " + INTERVAL_NOTE,
            *sources("vgbench"),
        ),
    )  # fmt: skip


def _figures(run: ReportedRun) -> tuple[Cell, ...]:
    scores = run.summary["vgbench"]
    switch = scores["speaker_switch"]
    return (
        rate_cell(scores["side_talk"]["correct"], why_absent(SIDE_TALK, run.played)),
        rate_cell(scores["self_talk"]["mute"]),
        rate_cell(switch.get(SWITCH, {}).get("mute")),
        _same_speaker(switch),
        rate_cell(switch[TEXT_ONLY]["select"]),
    )


def _same_speaker(switch: dict[str, Any]) -> Cell:
    """The wearer near by; of several pauses, the one with the most trials, and of these the shortest."""
    found = [
        (name, rates["select"])
        for name, rates in sorted(switch.items(), key=lambda item: condition_order(item[0]))
        if name != TEXT_ONLY and wants_a_tool(name) and rates["select"] is not None
    ]
    if not found:
        return absent_cell()
    name, rate = max(found, key=lambda item: item[1]["n"])
    cell = rate_cell(rate)
    return Cell(cell.main, (*cell.lines, name))


def side_and_self_talk(runs: Sequence[ReportedRun]) -> Table | None:
    """Side-talk by the order of the utterances, self-talk by its frame; None when neither was run."""
    groups = []
    for family, title in (("side_talk", "Side-talk correct"), ("self_talk", "Self-talk mute")):
        parts = [run.summary["vgbench"][family]["by_condition"] for run in runs]
        rows = tuple(
            Row(name, tuple(_condition_cell(run, found, name) for run, found in zip(runs, parts, strict=True)))
            for name in sorted({name for found in parts for name in found})
        )
        groups += [Group(title, rows)] if rows else []
    if not groups:
        return None
    return Table("Side-talk and self-talk by condition", "Condition", columns_of(runs), tuple(groups), (INTERVAL_NOTE,))


def _condition_cell(run: ReportedRun, found: dict[str, Any], name: str) -> Cell:
    return rate_cell(found.get(name), why_absent(SIDE_TALK, (one for one in run.played if one.trial.condition == name)))


def cue_table(runs: Sequence[ReportedRun]) -> Table:
    """Each condition of speaker-switch: muted, and right tool ran."""
    switch = [run.summary["vgbench"]["speaker_switch"] for run in runs]
    conditions = sorted({name for found in switch for name in found}, key=condition_order)
    rows = []
    for name in conditions:
        cells: list[Cell] = []
        for found in switch:
            rates = found.get(name, {})
            cells += [
                absent_cell(DOES_NOT_APPLY) if name == TEXT_ONLY else rate_cell(rates.get("mute")),
                rate_cell(rates.get("select")),
            ]
        right = "right: run the tool" if wants_a_tool(name) else "right: mute"
        rows.append(Row(name, tuple(cells), f"{spelt_out(name)}; {right}"))
    columns = tuple(
        Column(f"{run.key} {what}", run.name, run.number) for run in runs for what in ("muted", "right tool ran")
    )
    return Table("Speaker-switch by condition", "Condition", columns, (Group("", tuple(rows)),), (INTERVAL_NOTE,))


def published_cues() -> Table:
    """The mute rates of the papers' cue study."""
    stated = {key for block in published() if block.kind == "cues" for row in block.rows.values() for key in row}
    names = tuple(name for name in EIGHT_CONDITIONS if name in stated)
    return Table(
        "Published mute rates by cue condition", "System", tuple(Column(name) for name in names),
        published_groups("cues", names),
        ("Only near commands of the same speaker are to run; all others are to be muted.", *sources("cues")),
    )  # fmt: skip


def proximity_table(runs: Sequence[ReportedRun]) -> Table:
    """Accuracy under the proximity rule."""
    rows = tuple(
        Row(run.title, (rate_cell(run.summary["vgbench"]["proximity_rule"]["accuracy"]),), run.policy, run.number)
        for run in runs
    )
    return Table(
        "The proximity rule: a tool if and only if same speaker and near", "System", (Column("Accuracy"),),
        (Group(_OURS, rows), *published_groups("proximity", ("accuracy",))),
        ("The eight conditions weigh alike; with fewer than all eight there is no figure.", *sources("proximity")),
    )  # fmt: skip
