"""What the networks that run in this process have in common: the prompt, the checks, greedy decoding, the stop.

The checks stand between a model and a silent mistake. Processors of several releases have dropped sound without a word
(a renamed argument, a block that the template does not know, a clip longer than a window), and a model that hears
nothing answers all the same. So before anything is decoded: every sound has its place in the prompt, its features cover
every one of its samples, and there are as many places as the encoder will fill.
"""

from __future__ import annotations

import copy
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from gate.span import SAMPLE_RATE_HZ
from models.audio_llm.conversation import (
    AudioPart,
    BackendError,
    Limits,
    Message,
    Reply,
    Status,
    Stop,
    Stopped,
    TextPart,
    TooLongError,
    check_messages,
    user,
)
from models.audio_llm.dialects import THINK_OPEN
from models.protocols import ModelId
from models.store_errors import ModelError, ModelFault

_SHORTEST = SAMPLE_RATE_HZ // 10
"""Of less than 100 ms extractors make no frame, or raise, and Qwen2-Audio takes its one place for an older prompt's."""


class NativeChat(ABC):
    """An ``AudioChat`` on a network and a processor of transformers. One reply is written at a time.

    Args:
        network: the network, in its device and precision.
        processor: the class's own.
        model: the record of what was loaded.

    Raises:
        ModelError: when processor and network do not belong together.
    """

    network_class: ClassVar[str]
    """The network's class in transformers."""
    terminators: ClassVar[tuple[str, ...]]
    """Tokens that end a reply beside the tokenizer's own. Each must be in the vocabulary."""
    mask_key: ClassVar[str]
    """The processor's name for the mask over mel frames, ``(clips, frames)``."""

    def __init__(self, network: Any, processor: Any, model: ModelId) -> None:
        self._network = network
        self._processor = processor
        self._model = model
        self._lock = threading.Lock()
        self._prefix: tuple[list[int], Any] | None = None
        self._tokenizer: Any = processor.tokenizer
        self._ends = list(dict.fromkeys(map(self._token, (*self.terminators, self._tokenizer.eos_token))))
        self._controls = self._control_tokens()
        self._cache_name = "cache" if "cache" in inspect.signature(network.forward).parameters else "past_key_values"
        # The checkpoint's own settings sample; what is left unset in ours would be filled from them.
        network.generation_config = self._settings()
        self._check_mels()

    @property
    def model(self) -> ModelId:
        """The record of what was loaded."""
        return self._model

    @property
    @abstractmethod
    def limits(self) -> Limits:
        """What the class takes."""

    @abstractmethod
    def encoder_tokens(self, frames: Any) -> Any:
        """How many tokens the encoder makes of clips of so many mel frames.

        Args:
            frames: int tensor ``(clips,)``.

        Returns:
            Int tensor ``(clips,)``.
        """

    def template_options(self) -> Mapping[str, object]:
        """Variables of the chat template."""
        return {}

    def reply(self, messages: Sequence[Message], max_tokens: int, stop: Stop | None = None) -> Reply:
        """Write one reply (see ``AudioChat``)."""
        check_messages(messages, self.limits)
        with self._lock, _faults():
            prompt = self._prompt(messages)
            sounds = [sound for message in messages for sound in message.sounds]
            inputs = self._inputs(prompt, sounds)
            self._check_context(inputs["input_ids"].shape[1] + max_tokens)
            opened = prompt.rstrip().endswith(THINK_OPEN)
            return self._write(inputs, max_tokens, stop, THINK_OPEN if opened else "")

    def prime(self, messages: Sequence[Message]) -> None:
        """Read the start of later conversations now, and keep its key/value cache (see ``Primable``)."""
        with self._lock, _faults():
            # What two conversations share that differ in what the user says first, up to where they part.
            texts = (self._prompt([*messages, user(word)]) for word in ("0", "x"))
            first, second = (self._encode(text) for text in texts)
            length = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)
            self._prefix = (first[:length], self._read(first[:length])) if length else None

    # The prompt ---------------------------------------------------------------------------------------------------

    def _prompt(self, messages: Sequence[Message]) -> str:
        for message in messages:
            self._refuse_controls(message.text)
        text: str = self._processor.apply_chat_template(
            [_blocks(message) for message in messages],
            tokenize=False,
            add_generation_prompt=True,
            **self.template_options(),
        )
        places = text.count(self._processor.audio_token)
        sounds = sum(len(message.sounds) for message in messages)
        if places != sounds:
            raise BackendError(Status.WRONG_INPUT, f"the chat template made {places} places for {sounds} sounds")
        return text

    def _refuse_controls(self, text: str) -> None:
        """Words that the tokenizer would take for its own marks could speak as somebody else."""
        found = next((mark for mark in self._controls if mark in text), None)
        if found is not None:
            raise BackendError(Status.WRONG_INPUT, f"the text holds the control token {found}")

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=self._adds_specials(text))["input_ids"]
        return ids

    def _adds_specials(self, text: str) -> bool:
        first = self._tokenizer.bos_token
        return not (first and text.startswith(first))

    def _inputs(self, prompt: str, sounds: Sequence[AudioPart]) -> Any:
        """Tensors for the network, checked."""
        if any(len(sound.audio) < _SHORTEST for sound in sounds):
            raise BackendError(Status.WRONG_INPUT, "a sound too short to be heard")
        options: dict[str, Any] = {"return_tensors": "pt", "add_special_tokens": self._adds_specials(prompt)}
        if sounds:
            options |= {"audio": [sound.audio for sound in sounds], "sampling_rate": SAMPLE_RATE_HZ}
        inputs = self._processor(text=prompt, **options)
        self._check_inputs(inputs, sounds)
        for key, value in inputs.items():
            if value.is_floating_point():
                value = value.to(self._network.dtype)
            inputs[key] = value.to(self._network.device)
        return inputs

    def _check_inputs(self, inputs: Any, sounds: Sequence[AudioPart]) -> None:
        places = int((inputs["input_ids"] == self._processor.audio_token_id).sum())
        if not sounds:
            if places or "input_features" in inputs:
                raise BackendError(Status.WRONG_INPUT, "the processor made up a sound")
            return
        for key in ("input_features", self.mask_key):
            if key not in inputs:
                raise BackendError(Status.WRONG_INPUT, f"the processor dropped the sound: it gives no {key}")
        frames = inputs[self.mask_key].sum(-1)
        hop = self._processor.feature_extractor.hop_length
        needed = sum(len(sound.audio) // hop for sound in sounds)
        if int(frames.sum()) < needed:
            raise BackendError(
                Status.WRONG_INPUT, f"the processor cut the sound: {int(frames.sum())} of {needed} frames"
            )
        filled = self.encoder_tokens(frames)
        if int(frames.min()) < 1 or int(filled.min()) < 1 or not bool(inputs["input_features"].isfinite().all()):
            raise BackendError(Status.WRONG_INPUT, "a sound too short to be heard")
        if int(filled.sum()) != places:
            raise BackendError(
                Status.WRONG_INPUT, f"{places} places in the prompt for {int(filled.sum())} of the encoder"
            )

    def _check_context(self, tokens: int) -> None:
        longest = getattr(self._network.config.get_text_config(), "max_position_embeddings", None)
        if longest is not None and tokens > longest:
            raise TooLongError(tokens, longest, "tokens")

    # Decoding -----------------------------------------------------------------------------------------------------

    def _write(self, inputs: Any, max_tokens: int, stop: Stop | None, opening: str) -> Reply:
        import torch
        from transformers import LogitsProcessorList, StoppingCriteriaList

        start = inputs["input_ids"].shape[1]
        decided: list[bool] = []

        def is_decided(ids: Any, scores: Any, **kwargs: Any) -> Any:
            if stop is not None and stop(opening + self._decode(ids[0, start:])):
                decided.append(True)
            return torch.full((len(ids),), bool(decided), dtype=torch.bool, device=ids.device)

        greedy = self._settings(
            do_sample=False,
            num_beams=1,
            repetition_penalty=1.0,
            max_new_tokens=max_tokens,
            eos_token_id=self._ends,
            pad_token_id=self._ends[0],
            suppress_tokens=[self._processor.audio_token_id],  # a place for sound is no word
            use_cache=True,
        )
        with torch.inference_mode():
            written = self._network.generate(
                **inputs,
                **self._kept(inputs["input_ids"]),
                generation_config=greedy,
                stopping_criteria=StoppingCriteriaList([is_decided]),
                logits_processor=LogitsProcessorList([_refuse_nan]),
            )
        ids = written[0, start:].tolist()
        ended = bool(ids) and ids[-1] in self._ends
        stopped = Stopped.TERMINATOR if ended else Stopped.DECIDED if decided else Stopped.LENGTH
        return Reply(opening + self._decode(ids[:-1] if ended else ids), len(ids), stopped)

    @staticmethod
    def _settings(**values: object) -> Any:
        from transformers import GenerationConfig

        make: Any = GenerationConfig
        return make(**values)

    def _decode(self, ids: Any) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    # The kept prefix ----------------------------------------------------------------------------------------------

    def _read(self, ids: Sequence[int]) -> Any:
        import torch

        tokens = torch.tensor([list(ids)], device=self._network.device)
        with torch.inference_mode():
            read = self._network(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=True)
        return getattr(read, self._cache_name)

    def _kept(self, ids: Any) -> dict[str, Any]:
        """The cache to go on from, where the prompt starts with what was read before."""
        if self._prefix is None:
            return {}
        kept, cache = self._prefix
        if ids.shape[1] <= len(kept) or ids[0, : len(kept)].tolist() != kept:
            return {}
        return {self._cache_name: copy.deepcopy(cache)}  # generation writes into what it is given

    # At the start -------------------------------------------------------------------------------------------------

    def _token(self, mark: str | None) -> int:
        number = None if mark is None else self._tokenizer.convert_tokens_to_ids(mark)
        if number is None or number == self._tokenizer.unk_token_id:
            raise ModelError(
                ModelFault.BUILD_FAILED, f"the tokenizer has no {mark or 'end token'}", "Fetch the model again"
            )
        return int(number)

    def _control_tokens(self) -> tuple[str, ...]:
        added = self._tokenizer.added_tokens_decoder.values()
        marks = {token.content for token in added if token.special} | {self._processor.audio_token}
        return tuple(sorted(mark for mark in marks if mark))

    def _check_mels(self) -> None:
        has = self._processor.feature_extractor.feature_size
        wants = self._network.config.audio_config.num_mel_bins
        if has != wants:
            raise ModelError(
                ModelFault.BUILD_FAILED, f"the processor makes {has} mel bands, the network hears {wants}",
                "Fetch the model again",
            )  # fmt: skip


def _blocks(message: Message) -> dict[str, object]:
    """A message as chat templates take it: text parts that stand side by side are one block."""
    if not message.sounds:
        return {"role": message.role.value, "content": [{"type": "text", "text": message.text}]}
    blocks: list[dict[str, str]] = []
    for part in message.parts:
        if isinstance(part, TextPart) and blocks and blocks[-1]["type"] == "text":
            blocks[-1]["text"] += f"\n{part.text}"
        elif isinstance(part, TextPart):
            blocks.append({"type": "text", "text": part.text})
        else:
            blocks.append({"type": "audio", "audio": "given to the processor"})
    return {"role": message.role.value, "content": blocks}


def _refuse_nan(ids: Any, scores: Any) -> Any:
    """A logits processor. The largest of scores with NaN among them is any token at all."""
    if bool(scores.isnan().any()) or bool((scores == float("inf")).any()):
        raise BackendError(Status.NOT_FINITE, "the network's scores are not finite")
    return scores


@contextmanager
def _faults() -> Iterator[None]:
    """Turn what processors and networks raise into ``BackendError``."""
    import torch

    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        raise BackendError(Status.OUT_OF_MEMORY, str(error).splitlines()[0]) from error
    except (ValueError, TypeError, RuntimeError, IndexError, KeyError) as error:
        raise BackendError(Status.NETWORK_FAILED, f"{type(error).__name__}: {error}"[:300]) from error
