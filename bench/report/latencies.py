"""The times of a run, outcome by outcome, and how sure their quantiles are."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report.runs import ReportedRun
from bench.score_times import OUTCOMES, latency_s
from bench.stats import LEVEL

Bounds = tuple[float | None, float | None]
OUTCOME_NAMES = {
    "right_execution": "Right executions", "false_execution": "False executions", "right_mute": "Right mutes",
    "false_rejection": "False rejections", "pardon": "Pardons", "answer": "Answers",
}  # fmt: skip


def latencies_of(run: ReportedRun, outcome: str) -> list[float]:
    """The known latencies of an outcome of ``bench.score_times.OUTCOMES``, in seconds, the shortest first."""
    found = (latency_s(one) for one in run.played if OUTCOMES[outcome](one))
    return sorted(value for value in found if value is not None)


def quantile_interval(ordered: Sequence[float], share: float, level: float = LEVEL) -> Bounds:
    """An interval of a quantile from order statistics: exact, whatever the distribution, for independent values.

    Args:
        ordered: the values, the smallest first; at least one.
        share: which quantile, above 0 and below 1.
        level: its coverage, at least.

    Returns:
        Both bounds; None on a side on which there are too few values to bound it.
    """
    from scipy.stats import binom

    n = len(ordered)
    low = int(binom.ppf((1 - level) / 2, n, share))
    high = int(binom.ppf((1 + level) / 2, n, share)) + 1
    return ordered[low - 1] if low >= 1 else None, ordered[high - 1] if high <= n else None
