"""Thinking while somebody speaks: when a listening policy is given the open turn, and what came of it.

Everything is counted in samples and nothing depends on how fast the policy is, so the same audio gives the same notes
on every clock. In a pause nothing is begun: the turn's own work is, and it comes first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from agent.frames import FRAME_SAMPLES, Frame, Samples
from agent.turns import TurnClosed, TurnEvent, TurnOpened, TurnProvisional, TurnResumed
from gate.decision import Proposal
from gate.span import SAMPLE_RATE_HZ, Span

PRE_ROLL_FRAMES = 5 * SAMPLE_RATE_HZ // FRAME_SAMPLES
"""How far back a turn may begin before it is known to be one: its pre-roll, and speech too short to count by itself."""


@dataclass(frozen=True, slots=True)
class SoFar:
    """An open turn as far as it was spoken.

    Attributes:
        turn_id: its id.
        span: in the stream.
        samples: float32 ``(span.samples,)``; zeros where the source lost some.
    """

    turn_id: str
    span: Span
    samples: Samples


@dataclass(frozen=True, slots=True)
class Listened:
    """What came of listening to a turn.

    Attributes:
        notes: each with the end of what had been heard, in the stream.
        compute_s: how long it took.
        failure: why the policy failed meanwhile; then nothing may be executed from the turn.
    """

    notes: tuple[tuple[int, str], ...] = ()
    compute_s: float = 0.0
    failure: Proposal | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The notes alone."""
        return tuple(text for _, text in self.notes)

    def texts_until(self, end_sample: int) -> tuple[str, ...]:
        """The notes on what had been heard by then: of a turn that was split, none on what others said later."""
        return tuple(text for heard, text in self.notes if heard <= end_sample)


class Listener:
    """Says when it is time to listen again. One a session.

    Args:
        chunk_s: after how much of the open turn.
        max_chunks: how often in one turn.
    """

    def __init__(self, chunk_s: float, max_chunks: int) -> None:
        self._chunk_samples = max(FRAME_SAMPLES, round(chunk_s * SAMPLE_RATE_HZ))
        self._max_chunks = max_chunks
        self._frames: deque[Frame] = deque()
        self._turn: TurnOpened | None = None
        self._paused = False
        self._chunks = 0

    def hear(self, frame: Frame) -> None:
        """The next frame, before what the turn detector makes of it."""
        self._frames.append(frame)
        while self._turn is None and len(self._frames) > PRE_ROLL_FRAMES:
            self._frames.popleft()

    def handle(self, event: TurnEvent) -> None:
        """What became of the turn."""
        match event:
            case TurnOpened():
                self._turn, self._paused, self._chunks = event, False, 0
            case TurnProvisional():
                self._paused = True
            case TurnResumed():
                self._paused = False
            case TurnClosed():
                self._turn = None

    def due(self) -> SoFar | None:
        """The open turn, once each time that another chunk of it has been spoken."""
        turn = self._turn
        if turn is None or self._paused or not self._frames:
            return None
        span = Span(turn.start_sample, self._frames[-1].end_sample)
        chunks = min(span.samples // self._chunk_samples, self._max_chunks)
        if chunks <= self._chunks:
            return None
        # What became due in a pause is listened to once, as one.
        self._chunks = chunks
        return SoFar(turn.turn_id, span, self._samples(span))

    def _samples(self, span: Span) -> Samples:
        samples = np.zeros(span.samples, np.float32)
        for frame in self._frames:
            start = frame.start_sample - span.start_sample
            if start + FRAME_SAMPLES > 0:
                samples[max(0, start) : start + FRAME_SAMPLES] = frame.samples[max(0, -start) :]
        samples.setflags(write=False)
        return samples
