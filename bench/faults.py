"""Faults, each as a short play on ``bench.stage``: what breaks, and when. Tests hold what comes of them; the table in
``docs/reliability.md`` shows it. Faults that end a whole process are in ``bench.process_faults``."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from agent import events
from agent.clock import Pace
from agent.jsonl import JsonLinesSink
from agent.sources import Silence
from agent.turn_work import Limits
from bench.stage import (
    CANCEL,
    HALL,
    HELLO,
    KITCHEN,
    REPLIES,
    SHUTTER,
    STRANGER,
    STRANGER_CANCELS,
    STRANGER_COMMANDS,
    THANKS,
    Observed,
    Stage,
    SwitchLamp,
)
from tools.backend import OutcomeUnknownError, OwnBackend
from tools.catalogue import ToolCatalogue
from tools.spec import ToolSpec

PAUSE = Silence(1.0)
"""Long enough to end a turn."""

Play = Callable[[Path], Awaitable[Observed]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        name: its name in the code.
        group: what breaks.
        what: the fault in a few words.
        play: plays it in an empty folder.
    """

    name: str
    group: str
    what: str
    play: Play


FAULTS: dict[str, Fault] = {}
"""Every fault, by name, in the order of the table."""


def _fault(group: str, what: str) -> Callable[[Play], Play]:
    def enter(play: Play) -> Play:
        name = getattr(play, "__name__", "")
        FAULTS[name] = Fault(name, group, what, play)
        return play

    return enter


# Tools ---------------------------------------------------------------------------------------------------------------


def _only_kitchen(fault: Callable[[], Awaitable[None]]) -> Callable[[ToolSpec], Awaitable[None]]:
    async def before(tool: ToolSpec) -> None:
        if isinstance(tool, SwitchLamp) and tool.lamp == "kitchen":
            await fault()

    return before


async def _forever() -> None:
    await asyncio.Event().wait()


def _until(event: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def wait() -> None:
        await event.wait()

    return wait


@_fault("tool", "never answers")
async def tool_hangs(folder: Path) -> Observed:
    """The kitchen lamp never answers; the hall lamp is asked for next."""
    return await Stage(folder, before_tool=_only_kitchen(_forever)).play(KITCHEN, PAUSE, HALL)


@_fault("tool", "blocks its thread for ever")
async def tool_blocks_its_thread(folder: Path) -> Observed:
    """A user's tool written without ``async`` waits in a thread that nothing can interrupt."""
    release = threading.Event()

    class Blocking(SwitchLamp, name="switch_lamp", description="Blocks.", risk=SwitchLamp.facts.risk, time_limit_s=0.2):
        def perform(self, *, key: str) -> str:
            if self.lamp == "kitchen":
                release.wait()
            return "switched"

    stage = Stage(folder, carrier=OwnBackend(_Unused()), catalogue=ToolCatalogue([Blocking]))
    try:
        return await stage.play(KITCHEN, PAUSE, HALL)
    finally:
        release.set()


class _Unused:
    async def perform(self, tool: ToolSpec, *, key: str) -> str:
        raise AssertionError("the tool brings its own effect")


@_fault("tool", "raises")
async def tool_raises(folder: Path) -> Observed:
    """The kitchen lamp raises."""

    async def fault() -> None:
        raise ConnectionError("the lamp does not answer")

    return await Stage(folder, before_tool=_only_kitchen(fault)).play(KITCHEN, PAUSE, HALL)


@_fault("tool", "cannot tell whether it took effect")
async def tool_cannot_tell(folder: Path) -> Observed:
    """The request was sent, and the reply was lost."""

    async def fault() -> None:
        raise OutcomeUnknownError("sent, but no reply")

    return await Stage(folder, before_tool=_only_kitchen(fault)).play(KITCHEN, PAUSE, HALL)


@_fault("tool", "calls sys.exit")
async def tool_exits(folder: Path) -> Observed:
    """A tool must not be able to end the gate."""

    async def fault() -> None:
        raise SystemExit(3)

    return await Stage(folder, before_tool=_only_kitchen(fault)).play(KITCHEN, PAUSE, HALL)


@_fault("tool", "ends after its time limit")
async def tool_ends_late(folder: Path) -> Observed:
    """The kitchen lamp takes effect after its outcome was written down as unknown, while the session goes on."""
    go_on = asyncio.Event()
    stage = Stage(folder, before_tool=_only_kitchen(_until(go_on)))

    async def time_is_up() -> None:
        await stage.witness.until(lambda: stage.witness.count(events.Executed) == 1)
        go_on.set()
        await stage.witness.until(lambda: stage.witness.count(events.LateResult) == 1)

    return await stage.play(KITCHEN, PAUSE, time_is_up, THANKS, PAUSE, HALL, pace=Pace.WALL)


# Disks ---------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow: the operating system refuses the write, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with tempfile.TemporaryFile() as probe:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        try:
            with contextlib.suppress(OSError):
                probe.write(b"x")
                probe.flush()
                raise AssertionError("the limit does not hold here")
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@_fault("disk", "full under the journal, for two commands of three")
async def disk_full_under_the_journal(folder: Path) -> Observed:
    """Two commands meet a full disk, the third one that has room again."""
    stage, disk = Stage(folder), contextlib.ExitStack()

    async def fill() -> None:
        disk.enter_context(full_disk())

    async def clear() -> None:
        await stage.witness.until(lambda: stage.witness.count(events.Executed) == 2)
        disk.close()

    with disk:
        return await stage.play(HELLO, PAUSE, fill, KITCHEN, PAUSE, HALL, PAUSE, clear, KITCHEN, pace=Pace.WALL)


@_fault("disk", "journal deleted while it is open")
async def journal_deleted(folder: Path) -> Observed:
    """Somebody removes the journal under a running gate; a call could not be found again after a restart."""
    stage = Stage(folder)

    async def delete() -> None:
        stage.path.unlink()

    return await stage.play(HELLO, PAUSE, delete, KITCHEN, PAUSE, HALL)


@_fault("disk", "full under the event file, for one command of two")
async def disk_full_under_the_events(folder: Path) -> Observed:
    """The event file that the user named cannot grow while the first command is said."""
    stage, disk = Stage(folder), contextlib.ExitStack()

    async def fill() -> None:
        disk.enter_context(full_disk())

    async def clear() -> None:
        await stage.witness.until(lambda: stage.witness.count(events.Decided) == 2)
        disk.close()

    with disk:
        return await stage.play(
            HELLO, PAUSE, fill, KITCHEN, PAUSE, clear, HALL, pace=Pace.WALL,
            sinks=[JsonLinesSink(folder / "events.jsonl")],
        )  # fmt: skip


# People --------------------------------------------------------------------------------------------------------------


@_fault("speech", "goes on 50 ms after the tool has run, and the model proposes the call again")
async def model_repeats_the_call(folder: Path) -> Observed:
    """A model that lost the result proposes the same call for the words that follow."""
    stage = Stage(folder, replies={**REPLIES, THANKS.text: REPLIES[KITCHEN.text]})

    async def done() -> None:
        await stage.witness.until(lambda: stage.witness.count(events.Executed) == 1)

    return await stage.play(KITCHEN, PAUSE, done, Silence(0.05), THANKS, pace=Pace.WALL)


@_fault("speech", "asks for the same thing again, on purpose")
async def owner_asks_again(folder: Path) -> Observed:
    """A new request in new words of her own is a new call."""
    return await Stage(folder).play(KITCHEN, PAUSE, KITCHEN)


def _while_it_runs(stage: Stage, go_on: asyncio.Event, decisions: int) -> tuple[Callable[[], Awaitable[None]], ...]:
    async def running() -> None:
        await stage.witness.until(lambda: len(stage.backend.started) == 1)

    async def heard() -> None:
        await stage.witness.until(lambda: stage.witness.count(events.Decided) == decisions)
        go_on.set()

    return running, heard


@_fault("speech", "a stranger talks, cancels and commands while a tool runs")
async def stranger_talks_during_a_call(folder: Path) -> Observed:
    """Nobody but the owner may cancel a call, and nobody's talk may."""
    go_on = asyncio.Event()
    stage = Stage(folder, before_tool=_only_kitchen(_until(go_on)), catalogue=PATIENT)
    running, heard = _while_it_runs(stage, go_on, 5)
    return await stage.play(
        HELLO, PAUSE, KITCHEN, PAUSE, running, STRANGER, PAUSE, STRANGER_CANCELS, PAUSE, STRANGER_COMMANDS, PAUSE,
        heard, HALL, pace=Pace.WALL,
    )  # fmt: skip


@_fault("speech", 'a stranger says "cancel that" in the grace time')
async def stranger_cancels_in_the_grace_time(folder: Path) -> Observed:
    """The call waits for the owner, and for nobody else."""
    return await Stage(folder).play(
        HELLO, PAUSE, SHUTTER, Silence(0.8), STRANGER_CANCELS, Silence(4.0), grace_s=3.0
    )  # fmt: skip


@_fault("speech", "the owner talks on while a tool runs")
async def owner_talks_on_during_a_call(folder: Path) -> Observed:
    """Talking on is no cancellation."""
    go_on = asyncio.Event()
    stage = Stage(folder, before_tool=_only_kitchen(_until(go_on)), catalogue=PATIENT)
    running, heard = _while_it_runs(stage, go_on, 2)
    return await stage.play(KITCHEN, PAUSE, running, THANKS, PAUSE, heard, HALL, pace=Pace.WALL)


class _PatientLamp(SwitchLamp, name="switch_lamp", description="Waits.", risk=SwitchLamp.facts.risk, time_limit_s=10.0):
    """Has the time that a test needs to be slow."""


PATIENT = ToolCatalogue([_PatientLamp])
"""The lamp with a time limit of ten seconds."""


# Cancellation --------------------------------------------------------------------------------------------------------


@_fault("stop", "while an ear works")
async def stopped_in_an_ear(folder: Path) -> Observed:
    """Ctrl-C while the recogniser is busy."""
    stage, release = Stage(folder), threading.Event()

    def before(ear: str) -> None:
        if ear == "speech":
            stage.stop()
            release.wait(WAIT_S)

    stage.ears.before = before
    try:
        return await stage.play(KITCHEN, PAUSE)
    finally:
        release.set()


@_fault("stop", "while the policy works")
async def stopped_in_the_policy(folder: Path) -> Observed:
    """Ctrl-C while the policy is busy."""
    stage, release = Stage(folder), threading.Event()

    def before(text: str) -> None:
        stage.stop()
        release.wait(WAIT_S)

    stage.policy.before = before
    try:
        return await stage.play(KITCHEN, PAUSE)
    finally:
        release.set()


@_fault("stop", "after the policy, before the turn is over")
async def stopped_before_the_turn_is_over(folder: Path) -> Observed:
    """Ctrl-C in the pause that would have ended the turn."""
    stage, proposed = Stage(folder), threading.Event()
    stage.policy.before = lambda text: proposed.set()

    async def stop() -> None:
        await asyncio.to_thread(proposed.wait, WAIT_S)
        stage.stop()
        await _forever()

    return await stage.play(KITCHEN, Silence(0.3), stop, pace=Pace.WALL)


@_fault("stop", "in the grace time")
async def stopped_in_the_grace_time(folder: Path) -> Observed:
    """Ctrl-C while a licensed call waits for a possible "cancel that"."""
    stage = Stage(folder)

    async def stop() -> None:
        await stage.witness.until(lambda: stage.witness.count(events.Decided) == 1)
        stage.stop()
        await _forever()

    return await stage.play(SHUTTER, PAUSE, stop, grace_s=3.0, pace=Pace.WALL)


@_fault("stop", "while a tool runs that ends soon")
async def stopped_while_a_tool_ends(folder: Path) -> Observed:
    """Ctrl-C while a call is under way: it may end, and its end is recorded."""
    stage: Stage

    async def fault() -> None:
        stage.stop()
        await asyncio.sleep(0.05)

    stage = Stage(folder, before_tool=_only_kitchen(fault))
    return await stage.play(KITCHEN, PAUSE, _forever, pace=Pace.WALL)


@_fault("stop", "while a tool runs that does not end")
async def stopped_while_a_tool_hangs(folder: Path) -> Observed:
    """Ctrl-C while a call hangs: the gate does not wait for it."""
    stage: Stage

    async def fault() -> None:
        stage.stop()
        await _forever()

    stage = Stage(folder, before_tool=_only_kitchen(fault), catalogue=PATIENT)
    return await stage.play(KITCHEN, PAUSE, _forever, pace=Pace.WALL)


@_fault("stop", "after the call was done")
async def stopped_after_the_call(folder: Path) -> Observed:
    """Ctrl-C once everything is written down."""
    stage = Stage(folder)

    async def stop() -> None:
        await stage.witness.until(lambda: stage.witness.count(events.Executed) == 1)
        stage.stop()
        await _forever()

    return await stage.play(KITCHEN, PAUSE, stop, pace=Pace.WALL)


@_fault("stop", "the owner cancels in the grace time")
async def owner_cancels_in_the_grace_time(folder: Path) -> Observed:
    """ "No, cancel that", said in time."""
    return await Stage(folder).play(SHUTTER, Silence(0.8), CANCEL, Silence(4.0), HALL, grace_s=3.0)


@_fault("stop", "the owner cancels when it is too late")
async def owner_cancels_too_late(folder: Path) -> Observed:
    """ "No, cancel that", after the call has run."""
    return await Stage(folder).play(SHUTTER, Silence(5.0), CANCEL, PAUSE, HALL, grace_s=3.0)


# Models --------------------------------------------------------------------------------------------------------------

WAIT_S = 5.0
"""A blocked model is let go after this, so that a failing test leaves no thread behind for long."""


@_fault("model", "an ear dies (SystemExit in its thread)")
async def ear_exits(folder: Path) -> Observed:
    """The recogniser's library ends its thread, once."""
    stage, dead = Stage(folder), [True]

    def before(ear: str) -> None:
        if ear == "speech" and dead and dead.pop():
            raise SystemExit(139)

    stage.ears.before = before
    return await stage.play(KITCHEN, PAUSE, HALL)


@_fault("model", "the policy raises")
async def policy_raises(folder: Path) -> Observed:
    """The policy runs out of memory, once."""
    stage = Stage(folder)

    def before(text: str) -> None:
        if text == KITCHEN.text:
            raise MemoryError

    stage.policy.before = before
    return await stage.play(KITCHEN, PAUSE, HALL)


@_fault("model", "the policy dies (SystemExit in its thread)")
async def policy_exits(folder: Path) -> Observed:
    """The policy's library ends its thread, once."""
    stage = Stage(folder)

    def before(text: str) -> None:
        if text == KITCHEN.text:
            raise SystemExit(139)

    stage.policy.before = before
    return await stage.play(KITCHEN, PAUSE, HALL)


@_fault("model", "the policy hangs, and answers after it was given up")
async def policy_hangs_and_answers_late(folder: Path) -> Observed:
    """The answer of a policy that was given up comes while the next turn is worked on."""
    stage, release = Stage(folder), threading.Event()

    def before(text: str) -> None:
        if text == KITCHEN.text:
            release.wait(WAIT_S)

    async def let_go() -> None:
        await stage.witness.until(lambda: stage.witness.count(events.Decided) == 1)
        release.set()

    stage.policy.before = before
    return await stage.play(KITCHEN, PAUSE, let_go, HALL, limits=Limits(policy_s=0.1), pace=Pace.WALL)


@_fault("model", "answers after its turn went on")
async def model_answers_after_its_turn_went_on(folder: Path) -> Observed:
    """Early work on the first half of a sentence is under way when its speaker goes on; what it says is void."""
    stage, release, entered = Stage(folder), threading.Event(), threading.Event()

    def before(text: str) -> None:
        if not entered.is_set():
            entered.set()
            release.wait(WAIT_S)

    async def busy() -> None:
        await asyncio.to_thread(entered.wait, WAIT_S)

    async def let_go() -> None:
        release.set()

    stage.policy.before = before
    whole = replace(HELLO, seconds=3.0)
    return await stage.play(KITCHEN, Silence(0.3), busy, whole, PAUSE, let_go, pace=Pace.WALL)


@_fault("model", "answers after Ctrl-C")
async def model_answers_after_the_stop(folder: Path) -> Observed:
    """The policy proposes a call when the session is over."""
    stage, release = Stage(folder), threading.Event()

    def before(text: str) -> None:
        stage.stop()
        release.wait(WAIT_S)

    stage.policy.before = before
    observed = await stage.play(KITCHEN, PAUSE, pace=Pace.WALL)
    release.set()
    await asyncio.sleep(0.05)
    assert stage.backend.started == [], "a proposal must not outlive its session"
    return observed


@_fault("model", "writes 10 000 words around a call")
async def policy_writes_ten_thousand_words(folder: Path) -> Observed:
    """A model that rambles; somewhere in it stands a call."""
    rambling = "so " * 5_000 + REPLIES[KITCHEN.text] + " and so on" * 5_000
    return await Stage(folder, replies={**REPLIES, KITCHEN.text: rambling}).play(KITCHEN, PAUSE, HALL)


@_fault("model", "is so slow that the command is 20 s old")
async def command_is_stale(folder: Path) -> Observed:
    """The audio runs on for twenty seconds while the policy thinks: a command must not run by surprise."""
    stage, release = Stage(folder), threading.Event()

    def before(text: str) -> None:
        if text == KITCHEN.text:
            release.wait(WAIT_S)

    async def let_go() -> None:
        release.set()
        await stage.witness.until(lambda: stage.witness.count(events.Decided) == 1)

    stage.policy.before = before
    return await stage.play(KITCHEN, Silence(20.0), let_go, HALL, pace=Pace.WALL)


@_fault("model", "lets a call go stale in a tool queue")
async def call_waits_past_its_grant(folder: Path) -> Observed:
    """A licensed call waits out its grace time while the stream jumps ahead by more than its grant's life."""
    stage = Stage(folder)

    async def decided() -> None:
        await stage.witness.until(lambda: stage.witness.count(events.Decided) == 1)

    async def executed() -> None:
        await stage.witness.until(lambda: stage.witness.count(events.Executed) == 1)

    return await stage.play(SHUTTER, PAUSE, decided, Silence(15.0), executed, HALL, grace_s=0.1, pace=Pace.WALL)
