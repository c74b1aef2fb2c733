"""The gate's rates: executions that should not have been beside commands that were not carried out, and what follows.

A false-execution rate alone would call a gate perfect that never opens, so its twin always stands in the next row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.measures import GATE
from bench.report.blocks import Block, Cell, Column, Folded, Group, Row, Table
from bench.report.conditions import condition_order
from bench.report.runs import ReportedRun
from bench.report.wording import INTERVAL_NOTE, absent_cell, rate_cell

_NAMES = {
    "false_execution": ("False execution", "a tool ran where none was right"),
    "false_rejection": ("False rejection", "nothing ran of the spoken commands that were to run"),
    "wrong_tool": ("Wrong tool", "another tool ran, alone or too"),
    "unneeded_pardon": ("Unneeded Pardon", "asked again where nothing was missing"),
    "missed_pardon": ("Missed Pardon", "did not ask where something was missing"),
}
_NOTHING = "none such"
"""Where a run has no trial that a rate is about."""


def columns_of(runs: Sequence[ReportedRun]) -> tuple[Column, ...]:
    """One column for each run."""
    return tuple(Column(run.key, run.name, run.number) for run in runs)


def gate_table(runs: Sequence[ReportedRun]) -> Table:
    """The five rates; less is better in all of them."""
    rows = []
    for measure in GATE:
        key = measure.name.removeprefix("gate.")
        name, detail = _NAMES[key]
        rows.append(Row(name, tuple(rate_cell(run.summary["gate"][key]) for run in runs), detail))
    return Table(
        "What the gate let through, and what it held back", "Rate", columns_of(runs), (Group("", tuple(rows)),),
        (
            "Less is better in every row. Read the first two together: whoever never acts has no false execution and "
            "rejects everything. " + INTERVAL_NOTE,
        ),
    )  # fmt: skip


def gate_breakdowns(runs: Sequence[ReportedRun]) -> tuple[Block, ...]:
    """Each rate by family, by condition and by the tool that the words name."""
    folded = []
    for measure in GATE:
        key = measure.name.removeprefix("gate.")
        if all(run.summary["gate"][key] is None for run in runs):
            continue
        name, detail = _NAMES[key]
        groups = (
            Group("By family", _rows(runs, key, lambda rate: rate["by_family"])),
            *(
                Group(f"By condition: {family}", _rows(runs, key, _conditions(family), is_switch=family == _SWITCH))
                for family in _families(runs, key)
            ),
            Group("By tool that the words name", _rows(runs, key, lambda rate: rate["by_tool"])),
        )
        table = Table(f"{name}: {detail}", "", columns_of(runs), groups, (INTERVAL_NOTE,))
        folded.append(Folded(f"{name} by family, condition and tool", (table,)))
    return tuple(folded)


_SWITCH = "speaker_switch"


def _families(runs: Sequence[ReportedRun], key: str) -> list[str]:
    found = (run.summary["gate"][key] for run in runs)
    return sorted({family for rate in found if rate is not None for family in rate["by_family"]})


def _conditions(family: str) -> Any:
    return lambda rate: rate["by_condition"].get(family, {})


def _rows(runs: Sequence[ReportedRun], key: str, part: Any, *, is_switch: bool = False) -> tuple[Row, ...]:
    parts: list[Mapping[str, Any]] = [
        {} if (rate := run.summary["gate"][key]) is None else part(rate) for run in runs
    ]  # fmt: skip
    names = sorted({name for found in parts for name in found}, key=condition_order if is_switch else None)
    return tuple(Row(name, tuple(_cell(found, name) for found in parts)) for name in names)


def _cell(found: Mapping[str, Any], name: str) -> Cell:
    return rate_cell(found[name]) if name in found else absent_cell(_NOTHING)
