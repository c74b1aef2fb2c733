"""Self-correction: the last version counts, what was taken back never runs, and messages stay as they were said."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gate.actions import ActionKind
from gate.correction import correct, rests_on_doubt
from gate.evidence import Word
from gate.grounding import ground_choice, ground_number, ground_text, names_choice, normal_form
from gate.parallels import PUNCTUATION
from gate.self_repairs import LEAST_TERM_PROBABILITY, self_repairs
from gate.span import Span
from tests.gate_builders import call, evidence, judge, tool, words


def read(said: str) -> str:
    """An utterance as it reads after its self-corrections."""
    return " ".join(word.text for word in correct(words(said)).words)


# Corrections, written as Whisper writes them when they are spoken ---------------------------------------------------


@pytest.mark.parametrize(
    ("said", "reads"),
    [
        ("Set an alarm at 6, no at 7.", "Set an alarm at 7."),
        ("Set an alarm for six, no, seven.", "Set an alarm for seven."),
        ("Set an alarm for 6. No weight. Make it 7.", "Set an alarm for 7."),
        ("Set an alarm at six, uh, no, wait, at seven.", "Set an alarm at seven."),
        ("Set an alarm at 6 tomorrow, no, at 7.", "Set an alarm at 7 tomorrow,"),
        ("Set an alarm at six, no, seven, no, eight.", "Set an alarm at eight."),
        ("Set an alarm at seven am, I mean pm.", "Set an alarm at seven pm."),
        ("text Maria, sorry Anna that I will be late.", "text Anna that I will be late."),
        ("Text Maria, sorry, Anna, that I will be late.", "Text Anna, that I will be late."),
        ("Text Ben, no, text Priya that I'm on my way.", "text Priya that I'm on my way."),
        ("Text Maria that I'm late, no, text Anna that I'm late.", "text Anna that I'm late."),
        ("Text Maria that I'll be home at six, or rather at seven.", "Text Maria that I'll be home at seven."),
        ("Call Maria, no call Anna.", "call Anna."),
        ("Call Maria. No, Anna.", "Call Anna."),
        ("Transfer 60, I mean $50 to Ben.", "Transfer $50 to Ben."),
        ("Transfer sixty I mean fifty dollars to Ben.", "Transfer fifty dollars to Ben."),
        ("Transfer 60 dollars, I mean 50, to Ben.", "Transfer 50 dollars, to Ben."),
        ("Transfer $60 to Ben. No weight, make it 50.", "Transfer 50 $ to Ben."),
        ("Transfer €60, sorry, 50 to Ben.", "Transfer 50 € to Ben."),
        ("Send sixty dollars to Ben, sorry, make it fifty dollars please.", "Send fifty dollars to Ben, please."),
        ("Transfer sixty dollars to Ben, no, to Priya.", "Transfer sixty dollars to Priya."),
        ("Order two, sorry three pizzas.", "Order three pizzas."),
        ("Order a burger, no, a pizza.", "Order a pizza."),
        ("Turn on No, turn off the kitchen lamp.", "turn off the kitchen lamp."),
        ("Turn the heating up, no down.", "Turn the heating down."),
        ("Turn the lamp on, no, off.", "Turn the lamp off."),
        ("Set the oven to 180, scratch that, 200 degrees.", "Set the oven to 200 degrees."),
        ("Remind me on Thursday, no Friday.", "Remind me on Friday."),
        ("Schedule lunch on Monday at noon, no, on Tuesday at one.", "Schedule lunch on Tuesday at one."),
        ("Book a ride to the airport. Sorry to the station.", "Book a ride to the station."),
        ("Unlock the front door, I mean the back door.", "Unlock the back door."),
        ("It is open from six to seven, no, eight to nine.", "It is open from eight to nine."),
        # Whole answers to "How much?" and "Who?".
        ("Sixty, no, fifty dollars.", "fifty dollars."),
        ("Maria, sorry, Anna.", "Anna."),
    ],
)  # fmt: skip
def test_the_last_version_is_what_is_read(said: str, reads: str) -> None:
    assert read(said) == reads


@pytest.mark.parametrize(
    "said",
    [
        # An editing term that belongs to the sentence.
        "Tell Ben no I am not coming.",
        "Tell Ben, no, I am not coming.",
        "Text Maria no.",
        "Text Maria sorry I missed the bus.",
        "Text Maria that I am late, sorry, I missed the bus.",
        "Text Ben I missed the bus, sorry, the train was late.",
        "Text Ben that I actually like it.",
        "Tell Ben to wait, seven people are coming.",
        "Tell Ben at six I can make it seven.",
        "Tell Ben what I mean.",
        "I would rather go at seven than at six.",
        "There is no milk, no eggs, no bread.",
        "Order a burger, no cheese.",
        "Put No Mystery into my Punk playlist.",
        "Wait, transfer sixty dollars to Ben.",
        "No, transfer sixty dollars to Ben.",
        "Maybe I should call a taxi. No, I will walk, it's not far.",
        # What somebody said is repeated as it was said.
        "Text Maria that I said six no seven.",
        "Text Maria that I said six, no, seven.",
        "Text Ben that she asked for Maria, sorry, Anna.",
        'Text Ben "six, no, seven".',
        # Nothing sets the term off.
        "Set an alarm at six no at seven.",
        "transfer sixty no seventy to Ben",
        "text Maria sorry Anna that I will be late.",
        "Tell Maria no Anna is not coming.",
        "Text Maria, sorry Anna is late.",
        # Two readings.
        "Transfer two hundred, sorry, fifty dollars to Ben.",
        "Transfer twenty, no, five dollars to Ben.",
        "Set it to half past six, no, seven.",
        "Text Maria Lopez, sorry, Gomez that I'm late.",
        "Order six beers and two pizzas, no wait, make it seven.",
        "Text Maria that Ben is late. No wait, Anna.",
        # Replies are read as they stand: a "yes" must never come out of a "no".
        "No, I mean yes.",
        "Yes, I mean no.",
        "Cancel, sorry, yes.",
        # Nothing takes the place of what was taken back.
        "Text Maria that I'm home. Actually, never mind.",
        "Text Ben I'm late. Scratch that, call Anna.",
        # No editing term at all.
        "Set an alarm at six, seven.",
        "Text Maria and Anna that I am late.",
        "",
    ],
)
def test_what_is_no_certain_correction_stays_as_it_was_said(said: str) -> None:
    corrected = correct(words(said))
    assert corrected.words == words(said)
    assert corrected.taken_back == ()
    assert corrected.spans == ()


# What was taken back, and where -------------------------------------------------------------------------------------


def test_what_was_taken_back_is_the_reparandum_with_its_editing_term_and_the_rest_keeps_its_samples() -> None:
    heard = words("Text Maria, sorry, Anna that I am late.")
    corrected = correct(heard)
    assert corrected.taken_back == heard[1:3]
    assert corrected.words == (heard[0], *heard[3:])
    assert corrected.spans == (Span(heard[2].span.start_sample, heard[3].span.end_sample),)


def test_an_amount_that_is_named_later_stands_in_its_place_with_its_own_samples() -> None:
    heard = words("Transfer $60 to Ben. No wait, make it 50.")
    corrected = correct(heard)
    amount = next(word for word in corrected.words if word.text == "50")
    assert amount.span == heard[-1].span
    assert ground_number(50, corrected.words) == (amount,)
    assert ground_choice("dollars", corrected.words) is not None, "the currency was not taken back"


def test_the_currency_is_replaced_with_the_amount_where_it_is_named_anew() -> None:
    corrected = correct(words("Transfer $60 to Ben, no wait, make it 50 euros.")).words
    assert ground_choice("euros", corrected) is not None
    assert ground_choice("dollars", corrected) is None


def test_a_correction_does_not_reach_over_a_covered_stretch() -> None:
    for said in ("Set an alarm at six, [?] no, at seven.", "Set an alarm at six, no, [?] at seven."):
        assert read(said) == said


def test_a_pause_sets_an_editing_term_off_like_a_comma() -> None:
    heard = list(words("Set an alarm at six no at seven."))
    later = [replace(word, span=word.span.shifted(4_000)) for word in heard[5:]]
    assert " ".join(word.text for word in correct([*heard[:5], *later]).words) == "Set an alarm at seven."


def test_an_editing_term_that_was_hardly_heard_takes_nothing_back() -> None:
    heard = list(words("Set an alarm at six, no, at seven."))
    for probability, certain in ((LEAST_TERM_PROBABILITY, True), (0.1, False), (float("nan"), False)):
        heard[5] = replace(heard[5], probability=probability)
        assert bool(correct(heard).spans) is certain


# The gate: neither side of a doubtful correction, and never a value that was taken back ------------------------------


@pytest.mark.parametrize(
    ("value", "said", "carried"),
    [
        ("Maria", "Text Maria sorry Anna that I am late.", False),
        ("Anna", "Text Maria sorry Anna that I am late.", False),
        ("Maria", "Text Maria, sorry, Anna, that I am late.", False),
        ("Anna", "Text Maria, sorry, Anna, that I am late.", True),
        ("Maria", "Text Maria, sorry, my mother, that I am late.", False),
        ("Maria", "Text Maria sorry I missed the bus.", True),
        ("sorry I missed the bus", "Text Maria sorry I missed the bus.", True),
        ("I said six no seven", "Text Maria that I said six no seven.", True),
        ("I said six", "Text Maria that I said six no seven.", False),
        ("no I am not coming", "Tell Ben no I am not coming.", True),
        ("Ben", "Tell Ben no I am not coming.", True),
        ("Ben", "Text Ben that I'm late. No, never mind.", False),
        ("Ben", "Text Ben. Scratch that, call Anna.", False),
        ("Anna", "Text Ben. Scratch that, call Anna.", True),
    ],
)
def test_a_text_argument_may_quote_a_correction_but_not_rest_on_one_side_of_a_doubtful_one(
    value: str, said: str, carried: bool
) -> None:
    assert (ground_text(value, words(said)) is not None) is carried


@pytest.mark.parametrize(
    ("value", "said", "carried"),
    [
        (60, "transfer sixty no seventy to Ben", False),
        (70, "transfer sixty no seventy to Ben", False),
        (200, "transfer two hundred, sorry, fifty dollars", False),
        (50, "transfer two hundred, sorry, fifty dollars", False),
        (60, "transfer sixty dollars to Ben, actually, never mind", False),
        (60, "wait, transfer sixty dollars to Ben", True),
    ],
)
def test_a_doubtful_amount_is_not_moved(value: float, said: str, carried: bool) -> None:
    assert (ground_number(value, words(said)) is not None) is carried


@pytest.mark.parametrize("value", ["turn_on", "turn_off"])
def test_a_choice_that_may_have_been_taken_back_is_not_taken_as_said_in_other_words(value: str) -> None:
    said = "turn on no turn off the lamp"
    assert ground_choice(value, words(said)) is None
    assert names_choice(value, words(said))
    decision = judge(tool("lamp", device="lamp", action=value), evidence(said))
    assert (decision.action, decision.missing_param) == (ActionKind.PARDON, "action")


NAMES = ("Maria", "Anna", "Ben", "Priya")
TERMS = ("no", "sorry", "I mean", "no wait", "actually", "or rather", "no, wait", "sorry, make it", "scratch that")
MARKS = ("", ",", ".", "\u2026", ", uh,")


@given(
    st.integers(1, 9_999), st.integers(1, 9_999), st.sampled_from(TERMS),
    st.sampled_from(MARKS), st.sampled_from(MARKS),
    st.sampled_from(("transfer {} dollars{} {}{} {} dollars to Ben", "transfer ${} to Ben{} {}{} {}")),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_an_amount_that_was_taken_back_never_moves_however_it_is_said(
    first: int, second: int, term: str, before: str, after: str, form: str
) -> None:
    if first == second:
        return
    said = form.format(first, before, term, after, second)
    corrected = correct(words(said))
    assert ground_number(first, corrected.words) is None
    taken_back = tool("transfer", recipient="Ben", amount=first)
    decision = judge(taken_back, evidence(corrected.words))
    assert decision.action is ActionKind.PARDON
    assert decision.grant is None
    if corrected.spans:
        meant = judge(tool("transfer", recipient="Ben", amount=second), evidence(corrected.words))
        assert meant.call == call("transfer", recipient="Ben", amount=second)
        assert meant.action is ActionKind.TOOL


@given(st.permutations(NAMES), st.sampled_from(TERMS), st.sampled_from(MARKS), st.sampled_from(MARKS))
@settings(max_examples=150, deadline=None)
def test_nobody_who_was_taken_back_is_ever_texted(names: list[str], term: str, before: str, after: str) -> None:
    said = f"text {names[0]}{before} {term}{after} {names[1]} that I am late"
    corrected = correct(words(said))
    decision = judge(tool("message", recipient=names[0], body="I am late"), evidence(corrected.words))
    assert decision.action is ActionKind.PARDON
    if corrected.spans:
        assert judge(tool("message", recipient=names[1], body="I am late"), evidence(corrected.words)).grant is not None


# Any words at all ---------------------------------------------------------------------------------------------------

_PIECES = (
    "no", "no,", "No.", "sorry", "sorry,", "I", "mean", "wait", "make", "it", "that", "scratch", "actually", "or",
    "rather", "six", "seven,", "$60", "60", "50.", "dollars", "Maria", "Anna,", "Ben", "at", "to", "the", "lamp", "uh",
    "turn", "on", "off", "never", "mind.", "said", "[?]", "Monday,", "two", "hundred", "text", "...", '"',
)  # fmt: skip
_SAID = st.lists(
    st.one_of(st.sampled_from(_PIECES), st.text(min_size=1, max_size=5).filter(lambda part: len(part.split()) == 1)),
    max_size=14,
)


def _heard(said: list[str], gaps: list[int]) -> tuple[Word, ...]:
    out: list[Word] = []
    at = 0
    for text, gap in zip(said, [*gaps, *([0] * len(said))], strict=False):
        out.append(Word(text, Span(at + gap, at + gap + 3_000), 0.9))
        at += gap + 3_000
    return tuple(out)


@given(_SAID, st.lists(st.sampled_from([0, 1_600, 4_000]), max_size=14))
@settings(max_examples=300, deadline=None)
@example(["$60", "no", "50"], [0, 4_000, 4_000])
@example(["\u0301", "six,", "no", "\ud800"], [])
def test_whatever_is_heard_nothing_is_invented_nothing_is_lost_and_all_of_it_settles(
    said: list[str], gaps: list[int]
) -> None:
    heard = _heard(said, gaps)
    by_span = {word.span: word for word in heard}
    corrected = correct(heard)
    for word in corrected.words:
        source = by_span[word.span]
        assert word.probability == source.probability
        assert word.text.rstrip(PUNCTUATION) in source.text
        assert set(normal_form(word.text)) <= set(normal_form(source.text))
    read_spans = [word.span for word in corrected.words]
    assert len(set(read_spans)) == len(read_spans), "no word is read twice"
    assert set(corrected.taken_back) <= set(heard)
    assert {word.span for word in (*corrected.words, *corrected.taken_back)} == set(by_span), "no word disappears"
    again = correct(corrected.words)
    assert (again.words, again.spans) == (corrected.words, ())
    if not corrected.spans:
        assert corrected.words == heard


@given(_SAID)
@settings(max_examples=200, deadline=None)
def test_the_parts_of_a_repair_stand_in_order_and_no_run_on_its_reparandum_alone_counts(said: list[str]) -> None:
    heard = _heard(said, [])
    for repair in self_repairs(heard):
        edges = [*repair.reparandum, *repair.interregnum, *repair.repair]
        assert edges == sorted(edges), "reparandum, interregnum, repair"
        assert 0 <= edges[0] < edges[1]
        assert edges[2] < edges[3]
        assert edges[-1] <= len(heard)
        assert rests_on_doubt([repair], repair.reparandum[0], repair.reparandum[1] - 1)
        assert not rests_on_doubt([repair], repair.reparandum[0], max(edges) - 1), "the whole is a quotation"


@given(st.lists(st.sampled_from([p for p in _PIECES if normal_form(p) and p[:1].isupper()] + ["at", "six", "the"])))
@settings(max_examples=50, deadline=None)
def test_without_an_editing_term_nothing_is_found(said: list[str]) -> None:
    heard = _heard([part for part in said if normal_form(part)[0] not in ("no", "i")], [])
    assert self_repairs(heard) == ()


def test_corrections_one_after_the_other_each_have_their_own_samples() -> None:
    corrected = correct(words("Set an alarm at six, no, seven, no, eight."))
    assert len(corrected.spans) == 2
    for earlier, later in pairwise(corrected.spans):
        assert earlier.start_sample < later.start_sample
