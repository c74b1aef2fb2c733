"""The spectrogram must be the one Whisper was trained on."""

from __future__ import annotations

import numpy as np
import pytest

from models.logmel import whisper_log_mel


def _sound(samples: int) -> np.ndarray:
    random = np.random.default_rng(1)
    sweep = np.sin(2 * np.pi * np.cumsum(np.linspace(100, 4_000, samples)) / 16_000)
    return (0.2 * sweep + 0.01 * random.standard_normal(samples)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("bins", [80, 128])
def test_spectrogram_equals_the_reference_feature_extractor(bins: int) -> None:
    transformers = pytest.importorskip("transformers")
    audio = _sound(20_480)
    extractor = transformers.WhisperFeatureExtractor(feature_size=bins)
    wanted = extractor(audio, sampling_rate=16_000, padding="do_not_pad", return_tensors="np").input_features[0]
    assert np.abs(whisper_log_mel(audio, bins) - wanted[:, :128]).max() < 1e-3


def test_one_column_for_each_ten_milliseconds_and_no_padding_to_thirty_seconds() -> None:
    assert whisper_log_mel(_sound(16_079)).shape == (80, 100)


def test_range_below_the_loudest_bin_is_eight_decades() -> None:
    audio = np.concatenate([_sound(8_000), np.zeros(8_000, np.float32)])
    log_mel = whisper_log_mel(audio)
    assert log_mel.max() - log_mel.min() == pytest.approx(8.0 / 4.0, abs=1e-5)


def test_silence_is_finite() -> None:
    assert np.isfinite(whisper_log_mel(np.zeros(1_600, np.float32))).all()


@pytest.mark.parametrize("shape", [(0,), (200,), (2, 1_600)])
def test_audio_that_cannot_be_reflected_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="samples"):
        whisper_log_mel(np.zeros(shape, np.float32))
