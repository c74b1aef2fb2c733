"""Each native class in the live loop: a turn of sound goes in, and what its network writes is decided upon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from agent import turn_work
from agent.sources import Silence
from gate.catalogue import ToolCall
from models.audio_llm.contract import ActionContract, Told
from models.audio_llm.conversation import AudioPart, BackendError, Limits, Status
from models.audio_llm.policy import AudioLlmPolicy
from models.protocols import Audio, PolicyInput
from tests.fake_models import FakeEars, ScriptedPolicy, Voice, tone
from tests.loop_harness import Outcome, converse
from tests.test_models_audio_llm_policy import ScriptedChat
from tests.tiny_audio_llms import FAMILIES, one_thread, teach
from tools.catalogue import ToolCatalogue

pytestmark = pytest.mark.slow

CATALOGUE = ToolCatalogue.builtin(())
CHAT = Voice(200, "where did I put my keys")
COMMAND = Voice(400, "switch on the kitchen light")
STRANGER = Voice(700, "switch on the kitchen light", speaker=1)
CALL = ToolCall("control_device", {"device": "kitchen light", "action": "turn_on"})
CANONICAL = '<|TOOL|>{"name": "control_device", "params": {"device": "kitchen light", "action": "turn_on"}}</|TOOL|>'
BRACKETS = '[control_device(device="kitchen light", action="turn_on")]'


@pytest.fixture(scope="module", autouse=True)
def torch_alone() -> Iterator[None]:
    with one_thread():
        FAMILIES["qwen2-audio"]()
        yield


async def live(policy: Any, *voices: Voice, **more: Any) -> Outcome:
    script = [part for voice in voices for part in (Silence(0.4), tone(voice, 1.2), Silence(1.2))]
    return await converse(script, FakeEars(voices), policy, CATALOGUE, **more)


@dataclass
class Listening(ScriptedPolicy):
    """Mutes everything and keeps what it was given."""

    def __init__(self) -> None:
        super().__init__({})


async def turns_of(*voices: Voice, **more: Any) -> Sequence[PolicyInput]:
    policy = Listening()
    await live(policy, *voices, **more)
    return policy.seen


@pytest.mark.parametrize("name", FAMILIES)
async def test_a_turn_goes_in_and_a_parsed_action_comes_out(name: str) -> None:
    """The same words to two clips: what is done depends on what the class's own encoder makes of the sound."""
    contract = ActionContract(Told.NOTHING)
    chat = FAMILIES[name]().chat()
    heard = await turns_of(CHAT, COMMAND)
    teach(chat, [(contract.messages(turn), text) for turn, text in zip(heard, ("[Mute]", CANONICAL), strict=True)])
    policy = AudioLlmPolicy(chat, contract)
    policy.prepare(CATALOGUE.all())
    outcome = await live(policy, CHAT, COMMAND)
    assert outcome.actions == ["mute", "tool"]
    assert outcome.executed == [CALL]


@pytest.mark.parametrize("name", FAMILIES)
async def test_an_untaught_network_executes_nothing(name: str) -> None:
    """Whatever random weights write, it is an answer or a fault."""
    outcome = await live(AudioLlmPolicy(FAMILIES[name]().chat(), action_tokens=12), COMMAND)
    assert len(outcome.decisions) == 1
    assert outcome.actions[0] in ("answer", "pardon")
    assert not outcome.executed


async def test_what_the_model_wants_for_a_stranger_is_vetoed() -> None:
    """An audio LLM proposes like any other policy; it cannot grant."""
    outcome = await live(AudioLlmPolicy(ScriptedChat(CANONICAL)), CHAT, STRANGER)
    assert outcome.actions[-1] == "mute"
    assert not outcome.executed


async def test_a_backends_failure_executes_nothing_and_says_why() -> None:
    """A server that is down must not look like a quiet room."""
    chat = ScriptedChat(BackendError(Status.RATE_LIMITED, "too many requests"))
    outcome = await live(AudioLlmPolicy(chat), COMMAND)
    assert (outcome.actions, outcome.reasons) == (["pardon"], ["policy_failed"])
    assert "rate_limited" in outcome.decisions[0].detail


async def test_a_turn_too_long_for_the_model_is_asked_for_again() -> None:
    """Half a turn would be half a command."""
    chat = ScriptedChat(CANONICAL, Limits(audio_max_s=0.5, audio_parts=1))
    outcome = await live(AudioLlmPolicy(chat), COMMAND)
    assert outcome.actions == ["pardon"]
    assert not outcome.executed


async def test_a_native_dialect_runs_only_where_the_settings_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strict is the default: a call in another form is no call."""
    policy = AudioLlmPolicy(ScriptedChat(BRACKETS))
    strict = await live(policy, COMMAND)
    assert (strict.actions, strict.executed) == (["answer"], [])
    make = turn_work.TurnWork

    def reading_dialects(**given: Any) -> turn_work.TurnWork:
        return make(**given, dialects=True)

    monkeypatch.setattr("tests.loop_harness.TurnWork", reading_dialects)
    normalised = await live(policy, COMMAND)
    assert (normalised.actions, normalised.executed) == (["tool"], [CALL])


async def test_a_question_is_asked_over_the_whole_recording() -> None:
    """An audio LLM that were given the words alone would be tested on reading."""
    chat = ScriptedChat("On the table.")
    outcome = await live(AudioLlmPolicy(chat), CHAT, COMMAND, question="Where are the keys?")
    assert outcome.decisions[-1].answer == "On the table."
    ((messages, _, _),) = chat.seen
    (sound,) = messages[0].sounds
    assert pitches(sound.audio) == [200, 400]
    assert 3.5 < sound.seconds < 5.5


def pitches(audio: Audio) -> list[int]:
    """The pitch of the louder of the two tones in each half."""
    half = len(audio) // 2
    spectra = [np.abs(np.fft.rfft(part)) for part in (audio[:half], audio[half:])]
    return [round(float(np.argmax(s)) * 16_000 / half / 50) * 50 for s in spectra]


async def test_the_sound_that_the_model_hears_is_the_turns() -> None:
    """A neighbour's turn in its place would be another's command."""
    chat = ScriptedChat("[Mute]")
    await live(AudioLlmPolicy(chat, ActionContract(Told.NOTHING)), CHAT, COMMAND)
    sounds = [part for messages, _, _ in chat.seen for message in messages for part in message.sounds]
    assert [pitches(sound.audio)[0] for sound in sounds] == [200, 400]
    assert all(isinstance(sound, AudioPart) and sound.audio.dtype == np.float32 for sound in sounds)
