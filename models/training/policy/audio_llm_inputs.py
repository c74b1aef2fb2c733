"""From rows to what a network reads: the very prompts and features of inference, one row at a time, then in batches.

Rows are padded on the right. In a causal network nothing that stands later reaches a token, so a row scores alike alone
and in any batch, whichever class it is; completions of one prompt are drawn side by side, where nothing is padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from gate.catalogue import ToolFacts
from gate.span import SAMPLE_RATE_HZ
from models.audio_llm.chunks import parts_of
from models.audio_llm.contract import ActionContract
from models.audio_llm.conversation import AudioPart, ChatError, Message, check_messages
from models.audio_llm.native import NativeChat
from models.protocols import Audio
from models.training.policy.learner import Example
from models.training.policy.rows import BadRowError, Row

_TOKENS_A_SECOND = 25
"""Of sound, at most; for batches of even length."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows as a network reads them.

    Attributes:
        inputs: arguments of its forward pass.
        places: int ``(batch, longest target)``, the position whose output predicts each token.
        wanted: int ``(batch, longest target)``, the tokens.
        mask: bool ``(batch, longest target)``, true at real tokens.
    """

    inputs: dict[str, torch.Tensor]
    places: torch.Tensor
    wanted: torch.Tensor
    mask: torch.Tensor


class RowReader:
    """Makes a class's inputs of rows.

    Args:
        chat: the class's own prompt, processor and checks.
        contract: what is told beside the sound.
        tools: the tools in the prompt.
        folder: where the rows are; their recordings' paths are relative to it.
    """

    def __init__(self, chat: NativeChat, contract: ActionContract, tools: Sequence[ToolFacts], folder: Path) -> None:
        self._chat = chat
        self._contract = contract
        self._tools = tuple(tools)
        self._folder = folder

    def example(self, row: Row) -> Example:
        """Read a row: its prompt is made once, its sound read again whenever it is needed.

        Raises:
            BadRowError: when the row was spoken and names no recording, the recording is not what it should be, or the
                class cannot take it.
        """
        try:
            messages = self._messages(row)
            prompt = self._chat._prompt(messages)
        except ChatError as error:
            raise BadRowError(f"row {row.id}: {error}") from error
        seconds = sum(sound.seconds for message in messages for sound in message.sounds)
        return Example(row, prompt, len(self._chat._encode(prompt)) + round(_TOKENS_A_SECOND * seconds))

    def inputs(self, example: Example) -> dict[str, torch.Tensor]:
        """What the network reads of one row, each tensor with the row (or its clips) first.

        Raises:
            BadRowError: when the recording cannot be heard.
        """
        try:
            sounds = [sound for message in self._messages(example.row) for sound in message.sounds]
            return dict(self._chat._inputs(example.prompt, sounds))
        except ChatError as error:
            raise BadRowError(f"row {example.row.id}: {error}") from error

    def batch(self, examples: Sequence[Example], targets: Sequence[Sequence[int]], filler: int) -> Batch:
        """Rows with their targets behind them, the last token of each left out: it predicts nothing.

        Args:
            examples: the rows.
            targets: tokens of each.
            filler: token of the padding.
        """
        once = {id(example): example for example in examples}
        read = {key: self.inputs(example) for key, example in once.items()}
        rows = [read[id(example)] for example in examples]
        prompts = [row["input_ids"][0].tolist() for row in rows]
        ids = [[*prompt, *target[:-1]] for prompt, target in zip(prompts, targets, strict=True)]
        device = rows[0]["input_ids"].device
        inputs = {
            "input_ids": _padded(ids, filler, device),
            "attention_mask": _padded([[1] * len(row) for row in ids], 0, device),
        }
        heard = [row for row in rows if self._chat.mask_key in row]
        if heard:
            inputs |= _side_by_side(heard, self._chat.mask_key)
        places = [
            [len(prompt) - 1 + step for step in range(len(t))] for prompt, t in zip(prompts, targets, strict=True)
        ]
        return Batch(
            inputs, _padded(places, 0, device), _padded(targets, filler, device),
            _padded([[1] * len(target) for target in targets], 0, device).bool(),
        )  # fmt: skip

    def _messages(self, row: Row) -> list[Message]:
        turn = row.turn(self._tools)
        if not row.typed:
            turn = replace(turn, audio=read_sound(row, self._folder))
        limits = self._chat.limits
        messages = []
        for message in self._contract.messages(turn):
            parts = [parts_of(part.audio, limits) if isinstance(part, AudioPart) else (part,) for part in message.parts]
            messages.append(Message(message.role, tuple(part for group in parts for part in group)))
        check_messages(messages, limits)
        return messages


def read_sound(row: Row, folder: Path) -> Audio:
    """The stretch of a recording that a row is about; the whole of it where the row gives no end.

    Returns:
        float32 ``(samples,)`` at 16 kHz.

    Raises:
        BadRowError: when the row names no recording, there is none, it is not 16 kHz mono, or it ends before the row.
    """
    import soundfile

    if row.audio is None:
        raise BadRowError(f"row {row.id} was spoken and names no recording: there is nothing to hear")
    path = folder / row.audio
    try:
        about = soundfile.info(path)
        start = round(row.audio_start_s * SAMPLE_RATE_HZ)
        stop = round(row.audio_end_s * SAMPLE_RATE_HZ) or about.frames
        if (about.samplerate, about.channels) != (SAMPLE_RATE_HZ, 1):
            raise BadRowError(f"row {row.id}: {path} has {about.samplerate} Hz and {about.channels} channels")
        if not 0 <= start < stop <= about.frames:
            raise BadRowError(f"row {row.id}: {row.audio_start_s} to {row.audio_end_s} s is not within {path}")
        samples, _ = soundfile.read(path, start=start, stop=stop, dtype="float32")
    except soundfile.LibsndfileError as error:
        raise BadRowError(f"row {row.id}: {path} cannot be read: {error}") from error
    return np.asarray(samples, dtype=np.float32)


def _padded(rows: Sequence[Sequence[int]], filler: int, device: torch.device) -> torch.Tensor:
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows], device=device)


def _side_by_side(rows: Sequence[dict[str, torch.Tensor]], mask_key: str) -> dict[str, torch.Tensor]:
    """Features of all clips ``(clips, …)`` with their masks, as long as the longest."""
    longest = max(row[mask_key].shape[-1] for row in rows)
    masks, features = [], []
    for row in rows:
        mask, feature = row[mask_key], row["input_features"]
        more = longest - mask.shape[-1]
        # Whisper's extractor gives (clips, mels, frames), Parakeet's (clips, frames, mels).
        sides = (0, more) if feature.shape[-1] == mask.shape[-1] else (0, 0, 0, more)
        masks.append(torch.nn.functional.pad(mask, (0, more)))
        features.append(torch.nn.functional.pad(feature, sides))
    return {mask_key: torch.cat(masks), "input_features": torch.cat(features)}
