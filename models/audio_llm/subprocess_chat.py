"""A model in a process of its own as an ``AudioChat``: for models whose pins cannot live beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.audio_llm.conversation import (
    AudioPart,
    BackendError,
    BackendTimeoutError,
    Limits,
    Message,
    Reply,
    Status,
    Stop,
    Stopped,
    check_messages,
)
from models.audio_llm.endpoint_exchange import deadline
from models.audio_llm.remote_workers.protocol import PROTOCOL, STATUSES, STOPPED
from models.audio_llm.subprocess_worker import Ended, Late, WorkerProcess
from models.audio_llm.wire_audio import wav_base64
from models.protocols import ModelId

_SHOWN_CHARS = 200


class SubprocessChat:
    """Implements ``AudioChat`` and ``Primable``. The process starts with the first call, and anew after it has ended.

    Args:
        command: what to run.
        served: the model that the worker must say it serves.
        model: for the record.
        limits: what it takes.
        environ: the process's environment; see ``WorkerProcess``.
        log: where its standard error goes; None keeps it in a temporary file.
        timeout_s: how long a reply may take.
        load_timeout_s: how long loading may take.
        grace_s: how long a reply that came too late, or the process when it is told to stop, may take to end.
    """

    def __init__(
        self, command: Sequence[str], served: str, model: ModelId, limits: Limits, *, environ: Mapping[str, str],
        log: Path | None = None, timeout_s: float = 120.0, load_timeout_s: float = 900.0, grace_s: float = 5.0,
    ) -> None:  # fmt: skip
        self._command = list(command)
        self._served = served
        self._model = model
        self._limits = limits
        self._environ = dict(environ)
        self._log = log
        self._timeout_s = timeout_s
        self._load_timeout_s = load_timeout_s
        self._grace_s = grace_s
        self._worker: WorkerProcess | None = None
        self._versions = ""
        self._number = 0

    @property
    def model(self) -> ModelId:
        """See ``AudioChat``."""
        return self._model

    @property
    def limits(self) -> Limits:
        """See ``AudioChat``."""
        return self._limits

    def prime(self, messages: Sequence[Message]) -> None:
        """Load the model now; nothing is read ahead.

        Raises:
            BackendError: when it cannot be loaded.
        """
        self._running()

    def reply(self, messages: Sequence[Message], max_tokens: int, stop: Stop | None = None) -> Reply:
        """See ``AudioChat``. A process that ends meanwhile is CRASHED; the next call starts another."""
        check_messages(messages, self._limits)
        worker = self._running()
        self._number += 1
        number = self._number
        worker.say("request", id=number, messages=[_said(message) for message in messages], max_tokens=max_tokens)
        with deadline(self._timeout_s, lambda: worker.ring(number)):
            while True:
                match self._next(worker, number):
                    case {"type": "progress", "text": str(text)} if stop is not None and stop(text):
                        worker.say("cancel", id=number)
                        return Reply(text, 0, Stopped.DECIDED, self._versions)
                    case {"type": "progress"}:
                        pass
                    case {"type": "reply", "text": str(text), "tokens": int(tokens), "stopped": str(stopped)} if (
                        stopped in STOPPED[:2]
                    ):
                        return Reply(text, tokens, Stopped(stopped), self._versions)
                    case {"type": "error", "id": int(), "status": str(status), "detail": str(detail)} if (
                        status in STATUSES
                    ):
                        raise BackendError(status, detail)
                    case Late():
                        self._give_up(worker, number)
                    case other:
                        raise self._out_of_turn(worker, other)

    def close(self) -> None:
        """Ask the process to stop, and end it if it does not."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        worker.say("stop")
        if not worker.wait(self._grace_s):
            worker.kill()
        worker.close_log()

    def _running(self) -> WorkerProcess:
        if self._worker is None:
            try:
                self._worker = WorkerProcess(self._command, self._environ, self._log)
            except OSError as error:
                raise BackendError(Status.UNREACHABLE, f"the worker cannot be started: {error}") from error
            self._greet(self._worker)
        return self._worker

    def _greet(self, worker: WorkerProcess) -> None:
        """Read what a worker says until its model is loaded."""
        greeted = False
        with deadline(self._load_timeout_s, lambda: worker.ring(0)):
            while True:
                match self._next(worker, 0):
                    case {"type": "hello", "protocol": int(protocol), "model": str(name)} if not greeted:
                        if protocol != PROTOCOL or name != self._served:
                            why = f"it serves {name} by protocol {protocol}, not {self._served} by {PROTOCOL}"
                            raise self._ended(worker, Status.WRONG_INPUT, why)
                        greeted = True
                    case {"type": "ready", "versions": dict(versions)} if greeted:
                        self._versions = ", ".join(f"{name} {version}" for name, version in versions.items())
                        return
                    case {"type": "error", "id": None, "status": str(status), "detail": str(detail)} if (
                        status in STATUSES
                    ):
                        raise self._ended(worker, status, f"loading failed: {detail}")
                    case Late():
                        detail = f"the model was not loaded after {self._load_timeout_s:g} s"
                        raise self._ended(worker, Status.TIMEOUT, detail)
                    case other:
                        raise self._out_of_turn(worker, other)

    def _next(self, worker: WorkerProcess, number: int) -> dict[str, Any] | Late:
        """What comes next about a request. What is still said of earlier ones is left out.

        Raises:
            BackendError: CRASHED when the process has ended; BAD_REPLY when it does not keep to the protocol.
        """
        while True:
            event = worker.next()
            if isinstance(event, Ended):
                if event.why:
                    raise self._ended(worker, Status.BAD_REPLY, event.why)
                worker.wait(self._grace_s)
                raise self._ended(worker, Status.CRASHED, worker.last_words())
            about = event.number if isinstance(event, Late) else event.get("id")
            if about is None or about >= number:
                return event

    def _give_up(self, worker: WorkerProcess, number: int) -> None:
        """Time is over: wait a little for the reply's end, so that the loaded model can be kept.

        Raises:
            BackendError: always.
        """
        late = BackendTimeoutError(f"no reply after {self._timeout_s:g} s")
        worker.say("cancel", id=number)
        with deadline(self._grace_s, lambda: worker.ring(number)):
            while True:
                match self._next(worker, number):
                    case {"type": "progress"}:
                        pass
                    case {"type": "reply" | "error"}:
                        raise late
                    case _:
                        raise self._ended(worker, Status.TIMEOUT, late.detail)

    def _out_of_turn(self, worker: WorkerProcess, line: object) -> BackendError:
        return self._ended(worker, Status.BAD_REPLY, f"the worker says {str(line)[:_SHOWN_CHARS]} out of turn")

    def _ended(self, worker: WorkerProcess, status: str, detail: str) -> BackendError:
        """End a process that cannot be used any more; the error to raise."""
        self._worker = None
        worker.kill()
        worker.close_log()
        return BackendTimeoutError(detail) if status == Status.TIMEOUT else BackendError(status, detail)


def _said(message: Message) -> dict[str, Any]:
    parts = [
        {"wav": wav_base64(part.audio)} if isinstance(part, AudioPart) else {"text": part.text}
        for part in message.parts
    ]
    return {"role": str(message.role), "parts": parts}
