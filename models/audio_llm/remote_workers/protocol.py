"""The protocol between voicegate and a model's own process: JSON documents, one a line, over standard input and output.

Nothing but the standard library is imported here, and nothing newer than Python 3.10 is used: a worker's environment
holds what its model pins, and no more.

====================  =====================================================================================
worker says           fields
====================  =====================================================================================
``hello``             ``protocol`` (``PROTOCOL``), ``model``: at once, before anything is loaded
``ready``             ``versions``: the model is loaded; library to version, for the log
``progress``          ``id``, ``text``: the reply so far; as often as the model can
``reply``             ``id``, ``text``, ``tokens``, ``stopped``: ``terminator``, ``length`` or ``cancelled``
``error``             ``id`` (null while loading), ``status`` (one of ``STATUSES``), ``detail``
====================  =====================================================================================

====================  =====================================================================================
voicegate says        fields
====================  =====================================================================================
``request``           ``id``, ``messages``, ``max_tokens``
``cancel``            ``id``: write no more of that reply
``stop``              end, after what is being written
====================  =====================================================================================

A message has a ``role`` (``system``, ``user``, ``assistant``) and ``parts``, each ``{"text": …}`` or ``{"wav": …}``: a
WAV file, 16 kHz, mono, 16 bits, in base64. Requests are answered one at a time, in order. What is no such line ends the
process. At the end of its input a worker ends; whatever its libraries print goes to standard error.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO

PROTOCOL = 1
"""Goes up when a line changes its meaning. Other versions are refused."""
WRONG_INPUT = "wrong_input"
OUT_OF_MEMORY = "out_of_memory"
SERVER_ERROR = "server_error"
STATUSES = (WRONG_INPUT, OUT_OF_MEMORY, SERVER_ERROR)
STOPPED = ("terminator", "length", "cancelled")
_ROLES = ("system", "user", "assistant")
_SHOWN_CHARS = 300
_ROOT = Path(__file__).resolve().parents[3]


class ProtocolError(ValueError):
    """A line that is not of this protocol."""


class WorkerError(Exception):
    """No reply to this request.

    Attributes:
        status: one of ``STATUSES``.
    """

    def __init__(self, status: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@dataclass(frozen=True)
class Said:
    """One message: texts (``str``) and sounds (``bytes``, a WAV file) in order."""

    role: str
    parts: tuple[str | bytes, ...]


@dataclass(frozen=True)
class Request:
    """What is to be replied to."""

    id: int
    messages: tuple[Said, ...]
    max_tokens: int


@dataclass(frozen=True)
class Replied:
    """What was written.

    Attributes:
        text: the reply without its terminator.
        tokens: how many were written.
        stopped: one of ``STOPPED``.
    """

    text: str
    tokens: int
    stopped: str


@dataclass
class Turn:
    """A request being worked on: what the model may say of it meanwhile, and whether it is still wanted."""

    request: Request
    progress: Callable[[str], None]
    cancelled: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Loaded:
    """A model that is ready.

    Attributes:
        reply: writes a reply; may raise ``WorkerError``.
        versions: library to version.
    """

    reply: Callable[[Turn], Replied]
    versions: dict[str, str]


def line(kind: str, **fields: object) -> str:
    """A line, without its end."""
    return json.dumps({"type": kind, **fields}, ensure_ascii=False, allow_nan=False)


def parsed(text: str, kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A line that must be of one of these kinds, with exactly the fields of its kind.

    Args:
        text: the line.
        kinds: kind to its fields, and to what each must be an instance of.

    Raises:
        ProtocolError: when it is not.
    """
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError(f"no JSON: {text[:_SHOWN_CHARS]!r}") from None
    kind = document.get("type") if isinstance(document, dict) else None
    fields = kinds.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise ProtocolError(f"no line of this protocol: {text[:_SHOWN_CHARS]!r}")
    given = {name: value for name, value in document.items() if name != "type"}
    wrong = {name for name in given.keys() & fields.keys() if not _is(given[name], fields[name])}
    if wrong or given.keys() != fields.keys():
        raise ProtocolError(f"a {kind} line with wrong fields: {sorted(wrong | (given.keys() ^ fields.keys()))}")
    return {"type": kind, **given}


def _is(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


TO_WORKER: dict[str, dict[str, Any]] = {
    "request": {"id": int, "messages": list, "max_tokens": int},
    "cancel": {"id": int},
    "stop": {},
}
FROM_WORKER: dict[str, dict[str, Any]] = {
    "hello": {"protocol": int, "model": str},
    "ready": {"versions": dict},
    "progress": {"id": int, "text": str},
    "reply": {"id": int, "text": str, "tokens": int, "stopped": str},
    "error": {"id": (int, type(None)), "status": str, "detail": str},
}


def request_in(document: dict[str, Any]) -> Request:
    """The request in a line.

    Raises:
        ProtocolError: when a message is none.
    """
    return Request(document["id"], tuple(_said(said) for said in document["messages"]), document["max_tokens"])


def _said(document: Any) -> Said:
    if not isinstance(document, dict) or document.keys() != {"role", "parts"} or document["role"] not in _ROLES:
        raise ProtocolError("a message is a role and its parts")
    if not isinstance(document["parts"], list) or not document["parts"]:
        raise ProtocolError("a message without parts")
    return Said(document["role"], tuple(_part(part) for part in document["parts"]))


def _part(document: Any) -> str | bytes:
    if isinstance(document, dict) and len(document) == 1:
        [(kind, value)] = document.items()
        if kind == "text" and isinstance(value, str):
            return value
        if kind == "wav" and isinstance(value, str):
            try:
                return base64.b64decode(value, validate=True)
            except binascii.Error:
                raise ProtocolError("a sound that is no base64") from None
    raise ProtocolError("a part is a text or a wav")


# The worker's side ---------------------------------------------------------------------------------------------------


def serve(model: str, load: Callable[[], Loaded]) -> int:
    """Be a worker until the input ends or says so.

    Args:
        model: which model this is.
        load: loads it. Everything heavy is imported in there.

    Returns:
        The exit status.
    """
    out = _Out()
    out.say("hello", protocol=PROTOCOL, model=model)
    inbox = _Inbox()
    # The folder that this file was found in may hold other versions of all that the model needs.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != _ROOT]
    os.environ.pop("PYTHONPATH", None)
    try:
        loaded = load()
    except Exception as error:
        out.say("error", id=None, status=_status(error), detail=_shown(error))
        return 1
    out.say("ready", versions=loaded.versions)
    while (request := inbox.next()) is not None:
        turn = Turn(request, partial(out.progress, request.id))
        inbox.working_on(turn)
        try:
            replied = loaded.reply(turn)
        except Exception as error:
            out.say("error", id=request.id, status=_status(error), detail=_shown(error))
        else:
            out.say("reply", id=request.id, text=replied.text, tokens=replied.tokens, stopped=replied.stopped)
    return 0


def _status(error: Exception) -> str:
    if isinstance(error, WorkerError):
        return error.status
    return OUT_OF_MEMORY if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ else SERVER_ERROR


def _shown(error: Exception) -> str:
    text = str(error) if isinstance(error, WorkerError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:_SHOWN_CHARS]


class _Out:
    """Standard output, for lines alone: what libraries print there goes to standard error from now on."""

    def __init__(self) -> None:
        self._file: TextIO = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", newline="\n", buffering=1)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(self, kind: str, **fields: object) -> None:
        self._file.write(line(kind, **fields) + "\n")

    def progress(self, number: int, text: str) -> None:
        self.say("progress", id=number, text=text)


class _Inbox:
    """Reads standard input in a thread, so that a reply can be cancelled while it is written."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._turn: Turn | None = None
        self._cancelled: set[int] = set()
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> Request | None:
        """The next request, or None at the end."""
        return self._requests.get()

    def working_on(self, turn: Turn) -> None:
        """From now on cancelling means this turn."""
        with self._lock:
            self._turn = turn
            if self._ended or turn.request.id in self._cancelled:
                turn.cancelled.set()
            self._cancelled.discard(turn.request.id)

    def _read(self) -> None:
        try:
            with open(sys.stdin.fileno(), encoding="utf-8", closefd=False) as lines:
                self._take(lines)
        except ValueError as error:  # no line of the protocol, or no text at all
            print(f"input: {error}", file=sys.stderr)
        with self._lock:
            self._ended = True
            if self._turn is not None:
                self._turn.cancelled.set()
        self._requests.put(None)

    def _take(self, lines: TextIO) -> None:
        for text in lines:
            document = parsed(text, TO_WORKER)
            if document["type"] == "stop":
                return
            if document["type"] == "cancel":
                self._cancel(document["id"])
            else:
                self._requests.put(request_in(document))

    def _cancel(self, number: int) -> None:
        with self._lock:
            if self._turn is not None and self._turn.request.id == number:
                self._turn.cancelled.set()
            else:
                self._cancelled.add(number)
