"""The choke point: nothing runs without a grant, nothing runs twice, and whatever happens ends in one record."""

from __future__ import annotations

import ast
import asyncio
import copy
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
import pytest_asyncio

from gate.catalogue import Risk, ToolCall
from gate.grants import Grant, GrantError
from gate.span import Span
from tests.support_tools import Rig, Ticks, fast_directory, full_disk, good_call, mint, until
from tools.arguments import ThingName
from tools.backend import OutcomeUnknownError, StubBackend
from tools.catalogue import ToolCatalogue
from tools.executor import Executor
from tools.journal import AlreadyRanError, Journal, JournalEntry, JournalError
from tools.records import ExecutionRecord, Refusal
from tools.records import ExecutionState as State
from tools.spec import Ask, ToolSpec

MakeRig = Callable[..., Rig]


@pytest_asyncio.fixture
async def make_rig() -> AsyncIterator[MakeRig]:
    rigs: list[Rig] = []
    folders: list[tempfile.TemporaryDirectory[str]] = []

    def make(backend: object = None, catalogue: ToolCatalogue | None = None) -> Rig:
        folders.append(tempfile.TemporaryDirectory(dir=fast_directory()))
        rigs.append(Rig(Path(folders[-1].name), backend, catalogue))  # type: ignore[arg-type]
        return rigs[-1]

    yield make
    for rig in rigs:
        await rig.close()
    for folder in folders:
        folder.cleanup()
    assert asyncio.all_tasks() == {asyncio.current_task()}, "a task was leaked"


class Gated:
    """A back end that waits at a gate, then has its effect, or raises."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.entered = asyncio.Event()
        self.gate = asyncio.Event()
        self.error = error
        self.effects: list[str] = []

    async def perform(self, tool: ToolSpec, *, key: str) -> str:
        self.entered.set()
        await self.gate.wait()
        self.effects.append(key)
        if self.error is not None:
            raise self.error
        return "done late"


def raising(error: BaseException) -> StubBackend:
    async def after(tool: ToolSpec) -> None:
        raise error

    return StubBackend(after=after)


# A licensed call --------------------------------------------------------------------------------------------------


async def test_a_licensed_call_runs_once_is_journalled_and_reported(make_rig: MakeRig) -> None:
    rig = make_rig()
    record = await rig.run(good_call())
    assert (record.state, record.refusal, record.turn_id) == (State.DONE, None, "turn-1")
    assert record.summary == "Text Ben: I'm late, see you at 7:30 p.m."
    assert record.detail == f"recorded only: {record.summary}"
    assert record.key.startswith("session-1:turn-1:")
    assert [effect.key for effect in rig.stub.effects] == [record.key]
    assert [(row.key, row.state, row.span) for row in rig.rows()] == [(record.key, State.DONE, Span(0, 16_000))]
    assert [told.state for told in rig.records] == [State.STARTED, State.DONE]
    assert rig.records[-1] == record
    assert rig.executor.in_flight == ()


async def test_the_start_is_on_disk_before_the_tool_runs(make_rig: MakeRig) -> None:
    seen: list[list[State]] = []

    async def look(tool: ToolSpec) -> None:
        seen.append([row.state for row in rig.rows()])

    rig = make_rig(StubBackend(before=look))
    await rig.run(good_call())
    assert seen == [[State.STARTED]]


async def test_a_result_survives_speech_right_after_it_and_a_new_request_may_run(make_rig: MakeRig) -> None:
    rig = make_rig()
    first = await rig.run(good_call("book_ride"), "turn-1")
    second = await rig.run(good_call("book_ride"), "turn-2")
    assert (first.state, second.state) == (State.DONE, State.DONE)
    assert [row.turn_id for row in rig.rows()] == ["turn-1", "turn-2"]
    assert len(rig.stub.effects) == 2


async def test_calls_of_different_turns_run_beside_each_other(make_rig: MakeRig) -> None:
    backend = Gated()
    rig = make_rig(backend)
    first = asyncio.create_task(rig.run(good_call(), "turn-1"))
    await until(backend.entered.is_set)
    second = asyncio.create_task(rig.run(good_call(), "turn-2"))
    await until(lambda: len([told for told in rig.records if told.state is State.STARTED]) == 2)
    assert {record.turn_id for record in rig.executor.in_flight} == {"turn-1", "turn-2"}
    backend.gate.set()
    assert {(await first).state, (await second).state} == {State.DONE}


# Without a proper grant -------------------------------------------------------------------------------------------


async def test_spent_grant_is_refused_so_a_call_never_runs_twice(make_rig: MakeRig) -> None:
    rig = make_rig()
    grant = mint(good_call())
    await rig.executor.execute(good_call(), grant, now_sample=0)
    again = await rig.executor.execute(good_call(), grant, now_sample=0)
    assert (again.state, again.refusal) == (State.REFUSED, Refusal.BAD_GRANT)
    assert "spent" in again.detail
    assert len(rig.stub.effects) == 1
    assert rig.records[-1] == again


async def test_one_grant_executed_from_many_tasks_at_once_runs_once(make_rig: MakeRig) -> None:
    rig = make_rig()
    grant = mint(good_call())
    records = await asyncio.gather(*(rig.executor.execute(good_call(), grant, now_sample=0) for _ in range(20)))
    assert sorted(record.state for record in records) == [State.DONE] + [State.REFUSED] * 19
    assert len(rig.stub.effects) == 1


@pytest.mark.parametrize(
    "other",
    [good_call(recipient="Bob"), good_call(body="Another text"), good_call("unlock_door")],
)
async def test_a_grant_runs_nothing_but_its_own_call(make_rig: MakeRig, other: ToolCall) -> None:
    rig = make_rig()
    record = await rig.executor.execute(other, mint(good_call()), now_sample=0)
    assert record.refusal is Refusal.BAD_GRANT
    assert "another call" in record.detail
    assert rig.stub.effects == ()
    assert rig.rows() == ()


async def test_a_late_call_does_not_run_by_surprise(make_rig: MakeRig) -> None:
    rig = make_rig()
    grant = mint(good_call(), expires_sample=100)
    late = await rig.executor.execute(good_call(), grant, now_sample=101)
    assert late.refusal is Refusal.BAD_GRANT
    assert "expired" in late.detail
    in_time = await rig.executor.execute(good_call(), grant, now_sample=100)
    assert in_time.state is State.DONE


class Hostile:
    """Pretends to be a grant and breaks whoever looks at it."""

    @property
    def turn_id(self) -> str:
        raise RuntimeError("boom")


@pytest.mark.parametrize(
    "forged",
    [
        None,
        "turn-1",
        object(),
        Hostile(),
        SimpleNamespace(turn_id="turn-1", digest=mint(good_call()).digest, expires_sample=10**9, _key=None),
        Grant.__new__(Grant),
    ],
)
async def test_a_forged_grant_runs_nothing(make_rig: MakeRig, forged: object) -> None:
    rig = make_rig()
    record = await rig.executor.execute(good_call(), forged, now_sample=0)  # type: ignore[arg-type]
    assert (record.state, record.refusal) == (State.REFUSED, Refusal.BAD_GRANT)
    assert rig.stub.effects == ()
    assert rig.rows() == ()


async def test_a_copied_grant_counts_as_the_same_grant(make_rig: MakeRig) -> None:
    rig = make_rig()
    grant = mint(good_call())
    await rig.executor.execute(good_call(), grant, now_sample=0)
    record = await rig.executor.execute(good_call(), copy.copy(grant), now_sample=0)
    assert record.refusal is Refusal.BAD_GRANT
    assert len(rig.stub.effects) == 1


async def test_an_altered_grant_runs_nothing(make_rig: MakeRig) -> None:
    rig = make_rig()
    grant = mint(good_call(), expires_sample=100)
    with pytest.raises(GrantError):
        replace(grant, expires_sample=10**9)
    with pytest.raises(GrantError):
        Grant("turn-1:x", "turn-1", "x", Span(0, 1), 10, "0" * 64)
    object.__setattr__(grant, "expires_sample", 10**9)
    record = await rig.executor.execute(good_call(), grant, now_sample=101)
    assert record.refusal is Refusal.BAD_GRANT
    assert rig.stub.effects == ()


# A call that does not fit -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "detail"),
    [
        (ToolCall("os.system", {"command": "reboot"}), "no tool 'os.system'"),
        (good_call(recipient="; rm"), "recipient"),
        (good_call(cc="Bob"), "cc"),
        (ToolCall("send_message", {"recipient": "Ben"}), "body"),
        (good_call("place_order", quantity="2"), "quantity"),
    ],
)
async def test_a_call_is_checked_again_even_with_a_grant_for_it(make_rig: MakeRig, call: ToolCall, detail: str) -> None:
    rig = make_rig()
    record = await rig.run(call)
    assert (record.state, record.refusal) == (State.REFUSED, Refusal.BAD_CALL)
    assert detail in record.detail
    assert rig.stub.effects == ()
    assert rig.rows() == ()


@pytest.mark.parametrize("call", [None, "unlock_door", ToolCall("unlock_door", None), ToolCall("unlock_door", "front")])  # type: ignore[arg-type]
async def test_what_is_no_call_runs_nothing(make_rig: MakeRig, call: ToolCall) -> None:
    rig = make_rig()
    record = await rig.executor.execute(call, mint(good_call()), now_sample=0)
    assert record.refusal is Refusal.BAD_CALL
    assert rig.stub.effects == ()


async def test_arguments_changed_behind_our_back_change_nothing_that_runs(make_rig: MakeRig) -> None:
    rig = make_rig()
    params: dict[str, object] = dict(good_call().params)
    call = ToolCall("send_message", params)
    running = asyncio.create_task(rig.executor.execute(call, mint(call), now_sample=0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    params["recipient"] = "Mallory"
    record = await running
    assert record.state is State.DONE
    assert record.call.params["recipient"] == "Ben"
    assert rig.stub.effects[0].params["recipient"] == "Ben"
    assert rig.rows()[0].params["recipient"] == "Ben"


async def test_a_tool_with_a_broken_summary_runs_nothing(make_rig: MakeRig) -> None:
    class Mute(ToolSpec, name="mute", description="Mute.", risk=Risk.LOW):
        what: Annotated[ThingName, Ask("What?", "what")]

        def summary(self) -> str:
            raise KeyError("what")

    rig = make_rig(catalogue=ToolCatalogue([Mute]))
    record = await rig.run(ToolCall("mute", {"what": "radio"}))
    assert (record.refusal, record.detail) == (Refusal.BAD_CALL, "KeyError: 'what'")
    assert rig.stub.effects == ()


# At most once, over restarts ---------------------------------------------------------------------------------------


async def test_the_same_turn_never_runs_again_after_a_restart(make_rig: MakeRig) -> None:
    rig = make_rig()
    await rig.run(good_call())
    for call in (good_call(), good_call("unlock_door")):
        rig.start_session()  # an empty ledger: only the journal remembers
        again = await rig.run(call)
        assert (again.state, again.refusal) == (State.REFUSED, Refusal.ALREADY_RAN)
        assert "send_message of this turn is done" in again.detail
    assert len(rig.stub.effects) == 1
    assert len(rig.rows()) == 1


# Time limits -------------------------------------------------------------------------------------------------------


async def test_a_tool_that_hangs_ends_as_unknown_and_the_next_command_is_accepted(make_rig: MakeRig) -> None:
    backend = Gated()
    rig = make_rig(backend)
    hung = asyncio.create_task(rig.run(good_call(), "turn-1"))
    await until(backend.entered.is_set)
    rig.clock.advance(9.9)
    await asyncio.sleep(0.005)
    assert not hung.done()
    rig.clock.advance(0.2)
    record = await hung
    assert (record.state, record.detail) == (State.OUTCOME_UNKNOWN, "no answer within 10 s")
    assert rig.rows()[0].state is State.OUTCOME_UNKNOWN
    assert rig.executor.tools_off == ""
    again = asyncio.create_task(rig.run(good_call(), "turn-2"))
    backend.gate.set()
    assert (await again).state is State.DONE


async def test_a_tool_that_finishes_after_its_limit_is_seen_and_is_not_run_again(make_rig: MakeRig) -> None:
    backend = Gated()
    rig = make_rig(backend)
    hung = asyncio.create_task(rig.run(good_call()))
    await until(backend.entered.is_set)
    rig.clock.advance(10.0)
    unknown = await hung
    backend.gate.set()
    await until(lambda: rig.rows()[0].late_state is not None)
    await until(lambda: rig.records[-1].late_state is not None)
    (row,) = rig.rows()
    assert (row.state, row.late_state, row.late_detail) == (State.OUTCOME_UNKNOWN, State.DONE, "done late")
    late = rig.records[-1]
    assert (late.key, late.state, late.late_detail) == (unknown.key, State.OUTCOME_UNKNOWN, "done late")
    assert len(backend.effects) == 1
    rig.start_session()
    assert (await rig.run(good_call())).refusal is Refusal.ALREADY_RAN
    assert len(backend.effects) == 1


async def test_a_tool_that_fails_after_its_limit_is_seen_too(make_rig: MakeRig) -> None:
    backend = Gated(OSError("no route"))
    rig = make_rig(backend)
    hung = asyncio.create_task(rig.run(good_call()))
    await until(backend.entered.is_set)
    rig.clock.advance(10.0)
    await hung
    backend.gate.set()
    await until(lambda: rig.rows()[0].late_state is State.FAILED)
    assert rig.rows()[0].late_detail == "OSError: no route"


async def test_a_tool_that_still_cannot_tell_after_its_limit_adds_nothing(make_rig: MakeRig) -> None:
    backend = Gated(OutcomeUnknownError("no reply"))
    rig = make_rig(backend)
    hung = asyncio.create_task(rig.run(good_call()))
    await until(backend.entered.is_set)
    rig.clock.advance(10.0)
    await hung
    backend.gate.set()
    await until(lambda: not rig.executor._watches)
    assert rig.rows()[0].late_state is None


async def test_a_tool_has_the_time_limit_of_its_class(make_rig: MakeRig) -> None:
    class Slow(ToolSpec, name="slow", description="Slow.", risk=Risk.LOW, time_limit_s=60.0):
        pass

    backend = Gated()
    rig = make_rig(backend, ToolCatalogue([Slow]))
    running = asyncio.create_task(rig.run(ToolCall("slow", {})))
    await until(backend.entered.is_set)
    rig.clock.advance(59.0)
    backend.gate.set()
    assert (await running).state is State.DONE


async def test_a_broken_clock_ends_in_unknown_not_in_waiting_for_ever(make_rig: MakeRig) -> None:
    class BrokenClock:
        async def sleep_s(self, seconds: float, /) -> None:
            raise RuntimeError("no timer")

    backend = Gated()
    rig = make_rig(backend)
    executor = Executor(rig.catalogue, backend, rig.journal, rig.ledger, BrokenClock(), session_id="session-2")
    record = await executor.execute(good_call(), mint(good_call()), now_sample=0)
    assert (record.state, record.detail) == (State.OUTCOME_UNKNOWN, "its time limit could not be kept: no timer")
    backend.gate.set()
    await executor.aclose()


async def test_timers_end_with_the_call_so_none_pile_up(make_rig: MakeRig) -> None:
    rig = make_rig()
    for turn in range(5):
        await rig.run(good_call(), f"turn-{turn}")
    assert rig.clock.sleepers == 0


# Tools that fail ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "state", "detail"),
    [
        (OSError("no route to host"), State.FAILED, "OSError: no route to host"),
        (ValueError("token=abc123 refused"), State.FAILED, "ValueError: token=*** refused"),
        (TimeoutError(), State.FAILED, "TimeoutError"),
        (SystemExit(3), State.FAILED, "RuntimeError: SystemExit: 3"),
        (OutcomeUnknownError("sent, no reply"), State.OUTCOME_UNKNOWN, "OutcomeUnknownError: sent, no reply"),
        (asyncio.CancelledError(), State.OUTCOME_UNKNOWN, "its task was cancelled while it ran"),
    ],
)
async def test_a_tool_that_raises_is_recorded_and_not_tried_again(
    make_rig: MakeRig, error: BaseException, state: State, detail: str
) -> None:
    backend = raising(error)
    rig = make_rig(backend)
    record = await rig.run(good_call(), "turn-1")
    assert (record.state, record.detail) == (state, detail)
    assert [(row.state, row.detail) for row in rig.rows()] == [(state, detail)]
    assert len(backend.effects) == 1
    rig.start_session()
    assert (await rig.run(good_call(), "turn-1")).refusal is Refusal.ALREADY_RAN
    assert len(backend.effects) == 1
    assert (await rig.run(good_call(), "turn-2")).state is state, "the next command is taken"


async def test_a_back_end_that_is_not_even_asynchronous_fails_in_the_open(make_rig: MakeRig) -> None:
    rig = make_rig(SimpleNamespace(perform=lambda tool, key: "done"))
    record = await rig.run(good_call())
    assert record.state is State.FAILED
    assert "await" in record.detail


async def test_a_listener_with_a_bug_does_not_change_what_happened(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig = make_rig()

    def broken(record: ExecutionRecord) -> None:
        raise RuntimeError("listener")

    executor = Executor(
        rig.catalogue, rig.stub, rig.journal, rig.ledger, rig.clock, session_id="session-2", report=broken
    )
    record = await executor.execute(good_call(), mint(good_call()), now_sample=0)
    assert record.state is State.DONE
    assert rig.rows()[0].state is State.DONE
    assert "the listener failed on send_message done" in caplog.text
    await executor.aclose()


# Cancellation ------------------------------------------------------------------------------------------------------


class SlowJournal(Journal):
    """Holds a start back until it is let go."""

    entered: threading.Event
    go: threading.Event

    def begin(self, entry: JournalEntry) -> None:
        self.entered.set()
        assert self.go.wait(10.0)
        super().begin(entry)


@pytest_asyncio.fixture
async def slow(make_rig: MakeRig) -> AsyncIterator[tuple[Rig, SlowJournal]]:
    rig = make_rig()
    with tempfile.TemporaryDirectory(dir=fast_directory()) as folder:
        journal = SlowJournal(Path(folder) / "journal.db", unix_s=Ticks())
        journal.entered, journal.go = threading.Event(), threading.Event()
        rig.executor = Executor(
            rig.catalogue,
            rig.stub,
            journal,
            rig.ledger,
            rig.clock,
            session_id="session-1",
            report=rig.records.append,
        )
        yield rig, journal
        journal.go.set()
        await rig.executor.aclose()
        journal.close()


@pytest.mark.parametrize("steps", [0, 1])
async def test_a_call_cancelled_in_its_first_steps_never_runs(make_rig: MakeRig, steps: int) -> None:
    rig = make_rig()
    running = asyncio.create_task(rig.run(good_call()))
    for _ in range(steps):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: rig.executor.in_flight == ())
    assert rig.stub.effects == ()
    assert [told.state for told in rig.records] == [State.CANCELLED] * steps


async def test_a_call_withdrawn_before_its_start_is_written_leaves_no_row(make_rig: MakeRig) -> None:
    rig = make_rig()
    running = asyncio.create_task(rig.run(good_call()))
    await asyncio.sleep(0)
    assert rig.executor.withdraw("turn-1")
    assert (await running).state is State.CANCELLED
    assert rig.stub.effects == ()
    assert rig.rows() == ()


async def test_a_call_cancelled_while_its_start_is_written_never_runs(slow: tuple[Rig, SlowJournal]) -> None:
    rig, journal = slow
    running = asyncio.create_task(rig.run(good_call()))
    await until(journal.entered.is_set)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    journal.go.set()
    await until(lambda: rig.executor.in_flight == ())
    assert rig.stub.effects == ()
    assert [told.state for told in rig.records] == [State.CANCELLED]
    assert [row.state for row in journal.rows()] == [State.CANCELLED]


async def test_a_call_withdrawn_before_it_started_never_runs_and_its_caller_learns_it(
    slow: tuple[Rig, SlowJournal],
) -> None:
    rig, journal = slow
    running = asyncio.create_task(rig.run(good_call()))
    await until(journal.entered.is_set)
    assert not rig.executor.withdraw("turn-2")
    assert rig.executor.withdraw("turn-1")
    journal.go.set()
    record = await running
    assert (record.state, record.detail) == (State.CANCELLED, "withdrawn before it started")
    assert rig.stub.effects == ()
    assert [row.state for row in journal.rows()] == [State.CANCELLED]


async def test_a_mute_switch_stops_a_call_whose_start_is_still_being_written(slow: tuple[Rig, SlowJournal]) -> None:
    rig, journal = slow
    running = asyncio.create_task(rig.run(good_call()))
    await until(journal.entered.is_set)
    rig.executor.hold("operator", "muted")
    journal.go.set()
    record = await running
    assert (record.state, record.detail) == (State.CANCELLED, "operator: muted, before it started")
    assert rig.stub.effects == ()
    assert [row.state for row in journal.rows()] == [State.CANCELLED]


async def test_a_call_cancelled_while_it_runs_runs_to_its_end(make_rig: MakeRig) -> None:
    backend = Gated()
    rig = make_rig(backend)
    running = asyncio.create_task(rig.run(good_call()))
    await until(backend.entered.is_set)
    assert not rig.executor.withdraw("turn-1"), "too late"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [record.state for record in rig.executor.in_flight] == [State.STARTED]
    backend.gate.set()
    await until(lambda: rig.executor.in_flight == ())
    assert [told.state for told in rig.records] == [State.STARTED, State.DONE]
    assert [row.state for row in rig.rows()] == [State.DONE]
    assert len(backend.effects) == 1
    assert (await rig.run(good_call(), "turn-2")).state is State.DONE


async def test_a_call_cancelled_while_it_runs_still_has_its_time_limit(make_rig: MakeRig) -> None:
    backend = Gated()
    rig = make_rig(backend)
    running = asyncio.create_task(rig.run(good_call()))
    await until(backend.entered.is_set)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    rig.clock.advance(10.0)
    await until(lambda: rig.executor.in_flight == ())
    assert [told.state for told in rig.records] == [State.STARTED, State.OUTCOME_UNKNOWN]


async def test_a_call_withdrawn_after_its_end_stays_done(make_rig: MakeRig) -> None:
    rig = make_rig()
    await rig.run(good_call())
    assert not rig.executor.withdraw("turn-1")
    assert rig.rows()[0].state is State.DONE


# The journal fails -------------------------------------------------------------------------------------------------


async def test_disk_full_before_the_start_runs_nothing_and_switches_tools_off_until_there_is_room(
    make_rig: MakeRig,
) -> None:
    rig = make_rig()
    with full_disk():
        refused = await rig.run(good_call(), "turn-1")
        assert (refused.state, refused.refusal) == (State.REFUSED, Refusal.JOURNAL_FAILED)
        assert rig.executor.tools_off.startswith("journal: ")
        still = await rig.run(good_call(), "turn-2")
        assert (still.state, still.refusal) == (State.REFUSED, Refusal.TOOLS_OFF)
        assert not await rig.executor.resume()
    assert rig.stub.effects == ()
    assert rig.rows() == ()
    third = await rig.run(good_call(), "turn-3")
    assert third.state is State.DONE
    assert rig.executor.tools_off == ""
    assert len(rig.stub.effects) == 1


async def test_a_call_refused_for_the_journal_needs_new_words_to_run(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.journal.fail_begin = True
    grant = mint(good_call())
    await rig.executor.execute(good_call(), grant, now_sample=0)
    rig.journal.fail_begin = False
    again = await rig.executor.execute(good_call(), grant, now_sample=0)
    assert again.refusal is Refusal.BAD_GRANT
    assert rig.stub.effects == ()


async def test_disk_full_after_the_effect_is_unknown_in_memory_and_written_when_there_is_room(
    make_rig: MakeRig,
) -> None:
    backend = Gated()
    rig = make_rig(backend)
    running = asyncio.create_task(rig.run(good_call()))
    await until(backend.entered.is_set)
    with full_disk():
        backend.gate.set()
        record = await running
        assert record.state is State.OUTCOME_UNKNOWN
        assert record.detail.startswith("it ended as done (done late), but the journal could not be written: ")
        assert rig.executor.tools_off.startswith("journal: ")
    assert rig.records[-1] == record
    assert rig.rows()[0].state is State.STARTED
    assert await rig.executor.resume()
    assert rig.executor.tools_off == ""
    assert [(row.state, row.detail) for row in rig.rows()] == [(State.OUTCOME_UNKNOWN, record.detail)]
    assert len(backend.effects) == 1


async def test_unwritten_ends_are_written_in_order_also_with_a_late_result_between(make_rig: MakeRig) -> None:
    backend = Gated()
    rig = make_rig(backend)
    running = asyncio.create_task(rig.run(good_call()))
    await until(backend.entered.is_set)
    rig.journal.fail_finish = rig.journal.fail_probe = True
    rig.clock.advance(10.0)
    record = await running
    assert record.state is State.OUTCOME_UNKNOWN
    backend.gate.set()
    await until(lambda: rig.records[-1].late_state is State.DONE)
    assert rig.rows()[0].state is State.STARTED
    rig.journal.fail_finish = False
    assert not await rig.executor.resume(), "the probe still fails"
    (row,) = rig.rows()
    assert (row.state, row.late_state) == (State.OUTCOME_UNKNOWN, State.DONE)
    rig.journal.fail_probe = False
    assert await rig.executor.resume()
    assert await rig.executor.resume(), "nothing is left to write"


async def test_a_late_result_that_cannot_be_written_is_kept_and_written_later(make_rig: MakeRig) -> None:
    backend = Gated()
    rig = make_rig(backend)
    running = asyncio.create_task(rig.run(good_call()))
    await until(backend.entered.is_set)
    rig.clock.advance(10.0)
    await running
    rig.journal.fail_late = True
    backend.gate.set()
    await until(lambda: rig.records[-1].late_state is State.DONE)
    assert rig.executor.tools_off == "journal: disk full"
    rig.journal.fail_late = False
    assert await rig.executor.resume()
    assert rig.rows()[0].late_state is State.DONE


async def test_a_late_result_of_a_purged_call_does_not_switch_tools_off(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    backend = Gated()
    rig = make_rig(backend)
    running = asyncio.create_task(rig.run(good_call()))
    await until(backend.entered.is_set)
    rig.clock.advance(10.0)
    await running
    assert rig.journal.purge() == 1
    backend.gate.set()
    await until(lambda: rig.records[-1].late_state is State.DONE)
    assert rig.executor.tools_off == ""
    assert "was it purged?" in caplog.text


async def test_a_kept_result_that_the_journal_will_never_take_does_not_keep_tools_off(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    backend = Gated()
    rig = make_rig(backend)
    running = asyncio.create_task(rig.run(good_call()))
    await until(backend.entered.is_set)
    rig.clock.advance(10.0)
    await running
    rig.journal.fail_late = True
    backend.gate.set()
    await until(lambda: rig.records[-1].late_state is State.DONE)
    rig.journal.fail_late = False
    rig.journal.purge()
    assert await rig.executor.resume()
    assert "a result was given up" in caplog.text


async def test_calls_that_meet_a_mended_journal_together_all_run(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.journal.fail_begin = True
    await rig.run(good_call(), "turn-0")
    rig.journal.fail_begin = False
    records = await asyncio.gather(*(rig.run(good_call(), f"turn-{turn}") for turn in range(1, 6)))
    assert [record.state for record in records] == [State.DONE] * 5


# Tools off ---------------------------------------------------------------------------------------------------------


async def test_tools_switched_off_run_nothing_until_each_reason_is_gone(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.executor.hold("broker", "not connected")
    rig.executor.hold("operator", "muted")
    assert dict(rig.executor.holds) == {"broker": "not connected", "operator": "muted"}
    grant = mint(good_call())
    record = await rig.executor.execute(good_call(), grant, now_sample=0)
    assert (record.refusal, record.detail) == (Refusal.TOOLS_OFF, "broker: not connected; operator: muted")
    rig.executor.release("broker")
    assert (await rig.executor.execute(good_call(), grant, now_sample=0)).refusal is Refusal.TOOLS_OFF
    rig.executor.release("operator")
    rig.executor.release("operator")
    assert (await rig.executor.execute(good_call(), grant, now_sample=0)).state is State.DONE


async def test_nobody_outside_switches_the_journals_alarm_off(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.journal.fail_begin = True
    await rig.run(good_call())
    for source in ("journal", "closed"):
        with pytest.raises(ValueError, match="the executor's own"):
            rig.executor.release(source)
        with pytest.raises(ValueError, match="the executor's own"):
            rig.executor.hold(source, "x")
    with pytest.raises(TypeError):
        del rig.executor.holds["journal"]  # type: ignore[attr-defined]
    rig.journal.fail_begin = False
    rig.executor.hold("operator", "muted")
    assert (await rig.run(good_call(), "turn-2")).refusal is Refusal.TOOLS_OFF


# Ending ------------------------------------------------------------------------------------------------------------


async def test_closing_waits_for_what_runs_and_takes_nothing_new(make_rig: MakeRig) -> None:
    backend = Gated()
    rig = make_rig(backend)
    running = asyncio.create_task(rig.run(good_call()))
    await until(backend.entered.is_set)
    closing = asyncio.create_task(rig.executor.aclose(1.0))
    await asyncio.sleep(0.005)
    assert (await rig.run(good_call(), "turn-2")).detail == "closed: the program is ending"
    backend.gate.set()
    await closing
    assert (await running).state is State.DONE


async def test_after_the_end_calls_are_refused_and_closing_again_is_fine(make_rig: MakeRig) -> None:
    rig = make_rig()
    await rig.executor.aclose()
    record = await rig.run(good_call())
    assert (record.refusal, record.detail) == (Refusal.TOOLS_OFF, "closed: the program is ending")
    assert not await rig.executor.resume()
    await rig.executor.aclose()


async def test_what_the_journal_could_not_take_is_offered_once_more_at_the_end(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.journal.fail_finish = True
    await rig.run(good_call())
    rig.journal.fail_finish = False
    assert rig.rows()[0].state is State.STARTED
    await rig.executor.aclose()
    assert rig.rows()[0].state is State.OUTCOME_UNKNOWN


async def test_a_tool_that_hangs_at_the_end_is_written_down_as_unknown_and_stopped(make_rig: MakeRig) -> None:
    backend = Gated()
    rig = make_rig(backend)
    running = asyncio.create_task(rig.run(good_call()))
    await until(backend.entered.is_set)
    closing = asyncio.create_task(rig.executor.aclose(1.0))
    await until(lambda: rig.clock.sleepers == 2)
    rig.clock.advance(1.0)
    await closing
    assert (await running).detail == "the program ended while it ran"
    assert rig.rows()[0].state is State.OUTCOME_UNKNOWN
    assert backend.effects == []


async def test_a_tool_that_ignores_its_cancellation_cannot_keep_the_program_from_ending(make_rig: MakeRig) -> None:
    stubborn = asyncio.Event()

    class Stubborn:
        async def perform(self, tool: ToolSpec, *, key: str) -> str:
            while not stubborn.is_set():
                try:
                    await stubborn.wait()
                except asyncio.CancelledError:
                    continue
            return "at last"

    rig = make_rig(Stubborn())
    running = asyncio.create_task(rig.run(good_call()))
    await until(lambda: rig.executor.in_flight != () and rig.clock.sleepers == 1)
    closing = asyncio.create_task(rig.executor.aclose(1.0))
    for _ in range(2):
        await asyncio.sleep(0.01)
        rig.clock.advance(1.0)
    await until(closing.done)
    assert (await running).state is State.OUTCOME_UNKNOWN
    stubborn.set()
    await until(lambda: rig.records[-1].late_state is State.DONE)
    assert rig.rows()[0].state is State.OUTCOME_UNKNOWN


async def test_a_call_that_has_not_started_when_the_program_ends_is_cancelled(slow: tuple[Rig, SlowJournal]) -> None:
    rig, journal = slow
    running = asyncio.create_task(rig.run(good_call()))
    await until(journal.entered.is_set)
    closing = asyncio.create_task(rig.executor.aclose(1.0))
    await until(lambda: rig.clock.sleepers == 1)
    rig.clock.advance(1.0)
    await asyncio.sleep(0.005)
    journal.go.set()
    await closing
    assert (await running).state is State.CANCELLED
    assert rig.stub.effects == ()
    assert [row.state for row in journal.rows()] == [State.CANCELLED]


def test_a_loop_torn_down_without_a_proper_end_is_found_at_the_next_start() -> None:
    with tempfile.TemporaryDirectory(dir=fast_directory()) as folder:

        async def torn() -> None:
            backend = Gated()
            rig = Rig(Path(folder), backend)
            rigs.append(rig)
            asyncio.get_running_loop().call_later(0.02, asyncio.current_task().cancel)  # type: ignore[union-attr]
            await rig.run(good_call())

        rigs: list[Rig] = []
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(torn())
        rigs[0].journal.close()
        journal = Journal(Path(folder) / "journal.db", unix_s=Ticks())
        assert [row.state for row in journal.recovered] == [State.OUTCOME_UNKNOWN]
        journal.close()


# Shape -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", ["", "a:b", "a b", "x" * 65, "a\n"])
async def test_a_session_id_that_could_blur_two_keys_is_refused(make_rig: MakeRig, session_id: str) -> None:
    rig = make_rig()
    with pytest.raises(ValueError, match="session_id"):
        Executor(rig.catalogue, rig.stub, rig.journal, rig.ledger, rig.clock, session_id=session_id)


def test_nothing_but_the_executor_carries_calls_out() -> None:
    root = Path(__file__).parent.parent
    sources = {
        str(file.relative_to(root)): file.read_text(encoding="utf-8")
        for package in ("gate", "tools", "models", "agent", "bench")
        for file in (root / package).rglob("*.py")
    }
    callers = {
        name
        for name, source in sources.items()
        if ".perform(" in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "perform"
    }
    # Back ends hand over to one another: the own tools to the stub, the fault bench to the real one.
    assert callers == {"tools/executor.py", "tools/backend.py", "bench/stage.py"}


def test_a_record_keeps_what_a_listener_was_told() -> None:
    record = ExecutionRecord("k", "t", good_call(), "s", State.DONE)
    with pytest.raises(AttributeError):
        record.state = State.FAILED  # type: ignore[misc]
    assert replace(record, detail="x").detail == "x"


def test_errors_of_the_journal_say_which_they_are() -> None:
    assert issubclass(AlreadyRanError, Exception)
    assert not issubclass(AlreadyRanError, JournalError)
