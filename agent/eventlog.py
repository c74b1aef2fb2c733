"""Numbers a session's events and hands each to every sink. Emitting never blocks and never fails a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from agent.events import Envelope, Event, Failed
from gate.span import SAMPLE_RATE_HZ

E = TypeVar("E", bound=Envelope)


class Sink(Protocol):
    """Where events go: console, file, broker, bench."""

    wants_levels: bool
    """Whether ``Level`` events are sent to it."""

    def emit(self, event: Event) -> None:
        """Take one event; must return at once."""
        ...

    async def aclose(self) -> None:
        """Flush everything and close."""
        ...


class MemorySink:
    """Keeps every event; for the bench and tests."""

    wants_levels = False

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        """Keep one event."""
        self.events.append(event)

    async def aclose(self) -> None:
        """Nothing to flush."""


class EventLog:
    """The session's only source of events.

    A sink that fails (a full disk under the event file) costs its own event only: the others get theirs and a
    ``Failed`` that says so, and ``trouble`` holds until that sink takes an event again. A pipe that nobody reads any
    more is passed on as ``BrokenPipeError``, after every sink has the event: it ends the session.

    Args:
        session: the session's id.
        sinks: where events go.
        now_s: the session's clock.
    """

    def __init__(self, session: str, sinks: Sequence[Sink], now_s: Callable[[], float]) -> None:
        self.session = session
        self._sinks = list(sinks)
        self._now_s = now_s
        self._seq = 0
        self._failing: dict[int, str] = {}
        self.wants_levels = any(sink.wants_levels for sink in sinks)

    def emit(self, kind: type[E], at_sample: int, *, clock_s: float | None = None, **fields: Any) -> E:
        """Make one event and hand it to every sink.

        Args:
            kind: the event's class.
            at_sample: the stream position that it is about.
            clock_s: when it happened; now by default.
            **fields: the event's own fields.

        Returns:
            The event.
        """
        event = kind(
            seq=self._seq,
            session=self.session,
            at_s=round(at_sample / SAMPLE_RATE_HZ, 6),
            clock_s=round(self._now_s() if clock_s is None else clock_s, 6),
            **fields,
        )
        self._seq += 1
        for error in self._hand_out(event):
            self.emit(Failed, at_sample, clock_s=clock_s, where="writing events", error=error)
        return event

    @property
    def trouble(self) -> str:
        """Which outputs did not take their last event, and why; empty when all did."""
        return "; ".join(self._failing.values())

    def _hand_out(self, event: Envelope) -> list[str]:
        """Give an event to every sink; says what failed that had not failed before."""
        new: list[str] = []
        unread: BrokenPipeError | None = None
        for index, sink in enumerate(self._sinks):
            try:
                sink.emit(event)  # type: ignore[arg-type]  # every concrete Envelope is in the Event union
            except BrokenPipeError as error:
                unread = error
            except Exception as error:
                text = f"{type(error).__name__}: {error}"[:300]
                if index not in self._failing:
                    new.append(text)
                self._failing[index] = text
            else:
                self._failing.pop(index, None)
        if unread is not None:
            raise unread
        return new

    def level(self, kind: type[E], at_sample: int, **fields: Any) -> None:
        """Send a level event to the sinks that want it; it takes no number, so files have no holes."""
        event = kind(
            seq=self._seq, session=self.session, at_s=at_sample / SAMPLE_RATE_HZ, clock_s=self._now_s(), **fields
        )
        for sink in self._sinks:
            if sink.wants_levels:
                sink.emit(event)  # type: ignore[arg-type]  # as above

    async def aclose(self) -> None:
        """Flush and close every sink; one that fails does not keep the others open."""
        errors: list[Exception] = []
        for sink in self._sinks:
            try:
                await sink.aclose()
            except Exception as error:
                errors.append(error)
        if errors:
            raise ExceptionGroup("some outputs did not close", errors)
