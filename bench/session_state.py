"""Bytes that a session holds: what Python and NumPy have allocated for it, and what the process has grown by.

Measured over many sessions at once, in one event loop, against the process with a few sessions in it, so that what
is loaded and cached once for all is not counted.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent.assemble import open_journal
from agent.frames import FRAME_SAMPLES, Frame, Samples
from agent.sources import Description, SourceItem
from bench.rehearsal import Line, speak
from bench.stage import HELLO, KITCHEN
from bench.wearers import Tally, instant_parts, wearer
from gate.span import SAMPLE_RATE_HZ

OPEN_TURN_S = 4.0
"""How much of its next turn a talking session has heard."""
_SAID = (HELLO, KITCHEN)
_PAGE_BYTES = 4096
_WARM_UP_SESSIONS = 4


@dataclass(frozen=True, slots=True)
class SessionState:
    """What one session more costs a process.

    Attributes:
        name: what the sessions are doing.
        sessions: over how many it was measured.
        traced_bytes: allocated through Python, NumPy's arrays among it.
        rss_bytes: growth of resident memory, native code and stacks of threads among it, and the tracing itself.
        threads: threads.
    """

    name: str
    sessions: int
    traced_bytes: float
    rss_bytes: float
    threads: float

    def line(self) -> str:
        """As it is printed."""
        return (
            f"| {self.name} | {self.sessions} | {self.traced_bytes / 1000:.1f} | {self.rss_bytes / 1000:.0f} | "
            f"{self.threads:.1f} |"
        )


HEADER = (
    "| sessions that | measured over | traced kB each | resident kB each | threads each |\n"
    "| --- | ---: | ---: | ---: | ---: |"
)


@dataclass(frozen=True, slots=True)
class _Held:
    traced_bytes: int
    rss_bytes: int
    threads: int


def _held() -> _Held:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return _Held(tracemalloc.get_traced_memory()[0], pages * _PAGE_BYTES, threading.active_count())


Step = Sequence[Samples] | Callable[[], Awaitable[None]]
"""Frames, or something to wait for."""
Script = Callable[[Tally], Sequence[Step]]
"""What a session plays, given what counts its events."""


class SharedFrames:
    """Plays frames that all sessions share, so that what is played is no part of a session."""

    def __init__(self, script: Sequence[Step]) -> None:
        self._script = script

    @property
    def describe(self) -> Description:
        """What is played."""
        return {"kind": "rehearsal", "native_rate_hz": SAMPLE_RATE_HZ, "channels": 1}

    async def open(self) -> None:
        """Nothing to open."""

    async def __aiter__(self) -> AsyncIterator[SourceItem]:
        """The script's frames, as fast as they are asked for."""
        position = 0
        for step in self._script:
            if callable(step):
                await step()
                continue
            for samples in step:
                yield Frame(position, samples)
                position += FRAME_SAMPLES

    async def aclose(self) -> None:
        """Nothing to close: the script ends by itself."""


class _Crowd:
    """Sessions that play a script and wait at its end until they are let go."""

    def __init__(self, folder: Path, script: Script) -> None:
        self._journal = open_journal(folder / "journal.sqlite3")
        self._parts = instant_parts()
        self._script = script
        self._go = asyncio.Event()
        self._arrived = asyncio.Semaphore(0)
        self._tasks: list[asyncio.Task[object]] = []

    async def add(self, sessions: int) -> None:
        """Start so many, and wait until each stands at the end of its script."""
        for _ in range(sessions):
            tally = Tally()
            source = SharedFrames([*self._script(tally), self._wait])
            self._tasks.append(asyncio.create_task(wearer(source, self._parts, self._journal, tally).run()))
        for _ in range(sessions):
            await self._arrived.acquire()

    async def leave(self) -> None:
        """Let all go."""
        self._go.set()
        await asyncio.gather(*self._tasks)
        self._journal.close()

    async def _wait(self) -> None:
        self._arrived.release()
        await self._go.wait()


async def measure_state(name: str, sessions: int, script: Script, folder: Path) -> SessionState:
    """Start sessions and see what each has cost.

    Args:
        name: what they are doing.
        sessions: how many.
        script: what each plays before it is measured.
        folder: for their journal; an empty one.
    """
    tracemalloc.start()
    try:
        crowd = _Crowd(folder, script)
        await crowd.add(_WARM_UP_SESSIONS)
        before = _held()
        await crowd.add(sessions)
        after = _held()
        await crowd.leave()
    finally:
        tracemalloc.stop()
    return SessionState(
        name, sessions, (after.traced_bytes - before.traced_bytes) / sessions,
        (after.rss_bytes - before.rss_bytes) / sessions, (after.threads - before.threads) / sessions,
    )  # fmt: skip


def _framed(sound: Samples) -> Sequence[Samples]:
    return list(np.resize(sound, len(sound) // FRAME_SAMPLES * FRAME_SAMPLES).reshape(-1, FRAME_SAMPLES))


_SILENCE = _framed(np.zeros(SAMPLE_RATE_HZ, np.float32))
_SOUNDS = {line: _framed(speak(line)) for line in _SAID}
_LONG = _framed(speak(Line(600, "", seconds=OPEN_TURN_S)))


def silent(tally: Tally) -> Sequence[Step]:
    """A wearer who has not said anything."""
    return [_SILENCE, _SILENCE]


def between_turns(tally: Tally) -> Sequence[Step]:
    """A wearer who has chatted and given a command, which ran, and is silent."""

    async def ran() -> None:
        await tally.until(lambda: tally.executed == 1)

    return [_SILENCE, *(step for line in _SAID for step in (_SOUNDS[line], _SILENCE)), ran]


def talking(tally: Tally) -> Sequence[Step]:
    """The same in the middle of the next turn."""
    return [*between_turns(tally), _LONG]


STATES: Mapping[str, Script] = {
    "are silent": silent,
    "are between turns": between_turns,
    f"have heard {OPEN_TURN_S:g} s of a turn": talking,
}
"""What sessions are measured at."""
