"""``summary.gate``: executions that should not have been and commands that were not carried out, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bench.measures import GATE, PROXIMITY_RULE, SELF_TALK, Measure, Played
from bench.rates import Rate, measured
from bench.results import proposed_result

NO_TOOL = "none"
"""Stands for the tool where the words name none."""


def gate_scores(played: Sequence[Played], seed: int) -> dict[str, Any]:
    """Each measure whole, by family, by condition and by the tool that the words name; and of the proposals alone."""
    scores = {measure.name.removeprefix("gate."): _broken_down(measure, played, seed) for measure in GATE}
    return {**scores, "proposals": _proposals(played, seed)}


def _proposals(played: Sequence[Played], seed: int) -> dict[str, Any] | None:
    """What the policy wrote, taken at its word and read both ways; None where no native dialect was met.

    ``strict`` counts the canonical form alone, ``normalised`` calls in the model's dialect too.
    """
    if not any(decision.dialect for one in played for decision in one.result.decisions):
        return None
    return {
        name: _as_written([replace(one, result=proposed_result(one.result, dialects=dialects)) for one in played], seed)
        for name, dialects in (("strict", False), ("normalised", True))
    }


def _as_written(played: Sequence[Played], seed: int) -> dict[str, Rate | None]:
    measures = (*GATE, SELF_TALK, PROXIMITY_RULE)
    return {measure.name.removeprefix("gate."): measured(measure, played, seed) for measure in measures}


def _broken_down(measure: Measure, played: Sequence[Played], seed: int) -> Rate | None:
    whole = measured(measure, played, seed)
    if whole is None:
        return None
    families = _by(measure, played, lambda one: one.trial.family, seed)
    return {
        **whole,
        "by_family": families,
        "by_condition": {
            family: _by(measure, [one for one in played if one.trial.family == family], _condition, seed)
            for family in families
        },
        "by_tool": _by(measure, played, lambda one: one.trial.wanted_tool or NO_TOOL, seed),
    }


def _condition(played: Played) -> str:
    return played.trial.condition


def _by(measure: Measure, played: Sequence[Played], key: Callable[[Played], str], seed: int) -> dict[str, Rate | None]:
    """The measure in each group in which it applies to anything."""
    groups: dict[str, list[Played]] = {}
    for one in played:
        if measure.applies(one):
            groups.setdefault(key(one), []).append(one)
    return {name: measured(measure, groups[name], seed) for name in sorted(groups)}
