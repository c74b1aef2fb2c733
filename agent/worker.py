"""Drives turns' work: one at a time, in order, in real time or on the charged clock.

Both drivers run the same generators (see ``agent.requests``) in the same order, so the same audio gives the same
decisions. Only the times differ.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from agent.clock import VirtualClock, WallClock, timed_async, within_s
from agent.requests import HOLD_STEP_S, Advise, Compute, Computed, Confirm, Launch, Request

T = TypeVar("T")
Work = Generator[Request, object, None]


@dataclass
class Job:
    """One turn's work, queued.

    Attributes:
        start: makes the generator; called when the work starts, so that it sees the session as earlier turns left it.
        arrival_s: when the audio was complete.
        cancelled: set when the turn went on after all, or was dropped; work stops at the next stage.
        confirmed_s: when the turn became final, or None.
        on_cancelled: called once if work is thrown away.
    """

    start: Callable[[], Work]
    arrival_s: float
    cancelled: bool = False
    confirmed_s: float | None = None
    on_cancelled: Callable[[], None] = lambda: None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def confirm(self, at_s: float) -> None:
        """The turn is final."""
        self.confirmed_s = at_s
        self.changed.set()

    def cancel(self) -> None:
        """Throw the work away."""
        self.cancelled = True
        self.changed.set()


class Worker(Protocol):
    """Runs jobs in the order in which they were submitted."""

    @property
    def busy_s(self) -> float:
        """Real seconds of compute so far, thrown-away work included."""
        ...

    def submit(self, job: Job) -> None:
        """Queue a job."""
        ...

    async def advance(self, to_s: float) -> None:
        """The stream has reached ``to_s``: do what is due by then."""
        ...

    async def drain(self) -> None:
        """Finish every job and every launched effect."""
        ...

    async def aclose(self) -> None:
        """Stop at once: work and effects that have not started are thrown away. A call that runs is left running."""
        ...

    async def settle(self) -> None:
        """After ``aclose``, and once calls have been told to end: report how those that were running did."""
        ...


_running_lock = threading.Lock()
_running = 0


def calls_running() -> int:
    """How many calls of models run in this process now, abandoned ones included.

    The process must not end in the ordinary way while one does: it would free a native library's memory under it.
    """
    return _running


class _Thread:
    """One daemon thread that runs blocking calls. Daemon, so that a hung model can never hold up Ctrl-C."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="voicegate-inference", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        global _running
        while (call := self._calls.get()) is not None:
            with _running_lock:
                _running += 1
            try:
                call()
            finally:
                with _running_lock:
                    _running -= 1
        self._ended.set()

    async def ended_within(self, limit_s: float) -> None:
        """Wait until a stopped thread has ended its last call, at most so long."""
        clock = WallClock()
        last_s = clock.now_s() + limit_s
        while not self._ended.is_set() and clock.now_s() < last_s:
            await clock.sleep_s(ENDED_STEP_S)

    async def run(self, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # None only when T admits it

        def serve() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = call()
            except BaseException as caught:
                # A model may raise anything, and the turn must end with a reason. A future cannot carry StopIteration,
                # and SystemExit would end the program.
                carried = isinstance(caught, Exception) and not isinstance(caught, StopIteration)
                error = caught if carried else RuntimeError(f"{type(caught).__name__}: {caught}")
            # The loop is gone when the session was abandoned: nobody waits for the result any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result, error)

        self._calls.put(serve)
        return await future

    def stop(self) -> None:
        self._calls.put(None)


ABANDONED_LIMIT_S = 20.0
"""How long a replay waits, in real time, for a call that was given up to leave the processor to the next one."""
ENDED_STEP_S = 0.02


class _Inference:
    """Runs blocking calls one at a time with a limit; a call past its limit is abandoned with its thread.

    Args:
        is_replay: True where no real time passes between turns. An abandoned call would still compute when the next one
            starts, take half of its time, and make it late as well; live, the pause between two turns ends it.
    """

    def __init__(self, *, is_replay: bool = False) -> None:
        self._thread = _Thread()
        self._is_replay = is_replay
        self._abandoned: _Thread | None = None
        self.busy_s = 0.0

    async def run(self, request: Compute) -> tuple[object, BaseException | None, float]:
        """Value, error and the real seconds it took."""
        if self._abandoned is not None:
            await self._abandoned.ended_within(ABANDONED_LIMIT_S)
            self._abandoned = None

        async def call() -> tuple[object, BaseException | None]:
            try:
                return await within_s(self._thread.run(request.call), request.limit_s), None
            except TimeoutError as error:
                self._thread.stop()
                self._abandoned = self._thread if self._is_replay else None
                self._thread = _Thread()
                return None, error
            except Exception as error:
                return None, error

        (value, error), seconds = await timed_async(call)
        self.busy_s += seconds
        return value, error, seconds

    def stop(self) -> None:
        self._thread.stop()


SETTLE_S = 1.0
"""How long a call that was told to end is waited for before it is reported as unknown."""


class _Calls:
    """Effects that have started. Who waits for one may be cancelled; the call is not, so its end is always reported."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, request: Launch, end_s: Callable[[float], float]) -> None:
        """Start a call and wait for its end. ``end_s`` makes its real seconds into its end on the session's clock."""
        task = asyncio.create_task(self._run(request, end_s), name="voicegate-call")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def settle(self) -> None:
        """Wait for every call for at most ``SETTLE_S``, then report the rest as unknown."""
        if not self._tasks:
            return
        with contextlib.suppress(TimeoutError):
            await within_s(asyncio.wait(self._tasks), SETTLE_S)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _run(self, request: Launch, end_s: Callable[[float], float]) -> None:
        async def call() -> tuple[object, BaseException | None]:
            try:
                return await request.call(), None
            except asyncio.CancelledError:
                return None, RuntimeError("the session ended while it ran")
            except Exception as error:
                return None, error

        (value, error), seconds = await timed_async(call)
        request.done(value, error, end_s(seconds))


class WallWorker:
    """Real time: work starts when it arrives and runs beside the event loop."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._inference = _Inference()
        self._jobs: asyncio.Queue[Job | None] = asyncio.Queue()
        self._effects: set[asyncio.Task[None]] = set()
        self._calls = _Calls()
        self._task = asyncio.create_task(self._run(), name="voicegate-worker")

    @property
    def busy_s(self) -> float:
        """Real seconds of compute so far."""
        return self._inference.busy_s

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self._jobs.put_nowait(job)

    async def advance(self, to_s: float) -> None:
        """Raise what the worker raised, so that a broken worker never goes unseen."""
        if self._task.done():
            self._task.result()

    async def drain(self) -> None:
        """Finish everything that was submitted."""
        self._jobs.put_nowait(None)
        await self._task
        while self._effects:
            await asyncio.gather(*self._effects)

    async def aclose(self) -> None:
        """Stop at once."""
        tasks = [self._task, *self._effects]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._inference.stop()

    async def settle(self) -> None:
        """Report how the calls that were running ended."""
        await self._calls.settle()

    async def _run(self) -> None:
        while (job := await self._jobs.get()) is not None:
            if not await self._do(job):
                job.on_cancelled()

    async def _do(self, job: Job) -> bool:
        if job.cancelled:
            return False
        work = job.start()
        try:
            request = next(work)
            while True:
                if job.cancelled:
                    return False
                reply: object = None
                match request:
                    case Compute():
                        start_s = self._clock.now_s()
                        value, error, _ = await self._inference.run(request)
                        reply = Computed(value, error, start_s, self._clock.now_s())
                    case Advise():
                        request.call()
                    case Confirm():
                        while job.confirmed_s is None and not job.cancelled:
                            job.changed.clear()
                            await job.changed.wait()
                        if job.cancelled:
                            return False
                        reply = self._clock.now_s()
                    case Launch():
                        task = asyncio.create_task(self._effect(request), name="voicegate-effect")
                        self._effects.add(task)
                        task.add_done_callback(self._effects.discard)
                request = work.send(reply)
        except StopIteration:
            return True
        finally:
            work.close()

    async def _effect(self, request: Launch) -> None:
        try:
            await self._clock.sleep_s(request.delay_s)
            last_s = self._clock.now_s() + request.extend_s
            while request.is_held() and self._clock.now_s() < last_s:
                await self._clock.sleep_s(HOLD_STEP_S)
        except asyncio.CancelledError:
            request.abandoned()
            raise
        if not request.is_withdrawn():
            await self._calls.run(request, lambda seconds: self._clock.now_s())


@dataclass(order=True)
class _Effect:
    due_s: float
    order: int
    last_s: float = field(compare=False)
    request: Launch = field(compare=False)


class ChargedWorker:
    """A discrete-event simulation of ``WallWorker``: real calls, charged to virtual time.

    A call starts at ``max(arrival, worker_free)``; if that lies beyond the stream's position it waits for more audio,
    so a turn that goes on meanwhile cancels it exactly where it would have been cancelled live.

    Args:
        clock: moved as work is charged.
        charge: False lets calls cost nothing (the ``free`` pace).
    """

    def __init__(self, clock: VirtualClock, *, charge: bool = True) -> None:
        self._clock = clock
        self._charge = charge
        self._inference = _Inference(is_replay=True)
        self._jobs: deque[Job] = deque()
        self._work: Work | None = None
        self._request: Request | None = None
        self._free_s = 0.0
        self._effects: list[_Effect] = []
        self._calls = _Calls()
        self._order = 0

    @property
    def busy_s(self) -> float:
        """Real seconds of compute so far."""
        return self._inference.busy_s

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self._jobs.append(job)

    async def advance(self, to_s: float) -> None:
        """Do everything that starts by ``to_s``, work and effects in the order of their times."""
        while True:
            while self._jobs and self._jobs[0].cancelled:
                self._finish(self._jobs[0], done=False)
            step_s = self._next_step_s()
            if self._effects and self._effects[0].due_s <= min(step_s, to_s):
                await self._effect(heapq.heappop(self._effects))
            elif step_s <= to_s and self._jobs:
                await self._step(self._jobs[0], step_s)
            else:
                return

    def _next_step_s(self) -> float:
        """When the job in front can go on; infinity when it waits or there is none."""
        if not self._jobs:
            return float("inf")
        job = self._jobs[0]
        if self._work is None:
            return max(self._free_s, job.arrival_s)
        if isinstance(self._request, Confirm):
            return float("inf") if job.confirmed_s is None else max(self._free_s, job.confirmed_s)
        return self._free_s

    async def _step(self, job: Job, at_s: float) -> None:
        self._free_s = at_s
        if self._work is None:
            self._work = job.start()
        reply: object = None
        match self._request:
            case Compute() as request:
                value, error, seconds = await self._inference.run(request)
                self._free_s += seconds if self._charge else 0.0
                reply = Computed(value, error, at_s, self._free_s)
            case Advise() as request:
                request.call()
            case Confirm():
                reply = at_s
            case Launch() as request:
                due_s = at_s + request.delay_s
                self._order += 1
                heapq.heappush(self._effects, _Effect(due_s, self._order, due_s + request.extend_s, request))
        if not self._resume(reply):
            self._finish(job, done=True)

    async def drain(self) -> None:
        """Finish every job that is final, and every effect."""
        await self.advance(float("inf"))
        self._clock.move_to_s(self._free_s)
        self._inference.stop()

    async def aclose(self) -> None:
        """Throw away what is left."""
        for job in list(self._jobs):
            job.cancel()
            self._finish(job, done=False)
        for effect in self._effects:
            effect.request.abandoned()
        self._effects.clear()
        self._inference.stop()

    async def settle(self) -> None:
        """Report how the calls that were running ended."""
        await self._calls.settle()

    def _resume(self, reply: object) -> bool:
        assert self._work is not None, "only running work is resumed"
        try:
            self._request = next(self._work) if self._request is None else self._work.send(reply)
        except StopIteration:
            return False
        return True

    def _finish(self, job: Job, *, done: bool) -> None:
        self._jobs.remove(job)
        if self._work is not None:
            self._work.close()
        self._work = None
        self._request = None
        if not done:
            job.on_cancelled()

    async def _effect(self, effect: _Effect) -> None:
        request = effect.request
        if request.is_held() and effect.due_s + HOLD_STEP_S <= effect.last_s:
            heapq.heappush(self._effects, replace(effect, due_s=effect.due_s + HOLD_STEP_S))
            return
        if not request.is_withdrawn():
            # An effect runs beside the worker, so it is timed but does not keep the worker busy.
            await self._calls.run(request, lambda seconds: effect.due_s + (seconds if self._charge else 0.0))
