"""Runs a blocking call on a thread of its own, which may be abandoned: a driver that hangs never holds up the loop or
the end of the program."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from agent.clock import within_s

T = TypeVar("T")


async def run_detached(
    call: Callable[[], T], limit_s: float, *, name: str, too_late: Callable[[T], None] | None = None
) -> T:
    """Run a blocking call beside the event loop.

    The thread is a daemon: neither the loop's shutdown nor the interpreter's waits for it.

    Args:
        call: the call.
        limit_s: how long to wait for it, in real seconds.
        name: the thread's name, for debuggers.
        too_late: takes a result that nobody waits for any more, on that thread (to close what was opened).

    Returns:
        What the call returned.

    Raises:
        TimeoutError: when the limit passes first.
        asyncio.CancelledError: when the caller is cancelled; the call runs on unheard.
        Exception: whatever the call raised.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if outcome.done():
            if error is None and too_late is not None:
                threading.Thread(target=too_late, args=(result,), name=f"{name} too late", daemon=True).start()
        elif error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)  # type: ignore[arg-type]  # None only when T admits it

    def run() -> None:
        result: T | None = None
        error: Exception | None = None
        try:
            result = call()
        except Exception as caught:  # handed to whoever waits
            error = caught
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:  # the loop is closed
            if error is None and too_late is not None:
                too_late(result)  # type: ignore[arg-type]  # as above

    threading.Thread(target=run, name=name, daemon=True).start()
    return await within_s(outcome, limit_s)
