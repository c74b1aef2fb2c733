"""Workers as processes of this machine, each with models of its own. They are spawned, never forked: the libraries
that compute keep threads, and a fork would copy their locks without the threads that hold them.

A worker ends with its parent, whatever ended that; and it leaves Ctrl-C to its parent, which knows what to do.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from bench.executors import Died, Done, Message, Ready, WorkerId
from bench.trial_runner import RunSpec, TrialRunner
from bench.trials import Trial

WORKERS_LOG = "workers.log"
"""What workers and the libraries in them print."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_END_S = 2.0


@dataclass(frozen=True, slots=True)
class _Handle:
    process: SpawnProcess
    pipe: Connection


class LocalProcesses:
    """Implements ``bench.executors.Cluster`` on this machine.

    Args:
        spec: what workers play.
        threads: threads of each of their libraries.
        log: takes what they print.
    """

    def __init__(self, spec: RunSpec, threads: int, log: Path) -> None:
        self._spec = spec
        self._threads = threads
        self._log = log
        self._context = multiprocessing.get_context("spawn")
        self._handles: dict[int, _Handle] = {}
        self._launched = 0
        # Made here and not by workers: one that is killed cannot remove what it has made.
        self._scratch = tempfile.TemporaryDirectory(prefix="voicegate-bench-")

    @property
    def room(self) -> int:
        """One, with all of the machine's cores: a trial is then timed as it would run by itself."""
        return 1

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that have not been found dead."""
        return [handle.process.pid for handle in self._handles.values() if handle.process.pid is not None]

    def launch(self) -> WorkerId:
        """Start a process."""
        self._launched += 1
        here, there = self._context.Pipe()
        process = self._context.Process(
            target=_serve,
            args=(there, self._spec, self._log, self._scratch.name),
            name=f"voicegate-bench-{self._launched}",
            daemon=True,
        )
        threads = {name: str(self._threads) for name in _THREAD_VARIABLES if name not in os.environ}
        with _environment({**threads, "TMPDIR": self._scratch.name}):
            process.start()
        there.close()  # the worker has its own; while this one is open, its death would not be noticed
        self._handles[self._launched] = _Handle(process, here)
        return self._launched

    def submit(self, worker: WorkerId, trial: Trial) -> None:
        """Send a trial."""
        handle = self._handles[_number(worker)]
        with contextlib.suppress(OSError):  # it has died: ``wait`` finds its pipe closed
            handle.pipe.send(trial)

    def wait(self, limit_s: float) -> list[tuple[WorkerId, Message]]:
        """What workers have sent, and which have died."""
        of_pipe = {handle.pipe: number for number, handle in self._handles.items()}
        said: list[tuple[WorkerId, Message]] = []
        for pipe in connection.wait(list(of_pipe), limit_s):
            assert isinstance(pipe, Connection), "only pipes are waited for"
            number = of_pipe[pipe]
            try:
                message: Message = pipe.recv()
            except (EOFError, OSError):
                message = Died(self._how_it_ended(number))
            except (pickle.UnpicklingError, AttributeError, ImportError) as error:
                message = Died(f"it sent what cannot be read: {error}")
            if isinstance(message, Died):
                self.kill(number)
            said.append((number, message))
        return said

    def kill(self, worker: WorkerId) -> None:
        """End a process."""
        handle = self._handles.pop(_number(worker))
        handle.pipe.close()
        handle.process.kill()
        handle.process.join()

    def close(self) -> None:
        """End every process; one that is idle is asked to."""
        for handle in self._handles.values():
            with contextlib.suppress(OSError):
                handle.pipe.send(None)
        for number, handle in list(self._handles.items()):
            handle.process.join(_END_S)
            self.kill(number)
        self._scratch.cleanup()

    def _how_it_ended(self, number: int) -> str:
        process = self._handles[number].process
        process.join(_END_S)
        code = process.exitcode
        ending = f"by signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"with code {code}"
        return f"the process ended {ending}; see {self._log}"


def _number(worker: WorkerId) -> int:
    assert isinstance(worker, int), "workers are numbered"
    return worker


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Variables for processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _serve(pipe: Connection, spec: RunSpec, log: Path, scratch: str) -> None:
    """A worker: load, then play what comes until it is told to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _print_to(log)
    _end_with_parent(scratch)
    try:
        runner = TrialRunner(spec)
    except Exception as error:
        pipe.send(Died(f"{type(error).__name__}: {error}", _portable(error)))
        return
    pipe.send(Ready(runner.models))
    while (trial := pipe.recv()) is not None:
        pipe.send(Done(runner.run(trial)))
    runner.close()
    # A model that was given up may still compute; an ordinary end would free its library's memory under it.
    sys.stderr.flush()
    os._exit(0)


def _print_to(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
    faulthandler.enable()


def _end_with_parent(scratch: str) -> None:
    """End when the parent does, and remove what it could then no longer remove."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"

    def watch() -> None:
        parent.join()
        shutil.rmtree(scratch, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, name="voicegate-bench-parent", daemon=True).start()


def _portable(error: Exception) -> Exception:
    """The error, or its text where it cannot be sent to another process."""
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error if str(copy) == str(error) else RuntimeError(f"{type(error).__name__}: {error}")
