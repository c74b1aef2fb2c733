"""``voicegate doctor``: what works here, what does not, and what to do about it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from agent.assemble import default_profile, journal_path, load_catalogue
from agent.exit_codes import ExitCode
from agent.settings import Settings
from agent.sources import SourceError
from models.store import State, Store
from models.store_errors import ModelError

NEEDED_DISK_BYTES = 1_500_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked.

    Attributes:
        name: what.
        ok: True, False, or None for something optional that is not there.
        text: what was found, and the cure where something is wrong.
        code: the exit code that stands for this fault.
    """

    name: str
    ok: bool | None
    text: str
    code: ExitCode = ExitCode.FAILED


def run(settings: Settings) -> ExitCode:
    """Check everything and print it.

    Returns:
        ``OK``, or the code of the first fault.
    """
    store = Store()
    checks: list[Callable[[], Finding]] = [
        _python, _vad, _microphone, lambda: _models(store), lambda: _disk(store), lambda: _tools(settings), _enrolment,
        lambda: _broker(settings),
    ]  # fmt: skip
    worst = ExitCode.OK
    for check in checks:
        finding = check()
        mark = {True: "ok  ", False: "FAIL", None: "-   "}[finding.ok]
        print(f"{mark} {finding.name:<12} {finding.text}")
        if finding.ok is False and worst is ExitCode.OK:
            worst = finding.code
    return worst


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("python", sys.version_info >= (3, 11), f"{version} (3.11 or 3.12 is supported)")


def _vad() -> Finding:
    from agent.vad import VadUnavailableError, WebRtcVad

    try:
        WebRtcVad()
    except VadUnavailableError as error:
        return Finding("vad", False, str(error))
    return Finding("vad", True, "webrtcvad loads")


def _microphone() -> Finding:
    from agent.source_microphone import list_devices

    try:
        devices = list_devices()
    except SourceError as error:
        return Finding("microphone", False, error.message.splitlines()[0], ExitCode.SOURCE)
    if not devices:
        text = "no input device; `voicegate replay FILE` and `voicegate listen --stdin` work without one"
        return Finding("microphone", None, text)
    return Finding("microphone", True, ", ".join(f"{device.index}: {device.name}" for device in devices))


def _models(store: Store) -> Finding:
    missing = [name for name in store.registry.default_names() if store.state(name) is not State.READY]
    if missing:
        return Finding(
            "models", False, f"not ready: {', '.join(missing)}; run `voicegate models pull`", ExitCode.MODELS
        )
    try:
        for name in store.registry.default_names():
            store.path(name)
    except ModelError as error:
        return Finding("models", False, str(error), ExitCode.MODELS)
    return Finding("models", True, f"{', '.join(store.registry.default_names())} in {store.cache_dir}")


def _disk(store: Store) -> Finding:
    folder = store.cache_dir
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    text = f"{free / 1e9:.1f} GB free at {folder}"
    if free < NEEDED_DISK_BYTES:
        return Finding("disk", False, f"{text}; models need {NEEDED_DISK_BYTES / 1e9:.1f} GB, or set VOICEGATE_MODELS")
    return Finding("disk", True, text)


def _tools(settings: Settings) -> Finding:
    from agent.settings import SettingsError
    from tools.loading import ToolLoadError

    try:
        names = [tool.name for tool in load_catalogue(settings).all()]
    except (SettingsError, ToolLoadError) as error:
        return Finding("tools", False, str(error), ExitCode.TOOLS)
    return Finding("tools", True, f"{len(names)} tools; journal at {journal_path(settings)}")


def _enrolment() -> Finding:
    path = default_profile()
    if path.exists():
        return Finding("enrolment", True, str(path))
    return Finding("enrolment", None, "nobody: whoever speaks first and near owns a session; see `voicegate enroll`")


def _broker(settings: Settings) -> Finding:
    from agent.mqtt_check import check_broker
    from agent.settings import SettingsError

    try:
        broker = settings.mqtt.broker()
    except SettingsError as error:
        return Finding("broker", False, str(error), ExitCode.USAGE)
    if broker is None:
        return Finding("broker", None, "no MQTT output: [mqtt] host is not set")
    works, text = check_broker(broker)
    return Finding("broker", works, text)
