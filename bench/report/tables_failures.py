"""How often each kind of failure happened, the dangerous kinds first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.report.blocks import Cell, Group, Row, Table
from bench.report.failures import KINDS, FailureGroup, FailureKind, Failures
from bench.report.runs import ReportedRun
from bench.report.tables_gate import columns_of
from bench.report.wording import NOT_JUDGED, absent_cell


def failures_table(runs: Sequence[ReportedRun], failures: Failures) -> Table:
    """Each trial is in one row, the worst that it is."""
    by_kind = {group.kind.name: group for group in failures.groups}
    groups = tuple(
        Group(
            title,
            tuple(
                Row(kind.title, tuple(_count(by_kind, kind, run) for run in runs), kind.harm)
                for kind in KINDS
                if kind.dangerous == dangerous
            ),
        )
        for dangerous, title in ((True, "Something was done that should not have been"), (False, "The rest"))
    )
    return Table(
        "Failures by kind, in trials", "Kind", columns_of(runs), groups,
        (
            "Each trial is in one row, the worst that it is, so a row may be below the count of the rate of that name.",
        ),
    )  # fmt: skip


def _count(by_kind: Mapping[str, FailureGroup], kind: FailureKind, run: ReportedRun) -> Cell:
    if not run.played:
        return absent_cell()
    group = by_kind.get(kind.name)
    number = group.count(run.number) if group is not None else 0
    waiting = sum(kind.waits(one) for one in run.played)
    if waiting and not number:
        return absent_cell(NOT_JUDGED, f"{waiting} waiting")
    return Cell(str(number), (f"of {len(run.played)}", *([f"{waiting} not judged"] if waiting else [])))
