"""One chat completion for a judge, by the client that audio language models behind servers have too.

That client (``models.audio_llm.endpoint``) bounds time and size, retries what may pass, and shows its key to nobody.
Here is what a judge makes of failures: no verdict on this case, or none on any.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from bench.judges.case import JudgeStoppedError, NotJudgedError
from models.audio_llm import endpoint as client
from models.audio_llm.conversation import BackendError
from models.audio_llm.endpoint_key import Key

MAX_REPLY_BYTES: Final = client.MAX_REPLY_BYTES
MAX_TOKENS: Final = 2048
"""Enough for the thoughts of a model that thinks before its one word."""
STOP_AFTER: Final = 3
"""So many cases in a row without an answer, all retries included, and nobody is there."""
_HOPELESS: Final = {
    401: "it does not accept the key (OPENAI_API_KEY)",
    402: "it wants to be paid first",
    403: "it refuses this key or model",
    404: "it has no such address or model (--base-url, --model)",
    429: "its quota is used up",
}


class EndpointError(ValueError):
    """An endpoint cannot be used as it was named. The message says what to change."""


class Endpoint:
    """An endpoint. Safe to call from several threads.

    Args:
        base_url: up to and with the version: ``https://api.openai.com/v1``.
        key: for the header; None or empty for endpoints that need none.
        timeout_s: how long one attempt may take, from its start to the last byte.
        retries: how many attempts may follow the first.
        sleep: waits so many seconds.

    Raises:
        EndpointError: when the address is none, or the key.
    """

    def __init__(
        self, base_url: str, key: str | None = None, *, timeout_s: float = 60.0, retries: int = 4,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        try:
            secret = Key(key, "OPENAI_API_KEY") if key and key.strip() else None
            self._client = client.Endpoint(base_url, secret, timeout_s=timeout_s, retries=retries, wait=sleep)
        except client.AddressError as error:
            raise EndpointError(f"--base-url: {error}; a key belongs into OPENAI_API_KEY") from None
        except BackendError as error:
            raise EndpointError(error.detail) from None
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
        answer = self._answer(payload)
        if answer.status in _HOPELESS:
            why = f"{_HOPELESS[answer.status]}; status {answer.status}: {self._client.shown(answer.body)}"
            raise JudgeStoppedError(f"the endpoint stopped us: {why}")
        if answer.status != 200:
            raise NotJudgedError(f"status {answer.status}: {self._client.shown(answer.body)}")
        return self._content(answer.body)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _answer(self, payload: dict[str, Any]) -> client.Answer:
        try:
            answer = self._client.post("chat/completions", payload, MAX_REPLY_BYTES)
        except BackendError as error:
            self._count(answered=False)
            raise NotJudgedError(error.detail) from error
        self._count(answered=True)
        return answer

    def _count(self, *, answered: bool) -> None:
        with self._lock:
            self._unanswered = 0 if answered else self._unanswered + 1
            if self._unanswered >= STOP_AFTER:
                raise JudgeStoppedError(f"the endpoint gave no answer to {STOP_AFTER} cases in a row")

    def _content(self, body: bytes) -> str:
        try:
            choice = json.loads(body)["choices"][0]
            content, reason = choice["message"]["content"], choice.get("finish_reason")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise NotJudgedError(f"the endpoint's answer is no chat completion: {self._client.shown(body)}") from error
        if not isinstance(content, str):
            raise NotJudgedError("the endpoint's answer holds no text")
        if reason == "length":
            raise NotJudgedError(f"the judge's reply was cut off at {MAX_TOKENS} tokens")
        return content
