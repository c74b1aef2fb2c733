"""What the tests of ``tools`` share: a clock moved by hand, valid calls, a journal that fails on demand."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from gate.catalogue import ToolCall
from gate.grants import Grant, GrantLedger, _mint
from gate.span import Span
from tools.backend import Backend, StubBackend
from tools.catalogue import ToolCatalogue
from tools.executor import Executor
from tools.journal import Journal, JournalEntry, JournalError, JournalRow
from tools.records import ExecutionRecord, ExecutionState

GOOD_PARAMS: dict[str, dict[str, object]] = {
    "send_message": {"recipient": "Ben", "body": "I'm late, see you at 7:30 p.m."},
    "make_call": {"contact": "Mom"},
    "schedule_event": {"title": "Dentist", "when": "tomorrow at noon"},
    "place_order": {"item": "oat milk", "quantity": 2},
    "transfer_money": {"recipient": "Ben", "amount": 60, "currency": "dollars"},
    "unlock_door": {"door": "the front door"},
    "control_device": {"device": "kitchen light", "action": "turn_on"},
    "book_ride": {"destination": "the airport", "pickup_time": "at six"},
    "delete_data": {"target": "photos from last summer"},
    "share_location": {"recipient": "Ana", "duration": "for an hour"},
}
"""One valid call of each built-in tool."""

TEXT = GOOD_PARAMS["send_message"]


def good_call(tool: str = "send_message", **changes: object) -> ToolCall:
    """A valid call of ``tool``, with some arguments changed."""
    return ToolCall(tool, {**GOOD_PARAMS[tool], **changes})


def fast_directory() -> str | None:
    """A directory in memory where there is one: fsync on a busy disk is no part of what most tests are about."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


class Ticks:
    """Stands for the time of day: one second more on each reading."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep_s(self, seconds: float, /) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now_s + seconds, woken))
        await woken

    @property
    def sleepers(self) -> int:
        """How many wait."""
        return sum(not woken.done() for _, woken in self._sleepers)

    def advance(self, seconds: float) -> None:
        """Move on and wake who is due."""
        self.now_s += seconds
        for due_s, woken in self._sleepers:
            if due_s <= self.now_s and not woken.done():
                woken.set_result(None)


class FaultyJournal(Journal):
    """A journal whose writes fail as long as a flag is up."""

    fail_begin = False
    fail_finish = False
    fail_late = False
    fail_probe = False

    def begin(self, entry: JournalEntry) -> None:
        if self.fail_begin:
            raise JournalError("disk full")
        super().begin(entry)

    def finish(self, key: str, state: ExecutionState, detail: str) -> None:
        if self.fail_finish:
            raise JournalError("disk full")
        super().finish(key, state, detail)

    def note_late(self, key: str, state: ExecutionState, detail: str) -> None:
        if self.fail_late:
            raise JournalError("disk full")
        super().note_late(key, state, detail)

    def probe(self) -> None:
        if self.fail_probe:
            raise JournalError("disk full")
        super().probe()


class Rig:
    """An executor with all that it needs, on a journal of its own."""

    def __init__(self, directory: Path, backend: Backend | None = None, catalogue: ToolCatalogue | None = None) -> None:
        self.path = directory / "journal.db"
        self.stub = StubBackend()
        self.backend: Backend = self.stub if backend is None else backend
        self.catalogue = ToolCatalogue.builtin() if catalogue is None else catalogue
        self.clock = HandClock()
        self.journal = FaultyJournal(self.path, unix_s=Ticks())
        self.records: list[ExecutionRecord] = []
        self.start_session()

    def start_session(self) -> None:
        """A fresh ledger and executor of the same session id, as after a restart."""
        self.ledger = GrantLedger()
        self.executor = Executor(
            self.catalogue,
            self.backend,
            self.journal,
            self.ledger,
            self.clock,
            session_id="session-1",
            report=self.records.append,
        )

    async def run(self, call: ToolCall, turn_id: str = "turn-1") -> ExecutionRecord:
        """Execute ``call`` under a grant of its own."""
        return await self.executor.execute(call, mint(call, turn_id), now_sample=0)

    def rows(self) -> tuple[JournalRow, ...]:
        """The journal's rows."""
        return self.journal.rows()

    async def close(self) -> None:
        """End the executor at once and close the journal."""
        closing = asyncio.create_task(self.executor.aclose(1.0))
        while not closing.done():
            self.clock.advance(1.0)
            await asyncio.sleep(0.001)
        await closing
        self.journal.close()


def mint(call: ToolCall, turn_id: str = "turn-1", expires_sample: int = 16_000) -> Grant:
    """A grant as the gate would mint it."""
    return _mint(turn_id, call, Span(0, 16_000), expires_sample)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until ``condition`` holds; fails when it does not within ten seconds."""
    async with asyncio.timeout(10.0):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow: the operating system refuses the write, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with tempfile.TemporaryFile() as probe:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            with contextlib.suppress(OSError):
                probe.write(b"x")
                probe.flush()
                raise AssertionError("the limit does not hold here")
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
