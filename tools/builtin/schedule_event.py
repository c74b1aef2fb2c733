"""Put an event into the calendar."""

from __future__ import annotations

from typing import Annotated

from gate.catalogue import Risk
from tools.arguments import TimePhrase, Title
from tools.spec import Ask, ToolSpec


class ScheduleEvent(ToolSpec, name="schedule_event", description="Add an event to the calendar.", risk=Risk.LOW):
    """One entry in the wearer's own calendar; deleting it undoes it."""

    title: Annotated[Title, Ask("What should I call the event?", "what the event is")]
    when: Annotated[TimePhrase, Ask("When should I schedule it?", "the day and time as said")]

    def summary(self) -> str:
        return f"Schedule {self.title}, {self.when}"
