"""An encrypted profile: without its passphrase it tells nothing, changed it opens for nobody, locked it stays locked.

A profile that cannot be opened ends the command. If it made way for the initiator, whoever altered the file, or ran the
gate without the passphrase, would own what the wearer had locked.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import traceback
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from agent import assemble, cli, doctor, enrol, forget, run_sessions
from agent.assemble import Parts, default_profile, load_owner
from agent.exit_codes import ExitCode
from agent.passphrase import PASSPHRASE_VARIABLE
from agent.sealing import ScryptCost, Sealer
from agent.session import OwnerReference
from agent.settings import Settings
from agent.wearer_profile import ProfileError, ProfileLockedError, is_encrypted, load_profile, save_profile
from gate.span import SAMPLE_RATE_HZ
from models.protocols import ModelId
from tests.fake_models import FakeEars, FixedDistanceThresholds, FixedSpeakerThresholds, LevelVad, ScriptedPolicy, tone
from tests.test_agent_doctor import Shelf
from tests.test_agent_enrol import ADA, clip
from tests.test_agent_loop import BYSTANDER, CHAT, COMMAND, REPLIES, VOICES

CHEAP = ScryptCost(n=2, r=1, p=1)
SECRET = "correct horse battery staple"
PASSPHRASE = SecretStr(SECRET)
MODEL = ModelId("net", "a" * 64)
DIMENSION = 4


def unit(seed: int = 0) -> np.ndarray:
    vector = np.random.default_rng(seed).normal(size=DIMENSION)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


REFERENCE = OwnerReference(unit(), 6.0, MODEL, "enrolment")


def save(path: Path, name: str = "Ada", passphrase: SecretStr = PASSPHRASE) -> Path:
    save_profile(path, name, REFERENCE, 2, Sealer(passphrase, CHEAP))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save(tmp_path / "wearer.json")


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115 - closed with the test's process


# The file -------------------------------------------------------------------------------------------------------------


def test_an_encrypted_profile_comes_back_as_it_was(path: Path) -> None:
    loaded = load_profile(path, MODEL, DIMENSION, PASSPHRASE)
    assert np.array_equal(loaded.vector, REFERENCE.vector)
    assert (loaded.speech_s, loaded.model, loaded.origin) == (6.0, MODEL, "enrolment")


def test_a_file_says_itself_whether_it_is_encrypted(path: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.json"
    save_profile(plain, 'Ada "sealed":', REFERENCE, 2)
    assert is_encrypted(path)
    assert not is_encrypted(plain), "whatever a person calls herself"
    assert not is_encrypted(tmp_path / "none.json")
    assert np.array_equal(load_profile(plain, MODEL, DIMENSION, PASSPHRASE).vector, REFERENCE.vector)


def test_nothing_of_the_voice_stands_in_the_file_in_any_usual_form(path: Path) -> None:
    raw = path.read_bytes()
    content = json.loads(raw)
    raw += base64.urlsafe_b64decode(content["sealed"]["ciphertext"])
    for dtype in ("<f4", ">f4", "<f8", ">f8"):
        data = REFERENCE.vector.astype(dtype).tobytes()
        width = np.dtype(dtype).itemsize
        for at in range(0, len(data), width):
            assert data[at : at + width] not in raw
        for form in (data.hex().encode(), base64.b64encode(data)):
            assert form[:16] not in raw
    for value in REFERENCE.vector:
        assert repr(float(value))[:7].encode() not in raw
    assert set(content) == {"version", "name", "model", "sha256", "sealed"}
    assert set(content["sealed"]) == {"version", "kdf", "cost", "cipher", "salt", "nonce", "ciphertext"}


def test_the_same_voice_enrolled_twice_cannot_be_told_to_be_the_same(path: Path, tmp_path: Path) -> None:
    first, second = (json.loads(file.read_bytes())["sealed"] for file in (path, save(tmp_path / "again.json")))
    assert first["salt"] != second["salt"]
    assert first["ciphertext"] != second["ciphertext"]


def test_an_encrypted_profile_is_readable_by_its_owner_only_whatever_a_kill_left_behind(tmp_path: Path) -> None:
    left = tmp_path / "wearer.part"
    left.write_text("torn")
    left.chmod(0o666)
    path = save(tmp_path / "wearer.json")
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_enrolment_and_no_trace_of_the_new(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("agent.wearer_profile.os.fsync", full)
    with pytest.raises(ProfileError, match="not enrolled"):
        save(path, "Eve")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_profile_that_cannot_be_encrypted_is_not_written_plain_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(**given: object) -> None:
        raise MemoryError

    monkeypatch.setattr("agent.sealing.Scrypt", none_left)
    with pytest.raises(ProfileError, match="not enrolled: not enough memory"):
        save(tmp_path / "wearer.json")
    assert list(tmp_path.iterdir()) == []


# What does not open ---------------------------------------------------------------------------------------------------


def test_a_wrong_passphrase_opens_nothing_and_the_cure_is_named(path: Path) -> None:
    with pytest.raises(ProfileError, match=rf"passphrase is wrong.*{PASSPHRASE_VARIABLE}.*enroll again"):
        load_profile(path, MODEL, DIMENSION, SecretStr("incorrect horse"))


def test_without_a_passphrase_it_stays_locked_and_the_cure_is_named(path: Path) -> None:
    with pytest.raises(ProfileLockedError, match=PASSPHRASE_VARIABLE):
        load_profile(path, MODEL, DIMENSION)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("sealed") / "wearer.json")


@given(data=st.data())
def test_a_byte_changed_anywhere_opens_for_nobody(sealed: Path, data: st.DataObject) -> None:
    raw = bytearray(sealed.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255).filter(lambda value: value != raw[at]))
    _refused(sealed, bytes(raw))


@pytest.mark.slow
def test_each_byte_is_guarded_not_only_most(sealed: Path) -> None:
    raw = sealed.read_bytes()
    for at in range(len(raw)):
        _refused(sealed, raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])


@given(data=st.data())
def test_a_profile_that_is_cut_off_or_has_grown_opens_for_nobody(sealed: Path, data: st.DataObject) -> None:
    raw = sealed.read_bytes()
    at = data.draw(st.integers(0, len(raw)))
    added = data.draw(st.sampled_from([b"", b" ", b"\n", b"\r", b"\x00", b"{}", b'"']))
    rest = data.draw(st.sampled_from([b"", raw[at:]]))
    changed = raw[:at] + added + rest
    if changed != raw:
        _refused(sealed, changed)


def _refused(sealed: Path, raw: bytes) -> None:
    changed = sealed.with_name("changed.json")
    changed.write_bytes(raw)
    with pytest.raises(ProfileError, match="enroll again") as caught:
        load_profile(changed, MODEL, DIMENSION, PASSPHRASE)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(("key", "value"), [("name", "Eve"), ("model", "net2"), ("sha256", "b" * 64), ("version", 2)])
def test_the_clear_part_cannot_be_rewritten_so_no_profile_passes_for_another_networks(
    path: Path, key: str, value: object
) -> None:
    content = json.loads(path.read_bytes()) | {key: value}
    path.write_text(json.dumps(content, separators=(",", ":")))
    model = ModelId(str(content["model"]), str(content["sha256"]))
    with pytest.raises(ProfileError, match="enroll again"):
        load_profile(path, model, DIMENSION, PASSPHRASE)


def test_a_sealed_part_cannot_be_put_into_another_persons_profile(path: Path, tmp_path: Path) -> None:
    ada = json.loads(path.read_bytes())
    ben = json.loads(save(tmp_path / "ben.json", "Ben").read_bytes())
    path.write_text(json.dumps(ben | {"sealed": ada["sealed"]}, separators=(",", ":")))
    with pytest.raises(ProfileError, match="altered"):
        load_profile(path, MODEL, DIMENSION, PASSPHRASE)


def test_the_same_content_written_otherwise_is_not_authentic(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=2))
    with pytest.raises(ProfileError, match="not as it was written"):
        load_profile(path, MODEL, DIMENSION, PASSPHRASE)


def test_another_networks_profile_is_told_before_a_passphrase_is_needed(path: Path) -> None:
    with pytest.raises(ProfileError, match="made with net "):
        load_profile(path, ModelId("other", "b" * 64), DIMENSION)


def test_what_no_passphrase_should_have_sealed_is_refused_without_showing_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.wearer_profile.open_sealed", lambda *given: b'{"vector": [0.123456]}')
    with pytest.raises(ProfileError, match="enroll again") as caught:
        load_profile(path, MODEL, DIMENSION, PASSPHRASE)
    assert "0.123456" not in "".join(traceback.format_exception(caught.value))


def test_where_encryption_is_demanded_a_plain_profile_put_in_its_place_is_refused(path: Path) -> None:
    save_profile(path, "Eve", REFERENCE, 1)
    with pytest.raises(ProfileError, match=r"not encrypted.*enroll again"):
        load_profile(path, MODEL, DIMENSION, PASSPHRASE, encrypted_only=True)


# Commands -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    ears = FakeEars([ADA, *VOICES]).ears()
    parts = Parts(ears, ScriptedPolicy(REPLIES), "scripted", FixedSpeakerThresholds(), FixedDistanceThresholds())
    for module in (run_sessions, enrol):
        monkeypatch.setattr(module, "load_parts", lambda settings, store, catalogue: parts)
    monkeypatch.setattr(cli, "_store", lambda: None)
    monkeypatch.setattr(enrol, "_own_voice", lambda *given: ())
    monkeypatch.setattr(assemble, "make_vad", lambda mode: LevelVad())
    monkeypatch.setattr(enrol, "make_vad", lambda mode: LevelVad())
    monkeypatch.setattr(enrol, "Sealer", partial(Sealer, cost=CHEAP))
    monkeypatch.setattr(doctor, "Store", lambda: Shelf(tmp_path))
    monkeypatch.setattr(doctor, "load_speaker", lambda *given: ears.speaker)
    monkeypatch.setattr("agent.source_microphone.list_devices", lambda: ())
    soundfile.write(tmp_path / "ada.wav", clip(tone(ADA, 4.0)), SAMPLE_RATE_HZ, subtype="FLOAT")
    silence = np.zeros(SAMPLE_RATE_HZ, np.float32)
    # The bystander speaks first, and near: with the initiator as owner, his command would run.
    talk = np.concatenate([silence, tone(BYSTANDER), silence, tone(CHAT), silence, tone(COMMAND), silence])
    soundfile.write(tmp_path / "talk.wav", talk, SAMPLE_RATE_HZ, subtype="FLOAT")
    return tmp_path


def enroll(home: Path, *flags: str) -> int:
    return cli.main(["enroll", str(home / "ada.wav"), "--name", "Ada", *flags])


def replay(home: Path, *flags: str) -> int:
    return cli.main(["replay", "--json", str(home / "talk.wav"), *flags])


@pytest.fixture
def enrolled(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A home with an encrypted profile, and no passphrase in the environment any more."""
    with monkeypatch.context() as only_now:
        only_now.setenv(PASSPHRASE_VARIABLE, SECRET)
        assert enroll(home, "--encrypt") == ExitCode.OK
    assert f"{default_profile()} (encrypted)\n" in capsys.readouterr().out
    return home


def decisions(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    lines = sorted(map(json.loads, capsys.readouterr().out.splitlines()), key=lambda line: line["span_s"])
    return [(line["action"], line["evidence"]["speaker"]["verdict"]) for line in lines]


def test_who_was_enrolled_encrypted_is_known_again_with_the_passphrase_alone(
    enrolled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PASSPHRASE_VARIABLE, SECRET)
    assert replay(enrolled) == ExitCode.OK
    assert decisions(capsys) == [("mute", "other"), ("mute", "owner"), ("tool", "owner")]


@pytest.mark.parametrize("flags", [(), ("--owner", "enrolled"), ("--owner", "auto")])
@pytest.mark.parametrize("harm", ["no passphrase", "wrong passphrase", "altered", "cut off"])
def test_a_profile_that_does_not_open_gives_nobody_a_session_least_of_all_who_speaks_first(
    harm: str, flags: tuple[str, ...], enrolled: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if harm != "no passphrase":
        monkeypatch.setenv(PASSPHRASE_VARIABLE, "incorrect horse" if harm == "wrong passphrase" else SECRET)
    raw = default_profile().read_bytes()
    if harm == "altered":
        default_profile().write_bytes(raw.replace(b'"Ada"', b'"Eve"'))
    if harm == "cut off":
        default_profile().write_bytes(raw[: len(raw) // 2])
    assert replay(enrolled, *flags) == ExitCode.PROFILE
    captured = capsys.readouterr()
    assert captured.out == "", "no session was started"
    assert (PASSPHRASE_VARIABLE if "passphrase" in harm else "enroll again") in captured.err
    assert "Traceback" not in captured.err


def test_the_part_that_picks_the_owner_never_falls_back_either(enrolled: Path) -> None:
    parts = run_sessions.load_parts(Settings(), None, None)  # type: ignore[arg-type]
    for owner in ("auto", "enrolled"):
        with pytest.raises(ProfileLockedError):
            load_owner(Settings.model_validate({"session": {"owner": owner}}), parts)


def test_whom_no_profile_is_demanded_of_is_not_asked_for_a_passphrase(
    enrolled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(enrolled, "--owner", "initiator") == ExitCode.OK
    assert replay(enrolled, "--enrolment", str(enrolled / "ada.wav")) == ExitCode.OK


def test_the_passphrase_is_asked_for_before_anything_is_loaded_or_recorded(
    enrolled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loads(*given: object) -> None:
        raise AssertionError("models were loaded first")

    monkeypatch.setattr(run_sessions, "load_parts", loads)
    monkeypatch.setattr(enrol, "load_parts", loads)
    assert replay(enrolled) == ExitCode.PROFILE
    assert cli.main(["enroll", "--encrypt"]) == ExitCode.PROFILE


def test_enrolling_encrypted_without_a_passphrase_enrols_nobody(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert enroll(home, "--encrypt") == ExitCode.PROFILE
    assert PASSPHRASE_VARIABLE in capsys.readouterr().err
    assert not default_profile().exists()


def test_the_setting_encrypts_without_the_flag_and_refuses_a_plain_profile(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert enroll(home) == ExitCode.OK
    assert not is_encrypted(default_profile())
    settings = home / "s.toml"
    settings.write_text("[session]\nencrypt_profile = true\n")
    assert cli.main(["--settings", str(settings), "replay", str(home / "talk.wav")]) == ExitCode.PROFILE
    assert "not encrypted" in capsys.readouterr().err
    monkeypatch.setenv(PASSPHRASE_VARIABLE, SECRET)
    assert cli.main(["--settings", str(settings), "enroll", str(home / "ada.wav")]) == ExitCode.OK
    assert is_encrypted(default_profile())
    assert cli.main(["--settings", str(settings), "replay", "--plain", str(home / "talk.wav")]) == ExitCode.OK


@pytest.mark.parametrize("damaged", [False, True])
def test_enrolling_again_without_the_flag_does_not_bare_what_was_encrypted(
    damaged: bool, enrolled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if damaged:
        default_profile().write_bytes(default_profile().read_bytes()[:-9])
    assert enroll(enrolled) == ExitCode.PROFILE, "the passphrase is missing"
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "another horse, another staple")
    assert enroll(enrolled) == ExitCode.OK
    assert is_encrypted(default_profile())
    assert replay(enrolled) == ExitCode.OK


def test_no_flag_takes_a_passphrase_since_every_process_could_read_it(home: Path) -> None:
    for command in ("enroll", "listen", "replay"):
        with pytest.raises(SystemExit) as ended:
            cli.main(
                [command, "x.wav", "--passphrase", SECRET] if command != "listen" else [command, "--passphrase", SECRET]
            )
        assert ended.value.code == ExitCode.USAGE


def test_the_passphrase_is_in_no_output_log_error_or_file(
    enrolled: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "incorrect horse battery staple"
    for passphrase in (SECRET, wrong):
        monkeypatch.setenv(PASSPHRASE_VARIABLE, passphrase)
        replay(enrolled, "--events", str(enrolled / "events.jsonl"))
        cli.main(["doctor"])
    with pytest.raises(ProfileError) as caught:
        load_profile(default_profile(), FakeEars([]).ears().speaker.model, DIMENSION, SecretStr(wrong))
    captured = capsys.readouterr()
    told = captured.out + captured.err + caplog.text + "".join(traceback.format_exception(caught.value))
    told += repr(Sealer(PASSPHRASE, CHEAP).__dict__) + repr(PASSPHRASE)
    kept = b"".join(path.read_bytes() for path in enrolled.rglob("*") if path.is_file())
    assert "horse" not in told
    assert b"horse" not in kept


# Doctor and forget ----------------------------------------------------------------------------------------------------


def enrolment_line(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    cli.main(["doctor"])
    return next(line for line in capsys.readouterr().out.splitlines() if " enrolment " in line)


def test_the_doctor_says_whether_the_profile_is_encrypted_and_asks_for_nothing(
    enrolled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    locked = enrolment_line(capsys)
    assert locked.startswith("- ")
    assert f": encrypted; whether it opens shows when {PASSPHRASE_VARIABLE} is set" in locked
    monkeypatch.setenv(PASSPHRASE_VARIABLE, SECRET)
    assert enrolment_line(capsys).endswith("4 s of speech, encrypted")
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "incorrect horse")
    assert enrolment_line(capsys).startswith("FAIL")
    default_profile().unlink()
    enroll(enrolled)
    assert enrolment_line(capsys).endswith("4 s of speech, not encrypted")


def test_a_person_is_forgotten_by_name_without_her_passphrase(
    enrolled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = save(default_profile().with_name("ben.json"), "Ben")
    capsys.readouterr()
    assert cli.main(["forget", "Ada", "--yes"]) == ExitCode.OK
    assert f"deleted profile of Ada: {default_profile()}" in capsys.readouterr().out
    assert not default_profile().exists()
    assert kept.exists()


def test_something_sealed_that_is_no_profile_is_not_deleted(enrolled: Path) -> None:
    other = default_profile().with_name("other.json")
    other.write_text('{"name": "Ada", "sealed": {}}')
    assert forget._profile_name(other) is None
    assert cli.main(["forget", "--all", "--yes"]) == ExitCode.OK
    assert other.exists()
