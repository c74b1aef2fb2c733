"""What an LLM judge is told, a versioned file a kind, and how its reply is read: one label, or no verdict.

The papers do not print their judges' prompts (*Pardon?* has them in a picture, VGBench nowhere), so these are written
from their definitions. A published text is never changed: a new wording is a new version, and part of the judge's name.

What is judged goes into a JSON object of its own message, so that nothing in it can end the quotation and speak to the
judge as we do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from bench.judgements import VERDICTS, Kind
from bench.judges.case import Case, NotJudgedError

PROMPTS: Final = Path(__file__).with_name("prompts")
VERSIONS: Final[Mapping[Kind, int]] = {"answer": 1, "repair": 1, "side_talk": 1}
PAPER_JUDGES: Final[Mapping[Kind, str]] = {
    "answer": "gpt-4o-2024-11-20",
    "repair": "gpt-4o-2024-11-20",
    "side_talk": "Qwen/Qwen3.5-35B-A3B",
}
"""The judges of *Pardon?* (section 4.3) and of VGBench (section 3.4)."""

_THINKING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_WRAPPING = " \t\r\n\"'`*."
_SHOWN_CHARS = 80


def prompt_version(kind: Kind) -> str:
    """The name of the prompt of a kind: ``repair-v1``."""
    return f"{kind}-v{VERSIONS[kind]}"


@cache
def instructions(kind: Kind) -> str:
    """What the judge is told about a kind of case."""
    return (PROMPTS / f"{prompt_version(kind)}.txt").read_text(encoding="utf-8")


def quoted(case: Case) -> str:
    """A case as the JSON object that the instructions speak of.

    Raises:
        NotJudgedError: when the case lacks what its kind needs.
    """
    match case.kind:
        case "answer":
            needed = bool(case.question and case.accepted)
            fields: dict[str, object] = {"question": case.question, "accepted_answers": list(case.accepted)}
        case "repair":
            needed = bool(case.question)
            fields = {"question": case.question, "heard": case.heard}
        case "side_talk":
            needed = bool(case.assistant and case.bystander)
            fields = {"assistant_utterance": case.assistant, "bystander_utterance": case.bystander}
    if not needed:
        raise NotJudgedError("the manifest has not what the judge is to be told")
    return json.dumps(fields | {"response": case.response}, ensure_ascii=False)


def read_label(kind: Kind, reply: str) -> str:
    """The label that a judge replied with.

    A model's thoughts in front of it, quotation marks and a full stop around it are passed over; nothing else is.

    Raises:
        NotJudgedError: when the reply is anything but one label.
    """
    label = _THINKING.sub("", reply).strip(_WRAPPING).lower()
    if label not in VERDICTS[kind]:
        raise NotJudgedError(f"the judge replied {reply[:_SHOWN_CHARS]!r}, which is no label")
    return label
