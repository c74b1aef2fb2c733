"""The adaptations on scripted chats: every bound, every malformed step, and that no step is ever an action."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from gate.actions import MuteAction, PardonAction, ToolAction
from gate.evidence import Modality
from gate.grammar import parse
from models.audio_llm.adaptations import backends
from models.audio_llm.adaptations.adapted import ACT, AdaptationError, Adapted
from models.audio_llm.adaptations.aura import ATTRIBUTE, Aura, read_attribution
from models.audio_llm.adaptations.backends import load_backend
from models.audio_llm.adaptations.shanks import EOA, EOPA, MAX_CHUNKS, NOTE_CHARS, NOTE_TOKENS, Shanks
from models.audio_llm.adaptations.tws import ENOUGH, MAX_CALLS, MEASURE, MORE, Tws
from models.audio_llm.contract import ActionContract
from models.audio_llm.conversation import BackendError, Limits, Role, Status
from models.audio_llm.policy import ACTION_TOKENS, AudioLlmPolicy
from models.components import UnknownComponentError
from models.protocols import Listening, SpeechSoFar
from tests.adaptation_chats import SEND, TOKENS, ScriptedChat
from tests.fake_models import FakeEars, ScriptedPolicy, Voice
from tests.test_models_audio_llm_contract import TOOLS, segment, turn

PAYLOAD = '{"speaker": "owner", "addressee": "assistant", "distance": "near"}'
STEP = f"<thought>One voice.</thought>\n<action>attribute</action>\n<payload>{PAYLOAD}</payload>"
CALL = '{"tool": "energy", "start": 0.0, "end": 0.5}'
EAR = FakeEars([Voice(200, "a")]).ears().speaker


def aura(*said: str | Exception, **more: object) -> tuple[Aura, ScriptedChat]:
    chat = ScriptedChat(said, **more)  # type: ignore[arg-type]  # a table of fields
    return Aura(AudioLlmPolicy(chat)), chat


def tws(*said: str | Exception, **more: object) -> tuple[Tws, ScriptedChat]:
    chat = ScriptedChat(said, **more)  # type: ignore[arg-type]  # a table of fields
    return Tws(AudioLlmPolicy(chat), EAR), chat


def shanks(*said: str | Exception, **more: object) -> tuple[Shanks, ScriptedChat]:
    chat = ScriptedChat(said, **more)  # type: ignore[arg-type]  # a table of fields
    return Shanks(AudioLlmPolicy(chat)), chat


def so_far(*notes: str, seconds: float = 1.0) -> SpeechSoFar:
    return SpeechSoFar("t1", np.zeros(round(16_000 * seconds), np.float32), (segment("hello"),), TOOLS, notes)


class TestAll:
    """What the three have in common."""

    @pytest.mark.parametrize("make", [aura, tws, shanks])
    def test_the_instruction_is_that_of_every_model_and_the_steps_come_after_it(self, make) -> None:
        """Another instruction would be another contest."""
        policy, chat = make()
        policy.prepare(TOOLS)
        ((message,), instruction) = chat.primed, ActionContract().instruction(TOOLS)
        assert message.role is Role.SYSTEM
        assert message.text == f"{instruction}\n{policy.protocol}"
        assert policy.opening(TOOLS) == chat.primed, "what is read ahead is what every turn starts with"

    @pytest.mark.parametrize("make", [aura, tws, shanks])
    def test_a_question_about_a_recording_is_asked_as_without_it(self, make) -> None:
        """There is no action to choose, and steps would be read out as an answer."""
        policy, chat = make("At noon.")
        output = policy.propose(turn(question="When?"))
        assert output.text == "At noon."
        assert chat.roles(0) == [Role.USER]

    @pytest.mark.parametrize("make", [aura, tws, shanks])
    def test_what_was_typed_is_acted_on_at_once(self, make) -> None:
        """Nobody spoke it: there is nothing to attribute, measure or note."""
        policy, chat = make(SEND)
        output = policy.propose(turn(modality=Modality.TEXT, audio=None))
        assert (output.text, len(chat.seen)) == (SEND, 1)
        assert chat.requests[0].endswith(ACT)

    @pytest.mark.parametrize(
        ("make", "steps"),
        [(aura, [STEP]), (tws, [CALL, ENOUGH]), (shanks, [])],
    )
    def test_every_failure_of_the_backend_is_raised_whenever_it_comes(self, make, steps: Sequence[str]) -> None:
        """A step without its action must not become one."""
        for broken in range(len(steps) + 1):
            said = [*steps[:broken], BackendError(Status.TIMEOUT, "late")]
            policy, chat = make(*said)
            with pytest.raises(BackendError, match="timeout"):
                policy.propose(turn())
            assert len(chat.seen) == broken + 1

    @pytest.mark.parametrize(("make", "steps"), [(aura, [STEP]), (tws, [ENOUGH]), (shanks, [])])
    def test_sound_that_is_too_long_is_asked_for_again(self, make, steps: Sequence[str]) -> None:
        """Half a turn would be half a command."""
        policy, chat = make(*steps, SEND, limits=Limits(audio_max_s=0.5, audio_parts=1))
        assert isinstance(parse(policy.propose(turn()).text), PardonAction)
        assert chat.seen == []

    @pytest.mark.parametrize(("make", "steps"), [(aura, [STEP]), (tws, [CALL, ENOUGH]), (shanks, [])])
    def test_thinking_in_a_step_or_before_the_action_is_private(self, make, steps: Sequence[str]) -> None:
        """A thought is neither a step nor an action."""
        thought = f"<think>{SEND} {STEP} {CALL} {EOA}</think>"
        policy, chat = make(*(thought + step for step in steps), f"{thought}[Mute]")
        output = policy.propose(turn())
        assert isinstance(parse(output.text), MuteAction)
        assert thought in output.thinking
        for messages, _ in chat.seen:
            assert not any(thought in message.text for message in messages), "it is not read back to the model either"

    def test_each_is_recorded_under_its_own_name_with_the_chats_weights(self) -> None:
        """A row of the table must say what it measured."""
        for (policy, chat), name in ((aura(), "aura"), (tws(), "tws"), (shanks(), "shanks")):
            assert (policy.model.name, policy.model.sha256) == (f"{name}/scripted", chat.model.sha256)

    @pytest.mark.parametrize(
        ("make", "steps", "private"),
        [
            (aura, [STEP], "The owner speaks, to the assistant, from near by."),
            (tws, [CALL, ENOUGH], "Measured: Level -120 dBFS, peak -120 dBFS."),
            (shanks, [], "One voice, near,  speaks to you."),
        ],
    )
    def test_what_came_of_the_steps_is_not_read_out(self, make, steps: Sequence[str], private: str) -> None:
        """Small models repeat what they read last, and it would be spoken to the user."""
        policy, _ = make(*steps, f"Well. {private} It is noon.")
        with pytest.raises(AdaptationError, match="in the place of the action"):
            policy.propose(turn(notes=("One voice, near, speaks to you.",)))
        written = SEND.replace("I am late", private.replace('"', ""))
        policy, _ = make(*steps, written)
        assert policy.propose(turn(notes=("One voice, near, speaks to you.",))).text == written

    def test_a_few_words_may_stand_in_a_note_and_in_the_answer(self) -> None:
        """Otherwise a note on the answer would forbid the answer."""
        policy, _ = shanks("It is noon.")
        assert policy.propose(turn(notes=("It is noon.",))).text == "It is noon."

    def test_only_the_one_that_notes_is_asked_to_listen(self) -> None:
        """Listening costs compute while somebody speaks."""
        assert isinstance(shanks()[0], Listening)
        assert not isinstance(aura()[0], Listening)
        assert not isinstance(tws()[0], Listening)

    def test_a_thinking_chat_may_think_in_its_steps_too(self) -> None:
        """Cut off in its thoughts it would never write a step."""
        chat = ScriptedChat([STEP, "[Mute]"])
        Aura(AudioLlmPolicy(chat, action_tokens=ACTION_TOKENS + 1000)).propose(turn())
        plain, ordinary = aura(STEP, "[Mute]")
        plain.propose(turn())
        assert chat.seen[0][1] == ordinary.seen[0][1] + 1000


class TestAura:
    """Attribution, then the action."""

    @pytest.mark.parametrize("streams", [True, False])
    def test_the_attribution_is_read_back_and_then_the_action_is_asked_for(self, streams: bool) -> None:
        policy, chat = aura(STEP, SEND, streams=streams)
        output = policy.propose(turn())
        assert (output.text, output.steps) == (SEND, 2 * TOKENS)
        assert STEP in output.thinking
        first, second = chat.requests
        assert first.endswith(ATTRIBUTE)
        assert second == f"Observation: the owner speaks, to the assistant, from near by. {ACT}"
        assert chat.roles(1) == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.USER]
        assert [len(message.sounds) for message in chat.seen[1][0]] == [0, 1, 0, 0], "heard once, and still there"

    def test_a_malformed_attribution_is_answered_and_may_come_once_more(self) -> None:
        policy, chat = aura("It is the owner.", STEP, SEND)
        assert policy.propose(turn()).text == SEND
        assert chat.requests[1].startswith("Observation: That is not the form")
        assert chat.requests[1].endswith(ATTRIBUTE)

    @pytest.mark.parametrize("said", ["It is the owner.", SEND, "[Mute]", "", "<think>" + STEP])
    def test_without_an_attribution_there_is_no_action(self, said: str) -> None:
        """An action that comes in its place was not thought about: it never acts."""
        policy, chat = aura(said, said)
        with pytest.raises(AdaptationError, match="no attribution in 2 turns"):
            policy.propose(turn())
        assert len(chat.seen) == 2

    @pytest.mark.parametrize(
        "said",
        [
            STEP,
            "<thought>[Mute]</thought>",
            "<payload>{}</payload>",
            "Attribute.",
            "Observation: near",
            f"{STEP}\n[Mute]",
            f"{STEP}\n{SEND}",
        ],
    )
    def test_a_step_in_the_place_of_the_action_is_a_failure(self, said: str) -> None:
        """It would be spoken to the user as an answer, or run what was only considered."""
        policy, _ = aura(STEP, said)
        with pytest.raises(AdaptationError, match="in the place of the action"):
            policy.propose(turn())

    def test_an_argument_may_say_anything(self) -> None:
        """Words that were said are no marks."""
        written = SEND.replace("I am late", "<thought> is a tag")
        policy, _ = aura(STEP, written)
        assert isinstance(parse(policy.propose(turn()).text), ToolAction)

    @pytest.mark.parametrize("streams", [True, False])
    def test_what_follows_the_attribution_is_not_heard(self, streams: bool) -> None:
        """Models go on with an observation and an action of their own making."""
        policy, chat = aura(f"{STEP}\nObservation: done. {SEND}", "[Mute]", streams=streams)
        assert isinstance(parse(policy.propose(turn()).text), MuteAction)
        assert chat.seen[1][0][2].text == STEP

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("", "not the form"),
            (f"Well: {STEP}", "not the form"),
            (STEP.replace("<action>attribute</action>\n", ""), "not the form"),
            (STEP.replace("attribute", "send_message"), "attribute"),
            (STEP.replace(PAYLOAD, "owner"), "one JSON object"),
            (STEP.replace(PAYLOAD, f"[{PAYLOAD}]"), "one JSON object"),
            (STEP.replace(PAYLOAD, PAYLOAD[:-1] + ', "sure": true}'), "exactly"),
            (STEP.replace(PAYLOAD, '{"speaker": "owner"}'), "exactly"),
            (STEP.replace('"owner"', '"Ben"'), "speaker is one of"),
            (STEP.replace('"near"', "1.5"), "distance is one of"),
            (STEP.replace('"near"', "NaN"), "one JSON object"),
            (STEP.replace('{"speaker"', '{"speaker": "other", "speaker"'), "one JSON object"),
        ],
    )
    def test_nothing_is_guessed_of_a_malformed_attribution(self, text: str, fault: str) -> None:
        found = read_attribution(text)
        assert isinstance(found, str)
        assert fault in found


class TestTws:
    """Measures, then the action."""

    def test_measures_are_answered_and_the_action_is_asked_for_when_there_are_enough(self) -> None:
        policy, chat = tws(CALL, ENOUGH, SEND)
        output = policy.propose(turn())
        assert (output.text, output.steps) == (SEND, 3 * TOKENS)
        assert CALL in output.thinking
        assert chat.requests[0].endswith(f"The sound is 1.00 s long. {MEASURE}")
        assert chat.requests[1].startswith("Measured: Level")
        assert chat.requests[1].endswith(MORE)
        assert chat.requests[2] == ACT

    def test_after_the_last_call_the_action_is_asked_for_at_once(self) -> None:
        """Without a bound a model could measure for ever while a command waits."""
        policy, chat = tws(*[CALL] * MAX_CALLS, "[Mute]")
        policy.propose(turn())
        assert len(chat.seen) == MAX_CALLS + 1
        assert chat.requests[-1].startswith("Measured:")
        assert chat.requests[-1].endswith(ACT)

    @pytest.mark.parametrize("said", ["", "Let me measure.", SEND, "[Mute]", f"{CALL}\n{CALL}", '{"tool": "delete"}'])
    def test_what_is_no_call_is_answered_counts_and_never_acts(self, said: str) -> None:
        """A tool call in the place of a measure runs nothing."""
        policy, chat = tws(*[said] * MAX_CALLS, "[Mute]")
        assert isinstance(parse(policy.propose(turn()).text), MuteAction)
        assert all(request.startswith("Not measured: ") for request in chat.requests[1:])

    @pytest.mark.parametrize("said", [CALL, ENOUGH, f"{ENOUGH} [Mute]", f"{CALL} {SEND}"])
    def test_a_measure_in_the_place_of_the_action_is_a_failure(self, said: str) -> None:
        """It would be spoken to the user as an answer."""
        policy, _ = tws(ENOUGH, said)
        with pytest.raises(AdaptationError, match="in the place of the action"):
            policy.propose(turn())

    def test_a_turn_without_its_sound_is_a_failure(self) -> None:
        """Measures of nothing would be made up."""
        policy, _ = tws()
        with pytest.raises(BackendError, match="without its sound"):
            policy.propose(turn(audio=None))


class TestShanks:
    """Notes while listening, then the action."""

    @pytest.mark.parametrize("streams", [True, False])
    def test_a_note_ends_at_its_mark(self, streams: bool) -> None:
        """Whatever a server sends after it was not part of the note."""
        policy, chat = shanks(f" One voice,\n near. {EOA} {SEND}", streams=streams)
        assert policy.listen(so_far()) == "One voice, near."
        (messages, allowed) = chat.seen[0]
        assert messages[-1].text.endswith(EOPA)
        assert [sound.seconds for sound in messages[-1].sounds] == [1.0]
        assert allowed == NOTE_TOKENS

    def test_a_note_is_bounded_though_its_mark_never_comes(self) -> None:
        """Notes are read again with every later one."""
        policy, _ = shanks("word " * 4000)
        assert len(policy.listen(so_far())) == NOTE_CHARS

    def test_earlier_notes_are_read_with_the_next_and_with_the_action(self) -> None:
        policy, chat = shanks(f"two {EOA}", SEND)
        assert policy.listen(so_far("one")) == "two"
        assert "1. one" in chat.requests[0]
        output = policy.propose(turn(notes=("one", "two")))
        assert output.text == SEND
        assert "1. one\n2. two" in chat.requests[1]
        assert chat.requests[1].endswith(f"{EOA} {ACT}")

    def test_a_note_that_holds_an_action_never_acts(self) -> None:
        """What was only considered while the command was half spoken must not run."""
        policy, _ = shanks(f"{SEND} {EOA}", "[Mute]")
        note = policy.listen(so_far())
        assert note == SEND
        output = policy.propose(turn(notes=(note,)))
        assert isinstance(parse(output.text), MuteAction)
        assert output.normalised is None

    @pytest.mark.parametrize("said", [f"One voice. {EOA}", f"{EOA} {SEND}", f"[Mute] {EOA} {SEND}", f"{EOPA} note"])
    def test_a_note_in_the_place_of_the_action_is_a_failure(self, said: str) -> None:
        """It would be spoken to the user as an answer, or its command run."""
        policy, _ = shanks(said, streams=False)
        with pytest.raises(AdaptationError, match="in the place of the action"):
            policy.propose(turn(notes=("one",)))

    def test_a_turn_without_notes_is_acted_on_at_once(self) -> None:
        policy, chat = shanks(SEND)
        assert policy.propose(turn()).text == SEND
        assert chat.requests[0].endswith(f"{EOA} {ACT}")

    def test_no_more_notes_are_made_or_read_than_may_be(self) -> None:
        """A long turn must not grow its own prompt without end."""
        notes = tuple(f"note{number}." for number in range(MAX_CHUNKS + 2))
        policy, chat = shanks("[Mute]")
        assert policy.listen(so_far(*notes[:MAX_CHUNKS])) == ""
        assert chat.seen == []
        policy.propose(turn(notes=notes))
        assert notes[MAX_CHUNKS - 1] in chat.requests[0]
        assert notes[MAX_CHUNKS] not in chat.requests[0]

    def test_sound_that_is_too_long_to_note_leaves_no_note(self) -> None:
        """The turn itself will be asked for again."""
        policy, _ = shanks(limits=Limits(audio_max_s=0.5, audio_parts=1))
        assert policy.listen(so_far()) == ""

    def test_it_keeps_nothing_between_turns(self) -> None:
        """One policy serves many sessions: another's notes would be another's words."""
        policy, chat = shanks(f"secret {EOA}", "[Mute]")
        policy.listen(so_far())
        policy.propose(turn())
        assert "secret" not in "".join(message.text for message in chat.seen[1][0])


class TestBackends:
    """What an adaptation may stand on."""

    def test_an_unknown_backend_is_named(self) -> None:
        with pytest.raises(UnknownComponentError, match="no policy 'qwen9'"):
            load_backend("aura", None, 1, {"backend": "qwen9"})  # type: ignore[arg-type]  # it never comes to the store

    def test_a_policy_that_cannot_be_talked_to_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(backends, "load_policy", lambda name, store, threads: ScriptedPolicy({}))
        with pytest.raises(UnknownComponentError, match="is no chat"):
            load_backend("aura", None, 1, {"backend": "rules"})  # type: ignore[arg-type]  # as above

    def test_a_backends_own_options_are_handed_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []

        def load(name: str, store: object, threads: int) -> AudioLlmPolicy:
            asked.append(name)
            return AudioLlmPolicy(ScriptedChat([]))

        monkeypatch.setattr(backends, "load_policy", load)
        load_backend("aura", None, 1, {"backend": "qwen2-audio", "dir": "/a", "told": "words"})  # type: ignore[arg-type]
        load_backend("aura", None, 1, {"backend": "qwen2-audio"})  # type: ignore[arg-type]  # as above
        assert asked == ["qwen2-audio:dir=/a,told=words", "qwen2-audio"]

    def test_an_option_of_the_embedded_chat_that_does_not_exist_is_named(self) -> None:
        with pytest.raises(UnknownComponentError, match="no option 'dtype'"):
            load_backend("aura", None, 1, {"dtype": "bfloat16"})  # type: ignore[arg-type]  # as above


def test_no_adaptation_changes_the_policy_that_it_stands_on() -> None:
    """The raw row of the table is measured with the same object."""
    chat = ScriptedChat([SEND])
    base = AudioLlmPolicy(chat)
    adapted: list[Adapted] = [Aura(base), Tws(base, EAR), Shanks(base)]
    assert all(policy.chat is chat for policy in adapted)
    assert base.propose(turn()).text == SEND
    assert [message.text for message in chat.seen[0][0]] == [
        message.text for message in ActionContract().messages(turn())
    ]
