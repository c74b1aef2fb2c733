"""The ears' figures: words are counted as a person would, and what is told as silence was silence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from bench import ear_figures
from bench.ear_figures import (
    equal_error_rate,
    report_nothing,
    report_words,
    sentences,
    the_gates,
    word_errors,
    words_of,
)
from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio
from models.training import corpus
from tests.fake_models import FakeEars, Voice, tone

HELLO = Voice(400, "Turn on the lamp.")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("230pm", "2:30 p.m."),
        ("what's the weather", "Whats the weather?"),
        ("What\u2019s this", "whats this"),
        ("48 Ridge Road 407", "48 Ridge Road, 4-0-7."),
        ("CAF\u00c9", "cafe\u0301"),
    ],
)
def test_spelling_is_no_error(one: str, other: str) -> None:
    assert words_of(one) == words_of(other)


@pytest.mark.parametrize(
    ("truth", "heard", "errors"),
    [
        ("turn on the lamp", "turn on the lamp", 0),
        ("turn on the lamp", "turn off the lamp", 1),
        ("turn on the lamp", "turn on lamp", 1),
        ("turn on the lamp", "turn on the big lamp", 1),
        ("turn on the lamp", "", 4),
        ("", "thank you", 2),
        ("a b c", "c a b", 2),
    ],
)
def test_each_wrong_missing_or_invented_word_is_one_error(truth: str, heard: str, errors: int) -> None:
    assert word_errors(truth.split(), heard.split()) == errors


@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), max_size=8))
def test_errors_are_a_distance(one: list[str], other: list[str]) -> None:
    errors = word_errors(one, other)
    assert errors == word_errors(other, one)
    assert abs(len(one) - len(other)) <= errors <= max(len(one), len(other))
    assert (errors == 0) is (one == other)


@pytest.mark.parametrize(
    ("targets", "impostors", "rate"),
    [
        ([0.8, 0.9], [0.1, 0.2], 0.0),
        ([0.1, 0.2], [0.8, 0.9], 1.0),
        ([0.3, 0.6, 0.7, 0.8], [0.1, 0.2, 0.4, 0.65], 0.25),
    ],
)
def test_the_equal_error_rate_is_where_both_errors_meet(
    targets: list[float], impostors: list[float], rate: float
) -> None:
    assert equal_error_rate(np.array(targets), np.array(impostors)) == pytest.approx(rate)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A manifest with a sentence, French, a wake word, noise, people in a caf\u00e9 and music."""
    rows = ["path\tset\tspeaker\ttranscript\tcondition\tduration_s\tsample_rate\tsource_repo\tlicense\tnote"]

    def add(path: str, name: str, transcript: str, audio: Audio, condition: str = "near") -> None:
        (tmp_path / "audio" / path).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(tmp_path / "audio" / path, audio, SAMPLE_RATE_HZ)
        rows.append(f"{path}\t{name}\ts\t{transcript}\t{condition}\t1\t16000\t\t\t")

    hiss = np.random.default_rng(0).normal(0.0, 0.01, 5 * SAMPLE_RATE_HZ).astype(np.float32)
    add("c/lamp.wav", "commands", "turn on the big lamp", tone(HELLO, 1.5))
    add("c/lampe.wav", "commands", "allume la lampe", tone(HELLO), "near (developer voice, French)")
    add("w/alexa.wav", "picovoice_wake_word", "alexa", tone(HELLO))
    add("noise/street/hiss.wav", "noise", "", hiss)
    add("noise/babble/cafe.wav", "noise", "", np.concatenate([tone(HELLO, 2.0), hiss[: 2 * SAMPLE_RATE_HZ]]))
    add("music/m/Kevin.wav", "music", "", hiss[: 2 * SAMPLE_RATE_HZ])
    (tmp_path / "audio" / "manifest.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    corpus.recordings.cache_clear()
    return tmp_path


def cells(lines: list[str]) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_only_english_sentences_are_counted(folder: Path) -> None:
    assert [sentence.transcript for sentence in sentences(folder)] == ["turn on the big lamp"]


def test_words_are_counted_for_each_recogniser_by_itself(folder: Path) -> None:
    recognisers = {"the gate": the_gates(FakeEars([HELLO]).ears().speech), "deaf": lambda audio: ""}
    assert cells(report_words(recognisers, folder)) == [
        ["commands", "1", "5", "20.0% (20.0% to 20.0%)", "100.0% (100.0% to 100.0%)"],
        ["all", "1", "5", "20.0% (20.0% to 20.0%)", "100.0% (100.0% to 100.0%)"],
    ]


def test_words_from_noise_are_counted_apart_from_noise_with_people_in_it(folder: Path) -> None:
    recognisers = {"the gate": the_gates(FakeEars([HELLO]).ears().speech), "chatty": lambda audio: "Thank you."}
    found = cells(report_nothing(recognisers, folder))
    assert [row[:2] for row in found] == [["noise", "2"], ["caf\u00e9, with people talking", "2"], ["music", "1"]]
    assert [row[2].split()[0] for row in found] == ["0", "1", "0"]
    assert [row[3].split()[0] for row in found] == ["2", "2", "1"]


def test_without_recordings_the_flag_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.delenv("VOICEGATE_DATA", raising=False)
    assert ear_figures.main([]) == 2
    assert "--data" in capsys.readouterr().err
