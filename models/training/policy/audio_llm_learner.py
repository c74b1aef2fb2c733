"""An audio LLM of transformers in training: the classes that run in this process, with LoRA on their attention.

It reads what it will read when it serves: the same contract, chat template, processor and checks. Tokens that stand for
sound or pictures are never written: one in a completion would ask the network for sound that is not there.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from gate import grammar
from gate.catalogue import ToolFacts
from models.audio_llm.contract import ActionContract
from models.audio_llm.conversation import BackendError
from models.audio_llm.native import NativeChat
from models.audio_llm.policy import AudioLlmPolicy
from models.components import load_policy
from models.training.policy.audio_llm_config import read_config
from models.training.policy.audio_llm_inputs import RowReader
from models.training.policy.audio_llm_lora import (
    LEARNING,
    Base,
    LoraSettings,
    add_lora,
    copy_lora,
    matrices,
    read_lora,
    save_lora,
)
from models.training.policy.audio_llm_processes import own_gpu
from models.training.policy.learner import Example, Sampled
from models.training.policy.rows import Row

_BEFORE = "before"
"""PEFT's name of the earlier stage's adapter."""
_CALL_MARKS_RE = re.compile(f"({re.escape(grammar.TOOL_OPEN)}|{re.escape(grammar.TOOL_CLOSE)})")
_PLACES_RE = re.compile(r"(audio|image|video|vision)\w*_token_(id|index)")


class AudioLlmLearner:
    """A :class:`models.training.policy.learner.Learner`.

    Args:
        chat: the class on its network, not yet wrapped.
        contract: what it is told.
        tools: the tools in the system prompt.
        rows_folder: what the rows' recordings are relative to.
        settings: what learns.
        before: the adapter of an earlier stage: learning goes on from it, and ``reference`` is it.
    """

    def __init__(
        self, chat: NativeChat, contract: ActionContract, tools: Sequence[ToolFacts], rows_folder: Path,
        settings: LoraSettings, before: Path | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self._chat = chat
        self._base = Base(chat.model.name.partition(" (")[0], chat.model.sha256, str(contract.told))
        self._rows = RowReader(chat, contract, tools, rows_folder)
        self._network: Any = chat._network
        self._peft: Any = add_lora(self._network, settings)
        self._before = before is not None
        if before is not None:
            self._peft.add_adapter(_BEFORE, self._peft.peft_config[LEARNING])
            tensors, _ = read_lora(before, self._base)
            for adapter in (_BEFORE, LEARNING):
                copy_lora(self._network, tensors, adapter)
            self._peft.base_model.set_adapter(LEARNING)
        self._head: Any = self._network.get_output_embeddings() or self._network.get_decoder().lm_head
        self._layers = set(self._network.get_decoder().modules())
        self._never = torch.zeros(self._head.weight.shape[0], device=self._network.device)
        self._never[self._places()] = -torch.inf
        self.train(False)

    @property
    def name(self) -> str:
        """The base model, with the beginning of its files' sha256."""
        return f"{self._base.name} {self._base.sha256[:12]}"

    def example(self, row: Row) -> Example:
        """Read a row (see ``RowReader.example``)."""
        return self._rows.example(row)

    def target(self, text: str) -> tuple[int, ...]:
        """The tokens of an action, with the end mark.

        Marks of a call are spelt by themselves, so that the beginning of an action has the same tokens whatever
        follows, and can be scored.

        Raises:
            ValueError: when it holds one of the template's marks.
        """
        try:
            self._chat._refuse_controls(text)
        except BackendError as error:
            raise ValueError(f"{text!r} cannot be a target: {error.detail}") from error
        pieces = [piece for piece in _CALL_MARKS_RE.split(text) if piece]
        ids = [self._chat._tokenizer(piece, add_special_tokens=False)["input_ids"] for piece in pieces]
        return (*(token for piece in ids for token in piece), self._chat._ends[0])

    def logprobs(
        self, examples: Sequence[Example], targets: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``Learner.logprobs``. Targets begin together, and only the positions that predict them reach the head."""
        batch = self._rows.batch(examples, targets, self._chat._ends[0])
        with self._only_at(batch.places):
            logits = self._network(**batch.inputs, use_cache=False).logits
        scores = torch.log_softmax(logits.float() + self._never, dim=-1)
        chosen = scores.gather(2, batch.wanted[:, :, None])[:, :, 0]
        return chosen.masked_fill(~batch.mask, 0.0), batch.mask

    def update(self) -> contextlib.AbstractContextManager[None]:
        """Nothing is shared: the sound of each row stands before its words."""
        return contextlib.nullcontext()

    def sample(
        self, examples: Sequence[Example], count: int, *, temperature: float, max_tokens: int, seed: int
    ) -> list[list[Sampled]]:
        """See ``Learner.sample``. The completions of one row are written side by side."""
        from transformers import GenerationConfig

        ends = self._chat._ends
        make: Any = GenerationConfig
        # All is said here: what is left out would be taken from defaults that cut the distribution.
        how = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        config = make(
            **(how if temperature > 0.0 else {"do_sample": False}), num_beams=1, repetition_penalty=1.0,
            max_new_tokens=max_tokens, eos_token_id=ends, pad_token_id=ends[0], suppress_tokens=self._places(),
            use_cache=True,
        )  # fmt: skip
        out = []
        for number, example in enumerate(examples):
            inputs = self._rows.inputs(example)
            copies = {key: value.repeat(count, *[1] * (value.dim() - 1)) for key, value in inputs.items()}
            with torch.no_grad(), self._seeded(seed + number):
                written = self._network.generate(**copies, generation_config=config)
            start = inputs["input_ids"].shape[1]
            out.append([self._sampled(row[start:].tolist()) for row in written])
        return out

    @contextlib.contextmanager
    def reference(self) -> Iterator[None]:
        """The model before this stage: the earlier stage's adapter in the place of this one's, or none."""
        if not self._before:
            with self._peft.disable_adapter():
                yield
            return
        self._peft.base_model.set_adapter(_BEFORE, inference_mode=True)
        try:
            yield
        finally:
            self._peft.base_model.set_adapter(LEARNING)

    def trainable(self) -> list[torch.nn.Parameter]:
        """LoRA's matrices."""
        return list(matrices(self._network).values())

    def train(self, on: bool) -> None:
        """Switch LoRA's dropout on or off. Whatever is frozen stays as it infers."""
        self._network.eval()
        for name, module in self._network.named_modules():
            if name.endswith((".lora_dropout", f".lora_dropout.{LEARNING}")):
                module.train(on)
            # A layer computes itself again only where it is marked so, and only under gradients.
            elif getattr(module, "gradient_checkpointing", False) and module in self._layers:
                module.training = True

    def save(self, folder: Path) -> None:
        """Write the adapter as safetensors, and the base model and settings that it belongs to."""
        save_lora(folder, self._network, self._base, self.settings)

    def restore(self, folder: Path) -> None:
        """Read an adapter that ``save`` wrote.

        Raises:
            ValueError: when it belongs to another base model, or has another rank.
        """
        copy_lora(self._network, read_lora(folder, self._base)[0])

    def _places(self) -> list[int]:
        """Tokens that stand for sound or pictures, or stand around them."""
        config = self._network.config.to_dict()
        found = {value for key, value in config.items() if _PLACES_RE.fullmatch(key) and isinstance(value, int)}
        return sorted(found | {self._chat._processor.audio_token_id})

    @contextlib.contextmanager
    def _only_at(self, places: torch.Tensor) -> Iterator[None]:
        """Within it the head scores these positions ``(batch, tokens)`` alone: a vocabulary is wide."""

        def picked(module: Any, given: tuple[torch.Tensor, ...]) -> torch.Tensor:
            hidden = given[0]
            return hidden.gather(1, places[:, :, None].expand(-1, -1, hidden.shape[-1]))

        hook = self._head.register_forward_pre_hook(picked)
        try:
            yield
        finally:
            hook.remove()

    @contextlib.contextmanager
    def _seeded(self, seed: int) -> Iterator[None]:
        device = self._network.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            yield

    def _sampled(self, written: Sequence[int]) -> Sampled:
        end = next((index for index, token in enumerate(written) if token in self._chat._ends), None)
        said = list(written[:end])
        tokens = said if end is None else [*said, written[end]]
        return Sampled(tuple(tokens), self._chat._decode(said), end is not None)


def load_learner(
    model: str, tools: Sequence[ToolFacts], rows_folder: Path, before: Path | None = None
) -> AudioLlmLearner:
    """An audio LLM with LoRA, on this process's GPU.

    Args:
        model: a configuration (see ``read_config``), with options of the policy behind it.
        tools: the tools in the system prompt.
        rows_folder: what the rows' recordings are relative to.
        before: the adapter of an earlier stage.

    Raises:
        ValueError: when there is no such configuration, or the adapter belongs to another model.
        UnknownComponentError: when an option is wrong.
        ModelError: when the model is not here, or does not load; names the cure.
    """
    config = read_config(model)
    options = dict(config.options)
    if (gpu := own_gpu()) is not None:
        options.setdefault("device", gpu)
    if options.get("quant", "none") != "none":
        raise ValueError("a network is trained in full precision: leave quant out")
    given = ",".join(f"{key}={value}" for key, value in options.items())
    policy = cast(AudioLlmPolicy, load_policy(f"{config.policy}:{given}" if given else config.policy, None, 1))
    chat = cast(NativeChat, policy.chat)
    return AudioLlmLearner(chat, policy.contract, tools, rows_folder, config.lora, before)
