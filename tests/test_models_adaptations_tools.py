"""The measures that a model may take: right on sounds whose truth is known, and every fault of a call answered."""

from __future__ import annotations

import numpy as np
import pytest

from gate.span import SAMPLE_RATE_HZ, Span
from models.audio_llm.adaptations import measures
from models.audio_llm.adaptations.sound_tools import DESCRIPTION, MAX_LISTED, CallError, SoundTools
from models.audio_llm.adaptations.strict_json import read_object
from models.protocols import Audio
from tests.fake_models import FakeEars, FixedSpeakerThresholds, Voice, tone

ONE, OTHER = Voice(200, "a", speaker=0), Voice(300, "b", speaker=1)


class Ear:
    """The fake speaker ear, with thresholds."""

    def __init__(self, *changes: int) -> None:
        self._ear = FakeEars([ONE, OTHER], changes_at=lambda audio: changes).ears().speaker
        self.thresholds = FixedSpeakerThresholds()
        self.track = self._ear.track
        self.model, self.dimension, self.min_samples = self._ear.model, 8, SAMPLE_RATE_HZ // 2


def tools(*parts: Audio, changes: tuple[int, ...] = ()) -> SoundTools:
    return SoundTools(np.concatenate(parts), Ear(*changes))


def silence(seconds: float) -> Audio:
    return np.zeros(round(seconds * SAMPLE_RATE_HZ), np.float32)


def buzz(hz: float, seconds: float = 1.0) -> Audio:
    """Glottal pulses through one broad resonance: a voice as far as pitch goes, with a strong second harmonic."""
    t = np.arange(round(seconds * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    waves = (
        weight * np.sin(2 * np.pi * hz * number * t) for number, weight in ((1, 0.5), (2, 1.0), (3, 0.7), (5, 0.3))
    )
    return (0.1 * sum(waves)).astype(np.float32)


def noise(seconds: float = 1.0, level: float = 0.1) -> Audio:
    return (level * np.random.default_rng(0).standard_normal(round(seconds * SAMPLE_RATE_HZ))).astype(np.float32)


def smoothed(audio: Audio) -> Audio:
    """Without most of its high frequencies."""
    return np.convolve(audio, np.ones(16) / 16, "same").astype(np.float32)


@pytest.mark.parametrize("hz", [80.0, 118.0, 200.0, 330.0])
def test_the_pitch_of_a_voice_is_its_fundamental_not_its_strongest_harmonic(hz: float) -> None:
    found = measures.pitch(buzz(hz))
    assert found is not None
    assert found.median_hz == pytest.approx(hz, rel=0.01)
    assert found.voiced > 0.9


def test_noise_and_silence_have_no_pitch() -> None:
    """A made-up pitch would be taken for a voice."""
    found = measures.pitch(noise())
    assert found is None or found.voiced < 0.05
    assert measures.pitch(silence(1.0)) is None
    assert measures.pitch(buzz(200.0, 0.02)) is None


def test_pauses_count_as_unvoiced() -> None:
    found = measures.pitch(np.concatenate([buzz(200.0), silence(1.0)]))
    assert found is not None
    assert found.voiced == pytest.approx(0.5, abs=0.1)


def test_levels_are_relative_to_full_scale() -> None:
    rms_dbfs, peak_dbfs = measures.level_dbfs(tone(ONE, amplitude=0.5))
    assert (rms_dbfs, peak_dbfs) == (pytest.approx(-9.03, abs=0.05), pytest.approx(-6.02, abs=0.05))
    assert measures.level_dbfs(silence(0.1))[0] == pytest.approx(-120.0, abs=0.1)


def test_a_dull_sound_is_told_from_a_bright_one() -> None:
    """Distance takes the high frequencies."""
    bright, dull = measures.spectrum(noise()), measures.spectrum(smoothed(noise()))
    assert bright.tilt_db == pytest.approx(0.0, abs=1.0)
    assert dull.tilt_db < bright.tilt_db - 3.0
    assert dull.high_db < bright.high_db - 10.0
    assert dull.centroid_hz < bright.centroid_hz


def test_stretches_of_speech_are_found_and_cut_where_the_voice_changes() -> None:
    first, second = tone(ONE, 1.0), tone(OTHER, 1.0)
    heard = tools(silence(0.5), first, second, silence(0.6), first, silence(0.3), changes=(SAMPLE_RATE_HZ * 3 // 2,))
    assert heard.run('{"tool": "segments"}') == "Speech from 0.50 to 1.50 s, 1.50 to 2.50 s, 3.10 to 4.10 s."


def test_silence_is_nobody_and_a_babble_is_listed_only_in_part() -> None:
    """A list without end would fill the model's context."""
    assert tools(silence(1.0)).run('{"tool": "segments"}') == "Nobody speaks."
    many = tools(*[part for _ in range(MAX_LISTED + 3) for part in (tone(ONE, 0.3), silence(0.4))])
    assert many.run('{"tool": "segments"}').endswith("and 3 more.")


def test_two_stretches_are_compared_by_the_calibrated_ear() -> None:
    heard = tools(tone(ONE, 1.0), tone(ONE, 1.0), tone(OTHER, 1.0))
    assert heard.run('{"tool": "voice_compare", "a": [0, 1], "b": [1, 2]}') == "Cosine 1.00: the same voice."
    assert heard.run('{"tool": "voice_compare", "a": [0, 1], "b": [2, 3]}') == "Cosine 0.00: two different voices."
    assert heard.run('{"tool": "voice_compare", "a": [0, 0.2], "b": [2, 3]}') == "It cannot be told: too short."


@pytest.mark.parametrize(
    ("call", "start"),
    [
        ('{"tool": "pitch", "start": 0.0, "end": 1.0}', "Median 200 Hz"),
        ('{"tool": "energy", "start": 0.1, "end": 1.0}', "Level -"),
        ('{"tool": "spectrum", "start": 0.0, "end": 1.0}', "Tilt -"),
    ],
)
def test_each_measure_is_one_line(call: str, start: str) -> None:
    found = tools(buzz(200.0)).run(call)
    assert found.startswith(start)
    assert "\n" not in found


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ("", "not one JSON object"),
        ("pitch(0, 1)", "not one JSON object"),
        ('{"tool": "segments"} please', "not one JSON object"),
        ('[{"tool": "segments"}]', "not one JSON object"),
        ('{"tool": "segments", "tool": "pitch"}', "not one JSON object"),
        ('{"tool": "pitch", "start": NaN, "end": 1}', "not one JSON object"),
        ('{"tool": "pitch", "start": 0, "end": 1e999}', "not one JSON object"),
        ('{"tool": "unlock_door", "start": 0, "end": 1}', "no such tool"),
        ('{"tool": ["pitch"], "start": 0, "end": 1}', "no such tool"),
        ('{"start": 0, "end": 1}', "no such tool"),
        ('{"tool": "pitch"}', "end and start"),
        ('{"tool": "pitch", "start": 0, "end": 1, "hz": 5}', "end and start"),
        ('{"tool": "segments", "start": 0}', "nothing beside"),
        ('{"tool": "pitch", "start": "0", "end": 1}', "numbers"),
        ('{"tool": "pitch", "start": false, "end": true}', "numbers"),
        ('{"tool": "pitch", "start": -1, "end": 1}', "run from 0 to 1.00"),
        ('{"tool": "pitch", "start": 0, "end": 1.5}', "run from 0 to 1.00"),
        ('{"tool": "pitch", "start": 0, "end": 99999999999999999999}', "not one JSON object"),
        ('{"tool": "pitch", "start": 1, "end": 0}', "before its end"),
        ('{"tool": "pitch", "start": 0.5, "end": 0.55}', "at least"),
        ('{"tool": "voice_compare", "a": [0, 1], "b": 1}', "pair of times"),
        ('{"tool": "voice_compare", "a": [0, 0.5, 1], "b": [0, 1]}', "pair of times"),
        ('{"tool": "voice_compare", "a": [0, 0.6], "b": [0.4, 1]}', "overlap"),
    ],
)
def test_every_fault_of_a_call_is_answered_so_that_the_model_can_correct_it(call: str, fault: str) -> None:
    with pytest.raises(CallError, match=fault):
        tools(buzz(200.0)).run(call)


def test_sound_that_is_not_finite_is_not_measured() -> None:
    """A NaN in one sample would become a verdict on all of it."""
    broken = buzz(200.0)
    broken[100] = np.nan
    with pytest.raises(CallError, match="not finite"):
        tools(broken).run('{"tool": "segments"}')


def test_every_call_that_the_model_is_shown_can_be_run() -> None:
    """A model that does as it is told must be understood."""
    heard = tools(tone(ONE, 1.5), tone(OTHER, 1.5))
    shown = [line[: line.index("}") + 1] for line in DESCRIPTION.splitlines()]
    assert len(shown) == 5
    for call in shown:
        assert heard.run(call)


def test_a_number_of_any_length_is_refused_not_computed() -> None:
    """Python reads numbers of thousands of digits slowly, or not at all."""
    assert read_object('{"a": ' + "9" * 5000 + "}") is None
    assert read_object('{"a": 12}') == {"a": 12}


def test_cuts_lie_inside_the_stretches_only() -> None:
    spans = (Span(0, 100), Span(200, 300))
    assert measures.cut_at(spans, (0, 50, 150, 300)) == (Span(0, 50), Span(50, 100), Span(200, 300))
