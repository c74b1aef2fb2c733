"""Where replicas of a policy go on a Ray cluster: what each takes of a node, and how many of them fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_ROUNDING = 1e-9
"""Ray counts resources in ten-thousandths; a third of a GPU three times is one."""


class PlacementError(ValueError):
    """No replica can be placed like that. The message says why."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What one replica takes of the node that it runs on.

    Attributes:
        cpus: processors, which are the threads of its libraries too.
        gpus: GPUs; below 1, so many replicas share one. Ray shows a replica its own GPUs only, and none where this is
            0, so ``device=auto`` is right everywhere.
        resources: other resources of the cluster by name, as its nodes were started with (``ray start --resources``).

    Raises:
        PlacementError: when Ray knows no such amount.
    """

    cpus: float = 1.0
    gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, amount in self.needs().items():
            if not (math.isfinite(amount) and amount > 0):
                raise PlacementError(f"{name}: {amount:g} is no amount")
        if self.gpus < 0 or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise PlacementError(f"GPU: {self.gpus:g} is neither a part of one nor a whole number")

    def needs(self) -> dict[str, float]:
        """The amounts by Ray's names."""
        gpus = {"GPU": self.gpus} if self.gpus else {}
        return {"CPU": self.cpus, **gpus, **self.resources}

    def options(self) -> dict[str, Any]:
        """For ``ray.remote``. Replicas spread over nodes, so that losing one costs as few as can be."""
        return {
            "num_cpus": self.cpus, "num_gpus": self.gpus, "resources": dict(self.resources),
            "scheduling_strategy": "SPREAD",
        }  # fmt: skip

    def fits(self, nodes: Iterable[Mapping[str, float]]) -> int:
        """How many replicas have room on nodes with these resources, each whole on one node."""
        return sum(
            min(int(node.get(name, 0.0) / amount + _ROUNDING) for name, amount in self.needs().items())
            for node in nodes
        )  # fmt: skip

    def __str__(self) -> str:
        return ", ".join(f"{amount:g} {name}" for name, amount in self.needs().items())


def parse_resource(text: str) -> tuple[str, float]:
    """``NAME=AMOUNT`` as it stands behind ``--resource``.

    Raises:
        PlacementError: when it is none.
    """
    name, equals, amount = text.partition("=")
    try:
        if name and equals and name not in ("CPU", "GPU"):
            return name, float(amount)
    except ValueError:
        pass
    raise PlacementError(f"{text!r} is no NAME=AMOUNT (CPU and GPU have flags of their own)")
