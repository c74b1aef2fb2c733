"""The last figures of each policy on this machine, in one small file of the user's data folder.

The benchmark writes it at the end of a run (``bench.last_row``), ``voicegate policies`` reads it. It is a reminder, not
a record: the record is the run's own folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.settings import data_folder

FILE = "bench-rows.json"
_VERSION = 1


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Share(_Model):
    """``k`` of ``n`` trials, and the 95 % interval of the rate."""

    k: float
    n: int
    rate: float
    ci95: tuple[float, float]


class BenchRow(_Model):
    """What came of the last run of a policy.

    Attributes:
        policy: as it was named, options included.
        date: when its last trial ended, ISO 8601, UTC.
        manifest: the manifest's file name.
        manifest_sha256: of its bytes.
        folder: the run's.
        pace: which clock it ran on.
        trials: how many have a line.
        failed: how many of them came to no action (error, timeout, unparseable, no audio).
        rates: by name (``RATES``); None where nothing of that kind was played, or a judge has not said all.
    """

    policy: str
    date: str
    manifest: str
    manifest_sha256: str
    folder: str
    pace: str
    trials: int
    failed: int
    rates: dict[str, Share | None] = Field(default_factory=dict)


RATES: Mapping[str, str] = {
    "side_talk": "side-talk right",
    "self_talk": "self-talk muted",
    "speaker_switch": "speaker-switch right",
    "false_execution": "false executions",
    "false_rejection": "false rejections",
}
"""The rates of a row, and how they are called."""


class _File(_Model):
    version: int = _VERSION
    rows: dict[str, BenchRow] = Field(default_factory=dict)


class RowsUnreadableError(Exception):
    """The file is there and cannot be read. The message says why."""


def rows_file() -> Path:
    """Where the rows are."""
    return data_folder() / FILE


def read_rows(path: Path) -> dict[str, BenchRow]:
    """The rows, by the policy as it was named; none when there is no file.

    Raises:
        RowsUnreadableError: when the file cannot be read, or is none of this version.
    """
    try:
        found = _File.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RowsUnreadableError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise RowsUnreadableError(f"{path}: no rows in it ({error.error_count()} faults); delete it") from error
    if found.version != _VERSION:
        raise RowsUnreadableError(f"{path}: of version {found.version}, this is {_VERSION}; delete it")
    return found.rows


def write_row(path: Path, row: BenchRow) -> None:
    """Put a row in the place of the one that its policy had; the file is written whole or not at all.

    Raises:
        RowsUnreadableError: when what is there cannot be read: it is left as it is.
        OSError: when it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        rows = {**read_rows(path), row.policy: row}
        draft = path.with_suffix(".draft")
        draft.write_text(_File(rows=rows).model_dump_json(indent=2) + "\n", encoding="utf-8")
        draft.replace(path)


def last_row(rows: Mapping[str, BenchRow], policy: str) -> BenchRow | None:
    """The newest row of a policy, whichever options it had."""
    return max((row for row in rows.values() if row.policy.partition(":")[0] == policy), key=_date, default=None)


def _date(row: BenchRow) -> str:
    return row.date
