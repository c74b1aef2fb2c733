"""Opening a connection: to a real mosquitto, and to brokers that misbehave; each failure is a sentence for people."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from pathlib import Path

import pytest

from agent import mqtt_connection
from agent.mqtt_connection import BrokerError, Trouble, open_connection
from agent.mqtt_settings import MqttSettings, TlsSettings
from tests.broker import (
    HOST,
    Certificates,
    Mosquitto,
    ScriptedBroker,
    free_port,
    make_certificates,
    make_password_file,
    needs_mosquitto,
    needs_openssl,
    silent_server,
    until,
    watcher,
)

# Real brokers, and servers that keep one waiting: a minute in all.
pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery"
TOPIC = "voicegate/t/mute/set"


def to(port: int, **changes: object) -> MqttSettings:
    return MqttSettings(**{"host": HOST, "port": port, "client_id": "t", **changes})  # type: ignore[arg-type]


async def failure(settings: MqttSettings) -> BrokerError:
    """What an attempt fails with; nothing of it may be left behind."""
    tasks, files = len(asyncio.all_tasks()), open_files()
    with pytest.raises(BrokerError) as caught:
        await open_connection(settings)
    error = caught.value
    caught.value.__traceback__ = caught.value.__context__ = caught.value.__cause__ = None
    del caught

    def nothing_is_left() -> bool:
        gc.collect()
        return len(asyncio.all_tasks()) == tasks and open_files() <= files

    await until(nothing_is_left)
    assert PASSWORD not in str(error)
    return error


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory):
    broker = Mosquitto(tmp_path_factory.mktemp("plain"))
    yield broker
    broker.kill()


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("locked")
    passwords = make_password_file(folder, "gate", PASSWORD)
    broker = Mosquitto(folder, "allow_anonymous false", f"password_file {passwords}")
    yield broker
    broker.kill()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates):
    broker = Mosquitto(
        tmp_path_factory.mktemp("encrypted"), f"cafile {certificates.ca}", f"certfile {certificates.server_cert}",
        f"keyfile {certificates.server_key}",
    )  # fmt: skip
    yield broker
    broker.kill()


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates):
    broker = Mosquitto(
        tmp_path_factory.mktemp("mutual"), f"cafile {certificates.ca}", f"certfile {certificates.server_cert}",
        f"keyfile {certificates.server_key}", "require_certificate true",
    )  # fmt: skip
    yield broker
    broker.kill()


# A good broker --------------------------------------------------------------------------------------------------------


@needs_mosquitto
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_publishes_subscribes_and_leaves_nothing_behind(plain: Mosquitto, protocol: str):
    async with watcher(plain.port, "voicegate/t/#") as seen:
        await asyncio.sleep(0.01)  # the watcher has tasks too
        tasks, files = len(asyncio.all_tasks()), open_files()
        connection = await open_connection(to(plain.port, protocol=protocol))
        assert await connection.subscribe(TOPIC)
        await connection.publish("voicegate/t/state", "online", retain=False)
        await seen.client.publish(TOPIC, "ON")
        message = await anext(aiter(connection.messages()))
        assert (message.topic, message.payload, message.retained, message.qos) == (TOPIC, b"ON", False, 0)
        await connection.close(goodbye=True)
        await until(lambda: seen.on("voicegate/t/state"))
        await until(lambda: open_files() == files)
        assert len(asyncio.all_tasks()) == tasks


@needs_mosquitto
async def test_a_message_published_with_qos_2_is_delivered_at_most_once(plain: Mosquitto):
    connection = await open_connection(to(plain.port))
    await connection.subscribe(TOPIC)
    async with watcher(plain.port, "nothing") as other:
        await other.client.publish(TOPIC, "ON", qos=2)
    assert (await anext(aiter(connection.messages()))).qos == 0
    await connection.close(goodbye=True)


@needs_mosquitto
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_another_client_with_our_id_ends_the_connection_at_once(plain: Mosquitto, protocol: str):
    connection = await open_connection(to(plain.port, protocol=protocol))
    other = await open_connection(to(plain.port, protocol=protocol))
    with pytest.raises(BrokerError) as caught:
        await anext(aiter(connection.messages()))
    # Debian 12's mosquitto does not give MQTT 5's reason; later ones do.
    assert caught.value.trouble in (Trouble.TAKEN_OVER, Trouble.HUNG_UP)
    for each in (connection, other):
        await each.close(goodbye=True)


async def test_the_reason_of_mqtt_5_for_a_taken_over_session_is_understood():
    async with ScriptedBroker(version_5=True) as broker:
        connection = await open_connection(to(broker.port))
        broker.send(b"\xe0\x01\x8e")
        with pytest.raises(BrokerError, match="another client has connected as 't'") as caught:
            await anext(aiter(connection.messages()))
        assert caught.value.trouble is Trouble.TAKEN_OVER
        await connection.close(goodbye=True)


@needs_mosquitto
async def test_a_killed_broker_is_noticed_at_once_and_not_only_at_the_next_publish(tmp_path: Path):
    broker = Mosquitto(tmp_path)
    connection = await open_connection(to(broker.port))
    waiting = asyncio.create_task(anext(aiter(connection.messages())))
    await asyncio.sleep(0.02)
    broker.kill()
    with pytest.raises(BrokerError, match="hung up") as caught:
        await asyncio.wait_for(waiting, 2.0)
    assert caught.value.trouble is Trouble.HUNG_UP
    with pytest.raises(BrokerError, match="hung up"):
        await connection.publish("a", "b", retain=False)
    await connection.close(goodbye=True)


@needs_mosquitto
async def test_an_acl_that_forbids_the_switch_is_told(tmp_path: Path):
    (tmp_path / "acl").write_text("topic write voicegate/t/#\n")
    broker = Mosquitto(tmp_path, f"acl_file {tmp_path / 'acl'}")
    try:
        for protocol in ("5", "3.1.1"):
            connection = await open_connection(to(broker.port, protocol=protocol))
            # mosquitto 2.0 grants a subscription and filters what it delivers, unless told otherwise; either is fine.
            assert await connection.subscribe(TOPIC) in (True, False)
            await connection.close(goodbye=True)
    finally:
        broker.kill()


@needs_mosquitto
@pytest.mark.parametrize(("goodbye", "left"), [(True, []), (False, [b"offline"])])
async def test_without_a_goodbye_the_last_will_is_published(plain: Mosquitto, goodbye: bool, left: list[bytes]):
    topic = f"voicegate/will-{goodbye}/state"
    async with watcher(plain.port, topic) as seen:
        connection = await open_connection(to(plain.port, client_id=f"will-{goodbye}"), will=(topic, "offline"))
        await connection.close(goodbye=goodbye)
        await asyncio.sleep(0.05)
        assert seen.on(topic) == left


# Refusals -------------------------------------------------------------------------------------------------------------


async def test_no_broker():
    error = await failure(to(free_port()))
    assert error.trouble is Trouble.UNREACHABLE
    assert "Connection refused" in str(error)


async def test_an_unknown_name():
    # Resolved without any network: the name is not a valid one.
    error = await failure(to(1883, host="no..name"))
    assert error.trouble in (Trouble.UNREACHABLE, Trouble.SETTINGS)


@needs_mosquitto
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_the_password_opens_and_a_wrong_or_missing_one_is_a_clear_line_without_it(
    locked: Mosquitto, tmp_path: Path, protocol: str
):
    file = tmp_path / "password"
    settings = to(locked.port, username="gate", password_file=file, protocol=protocol)
    file.write_text(PASSWORD + "\n")
    await (await open_connection(settings)).close(goodbye=True)
    file.write_text(f"{PASSWORD}!")
    error = await failure(settings)
    assert error.trouble is Trouble.REFUSED
    assert "'gate'" in str(error)
    error = await failure(to(locked.port, protocol=protocol))
    assert (error.trouble, "without a user name" in str(error)) == (Trouble.REFUSED, True)


async def test_a_password_file_that_vanished_is_a_failed_attempt_not_a_crash(tmp_path: Path):
    error = await failure(to(free_port(), username="gate", password_file=tmp_path / "gone"))
    assert error.trouble is Trouble.SETTINGS


# TLS ------------------------------------------------------------------------------------------------------------------


def trusting(ca: Path, **more: object) -> TlsSettings:
    return TlsSettings(ca_file=ca, **more)  # type: ignore[arg-type]


@needs_mosquitto
@needs_openssl
async def test_tls_with_the_right_authority_connects(encrypted: Mosquitto, certificates: Certificates):
    tasks, files = len(asyncio.all_tasks()), open_files()
    connection = await open_connection(to(encrypted.port, tls=trusting(certificates.ca)))
    await connection.publish("a", "b", retain=False)
    await connection.close(goodbye=True)
    await until(lambda: open_files() == files)
    assert len(asyncio.all_tasks()) == tasks


@needs_mosquitto
@needs_openssl
@pytest.mark.parametrize("ca", ["other_ca", None])
async def test_a_certificate_that_we_do_not_trust_is_refused(
    encrypted: Mosquitto, certificates: Certificates, ca: str | None
):
    tls = TlsSettings() if ca is None else trusting(getattr(certificates, ca))
    error = await failure(to(encrypted.port, tls=tls))
    assert error.trouble is Trouble.TLS
    assert "certificate is not accepted" in str(error)


@needs_mosquitto
@needs_openssl
async def test_a_certificate_for_another_host_is_refused(encrypted: Mosquitto, certificates: Certificates):
    error = await failure(to(encrypted.port, host="localhost", tls=trusting(certificates.ca)))
    assert error.trouble is Trouble.TLS
    assert "localhost" in str(error)


@needs_mosquitto
@needs_openssl
async def test_only_insecure_by_name_accepts_any_certificate(encrypted: Mosquitto):
    await (await open_connection(to(encrypted.port, tls=TlsSettings(insecure=True)))).close(goodbye=True)


@needs_mosquitto
@needs_openssl
async def test_plain_talk_to_a_tls_port_asks_whether_it_wants_tls(
    encrypted: Mosquitto, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mqtt_connection, "ANSWER_LIMIT_S", 0.3)
    error = await failure(to(encrypted.port))
    assert error.trouble is Trouble.TLS
    assert "does it want TLS?" in str(error)


@needs_mosquitto
@needs_openssl
async def test_tls_to_a_plain_port_asks_whether_it_is_a_tls_port(plain: Mosquitto, certificates: Certificates):
    error = await failure(to(plain.port, tls=trusting(certificates.ca)))
    assert error.trouble is Trouble.TLS
    assert "a TLS port?" in str(error)


@needs_mosquitto
@needs_openssl
async def test_a_broker_that_wants_our_certificate_gets_it_or_refuses(
    mutual: Mosquitto, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mqtt_connection, "ANSWER_LIMIT_S", 0.5)
    ours = trusting(certificates.ca, cert_file=certificates.client_cert, key_file=certificates.client_key)
    await (await open_connection(to(mutual.port, tls=ours))).close(goodbye=True)
    error = await failure(to(mutual.port, tls=trusting(certificates.ca)))
    assert error.trouble in (Trouble.TLS, Trouble.UNREACHABLE)


# Brokers that misbehave -----------------------------------------------------------------------------------------------


async def test_a_server_that_accepts_and_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mqtt_connection, "ANSWER_LIMIT_S", 0.2)
    with silent_server() as port:
        error = await failure(to(port))
    assert error.trouble is Trouble.UNREACHABLE
    assert "does not answer as a broker" in str(error)


async def test_a_server_that_never_answers_the_tls_handshake_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mqtt_connection, "SOCKET_LIMIT_S", 0.2)
    start_s = time.monotonic()
    with silent_server() as port:
        error = await failure(to(port, tls=TlsSettings(insecure=True)))
    assert error.trouble is Trouble.UNREACHABLE
    assert time.monotonic() - start_s < 2.0, "a thread that cannot be interrupted is waiting there"


@pytest.mark.parametrize("tls", [None, TlsSettings(insecure=True)])
@pytest.mark.parametrize("after_s", [0.0, 0.05])
async def test_giving_up_on_a_silent_server_leaves_no_task_and_no_socket(
    tls: TlsSettings | None, after_s: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mqtt_connection, "SOCKET_LIMIT_S", 0.15)
    with silent_server() as port:
        tasks, files = len(asyncio.all_tasks()), open_files()
        opening = asyncio.create_task(open_connection(to(port, tls=tls)))
        await asyncio.sleep(after_s)
        opening.cancel()
        await asyncio.wait({opening}, timeout=0.5)
        assert opening.cancelled()
        assert len(asyncio.all_tasks()) == tasks
        await asyncio.sleep(0.2)  # the thread that was dialling ends
        gc.collect()
        assert open_files() <= files
        assert len(asyncio.all_tasks()) == tasks


async def test_a_broker_that_never_acknowledges_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mqtt_connection, "ACK_LIMIT_S", 0.1)
    async with ScriptedBroker(acknowledge=False) as broker:
        connection = await open_connection(to(broker.port, protocol="3.1.1"))
        with pytest.raises(BrokerError, match="did not acknowledge"):
            await connection.publish("a", "b", retain=False)
        await connection.close(goodbye=True)
        await until(lambda: broker.open_connections == 0)


@pytest.mark.parametrize("goodbye", [True, False])
async def test_a_broker_that_reads_nothing_does_not_hold_up_closing(goodbye: bool):
    async with ScriptedBroker() as broker:
        connection = await open_connection(to(broker.port, protocol="3.1.1"))
        broker.stop_reading()
        publishing = asyncio.create_task(connection.publish("a", "x" * 30_000_000, retain=False))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(connection.close(goodbye=goodbye), 1.0)
        publishing.cancel()
        await asyncio.wait({publishing})


async def test_a_loop_that_cannot_watch_sockets_is_a_clear_line(monkeypatch: pytest.MonkeyPatch):
    def proactor(fd: object) -> bool:
        raise NotImplementedError

    monkeypatch.setattr(asyncio.get_running_loop(), "remove_reader", proactor)
    with pytest.raises(BrokerError, match="cannot watch sockets"):
        await open_connection(to(free_port()))
