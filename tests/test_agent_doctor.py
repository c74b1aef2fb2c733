"""The doctor: each fault is found, alone, with its cure and exit code; a doctor that misses one sends users away."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from agent import doctor
from agent.exit_codes import ExitCode
from agent.session import OwnerReference
from agent.settings import Settings, data_folder
from agent.source_microphone import InputDevice
from agent.sources import ErrorCode, SourceError
from agent.wearer_profile import save_profile
from models.protocols import ModelId
from models.store import State, Store
from models.store_errors import ModelError, ModelFault
from tests.broker import free_port
from tests.support_tools import Ticks
from tools.journal import Journal

MODEL = ModelId("net", "a" * 64)
DESK = InputDevice(0, "Desk microphone", "ALSA", 1, 48_000, True)
HEADSET = InputDevice(3, "Headset", "ALSA", 1, 16_000, False)
CHECKS = ("python", "vad", "microphone", "models", "disk", "tools", "enrolment", "broker")


@dataclass
class Shelf:
    """A store whose models are as a test says."""

    cache_dir: Path
    states: dict[str, State] = field(default_factory=lambda: {"words": State.READY, "voices": State.READY})
    damaged: str = ""

    @property
    def registry(self) -> Shelf:
        return self

    def default_names(self) -> tuple[str, ...]:
        return tuple(self.states)

    def state(self, name: str) -> State:
        return self.states[name]

    def path(self, name: str) -> Path:
        if name == self.damaged:
            raise ModelError(ModelFault.HASH_MISMATCH, f"model {name!r} is damaged", "Run: voicegate models pull")
        return self.cache_dir / name


@dataclass
class Machine:
    """A machine on which everything works, until a test breaks something.

    Attributes:
        shelf: the model store.
        devices: what PortAudio lists, or how it fails.
        free_bytes: on the disk of the models.
        speaker: the speaker model in use, or why it cannot be loaded.
    """

    shelf: Shelf
    devices: tuple[InputDevice, ...] | SourceError = (DESK,)
    free_bytes: int = 50_000_000_000
    speaker: object = field(default_factory=lambda: SimpleNamespace(model=MODEL, dimension=4))

    def list_devices(self) -> tuple[InputDevice, ...]:
        if isinstance(self.devices, SourceError):
            raise self.devices
        return self.devices

    def load_speaker(self, name: str, store: object, threads: int) -> object:
        if isinstance(self.speaker, Exception):
            raise self.speaker
        return self.speaker


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    made = Machine(Shelf(tmp_path))
    monkeypatch.setattr(doctor, "Store", lambda: made.shelf)
    monkeypatch.setattr(doctor, "load_speaker", made.load_speaker)
    monkeypatch.setattr("agent.source_microphone.list_devices", made.list_devices)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=made.free_bytes))
    return made


@dataclass(frozen=True)
class Report:
    """What the doctor printed.

    Attributes:
        code: the exit code.
        marks: "ok", "FAIL" or "-" of each check.
        texts: what was said of each.
    """

    code: ExitCode
    marks: dict[str, str]
    texts: dict[str, str]

    @property
    def faults(self) -> list[str]:
        return [name for name, mark in self.marks.items() if mark == "FAIL"]


@pytest.fixture
def ask(machine: Machine, capsys: pytest.CaptureFixture[str]):
    def look(**sections: dict[str, object]) -> Report:
        code = doctor.run(Settings.model_validate(sections))
        lines = capsys.readouterr().out.splitlines()
        names = [line[5:17].strip() for line in lines]
        return Report(
            code,
            {name: line[:5].strip() for name, line in zip(names, lines, strict=True)},
            {name: line[18:] for name, line in zip(names, lines, strict=True)},
        )

    return look


def test_where_everything_works_nothing_is_a_fault_and_every_part_was_looked_at(ask):
    report = ask()
    assert tuple(report.marks) == CHECKS
    assert (report.code, report.faults) == (ExitCode.OK, [])
    assert report.texts["microphone"] == "0: Desk microphone"
    assert report.texts["models"].startswith("words, voices in ")
    assert report.texts["tools"].startswith("10 tools")
    assert (report.marks["enrolment"], report.marks["broker"]) == ("-", "-"), "optional, so no fault"


def test_the_first_fault_gives_the_exit_code_and_the_others_are_still_shown(ask, machine: Machine):
    machine.devices = SourceError(ErrorCode.DEVICE_FAILED, "broken")
    machine.shelf.states["words"] = State.MISSING
    report = ask(tools={"deny": ("no_such_tool",)})
    assert report.faults == ["microphone", "models", "tools"]
    assert report.code is ExitCode.SOURCE


# Python and the detector ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "fine"), [((3, 10, 9), False), ((3, 11, 0), True), ((3, 12, 4), True), ((3, 13, 0), False)]
)
def test_a_python_that_is_not_supported_is_said(ask, monkeypatch: pytest.MonkeyPatch, version, fine: bool):
    monkeypatch.setattr(doctor, "sys", SimpleNamespace(version_info=version))
    report = ask()
    assert (report.faults == []) is fine
    assert "3.11 or 3.12" in report.texts["python"]


def test_without_a_voice_detector_the_package_to_install_is_named(ask, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "webrtcvad", None)
    report = ask()
    assert (report.faults, report.code) == (["vad"], ExitCode.MODELS)
    assert "webrtcvad-wheels" in report.texts["vad"]


# Microphone -----------------------------------------------------------------------------------------------------------


def test_a_machine_without_a_microphone_is_no_fault_and_is_told_what_works_without(ask, machine: Machine):
    machine.devices = ()
    report = ask()
    assert (report.marks["microphone"], report.code) == ("-", ExitCode.OK)
    assert "voicegate replay FILE" in report.texts["microphone"]


def test_a_missing_audio_library_is_told_with_the_command_that_installs_it(ask, monkeypatch: pytest.MonkeyPatch):
    def none(name: str) -> object:
        raise OSError("PortAudio library not found")

    monkeypatch.undo()  # the real list of devices, with the library gone
    monkeypatch.setattr("agent.source_microphone.importlib.import_module", none)
    finding = doctor._microphone(Settings())
    assert (finding.ok, finding.code) == (False, ExitCode.SOURCE)
    assert "apt install libportaudio2" in finding.text


@pytest.mark.parametrize(
    ("wanted", "said"),
    [("Yeti", "'Yeti'"), (7, "index 7"), ("e", "fits several input devices; use the index")],
)
def test_a_microphone_in_the_settings_that_listen_would_refuse_is_refused_here_with_the_choice(
    ask, machine: Machine, wanted: object, said: str
):
    machine.devices = (DESK, HEADSET)
    report = ask(source={"device": wanted})
    assert (report.faults, report.code) == (["microphone"], ExitCode.SOURCE)
    assert said in report.texts["microphone"]
    assert "[0] Desk microphone" in report.texts["microphone"]


def test_a_system_without_a_default_microphone_asks_for_a_choice(ask, machine: Machine):
    machine.devices = (HEADSET,)
    report = ask()
    assert report.faults == ["microphone"]
    assert "choose one by index or name: [3] Headset" in report.texts["microphone"]
    assert ask(source={"device": "headset"}).texts["microphone"] == "3: Headset"


def test_the_microphone_that_will_be_used_is_told_from_the_others(ask, machine: Machine):
    machine.devices = (DESK, HEADSET)
    assert ask(source={"device": 3}).texts["microphone"] == "3: Headset (not used: 0: Desk microphone)"


# Models and disk ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.MISSING, State.STALE])
def test_models_that_are_not_there_are_named_with_the_command_that_fetches_them(ask, machine: Machine, state: State):
    machine.shelf.states["voices"] = state
    report = ask()
    assert (report.faults, report.code) == (["models"], ExitCode.MODELS)
    assert report.texts["models"] == "not ready: voices; run `voicegate models pull`"


def test_models_that_only_have_to_be_hashed_again_are_no_fault(ask, machine: Machine):
    machine.shelf.states["voices"] = State.UNVERIFIED
    assert ask().faults == []


def test_a_damaged_model_is_told_with_its_cure(ask, machine: Machine):
    machine.shelf.damaged = "voices"
    report = ask()
    assert (report.faults, report.code) == (["models"], ExitCode.MODELS)
    assert "'voices' is damaged" in report.texts["models"]
    assert "voicegate models pull" in report.texts["models"]


def test_a_full_disk_is_a_fault_only_while_models_have_to_be_fetched(ask, machine: Machine):
    machine.free_bytes = 300_000_000
    assert ask().faults == []
    machine.shelf.states["words"] = State.MISSING
    report = ask()
    assert report.faults == ["models", "disk"]
    assert "0.3 GB free" in report.texts["disk"]
    assert "models need 1.5 GB" in report.texts["disk"]
    assert "VOICEGATE_MODELS" in report.texts["disk"]


def test_with_an_empty_cache_all_default_models_are_to_be_fetched_to_where_they_will_lie(
    machine: Machine, tmp_path: Path
):
    store = Store(cache_dir=tmp_path / "not" / "yet")
    assert doctor._disk(store).text.endswith(f"free at {tmp_path}")
    finding = doctor._models(store)
    assert (finding.ok, finding.code) == (False, ExitCode.MODELS)
    assert "whisper-base, campplus-onnx, pyannote-segmentation-onnx, smollm2-135m-onnx;" in finding.text


# Tools and journal ----------------------------------------------------------------------------------------------------


def test_a_tool_that_the_settings_misspell_is_told(ask):
    report = ask(tools={"deny": ("unlock_dor",)})
    assert (report.faults, report.code) == (["tools"], ExitCode.TOOLS)
    assert "unlock_dor" in report.texts["tools"]


def test_own_tools_that_cannot_be_loaded_are_told_with_the_file(ask, tmp_path: Path):
    (tmp_path / "broken.py").write_text("def (")
    report = ask(tools={"folder": tmp_path})
    assert (report.faults, report.code) == (["tools"], ExitCode.TOOLS)
    assert "broken.py" in report.texts["tools"]


def test_a_journal_that_listen_could_not_open_is_told(ask, tmp_path: Path):
    path = tmp_path / "journal.sqlite3"
    Journal(path, unix_s=Ticks()).close()
    assert ask(tools={"journal": path}).texts["tools"] == f"10 tools; journal at {path}"
    path.write_bytes(b"no database, but somebody's diary" * 40)
    report = ask(tools={"journal": path})
    assert (report.faults, report.code) == (["tools"], ExitCode.TOOLS)
    assert str(path) in report.texts["tools"]


# Enrolment ------------------------------------------------------------------------------------------------------------


def enrol(path: Path, model: ModelId = MODEL) -> Path:
    vector = np.full(4, 0.5, np.float32)
    save_profile(path, "Ada", OwnerReference(vector, 12.0, model, "enrolment"), 3)
    return path


def test_an_enrolled_wearer_is_shown_with_how_much_speech_there_is(ask):
    path = enrol(data_folder() / "wearer.json")
    report = ask()
    assert (report.marks["enrolment"], report.texts["enrolment"]) == ("ok", f"{path}: 12 s of speech, not encrypted")


def test_a_profile_that_listen_would_refuse_is_refused_here(ask, tmp_path: Path):
    path = enrol(tmp_path / "old.json", ModelId("another net", "b" * 64))
    report = ask(session={"profile": path})
    assert (report.faults, report.code) == (["enrolment"], ExitCode.PROFILE)
    assert "another net" in report.texts["enrolment"]
    assert "enroll again" in report.texts["enrolment"]
    path.write_text("{")
    assert "damaged" in ask(session={"profile": path}).texts["enrolment"]


def test_a_profile_that_is_named_and_missing_is_told_with_the_command_that_makes_it(ask, tmp_path: Path):
    report = ask(session={"profile": tmp_path / "gone.json"})
    assert (report.faults, report.code) == (["enrolment"], ExitCode.PROFILE)
    assert f"voicegate enroll --out {tmp_path / 'gone.json'}" in report.texts["enrolment"]


def test_where_only_the_enrolled_may_command_and_nobody_is_it_is_said_that_no_tool_will_run(ask):
    report = ask(session={"owner": "enrolled"})
    assert (report.faults, report.code) == (["enrolment"], ExitCode.PROFILE)
    assert "no tool runs" in report.texts["enrolment"]
    assert "voicegate enroll" in report.texts["enrolment"]


def test_a_profile_is_not_called_used_where_the_settings_do_not_use_it(ask):
    enrol(data_folder() / "wearer.json")
    report = ask(session={"owner": "initiator"})
    assert report.marks["enrolment"] == "-"
    assert "not used" in report.texts["enrolment"]


def test_without_models_a_profile_is_neither_right_nor_wrong(ask, machine: Machine):
    enrol(data_folder() / "wearer.json")
    machine.speaker = ModelError(ModelFault.MISSING, "model 'campplus-onnx' is missing", "Run: voicegate models pull")
    report = ask()
    assert report.marks["enrolment"] == "-"
    assert "when the models are there" in report.texts["enrolment"]


def test_a_speaker_model_that_does_not_exist_is_told_with_those_that_do(
    ask, machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    from models.components import load_speaker

    monkeypatch.setattr(doctor, "load_speaker", load_speaker)
    enrol(data_folder() / "wearer.json")
    report = ask(models={"speaker": "camplus-onnx"})
    assert (report.faults, report.code) == (["enrolment"], ExitCode.USAGE)
    assert "did you mean 'campplus-onnx'?" in report.texts["enrolment"]


# Broker ---------------------------------------------------------------------------------------------------------------


def test_a_broker_that_is_not_there_is_told_with_its_address(ask):
    port = free_port()
    report = ask(mqtt={"host": "127.0.0.1", "port": port})
    assert (report.faults, report.code) == (["broker"], ExitCode.FAILED)
    assert f"127.0.0.1:{port}" in report.texts["broker"]
    assert "cannot be reached" in report.texts["broker"]


def test_a_broker_that_works_is_no_fault(ask, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("agent.mqtt_check.check_broker", lambda settings: (True, f"{settings.address} answers"))
    report = ask(mqtt={"host": "broker.home"})
    assert (report.marks["broker"], report.code) == ("ok", ExitCode.OK)
    assert report.texts["broker"] == "broker.home:1883 answers"


def test_broker_settings_that_contradict_each_other_are_told_by_name(ask):
    report = ask(mqtt={"host": "broker.home", "password_env": "A", "password_file": Path("/b"), "username": "gate"})
    assert (report.faults, report.code) == (["broker"], ExitCode.USAGE)
    assert "password" in report.texts["broker"]
