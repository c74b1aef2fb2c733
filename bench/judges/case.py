"""What a judge is asked, what it says, and the one interface that all judges have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bench.judgements import Kind


class NotJudgedError(Exception):
    """There is no verdict on a case. The message says why; it never becomes a score."""


class JudgeStoppedError(Exception):
    """The judge cannot judge anything, now or in a moment (a wrong key, no such model, nobody there)."""


@dataclass(frozen=True, slots=True)
class Case:
    """One response to judge.

    Attributes:
        id: the trial's.
        kind: what is asked about it.
        response: what was said, as it was said. Data, whatever it spells.
        question: the question that it responds to (``answer`` and ``repair``).
        accepted: accepted answers: to the question (``answer``), or to the utterance to the assistant (``side_talk``;
            may be none).
        assistant: the utterance to the assistant (``side_talk``).
        bystander: the utterance to somebody else (``side_talk``).
        bystander_accepted: accepted answers to that one; may be none.
        heard: what can still be heard of a recording whose answer is masked, as text (``repair``); empty: not known.
    """

    id: str
    kind: Kind
    response: str
    question: str = ""
    accepted: tuple[str, ...] = ()
    assistant: str = ""
    bystander: str = ""
    bystander_accepted: tuple[str, ...] = ()
    heard: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge says.

    Attributes:
        label: one of ``VERDICTS[kind]``.
        by: what it rests on: a rule's name, or the judge's method.
    """

    label: str
    by: str


class Judge(Protocol):
    """Says what a response is. Safe to call from several threads."""

    def name(self, kind: Kind) -> str:
        """Who judges cases of a kind, with the version of all that bears on its verdicts."""
        ...

    def judge(self, case: Case) -> Verdict:
        """The verdict on a case.

        Raises:
            NotJudgedError: when there is none on this case.
            JudgeStoppedError: when there will be none on any other either.
        """
        ...
