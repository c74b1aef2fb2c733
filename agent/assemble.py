"""Builds a session from settings: ears, policy, tools, loop. The only place that knows every part."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from agent import events
from agent.clock import Pace, WallClock, unix_time_s
from agent.eventlog import EventLog, Sink
from agent.hearing import Ears
from agent.loop import Loop, make_clock, make_worker
from agent.output_mqtt import MqttSink
from agent.own_voice import OwnVoiceVerdict
from agent.session import OwnerMode, OwnerReference, SessionState
from agent.settings import Settings, SettingsError, data_folder
from agent.sources import Description, Source
from agent.spoken_output import SpokenOutput
from agent.turn_work import DistanceThresholds, Limits, SessionBox, TurnWork
from agent.turns import TurnDetector
from agent.vad import make_vad
from agent.wearer_profile import ProfileError, load_profile
from gate.evidence import Evidence
from gate.grants import GrantLedger
from models.audio_llm.conversation import BackendError
from models.components import UnknownComponentError, load_policy, load_speaker
from models.protocols import Policy, SpeakerThresholds
from models.speaker_calibration import Situation, in_situation
from models.store import Store
from tools.backend import Backend, OwnBackend, StubBackend
from tools.catalogue import ToolCatalogue
from tools.executor import Executor
from tools.journal import Journal
from tools.loading import load_user_tools
from tools.records import ExecutionRecord, ExecutionState
from tools.spec import SpecError


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything with weights, loaded once and shared by the sessions of a run; none of it keeps state between turns.

    Attributes:
        ears: the four ears.
        policy: the proposer.
        policy_name: its name in the settings.
        speaker_thresholds: the speaker ear's calibration.
        distance_thresholds: the proximity ear's.
    """

    ears: Ears
    policy: Policy
    policy_name: str
    speaker_thresholds: SpeakerThresholds
    distance_thresholds: DistanceThresholds

    def models(self) -> dict[str, str]:
        """Model names to the sha256 of what was loaded."""
        ears = self.ears
        ids = [ears.speech.model, ears.speaker.model, ears.proximity.model, ears.damage.model, self.policy.model]
        if ears.overlap is not None:
            ids.append(ears.overlap.model)
        if ears.presence is not None:
            ids.append(ears.presence.model)
        return {model.name: model.sha256 for model in ids}


def load_parts(settings: Settings, store: Store, catalogue: ToolCatalogue, policy: Policy | None = None) -> Parts:
    """Load ears and policy.

    Args:
        settings: which ones.
        store: where their files are.
        catalogue: the tools, which the policy prepares for.
        policy: a policy to use instead of the settings' one (the bench's baselines).

    Raises:
        SettingsError: when a named part does not exist.
        ModelError: when files are missing or damaged; names the cure.
    """
    from models.damage_cnn import DamageCnn
    from models.proximity_cnn import ProximityCnn
    from models.segmentation import load as load_overlap
    from models.speech_presence import load as load_presence
    from models.speech_whisper import load as load_speech

    section = settings.models
    try:
        # The recogniser spends its time in native code, so it loads beside the rest: start-up is what users wait for.
        with ThreadPoolExecutor(1, thread_name_prefix="voicegate-load") as beside:
            speech = beside.submit(load_speech, store, section.threads, section.language)
            speaker = load_speaker(section.speaker, store, section.threads)
            proximity = ProximityCnn(store.file("proximity", "proximity.onnx"))
            damage = DamageCnn(store.file("damage", "damage.onnx"))
            proposer = policy or load_policy(section.policy, store, section.threads)
            proposer.prepare(catalogue.all())
            overlap, presence = load_overlap(store, section.threads), load_presence()
            ears = Ears(speech.result(), speaker, proximity, damage, overlap, presence)
        return Parts(ears, proposer, section.policy, speaker.thresholds, proximity)
    except UnknownComponentError as error:
        raise SettingsError(str(error)) from error
    except BackendError as error:
        raise SettingsError(f"policy {section.policy!r} does not start: {error}") from error


def load_catalogue(settings: Settings) -> ToolCatalogue:
    """The tools that the settings allow.

    Raises:
        SettingsError: when allow or deny names a tool that does not exist.
        ToolLoadError: when the user's own tools cannot be loaded.
    """
    section = settings.tools
    catalogue = ToolCatalogue.builtin(load_user_tools(section.folder) if section.folder else ())
    try:
        if section.allow is not None:
            catalogue = catalogue.only(section.allow)
        return catalogue.without(section.deny)
    except (SpecError, ValueError) as error:
        raise SettingsError(f"[tools] {error}") from error


def journal_path(settings: Settings) -> Path:
    """Where executions are journalled."""
    return settings.tools.journal or data_folder() / "journal.sqlite3"


def open_journal(path: Path) -> Journal:
    """Open, and if need be make, the journal.

    Raises:
        JournalError: when it cannot be used.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return Journal(path, unix_s=unix_time_s)


def load_owner(
    settings: Settings, parts: Parts, passphrase: SecretStr | None = None
) -> tuple[OwnerMode, OwnerReference | None]:
    """Whose commands count, and the reference of the enrolled wearer.

    Args:
        settings: name the profile.
        parts: the speaker model that it must be of.
        passphrase: opens an encrypted profile.

    Raises:
        ProfileError: when the profile cannot be opened, or not be used with the speaker model. It never makes way for
            the initiator: whoever speaks first would then own what the wearer locked.
    """
    path = profile_in_use(settings)
    mode = settings.owner_mode(path is not None)
    if path is None:
        return mode, None
    ear, sealed_only = parts.ears.speaker, settings.session.encrypt_profile
    return mode, load_profile(path, ear.model, ear.dimension, passphrase, encrypted_only=sealed_only)


def profile_in_use(settings: Settings) -> Path | None:
    """The profile that a session reads, which need not be there if it was named; None where it reads none."""
    if settings.session.owner == "initiator":
        return None
    if settings.session.profile is not None:
        return settings.session.profile
    default = default_profile()
    return default if default.exists() else None


def default_profile() -> Path:
    """Where ``voicegate enroll`` puts the wearer's profile."""
    return data_folder() / "wearer.json"


def make_session(
    *,
    source: Source,
    settings: Settings,
    parts: Parts,
    catalogue: ToolCatalogue,
    journal: Journal,
    sinks: Sequence[Sink],
    pace: Pace,
    live: bool,
    owner_mode: OwnerMode,
    owner: OwnerReference | None,
    question: str | None = None,
    backend: Backend | None = None,
    broker: MqttSink | None = None,
    spoken: SpokenOutput | None = None,
    limits: Limits | None = None,
) -> Loop:
    """One session, ready to run. Call it inside a running event loop.

    Args:
        source: where audio comes from.
        settings: all settings.
        parts: ears and policy.
        catalogue: the tools.
        journal: open for writing.
        sinks: where events go.
        pace: which clock.
        live: whether the source itself keeps real time.
        owner_mode: whose commands count.
        owner: the enrolled wearer's reference, or None.
        question: a question about the recording, or None.
        backend: carries calls out; the recording stub by default.
        broker: the MQTT output, which may hold tools off; it must also be among ``sinks``.
        spoken: the gate's voice, or None where it makes no sound; its sink must also be among ``sinks``.
        limits: how long each stage of a turn may take.

    Returns:
        The loop; ``await loop.run()`` runs the session.
    """
    session_id = uuid.uuid4().hex[:12]
    clock = make_clock(pace)
    log = EventLog(session_id, sinks, clock.now_s)
    thresholds = settings.gate.thresholds()
    box = SessionBox(SessionState(owner=owner))

    def report(record: ExecutionRecord) -> None:
        if record.late_state in (ExecutionState.DONE, ExecutionState.FAILED):
            log.emit(
                events.LateResult, loop.position(), turn=record.turn_id, tool=record.call.name,
                outcome=record.late_state.value, detail=record.late_detail,
            )  # fmt: skip

    # Time limits of tools are real seconds at every pace: a tool does not run faster because audio does.
    executor = Executor(
        catalogue, backend or OwnBackend(StubBackend()), journal, GrantLedger(), WallClock(), session_id=session_id,
        report=report,
    )  # fmt: skip
    if not settings.tools.enabled:
        executor.hold("settings", "[tools] enabled is false")
    if owner_mode is OwnerMode.ENROLLED and owner is None:
        executor.hold("owner", "nobody is enrolled; run `voicegate enroll`")
    turn_settings = settings.turns.turn_settings()

    def say(code: str, message: str) -> None:
        log.emit(events.OutputNotice, loop.position(), code=code, message=message)

    def tools_off() -> str:
        # What cannot be written down where the user asked for it must not be done.
        unwritten = f"an output fails: {log.trouble}" if log.trouble else ""
        return executor.lasting_hold or unwritten

    def work(position: Callable[[], int]) -> TurnWork:
        return TurnWork(
            ears=parts.ears, policy=parts.policy, catalogue=catalogue, execute=executor.execute,
            speaker_thresholds=parts.speaker_thresholds, distance_thresholds=parts.distance_thresholds,
            thresholds=thresholds, repair=settings.gate.repair(), owner_mode=owner_mode, box=box, log=log,
            position=position, question=question, tools_off=tools_off,
            confirmations=settings.gate.confirmations(), grace_s=settings.tools.grace_s(),
            limits=limits or Limits(), own_voice=None if spoken is None else spoken.own_voice,
            on_source=_nobody_interrupts if spoken is None else spoken.sink.wearer_speaks,
            dialects=settings.models.dialects,
        )  # fmt: skip

    def opened(described: Description) -> None:
        if broker is not None:
            broker.start(executor, say)
        if spoken is not None:
            spoken.start(say)
        log.emit(
            events.SessionStarted, 0, source=described, pace=pace.value, owner=owner_mode.value,
            policy=parts.policy_name, models=parts.models(), thresholds=_thresholds_shown(parts, owner_mode),
            tools_off=executor.tools_off,
        )  # fmt: skip

    loop = Loop(
        source=source if spoken is None else spoken.tap(source),
        vad=make_vad(settings.turns.vad_mode), turns=TurnDetector(turn_settings), clock=clock,
        worker=make_worker(pace, clock), log=log, work=work, live=live, on_open=opened, on_close=executor.aclose,
        closing=settings.turns.closing_settings(),
    )  # fmt: skip
    return loop


def _nobody_interrupts(evidence: Evidence, own: OwnVoiceVerdict) -> None:
    """Where the gate makes no sound there is nothing to interrupt."""


def _thresholds_shown(parts: Parts, owner_mode: OwnerMode) -> dict[str, float | str]:
    situation = Situation.ENROLLED if owner_mode is OwnerMode.ENROLLED else Situation.INITIATOR
    _, owner_at, other_below = in_situation(parts.speaker_thresholds, situation).verdict(0.0, 3.0, 3.0)
    near = parts.distance_thresholds
    return {
        "owner from (3 s of speech)": round(owner_at, 3),
        "other below": round(other_below, 3),
        "near from": round(near.near_at, 3),
        "far below": round(near.far_below, 3),
    }


__all__ = ["Parts", "ProfileError", "load_catalogue", "load_owner", "load_parts", "make_session", "open_journal"]
