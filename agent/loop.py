"""The live loop: frames in, events out. The microphone, a file and the bench all run this very code.

The pump takes 20 ms frames from the source, asks the voice activity detector, feeds the turn detector, and queues each
turn's work for the worker at its first pause. Nothing here computes for long: ears and policy run on the worker's
thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from agent import events
from agent.clock import Pace, VirtualClock, WallClock
from agent.closing import ClosingSettings, closing_ms
from agent.eventlog import EventLog
from agent.frames import FRAME_SAMPLES, Frame
from agent.listening import Listener
from agent.records import span_s
from agent.sources import Description, Source, SourceGap, SourceNotice
from agent.turn_work import TurnAudio, TurnWork
from agent.turns import (
    Discarded,
    TurnClosed,
    TurnDetector,
    TurnEnd,
    TurnEvent,
    TurnOpened,
    TurnProvisional,
    TurnResumed,
)
from agent.vad import Vad, level_dbfs
from agent.worker import ChargedWorker, Job, WallWorker, Worker
from gate.decision import Proposal
from gate.span import SAMPLE_RATE_HZ
from models.protocols import Listening

LEVEL_EVERY_FRAMES = 5
AnyClock = WallClock | VirtualClock


def make_clock(pace: Pace) -> AnyClock:
    """The clock of a pace."""
    return WallClock() if pace is Pace.WALL else VirtualClock()


def make_worker(pace: Pace, clock: AnyClock) -> Worker:
    """The worker of a pace. Call it inside a running event loop."""
    if isinstance(clock, WallClock):
        return WallWorker(clock)
    return ChargedWorker(clock, charge=pace is Pace.CHARGED)


@dataclass(slots=True)
class _OpenTurn:
    """Work queued for the turn that is open or closing."""

    revision: int
    source_gap: bool
    job: Job
    endpoint_s: list[float] = field(default_factory=list)


class Loop:
    """One session over one source.

    Args:
        source: where audio comes from.
        vad: a fresh detector.
        turns: a fresh turn detector.
        clock: the session's clock.
        worker: the driver that belongs to that clock.
        log: where events go.
        work: makes each turn's work; built from ``position`` so that grants see the stream's position.
        live: True when the source itself keeps real time (a microphone).
        on_open: called once the source is open, with what it says of itself.
        on_close: ends effects that are still running, before the events are closed.
        tail_s: silence appended after a recording, so that its last turn closes as it would live.
        closing: how long a pause closes a turn, given what its words make; None for the same pause always.
    """

    def __init__(
        self,
        *,
        source: Source,
        vad: Vad,
        turns: TurnDetector,
        clock: AnyClock,
        worker: Worker,
        log: EventLog,
        work: Callable[[Callable[[], int]], TurnWork],
        live: bool,
        on_open: Callable[[Description], None] = lambda described: None,
        on_close: Callable[[], Awaitable[None]] | None = None,
        tail_s: float = 1.5,
        closing: ClosingSettings | None = None,
    ) -> None:
        self._source = source
        self._vad = vad
        self._turns = turns
        self._clock = clock
        self._worker = worker
        self._log = log
        self._work = work(self.position)
        self._listener = _listener_for(self._work)
        self._live = live
        self._closing = closing
        self._on_open = on_open
        self._on_close = on_close
        self._tail_frames = 0 if live else round(tail_s * SAMPLE_RATE_HZ / FRAME_SAMPLES)
        self._position = 0
        self._origin_s = 0.0
        self._open: _OpenTurn | None = None
        self._frames = 0
        self._turn_count = 0
        self._below_vad_samples = 0

    def position(self) -> int:
        """The stream's position in samples."""
        return self._position

    async def run(self) -> events.SessionEnded:
        """Run the session to the end of its source, or until cancelled.

        Returns:
            The last event, with the session's sums.

        Raises:
            asyncio.CancelledError: when cancelled (Ctrl-C): the open turn is dropped unexecuted, every event is
            flushed.
            SourceError: when the source cannot be opened.
        """
        reason = "end of source"
        try:
            await self._source.open()
            self._on_open(self._source.describe)
            self._origin_s = self._clock.now_s()
            async for item in self._source:
                match item:
                    case Frame():
                        await self._frame(item)
                    case SourceNotice():
                        self._log.emit(events.SourceNotice, self._position, code=str(item.code), message=item.message)
                    case SourceGap():
                        self._gap(item)
            await self._silence(self._tail_frames)
            self._handle_all(self._turns.flush())
            if self._work.question is not None:
                self._ask_question()
            await self._worker.drain()
        except asyncio.CancelledError:
            reason = "stopped"
            self._drop_open("stopped")
            raise
        except Exception as error:
            reason = f"failed: {type(error).__name__}"
            self._drop_open("the loop failed")
            raise
        finally:
            ended = await self._close_all(reason)
        return ended

    async def _close_all(self, reason: str) -> events.SessionEnded:
        """Close in an order in which nothing is lost: work, effects, source, and the events last."""
        effects = [self._on_close] if self._on_close else []
        closers = [self._worker.aclose, *effects, self._worker.settle, self._source.aclose]
        for close in closers:
            try:
                await close()
            except Exception as error:
                self._log.emit(
                    events.Failed, self._position, where="closing", error=f"{type(error).__name__}: {error}"[:300]
                )
        try:
            return self._end(reason)
        finally:
            await self._log.aclose()

    def submit_text(self, text: str) -> None:
        """Queue a command that the operator typed."""
        self._turn_count += 1
        turn_id = f"x{self._turn_count:04d}"
        at_s = self._clock.now_s()
        job = Job(lambda: self._work.typed(turn_id, text), at_s)
        job.confirm(at_s)
        self._worker.submit(job)

    # Frames -------------------------------------------------------------------------------------------------------

    async def _frame(self, frame: Frame) -> None:
        end_s = self._stream_s(frame.end_sample)
        await self._worker.advance(end_s)
        if isinstance(self._clock, VirtualClock):
            self._clock.move_to_s(end_s)
        elif not self._live:
            await self._clock.sleep_until_s(end_s)
        self._position = frame.end_sample
        speech = self._vad.is_speech(frame.samples)
        level = level_dbfs(frame.samples)
        self._frames += 1
        if self._log.wants_levels and self._frames % LEVEL_EVERY_FRAMES == 0:
            self._log.level(events.Level, self._position, level_dbfs=max(level, -120.0), is_speech=speech)
        if self._listener is not None:
            self._listener.hear(frame)
        self._handle_all(self._turns.push(frame.start_sample, frame.samples, speech, level))
        self._listen(end_s)

    def _listen(self, at_s: float) -> None:
        """Let a listening policy think about what was said so far, as work like any other."""
        so_far = self._listener.due() if self._listener is not None else None
        if so_far is not None:
            self._worker.submit(Job(lambda: self._work.listen(so_far), at_s))

    async def _silence(self, frames: int) -> None:
        zeros = np.zeros(FRAME_SAMPLES, np.float32)
        for _ in range(frames):
            await self._frame(Frame(self._position, zeros))

    def _gap(self, gap: SourceGap) -> None:
        self._log.emit(events.SourceLost, gap.start_sample, lost_samples=gap.lost_samples + gap.zeroed_samples)
        self._handle_all(self._turns.gap(gap.start_sample, gap.lost_samples))
        self._position = gap.end_sample

    # Turns --------------------------------------------------------------------------------------------------------

    def _handle_all(self, found: list[TurnEvent]) -> None:
        for event in found:
            self._handle(event)

    def _handle(self, event: TurnEvent) -> None:
        if self._listener is not None:
            self._listener.handle(event)
        match event:
            case TurnOpened():
                self._turn_count += 1
                self._work.box.undecided.add(event.turn_id)
                self._log.emit(
                    events.TurnOpened, event.decided_sample, turn=event.turn_id,
                    start_s=event.start_sample / SAMPLE_RATE_HZ,
                )  # fmt: skip
            case TurnProvisional():
                self._submit(event, event.revision)
            case TurnResumed():
                if self._open is not None and self._open.revision == event.revision:
                    self._open.job.cancel()
                    self._open = None
            case TurnClosed():
                self._close(event)
            case Discarded():
                self._below_vad_samples += event.below_vad_samples
                self._log.emit(
                    events.AudioDiscarded, event.span.end_sample, span_s=span_s(event.span), reason=event.reason.value
                )

    def _submit(self, turn: TurnProvisional | TurnClosed, revision: int) -> _OpenTurn:
        audio = TurnAudio(
            turn.turn_id, turn.span, turn.samples, turn.speech_end_sample, turn.source_gap, turn.decided_sample
        )
        endpoint_s: list[float] = []
        job = Job(
            lambda: self._work.turn(
                audio, lambda: endpoint_s[0], lambda proposals: self._advise(turn.turn_id, revision, proposals)
            ),
            self._stream_s(turn.decided_sample),
        )
        self._open = _OpenTurn(revision, turn.source_gap, job, endpoint_s)
        self._worker.submit(job)
        return self._open

    def _advise(self, turn_id: str, revision: int, proposals: Sequence[Proposal]) -> None:
        """Let what was said so far shorten or prolong the pause that closes the turn."""
        wanted_ms = None if self._closing is None else closing_ms(proposals, self._closing)
        if wanted_ms is not None and revision:
            self._handle_all(self._turns.set_hangover_ms(turn_id, wanted_ms, revision=revision))

    def _close(self, turn: TurnClosed) -> None:
        self._log.emit(
            events.TurnClosed,
            turn.decided_sample,
            turn=turn.turn_id,
            span_s=span_s(turn.span),
            reason=turn.reason.value,
        )
        pending = self._open
        if turn.reason is TurnEnd.SOURCE_GAP:
            self._drop_open("source gap")
            self._work.box.forget(turn.turn_id)
            self._log.emit(events.Dropped, turn.decided_sample, turn=turn.turn_id, reason="source_gap")
            return
        # Work on a provisional turn stands only if the final one holds the very same samples and lost none since.
        if pending is None or (pending.revision, pending.source_gap) != (turn.same_as_revision, turn.source_gap):
            if pending is not None:
                pending.job.cancel()
            pending = self._submit(turn, 0)
        at_s = self._stream_s(turn.decided_sample)
        pending.endpoint_s.append(at_s)
        pending.job.confirm(at_s)
        self._open = None

    def _drop_open(self, why: str) -> None:
        if self._open is not None:
            self._open.job.cancel()
            self._open = None

    def _ask_question(self) -> None:
        at_s = self._stream_s(self._position)
        job = Job(lambda: self._work.answer_question("question", self._position), at_s)
        job.confirm(at_s)
        self._worker.submit(job)

    def _stream_s(self, sample: int) -> float:
        """A stream position on the session's clock."""
        return self._origin_s + sample / SAMPLE_RATE_HZ

    def _end(self, reason: str) -> events.SessionEnded:
        return self._log.emit(
            events.SessionEnded,
            self._position,
            audio_s=self._position / SAMPLE_RATE_HZ,
            turns=self._turn_count,
            decisions=dict(self._work.box.decisions),
            reason=reason,
            compute_s=round(self._worker.busy_s, 6),
            below_vad_s=self._below_vad_samples / SAMPLE_RATE_HZ,
        )


def _listener_for(work: TurnWork) -> Listener | None:
    """What tells when to listen, where the policy thinks while somebody speaks and its turns are decided one by one."""
    policy = work.policy
    if work.question is None and isinstance(policy, Listening):
        return Listener(policy.chunk_s, policy.max_chunks)
    return None
