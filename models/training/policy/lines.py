"""What the mixture is made of: lines with what is right to do about each, from ``models/training/data`` or elsewhere.

A line is words and a label, without voices, distances or damage: those are the mixture's. ``read_lines`` reads the
project's own files, whose names say which split they are; the benchmark and folders of real text fill the same types.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from gate.catalogue import ToolCall

DATA = Path(__file__).parent.parent / "data"
"""The project's own lines."""
SPLITS = ("train", "dev", "test")
TALK = ("self_talk", "side_talk", "quoted_commands")
"""Folders of what the wearer says to nobody, or to somebody else."""


class BadLineError(ValueError):
    """A line is not what its folder should hold. The message names file and line."""


@dataclass(frozen=True, slots=True)
class TalkLine:
    """Words that no call and no answer is right for.

    Attributes:
        text: the words.
        kind: "self_talk", "side_talk", "quoted_commands", "small_talk", "incomplete", or who says an injection:
            "bystander", "television", "wearer_reading"; "others" for what may be meant for an assistant but is known
            only as other people's words.
        origin: "lines", "scripts" or "real".
    """

    text: str
    kind: str
    origin: str = "lines"


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Words that one call is right for; several, where one breath holds several.

    Attributes:
        text: the words.
        calls: what they ask for.
        opening: what the same person says before, to nobody; empty when there is nothing.
        origin: as of ``TalkLine``.
    """

    text: str
    calls: tuple[ToolCall, ...]
    opening: str = ""
    origin: str = "lines"


@dataclass(frozen=True, slots=True)
class QuestionLine:
    """A question to the assistant.

    Attributes:
        text: the words.
        answer: as it is to be written.
        accepted: what counts as the answer.
        origin: as of ``TalkLine``.
    """

    text: str
    answer: str
    accepted: tuple[str, ...]
    origin: str = "lines"


@dataclass(frozen=True, slots=True)
class RequestLine:
    """What no tool can do and no knowledge answers.

    Attributes:
        text: the words.
        reply: which of the replies that say so is right ("do", "look_up", "play", "know").
        origin: as of ``TalkLine``.
    """

    text: str
    reply: str
    origin: str = "real"


@dataclass(frozen=True, slots=True)
class BothLine:
    """One voice that speaks to the assistant and to somebody in the room.

    Attributes:
        meant: what the assistant is told or asked.
        bystander: what the other person is told.
        assistant_first: whether the assistant's part comes first.
    """

    meant: CommandLine | QuestionLine
    bystander: str
    assistant_first: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about something told.

    Attributes:
        question: as it is put in writing.
        answer: as it is to be written.
        accepted: what counts as the answer; one of these, or the answer itself, is said word for word.
    """

    question: str
    answer: str
    accepted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ToldLine:
    """A dialogue of two people, or a passage of one.

    Attributes:
        turns: who speaks ("A", "B") and the words; the sentences of a passage, all by "A".
        asked: questions about it.
        kind: "dialogue" or "passage".
        origin: as of ``TalkLine``.
    """

    turns: tuple[tuple[str, str], ...]
    asked: tuple[Asked, ...]
    kind: str
    origin: str = "lines"

    @property
    def text(self) -> str:
        """All that is said."""
        return " ".join(words for _, words in self.turns)


@dataclass(frozen=True, slots=True)
class Material:
    """All lines of one split, by what they are for.

    Attributes:
        talk: talk to nobody, or to somebody else.
        injections: speech that tries to make the assistant do what it should not.
        incomplete: what breaks off.
        commands: each right for one call.
        two_commands: each right for two.
        questions: questions with answers.
        requests: what can be neither done nor answered.
        both: one voice, two addressees.
        told: dialogues and passages.
    """

    talk: tuple[TalkLine, ...] = ()
    injections: tuple[TalkLine, ...] = ()
    incomplete: tuple[TalkLine, ...] = ()
    commands: tuple[CommandLine, ...] = ()
    two_commands: tuple[CommandLine, ...] = ()
    questions: tuple[QuestionLine, ...] = ()
    requests: tuple[RequestLine, ...] = ()
    both: tuple[BothLine, ...] = ()
    told: tuple[ToldLine, ...] = ()

    def plus(self, other: Material) -> Material:
        """Both."""
        return Material(**{each.name: (*getattr(self, each.name), *getattr(other, each.name)) for each in fields(self)})

    def texts(self) -> Iterator[str]:
        """Every text of it, once a line; both parts where there are two addressees."""
        for each in fields(self):
            for line in getattr(self, each.name):
                yield from _texts(line)

    def without(self, is_near: Callable[[str], bool]) -> tuple[Material, int]:
        """Without lines of which some text is like one that is held out.

        Args:
            is_near: whether a text is.

        Returns:
            What is left, and how many lines are gone.
        """
        kept: dict[str, Any] = {}
        gone = 0
        for each in fields(self):
            lines = getattr(self, each.name)
            kept[each.name] = tuple(line for line in lines if not any(map(is_near, _texts(line))))
            gone += len(lines) - len(kept[each.name])
        return replace(self, **kept), gone


def _texts(line: Any) -> tuple[str, ...]:
    return (line.meant.text, line.bystander) if isinstance(line, BothLine) else (line.text,)


def read_lines(split: str, folder: Path = DATA) -> Material:
    """Read the files of one split, in the order of their names. A folder that is not there holds nothing.

    Args:
        split: ``train``, ``dev`` or ``test``: what the files' names begin with.
        folder: where the folders are.

    Raises:
        BadLineError: when a line is not what it should be; names it.
        OSError: when a file cannot be read.
    """
    assert split in SPLITS, split
    return Material(
        talk=tuple(
            TalkLine(row["text"], kind) for kind in TALK for row in _table(folder / kind, split, ("text",))
        ),
        injections=tuple(
            TalkLine(row["text"], row["speaker"]) for row in _table(folder / "injection", split, ("speaker", "text"))
        ),
        incomplete=tuple(
            TalkLine(row["text"], "incomplete") for row in _table(folder / "incomplete", split, ("text",))
        ),
        commands=tuple(_read(folder / "commands", split, lambda row: CommandLine(row["text"], (_call(row),)))),
        two_commands=tuple(
            _read(
                folder / "two_commands", split, lambda row: CommandLine(row["text"], tuple(map(_call, row["calls"])))
            )
        ),
        questions=tuple(
            _read(
                folder / "questions", split, lambda row: QuestionLine(row["text"], row["answer"], (row["answer"],))
            )
        ),
        told=(
            *_read(folder / "dialogues", split, _dialogue),
            *_read(folder / "passages", split, _passage),
        ),
    )  # fmt: skip


def sentences(text: str) -> tuple[str, ...]:
    """The sentences of a passage: cut after ``.``, ``!`` or ``?`` where a capital follows."""
    words = text.split()
    out: list[list[str]] = [[]]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        out[-1].append(word)
        if word.rstrip("\"')")[-1:] in (".", "!", "?") and following[:1].isupper() and len(word) > 3:
            out.append([])
    return tuple(" ".join(sentence) for sentence in out if sentence)


def _call(row: Mapping[str, Any]) -> ToolCall:
    if not isinstance(row["params"], dict):
        raise ValueError("params is no object")
    return ToolCall(str(row["tool"]), row["params"])


def _dialogue(row: Mapping[str, Any]) -> ToldLine:
    turns = tuple((str(turn["speaker"]), str(turn["text"])) for turn in row["turns"])
    if not turns or {speaker for speaker, _ in turns} - {"A", "B"}:
        raise ValueError("the speakers of a dialogue are A and B")
    return ToldLine(turns, _asked(row), "dialogue")


def _passage(row: Mapping[str, Any]) -> ToldLine:
    return ToldLine(tuple(("A", sentence) for sentence in sentences(row["text"])), _asked(row), "passage")


def _asked(row: Mapping[str, Any]) -> tuple[Asked, ...]:
    return tuple(Asked(qa["question"], qa["answer"], tuple(qa["accepted"])) for qa in row["qa"])


_T = TypeVar("_T")


def _read(folder: Path, split: str, make: Callable[[Mapping[str, Any]], _T]) -> Iterator[_T]:
    for path in sorted(folder.glob(f"{split}_*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                yield make(json.loads(line))
            except (ValueError, TypeError, KeyError) as error:
                raise BadLineError(f"{path}:{number}: {type(error).__name__}: {error}") from error


def _table(folder: Path, split: str, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    for path in sorted(folder.glob(f"{split}_*.tsv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            if missing := set(columns) - set(rows.fieldnames or ()):
                raise BadLineError(f"{path}:1: no column {', '.join(sorted(missing))}")
            for number, row in enumerate(rows, 2):
                if None in row or not all(row[column] for column in columns):
                    raise BadLineError(f"{path}:{number}: not {len(rows.fieldnames or ())} columns")
                yield row
