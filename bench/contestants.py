"""Who can be measured: the product's own policies by their names, the baselines, and whatever a module brings.

A contestant is what a trial's session is made with. All of them go through the same loop, on the same clock, into the
same log. ``--policy NAME`` takes

* a policy of ``models.components``: the gate as it is, with that policy;
* a baseline of ``CONTESTANTS``; where it stands on a policy of the product that is the settings' one, or the one named
  after a colon (``no-veto:smollm2``);
* ``package.module:function``, a function like those named here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Protocol

from agent.assemble import Parts, load_catalogue, load_parts
from agent.settings import Settings
from bench.stream import HeardStream
from bench.trials import Trial
from models.components import POLICIES
from models.protocols import Policy
from models.store import Store
from tools.catalogue import ToolCatalogue

CONTESTANTS = {
    "always-mute": "bench.baselines.always_mute:load",
    "always-tool": "bench.baselines.always_tool:load",
    "asr-keyword": "bench.baselines.asr_keyword:load",
    "raw-lm": "bench.baselines.raw_lm:load",
    "hearing-alone": "bench.baselines.hearing_alone:load",
    "ungated": "bench.baselines.ungated:load",
    "no-veto": "bench.baselines.no_veto:load",
    "no-verdicts": "bench.baselines.no_verdicts:load",
    "oracle-words": "bench.baselines.oracle_words:load",
}
"""The baselines, one file each."""


class UnknownContestantError(Exception):
    """Nothing of that name can be measured. The message lists what can."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a contestant is loaded with.

    Attributes:
        settings: all settings; their policy is the one that a baseline stands on.
        store: where models are.
        catalogue: the tools.
    """

    settings: Settings
    store: Store
    catalogue: ToolCatalogue

    def parts(self, policy: Policy | None = None) -> Parts:
        """Ears and policy as the product loads them, or with another policy in its place."""
        return load_parts(self.settings, self.store, self.catalogue, policy)


def _same_parts(parts: Parts, trial: Trial, heard: HeardStream) -> Parts:
    return parts


@dataclass(frozen=True, slots=True)
class Contestant:
    """What is measured.

    Attributes:
        parts: ears and policy, loaded once and used for every trial.
        catalogue: the tools.
        as_proposed: there is no gate: what the policy proposes counts as done.
        parts_for: ears and policy of one trial, made from ``parts``, the trial and what its session has heard so far.
        around: surrounds each session.
    """

    parts: Parts
    catalogue: ToolCatalogue
    as_proposed: bool = False
    parts_for: Callable[[Parts, Trial, HeardStream], Parts] = _same_parts
    around: Callable[[], AbstractContextManager[Any]] = nullcontext


class Load(Protocol):
    """Loads a contestant."""

    def __call__(self, setup: Setup) -> Contestant:
        """Load it."""
        ...


def names() -> Sequence[str]:
    """Every name that ``--policy`` takes, without those that modules bring."""
    return [*POLICIES, *CONTESTANTS]


def load_contestant(name: str, setup: Setup) -> Contestant:
    """Load what is to be measured.

    Args:
        name: as given to ``--policy``.
        setup: settings, store and tools.

    Raises:
        UnknownContestantError: when there is nothing of that name.
        ModelError: when a model is missing or damaged; names the cure.
    """
    head, _, rest = name.partition(":")
    if rest and "." in head and head not in POLICIES:
        return _function(head, rest)(setup)
    if head in CONTESTANTS:
        if rest:
            setup = replace(setup, settings=with_policy(setup.settings, rest))
        module, function = CONTESTANTS[head].split(":")
        return _function(module, function)(setup)
    if head not in POLICIES:
        close = get_close_matches(head, names(), 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise UnknownContestantError(f"no policy {name!r}.{hint} There are: {', '.join(sorted(names()))}")
    setup = replace(setup, settings=with_policy(setup.settings, name))
    return Contestant(setup.parts(), setup.catalogue)


def make_setup(settings: Settings, store: Store) -> Setup:
    """What contestants are loaded with, from the settings."""
    return Setup(settings, store, load_catalogue(settings))


def with_policy(settings: Settings, policy: str) -> Settings:
    """The settings with another policy in them."""
    return settings.model_copy(update={"models": settings.models.model_copy(update={"policy": policy})})


def _function(module: str, name: str) -> Load:
    try:
        return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]  # what it does is its affair
    except (ImportError, AttributeError) as error:
        raise UnknownContestantError(f"no policy {module}:{name}: {error}") from error
