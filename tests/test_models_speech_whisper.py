"""Speech ear: what was said and when, and nothing where nothing was said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, SpeechEar
from models.speech_whisper import MAX_WINDOW_S, MIN_SAMPLES, WhisperEar, load, without_loops
from models.store import Store
from models.store_errors import ModelError

RATE = SAMPLE_RATE_HZ
DEMO = Path(__file__).parent.parent / "bench" / "demo"


@pytest.fixture(scope="module")
def ear() -> WhisperEar:
    try:
        return load(Store(offline=True), threads=2)
    except ModelError as error:
        pytest.skip(f"no speech model here: {error}")


@pytest.fixture(scope="module")
def scene() -> tuple[Audio, list[dict[str, Any]]]:
    audio, rate = soundfile.read(DEMO / "demo.flac", dtype="float32")
    assert rate == RATE
    return audio, json.loads((DEMO / "demo.json").read_text(encoding="utf-8"))["segments"]


def clear(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [segment for segment in segments if segment["distance"] == "near" and segment["mask"] is None]


def key(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())


def cut(audio: Audio, segment: dict[str, Any], margin_s: float = 0.2) -> tuple[Audio, float]:
    start_s = max(0.0, segment["start"] - margin_s)
    return audio[round(start_s * RATE) : round((segment["end"] + margin_s) * RATE)], start_s


@pytest.mark.slow
def test_near_speech_is_heard_word_for_word_and_on_time(
    ear: WhisperEar, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    audio, segments = scene
    said, heard, late_s = 0, 0, []
    for segment in clear(segments):
        turn, start_s = cut(audio, segment)
        found = ear.hear(turn)
        truth = segment["words"]
        said += len(truth)
        # Greedy in-order matching is enough where nearly all words are right.
        position = 0
        for word in found.words:
            for index in range(position, len(truth)):
                if key(truth[index]["word"]) == key(word.text):
                    heard += 1
                    late_s.append(start_s + word.span.start_s - truth[index]["start"])
                    position = index + 1
                    break
    assert said >= 10
    assert heard >= 0.85 * said
    assert np.median(np.abs(late_s)) < 0.08
    assert np.percentile(np.abs(late_s), 90) < 0.25


def test_words_lie_in_order_inside_the_turn_and_states_cover_it(
    ear: WhisperEar, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    audio, segments = scene
    turn, _ = cut(audio, clear(segments)[0])
    heard = ear.hear(turn)
    flat = [sample for word in heard.words for sample in (word.span.start_sample, word.span.end_sample)]
    assert flat == sorted(flat)
    assert flat[-1] <= turn.size
    assert all(0.0 < word.probability <= 1.0 for word in heard.words)
    assert heard.encoder_states is not None
    assert heard.encoder_states.shape == (-(-turn.size // 320), 512)
    assert heard.encoder_states.dtype == np.float32
    assert heard.no_speech_probability is not None


@pytest.mark.slow
def test_a_turn_is_heard_the_same_after_another_one(ear: WhisperEar, scene: tuple[Audio, list[dict[str, Any]]]) -> None:
    audio, segments = scene
    first, second = (cut(audio, segment)[0] for segment in segments[:2])
    before = ear.hear(first)
    ear.hear(second)
    assert ear.hear(first) == before


NOISES = {
    "white": lambda random, n: 0.3 * random.standard_normal(n),
    "quiet white": lambda random, n: 0.002 * random.standard_normal(n),
    "brown": lambda random, n: (lambda x: 0.3 * x / np.abs(x).max())(np.cumsum(random.standard_normal(n))),
    "tone": lambda random, n: 0.3 * np.sin(2 * np.pi * 440 * np.arange(n) / RATE),
    "clicks": lambda random, n: (random.random(n) < 0.001) * random.standard_normal(n),
}


@pytest.mark.parametrize("kind", NOISES)
def test_noise_becomes_no_words_so_a_fan_never_speaks(ear: WhisperEar, kind: str) -> None:
    audio = NOISES[kind](np.random.default_rng(3), 2 * RATE).astype(np.float32)
    heard = ear.hear(audio)
    assert heard.words == ()
    assert heard.note


ODD = {
    "nothing": np.zeros(0),
    "one sample": np.full(1, 0.5),
    "ten milliseconds": np.full(160, 0.1),
    "a tenth of a second": np.full(1_600, 0.1),
    "just too short": np.full(MIN_SAMPLES - 1, 0.1),
    "zeros": np.zeros(RATE),
    "one least significant bit": np.where(np.arange(RATE) % 2, 1, -1) / 32_768,
    "a number that is none": np.where(np.arange(RATE) == 77, np.nan, 0.1),
    "infinite": np.full(RATE, np.inf),
    "two channels": np.zeros((RATE, 2)),
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_audio_gives_no_words_a_reason_and_no_error(ear: WhisperEar, kind: str) -> None:
    heard = ear.hear(ODD[kind].astype(np.float32))
    assert heard.words == ()
    assert heard.note


@pytest.mark.parametrize("samples", [MIN_SAMPLES, MIN_SAMPLES + 1, 4_801, RATE])
def test_any_length_from_the_minimum_on_is_heard_without_error(ear: WhisperEar, samples: int) -> None:
    audio = (0.1 * np.random.default_rng(1).standard_normal(samples)).astype(np.float32)
    states = ear.hear(audio).encoder_states
    assert states is not None
    assert len(states) == -(-samples // 320)


@pytest.mark.slow
def test_talk_longer_than_the_encoder_reaches_is_heard_to_its_end(
    ear: WhisperEar, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    audio, segments = scene
    assert audio.size > MAX_WINDOW_S * RATE
    heard = ear.hear(audio)
    for segment in (clear(segments)[0], clear(segments)[-1]):
        truth = segment["words"][-1]
        near_s = [abs(word.span.end_s - truth["end"]) for word in heard.words if key(word.text) == key(truth["word"])]
        assert min(near_s) < 0.3, segment["text"]
    assert heard.encoder_states is not None
    assert len(heard.encoder_states) == -(-audio.size // 320)


def test_unknown_language_is_refused_by_name_at_start(ear: WhisperEar) -> None:
    with pytest.raises(ValueError, match="'xx'"):
        load(Store(offline=True), threads=1, language="xx")


def test_ear_satisfies_the_protocol(ear: WhisperEar) -> None:
    typed: SpeechEar = ear
    assert typed.model.name == "whisper-base"
    assert len(typed.model.sha256) == 64


@pytest.mark.slow
def test_live_speech_ear_loads_neither_torch_nor_transformers(ear: WhisperEar) -> None:
    code = (
        "import sys, numpy\n"
        "from models.speech_whisper import load\n"
        "from models.store import Store\n"
        "load(Store(offline=True), 1).hear(numpy.full(4000, 0.01, numpy.float32))\n"
        "assert not {'torch', 'transformers', 'faster_whisper'} & set(sys.modules), 'heavy import'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent, timeout=60)


def spoken(*texts: str, word_s: float = 0.3) -> list[Word]:
    return [
        Word(text, Span.from_seconds(index * word_s, (index + 1) * word_s), 0.9) for index, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("texts", "word_s", "wanted"),
    [
        (["Stop,", "stop!"], 0.3, ["Stop,", "stop!"]),
        (["no", "no", "no"], 0.2, ["no", "no", "no"]),
        (["turn", "it", "off.", "Turn", "it", "off."], 0.25, ["turn", "it", "off.", "Turn", "it", "off."]),
        (["turn", "it", "off.", "Turn", "it", "off."], 0.05, ["turn", "it", "off."]),
        (["a", "b", "a", "b", "a", "b", "c"], 0.02, ["a", "b", "c"]),
        (["book", "a", "room"], 0.02, ["book", "a", "room"]),
        ([], 0.1, []),
    ],
)
def test_repeats_that_nobody_could_speak_are_dropped_and_real_ones_stay(
    texts: list[str], word_s: float, wanted: list[str]
) -> None:
    assert [word.text for word in without_loops(spoken(*texts, word_s=word_s))] == wanted


@settings(max_examples=100)
@given(st.lists(st.sampled_from("abc"), max_size=12), st.floats(0.01, 0.5))
def test_dropping_repeats_never_adds_reorders_or_empties(texts: list[str], word_s: float) -> None:
    words = spoken(*texts, word_s=word_s)
    kept = without_loops(words)
    assert [word for word in words if word in kept] == list(kept)
    assert bool(kept) == bool(words)
    if word_s >= 0.12:
        assert list(kept) == words
