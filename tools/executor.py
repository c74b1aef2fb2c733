"""``Executor.execute``: the one choke point between a decision and the world.

For each call, in this order: the tools are on, the call fits its tool, the grant is redeemed with the very call that
will run, the start is on disk; only then does the back end run, once, and its end goes to disk. Whatever fails on the
way ends in a record that says so, and nothing is ever tried a second time.

======================================================  ==========================================================
what happens                                            how it ends
======================================================  ==========================================================
tools off, bad call, bad grant, same turn again         ``refused``; nothing ran
the start cannot be journalled (disk full)              ``refused``; nothing ran; tools off until it can be
withdrawn, or tools switched off, before it started     ``cancelled``; nothing ran
the back end returns                                    ``done``
the back end raises                                     ``failed``
the back end cannot tell, or its task is cancelled      ``outcome_unknown``
it outlasts its time limit                              ``outcome_unknown``; its later end is added as a late result
the end cannot be journalled                            ``outcome_unknown``, in memory; tools off until it is written
the caller is cancelled while it runs                   it runs on to one of the ends above, and is reported
the program ends while it runs                          ``outcome_unknown``, by ``aclose`` or by the next start
======================================================  ==========================================================
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from gate.catalogue import ToolCall
from gate.grants import Grant, GrantLedger, call_digest
from tools.backend import Backend, OutcomeUnknownError
from tools.catalogue import CallRefusedError, ToolCatalogue
from tools.journal import AlreadyRanError, Journal, JournalEntry, JournalError, JournalStateError
from tools.records import ExecutionRecord, ExecutionState, Refusal
from tools.redaction import error_line, one_line
from tools.spec import ToolSpec

_log = logging.getLogger(__name__)
_SESSION_RE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_JOURNAL = "journal"
_CLOSED = "closed"
_T = TypeVar("_T")


class Clock(Protocol):
    """The one thing that the executor asks of a clock."""

    async def sleep_s(self, seconds: float, /) -> None:
        """Return after ``seconds``."""
        ...


@dataclass(slots=True)
class _Running:
    """A call between its grant and its end."""

    record: ExecutionRecord
    tool: ToolSpec
    grant: Grant
    withdrawn: bool = False
    started: bool = False


class Executor:
    """Runs licensed calls, each at most once. One a session; used from one event loop.

    Args:
        catalogue: the tools.
        backend: carries calls out.
        journal: open for writing; the executor uses it from a thread of its own, and does not close it.
        ledger: the session's spent grants.
        clock: keeps the time limits.
        session_id: unique over all sessions that share the journal (a random one for each run): with the turn id it
            names what may run once. 1 to 64 letters, digits, ``.``, ``_`` and ``-``.
        report: is given every record, in order: ``started``, then the final one, then perhaps the same with a late
            result. Also those that ``execute`` returns. It must not block.

    Raises:
        ValueError: when ``session_id`` has another form.
    """

    def __init__(
        self,
        catalogue: ToolCatalogue,
        backend: Backend,
        journal: Journal,
        ledger: GrantLedger,
        clock: Clock,
        *,
        session_id: str,
        report: Callable[[ExecutionRecord], None] | None = None,
    ) -> None:
        if not _SESSION_RE.fullmatch(session_id):
            raise ValueError(f"session_id {session_id!r} must be 1 to 64 letters, digits, '.', '_' or '-'")
        self._catalogue = catalogue
        self._backend = backend
        self._journal = journal
        self._ledger = ledger
        self._clock = clock
        self._session_id = session_id
        self._report = report
        # Not the loop's default pool: a journal write must not queue behind a model.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="voicegate-journal")
        self._holds: dict[str, str] = {}
        self._unwritten: list[Callable[[], None]] = []
        self._resuming = asyncio.Lock()
        self._running: dict[str, _Running] = {}
        self._runs: set[asyncio.Task[ExecutionRecord]] = set()
        self._efforts: set[asyncio.Task[Any]] = set()
        self._watches: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()
        self._closed = False

    @property
    def holds(self) -> Mapping[str, str]:
        """Why tools are off: source to reason. Empty when they are on."""
        return MappingProxyType(dict(self._holds))

    @property
    def tools_off(self) -> str:
        """Why tools are off, in one line, or the empty string."""
        return "; ".join(f"{source}: {reason}" for source, reason in self._holds.items())

    @property
    def lasting_hold(self) -> str:
        """Why tools are off, in one line, or the empty string when the next call may switch them on again.

        A journal that could not be written is tried again by the next call, which is refused when it still cannot. Who
        asks before a call must not take that hold for a reason not to call, or tools would stay off for good.
        """
        return "" if set(self._holds) == {_JOURNAL} else self.tools_off

    @property
    def in_flight(self) -> tuple[ExecutionRecord, ...]:
        """The calls that have a grant and no end yet."""
        return tuple(running.record for running in self._running.values())

    def hold(self, source: str, reason: str) -> None:
        """Switch tools off for ``reason`` until ``release(source)``.

        A call whose start is still being written is cancelled; one that runs already runs on.

        Raises:
            ValueError: for the sources "journal" and "closed", which are the executor's own.
        """
        if source in (_JOURNAL, _CLOSED):
            raise ValueError(f"the source {source!r} is the executor's own")
        self._holds[source] = reason

    def release(self, source: str) -> None:
        """Take back ``hold(source)``; no error when there is none. The journal's hold ends only by ``resume``.

        Raises:
            ValueError: for the sources "journal" and "closed", which are the executor's own.
        """
        if source in (_JOURNAL, _CLOSED):
            raise ValueError(f"the source {source!r} is the executor's own")
        self._holds.pop(source, None)

    async def execute(self, call: ToolCall, grant: Grant, *, now_sample: int) -> ExecutionRecord:
        """Run ``call`` once, if ``grant`` licenses it.

        Cancelling the awaiting task withdraws a call that has not started; one that has runs on by itself, and its end
        is reported and journalled.

        Args:
            call: what to run.
            grant: the permission, bound to this very call.
            now_sample: the stream position; a grant past its life is refused.

        Returns:
            The final record; ``outcome_unknown`` when the time limit passed. Raises nothing but ``CancelledError``.
        """
        if set(self._holds) == {_JOURNAL}:
            await self.resume()
        admitted = self._admit(call, grant, now_sample)
        if isinstance(admitted, ExecutionRecord):
            return self._tell(admitted)
        self._running[admitted.record.key] = admitted
        run = asyncio.create_task(self._run(admitted))
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)
        try:
            return await asyncio.shield(run)
        except asyncio.CancelledError:
            admitted.withdrawn = True
            raise

    def withdraw(self, turn_id: str) -> bool:
        """Withdraw the call of a turn, if it has not started.

        Returns:
            True when there is such a call and it will not run; False when there is none or it is too late.
        """
        for running in self._running.values():
            if running.record.turn_id == turn_id and not running.started:
                running.withdrawn = True
                return True
        return False

    async def resume(self) -> bool:
        """After a failure of the journal: write what could not be written, and switch tools on again.

        Called by ``execute`` itself; call it to learn sooner.

        Returns:
            Whether the journal works; False after ``aclose``.
        """
        async with self._resuming:
            try:
                while self._unwritten:
                    try:
                        await self._write(self._unwritten[0])
                    except JournalStateError as error:
                        _log.error("a result was given up: %s", error)
                    del self._unwritten[0]
                await self._write(self._journal.probe)
            except JournalError as error:
                self._holds[_JOURNAL] = one_line(str(error))
                return False
            self._holds.pop(_JOURNAL, None)
            return True

    async def aclose(self, limit_s: float = 1.0) -> None:
        """End: take no more calls, give the running ones ``limit_s`` to end, write down the rest as unknown.

        What has not started is cancelled, and tools still running after the limit are cancelled as tasks. What the
        journal could not take is offered to it once more. Returns within about twice the limit, plus the journal's
        writes, also when a tool ignores its cancellation. Safe to call twice.
        """
        if self._closed:
            return
        self._holds[_CLOSED] = "the program is ending"
        await self._wait_for({*self._runs, *self._efforts}, limit_s)
        self._ending.set()
        if self._runs:
            await asyncio.wait(set(self._runs))
        for effort in self._efforts:
            effort.cancel()
        await self._wait_for({*self._efforts, *self._watches}, limit_s)
        if self._unwritten:
            await self.resume()
        self._closed = True
        self._writer.shutdown(wait=False)

    def _admit(self, call: ToolCall, grant: Grant, now_sample: int) -> _Running | ExecutionRecord:
        """Everything that can refuse a call before the journal; spends the grant. Runs without a break."""
        turn_id = str(getattr(grant, "turn_id", "")) if isinstance(grant, Grant) else ""

        def refused(refusal: Refusal, detail: str) -> ExecutionRecord:
            return ExecutionRecord("", turn_id, call, "", ExecutionState.REFUSED, one_line(detail), refusal)

        if self._holds:
            return refused(Refusal.TOOLS_OFF, self.tools_off)
        try:
            # Checked, redeemed, journalled and run is this copy: the caller's mapping may change under us.
            call = ToolCall(call.name, dict(call.params))
            tool = self._catalogue.parse(call)
            summary = one_line(tool.summary())
        except CallRefusedError as error:
            return refused(Refusal.BAD_CALL, str(error))
        except Exception as error:
            return refused(Refusal.BAD_CALL, error_line(error))
        try:
            self._ledger.redeem(grant, call, now_sample)
        except Exception as error:
            # GrantError, or whatever an object that only pretends to be a grant makes of it.
            return refused(Refusal.BAD_GRANT, error_line(error))
        key = f"{self._session_id}:{grant.turn_id}:{call_digest(call)}"
        return _Running(ExecutionRecord(key, turn_id, call, summary, ExecutionState.STARTED), tool, grant)

    async def _run(self, running: _Running) -> ExecutionRecord:
        record = running.record
        try:
            if running.withdrawn or self._holds:
                return self._tell(replace(record, state=ExecutionState.CANCELLED, detail=self._why_not(running)))
            entry = JournalEntry(record.key, self._session_id, record.turn_id, record.call, running.grant.span)
            try:
                await self._write(partial(self._journal.begin, entry))
            except AlreadyRanError as error:
                return self._tell(_refuse(record, Refusal.ALREADY_RAN, str(error)))
            except JournalError as error:
                self._holds[_JOURNAL] = one_line(str(error))
                return self._tell(_refuse(record, Refusal.JOURNAL_FAILED, str(error)))
            if running.withdrawn or self._holds:
                return await self._end(record, ExecutionState.CANCELLED, self._why_not(running))
            running.started = True
            self._tell(record)
            return await self._end(record, *await self._perform(running))
        finally:
            del self._running[record.key]

    def _why_not(self, running: _Running) -> str:
        return "withdrawn before it started" if running.withdrawn else f"{self.tools_off}, before it started"

    async def _perform(self, running: _Running) -> tuple[ExecutionState, str]:
        """Let the back end run for as long as it may; say how that ended."""
        tool = running.tool
        effort = asyncio.create_task(_effort(self._backend, tool, running.record.key))
        self._efforts.add(effort)
        effort.add_done_callback(self._efforts.discard)
        alarm = asyncio.create_task(_sleep(self._clock, tool.time_limit_s))
        ending = asyncio.create_task(self._ending.wait())
        await asyncio.wait({effort, alarm, ending}, return_when=asyncio.FIRST_COMPLETED)
        for timer in (alarm, ending):
            timer.cancel()
        await asyncio.wait({alarm, ending})
        if effort.done():
            return _outcome(effort)
        watch = asyncio.create_task(self._watch(running.record, effort))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        if self._ending.is_set():
            return ExecutionState.OUTCOME_UNKNOWN, "the program ended while it ran"
        if not alarm.cancelled() and alarm.exception() is not None:
            return ExecutionState.OUTCOME_UNKNOWN, f"its time limit could not be kept: {alarm.exception()}"
        return ExecutionState.OUTCOME_UNKNOWN, f"no answer within {tool.time_limit_s:g} s"

    async def _end(self, record: ExecutionRecord, state: ExecutionState, detail: str) -> ExecutionRecord:
        ended = replace(record, state=state, detail=detail)
        try:
            await self._write(partial(self._journal.finish, record.key, state, detail))
        except JournalError as error:
            unknown = f"it ended as {state} ({detail}), but the journal could not be written: {one_line(str(error))}"
            ended = replace(record, state=ExecutionState.OUTCOME_UNKNOWN, detail=unknown)
            self._keep_unwritten(error, partial(self._journal.finish, record.key, ended.state, unknown))
        return self._tell(ended)

    async def _watch(self, record: ExecutionRecord, effort: asyncio.Task[str]) -> None:
        """Wait for a tool that has outlasted its limit, and add how it ended to what is known of it."""
        await asyncio.wait({effort})
        if effort.cancelled():
            return
        state, detail = _outcome(effort)
        if state is ExecutionState.OUTCOME_UNKNOWN:
            return
        note = partial(self._journal.note_late, record.key, state, detail)
        if self._unwritten:  # perhaps this call's own end: the order must stay
            self._unwritten.append(note)
        else:
            try:
                await self._write(note)
            except JournalStateError as error:
                _log.warning("a late result has no place in the journal (was it purged?): %s", error)
            except JournalError as error:
                self._keep_unwritten(error, note)
        unknown = replace(record, state=ExecutionState.OUTCOME_UNKNOWN, detail="ended after its time limit")
        self._tell(replace(unknown, late_state=state, late_detail=detail))

    def _keep_unwritten(self, error: JournalError, write: Callable[[], None]) -> None:
        self._holds[_JOURNAL] = one_line(str(error))
        self._unwritten.append(write)

    async def _write(self, write: Callable[[], _T]) -> _T:
        if self._closed:
            raise JournalError("the executor is closed")
        return await asyncio.get_running_loop().run_in_executor(self._writer, write)

    async def _wait_for(self, tasks: set[asyncio.Task[Any]], limit_s: float) -> None:
        if not tasks:
            return
        alarm = asyncio.create_task(_sleep(self._clock, limit_s))
        everything = asyncio.create_task(asyncio.wait(tasks))
        await asyncio.wait({alarm, everything}, return_when=asyncio.FIRST_COMPLETED)
        for task in (alarm, everything):
            task.cancel()
        await asyncio.wait({alarm, everything})

    def _tell(self, record: ExecutionRecord) -> ExecutionRecord:
        if self._report is not None:
            try:
                self._report(record)
            except Exception:
                # A listener's fault must not turn a call that ran into one that looks as if it had not.
                _log.exception("the listener failed on %s %s", record.call.name, record.state)
        return record


def _refuse(record: ExecutionRecord, refusal: Refusal, detail: str) -> ExecutionRecord:
    return replace(record, state=ExecutionState.REFUSED, refusal=refusal, detail=one_line(detail))


async def _effort(backend: Backend, tool: ToolSpec, key: str) -> str:
    try:
        return one_line(str(await backend.perform(tool, key=key)))
    except SystemExit as error:
        # asyncio would let it end the program, and with it the record of this call.
        raise RuntimeError(f"SystemExit: {error}") from error


async def _sleep(clock: Clock, seconds: float) -> None:
    await clock.sleep_s(seconds)


def _outcome(effort: asyncio.Task[str]) -> tuple[ExecutionState, str]:
    if effort.cancelled():
        return ExecutionState.OUTCOME_UNKNOWN, "its task was cancelled while it ran"
    error = effort.exception()
    if error is None:
        return ExecutionState.DONE, effort.result()
    if isinstance(error, OutcomeUnknownError):
        return ExecutionState.OUTCOME_UNKNOWN, error_line(error)
    return ExecutionState.FAILED, error_line(error)
