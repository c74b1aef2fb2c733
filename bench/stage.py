"""The stage on which faults are played: a session with everything real but the weights, watched from all sides.

Real are the detector, turns, worker, gate, executor, journal and events, put together by ``agent.assemble`` as for the
command line. Rehearsed are ears and policy (``bench.rehearsal``). Faults are let in at three places: before an ear or
the policy answers, in the back end, and between the words (a step of a script can wait for something to happen).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from agent import events
from agent.assemble import make_session
from agent.clock import Pace, unix_time_s
from agent.eventlog import Sink
from agent.events import Event
from agent.frames import Reframer
from agent.session import OwnerMode
from agent.settings import Settings
from agent.sources import Description, Silence, SourceItem
from agent.turn_work import Limits
from bench.rehearsal import Line, RehearsedEars, RehearsedPolicy, rehearsed_parts, speak
from gate.catalogue import Risk
from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio
from tools.arguments import ThingName
from tools.backend import Backend
from tools.catalogue import ToolCatalogue
from tools.journal import Journal
from tools.spec import Ask, ToolSpec

HELLO = Line(300, "What a lovely morning.")
KITCHEN = Line(400, "Switch on the kitchen lamp.")
HALL = Line(500, "Switch on the hall lamp.")
THANKS = Line(600, "Thanks a lot for that.")
CANCEL = Line(700, "No, cancel that.")
STRANGER = Line(800, "Did you see the match yesterday?", speaker=1)
STRANGER_CANCELS = Line(900, "No, cancel that.", speaker=1)
STRANGER_COMMANDS = Line(1000, "Switch on the hall lamp.", speaker=1)
SHUTTER = Line(1100, "Lower the garden shutter.")
LINES = (HELLO, KITCHEN, HALL, THANKS, CANCEL, STRANGER, STRANGER_CANCELS, STRANGER_COMMANDS, SHUTTER)
"""What can be said on the stage."""

WAIT_LIMIT_S = 10.0


def call_text(tool: str, param: str, value: str) -> str:
    """A call with one argument in the action grammar."""
    return f'<|TOOL|>{{"name": "{tool}", "params": {{"{param}": "{value}"}}}}</|TOOL|>'


REPLIES = {
    KITCHEN.text: call_text("switch_lamp", "lamp", "kitchen"),
    HALL.text: call_text("switch_lamp", "lamp", "hall"),
    SHUTTER.text: call_text("lower_shutter", "shutter", "garden"),
}
"""What the policy makes of them; everything else is muted."""


class SwitchLamp(ToolSpec, name="switch_lamp", description="Switch on a lamp.", risk=Risk.LOW, time_limit_s=0.2):
    """Harmless, so it runs at once; impatient, so that a hang is over soon."""

    lamp: Annotated[ThingName, Ask("Which lamp?", "the lamp")]


class LowerShutter(ToolSpec, name="lower_shutter", description="Lower a shutter.", risk=Risk.MEDIUM, time_limit_s=0.2):
    """Waits out its grace time before it runs."""

    shutter: Annotated[ThingName, Ask("Which shutter?", "the shutter")]


CATALOGUE = ToolCatalogue([SwitchLamp, LowerShutter])


class Witness:
    """A sink that keeps every event and lets others wait for one."""

    wants_levels = False

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = asyncio.Event()

    def emit(self, event: Event) -> None:
        """Keep one event."""
        self.events.append(event)
        self.note()

    def note(self) -> None:
        """Something happened: who waits looks again."""
        self._changed.set()

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until ``happened``.

        Raises:
            TimeoutError: when it has not within ``WAIT_LIMIT_S``.
        """
        async with asyncio.timeout(WAIT_LIMIT_S):
            while not happened():
                self._changed.clear()
                await self._changed.wait()

    def count(self, kind: type[Event]) -> int:
        """How many events of a kind there are."""
        return sum(isinstance(event, kind) for event in self.events)

    async def aclose(self) -> None:
        """Nothing to close."""


class WatchedBackend:
    """A back end that counts what is started and what takes effect.

    Args:
        witness: told of both.
        before: runs between the two; waiting there is a slow tool, raising a broken one.
        carrier: carries calls out instead, and counts as taking effect when it returns.
    """

    def __init__(
        self,
        witness: Witness,
        before: Callable[[ToolSpec], Awaitable[None]] | None = None,
        carrier: Backend | None = None,
    ) -> None:
        self._witness = witness
        self._before = before
        self._carrier = carrier
        self.started: list[str] = []
        self.landed: list[str] = []

    async def perform(self, tool: ToolSpec, *, key: str) -> str:
        """Carry one call out."""
        self.started.append(key)
        self._witness.note()
        if self._before is not None:
            await self._before(tool)
        said = "switched" if self._carrier is None else await self._carrier.perform(tool, key=key)
        self.landed.append(key)
        self._witness.note()
        return said


Step = Line | Silence | Audio | Callable[[], Awaitable[None]]
"""One step of a script: words, silence, any sound, or something to wait for."""


class SteppedSource:
    """Plays a script as fast as it is asked, and waits where the script says so."""

    def __init__(self, script: Sequence[Step]) -> None:
        self._script = script
        self._closed = False

    @property
    def describe(self) -> Description:
        """What is played."""
        return {"kind": "rehearsal", "native_rate_hz": SAMPLE_RATE_HZ, "channels": 1}

    async def open(self) -> None:
        """Nothing to open."""

    async def __aiter__(self) -> AsyncIterator[SourceItem]:
        """The script's frames."""
        reframer = Reframer()
        for step in self._script:
            if callable(step):
                await step()
                continue
            if isinstance(step, Silence):
                sound = np.zeros(round(step.seconds * SAMPLE_RATE_HZ), np.float32)
            else:
                sound = speak(step) if isinstance(step, Line) else step
            for frame in reframer.push(sound):
                if self._closed:
                    return
                yield frame
        for frame in reframer.finish():
            yield frame

    async def aclose(self) -> None:
        """End the iteration at its next frame."""
        self._closed = True


@dataclass(frozen=True, slots=True)
class Observed:
    """What came of a script.

    Attributes:
        decisions: action and reason of each decision, as ``"tool licensed"``.
        outcomes: the outcome of each call that was decided.
        details: what was said about each of these outcomes.
        late: outcomes of calls that ended after their time limit.
        journal: the calls' states as the next start finds them, late results as ``"outcome_unknown, late done"``.
        started: how many calls the back end was given.
        landed: how many took effect.
        failures: what was said to have failed.
        ended: why the session ended.
        violations: broken promises; empty when all were kept.
    """

    decisions: tuple[str, ...]
    outcomes: tuple[str, ...]
    details: tuple[str, ...]
    late: tuple[str, ...]
    journal: tuple[str, ...]
    started: int
    landed: int
    failures: tuple[str, ...]
    ended: str
    violations: tuple[str, ...]


class Stage:
    """One session of a rehearsal.

    Args:
        folder: for its journal; an empty one.
        replies: what the policy makes of transcripts.
        before_tool: see ``WatchedBackend``.
        carrier: see ``WatchedBackend``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        replies: Mapping[str, str] = REPLIES,
        before_tool: Callable[[ToolSpec], Awaitable[None]] | None = None,
        carrier: Backend | None = None,
        catalogue: ToolCatalogue = CATALOGUE,
    ) -> None:
        self.path = folder / "journal.sqlite3"
        self.journal = Journal(self.path, unix_s=unix_time_s)
        self.witness = Witness()
        self.backend = WatchedBackend(self.witness, before_tool, carrier)
        self.catalogue = catalogue
        self.ears = RehearsedEars(LINES)
        self.policy = RehearsedPolicy(replies)
        self._loop = asyncio.get_running_loop()
        self._session: asyncio.Task[object] | None = None

    def stop(self) -> None:
        """Stop the session as Ctrl-C does; from any thread."""
        assert self._session is not None, "only a running session is stopped"
        self._loop.call_soon_threadsafe(self._session.cancel)

    async def play(
        self,
        *script: Step,
        pace: Pace = Pace.FREE,
        limits: Limits | None = None,
        grace_s: float = 0.0,
        sinks: Sequence[Sink] = (),
    ) -> Observed:
        """Play a script to its end and look at what is left.

        Args:
            *script: what happens, in order, after half a second of silence.
            pace: ``WALL`` lets words and calls overlap: audio then runs as fast as the script lets it.
            limits: of the models.
            grace_s: how long a call of medium risk waits.
            sinks: where events go beside the witness.
        """
        settings = Settings.model_validate({"tools": {"grace_medium_s": grace_s, "grace_high_s": 0.0}})
        session = make_session(
            source=SteppedSource([Silence(0.5), *script, Silence(1.0)]), settings=settings,
            parts=rehearsed_parts(self.ears, self.policy), catalogue=self.catalogue, journal=self.journal,
            sinks=[self.witness, *sinks], pace=pace, live=True, owner_mode=OwnerMode.INITIATOR, owner=None,
            backend=self.backend, limits=limits,
        )  # fmt: skip
        self._session = asyncio.create_task(session.run())
        try:
            await asyncio.wait({self._session})
        finally:
            self.journal.close()
        if not self._session.cancelled():
            self._session.result()
        return self._observe()

    def _observe(self) -> Observed:
        seen = self.witness.events
        decided = [event for event in seen if isinstance(event, events.Decided)]
        executed = [event for event in seen if isinstance(event, events.Executed)]
        # Opened as the next start does, which is when a call that was cut off becomes known as such.
        journal = Journal(self.path, unix_s=unix_time_s)
        rows = journal.rows()
        journal.close()
        ended = next(event for event in reversed(seen) if isinstance(event, events.SessionEnded))
        return Observed(
            tuple(f"{event.action} {event.reason}" for event in decided),
            tuple(event.outcome for event in executed),
            tuple(event.detail for event in executed),
            tuple(event.outcome for event in seen if isinstance(event, events.LateResult)),
            tuple(f"{row.state}, late {row.late_state}" if row.late_state else str(row.state) for row in rows),
            len(self.backend.started),
            len(self.backend.landed),
            tuple(f"{event.where}: {event.error}" for event in seen if isinstance(event, events.Failed)),
            ended.reason,
            tuple(self._violations(decided, executed, {row.key: row.state for row in rows})),
        )

    def _violations(
        self, decided: list[events.Decided], executed: list[events.Executed], states: Mapping[str, str]
    ) -> list[str]:
        """Promises that hold under every fault."""
        found = [
            f"{key} was started {count} times" for key, count in Counter(self.backend.started).items() if count > 1
        ]
        found += [f"{key} was started and is not in the journal" for key in set(self.backend.started) - set(states)]
        found += [
            f"{key} is done in the journal and had no effect"
            for key, state in states.items()
            if state == "done" and key not in self.backend.landed
        ]
        licensed = Counter(event.turn for event in decided if event.action == "tool")
        ends = Counter(event.turn for event in executed)
        found += [
            f"turn {turn} was licensed {licensed[turn]} times and has {ends[turn]} ends"
            for turn in licensed.keys() | ends.keys()
            if licensed[turn] != ends[turn]
        ]
        return found
