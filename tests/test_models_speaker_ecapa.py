"""The ECAPA ear and the GE2E ear: nothing around a span, beside it or before it changes its embedding."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gate.evidence import SpeakerVerdict
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, ModelId, SpeakerEar
from models.speaker_calibration import Uncalibrated
from models.speaker_ecapa import EcapaEar, features
from models.speaker_resemblyzer import Ge2eEar, mel_power, windows
from models.speaker_track import SpanTrack

RATE = SAMPLE_RATE_HZ
ODD = {
    "nothing": np.zeros(0),
    "a tenth of a second": np.full(1_600, 0.1),
    "zeros": np.zeros(RATE),
    "a number that is none": np.where(np.arange(RATE) == 77, np.nan, 0.1),
    "clipped hard": np.sign(np.sin(np.arange(RATE) / 9.0)),
    "two channels": np.zeros((RATE, 2)),
}


def noise(seconds: float, seed: int = 0) -> Audio:
    return (0.1 * np.random.default_rng(seed).standard_normal(round(seconds * RATE))).astype(np.float32)


def vector(ear: SpeakerEar, audio: Audio) -> Any:
    found = ear.track(audio).embed(Span(0, audio.size)).vector
    assert found is not None
    return found


@pytest.fixture(scope="module")
def ecapa(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EcapaEar]:
    torch = pytest.importorskip("torch")
    pytest.importorskip("speechbrain")
    from models.training.speaker_ecapa import build_network, export

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("ecapa") / "speaker_ecapa.onnx"
    export(build_network(16, 24), 24, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_suffix(".json").write_text(json.dumps({"onnx_sha256": digest}), encoding="utf-8")
    yield EcapaEar(path, Uncalibrated(), threads=1)
    # SpeechBrain leaves stand-ins among the modules that raise when looked at, as hypothesis does in later tests.
    for name in [name for name in sys.modules if name.partition(".")[0] == "speechbrain"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def ge2e(tmp_path_factory: pytest.TempPathFactory) -> Ge2eEar:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    lstm, linear = torch.nn.LSTM(40, 256, 3), torch.nn.Linear(256, 256)
    state = {
        **{f"lstm.{key}": value for key, value in lstm.state_dict().items()},
        **{f"linear.{key}": value for key, value in linear.state_dict().items()},
        "similarity_weight": torch.ones(1),
    }
    path = tmp_path_factory.mktemp("ge2e") / "pretrained.pt"
    torch.save({"step": 1, "model_state": state, "optimizer_state": {}}, path)
    return Ge2eEar(path, ModelId("random", "0"), Uncalibrated(), threads=1)


@pytest.fixture(params=["ecapa", "ge2e"])
def ear(request: pytest.FixtureRequest) -> SpeakerEar:
    found: SpeakerEar = request.getfixturevalue(request.param)
    return found


@pytest.mark.slow
def test_embedding_has_unit_norm_and_the_stated_width(ear: SpeakerEar) -> None:
    found = vector(ear, noise(2.0))
    assert found.shape == (ear.dimension,)
    assert found.dtype == np.float32
    assert float(np.linalg.norm(found)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ODD)
def test_odd_audio_gives_no_embedding_a_reason_and_no_change(ear: SpeakerEar, kind: str) -> None:
    audio = ODD[kind].astype(np.float32)
    track = ear.track(audio)
    embedding = track.embed(Span(0, len(audio)))
    assert embedding.vector is None
    assert embedding.note
    assert track.changes() == ()


@pytest.mark.slow
def test_span_sees_nothing_of_its_neighbours_so_a_bystander_gains_nothing_by_speaking_after_the_owner(
    ear: SpeakerEar,
) -> None:
    owner, bystander = noise(1.3, 1), noise(1.7, 2)
    together = np.concatenate([owner, bystander])
    within = ear.track(together).embed(Span(owner.size, together.size)).vector
    assert np.array_equal(within, vector(ear, bystander))


@pytest.mark.slow
def test_audio_that_came_in_chunks_of_any_size_gives_the_same_embedding(ear: SpeakerEar) -> None:
    audio = noise(2.1)
    wanted = vector(ear, audio)
    for size in (160, 7_001):
        gathered = np.concatenate([audio[start : start + size] for start in range(0, audio.size, size)])
        assert np.array_equal(vector(ear, gathered), wanted)
    assert np.array_equal(vector(ear, np.stack([audio, -audio], axis=1)[:, 0]), wanted)


@pytest.mark.slow
def test_same_audio_gives_the_same_embedding_after_other_audio_of_another_length(ear: SpeakerEar) -> None:
    audio = noise(1.0)
    before = vector(ear, audio)
    vector(ear, noise(4.7, 3))
    assert np.array_equal(vector(ear, audio), before)


@pytest.mark.slow
def test_ecapa_gives_an_input_the_same_embedding_alone_and_in_a_batch(ecapa: EcapaEar) -> None:
    batch = np.stack([features(noise(1.5, seed)) for seed in range(3)])
    together = ecapa._session.run(None, {"fbank": batch})[0]
    for one, found in zip(batch, together, strict=True):
        alone = ecapa._session.run(None, {"fbank": one[None]})[0][0]
        assert np.allclose(alone, found, atol=1e-5)


@pytest.mark.slow
def test_ge2e_gives_a_window_the_same_vector_alone_and_among_others(ge2e: Ge2eEar) -> None:
    cut = windows(mel_power(noise(4.0)))
    assert len(cut) > 2
    together = ge2e.embed_windows(cut)
    for one, found in zip(cut, together, strict=True):
        assert np.allclose(ge2e.embed_windows(one[None])[0], found, atol=1e-5)


def test_ge2e_windows_reach_the_end_so_the_last_word_counts() -> None:
    mel = np.arange(301 * 40, dtype=np.float32).reshape(301, 40)
    cut = windows(mel)
    assert cut.shape == (3, 160, 40)
    assert np.array_equal(cut[-1], mel[-160:])
    assert windows(mel[:70]).shape == (1, 70, 40)


def test_level_does_not_reach_a_network_that_reads_power() -> None:
    audio = noise(1.0)
    assert np.allclose(mel_power(audio), mel_power(audio * np.float32(0.01)), rtol=1e-4)


def test_a_tone_lies_in_the_band_that_holds_it() -> None:
    seconds = np.arange(RATE) / RATE
    power = mel_power((0.1 * np.sin(2.0 * np.pi * 1_000.0 * seconds)).astype(np.float32)).mean(axis=0)
    # Slaney's scale is linear up to 1 kHz, which is mel 15 of 45.245: band 13.25 of 40.
    assert int(np.argmax(power)) in (12, 13)


class _Sides:
    """Tells two sides apart by the sign of their mean."""

    thresholds = Uncalibrated()

    def embed_alone(self, audio: Audio) -> tuple[Any, str]:
        up = float(audio.mean()) > 0.0
        return np.array([1.0, 0.0] if up else [0.0, 1.0], np.float32), ""


def test_uncalibrated_network_never_splits_a_turn() -> None:
    audio = np.concatenate([noise(2.0) + 0.1, noise(2.0) - 0.1]).astype(np.float32)
    assert SpanTrack(_Sides(), audio).changes() == ()


def test_turn_is_split_where_the_thresholds_call_the_sides_two_people(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict:
        def verdict(self, score: float, reference_s: float, test_s: float) -> tuple[SpeakerVerdict, float, float]:
            return SpeakerVerdict.UNSURE, 0.9, 0.5

    monkeypatch.setattr(_Sides, "thresholds", Strict())
    audio = np.concatenate([noise(2.0) + 0.1, noise(2.0) - 0.1]).astype(np.float32)
    [change] = SpanTrack(_Sides(), audio).changes()
    assert abs(change - 2 * RATE) <= 0.25 * RATE
