"""The front end of the proximity and damage ears: framing, level and block independence."""

from __future__ import annotations

import numpy as np
import pytest

from models import mel_bands
from models.mel_bands import frame_count, mel_band_db, running_level_db


@pytest.mark.parametrize(("samples", "frames"), [(0, 0), (399, 0), (400, 1), (559, 1), (560, 2), (16_000, 98)])
def test_frames_hold_whole_windows_only(samples: int, frames: int) -> None:
    assert frame_count(samples) == frames
    assert mel_band_db(np.zeros(samples, dtype=np.float32)).shape == (frames, 48)


def test_gain_shifts_every_band_by_its_decibels() -> None:
    audio = np.random.default_rng(0).normal(0.0, 0.1, 8000).astype(np.float32)
    assert np.allclose(mel_band_db(audio) - mel_band_db(audio * np.float32(0.1)), 20.0, atol=0.01)


def test_a_tone_lands_in_its_band_alone() -> None:
    tone = np.sin(2 * np.pi * 1000.0 * np.arange(16_000) / 16_000).astype(np.float32)
    bands = mel_band_db(tone).mean(axis=0)
    loudest = int(np.argmax(bands))
    others = np.delete(bands, [loudest - 1, loudest, loudest + 1])
    assert bands[loudest] > others.max() + 25.0


def test_a_frame_depends_on_its_own_samples_only(monkeypatch: pytest.MonkeyPatch) -> None:
    audio = np.random.default_rng(1).normal(0.0, 0.1, 16_000).astype(np.float32)
    whole = mel_band_db(audio)
    assert np.allclose(mel_band_db(audio[1600:8000]), whole[10 : 10 + frame_count(6400)], atol=1e-4)
    monkeypatch.setattr(mel_bands, "_BLOCK_FRAMES", 7)
    assert np.allclose(mel_band_db(audio), whole, atol=1e-4)


def test_running_level_follows_the_mean_power_around_a_frame() -> None:
    bands = np.full((300, 48), -60.0, dtype=np.float32)
    bands[150:] = -20.0
    level = running_level_db(bands, 50)
    whole = 10 * np.log10(48)
    assert level[0] == pytest.approx(-60.0 + whole, abs=0.01)
    assert level[299] == pytest.approx(-20.0 + whole, abs=0.01)
    assert level[149] == pytest.approx(-20.0 + whole + 10 * np.log10(50 / 101), abs=0.05)
