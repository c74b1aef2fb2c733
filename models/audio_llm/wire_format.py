"""What a wire format does: messages into a request, and each document of an answer into a piece of the reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from models.audio_llm.conversation import BackendError, Message, Status, Stopped
from models.audio_llm.endpoint import PassingError
from models.audio_llm.endpoint_costs import Usage


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a reply; a reply that is not streamed is one piece.

    Attributes:
        text: what is added to the reply.
        thoughts: what is added to the thinking, where a server tells it apart.
        stopped: why the reply ended; None while it goes on.
        usage: tokens of the whole reply so far, where the server says.
    """

    text: str = ""
    thoughts: str = ""
    stopped: Stopped | None = None
    usage: Usage | None = None


class WireFormat(Protocol):
    """A format of requests and answers."""

    @property
    def fixed(self) -> Mapping[str, Any]:
        """What is the same in every request, for the record."""
        ...

    def path(self, streamed: bool) -> str:
        """The address below the base address."""
        ...

    def payload(self, messages: Sequence[Message], max_tokens: int, streamed: bool) -> dict[str, Any]:
        """The request."""
        ...

    def read(self, document: Any, streamed: bool) -> Piece:
        """The piece of the reply that a document holds.

        Raises:
            BackendError: when it is in another format, or says that there will be no reply.
            PassingError: when it says that another attempt may succeed.
        """
        ...

    def is_end(self, data: str) -> bool:
        """Whether an event of a stream says that the stream ends, and is no document."""
        ...


def bad(detail: str) -> BackendError:
    """An answer that is not in its own format."""
    return BackendError(Status.BAD_REPLY, detail)


def required(document: Any, key: str, kind: type | tuple[type, ...], what: str) -> Any:
    """A field that must be there and of a kind.

    Raises:
        BackendError: BAD_REPLY when it is not.
    """
    if not isinstance(document, dict) or not isinstance(document.get(key), kind):
        raise bad(f"{what} has no valid {key!r}")
    return document[key]


def count(document: Mapping[str, Any], key: str) -> int:
    """A number of tokens; 0 where it is missing or null.

    Raises:
        BackendError: BAD_REPLY when it is no number of tokens.
    """
    value = document.get(key) or 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise bad(f"{key!r} is no number of tokens")
    return value


def error_in_stream(code: object, detail: str) -> Exception:
    """What an error means that a server sends after it had answered with 200."""
    if code == 429:
        return PassingError(Status.RATE_LIMITED, detail)
    if isinstance(code, int) and 400 <= code < 500:
        return BackendError(Status.BAD_REQUEST, detail)
    return PassingError(Status.SERVER_ERROR, detail)
