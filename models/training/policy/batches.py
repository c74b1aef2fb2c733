"""Which rows an update rests on, in an order that a seed and an epoch determine, so that a run can be gone on with.

The rows of an update are drawn from all; only within it are rows of like length put together. Batches of like length
over a whole epoch would save more padding, and spoil what is learnt: length goes with the kind of action, so an update
would see little but mutes and the next little but calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.training.policy.learner import Example


def updates(examples: Sequence[Example], rows: int, size: int, seed: int, epoch: int) -> list[list[list[int]]]:
    """Indices of the rows of each batch of each update of one epoch.

    Args:
        examples: the rows.
        rows: rows an update; the last may have fewer.
        size: rows a batch.
        seed: of the run.
        epoch: which one, from 0.

    Returns:
        Updates in a drawn order, each as batches; each row once.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(examples))
    out: list[list[list[int]]] = []
    for first in range(0, len(order), rows):
        drawn = sorted(order[first : first + rows].tolist(), key=lambda index: examples[index].cost)
        out.append([drawn[start : start + size] for start in range(0, len(drawn), size)])
    return out
