"""The corpora that can be built, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from bench.build import cues, vgbench
from bench.build.plans import Plan
from bench.build.scripts import Scripts

CORPORA: Final[Mapping[str, Callable[[Scripts], Iterator[Plan]]]] = {"vgbench": vgbench.plans, **cues.STUDIES}
"""Plans by corpus. ``ear`` is built by ``bench.build.ear``: its recordings are masked after they are rendered;
the small set that comes with the project by ``bench.build.smoke``."""


def of_split(make: Callable[[Scripts], Iterator[Plan]], split: str | None) -> Callable[[Scripts], Iterator[Plan]]:
    """The same corpus, one split of it; all of it when ``split`` is None."""
    return make if split is None else partial(_only, make, split)


def _only(make: Callable[[Scripts], Iterator[Plan]], split: str, scripts: Scripts) -> Iterator[Plan]:
    return (plan for plan in make(scripts) if plan.split == split)
