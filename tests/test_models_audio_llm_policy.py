"""The policy on an audio chat: failures are raised, long sound is asked for again, and only the action is read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.actions import MuteAction, PardonAction, ToolAction, Unparseable
from gate.grammar import MAX_CHARS, parse
from models.audio_llm.chunks import parts_of
from models.audio_llm.conversation import (
    BackendError,
    Limits,
    Message,
    Reply,
    Status,
    Stop,
    Stopped,
    check_messages,
    system,
)
from models.audio_llm.policy import ACTION_TOKENS, ANSWER_TOKENS, AudioLlmPolicy
from models.audio_llm.reading import is_decided, read_reply
from models.protocols import ModelId
from tests.test_models_audio_llm_contract import TOOLS, turn

CALL = '<|TOOL|>{"name": "unlock_door", "params": {"door": "front door"}}</|TOOL|>'


class ScriptedChat:
    """Replies with what it was given, or raises it."""

    model = ModelId("scripted", "0" * 64)

    def __init__(self, reply: str | Exception, limits: Limits | None = None) -> None:
        self.limits = limits or Limits(audio_max_s=30.0)
        self.said = reply
        self.seen: list[tuple[Sequence[Message], int, Stop | None]] = []

    def reply(self, messages: Sequence[Message], max_tokens: int, stop: Stop | None = None) -> Reply:
        check_messages(messages, self.limits)
        self.seen.append((messages, max_tokens, stop))
        if isinstance(self.said, Exception):
            raise self.said
        return Reply(self.said, 7, Stopped.TERMINATOR)


class PrimableChat(ScriptedChat):
    """Remembers what it was to read ahead."""

    primed: Sequence[Message] = ()

    def prime(self, messages: Sequence[Message]) -> None:
        self.primed = messages


def test_a_reply_comes_out_as_it_was_written() -> None:
    """Whoever repairs a reply decides in the model's place."""
    output = AudioLlmPolicy(ScriptedChat(CALL)).propose(turn())
    assert (output.text, output.normalised, output.dialect, output.steps) == (CALL, None, "", 7)


def test_both_readings_of_a_native_call_are_kept() -> None:
    """Strict and normalised scores come from the same reply."""
    written = '[unlock_door(door="front door")]'
    output = AudioLlmPolicy(ScriptedChat(written)).propose(turn())
    assert (output.text, output.normalised, output.dialect) == (written, CALL, "af3_brackets")
    assert AudioLlmPolicy(ScriptedChat(written), dialects=()).propose(turn()).normalised is None


def test_thinking_reaches_no_parser() -> None:
    """A call that was only thought of must not run, nor a label that was only weighed silence the reply."""
    output = AudioLlmPolicy(ScriptedChat(f"<think>[Mute]? {CALL}?</think>It is noon.")).propose(turn())
    assert (output.text, output.thinking) == ("It is noon.", f"<think>[Mute]? {CALL}?</think>")
    unfinished = AudioLlmPolicy(ScriptedChat(f"<think>so {CALL}")).propose(turn())
    assert isinstance(parse(unfinished.text), Unparseable)


def test_a_failing_backend_raises() -> None:
    """A failure that came back as text would be an action."""
    with pytest.raises(BackendError):
        AudioLlmPolicy(ScriptedChat(BackendError(Status.SERVER_ERROR, "500"))).propose(turn())


def test_sound_that_is_too_long_is_asked_for_again() -> None:
    """Cutting it would decide on half of what was said."""
    chat = ScriptedChat("[Mute]", Limits(audio_max_s=0.5, audio_parts=1))
    assert isinstance(parse(AudioLlmPolicy(chat).propose(turn()).text), PardonAction)
    assert not chat.seen


def test_long_sound_goes_in_parts_where_several_may_be_given() -> None:
    """A recording of two minutes can be heard by an encoder of thirty seconds, in the open."""
    chat = ScriptedChat("Oslo.")
    audio = np.random.default_rng(0).normal(0, 0.1, 16_000 * 70).astype(np.float32)
    AudioLlmPolicy(chat).propose(turn(audio=audio, question="Where?"))
    sounds = [sound.audio for sound in chat.seen[0][0][0].sounds]
    assert len(sounds) == 3
    assert np.array_equal(np.concatenate(sounds), audio)


def test_parts_end_in_the_pauses() -> None:
    """A word cut in two is two words that nobody said."""
    audio = np.full(16_000 * 31, 0.5, np.float32)
    audio[16_000 * 29 : 16_000 * 29 + 800] = 0.0
    first, second = parts_of(audio, Limits(audio_max_s=30.0))
    assert 16_000 * 29 <= len(first.audio) <= 16_000 * 29 + 800
    assert len(first.audio) + len(second.audio) == len(audio)


@settings(max_examples=50)
@given(st.floats(0.01, 100.0), st.floats(2.0, 30.0))
def test_parts_are_the_sound_and_none_is_too_long(seconds: float, longest_s: float) -> None:
    """Nothing is left out at the seams."""
    audio = np.arange(round(seconds * 16_000), dtype=np.float32)
    parts = [part.audio for part in parts_of(audio, Limits(audio_max_s=longest_s))]
    assert np.array_equal(np.concatenate(parts), audio)
    assert all(len(part) <= longest_s * 16_000 for part in parts)


def test_an_action_is_short_and_may_stop_early_and_an_answer_to_a_question_may_not() -> None:
    """An answer that was cut off would be judged for what it did not say."""
    chat = ScriptedChat("Oslo.")
    policy = AudioLlmPolicy(chat)
    policy.propose(turn())
    policy.propose(turn(question="Where?"))
    assert [(tokens, stop) for _, tokens, stop in chat.seen] == [(ACTION_TOKENS, is_decided), (ANSWER_TOKENS, None)]


def test_the_instruction_is_read_ahead_where_the_chat_can() -> None:
    """The first turn should not wait for it."""
    chat = PrimableChat("[Mute]")
    AudioLlmPolicy(chat).prepare(TOOLS)
    assert list(chat.primed) == [system(AudioLlmPolicy(chat).contract.instruction(TOOLS))]
    AudioLlmPolicy(ScriptedChat("[Mute]")).prepare(TOOLS)


@given(st.text(max_size=40), st.text(max_size=60))
def test_what_is_decided_stays_so(start: str, rest: str) -> None:
    """Stopping early must never change the action."""
    for text in (start, f"[Mute]{start}", f" [ MUTE ]{start}", f"<think>{start}</think>[Mute]", f"{CALL}{start}"):
        if is_decided(text):
            now, later = (read_reply(Reply(t, 1, Stopped.DECIDED), TOOLS) for t in (text, text + rest))
            assert isinstance(parse(now.text), MuteAction)
            assert isinstance(parse(later.text), MuteAction | Unparseable)


def test_a_call_is_not_decided_before_its_model_ends() -> None:
    """ "...no, wait" after a call takes it back; whoever stopped at the closing mark never hears it."""
    assert not is_decided(CALL)
    assert not isinstance(parse(f"{CALL} no, wait"), ToolAction)
    assert not is_decided("<think>[Mute]")
    assert is_decided("x" * (MAX_CHARS + 1))
