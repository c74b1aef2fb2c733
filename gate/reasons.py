"""Why the gate decided as it did: a closed list, one sentence each, for people and for counting."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """One reason per decision. The value is stable; the sentence is for people."""

    # What lets something through.
    LICENSED = "licensed"
    TYPED = "typed"
    ADDRESSED_QUESTION = "addressed_question"
    # Silence.
    NOT_ADDRESSED = "not_addressed"
    OWN_VOICE = "own_voice"
    OTHER_SPEAKER = "other_speaker"
    FAR = "far"
    SOURCE_UNKNOWN = "source_unknown"
    NO_SPEECH = "no_speech"
    NO_OWNER = "no_owner"
    TOOLS_OFF = "tools_off"
    UNPARSEABLE = "unparseable"
    POLICY_FAILED = "policy_failed"
    POLICY_TIMEOUT = "policy_timeout"
    EAR_FAILED = "ear_failed"
    CANCELLED = "cancelled"
    STALE = "stale"
    PARDON_LIMIT = "pardon_limit"
    # Asking again.
    SPEAKER_UNSURE = "speaker_unsure"
    DISTANCE_UNSURE = "distance_unsure"
    OVERLAPPED = "overlapped"
    SOURCE_GAP = "source_gap"
    UNKNOWN_TOOL = "unknown_tool"
    ARGUMENT_MISSING = "argument_missing"
    ARGUMENT_REFUSED = "argument_refused"
    ARGUMENT_UNHEARD = "argument_unheard"
    ARGUMENT_MASKED = "argument_masked"
    ARGUMENT_UNCLEAR = "argument_unclear"
    COMMAND_DAMAGED = "command_damaged"
    MISHEARD = "misheard"
    CONFIRM = "confirm"
    # Ends of a confirmation or of a call that waits out its grace time.
    CONFIRMED = "confirmed"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"
    TOO_LATE = "too_late"
    QUESTION = "question"

    @property
    def sentence(self) -> str:
        """The reason in one sentence."""
        return _SENTENCES[self]


_SENTENCES: dict[Reason, str] = {
    Reason.LICENSED: "The owner said it, near by, and every argument came through.",
    Reason.TYPED: "The operator typed it.",
    Reason.ADDRESSED_QUESTION: "A question to the assistant.",
    Reason.NOT_ADDRESSED: "Not meant for the assistant.",
    Reason.OWN_VOICE: "That was the assistant's own voice.",
    Reason.OTHER_SPEAKER: "Another person spoke.",
    Reason.FAR: "The speaker was too far away.",
    Reason.SOURCE_UNKNOWN: "Neither the speaker nor the distance is known.",
    Reason.NO_SPEECH: "No words came through.",
    Reason.NO_OWNER: "Nobody owns this session yet.",
    Reason.TOOLS_OFF: "Tools are switched off.",
    Reason.UNPARSEABLE: "The model's output is outside the action grammar.",
    Reason.POLICY_FAILED: "The model failed.",
    Reason.POLICY_TIMEOUT: "The model took too long.",
    Reason.EAR_FAILED: "An ear failed, so the evidence is missing.",
    Reason.CANCELLED: "The turn was cancelled.",
    Reason.STALE: "The decision came too late for its turn.",
    Reason.PARDON_LIMIT: "Asked twice already.",
    Reason.SPEAKER_UNSURE: "It is not certain enough who spoke.",
    Reason.DISTANCE_UNSURE: "It is not certain enough how near the speaker was.",
    Reason.OVERLAPPED: "Two people spoke at once.",
    Reason.SOURCE_GAP: "The audio source lost samples inside the command.",
    Reason.UNKNOWN_TOOL: "There is no such tool.",
    Reason.ARGUMENT_MISSING: "A needed argument was not said.",
    Reason.ARGUMENT_REFUSED: "An argument does not fit its tool.",
    Reason.ARGUMENT_UNHEARD: "An argument is not among the words that were heard.",
    Reason.ARGUMENT_MASKED: "Something covered a needed argument.",
    Reason.ARGUMENT_UNCLEAR: "An argument was heard too unclearly.",
    Reason.COMMAND_DAMAGED: "Part of a consequential command was covered.",
    Reason.CONFIRM: "A consequential call is confirmed first.",
    Reason.CONFIRMED: "The owner confirmed it.",
    Reason.DECLINED: "The owner declined it.",
    Reason.WITHDRAWN: "The owner took it back in time.",
    Reason.TOO_LATE: "It had been done already.",
    Reason.MISHEARD: "The words did not come through.",
    Reason.QUESTION: "It was asked, not told.",
}
