"""What counts as a "yes": plain ones, the gate's own phrase, the question's own words, and nothing that names more."""

from __future__ import annotations

import pytest

from gate.catalogue import Risk
from gate.confirm import ConfirmSettings, Reply, ask, read
from gate.evidence import DistanceVerdict, SpeakerVerdict
from tests.gate_builders import TOOLS, evidence, judge, proximity, speaker

SUMMARY = "Send Ben 260 dollars"


@pytest.mark.parametrize(
    "said",
    [
        "Yes.", "Yeah, sure.", "Yes, yes.", "Go ahead.", "Yes, go ahead with it.", "Yes, please go ahead with that.",
        "Yes, go ahead and do it.", "Yes, that's right.", "Of course.", "Uh, yes.", "Okay, do it.",
        "Yes, send it.", "Yes, send Ben two hundred and sixty dollars.", "Yes, $260 to Ben.", "Yes, 260.",
    ],
)  # fmt: skip
def test_a_yes_confirms(said: str) -> None:
    assert read(evidence(said), SUMMARY) is Reply.YES


@pytest.mark.parametrize(
    "said",
    [
        "Yes, send Ben sixty dollars.", "Yes, 200.", "Yes, send Priya 260 dollars.", "Yes, but not now.",
        "Yes, not that one.", "Yes, what is the time?", "Send it.", "Ben.", "260 dollars.", "Yes, I mean no.",
        "No, I mean yes.", "I said yes to her yesterday.", "Ahead.", "",
    ],
)  # fmt: skip
def test_anything_else_confirms_nothing(said: str) -> None:
    assert read(evidence(said), SUMMARY) is Reply.OTHER


def test_without_its_words_only_a_plain_yes_answers_a_question() -> None:
    assert read(evidence("Yes, send it.")) is Reply.OTHER
    assert read(evidence("Yes, go ahead with it.")) is Reply.YES


@pytest.mark.parametrize(
    ("by", "at", "reply"),
    [
        (speaker(SpeakerVerdict.OTHER, 0.1), proximity(), None),
        (speaker(), proximity(DistanceVerdict.FAR, 0.1), None),
        (speaker(SpeakerVerdict.UNSURE, 0.4), proximity(), Reply.UNSURE_YES),
        (speaker(SpeakerVerdict.UNSURE, 0.4), proximity(DistanceVerdict.UNSURE, 0.5), None),
    ],
)
def test_a_yes_with_the_questions_words_needs_the_owner_like_any_other(by, at, reply) -> None:
    assert read(evidence("Yes, send it.", by=by, at=at), SUMMARY) is reply


def test_the_question_keeps_the_words_that_it_was_asked_in() -> None:
    decision = judge()
    assert decision.call is not None
    summary = TOOLS.summary(decision.call)
    _, question = ask(decision, Risk.HIGH, summary, 0, ConfirmSettings(frozenset({Risk.HIGH})))
    assert question is not None
    assert question.summary == summary
