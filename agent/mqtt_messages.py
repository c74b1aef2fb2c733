"""What is published where: topics, the JSON of events, the last decision; and what is left out for privacy.

Without ``transcripts`` only the fields listed here leave the machine. A field or an event that is new and not listed
stays at home: forgetting to list it costs a number on a dashboard, not somebody's words.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agent import events
from agent.events import Event
from agent.mqtt_outbox import Waiting

ONLINE = "online"
"""Connected; no session is running."""
LISTENING = "listening"
"""A session is running."""
OFFLINE = "offline"
"""Gone: said by us when we leave, by the broker (last will) when we vanish."""
ON = "ON"
OFF = "OFF"

_ENVELOPE = {"v", "seq", "session", "at_s", "clock_s", "event"}
_EVIDENCE: dict[str, Any] = {
    "span_s": True,
    "modality": True,
    "speaker": {"verdict"},
    "distance": {"verdict"},
    "overlapped": True,
    "own_voice": True,
    "source_gap": True,
}
_WORDLESS: dict[type[Event], dict[str, Any]] = {
    events.SessionStarted: dict.fromkeys(("pace", "owner", "policy", "models", "tools_off"), True),
    events.SourceNotice: dict.fromkeys(("code", "message"), True),
    events.OutputNotice: dict.fromkeys(("code",), True),
    events.SourceLost: dict.fromkeys(("lost_samples",), True),
    events.TurnOpened: dict.fromkeys(("turn", "start_s"), True),
    events.TurnClosed: dict.fromkeys(("turn", "span_s", "reason"), True),
    events.AudioDiscarded: dict.fromkeys(("span_s", "reason"), True),
    events.Proposed: dict.fromkeys(("turn",), True),
    events.Decided: {
        **dict.fromkeys(
            ("turn", "action", "tool", "missing_param", "reason", "sentence", "status", "proposed", "timing"), True
        ),
        "evidence": _EVIDENCE,
    },
    events.Executed: dict.fromkeys(("turn", "tool", "outcome"), True),
    events.LateResult: dict.fromkeys(("turn", "tool", "outcome"), True),
    events.ClaimWithoutExecution: dict.fromkeys(("turn",), True),
    events.Dropped: dict.fromkeys(("turn", "reason"), True),
    events.Failed: dict.fromkeys(("where",), True),
    events.SessionEnded: dict.fromkeys(
        ("audio_s", "turns", "decisions", "reason", "compute_s", "below_vad_s"), True
    ),
}  # fmt: skip
"""Per event, what tells nothing of what was said, by whose voice score, or of what a call carried."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics below one base.

    Attributes:
        base: the base topic.
    """

    base: str

    @property
    def state(self) -> str:
        """Retained: ``online``, ``listening`` or ``offline``."""
        return f"{self.base}/state"

    @property
    def last_decision(self) -> str:
        """Retained: the last decision in brief."""
        return f"{self.base}/last_decision"

    @property
    def mute_state(self) -> str:
        """Retained: ``ON`` while the broker's switch keeps tools off, else ``OFF``."""
        return f"{self.base}/mute/state"

    @property
    def mute_set(self) -> str:
        """The one topic that is listened to."""
        return f"{self.base}/mute/set"

    def event(self, event: Event) -> str:
        """Where an event goes."""
        return f"{self.base}/events/{event.event}"


def event_id(event: Event) -> str:
    """The same at each delivery of an event, and of no other event."""
    return f"{event.session}-{event.seq}"


def event_message(
    waiting: Waiting, *, transcripts: bool, now_s: float, late_after_s: float, dropped_before: int
) -> str:
    """One event as JSON.

    Args:
        waiting: the event and since when it waits.
        transcripts: whether what was said may be in it.
        now_s: now, on the clock that ``waiting`` was stamped with.
        late_after_s: waiting longer makes it late.
        dropped_before: how many events were dropped that no earlier message has reported.

    Returns:
        The event's own fields, and ``id``, ``unix_s``, ``late``, ``dropped_before``.
    """
    event = waiting.event
    fields = {
        "id": event_id(event),
        "unix_s": round(waiting.unix_s, 3),
        "late": now_s - waiting.queued_s > late_after_s,
        "dropped_before": dropped_before,
    }
    if transcripts:
        return as_json(fields | event.model_dump(mode="json"))
    include = dict.fromkeys(_ENVELOPE, True) | _WORDLESS.get(type(event), {})
    return as_json(fields | event.model_dump(mode="json", include=include))


def decision_fields(event: events.Decided, *, unix_s: float, transcripts: bool) -> dict[str, object]:
    """A decision in brief, for the retained topic; ``outcome`` is filled in once the call has ended.

    Raises:
        ValueError: when it holds something that JSON cannot.
    """
    brief: dict[str, object] = {
        "id": event_id(event),
        "unix_s": round(unix_s, 3),
        "at_s": event.at_s,
        "turn": event.turn,
        "action": event.action,
        "reason": event.reason,
        "sentence": event.sentence,
        "tool": event.tool,
        "missing_param": event.missing_param,
        "outcome": None,
        "status": event.status,
        "speaker": event.evidence.speaker.verdict,
        "distance": event.evidence.distance.verdict,
        "latency_s": round(event.timing.latency_s, 3),
    }
    if transcripts:
        brief |= event.model_dump(mode="json", include={"params", "answer"})
        brief["transcript"] = event.evidence.transcript
    return brief


def as_json(value: dict[str, object]) -> str:
    """Compact JSON in ASCII, so that no text, however broken, fails on its way to UTF-8.

    Raises:
        ValueError: when a number is not finite.
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
