"""Rates as the summary writes them: with their counts and a 95 % interval, and null where nothing was run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.measures import Measure, Played
from bench.stats import proportion_interval

Rate = dict[str, Any]
"""``{"n": 80, "k": 73, "rate": 0.9125, "ci95": [0.83, 0.96]}``."""
DIGITS = 6


def rounded(value: float) -> float:
    """A figure as it is written."""
    return round(value, DIGITS)


def rate_of(clusters: Sequence[str], credits: Sequence[float], seed: int) -> Rate | None:
    """The rate of some trials, or None without any.

    Args:
        clusters: what each trial belongs to.
        credits: each trial's credit, 0 to 1.
        seed: of the bootstrap.
    """
    if not credits:
        return None
    k = sum(credits)
    low, high = proportion_interval(clusters, credits, seed=seed)
    return {
        "n": len(credits),
        "k": int(k) if k == int(k) else rounded(k),
        "rate": rounded(k / len(credits)),
        "ci95": [rounded(low), rounded(high)],
    }


def measured(measure: Measure, played: Iterable[Played], seed: int) -> Rate | None:
    """The rate of a measure; None when nothing applies, or when a judge has not said all that is to be said."""
    inside = [one for one in played if measure.applies(one)]
    credits = [measure.hit(one) for one in inside]
    known = [credit for credit in credits if credit is not None]
    if len(known) < len(credits):
        return None
    return rate_of([one.trial.cluster for one in inside], known, seed)


def not_judged(measure: Measure, played: Iterable[Played]) -> int:
    """How many trials a judge has still to say something on."""
    return sum(measure.hit(one) is None for one in played if measure.applies(one))
