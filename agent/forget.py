"""``voicegate forget``: deletes what the gate keeps of a person, says what was deleted, and touches nothing else.

Kept of a person are: her profile, the journal's rows (what was executed for her), event files that the user asked for
(transcripts and scores), and, after a crash, a half-written profile or the journal of a replay in the temporary folder.
Audio is never kept. Profiles are told apart by name. Journal and event files do not say who spoke, so they are deleted
whole.

Nothing is deleted by its place alone: a profile, a journal and an event file are opened first, and what turns out to be
something else, a link or a folder stays, and is named. Deleted rows are overwritten inside the journal; for deleted
files the file system decides when their blocks are used again.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.assemble import default_profile, journal_path
from agent.clock import unix_time_s
from agent.events import EVENT
from agent.exit_codes import ExitCode
from agent.settings import Settings, data_folder
from tools.journal import Journal, JournalBusyError, JournalError, read_journal

_PROFILE_KEYS = {"version", "name", "model", "sha256"}
_VOICE_KEYS = {"vector", "sealed"}
"""Of a plain and of an encrypted profile, which is told by its name and deleted without its passphrase."""
_SCRATCH_PREFIX = "voicegate-"
_SCRATCH_JOURNAL = "journal.sqlite3"
_JOURNAL_SUFFIXES = ("", "-wal", "-shm", ".lock")


def add_forget_parser(commands: Any) -> None:
    """Add ``forget`` to the command line.

    Args:
        commands: the sub-parsers of ``voicegate`` (argparse keeps their type to itself).
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        "forget",
        help="delete profiles, the journal's rows and event files of a person",
        description="Deletes a person's profile, also an encrypted one without its passphrase, all rows of the journal "
        "and the event files that the settings or --events name. Journal and event files do not say who spoke, so they "
        "are deleted whole.",
    )
    whose = parser.add_mutually_exclusive_group(required=True)
    whose.add_argument("name", nargs="?", metavar="NAME", help="whose profile (`voicegate enroll --name`)")
    whose.add_argument("--all", action="store_true", help="every profile")
    # Not named like the flag of sessions, which overrides the setting of one file.
    parser.add_argument(
        "--events", dest="event_files", type=Path, action="append", default=[], metavar="FILE",
        help="an event file; may be repeated",
    )  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="do not ask")


@dataclass(slots=True)
class Found:
    """What there is to delete.

    Attributes:
        files: files to delete, each with what it is.
        journal: the journal whose rows are deleted, or None when there is none.
        rows: how many rows it has.
        kept: what was looked at and is left alone, with the reason.
        missing: what was named and is not there.
        names: the names of all profiles that were found, also of those that stay.
    """

    files: list[tuple[Path, str]] = field(default_factory=list)
    journal: Path | None = None
    rows: int = 0
    kept: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not self.files and self.rows == 0

    def lines(self) -> list[str]:
        """What would be deleted, for a person."""
        found = [f"{what}: {path}" for path, what in self.files]
        if self.rows:
            found.append(f"all {self.rows} rows of the journal: {self.journal}")
        return found


def find(
    settings: Settings, name: str | None, event_files: Sequence[Path], *, data: Path, scratch: Path
) -> Found:  # fmt: skip
    """Look for everything that is kept of a person. Deletes nothing.

    Args:
        settings: name the profile, the journal and the event file.
        name: whose profile; None for every one.
        event_files: further event files.
        data: the folder of profiles.
        scratch: the folder of temporary folders.

    Returns:
        What there is.

    Raises:
        JournalError: when the journal cannot be read.
    """
    found = Found()
    _find_profiles(found, settings, name, data)
    _find_journal(found, journal_path(settings))
    configured = [settings.output.events] if settings.output.events else []
    for path in dict.fromkeys((*configured, *event_files)):
        _find_events(found, path)
    for folder in sorted(scratch.glob(f"{_SCRATCH_PREFIX}*")):
        _find_scratch(found, folder)
    return found


def _find_profiles(found: Found, settings: Settings, name: str | None, data: Path) -> None:
    candidates = [*sorted(data.glob("*.json")), default_profile()]
    if settings.session.profile is not None:
        candidates.append(settings.session.profile)
        if not settings.session.profile.exists():
            found.missing.append(f"profile of the settings: {settings.session.profile}")
    for path in dict.fromkeys(candidates):
        if not _is_plain_file(found, path):
            continue
        owner = _profile_name(path)
        if owner is None:
            found.kept.append(f"{path}: not a profile, or damaged; delete it yourself if it is one")
            continue
        found.names.append(owner)
        if name is None or owner == name:
            found.files.append((path, f"profile of {owner}"))
            partial = path.with_suffix(".part")
            if partial.exists() and _is_plain_file(found, partial):
                found.files.append((partial, f"half-written profile of {owner}"))
    if name is None:
        listed = {path for path, _ in found.files}
        for partial in sorted(data.glob("*.part")):
            if partial not in listed and _is_plain_file(found, partial):
                found.files.append((partial, "half-written profile"))


def _profile_name(path: Path) -> str | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or not (content.keys() >= _PROFILE_KEYS and content.keys() & _VOICE_KEYS):
        return None
    return str(content["name"])


def _find_journal(found: Found, path: Path) -> None:
    if not path.exists():
        found.missing.append(f"journal: {path}")
        return
    if _is_plain_file(found, path):
        found.journal = path
        found.rows = len(read_journal(path))


def _find_events(found: Found, path: Path) -> None:
    if not path.exists() and not path.is_symlink():
        found.missing.append(f"event file: {path}")
    elif _is_plain_file(found, path):
        if _holds_events(path):
            found.files.append((path, "event file"))
        else:
            found.kept.append(f"{path}: not an event file of voicegate")


def _holds_events(path: Path) -> bool:
    """Whether the first whole line is an event, or there is none: a kill can leave a single torn one."""
    with path.open("rb") as file:
        for line in file:
            if not line.strip():
                continue
            try:
                EVENT.validate_json(line)
            except ValueError:
                return line.startswith(b'{"v":') and not line.endswith(b"}\n")
            return True
    return True


def _find_scratch(found: Found, folder: Path) -> None:
    """A replay that was killed leaves the journal of its rehearsal behind."""
    journal = folder / _SCRATCH_JOURNAL
    if folder.is_symlink() or not folder.is_dir() or not journal.exists() or folder.stat().st_uid != os.getuid():
        return
    try:
        read_journal(journal)
    except JournalError:
        found.kept.append(f"{journal}: not a journal of voicegate")
        return
    if _in_use(journal):
        found.kept.append(f"{journal}: a replay that is running uses it")
        return
    for suffix in _JOURNAL_SUFFIXES:
        path = journal.with_name(_SCRATCH_JOURNAL + suffix)
        if path.exists() and _is_plain_file(found, path):
            found.files.append((path, "left behind by a replay that was killed"))


def _in_use(journal: Path) -> bool:
    try:
        Journal(journal, unix_s=unix_time_s).close()
    except JournalBusyError:
        return True
    except JournalError:
        return False
    return False


def _is_plain_file(found: Found, path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISREG(mode):
        return True
    kind = "a link" if stat.S_ISLNK(mode) else "not a file"
    found.kept.append(f"{path}: {kind}; only files themselves are deleted")
    return False


def delete(found: Found) -> Iterator[tuple[bool, str]]:
    """Delete what was found: the journal's rows first, since a gate that is running keeps them, and then stops this.

    Yields:
        Whether it worked, and what to say of it.

    Raises:
        JournalError: when the journal is in use or cannot be written; nothing has been deleted then.
    """
    if found.journal is not None:
        journal = Journal(found.journal, unix_s=unix_time_s)
        try:
            count = journal.purge()
        finally:
            journal.close()
        if count:
            yield True, f"{count} rows of the journal: {found.journal}"
    for path, what in found.files:
        try:
            path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            yield False, f"{what}: {path}: {error.strerror or error}"
            continue
        else:
            yield True, f"{what}: {path}"
        if path.parent.name.startswith(_SCRATCH_PREFIX) and not any(path.parent.iterdir()):
            path.parent.rmdir()


def run(args: argparse.Namespace, settings: Settings, *, ask: Callable[[str], str] | None = None) -> ExitCode:
    """``voicegate forget``.

    Args:
        args: from ``add_forget_parser``.
        settings: all settings.
        ask: puts a question and returns the answer; by default ``input`` on a terminal, and nobody otherwise.

    Returns:
        ``OK`` when everything that was found is gone (also when nothing was); ``PROFILE`` when nobody of that name is
        enrolled; ``USAGE`` when it has to be confirmed and nobody can; ``FAILED`` when it was not confirmed or a file
        could not be deleted.

    Raises:
        JournalError: when the journal is in use or cannot be read; nothing has been deleted then.
    """
    found = find(settings, args.name, args.event_files, data=data_folder(), scratch=Path(tempfile.gettempdir()))
    for line in found.kept:
        print(f"left alone: {line}")
    for line in found.missing:
        print(f"not found: {line}")
    if args.name is not None and args.name not in found.names:
        there = ", ".join(sorted(set(found.names))) or "none"
        print(f"nobody named {args.name!r} is enrolled (profiles: {there}); nothing was deleted", file=sys.stderr)
        return ExitCode.PROFILE
    if found.empty:
        print("there is nothing to delete")
        return ExitCode.OK
    if not args.yes:
        if ask is None and not sys.stdin.isatty():
            print("not a terminal, so nobody can confirm; add --yes. Would delete:", *found.lines(), sep="\n  ")
            return ExitCode.USAGE
        print("to be deleted, for good:", *found.lines(), sep="\n  ")
        if not _agreed(ask or input):
            print("nothing was deleted")
            return ExitCode.FAILED
    code = ExitCode.OK
    for worked, line in delete(found):
        if worked:
            print(f"deleted {line}")
        else:
            print(f"could not delete {line}", file=sys.stderr)
            code = ExitCode.FAILED
    return code


def _agreed(ask: Callable[[str], str]) -> bool:
    try:
        return ask("type yes to delete: ").strip().casefold() == "yes"
    except EOFError:
        return False
