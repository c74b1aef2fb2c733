"""Turn taking: where a person starts and stops speaking, as a plain state machine over scored frames.

No audio device, model or clock: ``TurnDetector`` is fed 20 ms frames with the voice detector's verdict and answers with
events. It counts samples, so the same frames give the same events at any speed. Every sample that goes in comes out in
exactly one closed turn or one discarded span with a reason, in stream order and without holes.

One turn runs through these states::

    idle ──n of m frames speech──▶ candidate ──enough speech──▶ speaking ◀──n of m frames speech──┐
                                      │                            │                               │
                                   too short                 first pause                           │
                                      ▼                            ▼                               │
                                  discarded          paused (a provisional turn is out) ───────────┘
                                                                   │
                                                          silence reaches the hangover
                                                                   ▼
                                                                closed

The provisional turn holds the samples that the closed one will hold if nobody speaks again, so whatever is computed on
it during the closing silence stays valid; ``TurnResumed`` says that it does not.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum, StrEnum, auto
from itertools import pairwise

import numpy as np

from agent.frames import FRAME_MS, FRAME_SAMPLES, Samples
from agent.vad import NoiseFloor
from gate.span import SAMPLE_RATE_HZ, Span


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """How turns are cut. All lengths are whole frames of 20 ms.

    The defaults rest on 246 real clips (48 spoken commands, 48 coffee orders, 30 read sentences, 120 spoken digits),
    laid 1.5 s apart over pink noise at -65 dBFS and scored by ``agent.vad.make_vad``: no clip lost, no sample of any
    first or last 200 ms lost.

    ==============================  ======  ======  ======
    hangover                        400 ms  600 ms  800 ms
    ==============================  ======  ======  ======
    read sentences split (of 30)        14       8       5
    coffee orders split (of 48)          3       0       0
    commands, digits split (168)         0       0       0
    ==============================  ======  ======  ======

    Readers pause for longer than 0.6 s between clauses; a longer hangover delays every answer by as much.
    With ``min_speech_ms`` at 160, words cut to 120 ms passed (120 of 120) and bursts of noise of up to 100 ms did not
    (0 of 58); at 200, 3 of 120 words cut to 150 ms were lost. One minute each of full-scale white noise, piano,
    typing and claps gave 0, 3, 4 and 0 turns. Of the provisional turns on commands 14 of 62 were thrown away at a
    ``provisional_pause_ms`` of 200, 7 of 55 at 300.

    Attributes:
        start_frames: speech frames within the last ``start_window_frames`` that start a candidate, or resume a pause.
        start_window_frames: see ``start_frames``.
        pre_roll_ms: audio kept before the first of those frames.
        min_speech_ms: speech (frames that the detector called speech) below which a candidate is discarded.
        provisional_pause_ms: closing silence after which the provisional turn goes out, or a candidate is given up.
        hangover_ms: closing silence after which a turn is final.
        min_hangover_ms: the least that ``TurnDetector.set_hangover_ms`` accepts.
        max_hangover_ms: the most that it accepts.
        tail_ms: audio kept after the last speech frame. At most ``provisional_pause_ms``, so that the provisional turn
            already holds it.
        max_turn_s: hard maximum of a turn's length, pre-roll included; noise that never pauses is cut here.
        max_bridged_gap_ms: the longest loss of samples that an open turn survives (flagged, zeros in its place).
        discard_report_s: discarded silence is reported in stretches of this length, so that memory stays flat.
        audible_floor_dbfs: frames below it are silence whatever the background.
        audible_margin_db: a frame that the detector refused is *audible* when its level exceeds the background's by
            this much; enough of them make the discarded stretch ``BELOW_VAD`` instead of ``SILENCE``.

    Raises:
        TypeError: when a value has the wrong type; names it.
        ValueError: when a value is out of range or the values contradict each other; names it.
    """

    start_frames: int = 3
    start_window_frames: int = 5
    pre_roll_ms: int = 300
    min_speech_ms: int = 160
    provisional_pause_ms: int = 200
    hangover_ms: int = 600
    min_hangover_ms: int = 200
    max_hangover_ms: int = 1200
    tail_ms: int = 200
    max_turn_s: float = 15.0
    max_bridged_gap_ms: int = 100
    discard_report_s: float = 10.0
    audible_floor_dbfs: float = -60.0
    audible_margin_db: float = 10.0

    def __post_init__(self) -> None:
        for item in fields(self):
            self._check_value(item.name, getattr(self, item.name))
        if not 1 <= self.start_frames <= self.start_window_frames:
            raise ValueError(
                f"start_frames is {self.start_frames}; it must be 1 to start_window_frames ({self.start_window_frames})"
            )
        if self.start_window_frames * FRAME_MS > self.provisional_pause_ms:
            raise ValueError(
                f"start_window_frames spans {self.start_window_frames * FRAME_MS} ms; it must not exceed "
                f"provisional_pause_ms ({self.provisional_pause_ms}), or a discarded candidate would start again"
            )
        if self.min_speech_ms < self.start_frames * FRAME_MS:
            raise ValueError(f"min_speech_ms is {self.min_speech_ms}; it must be at least {FRAME_MS} * start_frames")
        if self.tail_ms > self.provisional_pause_ms:
            raise ValueError(
                f"tail_ms is {self.tail_ms}; it must not exceed provisional_pause_ms ({self.provisional_pause_ms}), "
                "or the provisional turn would lack samples of the final one"
            )
        if not self.provisional_pause_ms <= self.min_hangover_ms <= self.hangover_ms <= self.max_hangover_ms:
            raise ValueError(
                "these must not decrease: provisional_pause_ms, min_hangover_ms, hangover_ms, max_hangover_ms; got "
                f"{self.provisional_pause_ms}, {self.min_hangover_ms}, {self.hangover_ms}, {self.max_hangover_ms}"
            )
        longest_candidate_ms = self.pre_roll_ms + self.min_speech_ms // FRAME_MS * self.provisional_pause_ms
        if self.max_turn_s * 1000 < longest_candidate_ms:
            raise ValueError(
                f"max_turn_s is {self.max_turn_s}; a turn can need {longest_candidate_ms / 1000} s before it opens"
            )

    @staticmethod
    def _check_value(name: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} is {value!r}; it must be a number")
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value!r}; it must be finite")
        if name.endswith(("_frames", "_ms")) and not isinstance(value, int):
            raise TypeError(f"{name} is {value!r}; it must be a whole number")
        if name == "audible_floor_dbfs":
            if value > 0:
                raise ValueError(f"{name} is {value!r}; it must not exceed 0 dBFS")
            return
        zero_allowed = name in ("pre_roll_ms", "tail_ms", "max_bridged_gap_ms", "audible_margin_db")
        if value < 0 or (value == 0 and not zero_allowed):
            raise ValueError(f"{name} is {value!r}; it must be {'at least' if zero_allowed else 'above'} 0")
        length_ms = value * 1000 if name.endswith("_s") else value if name.endswith("_ms") else 0
        if not math.isclose(length_ms / FRAME_MS, round(length_ms / FRAME_MS), abs_tol=1e-9):
            raise ValueError(f"{name} is {value!r}; it must be a multiple of the frame, {FRAME_MS} ms")


class TurnEnd(StrEnum):
    """Why a turn was closed."""

    SILENCE = "silence"
    """The closing silence reached the hangover."""
    MAX = "max"
    """The hard maximum; the next turn begins at the next speech, at once if it never stopped."""
    END_OF_STREAM = "end_of_stream"
    SOURCE_GAP = "source_gap"
    """The source stopped or lost samples inside it. Nothing may be executed from such a turn."""


class DiscardReason(StrEnum):
    """Why samples are in no turn."""

    SILENCE = "silence"
    BELOW_VAD = "below_vad"
    """Clearly above the background, but not speech to the detector: whispering, or a noise it knows."""
    BELOW_MIN_SPEECH = "below_min_speech"
    """Speech to the detector, but too little: a click, a cough, a word that the stream's end or a gap cut off."""
    SOURCE_GAP = "source_gap"
    """Positions of the stream whose samples the source lost: they never came in."""


@dataclass(frozen=True, slots=True)
class TurnOpened:
    """Someone speaks. Exactly one ``TurnClosed`` with the same id follows.

    Attributes:
        turn_id: "t0001", "t0002", ... in order of opening.
        start_sample: first sample of the turn: ``trigger_sample`` less the pre-roll, but not before the stream's
            start, the previous turn's end or the end of a gap.
        trigger_sample: first sample of the first speech frame.
        decided_sample: stream position at which this was known.
    """

    turn_id: str
    start_sample: int
    trigger_sample: int
    decided_sample: int


@dataclass(frozen=True, slots=True)
class TurnProvisional:
    """First pause: the turn as it will be if nobody speaks again. Work on it may start, nothing may be executed yet.

    Attributes:
        turn_id: the open turn.
        revision: 1 for the turn's first provisional form, one more for each later one.
        span: its samples, the tail included.
        speech_end_sample: end of the last speech frame.
        decided_sample: stream position at which this was known.
        source_gap: True when the source lost samples inside the turn so far.
        samples: float32 ``(span.samples,)``, read-only.
    """

    turn_id: str
    revision: int
    span: Span
    speech_end_sample: int
    decided_sample: int
    source_gap: bool
    samples: Samples = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class TurnResumed:
    """Speech goes on after a provisional turn: whatever was computed on that revision must be thrown away.

    Attributes:
        turn_id: the open turn.
        revision: the revision that no longer holds.
        decided_sample: stream position at which this was known.
    """

    turn_id: str
    revision: int
    decided_sample: int


@dataclass(frozen=True, slots=True)
class TurnClosed:
    """A turn is final.

    Attributes:
        turn_id: the turn.
        span: its samples: pre-roll, speech, tail.
        speech_end_sample: end of the last speech frame; latency counts from here, not from ``decided_sample``.
        reason: why it was closed.
        speech_samples: samples in frames that the detector called speech.
        same_as_revision: the provisional revision that holds the very same samples, or None when there is none.
        decided_sample: stream position at which this was known.
        source_gap: True when the source lost samples inside the turn, in the closing silence, or in the pre-roll.
        samples: float32 ``(span.samples,)``, read-only.
    """

    turn_id: str
    span: Span
    speech_end_sample: int
    reason: TurnEnd
    speech_samples: int
    same_as_revision: int | None
    decided_sample: int
    source_gap: bool
    samples: Samples = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Discarded:
    """Samples that are in no turn. The audio is gone; long silence comes in several of these.

    Attributes:
        span: which samples.
        reason: why.
        speech_samples: samples in frames that the detector called speech.
        below_vad_samples: samples in audible frames that the detector did not call speech.
        below_vad_level_dbfs: mean level of those, or None when there are none.
    """

    span: Span
    reason: DiscardReason
    speech_samples: int = 0
    below_vad_samples: int = 0
    below_vad_level_dbfs: float | None = None


TurnEvent = TurnOpened | TurnProvisional | TurnResumed | TurnClosed | Discarded


@dataclass(frozen=True, slots=True)
class TurnTotals:
    """Where the samples went: ``received + lost == in_turns + discarded + held`` at any time.

    Attributes:
        received_samples: pushed.
        lost_samples: stated lost by the source.
        in_turns_samples: in closed turns.
        discarded_samples: in discarded spans that were reported.
        held_samples: not yet reported: the open turn, the pre-roll, silence since the last report.
        turns: closed turns.
    """

    received_samples: int
    lost_samples: int
    in_turns_samples: int
    discarded_samples: int
    held_samples: int
    turns: int


@dataclass(slots=True)
class _Piece:
    """One frame, or what is left of one after a cut."""

    start_sample: int
    samples: Samples
    is_speech: bool
    below_vad: bool
    level_dbfs: float | None
    lost: bool = False
    rejected: bool = False

    @property
    def end_sample(self) -> int:
        return self.start_sample + len(self.samples)

    def cut(self, at_sample: int) -> tuple[_Piece, _Piece]:
        size = at_sample - self.start_sample
        rest = (self.is_speech, self.below_vad, self.level_dbfs, self.lost, self.rejected)
        return (
            _Piece(self.start_sample, self.samples[:size], *rest),
            _Piece(at_sample, self.samples[size:], *rest),
        )


class _Phase(Enum):
    CANDIDATE = auto()
    SPEAKING = auto()
    PAUSED = auto()


@dataclass(slots=True)
class _Turn:
    """The turn under way."""

    start_sample: int
    trigger_sample: int
    hangover_samples: int
    source_gap: bool
    pieces: list[_Piece]
    turn_id: str = ""
    phase: _Phase = _Phase.CANDIDATE
    speech_end_sample: int = 0
    speech_samples: int = 0
    paused_at_sample: int = 0
    revision: int = 0
    provisional: Samples | None = None


class _DiscardRun:
    """Adds discarded pieces up and reports them as few, exact spans."""

    def __init__(self, report_samples: int, min_below_vad_samples: int) -> None:
        self._report_samples = report_samples
        self._min_below_vad_samples = min_below_vad_samples
        self._clear(0)

    def _clear(self, at_sample: int) -> None:
        self._start_sample = self._end_sample = at_sample
        self._reason = DiscardReason.SILENCE
        self._speech_samples = self._below_vad_samples = 0
        self._below_vad_energy = 0.0

    @property
    def samples(self) -> int:
        return self._end_sample - self._start_sample

    def add(self, piece: _Piece) -> list[Discarded]:
        """Append the piece that follows; returns what became complete by it."""
        size = len(piece.samples)
        reason = (
            DiscardReason.SOURCE_GAP
            if piece.lost
            else DiscardReason.BELOW_MIN_SPEECH
            if piece.rejected
            else DiscardReason.SILENCE
        )
        complete = self._begin(piece.start_sample, reason)
        self._end_sample = piece.end_sample
        self._speech_samples += size if piece.is_speech else 0
        if piece.below_vad and piece.level_dbfs is not None:
            self._below_vad_samples += size
            self._below_vad_energy += size * 10.0 ** (piece.level_dbfs / 10.0)
        if self.samples >= self._report_samples:
            complete += self.flush()
        return complete

    def add_lost(self, span: Span) -> list[Discarded]:
        """Append a stretch that never came in, of any length, without allocating it."""
        if not span.samples:
            return []
        complete = self._begin(span.start_sample, DiscardReason.SOURCE_GAP)
        self._end_sample = span.end_sample
        return complete

    def flush(self) -> list[Discarded]:
        """What there is, as at most one event."""
        if not self.samples:
            return []
        reason = self._reason
        if reason is DiscardReason.SILENCE and self._below_vad_samples >= self._min_below_vad_samples:
            reason = DiscardReason.BELOW_VAD
        level = 10.0 * math.log10(self._below_vad_energy / self._below_vad_samples) if self._below_vad_samples else None
        span = Span(self._start_sample, self._end_sample)
        event = Discarded(span, reason, self._speech_samples, self._below_vad_samples, level)
        self._clear(self._end_sample)
        return [event]

    def _begin(self, start_sample: int, reason: DiscardReason) -> list[Discarded]:
        complete = self.flush() if reason is not self._reason else []
        if not self.samples:
            self._clear(start_sample)
            self._reason = reason
        return complete


class TurnDetector:
    """Cuts a stream of scored frames into turns. One instance a stream; not thread-safe.

    Frames must follow each other without a hole: ``push`` checks the position, and a loss has to be said by ``gap``.

    Args:
        settings: how turns are cut.
        first_sample: stream position of the first frame.
    """

    def __init__(self, settings: TurnSettings | None = None, *, first_sample: int = 0) -> None:
        if first_sample < 0:
            raise ValueError(f"first_sample is {first_sample}; it must not be negative")
        self._settings = settings = settings if settings is not None else TurnSettings()
        self._pre_roll_samples = _samples_of(settings.pre_roll_ms)
        self._tail_samples = _samples_of(settings.tail_ms)
        self._min_speech_samples = _samples_of(settings.min_speech_ms)
        self._pause_samples = _samples_of(settings.provisional_pause_ms)
        self._hangover_samples = _samples_of(settings.hangover_ms)
        self._max_turn_samples = _samples_of(settings.max_turn_s * 1000)
        self._bridge_samples = _samples_of(settings.max_bridged_gap_ms)
        self._ring_samples = self._pre_roll_samples + settings.start_window_frames * FRAME_SAMPLES

        self._position = first_sample
        self._ring: deque[_Piece] = deque()
        self._turn: _Turn | None = None
        self._discards = _DiscardRun(_samples_of(settings.discard_report_s * 1000), self._min_speech_samples)
        self._background = NoiseFloor()
        self._earliest_start = first_sample
        self._gap_end: int | None = None
        self._short_frame_seen = False
        self._ended = False

        self._received_samples = self._lost_samples = 0
        self._in_turns_samples = self._discarded_samples = 0
        self._opened = self._closed = 0

    @property
    def settings(self) -> TurnSettings:
        """How turns are cut."""
        return self._settings

    @property
    def position(self) -> int:
        """Stream position of the next frame."""
        return self._position

    @property
    def totals(self) -> TurnTotals:
        """Where the samples went so far."""
        accounted = self._in_turns_samples + self._discarded_samples
        return TurnTotals(
            received_samples=self._received_samples,
            lost_samples=self._lost_samples,
            in_turns_samples=self._in_turns_samples,
            discarded_samples=self._discarded_samples,
            held_samples=self._received_samples + self._lost_samples - accounted,
            turns=self._closed,
        )

    def push(
        self, start_sample: int, samples: Samples, is_speech: bool, level_dbfs: float | None = None
    ) -> list[TurnEvent]:
        """Take in the next frame.

        Args:
            start_sample: its stream position; must be ``position``.
            samples: float32 ``(320,)``; copied. The last frame before ``gap`` or ``flush`` may be shorter (a rest that
                the detector cannot score is pushed with ``is_speech=False`` and still counts as tail).
            is_speech: the voice detector's verdict.
            level_dbfs: the frame's raw level, or None when unknown.

        Returns:
            What became known by this frame, in stream order.

        Raises:
            ValueError: when the frame does not follow the last one, or has another dtype or shape.
            RuntimeError: after ``flush``.
        """
        self._require_running()
        if start_sample != self._position:
            raise ValueError(f"the frame starts at sample {start_sample}, expected {self._position}; say gap() first")
        if not isinstance(samples, np.ndarray) or samples.dtype != np.float32 or samples.ndim != 1:
            raise ValueError("samples must be a float32 array of one dimension")
        if not 1 <= len(samples) <= FRAME_SAMPLES:
            raise ValueError(f"a frame holds 1 to {FRAME_SAMPLES} samples, got {len(samples)}")
        if self._short_frame_seen:
            raise ValueError("only gap() or flush() may follow a frame that is shorter than the others")
        self._short_frame_seen = len(samples) < FRAME_SAMPLES

        level = level_dbfs if level_dbfs is not None and math.isfinite(level_dbfs) else None
        below_vad = self._is_below_vad(is_speech, level, len(samples))
        piece = _Piece(start_sample, samples.copy(), is_speech, below_vad, level)
        self._position = piece.end_sample
        self._received_samples += len(samples)
        return self._take(piece)

    def gap(self, start_sample: int, lost_samples: int = 0, *, stopped: bool = False) -> list[TurnEvent]:
        """The source lost samples, or stopped.

        An open turn survives a loss of at most ``max_bridged_gap_ms``, with zeros in the place of the lost samples and
        ``source_gap`` set. A longer loss, or a source that stopped, closes it with ``TurnEnd.SOURCE_GAP``. No pre-roll
        reaches back across a gap; a turn whose pre-roll is cut by one has ``source_gap`` set.

        Args:
            start_sample: where the loss begins; must be ``position``.
            lost_samples: how many positions it takes up, 0 when unknown.
            stopped: True when no more samples come for now.

        Returns:
            What became known, in stream order.

        Raises:
            ValueError: when the position or the number is wrong.
            RuntimeError: after ``flush``.
        """
        self._require_running()
        if start_sample != self._position:
            raise ValueError(f"the gap starts at sample {start_sample}, expected {self._position}")
        if lost_samples < 0:
            raise ValueError(f"lost_samples is {lost_samples}; it must not be negative")
        self._short_frame_seen = False
        self._position += lost_samples
        self._lost_samples += lost_samples
        self._gap_end = self._position

        turn = self._turn
        if turn is not None and not stopped and lost_samples <= self._bridge_samples and self._fits(turn, lost_samples):
            turn.source_gap = True
            if not lost_samples:
                return []
            zeros = np.zeros(lost_samples, dtype=np.float32)
            return self._take(_Piece(start_sample, zeros, is_speech=False, below_vad=False, level_dbfs=None, lost=True))

        events: list[TurnEvent] = []
        if turn is not None:
            turn.source_gap = True
            self._end_turn(turn, TurnEnd.SOURCE_GAP, start_sample, events)
        self._discard_all(self._ring, events)
        self._report(events, self._discards.add_lost(Span(start_sample, self._position)))
        self._report(events, self._discards.flush())
        self._earliest_start = self._position
        return events

    def flush(self) -> list[TurnEvent]:
        """End of the stream: closes the open turn and accounts for everything that is left. Nothing may follow.

        Raises:
            RuntimeError: when called twice.
        """
        self._require_running()
        self._ended = True
        events: list[TurnEvent] = []
        if self._turn is not None:
            self._end_turn(self._turn, TurnEnd.END_OF_STREAM, self._position, events)
        self._discard_all(self._ring, events)
        self._report(events, self._discards.flush())
        return events

    def set_hangover_ms(self, turn_id: str, hangover_ms: int, *, revision: int | None = None) -> list[TurnEvent]:
        """Change the closing silence of one open turn, for a listener that can tell whether the sentence is complete.

        Holds for the present pause, or the next one when the person is speaking; after ``TurnResumed`` the setting's
        value is back. Advice that comes too late (the turn is closed, or the revision no longer holds) is ignored:
        losing a race is not an error.

        Args:
            turn_id: the turn.
            hangover_ms: ``min_hangover_ms`` to ``max_hangover_ms`` of the settings.
            revision: the provisional revision that the advice rests on; ignored unless it still holds.

        Returns:
            The turn's closing when its silence is that long already, else nothing.

        Raises:
            ValueError: when ``hangover_ms`` is out of range.
        """
        low, high = self._settings.min_hangover_ms, self._settings.max_hangover_ms
        if not low <= hangover_ms <= high:
            raise ValueError(f"hangover_ms is {hangover_ms}; it must be {low} to {high}")
        turn = self._turn
        if turn is None or turn.phase is _Phase.CANDIDATE or turn.turn_id != turn_id:
            return []
        if revision is not None and (turn.phase is not _Phase.PAUSED or turn.revision != revision):
            return []
        turn.hangover_samples = _samples_of(hangover_ms)
        events: list[TurnEvent] = []
        self._close_if_silent(turn, events)
        return events

    def _require_running(self) -> None:
        if self._ended:
            raise RuntimeError("the stream was flushed; a new stream needs a new detector")

    def _is_below_vad(self, is_speech: bool, level_dbfs: float | None, samples: int) -> bool:
        if level_dbfs is None:
            return False
        background_dbfs = self._background.update(level_dbfs, samples / SAMPLE_RATE_HZ)
        settings = self._settings
        audible_at = max(settings.audible_floor_dbfs, background_dbfs + settings.audible_margin_db)
        return not is_speech and level_dbfs >= audible_at

    def _take(self, piece: _Piece) -> list[TurnEvent]:
        events: list[TurnEvent] = []
        if self._turn is None:
            self._ring.append(piece)
            self._turn = self._find_candidate(events)
            self._trim_ring(events)
            if self._turn is not None:
                self._advance(self._turn, events)
            return events
        turn = self._turn
        turn.pieces.append(piece)
        if piece.is_speech and turn.phase is not _Phase.PAUSED:
            turn.speech_samples += len(piece.samples)
            turn.speech_end_sample = piece.end_sample
        self._advance(turn, events)
        return events

    def _find_candidate(self, events: list[TurnEvent]) -> _Turn | None:
        """A candidate begins when enough of the latest frames are speech: it takes the ring from its start on."""
        window = list(self._ring)[-self._settings.start_window_frames :]
        speech = [piece for piece in window if piece.is_speech]
        if len(speech) < self._settings.start_frames:
            return None
        trigger = speech[0].start_sample
        wanted_start = trigger - self._pre_roll_samples
        start = max(wanted_start, self._earliest_start)
        before, kept = _cut(self._ring, start)
        self._ring.clear()
        self._discard_all(deque(before), events)
        return _Turn(
            start_sample=start,
            trigger_sample=trigger,
            hangover_samples=self._hangover_samples,
            source_gap=wanted_start < start == self._gap_end,
            pieces=kept,
            speech_end_sample=speech[-1].end_sample,
            speech_samples=sum(len(piece.samples) for piece in speech),
        )

    def _advance(self, turn: _Turn, events: list[TurnEvent]) -> None:
        """Move the turn on after its latest piece."""
        if turn.phase is _Phase.PAUSED:
            self._resume_if_spoken(turn, events)
        silence = self._position - turn.speech_end_sample
        if turn.phase is _Phase.CANDIDATE:
            if turn.speech_samples >= self._min_speech_samples:
                self._open(turn, events)
            elif silence >= self._pause_samples:
                self._reject(turn, events)
                return
        if turn.phase is _Phase.SPEAKING and silence >= self._pause_samples:
            self._pause(turn, events)
        self._close_if_silent(turn, events)
        if self._turn is turn and not self._fits(turn, FRAME_SAMPLES):
            self._end_turn(turn, TurnEnd.MAX, self._position, events)

    def _resume_if_spoken(self, turn: _Turn, events: list[TurnEvent]) -> None:
        latest = turn.pieces[-self._settings.start_window_frames :]
        spoken = [piece for piece in latest if piece.is_speech and piece.start_sample >= turn.paused_at_sample]
        if len(spoken) < self._settings.start_frames:
            return
        turn.phase = _Phase.SPEAKING
        turn.provisional = None
        turn.hangover_samples = self._hangover_samples
        turn.speech_end_sample = spoken[-1].end_sample
        turn.speech_samples += sum(
            len(piece.samples)
            for piece in turn.pieces
            if piece.is_speech and piece.start_sample >= turn.paused_at_sample
        )
        events.append(TurnResumed(turn.turn_id, turn.revision, self._position))

    def _open(self, turn: _Turn, events: list[TurnEvent]) -> None:
        self._report(events, self._discards.flush())
        self._opened += 1
        turn.turn_id = f"t{self._opened:04d}"
        turn.phase = _Phase.SPEAKING
        events.append(TurnOpened(turn.turn_id, turn.start_sample, turn.trigger_sample, self._position))

    def _pause(self, turn: _Turn, events: list[TurnEvent]) -> None:
        turn.phase = _Phase.PAUSED
        turn.paused_at_sample = self._position
        turn.revision += 1
        end = turn.speech_end_sample + self._tail_samples
        turn.provisional = _join(_cut(turn.pieces, end)[0])
        events.append(
            TurnProvisional(
                turn.turn_id,
                turn.revision,
                Span(turn.start_sample, end),
                turn.speech_end_sample,
                self._position,
                turn.source_gap,
                turn.provisional,
            )
        )

    def _close_if_silent(self, turn: _Turn, events: list[TurnEvent]) -> None:
        silence = self._position - turn.speech_end_sample
        if turn.phase is _Phase.PAUSED and silence >= turn.hangover_samples:
            self._end_turn(turn, TurnEnd.SILENCE, self._position, events)

    def _end_turn(self, turn: _Turn, reason: TurnEnd, last_sample: int, events: list[TurnEvent]) -> None:
        """Close an open turn at its tail, or give a candidate up; what follows the tail goes back to the ring."""
        if turn.phase is _Phase.CANDIDATE:
            self._reject(turn, events)
            return
        if reason is TurnEnd.MAX and turn.phase is _Phase.SPEAKING:
            end = last_sample
        else:
            end = min(turn.speech_end_sample + self._tail_samples, last_sample)
        inside, after = _cut(turn.pieces, end)
        samples = turn.provisional if turn.provisional is not None else _join(inside)
        self._turn = None
        self._ring.extend(after)
        self._earliest_start = max(end, self._gap_end or 0)
        self._closed += 1
        self._in_turns_samples += len(samples)
        events.append(
            TurnClosed(
                turn.turn_id,
                Span(turn.start_sample, end),
                turn.speech_end_sample,
                reason,
                turn.speech_samples,
                turn.revision if turn.provisional is not None else None,
                self._position,
                turn.source_gap,
                samples,
            )
        )
        self._trim_ring(events)

    def _reject(self, turn: _Turn, events: list[TurnEvent]) -> None:
        """Too little speech. The pieces go back to the ring: the next turn's pre-roll may still need them."""
        for piece in turn.pieces:
            piece.rejected = turn.trigger_sample <= piece.start_sample < turn.speech_end_sample
        self._turn = None
        self._ring.extend(turn.pieces)
        self._earliest_start = max(self._earliest_start, self._gap_end or 0)
        self._trim_ring(events)

    def _fits(self, turn: _Turn, more_samples: int) -> bool:
        return self._position - turn.start_sample + more_samples <= self._max_turn_samples

    def _trim_ring(self, events: list[TurnEvent]) -> None:
        while self._ring and self._position - self._ring[0].start_sample > self._ring_samples:
            self._report(events, self._discards.add(self._ring.popleft()))

    def _discard_all(self, pieces: deque[_Piece], events: list[TurnEvent]) -> None:
        while pieces:
            self._report(events, self._discards.add(pieces.popleft()))

    def _report(self, events: list[TurnEvent], discarded: Iterable[Discarded]) -> None:
        for event in discarded:
            self._discarded_samples += event.span.samples
            events.append(event)


def split_turn(span: Span, change_samples: Sequence[int], min_segment_samples: int) -> tuple[Span, ...]:
    """Cut one turn where the voice changes, with or without a pause there.

    A segment that would be shorter than the minimum is not cut off: it goes to the segment that follows, so what was
    said before it stays one person's; a short rest at the end goes to the segment before.

    Args:
        span: the turn.
        change_samples: stream positions at which the voice changes, in any order. Those outside the inside of the
            span are refused: they were not shifted into the stream.
        min_segment_samples: the shortest segment, at least 1.

    Returns:
        Segments in order that cover ``span`` exactly; the span alone when it is not cut.

    Raises:
        ValueError: when a change lies outside the span or the minimum is below 1.
    """
    if min_segment_samples < 1:
        raise ValueError(f"min_segment_samples is {min_segment_samples}; it must be at least 1")
    bounds = [span.start_sample]
    for change in sorted(set(change_samples)):
        if not span.start_sample <= change <= span.end_sample:
            raise ValueError(
                f"the change at sample {change} lies outside the turn [{span.start_sample}, {span.end_sample})"
            )
        if change - bounds[-1] >= min_segment_samples and span.end_sample - change >= min_segment_samples:
            bounds.append(change)
    bounds.append(span.end_sample)
    return tuple(Span(start, end) for start, end in pairwise(bounds))


def _samples_of(length_ms: float) -> int:
    return round(length_ms * SAMPLE_RATE_HZ / 1000)


def _cut(pieces: Iterable[_Piece], at_sample: int) -> tuple[list[_Piece], list[_Piece]]:
    """The pieces before and from a sample on; the piece that holds it is cut in two."""
    before: list[_Piece] = []
    after: list[_Piece] = []
    for piece in pieces:
        if piece.end_sample <= at_sample:
            before.append(piece)
        elif piece.start_sample >= at_sample:
            after.append(piece)
        else:
            head, rest = piece.cut(at_sample)
            before.append(head)
            after.append(rest)
    return before, after


def _join(pieces: Sequence[_Piece]) -> Samples:
    samples = np.concatenate([piece.samples for piece in pieces]) if pieces else np.zeros(0, dtype=np.float32)
    samples.setflags(write=False)
    return samples
