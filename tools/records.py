"""What became of a call: the closed set of states, the reasons for a refusal, and the record that carries them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gate.catalogue import ToolCall


class ExecutionState(StrEnum):
    """Where a call stands. All but ``STARTED`` are final, and a call gets exactly one final state."""

    STARTED = "started"
    """Journalled and running."""
    DONE = "done"
    """The back end said that it took effect."""
    FAILED = "failed"
    """The back end raised."""
    CANCELLED = "cancelled"
    """Withdrawn before it ran."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """It may have taken effect: timed out, killed, or the journal could not be written. Never retried by itself."""
    REFUSED = "refused"
    """Not executed and not journalled; ``Refusal`` says why."""


class Refusal(StrEnum):
    """Why a call was not executed."""

    TOOLS_OFF = "tools_off"
    BAD_CALL = "bad_call"
    """The call does not fit its tool."""
    BAD_GRANT = "bad_grant"
    """No grant, or one that is forged, spent, expired or bound to another call."""
    ALREADY_RAN = "already_ran"
    """The journal holds a call of the same turn."""
    JOURNAL_FAILED = "journal_failed"
    """The start could not be written down, so nothing was started."""


@dataclass(frozen=True, slots=True)
class ExecutionRecord:
    """One call and where it stands.

    Attributes:
        key: idempotency key, ``session:turn:digest``; empty when the call was refused before it had one.
        turn_id: the turn whose words licensed the call.
        call: the call as it was (or would have been) executed.
        summary: the call as a sentence, or empty when it does not fit its tool.
        state: where it stands.
        detail: the back end's answer, the error or the reason; one line, secrets blotted out.
        refusal: why it was refused, or None.
        late_state: how the tool ended after its time-out, or None.
        late_detail: what it said then.
    """

    key: str
    turn_id: str
    call: ToolCall
    summary: str
    state: ExecutionState
    detail: str = ""
    refusal: Refusal | None = None
    late_state: ExecutionState | None = None
    late_detail: str = ""
