"""A repair as a dialogue through the loop: who can fill the gap, what ends it, and how often it is asked."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import pytest

from agent import events
from agent.clock import Pace, WallClock
from agent.loop import Loop
from agent.output_voice import VoiceSink
from agent.playback import PlaybackRecord, Sound
from agent.sources import Silence
from gate.catalogue import Risk
from gate.confirm import ConfirmSettings
from gate.evidence import DamageKind, DamageStretch
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import MASK_MARK, Audio
from tests.echo_harness import FakePlayer
from tests.fake_models import FakeEars, ScriptedPolicy, Voice, tone
from tests.loop_harness import Outcome, converse
from tools.catalogue import ToolCatalogue

CHAT = Voice(300, "I got off the train.")
MONEY = Voice(400, "Transfer dollars to Ben.")
"""The amount is drowned by noise, and the policy knows the rest of the call."""
ASKED = Voice(500, "Transfer money to Ben.")
"""Likewise, but all that the policy writes is the question."""
SIXTY = Voice(600, "Sixty dollars.")
AGAIN = Voice(700, "Transfer sixty dollars to Ben.")
BEN = Voice(800, "To Ben, please.")
SIXTY_BY_OTHER = Voice(900, "Sixty dollars.", speaker=1)
SIXTY_FROM_AFAR = Voice(1000, "Sixty dollars.", near=0.05)
NOISE = Voice(1100, "")
MESSAGE = Voice(1200, "Text Priya that I am late.")
MESSAGE_BY_OTHER = Voice(1300, "Text Priya that I am late.", speaker=1)
FORGET = Voice(1400, "Never mind.")
FORGET_BY_OTHER = Voice(1500, "Never mind.", speaker=1)
CAPITAL = Voice(1600, "What is the capital of France?")
MUMBLE = Voice(1700, "Mumble mumble.")
YES = Voice(1800, "Yes, go ahead with it.")
YES_BY_OTHER = Voice(1900, "Yes, go ahead with it.", speaker=1)
VOICES = [
    CHAT, MONEY, ASKED, SIXTY, AGAIN, BEN, SIXTY_BY_OTHER, SIXTY_FROM_AFAR, NOISE, MESSAGE, MESSAGE_BY_OTHER, FORGET,
    FORGET_BY_OTHER, CAPITAL, MUMBLE, YES, YES_BY_OTHER,
]  # fmt: skip
SEND = '<|TOOL|>{"name": "send_message", "params": {"recipient": "Priya", "body": "I am late"}}</|TOOL|>'
PAY = '<|TOOL|>{"name": "transfer_money", "params": {"recipient": "Ben"%s}}</|TOOL|>'
REPLIES = {
    f"{MASK_MARK} {MONEY.text}": PAY % "",
    f"{MASK_MARK} {ASKED.text}": "Pardon? How much should I send?",
    AGAIN.text: PAY % ', "amount": 60',
    MESSAGE.text: SEND,
    CAPITAL.text: "Paris.",
    MUMBLE.text: "Pardon?",
}
CATALOGUE = ToolCatalogue.builtin()
PAID = [{"recipient": "Ben", "amount": 60}]


def noise_before(*masked: Voice) -> FakeEars:
    """Ears that find a burst of noise right before the words of some voices."""
    ears = FakeEars(VOICES)

    def find(audio: Audio) -> tuple[DamageStretch, ...]:
        if ears.voice(audio) not in masked:
            return ()
        start = int(np.flatnonzero(np.abs(audio) > 0.05)[0])
        return (DamageStretch(Span(max(0, start - 3200), start), DamageKind.NOISE, 0.99),)

    ears.damage = find
    return ears


async def say(*voices: Voice | float, ears: FakeEars | None = None, **options: object) -> Outcome:
    """A session in which these are heard one after the other, a second apart; a number is a longer silence."""
    script: list[object] = [Silence(0.5)]
    for voice in voices:
        script += [Silence(voice)] if isinstance(voice, float) else [tone(voice), Silence(1.0)]
    return await converse(script, ears or noise_before(MONEY, ASKED), ScriptedPolicy(REPLIES), CATALOGUE, **options)


def paid(outcome: Outcome) -> list[dict[str, object]]:
    return [dict(call.params) for call in outcome.executed if call.name == "transfer_money"]


# The owner fills the gap ----------------------------------------------------------------------------------------------


async def test_the_missing_piece_alone_completes_the_call():
    outcome = await say(MONEY, SIXTY)
    assert outcome.actions == ["pardon", "tool"]
    assert outcome.decisions[0].answer == "Pardon? How much should I send?"
    assert paid(outcome) == PAID


async def test_the_whole_command_again_completes_it_too():
    outcome = await say(MONEY, AGAIN)
    assert outcome.actions == ["pardon", "tool"]
    assert paid(outcome) == PAID


async def test_a_policy_that_only_asks_still_gets_its_answer_and_the_rest_is_asked_for():
    outcome = await say(ASKED, SIXTY, BEN)
    assert outcome.actions == ["pardon", "pardon", "tool"]
    assert outcome.decisions[0].missing_param == "amount"
    assert outcome.decisions[1].missing_param == "recipient"
    assert paid(outcome) == PAID


async def test_an_answer_that_is_drowned_as_well_is_asked_for_again_and_nothing_heard_before_is_lost():
    drowned = Voice(2000, "Dollars please.")
    ears = noise_before(MONEY, drowned)
    ears.voices = [*VOICES, drowned]
    replies = {**REPLIES, f"{MASK_MARK} {drowned.text}": "Pardon? How much should I send?"}
    script = [Silence(0.5), tone(MONEY), Silence(1.0), tone(drowned), Silence(1.0), tone(SIXTY), Silence(1.0)]
    outcome = await converse(script, ears, ScriptedPolicy(replies), CATALOGUE)
    assert outcome.actions == ["pardon", "pardon", "tool"]
    assert paid(outcome) == PAID


async def test_a_completed_risky_call_is_confirmed_and_only_by_the_owner():
    confirmed = ConfirmSettings(frozenset({Risk.HIGH}))
    outcome = await say(CHAT, MONEY, SIXTY, YES_BY_OTHER, confirmations=confirmed)
    assert outcome.actions == ["mute", "pardon", "pardon", "mute"]
    assert outcome.executed == []
    outcome = await say(CHAT, MONEY, SIXTY, YES_BY_OTHER, YES, confirmations=confirmed)
    assert outcome.actions == ["mute", "pardon", "pardon", "mute", "tool"]
    assert outcome.decisions[2].answer == "Send Ben 60, yes?"
    assert paid(outcome) == PAID


# Somebody else, and noise ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("voice", [SIXTY_BY_OTHER, SIXTY_FROM_AFAR, MESSAGE_BY_OTHER, FORGET_BY_OTHER, NOISE, CHAT])
async def test_a_bystander_noise_and_talk_fill_no_gap_and_leave_it_open_for_the_owner(voice: Voice):
    outcome = await say(CHAT, MONEY, voice)
    assert outcome.actions == ["mute", "pardon", "mute"], "and they are asked nothing"
    assert outcome.executed == []
    outcome = await say(CHAT, MONEY, voice, SIXTY)
    assert paid(outcome) == PAID


async def test_a_bystanders_answer_is_not_even_part_of_the_owners():
    outcome = await say(CHAT, MONEY, Voice(SIXTY_BY_OTHER.hz, "Ninety dollars.", speaker=1), SIXTY)
    assert paid(outcome) == PAID


# What ends it ---------------------------------------------------------------------------------------------------------


async def test_silence_ends_it_and_the_late_answer_moves_nothing():
    outcome = await say(MONEY, 10.0, SIXTY)
    assert outcome.actions == ["pardon", "mute"]
    assert outcome.executed == []


async def test_it_stays_open_for_as_long_as_it_says():
    outcome = await say(MONEY, 7.0, SIXTY)
    assert paid(outcome) == PAID


async def test_nothing_at_all_after_the_question_moves_nothing():
    outcome = await say(MONEY, 15.0)
    assert (outcome.actions, outcome.executed) == (["pardon"], [])


@pytest.mark.parametrize("voice", [MESSAGE, CAPITAL])
async def test_another_command_or_question_of_the_owners_ends_it(voice: Voice):
    outcome = await say(MONEY, voice, SIXTY)
    assert outcome.actions[1] in ("tool", "answer"), "it is taken for itself"
    assert paid(outcome) == [], "the old call must not come back with a word that was meant for something else"


async def test_never_mind_ends_it():
    outcome = await say(MONEY, FORGET, SIXTY)
    assert outcome.actions == ["pardon", "mute", "mute"]
    assert outcome.executed == []


async def test_an_answer_counts_once():
    outcome = await say(MONEY, SIXTY, SIXTY)
    assert paid(outcome) == PAID


# How often ------------------------------------------------------------------------------------------------------------


async def test_at_most_two_pardons_in_a_row_are_said_and_the_pending_call_is_gone_with_the_third():
    outcome = await say(MONEY, MUMBLE, MUMBLE, MUMBLE, SIXTY)
    assert outcome.actions == ["pardon", "pardon", "mute", "mute", "mute"]
    assert outcome.reasons[2:4] == ["pardon_limit", "pardon_limit"]
    assert outcome.executed == []


@pytest.mark.parametrize("between", [NOISE, SIXTY_BY_OTHER, CHAT])
async def test_what_is_muted_between_two_pardons_does_not_make_room_for_a_third(between: Voice):
    outcome = await say(CHAT, MUMBLE, between, MUMBLE, between, MUMBLE)
    assert [action for action in outcome.actions if action != "mute"] == ["pardon", "pardon"]


async def test_a_turn_that_is_understood_makes_room_again():
    outcome = await say(MUMBLE, MUMBLE, CAPITAL, MUMBLE)
    assert outcome.actions == ["pardon", "pardon", "answer", "pardon"]


async def test_so_does_a_repairs_life_of_quiet():
    outcome = await say(MUMBLE, MUMBLE, MUMBLE, 12.0, MUMBLE)
    assert outcome.actions == ["pardon", "pardon", "mute", "pardon"]


# Not while somebody is speaking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pace", [Pace.FREE, Pace.CHARGED])
async def test_a_speaker_who_goes_on_after_a_pause_is_not_asked_in_the_middle(pace: Pace):
    script = [Silence(0.5), tone(MONEY), Silence(0.4), tone(MONEY), Silence(1.0)]
    outcome = await converse(script, noise_before(MONEY), ScriptedPolicy(REPLIES), CATALOGUE, pace=pace)
    order = [type(event) for event in outcome.events if isinstance(event, events.TurnClosed | events.Decided)]
    assert order == [events.TurnClosed, events.Decided], "decided once, when she had finished"


@dataclass
class SlowVoice:
    """A synthesiser that needs half a second, as real ones do."""

    name: str = "slow"
    texts: list[str] = field(default_factory=list)

    def say(self, text: str) -> Sound:
        time.sleep(0.5)
        self.texts.append(text)
        return Sound(np.full(SAMPLE_RATE_HZ // 4, 0.1, np.float32), SAMPLE_RATE_HZ)


@pytest.mark.slow
async def test_a_question_that_is_ready_while_somebody_speaks_waits_until_they_have_finished():
    loops: list[Loop] = []

    def position() -> int:
        return loops[0].position() if loops else 0

    player, voice = FakePlayer(position), SlowVoice()
    sink = VoiceSink(
        voice=voice, player=player, record=PlaybackRecord(), position=position, clock=WallClock(),
        notice=lambda line: None,
    )  # fmt: skip
    script = [
        Silence(0.5), tone(CHAT), Silence(0.9), tone(MONEY), Silence(0.7), tone(SIXTY_BY_OTHER, 2.0), Silence(1.5),
    ]  # fmt: skip
    outcome = await converse(
        script, noise_before(MONEY), ScriptedPolicy(REPLIES), CATALOGUE, pace=Pace.WALL, sinks=[sink],
        before_run=loops.append,
    )  # fmt: skip
    assert voice.texts == ["Pardon? How much should I send?"]
    opened = [event.at_s for event in outcome.events if isinstance(event, events.TurnOpened)]
    closed = [event.at_s for event in outcome.events if isinstance(event, events.TurnClosed)]
    spoken = [playing.start_sample / SAMPLE_RATE_HZ for playing in player.played]
    assert len(spoken) >= 1
    for at_s in spoken:
        assert not any(start <= at_s < end for start, end in zip(opened, closed, strict=True)), (at_s, opened, closed)
