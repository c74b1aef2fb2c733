"""*Pardon?*: competence, repair and EAR, whole and by mask, with the published rows below ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.measures import Played, ear_competence, ear_condition, ear_repair
from bench.report.blocks import Cell, Column, Group, Row, Table
from bench.report.published import published_groups, sources
from bench.report.runs import ReportedRun
from bench.report.tables_gate import columns_of
from bench.report.wording import INTERVAL_NOTE, NOT_JUDGED, absent_cell, rate_cell, why_null
from bench.score_ear import REPAIR_CLASSES
from bench.trials import MASKS

MEASURES = {"C": "Competence (C)", "R": "Repair (R)", "EAR": "EAR"}
_CLASS_NAMES = {
    "explicit_repair": "Explicit repair", "generic_refusal": "Generic refusal", "other": "Other",
    "not_judged": "Not judged",
}  # fmt: skip


def ear_table(runs: Sequence[ReportedRun]) -> Table:
    """C, R and EAR of each run."""
    rows = tuple(
        Row(run.title, tuple(_cell(run, run.summary["ear"], key) for key in MEASURES), run.policy, run.number)
        for run in runs
    )
    return Table(
        "EAR: answering what can be answered, asking where it cannot", "System",
        tuple(Column(name) for name in MEASURES.values()),
        (Group("Ours", rows), *published_groups("ear", tuple(MEASURES))),
        (
            "C is over questions that can be answered, R over those whose answer was masked, EAR their harmonic mean; "
            "the n of EAR counts questions. " + INTERVAL_NOTE,
            *sources("ear"),
        ),
    )  # fmt: skip


def masks_of(runs: Sequence[ReportedRun]) -> list[str]:
    """The masks that any run has, in the contract's order, each before its expanded window."""
    found = {name for run in runs for name in run.summary["ear"]["by_mask"]}
    return [name for mask in MASKS for name in (mask, f"{mask}+wide") if name in found]


def ear_by_mask(runs: Sequence[ReportedRun]) -> Table | None:
    """The same by mask, and competence with and without one; None when no run has the family."""
    masks = masks_of(runs)
    kinds = ("original", "semantic_invariant")
    if not any(one.trial.family == "ear" for run in runs for one in run.played):
        return None
    competence = tuple(Row(kind.replace("_", "-"), tuple(_competence(run, kind) for run in runs)) for kind in kinds)
    groups = tuple(
        Group(
            name,
            tuple(
                Row(mask, tuple(_cell(run, run.summary["ear"]["by_mask"].get(mask, {}), key, mask) for run in runs))
                for mask in masks
            ),
        )
        for key, name in MEASURES.items()
    )
    return Table(
        "EAR by condition", "Condition", columns_of(runs),
        (Group("Competence by realisation", competence), *(group for group in groups if group.rows)),
        (INTERVAL_NOTE,),
    )  # fmt: skip


def repair_classes(runs: Sequence[ReportedRun]) -> Table | None:
    """What was said where there was nothing to answer; None when no run has such questions."""
    if all(run.summary["ear"]["repair"] is None for run in runs):
        return None
    whole = Group("All masks", _class_rows([(run.summary["ear"]["repair"]) for run in runs]))
    by_mask = [
        Group(mask, _class_rows([run.summary["ear"]["by_mask"].get(mask, {}).get("repair") for run in runs]))
        for mask in masks_of(runs)
    ]
    return Table(
        "What was said to questions that cannot be answered, in trials", "Response", columns_of(runs),
        (whole, *by_mask), ("Silence, tools and failures are other, without a judge.",),
    )  # fmt: skip


def _class_rows(found: Sequence[dict[str, int] | None]) -> tuple[Row, ...]:
    return tuple(Row(_CLASS_NAMES[name], tuple(_class(classes, name) for classes in found)) for name in REPAIR_CLASSES)


def _class(classes: dict[str, int] | None, name: str) -> Cell:
    """A count of those that are settled: what a judge has not seen yet is no zero."""
    if classes is None:
        return absent_cell()
    everything, waiting = sum(classes.values()), classes["not_judged"]
    if name == "not_judged":
        return Cell(str(waiting), (f"of {everything}",))
    if waiting == everything:
        return absent_cell(NOT_JUDGED)
    return Cell(str(classes[name]), (f"of {everything - waiting}{' judged' if waiting else ''}",))


def _cell(run: ReportedRun, figures: dict[str, Any], key: str, mask: str | None = None) -> Cell:
    rate = figures.get(key)
    return rate_cell(rate) if rate is not None else why_no_ear(run, key, mask)


def _competence(run: ReportedRun, kind: str) -> Cell:
    inside = [one for one in _ear(run) if ear_condition(one.trial).kind == kind and not ear_condition(one.trial).wide]
    return rate_cell(run.summary["ear"]["competence"][kind], why_null(ear_competence(one) for one in inside))


def why_no_ear(run: ReportedRun, measure: str, mask: str | None = None) -> Cell:
    """Why a figure of EAR is null: its trials were not run, or a judge has still to speak.

    Args:
        run: the run.
        measure: ``C``, ``R`` or ``EAR``.
        mask: of that mask only (``noise``, ``noise+wide``); None: of all without an expanded window.
    """
    taken = [(one, ear_condition(one.trial)) for one in _ear(run)]
    if mask is None:
        answerable = [one for one, condition in taken if condition.answerable and not condition.wide]
        unanswerable = [one for one, condition in taken if not condition.answerable and not condition.wide]
    else:
        wide, kind = mask.endswith("+wide"), mask.removesuffix("+wide")
        of_mask = [(one, condition) for one, condition in taken if condition.mask == kind]
        unanswerable = [one for one, condition in of_mask if not condition.answerable and condition.wide == wide]
        invariant = [one for one, condition in of_mask if condition.answerable and condition.wide == wide]
        # As in the score: where no filler word has the expanded window, those with the narrow one stand in.
        invariant = invariant or [one for one, condition in of_mask if condition.answerable and wide]
        answerable = [*(one for one, condition in taken if condition.kind == "original"), *invariant]
    competence = [ear_competence(one) for one in answerable]
    repair = [ear_repair(one) for one in unanswerable]
    if measure != "EAR":
        return why_null(competence if measure == "C" else repair)
    # Without either of them there is no mean, whatever is known of the other.
    return why_null([*competence, *repair] if competence and repair else [])


def _ear(run: ReportedRun) -> list[Played]:
    return [one for one in run.played if one.trial.family == "ear"]
