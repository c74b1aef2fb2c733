"""The drivers: work in order, charged where it must be, thrown away exactly where it would be live."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agent.clock import VirtualClock, WallClock
from agent.requests import Compute, Computed, Confirm, Launch
from agent.worker import ChargedWorker, Job, WallWorker


def costing(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    async def run(self, request):
        return request.call(), None, seconds

    monkeypatch.setattr("agent.worker._Inference.run", run)


def work(trace: list[object], stages: int = 2):
    for index in range(stages):
        done = yield Compute(f"s{index}", lambda i=index: i, 10.0)
        assert isinstance(done, Computed)
        trace.append((done.value, round(done.start_s, 3), round(done.end_s, 3)))
    at_s = yield Confirm()
    trace.append(("final", at_s))


async def test_a_call_starts_at_its_arrival_or_when_the_worker_is_free(monkeypatch: pytest.MonkeyPatch):
    costing(monkeypatch, 0.5)
    worker, trace = ChargedWorker(VirtualClock()), []
    for arrival_s in (1.0, 1.2):
        job = Job(lambda: work(trace), arrival_s)
        job.confirm(arrival_s)
        worker.submit(job)
    await worker.advance(10.0)
    assert trace == [(0, 1.0, 1.5), (1, 1.5, 2.0), ("final", 2.0), (0, 2.0, 2.5), (1, 2.5, 3.0), ("final", 3.0)]


async def test_work_beyond_the_streams_position_waits_for_more_audio(monkeypatch: pytest.MonkeyPatch):
    costing(monkeypatch, 0.5)
    worker, trace = ChargedWorker(VirtualClock()), []
    worker.submit(Job(lambda: work(trace), 1.0))
    await worker.advance(0.9)
    assert trace == []
    await worker.advance(1.2)
    assert trace == [(0, 1.0, 1.5)], "the second stage starts at 1.5 s, which has not been heard yet"


async def test_a_turn_that_goes_on_cancels_work_at_the_next_stage_and_the_cost_stays_charged(
    monkeypatch: pytest.MonkeyPatch,
):
    costing(monkeypatch, 0.5)
    worker, trace, dropped = ChargedWorker(VirtualClock()), [], []
    first = Job(lambda: work(trace), 1.0, on_cancelled=lambda: dropped.append(True))
    worker.submit(first)
    await worker.advance(1.2)
    first.cancel()
    second = Job(lambda: work(trace, stages=1), 1.3)
    second.confirm(1.3)
    worker.submit(second)
    await worker.advance(5.0)
    assert dropped == [True]
    assert trace == [(0, 1.0, 1.5), (0, 1.5, 2.0), ("final", 2.0)]


async def test_the_free_pace_charges_nothing(monkeypatch: pytest.MonkeyPatch):
    costing(monkeypatch, 0.5)
    worker, trace = ChargedWorker(VirtualClock(), charge=False), []
    job = Job(lambda: work(trace), 1.0)
    job.confirm(1.4)
    worker.submit(job)
    await worker.drain()
    assert trace == [(0, 1.0, 1.0), (1, 1.0, 1.0), ("final", 1.4)]


async def test_an_effect_never_holds_up_the_next_turn(monkeypatch: pytest.MonkeyPatch):
    costing(monkeypatch, 0.0)
    ended: list[float] = []

    def with_effect():
        yield Confirm()
        yield Launch(lambda: asyncio.sleep(0.2), lambda value, error, at_s: ended.append(at_s))

    worker, trace = ChargedWorker(VirtualClock()), []
    for make in (with_effect, lambda: work(trace, stages=1)):
        job = Job(make, 1.0)
        job.confirm(1.0)
        worker.submit(job)
    await worker.drain()
    assert ended[0] >= 1.2
    assert trace == [(0, 1.0, 1.0), ("final", 1.0)]


async def test_sleepers_on_the_virtual_clock_wake_in_order():
    clock, woken = VirtualClock(), []

    async def sleeper(at_s: float) -> None:
        await clock.sleep_until_s(at_s)
        woken.append(at_s)

    tasks = [asyncio.create_task(sleeper(at_s)) for at_s in (3.0, 1.0, 2.0)]
    await asyncio.sleep(0)
    clock.move_to_s(2.5)
    await asyncio.sleep(0)
    assert woken == [1.0, 2.0]
    clock.move_to_s(3.0)
    await asyncio.gather(*tasks)
    clock.move_to_s(1.0)
    assert clock.now_s() == 3.0, "time never runs back"


async def test_real_time_work_runs_beside_the_event_loop():
    worker = WallWorker(WallClock())
    started, release = threading.Event(), threading.Event()

    def slow():
        started.set()
        release.wait(5)
        return 1

    def job_work():
        yield Compute("slow", slow, 10.0)
        yield Confirm()

    job = Job(job_work, 0.0)
    job.confirm(0.0)
    worker.submit(job)
    await asyncio.to_thread(started.wait, 5)
    await worker.advance(1.0)  # returns although a model is busy
    release.set()
    await worker.drain()
    await worker.aclose()


async def test_a_worker_that_broke_is_seen_by_the_loop():
    worker = WallWorker(WallClock())

    def broken():
        raise RuntimeError("a bug")
        yield  # pragma: no cover - makes it a generator

    job = Job(broken, 0.0)
    job.confirm(0.0)
    worker.submit(job)

    async def keep_listening() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
            await worker.advance(0.0)

    with pytest.raises(RuntimeError, match="a bug"):
        await keep_listening()
    await worker.aclose()


async def test_in_a_replay_a_call_that_was_given_up_leaves_the_processor_to_the_next_one():
    """Otherwise one slow call makes every later one late: no real time passes between the turns of a recording."""
    running, seen = [], []

    def slow() -> None:
        running.append("slow")
        released.wait(5.0)
        running.remove("slow")

    released = threading.Event()

    def two_stages():
        late = yield Compute("slow", slow, 0.05)
        assert isinstance(late.error, TimeoutError)
        threading.Timer(0.1, released.set).start()
        yield Compute("next", lambda: seen.append(list(running)), 5.0)
        yield Confirm()

    worker = ChargedWorker(VirtualClock())
    job = Job(two_stages, 1.0)
    job.confirm(1.0)
    worker.submit(job)
    await worker.advance(10.0)
    await worker.drain()
    assert seen == [[]]
