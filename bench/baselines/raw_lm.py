"""The language model of the plain pipeline, told the action contract in words and taken at its word: no gate.

It stands for how audio language models are used off the shelf (VGBench, section 4): one instruction with the three
action forms and the list of tools, greedy decoding, the same strict parser as for everybody. What it hears are the
recogniser's words, of this turn and of those before it; who speaks and how near is not told. A question about a
recording is asked in the words of *Pardon?*, appendix A.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.contestants import Contestant, Setup
from gate.catalogue import ToolFacts
from models.protocols import MASK_MARK, HeardSegment, ModelId, PolicyInput, PolicyOutput

MODEL_NAME = "smollm2-135m-instruct-gguf"
MAX_NEW_TOKENS = 64
INSTRUCTION = """You are a voice assistant that its user wears. You hear the user, and the people around.
Reply with exactly one of these three forms.
1. [Mute] when the last words are not meant for you.
2. One tool call when the user tells you to do something: <|TOOL|>{{"name": name, "params": {{...}}}}</|TOOL|>
3. A short answer in plain words when the user asks you something.
Tools:
{tools}"""
QUESTION = "Please answer the question based on the audio.\nQuestion: {question}"


class RawLm:
    """A policy that asks a chat model.

    Args:
        folder: of the model's GGUF file.
        file: its name.
        model: its record.
        threads: CPU threads.
    """

    def __init__(self, folder: str, file: str, model: ModelId, threads: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(threads)
        self._torch = torch
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, gguf_file=file)
        network: Any = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file)
        self._network: Any = network.eval()
        self.model = ModelId(f"raw-lm/{model.name}", model.sha256)

    def prepare(self, tools: Sequence[ToolFacts]) -> None:
        """Nothing to prepare: a chat model is told anew each time."""

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        """Write whatever the model writes."""
        prompt = self._tokenizer.apply_chat_template(
            messages(turn), add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with self._torch.inference_mode():
            written = self._network.generate(**prompt, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)
        new = written[0, prompt["input_ids"].shape[1] :]
        return PolicyOutput(self._tokenizer.decode(new, skip_special_tokens=True).strip(), steps=len(new))


def messages(turn: PolicyInput) -> list[dict[str, str]]:
    """The chat that a turn becomes."""
    heard = "\n".join(_words(segment) for segment in (*turn.context, turn.segment))
    if turn.question is not None:
        return [{"role": "user", "content": f"{heard}\n\n{QUESTION.format(question=turn.question)}"}]
    tools = "\n".join(_described(tool) for tool in turn.tools)
    return [
        {"role": "system", "content": INSTRUCTION.format(tools=tools)},
        {"role": "user", "content": heard},
    ]


def _words(segment: HeardSegment) -> str:
    # Where damage stands is another ear's knowledge, which such a system does not have.
    return " ".join(word.text for word in segment.words if word.text != MASK_MARK)


def _described(tool: ToolFacts) -> str:
    return f"- {tool.name}({', '.join(param.name for param in tool.params)}): {tool.description}"


def load(setup: Setup) -> Contestant:
    """Load it, with the product's ears.

    Raises:
        ModelError: when the model is not in the store; names the cure.
    """
    path = next(setup.store.path(MODEL_NAME).glob("*.gguf"))
    policy = RawLm(str(path.parent), path.name, setup.store.model_id(MODEL_NAME), setup.settings.models.threads)
    return Contestant(setup.parts(policy), setup.catalogue, as_proposed=True)
