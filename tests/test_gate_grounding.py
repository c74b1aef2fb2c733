"""Grounding: an argument runs only on words that say it, whole and unretracted."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gate.grounding import ground_choice, ground_number, ground_text, last_number, normal_form, spoken_number
from tests.gate_builders import words


def number(value: float, said: str) -> str | None:
    run = ground_number(value, words(said))
    return None if run is None else " ".join(word.text for word in run)


def text(value: str, said: str) -> str | None:
    run = ground_text(value, words(said))
    return None if run is None else " ".join(word.text for word in run)


@pytest.mark.parametrize(
    ("value", "said", "carried_by"),
    [
        (60, "send sixty dollars", "sixty"),
        (60, "send $60 to Priya", "$60"),
        (60, "send 60, please", "60,"),
        (60, "€60.", "€60."),
        (250, "send two hundred fifty dollars", "two hundred fifty"),
        (205, "two hundred and five", "two hundred and five"),
        (205, "two hundred and five.", "two hundred and five."),
        (1250.5, "pay $1,250.50 now", "$1,250.50"),
        (1_000_000, "1,000,000 of them", "1,000,000"),
        (25, "twenty-five", "twenty-five"),
        (1200, "twelve hundred", "twelve hundred"),
        (100, "a hundred dollars", "hundred"),
        (2.5, "two point five", "two point five"),
        (2_300_000, "$2.3 million to Sam", "$2.3 million"),
        (300, "3 hundred", "3 hundred"),
        (24, "two dozen eggs", "two dozen"),
        (5_000, "five grand", "five grand"),
        (5.5, "five dollars and fifty cents", "five dollars and fifty"),
        (5.5, "$5 and 50 cents", "$5 and 50"),
        (4.35, "four dollars thirty-five cents", "four dollars thirty-five"),
        (0.5, "fifty cents", "fifty"),
        (1.5, "one and a half hours", "one and a half"),
        (-5, "set it to minus five", "minus five"),
        (-5, "set it to -5", "-5"),
        (22, "set it to 22°C", "22°C"),
        (22, "22 degrees", "22"),
        (20, "20% of it", "20%"),
        (0, "turn it to zero", "zero"),
        (6, "five and six", "six"),
        (60, "on the fifth, sixty dollars", "sixty"),
        (999_999_999_999_999, "send 999,999,999,999,999", "999,999,999,999,999"),
        (1e15, "send 1000000000000000", None),
        (5, "\u0665 \u06f0", None),
        (5, "\u0665", "\u0665"),
        (1, "order a pizza", "a"),
        (1, "order one pizza", "one"),
    ],
)
def test_a_number_is_found_in_words_digits_and_money(value: float, said: str, carried_by: str | None) -> None:
    assert number(value, said) == carried_by


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (50, "two hundred fifty"),
        (200, "two hundred fifty"),
        (2, "two hundred fifty"),
        (5, "two hundred and five"),
        (5, "five thousand"),
        (5, "five thousand dollars"),
        (1, "one hundred"),
        (20, "twenty one"),
        (1, "twenty one"),
        (19, "nineteen eighty four"),
        (5, "$5,000"),
        (1250, "$1,250.50"),
        (250, "$1,250"),
        (50, "250."),
        (7, "7:30"),
        (30, "7:30"),
        (7, "seven thirty"),
        (5, "5k"),
        (1, "1 million"),
        (2, "2.3 million"),
        (5, "five trillion dollars"),
        (5, "five grand"),
        (2, "two dozen eggs"),
        (3, "two point three"),
        (5, "point five"),
        (1, "one and a half"),
        (5, "five dollars and fifty cents"),
        (50, "five dollars and fifty cents"),
        (5, "five dollars fifty"),
        (50, "fifty cents"),
        (100, "a few hundred dollars"),
        (100, "a couple of hundred dollars"),
        (1_000_000, "half a million"),
        (1, "one third"),
        (50, "2 thousand and 50"),
        (100, "100 and 50"),
    ],
)
def test_part_of_a_larger_number_was_not_said_so_the_wrong_amount_never_moves(value: float, said: str) -> None:
    assert number(value, f"send {said} to Priya") is None


@pytest.mark.parametrize(
    "said",
    [
        "two fifty",
        "seven thirty",
        "five or six",
        "two hundred uh fifty",
        "sixty, seventy",
        "12,50",
        "1.2.3",
        "5-6",
        "sixty, five",
        "two hundred, fifty",
        "sixty \u2014five",
    ],
)
@pytest.mark.parametrize("value", [2, 5, 6, 7, 12, 30, 50, 56, 60, 65, 70, 200, 250, 730, 1250])
def test_a_number_with_two_readings_has_no_value_so_nothing_is_guessed(value: float, said: str) -> None:
    assert number(value, said) is None


@pytest.mark.parametrize(
    ("value", "said", "carried_by"),
    [
        (70, "send sixty, no, seventy dollars", "seventy"),
        (60, "send sixty, no, seventy dollars", None),
        (60, "send sixty dollars to Priya, sorry, make it seventy", None),
        (70, "send sixty dollars to Priya, sorry, make it seventy", "seventy"),
        (60, "sixty I mean seventy", None),
        (60, "sixty, no, sixty", "sixty"),
        (60, "send sixty dollars, not seventy", "sixty"),
        (70, "send sixty dollars, not seventy", None),
        (60, "send sixty dollars to Priya at seven", "sixty"),
    ],
)
def test_a_corrected_amount_counts_only_in_its_last_version(value: float, said: str, carried_by: str | None) -> None:
    assert number(value, said) == carried_by


def test_the_latest_of_equal_numbers_carries_so_damage_is_looked_for_where_the_speaker_ended() -> None:
    heard = words("sixty wait no sixty")
    assert ground_number(60, heard) == heard[3:]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("said", ["nan", "inf", "infinity", "1e999", "9" * 400, "a"])
def test_no_words_carry_a_number_that_is_none(value: float, said: str) -> None:
    assert number(value, said) is None


@pytest.mark.parametrize(
    "said",
    ["a lot of pizza", "a hundred pizzas", "a few pizzas", "a couple of pizzas", "pizza", "Anna", "an 8 pack", "a"],
)
def test_an_article_that_does_not_mean_one_is_no_quantity(said: str) -> None:
    assert number(1, said) is None


def test_every_article_carries_a_one_so_a_doubtful_one_is_seen() -> None:
    assert number(1, "order a pizza and an apple") == "a an"


@given(st.integers(min_value=0, max_value=999_999))
@settings(max_examples=100, deadline=None)
def test_a_whole_number_is_found_and_nothing_shorter_inside_of_it(value: int) -> None:
    spoken = _english(value)
    assert number(value, f"send {spoken} to Priya") == spoken
    parts = spoken.split()
    for start in range(len(parts)):
        for end in range(start + 1, len(parts) + 1):
            part = spoken_number(" ".join(parts[start:end]))
            if part is not None and part != value:
                assert number(part, f"send {spoken} to Priya") is None


_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def _english(value: int) -> str:
    if value < 20:
        return _SMALL[value]
    if value < 100:
        rest = value % 10
        return _TENS[value // 10 - 2] + (f" {_SMALL[rest]}" if rest else "")
    base, word = (1000, "thousand") if value >= 1000 else (100, "hundred")
    rest = value % base
    joint = " and " if base == 100 else " "
    return f"{_english(value // base)} {word}" + (f"{joint}{_english(rest)}" if rest else "")


@pytest.mark.parametrize(
    ("value", "said", "carried_by"),
    [
        ("Priya", "text Priya, hello", "Priya,"),
        ("priya", "Text PRIYA", "PRIYA"),
        ("Priya", "open Priya's calendar", "Priya's"),
        ("Priya's calendar", "open Priya\u2019s calendar", "Priya\u2019s calendar"),
        ("I'm late", "tell her I\u2019m late", "I\u2019m late"),
        ("buy milk", "note: buy uh milk", "buy uh milk"),
        ("buy milk", "note: buy, um, the milk", "buy, um, the milk"),
        ("the report", "send the the report", "the report"),
        ("send the report", "send the the report", "send the the report"),
        ("Friday", "on Thursday, no, Friday", "Friday"),
        ("José", "text Jose\u0301", "Jose\u0301"),
        ("Zoë", "text ZOË", "ZOË"),
        ("Straße 5", "go to STRASSE five", "STRASSE five"),
        ("प्रिया", "प्रिया को भेजो", "प्रिया"),
        ("李雷", "给李雷发短信", "给李雷发短信"),
        ("李雷", "给 李 雷 发", "李 雷"),
        ("7:30 p.m.", "at seven thirty pm", "seven thirty pm"),
        ("seven thirty pm", "at 7:30 p.m.", "7:30 p.m."),
        ("7 pm", "at 7pm.", "7pm."),
        ("the 5th", "on the fifth of May", "the fifth"),
        ("sixty dollars", "send $60", "$60"),
        ("$60", "send sixty dollars", "sixty dollars"),
        ("$1,250.50", "send $1,250.50 now", "$1,250.50"),
        ("10 Downing Street", "to Ten Downing Street", "Ten Downing Street"),
        ("555-1234", "call five five five one two three four", "five five five one two three four"),
        ("fifty fifty", "make it 50-50", "50-50"),
    ],
)
def test_a_text_argument_is_found_in_the_words_that_say_it(value: str, said: str, carried_by: str) -> None:
    assert text(value, said) == carried_by


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("Priya", "text Sam"),
        ("Ann", "text Anne"),
        ("Bob", "text Bobby"),
        ("Jose", "text José"),
        ("मीना", "मोना को भेजो"),
        ("fifty", "two hundred fifty"),
        ("hundred fifty", "two hundred fifty"),
        ("two pizzas", "twenty two pizzas"),
        ("7", "at 7:30"),
        ("1:15", "at eleven five"),
        ("56", "five or six"),
        ("5", "set it to -5"),
        ("I will come", "I will not come"),
        ("coming home", "tell her I'm not coming home"),
        ("go", "don't go"),
        ("the red car", "the red and car"),
        ("Priya Sam", "Priya or Sam"),
        ("meet at noon", "meet me tomorrow at noon"),
        ("ab.com", "a@b.com"),
        ("room ፭", "room ፮"),
        ("Priya [?]", "text Priya [?]"),
        ("", "hello"),
        ("...", "hello ..."),
        ("\u200b", "hello"),
    ],
)
def test_words_that_say_something_else_carry_no_argument(value: str, said: str) -> None:
    assert text(value, said) is None


def test_the_latest_of_equal_runs_carries() -> None:
    heard = words("Priya no Priya")
    assert ground_text("Priya", heard) == heard[2:]


def test_the_tightest_run_carries_before_a_later_loose_one() -> None:
    heard = words("call home soon and call uh home")
    assert ground_text("call home", heard) == heard[0:2]


_TRICKY = (
    "sixty", "seventy", "two", "hundred", "and", "fifty", "a", "point", "7:30", "$5", "$", "no", "uh", "the", "Priya",
    "not", "half", "dozen", "cents", "dollars", "or", "minus", "first", "million",
)  # fmt: skip
_WORDS = st.lists(
    st.one_of(
        st.sampled_from(_TRICKY),
        st.text(min_size=1, max_size=6).filter(lambda part: len(part.split()) == 1 and part == part.strip()),
    ),
    max_size=9,
)


@given(_WORDS, st.data())
@settings(max_examples=100, deadline=None)
@example(["\ud800"], None)
@example(["9" * 5000], None)
@example(["9" * 40, "and", "5"], None)
@example(["-9" * 300, "million", "\u0301", "½", "²", "\U0001f600", "①"], None)
def test_whatever_is_heard_grounding_raises_nothing_and_returns_words_that_were_heard(
    said: list[str], data: st.DataObject | None
) -> None:
    heard = words(" ".join(said))
    value = " ".join(said) if data is None else data.draw(st.sampled_from([*said, " ".join(said), "60"]))
    for run in (ground_text(value, heard), ground_number(60, heard), ground_choice(value, heard)):
        assert run is None or (run and set(run) <= set(heard))
    last_number(heard)
    spoken_number(value)


@given(_WORDS)
@settings(max_examples=100, deadline=None)
def test_what_a_text_argument_rests_on_holds_each_of_its_words(said: list[str]) -> None:
    heard = words(" ".join(said))
    for start in range(len(said)):
        value = " ".join(said[start : start + 3])
        run = ground_text(value, heard)
        if run is not None:
            carried = normal_form(" ".join(word.text for word in run))
            assert set(normal_form(value)) <= set(carried)


@given(st.text(max_size=20))
@settings(max_examples=100, deadline=None)
def test_the_comparable_form_does_not_depend_on_how_letters_are_composed(value: str) -> None:
    assert normal_form(unicodedata.normalize("NFD", value)) == normal_form(unicodedata.normalize("NFC", value))


@pytest.mark.parametrize(
    ("choice", "said", "carried_by"),
    [
        ("turn_off", "turn off the lamp", "turn off"),
        ("turn_off", "turn the lamp off", "turn off"),
        ("turn_off", "please turn the big lamp off, thanks", "turn off,"),
        ("dollars", "send $60", "$60"),
        ("dollars", "send one dollar", "dollar"),
        ("turn_on", "turn up the radio on the desk", None),
        ("turn_on", "turn the lamp off", None),
        ("turn_on", "don't turn on the lamp", None),
        ("won", "I wonder who phoned", None),
        ("dim", "dimmer", None),
    ],
)
def test_a_choice_counts_as_named_only_by_its_own_words(choice: str, said: str, carried_by: str | None) -> None:
    run = ground_choice(choice, words(said))
    assert (None if run is None else " ".join(word.text for word in run)) == carried_by


@pytest.mark.parametrize(
    ("phrase", "value"),
    [
        ("sixty", 60),
        ("$1,250.50", 1250.5),
        ("two hundred and five", 205),
        ("uh sixty dollars", 60),
        ("sixty cats", None),
        ("cats", None),
        ("", None),
        ("two fifty", None),
        ("seven thirty", None),
    ],
)
def test_a_phrase_is_a_number_only_when_nothing_else_is_in_it(phrase: str, value: float | None) -> None:
    assert spoken_number(phrase) == value


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("sixty", 60),
        ("um sixty dollars please", 60),
        ("sixty, no, seventy", 70),
        ("sixty, sixty", None),
        ("sixty yes sixty", 60),
        ("sixty to Priya seventy to Sam", None),
        ("two fifty", None),
        ("not sixty", None),
        ("nothing", None),
    ],
)
def test_an_answer_gives_one_number_or_none(said: str, value: float | None) -> None:
    assert last_number(words(said)) == value
