"""The first embedded policy: SmolLM2-135M-Instruct as published, without fine-tuning, on two CPU threads.

A model of this size cannot be told in words what is meant for it, but its hidden states separate the kinds of
utterance well. So each turn is decided in two steps. First *who is it for, and which tool*: one pass over the words
with the ears' verdicts, compared with labelled examples (``models.exemplars``); a turn that is not for the assistant
ends here. Then *what exactly*: the arguments are pointed out in the words under the grammar (``models.constrained``),
or the answer is generated. All decoding is greedy, and the same turn always gives the same text.

What it does not do yet: it decides each turn by its own words. Earlier segments enter only where a question about a
dialogue is asked; gaps, audio and encoder states are not read.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gate import grammar
from gate.actions import ActionKind, PardonAction
from gate.catalogue import ToolFacts
from gate.evidence import DistanceVerdict, SpeakerVerdict
from models import prompt
from models.constrained import LISTED_FORM, ActionWriter, Limits, Written
from models.exemplars import ExemplarJudge
from models.llama_runtime import Context, FloatArray, LlamaRuntime, Mark
from models.protocols import MASK_MARK, HeardSegment, ModelId, PolicyInput, PolicyOutput

if TYPE_CHECKING:
    from models.store import Store

MODEL_NAME = "smollm2-135m-onnx"
STATES_FILE = "exemplars.npz"
"""Pooled states of the known examples, written when the model is built: reading 200 examples takes seconds."""

_LISTEN_TOKENS = 512
_CALL_TOKENS = 1792
_ANSWER_TOKENS = 768
_DIALOGUE_TOKENS = 2048

_MUTE_LABELS = frozenset({prompt.SELF_TALK, prompt.SIDE_TALK, prompt.BYSTANDER})


def load(store: Store, threads: int) -> SmolLM2Policy:
    """The policy with the store's model.

    Raises:
        ModelError: when the model is not in the store.
    """
    return SmolLM2Policy(store.path(MODEL_NAME), store.model_id(MODEL_NAME), threads)


class SmolLM2Policy:
    """Implements ``models.protocols.Policy``. Safe to call from several threads; one turn is worked on at a time."""

    def __init__(
        self,
        directory: Path,
        model: ModelId,
        threads: int = 2,
        tools: Sequence[ToolFacts] = (),
        limits: Limits | None = None,
    ) -> None:
        """Load the model.

        Args:
            directory: what ``models.export_llama.build`` wrote.
            model: name and hash of it, for the record.
            threads: threads within an operator.
            tools: the tools to prepare for now rather than on the first turn.
            limits: bounds on what is written.

        Raises:
            OSError: when a file is missing or cannot be read.
        """
        self._model = model
        self._lock = threading.Lock()
        self._runtime = LlamaRuntime(directory, threads)
        self._writer = ActionWriter(self._runtime, limits)
        self._ears = _Reader(self._runtime, directory / STATES_FILE)
        self._answering = self._runtime.context(_ANSWER_TOKENS)
        self._answering.read(self._runtime.encode_prompt(prompt.ANSWER_PROMPT))
        self._answer_start = self._answering.mark()
        self._asked: Context | None = None
        self._prepared: _Prepared | None = None
        if tools:
            self.prepare(tools)

    @property
    def model(self) -> ModelId:
        """Which weights it runs."""
        return self._model

    def prepare(self, tools: Sequence[ToolFacts]) -> None:
        """Read the prompt and the examples for these tools, so that the first turn does not have to."""
        with self._lock:
            self._prepare(tuple(tools))

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        """Write one action for a turn.

        Raises:
            ContextFullError: when the turn is longer than the context.
        """
        with self._lock:
            if turn.question is not None:
                return self._about_dialogue(turn, turn.question)
            if not turn.segment.words:
                return PolicyOutput(grammar.MUTE)
            return self._about_turn(turn)

    def _prepare(self, tools: tuple[ToolFacts, ...]) -> _Prepared:
        if self._prepared is None or self._prepared.tools != tools:
            self._prepared = _Prepared(tools, self._runtime, self._ears)
        return self._prepared

    def _about_turn(self, turn: PolicyInput) -> PolicyOutput:
        prepared = self._prepare(tuple(turn.tools))
        verdicts = prompt.verdicts(turn)
        said = prompt.words_of(turn.segment)
        labels = prepared.judge.logprobs(self._ears.state(said, *verdicts))
        label = max(labels, key=lambda item: labels[item])
        scores = _kind_scores(labels)
        if label in _MUTE_LABELS:
            return PolicyOutput(grammar.MUTE, _listed(scores), 1)
        if label == prompt.ANSWER:
            self._answering.rewind(self._answer_start)
            self._answering.read([*self._runtime.encode(said), *self._runtime.encode_prompt(prompt.REPLY_PROMPT)])
            written = self._writer.answer(self._answering, _is_masked(turn.segment))
            return _output(written, scores, ActionKind.ANSWER, steps=2)
        prepared.calling.rewind(prepared.start)
        draft = self._writer.call(
            prepared.calling,
            prepared.by_name[label],
            [word.text for word in turn.segment.words],
            self._runtime.encode(f"{prompt.command(said)}\n"),
            LISTED_FORM,
        )
        complete = min(draft.complete_logprob, -1e-12)
        scores[ActionKind.PARDON] = scores[ActionKind.TOOL] + math.log(-math.expm1(complete))
        scores[ActionKind.TOOL] += complete
        return PolicyOutput(grammar.render(draft.action()), _listed(scores), draft.steps + 1)

    def _about_dialogue(self, turn: PolicyInput, question: str) -> PolicyOutput:
        if self._asked is None:
            self._asked = self._runtime.context(_DIALOGUE_TOKENS)
            self._asked.read(self._runtime.encode_prompt(prompt.DIALOGUE_PROMPT))
            self._asked_start = self._asked.mark()
        asked = self._asked
        asked.rewind(self._asked_start)
        segments = [*turn.context, turn.segment]
        text = f"{prompt.dialogue(segments)}\nQuestion: {question}"
        asked.read([*self._runtime.encode(text), *self._runtime.encode_prompt(prompt.REPLY_PROMPT)])
        written = self._writer.answer(asked, any(map(_is_masked, segments)))
        return PolicyOutput(written.text, (), written.steps + 1)


class _Reader:
    """Pooled hidden states of utterances: what the model makes of who said what."""

    def __init__(self, runtime: LlamaRuntime, known: Path | None) -> None:
        self._runtime = runtime
        self._context = runtime.context(_LISTEN_TOKENS)
        self._context.read(runtime.encode_prompt(prompt.LISTEN_PROMPT))
        self._known: dict[str, FloatArray] = {}
        if known is not None and known.is_file():
            with np.load(known, allow_pickle=False) as stored:
                self._known = dict(zip(stored["keys"].tolist(), stored["states"], strict=True))

    def state(self, text: str, speaker: SpeakerVerdict, distance: DistanceVerdict) -> FloatArray:
        """Mean state over an utterance with the ears' verdicts: float32 ``(2 * hidden,)``."""
        tokens = self._runtime.encode(prompt.spoken(text, speaker, distance))
        return np.asarray(self._context.states(tokens).mean(axis=0), dtype=np.float32)

    def exemplar(self, example: prompt.Exemplar) -> FloatArray:
        """The same for an example, from what was stored when the model was built if it is there."""
        stored = self._known.get(_key(example))
        return stored if stored is not None else self.state(example.text, example.speaker, example.distance)


class _Prepared:
    """What is ready for one set of tools: the judge, and the call prompt read into a context."""

    def __init__(self, tools: tuple[ToolFacts, ...], runtime: LlamaRuntime, reader: _Reader) -> None:
        self.tools = tools
        self.by_name = {tool.name: tool for tool in tools}
        examples = prompt.exemplars(tools)
        states = np.stack([reader.exemplar(example) for example in examples])
        self.judge = ExemplarJudge(states, [example.label for example in examples])
        self.calling = runtime.context(_CALL_TOKENS)
        self.calling.read(runtime.encode_prompt(prompt.call_prompt(tools)))
        self.start: Mark = self.calling.mark()


def write_exemplar_states(directory: Path, progress: Callable[[str], None]) -> None:
    """Compute and store the states of every known example; the last step of building the model.

    Args:
        directory: the exported model.
        progress: is told how far it is.

    Raises:
        OSError: when a file is missing or cannot be written.
    """
    runtime = LlamaRuntime(directory)
    reader = _Reader(runtime, None)
    known = prompt.known_exemplars()
    states = []
    for index, example in enumerate(known):
        if index % 50 == 0:
            progress(f"reading example {index + 1} of {len(known)}")
        states.append(reader.exemplar(example))
    np.savez(directory / STATES_FILE, keys=np.array([_key(example) for example in known]), states=np.stack(states))


def _key(example: prompt.Exemplar) -> str:
    """Names an example's state; it changes with everything that is read before the state is taken."""
    read = prompt.LISTEN_PROMPT + prompt.spoken(example.text, example.speaker, example.distance)
    return hashlib.sha256(read.encode()).hexdigest()


def _is_masked(segment: HeardSegment) -> bool:
    return any(MASK_MARK in word.text for word in segment.words)


def _kind_scores(labels: dict[str, float]) -> dict[ActionKind, float]:
    """Log-probability of each kind of action, by its likeliest label, among the kinds."""
    best: dict[ActionKind, float] = {}
    for label, score in labels.items():
        kind = ActionKind.TOOL
        if label in _MUTE_LABELS:
            kind = ActionKind.MUTE
        elif label == prompt.ANSWER:
            kind = ActionKind.ANSWER
        best[kind] = max(score, best.get(kind, -math.inf))
    total = math.log(sum(math.exp(score) for score in best.values()))
    return {kind: score - total for kind, score in best.items()}


def _listed(scores: dict[ActionKind, float]) -> tuple[tuple[str, float], ...]:
    return tuple((str(kind), score) for kind, score in scores.items())


def _output(written: Written, scores: dict[ActionKind, float], wanted: ActionKind, steps: int) -> PolicyOutput:
    if isinstance(written.action, PardonAction):
        scores[ActionKind.PARDON] = scores.pop(wanted)
    return PolicyOutput(written.text, _listed(scores), written.steps + steps)
