"""What each replica has played: no trial is counted for another replica, and a dead one's work is not forgotten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.ray_replicas import REPLICAS, Place, Replicas, read_replicas, replica_lines, replica_scores
from bench.results import TrialResult, TrialTiming


def result(name: str, audio_s: float, took_s: float) -> TrialResult:
    return TrialResult(
        id=name, status="ok", timing=TrialTiming(audio=audio_s, began_unix=100.0, ended_unix=100 + took_s)
    )


def test_each_replica_is_counted_for_itself_and_a_dead_one_keeps_what_it_played(tmp_path: Path):
    replicas = Replicas(tmp_path / REPLICAS)
    for number, place in ((1, Place("a", 11, ("0",))), (2, Place("b", 22, ("0", "1")))):
        replicas.started(number)
        replicas.loaded(number, place)
    replicas.played(1, result("x", 6.0, 2.0))
    replicas.played(2, result("y", 4.0, 4.0))
    replicas.over(2, "died: ActorDiedError")
    replicas.started(3)
    replicas.played(1, result("z", 2.0, 2.0))
    for number in (1, 2, 3):
        replicas.over(number)
    found = read_replicas(tmp_path)
    assert [(one.replica, one.node, one.trials, one.ended) for one in found] == [
        (2, "b", 1, "died: ActorDiedError"), (1, "a", 2, "closed"), (3, "", 0, "closed"),
    ]  # fmt: skip
    assert found == replicas.ended
    assert [one.audio_seconds_per_second for one in found] == [1.0, 2.0, None]
    assert list(replica_lines(found)) == [
        "replica 2 on b, GPU 0+1: 1 trials, 1.00 s of audio a second; died: ActorDiedError",
        "replica 1 on a, GPU 0: 2 trials, 2.00 s of audio a second",
        "replica 3 on no node: 0 trials",
        "replicas: 1.00 to 2.00 s of audio a second each",
    ]
    scores = replica_scores(found)
    assert scores is not None
    assert [score["audio_seconds_per_second"] for score in scores] == [1.0, 2.0, None]
    json.dumps(scores, allow_nan=False)


def test_a_run_on_one_machine_has_no_replicas_and_says_so_by_saying_nothing(tmp_path: Path):
    assert read_replicas(tmp_path) == []
    assert list(replica_lines([])) == []
    assert replica_scores([]) is None


def test_a_torn_line_is_passed_over_and_a_broken_one_is_not(tmp_path: Path):
    replicas = Replicas(tmp_path / REPLICAS)
    replicas.started(1)
    replicas.over(1)
    whole = (tmp_path / REPLICAS).read_bytes()
    (tmp_path / REPLICAS).write_bytes(whole + whole[:9])
    assert len(read_replicas(tmp_path)) == 1
    (tmp_path / REPLICAS).write_bytes(b"{}\n")
    with pytest.raises(ValueError, match="replica"):
        read_replicas(tmp_path)


def test_a_clock_that_was_set_back_makes_no_negative_time():
    replicas = Replicas()
    replicas.started(1)
    replicas.played(1, result("x", 6.0, -3.0))
    replicas.over(1)
    assert replicas.ended[0].audio_seconds_per_second is None
