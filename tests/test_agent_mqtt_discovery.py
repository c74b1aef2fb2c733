"""The announcement to Home Assistant: its keys are documented ones, its templates work on what is really published."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jinja2
import pytest

from agent.mqtt_discovery import device, discovery_config
from agent.mqtt_messages import LISTENING, OFFLINE, ONLINE, Topics
from agent.mqtt_settings import MqttSettings
from tests.mqtt_harness import decided, executed, rig, settings, settle

DOCS = Path(__file__).resolve().parent.parent / "docs" / "mqtt.md"

# The keys that Home Assistant documents for MQTT discovery (integrations mqtt, sensor.mqtt, binary_sensor.mqtt,
# switch.mqtt), with what it requires.
ROOT_KEYS = {"device", "origin", "components", "availability_topic", "availability_template", "qos", "encoding"}
DEVICE_KEYS = {
    "configuration_url", "connections", "hw_version", "identifiers", "manufacturer", "model", "model_id", "name",
    "serial_number", "suggested_area", "sw_version", "via_device",
}  # fmt: skip
ORIGIN_KEYS = {"name", "sw_version", "support_url"}
COMMON_KEYS = {
    "availability", "availability_mode", "availability_template", "availability_topic", "device_class",
    "enabled_by_default", "encoding", "entity_category", "entity_picture", "icon", "json_attributes_template",
    "json_attributes_topic", "name", "payload_available", "payload_not_available", "platform", "qos", "state_topic",
    "unique_id", "value_template",
}  # fmt: skip
PLATFORM_KEYS = {
    "sensor": {
        "expire_after", "force_update", "last_reset_value_template", "options", "state_class",
        "suggested_display_precision", "unit_of_measurement",
    },
    "binary_sensor": {"expire_after", "force_update", "off_delay", "payload_off", "payload_on"},
    "switch": {
        "command_template", "command_topic", "optimistic", "payload_off", "payload_on", "retain", "state_off",
        "state_on",
    },
}  # fmt: skip
REQUIRED = {
    "sensor": {"platform", "unique_id", "state_topic"},
    "binary_sensor": {"platform", "unique_id", "state_topic"},
    "switch": {"platform", "unique_id", "command_topic"},
}
DEVICE_CLASSES = {"sensor": {"enum"}, "binary_sensor": {"connectivity", "running"}}
"""Of those that it knows, the ones that fit."""
TOPIC = re.compile(r"homeassistant/device/[a-zA-Z0-9_-]+/config")


def announced(**changes: Any) -> dict[str, Any]:
    made = settings(**changes)
    return device(made, Topics(made.topic))


def entity(name: str) -> dict[str, Any]:
    return announced()["components"][name]


def rendered(template: str, payload: str) -> str:
    """As Home Assistant renders it: ``value`` is the payload, ``value_json`` what it says."""
    try:
        value_json = json.loads(payload)
    except ValueError:
        value_json = None
    return jinja2.Environment(autoescape=True).from_string(template).render(value=payload, value_json=value_json)


def test_every_key_is_a_documented_one_and_nothing_that_is_required_is_missing():
    made = announced()
    assert set(made) <= ROOT_KEYS
    assert {"device", "origin", "components"} <= set(made)
    assert set(made["device"]) <= DEVICE_KEYS
    assert made["device"]["identifiers"] == ["gate-1"]
    assert set(made["origin"]) <= ORIGIN_KEYS
    assert made["origin"]["name"] == "voicegate"
    for name, found in made["components"].items():
        platform = found["platform"]
        assert set(found) <= COMMON_KEYS | PLATFORM_KEYS[platform], name
        assert set(found) >= REQUIRED[platform], name
        assert found.get("device_class") in DEVICE_CLASSES.get(platform, set()) | {None}
        assert found.get("entity_category") in (None, "diagnostic")


def test_what_contradicts_itself_in_home_assistant_is_not_there():
    sensor = entity("last_decision")
    assert sensor["device_class"] == "enum"
    assert not {"state_class", "unit_of_measurement"} & set(sensor), "options exclude both"
    for found in announced()["components"].values():
        assert not {"availability", "availability_topic"} <= set(found)


def test_the_topic_is_one_that_home_assistant_reads_whatever_the_machine_is_called():
    for client_id in ("gate-1", "a_b", "X" * 64):
        topic, payload = discovery_config(settings(client_id=client_id), Topics("x"))
        assert TOPIC.fullmatch(topic)
        json.loads(payload)
    assert discovery_config(settings(discovery_prefix="ha/mqtt"), Topics("x"))[0].startswith("ha/mqtt/device/")


def test_identities_are_unique_over_gates_and_stay_when_the_topics_move():
    ids = [found["unique_id"] for name in ("a", "b") for found in announced(client_id=name)["components"].values()]
    assert len(set(ids)) == len(ids) == 8
    moved = announced(base_topic="elsewhere")["components"]
    assert {found["unique_id"] for found in moved.values()} == {
        found["unique_id"] for found in announced()["components"].values()
    }


@pytest.mark.parametrize(
    ("state", "available", "listening", "connection"),
    [(ONLINE, "online", "OFF", "ON"), (LISTENING, "online", "ON", "ON"), (OFFLINE, "offline", "OFF", "OFF")],
)
def test_each_state_of_the_gate_is_shown_right(state: str, available: str, listening: str, connection: str):
    assert rendered(entity("last_decision")["availability_template"], state) == available
    assert rendered(entity("listening")["value_template"], state) == listening
    assert rendered(entity("connectivity")["value_template"], state) == connection
    assert "availability_topic" not in entity("connectivity"), "or it would be unavailable just when it has news"


async def test_the_sensor_shows_what_is_really_published_with_the_reason_as_an_attribute():
    async with rig(home_assistant=True) as r:
        r.sink.emit(decided(0))
        r.sink.emit(executed(1))
        await settle()
        [config] = [payload for topic, payload, _ in r.broker.published if TOPIC.fullmatch(topic)]
        sensor = json.loads(config)["components"]["last_decision"]
        [*_, last] = [payload for topic, payload, _ in r.broker.published if topic == sensor["state_topic"]]
    assert rendered(sensor["value_template"], last) in sensor["options"]
    assert sensor["json_attributes_topic"] == sensor["state_topic"]
    assert json.loads(last)["reason"] == "licensed"


async def test_the_switch_sends_what_the_gate_takes_and_is_no_command_that_could_come_late():
    switch = entity("mute")
    assert switch["retain"] is False
    assert switch["optimistic"] is False, "it shows what the gate did, not what was wished"
    async with rig(home_assistant=True) as r:
        assert r.broker.subscribed == [switch["command_topic"]]
        for payload in (switch["payload_on"], switch["payload_off"]):
            r.broker.deliver(payload.encode(), switch["command_topic"])
            await settle()
            assert [told for topic, told, _ in r.broker.published if topic == switch["state_topic"]][-1] == payload


async def test_nothing_is_announced_unless_asked():
    async with rig() as r:
        assert not any(TOPIC.fullmatch(topic) for topic, _, _ in r.broker.published)


def test_the_documented_payload_is_the_one_that_is_published():
    made = MqttSettings(host="localhost", client_id="voicegate-kitchen")
    [listing] = re.findall(r"```json\n(\{\n  \"device\".*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    documented = json.loads(listing)
    real = device(made, Topics(made.topic))
    for found in (documented, real):
        found["device"]["sw_version"] = found["origin"]["sw_version"] = "any"
    assert documented == real
