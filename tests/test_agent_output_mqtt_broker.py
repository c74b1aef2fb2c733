"""The MQTT output against a real mosquitto, and against brokers that lie: row by row what must not happen."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent import output_mqtt
from agent.clock import WallClock
from agent.mqtt_settings import MqttSettings, TlsSettings
from agent.output_mqtt import BROKER_HOLD, MUTE_HOLD, MqttSink
from agent.sources import Silence
from tests.broker import (
    HOST,
    Mosquitto,
    ScriptedBroker,
    Seen,
    free_port,
    make_password_file,
    needs_mosquitto,
    publish_packet,
    silent_server,
    until,
    watcher,
)
from tests.fake_models import BlockingPolicy, FakeEars, ScriptedPolicy, Voice, tone
from tests.loop_harness import converse
from tests.mqtt_harness import Holds, decided, executed, turn_opened
from tools.catalogue import ToolCatalogue

ROOT = Path(__file__).resolve().parent.parent
COMMAND = Voice(400, "Text Priya that I am late.")
SEND = '<|TOOL|>{"name": "send_message", "params": {"recipient": "Priya", "body": "I am late"}}</|TOOL|>'


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory):
    broker = Mosquitto(tmp_path_factory.mktemp("mosquitto"))
    yield broker
    broker.kill()


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_mqtt, "FIRST_RETRY_S", 0.02)
    monkeypatch.setattr(output_mqtt, "LAST_RETRY_S", 0.1)


class Running:
    """A started sink, its holds, and what it said."""

    def __init__(self, port: int, client_id: str, **changes: Any) -> None:
        self.base = f"voicegate/{client_id}"
        self.holds = Holds()
        self.said: list[tuple[str, str]] = []
        settings = MqttSettings(**{"host": HOST, "port": port, "client_id": client_id, **changes})
        self.sink = MqttSink(settings, WallClock())
        self.sink.start(self.holds, lambda code, text: self.said.append((code, text)))

    @property
    def codes(self) -> list[str]:
        return [code for code, _ in self.said]

    def events_in(self, seen: Seen) -> list[dict[str, Any]]:
        return [json.loads(payload) for payload in seen.on(f"{self.base}/events/")]


@contextlib.asynccontextmanager
async def running(port: int, client_id: str, **changes: Any) -> AsyncIterator[Running]:
    out = Running(port, client_id, **changes)
    try:
        yield out
    finally:
        await out.sink.aclose()


# A good broker --------------------------------------------------------------------------------------------------------


@needs_mosquitto
async def test_a_whole_conversation_arrives_once_each_and_leaves_the_right_state_behind(mosquitto: Mosquitto):
    async with watcher(mosquitto.port, "voicegate/talk/#") as seen:
        async with running(mosquitto.port, "talk", home_assistant=True) as r:
            await until(lambda: r.codes == ["connected"])
            outcome = await converse(
                [Silence(0.5), tone(COMMAND), Silence(1.0)], FakeEars([COMMAND]), ScriptedPolicy({COMMAND.text: SEND}),
                ToolCatalogue.builtin(), sinks=[r.sink],
            )  # fmt: skip
        await until(lambda: seen.on("voicegate/talk/state")[-1:] == [b"offline"])
        assert [event["id"] for event in r.events_in(seen)] == [f"s-{event.seq}" for event in outcome.events]
        assert outcome.actions == ["tool"]
    async with watcher(mosquitto.port) as later:
        await until(lambda: later.on("homeassistant/device/talk/config") and later.on("voicegate/talk/last_decision"))
        await until(lambda: later.on("voicegate/talk/state"))
        retained = {str(message.topic): bytes(message.payload) for message in later.messages if message.retain}
    assert retained["voicegate/talk/state"] == b"offline"
    assert json.loads(retained["voicegate/talk/last_decision"])["outcome"] == "done"
    assert json.loads(retained["homeassistant/device/talk/config"])["device"]["identifiers"] == ["talk"]
    assert not any("/events/" in topic for topic in retained), "an event is news, not a state"


@needs_mosquitto
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_the_switch_of_a_real_broker_keeps_tools_off(mosquitto: Mosquitto, protocol: str):
    name = f"switch-{protocol[0]}"
    topic = f"voicegate/{name}/mute"
    async with (
        watcher(mosquitto.port, f"{topic}/state") as home,
        running(mosquitto.port, name, protocol=protocol) as r,
    ):
        await until(lambda: home.on(f"{topic}/state") == [b"OFF"])
        await home.client.publish(f"{topic}/set", "ON", qos=1)
        await until(lambda: MUTE_HOLD in r.holds.held)
        await home.client.publish(f"{topic}/set", "OFF", qos=1)
        await until(lambda: not r.holds.held)
        await until(lambda: home.on(f"{topic}/state") == [b"OFF", b"ON", b"OFF"])


# No broker, or not for us ---------------------------------------------------------------------------------------------


async def test_no_broker_at_the_start_is_one_line_tools_off_and_retries(tmp_path: Path):
    port = free_port()
    async with running(port, "early") as r:
        await until(lambda: r.codes == ["unreachable"])
        assert set(r.holds.held) == {BROKER_HOLD}
        await asyncio.sleep(0.3)
        assert r.codes == ["unreachable"]


@needs_mosquitto
async def test_a_broker_that_comes_later_is_found_and_gets_everything(tmp_path: Path):
    port = free_port()
    async with running(port, "later") as r:
        await until(lambda: r.codes == ["unreachable"])
        r.sink.emit(executed(0))
        broker = Mosquitto(tmp_path, port=port)
        async with watcher(port) as seen:
            await until(lambda: r.codes == ["unreachable", "connected"])
            assert r.holds.held == {}
            r.sink.emit(executed(1))
            await until(lambda: r.events_in(seen)[-1:] and r.events_in(seen)[-1]["id"] == "s-1")
        await r.sink.aclose()
        broker.kill()


@needs_mosquitto
async def test_a_wrong_password_is_one_line_tools_off_and_mended_without_a_restart(tmp_path: Path):
    broker = Mosquitto(
        tmp_path, "allow_anonymous false", f"password_file {make_password_file(tmp_path, 'gate', 'right')}"
    )
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    async with running(broker.port, "locked", username="gate", password_file=secret) as r:
        await until(lambda: r.codes == ["refused"])
        await asyncio.sleep(0.2)
        assert r.codes == ["refused"], "one line, not one per attempt"
        assert "hunter2" not in r.said[0][1]
        assert set(r.holds.held) == {BROKER_HOLD}
        secret.write_text("right\n")
        await until(lambda: r.codes == ["refused", "connected"])
        assert r.holds.held == {}
    broker.kill()


@needs_mosquitto
async def test_tls_to_a_plain_port_is_one_line_and_tools_off(mosquitto: Mosquitto):
    async with running(mosquitto.port, "tls", tls=TlsSettings()) as r:
        await until(lambda: r.codes == ["tls"])
        await asyncio.sleep(0.2)
        assert r.codes == ["tls"]
        assert set(r.holds.held) == {BROKER_HOLD}


# Outages --------------------------------------------------------------------------------------------------------------


@needs_mosquitto
async def test_a_broker_killed_and_restarted_gets_every_event_once_under_its_id_marked_late(tmp_path: Path):
    broker = Mosquitto(tmp_path)
    async with running(broker.port, "outage", late_after_s=0.05) as r:
        await until(lambda: r.codes == ["connected"])
        r.sink.emit(decided(0))
        await until(lambda: not len(r.sink._outbox) and not r.sink._unsent)
        broker.kill()
        await until(lambda: "unreachable" in r.codes)
        assert r.holds.held == {}, "an outage after a good start leaves tools on"
        for seq in range(1, 4):
            r.sink.emit(executed(seq))  # executed here, told later
        await asyncio.sleep(0.1)
        broker = Mosquitto(tmp_path, port=broker.port)
        async with watcher(broker.port, "voicegate/outage/#") as seen:
            # The sink may have been quicker than the watcher; what is retained is then seen all the same.
            await until(lambda: r.codes[-1] == "connected")
            r.sink.emit(executed(4))
            await until(lambda: r.events_in(seen)[-1:] and r.events_in(seen)[-1]["id"] == "s-4")
            await until(lambda: seen.on(f"{r.base}/last_decision"))
            assert seen.on(f"{r.base}/state")[:1] == [b"online"], "retained topics are there again"
            found = r.events_in(seen)
            ids = [event["id"] for event in found]
            assert len(set(ids)) == len(ids)
            assert all(event["late"] for event in found[:-1])
            assert not found[-1]["late"]
    broker.kill()


@needs_mosquitto
async def test_events_waiting_through_an_outage_are_all_there_and_in_order(tmp_path: Path):
    # The broker that comes back remembers a subscriber that was away, so nothing can be missed for being late.
    folder = tmp_path / "store"
    folder.mkdir()
    lasting = ("persistence true", f"persistence_location {folder}/", "autosave_interval 1", "autosave_on_changes true")
    broker = Mosquitto(tmp_path, *lasting)
    async with running(broker.port, "waits", late_after_s=0.0) as r:
        await until(lambda: r.codes == ["connected"])
        options = {"identifier": "reader", "clean_session": False}
        async with watcher(broker.port, "voicegate/waits/#", **options):
            pass
        broker.process.send_signal(signal.SIGTERM)  # so that it writes down whom it remembers
        broker.process.wait(5)
        await until(lambda: "unreachable" in r.codes)
        for seq in range(50):
            r.sink.emit(executed(seq))
        broker = Mosquitto(tmp_path, *lasting, port=broker.port)
        await until(lambda: r.codes[-1] == "connected" and not len(r.sink._outbox))
        async with watcher(broker.port, "voicegate/waits/#", **options) as seen:
            await until(lambda: len(r.events_in(seen)) >= 50)
            found = r.events_in(seen)
        assert [event["id"] for event in found] == [f"s-{seq}" for seq in range(50)]
        assert all(event["late"] for event in found)
    broker.kill()


# What comes in --------------------------------------------------------------------------------------------------------


@needs_mosquitto
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_a_retained_command_at_subscribe_is_ignored_and_noted(mosquitto: Mosquitto, protocol: str):
    name = f"retained-{protocol[0]}"
    async with watcher(mosquitto.port, "nothing") as other:
        await other.client.publish(f"voicegate/{name}/mute/set", "ON", qos=1, retain=True)
        async with running(mosquitto.port, name, protocol=protocol) as r:
            await until(lambda: "ignored" in r.codes)
            assert "retained" in r.said[-1][1]
            assert r.holds.held == {}
            await other.client.publish(f"voicegate/{name}/mute/set", "ON", qos=1)
            await until(lambda: MUTE_HOLD in r.holds.held)


@needs_mosquitto
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_garbage_of_every_kind_is_skipped_and_the_loop_lives(mosquitto: Mosquitto, protocol: str):
    name = f"garbage-{protocol[0]}"
    call = json.dumps({"name": "unlock_door", "params": {"door": "front"}}).encode()
    garbage = [b"\xff\xfe\xfd", b"not json", b"", b"x" * 1_000_000, b"null", call, b"ON\x00", b"O" * 65_000]
    async with watcher(mosquitto.port, "nothing") as other, running(mosquitto.port, name, protocol=protocol) as r:
        await until(lambda: r.codes == ["connected"])
        for payload in garbage:
            await other.client.publish(f"{r.base}/mute/set", payload, qos=1)
            await other.client.publish(f"{r.base}/tools/execute", call, qos=1)
        await other.client.publish(f"{r.base}/mute/set", "ON", qos=1)
        await until(lambda: MUTE_HOLD in r.holds.held)
        assert {source for _, source in r.holds.log} == {BROKER_HOLD, MUTE_HOLD}
        assert r.codes == ["connected", "ignored", "muted"], "no lost connection, and no line per message"
        # An MQTT 5 broker is asked not to send us a megabyte, so it never arrives.
        assert sum(r.sink._ignored.values()) == len(garbage) - (protocol == "5")


async def test_a_redelivered_off_does_not_unmute():
    topic = "voicegate/dup/mute/set"
    async with ScriptedBroker() as broker, running(broker.port, "dup", protocol="3.1.1") as r:
        await until(lambda: r.codes == ["connected"])
        broker.send(publish_packet(topic, b"ON"))
        await until(lambda: MUTE_HOLD in r.holds.held)
        broker.send(publish_packet(topic, b"OFF", qos=1, dup=True))
        broker.send(publish_packet(topic, b"OFF", qos=2, dup=True))
        broker.send(publish_packet(topic, b"OFF", retain=True))
        await until(lambda: r.codes.count("ignored") == 2)
        assert MUTE_HOLD in r.holds.held
        broker.send(publish_packet(topic, b"OFF"))
        await until(lambda: not r.holds.held)


async def test_a_wildcard_for_a_topic_breaks_at_most_the_connection():
    async with ScriptedBroker() as broker, running(broker.port, "wild", protocol="3.1.1") as r:
        await until(lambda: r.codes == ["connected"])
        broker.send(publish_packet("voicegate/+/mute/#", b"ON"))
        await until(lambda: broker.connections == 2 and r.codes[-1] == "connected")
        assert r.holds.held == {}
        broker.send(publish_packet("voicegate/wild/mute/set", b"ON"))
        await until(lambda: MUTE_HOLD in r.holds.held)


async def test_nonsense_on_the_wire_breaks_at_most_the_connection():
    async with ScriptedBroker() as broker, running(broker.port, "noise", protocol="3.1.1") as r:
        await until(lambda: r.codes == ["connected"])
        for times, nonsense in enumerate((b"\xff\xff\xff\xff\xff\xff", b"\x00" * 50, b"\x30\x02\xff\xff"), 2):
            broker.send(nonsense)
            await until(lambda times=times: broker.connections >= times and r.codes[-1] == "connected")
        r.sink.emit(executed(0))
        await until(lambda: any(b"s-0" in payload for payload in broker.published))


# Two clients with one id ----------------------------------------------------------------------------------------------


@needs_mosquitto
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_two_gates_with_one_id_end_in_a_clear_line_and_peace(mosquitto: Mosquitto, protocol: str):
    name = f"twin-{protocol[0]}"
    async with running(mosquitto.port, name, protocol=protocol) as first:
        await until(lambda: first.codes == ["connected"])
        async with running(mosquitto.port, name, protocol=protocol) as second:
            await until(lambda: "taken_over" in first.codes + second.codes)
            line = next(text for code, text in first.said + second.said if code == "taken_over")
            assert "Each gate needs a client_id of its own; this one stays away for 10 minutes" in line
            await asyncio.sleep(0.15)
            lines = len(first.said) + len(second.said)
            await asyncio.sleep(0.3)
            assert len(first.said) + len(second.said) == lines, "nobody is thrown out any more"
            assert lines <= 12


# The end --------------------------------------------------------------------------------------------------------------


@needs_mosquitto
async def test_ctrl_c_in_a_hung_turn_still_tells_the_broker_the_end_within_two_seconds(mosquitto: Mosquitto):
    policy = BlockingPolicy({COMMAND.text: SEND})
    async with watcher(mosquitto.port, "voicegate/ctrlc/#") as seen, running(mosquitto.port, "ctrlc") as r:
        await until(lambda: r.codes == ["connected"])
        task = asyncio.create_task(
            converse(
                [Silence(0.5), tone(COMMAND), Silence(1.0)], FakeEars([COMMAND]), policy, ToolCatalogue.builtin(),
                sinks=[r.sink],
            )
        )  # fmt: skip
        await asyncio.to_thread(policy.entered.wait, 10)
        task.cancel()
        start_s = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - start_s < 2.0
        policy.release.set()
        await until(lambda: seen.on(f"{r.base}/state")[-1:] == [b"offline"])
        last = r.events_in(seen)[-1]
    assert (last["event"], last["reason"]) == ("session_ended", "stopped")


@needs_mosquitto
async def test_a_flush_that_is_cut_off_still_leaves_offline_behind_by_the_last_will(
    mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(output_mqtt, "CLOSE_LIMIT_S", 0.03)
    async with watcher(mosquitto.port, "voicegate/cut/state") as seen:
        async with running(mosquitto.port, "cut", queue_messages=20_000) as r:
            await until(lambda: seen.on("voicegate/cut/state") == [b"online"])
            for seq in range(20_000):
                r.sink.emit(turn_opened(seq))
        await until(lambda: seen.on("voicegate/cut/state") == [b"online", b"offline"])
    assert "could not be published and are lost" in caplog.text


@pytest.mark.parametrize("tls", [None, TlsSettings(insecure=True)], ids=["plain", "tls"])
async def test_closing_ends_within_two_seconds_when_a_server_accepts_and_never_answers(
    tls: TlsSettings | None, caplog: pytest.LogCaptureFixture
):
    tasks = asyncio.all_tasks()
    with silent_server() as port:
        r = Running(port, "hung", tls=tls)
        r.sink.emit(executed(0))
        await asyncio.sleep(0.05)
        start_s = time.monotonic()
        await r.sink.aclose()
        assert time.monotonic() - start_s < 2.0
        assert asyncio.all_tasks() == tasks
    assert "1 events could not be published and are lost to the broker" in caplog.text


@needs_mosquitto
async def test_a_killed_gate_is_offline_at_the_broker_by_its_last_will(mosquitto: Mosquitto):
    program = (
        "import asyncio\n"
        "from agent.clock import WallClock\n"
        "from agent.mqtt_settings import MqttSettings\n"
        "from agent.output_mqtt import MqttSink\n"
        "from tests.mqtt_harness import Holds\n"
        "async def main():\n"
        f"    sink = MqttSink(MqttSettings(host='{HOST}', port={mosquitto.port}, client_id='killed'), WallClock())\n"
        "    sink.start(Holds())\n"
        "    await asyncio.get_running_loop().create_future()\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=ROOT, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with watcher(mosquitto.port, "voicegate/killed/state") as seen:
            await until(lambda: seen.on("voicegate/killed/state") == [b"online"], 30.0)
            process.kill()
            await until(lambda: seen.on("voicegate/killed/state") == [b"online", b"offline"])
        async with watcher(mosquitto.port, "voicegate/killed/state") as later:
            await until(lambda: later.on("voicegate/killed/state") == [b"offline"])
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


# Volume ---------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def deaf_subscriber(port: int) -> AsyncIterator[None]:
    """Subscribes to everything with QoS 1, and then reads nothing any more."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=64)
    name = b"deaf"
    writer.write(b"\x10" + bytes([12 + len(name)]) + b"\x00\x04MQTT\x04\x02\x00\x00\x00\x04" + name)
    assert await reader.readexactly(4) == b"\x20\x02\x00\x00"
    writer.write(b"\x82\x06\x00\x01\x00\x01#\x01")
    assert await reader.readexactly(5) == b"\x90\x03\x00\x01\x01"
    try:
        yield
    finally:
        writer.transport.abort()


@needs_mosquitto
async def test_ten_thousand_events_at_once_stay_within_the_bound_and_every_dropped_one_is_reported(
    mosquitto: Mosquitto,
):
    async with watcher(mosquitto.port, "voicegate/burst/events/#") as seen, deaf_subscriber(mosquitto.port):
        async with running(mosquitto.port, "burst", queue_messages=200) as r:
            await until(lambda: r.codes == ["connected"])
            for seq in range(10_000):
                r.sink.emit(executed(seq) if seq % 100 == 0 else turn_opened(seq))
                assert len(r.sink._outbox) <= 201
            await until(lambda: not r.sink._outbox and r.codes[-1] == "dropped", 20.0)
        await until(lambda: seen.messages and json.loads(bytes(seen.messages[-1].payload))["seq"] == 9999)
        found = r.events_in(seen)
    ids = {event["id"] for event in found}
    assert sum(event["event"] == "executed" for event in found) == 100, "no effect was dropped"
    assert len(ids) == len(found)
    assert len(found) + sum(event["dropped_before"] for event in found) == 10_000
    assert r.codes == ["connected", "dropping", "dropped"]


@needs_mosquitto
@pytest.mark.slow
async def test_ten_thousand_events_past_a_deaf_subscriber_all_arrive_and_memory_stays_flat(mosquitto: Mosquitto):
    arrived: set[str] = set()
    memory_bytes = []
    async with (
        watcher(mosquitto.port, "voicegate/volume/events/#") as seen,
        deaf_subscriber(mosquitto.port),
        running(mosquitto.port, "volume", queue_messages=500) as r,
    ):
        await until(lambda: r.codes == ["connected"])
        for seq in range(10_000):
            r.sink.emit(turn_opened(seq))
            if seq % 250 == 249:
                await until(lambda: len(seen.messages) == 250, 30.0)
                arrived |= {json.loads(bytes(message.payload))["id"] for message in seen.messages}
                seen.messages.clear()
                memory_bytes.append(resident_bytes())
    assert len(arrived) == 10_000
    assert max(memory_bytes) < memory_bytes[8] * 1.05, "after warm-up it does not grow"


def resident_bytes() -> int:
    """This process's memory that is in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
