"""Repair as a dialogue: "Pardon?" names what was missed, binds to the pending call and merges the answer into it.

A plain state machine over decisions and sample counts (design after the *Pardon?* paper's notion of explicit repair:
identify what is missing, ask for that, go on). How a repair ends:

===========================  ==========================================================================
the owner fills the gap      the value is merged into the pending call and the whole is decided anew
the owner gives a command    the new command is taken, the pending call is dropped
the owner calls it off       the pending call is dropped (``call_off``)
another speaker, noise       ignored; the repair stays open until it expires
silence                      the repair expires, nothing is executed
a third "Pardon?" in a row   not said; the decision becomes Mute (``PARDON_LIMIT``), the pending call is dropped;
                             so are all that follow, until a turn is understood or a repair's life passes without one
===========================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gate.actions import ActionKind, Parsed, ToolAction
from gate.catalogue import Catalogue, JsonScalar, ParamFacts, ParamKind, ToolCall
from gate.decision import Decision
from gate.evidence import Evidence, Word
from gate.grounding import ground_choice, last_number, normal_form
from gate.reasons import Reason
from gate.replies import bare, is_from_owner, is_refusal
from gate.span import SAMPLE_RATE_HZ
from gate.spoken import FILLERS

_NO_VALUES = frozenset(
    (word,)
    for word in ("yes", "yeah", "yep", "sure", "right", "what", "who", "huh", "pardon", "sorry", "wait", "hello")
)
"""Whole answers that neither give a value nor refuse one."""
_FRAME = FILLERS | {"to", "for", "with", "at", "it", "its", "is", "thats", "that", "said", "mean", "meant"}
"""What may stand before a name in an answer to "who?", "where?", "when?" and "which?", with the question's words."""
_IN_CLAUSES = frozenset(
    {
        "i", "im", "ive", "id", "you", "youre", "we", "were", "he", "hes", "she", "shes", "they", "theyre", "is", "are",
        "was", "am", "has", "have", "had", "do", "does", "did", "will", "would", "can", "could", "should", "not",
        "dont", "isnt", "never", "because", "if", "that",
    }
)  # fmt: skip
"""Names of people, places and times hold none of these."""
_POLITE = frozenset({"please", "thanks", "thank", "you"})


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """Limits of a repair.

    Attributes:
        max_in_row: how many times "Pardon?" may be said in a row.
        life_samples: how long the gate waits for the answer.
        max_fill_words: a longer answer is not a fragment, and is treated as a new utterance.
    """

    max_in_row: int = 2
    life_samples: int = 10 * SAMPLE_RATE_HZ
    max_fill_words: int = 12

    def __post_init__(self) -> None:
        if self.max_in_row < 0 or self.life_samples <= 0 or self.max_fill_words < 1:
            raise ValueError("max_in_row must be >= 0, life_samples > 0, max_fill_words >= 1")


@dataclass(frozen=True, slots=True)
class Pending:
    """What a "Pardon?" waits for.

    Attributes:
        call: the call so far, without the doubtful argument; None when the whole utterance was missed.
        missing_param: the argument asked for, or None.
        evidence: the evidence of the turn that was asked about.
        expires_sample: the stream position from which the repair is over.
    """

    call: ToolCall | None
    missing_param: str | None
    evidence: Evidence
    expires_sample: int


@dataclass(frozen=True, slots=True)
class RepairState:
    """The repair of one session: what is pending, and how many Pardons were said in a row."""

    pending: Pending | None = None
    in_row: int = 0


@dataclass(frozen=True, slots=True)
class Merged:
    """A pending call completed by an answer: the action to decide and the evidence that covers both turns."""

    action: ToolAction
    evidence: Evidence


def expire(state: RepairState, now_sample: int) -> RepairState:
    """Drop what has expired at ``now_sample``; the count in a row starts anew with it."""
    if state.pending is not None and now_sample >= state.pending.expires_sample:
        return RepairState()
    return state


def after_decision(
    state: RepairState, decision: Decision, now_sample: int, settings: RepairSettings
) -> tuple[RepairState, Decision]:
    """Account for one decision.

    Args:
        state: the state before it.
        decision: what ``decide`` said.
        now_sample: the stream position.
        settings: the limits.

    Returns:
        The new state, and the decision as it is carried out: a "Pardon?" beyond the limit becomes Mute.
    """
    expires_sample = now_sample + settings.life_samples
    if decision.action is ActionKind.PARDON:
        if state.in_row >= settings.max_in_row:
            muted = replace(
                decision, action=ActionKind.MUTE, reason=Reason.PARDON_LIMIT, text="", call=None, missing_param=None
            )
            # Waits for nothing, but keeps the count until it expires: babble must not be asked again and again.
            return RepairState(Pending(None, None, decision.evidence, expires_sample), state.in_row), muted
        if state.pending is not None and not is_from_owner(decision.evidence):
            # Asked of somebody who may not be the owner: that must not take her open call away.
            return RepairState(state.pending, state.in_row + 1), decision
        pending = Pending(decision.call, decision.missing_param, decision.evidence, expires_sample)
        if state.pending is not None and _asks_again(state.pending, decision):
            # "Sixty" was missed once more: what was heard of the command before is still known.
            pending = replace(state.pending, expires_sample=expires_sample)
        return RepairState(pending, state.in_row + 1), decision
    if decision.action is ActionKind.MUTE:
        return state, decision
    return RepairState(), decision


def _asks_again(pending: Pending, decision: Decision) -> bool:
    """Whether a "Pardon?" only names the gap that is open already, and knows nothing else of the call."""
    call = decision.call
    return (
        pending.call is not None
        and call is not None
        and not call.params
        and (call.name, decision.missing_param) == (pending.call.name, pending.missing_param)
    )


def call_off(state: RepairState, evidence: Evidence) -> RepairState:
    """Drop the pending call when the owner says so ("never mind").

    Args:
        state: the repair, already expired where due.
        evidence: this turn's evidence.

    Returns:
        The state without a repair, or ``state`` itself when this turn calls nothing off.
    """
    if state.pending is not None and is_from_owner(evidence) and is_refusal(evidence.words):
        return RepairState()
    return state


def merge(
    state: RepairState, parsed: Parsed | None, evidence: Evidence, catalogue: Catalogue, settings: RepairSettings
) -> Merged | None:
    """Complete the pending call with an answer, where this turn is one.

    Only a near turn by the owner, or a typed one, can answer. Either the turn is the same command again (its arguments
    replace the pending ones), or a short fragment that holds a value for the argument asked for.

    Args:
        state: the repair, already expired where due.
        parsed: what the policy proposed for this turn, if anything.
        evidence: this turn's evidence.
        catalogue: the tools.
        settings: the limits.

    Returns:
        The merged action with evidence over both turns, or None when this turn is no answer.
    """
    pending = state.pending
    if pending is None or pending.call is None or pending.missing_param is None:
        return None
    if not is_from_owner(evidence):
        return None
    tool = catalogue.find(pending.call.name)
    facts = tool.param(pending.missing_param) if tool else None
    if facts is None:
        return None
    if isinstance(parsed, ToolAction):
        if parsed.call.name != pending.call.name or facts.name not in parsed.call.params:
            return None
        params = {**pending.call.params, **parsed.call.params}
    else:
        value = fill_value(facts, evidence.words, settings.max_fill_words)
        if value is None:
            return None
        params = {**pending.call.params, facts.name: value}
    return Merged(ToolAction(ToolCall(pending.call.name, params)), _joined(pending.evidence, evidence))


def _joined(asked: Evidence, answer: Evidence) -> Evidence:
    damage = None if asked.damage is None or answer.damage is None else (*asked.damage, *answer.damage)
    starts = (*asked.turn_starts, len(asked.words))
    return replace(
        answer,
        words=(*asked.words, *answer.words),
        heard=(*asked.as_heard, *answer.as_heard),
        damage=damage,
        turn_starts=starts,
    )


def fill_value(facts: ParamFacts, words: Sequence[Word], max_words: int) -> JsonScalar:
    """The value that a fragment gives to a parameter, or None.

    Text asked for with "what" is dictated, and takes the whole fragment. Any other text names somebody, a place or a
    time: what only frames it is left out ("to Ben, please"), and a clause of its own ("I got off the train") is no
    name. A number must be the only one, or the last after corrections; a choice must be named. A boolean is never
    filled from a fragment: "yes" says too little about what was asked. A question, and a fragment that says nothing
    ("never mind", "what", "yes"), is no value.
    """
    if not words or len(words) > max_words or words[-1].text.rstrip("\"')").endswith("?"):
        return None
    said = bare(words)
    if not said or is_refusal(words) or said in _NO_VALUES:
        return None
    if facts.kind is ParamKind.TEXT:
        dictated = normal_form(facts.ask)[:1] == ("what",)
        value = words if dictated else _named(facts.ask, words)
        return " ".join(word.text for word in value).strip(" .,;:!?") or None
    if facts.kind is ParamKind.CHOICE:
        named = [choice for choice in facts.choices if ground_choice(choice, words) is not None]
        return named[0] if len(named) == 1 else None
    if facts.kind in (ParamKind.NUMBER, ParamKind.INTEGER):
        number = last_number(words)
        if number is not None:
            return int(number) if number.is_integer() else number
    return None


def _named(question: str, words: Sequence[Word]) -> Sequence[Word]:
    """The words of an answer that are the name asked for; none when the answer is a clause of its own."""
    said = [normal_form(word.text) for word in words]
    frame = _FRAME.union(normal_form(question)) - {"i"}
    start, end = 0, len(words)
    while start < end and (set(said[start]) <= frame or _reports(said, start)):
        start += 1
    while end > start and set(said[end - 1]) <= _POLITE:
        end -= 1
    if start == end:
        return words
    clause = any(text in _IN_CLAUSES for part in said[start:end] for text in part)
    return () if clause else words[start:end]


def _reports(said: Sequence[tuple[str, ...]], at: int) -> bool:
    """ "I said Ben"."""
    return said[at] == ("i",) and at + 1 < len(said) and said[at + 1] in (("said",), ("mean",), ("meant",))
