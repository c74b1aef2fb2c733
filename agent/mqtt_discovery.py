"""Announces the gate to Home Assistant: one retained message that describes one device with all that belongs to it.

The format is the device discovery of Home Assistant's MQTT integration, with the keys written out. Availability stands
with each entity rather than once: the connectivity sensor must be able to say "off" just when everything else is
unavailable.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from agent.mqtt_messages import LISTENING, OFF, OFFLINE, ON, Topics, as_json
from agent.mqtt_settings import MqttSettings


def discovery_config(settings: MqttSettings, topics: Topics) -> tuple[str, str]:
    """Where the announcement is published, and its JSON."""
    return f"{settings.discovery_prefix}/device/{settings.client_id}/config", as_json(device(settings, topics))


def device(settings: MqttSettings, topics: Topics) -> dict[str, Any]:
    """The announcement: a device with a sensor, two binary sensors and a switch.

    Args:
        settings: names the device and its entities; they keep their identity as long as ``client_id`` stays.
        topics: what the entities read, and the one topic that the switch writes.
    """
    available = {
        "availability_topic": topics.state,
        "availability_template": f"{{{{ 'offline' if value == '{OFFLINE}' else 'online' }}}}",
    }
    entities: dict[str, dict[str, Any]] = {
        "last_decision": {
            "platform": "sensor",
            "name": "Last decision",
            "state_topic": topics.last_decision,
            "value_template": "{{ value_json.action }}",
            "device_class": "enum",
            "options": ["mute", "tool", "answer", "pardon"],
            "json_attributes_topic": topics.last_decision,
            "icon": "mdi:account-voice",
            **available,
        },
        "listening": {
            "platform": "binary_sensor",
            "name": "Listening",
            "state_topic": topics.state,
            "value_template": f"{{{{ '{ON}' if value == '{LISTENING}' else '{OFF}' }}}}",
            "device_class": "running",
            **available,
        },
        "connectivity": {
            "platform": "binary_sensor",
            "name": "Connection",
            "state_topic": topics.state,
            "value_template": f"{{{{ '{OFF}' if value == '{OFFLINE}' else '{ON}' }}}}",
            "device_class": "connectivity",
            "entity_category": "diagnostic",
        },
        "mute": {
            "platform": "switch",
            "name": "Mute tools",
            "command_topic": topics.mute_set,
            "state_topic": topics.mute_state,
            "payload_on": ON,
            "payload_off": OFF,
            "optimistic": False,
            "retain": False,
            "qos": 1,
            "icon": "mdi:microphone-off",
            **available,
        },
    }
    for key, entity in entities.items():
        entity["unique_id"] = f"{settings.client_id}_{key}"
    version = _version()
    return {
        "device": {
            "identifiers": [settings.client_id],
            "name": settings.client_id,
            "model": "voicegate",
            "sw_version": version,
        },
        "origin": {"name": "voicegate", "sw_version": version},
        "components": entities,
    }


def _version() -> str:
    try:
        return importlib.metadata.version("voicegate")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"
