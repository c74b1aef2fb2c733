"""Settings: one TOML file and flags. Unknown keys and wrong types are refused by name; nothing is coerced."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.closing import ClosingSettings
from agent.mqtt_settings import MqttSettings, MqttSettingsError, TlsSettings, ToolsOff, default_client_id
from agent.output_voice import VoiceSettings
from agent.session import OwnerMode
from agent.turns import TurnSettings
from agent.voices import DEFAULT_STYLE
from gate.catalogue import Risk
from gate.confirm import ConfirmSettings
from gate.repair import RepairSettings
from gate.span import SAMPLE_RATE_HZ
from gate.thresholds import RiskThresholds, Thresholds


class SettingsError(Exception):
    """A settings file or flag is wrong. The message names the key and what it takes."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class SourceSection(_Section):
    """Where audio comes from."""

    device: str | int | None = None
    """Microphone: index, or a part of its name. Null takes the system's default."""
    channel: int | None = Field(default=None, ge=0)
    """Which channel to use, from 0. Null applies the channel rule."""


class TurnsSection(_Section):
    """How turns are cut; milliseconds are multiples of 20."""

    vad_mode: Literal[0, 1, 2, 3] = 1
    """webrtcvad's aggressiveness."""
    pre_roll_ms: int = 300
    min_speech_ms: int = 160
    provisional_pause_ms: int = 200
    hangover_ms: int = 600
    tail_ms: int = 200
    max_turn_s: float = 15.0
    adaptive: bool = False
    """True lets what was said decide how long a pause closes a turn; ``hangover_ms`` holds where it says nothing."""
    complete_ms: int = Field(default=360, ge=200, le=1200)
    """Closing silence after words that make a whole call or question."""
    open_ms: int = Field(default=1200, ge=200, le=1200)
    """Closing silence after words that lack something."""

    def closing_settings(self) -> ClosingSettings | None:
        """As the loop takes them."""
        return ClosingSettings(self.complete_ms, self.open_ms) if self.adaptive else None

    def turn_settings(self) -> TurnSettings:
        """As the turn detector takes them.

        Raises:
            SettingsError: when values contradict each other.
        """
        try:
            return TurnSettings(
                pre_roll_ms=self.pre_roll_ms, min_speech_ms=self.min_speech_ms, hangover_ms=self.hangover_ms,
                provisional_pause_ms=self.provisional_pause_ms, tail_ms=self.tail_ms, max_turn_s=self.max_turn_s,
            )  # fmt: skip
        except (TypeError, ValueError) as error:
            raise SettingsError(f"[turns] {error}") from error


class SessionSection(_Section):
    """Whose commands count."""

    owner: Literal["auto", "enrolled", "initiator"] = "auto"
    """``enrolled``: only the enrolled wearer, and without a profile nobody. ``initiator``: whoever speaks first and
    near. ``auto``: the enrolled wearer where a profile is given, else the initiator."""
    profile: Path | None = None
    """A profile made by ``voicegate enroll``."""
    encrypt_profile: bool = False
    """True makes ``voicegate enroll`` encrypt what it writes (see docs/voice.md), and refuses a plain profile."""


class RiskSection(_Section):
    """What one risk class demands."""

    owner_margin: float = Field(ge=0, le=1)
    near_probability_at_least: float = Field(ge=0, le=1)
    word_probability_at_least: float = Field(ge=0, le=1)
    refuse_any_damage: bool

    def thresholds(self) -> RiskThresholds:
        """As the gate takes them."""
        return RiskThresholds(**self.model_dump())


def _risk_defaults(risk: Risk) -> RiskSection:
    default = Thresholds().by_risk[risk]
    return RiskSection(
        owner_margin=default.owner_margin,
        near_probability_at_least=default.near_probability_at_least,
        word_probability_at_least=default.word_probability_at_least,
        refuse_any_damage=default.refuse_any_damage,
    )


class GateSection(_Section):
    """How sure is sure enough."""

    low: RiskSection = Field(default_factory=lambda: _risk_defaults(Risk.LOW))
    medium: RiskSection = Field(default_factory=lambda: _risk_defaults(Risk.MEDIUM))
    high: RiskSection = Field(default_factory=lambda: _risk_defaults(Risk.HIGH))
    mask_reach_ms: int = Field(default=150, ge=0)
    grant_life_s: float = Field(default=15.0, gt=0)
    confirm: tuple[Literal["low", "medium", "high"], ...] = ("high",)
    """Risk classes whose calls are asked about before they run ("Transfer 60 dollars to Ben, yes?")."""
    confirm_life_s: float = Field(default=8.0, gt=0)
    """How long a "yes" counts."""
    max_pardons_in_row: int = Field(default=2, ge=0)
    pardon_life_s: float = Field(default=10.0, gt=0)

    def thresholds(self) -> Thresholds:
        """As the gate takes them."""
        return Thresholds(
            {Risk.LOW: self.low.thresholds(), Risk.MEDIUM: self.medium.thresholds(), Risk.HIGH: self.high.thresholds()},
            self.mask_reach_ms * SAMPLE_RATE_HZ // 1000,
            round(self.grant_life_s * SAMPLE_RATE_HZ),
        )

    def confirmations(self) -> ConfirmSettings:
        """As the confirmation takes them."""
        risks = frozenset(Risk[name.upper()] for name in self.confirm)
        return ConfirmSettings(risks, round(self.confirm_life_s * SAMPLE_RATE_HZ))

    def repair(self) -> RepairSettings:
        """As the repair takes them."""
        return RepairSettings(self.max_pardons_in_row, round(self.pardon_life_s * SAMPLE_RATE_HZ))


class ToolsSection(_Section):
    """What may be executed."""

    enabled: bool = True
    """False switches every tool off; the gate still mutes, answers and asks."""
    allow: tuple[str, ...] | None = None
    """Only these tools; null allows all."""
    deny: tuple[str, ...] = ()
    """Never these."""
    folder: Path | None = None
    """A folder of your own tools, one file each."""
    journal: Path | None = None
    """The journal of executions. Null uses ``journal_path()``."""
    grace_low_s: float = Field(default=0.0, ge=0, le=8)
    """How long a licensed call of low risk waits, so that "cancel that" can still take it back."""
    grace_medium_s: float = Field(default=3.0, ge=0, le=8)
    grace_high_s: float = Field(default=3.0, ge=0, le=8)

    def grace_s(self) -> dict[Risk, float]:
        """By risk, as the loop takes them."""
        return {Risk.LOW: self.grace_low_s, Risk.MEDIUM: self.grace_medium_s, Risk.HIGH: self.grace_high_s}


class ModelsSection(_Section):
    """Which models are used."""

    policy: str = "smollm2"
    """A name, with options behind it where it has any: ``qwen3-omni:dir=FOLDER,dtype=bfloat16``."""
    dialects: bool = False
    """True reads calls in models' native dialects too; false reads the canonical form alone."""
    speaker: str = "campplus-onnx"
    threads: int = Field(default=2, ge=1, le=64)
    language: str = "en"
    """Language of the speech, or "auto"."""


class OutputSection(_Section):
    """Where events go beside the console."""

    events: Path | None = None
    """A JSON Lines file of all events. Transcripts and scores are written nowhere else."""


class VoiceSection(_Section):
    """The gate's own voice, in ``voicegate listen`` (see docs/voice.md)."""

    enabled: bool = False
    """True speaks answers and "Pardon?", or sounds an earcon where no synthesiser is installed."""
    style: str = DEFAULT_STYLE
    """A voice of the model kokoro-voices."""
    device: str | int | None = None
    """Output device: index, or a part of its name. Null takes the system's default."""
    outcomes: bool = True
    """Whether executions are sounded: an earcon when done, a sentence when they failed."""

    def voice_settings(self) -> VoiceSettings:
        """As the voice takes them."""
        return VoiceSettings(outcomes=self.outcomes)


class MqttTlsSection(_Section):
    """How the connection to the broker is encrypted."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure: bool = False
    """True accepts any certificate of any host."""


class MqttSection(_Section):
    """An MQTT broker that is told what is decided and done (see docs/mqtt.md). Without a host there is none."""

    host: str | None = None
    port: int | None = Field(default=None, ge=1, le=65_535)
    client_id: str | None = None
    """Null takes one from this computer's name."""
    base_topic: str | None = None
    username: str | None = None
    password_file: Path | None = None
    password_env: str | None = None
    tls: MqttTlsSection | None = None
    protocol: Literal["5", "3.1.1"] = "5"
    keepalive_s: int = Field(default=20, ge=5, le=3600)
    transcripts: bool = False
    """True also publishes what was said and answered, and the scores."""
    home_assistant: bool = False
    discovery_prefix: str = "homeassistant"
    tools_off: Literal["until_connected", "while_disconnected", "never"] = "until_connected"
    """When a missing broker switches tools off."""
    queue_messages: int = Field(default=1000, ge=1)
    late_after_s: float = Field(default=10.0, gt=0)

    def broker(self) -> MqttSettings | None:
        """As the MQTT output takes them, or None when no host is named.

        Raises:
            SettingsError: when values contradict each other.
        """
        if self.host is None:
            return None
        values = self.model_dump(exclude={"host", "client_id", "tls", "tools_off"})
        try:
            return MqttSettings(
                host=self.host,
                client_id=self.client_id or default_client_id(),
                tls=None if self.tls is None else TlsSettings(**self.tls.model_dump()),
                tools_off=ToolsOff(self.tools_off),
                mute_file=data_folder() / "mqtt-mute",
                **values,
            )
        except MqttSettingsError as error:
            raise SettingsError(str(error)) from error


class Settings(_Section):
    """All settings, each with a default that works."""

    source: SourceSection = Field(default_factory=SourceSection)
    turns: TurnsSection = Field(default_factory=TurnsSection)
    session: SessionSection = Field(default_factory=SessionSection)
    gate: GateSection = Field(default_factory=GateSection)
    tools: ToolsSection = Field(default_factory=ToolsSection)
    models: ModelsSection = Field(default_factory=ModelsSection)
    output: OutputSection = Field(default_factory=OutputSection)
    voice: VoiceSection = Field(default_factory=VoiceSection)
    mqtt: MqttSection = Field(default_factory=MqttSection)

    def owner_mode(self, has_profile: bool) -> OwnerMode:
        """Whose commands count, given whether a profile is there."""
        if self.session.owner == "auto":
            return OwnerMode.ENROLLED if has_profile else OwnerMode.INITIATOR
        return OwnerMode(self.session.owner)


def default_settings_path() -> Path:
    """Where the settings file is looked for: the user's configuration folder."""
    return platformdirs.user_config_path("voicegate") / "voicegate.toml"


def data_folder() -> Path:
    """Where profiles and the journal live: the user's data folder."""
    return platformdirs.user_data_path("voicegate")


def load_settings(path: Path | None, overrides: dict[str, Any] | None = None) -> Settings:
    """Read the settings.

    Args:
        path: the file; None reads the default place, and is content if nothing is there.
        overrides: values from flags, by dotted key ("models.policy"); None values are ignored.

    Returns:
        The settings.

    Raises:
        SettingsError: when the file is missing though named, is not TOML, or holds an unknown key or a wrong value.
    """
    chosen = path or default_settings_path()
    values: dict[str, Any] = {}
    if path is not None or chosen.exists():
        try:
            values = tomllib.loads(chosen.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise SettingsError(f"{chosen}: no such settings file") from error
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingsError(f"{chosen}: {error}") from error
    for dotted, value in (overrides or {}).items():
        if value is not None:
            section, key = dotted.split(".")
            values.setdefault(section, {})[key] = value
    try:
        return Settings.model_validate_json(_json(values))
    except ValidationError as error:
        raise SettingsError(_explain(error, chosen if values else None)) from error


def _json(values: dict[str, Any]) -> str:
    # JSON mode reads paths and tuples from strings and lists while staying strict about numbers and booleans.
    try:
        return json.dumps(values, default=str, allow_nan=False)
    except ValueError as error:
        raise SettingsError("a number is not finite (nan or inf)") from error


def _explain(error: ValidationError, path: Path | None) -> str:
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            lines.append(f"unknown key {key!r}; {_known_keys(problem['loc'])}")
        else:
            lines.append(f"{key} is {problem['input']!r}: {problem['msg'][0].lower()}{problem['msg'][1:]}")
    return f"{path}: {'; '.join(lines)}" if path else "; ".join(lines)


def _known_keys(location: tuple[int | str, ...]) -> str:
    model: type[BaseModel] = Settings
    for part in location[:-1]:
        field = model.model_fields.get(str(part))
        if field is None or not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            break
        model = field.annotation
    return f"known here: {', '.join(model.model_fields)}"
