"""Simultaneous wearers of a rehearsal: sessions that share ears, policy and journal, as a server of many would.

Source pacing, detector, turns, worker, gate, executor, journal and events are real; ears and policy are rehearsed
(``bench.rehearsal``), so that what is measured is the loop's own.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import numpy as np

from agent import events
from agent.assemble import Parts, make_session
from agent.clock import Pace
from agent.events import Event
from agent.frames import FRAME_SAMPLES, Frame, Samples
from agent.loop import Loop
from agent.session import OwnerMode
from agent.settings import Settings
from agent.sources import Description, Source, SourceItem
from bench.rehearsal import RehearsedEars, RehearsedPolicy, rehearsed_parts, speak
from bench.stage import CATALOGUE, HALL, HELLO, KITCHEN, LINES, REPLIES, STRANGER, THANKS
from gate.span import SAMPLE_RATE_HZ
from models.protocols import Policy
from tools.backend import OwnBackend, StubBackend
from tools.journal import Journal

FRAME_S = FRAME_SAMPLES / SAMPLE_RATE_HZ
TALK = (HELLO, KITCHEN, THANKS, STRANGER, HALL, THANKS)
"""What a wearer is heard to say: two commands that run in six turns."""
TURN_EVERY_S = 5.0
"""One turn so often. No wearer talks to an assistant like that; it is what the loop is loaded with."""


def instant_parts(policy: Policy | None = None) -> Parts:
    """Rehearsed ears, and a policy that answers at once unless another one is given."""
    parts = rehearsed_parts(RehearsedEars(LINES), RehearsedPolicy(REPLIES))
    return parts if policy is None else Parts(
        parts.ears, policy, "given", parts.speaker_thresholds, parts.distance_thresholds
    )  # fmt: skip


def talk_frames() -> list[Samples]:
    """The talk as frames, float32 ``(320,)``: a line, silence, the next, each ``TURN_EVERY_S``."""
    size = round(TURN_EVERY_S * SAMPLE_RATE_HZ)
    audio = np.zeros(size * len(TALK), np.float32)
    for number, line in enumerate(TALK):
        sound = speak(line)
        audio[number * size : number * size + len(sound)] = sound
    return list(audio.reshape(-1, FRAME_SAMPLES))


class Tally:
    """A sink that counts and keeps nothing else, so that a session's memory is its own."""

    wants_levels = False

    def __init__(self) -> None:
        self.opened = 0
        self.decided = 0
        self.failed = 0
        self.executed = 0
        self.latency_s = array("d")
        """From the end of speech to the decision, of turns whose models came to an end."""
        self._changed = asyncio.Event()

    def emit(self, event: Event) -> None:
        """Count one event."""
        match event:
            case events.TurnOpened():
                self.opened += 1
            case events.Decided(status="ok"):
                self.decided += 1
                self.latency_s.append(event.timing.decision - event.timing.speech_end)
            case events.Decided() | events.Failed():
                self.failed += 1
            case events.Executed():
                self.executed += 1
            case _:
                return
        self._changed.set()

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until ``happened``."""
        while not happened():
            self._changed.clear()
            await self._changed.wait()

    async def aclose(self) -> None:
        """Nothing to close."""


class WearerSource(Protocol):
    """A source that can be told to end."""

    def stop(self) -> None:
        """End at the next frame."""
        ...


@dataclass(slots=True)
class Lateness:
    """How late frames were done, in seconds after they were due; nothing is kept before ``counting``."""

    counting: bool = False
    frames_s: array[float] = field(default_factory=lambda: array("d"))


class PacedTalk:
    """Frames in real time, round and round, as a microphone or a connection delivers them.

    Args:
        frames: what is said.
        offset: where in it this wearer starts.
        begin_s: on the performance counter, when the first frame begins.
        lateness: is told how late each frame was done.
    """

    def __init__(self, frames: list[Samples], offset: int, begin_s: float, lateness: Lateness) -> None:
        self._frames = frames
        self._offset = offset
        self._begin_s = begin_s
        self._lateness = lateness
        self._stopped = False

    @property
    def describe(self) -> Description:
        """What is played."""
        return {"kind": "rehearsal", "native_rate_hz": SAMPLE_RATE_HZ, "channels": 1}

    async def open(self) -> None:
        """Nothing to open."""

    async def __aiter__(self) -> AsyncIterator[SourceItem]:
        """The frames; each is asked for once the loop is done with the one before."""
        for number, samples in zip(count(), self._round(), strict=False):
            due_s = self._begin_s + (number + 1) * FRAME_S
            # A frame that is overdue lets the others go first, or one session would keep the loop to itself.
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            if self._stopped:
                return
            yield Frame(number * FRAME_SAMPLES, samples)
            if self._lateness.counting:
                self._lateness.frames_s.append(time.perf_counter() - due_s)

    def _round(self) -> Iterator[Samples]:
        for number in count(self._offset):
            yield self._frames[number % len(self._frames)]

    def stop(self) -> None:
        """End at the next frame."""
        self._stopped = True

    async def aclose(self) -> None:
        """End at the next frame."""
        self.stop()


def wearer(source: Source, parts: Parts, journal: Journal, tally: Tally, pace: Pace = Pace.WALL) -> Loop:
    """One session. Call it inside a running event loop.

    Args:
        source: what is heard; it keeps the time itself.
        parts: ears and policy, shared.
        journal: shared.
        tally: counts its events.
        pace: which clock.
    """
    return make_session(
        source=source, settings=Settings(), parts=parts, catalogue=CATALOGUE, journal=journal, sinks=[tally],
        pace=pace, live=True, owner_mode=OwnerMode.INITIATOR, owner=None, backend=OwnBackend(StubBackend()),
    )  # fmt: skip
