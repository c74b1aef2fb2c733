"""A model behind a server as an ``AudioChat``, whatever format the server speaks."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from models.audio_llm.conversation import (
    BackendError,
    Limits,
    Message,
    Reply,
    Status,
    Stop,
    Stopped,
    TooLongError,
    check_messages,
    fold_system,
)
from models.audio_llm.dialects import THINK_CLOSE, THINK_OPEN
from models.audio_llm.endpoint import Asked, Endpoint, PassingError, encoded, read_whole
from models.audio_llm.endpoint_costs import Budget, Prices, Usage
from models.audio_llm.endpoint_events import MAX_STREAM_BYTES, events
from models.audio_llm.endpoint_exchange import Head
from models.audio_llm.wire_format import WireFormat, bad
from models.protocols import ModelId


@dataclass(frozen=True, slots=True)
class Habits:
    """What a server's model does and wants beyond its format.

    Attributes:
        opens_thinking: whether the prompt ends inside of thinking, so that replies lack its opening tag.
        terminators: what the server may leave at the end of a reply.
        needs_sound: whether it refuses conversations without sound.
        request_max_bytes: the longest request that it takes.
    """

    opens_thinking: bool = False
    terminators: tuple[str, ...] = ()
    needs_sound: bool = False
    request_max_bytes: float = math.inf


@dataclass(frozen=True, slots=True)
class Written:
    """A reply as it came over the wire."""

    text: str
    stopped: Stopped
    usage: Usage | None


class ServerChat:
    """Implements ``AudioChat``. Safe to call from several threads.

    Args:
        name: what to call it in the record.
        endpoint: where it is.
        wire: the format it speaks.
        limits: what it takes.
        habits: what it does and wants beyond its format.
        streamed: whether replies that may be stopped early are streamed.
        prices: what it costs; None costs nothing.
        budget: what may be spent.
    """

    def __init__(
        self, name: str, endpoint: Endpoint, wire: WireFormat, limits: Limits, habits: Habits | None = None, *,
        streamed: bool = True, prices: Prices | None = None, budget: Budget | None = None,
    ) -> None:  # fmt: skip
        self._endpoint = endpoint
        self._wire = wire
        self._limits = limits
        self._habits = habits or Habits()
        self._streamed = streamed
        self._prices = prices
        self._budget = budget or Budget()
        # Nobody can hash the weights behind a server; what is asked of it in every request can be.
        request = json.dumps([wire.path(False), dict(wire.fixed), limits.system_role], sort_keys=True)
        self._model = ModelId(name, hashlib.sha256(request.encode()).hexdigest())

    @property
    def model(self) -> ModelId:
        """The name, and the hash of what is the same in every request: a server does not show its weights."""
        return self._model

    @property
    def limits(self) -> Limits:
        """What it takes."""
        return self._limits

    @property
    def budget(self) -> Budget:
        """What was spent, and may be."""
        return self._budget

    def reply(self, messages: Sequence[Message], max_tokens: int, stop: Stop | None = None) -> Reply:
        """See ``AudioChat``. Only a reply that ``stop`` may end is streamed."""
        check_messages(messages, self._limits)
        if self._habits.needs_sound and not any(message.sounds for message in messages):
            raise BackendError(Status.WRONG_INPUT, "this model takes no conversation without sound")
        if not self._limits.system_role:
            messages = fold_system(messages)
        streamed = self._streamed and stop is not None
        body = encoded(self._wire.payload(messages, max_tokens, streamed))
        if len(body) > self._habits.request_max_bytes:
            raise TooLongError(len(body) / 1e6, self._habits.request_max_bytes / 1e6, "MB of request")
        self._budget.check()
        reader = _Reader(self._endpoint, self._wire, self._habits, stop if streamed else None)
        asked = self._endpoint.ask(self._wire.path(streamed), body, reader.read)
        return self._reply(messages, asked)

    def _reply(self, messages: Sequence[Message], asked: Asked[Written]) -> Reply:
        written = asked.value
        notes = [f"{asked.attempts} attempts"] if asked.attempts > 1 else []
        if self._prices is not None:
            usage = written.usage or self._estimate(self._prices, messages, written.text)
            cost_usd = self._prices.cost_usd(usage)
            self._budget.add(cost_usd)
            notes.append(f"{'about ' if usage.estimated else ''}{cost_usd:.6f} USD, {self._budget.spent_usd:.4f} spent")
        return Reply(written.text, written.usage.out if written.usage else 0, written.stopped, "; ".join(notes))

    def _estimate(self, prices: Prices, messages: Sequence[Message], text: str) -> Usage:
        audio_s = sum(sound.seconds for message in messages for sound in message.sounds)
        return prices.estimate(sum(len(message.text) for message in messages), audio_s, len(text))

    def close(self) -> None:
        """Close the connections."""
        self._endpoint.close()


class _Reader:
    """Makes a reply of an answer. One for each reply, whatever number of attempts it takes."""

    def __init__(self, endpoint: Endpoint, wire: WireFormat, habits: Habits, stop: Stop | None) -> None:
        self._endpoint = endpoint
        self._wire = wire
        self._habits = habits
        self._stop = stop

    def read(self, head: Head, pieces: Iterator[bytes]) -> Written:
        if head.status != 200:
            raise self._endpoint.refusal(head, pieces)
        wanted = "application/json" if self._stop is None else "text/event-stream"
        if head.content_type != wanted:
            raise bad(f"{head.content_type or 'an answer of no type'} in the place of {wanted}")
        try:
            return self._whole(head, pieces) if self._stop is None else self._grown(pieces, self._stop)
        except PassingError as error:
            raise PassingError(error.status, self._endpoint.scrubbed(error.detail)) from None
        except BackendError as error:
            raise BackendError(error.status, self._endpoint.scrubbed(error.detail)) from None

    def _whole(self, head: Head, pieces: Iterator[bytes]) -> Written:
        read = self._wire.read(_document(read_whole(head, pieces, MAX_STREAM_BYTES).body), False)
        if read.stopped is None:
            raise bad("a reply that has not ended")
        return Written(self._framed(read.thoughts, read.text), read.stopped, read.usage)

    def _grown(self, pieces: Iterator[bytes], stop: Stop) -> Written:
        text = thoughts = ""
        stopped: Stopped | None = None
        usage: Usage | None = None
        for data in events(pieces):
            if self._wire.is_end(data):
                continue
            piece = self._wire.read(_document(data), True)
            text, thoughts = text + piece.text, thoughts + piece.thoughts
            stopped, usage = piece.stopped or stopped, piece.usage or usage
            if stopped is None and (piece.text or piece.thoughts) and stop(so_far := self._framed(thoughts, text)):
                return Written(so_far, Stopped.DECIDED, None)
        if stopped is None:
            raise PassingError(Status.UNREACHABLE, "the stream broke off before the reply's end")
        return Written(self._framed(thoughts, text), stopped, usage)

    def _framed(self, thoughts: str, text: str) -> str:
        """The reply as the model wrote it: thinking in its own tags first, no terminator last."""
        for terminator in self._habits.terminators:
            text = text.removesuffix(terminator)
        if thoughts:
            return f"{THINK_OPEN}{thoughts}{THINK_CLOSE}{text}" if text else f"{THINK_OPEN}{thoughts}"
        return f"{THINK_OPEN}\n{text}" if self._habits.opens_thinking else text


def _document(data: bytes | str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise bad("an answer that is no JSON") from None
