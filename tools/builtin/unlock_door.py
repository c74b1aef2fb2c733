"""Unlock a door."""

from __future__ import annotations

from typing import Annotated

from gate.catalogue import Risk
from tools.arguments import ThingName
from tools.spec import Ask, ToolSpec


class UnlockDoor(ToolSpec, name="unlock_door", description="Unlock a door.", risk=Risk.HIGH):
    """One door, left unlocked."""

    door: Annotated[ThingName, Ask("Which door should I unlock?", "the door to unlock")]

    def summary(self) -> str:
        return f"Unlock {self.door}"
