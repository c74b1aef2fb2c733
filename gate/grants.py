"""Single-use permission to execute one exact call. Only ``gate.decide`` mints one, and only with a Tool decision.

A grant is bound to the turn, the tool and the exact arguments. Whoever executes must *redeem* it with the very call
that will run; a second redemption for the same turn, and any redemption with another call, is refused. So no text that
a model writes, and no event order, can run a tool twice or run something else. A seal over all fields, made with a key
of this process, keeps an altered grant from passing: a guard against mistakes in the program, not against hostile code
in it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
from dataclasses import dataclass, field

from gate.catalogue import ToolCall
from gate.span import Span

_MINT_KEY = secrets.token_bytes(32)


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
    except (TypeError, RecursionError) as error:
        raise ValueError(f"arguments are not JSON: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Grant:
    """Permission to run one call once.

    Attributes:
        grant_id: turn id and call digest, for logs.
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
    _seal: str = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.genuine:
            raise GrantError("a grant can only be minted by a Tool decision")

    @property
    def genuine(self) -> bool:
        """Whether the fields are those that were minted."""
        return hmac.compare_digest(
            self._seal, _seal(self.grant_id, self.turn_id, self.digest, self.span, self.expires_sample)
        )


def _seal(grant_id: str, turn_id: str, digest: str, span: Span, expires_sample: int) -> str:
    text = json.dumps([grant_id, turn_id, digest, span.start_sample, span.end_sample, expires_sample])
    return hmac.new(_MINT_KEY, text.encode(), hashlib.sha256).hexdigest()


def _mint(turn_id: str, call: ToolCall, span: Span, expires_sample: int) -> Grant:
    """Mint a grant. ``gate.decide`` alone calls this; a test holds the rule."""
    digest = call_digest(call)
    grant_id = f"{turn_id}:{digest[:16]}"
    seal = _seal(grant_id, turn_id, digest, span, expires_sample)
    return Grant(grant_id, turn_id, digest, span, expires_sample, seal)


class GrantLedger:
    """Remembers which turns have spent their grant: one turn executes at most once, whatever is decided about it again.

    One a session; safe to use from several threads.
    """

    def __init__(self) -> None:
        self._spent: set[str] = set()
        self._lock = threading.Lock()

    def redeem(self, grant: Grant, call: ToolCall, now_sample: int) -> None:
        """Spend ``grant`` on ``call``.

        Raises:
            GrantError: when it is not a minted grant, has expired, is bound to another call, or its turn has spent one.
            ValueError: when the call holds a value that JSON cannot carry.
        """
        if not isinstance(grant, Grant) or not grant.genuine:
            raise GrantError("not a minted grant")
        if call_digest(call) != grant.digest:
            raise GrantError("the grant is bound to another call")
        if not now_sample <= grant.expires_sample:
            raise GrantError(f"the grant expired at sample {grant.expires_sample}, now {now_sample}")
        with self._lock:
            if grant.turn_id in self._spent:
                raise GrantError(f"turn {grant.turn_id} has spent its grant")
            self._spent.add(grant.turn_id)
