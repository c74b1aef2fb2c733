"""What is said to an audio language model and what it says back: the vocabulary that every backend shares.

A backend is an ``AudioChat``: it is given messages of text and sound and writes a reply, greedily, exactly as its model
wrote it. It knows nothing of actions; ``models.audio_llm.contract`` builds the messages and ``gate.grammar`` reads the
reply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

import numpy as np

from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio, ModelId


class Role(StrEnum):
    """Whose message it is."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class TextPart:
    """Written words."""

    text: str


@dataclass(frozen=True, slots=True)
class AudioPart:
    """Sound: float32 mono at 16 kHz in [-1, 1], shape ``(samples,)``."""

    audio: Audio = field(repr=False)

    @property
    def seconds(self) -> float:
        """Its length in seconds."""
        return len(self.audio) / SAMPLE_RATE_HZ


Part = TextPart | AudioPart


@dataclass(frozen=True, slots=True)
class Message:
    """One message: parts in the order in which the model is to read them. Only a user's message may hold sound."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """Its text parts, one a line."""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def sounds(self) -> tuple[AudioPart, ...]:
        """Its audio parts, in order."""
        return tuple(part for part in self.parts if isinstance(part, AudioPart))


def system(text: str) -> Message:
    """A system message."""
    return Message(Role.SYSTEM, (TextPart(text),))


def user(*parts: Part | str) -> Message:
    """A user's message; strings become text parts."""
    return Message(Role.USER, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def assistant(text: str) -> Message:
    """What the model said before."""
    return Message(Role.ASSISTANT, (TextPart(text),))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a backend can take.

    Attributes:
        audio_max_s: the longest audio part, in seconds. Longer parts raise ``TooLongError``; nothing is ever cut.
        audio_total_s: all audio parts of one request together, in seconds.
        audio_parts: how many audio parts one request may hold.
        system_role: whether there is a system role. Where there is none the backend itself puts the system text before
            the first user message.
    """

    audio_max_s: float
    audio_total_s: float = math.inf
    audio_parts: float = math.inf
    system_role: bool = True


class Stopped(StrEnum):
    """Why a reply ended."""

    TERMINATOR = "terminator"
    """The model ended it."""
    DECIDED = "decided"
    """``stop`` said so."""
    LENGTH = "length"
    """It reached ``max_tokens``: what is there may be cut off."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model wrote.

    Attributes:
        text: exactly as written, thinking included; only the terminator at its end is left out. Where the prompt ends
            inside of thinking, its ``<think>`` stands in front, so that an unfinished thought cannot pass for a reply.
        tokens: tokens written, for the log; 0 where a server does not say.
        stopped: why it ended.
        note: one line for the log (retries, cost), or empty.
    """

    text: str
    tokens: int
    stopped: Stopped
    note: str = ""


Stop = Callable[[str], bool]
"""Given the text so far (as in ``Reply.text``), whether nothing that follows can matter."""


class AudioChat(Protocol):
    """A model that hears and writes. Called from one thread at a time."""

    @property
    def model(self) -> ModelId: ...

    @property
    def limits(self) -> Limits: ...

    def reply(self, messages: Sequence[Message], max_tokens: int, stop: Stop | None = None) -> Reply:
        """Write one reply, greedily.

        Args:
            messages: the conversation; at most one system message, first; the last is the user's.
            max_tokens: how many tokens may be written.
            stop: asked while the reply grows, as often as the backend can; once it says True writing ends.

        Raises:
            TooLongError: when the sound is longer than the limits. Nothing is sent.
            BackendError: for anything else that keeps a reply from coming, each with its status.
        """
        ...


@runtime_checkable
class Primable(Protocol):
    """A chat that can read the unchanging start of its conversations ahead of time."""

    def prime(self, messages: Sequence[Message]) -> None:
        """Read these messages now; replies to conversations that start with them come sooner.

        Raises:
            BackendError: when reading fails.
        """
        ...


class ChatError(Exception):
    """No reply came."""


class TooLongError(ChatError):
    """The sound is longer than the model hears. Nothing was cut and nothing was sent.

    Attributes:
        seconds: what was to be heard, in seconds (or how many parts).
        limit: what the model takes.
    """

    def __init__(self, seconds: float, limit: float, unit: str = "s of audio") -> None:
        super().__init__(f"{seconds:.4g} {unit}, and the model takes at most {limit:.4g}")
        self.seconds = seconds
        self.limit = limit


class Status(StrEnum):
    """Why a backend failed. A failure is never an action."""

    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    """No connection, or it broke."""
    RATE_LIMITED = "rate_limited"
    NO_KEY = "no_key"
    """A key is needed and the environment holds none."""
    DENIED = "denied"
    """The key is not accepted."""
    BAD_REQUEST = "bad_request"
    """The server refused what was sent."""
    SERVER_ERROR = "server_error"
    BAD_REPLY = "bad_reply"
    """The server's answer is not in its own format."""
    FILTERED = "filtered"
    """The server withheld the reply."""
    BUDGET = "budget"
    """The costs allowed are used up."""
    CRASHED = "crashed"
    """The backend's process ended."""
    WRONG_INPUT = "wrong_input"
    """The messages cannot be given to this model, or its processor dropped a part of them."""
    OUT_OF_MEMORY = "out_of_memory"
    NOT_FINITE = "not_finite"
    """The network computed NaN or infinity."""
    NETWORK_FAILED = "network_failed"
    """A network in this process, or its processor, raised."""


class BackendError(ChatError):
    """A backend failed.

    Attributes:
        status: which failure, for the log: one of ``Status``, or a backend's own name in snake case.
        detail: one line, without keys or audio.
    """

    def __init__(self, status: str, detail: str) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = str(status)
        self.detail = detail


class BackendTimeoutError(BackendError, TimeoutError):
    """A backend did not reply in time. The loop counts it as a time-out, like its own."""

    def __init__(self, detail: str) -> None:
        super().__init__(Status.TIMEOUT, detail)


def check_messages(messages: Sequence[Message], limits: Limits) -> None:
    """Refuse what a backend cannot be given. Every backend calls it first.

    Raises:
        TooLongError: when sound is longer, or in more parts, than the limits.
        BackendError: WRONG_INPUT when the order of roles is wrong, sound stands outside of user messages, a part is
            empty, or samples are not finite float32 in one dimension.
    """
    if not messages or messages[-1].role is not Role.USER:
        raise BackendError(Status.WRONG_INPUT, "the last message must be the user's")
    if any(message.role is Role.SYSTEM for message in messages[1:]):
        raise BackendError(Status.WRONG_INPUT, "a system message stands first or nowhere")
    for message in messages:
        if not message.parts or (message.sounds and message.role is not Role.USER):
            raise BackendError(Status.WRONG_INPUT, f"a {message.role} message is empty or holds sound")
    sounds = [sound for message in messages for sound in message.sounds]
    for sound in sounds:
        _check_sound(sound)
    if len(sounds) > limits.audio_parts:
        raise TooLongError(len(sounds), limits.audio_parts, "audio parts")
    for seconds, limit in (
        (max((sound.seconds for sound in sounds), default=0.0), limits.audio_max_s),
        (sum(sound.seconds for sound in sounds), limits.audio_total_s),
    ):
        if seconds > limit:
            raise TooLongError(seconds, limit)


def _check_sound(sound: AudioPart) -> None:
    audio = sound.audio
    if audio.ndim != 1 or audio.dtype != np.float32 or not len(audio):
        raise BackendError(
            Status.WRONG_INPUT, f"sound must be float32 in one dimension, not {audio.dtype} {audio.shape}"
        )
    if not np.isfinite(audio).all():
        raise BackendError(Status.WRONG_INPUT, "sound with samples that are not finite")


def fold_system(messages: Sequence[Message]) -> list[Message]:
    """The messages with the system text put before the first user message, for models without a system role."""
    if not messages or messages[0].role is not Role.SYSTEM:
        return list(messages)
    text, rest = messages[0].text, list(messages[1:])
    first = next((index for index, message in enumerate(rest) if message.role is Role.USER), None)
    if first is None:
        raise BackendError(Status.WRONG_INPUT, "a system message without a user's")
    rest[first] = Message(Role.USER, (TextPart(text), *rest[first].parts))
    return rest
