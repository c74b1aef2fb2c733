"""Scripted chats for the tests of adaptations: they reply from a list, and stop where they are told to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from models.audio_llm.conversation import Limits, Message, Reply, Role, Stop, Stopped, check_messages
from models.protocols import ModelId

SEND = '<|TOOL|>{"name": "send_message", "params": {"recipient": "Priya", "body": "I am late"}}</|TOOL|>'
TOKENS = 5


@dataclass
class ScriptedChat:
    """Replies from a list, in order; one request more than there are replies fails the test.

    Attributes:
        said: texts, or errors to raise.
        streams: whether ``stop`` is asked after each character, as a network in this process does; a server sends all.
        seen: each request: messages and how many tokens were allowed.
    """

    said: Sequence[str | Exception]
    streams: bool = True
    limits: Limits = field(default_factory=lambda: Limits(audio_max_s=30.0))
    seen: list[tuple[list[Message], int]] = field(default_factory=list)
    primed: list[Message] = field(default_factory=list)

    @property
    def model(self) -> ModelId:
        """No weights."""
        return ModelId("scripted", "0" * 64)

    def prime(self, messages: Sequence[Message]) -> None:
        """Remember what was to be read ahead."""
        self.primed = list(messages)

    def reply(self, messages: Sequence[Message], max_tokens: int, stop: Stop | None = None) -> Reply:
        """The next reply."""
        check_messages(messages, self.limits)
        assert len(self.seen) < len(self.said), f"asked once more than planned: {messages[-1].text!r}"
        self.seen.append((list(messages), max_tokens))
        text = self.said[len(self.seen) - 1]
        if isinstance(text, Exception):
            raise text
        if stop is not None and self.streams:
            for end in range(1, len(text) + 1):
                if stop(text[:end]):
                    return Reply(text[:end], TOKENS, Stopped.DECIDED)
        return Reply(text, TOKENS, Stopped.TERMINATOR)

    @property
    def requests(self) -> list[str]:
        """What was asked last, each time."""
        return [messages[-1].text for messages, _ in self.seen]

    def roles(self, index: int) -> list[Role]:
        """Whose messages stood in one request."""
        return [message.role for message in self.seen[index][0]]
