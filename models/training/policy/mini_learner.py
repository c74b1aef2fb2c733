"""voxgate-mini in training: SmolLM2-135M-Instruct with LoRA, and what was heard of each word added to its embedding.

The system prompt is the same for every row, so it goes through the network once an update; every row goes on from its
keys and values, and gradients flow back through them. Word-synchronous fusion: the mean of Whisper's encoder states
over a word's time, through a projection that starts at zero, is added to the word's token embeddings; so the model
starts as the text model that it was and learns to hear where that helps.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from gate.catalogue import ToolFacts
from models.mini_adapter import ADAPTER_FILE, PROJECTION, SETTINGS_FILE, STATE_WIDTH, read_adapter
from models.mini_prompt import END, Reading, system_prompt, turn_prompt
from models.training.policy.learner import Example, Sampled
from models.training.policy.rows import Row

States = Mapping[str, npt.NDArray[np.float16]]
"""By row id: float16 ``(words, 512)``, the mean encoder state over each word of the segment to act on."""


@dataclass(frozen=True, slots=True)
class MiniSettings:
    """What of the model learns, and what it reads.

    Attributes:
        rank, alpha: LoRA's (VGBench, section 5.1: 32 and 64 on q, k, v and o).
        dropout: LoRA's. None: a pass or two over the rows leaves little to overfit, and drawing it takes a tenth of a
            step on a CPU.
        reading: how much of the ears' verdicts is written out.
        fusion: whether encoder states are added to the words.
    """

    rank: int = 32
    alpha: int = 64
    dropout: float = 0.0
    reading: Reading = Reading.VERDICTS
    fusion: bool = False


@dataclass(frozen=True, slots=True)
class _Prompt:
    ids: tuple[int, ...]
    words: tuple[int, ...]
    """The word that each token spells, or -1."""
    states: npt.NDArray[np.float16] | None


class MiniLearner:
    """A :class:`models.training.policy.learner.Learner`.

    Args:
        network: transformers' ``LlamaForCausalLM``, not yet wrapped.
        tokenizer: of the ``tokenizers`` package, as ``models.export_llama`` writes it.
        tools: the tools in the system prompt.
        settings: what learns.
        states: encoder states by row; empty without fusion.
        name: of the base model.
        before: the adapter of an earlier stage, made part of the frozen network: what this stage is measured from.
    """

    def __init__(
        self, network: Any, tokenizer: Any, tools: Sequence[ToolFacts], settings: MiniSettings, states: States,
        name: str, before: Path | None = None,
    ) -> None:  # fmt: skip
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(
            r=settings.rank, lora_alpha=settings.alpha, lora_dropout=settings.dropout, bias="none",
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM",
        )  # fmt: skip
        self.settings = settings
        # What an earlier stage learnt to hear; it stays as it is.
        self._heard_before: torch.Tensor | None = None
        if before is not None:
            self._heard_before = _merge(network, before, settings)
        self._network: Any = get_peft_model(network, config)
        self._embed: Any = network.get_input_embeddings()
        self._dtype = self._embed.weight.dtype
        self._projection: nn.Linear | None = None
        if settings.fusion and before is None:
            self._projection = nn.Linear(STATE_WIDTH, self._embed.weight.shape[1], bias=False)
            nn.init.zeros_(self._projection.weight)
        self._tokenizer = tokenizer
        self._states = states
        self._name = name
        self._prefix = self._encode(system_prompt(tools))
        self._shared: list[tuple[torch.Tensor, torch.Tensor]] | None = None
        [self._end] = self._encode(END)

    @property
    def name(self) -> str:
        """The base model."""
        return self._name

    def example(self, row: Row) -> Example:
        """Read a row: its tokens, and which word each of them spells."""
        ids: list[int] = []
        words: list[int] = []
        for piece in turn_prompt(row.turn(()), self.settings.reading):
            piece_ids = self._encode(piece.text)
            ids += piece_ids
            words += [-1 if piece.word is None else piece.word] * len(piece_ids)
        states = self._states.get(row.id) if self.settings.fusion else None
        return Example(row, _Prompt(tuple(ids), tuple(words), states), len(ids) + len(self.target(row.target)))

    def target(self, text: str) -> tuple[int, ...]:
        """The tokens of an action, with the end mark."""
        return (*self._encode(text), self._end)

    def logprobs(
        self, examples: Sequence[Example], targets: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`Learner.logprobs`. Only the positions that predict a target's tokens reach the head."""
        longest = max(len(target) for target in targets)
        # The last target token predicts nothing, so it is not read.
        ids = [[*example.prompt.ids, *target[:-1]] for example, target in zip(examples, targets, strict=True)]
        hidden, _ = self._read(examples, ids, self._prefix_cache(len(ids)))
        wanted = torch.zeros(len(ids), longest, dtype=torch.long)
        mask = torch.zeros(len(ids), longest, dtype=torch.bool)
        for index, target in enumerate(targets):
            # Rows are padded on the left, so targets end together.
            wanted[index, longest - len(target) :] = torch.tensor(list(target))
            mask[index, longest - len(target) :] = True
        # Padding would cost as much in the head as the targets themselves: most are a mute's few tokens.
        logits = self._head(hidden[:, -longest:][mask])
        found = torch.log_softmax(logits.float(), dim=-1).gather(1, wanted[mask][:, None])[:, 0]
        return torch.zeros(mask.shape).masked_scatter(mask, found), mask

    @contextlib.contextmanager
    def update(self) -> Iterator[None]:
        """See :meth:`Learner.update`. Every row's gradient reaches the system prompt's keys and values; they go through
        the network's prompt pass together, at the end."""
        read = [tensor for pair in self._read_prefix() for tensor in pair]
        leaves = [tensor.detach().requires_grad_() for tensor in read]
        self._shared = list(zip(leaves[::2], leaves[1::2], strict=True))
        try:
            yield
        finally:
            self._shared = None
        reached = [(tensor, leaf.grad) for tensor, leaf in zip(read, leaves, strict=True) if leaf.grad is not None]
        if reached:
            torch.autograd.backward([tensor for tensor, _ in reached], [grad for _, grad in reached])

    def sample(
        self, examples: Sequence[Example], count: int, *, temperature: float, max_tokens: int, seed: int
    ) -> list[list[Sampled]]:
        """See :meth:`Learner.sample`. All completions are written side by side."""
        random = torch.Generator().manual_seed(seed)
        repeated = [example for example in examples for _ in range(count)]
        with torch.no_grad():
            hidden, cache = self._read(repeated, [e.prompt.ids for e in repeated], self._prefix_cache(len(repeated)))
            written: list[list[int]] = [[] for _ in repeated]
            going = torch.ones(len(repeated), dtype=torch.bool)
            lengths = torch.tensor([len(e.prompt.ids) for e in repeated])
            mask = self._mask(lengths, int(lengths.max()))
            for step in range(max_tokens):
                logits = self._head(hidden[:, -1]).float()
                if temperature > 0.0:
                    shares = torch.softmax(logits / temperature, dim=-1)
                    drawn = torch.multinomial(shares, 1, generator=random)[:, 0]
                else:
                    drawn = logits.argmax(dim=-1)
                for index in torch.nonzero(going)[:, 0].tolist():
                    written[index].append(int(drawn[index]))
                going &= drawn != self._end
                if not bool(going.any()):
                    break
                mask = torch.cat([mask, torch.ones(len(repeated), 1, dtype=mask.dtype)], dim=1)
                positions = (len(self._prefix) + lengths + step)[:, None]
                out = self._network.base_model.model.model(
                    inputs_embeds=self._embed(drawn[:, None]), attention_mask=mask, position_ids=positions,
                    past_key_values=cache, use_cache=True,
                )  # fmt: skip
                hidden = out.last_hidden_state
        done = [self._sampled(tokens) for tokens in written]
        return [done[first : first + count] for first in range(0, len(done), count)]

    @contextlib.contextmanager
    def reference(self) -> Iterator[None]:
        """The model before training: without adapter and projection."""
        projection, self._projection = self._projection, None
        try:
            with self._network.disable_adapter():
                yield
        finally:
            self._projection = projection

    def trainable(self) -> list[nn.Parameter]:
        """LoRA's matrices, and the projection."""
        found = [parameter for parameter in self._network.parameters() if parameter.requires_grad]
        return found + ([] if self._projection is None else list(self._projection.parameters()))

    def train(self, on: bool) -> None:
        """Switch dropout on or off."""
        self._network.train(on)

    def save(self, folder: Path) -> None:
        """Write the adapter and the projection as float32 safetensors, and the settings that they belong to."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: p.detach().float().contiguous() for name, p in self._named()}
        partial = folder / f"{ADAPTER_FILE}.part"
        save_file(tensors, str(partial))
        partial.replace(folder / ADAPTER_FILE)
        settings = {
            "base": self._name, "rank": self.settings.rank, "alpha": self.settings.alpha,
            "reading": str(self.settings.reading), "fusion": self.settings.fusion,
        }  # fmt: skip
        (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    def restore(self, folder: Path) -> None:
        """Read an adapter that ``save`` wrote.

        Raises:
            ValueError: when it belongs to another base model, or to other settings.
        """
        from safetensors.torch import load_file

        settings = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
        wanted = (self._name, self.settings.rank, str(self.settings.reading), self.settings.fusion)
        found = tuple(settings[key] for key in ("base", "rank", "reading", "fusion"))
        if found != wanted:
            raise ValueError(f"{folder} holds an adapter for {found}, this is {wanted}")
        tensors = load_file(str(folder / ADAPTER_FILE))
        own = dict(self._named())
        if set(tensors) != set(own):
            raise ValueError(f"{folder} holds other matrices than this model has")
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(tensors[name])

    def _named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """LoRA's matrices by the name of the weight that they change, with ``.lora_A`` or ``.lora_B``."""
        for name, parameter in self._network.named_parameters():
            if parameter.requires_grad:
                plain = name.removeprefix("base_model.model.").replace(".default.weight", "")
                yield plain, parameter
        if self._projection is not None:
            yield PROJECTION, self._projection.weight

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _sampled(self, tokens: Sequence[int]) -> Sampled:
        ended = bool(tokens) and tokens[-1] == self._end
        said = list(tokens[:-1] if ended else tokens)
        return Sampled(tuple(tokens), str(self._tokenizer.decode(said, skip_special_tokens=False)), ended)

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._network.base_model.model.lm_head(hidden)
        return logits

    def _prefix_cache(self, rows: int) -> Any:
        """The system prompt's keys and values, shared by all rows of the batch."""
        from transformers import DynamicCache

        cache = DynamicCache()
        for index, (keys, values) in enumerate(self._shared or self._read_prefix()):
            cache.update(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1), index)
        return cache

    def _read_prefix(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Keys and values of the system prompt, by layer."""
        from transformers import DynamicCache

        out = self._network.base_model.model.model(
            input_ids=torch.tensor([self._prefix]), use_cache=True, past_key_values=DynamicCache()
        )
        return [(layer.keys, layer.values) for layer in out.past_key_values.layers]

    def _mask(self, lengths: torch.Tensor, longest: int) -> torch.Tensor:
        """1 where a row reads something: the prefix, and its own tokens, which stand at the right."""
        places = torch.arange(longest)[None, :]
        own = places >= (longest - lengths)[:, None]
        return torch.cat([torch.ones(len(lengths), len(self._prefix), dtype=torch.long), own.long()], dim=1)

    def _read(self, examples: Sequence[Example], ids: Sequence[Sequence[int]], cache: Any) -> tuple[torch.Tensor, Any]:
        """Last hidden states ``(batch, longest, hidden)`` of rows that end together, and the cache after them."""
        longest = max(len(row) for row in ids)
        tokens = torch.full((len(ids), longest), self._end)
        for index, row in enumerate(ids):
            tokens[index, longest - len(row) :] = torch.tensor(list(row))
        embedded = self._embed(tokens)
        if self._projection is not None or self._heard_before is not None:
            heard = self._heard(examples, ids, longest)
            if self._heard_before is not None:
                embedded = embedded + (heard @ self._heard_before.T).to(embedded.dtype)
            if self._projection is not None:
                embedded = embedded + self._projection(heard).to(embedded.dtype)
        lengths = torch.tensor([len(row) for row in ids])
        first = longest - lengths
        positions = (torch.arange(longest)[None, :] - first[:, None]).clamp(min=0) + len(self._prefix)
        out = self._network.base_model.model.model(
            inputs_embeds=embedded, attention_mask=self._mask(lengths, longest), position_ids=positions,
            past_key_values=cache, use_cache=True,
        )  # fmt: skip
        return out.last_hidden_state, out.past_key_values

    def _heard(self, examples: Sequence[Example], ids: Sequence[Sequence[int]], longest: int) -> torch.Tensor:
        """The state of the word that each token spells, zero where there is none: float ``(batch, longest, 512)``."""
        heard = torch.zeros(len(ids), longest, STATE_WIDTH)
        for index, (example, row) in enumerate(zip(examples, ids, strict=True)):
            states = example.prompt.states
            if states is None:
                continue
            start = longest - len(row)
            words = np.array(example.prompt.words)
            spelling = np.flatnonzero((words >= 0) & (words < len(states)))
            chosen = np.asarray(states[words[spelling]], dtype=np.float32)
            heard[index, start + torch.from_numpy(spelling)] = torch.from_numpy(chosen)
        return heard


def _merge(network: Any, folder: Path, settings: MiniSettings) -> torch.Tensor | None:
    """Add an adapter to the network's weights. Returns its projection, if it has one.

    Raises:
        ValueError: when it was trained to read something else.
    """
    adapter = read_adapter(folder)
    if (adapter.reading, adapter.fusion) != (settings.reading, settings.fusion):
        raise ValueError(f"{folder} was trained to read {adapter.reading}, fusion {adapter.fusion}")
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if (change := adapter.change(name)) is not None:
                parameter.add_(torch.from_numpy(change).to(parameter.dtype))
    return None if adapter.projection is None else torch.from_numpy(adapter.projection)


def load_base(folder: Path, dtype: torch.dtype) -> Any:
    """SmolLM2 from its GGUF file as transformers' network, frozen.

    Raises:
        OSError: when there is no such file.
    """
    from transformers import AutoModelForCausalLM

    file = next(folder.glob("*.gguf"), None)
    if file is None:
        raise FileNotFoundError(f"no GGUF file in {folder}; run: voicegate models pull smollm2-135m-instruct-gguf")
    network = AutoModelForCausalLM.from_pretrained(str(folder), gguf_file=file.name, dtype=dtype)
    return network.requires_grad_(False)


def fitting_dtype() -> torch.dtype:
    """bfloat16 where the CPU multiplies it (AMX, AVX-512 BF16); elsewhere it is emulated, and float32 is faster."""
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if native else torch.float32
