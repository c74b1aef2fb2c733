"""The event schema: the one record of a session, for the console, JSON Lines files, MQTT and the bench.

Every event is a frozen pydantic model with the same envelope. ``v`` is the schema's version: it goes up when a field is
removed or changes its meaning; readers ignore fields that they do not know. Times are seconds: ``at_s`` counts the
stream's samples, ``clock_s`` is the session's clock (real or charged). No event ever carries audio or an embedding.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

SCHEMA_VERSION: Literal[1] = 1

SpanS = tuple[float, float]
"""``[start_s, end_s)`` in the stream."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class WordRecord(_Model):
    """One recognised word."""

    text: str
    span_s: SpanS
    probability: float


class SpeakerRecord(_Model):
    """A speaker verdict and the score it needs."""

    verdict: Literal["owner", "other", "unsure"]
    score: float | None
    owner_at: float
    other_below: float
    note: str = ""


class DistanceRecord(_Model):
    """A distance verdict and the probability it needs."""

    verdict: Literal["near", "far", "unsure"]
    near_probability: float | None
    near_at: float
    far_below: float
    note: str = ""


class DamageRecord(_Model):
    """One damaged stretch."""

    span_s: SpanS
    kind: str
    probability: float


class EvidenceRecord(_Model):
    """Everything that a decision rests on. ``damage`` is null when it could not be measured."""

    span_s: SpanS
    modality: Literal["audio", "text"]
    transcript: str
    words: tuple[WordRecord, ...]
    speaker: SpeakerRecord
    distance: DistanceRecord
    damage: tuple[DamageRecord, ...] | None
    overlapped: bool | None
    own_voice: bool
    source_gap: bool


class TimingRecord(_Model):
    """Where the time went, in seconds of the session's clock.

    ``speech_end`` is when the last speech of the turn ended as the detector saw it; ``endpoint`` is when the turn was
    closed; ``decision`` is when the gate decided. ``compute`` maps each stage to the seconds it ran.
    """

    speech_end: float
    endpoint: float
    decision: float
    executed: float | None = None
    compute: dict[str, float] = Field(default_factory=dict)

    @property
    def latency_s(self) -> float:
        """End of speech to decision."""
        return self.decision - self.speech_end


class Envelope(_Model):
    """What every event carries."""

    v: Literal[1] = SCHEMA_VERSION
    seq: int
    """Counts the session's events from 0; a hole means a lost event."""
    session: str
    at_s: float
    clock_s: float


class SessionStarted(Envelope):
    """A session began: what it listens to and what it decides with."""

    event: Literal["session_started"] = "session_started"
    source: dict[str, str | int | float | bool | None]
    pace: Literal["wall", "charged", "free"]
    owner: Literal["enrolled", "initiator"]
    policy: str
    models: dict[str, str]
    """Model name to the sha256 of what was loaded."""
    thresholds: dict[str, float | str]
    tools_off: str = ""


class SourceNotice(Envelope):
    """The audio source has something to say (narrow band, only zeros, reopened, truncated file)."""

    event: Literal["source_notice"] = "source_notice"
    code: str
    message: str


class OutputNotice(Envelope):
    """An output has something to say (the broker is away, something could not be spoken)."""

    event: Literal["output_notice"] = "output_notice"
    code: str
    message: str


class SourceLost(Envelope):
    """The source lost samples."""

    event: Literal["source_lost"] = "source_lost"
    lost_samples: int


class Level(Envelope):
    """The input's level, about ten times a second; shown, never written to a file."""

    event: Literal["level"] = "level"
    level_dbfs: float
    is_speech: bool


class TurnOpened(Envelope):
    """Speech began."""

    event: Literal["turn_opened"] = "turn_opened"
    turn: str
    start_s: float


class TurnClosed(Envelope):
    """Speech ended: the closing silence is over."""

    event: Literal["turn_closed"] = "turn_closed"
    turn: str
    span_s: SpanS
    reason: str


class AudioDiscarded(Envelope):
    """Samples that are in no turn."""

    event: Literal["audio_discarded"] = "audio_discarded"
    span_s: SpanS
    reason: str


class Proposed(Envelope):
    """What the policy wrote for one segment."""

    event: Literal["proposed"] = "proposed"
    turn: str
    raw: str
    normalised: str | None = None
    """The text in the canonical form, where it was written in a model's own dialect."""
    dialect: str = ""
    action_scores: dict[str, float] = Field(default_factory=dict)


class Decided(Envelope):
    """What the gate decided for one segment, and why."""

    event: Literal["decided"] = "decided"
    turn: str
    action: Literal["mute", "tool", "answer", "pardon"]
    tool: str | None
    """The tool of the call, also when the decision was not to run it."""
    params: dict[str, object] | None
    answer: str | None
    """What is said, for an answer and a Pardon."""
    missing_param: str | None = None
    reason: str
    sentence: str
    detail: str = ""
    status: Literal["ok", "unparseable", "error", "timeout", "no_audio"] = "ok"
    proposed: Literal["mute", "tool", "answer", "pardon", "unparseable", "none"]
    evidence: EvidenceRecord
    timing: TimingRecord


class Executed(Envelope):
    """How a call ended."""

    event: Literal["executed"] = "executed"
    turn: str
    tool: str
    params: dict[str, object]
    outcome: Literal["done", "failed", "outcome_unknown", "cancelled", "refused"]
    detail: str = ""
    summary: str = ""
    """The call as a sentence."""


class LateResult(Envelope):
    """A tool that had outlasted its time limit has ended after all. The call is not run again."""

    event: Literal["late_result"] = "late_result"
    turn: str
    tool: str
    outcome: Literal["done", "failed"]
    detail: str = ""


class ClaimWithoutExecution(Envelope):
    """An answer claims that something was done, yet nothing was executed."""

    event: Literal["claim_without_execution"] = "claim_without_execution"
    turn: str
    answer: str


class Dropped(Envelope):
    """Work that was thrown away before it was decided, with the reason."""

    event: Literal["dropped"] = "dropped"
    turn: str
    reason: str


class Failed(Envelope):
    """Something broke. The loop goes on; nothing was executed."""

    event: Literal["failed"] = "failed"
    where: str
    error: str


class SessionEnded(Envelope):
    """A session ended, with its sums."""

    event: Literal["session_ended"] = "session_ended"
    audio_s: float
    turns: int
    decisions: dict[str, int]
    reason: str
    compute_s: float = 0.0
    """Real seconds of model compute, thrown-away early work included."""
    below_vad_s: float = 0.0
    """Seconds of signal that was audible but that the voice activity detector did not call speech."""


Event = Annotated[
    SessionStarted
    | SourceNotice
    | SourceLost
    | OutputNotice
    | Level
    | TurnOpened
    | TurnClosed
    | AudioDiscarded
    | Proposed
    | Decided
    | Executed
    | LateResult
    | ClaimWithoutExecution
    | Dropped
    | Failed
    | SessionEnded,
    Field(discriminator="event"),
]

EVENT: TypeAdapter[Event] = TypeAdapter(Event)
"""Reads any event: ``EVENT.validate_json(line)``."""
