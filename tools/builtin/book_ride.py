"""Book a ride."""

from __future__ import annotations

from typing import Annotated

from gate.catalogue import Risk
from tools.arguments import Phrase, TimePhrase
from tools.spec import Ask, ToolSpec


class BookRide(ToolSpec, name="book_ride", description="Book a ride to a place.", risk=Risk.MEDIUM):
    """One ride from where the wearer is; cancelling it may cost a fee."""

    destination: Annotated[Phrase, Ask("Where to?", "where the ride goes")]
    pickup_time: Annotated[TimePhrase | None, Ask("When should it pick you up?", "the pick-up time, if said")] = None

    def summary(self) -> str:
        return f"Book a ride to {self.destination}, {self.pickup_time or 'now'}"
