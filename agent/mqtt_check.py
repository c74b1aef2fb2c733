"""Whether the broker can be used with these settings: for ``voicegate doctor``."""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import replace

from agent.mqtt_connection import BrokerError, open_connection
from agent.mqtt_messages import Topics
from agent.mqtt_settings import MqttSettings, MqttSettingsError


def check_broker(settings: MqttSettings) -> tuple[bool, str]:
    """Connect to the broker, under another client id so that a running gate is not thrown out, and publish nothing.

    Must not be called inside a running event loop.

    Returns:
        Whether it works, and what was found.
    """
    try:
        settings.check()
        may_listen = asyncio.run(_connect(settings))
    except (MqttSettingsError, BrokerError) as error:
        return False, f"{settings.address}: {error}"
    found = [f"{settings.address} answers; publishing below {settings.topic}"]
    if not may_listen:
        found.append(f"but it does not let us read {Topics(settings.topic).mute_set}: no mute switch")
    if settings.tls is not None and settings.tls.insecure:
        found.append("its certificate is not checked")
    if settings.has_password and settings.tls is None:
        found.append("the password travels unencrypted")
    file = settings.password_file
    if file is not None and os.name == "posix" and file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        found.append(f"others on this machine can read {file}: chmod 600 {file}")
    return may_listen, "; ".join(found)


async def _connect(settings: MqttSettings) -> bool:
    connection = await open_connection(replace(settings, client_id=f"{settings.client_id[:58]}-check"))
    try:
        return await connection.subscribe(Topics(settings.topic).mute_set)
    finally:
        await connection.close(goodbye=True)
