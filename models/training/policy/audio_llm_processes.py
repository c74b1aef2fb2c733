"""Several processes under ``accelerate launch``, each with a whole copy of the network on a GPU of its own.

Only the adapters learn (some ten million numbers), so once an update their gradients are added up in one flat tensor.
Nothing wraps the network: processes may do different numbers of passes, and decode, between two updates.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import distributed

from models.training.policy.processes import ALONE, Item, Processes


def launched() -> Processes:
    """The processes of this launch, with their group made; ``ALONE`` without a launcher.

    Raises:
        ModuleNotFoundError: when accelerate is not installed.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return ALONE
    from accelerate import PartialState

    state = PartialState(cpu=not torch.cuda.is_available())
    return _Together(state.process_index, state.num_processes, state.device)


def own_gpu() -> str | None:
    """The GPU of this process, or None where there is no launcher or no GPU."""
    local = os.environ.get("LOCAL_RANK")
    return f"cuda:{local}" if local is not None and torch.cuda.is_available() else None


class _Together:
    def __init__(self, rank: int, count: int, device: torch.device) -> None:
        self._rank, self._count, self._device = rank, count, device

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def count(self) -> int:
        return self._count

    def gather(self, items: Sequence[Item]) -> list[Item]:
        found: list[list[Item]] = [[] for _ in range(self._count)]
        distributed.all_gather_object(found, list(items))
        return [item for part in found for item in part]

    def align(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        with torch.no_grad():
            flat = torch.cat([parameter.flatten() for parameter in parameters]).to(self._device)
            distributed.broadcast(flat, src=0)
            for parameter, value in zip(parameters, _split(flat, parameters), strict=True):
                parameter.copy_(value)

    def add_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        zero = [torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in parameters]
        flat = torch.cat([gradient.flatten() for gradient in zero]).to(self._device)
        distributed.all_reduce(flat)
        for parameter, value in zip(parameters, _split(flat, parameters), strict=True):
            parameter.grad = value.to(parameter)


def _split(flat: torch.Tensor, parameters: Sequence[torch.nn.Parameter]) -> list[torch.Tensor]:
    parts = torch.split(flat, [parameter.numel() for parameter in parameters])
    return [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]
