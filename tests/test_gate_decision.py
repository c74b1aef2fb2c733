"""``decide``: Tool if and only if the owner said it, near by, in words that came through. All else runs nothing."""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.actions import ActionKind, AnswerAction, MuteAction, PardonAction, Parsed, ParseFault, ToolAction, Unparseable
from gate.catalogue import Risk, ToolCall
from gate.decision import Decision, Proposal
from gate.evidence import DamageKind, DistanceVerdict, Evidence, Modality, SpeakerVerdict, Word
from gate.grammar import parse, render
from gate.grants import call_digest
from gate.reasons import Reason
from gate.span import SAMPLE_RATE_HZ, Span
from gate.thresholds import RiskThresholds, Thresholds
from tests.gate_builders import (
    LAMP,
    PAY_PRIYA,
    STEP_SAMPLES,
    THRESHOLDS,
    TRANSFER,
    WORD_SAMPLES,
    ToolBox,
    call,
    damage,
    evidence,
    judge,
    proximity,
    speaker,
    tool,
    words,
)

FOR_EACH_RISK = {
    Risk.LOW: ("turn off the kitchen lamp", call("lamp", device="kitchen lamp", action="turn_off")),
    Risk.MEDIUM: ("text Priya that I'm late", call("message", recipient="Priya", body="I'm late")),
    Risk.HIGH: ("send 60 dollars to Priya", PAY_PRIYA),
}
UNPARSEABLE = Unparseable(ParseFault.TRUNCATED, "cut off")
MIDDLE = {SpeakerVerdict.OWNER: 0.8, SpeakerVerdict.UNSURE: 0.4, SpeakerVerdict.OTHER: 0.1}
NEARNESS = {DistanceVerdict.NEAR: 0.95, DistanceVerdict.UNSURE: 0.5, DistanceVerdict.FAR: 0.1}


def sound(decision: Decision) -> Decision:
    """The decision, after a look at what must hold of every decision."""
    assert (decision.grant is not None) == (decision.action is ActionKind.TOOL)
    if decision.grant is not None:
        assert decision.call is not None
        assert decision.grant.digest == call_digest(decision.call)
        assert decision.grant.turn_id == decision.evidence.turn_id
    spoken = decision.action in (ActionKind.ANSWER, ActionKind.PARDON)
    assert bool(decision.text) == spoken
    if decision.action is ActionKind.PARDON:
        assert decision.text.startswith("Pardon?")
    assert decision.missing_param is None or decision.action is ActionKind.PARDON
    return decision


# The whole table --------------------------------------------------------------------------------------------------


def rule(
    parsed: Parsed,
    modality: Modality,
    who: SpeakerVerdict,
    where: DistanceVerdict,
    own_voice: bool,
    doubt: bool,
    off: bool,
) -> ActionKind:
    """The rule of the gate, said once more and differently."""
    if isinstance(parsed, MuteAction):
        return ActionKind.MUTE
    licensed = who is SpeakerVerdict.OWNER and where is DistanceVerdict.NEAR and not doubt and not own_voice
    if modality is Modality.AUDIO:
        known_stranger = who is SpeakerVerdict.OTHER or where is DistanceVerdict.FAR or own_voice
        if known_stranger or (who is SpeakerVerdict.UNSURE and where is DistanceVerdict.UNSURE):
            return ActionKind.MUTE
    if isinstance(parsed, AnswerAction):
        return ActionKind.ANSWER
    if not isinstance(parsed, ToolAction):
        return ActionKind.PARDON
    if off:
        return ActionKind.MUTE
    return ActionKind.TOOL if licensed or modality is Modality.TEXT else ActionKind.PARDON


@pytest.mark.parametrize("risk", list(Risk))
@pytest.mark.parametrize("modality", list(Modality))
def test_the_whole_table_of_source_and_proposal(risk: Risk, modality: Modality) -> None:
    said, wanted = FOR_EACH_RISK[risk]
    proposals: list[Parsed] = [
        MuteAction(),
        ToolAction(wanted),
        AnswerAction("Noon."),
        PardonAction("Who?"),
        UNPARSEABLE,
    ]
    switches = itertools.product((False, True), (False, True, None), (False, True), ("", "no broker"))
    for own_voice, overlapped, gap, off in switches:
        for who, where, parsed in itertools.product(SpeakerVerdict, DistanceVerdict, proposals):
            base = evidence(said, modality=modality, own_voice=own_voice, overlapped=overlapped, source_gap=gap)
            on = replace(base, speaker=speaker(who, MIDDLE[who]), proximity=proximity(where, NEARNESS[where]))
            decision = sound(judge(parsed, on, tools_off=off))
            expected = rule(parsed, modality, who, where, own_voice, bool(overlapped) or gap, bool(off))
            assert decision.action is expected, (who, where, parsed, own_voice, overlapped, gap, off)
            assert decision.evidence is on


@pytest.mark.parametrize("risk", list(Risk))
def test_the_owner_near_by_in_clear_words_runs_the_call(risk: Risk) -> None:
    said, wanted = FOR_EACH_RISK[risk]
    decision = sound(judge(ToolAction(wanted), evidence(said)))
    assert (decision.action, decision.reason) == (ActionKind.TOOL, Reason.LICENSED)
    assert decision.call == wanted
    assert decision.grant is not None
    assert decision.grant.span == decision.evidence.span


def test_what_the_operator_types_runs_without_a_voice() -> None:
    span = Span(500, 500)
    typed = replace(
        evidence([Word(part, span, 1.0) for part in ["send", "60", "dollars", "to", "Priya"]], modality=Modality.TEXT),
        span=span,
        speaker=speaker(SpeakerVerdict.UNSURE, None, span),
        proximity=proximity(DistanceVerdict.UNSURE, None, span),
    )
    decision = sound(judge(on=typed, has_owner=False))
    assert (decision.action, decision.reason) == (ActionKind.TOOL, Reason.TYPED)


def test_typed_words_do_not_license_an_invented_amount() -> None:
    decision = sound(judge(tool("transfer", recipient="Priya", amount=600), evidence(modality=Modality.TEXT)))
    assert (decision.action, decision.reason) == (ActionKind.PARDON, Reason.ARGUMENT_UNHEARD)


# Reasons ----------------------------------------------------------------------------------------------------------

_OTHER = speaker(SpeakerVerdict.OTHER, 0.1)
_UNSURE = speaker(SpeakerVerdict.UNSURE, None)
_FAR = proximity(DistanceVerdict.FAR, 0.1)
_NEARLY = proximity(DistanceVerdict.UNSURE, 0.5)


@pytest.mark.parametrize(
    ("on", "reason"),
    [
        (evidence(by=_OTHER), Reason.OTHER_SPEAKER),
        (evidence(at=_FAR), Reason.FAR),
        (evidence(by=_OTHER, at=_FAR), Reason.FAR),
        (evidence(by=_UNSURE, at=_FAR), Reason.FAR),
        (evidence(by=_OTHER, at=_NEARLY), Reason.OTHER_SPEAKER),
        (evidence(by=_UNSURE, at=_NEARLY), Reason.SOURCE_UNKNOWN),
        (evidence(own_voice=True), Reason.OWN_VOICE),
        (evidence(own_voice=True, by=_OTHER, at=_FAR), Reason.OWN_VOICE),
    ],
)
@pytest.mark.parametrize(
    "parsed",
    [ToolAction(PAY_PRIYA), AnswerAction("Noon."), PardonAction("Who?"), UNPARSEABLE],
    ids=lambda p: type(p).__name__,
)
def test_a_bystanders_words_get_silence_with_the_reason(on: Evidence, reason: Reason, parsed: Parsed) -> None:
    decision = sound(judge(parsed, on))
    assert (decision.action, decision.reason) == (ActionKind.MUTE, reason)
    assert (decision.call is not None) == isinstance(parsed, ToolAction)


@pytest.mark.parametrize(
    ("on", "reason"),
    [
        (evidence(by=_UNSURE), Reason.SPEAKER_UNSURE),
        (evidence(at=_NEARLY), Reason.DISTANCE_UNSURE),
        (evidence(overlapped=True), Reason.OVERLAPPED),
        (evidence(source_gap=True), Reason.SOURCE_GAP),
    ],
)
def test_a_call_in_doubt_about_its_source_is_asked_again(on: Evidence, reason: Reason) -> None:
    decision = sound(judge(on=on))
    assert (decision.action, decision.reason, decision.missing_param) == (ActionKind.PARDON, reason, None)


def test_without_an_owner_nobody_is_obeyed_and_nobody_is_the_owner_by_default() -> None:
    for parsed in (ToolAction(PAY_PRIYA), AnswerAction("Noon."), PardonAction("Who?"), UNPARSEABLE):
        decision = sound(judge(parsed, has_owner=False))
        assert (decision.action, decision.reason) == (ActionKind.MUTE, Reason.NO_OWNER)


def test_tools_switched_off_run_nothing_but_answers_go_on() -> None:
    decision = sound(judge(tools_off="nobody is enrolled"))
    assert (decision.action, decision.reason, decision.detail) == (
        ActionKind.MUTE,
        Reason.TOOLS_OFF,
        "nobody is enrolled",
    )
    assert judge(AnswerAction("Noon."), tools_off="nobody is enrolled").action is ActionKind.ANSWER


@pytest.mark.parametrize("failure", [None, *Reason])
@pytest.mark.parametrize("parsed", [None, ToolAction(PAY_PRIYA)])
def test_a_failed_policy_runs_nothing_even_if_it_left_a_call_behind(
    failure: Reason | None, parsed: Parsed | None
) -> None:
    if failure is None and parsed is not None:
        return
    proposal = Proposal(parsed, failure=failure, detail="why")
    decision = sound(judge(proposal))
    assert decision.action in (ActionKind.MUTE, ActionKind.PARDON)
    assert decision.reason is (failure or Reason.POLICY_FAILED)
    assert decision.detail == "why"
    stranger = sound(judge(proposal, evidence(by=_OTHER)))
    assert (stranger.action, stranger.reason) == (ActionKind.MUTE, failure or Reason.POLICY_FAILED)


@pytest.mark.parametrize("failure", [Reason.NO_SPEECH, Reason.CANCELLED, Reason.EAR_FAILED, Reason.STALE])
def test_what_was_no_speech_or_is_over_is_not_asked_again(failure: Reason) -> None:
    assert judge(Proposal(None, failure=failure)).action is ActionKind.MUTE


@pytest.mark.parametrize("failure", [Reason.POLICY_FAILED, Reason.POLICY_TIMEOUT])
def test_a_model_that_failed_the_owner_asks_her_again(failure: Reason) -> None:
    assert judge(Proposal(None, failure=failure)).action is ActionKind.PARDON


def test_an_answer_and_a_pardon_pass_through_for_the_owner() -> None:
    answer = sound(judge(AnswerAction("Noon.")))
    assert (answer.action, answer.reason, answer.text) == (ActionKind.ANSWER, Reason.ADDRESSED_QUESTION, "Noon.")
    pardon = sound(judge(PardonAction("Which one?")))
    assert (pardon.action, pardon.reason, pardon.text) == (ActionKind.PARDON, Reason.MISHEARD, "Pardon? Which one?")
    assert sound(judge(PardonAction(""))).text == "Pardon?"


def test_output_outside_the_grammar_is_not_a_correct_mute() -> None:
    decision = sound(judge(UNPARSEABLE))
    assert (decision.action, decision.reason) == (ActionKind.PARDON, Reason.UNPARSEABLE)
    assert "truncated" in decision.detail


def test_a_question_about_a_recording_is_answered_whoever_speaks_in_it_but_still_runs_nothing() -> None:
    for on in (evidence(by=_OTHER), evidence(at=_FAR), evidence(own_voice=True), evidence(by=_UNSURE, at=_NEARLY)):
        assert sound(judge(AnswerAction("Steak."), on, question=True)).action is ActionKind.ANSWER
        assert sound(judge(PardonAction("What food?"), on, question=True)).action is ActionKind.PARDON
        assert sound(judge(None, on, question=True)).action is ActionKind.MUTE
        assert sound(judge(UNPARSEABLE, on, question=True)).action is ActionKind.MUTE


def test_a_decision_later_than_a_grants_life_is_stale_so_an_old_command_never_runs() -> None:
    end = evidence().span.end_sample
    life = THRESHOLDS.grant_life_samples
    on_time = sound(judge(now_sample=end + life))
    assert on_time.grant is not None
    assert on_time.grant.expires_sample == end + life
    late = sound(judge(now_sample=end + life + 1))
    assert (late.action, late.reason) == (ActionKind.MUTE, Reason.STALE)


# Scores -----------------------------------------------------------------------------------------------------------

_BAD = [None, math.nan, math.inf, -math.inf, 1.5, -1.0, 0.0]


@pytest.mark.parametrize("score", _BAD)
def test_a_speaker_score_that_is_no_score_never_runs_a_tool_whatever_the_verdict(score: float | None) -> None:
    decision = sound(judge(on=evidence(by=speaker(SpeakerVerdict.OWNER, score))))
    assert (decision.action, decision.reason) == (ActionKind.PARDON, Reason.SPEAKER_UNSURE)


@pytest.mark.parametrize("probability", _BAD)
def test_a_nearness_that_is_no_probability_never_runs_a_tool_whatever_the_verdict(probability: float | None) -> None:
    decision = sound(judge(on=evidence(at=proximity(DistanceVerdict.NEAR, probability))))
    assert (decision.action, decision.reason) == (ActionKind.PARDON, Reason.DISTANCE_UNSURE)


@pytest.mark.parametrize("bound", [math.nan, math.inf])
def test_a_threshold_that_is_no_number_lets_nobody_through(bound: float) -> None:
    assert judge(on=evidence(by=speaker(owner_at=bound))).action is ActionKind.PARDON
    assert judge(on=evidence(by=speaker(owner_at=-math.inf))).action is ActionKind.PARDON
    assert judge(on=evidence(at=proximity(near_at=bound))).action is ActionKind.PARDON


def test_a_lax_ear_does_not_lower_what_the_risk_demands() -> None:
    assert judge(on=evidence(at=proximity(near_probability=0.69, near_at=0.1))).action is ActionKind.PARDON
    assert judge(on=evidence(at=proximity(near_probability=0.7, near_at=0.1))).action is ActionKind.TOOL


@pytest.mark.parametrize("probability", [math.nan, math.inf, -math.inf, 1.5, 0.0, 0.39])
def test_a_word_heard_badly_is_asked_for_by_name(probability: float) -> None:
    heard = words("send 60 dollars to Priya")
    on = evidence([*heard[:1], replace(heard[1], probability=probability), *heard[2:]])
    decision = sound(judge(on=on))
    assert (decision.action, decision.reason) == (ActionKind.PARDON, Reason.ARGUMENT_UNCLEAR)
    assert (decision.missing_param, decision.text) == ("amount", "Pardon? How much?")
    assert decision.call == call("transfer", recipient="Priya")


def test_a_word_that_carries_no_argument_may_be_unclear() -> None:
    heard = words("send 60 dollars to Priya")
    on = evidence([replace(heard[0], probability=0.01), *heard[1:3], replace(heard[3], probability=0.01), heard[4]])
    assert judge(on=on).action is ActionKind.TOOL


@pytest.mark.parametrize(
    ("risk", "score", "near", "word"),
    [
        (Risk.LOW, 0.5, 0.6, 0.2),
        (Risk.MEDIUM, 0.5, 0.6, 0.3),
        (Risk.HIGH, 0.53, 0.7, 0.4),
    ],
)
def test_each_risk_runs_at_its_own_bounds_and_not_below(risk: Risk, score: float, near: float, word: float) -> None:
    said, wanted = FOR_EACH_RISK[risk]

    def action(score: float, near: float, word: float) -> ActionKind:
        on = evidence(words(said, probability=word), by=speaker(score=score), at=proximity(near_probability=near))
        return sound(judge(ToolAction(wanted), on)).action

    assert action(score, near, word) is ActionKind.TOOL
    assert action(score - 0.001, near, word) is ActionKind.PARDON
    assert action(score, near - 0.001, word) is ActionKind.PARDON
    assert action(score, near, word - 0.001) is ActionKind.PARDON


# Evidence on the right samples ------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [Span(10**6, 10**6 + 16_000), Span(0, 0)])
def test_a_voice_or_distance_measured_on_other_samples_licenses_nothing(where: Span) -> None:
    by = sound(judge(on=evidence(by=speaker(span=where))))
    assert (by.action, by.reason) == (ActionKind.PARDON, Reason.SPEAKER_UNSURE)
    at = sound(judge(on=evidence(at=proximity(span=where))))
    assert (at.action, at.reason) == (ActionKind.PARDON, Reason.DISTANCE_UNSURE)


# Words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modality", list(Modality))
@pytest.mark.parametrize("wanted", [call("panic"), PAY_PRIYA])
def test_a_call_without_a_single_heard_word_never_runs(wanted: ToolCall, modality: Modality) -> None:
    decision = sound(judge(ToolAction(wanted), evidence([], modality=modality)))
    assert (decision.action, decision.reason) == (ActionKind.PARDON, Reason.MISHEARD)


@pytest.mark.parametrize(
    ("wanted", "param", "question"),
    [
        (call("transfer", recipient="Priya", amount=600), "amount", "How much?"),
        (call("transfer", recipient="Priya", amount=6), "amount", "How much?"),
        (call("transfer", recipient="Sam", amount=60), "recipient", "Who should I pay?"),
        (call("transfer", recipient="Priya", amount=60, currency="euros"), "currency", "In which currency?"),
        (call("transfer", recipient="", amount=60), "recipient", "Who should I pay?"),
        (call("transfer", recipient="Priya [?]", amount=60), "recipient", "Who should I pay?"),
        (call("transfer", recipient="Priya", amount=10**400), "amount", "How much?"),
        (call("transfer", recipient="Priya", amount=math.nan), "amount", "How much?"),
        (call("transfer", recipient="Priya", amount=math.inf), "amount", "How much?"),
    ],
)
def test_an_invented_value_is_asked_for_by_name_and_not_kept(wanted: ToolCall, param: str, question: str) -> None:
    decision = sound(judge(ToolAction(wanted)))
    assert (decision.action, decision.reason) == (ActionKind.PARDON, Reason.ARGUMENT_UNHEARD)
    assert (decision.missing_param, decision.text) == (param, f"Pardon? {question}")
    assert decision.call is not None
    assert param not in decision.call.params


def test_the_amount_of_a_longer_number_is_not_a_part_of_it() -> None:
    on = evidence("send two hundred fifty dollars to Priya")
    assert judge(tool("transfer", recipient="Priya", amount=250), on).action is ActionKind.TOOL
    for part in (50, 200, 2, 100):
        assert judge(tool("transfer", recipient="Priya", amount=part), on).action is ActionKind.PARDON


def test_a_number_where_text_is_due_and_the_reverse_carry_nothing() -> None:
    box = ToolBox((replace(TRANSFER, name="loose"),))

    class Lenient(ToolBox):
        def check(self, call: ToolCall) -> tuple[()]:
            return ()

    lenient = Lenient(box.tools)
    for params in (
        {"recipient": 60, "amount": 60},
        {"recipient": "Priya", "amount": "60"},
        {"recipient": "Priya", "amount": True},
    ):
        decision = sound(judge(tool("loose", **params), catalogue=lenient))
        assert (decision.action, decision.reason) == (ActionKind.PARDON, Reason.ARGUMENT_UNHEARD)


def test_a_choice_that_json_cannot_carry_is_refused_and_not_raised() -> None:
    class Lenient(ToolBox):
        def check(self, call: ToolCall) -> tuple[()]:
            return ()

    decision = sound(
        judge(
            tool("lamp", device="lamp", action="dim", fade=math.nan), evidence("dim lamp"), catalogue=Lenient((LAMP,))
        )
    )
    assert (decision.action, decision.reason) == (ActionKind.PARDON, Reason.ARGUMENT_REFUSED)


@pytest.mark.parametrize(
    ("wanted", "reason", "param"),
    [
        (call("Transfer", recipient="Priya", amount=60), Reason.UNKNOWN_TOOL, None),
        (call("transfer ", recipient="Priya", amount=60), Reason.UNKNOWN_TOOL, None),
        (call("tr\u0430nsfer", recipient="Priya", amount=60), Reason.UNKNOWN_TOOL, None),
        (call("__class__"), Reason.UNKNOWN_TOOL, None),
        (call("os.system"), Reason.UNKNOWN_TOOL, None),
        (call("transfer", amount=60), Reason.ARGUMENT_MISSING, "recipient"),
        (call("transfer", recipient="Priya"), Reason.ARGUMENT_MISSING, "amount"),
        (call("transfer", recipient="Priya", amount="60"), Reason.ARGUMENT_REFUSED, "amount"),
        (call("transfer", recipient="Priya", amount=None), Reason.ARGUMENT_REFUSED, "amount"),
        (call("transfer", recipient="Priya", amount=60, note="x"), Reason.ARGUMENT_REFUSED, None),
    ],
)
def test_a_call_that_does_not_fit_its_tool_is_asked_again(wanted: ToolCall, reason: Reason, param: str | None) -> None:
    decision = sound(judge(ToolAction(wanted)))
    assert (decision.action, decision.reason, decision.missing_param) == (ActionKind.PARDON, reason, param)
    assert decision.call is not None
    if param is not None:
        assert param not in decision.call.params


def test_a_missing_argument_under_damage_was_masked() -> None:
    decision = sound(judge(tool("transfer", recipient="Priya"), evidence("send to Priya", damaged=(damage(0, 100),))))
    assert (decision.reason, decision.missing_param) == (Reason.ARGUMENT_MASKED, "amount")


@pytest.mark.parametrize(
    ("said", "runs"),
    [
        ("Send 60 dollars to Priya?", True),
        ("Can you send 60 dollars to Priya?", True),
        ("Hey, could you send 60 dollars to Priya, please?", True),
        ("When she is here, would you send 60 dollars to Priya?", True),
        ("What about sending 60 dollars to Priya?", True),
        ("Is she here? Send 60 dollars to Priya.", True),
        ("Did I send 60 dollars to Priya?", False),
        ("Did I send 60 dollars to Priya? Did I?", False),
        ("Hey, is 60 dollars to Priya sent?", False),
        ("Have I sent 60 dollars to Priya?", False),
        ("Who sent 60 dollars to Priya?", False),
        ("What's 60 dollars to Priya?", False),
    ],
)
@pytest.mark.parametrize("modality", list(Modality))
def test_a_question_about_the_state_of_things_changes_nothing(said: str, runs: bool, modality: Modality) -> None:
    decision = sound(judge(on=evidence(said, modality=modality)))
    assert decision.action is (ActionKind.TOOL if runs else ActionKind.PARDON)
    assert (decision.reason is Reason.QUESTION) is not runs


def test_a_call_without_arguments_rests_on_every_word() -> None:
    clear = words("get me some help")
    assert judge(tool("panic"), evidence(clear)).action is ActionKind.TOOL
    unclear = sound(judge(tool("panic"), evidence([*clear[:2], replace(clear[2], probability=0.39), clear[3]])))
    assert (unclear.action, unclear.reason) == (ActionKind.PARDON, Reason.MISHEARD)
    far_off = clear[-1].span.end_sample + THRESHOLDS.mask_reach_samples
    for where, action in ((far_off - 1, ActionKind.PARDON), (far_off, ActionKind.TOOL)):
        on = evidence(clear, damaged=(damage(where, where + 800),))
        assert sound(judge(tool("panic"), on)).action is action


# Choices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "action", "reason"),
    [
        ("turn the kitchen lamp off", "turn_off", Reason.LICENSED),
        ("turn the kitchen lamp off", "turn_on", Reason.ARGUMENT_UNHEARD),
        ("turn off the kitchen lamp", "turn_on", Reason.ARGUMENT_UNHEARD),
        ("turn off the kitchen lamp", "dim", Reason.ARGUMENT_UNHEARD),
        ("darken the kitchen lamp", "dim", Reason.LICENSED),
    ],
)
def test_a_choice_against_the_words_never_runs(said: str, action: str, reason: Reason) -> None:
    decision = sound(judge(tool("lamp", device="kitchen lamp", action=action), evidence(said)))
    assert decision.reason is reason
    assert (decision.missing_param == "action") is (reason is not Reason.LICENSED)


def test_a_choice_or_switch_in_other_words_is_asked_for_when_anything_was_covered() -> None:
    noise = (damage(5 * SAMPLE_RATE_HZ, 6 * SAMPLE_RATE_HZ),)
    on = evidence("darken the kitchen lamp", damaged=noise)
    decision = sound(judge(tool("lamp", device="kitchen lamp", action="dim"), on))
    assert (decision.reason, decision.missing_param) == (Reason.ARGUMENT_MASKED, "action")
    on = evidence("dim the kitchen lamp", damaged=noise)
    decision = sound(judge(tool("lamp", device="kitchen lamp", action="dim", fade=True), on))
    assert (decision.reason, decision.missing_param) == (Reason.ARGUMENT_MASKED, "fade")
    assert judge(tool("lamp", device="kitchen lamp", action="dim"), on).action is ActionKind.TOOL


# Damage -----------------------------------------------------------------------------------------------------------

REACH = THRESHOLDS.mask_reach_samples


@pytest.mark.parametrize("kind", list(DamageKind))
@pytest.mark.parametrize(
    ("start", "end", "masked"),
    [
        (0, 100, True),
        (WORD_SAMPLES - 10, WORD_SAMPLES + 10, True),
        (WORD_SAMPLES + REACH - 1, WORD_SAMPLES + REACH + 800, True),
        (WORD_SAMPLES + REACH, WORD_SAMPLES + REACH + 800, False),
        (-REACH - 800, -REACH + 1, True),
        (-REACH - 800, -REACH, False),
        (-STEP_SAMPLES, 2 * STEP_SAMPLES, True),
    ],
)
def test_damage_on_or_close_to_an_arguments_words_asks_for_that_argument(
    kind: DamageKind, start: int, end: int, masked: bool
) -> None:
    heard = words("please text Priya as follows I'm really very late")
    first = heard[2].span.start_sample
    on = evidence(heard, damaged=(damage(first + start, first + end, kind),))
    decision = sound(judge(tool("message", recipient="Priya", body="very late"), on))
    if masked:
        assert (decision.action, decision.reason) == (ActionKind.PARDON, Reason.ARGUMENT_MASKED)
        assert (decision.missing_param, decision.text) == ("recipient", "Pardon? Who should I text?")
        assert str(kind) in decision.detail
        assert decision.call == call("message", body="very late")
    else:
        assert decision.action is ActionKind.TOOL


def test_damage_anywhere_in_a_consequential_command_asks_again() -> None:
    said = "well now please send 60 dollars to Priya"
    noise = (damage(0, 100),)
    decision = sound(judge(on=evidence(said, damaged=noise)))
    assert (decision.action, decision.reason, decision.missing_param) == (
        ActionKind.PARDON,
        Reason.COMMAND_DAMAGED,
        None,
    )
    outside = (damage(100 * SAMPLE_RATE_HZ, 101 * SAMPLE_RATE_HZ),)
    assert judge(on=evidence(said, damaged=outside)).action is ActionKind.TOOL
    milder = "well now please text Priya that I'm late"
    assert (
        judge(tool("message", recipient="Priya", body="I'm late"), evidence(milder, damaged=noise)).action
        is ActionKind.TOOL
    )


@pytest.mark.parametrize("risk", list(Risk))
def test_damage_that_could_not_be_measured_is_not_the_same_as_none(risk: Risk) -> None:
    said, wanted = FOR_EACH_RISK[risk]
    decision = sound(judge(ToolAction(wanted), evidence(said, damaged=None)))
    assert (decision.action, decision.reason) == (ActionKind.PARDON, Reason.COMMAND_DAMAGED)


# Whatever a model writes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "<|im_end|>",
        'Sure! {"name":"transfer","arguments":{"recipient":"Priya","amount":60}} Done.',
        f"[Mute] {render(ToolAction(PAY_PRIYA))}",
        f"{render(ToolAction(PAY_PRIYA))} [Mute]",
        f"Pardon? {render(ToolAction(PAY_PRIYA))}",
        f"Sure. {render(ToolAction(PAY_PRIYA))}",
        f"```json\n{render(ToolAction(PAY_PRIYA))}\n```",
        render(ToolAction(PAY_PRIYA)) + render(ToolAction(call("transfer", recipient="Priya", amount=61))),
        render(ToolAction(PAY_PRIYA)).replace('"', "'"),
        render(ToolAction(PAY_PRIYA)).replace("60", "NaN"),
        render(ToolAction(PAY_PRIYA)).replace("60", "1e309"),
        render(ToolAction(PAY_PRIYA)).replace("60", '"60"'),
        render(ToolAction(PAY_PRIYA)).replace("60", "-60"),
        render(ToolAction(PAY_PRIYA)).replace("60", "60.5"),
        render(ToolAction(PAY_PRIYA)).replace("60", "null"),
        render(ToolAction(PAY_PRIYA)).replace("60", "true"),
        render(ToolAction(PAY_PRIYA)).replace("60", "60, 60"),
        render(ToolAction(PAY_PRIYA)).replace("60}", '60, "amount": 60}'),
        render(ToolAction(PAY_PRIYA)).replace("60}", '60, "to": "Sam"}'),
        render(ToolAction(PAY_PRIYA)).replace("transfer", "Transfer"),
        render(ToolAction(PAY_PRIYA)).replace("Priya", "../../etc/passwd"),
        render(ToolAction(PAY_PRIYA)).replace("Priya", "home/+/set"),
        render(ToolAction(PAY_PRIYA)).replace("Priya", "x" * 10_000),
        render(ToolAction(PAY_PRIYA))[:-20],
        "I sent it.",
        "word " * 10_000,
    ],
)
def test_no_output_but_the_one_canonical_call_moves_money(text: str) -> None:
    assert sound(judge(Proposal(parse(text), text))).action is not ActionKind.TOOL
    assert sound(judge(Proposal(parse(render(ToolAction(PAY_PRIYA)))))).action is ActionKind.TOOL


# Properties -------------------------------------------------------------------------------------------------------

_SCORES = st.one_of(st.none(), st.sampled_from([math.nan, math.inf, -math.inf, 1.5, -2.0]), st.floats(0, 1))
_BOUNDS = st.one_of(st.sampled_from([math.nan, math.inf, -math.inf]), st.floats(0, 1))
_SPANS = st.builds(lambda start, length: Span(start, start + length), st.integers(0, 80_000), st.integers(0, 40_000))
_SPEAKERS = st.builds(speaker, st.sampled_from(SpeakerVerdict), _SCORES, _SPANS, _BOUNDS)
_DISTANCES = st.builds(proximity, st.sampled_from(DistanceVerdict), _SCORES, _SPANS, _BOUNDS)
_DAMAGE = st.one_of(
    st.none(),
    st.lists(
        st.builds(
            lambda span, kind: damage(span.start_sample, span.end_sample, kind), _SPANS, st.sampled_from(DamageKind)
        ),
        max_size=2,
    ).map(tuple),
)
_SAID = st.sampled_from(
    ["", "send 60 dollars to Priya", "send 60 dollars to Priya?", "Priya", "60", "turn off the kitchen lamp", "uh"]
)
_EVIDENCE = st.builds(
    lambda said, probability, **rest: evidence(words(said, probability=probability), **rest),
    _SAID,
    st.one_of(st.sampled_from([math.nan, math.inf]), st.floats(0, 1)),
    by=st.one_of(st.none(), _SPEAKERS),
    at=st.one_of(st.none(), _DISTANCES),
    damaged=_DAMAGE,
    modality=st.sampled_from(Modality),
    overlapped=st.sampled_from([None, False, True]),
    own_voice=st.booleans(),
    source_gap=st.booleans(),
)
_ANY_VALUE = st.one_of(
    st.none(), st.booleans(), st.sampled_from(["Priya", "60", "\ud800", ""]), st.floats(), st.just(60)
)
_PARAM = st.sampled_from(["recipient", "amount", "currency", "device", "action", "x"])
_ANY_CALL = st.one_of(
    st.just(PAY_PRIYA),
    st.sampled_from([wanted for _, wanted in FOR_EACH_RISK.values()]),
    st.builds(ToolCall, st.sampled_from(["transfer", "lamp", "panic", "nope"]), st.dictionaries(_PARAM, _ANY_VALUE)),
)
_PARSED: st.SearchStrategy[Parsed | None] = st.one_of(
    st.none(),
    st.sampled_from([MuteAction(), AnswerAction("Noon."), PardonAction(""), UNPARSEABLE]),
    _ANY_CALL.map(ToolAction),
)
_PROPOSALS = st.builds(
    lambda parsed, failure: Proposal(parsed, "", failure), _PARSED, st.sampled_from([None, None, *Reason])
)


def fully_known(on: Evidence) -> bool:
    """Whether nothing about typed or spoken evidence is unknown, damaged or out of range."""
    if not on.words or any(not 0 <= word.probability <= 1 for word in on.words):
        return False
    if on.modality is Modality.TEXT:
        return True
    score, near = on.speaker.score, on.proximity.near_probability
    return (
        on.speaker.verdict is SpeakerVerdict.OWNER
        and on.proximity.verdict is DistanceVerdict.NEAR
        and score is not None
        and near is not None
        and all(map(math.isfinite, (score, near, on.speaker.owner_at, on.proximity.near_at)))
        and on.speaker.owner_at <= score <= 1.001
        and on.proximity.near_at <= near <= 1.001
        and on.speaker.span.overlap(on.span) > 0
        and on.proximity.span.overlap(on.span) > 0
        and on.damage is not None
        and not on.overlapped
        and not on.own_voice
        and not on.source_gap
    )


@given(_PROPOSALS, _EVIDENCE, st.booleans(), st.integers(0, 400_000), st.sampled_from(["", "off"]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_whatever_comes_in_a_decision_comes_out_and_only_the_fully_known_runs(
    proposal: Proposal, on: Evidence, has_owner: bool, now: int, off: str, question: bool
) -> None:
    decision = sound(judge(proposal, on, has_owner=has_owner, now_sample=now, tools_off=off, question=question))
    if decision.action is ActionKind.TOOL:
        assert isinstance(proposal.parsed, ToolAction)
        assert proposal.failure is None
        assert decision.call == proposal.parsed.call
        assert not off
        assert has_owner or on.modality is Modality.TEXT
        assert now <= on.span.end_sample + THRESHOLDS.grant_life_samples
        assert fully_known(on)


_UNKNOWNS = {
    "speaker unsure": lambda on: replace(on, speaker=replace(on.speaker, verdict=SpeakerVerdict.UNSURE)),
    "speaker other": lambda on: replace(on, speaker=replace(on.speaker, verdict=SpeakerVerdict.OTHER)),
    "no score": lambda on: replace(on, speaker=replace(on.speaker, score=None)),
    "score nan": lambda on: replace(on, speaker=replace(on.speaker, score=math.nan)),
    "score inf": lambda on: replace(on, speaker=replace(on.speaker, score=math.inf)),
    "owner_at nan": lambda on: replace(on, speaker=replace(on.speaker, owner_at=math.nan)),
    "speaker elsewhere": lambda on: replace(on, speaker=replace(on.speaker, span=Span(10**7, 10**7 + 1))),
    "distance unsure": lambda on: replace(on, proximity=replace(on.proximity, verdict=DistanceVerdict.UNSURE)),
    "far": lambda on: replace(on, proximity=replace(on.proximity, verdict=DistanceVerdict.FAR)),
    "no nearness": lambda on: replace(on, proximity=replace(on.proximity, near_probability=None)),
    "nearness nan": lambda on: replace(on, proximity=replace(on.proximity, near_probability=math.nan)),
    "near_at nan": lambda on: replace(on, proximity=replace(on.proximity, near_at=math.nan)),
    "distance elsewhere": lambda on: replace(on, proximity=replace(on.proximity, span=Span(10**7, 10**7 + 1))),
    "damage unknown": lambda on: replace(on, damage=None),
    "overlapped": lambda on: replace(on, overlapped=True),
    "own voice": lambda on: replace(on, own_voice=True),
    "gap": lambda on: replace(on, source_gap=True),
    "no words": lambda on: replace(on, words=()),
    "words nan": lambda on: replace(on, words=tuple(replace(word, probability=math.nan) for word in on.words)),
}


@pytest.mark.parametrize("unknown", _UNKNOWNS)
@pytest.mark.parametrize("risk", list(Risk))
def test_one_unknown_in_otherwise_perfect_evidence_is_enough_to_run_nothing(risk: Risk, unknown: str) -> None:
    said, wanted = FOR_EACH_RISK[risk]
    perfect = evidence(said)
    assert judge(ToolAction(wanted), perfect).action is ActionKind.TOOL
    assert sound(judge(ToolAction(wanted), _UNKNOWNS[unknown](perfect))).action is not ActionKind.TOOL


_DEMANDS = st.builds(RiskThresholds, st.floats(0, 0.5), st.floats(0, 1), st.floats(0, 1), st.booleans())


def _rising(demands: list[RiskThresholds]) -> Thresholds:
    """Thresholds in which each field rises with risk."""
    columns = [sorted(getattr(item, field.name) for item in demands) for field in dataclasses.fields(RiskThresholds)]
    return Thresholds({risk: RiskThresholds(*row) for risk, row in zip(Risk, zip(*columns, strict=True), strict=True)})


@given(_EVIDENCE, st.lists(_DEMANDS, min_size=3, max_size=3).map(_rising))
@settings(max_examples=80, deadline=None)
def test_a_higher_risk_never_runs_what_a_lower_one_would_not(on: Evidence, thresholds: Thresholds) -> None:
    ran = [
        judge(on=on, thresholds=thresholds, catalogue=ToolBox((replace(TRANSFER, risk=risk),))).action
        is ActionKind.TOOL
        for risk in Risk
    ]
    assert ran == sorted(ran, reverse=True)


@given(_EVIDENCE)
@settings(max_examples=60, deadline=None)
def test_more_damage_never_makes_a_call_run(on: Evidence) -> None:
    before = judge(on=on).action is ActionKind.TOOL
    after = judge(on=replace(on, damage=(*(on.damage or ()), damage(0, 20_000)))).action is ActionKind.TOOL
    if on.damage is not None:
        assert before or not after
