"""Supervised fine-tuning: the loss stands on the action's tokens alone (VGBench, section 5.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch

from models.training.policy.batches import updates as drawn_updates
from models.training.policy.checkpoints import Checkpoints
from models.training.policy.evaluate import measure
from models.training.policy.learner import Example, Learner
from models.training.policy.processes import ALONE, Processes, share
from models.training.progress import steps


@dataclass(frozen=True, slots=True)
class SftSettings:
    """How it is trained; the defaults are VGBench's where it states them.

    Attributes:
        epochs: passes over the rows.
        learning_rate: the highest; it rises over ``warm_up`` of the updates and falls along a cosine to a tenth.
        batch: rows that go through the network at once.
        effective_batch: rows that an update rests on.
        first_token_weight: how much an action's first token counts. It decides between mute, call, answer and repair,
            and is one of a dozen: with 1, as in the paper, a small model learns the wording long before the decision.
        warm_up: share of the updates.
        weight_decay: AdamW's.
        clip: largest norm of the gradient.
        seed: of order and dropout.
        checkpoint_updates: updates between checkpoints.
        evaluate_updates: updates between measurements on dev rows.
    """

    epochs: int = 3
    learning_rate: float = 1e-4
    batch: int = 16
    effective_batch: int = 32
    first_token_weight: float = 1.0
    warm_up: float = 0.05
    weight_decay: float = 0.0
    clip: float = 1.0
    seed: int = 1
    checkpoint_updates: int = 50
    evaluate_updates: int = 150


def train(
    learner: Learner,
    train_rows: Sequence[Example],
    dev_rows: Sequence[Example],
    tools: Sequence[str],
    settings: SftSettings,
    checkpoints: Checkpoints,
    facts: dict[str, str],
    processes: Processes = ALONE,
) -> dict[str, float]:
    """Train, or go on with training, to the end.

    Args:
        learner: the policy.
        train_rows: what it learns from.
        dev_rows: what it is measured on.
        tools: names of the tools.
        settings: how.
        checkpoints: where the run is kept.
        facts: what else determines the run (hash of the rows), for the record.
        processes: over which the batches of an update are shared; their number does not change what is learnt.

    Returns:
        The last measurement.

    Raises:
        OtherRunError: when the folder holds another run.
        ValueError: when an update has fewer batches than there are processes.
        FloatingPointError: when the loss is not finite; the last checkpoint stands.
    """
    checkpoints.begin({"stage": "sft", "base": learner.name, **asdict(settings), **facts})
    accumulated = max(1, settings.effective_batch // settings.batch)
    if accumulated < processes.count:
        raise ValueError(f"{accumulated} batches an update for {processes.count} processes: make batches smaller")
    updates = [
        (epoch, update)
        for epoch in range(settings.epochs)
        for update in drawn_updates(train_rows, accumulated * settings.batch, settings.batch, settings.seed, epoch)
    ]
    parameters = learner.trainable()
    optimiser = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)
    processes.align(parameters)
    done = checkpoints.restore(learner, optimiser)
    measured: dict[str, float] = {}
    numbers = range(done, len(updates))
    for number in numbers if processes.rank else steps(numbers, "updates", len(numbers)):
        epoch, update = updates[number]
        torch.manual_seed(hash((settings.seed, number)) % 2**31 + processes.rank)
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * rate(number, len(updates), settings.warm_up)
        loss, first = _update(learner, train_rows, update, optimiser, parameters, settings, processes)
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} at update {number}; lower the learning rate and go on")
        last = number + 1 == len(updates)
        entry: dict[str, float] = {"update": number + 1, "epoch": epoch + 1}
        entry |= {"train_loss": loss, "first_token_loss": first}
        if last or (number + 1) % settings.evaluate_updates == 0:
            learner.train(False)
            measured = measure(learner, dev_rows, tools, processes, settings.batch)
            entry |= {f"dev {name}": value for name, value in measured.items()}
            if not processes.rank:
                print(", ".join(f"{name} {value:.3f}" for name, value in entry.items()), flush=True)
        checkpoints.log(entry)
        if last or (number + 1) % settings.checkpoint_updates == 0:
            checkpoints.save(learner, optimiser, number + 1)
    learner.train(False)
    # The last update was measured in the loop, unless the run had already ended.
    return measured or measure(learner, dev_rows, tools, processes, settings.batch)


def rate(number: int, updates: int, warm_up: float) -> float:
    """The learning rate of an update as a share of the highest."""
    rising = max(1, round(updates * warm_up))
    if number < rising:
        return (number + 1) / rising
    along = (number - rising) / max(1, updates - rising)
    return 0.1 + 0.45 * (1.0 + math.cos(math.pi * along))


def _update(
    learner: Learner,
    rows: Sequence[Example],
    update: Sequence[Sequence[int]],
    optimiser: torch.optim.Optimizer,
    parameters: Sequence[torch.nn.Parameter],
    settings: SftSettings,
    processes: Processes,
) -> tuple[float, float]:
    """One step of the optimiser. Returns the mean loss, and that of the first tokens."""
    learner.train(True)
    optimiser.zero_grad(set_to_none=True)
    targets = [[learner.target(rows[index].row.target) for index in batch] for batch in update]
    # A token counts alike whichever batch of the update it stands in, and in whichever process.
    actions = sum(len(batch) for batch in update)
    more = settings.first_token_weight - 1.0
    weight = sum(len(target) for batch in targets for target in batch) + more * actions
    total = firsts = 0.0
    with learner.update():
        for batch, wanted in share(list(zip(update, targets, strict=True)), processes):
            scores, mask = learner.logprobs([rows[index] for index in batch], wanted)
            first = scores.gather(1, mask.int().argmax(dim=1, keepdim=True)).sum()
            loss = -(scores.sum() + more * first) / weight
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
            firsts -= float(first.detach()) / actions
    processes.add_gradients(parameters)
    torch.nn.utils.clip_grad_norm_(list(parameters), settings.clip)
    optimiser.step()
    return sum(processes.gather([total])), sum(processes.gather([firsts]))
