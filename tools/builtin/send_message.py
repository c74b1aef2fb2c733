"""Text a contact."""

from __future__ import annotations

from typing import Annotated

from gate.catalogue import Risk
from tools.arguments import ContactName, MessageText
from tools.spec import Ask, ToolSpec


class SendMessage(ToolSpec, name="send_message", description="Send a text message to a contact.", risk=Risk.MEDIUM):
    """One text message; it cannot be called back."""

    recipient: Annotated[ContactName, Ask("Who should I text?", "the contact to text")]
    body: Annotated[MessageText, Ask("What should I say?", "the words of the message")]

    def summary(self) -> str:
        return f"Text {self.recipient}: {self.body}"
