"""Events to an MQTT broker, and one thing back: a mute switch that can only make the gate stricter.

What is published, and the one topic that is listened to, is described in ``docs/mqtt.md``. Nothing that arrives here
can execute anything: the sink holds nothing but ``hold`` and ``release`` of the executor, and releases no hold that it
did not set itself.

The broker is never waited for: events go into a bounded queue, one task connects, publishes and connects again. It says
one line for each change, not one for each attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

from agent import events
from agent.clock import Clock, unix_time_s, within_s
from agent.events import Event
from agent.mqtt_connection import BrokerError, Connection, Connector, Inbound, Trouble, open_connection
from agent.mqtt_discovery import discovery_config
from agent.mqtt_messages import (
    LISTENING,
    OFF,
    OFFLINE,
    ON,
    ONLINE,
    Topics,
    as_json,
    decision_fields,
    event_message,
)
from agent.mqtt_outbox import Outbox
from agent.mqtt_settings import MqttSettings, ToolsOff

FIRST_RETRY_S = 1.0
LAST_RETRY_S = 60.0
"""Waits between attempts double from the first to the last. Without chance: a session can be replayed."""
SETTLED_S = 10.0
"""A connection that lasted this long ends the doubling."""
STABLE_S = 120.0
"""One that lasted this long is nobody else's: see ``HANG_UPS``."""
HANG_UPS = 3
"""When the broker hangs up so often in a row, each time soon after it let us in, two clients with one id are throwing
each other out; brokers need not say so."""
FIRST_YIELD_S = 600.0
LAST_YIELD_S = 86_400.0
"""How long we then leave the other one alone, doubling each time."""
CLOSE_LIMIT_S = 1.5
"""What ``aclose`` gives to the last events. With hanging up it ends within 2 s."""

BROKER_HOLD = "mqtt"
MUTE_HOLD = "mqtt_mute"
"""The sources under which the executor's holds are set."""

Say = Callable[[str, str], None]
"""Takes a code and a sentence."""

_log = logging.getLogger(__name__)


class ToolHolds(Protocol):
    """The executor as seen from here: tools can be kept off, and that can be taken back. Nothing else."""

    def hold(self, source: str, reason: str) -> None:
        """Keep tools off until ``release(source)``."""
        ...

    def release(self, source: str) -> None:
        """Take ``hold(source)`` back."""
        ...


class MqttSink:
    """Publishes a session's events.

    Args:
        settings: the broker and what it is told.
        clock: waits between attempts, and how long events waited, are measured on it; real time.
        unix_s: stamps messages.
        connect: opens a connection.
    """

    wants_levels = False

    def __init__(
        self,
        settings: MqttSettings,
        clock: Clock,
        *,
        unix_s: Callable[[], float] = unix_time_s,
        connect: Connector = open_connection,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._unix_s = unix_s
        self._connect = connect
        self._topics = Topics(settings.topic)
        self._outbox = Outbox(settings.queue_messages)
        self._retained: dict[str, str] = {}
        self._unsent: set[str] = set()
        self._last_decision: dict[str, object] = {}
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._holds: ToolHolds | None = None
        self._say_outside: Say | None = None
        self._task: asyncio.Task[None] | None = None
        self._muted = False
        self._dropping = False
        self._trouble = ""
        self._ignored: dict[str, int] = {}
        self._connected_s: float | None = None
        self._hang_ups = 0
        self._retry_s = FIRST_RETRY_S
        self._yield_s = FIRST_YIELD_S

    # Used by the session ------------------------------------------------------------------------------------------

    def start(self, holds: ToolHolds, say: Say | None = None) -> None:
        """Begin to connect. Call it once, inside the running event loop, before the session's first event.

        Args:
            holds: the session's executor.
            say: takes what is to be said, one line for each change; the log by default.
        """
        self._holds = holds
        self._say_outside = say
        if self._settings.tools_off is not ToolsOff.NEVER:
            holds.hold(BROKER_HOLD, f"the broker {self._settings.address} has not been reached yet")
        self._muted = self._settings.mute_file is not None and self._settings.mute_file.exists()
        if self._muted:
            holds.hold(MUTE_HOLD, "switched off over MQTT, before this start")
        self._retain(self._topics.mute_state, ON if self._muted else OFF)
        self._retain(self._topics.state, ONLINE)
        if self._settings.home_assistant:
            self._retain(*discovery_config(self._settings, self._topics))
        self._task = asyncio.create_task(self._run(), name="voicegate-mqtt")

    def emit(self, event: Event) -> None:
        """Queue one event; returns at once. Levels are not published."""
        if isinstance(event, events.Level) or self._stopping.is_set():
            return
        unix_s = self._unix_s()
        if not self._outbox.put(event, self._clock.now_s(), unix_s) and not self._dropping:
            self._dropping = True
            # Not from in here: what is said becomes an event itself, and would overtake this one in other outputs.
            asyncio.get_running_loop().call_soon(
                self._say,
                "dropping",
                f"{self._outbox.limit} events wait for the broker; the oldest are dropped, decisions and effects last",
            )
        self._note(event, unix_s)
        self._wake.set()

    async def aclose(self) -> None:
        """Publish what waits, say goodbye and hang up; within 2 s. What could not be published is said to be lost."""
        self._stopping.set()
        self._wake.set()
        task, self._task = self._task, None
        if task is not None:
            try:
                await within_s(asyncio.shield(task), CLOSE_LIMIT_S)
            except TimeoutError:
                pass
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait({task})
                self._tell_lost()

    # Connecting ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        if self._settings.tls is not None and self._settings.tls.insecure:
            self._say("insecure", "the broker's certificate is not checked, because the settings say so")
        try:
            await self._stay_connected()
        except Exception as error:
            # A fault of ours. The switch is dead and nobody sees what happens: nothing more is executed.
            _log.exception("the MQTT output failed")
            self._say("failed", f"the MQTT output failed and has ended ({type(error).__name__}); tools are off")
            self._hold(f"the MQTT output failed ({type(error).__name__})")

    async def _stay_connected(self) -> None:
        while True:
            is_last_attempt = self._stopping.is_set()
            self._connected_s = None
            error = await self._one_connection()
            if error is None:
                return
            lasted_s = 0.0 if self._connected_s is None else self._clock.now_s() - self._connected_s
            if lasted_s >= SETTLED_S:
                self._retry_s = FIRST_RETRY_S
            if lasted_s >= STABLE_S:
                self._hang_ups, self._yield_s = 0, FIRST_YIELD_S
            has_twin = self._has_twin(error)
            if has_twin:
                pause_s, self._yield_s = self._yield_s, min(2 * self._yield_s, LAST_YIELD_S)
            else:
                pause_s, self._retry_s = self._retry_s, min(2 * self._retry_s, LAST_RETRY_S)
            self._broken(error, pause_s if has_twin else None)
            if is_last_attempt:
                return
            await _first(self._clock.sleep_s(pause_s), self._stopping.wait())
            # A goodbye is no reason to throw the other client out.
            if self._stopping.is_set() and (has_twin or not self._outbox):
                return

    def _has_twin(self, error: BrokerError) -> bool:
        """Whether another client seems to use our id."""
        self._hang_ups = self._hang_ups + 1 if error.trouble is Trouble.HUNG_UP else 0
        return error.trouble is Trouble.TAKEN_OVER or self._hang_ups >= HANG_UPS

    async def _one_connection(self) -> BrokerError | None:
        """Connect and publish until the connection breaks, or until all is said and we are to stop (None)."""
        try:
            connection = await self._connect(self._settings, will=(self._topics.state, OFFLINE))
            is_done = False
            try:
                await self._use(connection)
                is_done = True
            finally:
                # Whoever could not say "offline" leaves it to the last will.
                await connection.close(goodbye=is_done)
        except BrokerError as error:
            # Without its traceback, which would keep a half-open socket alive until the next attempt.
            return BrokerError(error.trouble, str(error))
        return None

    async def _use(self, connection: Connection) -> None:
        tasks = [asyncio.create_task(self._receive(connection)), asyncio.create_task(self._send(connection))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(tasks)
        for error in [task.exception() for task in tasks if not task.cancelled()]:
            if error is not None:
                raise error

    def _connected(self, may_listen: bool) -> None:
        self._connected_s = self._clock.now_s()
        self._trouble = ""
        self._unsent = set(self._retained)
        if self._holds is not None:
            self._holds.release(BROKER_HOLD)
        self._say("connected", f"connected as {self._settings.client_id}")
        if not may_listen:
            self._say("no_switch", f"the broker does not let us read {self._topics.mute_set}: no mute switch")

    def _broken(self, error: BrokerError, yields_s: float | None) -> None:
        """Say what changed, once.

        Args:
            error: why there is no connection.
            yields_s: how long another client with our id is left alone, or None when there is none.
        """
        if self._settings.tools_off is ToolsOff.WHILE_DISCONNECTED:
            self._hold(f"the broker {self._settings.address} is away")
        code, text = str(error.trouble), str(error)
        if yields_s is not None:
            code = str(Trouble.TAKEN_OVER)
            if error.trouble is Trouble.HUNG_UP:
                text = f"{text} soon after connecting, again and again; another client seems to connect as "
                text += repr(self._settings.client_id)
            text += f". Each gate needs a client_id of its own; this one stays away for {yields_s / 60:g} minutes"
        elif error.trouble in (Trouble.HUNG_UP, Trouble.LOST):
            text += f"; connecting again, up to {self._outbox.limit} events wait"
        else:
            text += f"; trying again, at least every {LAST_RETRY_S:g} s"
        if text != self._trouble:
            self._trouble = text
            self._say(code, text)

    # Publishing ---------------------------------------------------------------------------------------------------

    async def _send(self, connection: Connection) -> None:
        """Subscribe, then publish what waits, retained topics first; return when all is sent and we are to stop."""
        self._connected(await connection.subscribe(self._topics.mute_set))
        while True:
            topic = next((topic for topic in self._retained if topic in self._unsent), None)
            if topic is not None:
                self._unsent.discard(topic)
                await connection.publish(topic, self._retained[topic], retain=True)
            elif self._outbox:
                await self._send_event(connection)
            elif self._dropping:
                self._dropping = False
                self._say("dropped", f"{self._outbox.dropped} events were dropped in this session so far")
            elif self._stopping.is_set():
                await connection.publish(self._topics.state, OFFLINE, retain=True)
                return
            else:
                await self._wake.wait()
                self._wake.clear()

    async def _send_event(self, connection: Connection) -> None:
        waiting = self._outbox.take()
        dropped = self._outbox.untold
        try:
            message = event_message(
                waiting,
                transcripts=self._settings.transcripts,
                now_s=self._clock.now_s(),
                late_after_s=self._settings.late_after_s,
                dropped_before=dropped,
            )
        except ValueError as error:
            self._say("unpublishable", f"event {waiting.event.seq} ({waiting.event.event}) cannot be written: {error}")
            return
        try:
            await connection.publish(self._topics.event(waiting.event), message, retain=False)
        except BaseException:
            # Perhaps the broker has it already. Twice with one id is better than never.
            self._outbox.give_back(waiting)
            raise
        self._outbox.told(dropped)

    def _note(self, event: Event, unix_s: float) -> None:
        """Keep the retained topics up to date. Never fails: it runs inside ``emit``."""
        match event:
            case events.SessionStarted():
                self._retain(self._topics.state, LISTENING)
            case events.SessionEnded():
                self._retain(self._topics.state, ONLINE)
            case events.Decided():
                # One that cannot be written is said when its event is.
                with contextlib.suppress(ValueError):
                    self._last_decision = decision_fields(event, unix_s=unix_s, transcripts=self._settings.transcripts)
                    self._retain(self._topics.last_decision, as_json(self._last_decision))
            case events.Executed() | events.LateResult() if event.turn == self._last_decision.get("turn"):
                self._last_decision["outcome"] = event.outcome
                self._retain(self._topics.last_decision, as_json(self._last_decision))
            case _:
                pass

    def _retain(self, topic: str, payload: str) -> None:
        if self._retained.get(topic) != payload:
            self._retained[topic] = payload
            self._unsent.add(topic)

    # Listening ----------------------------------------------------------------------------------------------------

    async def _receive(self, connection: Connection) -> None:
        async for message in connection.messages():
            why_not = _why_not(message, self._topics.mute_set)
            if why_not:
                self._ignore(why_not)
            else:
                self._mute(message.payload == ON.encode())
        raise BrokerError(Trouble.HUNG_UP, "the broker hung up")

    def _mute(self, on: bool) -> None:
        if on != self._muted:
            self._muted = on
            if on:
                self._hold_mute("switched off over MQTT")
            elif self._holds is not None:
                self._holds.release(MUTE_HOLD)
            self._remember_mute(on)
            self._say("muted" if on else "unmuted", f"tools are switched {'off' if on else 'on again'} over MQTT")
        self._retain(self._topics.mute_state, ON if on else OFF)
        # Also when nothing changed: who pressed the switch waits for an answer.
        self._unsent.add(self._topics.mute_state)
        self._wake.set()

    def _remember_mute(self, on: bool) -> None:
        file = self._settings.mute_file
        if file is None:
            return
        try:
            if on:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch(mode=0o600)
            else:
                file.unlink(missing_ok=True)
        except OSError as error:
            self._say("mute_not_kept", f"the mute switch will be as before after a restart: {error}")

    def _ignore(self, why: str) -> None:
        """Say that a message was ignored: the first time, the tenth, the hundredth."""
        count = self._ignored[why] = self._ignored.get(why, 0) + 1
        if str(count).rstrip("0") == "1":
            times = "" if count == 1 else f" ({count} times now)"
            self._say("ignored", f"a message on {self._topics.mute_set} was ignored: {why}{times}")

    # Saying -------------------------------------------------------------------------------------------------------

    def _hold(self, reason: str) -> None:
        if self._holds is not None:
            self._holds.hold(BROKER_HOLD, reason)

    def _hold_mute(self, reason: str) -> None:
        if self._holds is not None:
            self._holds.hold(MUTE_HOLD, reason)

    def _say(self, code: str, text: str) -> None:
        line = f"MQTT {self._settings.address}: {text}"
        if self._say_outside is None or self._stopping.is_set():
            # When the session ends, the other outputs may be closed already.
            _log.warning("%s", line)
            return
        try:
            self._say_outside(code, line)
        except Exception:
            _log.exception("another output failed on: %s", line)

    def _tell_lost(self) -> None:
        if self._outbox:
            self._say("lost_events", f"{len(self._outbox)} events could not be published and are lost to the broker")


def _why_not(message: Inbound, topic: str) -> str:
    """Why a message is no command, or the empty string. A closed list: it is counted by it."""
    if message.topic != topic:
        return "it was published somewhere else"
    if message.retained:
        return "it was retained, so it may be old; publish it without retain"
    if message.qos != 0:
        return "it came with a QoS that was not asked for, so it may be a repetition"
    if message.payload not in (ON.encode(), OFF.encode()):
        return "it was neither ON nor OFF"
    return ""


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until one of them is over; end the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(tasks)


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end.

    Once is not enough: up to Python 3.11 ``asyncio.wait_for``, which aiomqtt waits with, forgets a cancellation that
    comes together with the answer. For the same reason nothing of aiomqtt is awaited outside such tasks.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.01)
