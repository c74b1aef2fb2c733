"""Spreads trials over workers, and loses none of them: the part that is the same on one machine and on a cluster.

A ``Cluster`` starts workers and says what becomes of them; ``Pool`` hands out trials. A worker that dies costs the
trial that it held one attempt: it is given to a fresh worker once, and after a second death the trial is an ``error``.
A worker that outlasts a trial's limit by ``KILL_AFTER_S`` is killed, and its trial is a ``timeout``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.provenance import ConfigurationDiffersError
from bench.results import TrialResult, TrialTiming, failed
from bench.trial_runner import MakeRunner, RunSpec, TrialRunner
from bench.trials import Trial

KILL_AFTER_S = 20.0
"""How long beyond a trial's own limit its worker may take to say so."""
LOAD_LIMIT_S = 900.0
"""How long a worker may take to load its models."""
MAX_ATTEMPTS = 2
MAX_LOAD_FAILURES = 3
_LOOK_EVERY_S = 1.0


class WorkersFailedError(Exception):
    """Workers cannot be started, or do not stay alive. The message says what they said."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has loaded its models and takes trials."""

    models: dict[str, str]


@dataclass(frozen=True, slots=True)
class Done:
    """A worker has played its trial."""

    result: TrialResult


@dataclass(frozen=True, slots=True)
class Died:
    """A worker is gone.

    Attributes:
        why: what is known of it.
        cause: the error that it died of while loading, where it could say so.
    """

    why: str
    cause: Exception | None = None


Message = Ready | Done | Died
WorkerId = Hashable


class Cluster(Protocol):
    """Where workers run. A worker that has died is gone: nothing is said of it again."""

    @property
    def room(self) -> int:
        """How many workers are started where nobody says how many."""
        ...

    def launch(self) -> WorkerId:
        """Start a worker, which begins to load its models."""
        ...

    def submit(self, worker: WorkerId, trial: Trial) -> None:
        """Give a ready worker a trial. A worker that has died meanwhile says so later."""
        ...

    def wait(self, limit_s: float) -> list[tuple[WorkerId, Message]]:
        """What workers have to say, as soon as one of them has; nothing when the limit passes first."""
        ...

    def kill(self, worker: WorkerId) -> None:
        """End a worker at once. Nothing is said of it any more."""
        ...

    def close(self) -> None:
        """End every worker."""
        ...


@dataclass(slots=True)
class _Task:
    trial: Trial
    attempts: int = 0


@dataclass(slots=True)
class _Worker:
    deadline: float
    """On the monotonic clock: until when it must have loaded, or played its trial; infinity while it is idle."""
    loaded: bool = False
    task: _Task | None = None
    began_unix: float = 0.0


class Pool:
    """Plays trials on the workers of a cluster.

    Args:
        cluster: starts workers.
        workers: how many.
        spec: what they play; its limits are kept here.
    """

    def __init__(self, cluster: Cluster, workers: int, spec: RunSpec) -> None:
        self._cluster = cluster
        self._count = workers
        self._spec = spec
        self._workers: dict[WorkerId, _Worker] = {}
        self._load_failures = 0
        self._started = False
        self.models: dict[str, str] = {}
        """What the workers have loaded: model names to sha256. Set by ``start``."""

    def start(self) -> dict[str, str]:
        """Start all workers and wait until they are ready: loading beside a trial would be timed with it.

        Returns:
            The models that they have loaded.

        Raises:
            WorkersFailedError: when none can be started.
            Exception: whatever kept a worker from loading (a missing model, an unknown policy).
        """
        while len(self._workers) < self._count:
            self._launch()
        while not all(worker.loaded for worker in self._workers.values()):
            self._turn(deque(), [])
        self._started = True
        return self.models

    def play(self, trials: Sequence[Trial]) -> Iterator[TrialResult]:
        """Play trials, and yield each result as it comes.

        Raises:
            WorkersFailedError: when workers do not stay alive.
        """
        waiting = deque(_Task(trial) for trial in trials)
        left = len(waiting)
        while left:
            results: list[TrialResult] = []
            self._turn(waiting, results)
            left -= len(results)
            yield from results

    def close(self) -> None:
        """End every worker; a trial in flight is not finished."""
        self._workers.clear()
        self._cluster.close()

    def _turn(self, waiting: deque[_Task], results: list[TrialResult]) -> None:
        """Hand out what can be handed out, then take in what workers have to say."""
        for name, worker in self._workers.items():
            if worker.loaded and worker.task is None and waiting:
                self._assign(name, worker, waiting.popleft())
        for name, message in self._cluster.wait(_LOOK_EVERY_S):
            self._take(name, message, waiting, results)
        now = time.monotonic()
        for name in [name for name, worker in self._workers.items() if now > worker.deadline]:
            self._kill(name, results)

    def _launch(self) -> None:
        self._workers[self._cluster.launch()] = _Worker(time.monotonic() + LOAD_LIMIT_S)

    def _assign(self, name: WorkerId, worker: _Worker, task: _Task) -> None:
        task.attempts += 1
        worker.task = task
        worker.began_unix = time.time()
        worker.deadline = time.monotonic() + self._spec.limit_s(task.trial) + KILL_AFTER_S
        self._cluster.submit(name, task.trial)

    def _take(self, name: WorkerId, message: Message, waiting: deque[_Task], results: list[TrialResult]) -> None:
        worker = self._workers.get(name)
        if worker is None:
            return
        match message:
            case Ready(models):
                self._admit(models)
                worker.loaded = True
                worker.deadline = float("inf")
            case Done(result):
                worker.task = None
                worker.deadline = float("inf")
                results.append(result)
            case Died(why, cause):
                del self._workers[name]
                self._bury(worker, why, cause, waiting, results)

    def _admit(self, models: dict[str, str]) -> None:
        self._load_failures = 0
        if self.models and models != self.models:
            raise ConfigurationDiffersError(
                "workers have loaded different models; run `voicegate models verify` on each machine"
            )
        self.models = models

    def _bury(
        self, worker: _Worker, why: str, cause: Exception | None, waiting: deque[_Task], results: list[TrialResult]
    ) -> None:
        if not worker.loaded:
            self._load_failures += 1
            if cause is not None:
                raise cause
            if self._load_failures >= MAX_LOAD_FAILURES:
                raise WorkersFailedError(f"{self._load_failures} workers in a row died while loading: {why}")
        elif worker.task is not None and worker.task.attempts < MAX_ATTEMPTS:
            waiting.appendleft(worker.task)
        elif worker.task is not None:
            results.append(_lost(worker, "error", f"its worker died {MAX_ATTEMPTS} times: {why}"))
        self._launch()

    def _kill(self, name: WorkerId, results: list[TrialResult]) -> None:
        """End a worker that hangs. What hangs once hangs again, so its trial is not tried a second time."""
        worker = self._workers.pop(name)
        self._cluster.kill(name)
        if worker.task is None:
            if self._started and any(other.loaded for other in self._workers.values()):
                return  # its node is lost, and nothing has room for another one: the rest play on
            raise WorkersFailedError(f"a worker had not loaded its models after {LOAD_LIMIT_S:.0f} s")
        results.append(_lost(worker, "timeout", "its worker hung, and was killed"))
        self._launch()


def _lost(worker: _Worker, status: str, reason: str) -> TrialResult:
    assert worker.task is not None, "only a worker with a trial loses one"
    timing = TrialTiming(began_unix=round(worker.began_unix, 3), ended_unix=round(time.time(), 3))
    return failed(worker.task.trial, "timeout" if status == "timeout" else "error", reason, timing)


class InThisProcess:
    """A cluster of one worker that is this very process: nothing is isolated, nothing needs to be started.

    Args:
        spec: what to play.
        make: makes the runner.
    """

    def __init__(self, spec: RunSpec, make: MakeRunner = TrialRunner) -> None:
        self._spec = spec
        self._make = make
        self._runner: TrialRunner | None = None
        self._trial: Trial | None = None
        self._says_ready = False

    @property
    def room(self) -> int:
        """One."""
        return 1

    def launch(self) -> WorkerId:
        """Load the models, here and now."""
        assert self._runner is None, "there is one process, so there is one worker"
        self._runner = self._make(self._spec)
        self._says_ready = True
        return 0

    def submit(self, worker: WorkerId, trial: Trial) -> None:
        """Remember the trial; ``wait`` plays it."""
        self._trial = trial

    def wait(self, limit_s: float) -> list[tuple[WorkerId, Message]]:
        """Play the trial that was given."""
        assert self._runner is not None, "launch comes first"
        if self._says_ready:
            self._says_ready = False
            return [(0, Ready(self._runner.models))]
        trial, self._trial = self._trial, None
        return [] if trial is None else [(0, Done(self._runner.run(trial)))]

    def kill(self, worker: WorkerId) -> None:
        """There is nothing that could be killed but ourselves; a trial's own limit ends it."""

    def close(self) -> None:
        """Let go of the models."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None
