"""What is right for people's own commands: labelled by hand, in ``labels.json``, by the names of the recordings.

Labelled is only what is plain: a request that one of the ten built-in tools carries out, and a question to the
assistant. The rest (no tool for it, a lone answer, another language than English) is played and counted, and is neither
right nor wrong. Coffee orders carry their intent in the manifest's note, and are labelled by that.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from bench.people.clips import Clip

_FILE = Path(__file__).with_name("labels.json")
_INTENT = re.compile(r"\bintent=(\w+)")


@dataclass(frozen=True, slots=True)
class Label:
    """What is right for one recording.

    Attributes:
        action: the right action; None where none is plain.
        tool: the right tool, when the action is a tool.
        why: why there is none.
    """

    action: Literal["tool", "answer"] | None
    tool: str | None = None
    why: str = ""


NOT_LISTED = Label(None, why="not labelled")


def label_of(clip: Clip) -> Label:
    """The label of a command, by its name or its intent; ``NOT_LISTED`` without one."""
    table = _table()
    if (intent := _INTENT.search(clip.note)) is not None:
        return _label(table["orders"].get(intent[1]))
    return _label(table["commands"].get(clip.stem))


def listed() -> dict[str, Label]:
    """Every label of a command, by the recording's name within its set."""
    return {stem: _label(entry) for stem, entry in _table()["commands"].items()}


def _label(entry: dict[str, Any] | None) -> Label:
    if entry is None:
        return NOT_LISTED
    return Label(entry["action"], entry.get("tool"), entry.get("why", ""))


@cache
def _table() -> dict[str, dict[str, dict[str, Any]]]:
    content: dict[str, dict[str, dict[str, Any]]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return content
