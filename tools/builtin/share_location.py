"""Share the wearer's location."""

from __future__ import annotations

from typing import Annotated

from gate.catalogue import Risk
from tools.arguments import ContactName, TimePhrase
from tools.spec import Ask, ToolSpec


class ShareLocation(ToolSpec, name="share_location", description="Share my location with a contact.", risk=Risk.MEDIUM):
    """Where the wearer is, seen by another person."""

    recipient: Annotated[ContactName, Ask("Who should I share your location with?", "the contact who may see it")]
    duration: Annotated[TimePhrase | None, Ask("For how long?", "for how long, if said")] = None

    def summary(self) -> str:
        return f"Share your location with {self.recipient}" + (f", {self.duration}" if self.duration else "")
