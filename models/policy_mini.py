"""voxgate-mini, the embedded policy that was trained for the gate, on ONNX Runtime.

SmolLM2-135M-Instruct with LoRA (``models/training/policy``, card ``models/cards/voxgate_mini.md``). The system prompt
with the contract and the tools is read once and kept; a turn is read in one pass, and that pass already tells which
kind of action it will be, so a mute costs no more. Calls are written under the grammar with pointed-out arguments
(``models.constrained``), answers and questions greedily.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gate import grammar
from gate.actions import ActionKind
from gate.catalogue import ToolFacts
from gate.span import SAMPLE_RATE_HZ
from models.constrained import ActionWriter, Limits
from models.export_mini import PROJECTION_FILE, READING_FILE
from models.llama_runtime import Context, FloatArray, LlamaRuntime, Mark
from models.mini_prompt import Piece, Reading, system_prompt, turn_prompt
from models.protocols import MASK_MARK, HeardSegment, ModelId, PolicyInput, PolicyOutput

if TYPE_CHECKING:
    from models.store import Store

MODEL_NAME = "voxgate-mini-onnx"
ENCODER_STATES_HZ = 50
"""Whisper's encoder states a second."""

_CAPACITY = 2048


def load(store: Store, threads: int) -> MiniPolicy:
    """The policy with the store's model.

    Raises:
        ModelError: when the model is not in the store.
    """
    return MiniPolicy(store.path(MODEL_NAME), store.model_id(MODEL_NAME), threads)


class MiniPolicy:
    """Implements ``models.protocols.Policy``. Safe to call from several threads; one turn is worked on at a time.

    Args:
        directory: what ``models.export_mini.build`` wrote.
        model: name and hash of it, for the record.
        threads: threads within an operator.
        limits: bounds on what is written.

    Raises:
        OSError: when a file is missing or cannot be read.
    """

    def __init__(self, directory: Path, model: ModelId, threads: int = 2, limits: Limits | None = None) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._runtime = LlamaRuntime(directory, threads)
        self._writer = ActionWriter(self._runtime, limits, unheard=MASK_MARK)
        facts = json.loads((directory / READING_FILE).read_text(encoding="utf-8"))
        self._reading = Reading(facts["reading"])
        self._projection: FloatArray | None = None
        if facts["fusion"]:
            self._projection = np.load(directory / PROJECTION_FILE, allow_pickle=False)
        self._tools: tuple[ToolFacts, ...] = ()
        self._context: Context | None = None
        self._start: Mark | None = None

    @property
    def model(self) -> ModelId:
        """Which weights it runs."""
        return self._model

    def prepare(self, tools: Sequence[ToolFacts]) -> None:
        """Read the system prompt with these tools, so that the first turn does not have to."""
        with self._lock:
            self._begin(tools)

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        """Write one action for a turn.

        Raises:
            ContextFullError: when the turn is longer than the context.
        """
        with self._lock:
            if turn.question is None and not turn.segment.words:
                return PolicyOutput(grammar.MUTE)
            context = self._begin(turn.tools)
            self._read(context, turn)
            scores = self._writer.kinds(context)
            if not turn.tools or turn.question is not None:
                del scores[ActionKind.TOOL]
            words = [word.text for word in turn.segment.words]
            written = self._writer.write_kind(context, max(scores, key=lambda kind: scores[kind]), words, turn.tools)
            listed = tuple((str(kind), score) for kind, score in scores.items())
            return PolicyOutput(written.text, listed, written.steps + 1)

    def _begin(self, tools: Sequence[ToolFacts]) -> Context:
        """The context as it was after the system prompt."""
        if self._context is None or self._start is None or self._tools != tuple(tools):
            self._tools = tuple(tools)
            self._context = self._runtime.context(_CAPACITY)
            self._context.read(self._runtime.encode_prompt(system_prompt(tools)))
            self._start = self._context.mark()
        self._context.rewind(self._start)
        return self._context

    def _read(self, context: Context, turn: PolicyInput) -> None:
        ids: list[int] = []
        words: list[int] = []
        for piece in turn_prompt(turn, self._reading):
            piece_ids = self._encode(piece)
            ids += piece_ids
            words += [-1 if piece.word is None else piece.word] * len(piece_ids)
        context.read(ids, self._heard(turn, words))

    def _encode(self, piece: Piece) -> list[int]:
        # What was said is never a control token, whatever it spells; our own marks are.
        return self._runtime.encode(piece.text) if piece.word is not None else self._runtime.encode_prompt(piece.text)

    def _heard(self, turn: PolicyInput, words: Sequence[int]) -> FloatArray | None:
        """What was heard of each word, for the tokens that spell it: float32 ``(tokens, hidden)``."""
        if self._projection is None or turn.encoder_states is None or turn.question is not None:
            return None
        states = word_states(turn.encoder_states, turn.segment, turn.start_sample)
        out = np.zeros((len(words), self._projection.shape[0]), dtype=np.float32)
        projected = states @ self._projection.T
        for index, word in enumerate(words):
            if word >= 0:
                out[index] = projected[word]
        return out


def word_states(states: npt.NDArray[np.float32], segment: HeardSegment, start_sample: int) -> FloatArray:
    """The mean encoder state over each word's time.

    Args:
        states: float32 ``(frames, 512)`` at 50 Hz over the segment's audio.
        segment: its words.
        start_sample: where the states begin, in the stream that the words' spans refer to.

    Returns:
        float32 ``(words, 512)``; zero for a word outside of the audio.
    """
    frame_samples = SAMPLE_RATE_HZ // ENCODER_STATES_HZ
    out = np.zeros((len(segment.words), states.shape[1]), dtype=np.float32)
    for index, word in enumerate(segment.words):
        first = max(0, word.span.start_sample - start_sample) // frame_samples
        last = max(first + 1, -(-(word.span.end_sample - start_sample) // frame_samples))
        inside = states[first:last]
        if len(inside):
            out[index] = inside.mean(axis=0)
    return out
