"""Pair GRPO (VGBench, section 5.2, equation 1) and its control without pairs.

For a pair of one command under two sources, half of the K completions are drawn from each side and their rewards are
normalised together: what earns more than the mean of both is what tells the sides apart. Without pairs each side is a
group of its own, with the same completions, rewards and updates: the difference between the two is pairing alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from gate import grammar
from gate.actions import ActionKind, AnswerAction, MuteAction, PardonAction, ToolAction, Unparseable
from models.training.policy.checkpoints import Checkpoints
from models.training.policy.evaluate import action_kind, measure
from models.training.policy.learner import Example, Learner, Sampled
from models.training.policy.processes import ALONE, Processes, share
from models.training.progress import steps


@dataclass(frozen=True, slots=True)
class GrpoSettings:
    """How it is trained. The paper states K's halves, the rewards and that groups without variance are dropped; the
    rest is this project's.

    Attributes:
        paired: whether both sides of a pair form one group; False is the control.
        completions: K, drawn for each group of two prompts.
        groups: groups that an update rests on.
        updates: how many.
        learning_rate: AdamW's.
        temperature: of the draws.
        max_tokens: longest completion.
        clip_ratio: how far a token's probability may move an update's weight (PPO).
        kl: weight of the divergence from the policy before this stage; above 0, or a policy drifts where no reward
            holds it.
        other_share: share of groups made of rows that stand alone (answers, self-talk, …), so that they are kept.
        clip: largest norm of the gradient.
        seed: of draws and order.
        checkpoint_updates, evaluate_updates: updates between them.
    """

    paired: bool = True
    completions: int = 16
    groups: int = 4
    updates: int = 150
    learning_rate: float = 2e-5
    temperature: float = 1.0
    max_tokens: int = 48
    clip_ratio: float = 0.2
    kl: float = 0.02
    other_share: float = 0.5
    clip: float = 1.0
    seed: int = 1
    checkpoint_updates: int = 10
    evaluate_updates: int = 50


@dataclass(frozen=True, slots=True)
class Rollout:
    """A completion with its reward and its advantage within its group."""

    example: Example
    sampled: Sampled
    reward: float
    advantage: float


def reward(text: str, target: str) -> float:
    """The paper's rule-based reward of a completion.

    A correct mute or the matching tool earns 1, another action -1; malformed tool syntax costs 0.2 more. Where an
    answer is right, natural language earns 0.5, a mute -1, nothing or a call alone -0.5. A repair, which the paper
    lacks, is rewarded as a mute is: 1 when it is right to ask, else -1.

    Args:
        text: what was written.
        target: the right action.
    """
    written = grammar.parse(text)
    wanted = grammar.parse(target)
    if isinstance(wanted, AnswerAction):
        if isinstance(written, AnswerAction):
            return 0.5
        return -1.0 if isinstance(written, MuteAction) else -0.5
    if isinstance(written, Unparseable):
        return -1.2 if grammar.TOOL_OPEN in text or grammar.TOOL_CLOSE in text else -1.0
    if isinstance(wanted, ToolAction):
        return 1.0 if isinstance(written, ToolAction) and written.call.name == wanted.call.name else -1.0
    if isinstance(wanted, MuteAction):
        return 1.0 if isinstance(written, MuteAction) else -1.0
    return 1.0 if isinstance(wanted, PardonAction) and isinstance(written, PardonAction) else -1.0


def advantages(rewards: Sequence[float]) -> list[float] | None:
    """Rewards less their mean, over their standard deviation; None when all are alike, which teaches nothing."""
    values = np.array(rewards, dtype=np.float64)
    spread = float(values.std())
    if spread < 1e-8:
        return None
    return [float(value) for value in (values - values.mean()) / (spread + 1e-6)]


def rollouts(learner: Learner, prompts: Sequence[Example], settings: GrpoSettings, seed: int) -> list[list[Rollout]]:
    """Draw the completions of one group of prompts.

    Args:
        learner: the policy.
        prompts: both sides of a pair, or a row that stands alone.
        settings: how many, and whether the sides form one group.
        seed: of the draws.

    Returns:
        The groups, without those in which every reward is alike.
    """
    each = settings.completions // len(prompts)
    drawn = learner.sample(prompts, each, temperature=settings.temperature, max_tokens=settings.max_tokens, seed=seed)
    sides = [
        [(example, sampled, reward(sampled.text, example.row.target)) for sampled in found]
        for example, found in zip(prompts, drawn, strict=True)
    ]
    groups = [[item for side in sides for item in side]] if settings.paired else sides
    out = []
    for group in groups:
        scaled = advantages([item[2] for item in group])
        if scaled is not None:
            out.append([Rollout(*item, advantage) for item, advantage in zip(group, scaled, strict=True)])
    return out


def loss(learner: Learner, group: Sequence[Rollout], settings: GrpoSettings) -> torch.Tensor:
    """The clipped objective of one group with the divergence from the policy before this stage, a mean over tokens.

    Completions are fresh, so the ratio is 1 at its value and carries the gradient; clipping bounds nothing then, and is
    written out for loops that reuse completions.
    """
    examples = [rollout.example for rollout in group]
    targets = [rollout.sampled.tokens for rollout in group]
    now, mask = learner.logprobs(examples, targets)
    with torch.no_grad(), learner.reference():
        before, _ = learner.logprobs(examples, targets)
    advantage = torch.tensor([[rollout.advantage] for rollout in group], device=now.device)
    ratio = torch.exp(now - now.detach())
    clipped = ratio.clamp(1.0 - settings.clip_ratio, 1.0 + settings.clip_ratio)
    gain = torch.minimum(ratio * advantage, clipped * advantage)
    # Schulman's k3: never negative, unbiased, of little variance.
    divergence = torch.exp(before - now) - (before - now) - 1.0
    every = (settings.kl * divergence - gain).masked_fill(~mask, 0.0)
    return every.sum() / mask.sum()


def pairs_of(rows: Sequence[Example]) -> list[tuple[Example, Example]]:
    """The rows that share a ``pair``, the one whose right action is a tool first."""
    by_pair: dict[str, dict[ActionKind, Example]] = defaultdict(dict)
    for example in rows:
        if example.row.pair is not None and not example.row.typed:
            by_pair[example.row.pair].setdefault(action_kind(example.row.target), example)
    return [
        (sides[ActionKind.TOOL], sides[ActionKind.MUTE])
        for sides in by_pair.values()
        if ActionKind.TOOL in sides and ActionKind.MUTE in sides
    ]


def train(
    learner: Learner,
    train_rows: Sequence[Example],
    dev_rows: Sequence[Example],
    tools: Sequence[str],
    settings: GrpoSettings,
    checkpoints: Checkpoints,
    facts: dict[str, str],
    processes: Processes = ALONE,
) -> dict[str, float]:
    """Train, or go on with training, to the end. Arguments and errors as ``sft.train``; processes share the groups.

    The learner comes as the stage before left it, and its ``reference`` is that stage.
    """
    checkpoints.begin({"stage": "grpo", "base": learner.name, **asdict(settings), **facts})
    pairs = pairs_of(train_rows)
    if not pairs:
        raise ValueError("no row has a counterpart under another source: nothing to learn from pairs")
    alone = [example for example in train_rows if example.row.pair is None]
    parameters = learner.trainable()
    optimiser = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=0.0)
    processes.align(parameters)
    done = checkpoints.restore(learner, optimiser)
    measured: dict[str, float] = {}
    numbers = range(done, settings.updates)
    for number in numbers if processes.rank else steps(numbers, "updates", len(numbers)):
        random = np.random.default_rng([settings.seed, number])
        learner.train(False)
        groups: list[list[Rollout]] = []
        for prompts, seed in share([_drawn(pairs, alone, settings, random) for _ in range(settings.groups)], processes):
            groups += rollouts(learner, prompts, settings, seed)
        optimiser.zero_grad(set_to_none=True)
        kept = sum(processes.gather([len(groups)]))
        part = 0.0
        for group in groups:
            found = loss(learner, group, settings) / kept
            found.backward()  # type: ignore[no-untyped-call]
            part += float(found.detach())
        total = sum(processes.gather([part]))
        if not math.isfinite(total):
            raise FloatingPointError(f"the loss is {total} at update {number}; lower the learning rate and go on")
        if kept:
            processes.add_gradients(parameters)
            torch.nn.utils.clip_grad_norm_(list(parameters), settings.clip)
            optimiser.step()
        last = number + 1 == settings.updates
        rewards = processes.gather([_named(rollout) for group in groups for rollout in group])
        entry: dict[str, float] = {"update": number + 1, "loss": total, "groups": kept, **_means(rewards)}
        if last or (number + 1) % settings.evaluate_updates == 0:
            measured = measure(learner, dev_rows, tools, processes)
            entry |= {f"dev {name}": value for name, value in measured.items()}
            if not processes.rank:
                print(", ".join(f"{name} {value:.3f}" for name, value in entry.items()), flush=True)
        checkpoints.log(entry)
        if last or (number + 1) % settings.checkpoint_updates == 0:
            checkpoints.save(learner, optimiser, number + 1)
    # The last update was measured in the loop, unless the run had already ended.
    return measured or measure(learner, dev_rows, tools, processes)


def _drawn(
    pairs: Sequence[tuple[Example, Example]],
    alone: Sequence[Example],
    settings: GrpoSettings,
    random: np.random.Generator,
) -> tuple[tuple[Example, ...], int]:
    """The prompts of one group, and the seed of its completions."""
    if alone and random.random() < settings.other_share:
        prompts: tuple[Example, ...] = (alone[int(random.integers(len(alone)))],)
    else:
        prompts = pairs[int(random.integers(len(pairs)))]
    return prompts, int(random.integers(2**31))


def _named(rollout: Rollout) -> tuple[str, float]:
    row = rollout.example.row
    return f"reward: {row.kind}, {action_kind(row.target)}", rollout.reward


def _means(rewards: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Mean reward by kind of row and side: an aggregate can hide a side that failed."""
    by_side: dict[str, list[float]] = defaultdict(list)
    for name, reward in rewards:
        by_side[name].append(reward)
    return {name: sum(values) / len(values) for name, values in sorted(by_side.items())}
