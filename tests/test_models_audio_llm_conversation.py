"""The vocabulary of audio chats: what no backend is ever given, and errors that say what happened."""

from __future__ import annotations

import numpy as np
import pytest

from models.audio_llm.conversation import (
    AudioPart,
    BackendError,
    BackendTimeoutError,
    Limits,
    Message,
    Role,
    Status,
    TextPart,
    TooLongError,
    assistant,
    check_messages,
    fold_system,
    system,
    user,
)


def sound(seconds: float = 1.0) -> AudioPart:
    return AudioPart(np.zeros(round(seconds * 16_000), np.float32))


LIMITS = Limits(audio_max_s=30.0, audio_total_s=40.0, audio_parts=2)


def test_a_conversation_within_the_limits_passes() -> None:
    """Exactly at a limit is within it."""
    check_messages([system("Act."), user(sound(30.0), "What?"), assistant("So."), user(sound(10.0))], LIMITS)


@pytest.mark.parametrize("sounds", [[30.1], [20.0, 20.1], [1.0, 1.0, 1.0]])
def test_too_much_sound_is_refused_before_anything_is_sent(sounds: list[float]) -> None:
    """A backend that cuts it would decide on half of what was said."""
    with pytest.raises(TooLongError):
        check_messages([user(*map(sound, sounds))], LIMITS)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [system("Act.")],
        [user("a"), assistant("b")],
        [user("a"), system("late"), user("b")],
        [Message(Role.SYSTEM, (sound(),)), user("a")],
        [Message(Role.USER, ())],
        [user(AudioPart(np.zeros(0, np.float32)))],
        [user(AudioPart(np.full(16_000, np.nan, np.float32)))],
        [user(AudioPart(np.zeros((16_000, 2), np.float32)))],
        [user(AudioPart(np.zeros(16_000, np.float64)))],  # type: ignore[arg-type]  # the wrong type is the point
    ],
)
def test_a_malformed_conversation_is_refused(messages: list[Message]) -> None:
    """Servers would drop the odd part and answer the rest."""
    with pytest.raises(BackendError) as caught:
        check_messages(messages, LIMITS)
    assert caught.value.status == Status.WRONG_INPUT


def test_the_instruction_goes_before_the_first_user_message_where_there_is_no_system_role() -> None:
    """A dropped instruction leaves a model that knows no tools."""
    folded = fold_system([system("Act."), user(sound(), "a"), assistant("b"), user("c")])
    assert [message.role for message in folded] == [Role.USER, Role.ASSISTANT, Role.USER]
    assert folded[0].parts[0] == TextPart("Act.")
    assert len(folded[0].sounds) == 1


def test_a_backends_time_out_counts_as_one() -> None:
    """The loop tells a slow model from a broken one."""
    error = BackendTimeoutError("after 8 s")
    assert isinstance(error, TimeoutError)
    assert (error.status, str(error)) == ("timeout", "timeout: after 8 s")
