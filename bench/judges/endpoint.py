"""One chat completion from any endpoint that speaks OpenAI's protocol: bounded in time and size, retried with patience.

Retried are 429, 5xx, time-outs and broken connections, after 1, 2, 4 … seconds or what the endpoint asks for. The key
goes into the header and nowhere else, and is taken out of every message.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from bench.judges.case import JudgeStoppedError, NotJudgedError

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 30.0
CONNECT_S: Final = 10.0
MAX_REPLY_BYTES: Final = 1_000_000
MAX_TOKENS: Final = 2048
"""Enough for the thoughts of a model that thinks before its one word."""
STOP_AFTER: Final = 3
"""So many cases in a row without an answer, all retries included, and nobody is there."""
_HOPELESS: Final = {
    401: "it does not accept the key (OPENAI_API_KEY)",
    402: "it wants to be paid first",
    403: "it refuses this key or model",
    404: "it has no such address or model (--base-url, --model)",
}
_SHOWN_CHARS = 200


class EndpointError(ValueError):
    """An endpoint cannot be used as it was named. The message says what to change."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    retry_after_s: float | None


class Endpoint:
    """An endpoint. Safe to call from several threads.

    Args:
        base_url: up to and with the version: ``https://api.openai.com/v1``.
        key: for the header; None for endpoints that need none.
        timeout_s: how long one attempt may take, from its start to the last byte.
        retries: how many attempts may follow the first.
        sleep: waits so many seconds.

    Raises:
        EndpointError: when the address is none.
    """

    def __init__(
        self, base_url: str, key: str | None = None, *, timeout_s: float = 60.0, retries: int = 4,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise EndpointError(f"--base-url {_without_user(base_url)!r} is no http or https address")
        if parts.username or parts.password:
            raise EndpointError("--base-url holds a name or password; put the key into OPENAI_API_KEY instead")
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._key = key
        self._timeout_s = timeout_s
        self._retries = retries
        self._sleep = sleep
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(
            headers=headers, timeout=httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
        )
        self._lock = threading.Lock()
        self._unanswered = 0

    def complete(self, model: str, system: str, user: str) -> str:
        """The model's reply at temperature 0.

        Args:
            model: its name at the endpoint.
            system: our instructions.
            user: the data.

        Raises:
            NotJudgedError: when there is no reply to this.
            JudgeStoppedError: when there will be none to anything.
        """
        payload = {
            "model": model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
            "temperature": 0,
            "max_tokens": MAX_TOKENS,
        }
        answer = self._ask(payload)
        if answer.status in _HOPELESS:
            why = f"{_HOPELESS[answer.status]}; status {answer.status}: {self._shown(answer.body)}"
            raise JudgeStoppedError(f"the endpoint stopped us: {why}")
        if answer.status != 200:
            raise NotJudgedError(f"status {answer.status}: {self._shown(answer.body)}")
        return self._content(answer.body)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask(self, payload: Mapping[str, Any]) -> _Answer:
        """One answer that is worth reading, after as many attempts as allowed."""
        problem, wait_s = "", FIRST_WAIT_S
        for attempt in range(self._retries + 1):
            asked_for_s = None
            try:
                answer = self._attempt(payload)
            except (httpx.TransportError, TimeoutError) as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if answer.status != 429 and answer.status < 500:
                    self._count(answered=True)
                    return answer
                problem, asked_for_s = f"status {answer.status}: {self._shown(answer.body)}", answer.retry_after_s
            if attempt < self._retries:
                self._sleep(min(LONGEST_WAIT_S, max(wait_s, asked_for_s or 0.0)))
                wait_s *= 2
        self._count(answered=False)
        raise NotJudgedError(self._scrubbed(f"no answer after {self._retries + 1} attempts: {problem}"))

    def _count(self, *, answered: bool) -> None:
        with self._lock:
            self._unanswered = 0 if answered else self._unanswered + 1
            if self._unanswered >= STOP_AFTER:
                raise JudgeStoppedError(f"the endpoint gave no answer to {STOP_AFTER} cases in a row")

    def _attempt(self, payload: Mapping[str, Any]) -> _Answer:
        ends_s = time.monotonic() + self._timeout_s
        with self._client.stream("POST", self._url, json=payload) as response:
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_REPLY_BYTES:
                    break
                # The client's own limit is on each read: an endpoint that drips would never reach it.
                if time.monotonic() > ends_s:
                    raise TimeoutError(f"not done after {self._timeout_s:g} s")
            return _Answer(response.status_code, bytes(body), _seconds(response.headers.get("retry-after")))

    def _content(self, body: bytes) -> str:
        try:
            choice = json.loads(body)["choices"][0]
            content, reason = choice["message"]["content"], choice.get("finish_reason")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise NotJudgedError(f"the endpoint's answer is no chat completion: {self._shown(body)}") from error
        if not isinstance(content, str):
            raise NotJudgedError("the endpoint's answer holds no text")
        if reason == "length":
            raise NotJudgedError(f"the judge's reply was cut off at {MAX_TOKENS} tokens")
        return content

    def _shown(self, body: bytes) -> str:
        return self._scrubbed(" ".join(body[: 4 * _SHOWN_CHARS].decode("utf-8", "replace").split()))[:_SHOWN_CHARS]

    def _scrubbed(self, text: str) -> str:
        return text.replace(self._key, "(key)") if self._key else text


def _without_user(url: str) -> str:
    return url.rsplit("@", 1)[-1]


def _seconds(header: str | None) -> float | None:
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
