"""The statistics of the benchmark: intervals, paired tests, quantiles. Small, exact where that is cheap, seeded.

Trials that share a command (its conditions) or a question (its realisations) are not independent of each other, so
intervals of anything that pools them resample whole clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Interval = tuple[float, float]
FloatArray = npt.NDArray[np.float64]

RESAMPLES = 2000
LEVEL = 0.95


def wilson(k: float, n: float, level: float = LEVEL) -> Interval:
    """Wilson's score interval of a proportion (Wilson 1927), which stays within 0 and 1 and is not empty at 0 or n.

    Args:
        k: hits, 0 to ``n``; may be a sum of partial credits.
        n: trials, at least 1 or so; an effective number may be fractional.
        level: its coverage.

    Raises:
        ValueError: when ``n`` is not positive, or ``k`` is not within 0 and ``n``.
    """
    from scipy.stats import norm

    if not (n > 0 and 0 <= k <= n):
        raise ValueError(f"no proportion: {k} of {n}")
    z = float(norm.ppf(0.5 + level / 2))
    share = k / n
    centre = share + z * z / (2 * n)
    half = z * float(np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)))
    scale = 1 + z * z / n
    low, high = (centre - half) / scale, (centre + half) / scale
    # At the ends the bound is exactly 0 or 1; rounding must not leave the share outside of it.
    return min(max(0.0, low), share), max(min(1.0, high), share)


def cluster_bootstrap(
    sums: FloatArray, statistic: Callable[[FloatArray], FloatArray], *, seed: int, level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Interval | None:  # fmt: skip
    """Percentile bootstrap over clusters: whole clusters are drawn with replacement, and their sums give the statistic.

    Args:
        sums: float64 ``(clusters, columns)``: what each cluster adds to each column (hits, trials, …).
        statistic: from sums of draws, ``(draws, columns)``, to one value each, ``(draws,)``; NaN where it has none.
        seed: of the draws.
        level: coverage.
        resamples: how many draws.

    Returns:
        The interval, or None when there is no cluster or no draw has a value.
    """
    clusters = len(sums)
    if clusters == 0:
        return None
    random = np.random.default_rng(seed)
    # Counting how often each cluster is drawn, instead of gathering rows, keeps memory small.
    counts = random.multinomial(clusters, np.full(clusters, 1 / clusters), size=resamples).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(counts @ sums)
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def proportion_interval(clusters: Sequence[str], credits: Sequence[float], *, seed: int) -> Interval:
    """The 95 % interval of a proportion.

    Wilson's where every trial is a cluster by itself and is a hit or none, the cluster bootstrap otherwise. Where all
    clusters agree (the bootstrap would claim to be certain), Wilson's with as many trials as there are clusters.

    Args:
        clusters: the cluster of each trial, at least one.
        credits: its credit, 0 to 1.
        seed: of the bootstrap.
    """
    n, k = len(credits), float(sum(credits))
    names = sorted(set(clusters))
    if len(names) == n and set(credits) <= {0.0, 1.0}:
        return wilson(k, n)
    index = {name: number for number, name in enumerate(names)}
    sums = np.zeros((len(names), 2))
    for cluster, credit in zip(clusters, credits, strict=True):
        sums[index[cluster]] += (credit, 1.0)
    found = cluster_bootstrap(sums, lambda drawn: drawn[:, 0] / drawn[:, 1], seed=seed)
    assert found is not None, "every draw of clusters with trials has a proportion"
    return found if found[0] < found[1] else wilson(len(names) * k / n, len(names))


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """The exact two-sided McNemar test on paired outcomes (McNemar 1947): the binomial test on the pairs that differ.

    Args:
        only_first: pairs in which only the first was a hit.
        only_second: pairs in which only the second was.

    Returns:
        The p-value; 1 when no pair differs.
    """
    from scipy.stats import binomtest

    differing = only_first + only_second
    return 1.0 if not differing else float(binomtest(only_first, differing, 0.5).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for having been looked at together (Holm 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def quantile(values: Sequence[float], share: float) -> float | None:
    """A quantile, linearly between the two values beside it; None without values.

    Args:
        values: finite numbers, in any order.
        share: 0 to 1.
    """
    return float(np.quantile(np.asarray(values, np.float64), share)) if len(values) else None


def median_difference(
    first: Sequence[float], second: Sequence[float], clusters: Sequence[str], *, seed: int
) -> tuple[float, Interval] | None:
    """The median of paired differences, second less first, with a 95 % interval over clusters; None without pairs."""
    if not len(first):
        return None
    differences = np.asarray(second, np.float64) - np.asarray(first, np.float64)
    names = sorted(set(clusters))
    members = [np.flatnonzero(np.asarray(clusters) == name) for name in names]
    random = np.random.default_rng(seed)
    drawn = [
        float(
            np.median(differences[np.concatenate([members[i] for i in random.integers(len(names), size=len(names))])])
        )
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(np.median(differences)), (float(low), float(high))
