"""What a policy in training would do with rows that it does not learn from: which kind of action, which tool.

Scored, not generated: each kind of action by how likely its beginning is, as the live loop does it
(``models.constrained``), and each tool by its name. What is written after that is measured where it counts, in the
benchmark.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from gate import grammar
from gate.actions import ActionKind, AnswerAction, MuteAction, PardonAction, ToolAction
from models.training.policy.learner import Example, Learner
from models.training.policy.processes import Processes, share

_FORMS = {
    ActionKind.MUTE: grammar.MUTE,
    ActionKind.TOOL: grammar.TOOL_OPEN,
    ActionKind.PARDON: grammar.PARDON,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the policy would do with a row.

    Attributes:
        kind: of the row.
        wanted: the right kind of action.
        chosen: the likeliest one.
        tool_right: whether the right tool is the likeliest, given a call; None where no call is right.
        target_logprob: log-probability of the whole target.
    """

    kind: str
    wanted: ActionKind
    chosen: ActionKind
    tool_right: bool | None
    target_logprob: float


def action_kind(text: str) -> ActionKind:
    """The kind of a well-formed action.

    Raises:
        ValueError: when it is none.
    """
    match grammar.parse(text):
        case MuteAction():
            return ActionKind.MUTE
        case ToolAction():
            return ActionKind.TOOL
        case PardonAction():
            return ActionKind.PARDON
        case AnswerAction():
            return ActionKind.ANSWER
    raise ValueError(f"not an action: {text!r}")


def outcomes(learner: Learner, examples: Sequence[Example], tools: Sequence[str], size: int = 16) -> Iterator[Outcome]:
    """What the policy would do with each row.

    Args:
        learner: the policy.
        examples: the rows.
        tools: names of the tools that it may call.
        size: rows a batch.
    """
    ordered = sorted(examples, key=lambda example: example.cost)
    for first in range(0, len(ordered), size):
        batch = ordered[first : first + size]
        with torch.no_grad():
            forms = {kind: _whole(learner, batch, [text] * len(batch)) for kind, text in _FORMS.items()}
            targets = [learner.target(example.row.target) for example in batch]
            wholes = learner.logprobs(batch, targets)[0].sum(dim=1).tolist()
        for index, example in enumerate(batch):
            scores = {kind: found[index] for kind, found in forms.items()}
            rest = 1.0 - sum(math.exp(score) for score in scores.values())
            scores[ActionKind.ANSWER] = math.log(max(rest, 1e-12))
            wanted = action_kind(example.row.target)
            right = None
            if wanted is ActionKind.TOOL:
                right = _likeliest_tool(learner, example, tools) == _tool_of(example.row.target)
            chosen = max(scores, key=lambda kind: scores[kind])
            yield Outcome(example.row.kind, wanted, chosen, right, wholes[index])


def summary(found: Sequence[Outcome]) -> dict[str, float]:
    """Shares of rows whose kind of action is right, overall and by kind of row, and of right tools among the calls."""
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for outcome in found:
        by_kind[outcome.kind].append(outcome.chosen is outcome.wanted)
    tools = [outcome.tool_right for outcome in found if outcome.tool_right is not None]
    out = {f"right: {kind}": sum(right) / len(right) for kind, right in sorted(by_kind.items())}
    out["right"] = sum(outcome.chosen is outcome.wanted for outcome in found) / max(1, len(found))
    out["tool"] = sum(tools) / max(1, len(tools))
    out["loss"] = -sum(outcome.target_logprob for outcome in found) / max(1, len(found))
    return out


def measure(
    learner: Learner, examples: Sequence[Example], tools: Sequence[str], processes: Processes, size: int = 16
) -> dict[str, float]:
    """The summary over all processes, each of which takes its share of the rows. Arguments as ``outcomes``."""
    return summary(processes.gather(list(outcomes(learner, share(examples, processes), tools, size))))


def _whole(learner: Learner, batch: Sequence[Example], texts: Sequence[str]) -> list[float]:
    """Log-probability of beginning with these texts."""
    scores, _ = learner.logprobs(batch, [learner.target(text)[:-1] for text in texts])
    return [float(value) for value in scores.sum(dim=1)]


def _likeliest_tool(learner: Learner, example: Example, tools: Sequence[str]) -> str:
    with torch.no_grad():
        texts = [f'{grammar.TOOL_OPEN}{{"name": "{name}", ' for name in tools]
        scores = _whole(learner, [example] * len(texts), texts)
    return tools[max(range(len(tools)), key=lambda index: scores[index])]


def _tool_of(target: str) -> str | None:
    action = grammar.parse(target)
    return action.call.name if isinstance(action, ToolAction) else None
