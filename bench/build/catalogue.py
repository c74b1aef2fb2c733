"""The corpora that can be built, by name, and the small one that comes with the project."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from bench.build import cues, vgbench
from bench.build.plans import Plan
from bench.build.scripts import Scripts

CORPORA: Final[Mapping[str, Callable[[Scripts], Iterator[Plan]]]] = {"vgbench": vgbench.plans, **cues.STUDIES}
"""Plans by corpus. ``ear`` is built by ``bench.build.ear``: its recordings are masked after they are rendered."""

_SMOKE_SWITCH: Final = 4
_SMOKE_SELF: Final = 5
_SMOKE_DIRECT: Final = 4


def smoke(scripts: Scripts) -> Iterator[Plan]:
    """A few trials of every family and condition: dev items, and one held-out command for the cue conditions."""
    dev = [plan for plan in vgbench.plans(scripts) if plan.split == "dev"]
    switches = [plan for plan in dev if plan.family == "speaker_switch"]
    by_tool: dict[str | None, list[Plan]] = {}
    for plan in switches:
        by_tool.setdefault(plan.target_tool, []).append(plan)
    for tool in list(by_tool)[:_SMOKE_SWITCH]:
        yield from by_tool[tool][:3]  # the three conditions of one command
    sides = {tuple(map(str, _configuration(plan))): plan for plan in reversed(dev) if plan.family == "side_talk"}
    yield from sides.values()
    yield from _spread([plan for plan in dev if plan.family == "self_talk"], _SMOKE_SELF)
    for condition in ("command", "question"):
        chosen = [plan for plan in dev if plan.family == "direct" and plan.condition == condition]
        yield from _spread(chosen, _SMOKE_DIRECT // 2)
    yield from list(cues.eight(scripts))[: len(cues.EIGHT)]
    yield from (plan for plan in list(cues.six(scripts))[: len(cues.SIX)] if plan.condition == "same/far/600")
    yield from (plan for plan in list(cues.gaps(scripts))[:10] if plan.condition.endswith(("/100", "/300", "/1000")))


def _configuration(plan: Plan) -> tuple[object, ...]:
    return plan.condition, plan.more["assistant_content"], plan.more["bystander_content"]


def _spread(plans: Sequence[Plan], count: int) -> Sequence[Plan]:
    """That many, evenly over the list."""
    step = max(1, len(plans) // count)
    return plans[::step][:count]


def of_split(make: Callable[[Scripts], Iterator[Plan]], split: str | None) -> Callable[[Scripts], Iterator[Plan]]:
    """The same corpus, one split of it; all of it when ``split`` is None."""
    return make if split is None else partial(_only, make, split)


def _only(make: Callable[[Scripts], Iterator[Plan]], split: str, scripts: Scripts) -> Iterator[Plan]:
    return (plan for plan in make(scripts) if plan.split == split)
