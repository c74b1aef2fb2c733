"""What is kept of a person, where, and that it goes when asked: nothing more, nothing less."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from agent import forget
from agent.exit_codes import ExitCode
from agent.frames import to_int16
from agent.session import OwnerReference
from agent.settings import Settings, data_folder
from agent.wearer_profile import save_profile
from bench.rehearsed_voicegate import TOOLS, write_talk
from bench.stage import HELLO, KITCHEN, STRANGER
from gate.span import Span
from models.protocols import ModelId
from tests.support_tools import Ticks, good_call
from tools.journal import Journal, JournalBusyError, JournalEntry, read_journal
from tools.records import ExecutionState

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "TMPDIR"):
        (tmp_path / variable).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "TMPDIR"))
    data_folder().mkdir(parents=True)
    return tmp_path


def enrol(name: str, path: Path | None = None) -> Path:
    path = path or data_folder() / f"{name}.json"
    vector = np.zeros(8, np.float32)
    vector[0] = 1.0
    save_profile(path, name, OwnerReference(vector, 9.0, ModelId("m", "0" * 64), "enrolment"), 3)
    return path


def journal_with(path: Path, *turns: str) -> Path:
    journal = Journal(path, unix_s=Ticks())
    for turn in turns:
        journal.begin(JournalEntry(f"s:{turn}", "s", turn, good_call(body="a secret appointment"), Span(0, 1)))
        journal.finish(f"s:{turn}", ExecutionState.DONE, "sent")
    journal.close()
    return path


def event_file(path: Path) -> Path:
    path.write_text(
        '{"v":1,"seq":0,"session":"s","at_s":0.0,"clock_s":0.0,"event":"turn_opened","turn":"t0001","start_s":0.0}\n'
    )
    return path


def run(*arguments: str, settings: Settings | None = None, answer: str | None = None) -> ExitCode:
    parser = argparse.ArgumentParser()
    forget.add_forget_parser(parser.add_subparsers())
    args = parser.parse_args(["forget", *arguments])
    return forget.run(args, settings or Settings(), ask=None if answer is None else lambda question: answer)


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


# Deleting ------------------------------------------------------------------------------------------------------------


def test_a_persons_profile_goes_and_another_persons_stays(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    anna, ben = enrol("Anna"), enrol("Ben")
    assert run("Anna", "--yes") is ExitCode.OK
    assert not anna.exists()
    assert ben.exists()
    assert f"deleted profile of Anna: {anna}" in capsys.readouterr().out


def test_the_wearer_is_found_by_name_and_not_by_the_files_name(home: Path) -> None:
    path = enrol("Anna", data_folder() / "wearer.json")
    assert run("wearer", "--yes") is ExitCode.PROFILE
    assert path.exists()
    assert run("Anna", "--yes") is ExitCode.OK
    assert not path.exists()


def test_the_journals_rows_go_and_can_not_be_read_from_its_bytes(home: Path) -> None:
    enrol("Anna")
    path = journal_with(data_folder() / "journal.sqlite3", "t1", "t2")
    assert run("Anna", "--yes") is ExitCode.OK
    assert read_journal(path) == ()
    held = b"".join(file.read_bytes() for file in data_folder().iterdir())
    assert b"secret appointment" not in held
    assert b"Ben" not in held


def test_event_files_of_the_settings_and_of_the_flag_go(home: Path) -> None:
    enrol("Anna")
    named, given = event_file(home / "named.jsonl"), event_file(home / "given.jsonl")
    settings = Settings.model_validate({"output": {"events": named}})
    assert run("Anna", "--yes", "--events", str(given), settings=settings) is ExitCode.OK
    assert not named.exists()
    assert not given.exists()


def test_all_leaves_nothing_of_anybody(home: Path) -> None:
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    settings = Settings.model_validate(
        {"session": {"profile": enrol("Carl", elsewhere / "carl.json")}, "output": {"events": elsewhere / "e.jsonl"}}
    )
    enrol("Anna")
    (data_folder() / "ben.part").write_text('{"vector": [0.1')  # a kill while a profile was written
    event_file(elsewhere / "e.jsonl")
    killed = home / "TMPDIR" / "voicegate-x1"
    killed.mkdir()
    journal_with(killed / "journal.sqlite3", "t1")
    journal_with(data_folder() / "journal.sqlite3", "t1")
    assert run("--all", "--yes", settings=settings) is ExitCode.OK
    assert everything(elsewhere) == set()
    assert {name for name in everything(data_folder()) if not name.startswith("journal.sqlite3")} == set()
    assert not killed.exists()


def test_a_name_that_nobody_has_deletes_nothing_not_even_the_journal(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    enrol("Anna")
    path = journal_with(data_folder() / "journal.sqlite3", "t1")
    assert run("Ana", "--yes") is ExitCode.PROFILE
    assert len(read_journal(path)) == 1
    assert "profiles: Anna" in capsys.readouterr().err


def test_what_is_not_there_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--all", "--yes", "--events", str(home / "gone.jsonl")) is ExitCode.OK
    out = capsys.readouterr().out
    assert "not found: event file" in out
    assert "not found: journal" in out
    assert "there is nothing to delete" in out


# Not deleting --------------------------------------------------------------------------------------------------------


def test_what_only_stands_where_an_event_file_should_is_left_alone(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letter, folder, target = home / "letter.txt", home / "folder", event_file(home / "target.jsonl")
    letter.write_text("Dear all,\n")
    folder.mkdir()
    link = home / "link.jsonl"
    link.symlink_to(target)
    enrol("Anna")
    arguments = [part for path in (letter, folder, link) for part in ("--events", str(path))]
    assert run("Anna", "--yes", *arguments) is ExitCode.OK
    assert letter.exists()
    assert folder.exists()
    assert link.is_symlink()
    assert target.exists()
    out = capsys.readouterr().out
    assert out.count("left alone") == 3


def test_other_files_in_the_data_folder_and_other_temporary_folders_are_left_alone(home: Path) -> None:
    (data_folder() / "notes.json").write_text('{"name": "Anna"}')
    (data_folder() / "photo.jpg").write_bytes(b"\xff\xd8")
    other = home / "TMPDIR" / "voicegate-plans"
    other.mkdir()
    (other / "journal.sqlite3").write_text("not a database")
    (other / "plan.txt").write_text("mine")
    before = everything(home)
    enrol("Anna")
    assert run("--all", "--yes") is ExitCode.OK
    assert everything(home) == before


def test_while_a_gate_runs_nothing_is_deleted_since_it_would_go_on_writing(home: Path) -> None:
    profile, path = enrol("Anna"), data_folder() / "journal.sqlite3"
    running = Journal(path, unix_s=Ticks())
    with pytest.raises(JournalBusyError):
        run("Anna", "--yes")
    running.close()
    assert profile.exists()


def test_a_replay_that_is_running_keeps_its_journal(home: Path) -> None:
    folder = home / "TMPDIR" / "voicegate-x2"
    folder.mkdir()
    journal_with(folder / "journal.sqlite3", "t1")
    running = Journal(folder / "journal.sqlite3", unix_s=Ticks())
    assert run("--all", "--yes") is ExitCode.OK
    assert len(running.rows()) == 1
    running.close()


@pytest.mark.parametrize(("answer", "code"), [("yes", ExitCode.OK), ("y", ExitCode.FAILED), ("", ExitCode.FAILED)])
def test_it_asks_first_and_only_a_whole_yes_deletes(
    answer: str, code: ExitCode, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = enrol("Anna")
    assert run("Anna", answer=answer) is code
    assert path.exists() is (code is not ExitCode.OK)
    assert str(path) in capsys.readouterr().out, "what is about to go is named before the question"


def test_without_a_terminal_nobody_is_asked_and_nothing_goes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = enrol("Anna")
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115 - closed with the test's process
    assert run("Anna") is ExitCode.USAGE
    assert path.exists()


def test_a_file_that_can_not_be_deleted_is_said_and_the_others_go(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stuck, gone = enrol("Anna"), event_file(home / "e.jsonl")
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path == stuck:
            raise PermissionError(13, "Permission denied")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert run("Anna", "--yes", "--events", str(gone)) is ExitCode.FAILED
    assert not gone.exists()
    assert "could not delete profile of Anna" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["Anna", "--all"]])
def test_nobody_and_everybody_have_to_be_said_plainly(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == ExitCode.USAGE


# What a session writes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Session:
    """A whole ``voicegate listen`` on standard input, in a home of its own."""

    home: Path
    events: Path
    out: bytes
    audio: np.ndarray

    @property
    def data(self) -> Path:
        return self.home / "XDG_DATA_HOME" / "voicegate"

    def files(self) -> dict[str, bytes]:
        """Everything that it wrote, without what it was given and what its tool wrote."""
        given = {"voicegate.toml", "talk.wav", "effects"}
        return {
            str(path.relative_to(self.home)): path.read_bytes()
            for path in self.home.rglob("*")
            if path.is_file() and path.name not in given
        }


def listen(home: Path, *flags: str) -> Session:
    settings, talk = home / "voicegate.toml", home / "talk.wav"
    settings.write_text(f"[tools]\nallow = ['switch_lamp']\nfolder = '{TOOLS}'\n")
    write_talk(talk, HELLO, KITCHEN, STRANGER)
    audio, _ = soundfile.read(talk, dtype="float32")
    folders = {name: str(home / name) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "TMPDIR")}
    for folder in folders.values():
        Path(folder).mkdir()
    ran = subprocess.run(
        [sys.executable, "-m", "bench.rehearsed_voicegate", "--settings", str(settings), "listen", "--stdin", *flags],
        cwd=home, input=to_int16(audio).tobytes(), capture_output=True, timeout=60, check=True,
        env={
            **os.environ, **folders, "HOME": str(home), "REHEARSAL_EFFECTS": str(home / "effects"),
            "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1",
        },
    )  # fmt: skip
    return Session(home, home / "events.jsonl", ran.stdout + ran.stderr, audio)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return listen(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Session:
    home = tmp_path_factory.mktemp("logged")
    return listen(home, "--events", str(home / "events.jsonl"))


def test_a_session_writes_its_journal_and_nothing_else(plain: Session) -> None:
    journal = str((plain.data / "journal.sqlite3").relative_to(plain.home))
    assert {name for name in plain.files() if not name.startswith(journal)} == set()
    assert journal in plain.files()
    assert b"TOOL     switch_lamp" in plain.out, "the session did hear and execute"


def test_transcripts_stand_only_in_the_event_file_that_was_named(plain: Session, logged: Session) -> None:
    said = (b"lovely morning", b"match yesterday")
    assert all(words in logged.events.read_bytes() for words in said)
    for name, content in {**plain.files(), **logged.files()}.items():
        assert name == "events.jsonl" or not any(words in content for words in said), name


def test_no_file_and_no_output_holds_audio_or_an_embedding(logged: Session) -> None:
    loud = np.flatnonzero(np.abs(logged.audio) > 0.1)
    pieces = [logged.audio[at : at + 16] for at in loud[:: len(loud) // 50]]
    needles = [form for piece in pieces for form in (piece.tobytes(), to_int16(piece).tobytes())]
    for name, content in {**logged.files(), "console": logged.out}.items():
        assert not any(needle in content for needle in needles), name
    for line in logged.events.read_text().splitlines():
        assert longest_list_of_numbers(json.loads(line)) <= 2, "spans are pairs; an embedding would be a longer list"


def test_what_is_kept_can_be_read_by_its_owner_only(logged: Session, home: Path) -> None:
    for path in (enrol("Anna"), logged.events, *logged.data.glob("journal.sqlite3*")):
        assert path.stat().st_mode & 0o077 == 0 or path.stat().st_size == 0, path


def longest_list_of_numbers(value: object) -> int:
    if isinstance(value, dict):
        return max((longest_list_of_numbers(item) for item in value.values()), default=0)
    if isinstance(value, list):
        if all(isinstance(item, int | float) for item in value):
            return len(value)
        return max(longest_list_of_numbers(item) for item in value)
    return 0


def test_an_owners_reference_never_shows_its_vector() -> None:
    vector = np.full(8, 0.35355338, np.float32)
    reference = OwnerReference(vector, 9.0, ModelId("m", "0" * 64), "enrolment")
    assert "0.35" not in repr(reference)
    assert "0.35" not in repr(replace(reference, speech_s=1.0))
