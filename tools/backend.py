"""What carries a call out. The stub records what a real one would have done; it is the default, and harmless.

Only ``tools.executor`` calls ``perform``.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tools.spec import ToolSpec


class OutcomeUnknownError(Exception):
    """A back end cannot tell whether the call took effect (sent, but no reply). Ends in ``outcome_unknown``."""


class Backend(Protocol):
    """Carries validated calls out.

    The executor runs each call once and never again, whatever it raises. A back end that talks to a remote service
    hands ``key`` on as that service's idempotency key. It may be left running after its time limit, and may be
    cancelled when the program ends.
    """

    async def perform(self, tool: ToolSpec, *, key: str) -> str:
        """Carry one call out.

        Args:
            tool: the validated call.
            key: its idempotency key.

        Returns:
            One line for the journal, free of secrets.

        Raises:
            OutcomeUnknownError: when it may or may not have taken effect.
            Exception: when it did not take effect.
        """
        ...


@dataclass(frozen=True, slots=True)
class StubEffect:
    """What a real back end would have done.

    Attributes:
        key: the call's idempotency key.
        tool: the tool's name.
        params: the arguments that take effect, defaults included.
        summary: the call as a sentence.
    """

    key: str
    tool: str
    params: dict[str, Any]
    summary: str


Hook = Callable[[ToolSpec], Awaitable[None]]
"""Runs before or after a stub's effect; it may wait (a slow device) or raise (a broken one)."""


class StubBackend:
    """Does nothing in the world and records each call.

    Args:
        log: a JSON Lines file to which each effect is appended, one write a line, readable by its owner only.
        before: runs before the effect is recorded; raising keeps it from happening.
        after: runs after the effect is recorded; raising then is a failure whose effect has landed.
    """

    def __init__(self, *, log: Path | None = None, before: Hook | None = None, after: Hook | None = None) -> None:
        self._log = log
        self._before = before
        self._after = after
        self._effects: list[StubEffect] = []

    @property
    def effects(self) -> tuple[StubEffect, ...]:
        """Every effect so far, in order."""
        return tuple(self._effects)

    async def perform(self, tool: ToolSpec, *, key: str) -> str:
        """Record the call."""
        if self._before is not None:
            await self._before(tool)
        effect = StubEffect(key, tool.facts.name, tool.arguments(), tool.summary())
        if self._log is not None:
            await asyncio.to_thread(_append_line, self._log, effect)
        self._effects.append(effect)
        if self._after is not None:
            await self._after(tool)
        return f"recorded only: {effect.summary}"


class OwnBackend:
    """Runs what tools bring themselves and hands every other call on.

    A tool brings its own effect by defining ``perform(self, *, key: str) -> str``. Written ``async def`` it runs on the
    event loop; written ``def`` it runs in a thread of its own, so that blocking code cannot make the gate deaf.

    Args:
        otherwise: carries out the tools that have no ``perform``.
    """

    def __init__(self, otherwise: Backend) -> None:
        self._otherwise = otherwise

    async def perform(self, tool: ToolSpec, *, key: str) -> str:
        """Carry the call out."""
        own = getattr(type(tool), "perform", None)
        if own is None:
            return await self._otherwise.perform(tool, key=key)
        result = own(tool, key=key) if inspect.iscoroutinefunction(own) else _in_a_thread(lambda: own(tool, key=key))
        return str(await result)


def _append_line(path: Path, effect: StubEffect) -> None:
    line = {"key": effect.key, "tool": effect.tool, "params": effect.params, "summary": effect.summary}
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        # One write of the whole line: a kill leaves the line or nothing of it.
        os.write(descriptor, f"{json.dumps(line, ensure_ascii=False)}\n".encode())
    finally:
        os.close(descriptor)


def _in_a_thread(work: Callable[[], object]) -> asyncio.Future[object]:
    """Run ``work`` in a daemon thread: unlike a pool's, it cannot keep the program from ending when it hangs."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()

    def deliver(result: object, error: Exception | None) -> None:
        if done.done():  # cancelled meanwhile
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result: object = None
        failure: Exception | None = None
        try:
            result = work()
        except BaseException as error:
            # A future cannot carry StopIteration, and a tool's SystemExit must not end the program.
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                failure = error
            else:
                failure = RuntimeError(f"{type(error).__name__}: {error}")
        with contextlib.suppress(RuntimeError):  # the loop has closed; nobody waits any more
            loop.call_soon_threadsafe(deliver, result, failure)

    threading.Thread(target=run, daemon=True, name="voicegate-tool").start()
    return done
