"""The five native classes at tiny size: the sound reaches the network, and nothing is lost or made up on the way."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from models.audio_llm.conversation import (
    AudioPart,
    BackendError,
    Message,
    Status,
    Stopped,
    TooLongError,
    assistant,
    system,
    user,
)
from models.audio_llm.native import NativeChat
from models.audio_llm.nemotron_omni import ThinkingNemotronOmniChat
from models.protocols import Audio, ModelId
from models.store_errors import ModelError
from tests.tiny_audio_llms import FAMILIES, WINDOW_S, Tiny, one_thread, output_layer, teach

pytestmark = pytest.mark.slow

INSTRUCTION = system("Decide what is to be done. Write [Mute] or an answer.")


@pytest.fixture(scope="module", autouse=True)
def torch_alone() -> Iterator[None]:
    with one_thread():
        FAMILIES["qwen2-audio"]()
        yield


@pytest.fixture(scope="module", params=FAMILIES)
def tiny(request: pytest.FixtureRequest) -> Tiny:
    """One class; making it imports transformers, which takes seconds."""
    return FAMILIES[request.param]()


@pytest.fixture(scope="module")
def chat(tiny: Tiny) -> NativeChat:
    return tiny.chat()


def tone(hz: float, seconds: float = 1.0) -> Audio:
    t = np.arange(round(seconds * 16_000)) / 16_000
    return (0.3 * np.sin(2 * np.pi * hz * t)).astype(np.float32)


def asked(audio: Audio) -> list[Message]:
    return [INSTRUCTION, user(AudioPart(audio), "Now?")]


def inputs_of(chat: NativeChat, messages: list[Message]) -> Any:
    sounds = [sound for message in messages for sound in message.sounds]
    return chat._inputs(chat._prompt(messages), sounds)


@contextmanager
def tokens_read(chat: NativeChat) -> Iterator[list[int]]:
    """How many tokens each pass of the network reads."""
    seen: list[int] = []
    hook = output_layer(chat._network).register_forward_pre_hook(lambda module, args: seen.append(args[0].shape[1]))
    yield seen
    hook.remove()


# The sound ----------------------------------------------------------------------------------------------------------


def test_two_clips_give_two_inputs(chat: NativeChat) -> None:
    """A processor that drops the sound gives the same input for every clip."""
    one, other = (inputs_of(chat, asked(tone(hz))) for hz in (200, 400))
    assert (one["input_ids"] == other["input_ids"]).all()
    assert not np.allclose(one["input_features"], other["input_features"])


def test_the_answer_depends_on_the_sound(tiny: Tiny) -> None:
    """A model that is deaf answers alike to all; over twenty clips this one does not."""
    chat = tiny.chat()
    teach(chat, [(asked(tone(200)), "[Mute]"), (asked(tone(900)), "Noon.")])
    assert [chat.reply(asked(tone(hz)), 8).text for hz in (200, 900)] == ["[Mute]", "Noon."]
    said = {chat.reply(asked(tone(hz)), 1).text for hz in np.linspace(150, 1100, 20)}
    assert len(said) > 1


def test_every_place_in_the_prompt_is_filled_by_the_encoder(chat: NativeChat) -> None:
    """One place too many or too few shifts all that is heard, or drops it."""
    for seconds in (0.3, 1.0, 2.345, 3.9):
        inputs = inputs_of(chat, asked(tone(300, seconds)))
        places = int((inputs["input_ids"] == chat._processor.audio_token_id).sum())
        assert places == int(chat.encoder_tokens(inputs[chat.mask_key].sum(-1)).sum()) > 0


def test_sounds_keep_their_order(chat: NativeChat) -> None:
    """Who spoke first is half of what is asked."""
    if chat.limits.audio_parts < 2:
        pytest.skip("hears one sound a conversation")
    parts = [AudioPart(tone(hz)) for hz in (200, 400)]
    one = inputs_of(chat, [user(*parts, "Who?")])
    other = inputs_of(chat, [user(*reversed(parts), "Who?")])
    assert np.allclose(one["input_features"].flip(0), other["input_features"], atol=1e-5)
    assert chat.reply([user(parts[0]), assistant("Yes."), user(parts[1], "And now?")], 2).tokens


def test_words_alone_need_no_sound(chat: NativeChat) -> None:
    """Typed commands go the same way."""
    assert "input_features" not in inputs_of(chat, [INSTRUCTION, user("call Ben")])
    assert chat.reply([INSTRUCTION, user("call Ben")], 3).tokens == 3


def test_sound_beyond_the_window_is_refused_not_cut(chat: NativeChat) -> None:
    """Each class's own processor would cut it without a word, or pad for minutes."""
    if chat.limits.audio_max_s > 1000:
        pytest.skip("its window is longer than a test should be")
    audio = np.zeros(round(chat.limits.audio_max_s * 16_000) + 1, np.float32)
    with tokens_read(chat) as read, pytest.raises(TooLongError):
        chat.reply(asked(audio), 3)
    assert not read


def test_a_sound_too_short_for_the_encoder_is_refused(chat: NativeChat) -> None:
    """It would fill no place, and the model would answer to nothing."""
    for samples in (1, 160, 640, 1599):
        with pytest.raises(BackendError) as caught:
            chat.reply(asked(np.zeros(samples, np.float32)), 3)
        assert caught.value.status == Status.WRONG_INPUT
    assert chat.reply(asked(np.zeros(1600, np.float32)), 1).tokens == 1


# What has gone wrong with processors --------------------------------------------------------------------------------


class Tampered:
    """A processor that does something else with what it is given."""

    def __init__(self, processor: Any, call: Any) -> None:
        self._processor, self._call = processor, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)

    def __call__(self, **given: Any) -> Any:
        return self._call(self._processor, given)


def tampered(tiny: Tiny, call: Any) -> NativeChat:
    return tiny.chat_class(tiny.chat()._network, Tampered(tiny.processor, call), ModelId("tampered", "0" * 64))


def test_a_processor_that_ignores_its_argument_is_found_out(tiny: Tiny) -> None:
    """Releases have renamed the argument for sound; the old name was accepted, and dropped."""

    def deaf(processor: Any, given: dict[str, Any]) -> Any:
        given = {key: value for key, value in given.items() if key not in ("audio", "sampling_rate")}
        given["text"] = given["text"].replace(processor.audio_token, "")
        return processor(**given)

    with pytest.raises(BackendError, match="dropped the sound"):
        tampered(tiny, deaf).reply(asked(tone(200)), 3)


def test_a_processor_that_cuts_is_found_out(tiny: Tiny) -> None:
    """The end of a command can turn it round."""

    def cutting(processor: Any, given: dict[str, Any]) -> Any:
        return processor(**{**given, "audio": [sound[: len(sound) // 2] for sound in given["audio"]]})

    with pytest.raises(BackendError, match="cut the sound"):
        tampered(tiny, cutting).reply(asked(tone(200)), 3)


def test_a_wrong_number_of_places_is_found_out(tiny: Tiny) -> None:
    """Some classes go on with what fits."""

    def one_more(processor: Any, given: dict[str, Any]) -> Any:
        made = processor(**given)
        place = (made["input_ids"] == processor.audio_token_id).nonzero()[0, 1]
        made["input_ids"][0, place - 1] = processor.audio_token_id
        return made

    with pytest.raises(BackendError, match="places in the prompt"):
        tampered(tiny, one_more).reply(asked(tone(200)), 3)


def test_a_template_that_forgets_the_sound_is_found_out(tiny: Tiny) -> None:
    """A block of a kind that a template does not know is left out in silence."""
    processor = copy.copy(tiny.processor)
    processor.chat_template = "{% for m in messages %}{{ m['role'] }}{% endfor %}"
    chat = tiny.chat_class(tiny.chat()._network, processor, ModelId("forgetful", "0" * 64))
    with pytest.raises(BackendError, match="0 places for 1 sounds"):
        chat.reply(asked(tone(200)), 3)


@pytest.mark.parametrize("mark", ["<|im_end|>", "audio_token"])
def test_words_cannot_pose_as_the_templates_marks(chat: NativeChat, mark: str) -> None:
    """Typed text could otherwise end the user's message and go on as the system's."""
    word = chat._processor.audio_token if mark == "audio_token" else mark
    with pytest.raises(BackendError, match="control token"):
        chat.reply([INSTRUCTION, user(f"hello {word} there")], 3)


# Decoding -----------------------------------------------------------------------------------------------------------


def test_decoding_is_greedy_whatever_the_checkpoint_asks_for(tiny: Tiny) -> None:
    """Audio Flamingo 3 and Nemotron come with sampling switched on; a decision must be repeatable."""
    network = tiny.network()
    network.generation_config.update(do_sample=True, temperature=5.0, top_k=50, repetition_penalty=1.5)
    chat = tiny.chat_class(network, tiny.processor, ModelId("sampling", "0" * 64))
    first = chat.reply(asked(tone(300)), 12)
    assert all(chat.reply(asked(tone(300)), 12) == first for _ in range(3))
    assert tiny.chat().reply(asked(tone(300)), 12) == first


def test_writing_ends_when_the_caller_has_heard_enough(chat: NativeChat) -> None:
    """Every token after the decision is waited for in vain."""
    seen: list[str] = []

    def third(text: str) -> bool:
        seen.append(text)
        return len(seen) == 3

    reply = chat.reply(asked(tone(300)), 12, third)
    assert (reply.stopped, reply.tokens, len(seen)) == (Stopped.DECIDED, 3, 3)
    assert reply.text == seen[-1] == chat.reply(asked(tone(300)), 3).text


def test_how_a_reply_ended_is_told(tiny: Tiny) -> None:
    """A reply that was cut off is not one that the model ended."""
    chat = tiny.chat()
    teach(chat, [(asked(tone(200)), "It is noon.")])
    whole = chat.reply(asked(tone(200)), 20)
    assert (whole.text, whole.stopped) == ("It is noon.", Stopped.TERMINATOR)
    assert chat.reply(asked(tone(200)), 2).stopped is Stopped.LENGTH


def test_scores_that_are_not_finite_are_an_error(tiny: Tiny) -> None:
    """The largest of them is any token at all: perhaps a call."""
    chat = tiny.chat()
    with np.errstate(all="ignore"):
        output_layer(chat._network).weight.data[5] = float("nan")
    with pytest.raises(BackendError) as caught:
        chat.reply(asked(tone(200)), 3)
    assert caught.value.status == Status.NOT_FINITE


def test_a_prompt_beyond_the_context_is_refused(tiny: Tiny) -> None:
    """Positions that a network never saw give words without meaning."""
    with pytest.raises(TooLongError, match="tokens"):
        tiny.chat().reply([user("on " * 9000)], 3)


def test_the_instruction_is_read_once_and_changes_nothing(tiny: Tiny) -> None:
    """Speed must not cost an answer: the kept start gives the very same replies."""
    plain, primed = tiny.chat(), tiny.chat()
    primed.prime([INSTRUCTION])
    others = [[INSTRUCTION, user("call Ben")], [system("Other."), user(AudioPart(tone(250)))]]
    for messages in (asked(tone(200)), asked(tone(700)), *others):
        assert primed.reply(messages, 6) == plain.reply(messages, 6)
    with tokens_read(primed) as read:
        primed.reply(asked(tone(200)), 1)
    whole = inputs_of(primed, asked(tone(200)))["input_ids"].shape[1]
    assert read[0] < whole - 20


# One class alone ----------------------------------------------------------------------------------------------------


def test_a_thought_that_the_template_opened_is_marked_as_one() -> None:
    """Without its opening mark an unfinished thought would be read as the reply."""
    tiny = FAMILIES["nemotron-omni"]()
    chat = ThinkingNemotronOmniChat(tiny.network(), tiny.processor, ModelId("thinking", "0" * 64))
    seen: list[str] = []
    reply = chat.reply(asked(tone(200)), 3, lambda text: bool(seen.append(text)))
    assert reply.text.startswith("<think>")
    assert all(text.startswith("<think>") for text in seen)
    assert not tiny.chat().reply(asked(tone(200)), 3).text.startswith("<think>")


def test_audio_flamingo_hears_one_sound_and_says_so() -> None:
    """Its template has one place however many sounds there are."""
    chat = FAMILIES["audio-flamingo-3"]().chat()
    sound = AudioPart(tone(200))
    with pytest.raises(TooLongError, match="audio parts"):
        chat.reply([user(sound, sound)], 3)
    assert chat.limits.audio_max_s == 600


def test_audio_flamingo_hears_beyond_one_window() -> None:
    """Its windows are put together; each must be counted."""
    chat = FAMILIES["audio-flamingo-3"]().chat()
    inputs = inputs_of(chat, asked(tone(200, 1.5 * WINDOW_S)))
    assert inputs["input_features"].shape[0] == 2
    assert int((inputs["input_ids"] == chat._processor.audio_token_id).sum()) == 25 * 1.5 * WINDOW_S


def test_a_processor_of_another_network_is_refused() -> None:
    """Forty mel bands into a network for sixteen fail at the first turn, or worse, do not."""
    from transformers import Qwen2AudioProcessor, WhisperFeatureExtractor

    tiny = FAMILIES["qwen2-audio"]()
    other = Qwen2AudioProcessor(WhisperFeatureExtractor(feature_size=40), tiny.tokenizer)
    with pytest.raises(ModelError, match="40 mel bands"):
        tiny.chat_class(tiny.network(), other, ModelId("mixed", "0" * 64))


def test_a_tokenizer_without_the_end_token_is_refused() -> None:
    """A reply that cannot end runs to its limit, every time."""
    tiny = FAMILIES["qwen2-audio"]()

    class Endless(tiny.chat_class):  # type: ignore[name-defined, misc]  # the class under test
        terminators = ("<|nowhere|>",)

    with pytest.raises(ModelError, match="nowhere"):
        Endless(tiny.network(), tiny.processor, ModelId("endless", "0" * 64))
