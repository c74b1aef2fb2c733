"""Switch or set a device at home."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import model_validator

from gate.catalogue import Risk
from tools.arguments import ThingName
from tools.spec import Ask, ToolSpec, param_missing, param_refused

Action = Literal["turn_on", "turn_off", "open", "close", "increase", "decrease", "set", "lock"]

_ENTRANCE_RE = re.compile(r"(?:doors?|doorway|gates?|locks?|deadbolts?|latch|bolt|garage|entrance|safe|vault)")
_ALARM_RE = re.compile(
    r"\b(?:(?:burglar|security|intruder|house|home|smoke|fire)\s+alarms?|(?:alarm|security)\s+system)\b"
)
_PLACE_RE = re.compile(r"\s+(?:on|of|in|at|to|for|by|near|outside|inside|from|over|above|under)\s+")


def _guards_the_house(device: str) -> bool:
    """Whether the thing named, in English, is an entrance, a lock or an alarm.

    Its head word decides: "garage light" is a light, "lock on the front door" is a lock.
    """
    text = device.casefold()
    head = re.sub(r"[\s0-9.]+$", "", _PLACE_RE.split(text, maxsplit=1)[0]).rsplit(" ", 1)[-1]
    return _ENTRANCE_RE.fullmatch(head) is not None or _ALARM_RE.search(text) is not None


class ControlDevice(ToolSpec, name="control_device", description="Switch or set a device at home.", risk=Risk.LOW):
    """One device; the opposite command undoes it. What is not undone so, an open door, is refused here."""

    device: Annotated[ThingName, Ask("Which device?", "the device or room light")]
    action: Annotated[Action, Ask("What should I do with it?", "what to do")]
    value: Annotated[ThingName | None, Ask("What should I set it to?", "the level, colour or mode, as said")] = None

    @model_validator(mode="after")
    def _fits_together(self) -> ControlDevice:
        if self.action == "set" and self.value is None:
            raise param_missing("value", "setting a device needs a value")
        if self.action in ("turn_off", "lock") and self.value is not None:
            # "Turn it off in ten minutes" must not turn it off now.
            raise param_refused("value", f"{self.action} takes no value")
        if self.action not in ("close", "lock") and _guards_the_house(self.device):
            # A harmless tool must not be a way round the evidence that unlock_door asks for.
            raise param_refused("device", "doors, locks and alarms can only be closed or locked by this tool")
        return self

    def summary(self) -> str:
        match self.action:
            case "increase" | "decrease":
                return f"{self.action.capitalize()} {self.device}" + (f" by {self.value}" if self.value else "")
            case "set":
                return f"Set {self.device} to {self.value}"
            case _:
                words = f"{self.action.replace('_', ' ').capitalize()} {self.device}"
                return f"{words}, {self.value}" if self.value else words
