"""Batches of rows of like length, in an order that a seed and an epoch determine, so that a run can be gone on with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.training.policy.learner import Example

_POOL_BATCHES = 50
"""Rows are sorted by length within pools of so many batches: even batches, and still another order each epoch."""


def batches(examples: Sequence[Example], size: int, seed: int, epoch: int) -> list[list[int]]:
    """Indices of the rows of each batch of one epoch.

    Args:
        examples: the rows.
        size: rows a batch; the last of a pool may be smaller.
        seed: of the run.
        epoch: which one, from 0.

    Returns:
        Batches in a drawn order; each row once.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(examples))
    out: list[list[int]] = []
    for first in range(0, len(order), size * _POOL_BATCHES):
        pool = sorted(order[first : first + size * _POOL_BATCHES].tolist(), key=lambda index: examples[index].cost)
        out += [pool[start : start + size] for start in range(0, len(pool), size)]
    return [out[index] for index in random.permutation(len(out))]
