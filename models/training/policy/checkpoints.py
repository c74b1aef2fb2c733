"""A training run on disk: adapter, optimiser, where it stands and what it has measured, to go on with after any end.

The newest checkpoint becomes visible by one rename, so a kill at any instant leaves the one before it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from models.training.policy.learner import Learner

_STATE_FILE = "training.pt"
_LOG_FILE = "log.jsonl"
_CONFIG_FILE = "config.json"


class OtherRunError(ValueError):
    """The folder holds a run with another configuration. The message says what differs."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The folder of one run.

    Args:
        folder: made when it is not there.
        writes: False in all but one of several processes: they read the same folder, and write nothing.
    """

    folder: Path
    writes: bool = True

    def begin(self, config: Mapping[str, Any]) -> None:
        """Record the configuration, or hold it against the one that is there.

        Raises:
            OtherRunError: when they differ.
        """
        if not self.writes:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / _CONFIG_FILE
        if not path.is_file():
            path.write_text(json.dumps(config, indent=2, default=str) + "\n", encoding="utf-8")
            return
        before = json.loads(path.read_text(encoding="utf-8"))
        now = json.loads(json.dumps(config, default=str))
        different = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
        if different:
            what = ", ".join(f"{key}: {before.get(key)!r} there, {now.get(key)!r} now" for key in different)
            raise OtherRunError(f"{self.folder} holds another run ({what}); choose another folder")

    def save(self, learner: Learner, optimiser: torch.optim.Optimizer, done: int) -> None:
        """Write a checkpoint after ``done`` updates."""
        if not self.writes:
            return
        partial = self.folder / "checkpoint.part"
        shutil.rmtree(partial, ignore_errors=True)
        learner.save(partial)
        torch.save({"optimiser": optimiser.state_dict(), "done": done}, partial / _STATE_FILE)
        partial.rename(self.folder / f"checkpoint-{done:06}")
        for old in self._all()[:-1]:
            shutil.rmtree(old, ignore_errors=True)

    def restore(self, learner: Learner, optimiser: torch.optim.Optimizer) -> int:
        """Go back to the newest checkpoint; 0 when there is none.

        Returns:
            How many updates were done.
        """
        found = self._all()
        if not found:
            return 0
        learner.restore(found[-1])
        state = torch.load(found[-1] / _STATE_FILE, map_location="cpu", weights_only=True)
        optimiser.load_state_dict(state["optimiser"])
        return int(state["done"])

    def log(self, entry: Mapping[str, Any]) -> None:
        """Add a line to the run's log."""
        if not self.writes:
            return
        with (self.folder / _LOG_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("checkpoint-*"))
