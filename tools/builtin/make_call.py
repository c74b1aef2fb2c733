"""Telephone a contact."""

from __future__ import annotations

from typing import Annotated

from gate.catalogue import Risk
from tools.arguments import ContactName
from tools.spec import Ask, ToolSpec


class MakeCall(ToolSpec, name="make_call", description="Telephone a contact or a number.", risk=Risk.MEDIUM):
    """One telephone call; it rings at another person's."""

    contact: Annotated[ContactName, Ask("Who should I call?", "the contact or number to call")]

    def summary(self) -> str:
        return f"Call {self.contact}"
