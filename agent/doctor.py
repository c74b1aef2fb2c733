"""``voicegate doctor``: what works here, what does not, and what to do about it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from agent.assemble import default_profile, journal_path, load_catalogue
from agent.exit_codes import ExitCode
from agent.passphrase import PASSPHRASE_VARIABLE, passphrase_from_environment
from agent.settings import Settings
from agent.sources import SourceError
from agent.wearer_profile import ProfileError, ProfileLockedError, is_encrypted, load_profile
from models.components import UnknownComponentError, load_speaker
from models.store import State, Store
from models.store_errors import ModelError
from tools.journal import JournalError, read_journal

NEEDED_DISK_BYTES = 1_500_000_000
"""For the models, while they are not there yet."""


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
        _python, _vad, lambda: _microphone(settings), lambda: _models(store), lambda: _disk(store),
        lambda: _tools(settings), lambda: _enrolment(settings, store), lambda: _broker(settings),
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
    return Finding("python", (3, 11) <= sys.version_info[:2] < (3, 13), f"{version} (3.11 or 3.12 is supported)")


def _vad() -> Finding:
    from agent.vad import VadUnavailableError, WebRtcVad

    try:
        WebRtcVad()
    except VadUnavailableError as error:
        return Finding("vad", False, str(error), ExitCode.MODELS)
    return Finding("vad", True, "webrtcvad loads")


def _microphone(settings: Settings) -> Finding:
    from agent.source_microphone import find_device, list_devices

    wanted = settings.source.device
    try:
        devices = list_devices()
        if not devices and wanted is None:
            text = "no input device; `voicegate replay FILE` and `voicegate listen --stdin` work without one"
            return Finding("microphone", None, text)
        chosen = find_device(devices, wanted)
    except SourceError as error:
        return Finding("microphone", False, " ".join(error.message.split()), ExitCode.SOURCE)
    others = ", ".join(f"{device.index}: {device.name}" for device in devices if device is not chosen)
    return Finding("microphone", True, f"{chosen.index}: {chosen.name}" + (f" (not used: {others})" if others else ""))


def _missing(store: Store) -> list[str]:
    return [name for name in store.registry.default_names() if store.state(name) in (State.MISSING, State.STALE)]


def _models(store: Store) -> Finding:
    missing = _missing(store)
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
    if _missing(store) and free < NEEDED_DISK_BYTES:
        need = f"models need {NEEDED_DISK_BYTES / 1e9:.1f} GB"
        return Finding("disk", False, f"{text}; {need}: free some, or set VOICEGATE_MODELS to a folder on another disk")
    return Finding("disk", True, text)


def _tools(settings: Settings) -> Finding:
    from agent.settings import SettingsError
    from tools.loading import ToolLoadError

    journal = journal_path(settings)
    try:
        names = [tool.name for tool in load_catalogue(settings).all()]
        if journal.exists():
            read_journal(journal, 1)
    except (SettingsError, ToolLoadError, JournalError) as error:
        return Finding("tools", False, str(error), ExitCode.TOOLS)
    return Finding("tools", True, f"{len(names)} tools; journal at {journal}")


def _enrolment(settings: Settings, store: Store) -> Finding:
    section = settings.session
    anybody = "whoever speaks first and near owns a session"
    if section.owner == "initiator":
        return Finding("enrolment", None, f'not used, [session] owner is "initiator": {anybody}')
    path = section.profile or default_profile()
    if not path.exists():
        if section.profile is not None:
            text = f"{path}: no such profile; make one with `voicegate enroll --out {path}`"
            return Finding("enrolment", False, text, ExitCode.PROFILE)
        if section.owner == "enrolled":
            text = 'nobody, and [session] owner is "enrolled": no tool runs until `voicegate enroll`'
            return Finding("enrolment", False, text, ExitCode.PROFILE)
        return Finding("enrolment", None, f"nobody: {anybody}; see `voicegate enroll`")
    protection = "encrypted" if is_encrypted(path) else "not encrypted"
    passphrase = passphrase_from_environment()
    try:
        speaker = load_speaker(settings.models.speaker, store, settings.models.threads)
        reference = load_profile(
            path, speaker.model, speaker.dimension, passphrase, encrypted_only=section.encrypt_profile
        )
    except ProfileLockedError:
        text = f"{path}: {protection}; whether it opens shows when {PASSPHRASE_VARIABLE} is set"
        return Finding("enrolment", None, text)
    except ProfileError as error:
        return Finding("enrolment", False, str(error), ExitCode.PROFILE)
    except UnknownComponentError as error:
        return Finding("enrolment", False, f"[models] speaker: {error}", ExitCode.USAGE)
    except ModelError:
        text = f"{path}: {protection}; whether it can be used shows when the models are there"
        return Finding("enrolment", None, text)
    return Finding("enrolment", True, f"{path}: {reference.speech_s:.0f} s of speech, {protection}")


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
