"""Whether a policy can start on this machine: what is pulled, cached, set and installed. Nothing is loaded or asked.

What only a load or a request could tell is said to be unknown: whether weights fit the memory, whether a server
answers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

from packaging.version import Version

from models.audio_llm.conversation import BackendError
from models.audio_llm.endpoint_key import key_from
from models.audio_llm.loading import MIN_TRANSFORMERS, NativeOptions, find_folder
from models.policy_needs import PolicyNeeds
from models.store import State
from models.store_errors import ModelError


class Shelf(Protocol):
    """What is asked of the model store."""

    def state(self, name: str) -> State:
        """Where a model stands."""
        ...


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a policy can start here.

    Attributes:
        ready: True; False when something is known to be missing; None when what was looked at is there and the rest
            cannot be known without loading or asking.
        text: what was found, with the cure where something is missing.
    """

    ready: bool | None
    text: str


def key_states(needs: PolicyNeeds, environ: Mapping[str, str]) -> dict[str, bool]:
    """Which variables that may hold its key are set. Their values go nowhere."""
    return {name: bool(environ.get(name, "").strip()) for name in needs.keys}


def readiness(name: str, needs: PolicyNeeds, store: Shelf, environ: Mapping[str, str]) -> Readiness:
    """Look at what a policy needs, without options.

    Args:
        name: the policy's.
        needs: its row.
        store: where models are.
        environ: where keys are.
    """
    missing = (
        _models_missing(needs, store)
        or _checkpoint_missing(name, needs)
        or _key_missing(needs, environ)
        or _python_missing(needs, environ)
    )
    if missing:
        return Readiness(False, missing)
    if needs.required:
        named = ",".join(f"{option}=…" for option in needs.required)
        return Readiness(None, f"to be named: {name}:{named}; the server is not asked here")
    if needs.models:
        return Readiness(True, "its models are here")
    if needs.checkpoint:
        return Readiness(None, f"{needs.checkpoint} is here; whether it fits the memory shows when it loads")
    if needs.python:
        return Readiness(None, f"{needs.python} is set; what is installed there shows when it starts")
    if needs.needs_key:
        return Readiness(True, "a key is set; the server is not asked here")
    return Readiness(None, f"whether a server answers at {needs.server} is not asked here")


def _models_missing(needs: PolicyNeeds, store: Shelf) -> str:
    states: dict[str, State] = {}
    for model in needs.models:
        try:
            states[model] = store.state(model)
        except ModelError as error:
            return str(error)
    absent = [model for model, state in states.items() if state in (State.MISSING, State.STALE)]
    return f"run `voicegate models pull {' '.join(absent)}`" if absent else ""


def _checkpoint_missing(name: str, needs: PolicyNeeds) -> str:
    if not needs.checkpoint:
        return ""
    try:
        installed = version("transformers")
    except PackageNotFoundError:
        installed = "0"
    if Version(installed) < Version(MIN_TRANSFORMERS):
        return f'run pip install "transformers>={MIN_TRANSFORMERS}"'
    try:
        find_folder(name, NativeOptions(needs.checkpoint))
    except ModelError as error:
        return f"{error.message}. {error.cure}"
    return ""


def _key_missing(needs: PolicyNeeds, environ: Mapping[str, str]) -> str:
    try:
        key = key_from(environ, *needs.keys)
    except BackendError as error:
        return error.detail
    return f"set {' or '.join(needs.keys)}" if needs.needs_key and key is None else ""


def _python_missing(needs: PolicyNeeds, environ: Mapping[str, str]) -> str:
    if not needs.python:
        return ""
    python = environ.get(needs.python, "").strip()
    if not python:
        return f"set {needs.python} to the Python of its environment"
    if not (Path(python).is_file() and os.access(python, os.X_OK)):
        return f"{needs.python} names no program: {python}"
    return ""
