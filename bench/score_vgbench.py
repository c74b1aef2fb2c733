"""``summary.vgbench``: the figures of VGBench's tables, from the same definitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from bench.measures import PROXIMITY_RULE, SELF_TALK, SIDE_TALK, Played, obeys_proximity_rule, switch_measures
from bench.rates import Rate, measured, not_judged, rounded
from bench.stats import cluster_bootstrap, wilson
from bench.trials import TEXT_ONLY

EIGHT_CONDITIONS = tuple("/".join(parts) for parts in product(("same", "diff"), ("near", "far"), ("0", "600")))
"""The scene-consistent test of the proximity rule (VGBench, section 6.1)."""


def vgbench_scores(played: Sequence[Played], seed: int) -> dict[str, Any]:
    """Side-talk, self-talk, speaker-switch by condition, and the proximity rule."""
    side = [one for one in played if SIDE_TALK.applies(one)]
    self_talk = [one for one in played if SELF_TALK.applies(one)]
    return {
        "side_talk": {
            "correct": measured(SIDE_TALK, side, seed),
            "not_judged": not_judged(SIDE_TALK, side),
            "by_condition": {
                name: measured(SIDE_TALK, [one for one in side if one.trial.condition == name], seed)
                for name in sorted({one.trial.condition for one in side})
            },
        },
        "self_talk": {
            "mute": measured(SELF_TALK, self_talk, seed),
            "by_condition": {
                name: measured(SELF_TALK, [one for one in self_talk if one.trial.condition == name], seed)
                for name in sorted({one.trial.condition for one in self_talk})
            },
        },
        "speaker_switch": _speaker_switch(played, seed),
        "proximity_rule": {"accuracy": proximity_rule(played, seed)},
    }


def _speaker_switch(played: Sequence[Played], seed: int) -> dict[str, Any]:
    found = {one.trial.condition for one in played if one.trial.family == "speaker_switch"}
    conditions: dict[str, Any] = {}
    for name in [TEXT_ONLY, *sorted(found - {TEXT_ONLY})]:
        mute, select = (measured(measure, played, seed) for measure in switch_measures(name))
        # A typed command is never to be muted: only its selection is a figure of the benchmark.
        conditions[name] = {"select": select} if name == TEXT_ONLY else {"mute": mute, "select": select}
    return conditions


def proximity_rule(played: Sequence[Played], seed: int) -> Rate | None:
    """Accuracy under the proximity rule, each of the eight conditions with equal weight.

    ``n`` and ``k`` count trials, so ``rate`` is their ratio only where all conditions have as many.

    Returns:
        The rate, or None unless all eight conditions were run: the mean of fewer is another figure.
    """
    inside = [one for one in played if PROXIMITY_RULE.applies(one) and one.trial.condition in EIGHT_CONDITIONS]
    if {one.trial.condition for one in inside} != set(EIGHT_CONDITIONS):
        return None
    hits = [float(obeys_proximity_rule(one) or 0.0) for one in inside]
    clusters = {name: number for number, name in enumerate(sorted({one.trial.cluster for one in inside}))}
    sums = np.zeros((len(clusters), 2 * len(EIGHT_CONDITIONS)))
    for one, hit in zip(inside, hits, strict=True):
        column = 2 * EIGHT_CONDITIONS.index(one.trial.condition)
        sums[clusters[one.trial.cluster], column : column + 2] += (hit, 1.0)

    def accuracy(drawn: np.ndarray) -> np.ndarray:
        return np.asarray((drawn[:, 0::2] / drawn[:, 1::2]).mean(axis=1), np.float64)

    rate = float(accuracy(sums.sum(axis=0, keepdims=True))[0])
    interval = cluster_bootstrap(sums, accuracy, seed=seed)
    # Where every command scores alike the bootstrap would claim to be certain, also at a rate between the ends.
    if interval is None or interval[0] == interval[1]:
        interval = wilson(rate * len(clusters), len(clusters))
    return {
        "n": len(inside), "k": int(sum(hits)), "rate": rounded(rate), "ci95": [rounded(bound) for bound in interval],
    }  # fmt: skip
