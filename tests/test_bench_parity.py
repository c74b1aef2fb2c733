"""The charged clock against real time: decisions must be the same, and the figures near."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.parity import PARITY, Parity, compared, parity, spread
from bench.results import TrialResult
from bench.trials import load_manifest
from tests.bench_harness import decision, here, options, small_corpus


@pytest.mark.slow
def test_the_same_trials_decide_the_same_in_real_time(tmp_path: Path):
    found = parity(options(small_corpus(tmp_path), tmp_path / "out"), limit=2, tolerance_share=1.0, make_cluster=here)
    assert found.trials == 2
    assert found.differing == {}
    assert found.holds, found.median_s
    assert json.loads((tmp_path / "out" / PARITY).read_text())["holds"] is True
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"charged", "wall", PARITY}


def results(action: str, at_s: float, compute_s: float = 0.1) -> dict[str, TrialResult]:
    made = decision(action, "make_call" if action == "tool" else None, at_s=at_s, compute={"speech": compute_s})
    return {"a": TrialResult(id="a", status="ok", decisions=(made,))}


def test_another_decision_or_a_distant_median_does_not_hold():
    same = compared({"charged": results("mute", 2.8), "wall": results("mute", 2.85)}, 0.1)
    assert same.holds
    assert same.median_s == {"charged": 0.8, "wall": 0.85}
    assert same.latency_apart_s is not None
    assert same.latency_apart_s[0] == 0.05
    slow = compared({"charged": results("mute", 2.8), "wall": results("mute", 3.0)}, 0.1)
    assert not slow.holds, "0.2 s is more than a tenth of 1.0 s"
    other = compared({"charged": results("mute", 2.8), "wall": results("tool", 2.8)}, 0.1)
    assert not other.holds
    assert list(other.differing) == ["a"]
    assert "make_call" in other.differing["a"]["wall"][1]
    half = {"charged": 0.5, "wall": None}
    assert not Parity(1, {}, half, half, None, None, 0.1).holds
    none: dict[str, float | None] = {"charged": None, "wall": None}
    assert Parity(1, {}, none, none, None, None, 0.1).holds, "no decision on either clock"


def test_models_that_computed_slower_the_second_time_are_not_the_clock_s_fault():
    busy = compared({"charged": results("mute", 2.8, 0.3), "wall": results("mute", 3.1, 0.55)}, 0.1)
    assert busy.holds
    assert busy.compute_s == {"charged": 0.3, "wall": 0.55}
    late = compared({"charged": results("mute", 2.8, 0.3), "wall": results("mute", 3.1, 0.35)}, 0.1)
    assert not late.holds


def test_trials_are_taken_evenly_from_all_of_the_manifest(tmp_path: Path):
    trials = load_manifest(small_corpus(tmp_path))
    assert [trial.id for trial in spread(trials, 2)] == ["same", "chat"], "typed trials have no clock to compare"
    assert len(spread(trials, 100)) == 5


def test_one_slow_trial_does_not_stand_for_the_clock():
    def three(*ends: float) -> dict[str, TrialResult]:
        return {
            name: TrialResult(id=name, status="ok", decisions=(decision("mute", at_s=at_s),))
            for name, at_s in zip("abc", ends, strict=True)
        }

    jumped = compared({"charged": three(2.6, 2.65, 3.2), "wall": three(2.6, 3.15, 3.25)}, 0.1)
    assert jumped.median_s == {"charged": 0.65, "wall": 1.15}
    assert jumped.latency_apart_s is not None
    assert jumped.latency_apart_s[0] == 0.05
    assert jumped.holds
