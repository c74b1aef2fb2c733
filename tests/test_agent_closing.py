"""What was said so far decides how long a pause closes a turn; and nobody speaks into a command unnoticed."""

from __future__ import annotations

import pytest

from agent import events
from agent.clock import Pace
from agent.closing import ClosingSettings, closing_ms
from agent.sources import Silence
from gate.actions import AnswerAction, MuteAction, PardonAction, ParseFault, ToolAction, Unparseable
from gate.catalogue import ToolCall
from gate.decision import Proposal
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio
from tests.fake_models import FakeEars, ScriptedPolicy, Voice, tone
from tests.loop_harness import Outcome, converse
from tools.catalogue import ToolCatalogue

CALL = Voice(400, "Call Ben now")
HALF = Voice(600, "Text Priya and say")
CHAT = Voice(800, "What a lovely day")
TOOL = '<|TOOL|>{"name": "make_call", "params": {"contact": "Ben"}}</|TOOL|>'
REPLIES = {CALL.text: TOOL, HALF.text: "Pardon? What should I say?"}
SETTINGS = ClosingSettings(complete_ms=300, open_ms=1200)
CATALOGUE = ToolCatalogue.builtin()


@pytest.mark.parametrize(
    ("parsed", "wanted_ms"),
    [
        (ToolAction(ToolCall("make_call", {"contact": "Ben"})), 300),
        (AnswerAction("Paris."), 300),
        (PardonAction("What should I say?"), 1200),
        (MuteAction(), None),
        (Unparseable(ParseFault.EMPTY, ""), None),
        (None, None),
    ],
)
def test_whole_words_close_early_and_half_ones_are_waited_for(parsed, wanted_ms: int | None) -> None:
    assert closing_ms([Proposal(MuteAction()), Proposal(parsed)], SETTINGS) == wanted_ms


def test_without_words_the_pause_stays_as_it_is() -> None:
    assert closing_ms([], SETTINGS) is None


async def run(voice: Voice, pace: Pace = Pace.CHARGED, closing: ClosingSettings | None = SETTINGS) -> Outcome:
    script, ears = [Silence(0.5), tone(voice), Silence(2.0)], FakeEars([CALL, HALF, CHAT])
    return await converse(script, ears, ScriptedPolicy(REPLIES), CATALOGUE, pace=pace, closing=closing)


def pause_s(outcome: Outcome) -> float:
    timing = outcome.decisions[-1].timing
    return timing.endpoint - timing.speech_end


@pytest.mark.parametrize("pace", [pytest.param(Pace.WALL, marks=pytest.mark.slow), Pace.CHARGED, Pace.FREE])
async def test_a_command_is_decided_sooner_than_at_the_usual_pause(pace: Pace) -> None:
    early = await run(CALL, pace)
    assert 0.28 <= pause_s(early) < 0.5
    assert [call.name for call in early.executed] == ["make_call"]
    usual = await run(CALL, Pace.CHARGED, closing=None)
    assert pause_s(usual) == pytest.approx(0.6, abs=0.05)


async def test_half_a_command_waits_for_its_rest_and_is_then_one_turn() -> None:
    script = [Silence(0.5), tone(HALF), Silence(0.9), tone(HALF), Silence(2.0)]
    ears = FakeEars([HALF])
    patient = await converse(script, ears, ScriptedPolicy(REPLIES), CATALOGUE, closing=SETTINGS)
    hasty = await converse(script, ears, ScriptedPolicy(REPLIES), CATALOGUE)
    assert (len(patient.decisions), len(hasty.decisions)) == (1, 2)


async def test_talk_that_is_not_for_the_assistant_closes_as_ever() -> None:
    assert pause_s(await run(CHAT)) == pytest.approx(0.6, abs=0.05)


async def test_advice_for_a_turn_that_went_on_changes_nothing() -> None:
    script = [Silence(0.5), tone(CALL), Silence(0.24), tone(CALL), Silence(2.0)]
    outcome = await converse(script, FakeEars([CALL]), ScriptedPolicy({}), CATALOGUE, closing=SETTINGS)
    assert len(outcome.decisions) == 1


def everywhere(audio: Audio) -> tuple[Span, ...]:
    return (Span(0, len(audio)),)


async def command(ears: FakeEars) -> Outcome:
    return await converse([Silence(0.5), tone(CALL), Silence(1.5)], ears, ScriptedPolicy(REPLIES), CATALOGUE)


async def test_a_command_that_somebody_speaks_into_is_asked_for_again() -> None:
    outcome = await command(FakeEars([CALL], overlap=everywhere))
    assert (outcome.actions, outcome.reasons) == (["pardon"], ["overlapped"])
    assert outcome.executed == []


@pytest.mark.parametrize("found", [(), None, (Span(0, SAMPLE_RATE_HZ // 20),)], ids=["nobody", "cannot tell", "before"])
async def test_a_voice_beside_the_command_costs_nobody_a_repeat(found: tuple[Span, ...] | None) -> None:
    outcome = await command(FakeEars([CALL], overlap=lambda audio: found))
    assert outcome.actions == ["tool"]


async def test_a_broken_overlap_ear_executes_nothing() -> None:
    ears = FakeEars([CALL], overlap=everywhere, fail={"overlap": RuntimeError("broken")})
    outcome = await command(ears)
    assert outcome.reasons == ["ear_failed"]
    assert outcome.executed == []
    assert any(isinstance(event, events.Failed) and "overlap" in event.where for event in outcome.events)


async def test_talk_that_proposes_nothing_is_not_looked_at_for_overlap() -> None:
    looked: list[int] = []

    def find(audio: Audio) -> tuple[Span, ...]:
        looked.append(len(audio))
        return ()

    ears = FakeEars([CHAT], overlap=find)
    await converse([Silence(0.5), tone(CHAT), Silence(1.5)], ears, ScriptedPolicy(REPLIES), CATALOGUE)
    assert looked == []
