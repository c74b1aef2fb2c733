"""The command line: exit codes, JSON lines, errors that name the cure. Models are small fakes, the rest is real."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from agent import cli, run_sessions
from agent.assemble import Parts
from agent.exit_codes import ExitCode
from agent.jsonl import read_events
from gate.span import SAMPLE_RATE_HZ
from tests.fake_models import FakeEars, FixedDistanceThresholds, FixedSpeakerThresholds, LevelVad, ScriptedPolicy, tone
from tests.test_agent_loop import BYSTANDER, CHAT, COMMAND, REPLIES, VOICES


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    thresholds = FixedSpeakerThresholds(), FixedDistanceThresholds()
    parts = Parts(FakeEars(VOICES).ears(), ScriptedPolicy(REPLIES), "scripted", *thresholds)
    monkeypatch.setattr(run_sessions, "load_parts", lambda settings, store, catalogue: parts)
    monkeypatch.setattr("agent.assemble.make_vad", lambda mode: LevelVad())


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    silence = np.zeros(SAMPLE_RATE_HZ, np.float32)
    audio = np.concatenate([silence, tone(CHAT), silence, tone(COMMAND), silence, tone(BYSTANDER), silence])
    path = tmp_path / "talk.wav"
    soundfile.write(path, audio, SAMPLE_RATE_HZ)
    return path


def test_replay_json_prints_one_object_a_decision(recording: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["replay", str(recording), "--json"]) == ExitCode.OK
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["action"] for line in lines] == ["mute", "mute", "tool"], "a Tool line waits for its outcome"
    tool = lines[-1]
    assert (tool["tool"], tool["outcome"]) == ("send_message", "done")
    assert {"params", "answer", "reason", "span_s", "evidence", "timing"} <= set(tool)
    assert tool["span_s"][0] < tool["span_s"][1]
    refused = lines[1]
    assert (refused["reason"], refused["proposed"], refused["outcome"]) == ("other_speaker", "tool", None)


def test_replay_prints_plain_lines_when_piped(recording: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["replay", str(recording), "--pace", "free"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "TOOL     send_message" in out
    assert "\x1b" not in out, "no control codes in a pipe"


def test_a_broken_file_is_named_and_the_others_are_replayed(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    empty = tmp_path / "empty.wav"
    empty.write_bytes(b"")
    assert cli.main(["replay", str(empty), str(recording), "--json"]) == ExitCode.SOURCE
    captured = capsys.readouterr()
    assert "empty.wav" in captured.err
    assert len(captured.out.splitlines()) == 3


def test_a_recording_without_samples_is_not_a_correct_mute(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "none.wav"
    soundfile.write(path, np.zeros(0, np.float32), SAMPLE_RATE_HZ)
    assert cli.main(["replay", str(path), "--json"]) == ExitCode.SOURCE
    assert capsys.readouterr().out == ""


def test_the_event_file_holds_the_whole_session(recording: Path, tmp_path: Path):
    events = tmp_path / "events.jsonl"
    assert cli.main(["replay", str(recording), "--json", "--events", str(events)]) == ExitCode.OK
    kinds = [event.event for event in read_events(events)]
    assert kinds[0] == "session_started"
    assert kinds[-1] == "session_ended"
    assert kinds.count("decided") == 3
    assert "level" not in kinds


def test_no_tools_decides_and_executes_nothing(recording: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["replay", str(recording), "--json", "--no-tools"]) == ExitCode.OK
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[1]["reason"] == "tools_off"
    assert all(line["outcome"] is None for line in lines)


def test_with_enrolment_demanded_and_nobody_enrolled_nothing_executes(
    recording: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(["replay", str(recording), "--json", "--owner", "enrolled"]) == ExitCode.OK
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(line["action"] != "tool" for line in lines)


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["replay", "missing.wav"], ExitCode.SOURCE, "missing.wav"),
        (["--settings", "missing.toml", "replay", "x.wav"], ExitCode.USAGE, "missing.toml"),
        (["replay", "x.wav", "--profile", "missing.json"], ExitCode.PROFILE, "voicegate enroll"),
    ],
)
def test_errors_end_with_their_code_and_name_the_cure(
    arguments: list[str], code: ExitCode, named: str, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(arguments) == code
    err = capsys.readouterr().err
    assert named in err
    assert "Traceback" not in err


def test_a_denied_tool_that_does_not_exist_is_an_error_at_start(
    tmp_path: Path, recording: Path, capsys: pytest.CaptureFixture[str]
):
    settings = tmp_path / "s.toml"
    settings.write_text('[tools]\ndeny = ["unlock_dor"]\n')
    assert cli.main(["--settings", str(settings), "replay", str(recording)]) == ExitCode.USAGE
    assert "unlock_dor" in capsys.readouterr().err


def test_unknown_flags_and_commands_end_with_usage():
    for arguments in (["replay"], ["replay", "x.wav", "--fast"], ["sing"], []):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == ExitCode.USAGE


def test_tools_list_names_risk_and_parameters(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["tools", "list"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "high    unlock_door(door)" in out
    assert cli.main(["tools", "list", "--json"]) == ExitCode.OK


def test_the_journal_of_a_replay_can_be_kept_and_read(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    journal = tmp_path / "j.sqlite3"
    assert cli.main(["replay", str(recording), "--json", "--journal", str(journal)]) == ExitCode.OK
    settings = tmp_path / "s.toml"
    settings.write_text(f'[tools]\njournal = "{journal}"\n')
    capsys.readouterr()
    assert cli.main(["--settings", str(settings), "tools", "journal", "--json"]) == ExitCode.OK
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["tool"], row["state"]) for row in rows] == [("send_message", "done")]


def test_help_of_every_command_names_the_exit_codes(capsys: pytest.CaptureFixture[str]):
    for command in ("listen", "replay", "enroll"):
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
        assert "exit codes" in capsys.readouterr().out
