"""Send money to a person."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gate.catalogue import Risk
from tools.arguments import ContactName
from tools.spec import Ask, ToolSpec

Currency = Literal["dollars", "euros", "pounds", "yen", "yuan", "rupees", "francs", "pesos", "won"]
"""Currencies as they are spoken. Which dollars is for the account to say: a code here would be a guess."""

MAX_AMOUNT = 10_000
"""The most that one spoken command can send."""


def _whole_hundredths(amount: float) -> float:
    if round(amount, 2) != amount:
        raise ValueError("has more than two decimal places")
    return amount


class TransferMoney(ToolSpec, name="transfer_money", description="Send money to a person.", risk=Risk.HIGH):
    """One transfer; it cannot be taken back."""

    recipient: Annotated[ContactName, Ask("Who should I send the money to?", "the person to pay")]
    amount: Annotated[
        float,
        Field(gt=0, le=MAX_AMOUNT),
        AfterValidator(_whole_hundredths),
        Ask("How much should I send?", "the amount as a number"),
    ]
    currency: Annotated[Currency | None, Ask("In which currency?", "the currency, if said")] = None

    def summary(self) -> str:
        amount = f"{self.amount:,.2f}".removesuffix(".00")
        return f"Send {self.recipient} {amount}" + (f" {self.currency}" if self.currency else "")
