"""Damage ear: what covered or removed words is found, and what is merely speech is left alone."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.evidence import DamageKind
from gate.span import Span
from models.damage_cnn import (
    KINDS,
    WEIGHTS,
    DamageCnn,
    DamageThresholds,
    candidate_stretches,
    clipped_stretches,
    step_span,
)
from models.protocols import Audio, DamageEar

DEMO = Path(__file__).parent.parent / "bench" / "demo"


@pytest.fixture(scope="module")
def ear() -> DamageCnn:
    return DamageCnn()


@pytest.fixture(scope="module")
def scene() -> tuple[Audio, list[dict[str, Any]]]:
    audio, _ = soundfile.read(DEMO / "demo.flac", dtype="float32")
    return audio, json.loads((DEMO / "demo.json").read_text(encoding="utf-8"))["segments"]


@pytest.fixture(scope="module")
def sentence(scene: tuple[Audio, list[dict[str, Any]]]) -> Audio:
    """The wearer's undamaged command with a little of the room before and after it."""
    audio, segments = scene
    return audio[round((segments[1]["start"] - 0.4) * 16_000) : round((segments[1]["end"] + 0.4) * 16_000)]


def covered_share(stretches: tuple[Any, ...], span: Span, kind: DamageKind | None = None) -> float:
    return sum(s.span.overlap(span) for s in stretches if kind is None or s.kind is kind) / span.samples


def word_span(scene: tuple[Audio, list[dict[str, Any]]], segment: int, first: int, last: int) -> Span:
    """From one word of a segment to another, relative to ``sentence``."""
    words = scene[1][segment]["words"]
    offset = round((scene[1][segment]["start"] - 0.4) * 16_000)
    return Span.from_seconds(words[first]["start"], words[last]["end"]).shifted(-offset)


def test_burst_over_the_amount_is_found_where_it_is(ear: DamageCnn, scene: tuple[Audio, list[dict[str, Any]]]) -> None:
    audio, segments = scene
    segment = next(s for s in segments if s["mask"])
    start = round((segment["start"] - 0.4) * 16_000)
    turn = audio[start : round((segment["end"] + 0.5) * 16_000)]
    mask = Span.from_seconds(segment["mask"]["start"], segment["mask"]["end"]).shifted(-start)
    found = ear.find(turn)
    assert found
    assert covered_share(found, mask, DamageKind.NOISE) > 0.8
    assert all(s.span.overlap(mask) > 0.5 * s.span.samples for s in found), "nothing else is reported"


def test_undamaged_turns_near_and_far_are_left_alone(ear: DamageCnn, scene: tuple[Audio, list[dict[str, Any]]]) -> None:
    audio, segments = scene
    for segment in segments:
        if segment["mask"] is None:
            turn = audio[round((segment["start"] - 0.4) * 16_000) : round((segment["end"] + 0.5) * 16_000)]
            assert ear.find(turn) == (), segment["text"]


def test_a_word_cut_to_digital_silence_is_found(
    ear: DamageCnn, scene: tuple[Audio, list[dict[str, Any]]], sentence: Audio
) -> None:
    cut = word_span(scene, 1, 4, 6)
    damaged = sentence.copy()
    damaged[cut.start_sample : cut.end_sample] = 0.0
    found = ear.find(damaged)
    assert found
    assert covered_share(found, cut, DamageKind.SILENCE) > 0.5


@pytest.mark.parametrize("gain", [0.05, 0.4])
def test_loudness_of_the_turn_does_not_matter(
    ear: DamageCnn, scene: tuple[Audio, list[dict[str, Any]]], gain: float
) -> None:
    audio, segments = scene
    segment = next(s for s in segments if s["mask"])
    turn = audio[round((segment["start"] - 0.4) * 16_000) : round((segment["end"] + 0.5) * 16_000)]
    plain, scaled = ear.find(turn), ear.find(turn * np.float32(gain))
    assert plain is not None
    assert scaled is not None
    assert [(s.span, s.kind) for s in plain] == [(s.span, s.kind) for s in scaled]


def test_the_same_audio_gives_the_same_stretches(ear: DamageCnn, sentence: Audio) -> None:
    assert ear.find(sentence) == ear.find(sentence.copy())


@pytest.mark.parametrize(
    "audio",
    [
        np.zeros(0, dtype=np.float32),
        np.full(4_799, 0.1, dtype=np.float32),
        np.zeros(16_000, dtype=np.float32),
        np.full(16_000, np.nan, dtype=np.float32),
    ],
    ids=["empty", "too short", "silent", "not finite"],
)
def test_audio_that_cannot_be_judged_is_unknown_not_undamaged(ear: DamageCnn, audio: Audio) -> None:
    assert ear.find(audio) is None


def test_one_infinite_sample_makes_the_turn_unknown(ear: DamageCnn, sentence: Audio) -> None:
    broken = sentence.copy()
    broken[1000] = -np.inf
    assert ear.find(broken) is None


def test_overdriven_speech_is_clipping_and_loud_peaks_are_not(ear: DamageCnn, sentence: Audio) -> None:
    peak = np.float32(np.abs(sentence).max())
    assert clipped_stretches(sentence / peak) == []
    overdriven = np.clip(sentence / peak * np.float32(20.0), -1.0, 1.0)
    found = ear.find(overdriven)
    assert found
    assert any(s.kind is DamageKind.CLIPPING and s.probability > 0.9 for s in found)


def test_clipped_stretch_lies_where_the_flat_runs_are() -> None:
    audio = np.zeros(16_000, dtype=np.float32)
    audio[4000:8000] = np.clip(3.0 * np.sin(2 * np.pi * 150.0 * np.arange(4000) / 16_000), -1.0, 1.0)
    (stretch,) = clipped_stretches(audio)
    assert stretch.span == Span(4000, 8000)


def _steps(*runs: tuple[int, int, float]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """``(count, class, probability)`` runs as softmax rows; what is left goes to class 0 (or to 1 for class 0 runs)."""
    rows = []
    for count, index, probability in runs:
        row = np.zeros(5, dtype=np.float32)
        row[index] = probability
        row[1 if index == 0 else 0] += 1.0 - probability
        rows += [row] * count
    return np.array(rows, dtype=np.float32)


THRESHOLDS = DamageThresholds(0.4, dict.fromkeys(KINDS, 0.5), merge_steps=2, min_steps=3)


@pytest.mark.parametrize(
    ("runs", "stretches"),
    [
        ([(20, 0, 0.99)], []),
        ([(5, 0, 0.99), (2, 1, 0.9), (5, 0, 0.99)], []),
        ([(5, 0, 0.99), (4, 2, 0.9), (5, 0, 0.99)], [(5, 9, 1)]),
        ([(3, 1, 0.9), (2, 0, 0.99), (3, 1, 0.9)], [(0, 8, 0)]),
        ([(3, 1, 0.9), (3, 0, 0.99), (3, 1, 0.9)], [(0, 3, 0), (6, 9, 0)]),
        ([(3, 1, 0.9), (1, 0, 0.99), (3, 4, 0.9)], [(0, 3, 0), (4, 7, 3)]),
    ],
    ids=["none", "too short", "one", "merged", "apart", "other kind"],
)
def test_steps_become_stretches(runs: list[tuple[int, int, float]], stretches: list[tuple[int, int, int]]) -> None:
    found = candidate_stretches(_steps(*runs), THRESHOLDS)
    assert [(a, b, k) for a, b, k, _ in found] == stretches
    assert all(score == pytest.approx(0.9, abs=0.31) for *_, score in found)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 4), st.floats(0.5, 1.0)), min_size=1, max_size=12))
def test_stretches_are_ordered_disjoint_and_long_enough(runs: list[tuple[int, int, float]]) -> None:
    found = candidate_stretches(_steps(*runs), THRESHOLDS)
    for first, last, _, score in found:
        assert last - first >= THRESHOLDS.min_steps
        assert 0.0 <= score <= 1.0 + 1e-6
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(found))


@pytest.mark.parametrize("samples", [5_000, 16_000, 16_001])
def test_step_spans_tile_the_audio_without_leaving_it(samples: int) -> None:
    spans = [step_span(i, i + 1, samples) for i in range(samples // 320)]
    assert all(a.end_sample == b.start_sample for a, b in itertools.pairwise(spans))
    assert spans[-1].end_sample <= samples


def test_weights_that_are_not_the_described_ones_are_never_loaded(tmp_path: Path) -> None:
    content = bytearray(WEIGHTS.read_bytes())
    content[-1] ^= 1
    (tmp_path / "damage.onnx").write_bytes(content)
    (tmp_path / "damage.json").write_bytes(WEIGHTS.with_suffix(".json").read_bytes())
    with pytest.raises(ValueError, match="sha256"):
        DamageCnn(tmp_path / "damage.onnx")


def test_the_ear_is_a_damage_ear_and_names_its_weights(ear: DamageCnn) -> None:
    protocol: DamageEar = ear
    assert protocol.model.name == "damage"
    assert len(protocol.model.sha256) == 64


MaskMaker = Callable[[int], np.ndarray[Any, np.dtype[np.float32]]]


@pytest.mark.parametrize(
    "burst",
    [
        lambda n: np.random.default_rng(1).normal(size=n),
        lambda n: np.cumsum(np.random.default_rng(2).normal(size=n)) * 0.1,
        lambda n: np.sin(2 * np.pi * 1000.0 * np.arange(n) / 16_000),
    ],
    ids=["white", "brown", "bleep"],
)
def test_bursts_of_other_colours_are_found_too(
    ear: DamageCnn, scene: tuple[Audio, list[dict[str, Any]]], sentence: Audio, burst: MaskMaker
) -> None:
    cut = word_span(scene, 1, 4, 6)
    sound = burst(cut.samples).astype(np.float32)
    sound *= np.float32(np.std(sentence) * 1.5 / np.std(sound))
    damaged = sentence.copy()
    damaged[cut.start_sample : cut.end_sample] = sound
    found = ear.find(damaged)
    assert found
    assert covered_share(found, cut) > 0.5
