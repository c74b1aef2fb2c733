"""Two runs side by side: paired by id, tested exactly, every flip named."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.compare import changes, compare
from bench.measures import Played
from bench.run import run
from bench.score import ScoreError
from bench.trials import load_manifest, write_manifest
from tests.bench_contestants import UNGATED
from tests.bench_harness import here, options, played, small_corpus


def run_of(runs: list[bool]) -> list[Played]:
    """Trials in which no tool should run, and whether one did."""
    return [
        played(f"t{i}", "self_talk", "x", "mute", "tool" if ran else "mute", ran="make_call")
        for i, ran in enumerate(runs)
    ]


def found(first: list[bool], second: list[bool]) -> dict[str, str]:
    pairs = list(zip(run_of(first), run_of(second), strict=True))
    return {change.name: change.verdict for change in changes(pairs)}


def test_a_change_is_one_when_the_exact_test_says_so_after_correction():
    pairs = list(zip(run_of([True] * 12 + [False] * 20), run_of([False] * 32), strict=True))
    by_name = {change.name: change for change in changes(pairs)}
    change = by_name["gate.false_execution"]
    assert (change.n, change.first, change.second) == (32, 12 / 32, 0.0)
    assert change.only_first == tuple(f"t{i}" for i in range(12))
    assert change.only_second == ()
    assert change.p == pytest.approx(2 / 2**12, abs=1e-6)
    assert change.p_holm >= change.p
    assert change.verdict == "better", "fewer false executions"
    assert by_name["vgbench.self_talk.mute"].verdict == "better", "and more mutes"


def test_a_few_flips_are_noise_and_none_is_the_same():
    assert found([True, True, False, False], [False, True, False, False])["gate.false_execution"] == "noise"
    assert found([True, False], [True, False])["gate.false_execution"] == "same"
    assert found([False] * 20, [True] * 20)["gate.false_execution"] == "worse"


def test_flips_that_cancel_each_other_are_still_named():
    pairs = list(zip(run_of([True, False]), run_of([False, True]), strict=True))
    change = next(change for change in changes(pairs) if change.name == "gate.false_execution")
    assert (change.first, change.second, change.p, change.verdict) == (0.5, 0.5, 1.0, "noise")
    assert (change.only_first, change.only_second) == (("t0",), ("t1",))


def test_two_runs_on_disk_are_paired_by_id_and_their_difference_in_making_is_told(tmp_path: Path):
    manifest = small_corpus(tmp_path)
    run(options(manifest, tmp_path / "a"), here)
    run(options(manifest, tmp_path / "b", policy=UNGATED, limit=5), here)
    result = compare(tmp_path / "a", tmp_path / "b")
    assert (result.common, result.only_first, result.only_second) == (5, 1, 0)
    assert ("policy", "tests.bench_contestants:rehearsed", UNGATED) in result.configuration
    execution = next(change for change in result.changes if change.name == "gate.false_execution")
    assert execution.only_second == ("diff",)
    assert execution.verdict == "noise"
    assert result.latency is not None
    assert result.latency["n"] == 4
    assert '"only_second": [\n        "diff"' in result.as_json()


def test_runs_with_other_labels_or_other_trials_are_not_compared(tmp_path: Path):
    manifest = small_corpus(tmp_path)
    run(options(manifest, tmp_path / "a", limit=1), here)
    run(options(manifest, tmp_path / "b", ids=("chat",)), here)
    with pytest.raises(ScoreError, match="no trial in common"):
        compare(tmp_path / "a", tmp_path / "b")
    trials = load_manifest(manifest)
    write_manifest(manifest, [trials[0].model_copy(update={"target_tool": "send_message"}), *trials[1:]])
    run(options(manifest, tmp_path / "c", limit=1), here)
    with pytest.raises(ScoreError, match=r"other labels.*same.*--manifest"):
        compare(tmp_path / "a", tmp_path / "c")
    assert compare(tmp_path / "a", tmp_path / "c", manifest).common == 1
