"""The doctor's look at the broker: it says what is wrong, and throws no running gate out."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.mqtt_check import check_broker
from agent.mqtt_settings import MqttSettings
from tests.broker import HOST, Mosquitto, free_port, make_password_file, needs_mosquitto


def to(port: int, **changes: object) -> MqttSettings:
    return MqttSettings(**{"host": HOST, "port": port, "client_id": "gate-1", **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("check")
    broker = Mosquitto(folder, "log_type all", f"password_file {make_password_file(folder, 'gate', 'right')}")
    yield broker
    broker.kill()


@needs_mosquitto
def test_a_good_broker_is_told_with_the_topic_and_what_could_be_better(mosquitto: Mosquitto, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("right")
    secret.chmod(0o644)
    ok, text = check_broker(to(mosquitto.port, username="gate", password_file=secret))
    assert ok
    assert "voicegate/gate-1" in text
    assert "the password travels unencrypted" in text
    assert f"chmod 600 {secret}" in text
    secret.chmod(0o600)
    assert "chmod" not in check_broker(to(mosquitto.port, username="gate", password_file=secret))[1]


@needs_mosquitto
def test_the_check_uses_an_id_of_its_own_so_a_running_gate_stays_connected(mosquitto: Mosquitto):
    check_broker(to(mosquitto.port, client_id="x" * 64))
    log = Path(mosquitto._log.name).read_text()
    assert f"as {'x' * 58}-check" in log
    assert "PUBLISH" not in log.partition("x" * 58)[2], "nothing is published"


@needs_mosquitto
def test_a_wrong_password_is_told(mosquitto: Mosquitto, tmp_path: Path):
    (tmp_path / "secret").write_text("hunter2")
    ok, text = check_broker(to(mosquitto.port, username="gate", password_file=tmp_path / "secret"))
    assert not ok
    assert "refuses us" in text
    assert "hunter2" not in text


def test_no_broker_is_told():
    ok, text = check_broker(to(free_port()))
    assert not ok
    assert "cannot be reached" in text


def test_files_that_are_not_there_are_told(tmp_path: Path):
    ok, text = check_broker(to(free_port(), username="gate", password_file=tmp_path / "gone"))
    assert not ok
    assert "password_file" in text
