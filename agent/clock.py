"""Time. The only module of the project that reads a clock or sleeps.

Three clocks stand behind one protocol. ``wall`` is real time. ``charged`` is replay's default: audio advances time by
its samples, and every model call is timed and charged, ``start = max(arrival, worker_free)``, ``end = start +
measured``. So an hour of audio runs as fast as it can be computed and yet shows the latencies that this machine would
have shown live.
``free`` is the same with calls that cost nothing: the lower bound that the algorithm itself sets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Protocol, TypeVar

T = TypeVar("T")


class Pace(StrEnum):
    """Which clock a session runs on."""

    WALL = "wall"
    CHARGED = "charged"
    FREE = "free"


class Clock(Protocol):
    """Seconds since the clock was made, and ways to wait."""

    def now_s(self) -> float:
        """Seconds since the clock was made."""
        ...

    async def sleep_s(self, seconds: float) -> None:
        """Wait for some seconds of this clock."""
        ...

    async def sleep_until_s(self, at_s: float) -> None:
        """Wait until the clock shows ``at_s``; returns at once when it already does."""
        ...


class WallClock:
    """Real time, from 0 at construction."""

    def __init__(self) -> None:
        self._zero_s = time.perf_counter()

    def now_s(self) -> float:
        """Seconds since construction."""
        return time.perf_counter() - self._zero_s

    async def sleep_s(self, seconds: float) -> None:
        """Wait for real seconds."""
        await asyncio.sleep(max(0.0, seconds))

    async def sleep_until_s(self, at_s: float) -> None:
        """Wait until the clock shows ``at_s``."""
        await self.sleep_s(at_s - self.now_s())


class VirtualClock:
    """Time that only moves when told: audio moves it by its samples, charged calls by what they took.

    Sleepers wake when time is moved past them, in the order of their times.
    """

    def __init__(self) -> None:
        self._now_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = 0

    def now_s(self) -> float:
        """The virtual time."""
        return self._now_s

    async def sleep_s(self, seconds: float) -> None:
        """Wait until time has been moved by ``seconds``."""
        await self.sleep_until_s(self._now_s + seconds)

    async def sleep_until_s(self, at_s: float) -> None:
        """Wait until time has been moved to ``at_s``."""
        if at_s <= self._now_s:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._order += 1
        self._sleepers.append((at_s, self._order, future))
        await future

    def move_to_s(self, at_s: float) -> None:
        """Move time forward (never back) and wake who is due."""
        self._now_s = max(self._now_s, at_s)
        due = sorted(entry for entry in self._sleepers if entry[0] <= self._now_s)
        self._sleepers = [entry for entry in self._sleepers if entry[0] > self._now_s]
        for _, _, future in due:
            if not future.done():
                future.set_result(None)


async def timed_async(call: Callable[[], Awaitable[T]]) -> tuple[T, float]:
    """Await ``call()`` and say how many real seconds it took."""
    start_s = time.perf_counter()
    result = await call()
    return result, time.perf_counter() - start_s


async def within_s(awaitable: Awaitable[T], seconds: float) -> T:
    """Await with a limit in real seconds.

    Raises:
        TimeoutError: when the limit passes first. The awaitable is then cancelled.
    """
    return await asyncio.wait_for(awaitable, seconds)


def unix_time_s() -> float:
    """Seconds since 1970, for naming runs and stamping logs; never for measuring."""
    return time.time()
