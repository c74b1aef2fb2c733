"""What the adaptations share: a policy that lets its chat take private steps before it acts.

Each is a local reading of a published method, as VGBench's are (*Do Audio LLMs Listen Before They Act?*, section 4.1):
no weight changes, the same action instruction, the same parser. What is written in a step is the model's own affair: it
goes back to the model and into the log, never to the parser. Only the reply to the request for the action is read as
one, and a reply to it that is still a step is a failure, not an answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from gate import grammar
from gate.actions import ToolAction
from gate.catalogue import ToolFacts
from gate.evidence import Modality
from models.audio_llm.conversation import (
    ChatError,
    Message,
    Part,
    Primable,
    Reply,
    Role,
    Stop,
    TextPart,
    TooLongError,
    assistant,
    system,
    user,
)
from models.audio_llm.dialects import split_thinking
from models.audio_llm.embedded_chat import WordsContract
from models.audio_llm.policy import ACTION_TOKENS, TOO_LONG, AudioLlmPolicy
from models.audio_llm.reading import is_decided, read_reply
from models.audio_llm.worked_turns import WorkedTurn, worked_turns
from models.protocols import ModelId, PolicyInput, PolicyOutput

ACT = "Act."
FEWEST_WORDS = 4
NOTHING = "(nothing)"
"""Stands for an empty step: chat templates have no place for an assistant that said nothing."""


class AdaptationError(ChatError):
    """The model did not keep to the steps, so there is no action."""


class Adapted(AudioLlmPolicy, ABC):
    """A policy on the chat and contract of another one.

    The steps are explained once, behind the instruction, so that a chat reads the explanation ahead of time; a turn's
    requests are short. A question about a recording goes to the chat as it would without the adaptation, since there is
    no action to choose, and what was typed is acted on at once, since there is no sound to think about.

    Args:
        base: the policy that is adapted; it is not changed.
    """

    name: ClassVar[str]
    """In the registry."""
    protocol: ClassVar[str]
    """What the model is told of the steps."""

    def __init__(self, base: AudioLlmPolicy) -> None:
        super().__init__(
            base.chat,
            base.contract,
            dialects=base.dialects,
            action_tokens=base.action_tokens,
            answer_tokens=base.answer_tokens,
        )

    @property
    def model(self) -> ModelId:
        """The chat's, under this adaptation's name."""
        return ModelId(f"{self.name}/{self.chat.model.name}", self.chat.model.sha256)

    def prepare(self, tools: Sequence[ToolFacts]) -> None:
        """Read instruction and steps ahead of the first turn, where the chat can.

        Raises:
            ChatError: when that fails.
        """
        if isinstance(self.chat, Primable):
            self.chat.prime(self.opening(tools))

    def opening(self, tools: Sequence[ToolFacts]) -> list[Message]:
        """The messages that every turn with these tools starts with; worked turns among them where the model reads."""
        messages = [system(f"{self.contract.instruction(tools)}\n{self.protocol}")]
        if isinstance(self.contract, WordsContract):
            for worked in worked_turns(tools):
                messages += self.demonstration(worked, self.contract.material(worked.turn(tools)))
        return messages

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        """Take the steps, then write one action.

        Raises:
            AdaptationError: when the model does not keep to the steps.
            BackendError: when no reply comes.
        """
        if turn.question is not None:
            return super().propose(turn)
        exchange = self.exchange(turn)
        try:
            if turn.modality is Modality.TEXT:
                return self.act(exchange, ACT, turn.tools)
            return self.adapted(turn, exchange)
        except TooLongError:
            return PolicyOutput(TOO_LONG)

    def exchange(self, turn: PolicyInput) -> Exchange:
        """The conversation about a turn, with nothing asked yet."""
        return Exchange([*self.opening(turn.tools), user(*self.contract.material(turn))], self.reply)

    @abstractmethod
    def adapted(self, turn: PolicyInput, exchange: Exchange) -> PolicyOutput:
        """The steps of one spoken turn and its action.

        Args:
            turn: the turn.
            exchange: a conversation that holds instruction and material, and no request yet.

        Raises:
            TooLongError: when the sound is longer than the chat takes.
            AdaptationError, BackendError: as ``propose``.
        """

    @abstractmethod
    def demonstration(self, worked: WorkedTurn, material: tuple[Part, ...]) -> list[Message]:
        """A worked turn as it would be played: what is asked, and what is right to write."""

    @abstractmethod
    def is_step(self, text: str) -> bool:
        """Whether a text is one of the steps, and so no action."""

    def room(self, tokens: int) -> int:
        """How many tokens a step may take: a chat that needs more for an action, to think, gets as many more here."""
        return tokens + max(0, self.action_tokens - ACTION_TOKENS)

    def reply(self, messages: Sequence[Message], max_tokens: int, stop: Stop | None = None) -> Reply:
        """One reply of the chat, to sound in parts that it takes."""
        return self.chat.reply([self._in_parts(message) for message in messages], max_tokens, stop)

    def act(
        self, exchange: Exchange, request: str, tools: Sequence[ToolFacts], private: Sequence[str] = ()
    ) -> PolicyOutput:
        """Ask for the action, and read it.

        Args:
            exchange: the conversation so far.
            request: what asks for it.
            tools: the tools that may be named.
            private: what came of the steps; a reply that repeats one of these is one.

        Raises:
            AdaptationError: when a step comes instead. A well-formed call of a tool never is one, whatever its
                arguments say.
        """
        output = read_reply(exchange.ask(request, self.action_tokens, is_decided), tools, self.dialects)
        is_step = self.is_step(output.text) or any(_repeats(output.text, text) for text in private)
        if is_step and not isinstance(grammar.parse(output.text), ToolAction):
            raise AdaptationError(f"{self.name}: a step in the place of the action: {output.text[:80]!r}")
        thinking = [*exchange.steps, output.thinking]
        return replace(output, steps=exchange.tokens, thinking="\n".join(text for text in thinking if text))


class Exchange:
    """One turn's conversation: what was said in it stands before what is asked next.

    Args:
        messages: instruction and material; the last is the user's.
        reply: asks the chat.

    Attributes:
        steps: what the model wrote in its steps, thinking included.
        tokens: tokens written so far.
    """

    def __init__(
        self, messages: Sequence[Message], reply: Callable[[Sequence[Message], int, Stop | None], Reply]
    ) -> None:
        self._messages = list(messages)
        self._reply = reply
        self.steps: list[str] = []
        self.tokens = 0

    def ask(self, request: str, max_tokens: int, stop: Stop | None) -> Reply:
        """The chat's reply to a request, which stays in the conversation."""
        self._messages = _with(self._messages, request)
        reply = self._reply(self._messages, max_tokens, stop)
        self.tokens += reply.tokens
        return reply

    def step(self, request: str, max_tokens: int, end: str = "") -> str:
        """One private step.

        Args:
            request: what asks for it.
            max_tokens: how long it may be.
            end: the mark that ends it; writing stops there, and what a server sent after it is left out.

        Returns:
            The step without thinking and white space around it. It stays in the conversation.
        """
        reply = self.ask(request, max_tokens, (lambda text: end in split_thinking(text)[1]) if end else None)
        self.steps.append(reply.text)
        text = split_thinking(reply.text)[1]
        if end and end in text:
            text = text[: text.index(end) + len(end)]
        text = text.strip()
        self._messages.append(assistant(text or NOTHING))
        return text


def _repeats(text: str, private: str) -> bool:
    """Whether a text holds a private one. One of a few words may well be said in both."""
    words = private.casefold().split()
    return len(words) >= FEWEST_WORDS and " ".join(words) in " ".join(text.casefold().split())


def _with(messages: Sequence[Message], request: str) -> list[Message]:
    """The messages with a request at their end: in the user's last message, or in one of its own after a reply."""
    *before, last = messages
    if last.role is Role.USER:
        return [*before, Message(Role.USER, (*last.parts, TextPart(request)))]
    return [*messages, user(request)]
