"""One HTTP exchange, bounded in time from its start to its last byte.

The client's own limits are on each read, and do not bound name resolution: a server that drips, or a resolver that
hangs, would never reach them. So a thread reads, and whoever asked waits for what it reads or for the end of the time
allowed. No clock is read.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import httpx


@dataclass(frozen=True, slots=True)
class Head:
    """How an answer begins.

    Attributes:
        status: the HTTP status.
        content_type: its media type in lower case, without parameters; empty where there is none.
        retry_after: the header of that name, or None.
    """

    status: int
    content_type: str
    retry_after: str | None


@contextmanager
def deadline(seconds: float, ring: Callable[[], None]) -> Iterator[None]:
    """Calls ``ring`` from another thread if the block has not ended after so many seconds."""
    ended = threading.Event()

    def watch() -> None:
        if not ended.wait(seconds):
            ring()

    threading.Thread(target=watch, name="voicegate-deadline", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def exchange(client: httpx.Client, request: httpx.Request, timeout_s: float) -> Iterator[tuple[Head, Iterator[bytes]]]:
    """Send a request; the head of the answer, and its body as it comes.

    Leaving before the body's end closes the connection, so that the server stops writing.

    Raises:
        TimeoutError: at the end of the time allowed, also while the body is read.
        httpx.HTTPError: when the connection fails.
    """
    reading = _Reading(client, request)
    with deadline(timeout_s, lambda: reading.items.put(TimeoutError(f"not done after {timeout_s:g} s"))):
        try:
            yield reading.head(), reading.pieces()
        finally:
            reading.stop()


class _Reading:
    """The thread that reads."""

    def __init__(self, client: httpx.Client, request: httpx.Request) -> None:
        self.items: queue.SimpleQueue[Head | bytes | Exception | None] = queue.SimpleQueue()
        self._client = client
        self._request = request
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._response: httpx.Response | None = None
        threading.Thread(target=self._run, name="voicegate-request", daemon=True).start()

    def head(self) -> Head:
        item = self._next()
        assert isinstance(item, Head)
        return item

    def pieces(self) -> Iterator[bytes]:
        while (item := self._next()) is not None:
            assert isinstance(item, bytes)
            yield item

    def stop(self) -> None:
        """Wake the thread if it still waits for the server."""
        self._stopped.set()
        with self._lock:
            stream = self._response.extensions.get("network_stream") if self._response is not None else None
            connection = stream.get_extra_info("socket") if stream is not None else None
            if connection is not None:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _next(self) -> Head | bytes | None:
        item = self.items.get()
        if isinstance(item, Exception):
            raise item
        return item

    def _run(self) -> None:
        try:
            response = self._client.send(self._request, stream=True)
            with self._lock:
                self._response = response
            try:
                media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                self.items.put(Head(response.status_code, media, response.headers.get("retry-after")))
                for piece in response.iter_bytes():
                    if self._stopped.is_set():
                        return
                    self.items.put(piece)
            finally:
                # Once it is back in the pool the connection is somebody else's, and must not be shut down.
                with self._lock:
                    self._response = None
                response.close()
            self.items.put(None)
        except Exception as error:
            self.items.put(error)
