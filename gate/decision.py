"""``decide``: the one place where a proposal and the evidence become an action. Pure, synchronous, total.

The rule is VGBench's: *Tool if and only if the same authorised source spoke, near-field*. Here it is a veto over
whatever a model proposes, tightened by risk, and joined by *Pardon?*'s rule that words which did not come through are
asked for again, not guessed. Comparisons are written so that NaN and None fail them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from gate.actions import (
    ActionKind,
    AnswerAction,
    MuteAction,
    PardonAction,
    Parsed,
    ToolAction,
    Unparseable,
)
from gate.catalogue import CallFault, Catalogue, ParamFacts, ParamKind, Risk, ToolCall, ToolFacts
from gate.evidence import DamageStretch, DistanceVerdict, Evidence, Modality, SpeakerVerdict, Word
from gate.grants import Grant, _mint
from gate.grounding import ground_choice, ground_number, ground_text, names_choice
from gate.phrasing import is_question_about_state
from gate.reasons import Reason
from gate.thresholds import RiskThresholds, Thresholds


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the policy proposed, or how it failed.

    Attributes:
        parsed: the parsed output; None when there is none.
        raw: the policy's text.
        failure: why there is no output (``POLICY_FAILED``, ``POLICY_TIMEOUT``, ``EAR_FAILED``, ``NO_SPEECH``,
            ``CANCELLED``), or None.
        detail: one line for the log.
    """

    parsed: Parsed | None
    raw: str = ""
    failure: Reason | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What the gate must know of the session.

    Attributes:
        has_owner: whether an owner exists (enrolled, or the session's initiator).
        now_sample: the stream position at which the decision is made.
        tools_off: why tools are switched off, or empty.
        question: True when the operator asked a question beside the audio (EAR): then the audio is material, and an
            answer needs no acoustic licence. A tool still does.
    """

    has_owner: bool
    now_sample: int
    tools_off: str = ""
    question: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """One action with its reason and what it rests on.

    Attributes:
        action: what is done.
        reason: why.
        detail: what in particular, one line ("cosine 0.31, needs 0.52").
        call: the call, with a Tool decision, or the one that a Pardon asks about.
        text: what is said, with an Answer or a Pardon.
        missing_param: the parameter that a Pardon asks for, or None.
        grant: the single-use permission; set with a Tool decision and never otherwise.
        evidence: what the decision rests on.
        proposal: what the policy wanted.
    """

    action: ActionKind
    reason: Reason
    evidence: Evidence
    proposal: Proposal
    detail: str = ""
    call: ToolCall | None = None
    text: str = ""
    missing_param: str | None = None
    grant: Grant | None = field(default=None, repr=False)


_ROUNDING = 1e-3
_RETRY_NEARER = "Please say it again, closer to me."
_RETRY = "Please say it again."


def _at_least(value: float | None, bound: float) -> bool:
    """Whether a score is known, and high enough. A score above 1 is no score: cosines and probabilities end there."""
    return value is not None and math.isfinite(bound) and bound <= value <= 1.0 + _ROUNDING


@dataclass(frozen=True, slots=True)
class _Case:
    """One decision in the making: the arguments of ``decide`` and the ways to end."""

    proposal: Proposal
    evidence: Evidence
    session: SessionFacts
    thresholds: Thresholds
    catalogue: Catalogue

    def mute(self, reason: Reason, detail: str = "", call: ToolCall | None = None) -> Decision:
        return Decision(ActionKind.MUTE, reason, self.evidence, self.proposal, detail, call)

    def pardon(
        self, reason: Reason, question: str, detail: str = "", call: ToolCall | None = None, param: str | None = None
    ) -> Decision:
        text = f"Pardon? {question}".strip()
        return Decision(ActionKind.PARDON, reason, self.evidence, self.proposal, detail, call, text, param)

    # Who and how near ---------------------------------------------------------------------------------------------

    def stranger(self) -> tuple[Reason, str] | None:
        """Why nothing may be said or done for this source at all, or None."""
        evidence = self.evidence
        if evidence.modality is Modality.TEXT:
            return None
        if evidence.own_voice:
            return Reason.OWN_VOICE, ""
        if evidence.proximity.verdict is DistanceVerdict.FAR:
            return Reason.FAR, self._distance_detail()
        if evidence.speaker.verdict is SpeakerVerdict.OTHER:
            return Reason.OTHER_SPEAKER, self._speaker_detail()
        if evidence.proximity.verdict is DistanceVerdict.UNSURE and evidence.speaker.verdict is SpeakerVerdict.UNSURE:
            return Reason.SOURCE_UNKNOWN, f"{self._speaker_detail()}; {self._distance_detail()}"
        if not self.session.has_owner:
            return Reason.NO_OWNER, ""
        return None

    def doubt_about_source(self, demands: RiskThresholds, call: ToolCall) -> Decision | None:
        """A Pardon when the source is probably right but not surely enough for this risk, or None."""
        evidence = self.evidence
        if evidence.modality is Modality.TEXT:
            return None
        speaker, near = evidence.speaker, evidence.proximity
        for name, span in (("speaker", speaker.span), ("distance", near.span)):
            if not span.overlap(evidence.span):
                reason = Reason.SPEAKER_UNSURE if name == "speaker" else Reason.DISTANCE_UNSURE
                return self.pardon(reason, _RETRY, f"the {name} was measured on other samples", call)
        if speaker.verdict is not SpeakerVerdict.OWNER or not _at_least(
            speaker.score, speaker.owner_at + demands.owner_margin
        ):
            return self.pardon(Reason.SPEAKER_UNSURE, _RETRY, self._speaker_detail(demands.owner_margin), call)
        if near.verdict is not DistanceVerdict.NEAR or not _at_least(
            near.near_probability, max(near.near_at, demands.near_probability_at_least)
        ):
            return self.pardon(Reason.DISTANCE_UNSURE, _RETRY_NEARER, self._distance_detail(), call)
        if evidence.overlapped:
            return self.pardon(Reason.OVERLAPPED, _RETRY, "", call)
        if evidence.source_gap:
            return self.pardon(Reason.SOURCE_GAP, _RETRY, "", call)
        return None

    def _speaker_detail(self, margin: float = 0.0) -> str:
        speaker = self.evidence.speaker
        score = "no score" if speaker.score is None else f"score {speaker.score:.2f}"
        note = f" ({speaker.note})" if speaker.note else ""
        return f"speaker {speaker.verdict}: {score}, owner from {speaker.owner_at + margin:.2f}{note}"

    def _distance_detail(self) -> str:
        near = self.evidence.proximity
        score = "no score" if near.near_probability is None else f"near {near.near_probability:.2f}"
        note = f" ({near.note})" if near.note else ""
        return f"distance {near.verdict}: {score}, near from {near.near_at:.2f}{note}"

    # What was said ------------------------------------------------------------------------------------------------

    def fault_of_call(self, call: ToolCall) -> Decision | None:
        """A Pardon when the call does not fit its tool, or None."""
        problems = self.catalogue.check(call)
        if not problems:
            return None
        problem = problems[0]
        if problem.fault is CallFault.UNKNOWN_TOOL:
            return self.pardon(Reason.UNKNOWN_TOOL, "I cannot do that. What should I do?", problem.detail, call)
        reason = Reason.ARGUMENT_MISSING if problem.fault is CallFault.MISSING_PARAM else Reason.ARGUMENT_REFUSED
        tool = self.catalogue.find(call.name)
        facts = tool.param(problem.param) if tool and problem.param else None
        if reason is Reason.ARGUMENT_MISSING and self.evidence.damage:
            reason = Reason.ARGUMENT_MASKED
        if facts is None:
            return self.pardon(reason, _RETRY, problem.detail, call)
        return self._ask(reason, facts, call, problem.detail)

    def doubt_about_words(self, tool: ToolFacts, call: ToolCall, demands: RiskThresholds) -> Decision | None:
        """A Pardon when an argument was not heard, was covered, or was heard badly, or None."""
        evidence = self.evidence
        if not evidence.words:
            return self.pardon(Reason.MISHEARD, _RETRY, "a call without a single heard word", call)
        carried = False
        for facts in tool.params:
            if facts.name not in call.params or call.params[facts.name] is None:
                continue
            carriers = self._carriers(facts, call.params[facts.name])
            if carriers is None:
                return self._ask(Reason.ARGUMENT_UNHEARD, facts, call, f"{facts.name} is in no heard word")
            if not carriers and evidence.damage:
                # Said in other words, or covered by the damage and guessed: nobody can tell.
                return self._ask(Reason.ARGUMENT_MASKED, facts, call, f"{facts.name} may lie under damage")
            for word in carriers:
                carried = True
                if (stretch := self._damage_at(word)) is not None:
                    return self._ask(Reason.ARGUMENT_MASKED, facts, call, _where(stretch))
                if not _at_least(word.probability, demands.word_probability_at_least):
                    return self._ask(Reason.ARGUMENT_UNCLEAR, facts, call, _how_heard(word))
        # A call that no argument ties to certain words rests on all of them.
        for word in () if carried else evidence.words:
            if (stretch := self._damage_at(word)) is not None:
                return self.pardon(Reason.COMMAND_DAMAGED, _RETRY, _where(stretch), call)
            if not _at_least(word.probability, demands.word_probability_at_least):
                return self.pardon(Reason.MISHEARD, _RETRY, _how_heard(word), call)
        if evidence.modality is Modality.TEXT:
            return None
        if evidence.damage is None:
            return self.pardon(Reason.COMMAND_DAMAGED, _RETRY, "damage could not be measured", call)
        if not demands.refuse_any_damage:
            return None
        for stretch in evidence.damage:
            if stretch.span.overlap(evidence.span):
                return self.pardon(Reason.COMMAND_DAMAGED, _RETRY, _where(stretch), call)
        return None

    def _damage_at(self, word: Word) -> DamageStretch | None:
        """The damage on a word or within reach of it, or None."""
        reach = self.thresholds.mask_reach_samples
        for stretch in self.evidence.damage or ():
            if (
                stretch.span.start_sample - reach < word.span.end_sample
                and word.span.start_sample < stretch.span.end_sample + reach
            ):
                return stretch
        return None

    def _ask(self, reason: Reason, facts: ParamFacts, call: ToolCall, detail: str) -> Decision:
        # The doubtful value must not survive in the pending call, or a later merge would execute it.
        kept = ToolCall(call.name, {key: value for key, value in call.params.items() if key != facts.name})
        return self.pardon(reason, facts.ask, detail, kept, facts.name)

    def _carriers(self, facts: ParamFacts, value: object) -> tuple[Word, ...] | None:
        """The words that carry an argument; empty when words need not spell it; None when it was not heard."""
        turns = self.evidence.words_by_turn
        match facts.kind:
            case ParamKind.BOOLEAN:
                return ()
            case ParamKind.TEXT if isinstance(value, str):
                return _first_found(ground_text(value, words) for words in turns)
            case ParamKind.NUMBER | ParamKind.INTEGER if isinstance(value, int | float) and not isinstance(value, bool):
                try:
                    number = float(value)
                except OverflowError:
                    return None
                return _first_found(ground_number(number, words) for words in turns)
            case ParamKind.CHOICE if isinstance(value, str):
                named = _first_found(ground_choice(value, words) for words in turns)
                if named is not None:
                    return named
                # Named but doubtful, or another named in its place: then it was not said in other words.
                contradicted = any(names_choice(choice, words) for choice in facts.choices for words in turns)
                return None if contradicted else ()
        return None


def _where(stretch: DamageStretch) -> str:
    return f"{stretch.kind} at {stretch.span.start_s:.2f}-{stretch.span.end_s:.2f} s"


def _how_heard(word: Word) -> str:
    return f"{word.text!r} heard with probability {word.probability:.2f}"


def _first_found(runs: Iterable[tuple[Word, ...] | None]) -> tuple[Word, ...] | None:
    return next((run for run in runs if run is not None), None)


def decide(
    proposal: Proposal,
    evidence: Evidence,
    session: SessionFacts,
    thresholds: Thresholds,
    catalogue: Catalogue,
) -> Decision:
    """Decide what is done about one turn.

    Args:
        proposal: what the policy wrote, parsed, or how it failed.
        evidence: what the ears measured, on the very samples that the proposal rests on.
        session: owner, stream position, tools switch.
        thresholds: how sure is sure enough, by risk.
        catalogue: the tools that exist.

    Returns:
        The decision. Only a Tool decision carries a grant. Raises nothing for any combination of valid arguments.
    """
    case = _Case(proposal, evidence, session, thresholds, catalogue)
    if proposal.failure is not None or proposal.parsed is None:
        failure = proposal.failure or Reason.POLICY_FAILED
        return _after_failure(case, failure)
    parsed = proposal.parsed
    stranger = case.stranger()
    if isinstance(parsed, MuteAction):
        # A policy that mutes a stranger only agrees with the veto; the veto is the better explanation.
        return case.mute(*(stranger or (Reason.NOT_ADDRESSED, "")))
    if stranger is not None and not (session.question and isinstance(parsed, AnswerAction | PardonAction)):
        return case.mute(*stranger, call=parsed.call if isinstance(parsed, ToolAction) else None)
    match parsed:
        case Unparseable():
            return case.pardon(Reason.UNPARSEABLE, _RETRY, f"{parsed.fault}: {parsed.detail}")
        case AnswerAction():
            return Decision(ActionKind.ANSWER, Reason.ADDRESSED_QUESTION, evidence, proposal, text=parsed.text)
        case PardonAction():
            return _pardon_as_proposed(case, parsed)
        case ToolAction(call):
            return _decide_tool(case, call)


def _pardon_as_proposed(case: _Case, action: PardonAction) -> Decision:
    """The policy's question. The one that asks for a parameter of a tool binds to that call: its answer can fill it."""
    asked = " ".join(action.question.split()).casefold()
    gaps = [
        (tool, param)
        for tool in case.catalogue.all()
        for param in tool.params
        if " ".join(param.ask.split()).casefold() == asked
    ]
    if len(gaps) != 1:
        return case.pardon(Reason.MISHEARD, action.question)
    tool, param = gaps[0]
    reason = Reason.ARGUMENT_MASKED if case.evidence.damage else Reason.ARGUMENT_MISSING
    return case.pardon(reason, action.question, "", ToolCall(tool.name, {}), param.name)


def _after_failure(case: _Case, failure: Reason) -> Decision:
    """No proposal: silence, or a Pardon to an owner who surely spoke to the assistant near by."""
    silent = (Reason.NO_SPEECH, Reason.CANCELLED, Reason.EAR_FAILED, Reason.STALE)
    if failure in silent or case.stranger() is not None:
        return case.mute(failure, case.proposal.detail)
    return case.pardon(failure, _RETRY, case.proposal.detail)


def _decide_tool(case: _Case, call: ToolCall) -> Decision:
    if case.session.tools_off:
        return case.mute(Reason.TOOLS_OFF, case.session.tools_off, call)
    expires_sample = case.evidence.span.end_sample + case.thresholds.grant_life_samples
    if not case.session.now_sample <= expires_sample:
        return case.mute(Reason.STALE, f"the turn ended {case.evidence.span.end_s:.1f} s into the stream", call)
    faulty = case.fault_of_call(call)
    tool = case.catalogue.find(call.name)
    # The least demanding class stands in for a tool that does not exist: the call ends in a Pardon either way.
    demands = case.thresholds.by_risk[tool.risk if tool else min(Risk)]
    doubt = case.doubt_about_source(demands, call)
    if doubt is not None:
        return doubt
    if is_question_about_state(case.evidence.words_by_turn[0]):
        return case.pardon(Reason.QUESTION, "What should I do?", f"{call.name} changes something", call)
    if faulty is not None:
        return faulty
    assert tool is not None, "a call without faults names a tool"
    doubt = case.doubt_about_words(tool, call, demands)
    if doubt is not None:
        return doubt
    evidence = case.evidence
    try:
        grant = _mint(evidence.turn_id, call, evidence.span, expires_sample)
    except ValueError as error:
        return case.pardon(Reason.ARGUMENT_REFUSED, _RETRY, str(error), call)
    reason = Reason.TYPED if evidence.modality is Modality.TEXT else Reason.LICENSED
    return Decision(ActionKind.TOOL, reason, evidence, case.proposal, call=call, grant=grant)
