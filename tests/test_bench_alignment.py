"""Words are placed where they are said, and a word whose place is not known says so instead of masking a neighbour."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.build.align_error import onset_errors
from bench.build.alignment import (
    Alignment,
    AlignmentError,
    GivenTimes,
    SphinxAligner,
    WhisperAligner,
    align_with_first,
    with_guesses,
    without_pauses,
)
from bench.build.masking import MaskingError, answer_windows
from bench.build.pronunciation import pronounce
from bench.build.speech import SpokenText
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, Heard, ModelId
from tests.support_masking import Whistler

DEMO = Path(__file__).resolve().parent.parent / "bench" / "demo"
ARPABET = frozenset(
    re.findall(
        r"\w+", "AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW V W Y Z ZH"
    )
)


@pytest.fixture(scope="module")
def sphinx() -> SphinxAligner:
    pytest.importorskip("pocketsphinx", reason="forced alignment is not installed: pip install 'voicegate[bench]'")
    return SphinxAligner()


@pytest.fixture(scope="module")
def near_speech() -> list[tuple[str, SpokenText]]:
    """Sentences of the demo recording with the times that their synthesiser gave, each cut out with 0.2 s around it."""
    told = json.loads((DEMO / "demo.json").read_text(encoding="utf-8"))
    audio, rate_hz = soundfile.read(DEMO / told["audio"], dtype="float32")
    assert rate_hz == SAMPLE_RATE_HZ
    out = []
    for segment in [part for part in told["segments"] if part["distance"] == "near" and not part["mask"]][:4]:
        first = round((segment["start"] - 0.2) * SAMPLE_RATE_HZ)
        words = tuple(
            Word(word["word"], Span.from_seconds(word["start"], word["end"]).shifted(-first), 1.0)
            for word in segment["words"]
        )
        out.append((segment["text"], SpokenText(audio[first : words[-1].span.end_sample + first + 3200], words)))
    return out


class Ear:
    """Hears some words, whatever the audio."""

    model = ModelId("parrot", "0" * 64)

    def __init__(self, *words: Word, note: str = "") -> None:
        self.words, self.note = words, note

    def hear(self, audio: Audio) -> Heard:
        """See :meth:`models.protocols.SpeechEar.hear`."""
        return Heard(self.words, self.note)


def at(text: str, start: int, end: int) -> Word:
    return Word(text, Span(start, end), 0.9)


SILENCE = np.zeros(20_000, np.float32)


# Times that are given -------------------------------------------------------------------------------------------------


def test_given_times_are_taken_as_they_are() -> None:
    spoken, words = Whistler().say("I like steak")
    assert GivenTimes(words).align(spoken, "i like \u2014 Steak!") == words


@pytest.mark.parametrize(
    ("text", "moved", "why"),
    [
        ("I like fish", 0, "'steak' for 'fish'"),
        ("I like steak a lot", 0, "3 words for 5"),
        ("I like steak", 100_000, "ends after the recording"),
    ],
)
def test_times_of_another_text_or_recording_are_refused(text: str, moved: int, why: str) -> None:
    spoken, words = Whistler().say("I like steak")
    shifted = [Word(word.text, word.span.shifted(moved), 1.0) for word in words]
    with pytest.raises(AlignmentError, match=why):
        GivenTimes(shifted).align(spoken, text)


def test_times_that_overlap_are_refused() -> None:
    words = [at("I", 0, 900), at("like", 800, 1600)]
    with pytest.raises(AlignmentError, match="'I' and 'like' overlap"):
        GivenTimes(words).align(SILENCE, "I like")


# Whisper's word times -------------------------------------------------------------------------------------------------


def test_words_that_were_heard_as_written_get_their_times_and_misheard_ones_are_marked() -> None:
    ear = Ear(at("I", 100, 300), at("lick", 300, 800), at("Steak,", 900, 2000), at("most.", 2500, 3000))
    words = WhisperAligner(lambda: ear).align(SILENCE, "I like steak the most.")
    assert [word.text for word in words] == ["I", "like", "steak", "the", "most."]
    assert [word.probability for word in words] == [1.0, 0.0, 1.0, 0.0, 1.0]
    assert [word.span for word in words] == [
        Span(100, 300), Span(300, 900), Span(900, 2000), Span(2000, 2500), Span(2500, 3000)
    ]  # fmt: skip


def test_an_answer_that_the_recogniser_misheard_is_not_masked_at_a_guess() -> None:
    ear = Ear(at("I", 100, 300), at("like", 300, 800), at("stake", 900, 2000))
    words = WhisperAligner(lambda: ear).align(SILENCE, "I like steak")
    with pytest.raises(MaskingError, match="steak"):
        answer_windows(words, ["steak"], SILENCE.size)


def test_another_recordings_transcript_is_refused_and_the_ears_note_is_told() -> None:
    with pytest.raises(AlignmentError, match="transcript of this recording"):
        WhisperAligner(lambda: Ear(at("hello", 0, 100))).align(SILENCE, "I like steak")
    with pytest.raises(AlignmentError, match="no speech"):
        WhisperAligner(lambda: Ear(note="no speech")).align(SILENCE, "I like steak")


def test_the_recogniser_is_loaded_once_and_only_when_it_is_needed() -> None:
    loaded: list[Ear] = []

    def load() -> Ear:
        loaded.append(Ear(at("steak", 0, 100)))
        return loaded[-1]

    aligner = WhisperAligner(load)
    assert loaded == []
    for _ in range(2):
        aligner.align(SILENCE, "steak")
    assert len(loaded) == 1


@settings(max_examples=50)
@given(st.integers(1, 12), st.data())
def test_guessed_words_lie_between_their_neighbours_and_are_marked(count: int, data: st.DataObject) -> None:
    known = data.draw(st.sets(st.integers(0, count - 1)))
    edges = sorted(data.draw(st.lists(st.integers(0, 9000), min_size=2 * count, max_size=2 * count)))
    placed = {index: Span(edges[2 * index], edges[2 * index + 1]) for index in known}
    words = with_guesses([f"w{index}" for index in range(count)], placed, 9000)
    assert [word.text for word in words] == [f"w{index}" for index in range(count)]
    assert [word.probability for word in words] == [float(index in known) for index in range(count)]
    assert all(words[index].span == span for index, span in placed.items())
    assert all(one.span.end_sample <= after.span.start_sample for one, after in pairwise(words))
    assert words[-1].span.end_sample <= 9000


# Which of them --------------------------------------------------------------------------------------------------------


def test_the_second_aligner_takes_over_where_the_first_cannot_and_is_named() -> None:
    spoken, words = Whistler().say("I like steak")
    wrong = GivenTimes(words[:2])
    found = align_with_first([wrong, WhisperAligner(lambda: Ear(*words))], spoken, "I like steak")
    assert found == Alignment(words, "whisper", WhisperAligner.error_s)
    assert WhisperAligner.error_s > SphinxAligner.error_s, "rougher times need a wider mask"


def test_when_nobody_can_align_the_reason_of_each_is_told() -> None:
    with pytest.raises(AlignmentError, match=r"given: .*; whisper: "):
        align_with_first([GivenTimes(()), WhisperAligner(Ear)], SILENCE, "I like steak")
    with pytest.raises(AlignmentError, match="nothing to align with"):
        align_with_first([], SILENCE, "I like steak")


def test_without_pocketsphinx_whisper_takes_over_and_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    with pytest.raises(AlignmentError, match=r"voicegate\[bench\]"):
        SphinxAligner().align(SILENCE, "steak")
    ear = Ear(at("steak", 0, 100))
    assert align_with_first([SphinxAligner(), WhisperAligner(lambda: ear)], SILENCE, "steak").name == "whisper"


# Pauses ---------------------------------------------------------------------------------------------------------------


def sounding(*stretches: tuple[int, int], size: int = 48_000) -> Audio:
    audio = 1e-4 * np.random.default_rng(0).standard_normal(size)
    for start, end in stretches:
        audio[start:end] = 0.3 * np.sin(np.arange(end - start) / 3)
    return audio.astype(np.float32)


def test_a_pause_that_an_aligner_gave_to_a_word_is_given_back() -> None:
    audio = sounding((4000, 12_000), (24_000, 32_000))
    first, second = without_pauses(audio, [at("one", 4000, 12_000), at("two", 12_000, 40_000)])
    assert abs(second.span.start_sample - 24_000) <= 480
    assert abs(second.span.end_sample - 32_000) <= 480
    assert first.span.start_sample == 4000
    assert abs(first.span.end_sample - 12_000) <= 480


def test_the_end_of_a_word_that_was_counted_to_the_next_is_given_back() -> None:
    audio = sounding((4000, 12_800), (24_000, 32_000))
    first, second = without_pauses(audio, [at("one", 4000, 12_000), at("two", 12_000, 32_000)])
    assert abs(first.span.end_sample - 12_800) <= 480
    assert abs(second.span.start_sample - 24_000) <= 480


@settings(max_examples=40)
@given(st.lists(st.integers(0, 300), min_size=2, max_size=8, unique=True), st.lists(st.integers(0, 300), max_size=8))
def test_giving_pauses_back_keeps_the_words_in_order(cuts: list[int], sounds: Sequence[int]) -> None:
    edges = [160 * cut for cut in sorted(cuts)]
    audio = sounding(*((160 * start, 160 * start + 2000) for start in sounds), size=50_000)
    words = [at(f"w{index}", start, end) for index, (start, end) in enumerate(pairwise(edges))]
    settled = without_pauses(audio, words)
    assert [word.text for word in settled] == [word.text for word in words]
    assert all(one.span.end_sample <= after.span.start_sample for one, after in pairwise(settled))


# Pronunciation --------------------------------------------------------------------------------------------------------


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz'\u00e9\u00fc\u00f8", min_size=1, max_size=12))
def test_any_word_with_a_latin_letter_has_a_pronunciation_of_known_sounds(word: str) -> None:
    sounds = pronounce(word, lambda known: None)
    if sounds is None:
        assert not any("a" <= char <= "z" for char in word.replace("\u00e9", "e").replace("\u00fc", "u"))
    else:
        assert sounds
        assert set(sounds.split()) <= ARPABET


def test_somebodys_name_is_pronounced_as_the_name_and_an_ending() -> None:
    known = {"katowice": "K AA T AH V IY S"}.get
    assert pronounce("Katowice's", known) == "K AA T AH V IY S Z"
    assert pronounce("\u6771\u4eac", known) is None


@pytest.mark.parametrize(
    ("word", "sounds"), [("knight", "N AY T"), ("wrack", "R AE K"), ("Hudd", "HH AH D"), ("cinder", "S IH N D ER")]
)
def test_an_unknown_word_is_read_by_its_spelling(word: str, sounds: str) -> None:
    assert pronounce(word, lambda known: None) == sounds


# PocketSphinx itself --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_forced_alignment_finds_word_onsets_within_fifty_milliseconds(
    sphinx: SphinxAligner, near_speech: list[tuple[str, SpokenText]]
) -> None:
    errors = onset_errors(sphinx, near_speech)
    assert errors.missed == 0
    assert errors.outside_ms.size == sum(len(speech.words) for _, speech in near_speech)
    assert np.mean(np.abs(errors.outside_ms)) < 25
    assert np.mean(np.abs(errors.outside_ms) <= 50) > 0.9


def test_a_name_that_no_dictionary_has_is_placed_and_its_neighbours_stay_where_they_are(
    sphinx: SphinxAligner, near_speech: list[tuple[str, SpokenText]]
) -> None:
    text, speech = next(pair for pair in near_speech if "Maria" in pair[0])
    plain = sphinx.align(speech.samples, text)
    odd = sphinx.align(speech.samples, text.replace("Maria", "Mahreeya"))
    assert [word.text for word in odd][1] == "Mahreeya"
    assert sphinx.align(speech.samples, text.replace("seven", "se\u2019ven"))[-1].text.startswith("se\u2019ven")
    for one, other in zip(plain, odd, strict=True):
        assert abs(one.span.start_sample - other.span.start_sample) <= SAMPLE_RATE_HZ // 10


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Text Maria at 7.", "'7.' holds digits"),
        ("Text \u6771\u4eac", "not in a script"),
        ("It is \u2103", "not written in letters"),
        ("\u2014 \u2026", "no word"),
    ],
)
def test_text_that_can_be_read_in_several_ways_is_refused_with_the_cure(
    sphinx: SphinxAligner, text: str, why: str
) -> None:
    with pytest.raises(AlignmentError, match=why):
        sphinx.align(SILENCE, text)


def test_silence_is_no_recording_of_any_text(sphinx: SphinxAligner) -> None:
    with pytest.raises(AlignmentError, match="transcript of this recording"):
        sphinx.align(SILENCE[:1600], "I like steak the most of all the food in the whole wide world")


def test_the_decoder_is_not_loaded_before_it_is_needed() -> None:
    before = "pocketsphinx" in sys.modules
    SphinxAligner()
    assert ("pocketsphinx" in sys.modules) is before
    assert importlib.import_module("bench.build.alignment")
