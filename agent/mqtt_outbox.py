"""The events that wait for the broker: bounded, and what matters most is dropped last."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from agent import events
from agent.events import Event

_EFFECT = 2
_DECISION = 1
_OTHER = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """One event on its way.

    Attributes:
        event: the event.
        queued_s: when it was queued, on the output's clock.
        unix_s: the same in seconds since 1970.
        order: counts all events that were ever queued.
    """

    event: Event
    queued_s: float
    unix_s: float
    order: int


class Outbox:
    """A queue that keeps order and never holds more than ``limit`` events, the one in flight not counted.

    When it is full, the oldest event of the least weight goes: first those that are neither decisions nor effects, then
    decisions, and effects (executed calls, late results, claims without an execution) last.

    Args:
        limit: at least 1.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"a queue of {limit} events")
        self.limit = limit
        self.dropped = 0
        """How many events were dropped, in all."""
        self._by_weight: tuple[deque[Waiting], ...] = (deque(), deque(), deque())
        self._order = 0
        self._untold = 0

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._by_weight)

    @property
    def untold(self) -> int:
        """How many events were dropped and not yet reported by a published message."""
        return self._untold

    def put(self, event: Event, now_s: float, unix_s: float) -> bool:
        """Queue one event.

        Returns:
            False when an event had to be dropped for it (perhaps itself).
        """
        self._by_weight[_weight(event)].append(Waiting(event, now_s, unix_s, self._order))
        self._order += 1
        if len(self) <= self.limit:
            return True
        next(queue for queue in self._by_weight if queue).popleft()
        self.dropped += 1
        self._untold += 1
        return False

    def take(self) -> Waiting:
        """The oldest event, taken out. Give it back if it could not be sent.

        Raises:
            IndexError: when there is none.
        """
        waiting = [queue for queue in self._by_weight if queue]
        if not waiting:
            raise IndexError("the queue is empty")
        return min(waiting, key=lambda queue: queue[0].order).popleft()

    def give_back(self, waiting: Waiting) -> None:
        """Put an event that could not be sent back to where it was. It may stand above the limit until the next put."""
        self._by_weight[_weight(waiting.event)].appendleft(waiting)

    def told(self, dropped: int) -> None:
        """A published message has reported ``dropped`` dropped events."""
        self._untold -= dropped


def _weight(event: Event) -> int:
    match event:
        case events.Executed() | events.LateResult() | events.ClaimWithoutExecution():
            return _EFFECT
        case events.Decided():
            return _DECISION
        case _:
            return _OTHER
