"""Trials over workers that come and go, without processes: what is lost, and what a run waits for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from agent.clock import Pace
from bench import executors
from bench.executors import Died, Done, Message, Pool, Ready, WorkerId, WorkersFailedError
from bench.results import TrialResult
from bench.trial_runner import RunSpec
from bench.trials import Expected, Trial


class Fleet:
    """Workers that load at once, but for those that never do; a worker dies of the trials that it is told to."""

    def __init__(self, *, room: int, deadly: Counter[str] | None = None, never: bool = False) -> None:
        self.room = room
        self._deadly = deadly or Counter()
        self._never = never
        self._said: list[tuple[WorkerId, Message]] = []
        self._alive: set[WorkerId] = set()
        self.launched = 0
        self.played: list[tuple[WorkerId, str]] = []

    def launch(self) -> WorkerId:
        self.launched += 1
        if self.launched <= self.room and not self._never:
            self._alive.add(self.launched)
            self._said.append((self.launched, Ready({})))
        return self.launched

    def submit(self, worker: WorkerId, trial: Trial) -> None:
        assert worker in self._alive
        self.played.append((worker, trial.id))
        if self._deadly[trial.id]:
            self._deadly[trial.id] -= 1
            self._alive.discard(worker)
            self._said.append((worker, Died("its node is lost")))
        else:
            self._said.append((worker, Done(TrialResult(id=trial.id, status="ok"))))

    def wait(self, limit_s: float) -> list[tuple[WorkerId, Message]]:
        said, self._said = self._said, []
        return said

    def kill(self, worker: WorkerId) -> None:
        self._alive.discard(worker)

    def close(self) -> None:
        """Nothing to close."""


def trials(count: int) -> list[Trial]:
    mute = Expected(action="mute")
    return [
        Trial(id=f"t{n}", family="direct", condition="x", text="x", expected=mute, split="test") for n in range(count)
    ]


def pool(fleet: Fleet, workers: int) -> Pool:
    return Pool(fleet, workers, RunSpec("x", "{}", Pace.FREE, 0, 60.0, Path()))


def test_when_nothing_has_room_for_a_lost_replica_the_others_play_on(monkeypatch: pytest.MonkeyPatch):
    fleet = Fleet(room=2, deadly=Counter(t1=1))
    playing = pool(fleet, 2)
    playing.start()
    monkeypatch.setattr(executors, "LOAD_LIMIT_S", -1.0)  # what does not load at once never will
    results = list(playing.play(trials(6)))
    assert Counter(result.id for result in results) == Counter(f"t{n}" for n in range(6))
    assert {result.status for result in results} == {"ok"}
    tries = [worker for worker, name in fleet.played if name == "t1"]
    assert len(tries) == len(set(tries)) == 2, "once more, elsewhere"
    assert fleet.launched == 3


def test_a_run_that_no_replica_ever_joins_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(executors, "LOAD_LIMIT_S", -1.0)
    with pytest.raises(WorkersFailedError, match="had not loaded"):
        pool(Fleet(room=2, never=True), 2).start()


def test_a_run_whose_last_replica_is_lost_ends_with_a_cause(monkeypatch: pytest.MonkeyPatch):
    fleet = Fleet(room=1, deadly=Counter(t0=1))
    playing = pool(fleet, 1)
    playing.start()
    monkeypatch.setattr(executors, "LOAD_LIMIT_S", -1.0)
    with pytest.raises(WorkersFailedError, match="had not loaded"):
        list(playing.play(trials(2)))
