"""The protocols that everything with weights implements. One ear or policy: one file and one registry line.

All audio is float32 mono at 16 kHz in [-1, 1], shape ``(samples,)``. Spans that an ear returns are relative to the
first sample of the array it was given; the caller shifts them into the session's stream. No ear raises on odd audio:
below its own minimum (too short, not finite, clipped, silent) it returns *unknown* with a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from gate.catalogue import ToolFacts
from gate.evidence import DamageStretch, DistanceVerdict, Modality, SpeakerVerdict, Word
from gate.span import Span

Audio = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ModelId:
    """Which weights a result came from: the registry's name and the sha256 of what was loaded."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Heard:
    """What the speech ear heard.

    Attributes:
        words: words in order, spans relative to the audio given.
        note: why there are no words when there are none ("no speech: p=0.97").
        no_speech_probability: the recogniser's own, 0 to 1, or None.
        encoder_states: float32 ``(frames, width)`` encoder output at 50 Hz over the audio given, or None.
            Word-synchronous fusion reads it.
    """

    words: tuple[Word, ...]
    note: str = ""
    no_speech_probability: float | None = None
    encoder_states: npt.NDArray[np.float32] | None = field(default=None, repr=False, compare=False)


class SpeechEar(Protocol):
    """Speech to words with times and probabilities."""

    @property
    def model(self) -> ModelId: ...

    def hear(self, audio: Audio) -> Heard:
        """Recognise one turn. Never invents text from silence or noise; raises nothing on odd audio."""
        ...


@dataclass(frozen=True, slots=True)
class Embedding:
    """A speaker embedding, or the reason why there is none.

    Attributes:
        vector: float32 ``(dimension,)`` with unit L2 norm, or None.
        span: the samples it was computed on.
        note: why there is none, or a caution.
    """

    vector: npt.NDArray[np.float32] | None
    span: Span
    note: str = ""


class SpeakerTrack(Protocol):
    """One pass of a speaker network over a turn, from which any span can then be embedded almost for nothing."""

    def embed(self, span: Span) -> Embedding:
        """The embedding of one span of the audio."""
        ...

    def changes(self) -> tuple[int, ...]:
        """Samples at which the voice changes inside the audio, in order; empty when one person speaks."""
        ...


class SpeakerThresholds(Protocol):
    """Turns a cosine score into a verdict, given how much speech stood on either side."""

    def verdict(self, score: float, reference_s: float, test_s: float) -> tuple[SpeakerVerdict, float, float]:
        """The verdict, the score from which it is owner, and the score below which it is other."""
        ...


class SpeakerEar(Protocol):
    """Who spoke."""

    @property
    def model(self) -> ModelId: ...

    @property
    def thresholds(self) -> SpeakerThresholds:
        """Calibrated for this very network; no other network's scores can be read with it."""
        ...

    @property
    def dimension(self) -> int: ...

    @property
    def min_samples(self) -> int:
        """The shortest span that is embedded; anything shorter is unknown."""
        ...

    def track(self, audio: Audio) -> SpeakerTrack:
        """Run the network once over ``audio``."""
        ...


@dataclass(frozen=True, slots=True)
class Nearness:
    """A proximity score, or the reason why there is none.

    Attributes:
        near_probability: calibrated, 0 to 1, or None.
        span: the samples that were scored.
        note: why there is none, or a caution.
    """

    near_probability: float | None
    span: Span
    note: str = ""


class ProximityTrack(Protocol):
    """One pass of a proximity model over a turn."""

    def near(self, span: Span) -> Nearness:
        """How near the mouth was in that span."""
        ...


class ProximityEar(Protocol):
    """How near the mouth was, from one channel, whatever the level."""

    @property
    def model(self) -> ModelId: ...

    @property
    def near_at(self) -> float:
        """The probability from which the verdict is near."""
        ...

    @property
    def far_below(self) -> float:
        """The probability below which the verdict is far."""
        ...

    @property
    def min_samples(self) -> int: ...

    def track(self, audio: Audio) -> ProximityTrack: ...


class DamageEar(Protocol):
    """Which stretches a listener could not have heard."""

    @property
    def model(self) -> ModelId: ...

    def find(self, audio: Audio) -> tuple[DamageStretch, ...] | None:
        """Damaged stretches in order, spans relative to ``audio``; None when it cannot tell (too short, not finite)."""
        ...


class OverlapEar(Protocol):
    """Where two people speak at once."""

    @property
    def model(self) -> ModelId: ...

    def find(self, audio: Audio) -> tuple[Span, ...] | None:
        """Stretches with two voices, in order, relative to ``audio``; None when it cannot tell (too short, silent)."""
        ...


@dataclass(frozen=True, slots=True)
class HeardSegment:
    """What the policy reads of one stretch of one person's speech.

    Attributes:
        words: the words, with damaged stretches already marked (see ``MASK_MARK``) by the caller.
        speaker: the ears' verdict, never the model's.
        distance: likewise.
        gap_before_s: silence before it, in seconds.
    """

    words: tuple[Word, ...]
    speaker: SpeakerVerdict
    distance: DistanceVerdict
    gap_before_s: float = 0.0


MASK_MARK = "[?]"
"""Stands in the word list where words were masked. A text parameter may never hold it."""


@dataclass(frozen=True, slots=True)
class PolicyInput:
    """What a policy is given for one turn.

    Attributes:
        turn_id: the turn.
        segment: the segment to act on.
        context: earlier segments of the session, oldest first, bounded by the caller.
        tools: the tools that may be proposed.
        question: a question about the audio given as text beside it, or None (EAR).
        modality: audio or typed text.
        audio: the segment's samples, or None for typed text; audio LLMs read it.
        encoder_states: the speech ear's states for the segment, or None.
        start_sample: where ``audio`` and ``encoder_states`` begin in the stream that the words' spans refer to.
        notes: what a ``Listening`` policy noted for itself while the turn was spoken, oldest first.
    """

    turn_id: str
    segment: HeardSegment
    context: tuple[HeardSegment, ...]
    tools: Sequence[ToolFacts]
    question: str | None = None
    modality: Modality = Modality.AUDIO
    audio: Audio | None = field(default=None, repr=False, compare=False)
    encoder_states: npt.NDArray[np.float32] | None = field(default=None, repr=False, compare=False)
    start_sample: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyOutput:
    """What a policy wrote.

    Attributes:
        text: one action in the grammar, exactly as written; ``gate.grammar`` parses it.
        action_scores: log-probability of each kind of action ("mute", "tool", "answer", "pardon"), where there is one.
        steps: forward passes of the decoder, for the log.
        normalised: the text with the model's native dialect put into the grammar; None where that changes nothing.
            The gate reads it in the place of ``text`` only when the settings say so.
        dialect: what was normalised ("tool_call_tags"), or empty.
        thinking: what was written before the action, in thinking's own tags. It reaches no parser.
    """

    text: str
    action_scores: tuple[tuple[str, float], ...] = ()
    steps: int = 0
    normalised: str | None = None
    dialect: str = ""
    thinking: str = ""


class Policy(Protocol):
    """Proposes one action for a turn. It proposes only: nothing it writes can mint a grant."""

    @property
    def model(self) -> ModelId: ...

    def prepare(self, tools: Sequence[ToolFacts]) -> None:
        """Do now what the first turn with these tools would otherwise wait for."""
        ...

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        """Write one action. May raise: the caller turns any exception into no execution with a reason."""
        ...


@dataclass(frozen=True, slots=True)
class SpeechSoFar:
    """What a listening policy is given of a turn that is still being spoken.

    Attributes:
        turn_id: the turn.
        audio: from the turn's first sample to the latest.
        context: earlier segments of the session, oldest first.
        tools: the tools that may be proposed.
        notes: what it noted of this turn before, oldest first.
    """

    turn_id: str
    audio: Audio = field(repr=False, compare=False)
    context: tuple[HeardSegment, ...]
    tools: Sequence[ToolFacts]
    notes: tuple[str, ...] = ()


@runtime_checkable
class Listening(Protocol):
    """A policy that thinks while somebody speaks. It keeps nothing: its notes come back to it in ``PolicyInput``."""

    @property
    def chunk_s(self) -> float:
        """After how many seconds of speech it wants to listen again."""
        ...

    @property
    def max_chunks(self) -> int:
        """How often at most in one turn."""
        ...

    def listen(self, so_far: SpeechSoFar) -> str:
        """Write a private note, or nothing. It reaches no parser. May raise: the turn then executes nothing."""
        ...
