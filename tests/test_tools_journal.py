"""The journal: what is durable when, what a restart makes of it, and what a purge leaves behind."""

from __future__ import annotations

import json
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gate.catalogue import ToolCall
from gate.span import Span
from tests.support_tools import Ticks, fast_directory, full_disk, good_call
from tools.journal import (
    AlreadyRanError,
    Journal,
    JournalBusyError,
    JournalEntry,
    JournalError,
    JournalStateError,
    read_journal,
)
from tools.records import ExecutionState as State


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=fast_directory()) as folder:
        yield Path(folder) / "sub" / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    opened = Journal(path, unix_s=Ticks())
    yield opened
    opened.close()


def entry(turn_id: str = "t1", session_id: str = "s1", call: ToolCall | None = None) -> JournalEntry:
    return JournalEntry(f"{session_id}:{turn_id}:d", session_id, turn_id, call or good_call(), Span(16_000, 48_000))


def states(journal: Journal) -> dict[str, State]:
    return {row.turn_id: row.state for row in journal.rows()}


def test_a_call_is_written_before_and_after(journal: Journal) -> None:
    journal.begin(entry())
    (before,) = journal.rows()
    assert (before.state, before.started_unix_s, before.ended_unix_s) == (State.STARTED, 1002.0, None)
    journal.finish("s1:t1:d", State.DONE, "sent")
    (after,) = journal.rows()
    assert (after.state, after.detail, after.ended_unix_s) == (State.DONE, "sent", 1003.0)
    assert after.params == dict(good_call().params)
    assert after.span == Span(16_000, 48_000)


def test_rows_are_json_for_journal_show(journal: Journal) -> None:
    journal.begin(entry())
    journal.finish("s1:t1:d", State.OUTCOME_UNKNOWN, "no answer within 10 s")
    journal.note_late("s1:t1:d", State.DONE, "sent")
    (row,) = journal.rows()
    assert json.loads(json.dumps(row.as_json())) == {
        "seq": 1,
        "key": "s1:t1:d",
        "session": "s1",
        "turn": "t1",
        "tool": "send_message",
        "params": {"recipient": "Ben", "body": "I'm late, see you at 7:30 p.m."},
        "span_s": [1.0, 3.0],
        "state": "outcome_unknown",
        "detail": "no answer within 10 s",
        "started_unix_s": 1002.0,
        "ended_unix_s": 1003.0,
        "late": {"state": "done", "detail": "sent", "unix_s": 1004.0},
    }
    journal.begin(entry("t2"))
    assert journal.rows(last=1)[0].as_json()["late"] is None


def test_the_last_rows_come_oldest_first(journal: Journal) -> None:
    for turn in ("t1", "t2", "t3"):
        journal.begin(entry(turn))
    assert [row.turn_id for row in journal.rows(last=2)] == ["t2", "t3"]
    assert journal.rows(last=0) == ()


@pytest.mark.parametrize("second", [entry(), entry(call=good_call("unlock_door"))])
def test_a_turn_runs_at_most_one_call_whatever_the_call(journal: Journal, second: JournalEntry) -> None:
    journal.begin(entry())
    journal.finish("s1:t1:d", State.DONE, "sent")
    with pytest.raises(AlreadyRanError, match="send_message of this turn is done") as caught:
        journal.begin(second)
    assert caught.value.row is not None
    assert caught.value.row.detail == "sent"
    assert len(journal.rows()) == 1


def test_the_same_turn_of_another_session_and_another_turn_may_run(journal: Journal) -> None:
    journal.begin(entry())
    journal.begin(entry(session_id="s2"))
    journal.begin(entry("t2"))
    assert len(journal.rows()) == 3


@pytest.mark.parametrize("first", [State.DONE, State.FAILED, State.CANCELLED, State.OUTCOME_UNKNOWN])
def test_a_call_has_exactly_one_end(journal: Journal, first: State) -> None:
    journal.begin(entry())
    journal.finish("s1:t1:d", first, "first")
    for again in (State.DONE, State.FAILED, State.CANCELLED, State.OUTCOME_UNKNOWN):
        with pytest.raises(JournalStateError, match="is not running"):
            journal.finish("s1:t1:d", again, "second")
    assert [row.detail for row in journal.rows()] == ["first"]


def test_a_call_that_never_began_has_no_end(journal: Journal) -> None:
    with pytest.raises(JournalStateError):
        journal.finish("s1:t9:d", State.DONE, "")
    assert journal.rows() == ()


def test_refused_is_no_state_of_the_journal(journal: Journal) -> None:
    journal.begin(entry())
    with pytest.raises(JournalError, match="CHECK constraint"):
        journal.finish("s1:t1:d", State.REFUSED, "")
    assert states(journal) == {"t1": State.STARTED}


def test_a_late_result_is_added_once_and_only_to_an_unknown_outcome(journal: Journal) -> None:
    journal.begin(entry())
    with pytest.raises(JournalStateError, match="takes no late result"):
        journal.note_late("s1:t1:d", State.DONE, "early")
    journal.finish("s1:t1:d", State.OUTCOME_UNKNOWN, "no answer")
    journal.note_late("s1:t1:d", State.FAILED, "late")
    with pytest.raises(JournalStateError, match="takes no late result"):
        journal.note_late("s1:t1:d", State.DONE, "later")
    (row,) = journal.rows()
    assert (row.state, row.late_state, row.late_detail) == (State.OUTCOME_UNKNOWN, State.FAILED, "late")


def test_a_call_found_unfinished_at_the_next_start_is_unknown_and_never_runs_again(path: Path) -> None:
    first = Journal(path, unix_s=Ticks())
    assert first.recovered == ()
    first.begin(entry("t1"))
    first.finish("s1:t1:d", State.DONE, "sent")
    first.begin(entry("t2"))
    first.close()
    second = Journal(path, unix_s=Ticks())
    assert [(row.turn_id, row.state, row.detail) for row in second.recovered] == [
        ("t2", State.OUTCOME_UNKNOWN, "the program ended while it ran")
    ]
    assert states(second) == {"t1": State.DONE, "t2": State.OUTCOME_UNKNOWN}
    with pytest.raises(AlreadyRanError, match="outcome_unknown"):
        second.begin(entry("t2"))
    second.close()
    third = Journal(path, unix_s=Ticks())
    assert third.recovered == ()
    third.close()


def test_a_second_opener_is_refused_so_that_it_cannot_call_a_running_call_unknown(path: Path, journal: Journal) -> None:
    journal.begin(entry())
    with pytest.raises(JournalBusyError, match="another voicegate"):
        Journal(path, unix_s=Ticks())
    program = (
        "import sys, pathlib\n"
        "from tools.journal import Journal, JournalBusyError\n"
        "try:\n    Journal(pathlib.Path(sys.argv[1]), unix_s=lambda: 0.0)\n"
        "except JournalBusyError:\n    sys.exit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 7
    assert states(journal) == {"t1": State.STARTED}


def test_it_can_be_read_while_a_gate_is_running_and_after(path: Path, journal: Journal) -> None:
    journal.begin(entry())
    assert [row.state for row in read_journal(path)] == [State.STARTED]
    journal.finish("s1:t1:d", State.DONE, "")
    journal.begin(entry("t2"))
    assert [row.turn_id for row in read_journal(path, last=1)] == ["t2"]
    journal.close()
    assert [row.state for row in read_journal(path)] == [State.DONE, State.STARTED]


def test_reading_what_is_no_journal_is_an_error(path: Path, tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no such journal"):
        read_journal(path)
    text = tmp_path / "text.db"
    text.write_text("hello " * 500)
    with pytest.raises(JournalError, match="not a database"):
        read_journal(text)
    other = tmp_path / "other.db"
    sqlite3.connect(other).execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(JournalError, match="is no voicegate journal"):
        read_journal(other)


def test_opening_what_is_no_journal_leaves_it_alone_and_unlocked(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("hello " * 500)
    other = tmp_path / "other.db"
    sqlite3.connect(other).execute("CREATE TABLE t (x)").connection.close()
    newer = tmp_path / "newer.db"
    Journal(newer, unix_s=Ticks()).close()
    sqlite3.connect(newer).execute("PRAGMA user_version = 99").connection.close()
    (tmp_path / "folder").mkdir()
    for file, reason in (
        (text, "not a database"),
        (other, "no voicegate journal"),
        (newer, "has form 99, this version reads form 1"),
        (tmp_path / "folder", "Is a directory"),
        (text / "below.db", "Not a directory|File exists"),
    ):
        for _ in range(2):  # the first refusal must not leave the lock behind
            with pytest.raises(JournalError, match=reason) as caught:
                Journal(file, unix_s=Ticks())
            assert not isinstance(caught.value, JournalBusyError)
    assert text.read_text() == "hello " * 500


def test_a_file_system_without_a_write_ahead_log_is_refused(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    class NoWal(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            return super().execute("SELECT 'delete'" if sql.startswith("PRAGMA journal_mode") else sql, *args)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, factory=NoWal, **kwargs))
    with pytest.raises(JournalError, match="no write-ahead log"):
        Journal(path, unix_s=Ticks())


def test_only_its_owner_can_read_the_arguments(path: Path, journal: Journal) -> None:
    journal.begin(entry())
    files = [path, path.with_name("journal.db-wal")]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]


def test_each_commit_waits_for_the_disk(journal: Journal) -> None:
    # SQLite's own account: 2 is FULL, the level at which a WAL commit is synced.
    assert journal._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert journal._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_full_disk_refuses_the_start_and_keeps_what_is_written(journal: Journal) -> None:
    journal.begin(entry("t1"))
    with full_disk():
        with pytest.raises(JournalError):
            journal.begin(entry("t2"))
        with pytest.raises(JournalError):
            journal.finish("s1:t1:d", State.DONE, "")
        with pytest.raises(JournalError):
            journal.probe()
    journal.probe()
    assert states(journal) == {"t1": State.STARTED}
    journal.finish("s1:t1:d", State.DONE, "")
    journal.begin(entry("t2"))
    assert states(journal) == {"t1": State.DONE, "t2": State.STARTED}


@pytest.mark.parametrize("replaced", [False, True])
def test_a_journal_deleted_while_open_takes_no_more_starts_that_a_restart_would_not_find(
    path: Path, journal: Journal, replaced: bool
) -> None:
    journal.begin(entry("t1"))
    moved = path.rename(path.with_name("moved.db"))
    if replaced:
        path.write_bytes(moved.read_bytes())
    with pytest.raises(JournalError, match="removed or replaced"):
        journal.begin(entry("t2"))
    moved.replace(path)
    journal.begin(entry("t2"))


def test_one_turn_begun_from_many_threads_runs_once(journal: Journal) -> None:
    results: list[bool] = []
    barrier = threading.Barrier(8)

    def begin() -> None:
        barrier.wait()
        try:
            journal.begin(entry())
            results.append(True)
        except AlreadyRanError:
            results.append(False)

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 7 + [True]


def test_a_purge_deletes_what_is_old_and_finished_and_its_words_from_the_disk(path: Path, journal: Journal) -> None:
    for turn in ("t1", "t2", "t3"):
        journal.begin(entry(turn, call=good_call(body=f"secret words of {turn}")))
        if turn != "t3":
            journal.finish(f"s1:{turn}:d", State.DONE, "sent")
    journal._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # so that the words lie in the database file itself
    before = journal.rows()[1].started_unix_s
    assert journal.purge(before_unix_s=before) == 1
    assert states(journal) == {"t2": State.DONE, "t3": State.STARTED}
    assert journal.purge() == 1
    assert states(journal) == {"t3": State.STARTED}
    assert journal.purge() == 0
    on_disk = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"secret words of t3" in on_disk
    assert b"secret words of t1" not in on_disk
    assert b"secret words of t2" not in on_disk


def test_a_purged_turn_still_never_runs_again(path: Path, journal: Journal) -> None:
    journal.begin(entry())
    journal.finish("s1:t1:d", State.DONE, "sent")
    journal.purge()
    with pytest.raises(AlreadyRanError, match="was purged") as caught:
        journal.begin(entry(call=good_call("unlock_door")))
    assert caught.value.row is None
    journal.close()
    again = Journal(path, unix_s=Ticks())
    with pytest.raises(AlreadyRanError):
        again.begin(entry())
    again.begin(entry(session_id="s2"))
    again.close()


def test_a_purge_that_a_reader_keeps_from_overwriting_says_so(path: Path, journal: Journal) -> None:
    journal._connection.execute("PRAGMA busy_timeout = 1")
    journal.begin(entry())
    journal.finish("s1:t1:d", State.DONE, "sent")
    reader = sqlite3.connect(path)
    try:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM calls").fetchone()
        with pytest.raises(JournalError, match="a reader kept their old copy"):
            journal.purge()
    finally:
        reader.close()
    assert journal.rows() == ()


def test_closing_twice_is_fine_and_using_it_closed_is_an_error(journal: Journal) -> None:
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.begin(entry())
    with pytest.raises(JournalError, match="closed"):
        journal.rows()
