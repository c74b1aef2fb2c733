"""The filter bank that speaker networks read must be Kaldi's, or their scores mean nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.fbank import FRAME_SAMPLES, frame_count, kaldi_fbank


def _speechlike(samples: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    tone = np.sin(2 * np.pi * 180 * np.arange(samples) / 16_000) + np.sin(
        2 * np.pi * 2_500 * np.arange(samples) / 16_000
    )
    return (0.1 * tone + 0.02 * random.standard_normal(samples)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_filter_bank_equals_torchaudios_kaldi_port(scale: float) -> None:
    torch = pytest.importorskip("torch")
    kaldi = pytest.importorskip("torchaudio.compliance.kaldi")
    audio = _speechlike(24_123) * np.float32(scale)
    wanted = kaldi.fbank(torch.from_numpy(audio)[None] * 32_768.0, num_mel_bins=80, dither=0.0).numpy()
    assert np.abs(kaldi_fbank(audio) - wanted).max() < 5e-3


def test_known_tone_peaks_in_its_own_mel_bin() -> None:
    tone = np.sin(2 * np.pi * 1_000 * np.arange(16_000) / 16_000).astype(np.float32)
    mel = 1127 * np.log1p(1_000 / 700)
    low, high = 1127 * np.log1p(20 / 700), 1127 * np.log1p(8_000 / 700)
    wanted = round((mel - low) / (high - low) * 81 - 1)
    assert abs(int(kaldi_fbank(tone).mean(axis=0).argmax()) - wanted) <= 1


def test_mean_removed_features_do_not_depend_on_level_so_a_quiet_owner_is_still_the_owner() -> None:
    audio = _speechlike(16_000)
    loud, quiet = kaldi_fbank(audio), kaldi_fbank(audio * np.float32(0.01))
    assert np.abs((loud - loud.mean(0)) - (quiet - quiet.mean(0))).max() < 1e-2


@settings(max_examples=40)
@given(st.integers(0, 5_000))
def test_frame_count_is_what_comes_out_whatever_the_length(samples: int) -> None:
    features = kaldi_fbank(_speechlike(samples))
    assert features.shape == (frame_count(samples), 80)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()


def test_less_than_a_frame_gives_no_frames_and_no_error() -> None:
    assert kaldi_fbank(np.zeros(FRAME_SAMPLES - 1, np.float32)).shape == (0, 80)


def test_digital_silence_is_finite() -> None:
    assert np.isfinite(kaldi_fbank(np.zeros(1_600, np.float32))).all()


def test_two_channels_are_refused_rather_than_read_as_one() -> None:
    with pytest.raises(ValueError, match="one-dimensional"):
        kaldi_fbank(np.zeros((2, 1_600), np.float32))
