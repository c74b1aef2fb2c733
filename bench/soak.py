"""Ten hours of mixed audio through the live loop: does anything grow? ``python -m bench.soak --hours 10``.

Source, detector, turns, worker, gate, executor, journal, event file and console are real; ears and policy are rehearsed
(``bench.rehearsal``), so that ten hours take minutes. The audio is talk by the owner and by strangers, commands that
run, one that waits out its grace time, one that is taken back, room noise, a humming machine and silence, in cycles of
two minutes. Printed are resident memory, tasks, descriptors and threads as the hours pass.

Exit code 1 when memory grew by more than 5 % after the warm-up, or when a task, a descriptor or a thread was left over.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np

from agent import events
from agent.assemble import make_session, open_journal
from agent.clock import Pace
from agent.console import PlainConsole
from agent.events import Event
from agent.frames import Reframer
from agent.jsonl import JsonLinesSink
from agent.session import OwnerMode
from agent.settings import Settings
from agent.sources import Description, SourceItem
from bench.rehearsal import RehearsedEars, RehearsedPolicy, rehearsed_parts, speak
from bench.stage import (
    CANCEL,
    CATALOGUE,
    HALL,
    HELLO,
    KITCHEN,
    LINES,
    REPLIES,
    SHUTTER,
    STRANGER,
    STRANGER_CANCELS,
    STRANGER_COMMANDS,
    THANKS,
)
from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio
from tools.backend import OwnBackend, StubBackend

CYCLE_S = 120
MAX_GROWTH = 0.05
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Sample:
    """What the process holds at one moment.

    Attributes:
        audio_s: how much audio has been heard.
        turns: turns so far.
        calls: calls so far that have ended.
        rss_bytes: resident memory.
        tasks: asyncio tasks.
        descriptors: open file descriptors.
        threads: running threads.
    """

    audio_s: float
    turns: int
    calls: int
    rss_bytes: int
    tasks: int
    descriptors: int
    threads: int


@dataclass(frozen=True, slots=True)
class Soak:
    """A whole run.

    Attributes:
        samples: as the hours passed; the first one is taken at the end of the warm-up.
        before: before the session.
        after: after it.
        outcomes: the outcomes of all calls, counted.
        wall_s: real seconds.
    """

    samples: tuple[Sample, ...]
    before: Sample
    after: Sample
    outcomes: dict[str, int]
    wall_s: float

    @property
    def growth(self) -> float:
        """Growth of resident memory from the warm-up to the highest later sample, as a fraction."""
        return max(sample.rss_bytes for sample in self.samples) / self.samples[0].rss_bytes - 1.0

    def leaks(self) -> list[str]:
        """What was left over after the session; empty when nothing was."""
        pairs = {
            "tasks": (self.before.tasks, self.after.tasks),
            "descriptors": (self.before.descriptors, self.after.descriptors),
            "threads": (self.before.threads, self.after.threads),
        }
        return [f"{after - before} {name}" for name, (before, after) in pairs.items() if after > before]


class _Tally:
    wants_levels = False

    def __init__(self) -> None:
        self.turns = 0
        self.outcomes: dict[str, int] = {}

    def emit(self, event: Event) -> None:
        match event:
            case events.TurnClosed():
                self.turns += 1
            case events.Executed():
                self.outcomes[event.outcome] = self.outcomes.get(event.outcome, 0) + 1

    async def aclose(self) -> None:
        """Nothing to close."""


def _sample(audio_s: float, tally: _Tally) -> Sample:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sample(
        audio_s, tally.turns, sum(tally.outcomes.values()), pages * _PAGE_BYTES, len(asyncio.all_tasks()),
        len(list(Path("/proc/self/fd").iterdir())), threading.active_count(),
    )  # fmt: skip


def mixed_audio() -> list[Audio]:
    """One cycle of ``CYCLE_S`` seconds, as float32 stretches at 16 kHz."""
    draw = np.random.default_rng(7)

    def pause(seconds: float) -> Audio:
        return np.zeros(round(seconds * SAMPLE_RATE_HZ), np.float32)

    def noise(seconds: float) -> Audio:
        return (0.004 * draw.standard_normal(round(seconds * SAMPLE_RATE_HZ))).astype(np.float32)

    def hum(seconds: float) -> Audio:
        t = np.arange(round(seconds * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
        return (0.01 * np.sin(2 * np.pi * 50 * t)).astype(np.float32) + noise(seconds)

    parts = [
        speak(HELLO), pause(1.0), speak(KITCHEN), pause(2.0), speak(THANKS), pause(3.0), noise(15.0),
        speak(STRANGER), pause(1.0), speak(STRANGER_COMMANDS), pause(5.0), hum(15.0), speak(HALL), noise(4.0),
        speak(STRANGER_CANCELS), pause(2.0), speak(SHUTTER), pause(6.0), speak(SHUTTER), pause(0.8), speak(CANCEL),
        pause(4.0), speak(KITCHEN), pause(0.3), speak(HALL), pause(3.0),
    ]  # fmt: skip
    parts.append(pause(CYCLE_S - sum(map(len, parts)) / SAMPLE_RATE_HZ))
    return parts


class _Hours:
    """Plays cycles for a while, and says how far it is."""

    def __init__(self, audio_s: float, marks_s: Iterator[float], reached: Callable[[float], None]) -> None:
        self._audio_s = audio_s
        self._marks_s = marks_s
        self._reached = reached
        self._closed = False

    @property
    def describe(self) -> Description:
        return {"kind": "rehearsal", "native_rate_hz": SAMPLE_RATE_HZ, "channels": 1}

    async def open(self) -> None:
        """Nothing to open."""

    async def __aiter__(self) -> AsyncIterator[SourceItem]:
        reframer, mark_s = Reframer(), next(self._marks_s)
        for stretch in cycle(mixed_audio()):
            for frame in reframer.push(stretch):
                if self._closed or frame.start_sample >= self._audio_s * SAMPLE_RATE_HZ:
                    return
                yield frame
                if frame.end_sample >= mark_s * SAMPLE_RATE_HZ:
                    self._reached(mark_s)
                    mark_s = next(self._marks_s)

    async def aclose(self) -> None:
        self._closed = True


def _marks_s(warm_up_s: float, every_s: float) -> Iterator[float]:
    mark_s = warm_up_s
    while True:
        yield mark_s
        mark_s += every_s


async def soak(
    audio_s: float, *, warm_up_s: float, every_s: float, folder: Path, show: Callable[[Sample], None]
) -> Soak:
    """Run one session.

    Args:
        audio_s: how much audio.
        warm_up_s: when the first sample is taken.
        every_s: and then the others.
        folder: for journal and event file.
        show: given each sample at once.
    """
    tally, samples = _Tally(), []

    def reached(mark_s: float) -> None:
        samples.append(_sample(mark_s, tally))
        show(samples[-1])

    before, start_s = _sample(0.0, tally), time.perf_counter()
    journal = open_journal(folder / "journal.sqlite3")
    with (folder / "console.txt").open("w") as console:
        session = make_session(
            source=_Hours(audio_s, _marks_s(warm_up_s, every_s), reached),
            settings=Settings.model_validate({"tools": {"grace_medium_s": 3.0}}),
            parts=rehearsed_parts(RehearsedEars(LINES), RehearsedPolicy(REPLIES)), catalogue=CATALOGUE,
            journal=journal, sinks=[tally, JsonLinesSink(folder / "events.jsonl"), PlainConsole(console)],
            pace=Pace.FREE, live=True, owner_mode=OwnerMode.INITIATOR, owner=None, backend=OwnBackend(StubBackend()),
        )  # fmt: skip
        await session.run()
        del session
    journal.close()
    await asyncio.sleep(0.2)  # for threads that were told to end
    wall_s = time.perf_counter() - start_s
    return Soak(tuple(samples), before, _sample(audio_s, tally), tally.outcomes, wall_s)


def _line(sample: Sample) -> str:
    return (
        f"{sample.audio_s / 3600:8.2f} {sample.turns:8d} {sample.calls:8d} {sample.rss_bytes / 2**20:10.1f}"
        f" {sample.tasks:6d} {sample.descriptors:12d} {sample.threads:8d}"
    )


def main() -> int:
    """Run, print the table, judge."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=10.0, help="hours of audio (default 10)")
    args = parser.parse_args()
    audio_s = args.hours * 3600
    print("   hours    turns    calls    RSS MiB  tasks  descriptors  threads", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(
            soak(
                audio_s,
                warm_up_s=audio_s / 20,
                every_s=audio_s / 20,
                folder=Path(folder),
                show=lambda sample: print(_line(sample), flush=True),
            )
        )
    leaks = result.leaks()
    print(f"memory grew by {result.growth:.1%} after the warm-up (allowed: {MAX_GROWTH:.0%})")
    print(f"left over: {', '.join(leaks) or 'nothing'}")
    print(f"outcomes: {', '.join(f'{name} {count}' for name, count in sorted(result.outcomes.items()))}")
    print(f"{args.hours:g} h of audio in {result.wall_s / 60:.1f} min, {audio_s / result.wall_s:.0f} times real time")
    return 1 if leaks or result.growth > MAX_GROWTH else 0


if __name__ == "__main__":
    sys.exit(main())
