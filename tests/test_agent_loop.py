"""The loop, end to end, with scripted audio and fake models: what is executed, by whom, and when."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from agent import events
from agent.clock import Pace
from agent.sources import Silence
from agent.turn_work import Limits
from gate.evidence import DamageKind, DamageStretch
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import MASK_MARK
from tests.fake_models import BlockingPolicy, FakeEars, ScriptedPolicy, Voice, tone
from tests.loop_harness import converse
from tools.catalogue import ToolCatalogue

CHAT = Voice(300, "I got off the train.", speaker=0)
COMMAND = Voice(400, "Text Priya that I am late.", speaker=0)
BYSTANDER = Voice(500, "Text Priya that I am late.", speaker=1, near=0.99)
FAR_OWNER = Voice(600, "Text Priya that I am late.", speaker=0, near=0.05)
FAR_BYSTANDER = Voice(700, "Text Priya that I am late.", speaker=1, near=0.05)
MAYBE_NEAR = Voice(800, "Text Priya that I am late.", speaker=0, near=0.5)
QUESTION = Voice(900, "What is the capital of France?", speaker=0)
MONEY = Voice(1000, "Transfer dollars to Ben.", speaker=0)
SIXTY = Voice(1100, "Sixty.", speaker=0)
SIXTY_BY_OTHER = Voice(1200, "Sixty.", speaker=1)
VOICES = [
    CHAT, COMMAND, BYSTANDER, FAR_OWNER, FAR_BYSTANDER, MAYBE_NEAR, QUESTION, MONEY, SIXTY, SIXTY_BY_OTHER,
]  # fmt: skip
SEND = '<|TOOL|>{"name": "send_message", "params": {"recipient": "Priya", "body": "I am late"}}</|TOOL|>'
TRANSFER = '<|TOOL|>{"name": "transfer_money", "params": {"recipient": "Ben"}}</|TOOL|>'
REPLIES = {
    COMMAND.text: SEND,
    QUESTION.text: "Paris.",
    MONEY.text: TRANSFER,
    f"{MASK_MARK} {MONEY.text}": TRANSFER,
}
CATALOGUE = ToolCatalogue.builtin()
PACES = [pytest.param(Pace.WALL, marks=pytest.mark.slow), Pace.CHARGED, Pace.FREE]


def script(*voices: Voice, gap_s: float = 1.0) -> list[object]:
    out: list[object] = [Silence(0.5)]
    for voice in voices:
        out += [tone(voice), Silence(gap_s)]
    return out


async def run(*voices: Voice, **options: object):
    gap_s = options.pop("gap_s", 1.0)
    policy = options.pop("policy", None) or ScriptedPolicy(REPLIES)
    ears = options.pop("ears", None) or FakeEars(VOICES)
    return await converse(script(*voices, gap_s=gap_s), ears, policy, CATALOGUE, **options)


async def test_owners_near_command_runs_once():
    outcome = await run(CHAT, COMMAND)
    assert outcome.actions == ["mute", "tool"]
    assert [call.name for call in outcome.executed] == ["send_message"]
    executed = [event for event in outcome.events if isinstance(event, events.Executed)]
    assert [event.outcome for event in executed] == ["done"]


@pytest.mark.parametrize(
    ("voice", "action", "reason"),
    [
        (BYSTANDER, "mute", "other_speaker"),
        (FAR_OWNER, "mute", "far"),
        (FAR_BYSTANDER, "mute", "far"),
        (MAYBE_NEAR, "pardon", "distance_unsure"),
    ],
)
async def test_the_same_words_from_the_wrong_source_execute_nothing(voice: Voice, action: str, reason: str):
    outcome = await run(CHAT, voice)
    assert (outcome.actions[-1], outcome.reasons[-1]) == (action, reason)
    assert outcome.decisions[-1].proposed == "tool", "the policy was fooled; the gate must not be"
    assert outcome.executed == []


async def test_a_far_first_speaker_never_becomes_the_owner():
    outcome = await run(FAR_BYSTANDER, COMMAND)
    assert outcome.actions == ["mute", "tool"], "the first near speaker owns the session, not the first speaker"
    outcome = await run(COMMAND, BYSTANDER)
    assert outcome.actions == ["tool", "mute"]


async def test_a_bystanders_near_command_does_not_run_because_the_wearer_was_first_heard_at_an_unsure_distance():
    wearer = Voice(CHAT.hz, CHAT.text, speaker=0, near=0.5)
    outcome = await run(wearer, BYSTANDER, ears=FakeEars([wearer, *VOICES[1:]]))
    assert (outcome.actions[-1], outcome.reasons[-1]) == ("mute", "no_owner")
    outcome = await run(wearer, COMMAND, BYSTANDER, ears=FakeEars([wearer, *VOICES[1:]]))
    assert outcome.actions[-2:] == ["tool", "mute"]


async def test_a_wordless_sound_close_by_never_becomes_the_owner():
    cough = Voice(1400, "", speaker=1)
    outcome = await run(cough, COMMAND, BYSTANDER, ears=FakeEars([cough, *VOICES]))
    assert outcome.actions[-2:] == ["tool", "mute"], "the wearer is refused because somebody beside her coughed first"
    assert len(outcome.executed) == 1


async def test_a_near_command_in_a_turn_that_was_not_near_throughout_begins_the_session():
    class HalfNear(FakeEars):
        """Near only in what is said last, as when somebody leans in for the command."""

        def voice(self, audio):
            found = super().voice(audio)
            return found and (replace(found, near=0.5) if len(audio) > 1.7 * SAMPLE_RATE_HZ else found)

    said = Voice(COMMAND.hz, f"Good morning. {COMMAND.text}")
    policy = ScriptedPolicy({said.text: REPLIES[COMMAND.text]})
    outcome = await converse([Silence(0.5), tone(said, 2.0), Silence(1.0)], HalfNear([said]), policy, CATALOGUE)
    assert outcome.reasons == ["licensed"]
    assert len(outcome.executed) == 1


async def test_addressed_question_is_answered_for_the_owner_only():
    outcome = await run(QUESTION)
    assert outcome.decisions[0].answer == "Paris."
    asked_by_other = Voice(QUESTION.hz, QUESTION.text, speaker=1)
    ears = FakeEars([CHAT, asked_by_other])
    outcome = await run(CHAT, asked_by_other, ears=ears)
    assert outcome.actions == ["mute", "mute"]


@pytest.mark.parametrize("pace", PACES)
async def test_every_pace_gives_the_same_decisions(pace: Pace):
    outcome = await run(CHAT, COMMAND, BYSTANDER, pace=pace, gap_s=0.8)
    assert outcome.actions == ["mute", "tool", "mute"]
    assert [event.evidence.span_s for event in outcome.decisions] == [
        event.evidence.span_s for event in (await run(CHAT, COMMAND, BYSTANDER, gap_s=0.8)).decisions
    ]


async def test_a_turn_that_goes_on_after_a_pause_is_decided_once_on_all_of_its_words():
    policy = ScriptedPolicy(REPLIES)
    outcome = await converse(
        [Silence(0.5), tone(COMMAND), Silence(0.4), tone(COMMAND), Silence(1.0)], FakeEars(VOICES), policy, CATALOGUE
    )
    assert len(outcome.decisions) == 1, "the provisional work on the first part must be thrown away"
    assert outcome.decisions[0].evidence.span_s[1] > 3.0
    assert len(outcome.executed) <= 1


async def test_charged_latency_counts_the_closing_silence_and_the_compute():
    outcome = await run(CHAT, COMMAND)
    timing = outcome.decisions[-1].timing
    assert timing.endpoint - timing.speech_end == pytest.approx(0.6, abs=0.05)
    assert timing.decision >= timing.endpoint
    assert set(timing.compute) >= {"speech", "speaker", "proximity", "damage", "policy"}


async def test_a_busy_worker_delays_the_next_decision_on_the_charged_clock(monkeypatch: pytest.MonkeyPatch):
    async def two_seconds(self, request):
        try:
            return request.call(), None, 2.0
        except Exception as error:
            return None, error, 2.0

    monkeypatch.setattr("agent.worker._Inference.run", two_seconds)
    outcome = await run(CHAT, COMMAND)
    first, second = (event.timing for event in outcome.decisions)
    assert first.decision - first.endpoint > 5.0
    assert second.decision > first.decision + 5.0, "start = max(arrival, worker_free)"
    assert outcome.actions == ["mute", "tool"], "slow is not different"


async def test_free_pace_charges_nothing():
    outcome = await run(CHAT, COMMAND, pace=Pace.FREE)
    for event in outcome.decisions:
        assert event.timing.decision == event.timing.endpoint
        assert sum(event.timing.compute.values()) == 0.0


@pytest.mark.parametrize("stage", ["speech", "speaker", "proximity", "damage"])
async def test_an_ear_that_fails_executes_nothing_and_the_loop_lives(stage: str):
    ears = FakeEars(VOICES, fail={stage: RuntimeError("broken ear")})
    outcome = await run(MONEY, COMMAND, ears=ears, policy=ScriptedPolicy({MONEY.text: SEND, COMMAND.text: TRANSFER}))
    assert outcome.executed == []
    assert len(outcome.decisions) == 2
    assert any(isinstance(event, events.Failed) and stage in event.where for event in outcome.events)


async def test_a_policy_that_raises_asks_again_and_the_next_turn_works():
    policy = ScriptedPolicy({CHAT.text: RuntimeError("CUDA"), COMMAND.text: SEND})
    outcome = await run(CHAT, COMMAND, policy=policy)
    assert outcome.actions == ["pardon", "tool"]
    assert outcome.decisions[0].status == "error"


async def test_a_policy_that_hangs_is_cut_off_and_the_next_turn_works():
    policy = BlockingPolicy({COMMAND.text: SEND})
    outcome = await run(COMMAND, policy=policy, limits=Limits(policy_s=0.1))
    policy.release.set()
    assert outcome.actions == ["pardon"]
    assert (outcome.decisions[0].status, outcome.decisions[0].reason) == ("timeout", "policy_timeout")
    assert outcome.executed == []


@pytest.mark.parametrize("text", ["", "null", "abc <|TOOL|>", '{"name": "send_message", "arguments": {}}', SEND[:40]])
async def test_unparseable_output_executes_nothing_and_is_not_mute(text: str):
    outcome = await run(COMMAND, policy=ScriptedPolicy({COMMAND.text: text}))
    assert outcome.actions == ["pardon"]
    assert outcome.decisions[0].status == "unparseable"


async def test_an_invented_argument_is_asked_for_not_executed():
    invented = SEND.replace("Priya", "Robert")
    outcome = await run(COMMAND, policy=ScriptedPolicy({COMMAND.text: invented}))
    assert outcome.executed == []
    assert (outcome.actions, outcome.decisions[0].missing_param) == (["pardon"], "recipient")


def _mask_at_start(audio: np.ndarray) -> tuple[DamageStretch, ...]:
    loud = np.flatnonzero(np.abs(audio) > 0.05)
    start = int(loud[0])
    return (DamageStretch(Span(max(0, start - 3200), start), DamageKind.NOISE, 0.99),)


async def test_masked_amount_is_asked_for_and_the_owners_repeat_completes_the_call_once():
    ears = FakeEars(VOICES)
    ears.damage = lambda audio: _mask_at_start(audio) if ears.voice(audio) is MONEY else ()
    outcome = await run(MONEY, SIXTY, ears=ears)
    assert outcome.actions == ["pardon", "tool"]
    assert "How much" in (outcome.decisions[0].answer or "")
    assert [dict(call.params) for call in outcome.executed] == [{"recipient": "Ben", "amount": 60}]


async def test_a_bystanders_answer_to_pardon_completes_nothing():
    outcome = await run(MONEY, SIXTY_BY_OTHER, SIXTY)
    assert outcome.actions == ["pardon", "mute", "tool"], "the repair stays open for the owner"


async def test_pardon_is_said_at_most_twice_in_a_row():
    outcome = await run(MONEY, MONEY, MONEY)
    assert outcome.actions == ["pardon", "pardon", "mute"]
    assert outcome.reasons[-1] == "pardon_limit"


async def test_an_answer_that_comes_after_the_repair_expired_executes_nothing():
    outcome = await run(MONEY, SIXTY, gap_s=12.0)
    assert outcome.actions == ["pardon", "mute"]
    assert outcome.executed == []


async def test_voice_change_inside_one_stretch_splits_the_turn_so_the_bystander_is_judged_alone():
    def changes(audio: np.ndarray) -> tuple[int, ...]:
        loud = np.flatnonzero(np.abs(audio) > 0.05)
        return (int(loud[0] + loud[-1]) // 2,) if len(loud) > 2 * SAMPLE_RATE_HZ else ()

    ears = FakeEars(VOICES, changes_at=changes)
    both = np.concatenate([tone(CHAT, 1.5), tone(BYSTANDER, 1.5)])
    seen: list[str] = []

    class Policy(ScriptedPolicy):
        def propose(self, turn):
            seen.append(turn.segment.speaker)
            return super().propose(turn)

    outcome = await converse([Silence(0.5), both, Silence(1.0)], ears, Policy(REPLIES), CATALOGUE)
    assert outcome.actions == ["mute", "mute"]
    assert outcome.reasons[-1] == "other_speaker"
    assert seen == ["owner", "other"]


async def test_the_question_about_a_recording_is_answered_once_over_all_of_it():
    policy = ScriptedPolicy({BYSTANDER.text: "The second speaker is late."})
    outcome = await run(CHAT, BYSTANDER, policy=policy, question="Who is late?")
    assert outcome.actions == ["answer"]
    assert len(policy.seen) == 1
    assert policy.seen[0].question == "Who is late?"
    assert len(policy.seen[0].context) == 1


async def test_a_question_never_licenses_a_tool_spoken_by_a_stranger():
    outcome = await run(CHAT, BYSTANDER, question="What was said?", policy=ScriptedPolicy({BYSTANDER.text: SEND}))
    assert outcome.actions == ["mute"]
    assert outcome.executed == []


async def test_silence_decides_nothing_and_costs_no_model_call():
    policy = ScriptedPolicy(REPLIES)
    outcome = await converse([Silence(20.0)], FakeEars(VOICES), policy, CATALOGUE)
    assert outcome.decisions == []
    assert policy.seen == []


async def test_typed_command_needs_no_voice():
    outcome = await converse(
        [Silence(0.1)], FakeEars(VOICES), ScriptedPolicy(REPLIES), CATALOGUE,
        before_run=lambda loop: loop.submit_text(COMMAND.text),
    )  # fmt: skip
    assert outcome.actions == ["tool"]
    assert outcome.reasons == ["typed"]


async def test_tools_off_decides_but_runs_nothing():
    outcome = await run(COMMAND, tools_off="switched off in the settings")
    assert (outcome.actions, outcome.reasons) == (["mute"], ["tools_off"])
    assert outcome.executed == []


async def test_the_stream_is_accounted_for_sample_by_sample():
    outcome = await run(CHAT, COMMAND)
    spans = sorted(
        event.span_s for event in outcome.events if isinstance(event, events.TurnClosed | events.AudioDiscarded)
    )
    assert spans[0][0] == 0.0
    for (_, end), (start, _) in pairwise(spans):
        assert start == pytest.approx(end, abs=1e-3)
    ended = outcome.events[-1]
    assert isinstance(ended, events.SessionEnded)
    assert spans[-1][1] == pytest.approx(ended.audio_s, abs=1e-3)


async def test_events_are_numbered_without_holes():
    outcome = await run(CHAT, COMMAND)
    assert [event.seq for event in outcome.events] == list(range(len(outcome.events)))


async def test_ctrl_c_during_a_hung_model_ends_quickly_and_flushes_the_last_event():
    policy = BlockingPolicy({COMMAND.text: SEND})
    collected = []

    class Sink:
        wants_levels = False
        closed = False

        def emit(self, event):
            collected.append(event)

        async def aclose(self):
            Sink.closed = True

    session = run(COMMAND, policy=policy, pace=Pace.CHARGED, sinks=[Sink()], limits=Limits(policy_s=30))
    task = asyncio.create_task(session)
    await asyncio.to_thread(policy.entered.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 2.0)
    policy.release.set()
    assert Sink.closed
    assert isinstance(collected[-1], events.SessionEnded)
    assert collected[-1].reason == "stopped"
    assert not any(isinstance(event, events.Decided) for event in collected)


@pytest.mark.parametrize("pace", PACES)
async def test_no_task_outlives_a_session(pace: Pace):
    before = asyncio.all_tasks()
    await run(CHAT, COMMAND, pace=pace, gap_s=0.7)
    gc.collect()
    assert asyncio.all_tasks() == before
