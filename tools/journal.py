"""The journal: a row is durable before a call runs and again after it, so that no call runs twice or is lost.

SQLite in WAL mode with ``synchronous=FULL``: a commit has reached the disk when it returns. A kill at any instant
leaves one of these, and the next start makes of it:

=========================================  ======================================================
killed                                     found at the next start
=========================================  ======================================================
before the first commit                    no row; nothing had run
between the two commits                    ``started``; becomes ``outcome_unknown``
after the second commit                    the final state
=========================================  ======================================================

One turn has at most one row, ever; a purge leaves its mark, so that a turn of a session cannot run again after it.

Privacy: arguments are stored in plain text (they are what was executed), in a file that only its owner can read. Audio,
transcripts and scores are not. ``purge`` deletes rows and overwrites what they held.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from gate.catalogue import ToolCall
from gate.span import Span
from tools.records import ExecutionState

_APPLICATION_ID = 0x76674A31  # "vgJ1"
_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE calls (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    params TEXT NOT NULL,
    start_sample INTEGER NOT NULL,
    end_sample INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('started', 'done', 'failed', 'cancelled', 'outcome_unknown')),
    detail TEXT NOT NULL DEFAULT '',
    started_unix_s REAL NOT NULL,
    ended_unix_s REAL,
    late_state TEXT CHECK (late_state IN ('done', 'failed')),
    late_detail TEXT NOT NULL DEFAULT '',
    late_unix_s REAL,
    UNIQUE (session_id, turn_id)
);
CREATE TABLE spent_turns (mark TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE probes (id INTEGER PRIMARY KEY CHECK (id = 0), count INTEGER NOT NULL);
INSERT INTO probes VALUES (0, 0);
"""
_COLUMNS = (
    "seq, key, session_id, turn_id, tool, params, start_sample, end_sample, state, detail, "
    "started_unix_s, ended_unix_s, late_state, late_detail, late_unix_s"
)
_RECOVERED = "the program ended while it ran"


class JournalError(Exception):
    """The journal cannot be opened, read or written. What it was to hold is not known to be on disk."""


class JournalBusyError(JournalError):
    """Another process has the journal open for writing."""


class JournalStateError(JournalError):
    """The row is not there or not in the state that the change needs. Trying again cannot help."""


class AlreadyRanError(Exception):
    """The turn has a call in the journal.

    Attributes:
        row: that call, or None when it was purged.
    """

    def __init__(self, row: JournalRow | None) -> None:
        super().__init__("a call of this turn was purged" if row is None else f"{row.tool} of this turn is {row.state}")
        self.row = row


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A call about to run.

    Attributes:
        key: its idempotency key.
        session_id: the session.
        turn_id: the turn, unique in the session.
        call: tool and arguments.
        span: the samples that license it.
    """

    key: str
    session_id: str
    turn_id: str
    call: ToolCall
    span: Span


@dataclass(frozen=True, slots=True)
class JournalRow:
    """A call as the journal holds it. Times are Unix seconds; the span is in samples of the session's stream."""

    seq: int
    key: str
    session_id: str
    turn_id: str
    tool: str
    params: dict[str, Any]
    span: Span
    state: ExecutionState
    detail: str
    started_unix_s: float
    ended_unix_s: float | None
    late_state: ExecutionState | None
    late_detail: str
    late_unix_s: float | None

    def as_json(self) -> dict[str, Any]:
        """The row as JSON-ready values, for ``journal show``."""
        return {
            "seq": self.seq,
            "key": self.key,
            "session": self.session_id,
            "turn": self.turn_id,
            "tool": self.tool,
            "params": self.params,
            "span_s": [self.span.start_s, self.span.end_s],
            "state": self.state.value,
            "detail": self.detail,
            "started_unix_s": self.started_unix_s,
            "ended_unix_s": self.ended_unix_s,
            "late": None
            if self.late_state is None
            else {"state": self.late_state.value, "detail": self.late_detail, "unix_s": self.late_unix_s},
        }


class Journal:
    """The journal, open for writing. One process at a time; its methods may be called from any thread.

    Opening it creates the file where there is none, and turns every row that was left ``started`` into
    ``outcome_unknown``.

    Args:
        path: the database file; ``-wal``, ``-shm`` and ``.lock`` files lie beside it.
        unix_s: returns the present time in Unix seconds.

    Attributes:
        recovered: the rows that opening found unfinished, as they now are.

    Raises:
        JournalBusyError: when another process has it open.
        JournalError: when it cannot be opened, or is not a journal.
    """

    def __init__(self, path: Path, *, unix_s: Callable[[], float]) -> None:
        self._path = path
        self._unix_s = unix_s
        self._mutex = threading.Lock()
        self._file_lock = FileLock(f"{path}.lock", timeout=0, thread_local=False)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file_lock.acquire()
        except Timeout:
            raise JournalBusyError(f"{path}: another voicegate has this journal open") from None
        except OSError as error:
            raise JournalError(f"{path}: {error}") from error
        try:
            # SQLite gives -wal and -shm the mode of the database file, so the mode is set before it first opens it.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = _connect(path)
            try:
                self._inode = path.stat().st_ino
                self._prepare()
                self.recovered = self._recover()
            except BaseException:
                self._connection.close()
                raise
        except (OSError, sqlite3.Error) as error:
            self._file_lock.release()
            raise JournalError(f"{path}: {error}") from error
        except BaseException:
            self._file_lock.release()
            raise

    def begin(self, entry: JournalEntry) -> None:
        """Write that a call is about to run. When this returns, the row is on disk; when it raises, nothing may run.

        Raises:
            AlreadyRanError: when the turn has a call in the journal, or had one.
            JournalError: when the row cannot be written, or the file was removed or replaced.
        """
        params = json.dumps(dict(entry.call.params), ensure_ascii=False, allow_nan=False)
        with self._transaction() as connection:
            mark = _turn_mark(entry.session_id, entry.turn_id)
            if connection.execute("SELECT 1 FROM spent_turns WHERE mark = ?", (mark,)).fetchone():
                raise AlreadyRanError(None)
            earlier = _select(connection, "WHERE session_id = ? AND turn_id = ?", entry.session_id, entry.turn_id)
            if earlier:
                raise AlreadyRanError(earlier[0])
            connection.execute(
                "INSERT INTO calls (key, session_id, turn_id, tool, params, start_sample, end_sample, state, "
                "started_unix_s) VALUES (?, ?, ?, ?, ?, ?, ?, 'started', ?)",
                (
                    entry.key,
                    entry.session_id,
                    entry.turn_id,
                    entry.call.name,
                    params,
                    entry.span.start_sample,
                    entry.span.end_sample,
                    self._unix_s(),
                ),
            )

    def finish(self, key: str, state: ExecutionState, detail: str) -> None:
        """Give a started call its final state.

        Raises:
            JournalStateError: when the call is not in the state ``started``.
            JournalError: when it cannot be written.
        """
        with self._transaction() as connection:
            changed = connection.execute(
                "UPDATE calls SET state = ?, detail = ?, ended_unix_s = ? WHERE key = ? AND state = 'started'",
                (state.value, detail, self._unix_s(), key),
            ).rowcount
            if changed != 1:
                raise JournalStateError(f"{key} is not running, so it cannot become {state}")

    def note_late(self, key: str, state: ExecutionState, detail: str) -> None:
        """Add how a call ended after its outcome was written down as unknown. Its state stays as it is.

        Raises:
            JournalStateError: when the call's outcome is not unknown, or has its late result, or was purged.
            JournalError: when it cannot be written.
        """
        with self._transaction() as connection:
            changed = connection.execute(
                "UPDATE calls SET late_state = ?, late_detail = ?, late_unix_s = ? "
                "WHERE key = ? AND state = 'outcome_unknown' AND late_state IS NULL",
                (state.value, detail, self._unix_s(), key),
            ).rowcount
            if changed != 1:
                raise JournalStateError(f"{key} takes no late result")

    def probe(self) -> None:
        """Write and commit one number, to learn whether the journal can be written again.

        Raises:
            JournalError: when it cannot.
        """
        with self._transaction() as connection:
            connection.execute("UPDATE probes SET count = count + 1")

    def rows(self, last: int | None = None) -> tuple[JournalRow, ...]:
        """The calls, oldest first; the ``last`` ones only when given.

        Raises:
            JournalError: when it cannot be read.
        """
        with self._mutex, _as_journal_error(self._path):
            return _last_rows(self._connection, last)

    def purge(self, before_unix_s: float | None = None) -> int:
        """Delete the finished calls that started before ``before_unix_s``, or all finished ones, and overwrite them.

        A running call stays. A purged turn stays refused: what is kept of it is a hash of its session and turn ids.

        Returns:
            How many were deleted.

        Raises:
            JournalError: when it cannot be written.
        """
        where = "state != 'started' AND (? IS NULL OR started_unix_s < ?)"
        with self._transaction() as connection:
            turns = connection.execute(
                f"SELECT session_id, turn_id FROM calls WHERE {where}", (before_unix_s, before_unix_s)
            ).fetchall()
            connection.executemany("INSERT INTO spent_turns VALUES (?)", [(_turn_mark(*turn),) for turn in turns])
            connection.execute(f"DELETE FROM calls WHERE {where}", (before_unix_s, before_unix_s))
        with self._mutex, _as_journal_error(self._path):
            # The write-ahead log still holds the rows as they were written.
            busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise JournalError(f"{self._path}: {len(turns)} calls deleted, but a reader kept their old copy in the log")
        return len(turns)

    def close(self) -> None:
        """Close it and let another process open it. Safe to call twice."""
        with self._mutex:
            self._connection.close()
            self._file_lock.release()

    def _prepare(self) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        application = self._connection.execute("PRAGMA application_id").fetchone()[0]
        empty = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if empty:
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {_APPLICATION_ID}; "
                f"PRAGMA user_version = {_SCHEMA_VERSION}; COMMIT;"
            )
        elif application != _APPLICATION_ID:
            raise JournalError(f"{self._path}: is a database, but no voicegate journal; name another file")
        elif version != _SCHEMA_VERSION:
            raise JournalError(f"{self._path}: has form {version}, this version reads form {_SCHEMA_VERSION}")

    def _recover(self) -> tuple[JournalRow, ...]:
        with self._transaction() as connection:
            found = _select(connection, "WHERE state = 'started' ORDER BY seq")
            connection.execute(
                "UPDATE calls SET state = 'outcome_unknown', detail = ?, ended_unix_s = ? WHERE state = 'started'",
                (_RECOVERED, self._unix_s()),
            )
            return tuple(_select(connection, "WHERE seq = ?", row.seq)[0] for row in found)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._mutex, _as_journal_error(self._path):
            self._refuse_when_replaced()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # SQLite has rolled back by itself after a full disk or an I/O error.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _refuse_when_replaced(self) -> None:
        """SQLite goes on writing to a deleted file; a row there would not be found after a restart."""
        try:
            same = self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            raise JournalError(f"{self._path}: was removed or replaced while it was open; restart to begin a new one")


def read_journal(path: Path, last: int | None = None) -> tuple[JournalRow, ...]:
    """Read a journal without opening it for writing, also while a gate is running; for ``journal show``.

    Args:
        path: the database file.
        last: how many rows from the end; all when None.

    Returns:
        The calls, oldest first. A ``started`` one is running, or was running when its program was killed.

    Raises:
        JournalError: when there is none, or it cannot be read.
    """
    if not path.is_file():
        raise JournalError(f"{path}: no such journal")
    with _as_journal_error(path):
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
        try:
            if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
                raise JournalError(f"{path}: is no voicegate journal")
            return _last_rows(connection, last)
        finally:
            connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=2.0)
    try:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise JournalError(f"{path}: its file system has no write-ahead log ({mode}); use a local disk")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA secure_delete = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _turn_mark(session_id: str, turn_id: str) -> str:
    return hashlib.sha256(json.dumps([session_id, turn_id]).encode()).hexdigest()


def _select(connection: sqlite3.Connection, clause: str, *values: object) -> list[JournalRow]:
    return [_row(found) for found in connection.execute(f"SELECT {_COLUMNS} FROM calls {clause}", values)]


def _last_rows(connection: sqlite3.Connection, last: int | None) -> tuple[JournalRow, ...]:
    rows = _select(connection, "ORDER BY seq DESC LIMIT ?", -1 if last is None else max(0, last))
    return tuple(reversed(rows))


def _row(found: tuple[Any, ...]) -> JournalRow:
    (seq, key, session_id, turn_id, tool, params, start, end, state, detail, started, ended, *late) = found
    late_state, late_detail, late_unix_s = late
    return JournalRow(
        seq,
        key,
        session_id,
        turn_id,
        tool,
        json.loads(params),
        Span(start, end),
        ExecutionState(state),
        detail,
        started,
        ended,
        None if late_state is None else ExecutionState(late_state),
        late_detail,
        late_unix_s,
    )


@contextlib.contextmanager
def _as_journal_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise JournalError(f"{path}: {error}") from error
