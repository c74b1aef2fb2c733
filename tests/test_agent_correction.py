"""Self-correction through the loop: "no, at seven" counts only from the owner, and only the last version runs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from agent.hearing import Ears
from agent.sources import Silence
from gate.catalogue import Risk
from gate.confirm import ConfirmSettings
from gate.evidence import DamageKind, DamageStretch
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import MASK_MARK, Audio, Heard
from tests.fake_models import FakeEars, ScriptedPolicy, Voice, tone
from tests.loop_harness import Outcome, converse
from tools.catalogue import ToolCatalogue

CATALOGUE = ToolCatalogue.builtin()
CHAT = Voice(300, "I got off the train.")
LUNCH = Voice(400, "Schedule lunch at six, no, at seven.")
LUNCH_AS_READ = "Schedule lunch at seven."
TEXT = Voice(500, "Text Maria, sorry Anna that I am late.")
MAYBE = Voice(600, "Text Maria sorry Anna that I am late.")
MONEY = Voice(700, "Transfer $60 to Ben. No wait, make it 50.")
MONEY_AS_READ = "Transfer 50 $ to Ben."
ANNA = Voice(800, "To Anna, please.")
YES = Voice(900, "Yes, go ahead.")


def call(tool: str, **params: object) -> str:
    listed = ", ".join(f'"{name}": {value if isinstance(value, int) else chr(34) + str(value) + chr(34)}'
                       for name, value in params.items())  # fmt: skip
    return f'<|TOOL|>{{"name": "{tool}", "params": {{{listed}}}}}</|TOOL|>'


async def say(*voices: Voice, policy: ScriptedPolicy, ears: FakeEars | None = None, **options: object) -> Outcome:
    script: list[object] = [Silence(0.5)]
    for voice in voices:
        script += [tone(voice, 2.4), Silence(1.0)]
    heard_by = ears or FakeEars([CHAT, LUNCH, TEXT, MAYBE, MONEY, ANNA, YES])
    return await converse(script, heard_by, policy, CATALOGUE, **options)


async def test_the_policy_reads_the_last_version_and_that_is_executed_while_the_log_keeps_what_was_said():
    policy = ScriptedPolicy({LUNCH_AS_READ: call("schedule_event", title="lunch", when="seven")})
    outcome = await say(LUNCH, policy=policy)
    assert [" ".join(word.text for word in turn.segment.words) for turn in policy.seen] == [LUNCH_AS_READ]
    assert [dict(ran.params) for ran in outcome.executed] == [{"title": "lunch", "when": "seven"}]
    evidence = outcome.decisions[0].evidence
    assert evidence.transcript == LUNCH.text
    assert [word.text for word in evidence.words] == LUNCH_AS_READ.split()


async def test_a_policy_that_proposes_what_was_taken_back_is_asked_not_obeyed():
    policy = ScriptedPolicy({LUNCH_AS_READ: call("schedule_event", title="lunch", when="six")})
    outcome = await say(LUNCH, policy=policy)
    assert outcome.executed == []
    assert (outcome.actions, outcome.reasons) == (["pardon"], ["argument_unheard"])


async def test_the_message_goes_to_the_one_who_was_named_last():
    policy = ScriptedPolicy({"Text Anna that I am late.": call("send_message", recipient="Anna", body="I am late")})
    outcome = await say(TEXT, policy=policy)
    assert [ran.params["recipient"] for ran in outcome.executed] == ["Anna"]


@pytest.mark.parametrize("recipient", ["Maria", "Anna"])
async def test_where_nobody_can_tell_who_was_meant_the_owner_is_asked_and_her_answer_counts(recipient: str):
    policy = ScriptedPolicy(
        {
            MAYBE.text: call("send_message", recipient=recipient, body="I am late"),
            ANNA.text: call("send_message", recipient="Anna"),
        }
    )
    outcome = await say(MAYBE, policy=policy)
    assert (outcome.actions, outcome.decisions[0].missing_param) == (["pardon"], "recipient")
    outcome = await say(MAYBE, ANNA, policy=policy)
    assert outcome.actions[0] == "pardon"
    assert all(ran.params["recipient"] == "Anna" for ran in outcome.executed), "never the one that may be taken back"


async def test_the_corrected_amount_is_the_one_that_is_asked_about_and_moved():
    policy = ScriptedPolicy({MONEY_AS_READ: call("transfer_money", recipient="Ben", amount=50, currency="dollars")})
    outcome = await say(MONEY, YES, policy=policy, confirmations=ConfirmSettings(frozenset({Risk.HIGH})))
    assert outcome.actions == ["pardon", "tool"]
    assert "50 dollars" in (outcome.decisions[0].answer or "")
    assert [dict(ran.params) for ran in outcome.executed] == [{"recipient": "Ben", "amount": 50, "currency": "dollars"}]


async def test_a_correction_with_a_hole_in_it_is_not_carried_out_but_asked_about():
    def noise_before_the_new_value(audio: Audio) -> tuple[DamageStretch, ...]:
        loud = np.flatnonzero(np.abs(audio) > 0.05)
        word = (loud[-1] - loud[0]) // len(LUNCH.text.split())
        start = int(loud[0] + 5 * word)
        return (DamageStretch(Span(start, start + int(word)), DamageKind.NOISE, 0.99),)

    ears = FakeEars([LUNCH], damage=noise_before_the_new_value)
    as_heard = f"Schedule lunch at six, no, {MASK_MARK} seven."
    policy = ScriptedPolicy({as_heard: call("schedule_event", title="lunch", when="seven")})
    outcome = await say(LUNCH, policy=policy, ears=ears)
    assert [" ".join(word.text for word in turn.segment.words) for turn in policy.seen] == [as_heard]
    assert outcome.executed == []
    assert outcome.reasons == ["argument_masked"]


# Somebody else's correction -----------------------------------------------------------------------------------------

OWNERS_PART = Voice(1000, "Schedule lunch at six,")
OTHERS_PART = Voice(1100, "no, at seven.", speaker=1)
FAR_PART = Voice(1200, "no, at seven.", near=0.05)
OWN_PART = Voice(1300, "no, at seven.")


@dataclass
class Unsplit(FakeEars):
    """Ears that hear two stretches of a turn for what they are, but miss that the voice changes between them."""

    edge_s: float = field(default=1.4)

    def ears(self) -> Ears:
        plain = super().ears()
        return Ears(_TwoPart(self), plain.speaker, plain.proximity, plain.damage)


@dataclass
class _TwoPart:
    owner: Unsplit
    model: object = None

    def hear(self, audio: Audio) -> Heard:
        loud = np.flatnonzero(np.abs(audio) > 0.05)
        edge = int(loud[0]) + round(self.owner.edge_s * SAMPLE_RATE_HZ)
        whole = FakeEars(self.owner.voices, changes_at=lambda _: (edge,))
        return whole.ears().speech.hear(audio)


@pytest.mark.parametrize(
    ("part", "action", "reason"),
    [(OWN_PART, "tool", "licensed"), (OTHERS_PART, "mute", "other_speaker"), (FAR_PART, "mute", "far")],
)
async def test_somebody_elses_correction_inside_the_owners_turn_sets_no_value(part: Voice, action: str, reason: str):
    ears = Unsplit([CHAT, OWNERS_PART, part])
    policy = ScriptedPolicy({LUNCH_AS_READ: call("schedule_event", title="lunch", when="seven")})
    turn = np.concatenate([tone(OWNERS_PART, 1.4), tone(part, 1.0)])
    script = [Silence(0.5), tone(CHAT, 2.0), Silence(1.0), turn, Silence(1.0)]
    outcome = await converse(script, ears, policy, CATALOGUE)
    assert (outcome.actions[-1], outcome.reasons[-1]) == (action, reason)
    assert len(outcome.executed) == (action == "tool")
