"""The embedded language model as a chat: SmolLM2-135M-Instruct, text in the place of sound.

It hears nothing itself. In the place of a turn's sound it reads the recogniser's words, which are known by then
(``WordsContract``); sound whose words nobody knows yet, as while somebody still speaks, goes through a recogniser of
its own, and the time that takes is part of the reply's. So it can stand where an audio language model stands, on any
machine, and what it lacks shows: the voice itself.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gate.catalogue import ToolFacts
from gate.evidence import Modality
from gate.grammar import render
from models.audio_llm.contract import ActionContract, Told
from models.audio_llm.conversation import (
    AudioPart,
    BackendError,
    Limits,
    Message,
    Part,
    Reply,
    Role,
    Status,
    Stop,
    Stopped,
    TextPart,
    TooLongError,
    assistant,
    check_messages,
    system,
    user,
)
from models.audio_llm.options import Options
from models.audio_llm.policy import ACTION_TOKENS, AudioLlmPolicy
from models.audio_llm.worked_turns import worked_turns
from models.llama_runtime import Context, LlamaRuntime, Mark
from models.protocols import MASK_MARK, ModelId, PolicyInput, SpeechEar

if TYPE_CHECKING:
    from models.store import Store

NAME = "smollm2-chat"
MODEL_NAME = "smollm2-135m-onnx"
CONTEXT_TOKENS = 3072
"""The instruction with ten tools and the worked turns take about 1100, with an adaptation's steps up to 2200. A token
costs 46 kB of memory."""
ANSWER_TOKENS = 96
"""For a question about a recording. Beyond that a model of this size repeats itself."""

_TERMINATORS = ("<|im_end|>", "<|endoftext|>")
_NO_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""What the model's chat template puts where no system message stands."""
_BEGINNING = Mark(0, np.empty(0, np.float32))


@dataclass(frozen=True, slots=True)
class WordsContract(ActionContract):
    """The action contract for a model that reads: a turn's words stand where its sound would, once they are known.

    A model of this size does not do what it is told in words alone, so a few turns are shown beside the instruction.
    """

    def opening(self, tools: Sequence[ToolFacts]) -> list[Message]:
        """Instruction and inventory, and the worked turns."""
        messages = ActionContract.opening(self, tools)
        for worked in worked_turns(tools):
            messages += [user(*self.material(worked.turn(tools))), assistant(render(worked.action))]
        return messages

    def material(self, turn: PolicyInput) -> tuple[Part, ...]:
        """As ``ActionContract.material``; a question is asked about everything that was heard.

        Raises:
            BackendError: WRONG_INPUT when a turn of speech comes without its words and without its sound.
        """
        if turn.modality is Modality.TEXT:
            return ActionContract.material(self, turn)
        if turn.question is not None:
            segments = (*turn.context, turn.segment)
            return (TextPart("\n".join(self._line(segment) for segment in segments)),)
        if not turn.segment.words:
            # Nobody has heard it yet: the chat does, with its own ear.
            return ActionContract.material(self, turn)
        marked = self.told is Told.VERDICTS
        kept = (word.text for word in turn.segment.words if marked or word.text != MASK_MARK)
        words = TextPart(as_heard(" ".join(kept)))
        silent = replace(turn, audio=np.zeros(0, np.float32))
        return tuple(words if isinstance(part, AudioPart) else part for part in ActionContract.material(self, silent))


def as_heard(words: str) -> str:
    """How words stand in the place of the sound that they were recognised in."""
    return f'The sound, as it was heard: "{words}"' if words else "The sound: no words were understood."


class EmbeddedChat:
    """Implements ``AudioChat`` and ``Primable``. One reply is written at a time, whichever thread asks.

    What it was primed with is read once and kept; the rest of a conversation is read anew for each reply, so that the
    same conversation gives the same reply whatever came before.

    Args:
        runtime: the model.
        model: its record.
        ear: hears sound that comes without its words; None where none ever does.
        context_tokens: the longest conversation, its reply included.
    """

    def __init__(
        self,
        runtime: LlamaRuntime,
        model: ModelId,
        ear: SpeechEar | None = None,
        context_tokens: int = CONTEXT_TOKENS,
    ) -> None:
        self._runtime = runtime
        self._model = model
        self._ear = ear
        self._context: Context = runtime.context(context_tokens)
        self._ends = runtime.controls(_TERMINATORS)
        self._primed: list[int] = []
        self._mark: Mark | None = None
        self._lock = threading.Lock()

    @property
    def model(self) -> ModelId:
        """Which weights write."""
        return self._model

    @property
    def limits(self) -> Limits:
        """Words are short: any sound fits until its words do not."""
        return Limits(audio_max_s=float("inf"))

    def prime(self, messages: Sequence[Message]) -> None:
        """Read these messages now, and start from there whenever a conversation begins with them.

        Raises:
            TooLongError: when they do not fit.
        """
        with self._lock:
            self._primed, self._mark = self._ids(messages), None
            self._require_room(len(self._primed))
            self._start(self._primed)

    def reply(self, messages: Sequence[Message], max_tokens: int, stop: Stop | None = None) -> Reply:
        """Write one reply, greedily (see ``AudioChat``).

        Raises:
            TooLongError: when the conversation does not fit, in tokens.
            BackendError: WRONG_INPUT for messages that are none, or sound without an ear; NOT_FINITE.
        """
        check_messages(messages, self.limits)
        with self._lock:
            ids = [*self._ids(messages), *self._runtime.encode_prompt(f"<|im_start|>{Role.ASSISTANT}\n")]
            self._require_room(len(ids) + max_tokens)
            self._context.read(ids[self._start(ids) :])
            return self._write(max_tokens, stop)

    def _write(self, max_tokens: int, stop: Stop | None) -> Reply:
        written: list[int] = []
        text = ""
        while len(written) < max_tokens:
            scores = self._context.next_logprobs
            if not np.isfinite(scores).all():
                raise BackendError(Status.NOT_FINITE, "the network computed a number that is not finite")
            best = int(np.argmax(scores))
            if best in self._ends:
                return Reply(text, len(written), Stopped.TERMINATOR)
            written.append(best)
            text = self._runtime.decode(written)
            if stop is not None and stop(text):
                return Reply(text, len(written), Stopped.DECIDED)
            self._context.read([best])
        return Reply(text, len(written), Stopped.LENGTH)

    def _start(self, ids: Sequence[int]) -> int:
        """Go back to where a conversation goes on, and say how many of its tokens have been read there."""
        if not self._primed or ids[: len(self._primed)] != self._primed:
            self._mark = None
            self._context.rewind(_BEGINNING)
            return 0
        if self._mark is None:
            self._context.rewind(_BEGINNING)
            self._context.read(self._primed)
            self._mark = self._context.mark()
        self._context.rewind(self._mark)
        return len(self._primed)

    def _require_room(self, tokens: int) -> None:
        if tokens > self._context.capacity:
            raise TooLongError(tokens, self._context.capacity, "tokens")

    def _ids(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of messages, as the model's chat template puts them."""
        frame = self._runtime.encode_prompt
        if messages[0].role is not Role.SYSTEM:
            messages = [system(_NO_SYSTEM), *messages]
        ids: list[int] = []
        for message in messages:
            # What was said is never a control token, whatever it spells.
            said = self._runtime.encode(self._text(message))
            ids += [*frame(f"<|im_start|>{message.role}\n"), *said, *frame("<|im_end|>\n")]
        return ids

    def _text(self, message: Message) -> str:
        return "\n".join(self._words(part) if isinstance(part, AudioPart) else part.text for part in message.parts)

    def _words(self, sound: AudioPart) -> str:
        if self._ear is None:
            raise BackendError(Status.WRONG_INPUT, "sound for a model that reads, and no recogniser to hear it")
        return as_heard(" ".join(word.text for word in self._ear.hear(sound.audio).words))


def load(
    store: Store, threads: int, options: Mapping[str, str] | None = None, *, listens: bool = False
) -> AudioLlmPolicy:
    """The policy on the store's model.

    Args:
        store: where models are.
        threads: CPU threads.
        options: ``told`` (see ``Told``) and ``tokens``, how many an action may take.
        listens: whether sound is heard before its words are known; then the recogniser is loaded too.

    Raises:
        OptionsError: for an unknown option.
        ModelError: when a model is not in the store; names the cure.
    """
    given = Options(NAME, options or {})
    told = Told(given.choice("told", Told, Told.VERDICTS))
    tokens = given.count("tokens", ACTION_TOKENS)
    given.end()
    ear: SpeechEar | None = None
    if listens:
        from models.speech_whisper import load as load_ear

        ear = load_ear(store, threads)
    chat = EmbeddedChat(LlamaRuntime(store.path(MODEL_NAME), threads), store.model_id(MODEL_NAME), ear)
    return AudioLlmPolicy(chat, WordsContract(told), action_tokens=tokens, answer_tokens=ANSWER_TOKENS)
