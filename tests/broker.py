"""Brokers for tests, on loopback only: a real mosquitto process, and a scripted one that misbehaves on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

HOST = "127.0.0.1"


def find_mosquitto() -> str | None:
    """Where the broker's binary is; Debian keeps it out of a user's PATH."""
    return shutil.which("mosquitto", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


needs_mosquitto = pytest.mark.skipif(
    find_mosquitto() is None, reason="no mosquitto binary here (Debian: apt-get install mosquitto)"
)
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class Mosquitto:
    """A mosquitto of our own on 127.0.0.1: own configuration, nothing kept on disk, no system service.

    Args:
        folder: for its configuration.
        options: further lines of configuration (passwords, certificates).
        port: a free one by default; give an old one's to restart it.
    """

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        self.port = port or free_port()
        lines = [f"listener {self.port} {HOST}", "persistence false", "log_dest stderr", *options]
        if not any(line.startswith("allow_anonymous") for line in options):
            lines.append("allow_anonymous true")
        if os.getuid() == 0:
            lines.append("user root")  # else it gives up root and cannot read the test's files
        config = folder / f"mosquitto-{self.port}.conf"
        config.write_text("\n".join(lines) + "\n")
        binary = find_mosquitto()
        assert binary is not None
        self._log = (folder / f"mosquitto-{self.port}.log").open("wb")
        self.process = subprocess.Popen([binary, "-c", str(config)], stdout=self._log, stderr=self._log)
        self._wait_until_up()

    def _wait_until_up(self) -> None:
        for _ in range(500):
            if self.process.poll() is not None:
                raise RuntimeError(f"mosquitto ended: {Path(self._log.name).read_text()}")
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 0.2):
                return
            time.sleep(0.01)
        raise RuntimeError("mosquitto does not listen")

    def kill(self) -> None:
        """kill -9: no goodbye, nothing kept."""
        self.process.kill()
        self.process.wait(5)
        self._log.close()


def make_password_file(folder: Path, user: str, password: str) -> Path:
    """A password file as mosquitto reads it."""
    path = folder / "passwords"
    path.write_text(f"{user}:{password}\n")
    path.chmod(0o600)
    subprocess.run(["mosquitto_passwd", "-U", str(path)], check=True, capture_output=True)
    return path


@dataclass(frozen=True)
class Certificates:
    """A throw-away authority and what it has signed: PEM files."""

    ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path
    other_ca: Path


def make_certificates(folder: Path) -> Certificates:
    """A CA, a server certificate for 127.0.0.1, a client certificate, and a CA that signed neither."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    for name in ("ca", "other_ca"):
        openssl("req", "-x509", *curve, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN=test {name}")
    (folder / "server.ext").write_text(f"subjectAltName=IP:{HOST}\n")
    (folder / "client.ext").write_text("extendedKeyUsage=clientAuth\n")
    for name in ("server", "client"):
        openssl("req", *curve[:-2], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-out", f"{name}.pem", "-extfile", f"{name}.ext",
        )  # fmt: skip
    return Certificates(
        folder / "ca.pem", folder / "server.pem", folder / "server.key", folder / "client.pem", folder / "client.key",
        folder / "other_ca.pem",
    )  # fmt: skip


@dataclass
class Seen:
    """What another client of the broker has received, in order."""

    client: aiomqtt.Client
    messages: list[aiomqtt.Message] = field(default_factory=list)

    def on(self, topic: str) -> list[bytes]:
        """The payloads of one topic, or of all below it when it ends in "/"."""
        return [
            bytes(message.payload)
            for message in self.messages
            if str(message.topic) == topic or (topic.endswith("/") and str(message.topic).startswith(topic))
        ]


@contextlib.asynccontextmanager
async def watcher(port: int, topic: str = "#", **options: Any) -> AsyncIterator[Seen]:
    """Another client that reads along."""
    async with aiomqtt.Client(HOST, port, **options) as client:
        seen = Seen(client)
        await client.subscribe(topic, qos=1)

        async def read() -> None:
            with contextlib.suppress(aiomqtt.MqttError):
                async for message in client.messages:
                    seen.messages.append(message)

        task = asyncio.create_task(read())
        try:
            yield seen
        finally:
            task.cancel()
            await asyncio.wait({task})


async def until(condition: Callable[[], object], limit_s: float = 5.0) -> None:
    """Wait until ``condition()`` is true; fails after ``limit_s``."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        await asyncio.sleep(0.005)


class ScriptedBroker:
    """Speaks just enough MQTT to misbehave.

    Args:
        answer_connect: False: accepts and stays silent.
        acknowledge: False: takes messages and never acknowledges one.
        on_subscribe: raw packets that are sent after each SUBACK.
        version_5: speaks MQTT 5 as far as accepting a connection.
    """

    def __init__(
        self,
        *,
        answer_connect: bool = True,
        acknowledge: bool = True,
        on_subscribe: bytes = b"",
        version_5: bool = False,
    ) -> None:
        self.answer_connect = answer_connect
        self.acknowledge = acknowledge
        self.on_subscribe = on_subscribe
        self.version_5 = version_5
        self.port = 0
        self.connections = 0
        self.open_connections = 0
        self.published: list[bytes] = []
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._reading = asyncio.Event()
        self._reading.set()

    async def __aenter__(self) -> ScriptedBroker:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self._reading.set()
        self.drop_all()
        await asyncio.sleep(0)

    def drop_all(self) -> None:
        """Break every connection."""
        for writer in list(self._writers):
            writer.close()

    def stop_reading(self) -> None:
        """Leave what comes in the pipe."""
        self._reading.clear()

    def send(self, packet: bytes) -> None:
        """Send a raw packet on every connection."""
        for writer in self._writers:
            writer.write(packet)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        self._writers.add(writer)
        try:
            while True:
                await self._reading.wait()
                kind, body = await _packet(reader)
                self._answer(kind, body, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.open_connections -= 1
            self._writers.discard(writer)
            writer.close()

    def _answer(self, kind: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        match kind >> 4:
            case 1 if self.answer_connect:
                writer.write(b"\x20\x03\x00\x00\x00" if self.version_5 else b"\x20\x02\x00\x00")
            case 8:
                writer.write(b"\x90\x03" + body[:2] + b"\x00" + self.on_subscribe)
            case 3:
                topic_length = int.from_bytes(body[:2], "big")
                self.published.append(body[topic_length + 4 :])
                if self.acknowledge:
                    writer.write(b"\x40\x02" + body[topic_length + 2 : topic_length + 4])
            case 12:
                writer.write(b"\xd0\x00")


async def _packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    kind = (await reader.readexactly(1))[0]
    length, shift = 0, 0
    while True:
        byte = (await reader.readexactly(1))[0]
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return kind, await reader.readexactly(length)


def publish_packet(topic: str, payload: bytes, *, qos: int = 0, dup: bool = False, retain: bool = False) -> bytes:
    """A raw PUBLISH of MQTT 3.1.1, also one that no honest broker would send."""
    body = len(topic.encode()).to_bytes(2, "big") + topic.encode() + (b"\x00\x07" if qos else b"") + payload
    length, encoded = len(body), b""
    while True:
        byte, length = length & 0x7F, length >> 7
        encoded += bytes([byte | 0x80 if length else byte])
        if not length:
            break
    return bytes([0x30 | dup << 3 | qos << 1 | retain]) + encoded + body


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """Accepts connections (the kernel does), reads nothing and never answers; yields its port."""
    with socket.socket() as server:
        server.bind((HOST, 0))
        server.listen(16)
        yield server.getsockname()[1]
