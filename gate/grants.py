"""Single-use permission to execute one exact call. Only ``gate.decide`` mints one, and only with a Tool decision.

A grant is bound to the turn, the tool and the exact arguments. Whoever executes must *redeem* it with the very call that
will run; the second redemption of the same grant, and any redemption with another call, is refused. So no text that a
model writes, and no event order, can run a tool twice or run something else.
"""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field

from gate.catalogue import ToolCall
from gate.span import Span

_MINT_KEY = object()


class GrantError(Exception):
    """A grant was forged, spent, expired or bound to another call. Nothing was executed."""


def call_digest(call: ToolCall) -> str:
    """The sha256 of a call in canonical JSON: what a grant is bound to.

    Raises:
        ValueError: when the arguments hold a value that JSON cannot carry (NaN, infinity, an object).
    """
    try:
        text = json.dumps(
            {"name": call.name, "params": dict(call.params)}, sort_keys=True, ensure_ascii=False, allow_nan=False
        )
    except TypeError as error:
        raise ValueError(f"arguments are not JSON: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Grant:
    """Permission to run one call once.

    Attributes:
        grant_id: unique within the session: turn id and call digest, so the same turn can never yield two.
        turn_id: the turn whose words license the call.
        digest: ``call_digest`` of the call.
        span: the samples that license it.
        expires_sample: the stream position after which it is void (a late call must not run by surprise).
    """

    grant_id: str
    turn_id: str
    digest: str
    span: Span
    expires_sample: int
    _key: object = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self._key is not _MINT_KEY:
            raise GrantError("a grant can only be minted by a Tool decision")


def _mint(turn_id: str, call: ToolCall, span: Span, expires_sample: int) -> Grant:
    """Mint a grant. ``gate.decide`` alone calls this; a test holds the rule."""
    digest = call_digest(call)
    return Grant(f"{turn_id}:{digest[:16]}", turn_id, digest, span, expires_sample, _MINT_KEY)


class GrantLedger:
    """Remembers which grants were spent. One a session; safe to use from several threads."""

    def __init__(self) -> None:
        self._spent: set[str] = set()
        self._lock = threading.Lock()

    def redeem(self, grant: Grant, call: ToolCall, now_sample: int) -> None:
        """Spend ``grant`` on ``call``.

        Raises:
            GrantError: when it is not a minted grant, was spent, has expired, or is bound to another call.
        """
        if not isinstance(grant, Grant) or grant._key is not _MINT_KEY:
            raise GrantError("not a minted grant")
        if call_digest(call) != grant.digest:
            raise GrantError("the grant is bound to another call")
        if not now_sample <= grant.expires_sample:
            raise GrantError(f"the grant expired at sample {grant.expires_sample}, now {now_sample}")
        with self._lock:
            if grant.grant_id in self._spent:
                raise GrantError("the grant was spent before")
            self._spent.add(grant.grant_id)
