"""What the MQTT output needs to know: the broker, who we are there, TLS, the password, and how much is told."""

from __future__ import annotations

import os
import platform
import re
import ssl
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

_CLIENT_ID_RE = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What both a broker and Home Assistant's discovery topics take."""
_MAX_TOPIC_BYTES = 512
_MAX_PASSWORD_BYTES = 65_535
"""The protocol's own limit."""


class MqttSettingsError(Exception):
    """The MQTT output cannot be set up like this. The message names the setting and what it takes."""


class ToolsOff(StrEnum):
    """When a missing broker switches tools off."""

    UNTIL_CONNECTED = "until_connected"
    """Tools stay off until the broker has been reached once: wrong settings are noticed before anything is done. A
    later outage leaves them on; events wait in the queue."""
    WHILE_DISCONNECTED = "while_disconnected"
    """Tools are off whenever the broker is away: nothing is done that nobody can see or stop from there."""
    NEVER = "never"
    """The broker's absence changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """How the connection is encrypted.

    Attributes:
        ca_file: certificates that are trusted, PEM; None trusts the system's.
        cert_file: our own certificate, PEM, for brokers that ask for one.
        key_file: its private key, PEM, without a passphrase; None when it is in ``cert_file``.
        insecure: True accepts any certificate of any host: encrypted, yet open to whoever sits in between.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        """The client's TLS context, from the files as they are now.

        Raises:
            MqttSettingsError: when a file is missing or is not what it should be; names it.
        """
        if self.key_file is not None and self.cert_file is None:
            raise MqttSettingsError("[mqtt.tls] key_file without cert_file")
        try:
            context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        except (OSError, ssl.SSLError) as error:
            raise MqttSettingsError(f"[mqtt.tls] ca_file {self.ca_file}: {_reason(error)}") from error
        if self.cert_file is not None:
            try:
                context.load_cert_chain(self.cert_file, self.key_file, password=_no_passphrase)
            except (OSError, ssl.SSLError) as error:
                files = self.cert_file if self.key_file is None else f"{self.cert_file} with {self.key_file}"
                raise MqttSettingsError(f"[mqtt.tls] cert_file {files}: {_reason(error)}") from error
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSettings:
    """One broker and what it is told.

    Attributes:
        host: its name or address.
        port: None takes 1883, or 8883 with TLS.
        client_id: who we are there; must be unique on that broker, and the same on each start. Letters, digits, ``_``
            and ``-``, at most 64.
        base_topic: everything is below it; None takes ``voicegate/<client id>``.
        username: None connects without.
        password_file: a file that holds the password; read at each connection, so that it can be changed.
        password_env: the environment variable that holds it instead.
        tls: None connects without.
        protocol: MQTT's version. With "5" the broker itself says when another client takes our id.
        keepalive_s: a connection that is silent for one and a half times as long is taken for dead.
        transcripts: True also publishes what was said, answered and sent to tools, and the scores.
        home_assistant: True announces the gate to Home Assistant.
        discovery_prefix: where Home Assistant looks for that.
        tools_off: when a missing broker switches tools off.
        queue_messages: how many events wait for the broker, at most.
        late_after_s: an event that waited longer is marked late.
        mute_file: exists while the broker's mute switch is on, so that a restart does not unmute; None forgets.

    Raises:
        MqttSettingsError: when values are impossible or contradict each other.
    """

    host: str
    port: int | None = None
    client_id: str
    base_topic: str | None = None
    username: str | None = None
    password_file: Path | None = None
    password_env: str | None = None
    tls: TlsSettings | None = None
    protocol: Literal["5", "3.1.1"] = "5"
    keepalive_s: int = 20
    transcripts: bool = False
    home_assistant: bool = False
    discovery_prefix: str = "homeassistant"
    tools_off: ToolsOff = ToolsOff.UNTIL_CONNECTED
    queue_messages: int = 1000
    late_after_s: float = 10.0
    mute_file: Path | None = None

    def __post_init__(self) -> None:
        if not self.host or any(character.isspace() for character in self.host):
            raise MqttSettingsError(f"[mqtt] host {self.host!r} is not a name or an address")
        if self.port is not None and not 1 <= self.port <= 65_535:
            raise MqttSettingsError(f"[mqtt] port {self.port} is not between 1 and 65535")
        if not _CLIENT_ID_RE.fullmatch(self.client_id):
            raise MqttSettingsError(f"[mqtt] client_id {self.client_id!r} must be 1 to 64 letters, digits, '_' or '-'")
        _check_topic("base_topic", self.topic)
        _check_topic("discovery_prefix", self.discovery_prefix)
        if self.password_file is not None and self.password_env is not None:
            raise MqttSettingsError("[mqtt] password_file and password_env exclude each other")
        if self.has_password and self.username is None:
            raise MqttSettingsError("[mqtt] a password without a username")
        if self.queue_messages < 1:
            raise MqttSettingsError("[mqtt] queue_messages must be at least 1")
        if not 5 <= self.keepalive_s <= 3600:
            raise MqttSettingsError("[mqtt] keepalive_s must be between 5 and 3600")

    @property
    def topic(self) -> str:
        """The base topic."""
        return f"voicegate/{self.client_id}" if self.base_topic is None else self.base_topic

    @property
    def port_used(self) -> int:
        """The port, with its default."""
        if self.port is not None:
            return self.port
        return 1883 if self.tls is None else 8883

    @property
    def address(self) -> str:
        """``host:port`` for people."""
        return f"{self.host}:{self.port_used}"

    @property
    def has_password(self) -> bool:
        """Whether a password is used."""
        return self.password_file is not None or self.password_env is not None

    def password(self) -> str | None:
        """The password, or None. Read anew at each call; it is kept nowhere and never shown.

        Raises:
            MqttSettingsError: when its file or variable cannot be read or is empty; never says what is in it.
        """
        if self.password_env is not None:
            value = os.environ.get(self.password_env, "")
            if not value:
                raise MqttSettingsError(f"[mqtt] password_env: the variable {self.password_env} is not set")
            return value
        if self.password_file is None:
            return None
        try:
            raw = self.password_file.read_bytes()
        except OSError as error:
            raise MqttSettingsError(f"[mqtt] password_file {self.password_file}: {_reason(error)}") from error
        try:
            value = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            # Without its cause: that one quotes the bytes.
            raise MqttSettingsError(f"[mqtt] password_file {self.password_file} is not UTF-8 text") from None
        if not value or len(raw) > _MAX_PASSWORD_BYTES:
            raise MqttSettingsError(f"[mqtt] password_file {self.password_file} is empty or too long")
        return value

    def check(self) -> None:
        """Read everything that the settings name, so that a wrong name is noticed at the start.

        Raises:
            MqttSettingsError: when something cannot be read.
        """
        self.password()
        if self.tls is not None:
            self.tls.context()


def default_client_id() -> str:
    """``voicegate-<host name>``: unique in a household, and the same on each start."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", platform.node().split(".")[0]).strip("-")
    return f"voicegate-{name[:48]}" if name else "voicegate"


def _check_topic(key: str, topic: str) -> None:
    levels = topic.split("/")
    if (
        not all(levels)
        or topic.startswith("$")
        or len(topic.encode()) > _MAX_TOPIC_BYTES
        or not topic.isprintable()
        or any(mark in topic for mark in "+#")
    ):
        raise MqttSettingsError(
            f"[mqtt] {key} {topic!r} must be levels joined by '/', without '+' and '#', none empty, the first not "
            "beginning with '$'"
        )


def _no_passphrase() -> str:
    # Without it OpenSSL would stop and ask on the terminal.
    raise ssl.SSLError("the private key is encrypted; a key without a passphrase is needed")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
