"""What a turn's work asks of whoever drives it.

The work itself is a plain generator: it yields one of these, and the driver sends back the outcome. So the same code runs
in real time on a thread, on the charged clock, and in a test without either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Compute:
    """Run ``call`` off the event loop. The driver sends back a ``Computed``.

    Attributes:
        stage: its name in the timing record.
        call: the blocking work.
        limit_s: how long it may take before it counts as failed.
    """

    stage: str
    call: Callable[[], object]
    limit_s: float


@dataclass(frozen=True, slots=True)
class Computed:
    """How a ``Compute`` ended.

    Attributes:
        value: the result, or None after an error.
        error: what was raised (``TimeoutError`` past the limit), or None.
        start_s: when it started on the session's clock.
        end_s: when it ended.
    """

    value: object
    error: BaseException | None
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Confirm:
    """Wait until the turn is final. The driver sends back the time at which work goes on, in seconds."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Start an effect beside the work (a tool). It never holds up the next turn. The driver sends back nothing.

    Attributes:
        call: makes the awaitable.
        done: called with the end time on the session's clock when it has ended.
    """

    call: Callable[[], Awaitable[object]]
    done: Callable[[object, BaseException | None, float], None]


Request = Compute | Confirm | Launch
