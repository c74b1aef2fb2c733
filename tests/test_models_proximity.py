"""Proximity ear: near against far on the bundled scene, and unknown where nothing can be told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.span import Span
from models.protocols import Audio, ProximityEar
from models.proximity_cnn import WEIGHTS, Calibration, ProximityCnn, ProximityTrackCnn

DEMO = Path(__file__).parent.parent / "bench" / "demo"


@pytest.fixture(scope="module")
def ear() -> ProximityCnn:
    return ProximityCnn()


@pytest.fixture(scope="module")
def scene() -> tuple[Audio, list[dict[str, Any]]]:
    audio, rate = soundfile.read(DEMO / "demo.flac", dtype="float32")
    assert rate == 16_000
    return audio, json.loads((DEMO / "demo.json").read_text(encoding="utf-8"))["segments"]


def segment_span(segment: dict[str, Any]) -> Span:
    return Span.from_seconds(segment["start"], segment["end"])


def test_wearer_is_near_and_the_bystander_across_the_room_is_far(
    ear: ProximityCnn, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    audio, segments = scene
    track = ear.track(audio)
    for segment in segments:
        probability = track.near(segment_span(segment)).near_probability
        assert probability is not None
        if segment["distance"] == "near":
            assert probability >= ear.near_at, segment["text"]
        else:
            assert probability < ear.far_below, segment["text"]


def test_a_turn_cut_out_of_the_recording_gets_the_same_verdict_as_within_it(
    ear: ProximityCnn, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    audio, segments = scene
    for segment in segments:
        span = segment_span(segment)
        alone = ear.track(audio[span.start_sample : span.end_sample]).near(Span(0, span.samples)).near_probability
        assert alone is not None
        assert (alone >= ear.near_at) if segment["distance"] == "near" else (alone < ear.far_below)


@pytest.mark.parametrize("gain", [0.05, 0.3, 1.7])
def test_loudness_never_changes_the_score_so_shouting_from_afar_is_no_way_in(
    ear: ProximityCnn, scene: tuple[Audio, list[dict[str, Any]]], gain: float
) -> None:
    audio, segments = scene
    for segment in segments[1:3]:
        span = segment_span(segment)
        plain = ear.track(audio).near(span).near_probability
        scaled = ear.track(audio * np.float32(gain)).near(span).near_probability
        assert scaled == pytest.approx(plain, abs=0.01)


@pytest.mark.slow
def test_the_same_voice_moved_away_in_a_simulated_room_scores_lower(
    ear: ProximityCnn, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    pytest.importorskip("pyroomacoustics")
    from models.training import rooms

    audio, segments = scene
    span = segment_span(segments[1])
    near = audio[span.start_sample : span.end_sample]
    room = rooms.Room.with_rt60((5.0, 4.0, 2.6), 0.5, np.random.default_rng(1))
    far = rooms.render(near, room, (1.0, 1.0, 1.6), (3.6, 3.0, 1.0), 1).audio.astype(np.float32)
    whole = Span(0, span.samples)
    moved = ear.track(far).near(whole).near_probability
    kept = ear.track(near).near(whole).near_probability
    assert moved is not None
    assert kept is not None
    assert moved < ear.far_below < ear.near_at <= kept


def test_the_same_audio_gives_the_same_score(ear: ProximityCnn, scene: tuple[Audio, list[dict[str, Any]]]) -> None:
    audio, segments = scene
    span = segment_span(segments[0])
    assert ear.track(audio).near(span) == ear.track(audio.copy()).near(span)


def test_a_span_of_another_track_position_is_judged_on_its_own_samples(
    ear: ProximityCnn, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    """Far speech after near speech in one turn: what one span scores must not lift the other."""
    audio, segments = scene
    near, far = (audio[segment_span(s).start_sample : segment_span(s).end_sample] for s in segments[1:3])
    joined = np.concatenate([near, far])
    track = ear.track(joined)
    first = track.near(Span(0, near.size)).near_probability
    second = track.near(Span(near.size, joined.size)).near_probability
    assert first is not None
    assert second is not None
    assert first >= ear.near_at
    assert second < ear.near_at


@pytest.mark.parametrize(
    ("audio", "note"),
    [
        (np.zeros(0, dtype=np.float32), "too short"),
        (np.full(7_999, 0.1, dtype=np.float32), "too short"),
        (np.zeros(16_000, dtype=np.float32), "silent"),
        (np.full(16_000, np.nan, dtype=np.float32), "not finite"),
        (np.full(16_000, np.inf, dtype=np.float32), "not finite"),
        (np.sign(np.sin(np.arange(16_000) / 9.0)).astype(np.float32), "clipped"),
    ],
)
def test_audio_that_cannot_be_judged_is_unknown_with_a_reason(ear: ProximityCnn, audio: Audio, note: str) -> None:
    result = ear.track(audio).near(Span(0, audio.size))
    assert result.near_probability is None
    assert note in result.note


def test_one_bad_sample_makes_its_own_span_unknown_and_no_other(
    ear: ProximityCnn, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    audio, segments = scene
    damaged = audio.copy()
    damaged[segment_span(segments[0]).start_sample + 100] = np.inf
    track = ear.track(damaged)
    assert track.near(segment_span(segments[0])).note == "not finite"
    assert track.near(segment_span(segments[1])).near_probability is not None


@pytest.fixture(scope="module")
def hum_track(ear: ProximityCnn) -> ProximityTrackCnn:
    return ear.track(np.random.default_rng(4).normal(0.0, 0.05, 40_000).astype(np.float32))


@settings(max_examples=60, deadline=None)
@given(start=st.integers(0, 60_000), length=st.integers(0, 60_000))
def test_any_span_is_answered_within_the_audio(hum_track: ProximityTrackCnn, start: int, length: int) -> None:
    result = hum_track.near(Span(start, start + length))
    assert result.span.end_sample <= 40_000
    known = result.near_probability is not None
    assert known == (result.span.samples >= 8_000)
    assert known != bool(result.note)
    assert result.near_probability is None or 0.0 <= result.near_probability <= 1.0


def test_longer_spans_of_one_logit_are_surer_and_thresholds_leave_a_band_of_doubt(ear: ProximityCnn) -> None:
    meta = json.loads(WEIGHTS.with_suffix(".json").read_text(encoding="utf-8"))
    calibration = Calibration(**meta["calibration"])
    logit = np.array([6.0])
    assert calibration.log_odds(logit, 2.5)[0] > calibration.log_odds(logit, 0.6)[0]
    assert 0.0 < ear.far_below < ear.near_at < 1.0


def test_weights_that_are_not_the_described_ones_are_never_loaded(tmp_path: Path) -> None:
    content = bytearray(WEIGHTS.read_bytes())
    content[-1] ^= 1
    (tmp_path / "proximity.onnx").write_bytes(content)
    (tmp_path / "proximity.json").write_bytes(WEIGHTS.with_suffix(".json").read_bytes())
    with pytest.raises(ValueError, match="sha256"):
        ProximityCnn(tmp_path / "proximity.onnx")


def test_the_ear_is_a_proximity_ear_and_names_its_weights(ear: ProximityCnn) -> None:
    protocol: ProximityEar = ear
    assert protocol.model.name == "proximity"
    assert len(protocol.model.sha256) == 64
    assert protocol.min_samples == 8_000


def test_live_ears_import_neither_torch_nor_the_room_simulator() -> None:
    code = (
        "import sys, numpy as np; from gate.span import Span;"
        "from models.proximity_cnn import ProximityCnn; from models.damage_cnn import DamageCnn;"
        "x = np.random.default_rng(0).normal(0, .1, 16000).astype(np.float32);"
        "ProximityCnn().track(x).near(Span(0, 16000)); DamageCnn().find(x);"
        "bad = {'torch', 'transformers', 'pyroomacoustics', 'scipy', 'sklearn'} & set(sys.modules);"
        "assert not bad, bad"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
