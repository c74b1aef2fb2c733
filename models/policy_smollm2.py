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
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gate import grammar
from gate.actions import ActionKind, PardonAction
from gate.catalogue import ToolFacts
from gate.evidence import DistanceVerdict, SpeakerVerdict
from models import prompt
from models.constrained import LISTED_FORM, ActionWriter, Limits, Written
from models.exemplars import ExemplarJudge
from models.llama_runtime import Context, FloatArray, LlamaRuntime, Mark, Prefix
from models.protocols import MASK_MARK, HeardSegment, ModelId, PolicyInput, PolicyOutput

if TYPE_CHECKING:
    from models.store import Store

MODEL_NAME = "smollm2-135m-onnx"
READINGS_FILE = "readings.npz"
"""What the model made of the prompts and of the examples, written when it is built: reading them takes seconds."""

_LISTEN_TOKENS = 512
_CALL_TOKENS = 1792
_ANSWER_TOKENS = 768
_DIALOGUE_TOKENS = 2048

_ALMOST_SURE = -1e-12
"""The largest log-probability that leaves a logarithm for its complement."""

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
        self._reader = _Reader(self._runtime, directory / READINGS_FILE)
        self._calling = self._reader.start(prompt.CALL_PROMPT, _CALL_TOKENS)
        self._answering = self._reader.start(prompt.ANSWER_PROMPT, _ANSWER_TOKENS)
        self._dialogue: _Start | None = None
        self._judge: ExemplarJudge | None = None
        self._tools: dict[str, ToolFacts] = {}
        if tools:
            self.prepare(tools)

    @property
    def model(self) -> ModelId:
        """Which weights it runs."""
        return self._model

    def prepare(self, tools: Sequence[ToolFacts]) -> None:
        """Fit the examples of these tools, so that the first turn does not have to."""
        with self._lock:
            self._fit(tools)

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

    def _fit(self, tools: Sequence[ToolFacts]) -> ExemplarJudge:
        if self._judge is None or tuple(self._tools.values()) != tuple(tools):
            examples = prompt.exemplars(tools)
            states = np.stack([self._reader.exemplar(example) for example in examples])
            self._judge = ExemplarJudge(states, [example.label for example in examples])
            self._tools = {tool.name: tool for tool in tools}
        return self._judge

    def _about_turn(self, turn: PolicyInput) -> PolicyOutput:
        judge = self._fit(turn.tools)
        said = prompt.words_of(turn.segment)
        labels = judge.logprobs(self._reader.state(said, *prompt.verdicts(turn)))
        label = max(labels, key=lambda item: labels[item])
        scores = _kind_scores(labels)
        if label in _MUTE_LABELS:
            return PolicyOutput(grammar.MUTE, _listed(scores), 1)
        if label == prompt.ANSWER:
            written = self._reply(self._answering.again(), said, _is_masked(turn.segment))
            if isinstance(written.action, PardonAction):
                scores[ActionKind.PARDON] = scores.pop(ActionKind.ANSWER)
            return PolicyOutput(written.text, _listed(scores), written.steps + 2)
        draft = self._writer.call(
            self._calling.again(),
            self._tools[label],
            [word.text for word in turn.segment.words],
            self._runtime.encode(f"{prompt.command(said)}\n"),
            LISTED_FORM,
        )
        complete = min(draft.complete_logprob, _ALMOST_SURE)
        scores[ActionKind.PARDON] = scores[ActionKind.TOOL] + math.log(-math.expm1(complete))
        scores[ActionKind.TOOL] += complete
        return PolicyOutput(grammar.render(draft.action()), _listed(scores), draft.steps + 1)

    def _about_dialogue(self, turn: PolicyInput, question: str) -> PolicyOutput:
        if self._dialogue is None:
            self._dialogue = self._reader.start(prompt.DIALOGUE_PROMPT, _DIALOGUE_TOKENS)
        segments = [*turn.context, turn.segment]
        text = f"{prompt.dialogue(segments)}\nQuestion: {question}"
        written = self._reply(self._dialogue.again(), text, any(map(_is_masked, segments)))
        return PolicyOutput(written.text, (), written.steps + 1)

    def _reply(self, context: Context, text: str, masked: bool) -> Written:
        context.read([*self._runtime.encode(text), *self._runtime.encode_prompt(prompt.REPLY_PROMPT)])
        return self._writer.answer(context, masked)


class _Start:
    """A context with its prompt read, to come back to for each turn."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._mark: Mark = context.mark()

    def again(self) -> Context:
        """The context as it was after the prompt."""
        self._context.rewind(self._mark)
        return self._context


class _Reader:
    """Reads prompts and utterances, or finds what was stored of them when the model was built."""

    def __init__(self, runtime: LlamaRuntime, stored: Path | None) -> None:
        self._runtime = runtime
        self._known: dict[str, FloatArray] = {}
        self._prefixes: dict[str, Prefix] = {}
        if stored is not None and stored.is_file():
            with np.load(stored, allow_pickle=False) as readings:
                self._known = dict(zip(readings["examples"].tolist(), readings["states"], strict=True))
                for index, key in enumerate(readings["prompts"].tolist()):
                    self._prefixes[key] = Prefix(readings[f"cache_{index}"], readings[f"next_{index}"])
        self._listening = self.start(prompt.LISTEN_PROMPT, _LISTEN_TOKENS).again()

    def start(self, text: str, capacity: int) -> _Start:
        """A context with a prompt read."""
        stored = self._prefixes.get(_key(text))
        context = self._runtime.context(capacity, stored)
        if stored is None:
            context.read(self._runtime.encode_prompt(text))
        return _Start(context)

    def state(self, text: str, speaker: SpeakerVerdict, distance: DistanceVerdict) -> FloatArray:
        """Mean state over an utterance with the ears' verdicts: float32 ``(2 * hidden,)``."""
        tokens = self._runtime.encode(prompt.spoken(text, speaker, distance))
        return np.asarray(self._listening.states(tokens).mean(axis=0), dtype=np.float32)

    def exemplar(self, example: prompt.Exemplar) -> FloatArray:
        """The same for an example."""
        stored = self._known.get(_example_key(example))
        return stored if stored is not None else self.state(example.text, example.speaker, example.distance)


def write_readings(directory: Path, progress: Callable[[str], None]) -> None:
    """Read the prompts and every known example and store what the model made of them; the last step of building it.

    Args:
        directory: the exported model.
        progress: is told how far it is.

    Raises:
        OSError: when a file is missing or cannot be written.
    """
    runtime = LlamaRuntime(directory)
    reader = _Reader(runtime, None)
    stored: dict[str, npt.NDArray[Any]] = {}
    prompts = (prompt.LISTEN_PROMPT, prompt.CALL_PROMPT, prompt.ANSWER_PROMPT)
    for index, text in enumerate(prompts):
        progress(f"reading prompt {index + 1} of {len(prompts)}")
        prefix = reader.start(text, _CALL_TOKENS).again().prefix()
        stored |= {f"cache_{index}": prefix.cache, f"next_{index}": prefix.next_logprobs}
    known = prompt.known_exemplars()
    states = []
    for index, example in enumerate(known):
        if index % 50 == 0:
            progress(f"reading example {index + 1} of {len(known)}")
        states.append(reader.exemplar(example))
    stored["prompts"] = np.array([_key(text) for text in prompts])
    stored["examples"] = np.array([_example_key(example) for example in known])
    stored["states"] = np.stack(states)
    np.savez(directory / READINGS_FILE, **stored)  # type: ignore[arg-type]  # numpy's stub sees allow_pickle in any keyword


def _key(text: str) -> str:
    """Names what is stored of a text, by all of the text: a changed prompt finds nothing and is read anew."""
    return hashlib.sha256(text.encode()).hexdigest()


def _example_key(example: prompt.Exemplar) -> str:
    return _key(prompt.LISTEN_PROMPT + prompt.spoken(example.text, example.speaker, example.distance))


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
