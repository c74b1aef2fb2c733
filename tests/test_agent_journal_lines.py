"""After a replay a person reads what was really done: one line a call, and none that was taken back or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from agent import cli, run_sessions
from agent.assemble import Parts
from agent.exit_codes import ExitCode
from agent.journal_lines import journal_lines
from gate.span import SAMPLE_RATE_HZ
from tests.fake_models import FakeEars, FixedDistanceThresholds, FixedSpeakerThresholds, LevelVad, ScriptedPolicy, tone
from tests.test_agent_confirm_undo import CHAT, NO, POLICY, TEXT, VOICES


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    thresholds = FixedSpeakerThresholds(), FixedDistanceThresholds()
    parts = Parts(FakeEars(VOICES).ears(), ScriptedPolicy(POLICY), "scripted", *thresholds)
    monkeypatch.setattr(run_sessions, "load_parts", lambda settings, store, catalogue: parts)
    monkeypatch.setattr("agent.assemble.make_vad", lambda mode: LevelVad())


def recording(path: Path, *parts: np.ndarray) -> Path:
    silence = np.zeros(SAMPLE_RATE_HZ, np.float32)
    soundfile.write(path, np.concatenate([silence, *parts, silence]), SAMPLE_RATE_HZ)
    return path


def pause(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * SAMPLE_RATE_HZ), np.float32)


def replayed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert cli.main(["replay", "--pace", "free", *arguments]) == ExitCode.OK
    out = capsys.readouterr().out.splitlines()
    start = next((index for index, line in enumerate(out) if line.startswith("journal:")), len(out))
    return out[start:]


def test_what_was_done_stands_at_the_end_and_what_was_taken_back_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = recording(tmp_path / "done.wav", tone(CHAT), pause(1), tone(TEXT), pause(5))
    undone = recording(tmp_path / "undone.wav", tone(TEXT), pause(0.9), tone(NO), pause(5))
    assert replayed(capsys, str(undone)) == ["journal: no calls"]
    lines = replayed(capsys, str(done), str(undone))
    assert lines[0] == "journal: 1 call"
    assert len(lines) == 2
    assert lines[1].split()[:2] == ["done", "send_message"]


def test_a_journal_that_is_kept_shows_only_the_calls_of_this_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = recording(tmp_path / "done.wav", tone(CHAT), pause(1), tone(TEXT), pause(5))
    journal = str(tmp_path / "journal.sqlite3")
    for _ in range(2):
        assert replayed(capsys, str(done), "--journal", journal)[0] == "journal: 1 call"


def test_machine_readable_output_stays_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = recording(tmp_path / "done.wav", tone(CHAT), pause(1), tone(TEXT), pause(5))
    assert replayed(capsys, str(done), "--json") == []


def test_no_calls_are_said_so() -> None:
    assert journal_lines([]) == ["journal: no calls"]
