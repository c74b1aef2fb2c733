"""A mask takes the answer and nothing else: the rest keeps its samples, its length and its place."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.build.fillers import FillerError, Fillers, babble, speech_level
from bench.build.mask_command import KINDS
from bench.build.masking import (
    CLEAR_S,
    FADE_S,
    GUARD_S,
    MASK_KINDS,
    REACH_S,
    WIDE_S,
    MaskingError,
    MaskSpec,
    Window,
    answer_windows,
    check_gone,
    function_word_window,
    masked,
    seeded,
)
from bench.build.triplets import DEGRADING, INVARIANT, ORIGINAL, Recording, conditions, realise
from bench.trials import MASKS
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio
from tests.support_masking import WORD_SAMPLES, Whistler

FADE = round(FADE_S * SAMPLE_RATE_HZ)
DIALOGUE = "My favourite food is pasta what do you like I like steak the most of all"


def seconds(samples: float) -> int:
    return round(samples * SAMPLE_RATE_HZ)


def voice(seed: int, duration_s: float = 3.0) -> Audio:
    """Noise that starts and stops like speech."""
    rng = np.random.default_rng(seed)
    size = seconds(duration_s)
    beat = (np.arange(size) // seconds(0.2)) % 2
    return (0.1 * rng.standard_normal(size) * beat).astype(np.float32)


FILLERS = Fillers([voice(seed) for seed in range(4)])


@st.composite
def placed_words(draw: st.DrawFn, most: int = 12) -> tuple[tuple[Word, ...], int]:
    """Words in order with gaps, as an aligner gives them, and the length of the recording."""
    at, words = draw(st.integers(0, 4000)), []
    for index in range(draw(st.integers(1, most))):
        length = draw(st.integers(400, 8000))
        words.append(Word(f"w{index}", Span(at, at + length), 1.0))
        at += length + draw(st.sampled_from([0, 0, 200, 2000, 9000]))
    return tuple(words), at + draw(st.integers(0, 4000))


# Sound ----------------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(MASK_KINDS),
    size=st.integers(2000, 24_000),
    edges=st.lists(st.tuples(st.integers(0, 24_000), st.integers(1, 8000)), min_size=1, max_size=3),
)
def test_a_mask_changes_no_sample_outside_its_window_and_fade(
    seed: int, kind: str, size: int, edges: list[tuple[int, int]]
) -> None:
    audio = (0.2 * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)
    windows = [Window(Span(min(start, size - 1), min(start + length, size)), range(1)) for start, length in edges]
    out = masked(audio, windows, kind, FILLERS, np.random.default_rng(seed))  # type: ignore[arg-type]
    assert out.shape == audio.shape, "the temporal structure is kept"
    assert out.dtype == np.float32
    assert np.isfinite(out).all()
    touched = np.zeros(size, bool)
    for window in windows:
        touched[max(0, window.span.start_sample - FADE) : window.span.end_sample + FADE] = True
    np.testing.assert_array_equal(out[~touched], audio[~touched])


def test_nothing_of_the_words_is_left_under_any_mask() -> None:
    spoken, words = Whistler().say(DIALOGUE)
    window = Window(words[10].span, range(10, 11))
    tone = spoken[words[10].span.start_sample : words[10].span.end_sample].astype(np.float64)
    for kind in MASK_KINDS:
        out = masked(spoken, [window], kind, FILLERS, np.random.default_rng(1))
        under = out[words[10].span.start_sample : words[10].span.end_sample].astype(np.float64)
        likeness = np.dot(under, tone) / np.linalg.norm(tone) / max(np.linalg.norm(under), 1e-9)
        assert abs(likeness) < 0.15, kind


def test_silence_is_silent_and_every_other_mask_is_as_loud_as_the_speech_around_it() -> None:
    spoken, words = Whistler().say(DIALOGUE)
    span = words[5].span
    level = speech_level(spoken, span.start_sample, span.end_sample)
    assert level == pytest.approx(0.3 / np.sqrt(2), rel=0.05)
    for kind in MASK_KINDS:
        out = masked(spoken, [Window(span, range(5, 6))], kind, FILLERS, np.random.default_rng(2))
        rms = float(np.sqrt(np.mean(out[span.start_sample : span.end_sample].astype(np.float64) ** 2)))
        if kind == "silence":
            assert rms == 0.0
        else:
            assert 20 * np.log10(rms / level) == pytest.approx(0.0, abs=6.0), kind


def test_a_mask_neither_clips_nor_clicks() -> None:
    loud = np.ones(16_000, np.float32)
    out = masked(loud, [Window(Span(4000, 8000), range(1))], "noise", FILLERS, np.random.default_rng(3))
    assert np.abs(out).max() <= 1.0
    quiet = masked(loud, [Window(Span(4000, 8000), range(1))], "silence", FILLERS, np.random.default_rng(3))
    assert np.abs(np.diff(quiet)).max() <= 1.0 / FADE + 1e-6, "it fades"


def test_what_is_drawn_for_one_recording_does_not_depend_on_any_other() -> None:
    one = seeded(1, "a", "noise").integers(1 << 30, size=4)
    seeded(1, "b", "noise").integers(1 << 30, size=4)
    assert (seeded(1, "a", "noise").integers(1 << 30, size=4) == one).all()
    assert (seeded(1, "an", "oise").integers(1 << 30, size=4) != one).any(), "names are not run together"
    assert (seeded(2, "a", "noise").integers(1 << 30, size=4) != one).any()


# Windows --------------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(placed_words(), st.data())
def test_an_answers_window_holds_its_words_whole_and_reaches_no_further_than_it_may(
    placed: tuple[tuple[Word, ...], int], data: st.DataObject
) -> None:
    words, size = placed
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    answer = " ".join(word.text for word in words[first : last + 1])
    (window,) = answer_windows(words, [answer], size)
    (wide,) = answer_windows(words, [answer], size, wide=True)
    assert window.words == range(first, last + 1)
    start, end = words[first].span.start_sample, words[last].span.end_sample
    assert max(0, start - seconds(REACH_S)) <= window.span.start_sample <= max(0, start - seconds(GUARD_S))
    assert min(size, end + seconds(GUARD_S)) <= window.span.end_sample <= min(size, end + seconds(REACH_S))
    assert wide.span.start_sample == max(0, window.span.start_sample - seconds(WIDE_S))
    assert wide.span.end_sample == min(size, window.span.end_sample + seconds(WIDE_S))


def test_a_mask_takes_no_more_of_a_neighbour_than_its_edge_may_err_by() -> None:
    words = (
        Word("like", Span(0, 8000), 1.0),
        Word("steak", Span(8000, 16_000), 1.0),
        Word("best", Span(16_000, 24_000), 1.0),
    )
    (window,) = answer_windows(words, ["steak"], 24_000)
    assert window.span == Span(8000 - seconds(GUARD_S), 16_000 + seconds(GUARD_S))
    (rough,) = answer_windows(words, ["steak"], 24_000, guard_s=0.07)
    assert rough.span == Span(8000 - seconds(0.07), 16_000 + seconds(0.07))


def test_an_answer_is_masked_every_time_it_is_said_however_it_is_written() -> None:
    _, words = Whistler().say("Boston, I like Boston. Boston's harbour, not Bostonian rain")
    windows = answer_windows(words, ["boston"], 100_000)
    assert [list(window.words) for window in windows] == [[0], [3], [4]]
    _, words = Whistler().say("it took twenty-one days, then twenty one more and twenty")
    assert [list(w.words) for w in answer_windows(words, ["twenty one"], 200_000)] == [[2], [5, 6]]


def test_an_answer_within_an_answer_is_masked_once() -> None:
    _, words = Whistler().say("I drink peppermint tea and tea")
    windows = answer_windows(words, ["tea", "peppermint tea"], 100_000)
    assert [list(window.words) for window in windows] == [[2, 3], [5]]


@pytest.mark.parametrize(
    ("answers", "why"), [(["fish"], "'fish' is not said"), (["stea"], "not said"), ([], "no answer"), (["--"], "not")]
)
def test_an_answer_that_is_not_said_as_whole_words_is_an_error_and_no_empty_mask(answers: list[str], why: str) -> None:
    _, words = Whistler().say(DIALOGUE)
    with pytest.raises(MaskingError, match=why):
        answer_windows(words, answers, 200_000)


def test_an_answer_whose_time_is_a_guess_is_not_masked_at_the_guess() -> None:
    _, words = Whistler().say("I like steak")
    guessed = (*words[:2], Word("steak", words[2].span, 0.0))
    with pytest.raises(MaskingError, match="not known when 'steak' is said"):
        answer_windows(guessed, ["steak"], 60_000)


@pytest.mark.parametrize(
    ("text", "answers", "accepted", "left"),
    [
        ("twelve eggs and a dozen more", ["twelve"], ["twelve", "dozen"], True),
        ("a hundred or 100 eggs", ["100"], ["a hundred"], True),
        ("new york is not new", ["new york"], ["new york", "new york city"], False),
        ("new pork york", ["pork"], ["pork", "new york"], False),
    ],
)
def test_an_answer_that_is_said_again_in_other_words_is_found_before_it_is_labelled_unanswerable(
    text: str, answers: list[str], accepted: list[str], left: bool
) -> None:
    _, words = Whistler().say(text)
    windows = answer_windows(words, answers, 200_000)
    said = [word.text for word in words]
    if left:
        with pytest.raises(MaskingError, match="said elsewhere"):
            check_gone(said, windows, accepted)
    else:
        check_gone(said, windows, accepted)


@settings(max_examples=60)
@given(placed_words(most=20), st.data())
def test_an_invariant_mask_never_touches_an_answer_word(
    placed: tuple[tuple[Word, ...], int], data: st.DataObject
) -> None:
    words, size = placed
    answered = data.draw(st.sets(st.integers(0, len(words) - 1), min_size=1, max_size=3))
    keep = answer_windows(words, [words[index].text for index in answered], size)
    candidates = data.draw(st.lists(st.integers(0, len(words) - 1), unique=True))
    try:
        drawn = function_word_window(
            words, candidates, keep, size, np.random.default_rng(data.draw(st.integers(0, 99)))
        )
    except MaskingError:
        return
    assert len(drawn.words) == 1
    assert drawn.words[0] in set(candidates) - answered
    reach = Span(max(0, drawn.span.start_sample - FADE), drawn.span.end_sample + FADE)
    assert not any(reach.overlap(window.span) for window in keep)
    assert not any(reach.overlap(words[index].span) for index in answered)
    neighbours = [words[i].span for i in (drawn.words[0] - 1, drawn.words[0] + 1) if 0 <= i < len(words)]
    assert all(drawn.span.overlap(neighbour) == 0 for neighbour in neighbours), "one word, and no part of another"


def test_a_function_word_beside_the_answer_is_left_alone_and_without_another_one_there_is_no_mask() -> None:
    spoken, words = Whistler().say("one two three steak the most")
    keep = answer_windows(words, ["steak"], spoken.size)
    assert words[4].span.start_sample - keep[0].span.end_sample < seconds(CLEAR_S)
    with pytest.raises(MaskingError, match="no function word"):
        function_word_window(words, [4], keep, spoken.size, np.random.default_rng(0))


# Triplets -------------------------------------------------------------------------------------------------------------


def triplet(spoken: Audio, words: tuple[Word, ...], **more: object) -> Recording:
    given = {"answers": ("steak",), "accepted": ("steak",), "function_words": (0, 3, 13, 15)} | more
    return Recording("dinner", spoken, words, **given)  # type: ignore[arg-type]


def test_a_triplet_has_every_realisation_once_and_only_degraded_ones_are_unanswerable() -> None:
    whistler = Whistler()
    spoken, words = whistler.say(DIALOGUE)
    made = list(realise(triplet(spoken, words), FILLERS, 7))
    assert [one.condition for one in made] == list(conditions())
    assert len(made) == 1 + len(MASK_KINDS) + 2 * len(MASK_KINDS)
    for one in made:
        assert one.samples.size == spoken.size
        heard = [word.text for word in whistler.hear(one.samples).words]
        assert ("steak" in heard) is one.answerable, one.condition
        assert ("pasta" in heard) or one.condition.endswith("+wide"), one.condition
    assert made[0].condition == ORIGINAL
    np.testing.assert_array_equal(made[0].samples, spoken)


def test_masks_of_one_meaning_take_the_same_words_so_that_only_the_sound_differs() -> None:
    spoken, words = Whistler().say(DIALOGUE)
    made = {one.condition: one for one in realise(triplet(spoken, words), FILLERS, 7)}
    for meaning in (INVARIANT, DEGRADING):
        facts = [one.mask for name, one in made.items() if name.startswith(meaning) and "+" not in name]
        spans = [(fact["spans"], fact["words"]) for fact in facts if fact is not None]
        assert len(spans) == len(MASK_KINDS)
        assert all(one == other for one, other in pairwise(spans))
    wide = made[f"{DEGRADING}/noise+wide"].mask
    base = made[f"{DEGRADING}/noise"].mask
    assert wide is not None
    assert base is not None
    assert wide["words"] == base["words"] == ["steak"]
    assert wide["answer_spans"] == base["spans"]
    assert wide["spans"][0][1] - wide["spans"][0][0] == pytest.approx(base["spans"][0][1] - base["spans"][0][0] + 1.0)


def test_the_same_seed_makes_the_same_samples_and_another_seed_other_noise() -> None:
    spoken, words = Whistler().say(DIALOGUE)
    runs = [list(realise(triplet(spoken, words), FILLERS, seed, ("noise",), wide=False)) for seed in (1, 1, 2)]
    for one, again, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(one.samples, again.samples)
        assert one.condition == ORIGINAL or (one.samples != other.samples).any()


def test_a_triplet_is_never_made_when_its_answer_would_stay_in_other_words() -> None:
    spoken, words = Whistler().say("I like steak the most and beef of all in the world")
    with pytest.raises(MaskingError, match="beef"):
        list(realise(triplet(spoken, words, accepted=("steak", "beef"), function_words=(8, 10)), FILLERS, 7))


def test_masks_are_called_what_the_manifest_calls_them() -> None:
    assert KINDS == MASKS == MASK_KINDS
    assert [MaskSpec("noise").name, MaskSpec("music", wide=True).name] == ["noise", "music+wide"]


# Fillers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MASK_KINDS)
@pytest.mark.parametrize("samples", [40, 333, WORD_SAMPLES, 40_000])
def test_a_filler_has_the_length_and_power_that_were_asked_for(kind: str, samples: int) -> None:
    drawn = FILLERS.draw(kind, np.random.default_rng(5), samples)  # type: ignore[arg-type]
    assert drawn.shape == (samples,)
    power = float(np.mean(drawn**2))
    assert power == 0.0 if kind == "silence" else power == pytest.approx(1.0, rel=0.05)


def test_music_and_babble_have_no_hole_that_the_answer_could_be_heard_through() -> None:
    for kind in ("music", "babble"):
        for seed in range(3):
            drawn = FILLERS.draw(kind, np.random.default_rng(seed), 32_000)  # type: ignore[arg-type]
            frames = np.sqrt(np.mean(drawn.reshape(-1, 1600) ** 2, axis=1))
            assert frames.min() > 0.05, (kind, seed)


def test_music_differs_from_seed_to_seed_and_is_no_noise() -> None:
    one, other = (FILLERS.draw("music", np.random.default_rng(seed), 32_000) for seed in (1, 2))
    assert (one != other).any()
    power = np.abs(np.fft.rfft(one * np.hanning(one.size))) ** 2
    flatness = np.exp(np.mean(np.log(power + 1e-12))) / np.mean(power)
    assert flatness < 0.05


def test_babble_of_too_few_people_is_refused_with_the_cure() -> None:
    silent = np.zeros(16_000, np.float32)
    with pytest.raises(FillerError, match="leave that mask out"):
        babble(np.random.default_rng(0), [voice(1), voice(2), silent], 8000)


def test_real_noise_and_music_take_the_place_of_made_ones() -> None:
    tone = np.sin(2 * np.pi * 1000 * np.arange(16_000) / SAMPLE_RATE_HZ).astype(np.float32)
    fillers = Fillers(noise=[tone], music=[0.01 * tone])
    for kind in ("noise", "music"):
        drawn = fillers.draw(kind, np.random.default_rng(0), 24_000)  # type: ignore[arg-type]
        spectrum = np.abs(np.fft.rfft(drawn))
        assert abs(int(np.argmax(spectrum)) / 1.5 - 1000) < 2
        assert np.mean(drawn**2) == pytest.approx(1.0)


def test_a_rest_in_the_music_is_not_passed_off_as_a_music_mask() -> None:
    piece = np.concatenate([np.zeros(60_000), 0.3 * np.sin(np.arange(40_000) / 5)]).astype(np.float32)
    for seed in range(20):
        drawn = Fillers(music=[piece]).draw("music", np.random.default_rng(seed), 4000)
        assert np.mean(drawn**2) == pytest.approx(1.0)
    with pytest.raises(FillerError, match="silent"):
        Fillers(music=[np.zeros(9000, np.float32)]).draw("music", np.random.default_rng(0), 4000)
    with pytest.raises(FillerError, match="empty"):
        Fillers(noise=[np.zeros(0, np.float32)]).draw("noise", np.random.default_rng(0), 4000)
