"""Replicas of a policy as actors of a Ray cluster: ``voicegate bench run … --ray ADDRESS``.

All else is what one machine does: ``bench.executors.Pool`` gives each free replica the next trial; a replica that dies
costs the trial that it held one attempt, and that trial goes to another one. ``bench.ray_placement`` says what a
replica takes of a node, ``bench.ray_replicas`` keeps what each has played.

Each node needs voicegate installed, its models pulled, and the manifest's folder under the same path; keys of servers
are read from each node's own environment. Ray is an extra (``pip install 'voicegate[ray]'``) and is imported when it is
asked for. A cluster that asks for a token finds it where Ray itself looks (``RAY_AUTH_MODE=token``,
``RAY_AUTH_TOKEN``).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.executors import Died, Done, Message, Ready, WorkerId, WorkersFailedError
from bench.ray_placement import Placement
from bench.ray_replicas import CLOSED, Place, Replicas
from bench.trial_runner import RunSpec, TrialRunner
from bench.trials import Trial

LOCAL = "local"
"""The address that starts a cluster of its own on this machine."""
_END_S = 2.0
_SHOWN_CHARS = 160
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A replica has loaded its models."""

    ready: Ready
    place: Place


class TrialActor:
    """What runs in an actor. Loading is a call of its own, so that what goes wrong in it comes back as it is."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._runner: TrialRunner | None = None

    def load(self) -> Loaded:
        """Load the models."""
        ray: Any = importlib.import_module("ray")
        gpus = tuple(str(number) for number in ray.get_gpu_ids())
        self._runner = TrialRunner(self._spec)
        return Loaded(Ready(self._runner.models), Place(platform.node(), os.getpid(), gpus))

    def play(self, trial: Trial) -> Done:
        """Play one trial."""
        assert self._runner is not None, "load comes first"
        return Done(self._runner.run(trial))

    def close(self) -> None:
        """Let go of everything, temporary files among it."""
        if self._runner is not None:
            self._runner.close()


class RayCluster:
    """Implements ``bench.executors.Cluster`` on Ray.

    Args:
        spec: what replicas play.
        threads: threads of each of their libraries.
        address: the cluster's, as ``ray.init`` takes it; ``local`` starts one here.
        placement: what each takes of a node; None sets aside as many processors as it has threads.
        log: takes a line a replica (``bench.ray_replicas``); None writes none.

    Raises:
        WorkersFailedError: when Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(
        self, spec: RunSpec, threads: int, address: str, placement: Placement | None = None, log: Path | None = None
    ) -> None:
        self._spec = spec
        self._placement = placement or Placement(float(threads))
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise WorkersFailedError("ray is not installed: pip install 'voicegate[ray]'") from error
        try:
            self._ray.init(address=address, log_to_driver=False, include_dashboard=False if address == LOCAL else None)
        except Exception as error:  # Ray raises many kinds
            raise WorkersFailedError(f"no Ray cluster at {address}: {error}") from error
        environment = {name: str(threads) for name in _THREAD_VARIABLES}
        self._actor: Any = self._ray.remote(
            max_restarts=0, max_task_retries=0, runtime_env={"env_vars": environment}, **self._placement.options()
        )(TrialActor)
        self._replicas = Replicas(log)
        self._actors: dict[int, Any] = {}
        self._calls: dict[Any, int] = {}
        """Calls that have not come back, and whose they are."""
        self._launched = 0

    @property
    def room(self) -> int:
        """As many as the cluster's nodes have room for; one at least, so that what is missing is said by name."""
        return max(1, self._fitting())

    @property
    def replicas(self) -> Replicas:
        """What the replicas have played."""
        return self._replicas

    def launch(self) -> WorkerId:
        """Start a replica, on whichever node has room for it.

        Raises:
            WorkersFailedError: when the cluster never had room for it: Ray would wait for ever. Where a node was lost,
                a replica waits until it is back.
        """
        fitting = self._fitting()
        if not self._replicas.ended and len(self._actors) >= fitting:
            raise WorkersFailedError(
                f"the cluster has room for {fitting} replicas of {self._placement} each, and more were asked for: "
                "lower --replicas, --threads or --gpus-per-replica, or start more nodes"
            )
        self._launched += 1
        actor = self._actor.remote(self._spec)
        self._actors[self._launched] = actor
        self._replicas.started(self._launched)
        self._calls[actor.load.remote()] = self._launched
        return self._launched

    def _fitting(self) -> int:
        return self._placement.fits(node["Resources"] for node in self._ray.nodes() if node["Alive"])

    def submit(self, worker: WorkerId, trial: Trial) -> None:
        """Call a replica."""
        assert isinstance(worker, int), "workers are numbered"
        self._calls[self._actors[worker].play.remote(trial)] = worker

    def wait(self, limit_s: float) -> list[tuple[WorkerId, Message]]:
        """What has come back."""
        if not self._calls:
            return []
        done, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=limit_s)
        said: list[tuple[WorkerId, Message]] = []
        for call in done:
            number = self._calls.pop(call)
            message = self._answer(number, call)
            if isinstance(message, Died):
                self._end(number, f"died: {message.why}"[:_SHOWN_CHARS])
            said.append((number, message))
        return said

    def _answer(self, number: int, call: Any) -> Message:
        exceptions = self._ray.exceptions
        try:
            answer: Loaded | Done = self._ray.get(call)
        except exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else None
            return Died(str(cause or error), cause)
        except exceptions.RayError as error:
            return Died(f"{type(error).__name__}: {str(error).splitlines()[0]}")
        if isinstance(answer, Loaded):
            self._replicas.loaded(number, answer.place)
            return answer.ready
        self._replicas.played(number, answer.result)
        return answer

    def kill(self, worker: WorkerId) -> None:
        """End a replica that hangs."""
        assert isinstance(worker, int), "workers are numbered"
        self._end(worker, "killed: it hung")

    def _end(self, worker: int, how: str = CLOSED) -> None:
        self._replicas.over(worker, how)
        actor = self._actors.pop(worker)
        for call in [call for call, number in self._calls.items() if number == worker]:
            del self._calls[call]
        with contextlib.suppress(Exception):  # it is dead already
            self._ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """End every replica, and leave the cluster; one that is idle is asked to."""
        closing = [actor.close.remote() for actor in self._actors.values()]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_END_S)
        try:
            for worker in list(self._actors):
                self._end(worker)
        finally:
            self._ray.shutdown()
