"""What a policy must be able to do to be trained: score texts, write texts, keep and leave its adapter.

SFT and pair GRPO know nothing else of a model, so the embedded model and the large audio LLMs are trained by the same
loops, by configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from models.training.policy.rows import Row

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Example:
    """A row as a learner reads it.

    Attributes:
        row: the row.
        prompt: whatever the learner makes of its turn.
        cost: about how many tokens it takes, its action included, for batches of even length.
    """

    row: Row
    prompt: Any
    cost: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """A completion that was drawn.

    Attributes:
        tokens: its tokens, with the end mark where it was reached.
        text: the action as written, without it.
        ended: whether it ended by itself.
    """

    tokens: tuple[int, ...]
    text: str
    ended: bool


class Learner(Protocol):
    """A policy in training. Only its adapter learns; what is frozen stays as it came."""

    @property
    def name(self) -> str:
        """The base model, for the record."""
        ...

    def example(self, row: Row) -> Example:
        """Read a row."""
        ...

    def target(self, text: str) -> tuple[int, ...]:
        """The tokens of an action, with the end mark."""
        ...

    def logprobs(
        self, examples: Sequence[Example], targets: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability of each target token given its prompt and the tokens before it.

        Returns:
            float ``(batch, longest target)`` and a boolean mask of the same shape, true at real tokens. Differentiable
            where gradients are on.
        """
        ...

    def update(self) -> AbstractContextManager[None]:
        """All batches of one update go within it: what they share is read once, and learns when it ends."""
        ...

    def sample(
        self, examples: Sequence[Example], count: int, *, temperature: float, max_tokens: int, seed: int
    ) -> list[list[Sampled]]:
        """Draw ``count`` completions for each example; temperature 0 takes the likeliest token each time."""
        ...

    def reference(self) -> AbstractContextManager[None]:
        """Within it the model is what it was before training: the adapter is out of the way."""
        ...

    def trainable(self) -> list[torch.nn.Parameter]:
        """What learns."""
        ...

    def train(self, on: bool) -> None:
        """Switch dropout on or off."""
        ...

    def save(self, folder: Path) -> None:
        """Write the adapter as safetensors, and what it belongs to."""
        ...

    def restore(self, folder: Path) -> None:
        """Read an adapter that ``save`` wrote.

        Raises:
            ValueError: when it belongs to another model.
        """
        ...
