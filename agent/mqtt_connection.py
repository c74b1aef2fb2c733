"""One connection to a broker, through aiomqtt: opened, used, closed; whatever goes wrong becomes a ``BrokerError``.

aiomqtt opens its socket in a thread of the event loop's pool, and its client keeps the socket and a task when opening
fails half-way (no CONNACK). Both are dealt with here: a socket's time limit is set, and every way out hangs up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import aiomqtt
import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from agent.mqtt_settings import MqttSettings, MqttSettingsError

SOCKET_LIMIT_S = 1.5
"""For each of TCP's and TLS's handshakes. They run in a thread that cannot be interrupted, so this is also what a
Ctrl-C may have to wait for."""
ANSWER_LIMIT_S = 5.0
"""For the broker's answer to our introduction; it may have to ask somewhere else about a password."""
ACK_LIMIT_S = 10.0
"""For its answer to a message."""
MAX_INBOUND_BYTES = 65_536
"""We ask an MQTT 5 broker to send nothing longer."""
MAX_INBOUND_QUEUE = 64

_UNSUPPORTED_PROTOCOL = 132
_BAD_CLIENT_ID = 133
_BAD_PASSWORD = 134
_NOT_AUTHORIZED = 135
_TAKEN_OVER = 142
_FIRST_FAILURE = 128
_UNSPECIFIED = 128
"""Reason codes of MQTT 5; paho translates those of 3.1.1."""
_TIMED_OUT = "Operation timed out"
"""aiomqtt's only mark of a limit that passed."""

_CONNECTION_ERRORS = (aiomqtt.MqttError, OSError)

_wire_log = logging.getLogger("agent.mqtt.wire")
_wire_log.setLevel(logging.CRITICAL)  # what matters of it is said once, by the sink


class Trouble(StrEnum):
    """Kinds of failures that a person treats differently."""

    UNREACHABLE = "unreachable"
    """Nobody answers at that address."""
    REFUSED = "refused"
    """The broker does not take us: name, password, client id."""
    TLS = "tls"
    """The two do not agree on encryption or on a certificate."""
    PROTOCOL = "protocol"
    """The two do not speak the same version."""
    SETTINGS = "settings"
    """A file or a variable with our password or certificate cannot be read."""
    TAKEN_OVER = "taken_over"
    """Another client has connected with our id."""
    HUNG_UP = "hung_up"
    """The other end closed the connection without a reason: it ended, or, with brokers that do not say so (MQTT 3.1.1,
    mosquitto before 2.1), another client has connected with our id."""
    LOST = "lost"
    """The broker ended the connection with a reason, or stopped answering on it."""


class BrokerError(Exception):
    """The broker cannot be used, or not any more.

    Attributes:
        trouble: which kind.
    """

    def __init__(self, trouble: Trouble, text: str) -> None:
        super().__init__(text)
        self.trouble = trouble


@dataclass(frozen=True, slots=True)
class Inbound:
    """A message that the broker sent us.

    Attributes:
        topic: where it was published.
        payload: its bytes.
        retained: True when the broker had it in store: nobody sent it now.
        qos: as delivered; we ask for 0, so anything else was not meant for us. A repeated delivery (DUP) is never 0.
    """

    topic: str
    payload: bytes
    retained: bool
    qos: int


class Connection(Protocol):
    """What the sink does with an open connection. Each method raises ``BrokerError`` when the connection is gone."""

    async def subscribe(self, topic: str) -> bool:
        """Ask for a topic's messages, QoS 0; False when the broker does not allow it."""
        ...

    async def publish(self, topic: str, payload: str, *, retain: bool) -> None:
        """Publish with QoS 1; returns when the broker has acknowledged."""
        ...

    def messages(self) -> AsyncIterator[Inbound]:
        """The messages of the topics asked for; ends only with an error."""
        ...

    async def close(self, *, goodbye: bool) -> None:
        """Hang up; quick, also when the broker does not answer. Without a goodbye the broker publishes our will."""
        ...


class Connector(Protocol):
    """Opens a connection; raises ``BrokerError``."""

    async def __call__(self, settings: MqttSettings, *, will: tuple[str, str] | None = None) -> Connection:
        """Connect.

        Args:
            settings: the broker.
            will: topic and payload of what the broker publishes, retained, when we vanish.
        """
        ...


async def open_connection(settings: MqttSettings, *, will: tuple[str, str] | None = None) -> Connection:
    """Connect to the broker, with nothing kept there from an earlier connection.

    Args:
        settings: the broker.
        will: topic and payload of what the broker publishes, retained, when we vanish.

    Raises:
        BrokerError: when it cannot be done; says why in words for people, without the password.
    """
    _need_watchable_sockets()
    client = await _make_client(settings, will)
    entering = asyncio.ensure_future(client.__aenter__())
    try:
        await asyncio.shield(entering)
    except asyncio.CancelledError:
        await _abandon(client, entering)
        raise
    except Exception as error:
        closed_by_broker = _paho(client).socket() is None
        await _hang_up(client)
        raise _explain(error, settings, closed_by_broker) from error
    return _AiomqttConnection(client, settings)


class _AiomqttConnection:
    """An open connection."""

    def __init__(self, client: aiomqtt.Client, settings: MqttSettings) -> None:
        self._client = client
        self._settings = settings

    async def subscribe(self, topic: str) -> bool:
        try:
            granted = await self._client.subscribe(topic, qos=0, timeout=ACK_LIMIT_S)
        except _CONNECTION_ERRORS as error:
            raise _lost(error, self._settings) from error
        return all((code if isinstance(code, int) else code.value) < _FIRST_FAILURE for code in granted)

    async def publish(self, topic: str, payload: str, *, retain: bool) -> None:
        try:
            await self._client.publish(topic, payload, qos=1, retain=retain, timeout=ACK_LIMIT_S)
        except _CONNECTION_ERRORS as error:
            raise _lost(error, self._settings) from error

    async def messages(self) -> AsyncIterator[Inbound]:
        try:
            async for message in self._client.messages:
                payload = message.payload if isinstance(message.payload, bytes) else str(message.payload).encode()
                yield Inbound(str(message.topic), payload, bool(message.retain), message.qos)
        except _CONNECTION_ERRORS as error:
            raise _lost(error, self._settings) from error

    async def close(self, *, goodbye: bool) -> None:
        await _hang_up(self._client, goodbye=goodbye)


async def _make_client(settings: MqttSettings, will: tuple[str, str] | None) -> aiomqtt.Client:
    try:
        password = settings.password()
        # Reading the system's authorities takes long enough to be heard in the audio's timing.
        context = None if settings.tls is None else await asyncio.to_thread(settings.tls.context)
    except MqttSettingsError as error:
        raise BrokerError(Trouble.SETTINGS, str(error)) from error
    version_5 = settings.protocol == "5"
    properties = None
    if version_5:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.MaximumPacketSize = MAX_INBOUND_BYTES
    client = aiomqtt.Client(
        settings.host,
        settings.port_used,
        identifier=settings.client_id,
        username=settings.username,
        password=password,
        protocol=aiomqtt.ProtocolVersion.V5 if version_5 else aiomqtt.ProtocolVersion.V311,
        # Nothing may wait for us at the broker: a command sent while we were away must not arrive later.
        clean_session=None if version_5 else True,
        clean_start=True if version_5 else paho.MQTT_CLEAN_START_FIRST_ONLY,
        properties=properties,
        will=None if will is None else aiomqtt.Will(will[0], will[1], qos=1, retain=True),
        tls_context=context,
        timeout=ANSWER_LIMIT_S,
        keepalive=settings.keepalive_s,
        max_queued_incoming_messages=MAX_INBOUND_QUEUE,
        logger=_wire_log,
    )
    _paho(client).connect_timeout = SOCKET_LIMIT_S
    return client


def _paho(client: aiomqtt.Client) -> paho.Client:
    # aiomqtt offers neither a limit for the socket nor a way to hang up before the broker has answered.
    return client._client


async def _abandon(client: aiomqtt.Client, entering: asyncio.Future[aiomqtt.Client]) -> None:
    """Leave a connection that is being opened."""
    dialled = _paho(client)
    if not entering.done() and dialled.socket() is None:
        # The thread is still dialling and cannot be stopped: it shall drop what it gets, and tell no event loop.
        dialled.on_socket_register_write = None
        dialled.on_socket_close = None
        dialled.on_socket_open = _drop
    entering.cancel()
    await asyncio.wait({entering})
    await _hang_up(client)


def _drop(dialled: paho.Client, userdata: object, dropped: paho.SocketLike) -> None:
    dropped.close()


async def _hang_up(client: aiomqtt.Client, *, goodbye: bool = False) -> None:
    """Close the socket, and with it everything that watches it."""
    dialled = _paho(client)
    if goodbye and dialled.socket() is not None:
        dialled.disconnect()
        await _is_hung_up(dialled)
    open_socket = dialled.socket()
    if isinstance(open_socket, socket.socket):
        # The watcher of the socket wakes up, finds it ended and closes it; pulling it away would confuse the loop.
        with contextlib.suppress(OSError):
            open_socket.shutdown(socket.SHUT_RDWR)
        await _is_hung_up(dialled)
    if client._disconnected.done():
        client._disconnected.exception()  # else asyncio complains that nobody asked why


async def _is_hung_up(dialled: paho.Client) -> bool:
    """Give the event loop a few turns (at most 0.1 s) to write, read and close."""
    for _ in range(10):
        await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=0.01)
        if dialled.socket() is None:
            # One more turn, for the client's own task to take note of its cancellation.
            await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=0)
            return True
    return False


def _need_watchable_sockets() -> None:
    with socket.socket() as probe:
        try:
            asyncio.get_running_loop().remove_reader(probe)
        except NotImplementedError as error:
            text = (
                "this event loop cannot watch sockets (the default one on Windows); MQTT needs "
                "asyncio.WindowsSelectorEventLoopPolicy"
            )
            raise BrokerError(Trouble.SETTINGS, text) from error


def _explain(error: Exception, settings: MqttSettings, closed_by_broker: bool) -> BrokerError:
    """Why a connection could not be opened."""
    code = _code(error)
    if code is not None:
        return _refused(code, error, settings)
    if str(error) == _TIMED_OUT:
        if closed_by_broker:
            text = "the broker hung up without an answer" + ("; does it want TLS?" if settings.tls is None else "")
            return BrokerError(Trouble.TLS if settings.tls is None else Trouble.UNREACHABLE, text)
        text = f"something listens there but does not answer as a broker within {ANSWER_LIMIT_S:g} s"
        return BrokerError(Trouble.UNREACHABLE, text)
    # aiomqtt turns the socket's errors into text; what they were stands in the context.
    cause = error if isinstance(error, ValueError) else error.__context__
    match cause:
        case ssl.SSLCertVerificationError():
            why = cause.verify_message or cause.reason or "not trusted"
            return BrokerError(Trouble.TLS, f"the broker's certificate is not accepted: {why}")
        case ssl.SSLError():
            return BrokerError(Trouble.TLS, f"TLS failed ({cause.reason or cause}); is that a TLS port?")
        case ConnectionResetError() | BrokenPipeError() if settings.tls is not None:
            return BrokerError(Trouble.TLS, "the broker broke TLS off; is that a TLS port?")
        case socket.gaierror():
            return BrokerError(Trouble.UNREACHABLE, f"the name {settings.host!r} is not known ({cause.strerror})")
        case TimeoutError():
            return BrokerError(Trouble.UNREACHABLE, f"no answer within {SOCKET_LIMIT_S:g} s")
        case OSError():
            return BrokerError(Trouble.UNREACHABLE, f"it cannot be reached ({cause.strerror or cause})")
        case _:
            return BrokerError(Trouble.SETTINGS, f"no connection can be made from these settings ({cause or error})")


def _refused(code: int, error: Exception, settings: MqttSettings) -> BrokerError:
    if code in (_BAD_PASSWORD, _NOT_AUTHORIZED):
        who = "without a user name" if settings.username is None else f"with the user name {settings.username!r}"
        return BrokerError(Trouble.REFUSED, f"the broker refuses us {who}: wrong name or password, or no right")
    if code == _UNSUPPORTED_PROTOCOL:
        other = "3.1.1" if settings.protocol == "5" else "5"
        text = f'the broker does not speak MQTT {settings.protocol}; try protocol = "{other}"'
        return BrokerError(Trouble.PROTOCOL, text)
    if code == _BAD_CLIENT_ID:
        return BrokerError(Trouble.REFUSED, f"the broker does not take the client id {settings.client_id!r}")
    return BrokerError(Trouble.REFUSED, f"the broker refuses the connection ({error})")


def _lost(error: Exception, settings: MqttSettings) -> BrokerError:
    """Why a connection that was open is not any more."""
    code = _code(error) or _code(error.__cause__)
    if code == _TAKEN_OVER:
        return BrokerError(Trouble.TAKEN_OVER, f"another client has connected as {settings.client_id!r}")
    if code is not None and code > _UNSPECIFIED:
        return BrokerError(Trouble.LOST, f"the broker ended the connection ({error.__cause__ or error})")
    if str(error) == _TIMED_OUT:
        return BrokerError(Trouble.LOST, f"the broker did not acknowledge within {ACK_LIMIT_S:g} s")
    return BrokerError(Trouble.HUNG_UP, "the broker hung up")


def _code(error: BaseException | None) -> int | None:
    """An error's MQTT reason code, if it has one."""
    code = getattr(error, "rc", None)
    value = getattr(code, "value", None)
    return value if isinstance(value, int) and not isinstance(code, int) else None
