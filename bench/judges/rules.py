"""What needs no judge: silence, a tool call, a mute mark, an exact match. Rules settle them before any judge is asked.

The same rules stand before every judge, so that none of them can be talked, or can slip, into calling silence a repair.
"""

from __future__ import annotations

from typing import Final

from bench.judgements import Kind
from bench.judges.case import Case, Judge, Verdict
from bench.judges.wording import words
from bench.measures import normalised
from gate.actions import MuteAction, ToolAction
from gate.grammar import parse

_NOTHING: Final[dict[Kind, str]] = {"answer": "incorrect", "repair": "other", "side_talk": "neither"}
"""What a response is that says nothing."""


def settled(case: Case) -> Verdict | None:
    """The verdict that a rule gives, or None where a judge has to look."""
    match parse(case.response):
        case MuteAction():
            return Verdict(_NOTHING[case.kind], "rule: mute")
        case ToolAction() if case.kind != "side_talk":
            return Verdict(_NOTHING[case.kind], "rule: tool")
        case _:
            pass
    if not words(case.response):
        return Verdict(_NOTHING[case.kind], "rule: no words")
    if case.kind == "answer" and normalised(case.response) in {normalised(answer) for answer in case.accepted}:
        return Verdict("correct", "rule: exact match")
    return None


class RulesFirst:
    """A judge that is asked only what no rule settles.

    Args:
        judge: who is asked then.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def name(self, kind: Kind) -> str:
        """The name of the judge behind the rules."""
        return self._judge.name(kind)

    def judge(self, case: Case) -> Verdict:
        """See ``Judge``."""
        return settled(case) or self._judge.judge(case)
