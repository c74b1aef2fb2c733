"""Settings of the MQTT output: wrong ones are refused by name, and the password is seen by nobody."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agent.mqtt_settings import MqttSettings, MqttSettingsError, TlsSettings, default_client_id
from tests.broker import Certificates, make_certificates, needs_openssl
from tests.mqtt_harness import settings


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"host": ""}, "host"),
        ({"host": "a b"}, "host"),
        ({"port": 0}, "port"),
        ({"port": 65_536}, "port"),
        ({"client_id": ""}, "client_id"),
        ({"client_id": "küche"}, "client_id"),
        ({"client_id": "a/b"}, "client_id"),
        ({"client_id": "x" * 65}, "client_id"),
        ({"base_topic": "home/+/gate"}, "base_topic"),
        ({"base_topic": "home/#"}, "base_topic"),
        ({"base_topic": "/home"}, "base_topic"),
        ({"base_topic": "home//gate"}, "base_topic"),
        ({"base_topic": ""}, "base_topic"),
        ({"base_topic": "$SYS/gate"}, "base_topic"),
        ({"base_topic": "a\x00b"}, "base_topic"),
        ({"base_topic": "ü" * 300}, "base_topic"),
        ({"discovery_prefix": "#"}, "discovery_prefix"),
        ({"queue_messages": 0}, "queue_messages"),
        ({"keepalive_s": 0}, "keepalive_s"),
        ({"password_env": "X"}, "password without a username"),
        ({"username": "u", "password_env": "X", "password_file": Path("x")}, "password_file and password_env"),
    ],
)
def test_a_wrong_value_is_refused_by_name(changes: dict[str, Any], key: str):
    with pytest.raises(MqttSettingsError, match=key):
        settings(**changes)


def test_defaults():
    plain = settings()
    assert (plain.topic, plain.address) == ("voicegate/gate-1", "127.0.0.1:1883")
    assert settings(tls=TlsSettings()).address == "127.0.0.1:8883"
    assert settings(port=5).address == "127.0.0.1:5"
    assert not plain.transcripts, "words are published only when asked for"
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", default_client_id())


@pytest.mark.parametrize("node", ["Küche.local", "", "...", "x" * 300, "host/+#"])
def test_any_host_name_makes_a_client_id(node: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("platform.node", lambda: node)
    MqttSettings(host="h", client_id=default_client_id())


def test_the_password_comes_from_a_file_or_a_variable_anew_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "password"
    from_file = settings(username="u", password_file=file)
    for text in ("one", "two\n", " three \r\n"):
        file.write_bytes(text.encode())
        assert from_file.password() == text.rstrip("\r\n")
    monkeypatch.setenv("GATE_PASSWORD", "four")
    assert settings(username="u", password_env="GATE_PASSWORD").password() == "four"
    assert settings(username="u").password() is None


@pytest.mark.parametrize("content", [None, b"", b"\n", b"hunter2\xff", b"x" * 70_000], ids=repr)
def test_a_password_that_cannot_be_used_is_said_without_showing_it(tmp_path: Path, content: bytes | None):
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    made = settings(username="u", password_file=file)
    with pytest.raises(MqttSettingsError, match="password_file") as caught:
        made.check()
    assert "hunter2" not in str(caught.value) + repr(caught.value.__cause__) + repr(made)


def test_an_unset_variable_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GATE_PASSWORD", raising=False)
    with pytest.raises(MqttSettingsError, match="GATE_PASSWORD"):
        settings(username="u", password_env="GATE_PASSWORD").check()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@needs_openssl
def test_tls_files_are_checked_at_the_start_and_named(tmp_path: Path, certificates: Certificates):
    settings(
        tls=TlsSettings(ca_file=certificates.ca, cert_file=certificates.client_cert, key_file=certificates.client_key)
    ).check()
    junk = tmp_path / "junk.pem"
    junk.write_text("not a certificate")
    for tls, key in (
        (TlsSettings(ca_file=tmp_path / "gone"), "ca_file"),
        (TlsSettings(ca_file=junk), "ca_file"),
        (TlsSettings(cert_file=junk), "cert_file"),
        (TlsSettings(cert_file=certificates.client_cert, key_file=certificates.server_key), "cert_file"),
        (TlsSettings(key_file=certificates.client_key), "key_file without cert_file"),
    ):
        with pytest.raises(MqttSettingsError, match=key):
            settings(tls=tls).check()


@needs_openssl
def test_an_encrypted_key_is_refused_instead_of_asking_on_the_terminal(tmp_path: Path, certificates: Certificates):
    import subprocess

    key = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "ec", "-in", str(certificates.client_key), "-aes256", "-passout", "pass:x", "-out", str(key)],
        check=True, capture_output=True,
    )  # fmt: skip
    with pytest.raises(MqttSettingsError, match="without a passphrase"):
        TlsSettings(cert_file=certificates.client_cert, key_file=key).context()


def test_certificates_are_checked_unless_insecure_is_named():
    import ssl

    assert TlsSettings().context().verify_mode is ssl.CERT_REQUIRED
    assert TlsSettings().context().check_hostname
    assert TlsSettings(insecure=True).context().verify_mode is ssl.CERT_NONE
