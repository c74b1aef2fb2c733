"""The HTTP client of every endpoint: bounded in time and size, retried with patience, quiet about its key.

Retried are 429, 5xx, time-outs and broken connections, after 1, 2, 4 … seconds or what the endpoint asks for. The key
goes into one header and nowhere else, is taken out of every message, and stays where it was sent: redirects are not
followed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

import httpx

from models.audio_llm.conversation import BackendError, BackendTimeoutError, Status
from models.audio_llm.endpoint_exchange import Head, exchange
from models.audio_llm.endpoint_key import Key
from models.audio_llm.endpoint_pace import Pace, wait_s

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 30.0
CONNECT_S: Final = 10.0
MAX_REPLY_BYTES: Final = 1_000_000
_SHOWN_CHARS = 200
_QUOTA = b"insufficient_quota"
"""OpenAI's code in a 429 that no patience helps with: nothing is left to pay with."""
_KEY_INVALID = b"API_KEY_INVALID"
"""Google's reason in a 400 about the key."""
_FILTERED_RE = re.compile(rb'"code"\s*:\s*"(?:content_filter|content_policy_violation)"')
_RETRY_DELAY_RE = re.compile(rb'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"')
"""Google puts into the body what others put into Retry-After (google.rpc.RetryInfo)."""
_REFUSALS = {
    401: (Status.DENIED, "it does not accept the key"),
    402: (Status.BUDGET, "it wants to be paid first"),
    403: (Status.DENIED, "it refuses this key or model"),
    404: (Status.BAD_REQUEST, "it has no such address or model"),
}

T = TypeVar("T")
Read = Callable[[Head, Iterator[bytes]], T]
"""Makes something of an answer: given its head and its body as it comes."""


class AddressError(ValueError):
    """Not an address that can be asked. The message says why."""


class PassingError(Exception):
    """A failure that may be over in a moment: worth another attempt.

    Attributes:
        status: which failure.
        detail: one line.
        asked_for_s: how long the endpoint asks to wait, in seconds, or None.
    """

    def __init__(self, status: Status, detail: str, asked_for_s: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.asked_for_s = asked_for_s


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer and its whole body, cut at ``max_bytes``."""

    status: int
    content_type: str
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """What an answer was made into, and how many attempts that took."""

    value: T
    attempts: int


class Endpoint:
    """An endpoint. Safe to call from several threads.

    Args:
        base_url: up to and with the version: ``https://api.openai.com/v1``.
        key: for the header; None for endpoints that need none.
        header: which header the key goes into; ``Authorization`` gets it as a bearer token.
        timeout_s: how long one attempt may take, from its start to the last byte.
        retries: how many attempts may follow the first.
        pace: a limit on requests; None sets none.
        wait: lets seconds pass between attempts.

    Raises:
        AddressError: when the address is none.
    """

    def __init__(
        self, base_url: str, key: Key | None = None, *, header: str = "Authorization", timeout_s: float = 60.0,
        retries: int = 2, pace: Pace | None = None, wait: Callable[[float], None] = wait_s,
    ) -> None:  # fmt: skip
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise AddressError(f"{without_user(base_url)!r} is no http or https address")
        if parts.username or parts.password:
            raise AddressError("the address holds a name or password")
        self._base_url = base_url.rstrip("/")
        self._key = key
        self._header = header
        self._timeout_s = timeout_s
        self._retries = retries
        self._pace = pace
        self._wait = wait
        self._client = httpx.Client(
            timeout=httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            verify=parts.scheme == "https",  # reading the certificates takes a tenth of a second
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def post(self, path: str, payload: Any, max_bytes: int = MAX_REPLY_BYTES) -> Answer:
        """The answer to a JSON document, whatever its status, after as many attempts as allowed.

        Raises:
            BackendError: with the status of the last attempt, when all failed in ways that may pass.
        """
        return self.ask(path, encoded(payload), lambda head, pieces: read_whole(head, pieces, max_bytes)).value

    def ask(self, path: str, body: bytes, read: Read[T]) -> Asked[T]:
        """Send a JSON document and read the answer as it comes, after as many attempts as allowed.

        Args:
            path: below the base address.
            body: the document.
            read: is given the answer, unless its status is one that may pass; called once an attempt. It may raise
                ``PassingError``.

        Raises:
            BackendError: with the status of the last attempt, when all failed in ways that may pass; BAD_REPLY when an
                answer cannot be decoded; what ``read`` raises.
        """
        pause_s = FIRST_WAIT_S
        for attempt in range(1, self._retries + 2):
            try:
                return Asked(self._attempt(path, body, read), attempt)
            except PassingError as error:
                passing = error
            if attempt <= self._retries:
                self._wait(min(LONGEST_WAIT_S, max(pause_s, passing.asked_for_s or 0.0)))
                pause_s *= 2
        detail = self.scrubbed(f"no answer after {self._retries + 1} attempts: {passing.detail}")
        if passing.status is Status.TIMEOUT:
            raise BackendTimeoutError(detail)
        raise BackendError(passing.status, detail)

    def refusal(self, head: Head, pieces: Iterator[bytes]) -> BackendError:
        """What an answer means whose status is neither 200 nor one that may pass."""
        answer = read_whole(head, pieces)
        status, why = _REFUSALS.get(answer.status, (Status.BAD_REQUEST, "it refuses the request"))
        if answer.status == 429:
            status, why = Status.BUDGET, "its quota is used up"
        elif answer.status < 400:
            status, why = Status.BAD_REPLY, "neither an answer nor a refusal"
        elif _KEY_INVALID in answer.body:
            status, why = _REFUSALS[401]
        elif _FILTERED_RE.search(answer.body):
            status, why = Status.FILTERED, "it withholds the reply"
        return BackendError(status, f"{why}; status {answer.status}: {self.shown(answer.body)}")

    def shown(self, body: bytes) -> str:
        """The start of a body on one line, without the key, for messages."""
        return " ".join(self.scrubbed(body.decode("utf-8", "replace")).split())[:_SHOWN_CHARS]

    def scrubbed(self, text: str) -> str:
        """A text without the key."""
        return self._key.scrubbed(text) if self._key else text

    def _attempt(self, path: str, body: bytes, read: Read[T]) -> T:
        if self._pace is not None:
            self._pace.start()
        try:
            with exchange(self._client, self._request(path, body), self._timeout_s) as (head, pieces):
                if head.status == 429 or head.status >= 500:
                    pieces = iter([self._unless_passing(head, pieces)])
                return read(head, pieces)
        except (httpx.TimeoutException, TimeoutError) as error:
            raise PassingError(Status.TIMEOUT, f"{type(error).__name__}: {error}") from None
        except httpx.TransportError as error:
            raise PassingError(Status.UNREACHABLE, f"{type(error).__name__}: {error}") from None
        except httpx.HTTPError as error:
            raise BackendError(Status.BAD_REPLY, self.scrubbed(f"{type(error).__name__}: {error}")) from None

    def _unless_passing(self, head: Head, pieces: Iterator[bytes]) -> bytes:
        body = read_whole(head, pieces).body
        if head.status == 429 and _QUOTA in body:
            return body
        status = Status.RATE_LIMITED if head.status == 429 else Status.SERVER_ERROR
        raise PassingError(status, f"status {head.status}: {self.shown(body)}", _asked_for_s(head, body))

    def _request(self, path: str, body: bytes) -> httpx.Request:
        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers[self._header] = self._key.header("Bearer " if self._header == "Authorization" else "")
        return self._client.build_request("POST", f"{self._base_url}/{path}", content=body, headers=headers)


def encoded(payload: Any) -> bytes:
    """A JSON document as it is sent."""
    return json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def without_user(url: str) -> str:
    """An address without the name and password that it may hold."""
    return url.rsplit("@", 1)[-1]


def read_whole(head: Head, pieces: Iterator[bytes], max_bytes: int = MAX_REPLY_BYTES) -> Answer:
    """The answer with its body, cut where it is longer."""
    body = bytearray()
    for piece in pieces:
        body += piece
        if len(body) > max_bytes:
            break
    return Answer(head.status, head.content_type, bytes(body[:max_bytes]))


def _asked_for_s(head: Head, body: bytes) -> float | None:
    in_body = _RETRY_DELAY_RE.search(body)
    try:
        seconds = float(head.retry_after or (in_body[1] if in_body else ""))
    except ValueError:  # a date: the pause between attempts will do
        return None
    return seconds if 0 <= seconds < float("inf") else None
