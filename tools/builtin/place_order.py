"""Order an item."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gate.catalogue import Risk
from tools.arguments import Phrase
from tools.spec import Ask, ToolSpec


class PlaceOrder(ToolSpec, name="place_order", description="Buy an item.", risk=Risk.HIGH):
    """One purchase. The price is not known when it is spoken, so it counts as money."""

    item: Annotated[Phrase, Ask("What should I order?", "the item to order")]
    quantity: Annotated[int, Field(ge=1, le=20), Ask("How many should I order?", "how many, 1 to 20")] = 1

    def summary(self) -> str:
        return f"Order {self.item}" + (f", quantity {self.quantity}" if self.quantity > 1 else "")
