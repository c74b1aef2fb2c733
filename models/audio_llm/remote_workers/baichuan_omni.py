"""Baichuan-Omni-1.5 in its own environment (its own code from the hub, transformers 4.45, torch 2.4, flash-attn 2.6).

``python -m models.audio_llm.remote_workers.baichuan_omni [--model NAME] [--device cuda]``

The model's code builds no prompt: roles are tokens in one string, and a sound is the path of a file between two tokens.
So a text with such a token in it would speak in another role, and is refused. Its own demonstrations sample; here it
decodes greedily, without a repetition penalty.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from models.audio_llm.remote_workers.protocol import WRONG_INPUT, Loaded, Replied, Said, Turn, WorkerError, serve

MODEL = "baichuan-inc/Baichuan-Omni-1d5"
END = "<|endoftext|>"
ROLES = {"system": "<B_SYS>", "user": "<C_Q>", "assistant": "<C_A>"}


def prompt(
    messages: tuple[Said, ...], folder: Path, sound: tuple[str, str], control: Callable[[str], bool]
) -> tuple[str, int]:
    """The conversation as one string, and how many sounds are in it; they are written into a folder.

    Args:
        messages: the conversation.
        folder: where sounds are put.
        sound: the tokens before and after a sound.
        control: whether a text holds a token that is none of its own.

    Raises:
        WorkerError: WRONG_INPUT when one does.
    """
    out, sounds = "", 0
    for said in messages:
        parts = []
        for part in said.parts:
            if isinstance(part, str):
                if control(part) or any(token in part for token in (END, *ROLES.values(), *sound)):
                    raise WorkerError(WRONG_INPUT, "a text with a control token in it")
                parts.append(part)
            else:
                path = folder / f"{sounds}.wav"
                path.write_bytes(part)
                parts.append(f"{sound[0]}{json.dumps({'path': str(path)}, ensure_ascii=False)}{sound[1]}")
                sounds += 1
        out += ROLES[said.role] + "\n".join(parts)
    return out + ROLES["assistant"], sounds


def load(name: str, device: str) -> Loaded:
    """Load the model and bind its processor."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer, StoppingCriteria, StoppingCriteriaList

    model: Any = AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True, torch_dtype=torch.bfloat16)
    model.to(device)
    tokenizer: Any = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
    model.eval()
    model.bind_processor(tokenizer, training=False, relative_path="/")
    audio = model.config.audio_config
    sound = (
        tokenizer.convert_ids_to_tokens(audio.audio_start_token_id),
        tokenizer.convert_ids_to_tokens(audio.audio_end_token_id),
    )
    control = set(tokenizer.all_special_tokens) | set(tokenizer.get_added_vocab())

    def is_control(text: str) -> bool:
        return any(token in text for token in control)

    def on_device(value: Any) -> Any:
        return None if value is None else value.to(device)

    class Watch(StoppingCriteria):
        """Says what is written so far, and stops when it is no longer wanted."""

        def __init__(self, turn: Turn, before: int) -> None:
            self.turn = turn
            self.before = before

        def __call__(self, input_ids: Any, scores: Any, **more: Any) -> Any:
            self.turn.progress(tokenizer.decode(input_ids[0, self.before :]).removesuffix(END))
            return torch.full((len(input_ids),), self.turn.cancelled.is_set(), device=input_ids.device)

    def reply(turn: Turn) -> Replied:
        with tempfile.TemporaryDirectory(prefix="voicegate-baichuan-") as folder, torch.inference_mode():
            text, sounds = prompt(turn.request.messages, Path(folder), sound, is_control)
            read = model.processor([text])
            if sounds and (read.audios is None or len(read.audios) < sounds):
                raise WorkerError(WRONG_INPUT, "the processor dropped a sound")
            before = read.input_ids.shape[1]
            written = model.generate(
                read.input_ids.to(device), attention_mask=read.attention_mask.to(device), audios=on_device(read.audios),
                encoder_length=on_device(read.encoder_length), bridge_length=on_device(read.bridge_length),
                tokenizer=tokenizer, max_new_tokens=turn.request.max_tokens, stop_strings=[END], do_sample=False,
                num_beams=1, repetition_penalty=1.0, return_dict_in_generate=True,
                stopping_criteria=StoppingCriteriaList([Watch(turn, before)]),
            )  # fmt: skip
        tokens = written.sequences[0, before:]
        reply_text = tokenizer.decode(tokens)
        stopped = "length" if len(tokens) >= turn.request.max_tokens else "terminator"
        if reply_text.endswith(END):
            stopped = "terminator"
        elif turn.cancelled.is_set():
            stopped = "cancelled"
        return Replied(reply_text.removesuffix(END), len(tokens), stopped)

    return Loaded(reply, {"torch": torch.__version__, "transformers": transformers.__version__})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    sys.exit(serve(args.model, lambda: load(args.model, args.device)))
