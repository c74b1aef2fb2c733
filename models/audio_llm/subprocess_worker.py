"""A worker process: started, spoken to and ended. What it says is handed on line by line; nothing here waits for it."""

from __future__ import annotations

import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from models.audio_llm.remote_workers.protocol import FROM_WORKER, ProtocolError, line, parsed

MAX_LINE_BYTES = 16_000_000
_TAIL_BYTES = 4000
_SHOWN_CHARS = 200
_ROOT = Path(__file__).resolve().parents[2]
_SECRETS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_SECRET_CHARS = 8
"""What is shorter is taken out of no message: it would take words out."""
_HUB = ("HF_", "HUGGING_FACE_")


@dataclass(frozen=True, slots=True)
class Ended:
    """The process says nothing more.

    Attributes:
        why: what it said last that was no line of the protocol; empty where it ended by itself.
    """

    why: str = ""


@dataclass(frozen=True, slots=True)
class Late:
    """The time for a request is over.

    Attributes:
        number: which request; 0 while the worker loads.
    """

    number: int


Event = dict[str, Any] | Ended | Late


class WorkerProcess:
    """A running worker.

    Args:
        command: what to run.
        environ: variables to run it with. Our own source takes the place of its path; secrets are left out, since a
            model's own code has no business with them, but for those of the hub that it is fetched from.
        log: where its standard error goes, added at the end; None keeps it in a temporary file.

    Raises:
        OSError: when it cannot be started or the log cannot be written.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], log: Path | None) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        secrets = {name: value for name, value in environ.items() if name.upper().endswith(_SECRETS)}
        self._secrets = [value for value in secrets.values() if len(value) >= _SECRET_CHARS]
        self._log: IO[bytes] = _log_file(log)
        own = {name: value for name, value in environ.items() if name not in secrets or name.startswith(_HUB)}
        try:
            self._process = subprocess.Popen(
                list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
                env={**own, "PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        except OSError:
            self._log.close()
            raise
        for run in (self._read, self._write):
            threading.Thread(target=run, name="voicegate-worker", daemon=True).start()

    def say(self, kind: str, **fields: object) -> None:
        """Send a line, as soon as the worker takes it."""
        self._outbox.put(line(kind, **fields))

    def next(self) -> Event:
        """What comes next: a line, the end, or the ringing of a time limit. Waits for it."""
        return self._events.get()

    def ring(self, number: int) -> None:
        """Time is over for a request."""
        self._events.put(Late(number))

    def last_words(self) -> str:
        """How it ended and the last line of its standard error, without anything secret, for messages."""
        status = self._process.poll()
        ended = "" if status is None else f"exit status {status}"
        size = os.fstat(self._log.fileno()).st_size
        tail = os.pread(self._log.fileno(), _TAIL_BYTES, max(size - _TAIL_BYTES, 0)).decode("utf-8", "replace")
        for secret in self._secrets:
            tail = tail.replace(secret, "(key)")
        last = next((text.strip() for text in reversed(tail.splitlines()) if text.strip()), "")
        return ": ".join(part for part in (ended, last[:_SHOWN_CHARS]) if part) or "without a word"

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within so many seconds."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End it now."""
        self._process.kill()
        self._process.wait()
        self._outbox.put(None)

    def close_log(self) -> None:
        """Let go of its log."""
        self._log.close()

    def _read(self) -> None:
        out = self._process.stdout
        assert out is not None
        why = ""
        with out:
            while text := out.readline(MAX_LINE_BYTES):
                try:
                    self._events.put(parsed(text.decode("utf-8", "replace"), FROM_WORKER))
                except ProtocolError as error:
                    why = str(error)
                    break
        self._events.put(Ended(why))

    def _write(self) -> None:
        into = self._process.stdin
        assert into is not None
        with suppress(OSError), into:  # a worker that has ended says so by the end of its output
            while (text := self._outbox.get()) is not None:
                into.write(text.encode() + b"\n")
                into.flush()


def _log_file(path: Path | None) -> IO[bytes]:
    return tempfile.TemporaryFile("a+b") if path is None else path.open("a+b")
