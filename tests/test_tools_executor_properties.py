"""No grant, no execution, for any order of events: a state machine plays the events, a few lines of Python predict."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from gate.catalogue import ToolCall
from gate.grants import Grant, GrantError, GrantLedger
from tests.support_tools import FaultyJournal, HandClock, Ticks, fast_directory, good_call, mint, until
from tools.catalogue import ToolCatalogue
from tools.executor import Executor
from tools.records import ExecutionRecord, Refusal
from tools.records import ExecutionState as State
from tools.spec import ToolSpec

CALLS = [
    good_call(),
    good_call(recipient="Bob"),
    good_call("unlock_door"),
    good_call("transfer_money"),
    good_call("unlock_door", door="; rm"),  # a grant for a call that no tool takes
    ToolCall("os.system", {"command": "reboot"}),
]
TURNS = [f"turn-{number}" for number in range(4)]
FINAL = {State.DONE, State.FAILED, State.CANCELLED, State.OUTCOME_UNKNOWN}


@dataclass(frozen=True)
class Minted:
    """A genuine grant beside the call that it is for."""

    grant: Grant
    call: ToolCall


class Effects:
    """A back end that counts its effects by key and fails or cannot tell on demand."""

    def __init__(self) -> None:
        self.by_key: Counter[str] = Counter()
        self.error: Exception | None = None

    async def perform(self, tool: ToolSpec, *, key: str) -> str:
        self.by_key[key] += 1
        if self.error is not None:
            raise self.error
        return "done"


class ExecutorMachine(RuleBasedStateMachine):
    """Mints, executes, forges, replays, expires, cancels, restarts and breaks the journal, in any order."""

    minted: Bundle[Minted] = Bundle("minted")

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=fast_directory()))
        self.runner = asyncio.Runner()
        self.effects = Effects()
        self.catalogue = ToolCatalogue.builtin()
        self.now_sample = 0
        self.spent_in_session: set[str] = set()
        self.turns_in_journal: set[str] = set()
        self.licensed: dict[str, set[str]] = {}
        self.told: list[ExecutionRecord] = []
        self.journal = FaultyJournal(self.folder / "journal.db", unix_s=Ticks())
        self._start_session()

    def _start_session(self) -> None:
        self.spent_in_session.clear()
        self.executor = Executor(
            self.catalogue,
            self.effects,
            self.journal,
            GrantLedger(),
            HandClock(),
            session_id="session-1",
            report=self.told.append,
        )

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self.executor.aclose())
            self.journal.close()
            self.runner.close()
            shutil.rmtree(self.folder)

    def _execute(self, call: ToolCall, grant: object) -> ExecutionRecord:
        return self.runner.run(self.executor.execute(call, grant, now_sample=self.now_sample))  # type: ignore[arg-type]

    def _count(self) -> int:
        return self.effects.by_key.total()

    @rule(target=minted, turn=st.sampled_from(TURNS), call=st.sampled_from(CALLS), life=st.integers(0, 300))
    def mint(self, turn: str, call: ToolCall, life: int) -> Minted:
        grant = mint(call, turn, self.now_sample + life)
        self.licensed.setdefault(turn, set()).add(grant.digest)
        return Minted(grant, call)

    @rule(item=minted)
    def execute(self, item: Minted) -> None:
        """With the right call: predicted to the letter."""
        before = self._count()
        record = self._execute(item.call, item.grant)
        turn = item.grant.turn_id
        if not self._expect_admission(item, record):
            assert self._count() == before
            return
        self.spent_in_session.add(turn)
        if turn in self.turns_in_journal:
            expected = Refusal.ALREADY_RAN if not self.journal.fail_begin else Refusal.JOURNAL_FAILED
            assert record.refusal is expected
            assert self._count() == before
        elif self.journal.fail_begin:
            assert record.refusal is Refusal.JOURNAL_FAILED
            assert self._count() == before
        else:
            self.turns_in_journal.add(turn)
            if self.journal.fail_finish:
                assert record.state is State.OUTCOME_UNKNOWN
            else:
                assert record.state is (State.DONE if self.effects.error is None else State.FAILED)
            assert self._count() == before + 1

    def _expect_admission(self, item: Minted, record: ExecutionRecord) -> bool:
        """Whether the call must reach the journal; if not, that it was refused for the right reason."""
        if record.refusal is Refusal.TOOLS_OFF:
            assert self.executor.tools_off
            return False
        if self.catalogue.check(item.call):
            assert record.refusal is Refusal.BAD_CALL
            return False
        if self.now_sample > item.grant.expires_sample or item.grant.turn_id in self.spent_in_session:
            assert record.refusal is Refusal.BAD_GRANT
            return False
        return True

    @rule(item=minted, call=st.sampled_from(CALLS))
    def execute_another_call(self, item: Minted, call: ToolCall) -> None:
        if call == item.call:
            return
        before = self._count()
        assert self._execute(call, item.grant).state is State.REFUSED
        assert self._count() == before

    @rule(
        call=st.sampled_from(CALLS),
        turn=st.sampled_from(TURNS),
        kind=st.sampled_from(["none", "text", "look-alike", "empty"]),
    )
    def execute_with_a_forged_grant(self, call: ToolCall, turn: str, kind: str) -> None:
        real = mint(call, turn, 10**9)
        fields = {"turn_id": turn, "digest": real.digest, "grant_id": real.grant_id, "expires_sample": 10**9}
        forged = {
            "none": None,
            "text": real.grant_id,
            "look-alike": SimpleNamespace(**fields, span=real.span, genuine=True, _seal=real._seal),
            "empty": Grant.__new__(Grant),
        }[kind]
        before = self._count()
        assert self._execute(call, forged).state is State.REFUSED
        assert self._count() == before

    @rule(item=minted, call=st.sampled_from(CALLS), turn=st.sampled_from(TURNS))
    def execute_with_an_altered_grant(self, item: Minted, call: ToolCall, turn: str) -> None:
        real, grant = mint(call, turn, 10**9), item.grant
        if (turn, real.digest) == (grant.turn_id, grant.digest):
            return
        with pytest.raises(GrantError):
            Grant(real.grant_id, turn, real.digest, real.span, 10**9, grant._seal)

    @rule(item=minted)
    def execute_and_cancel(self, item: Minted) -> None:
        """The caller gives up at its first step: the call does not run, or, already spent, is refused."""

        async def give_up() -> None:
            task = asyncio.create_task(self.executor.execute(item.call, item.grant, now_sample=self.now_sample))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            await until(lambda: self.executor.in_flight == ())

        before, told = self._count(), len(self.told)
        self.runner.run(give_up())
        assert self._count() == before
        new = self.told[told:]
        assert [record.state in (State.REFUSED, State.CANCELLED, State.OUTCOME_UNKNOWN) for record in new] == [
            True
        ] * len(new)
        if new and new[0].refusal not in (Refusal.TOOLS_OFF, Refusal.BAD_CALL, Refusal.BAD_GRANT):
            self.spent_in_session.add(item.grant.turn_id)
        self.turns_in_journal |= {row.turn_id for row in self.journal.rows()}

    @rule(samples=st.integers(1, 200))
    def time_passes(self, samples: int) -> None:
        self.now_sample += samples

    @rule()
    def restart(self) -> None:
        """The process is gone and comes back: no ledger, the same journal, nothing half-finished left."""
        self.runner.run(self.executor.aclose())
        self.journal.close()
        self.journal = FaultyJournal(self.folder / "journal.db", unix_s=Ticks())
        assert {row.state for row in self.journal.rows()} <= FINAL
        self._start_session()

    @rule(begin=st.booleans(), finish=st.booleans(), probe=st.booleans())
    def disk_fills_or_empties(self, begin: bool, finish: bool, probe: bool) -> None:
        self.journal.fail_begin, self.journal.fail_finish, self.journal.fail_probe = begin, finish, probe

    @rule(broken=st.booleans())
    def tool_breaks_or_is_mended(self, broken: bool) -> None:
        self.effects.error = OSError("unplugged") if broken else None

    @rule()
    def purge(self) -> None:
        self.journal.purge()

    @invariant()
    def nothing_ran_that_was_not_licensed_and_nothing_ran_twice(self) -> None:
        if not hasattr(self, "effects"):
            return
        turns = Counter[str]()
        for key, count in self.effects.by_key.items():
            session, turn, digest = key.split(":")
            assert session == "session-1"
            assert digest in self.licensed[turn]
            assert count == 1
            turns[turn] += 1
        assert all(count == 1 for count in turns.values())

    @invariant()
    def each_effect_was_told_as_done_failed_or_unknown(self) -> None:
        if not hasattr(self, "effects"):
            return
        ends = Counter(record.key for record in self.told if record.state in FINAL and record.key)
        assert all(count == 1 for count in ends.values())
        assert set(self.effects.by_key) <= {
            record.key for record in self.told if record.state in (State.DONE, State.FAILED, State.OUTCOME_UNKNOWN)
        }


ExecutorMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
test_no_grant_no_execution_for_any_order_of_events = ExecutorMachine.TestCase
