"""What replies cost, and a limit to it."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

from models.audio_llm.conversation import BackendError, Status

_CHARS_A_TOKEN = 3
"""Fewer than English text has, so that an estimate errs upwards."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply.

    Attributes:
        text_in: text read.
        audio_in: audio read.
        out: written, thinking included.
        estimated: whether the server did not say.
    """

    text_in: int
    audio_in: int
    out: int
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Prices:
    """USD per million tokens.

    Attributes:
        text_in: of text read.
        audio_in: of audio read.
        out: of text written.
        audio_tokens_s: tokens that a second of audio becomes, to estimate what a server does not say.
    """

    text_in: float
    audio_in: float
    out: float
    audio_tokens_s: float = 32.0

    def cost_usd(self, usage: Usage) -> float:
        """What that costs."""
        return (usage.text_in * self.text_in + usage.audio_in * self.audio_in + usage.out * self.out) / 1e6

    def estimate(self, chars_in: int, audio_s: float, chars_out: int) -> Usage:
        """Tokens of a reply whose server does not say, as when the connection is closed early."""
        return Usage(
            math.ceil(chars_in / _CHARS_A_TOKEN),
            math.ceil(audio_s * self.audio_tokens_s),
            math.ceil(chars_out / _CHARS_A_TOKEN),
            estimated=True,
        )


class Budget:
    """Money that may be spent by a chat. Safe to use from several threads.

    Args:
        limit_usd: how much.
    """

    def __init__(self, limit_usd: float = math.inf) -> None:
        self.limit_usd = limit_usd
        self._spent_usd = 0.0
        self._lock = threading.Lock()

    @property
    def spent_usd(self) -> float:
        """What replies have cost so far. Attempts that failed are not in it: no server says what it takes for them."""
        return self._spent_usd

    def check(self) -> None:
        """Refuse another request once the limit is reached.

        Raises:
            BackendError: BUDGET.
        """
        if self._spent_usd >= self.limit_usd:
            detail = f"{self._spent_usd:.4f} of {self.limit_usd:.4f} USD are spent"
            raise BackendError(Status.BUDGET, detail)

    def add(self, usd: float) -> None:
        """Count what a reply cost."""
        with self._lock:
            self._spent_usd += usd
