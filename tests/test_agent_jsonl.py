"""The event file: nothing that was written is lost, and a torn line harms no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agent import events
from agent.eventlog import EventLog, MemorySink
from agent.jsonl import JsonLinesSink, read_events


def _log(path: Path) -> EventLog:
    return EventLog("s", [JsonLinesSink(path)], lambda: 0.0)


async def test_events_come_back_as_they_were(tmp_path: Path):
    path = tmp_path / "e.jsonl"
    log = _log(path)
    written = [
        log.emit(events.TurnOpened, 16000, turn="t0001", start_s=0.7),
        log.emit(events.SourceLost, 320, lost_samples=5),
    ]
    await log.aclose()
    assert list(read_events(path)) == written


async def test_a_torn_last_line_does_not_swallow_the_next_run(tmp_path: Path):
    path = tmp_path / "e.jsonl"
    log = _log(path)
    log.emit(events.SourceLost, 0, lost_samples=1)
    await log.aclose()
    with path.open("ab") as file:
        file.write(b'{"v":1,"seq":1,"session":"s","at_s"')
    log = _log(path)
    log.emit(events.SourceLost, 0, lost_samples=2)
    await log.aclose()
    assert [event.lost_samples for event in read_events(path) if isinstance(event, events.SourceLost)] == [1, 2]


def test_kill_at_any_moment_tears_at_most_the_last_line(tmp_path: Path):
    path = tmp_path / "e.jsonl"
    program = textwrap.dedent(f"""
        from pathlib import Path
        from agent import events
        from agent.eventlog import EventLog
        from agent.jsonl import JsonLinesSink
        log = EventLog("s", [JsonLinesSink(Path({str(path)!r}))], lambda: 0.0)
        print("ready", flush=True)
        while True:
            log.emit(events.SourceLost, 0, lost_samples=7)
    """)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    while path.stat().st_size < 20_000:
        pass
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    seqs = [event.seq for event in read_events(path)]
    assert seqs == list(range(len(seqs)))
    assert path.read_bytes().count(b"\n") - len(seqs) in (0, 1)


def test_a_whole_line_that_is_no_event_is_an_error_that_names_it(tmp_path: Path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"event": "nonsense"}\n')
    with pytest.raises(ValueError, match=r"e\.jsonl:1"):
        list(read_events(path))


def test_a_full_disk_is_said_by_the_other_outputs_and_costs_only_its_own_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, memory = tmp_path / "e.jsonl", MemorySink()
    log = EventLog("s", [JsonLinesSink(path), memory], lambda: 0.0)
    log.emit(events.SourceLost, 0, lost_samples=1)
    real = os.write
    monkeypatch.setattr("agent.jsonl.os.write", lambda fd, data: real(fd, data[:10]))
    log.emit(events.SourceLost, 0, lost_samples=2)
    log.emit(events.SourceLost, 0, lost_samples=3)
    assert "disk full" in log.trouble
    said = [event for event in memory.events if isinstance(event, events.Failed)]
    assert len(said) == 1, "said once, not with every event"
    assert "disk full" in said[0].error
    monkeypatch.setattr("agent.jsonl.os.write", real)
    log.emit(events.SourceLost, 0, lost_samples=4)
    assert log.trouble == ""
    assert [event.lost_samples for event in read_events(path)] == [1, 4], "a torn line must not swallow the next"
    assert [event.seq for event in memory.events] == list(range(5))


def test_an_unread_pipe_ends_the_session_only_after_the_file_has_the_event(tmp_path: Path):
    class Unread:
        wants_levels = False

        def emit(self, event: object) -> None:
            raise BrokenPipeError

        async def aclose(self) -> None:
            pass

    path = tmp_path / "e.jsonl"
    log = EventLog("s", [Unread(), JsonLinesSink(path)], lambda: 0.0)
    with pytest.raises(BrokenPipeError):
        log.emit(events.SourceLost, 0, lost_samples=1)
    assert len(list(read_events(path))) == 1


def test_the_file_is_readable_by_its_owner_only(tmp_path: Path):
    path = tmp_path / "e.jsonl"
    JsonLinesSink(path)
    assert path.stat().st_mode & 0o077 == 0
