"""Intervals and tests against known values and against what must hold for any counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.stats import (
    cluster_bootstrap,
    holm,
    mcnemar_exact,
    median_difference,
    proportion_interval,
    quantile,
    wilson,
)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        # Newcombe 1998, table I: 81/263, 15/148, 0/20, 1/29, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        # VGBench's 73 of 80.
        (73, 80, 0.8302, 0.9570),
    ],
)
def test_wilson_gives_the_published_intervals(k: int, n: int, low: float, high: float):
    assert wilson(k, n) == pytest.approx((low, high), abs=6e-5)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share_stays_in_bounds_and_is_symmetric(counts: tuple[int, int]):
    k, n = counts
    low, high = wilson(k, n)
    assert 0 <= low <= k / n <= high <= 1
    assert high - low > 0, "no count makes certain"
    assert wilson(n - k, n) == pytest.approx((1 - high, 1 - low), abs=1e-12)


@pytest.mark.parametrize(("k", "n"), [(1, 0), (-1, 5), (6, 5)])
def test_impossible_counts_are_refused(k: int, n: int):
    with pytest.raises(ValueError, match="no proportion"):
        wilson(k, n)


def test_trials_of_one_command_do_not_count_as_independent():
    alone = [f"c{i}" for i in range(80)]
    credits = [1.0] * 60 + [0.0] * 20
    wide = proportion_interval([f"c{i // 8}" for i in range(80)], credits, seed=0)
    narrow = proportion_interval(alone, credits, seed=0)
    assert narrow == wilson(60, 80)
    assert wide[1] - wide[0] > 1.5 * (narrow[1] - narrow[0]), "eight conditions of ten commands, all or nothing"


def test_clusters_of_equal_trials_give_the_interval_of_the_clusters():
    """Each command ten times over adds nothing to knowing it once: the interval is about that of twenty trials."""
    clusters = [f"c{i // 10}" for i in range(200)]
    credits = [float(i // 10 < 12) for i in range(200)]
    low, high = proportion_interval(clusters, credits, seed=1)
    assert (low, high) == pytest.approx(wilson(12, 20), abs=0.05)


@pytest.mark.parametrize("credit", [0.0, 0.5, 1.0])
def test_agreement_of_all_trials_is_not_certainty(credit: float):
    interval = proportion_interval(["a", "a", "b", "b"], [credit] * 4, seed=0)
    assert interval == wilson(2 * credit, 2), "as many trials as there are clusters"


def test_partial_credits_are_resampled_and_not_taken_for_hits():
    credits = [0.4, 0.6] * 20
    low, high = proportion_interval([f"c{i}" for i in range(40)], credits, seed=0)
    assert 0.46 < low < 0.5 < high < 0.54, "they hardly vary, as 20 hits of 40 would"


def test_the_bootstrap_is_the_same_for_the_same_seed_and_only_then():
    sums = np.column_stack([np.arange(30) % 3, np.full(30, 3)]).astype(float)

    def share(drawn: np.ndarray) -> np.ndarray:
        return np.asarray(drawn[:, 0] / drawn[:, 1])

    assert cluster_bootstrap(sums, share, seed=4) == cluster_bootstrap(sums, share, seed=4)
    assert cluster_bootstrap(sums, share, seed=4) != cluster_bootstrap(sums, share, seed=5)
    assert cluster_bootstrap(np.zeros((0, 2)), share, seed=4) is None
    assert cluster_bootstrap(np.zeros((3, 2)), share, seed=4) is None, "nothing divided by nothing is no value"


def test_the_bootstrap_s_width_is_the_normal_approximation_s():
    random = np.random.default_rng(7)
    hits = (random.random(400) < 0.3).astype(float)
    found = cluster_bootstrap(
        np.column_stack([hits, np.ones(400)]), lambda drawn: np.asarray(drawn[:, 0] / drawn[:, 1]), seed=0
    )
    assert found is not None
    p = hits.mean()
    assert found[1] - found[0] == pytest.approx(2 * 1.96 * np.sqrt(p * (1 - p) / 400), rel=0.08)


@pytest.mark.parametrize(
    ("b", "c", "p"),
    [
        (0, 0, 1.0),
        (0, 5, 0.0625),  # 2 / 2^5
        (1, 9, 0.021484375),  # 2 (1 + 10) / 2^10
        (5, 5, 1.0),
        (2, 8, 0.109375),  # 2 (1 + 10 + 45) / 2^10
    ],
)
def test_mcnemar_is_the_exact_binomial_test(b: int, c: int, p: float):
    assert mcnemar_exact(b, c) == pytest.approx(p)
    assert mcnemar_exact(c, b) == pytest.approx(p)


def test_holm_corrects_for_all_that_was_looked_at():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p_values: list[float]):
    adjusted = holm(p_values)
    assert all(after >= before for before, after in zip(p_values, adjusted, strict=True))
    assert all(after <= 1 for after in adjusted)
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)


def test_quantiles_lie_between_values():
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([0.0, 1.0], 0.95) == pytest.approx(0.95)
    assert quantile([], 0.5) is None


def test_a_median_difference_is_paired_and_has_an_interval():
    first = [1.0, 2.0, 3.0, 4.0] * 10
    found = median_difference(first, [value + 0.5 for value in first], [f"c{i}" for i in range(40)], seed=0)
    assert found is not None
    assert found[0] == pytest.approx(0.5)
    assert found[1] == pytest.approx((0.5, 0.5))
    assert median_difference([], [], [], seed=0) is None
