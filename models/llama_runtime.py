"""Runs an exported Llama decoder on ONNX Runtime, with cached prefixes and many continuations in one pass.

A ``Context`` owns one key/value buffer of fixed capacity, written in place. What has been read stays in it, so a system
prompt is read once; going back to its end is setting a length, with no copy. Several continuations of the same context
are scored in one forward pass as a prefix tree whose branches cannot see each other (tree attention: Miao et al. 2024,
"SpecInfer"; Cai et al. 2024, "Medusa").

``LlamaRuntime`` may be shared between threads. A ``Context`` may not: use one a worker, or hold a lock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from tokenizers import Tokenizer

from models.export_llama import (
    BLOCK_SIZE,
    CONFIG_FILE,
    EMBEDDING_FILE,
    EMBEDDING_SCALES_FILE,
    GRAPH_FILE,
    TOKENIZER_FILE,
    LlamaConfig,
    Precision,
)

FloatArray = npt.NDArray[np.float32]

_UNSEEN = np.float32(-1e9)
"""Attention bias between branches: exp of it is 0 in float32, and unlike infinity it cannot make a NaN."""


class ContextFullError(RuntimeError):
    """The text does not fit into what is left of the context. Nothing was read."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point in a context to come back to.

    Attributes:
        length: tokens read up to it.
        next_logprobs: float32 ``(vocabulary,)``, log-probabilities of the next token there.
    """

    length: int
    next_logprobs: FloatArray


@dataclass(frozen=True, slots=True)
class Branch:
    """How likely one continuation is.

    Attributes:
        token_logprobs: float32 ``(tokens,)``, log-probability of each of its tokens given those before.
        next_logprobs: float32 ``(vocabulary,)``, log-probabilities of the token after it; None unless asked for.
    """

    token_logprobs: FloatArray
    next_logprobs: FloatArray | None

    @property
    def logprob(self) -> float:
        """Log-probability of the whole continuation."""
        return float(self.token_logprobs.sum())


@dataclass(frozen=True, slots=True)
class Prefix:
    """A text that was read, to start contexts with.

    Attributes:
        cache: float32 ``(2 * layers, kv_heads, tokens, head)``: keys and values of each layer in turn.
        next_logprobs: float32 ``(vocabulary,)``, log-probabilities of the token after it.
    """

    cache: FloatArray
    next_logprobs: FloatArray


class LlamaRuntime:
    """The weights, the tokenizer and the session. Cheap to hold, shared by its contexts."""

    def __init__(self, directory: Path, threads: int = 2) -> None:
        """Load what ``models.export_llama`` wrote.

        Args:
            directory: the directory with graph, weights, embedding, configuration and tokenizer.
            threads: threads within an operator.

        Raises:
            OSError: when a file is missing or cannot be read.
            ValueError: when the configuration does not fit the files.
        """
        settings = json.loads((directory / CONFIG_FILE).read_text(encoding="utf-8"))
        self.precision = Precision(settings.pop("precision"))
        self.config = LlamaConfig(**settings)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Threads that spin between operators gain a little on an idle machine and lose a lot beside other work.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = ort.InferenceSession(str(directory / GRAPH_FILE), options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(directory / TOKENIZER_FILE))
        # What people say or type is never a control token, whatever it spells.
        self._tokenizer.encode_special_tokens = True
        added = self._tokenizer.get_added_tokens_decoder()
        self._controls = {str(token.content): int(index) for index, token in added.items()}
        self._control_pattern = re.compile("(" + "|".join(map(re.escape, self._controls)) + ")" if added else r"(?!)")
        rows, width = self.config.vocab_size, self.config.hidden_size
        # The head's own file, mapped: the embedding costs no second copy in memory.
        if self.precision is Precision.FP32:
            self._table: npt.NDArray[Any] = np.memmap(directory / EMBEDDING_FILE, np.float32, "r", shape=(rows, width))
        else:
            blocks = width // BLOCK_SIZE
            self._table = np.memmap(directory / EMBEDDING_FILE, np.uint8, "r", shape=(rows, blocks, BLOCK_SIZE))
            self._scales = np.memmap(directory / EMBEDDING_SCALES_FILE, np.float32, "r", shape=(rows, blocks))

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text; control tokens that it spells come out as ordinary characters."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of our own text, in which control tokens such as ``<|im_end|>`` count as such."""
        ids: list[int] = []
        for part in self._control_pattern.split(text):
            ids += [self._controls[part]] if part in self._controls else self.encode(part)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, control tokens spelt out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def controls(self, tokens: Sequence[str]) -> frozenset[int]:
        """The ids of those of the named control tokens that the vocabulary has."""
        return frozenset(self._controls[token] for token in tokens if token in self._controls)

    def token_texts(self) -> list[str]:
        """The text of each token of the vocabulary, by id; bytes that are no text by themselves show as U+FFFD."""
        return self._tokenizer.decode_batch([[index] for index in range(self.config.vocab_size)], False)

    def embed(self, ids: Sequence[int]) -> FloatArray:
        """Embeddings of tokens: float32 ``(len(ids), hidden)``."""
        wanted = np.asarray(ids, dtype=np.int64)
        if self.precision is Precision.FP32:
            return np.asarray(self._table[wanted], dtype=np.float32)
        centred = self._table[wanted].astype(np.float32) - np.float32(128.0)
        return np.asarray(
            (centred * self._scales[wanted][:, :, None]).reshape(len(wanted), self.config.hidden_size), dtype=np.float32
        )

    def context(self, capacity: int, prefix: Prefix | None = None) -> Context:
        """A new context for ``capacity`` tokens, empty or with a prefix already read."""
        return Context(self, capacity, prefix)


class Context:
    """What the model has read so far. Not for several threads at once."""

    def __init__(self, runtime: LlamaRuntime, capacity: int, prefix: Prefix | None = None) -> None:
        """Allocate the buffer.

        Args:
            runtime: the model.
            capacity: the most tokens that it can hold, branches included.
            prefix: what was read already, from ``prefix`` of a context of the same model.

        Raises:
            ContextFullError: when the prefix does not fit.
            ValueError: when the capacity is not positive or exceeds the model's positions, or the prefix is of another
                shape.
        """
        config = runtime.config
        if not 0 < capacity <= config.max_positions:
            raise ValueError(f"capacity {capacity} is not in 1 … {config.max_positions}")
        self.runtime = runtime
        self.capacity = capacity
        self._length = 0 if prefix is None else prefix.cache.shape[2]
        self._next: FloatArray | None = None if prefix is None else prefix.next_logprobs
        if self._length > capacity:
            raise ContextFullError(f"{self._length} tokens do not fit: {capacity} of {capacity} are left")
        expected = (2 * config.num_layers, config.num_kv_heads, self._length, config.head_dim)
        if prefix is not None and prefix.cache.shape != expected:
            raise ValueError(f"the prefix has shape {prefix.cache.shape}, this model needs {expected}")
        self._binding = runtime.session.io_binding()
        shape = (1, config.num_kv_heads, capacity, config.head_dim)
        self._buffers: list[Any] = []
        for layer in range(config.num_layers):
            for part in ("key", "value"):
                memory = np.zeros(shape, dtype=np.float32)
                if prefix is not None:
                    memory[0, :, : self._length] = prefix.cache[len(self._buffers)]
                buffer = ort.OrtValue.ortvalue_from_numpy(memory)
                # The same memory in and out: the attention operator then appends in place instead of copying the past.
                self._binding.bind_ortvalue_input(f"past_{part}_{layer}", buffer)
                self._binding.bind_ortvalue_output(f"present_{part}_{layer}", buffer)
                self._buffers.append(buffer)
        self._first_output = 2 * config.num_layers

    @property
    def length(self) -> int:
        """Tokens read so far."""
        return self._length

    @property
    def next_logprobs(self) -> FloatArray:
        """Log-probabilities of the next token, float32 ``(vocabulary,)``.

        Raises:
            RuntimeError: when nothing was read yet, or the last reading did not ask for them.
        """
        if self._next is None:
            raise RuntimeError("no log-probabilities here: read something first")
        return self._next

    def prefix(self) -> Prefix:
        """What was read so far, to start other contexts with.

        Raises:
            RuntimeError: as ``next_logprobs``.
        """
        parts = [buffer.numpy()[0, :, : self._length] for buffer in self._buffers]
        return Prefix(np.stack(parts), self.next_logprobs)

    def mark(self) -> Mark:
        """This point, to come back to.

        Raises:
            RuntimeError: as ``next_logprobs``.
        """
        return Mark(self._length, self.next_logprobs)

    def rewind(self, mark: Mark) -> None:
        """Forget everything after ``mark``. Costs nothing.

        Raises:
            ValueError: when the mark lies ahead of what was read.
        """
        if mark.length > self._length:
            raise ValueError(f"cannot go on to {mark.length}: only {self._length} tokens were read")
        self._length = mark.length
        self._next = mark.next_logprobs

    def read(self, ids: Sequence[int], added: FloatArray | None = None) -> FloatArray:
        """Read tokens in one pass and keep them.

        Args:
            ids: at least one token.
            added: float32 ``(len(ids), hidden)``, added to their embeddings (what was heard of each word), or None.

        Returns:
            float32 ``(vocabulary,)``: log-probabilities of the next token.

        Raises:
            ContextFullError: when they do not fit; the context stays as it was.
            ValueError: when there are none, or ``added`` has another shape.
        """
        last = [len(ids) - 1]
        logits, _ = self._run(self._embedded(ids, added), None, None, last, with_states=False)
        self._length += len(ids)
        self._next = _log_softmax(logits)[0]
        return self._next

    def logprobs(self, ids: Sequence[int]) -> FloatArray:
        """Read tokens in one pass, keep them, and give the log-probabilities after each: ``(len(ids), vocabulary)``.

        Raises:
            ContextFullError, ValueError: as ``read``.
        """
        logits, _ = self._run(self._embedded(ids, None), None, None, range(len(ids)), with_states=False)
        self._length += len(ids)
        out = _log_softmax(logits)
        self._next = out[-1]
        return out

    def states(self, ids: Sequence[int]) -> FloatArray:
        """What the model makes of tokens read here, without keeping them: float32 ``(len(ids), 2 * hidden)``.

        The residual stream half-way up and five sixths up, side by side.

        Raises:
            ContextFullError, ValueError: as ``read``.
        """
        _, states = self._run(self._embedded(ids, None), None, None, [], with_states=True)
        return states

    def score(self, continuations: Sequence[Sequence[int]], with_next: bool = False) -> list[Branch]:
        """How likely each continuation is from here, all in one pass; the context stays as it is.

        Continuations that begin alike share the work.

        Args:
            continuations: token ids, each at least one.
            with_next: also give the log-probabilities of the token after each.

        Returns:
            One branch for each continuation, in their order.

        Raises:
            ContextFullError: when the branches do not fit together.
            RuntimeError: as ``next_logprobs``.
            ValueError: when a continuation is empty.
        """
        first = self.next_logprobs
        # Nodes of the prefix tree in order of creation, so a parent comes before its children. A continuation's last
        # token is read only when what follows it is wanted: its own probability stands at its parent.
        tokens: list[int] = []
        parents: list[int] = []
        children: dict[tuple[int, int], int] = {}
        paths: list[list[int]] = []
        for continuation in continuations:
            if not continuation:
                raise ValueError("an empty continuation")
            node, path = -1, []
            for token in continuation if with_next else continuation[:-1]:
                key = (node, token)
                if key not in children:
                    children[key] = len(tokens)
                    tokens.append(token)
                    parents.append(node)
                node = children[key]
                path.append(node)
            paths.append(path)
        rows = self._read_tree(tokens, parents) if tokens else np.empty((0, 0), dtype=np.float32)
        out: list[Branch] = []
        for continuation, path in zip(continuations, paths, strict=True):
            before = [first, *(rows[node] for node in path)]
            scores = [before[index][token] for index, token in enumerate(continuation)]
            out.append(Branch(np.array(scores, dtype=np.float32), before[-1] if with_next else None))
        return out

    def _read_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> FloatArray:
        if self._length == 0:
            raise RuntimeError("branches need something before them")  # the operator numbers a first read by itself
        count = len(tokens)
        seen = np.zeros((count, count), dtype=bool)
        depth = np.zeros(count, dtype=np.int64)
        for node, parent in enumerate(parents):
            if parent >= 0:
                seen[node] = seen[parent]
                depth[node] = depth[parent] + 1
            seen[node, node] = True
        bias = np.zeros((1, 1, count, self._length + count), dtype=np.float32)
        bias[0, 0, :, self._length :][~seen] = _UNSEEN
        logits, _ = self._run(self._embedded(tokens, None), self._length + depth, bias, range(count), with_states=False)
        return _log_softmax(logits)

    def _embedded(self, ids: Sequence[int], added: FloatArray | None) -> FloatArray:
        if not len(ids):
            raise ValueError("no tokens to read")
        left = self.capacity - self._length
        if len(ids) > left:
            raise ContextFullError(f"{len(ids)} tokens do not fit: {left} of {self.capacity} are left")
        embedded = self.runtime.embed(ids)
        if added is not None:
            if added.shape != embedded.shape:
                raise ValueError(f"added has shape {added.shape}, the tokens need {embedded.shape}")
            embedded = embedded + added
        return embedded

    def _run(
        self,
        embedded: FloatArray,
        positions: npt.NDArray[np.int64] | None,
        bias: FloatArray | None,
        logits_at: Sequence[int],
        with_states: bool,
    ) -> tuple[FloatArray, FloatArray]:
        count = len(embedded)
        total = self._length + count
        if positions is None:
            positions = np.arange(self._length, total, dtype=np.int64)
        if bias is None:
            bias = np.zeros((1, 1, count, total), dtype=np.float32)
        binding = self._binding
        binding.bind_cpu_input("inputs_embeds", np.ascontiguousarray(embedded[None], dtype=np.float32))
        binding.bind_cpu_input("position_ids", positions[None])
        binding.bind_cpu_input("attention_bias", bias)
        binding.bind_cpu_input("seqlens_k", np.array([total - 1], dtype=np.int32))
        binding.bind_cpu_input("total_sequence_length", np.array([total], dtype=np.int32))
        binding.bind_cpu_input("logits_at", np.asarray(logits_at, dtype=np.int64))
        # An output keeps the shape of the last run unless it is bound anew.
        binding.bind_output("logits")
        binding.bind_output("states")
        self.runtime.session.run_with_iobinding(binding)
        logits, states = binding.get_outputs()[self._first_output :]
        return logits.numpy(), (states.numpy()[0] if with_states else np.empty((0, 0), dtype=np.float32))


def _log_softmax(logits: FloatArray) -> FloatArray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    total = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return np.asarray(shifted - total, dtype=np.float32)
