"""A limit on requests a minute that keeps to it in every minute, not on average. No clock is read."""

from __future__ import annotations

import threading
from collections.abc import Callable

from models.audio_llm.conversation import BackendError, Status

MINUTE_S = 60.0
_MOST_PERMITS = 30
"""Each permit that is out waits in a thread of its own; higher limits are kept over a shorter time."""


def wait_s(seconds: float) -> None:
    """Let some seconds pass."""
    threading.Event().wait(seconds)


class Pace:
    """At most so many starts in any minute. Safe to use from several threads.

    Args:
        per_minute: how many.
        longest_s: how long a start may wait for its turn.
        wait: lets seconds pass.
    """

    def __init__(self, per_minute: float, longest_s: float = 30.0, wait: Callable[[float], None] = wait_s) -> None:
        permits = max(1, min(_MOST_PERMITS, int(per_minute)))
        self._hold_s = MINUTE_S * permits / per_minute
        self._per_minute = per_minute
        self._longest_s = longest_s
        self._wait = wait
        self._permits = threading.Semaphore(permits)

    def start(self) -> None:
        """Wait for a turn.

        Raises:
            BackendError: RATE_LIMITED when none comes in time.
        """
        if not self._permits.acquire(timeout=self._longest_s):
            raise BackendError(Status.RATE_LIMITED, f"the limit of {self._per_minute:g} requests a minute is used up")
        threading.Thread(target=self._give_back, name="voicegate-pace", daemon=True).start()

    def _give_back(self) -> None:
        self._wait(self._hold_s)
        self._permits.release()
