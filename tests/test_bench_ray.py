"""The same run on a Ray cluster of this machine. Needs the extra ``ray``; skipped without it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from bench.executors import WorkersFailedError
from bench.ray_run import LOCAL
from bench.run import run
from bench.runlog import RUN_LOG, read_log
from bench.trials import write_manifest
from tests.bench_contestants import CALL, CHAT, KILLS, KILLS_ONCE, MARK
from tests.bench_harness import options, small_corpus, spoken

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="the extra ray is not installed")


@pytest.mark.skipif(HAS_RAY, reason="ray is installed")
def test_without_ray_the_cure_is_named(tmp_path: Path):
    with pytest.raises(WorkersFailedError, match="pip install"):
        run(options(small_corpus(tmp_path), tmp_path / "out", ray=LOCAL))


@needs_ray
@pytest.mark.slow
def test_actors_play_what_processes_play(tmp_path: Path):
    report = run(options(small_corpus(tmp_path), tmp_path / "out", ray=LOCAL, workers=2))
    assert report.statuses == {"ok": 6}
    assert {result.id: result.action for result in read_log(tmp_path / "out" / RUN_LOG)} == {
        "same": "tool", "diff": "mute", "typed": "tool", "chat": "mute", "ask": "answer", "pay": "pardon",
    }  # fmt: skip


@needs_ray
@pytest.mark.slow
def test_an_actor_that_dies_costs_its_trial_one_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(MARK, str(tmp_path / "mark"))
    trials = [
        spoken(tmp_path, "once", [CHAT, KILLS_ONCE], "mute"),
        spoken(tmp_path, "always", [CHAT, KILLS], "mute"),
        spoken(tmp_path, "after", [CHAT, CALL], "tool", tool="make_call"),
    ]
    write_manifest(tmp_path / "manifest.jsonl", trials)
    run(options(tmp_path / "manifest.jsonl", tmp_path / "out", ray=LOCAL, workers=1, preflight=False))
    found = {result.id: (result.status, result.action) for result in read_log(tmp_path / "out" / RUN_LOG)}
    assert found == {"once": ("ok", "mute"), "always": ("error", None), "after": ("ok", "tool")}


@needs_ray
@pytest.mark.slow
def test_what_keeps_an_actor_from_loading_comes_back_as_it_is(tmp_path: Path):
    with pytest.raises(RuntimeError, match="voicegate models pull"):
        run(options(small_corpus(tmp_path), tmp_path / "out", ray=LOCAL, policy="tests.bench_contestants:broken"))
