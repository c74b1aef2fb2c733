"""Rows as the loop heard them: what is right follows the labels for intent, and the ears for the source."""

from __future__ import annotations

import pytest

from bench.heard_rows import as_heard, rows_of
from bench.trials import Expected, Segment, Trial
from gate import grammar
from gate.actions import AnswerAction, PardonAction, ToolAction
from gate.evidence import DistanceVerdict, SpeakerVerdict, Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import HeardSegment, PolicyInput
from tools.catalogue import ToolCatalogue

TOOLS = ToolCatalogue.builtin().all()
OWNER, OTHER, UNSURE = SpeakerVerdict.OWNER, SpeakerVerdict.OTHER, SpeakerVerdict.UNSURE
NEAR, FAR, NOWHERE = DistanceVerdict.NEAR, DistanceVerdict.FAR, DistanceVerdict.UNSURE


def words(text: str, start_s: float) -> tuple[Word, ...]:
    """Words of a quarter of a second each."""
    starts = [start_s + 0.25 * index for index in range(len(text.split()))]
    return tuple(Word(w, Span.from_seconds(at, at + 0.2), 0.9) for w, at in zip(text.split(), starts, strict=True))


def trial(action: str = "tool", tool: str | None = "make_call", **more: object) -> Trial:
    """The wearer chats for two seconds and gives a command from the third on."""
    segments = (
        Segment(start=0.0, end=2.0, speaker="A", distance="near", text="What a day.", role="context"),
        Segment(start=3.0, end=6.0, speaker="A", distance="near", text="Call the Coast Guard.", role="trigger"),
    )
    return Trial.model_validate(
        {
            "id": "t1", "family": "speaker_switch", "condition": "same/near/600", "audio": "a.wav", "split": "train",
            "expected": Expected(action=action, tool=tool), "segments": segments, "pair": "p1",
            "params": {"contact": "the Coast Guard"}, **more,
        }
    )  # fmt: skip


def turn(
    text: str, start_s: float, speaker: SpeakerVerdict = OWNER, distance: DistanceVerdict = NEAR, **more
) -> PolicyInput:
    start = round((start_s - 0.3) * SAMPLE_RATE_HZ)
    segment = HeardSegment(words(text, start_s), speaker, distance, 0.6)
    return PolicyInput(more.pop("turn_id", "t0001"), segment, (), TOOLS, start_sample=max(0, start), **more)


def only(one: Trial, note: PolicyInput):
    [(row, source)] = rows_of(one, [note], TOOLS)
    assert source is note
    return row


def test_a_command_becomes_the_call_in_the_words_that_were_heard() -> None:
    row = only(trial(), turn("Call the coast gard quick.", 3.1))
    assert row.target == grammar.render(ToolAction(grammar.parse(row.target).call))
    assert dict(grammar.parse(row.target).call.params) == {"contact": "the coast gard"}
    assert (row.kind, row.pair, row.split) == ("heard_command", "p1", "train")
    assert row.segment.times_s is not None
    assert row.segment.times_s[0] == pytest.approx((0.3, 0.5), abs=0.01)


@pytest.mark.parametrize(
    ("speaker", "distance"), [(OTHER, NEAR), (OWNER, FAR), (UNSURE, NOWHERE)], ids=["other", "far", "unknown"]
)
def test_a_command_that_the_ears_put_down_to_a_stranger_is_muted_as_the_gate_would(speaker, distance) -> None:
    row = only(trial(), turn("Call the Coast Guard.", 3.1, speaker, distance))
    assert (row.target, row.kind) == (grammar.MUTE, "heard_refused")


def test_a_bystanders_command_is_muted_even_where_the_ears_took_her_for_the_owner() -> None:
    row = only(trial("mute", None), turn("Call the Coast Guard.", 3.1))
    assert row.target == grammar.MUTE


def test_what_was_said_before_the_command_is_talk() -> None:
    row = only(trial(), turn("What a day.", 0.1))
    assert (row.target, row.kind) == (grammar.MUTE, "heard_context")


def test_a_command_whose_argument_was_not_heard_teaches_nothing() -> None:
    assert list(rows_of(trial(), [turn("Call please.", 3.1)], TOOLS)) == []


def test_of_a_turn_that_was_looked_at_twice_the_last_look_counts() -> None:
    notes = [turn("Call the", 3.1), turn("Call the Coast Guard.", 3.1)]
    [(row, _)] = rows_of(trial(), notes, TOOLS)
    assert row.segment.words == "Call the Coast Guard."


@pytest.mark.parametrize(("said", "kind"), [("I like dumplings most.", AnswerAction), ("I like most.", PardonAction)])
def test_a_question_is_answered_where_the_answer_was_heard_and_asked_back_where_it_was_not(said: str, kind) -> None:
    asked = trial(
        "answer", None, family="ear", condition="original", question="What does the speaker like most?",
        expected=Expected(action="answer", answer=("dumplings",)),
    )  # fmt: skip
    row = only(asked, turn(said, 0.1, question="What does the speaker like most?"))
    assert isinstance(grammar.parse(row.target), kind)
    assert row.segment.times_s is None


@pytest.mark.parametrize(
    ("value", "text", "found"),
    [
        ("the Coast Guard", "Call the Coast Guard, quick.", "the Coast Guard"),
        ("Lerwick", "Meet me in Lurwick tonight.", "Lurwick"),
        ("Priya", "Turn off the lamp.", None),
    ],
)
def test_an_argument_is_found_as_it_was_heard_or_not_at_all(value: str, text: str, found: str | None) -> None:
    assert as_heard(value, words(text, 0.0)) == found
