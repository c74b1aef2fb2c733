"""Server-sent events (WHATWG HTML, section 9.2), read strictly: what is no event is an error, not nothing."""

from __future__ import annotations

from collections.abc import Iterator

from models.audio_llm.conversation import BackendError, Status

MAX_STREAM_BYTES = 16_000_000
_OTHER_FIELDS = (b"event", b"id", b"retry")


def events(pieces: Iterator[bytes]) -> Iterator[str]:
    """The data of each event. An event that is cut off is left out.

    Raises:
        BackendError: BAD_REPLY when the stream holds anything else, or is too long.
    """
    data: list[bytes] = []
    for line in _lines(pieces):
        field, _, value = line.partition(b":")
        if not line:
            if data:
                yield _text(b"\n".join(data))
            data = []
        elif field == b"data":
            data.append(value.removeprefix(b" "))
        elif field and field not in _OTHER_FIELDS:
            raise BackendError(Status.BAD_REPLY, "the stream holds what is no event")


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The lines that have ended."""
    rest, size = b"", 0
    for piece in pieces:
        size += len(piece)
        if size > MAX_STREAM_BYTES:
            raise BackendError(Status.BAD_REPLY, f"a stream of over {MAX_STREAM_BYTES} bytes")
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BackendError(Status.BAD_REPLY, "an event that is not UTF-8") from error
