"""How a training loop shares its work over processes. Alone, which is the default, there is nothing to share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import torch

Item = TypeVar("Item")


class Processes(Protocol):
    """All processes go through the same loop, each on its share; the calls below are made by all or by none."""

    @property
    def rank(self) -> int:
        """Which one this is, from 0; number 0 alone writes."""
        ...

    @property
    def count(self) -> int:
        """How many there are."""
        ...

    def gather(self, items: Sequence[Item]) -> list[Item]:
        """Everybody's items, those of the first process first, the same list in each."""
        ...

    def align(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Give everybody the values that process 0 has."""
        ...

    def add_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Give everybody the sum of all gradients; a missing one counts as zero."""
        ...


@dataclass(frozen=True, slots=True)
class _Alone:
    rank: int = 0
    count: int = 1

    def gather(self, items: Sequence[Item]) -> list[Item]:
        return list(items)

    def align(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        pass

    def add_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        pass


ALONE: Processes = _Alone()
"""One process."""


def share(items: Sequence[Item], processes: Processes) -> Sequence[Item]:
    """This process's part: every so manieth item. Together the parts are all items, each once."""
    return items[processes.rank :: processes.count]
