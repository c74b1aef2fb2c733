"""Delete something stored."""

from __future__ import annotations

from typing import Annotated

from gate.catalogue import Risk
from tools.arguments import ThingName
from tools.spec import Ask, ToolSpec


class DeleteData(ToolSpec, name="delete_data", description="Delete stored data.", risk=Risk.HIGH):
    """One deletion, for good."""

    target: Annotated[ThingName, Ask("What should I delete?", "what to delete")]

    def summary(self) -> str:
        return f"Delete {self.target}"
