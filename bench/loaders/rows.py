"""What the loaders share: rows of a table with the place that each comes from, columns checked, audio found by name.

A loader never guesses. A column that it does not know, a row without its audio, an id that comes twice are errors that
name the row; nothing is matched by prefix, and nothing is skipped in silence.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from bench.trials import Trial

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_SHOWN: Final = 20


class LoaderError(ValueError):
    """A corpus cannot be read. The message has one line a problem, each with its file and row."""

    @classmethod
    def of(cls, problems: Sequence[str]) -> LoaderError:
        """All problems in one, the first twenty in full."""
        shown = list(problems[:_MOST_SHOWN])
        if len(problems) > _MOST_SHOWN:
            shown.append(f"and {len(problems) - _MOST_SHOWN} more")
        return cls("\n".join(shown))


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table.

    Attributes:
        where: its file and line, for messages.
        cells: its values by column.
    """

    where: str
    cells: Mapping[str, Any]

    def text(self, column: str) -> str:
        """A cell that must hold text.

        Raises:
            LoaderError: when it is missing or empty; names the row.
        """
        value = self.cells.get(column)
        if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
            raise LoaderError(f"{self.where}: the column {column!r} is empty")
        return str(value).strip()

    def texts(self, column: str) -> tuple[str, ...]:
        """A cell that must hold a text or a list of texts.

        Raises:
            LoaderError: when it does not; names the row.
        """
        value = self.cells.get(column)
        if not isinstance(value, list):
            return (self.text(column),)
        if not value or not all(isinstance(one, str) and one.strip() for one in value):
            raise LoaderError(f"{self.where}: the column {column!r} is no list of texts")
        return tuple(one.strip() for one in value)

    def optional(self, column: str) -> str | None:
        """A cell that may be empty or missing."""
        value = self.cells.get(column)
        return None if value is None or not str(value).strip() else str(value).strip()


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns a table has.

    Attributes:
        needed: those without which it cannot be read.
        known: those that may be there beside them.
    """

    needed: frozenset[str]
    known: frozenset[str] = frozenset()

    def check(self, found: Sequence[str], where: str) -> None:
        """Compare.

        Raises:
            LoaderError: when one is missing or unknown; names it and the cure.
        """
        missing = sorted(self.needed - set(found))
        unknown = sorted(set(found) - self.needed - self.known)
        if missing:
            raise LoaderError(f"{where}: no column {', '.join(map(repr, missing))}; there are {', '.join(found)}")
        if unknown:
            raise LoaderError(
                f"{where}: unknown column {', '.join(map(repr, unknown))}; name it in the column map, or among the "
                "columns to ignore"
            )


def read_tsv(path: Path, columns: Columns) -> Iterator[Row]:
    """Rows of a table with a heading, fields apart by tabs, no quoting.

    Raises:
        LoaderError: when it cannot be read, its columns are not those, or a row has another number of fields.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            heading = next(reader, [])
            columns.check(heading, str(path))
            for number, cells in enumerate(reader, 2):
                if not cells:
                    continue
                if len(cells) != len(heading):
                    raise LoaderError(f"{path}:{number}: has {len(cells)} fields, and the heading {len(heading)}")
                yield Row(f"{path}:{number}", dict(zip(heading, cells, strict=True)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LoaderError(f"{path}: cannot be read: {error}") from error


def read_jsonl(path: Path, columns: Columns) -> Iterator[Row]:
    """Rows of a JSON Lines file, one object a line.

    Raises:
        LoaderError: when it cannot be read, or a line is no object with those columns.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise LoaderError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            cells = json.loads(line)
        except json.JSONDecodeError as error:
            raise LoaderError(f"{where}: is no JSON: {error}") from error
        if not isinstance(cells, dict):
            raise LoaderError(f"{where}: is no object")
        columns.check(list(cells), where)
        yield Row(where, cells)


def audio_file(folder: Path, name: str, where: str) -> Path:
    """A recording by its exact name.

    Args:
        folder: in which it must lie.
        name: its path in the folder.
        where: the row, for the message.

    Raises:
        LoaderError: when it is not there, or the name leads out of the folder.
    """
    path = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise LoaderError(f"{where}: the audio {name!r} lies outside {folder}")
    if not path.is_file():
        raise LoaderError(f"{where}: no such audio: {path}")
    return path


def relative(path: Path, folder: Path) -> str:
    """A path as a manifest in ``folder`` names it."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def read_table(path: Path, columns: Columns) -> Iterator[Row]:
    """Rows of a table, read as its suffix says.

    Raises:
        LoaderError: when it is neither ``.jsonl`` nor ``.tsv``, or as ``read_jsonl`` and ``read_tsv`` say.
    """
    readers = {".jsonl": read_jsonl, ".tsv": read_tsv}
    if path.suffix not in readers:
        raise LoaderError(f"{path}: is neither .jsonl nor .tsv")
    return readers[path.suffix](path, columns)


def trials_of(rows: Iterable[Row], make: Callable[[Row], Sequence[Trial]], source: Path) -> list[Trial]:
    """The trials of all rows, or all that is wrong with them.

    Args:
        rows: of a table.
        make: makes a row's trials; raises ``LoaderError``.
        source: the table, for the message.

    Raises:
        LoaderError: when a row could not be read, two trials have one id, or there is no row.
    """
    trials: list[Trial] = []
    problems: list[str] = []
    taken: dict[str, str] = {}
    for row in rows:
        try:
            made = make(row)
        except LoaderError as error:
            problems.append(str(error))
            continue
        for trial in made:
            if trial.id in taken:
                problems.append(f"{row.where}: the id {trial.id!r} is taken at {taken[trial.id]}")
            taken.setdefault(trial.id, row.where)
            trials.append(trial)
    if not trials and not problems:
        problems.append(f"{source}: holds no row")
    if problems:
        raise LoaderError.of(problems)
    return trials


def trial_of(fields: Mapping[str, Any], where: str) -> Trial:
    """A trial of some fields.

    Raises:
        LoaderError: when the fields do not make one; names the row.
    """
    try:
        return Trial.model_validate(dict(fields))
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"])
        message = str(first["msg"]).removeprefix("Value error, ")
        raise LoaderError(f"{where}: {at}: {message}" if at else f"{where}: {message}") from error


def trial_id(*parts: str) -> str:
    """An id made of the corpus' own: what a manifest does not allow in ids becomes ``_``."""
    return ".".join(_NOT_IN_IDS.sub("_", part) for part in parts)
