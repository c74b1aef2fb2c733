"""How well scores tell one person from two: EER, minDCF, Cllr and min Cllr, with intervals over voices.

EER and the normalised minimum detection cost follow NIST's speaker recognition evaluations (Van Leeuwen and Brümmer,
"An introduction to application-independent evaluation of speaker recognition systems", 2007), Cllr and min Cllr
Brümmer and du Preez, "Application-independent evaluation of speaker detection" (2006). Intervals come from a bootstrap
that draws voices, not trials: trials of one voice are anything but independent. A trial between two voices counts as
often as both were drawn together (Poh and Bengio, "Estimating the confidence interval of expected performance curve in
biometric authentication using joint bootstrap", 2007).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

REPLICATES = 300
_LEVEL = 0.95
_MAX_CELLS = 8_000_000
"""Replicates times trials that are looked at in one go: 64 MB an array."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of trials.

    Attributes:
        score: float64 ``(n,)``; higher means more alike.
        target: bool ``(n,)``: whether both sides are one person.
        reference_voice: int64 ``(n,)``: whose reference, by any numbering.
        test_voice: int64 ``(n,)``: whose test, by the same numbering.

    Raises:
        ValueError: when lengths differ.
    """

    score: FloatArray
    target: BoolArray
    reference_voice: IntArray
    test_voice: IntArray

    def __post_init__(self) -> None:
        if len({len(self.score), len(self.target), len(self.reference_voice), len(self.test_voice)}) != 1:
            raise ValueError("scores, targets and voices differ in length")

    @property
    def complete(self) -> bool:
        """Whether there are trials of both kinds; without, nothing can be measured."""
        return bool(self.target.any() and not self.target.all())

    def chosen(self, which: BoolArray) -> Scored:
        """Some of the trials."""
        return Scored(self.score[which], self.target[which], self.reference_voice[which], self.test_voice[which])


Statistic = Callable[[FloatArray, FloatArray], FloatArray]
"""From rates of misses and false alarms at every threshold, each ``(rows, thresholds)``, to one number a row."""


def equal_error_rate(miss: FloatArray, false_alarm: FloatArray) -> FloatArray:
    """Where misses and false alarms are equally likely, ``(rows,)``; a :data:`Statistic`."""
    best = np.argmin(np.abs(miss - false_alarm), axis=1)
    rows = np.arange(len(miss))
    return np.asarray((miss[rows, best] + false_alarm[rows, best]) / 2.0, dtype=np.float64)


def min_dcf(p_target: float) -> Statistic:
    """The least detection cost with both costs 1, over that of deciding without a score; a :data:`Statistic`.

    Args:
        p_target: the prior probability that both sides are one person.
    """

    def cost(miss: FloatArray, false_alarm: FloatArray) -> FloatArray:
        costs = p_target * miss + (1.0 - p_target) * false_alarm
        return np.asarray(costs.min(axis=1) / min(p_target, 1.0 - p_target), dtype=np.float64)

    return cost


def rates(scored: Scored, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Misses and false alarms at every threshold.

    Args:
        scored: trials of both kinds.
        weight: ``(rows, n)``: how often each trial counts.

    Returns:
        Two arrays ``(rows, thresholds)``: a threshold below all scores, then one above each distinct score.
    """
    order = np.argsort(scored.score, kind="stable")
    ordered, target = scored.score[order], scored.target[order]
    last = np.flatnonzero(np.append(np.diff(ordered) > 0.0, True))
    below = {}
    for kind in (True, False):
        sums = np.cumsum(np.where(target == kind, weight[:, order], 0.0), axis=1)
        share = sums[:, last] / np.maximum(sums[:, -1:], 1e-300)
        below[kind] = np.concatenate([np.zeros((len(weight), 1)), share], axis=1)
    return below[True], 1.0 - below[False]


def measure(scored: Scored, statistic: Statistic) -> float:
    """A statistic of all trials, each counting once; NaN unless there are trials of both kinds."""
    if not scored.complete:
        return math.nan
    return float(statistic(*rates(scored, np.ones((1, len(scored.score)))))[0])


def interval(scored: Scored, statistic: Statistic, *, seed: int, replicates: int = REPLICATES) -> tuple[float, float]:
    """The 95 % interval of a statistic over voices, by percentile bootstrap.

    Args:
        scored: the trials.
        statistic: what to measure.
        seed: for the draw.
        replicates: how many draws. Those that leave no target or no impostor are left out.

    Returns:
        Lower and upper end; NaN where no draw can be measured.
    """
    if not scored.complete:
        return math.nan, math.nan
    voices, numbers = np.unique(np.concatenate([scored.reference_voice, scored.test_voice]), return_inverse=True)
    one, two = np.split(numbers, 2)
    random = np.random.default_rng(seed)
    found: list[float] = []
    rows = max(1, min(replicates, _MAX_CELLS // len(scored.score)))
    while replicates > 0:
        now = min(rows, replicates)
        replicates -= now
        drawn = random.multinomial(len(voices), np.full(len(voices), 1.0 / len(voices)), size=now).astype(np.float64)
        weight = np.where(scored.target, drawn[:, one], drawn[:, one] * drawn[:, two])
        weight = weight[(weight[:, scored.target].sum(axis=1) > 0) & (weight[:, ~scored.target].sum(axis=1) > 0)]
        if len(weight):
            found.extend(statistic(*rates(scored, weight)).tolist())
    if not found:
        return math.nan, math.nan
    low, high = np.quantile(found, [(1.0 - _LEVEL) / 2.0, (1.0 + _LEVEL) / 2.0])
    return float(low), float(high)


def cllr(llr: FloatArray, target: BoolArray, weight: FloatArray | None = None) -> float:
    """Cost of the log-likelihood ratios in bits: 0 is perfect, 1 is what never telling costs.

    Args:
        llr: natural logarithms ``(n,)``.
        target: ``(n,)``.
        weight: how much each trial counts, ``(n,)``; all the same by default.
    """
    counts = np.ones(len(llr)) if weight is None else weight
    bits = np.logaddexp(0.0, np.where(target, -llr, llr)) / math.log(2.0)
    return (
        float(np.average(bits[target], weights=counts[target]) + np.average(bits[~target], weights=counts[~target]))
        / 2.0
    )


def min_cllr(score: FloatArray, target: BoolArray, weight: FloatArray | None = None) -> float:
    """What :func:`cllr` would cost with the best monotone calibration of these very trials.

    Args:
        score: ``(n,)``; higher means more alike.
        target: ``(n,)``.
        weight: as for :func:`cllr`.
    """
    from scipy.optimize import isotonic_regression

    counts = np.ones(len(score)) if weight is None else weight
    balanced = np.where(target, counts / counts[target].sum(), counts / counts[~target].sum())
    values, place = np.unique(score, return_inverse=True)
    total = np.bincount(place, balanced)
    share = np.bincount(place, balanced * target) / total
    fitted = isotonic_regression(share, weights=total, increasing=True).x
    with np.errstate(divide="ignore"):
        llr = np.log(fitted) - np.log1p(-fitted)
    assert len(llr) == len(values)
    return cllr(np.asarray(llr[place], dtype=np.float64), target, counts)
