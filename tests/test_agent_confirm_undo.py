"""Confirmation and undo through the loop: only the owner's certain "yes" executes; a call is undone only in time."""

from __future__ import annotations

import pytest

from agent import events
from agent.clock import Pace
from agent.sources import Silence
from gate.catalogue import Risk
from gate.confirm import ConfirmSettings
from tests.fake_models import FakeEars, ScriptedPolicy, Voice, tone
from tests.loop_harness import Outcome, converse
from tools.catalogue import ToolCatalogue

CHAT = Voice(300, "I got off the train.", speaker=0)
UNLOCK = Voice(400, "Unlock the front door.", speaker=0)
YES = Voice(500, "Yes, go ahead.", speaker=0)
YES_BY_OTHER = Voice(600, "Yes, go ahead.", speaker=1)
YES_FROM_AFAR = Voice(700, "Yes, go ahead.", speaker=0, near=0.05)
NO = Voice(800, "No, cancel that.", speaker=0)
NO_BY_OTHER = Voice(900, "No, cancel that.", speaker=1)
TEXT = Voice(1000, "Text Priya that I am late.", speaker=0)
WEATHER = Voice(1100, "It is raining again.", speaker=0)
SHORT_YES = Voice(1200, "Yes.", speaker=0)
VOICES = [CHAT, UNLOCK, YES, YES_BY_OTHER, YES_FROM_AFAR, NO, NO_BY_OTHER, TEXT, WEATHER, SHORT_YES]
POLICY = {
    UNLOCK.text: '<|TOOL|>{"name": "unlock_door", "params": {"door": "front door"}}</|TOOL|>',
    TEXT.text: '<|TOOL|>{"name": "send_message", "params": {"recipient": "Priya", "body": "I am late"}}</|TOOL|>',
}
CATALOGUE = ToolCatalogue.builtin()
CONFIRM_HIGH = ConfirmSettings(frozenset({Risk.HIGH}))
GRACE = {Risk.LOW: 0.0, Risk.MEDIUM: 3.0, Risk.HIGH: 3.0}


async def say(*voices: Voice, gap_s: float = 1.0, **options: object) -> Outcome:
    script: list[object] = [Silence(0.5)]
    for voice in voices:
        script += [tone(voice, 0.4 if voice is SHORT_YES else 1.2), Silence(gap_s)]
    return await converse(script, FakeEars(VOICES), ScriptedPolicy(POLICY), CATALOGUE, **options)


async def test_a_risky_call_is_asked_about_with_its_arguments_and_runs_on_the_owners_yes():
    outcome = await say(CHAT, UNLOCK, YES, confirmations=CONFIRM_HIGH)
    assert outcome.actions == ["mute", "pardon", "tool"]
    question = outcome.decisions[1]
    assert question.reason == "confirm"
    assert "front door" in (question.answer or "")
    assert (question.answer or "").endswith(", yes?")
    assert [call.name for call in outcome.executed] == ["unlock_door"]
    assert outcome.reasons[-1] == "confirmed"


async def test_without_an_answer_nothing_runs():
    outcome = await say(UNLOCK, confirmations=CONFIRM_HIGH, gap_s=12.0)
    assert outcome.actions == ["pardon"]
    assert outcome.executed == []


async def test_a_yes_after_the_question_expired_runs_nothing():
    outcome = await say(UNLOCK, YES, confirmations=CONFIRM_HIGH, gap_s=12.0)
    assert outcome.executed == []


@pytest.mark.parametrize("voice", [YES_BY_OTHER, YES_FROM_AFAR])
async def test_a_bystander_can_not_confirm_and_the_owner_still_can(voice: Voice):
    outcome = await say(CHAT, UNLOCK, voice, confirmations=CONFIRM_HIGH)
    assert outcome.executed == []
    outcome = await say(CHAT, UNLOCK, voice, YES, confirmations=CONFIRM_HIGH)
    assert [call.name for call in outcome.executed] == ["unlock_door"]


async def test_a_bystander_can_not_cancel():
    outcome = await say(CHAT, UNLOCK, NO_BY_OTHER, YES, confirmations=CONFIRM_HIGH)
    assert [call.name for call in outcome.executed] == ["unlock_door"]


async def test_the_owners_no_ends_it_and_a_later_yes_runs_nothing():
    outcome = await say(UNLOCK, NO, YES, confirmations=CONFIRM_HIGH)
    assert outcome.actions[:2] == ["pardon", "answer"]
    assert outcome.reasons[1] == "declined"
    assert outcome.executed == []


async def test_anything_else_ends_the_question_so_a_yes_to_something_else_runs_nothing():
    outcome = await say(UNLOCK, WEATHER, YES, confirmations=CONFIRM_HIGH)
    assert outcome.executed == []


async def test_a_yes_counts_once():
    outcome = await say(UNLOCK, YES, YES, confirmations=CONFIRM_HIGH)
    assert len(outcome.executed) == 1


async def test_a_yes_too_short_to_know_the_voice_asks_for_more_and_keeps_the_question_open():
    outcome = await say(CHAT, UNLOCK, SHORT_YES, YES, confirmations=CONFIRM_HIGH)
    assert outcome.actions == ["mute", "pardon", "pardon", "tool"]
    assert outcome.reasons[2] == "speaker_unsure"
    assert len(outcome.executed) == 1


async def test_less_risky_calls_are_not_asked_about():
    outcome = await say(TEXT, confirmations=CONFIRM_HIGH)
    assert outcome.actions == ["tool"]


async def test_typed_commands_are_not_asked_about():
    outcome = await converse(
        [Silence(0.1)], FakeEars(VOICES), ScriptedPolicy(POLICY), CATALOGUE, confirmations=CONFIRM_HIGH,
        before_run=lambda loop: loop.submit_text(UNLOCK.text),
    )  # fmt: skip
    assert outcome.actions == ["tool"]


@pytest.mark.parametrize("pace", [Pace.CHARGED, Pace.FREE, pytest.param(Pace.WALL, marks=pytest.mark.slow)])
async def test_cancel_that_within_the_grace_time_undoes_the_call(pace: Pace):
    outcome = await say(TEXT, NO, grace_s=GRACE, gap_s=0.9, pace=pace)
    assert outcome.actions == ["tool", "answer"]
    assert outcome.reasons[-1] == "withdrawn"
    assert outcome.executed == []
    assert [event.outcome for event in outcome.events if isinstance(event, events.Executed)] == ["cancelled"]


async def test_a_cancel_that_is_being_spoken_when_the_grace_ends_still_counts():
    outcome = await say(TEXT, NO, grace_s={Risk.MEDIUM: 1.0}, gap_s=0.9)
    assert outcome.executed == [], "the call must wait for the words that are being said"


async def test_a_cancel_after_the_grace_time_is_told_that_it_is_too_late():
    outcome = await say(TEXT, NO, grace_s=GRACE, gap_s=6.0)
    assert [call.name for call in outcome.executed] == ["send_message"]
    assert outcome.reasons[-1] == "too_late"


async def test_a_bystander_can_not_undo():
    outcome = await say(CHAT, TEXT, NO_BY_OTHER, grace_s=GRACE, gap_s=0.9)
    assert [call.name for call in outcome.executed] == ["send_message"]


async def test_a_call_runs_once_when_its_grace_ends_quietly():
    outcome = await say(TEXT, grace_s=GRACE, gap_s=5.0)
    assert len(outcome.executed) == 1
    (executed,) = [event for event in outcome.events if isinstance(event, events.Executed)]
    decided = outcome.decisions[0]
    assert executed.clock_s - decided.clock_s >= 3.0


async def test_no_cancels_a_confirmed_call_within_its_grace_time():
    outcome = await say(UNLOCK, YES, NO, confirmations=CONFIRM_HIGH, grace_s=GRACE, gap_s=0.9)
    assert outcome.actions == ["pardon", "tool", "answer"]
    assert outcome.executed == []


async def test_a_no_with_nothing_to_undo_is_an_ordinary_turn():
    outcome = await say(CHAT, NO, grace_s=GRACE)
    assert outcome.actions == ["mute", "mute"]
