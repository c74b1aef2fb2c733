"""Workers as actors of a Ray cluster: ``voicegate bench run … --ray ADDRESS``. All else is what one machine does.

Each node needs voicegate installed, its models pulled, and the manifest's folder under the same path. Ray is an extra
(``pip install 'voicegate[ray]'``) and is imported when it is asked for. A cluster that asks for a token finds it where
Ray itself looks (``RAY_AUTH_MODE=token``, ``RAY_AUTH_TOKEN``).
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from bench.executors import Died, Done, Message, Ready, WorkerId, WorkersFailedError
from bench.trial_runner import RunSpec, TrialRunner
from bench.trials import Trial

LOCAL = "local"
"""The address that starts a cluster of its own on this machine."""
_END_S = 2.0
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class TrialActor:
    """What runs in an actor. Loading is a call of its own, so that what goes wrong in it comes back as it is."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._runner: TrialRunner | None = None

    def load(self) -> Ready:
        """Load the models."""
        self._runner = TrialRunner(self._spec)
        return Ready(self._runner.models)

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
        spec: what workers play.
        threads: threads of each of their libraries, and the processors that Ray sets aside for each.
        address: the cluster's, as ``ray.init`` takes it; ``local`` starts one here.

    Raises:
        WorkersFailedError: when Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(self, spec: RunSpec, threads: int, address: str) -> None:
        self._spec = spec
        self._threads = threads
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
            num_cpus=threads, max_restarts=0, max_task_retries=0, runtime_env={"env_vars": environment}
        )(TrialActor)
        self._actors: dict[int, Any] = {}
        self._calls: dict[Any, int] = {}
        """Calls that have not come back, and whose they are."""
        self._launched = 0

    @property
    def room(self) -> int:
        """As many as the cluster has processors for."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1.0) // self._threads))

    def launch(self) -> WorkerId:
        """Start an actor."""
        self._launched += 1
        actor = self._actor.remote(self._spec)
        self._actors[self._launched] = actor
        self._calls[actor.load.remote()] = self._launched
        return self._launched

    def submit(self, worker: WorkerId, trial: Trial) -> None:
        """Call an actor."""
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
            message = self._answer(call)
            if isinstance(message, Died):
                self.kill(number)
            said.append((number, message))
        return said

    def _answer(self, call: Any) -> Message:
        exceptions = self._ray.exceptions
        try:
            answer: Message = self._ray.get(call)
            return answer
        except exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else None
            return Died(str(cause or error), cause)
        except exceptions.RayError as error:
            return Died(f"{type(error).__name__}: {str(error).splitlines()[0]}")

    def kill(self, worker: WorkerId) -> None:
        """End an actor."""
        assert isinstance(worker, int), "workers are numbered"
        actor = self._actors.pop(worker)
        for call in [call for call, number in self._calls.items() if number == worker]:
            del self._calls[call]
        with contextlib.suppress(Exception):  # it is dead already
            self._ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """End every actor, and leave the cluster; one that is idle is asked to."""
        closing = [actor.close.remote() for actor in self._actors.values()]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_END_S)
        for worker in list(self._actors):
            self.kill(worker)
        self._ray.shutdown()
