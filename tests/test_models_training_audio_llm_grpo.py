"""Pair GRPO on the audio LLMs at tiny size: each class goes through it, and one learns to act on what it hears."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from gate import grammar
from gate.catalogue import ToolFacts
from models.audio_llm.contract import ActionContract, Told
from models.audio_llm.native import NativeChat
from models.training.policy.audio_llm_inputs import RowReader
from models.training.policy.audio_llm_lora import LoraSettings
from models.training.policy.checkpoints import Checkpoints
from models.training.policy.grpo import GrpoSettings
from models.training.policy.grpo import train as train_grpo
from models.training.policy.rows import Row, RowSegment
from tests.tiny_audio_llms import FAMILIES, Tiny, one_thread
from tests.tiny_learner import TOOLS

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
from models.training.policy.audio_llm_learner import AudioLlmLearner  # noqa: E402

CALL = '<|TOOL|>{"name": "make_call", "params": {"contact": "Ben"}}</|TOOL|>'
NAMES = [tool.name for tool in TOOLS]
SIDES = [
    Row("plus", "train", "command", CALL, RowSegment("Call Ben."), pair="p", audio="low.wav"),
    Row("minus", "train", "command", grammar.MUTE, RowSegment("Call Ben."), pair="p", audio="high.wav"),
]
"""The same words from two voices: only who hears can tell them apart."""
UNDECIDED = [(row, action) for row in SIDES for action in (CALL, grammar.MUTE)]
HEARING = [(replace(row, question="Who?"), name) for row, name in zip(SIDES, ("Ann.", "Eve."), strict=True)]


class Brief(ActionContract):
    """The contract with an instruction of one word: a network this small hears little over a long one."""

    def instruction(self, tools: Sequence[ToolFacts]) -> str:
        return "Act."


@pytest.fixture(scope="module", autouse=True)
def torch_alone() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two voices."""
    path = tmp_path_factory.mktemp("rows")
    t = np.arange(32_000) / 16_000
    for name, hz in (("low", 220), ("high", 880)):
        soundfile.write(path / f"{name}.wav", 0.3 * np.sin(2 * np.pi * hz * t), 16_000, subtype="FLOAT")
    return path


def grown(tiny: Tiny, folder: Path, lessons: Sequence[tuple[Row, str]], steps: int) -> Callable[[], NativeChat]:
    """Train all of a network on lessons, as a base model was: a random one writes no action that could be rewarded.

    Returns:
        Makes the class on that network.
    """
    chat = tiny.chat(1)
    reader = RowReader(chat, Brief(Told.NOTHING), TOOLS, folder)
    optimiser = torch.optim.Adam([w for name, w in chat._network.named_parameters() if "vis" not in name], lr=3e-3)
    targets = [spelt(chat, text) for _, text in lessons]
    batch = reader.batch([reader.example(row) for row, _ in lessons], targets, chat._ends[0])
    rows = torch.arange(len(lessons))[:, None]
    for _ in range(steps):
        optimiser.zero_grad()
        logits = chat._network(**batch.inputs, use_cache=False).logits[rows, batch.places]
        found = torch.log_softmax(logits, dim=-1).gather(2, batch.wanted[:, :, None])[:, :, 0]
        loss = -found[batch.mask].mean()
        loss.backward()
        optimiser.step()
    state = {name: value.detach().clone() for name, value in chat._network.state_dict().items()}

    def made() -> NativeChat:
        again = tiny.chat(1)
        again._network.load_state_dict(state)
        return again

    return made


def spelt(chat: NativeChat, text: str) -> tuple[int, ...]:
    """An action's tokens as a learner spells them: a call's marks by themselves."""
    pieces = [piece for piece in re.split(r"(<\|TOOL\|>|</\|TOOL\|>)", text) if piece]
    ids = [chat._tokenizer(piece, add_special_tokens=False)["input_ids"] for piece in pieces]
    return (*(token for piece in ids for token in piece), chat._ends[0])


def learner_on(chat: NativeChat, folder: Path) -> AudioLlmLearner:
    torch.manual_seed(1)
    settings = LoraSettings(rank=16, alpha=32, dropout=0.0, gradient_checkpointing=False)
    return AudioLlmLearner(chat, Brief(Told.NOTHING), TOOLS, folder, settings)


def chances(learner: AudioLlmLearner, text: str) -> list[float]:
    """How likely each side begins with a text."""
    examples = [learner.example(row) for row in SIDES]
    with torch.no_grad():
        found, _ = learner.logprobs(examples, [learner.target(text)[:-1]] * 2)
    return [math.exp(value) for value in found.sum(dim=1).tolist()]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_each_class_goes_through_pair_grpo_and_serves_what_came_out(family: str, folder: Path, tmp_path: Path) -> None:
    base = grown(FAMILIES[family](), folder, UNDECIDED, 60)
    learner = learner_on(base(), folder)
    before = chances(learner, CALL)
    examples = [learner.example(row) for row in SIDES]
    settings = GrpoSettings(completions=8, groups=2, updates=3, learning_rate=1e-3, max_tokens=40, evaluate_updates=100)
    train_grpo(learner, examples, examples, NAMES, settings, Checkpoints(tmp_path), {})
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert sum(entry["groups"] for entry in log) > 0
    assert all(math.isfinite(entry["loss"]) for entry in log)
    assert any("reward: command, mute" in entry for entry in log)
    assert chances(learner, CALL) != before
    [saved] = tmp_path.glob("checkpoint-*")
    again = learner_on(base(), folder)
    again.restore(saved)
    assert chances(again, CALL) == chances(learner, CALL)
    texts = [one.sample(examples[:1], 1, temperature=0.0, max_tokens=8, seed=1)[0][0].text for one in (learner, again)]
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_pair_grpo_teaches_to_act_on_a_voice_that_the_base_hears_and_ignores(folder: Path, tmp_path: Path) -> None:
    """Asked, the base tells the two apart; told to act, it calls for either alike."""
    base = grown(FAMILIES["qwen3-omni"](), folder, [*UNDECIDED, *HEARING], 200)
    learner = learner_on(base(), folder)
    examples = [learner.example(row) for row in SIDES]
    start = chances(learner, grammar.TOOL_OPEN)
    assert all(0.4 < chance < 0.6 for chance in start)
    settings = GrpoSettings(
        completions=16, groups=1, updates=100, learning_rate=2e-3, kl=0.02, max_tokens=30, evaluate_updates=10**6,
        checkpoint_updates=10**6,
    )  # fmt: skip
    train_grpo(learner, examples, examples[:1], NAMES, settings, Checkpoints(tmp_path), {})
    plus, minus = chances(learner, grammar.TOOL_OPEN)
    print(f"calls for one voice {plus:.3f}, for the other {minus:.3f}; before {start[0]:.3f}, {start[1]:.3f}")
    assert plus > 0.7
    assert minus < 0.2
    with learner.reference():
        assert chances(learner, grammar.TOOL_OPEN) == pytest.approx(start, abs=1e-3)
