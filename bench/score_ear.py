"""``summary.ear``: competence where a question can be answered, repair where it cannot, and their harmonic mean.

Expanded mask windows (``+wide``) are a setting of their own in *Pardon?* (section 5.3): they enter the figures of their
mask kind and none of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.measures import EAR_C, EAR_R, Hit, Played, ear_competence, ear_condition, ear_repair, ear_repair_class
from bench.rates import Rate, not_judged, rate_of, rounded
from bench.stats import cluster_bootstrap
from bench.trials import MASKS

REPAIR_CLASSES = ("explicit_repair", "generic_refusal", "other", "not_judged")


def ear_scores(played: Sequence[Played], seed: int) -> dict[str, Any]:
    """C, R and EAR, whole and by mask; what was said where there was nothing to answer; what a judge has left open."""
    ear = [one for one in played if one.trial.family == "ear"]
    answerable = [one for one in ear if EAR_C.applies(one)]
    unanswerable = [one for one in ear if EAR_R.applies(one)]
    return {
        **_figures(answerable, unanswerable, seed),
        "competence": {
            kind: _mean([one for one in answerable if ear_condition(one.trial).kind == kind], ear_competence, seed)
            for kind in ("original", "semantic_invariant")
        },
        "repair": _classes(unanswerable),
        "not_judged": {"answers": not_judged(EAR_C, ear), "repairs": not_judged(EAR_R, ear)},
        "by_mask": {
            name: _by_mask(ear, mask, wide, seed)
            for mask in MASKS
            for wide, name in ((False, mask), (True, f"{mask}+wide"))
            if any((c := ear_condition(one.trial)).mask == mask and c.wide == wide for one in ear)
        },
    }


def _by_mask(ear: Sequence[Played], mask: str, wide: bool, seed: int) -> dict[str, Any]:
    """One mask against the originals, which have none. A wide window on filler words is used where there is one."""
    conditions = [(one, ear_condition(one.trial)) for one in ear]
    of_mask = [(one, condition) for one, condition in conditions if condition.mask == mask]
    unanswerable = [one for one, condition in of_mask if not condition.answerable and condition.wide == wide]
    invariant = [one for one, condition in of_mask if condition.answerable and condition.wide == wide]
    if wide and not invariant:
        invariant = [one for one, condition in of_mask if condition.answerable]
    originals = [one for one, condition in conditions if condition.kind == "original"]
    return {**_figures([*originals, *invariant], unanswerable, seed), "repair": _classes(unanswerable)}


def _figures(answerable: Sequence[Played], unanswerable: Sequence[Played], seed: int) -> dict[str, Rate | None]:
    competence = _mean(answerable, ear_competence, seed)
    repair = _mean(unanswerable, ear_repair, seed)
    both = None
    if competence is not None and repair is not None:
        both = _harmonic(answerable, unanswerable, seed)
        if both["ci95"] is None or both["ci95"][0] == both["ci95"][1]:
            # Every draw is alike, which is no certainty: the intervals of C and R then bound their mean.
            both["ci95"] = [rounded(harmonic(c, r)) for c, r in zip(competence["ci95"], repair["ci95"], strict=True)]
    return {"C": competence, "R": repair, "EAR": both}


def harmonic(competence: float, repair: float) -> float:
    """The harmonic mean of the two; 0 where both are."""
    return 2 * competence * repair / (competence + repair) if competence + repair else 0.0


def _mean(trials: Sequence[Played], credit: Callable[[Played], Hit], seed: int) -> Rate | None:
    credits = [credit(one) for one in trials]
    known = [value for value in credits if value is not None]
    return None if len(known) < len(credits) else rate_of([one.trial.cluster for one in trials], known, seed)


def _harmonic(answerable: Sequence[Played], unanswerable: Sequence[Played], seed: int) -> Rate:
    """EAR over queries. It is no proportion of anything, so ``k`` is null and ``n`` counts the queries."""
    names = sorted({one.trial.cluster for one in (*answerable, *unanswerable)})
    row = {name: number for number, name in enumerate(names)}
    sums = np.zeros((len(names), 4))
    for trials, credit, column in ((answerable, ear_competence, 0), (unanswerable, ear_repair, 2)):
        for one in trials:
            sums[row[one.trial.cluster], column : column + 2] += (float(credit(one) or 0.0), 1.0)

    def ear(drawn: np.ndarray) -> np.ndarray:
        competence, repair = drawn[:, 0] / drawn[:, 1], drawn[:, 2] / drawn[:, 3]
        both = competence + repair
        mean = np.divide(2 * competence * repair, both, out=np.zeros_like(both), where=both != 0)
        return np.asarray(np.where(np.isfinite(both), mean, np.nan), np.float64)

    interval = cluster_bootstrap(sums, ear, seed=seed)
    return {
        "n": len(names),
        "k": None,
        "rate": rounded(float(ear(sums.sum(axis=0, keepdims=True))[0])),
        "ci95": None if interval is None else [rounded(bound) for bound in interval],
    }


def _classes(unanswerable: Sequence[Played]) -> dict[str, int] | None:
    if not unanswerable:
        return None
    counts = Counter(ear_repair_class(one) or "not_judged" for one in unanswerable)
    return {name: counts[name] for name in REPAIR_CLASSES}
