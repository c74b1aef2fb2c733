"""What a turn's work asks of whoever drives it.

The work itself is a plain generator: it yields one of these, and the driver sends back the outcome. So the same code
runs in real time on a thread, on the charged clock, and in a test without either.
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
class Advise:
    """Say something to the loop, at the time at which it is known. The driver sends back nothing.

    Attributes:
        call: says it; quick, on the event loop.
    """

    call: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Confirm:
    """Wait until the turn is final. The driver sends back the time at which work goes on, in seconds."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Start an effect beside the work (a tool). It never holds up the next turn. The driver sends back nothing.

    Attributes:
        call: makes the awaitable.
        done: called with the result or the error and the end time on the session's clock.
        delay_s: grace: how long the effect waits before it starts.
        extend_s: how much longer it may wait while ``is_held``.
        is_held: says that the effect should not start yet, because somebody is speaking who may take it back.
        is_withdrawn: says, when its time has come, that it must not start at all. Then neither callback is called.
        abandoned: called instead of ``done`` when the session ends before the effect has started.
    """

    call: Callable[[], Awaitable[object]]
    done: Callable[[object, BaseException | None, float], None]
    delay_s: float = 0.0
    extend_s: float = 0.0
    is_held: Callable[[], bool] = lambda: False
    is_withdrawn: Callable[[], bool] = lambda: False
    abandoned: Callable[[], None] = lambda: None


HOLD_STEP_S = 0.1
"""How often a held effect looks again."""

Request = Compute | Advise | Confirm | Launch
