"""The same run on a Ray cluster of this machine. Needs the extra ``ray``; skipped without it."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.executors import Cluster, WorkersFailedError
from bench.ray_placement import Placement
from bench.ray_replicas import REPLICAS, read_replicas
from bench.ray_run import LOCAL, RayCluster
from bench.run import Plan, run
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


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster of two nodes on this machine, each with a processor and, as it says, a GPU."""
    utils: Any = pytest.importorskip("ray.cluster_utils")
    mark = tmp_path_factory.mktemp("mark") / "mark"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(MARK, str(mark))
        node = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": 100_000_000}
        cluster = utils.Cluster(initialize_head=True, head_node_args=node)
        try:
            cluster.add_node(**node)
            yield cluster.address
        finally:
            cluster.shutdown()


def on(address: str, placement: Placement) -> Callable[[Plan], Cluster]:
    return lambda plan: RayCluster(plan.spec, 1, address, placement, plan.options.out / REPLICAS)


@needs_ray
@pytest.mark.slow
def test_a_replica_killed_between_two_nodes_loses_no_trial_and_repeats_none(tmp_path: Path, two_nodes: str):
    trials = [spoken(tmp_path, f"t{number}", [CHAT, CALL], "tool", tool="make_call") for number in range(11)]
    trials.insert(3, spoken(tmp_path, "once", [CHAT, KILLS_ONCE], "mute"))
    write_manifest(tmp_path / "manifest.jsonl", trials)
    run(
        options(tmp_path / "manifest.jsonl", tmp_path / "out", ray=two_nodes, workers=2, preflight=False),
        on(two_nodes, Placement(1.0, gpus=1.0)),
    )
    results = read_log(tmp_path / "out" / RUN_LOG)
    assert Counter(result.id for result in results) == Counter(trial.id for trial in trials)
    assert {result.id: result.action for result in results} == {trial.id: trial.expected.action for trial in trials}, (
        "the trial that its replica died of was played by another one"
    )
    replicas = read_replicas(tmp_path / "out")
    died = [one for one in replicas if one.ended.startswith("died")]
    assert len(died) == 1
    assert sum(one.trials for one in replicas) == len(trials), "each trial is some replica's, and one's only"
    assert len({one.pid for one in replicas if one.trials}) >= 2, "trials went to both"
    assert {one.gpus for one in replicas if one.trials} == {("0",)}, "each node shows a replica its own GPU"
    assert all(one.audio_seconds_per_second for one in replicas if one.trials)


@needs_ray
@pytest.mark.slow
def test_more_replicas_than_fit_are_refused_at_once_and_not_waited_for(tmp_path: Path, two_nodes: str):
    manifest = small_corpus(tmp_path)
    with pytest.raises(WorkersFailedError, match=r"room for 2 replicas of 1 CPU, 1 GPU each"):
        run(
            options(manifest, tmp_path / "three", ray=two_nodes, workers=3),
            on(two_nodes, Placement(1.0, gpus=1.0)),
        )
    with pytest.raises(WorkersFailedError, match="room for 0 replicas"):
        run(options(manifest, tmp_path / "two", ray=two_nodes), on(two_nodes, Placement(1.0, gpus=2.0)))
