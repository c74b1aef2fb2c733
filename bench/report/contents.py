"""The order of a report: what stands in the way first, then what the gate did, then why, then with what."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report.blocks import Block, Folded, Listing, Paragraph, Section, Table
from bench.report.comparability import warnings_of
from bench.report.failures import Failures
from bench.report.plot_cues import cue_figure
from bench.report.plot_ear import ear_figure
from bench.report.plot_latency import latency_figure
from bench.report.plot_operating import operating_figure, operating_table
from bench.report.runs import ReportedRun
from bench.report.tables_comparison import comparisons
from bench.report.tables_ear import ear_by_mask, ear_table, repair_classes
from bench.report.tables_failures import failures_table
from bench.report.tables_gate import gate_breakdowns, gate_table
from bench.report.tables_runs import models_table, runs_table, status_table
from bench.report.tables_times import compute_table, latency_table
from bench.report.tables_vgbench import cue_table, proximity_table, published_cues, side_and_self_talk, vgbench_table


def title_of(runs: Sequence[ReportedRun]) -> str:
    """The title of a report."""
    return "voicegate bench: " + ", ".join(run.title for run in runs)


def sections_of(runs: Sequence[ReportedRun], failures: Failures) -> tuple[Section, ...]:
    """All sections of a report.

    Args:
        runs: the runs, at least one.
        failures: what went wrong in them.
    """
    warnings = warnings_of(runs)
    sections = [
        Section("warnings", "Before you compare", (Listing(warnings, warning=True),)) if warnings else None,
        Section("gate", "False executions and false rejections", (gate_table(runs), *gate_breakdowns(runs))),
        Section("vgbench", "VGBench", _present(vgbench_table(runs), _folded(side_and_self_talk(runs)))),
        Section(
            "cues", "Speaker-switch", (cue_figure(runs), cue_table(runs), proximity_table(runs), published_cues())
        ),
        Section(
            "ear", "Pardon? (EAR)",
            _present(ear_table(runs), ear_figure(runs), _folded(ear_by_mask(runs)), _folded(repair_classes(runs))),
        ),
        Section("operating", "Operating curves", (operating_figure(runs), operating_table(runs))),
        Section("latency", "Latency", (latency_figure(runs), latency_table(runs), compute_table(runs))),
        Section("comparison", "What has changed", comparisons(runs)) if len(runs) > 1 else None,
        Section("failures", "Failures", (failures_table(runs, failures), failures)),
        Section(
            "provenance", "Provenance",
            (
                Paragraph(
                    "All of this comes from the logs, labels and judgements in the runs' folders; summary.json is not "
                    "read."
                ),
                runs_table(runs), status_table(runs), models_table(runs),
            ),
        ),
    ]  # fmt: skip
    return tuple(section for section in sections if section is not None)


def _folded(table: Table | None) -> Folded | None:
    return None if table is None else Folded(table.caption, (table,))


def _present(*blocks: Block | None) -> tuple[Block, ...]:
    return tuple(block for block in blocks if block is not None)
