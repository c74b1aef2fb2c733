"""An audio language model as a policy: the turn's conversation, one greedy reply, read strictly.

Doubt stays visible. Sound that is longer than the model hears is asked for again, never cut; a backend's failure is
raised, and the loop makes it a failure with a reason; thinking that never ended leaves no action.
"""

from __future__ import annotations

from collections.abc import Sequence

from gate.actions import PardonAction
from gate.catalogue import ToolFacts
from gate.grammar import render
from models.audio_llm.chunks import parts_of
from models.audio_llm.contract import ActionContract
from models.audio_llm.conversation import AudioChat, AudioPart, Message, Primable, TooLongError
from models.audio_llm.reading import is_decided, read_reply
from models.protocols import ModelId, PolicyInput, PolicyOutput

ACTION_TOKENS = 256
"""The longest call of the ten tools takes about a hundred."""
ANSWER_TOKENS = 2048
"""For a question about a recording, as *Pardon?* allows."""
TOO_LONG = render(PardonAction("That was too long for me. Please say it in fewer words."))


class AudioLlmPolicy:
    """Implements ``models.protocols.Policy`` on any ``AudioChat``.

    Args:
        chat: the model.
        contract: what it is told.
        dialects: which native dialects are normalised beside the strict reading; None takes all.
        action_tokens: how many tokens an action may take; a thinking model needs many more.
        answer_tokens: how many tokens the answer to a question may take.
    """

    def __init__(
        self,
        chat: AudioChat,
        contract: ActionContract | None = None,
        *,
        dialects: Sequence[str] | None = None,
        action_tokens: int = ACTION_TOKENS,
        answer_tokens: int = ANSWER_TOKENS,
    ) -> None:
        self.chat = chat
        self.contract = contract or ActionContract()
        self.dialects = dialects
        self.action_tokens = action_tokens
        self.answer_tokens = answer_tokens

    @property
    def model(self) -> ModelId:
        """The chat's."""
        return self.chat.model

    def prepare(self, tools: Sequence[ToolFacts]) -> None:
        """Read the instruction ahead of the first turn, where the chat can.

        Raises:
            BackendError: when that fails.
        """
        if isinstance(self.chat, Primable):
            self.chat.prime(self.contract.opening(tools))

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        """Write one action.

        Raises:
            BackendError: when no reply comes.
        """
        messages = [self._in_parts(message) for message in self.contract.messages(turn)]
        try:
            if turn.question is not None:
                reply = self.chat.reply(messages, self.answer_tokens)
            else:
                reply = self.chat.reply(messages, self.action_tokens, is_decided)
        except TooLongError:
            return PolicyOutput(TOO_LONG)
        return read_reply(reply, turn.tools, self.dialects)

    def _in_parts(self, message: Message) -> Message:
        limits = self.chat.limits
        split = [parts_of(part.audio, limits) if isinstance(part, AudioPart) else (part,) for part in message.parts]
        return Message(message.role, tuple(part for parts in split for part in parts))
