"""A tool whose effect can be counted from outside: one line in a file. Rehearsals load it as a user's tool."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

from gate.catalogue import Risk
from tools.arguments import ThingName
from tools.spec import Ask, ToolSpec


class SwitchLamp(ToolSpec, name="switch_lamp", description="Switch on a lamp.", risk=Risk.LOW):
    """Appends its idempotency key to the file that ``REHEARSAL_EFFECTS`` names; ``REHEARSAL_TOOL`` makes it hang."""

    lamp: Annotated[ThingName, Ask("Which lamp?", "the lamp")]

    async def perform(self, *, key: str) -> str:
        """Write the line, durably, in one write."""
        path = Path(os.environ["REHEARSAL_EFFECTS"])
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{key}\n".encode())
        os.close(descriptor)
        match os.environ.get("REHEARSAL_TOOL"):
            case "hang":
                await asyncio.Event().wait()
            case "refuse to end":
                while True:
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        continue
        return "switched"
