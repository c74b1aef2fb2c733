"""DeSTA2.5-Audio in its own environment (package ``desta`` from git, transformers 4.49).

``python -m models.audio_llm.remote_workers.desta [--model NAME] [--device cuda]``

The package takes sound as files, decodes greedily with ``do_sample=False``, and offers no way to follow or to stop what
is being written: there is no progress, and a cancelled reply is written to its end. Its encoder hears 30 s of each
sound, and beside it the language model reads what Whisper understood of the sound, 128 tokens at most.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from models.audio_llm.remote_workers.protocol import WRONG_INPUT, Loaded, Replied, Said, Turn, WorkerError, serve

MODEL = "DeSTA-ntu/DeSTA2.5-Audio-Llama-3.1-8B"
LOCATOR = "<|AUDIO|>"
"""Stands in a message's text where its sound is to be heard."""


def message(said: Said, folder: Path, control: Callable[[str], bool], number: int) -> dict[str, Any]:
    """A message as the package takes it; its sounds are written into a folder.

    Raises:
        WorkerError: WRONG_INPUT when a text holds what only the chat template may write.
    """
    texts, audios = [], []
    for index, part in enumerate(said.parts):
        if isinstance(part, str):
            if LOCATOR in part or control(part):
                raise WorkerError(WRONG_INPUT, "a text with a control token in it")
            texts.append(part)
        else:
            path = folder / f"{number}-{index}.wav"
            path.write_bytes(part)
            audios.append({"audio": str(path), "text": None})
            texts.append(LOCATOR)
    out: dict[str, Any] = {"role": said.role, "content": "\n".join(texts)}
    if audios:
        out["audios"] = audios
    return out


def load(name: str, device: str) -> Loaded:
    """Load the model, and what it loads only when it is first used: tokeniser, Whisper's processor, Silero's VAD."""
    import torch
    import transformers
    from desta import DeSTA25AudioModel  # type: ignore[import-not-found]  # only where this runs

    model = DeSTA25AudioModel.from_pretrained(name)
    model.to(device)
    model.eval()
    model.generate(messages=[{"role": "user", "content": "Hello"}], do_sample=False, top_p=1.0, temperature=1.0,
                   max_new_tokens=1)  # fmt: skip
    ends = {model.tokenizer.eos_token_id, model.tokenizer.convert_tokens_to_ids("<|eot_id|>")}
    ends.update(_listed(model.llm_model.generation_config.eos_token_id))
    control = set(model.tokenizer.all_special_tokens) | set(model.tokenizer.get_added_vocab())

    def is_control(text: str) -> bool:
        return any(token in text for token in control)

    def reply(turn: Turn) -> Replied:
        with tempfile.TemporaryDirectory(prefix="voicegate-desta-") as folder, torch.inference_mode():
            messages = [
                message(said, Path(folder), is_control, number) for number, said in enumerate(turn.request.messages)
            ]
            written = model.generate(
                messages=messages, do_sample=False, top_p=1.0, temperature=1.0, max_new_tokens=turn.request.max_tokens
            )
        tokens = [token for token in written.generated_ids[0] if token not in ends]
        cut = len(tokens) >= turn.request.max_tokens
        return Replied(written.text[0], len(tokens), "length" if cut else "terminator")

    return Loaded(reply, {"torch": torch.__version__, "transformers": transformers.__version__})


def _listed(ids: Any) -> list[int]:
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    sys.exit(serve(args.model, lambda: load(args.model, args.device)))
