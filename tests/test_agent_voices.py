"""The synthesiser, and the refusal to take its voice for a person's."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.enrol import ClipRefusedError, ClipReport, refuse_own_voice
from agent.voices import KEPT_SOUNDS, PEAK, KokoroVoice, VoiceError, is_own_voice, load_kokoro, own_voice_reference
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Embedding
from models.store import State, Store
from tests.fake_models import FakeEars, FixedSpeakerThresholds, Voice, tone

RATE = SAMPLE_RATE_HZ


class Engine:
    """Stands in for kokoro-onnx."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def create(self, text: str, style: np.ndarray, lang: str) -> tuple[np.ndarray, int]:
        self.calls.append((text, lang))
        if not text.strip():
            raise ValueError("Nothing to synthesize")
        return np.sin(np.arange(2400) / 10.0).astype(np.float64) * 3.0, 24_000


def voice(name: str = "af_heart") -> tuple[KokoroVoice, Engine]:
    engine = Engine()
    return KokoroVoice(engine, np.zeros((510, 1, 256), np.float32), name), engine


def test_speech_is_float32_at_a_safe_peak():
    made, _ = voice()
    sound = made.say("Pardon?")
    assert sound.samples.dtype == np.float32
    assert sound.rate_hz == 24_000
    assert np.abs(sound.samples).max() == pytest.approx(PEAK, rel=1e-3)


def test_a_sentence_that_returns_is_not_made_again_and_memory_is_bounded():
    made, engine = voice()
    first = made.say("Pardon?")
    assert made.say("Pardon?") is first
    assert len(engine.calls) == 1
    for index in range(KEPT_SOUNDS):
        made.say(f"answer {index}")
    made.say("Pardon?")
    assert len(engine.calls) == KEPT_SOUNDS + 2


@pytest.mark.parametrize(("name", "language"), [("af_heart", "en-us"), ("bm_george", "en-gb")])
def test_the_style_says_which_english_is_spoken(name: str, language: str):
    made, engine = voice(name)
    made.say("Paris.")
    assert engine.calls == [("Paris.", language)]


def test_what_cannot_be_spoken_is_a_voice_error():
    made, _ = voice()
    with pytest.raises(VoiceError, match="cannot say"):
        made.say(" ")


def test_without_the_package_the_cure_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name == "kokoro_onnx":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(VoiceError, match="pip install kokoro-onnx"):
        load_kokoro(Store(cache_dir=tmp_path, offline=True))


def test_without_the_model_the_cure_is_named(tmp_path: Path):
    pytest.importorskip("kokoro_onnx")
    with pytest.raises(VoiceError, match="voicegate models pull kokoro-82m kokoro-voices"):
        load_kokoro(Store(cache_dir=tmp_path, offline=True))


def clip(speaker_voice: Voice, seconds: float = 3.0) -> Embedding:
    audio = tone(speaker_voice, seconds)
    return FakeEars([OURS, PERSON]).ears().speaker.track(audio).embed(Span(0, audio.size))


OURS = Voice(500, "x", speaker=2)
PERSON = Voice(900, "y", speaker=1)


class ToneSynthesiser:
    name = "tone"

    def say(self, text: str) -> Any:
        from agent.playback import Sound

        return Sound(tone(OURS, 2.0), RATE)


def test_a_clip_of_our_own_voice_is_recognised_so_it_is_not_enrolled():
    ear = FakeEars([OURS, PERSON]).ears().speaker
    reference = own_voice_reference(ear, ToneSynthesiser())
    assert reference.vector is not None
    assert reference.span.duration_s > 6.0
    thresholds = FixedSpeakerThresholds()
    assert is_own_voice(clip(OURS), [reference], thresholds) == (True, pytest.approx(1.0))
    assert is_own_voice(clip(PERSON), [reference], thresholds) == (False, pytest.approx(0.0))


def test_a_clip_of_our_own_voice_is_not_enrolled_and_a_persons_is():
    own = [own_voice_reference(FakeEars([OURS, PERSON]).ears().speaker, ToneSynthesiser())]
    with pytest.raises(ClipRefusedError, match="the assistant's own voice"):
        refuse_own_voice(ClipReport(3.0, 30.0, 0.99, clip(OURS)), own, FixedSpeakerThresholds())
    refuse_own_voice(ClipReport(3.0, 30.0, 0.99, clip(PERSON)), own, FixedSpeakerThresholds())
    refuse_own_voice(ClipReport(3.0, 30.0, 0.99, clip(OURS)), [], FixedSpeakerThresholds())


def test_unknown_embeddings_match_nothing():
    unknown = Embedding(None, Span(0, RATE), "too short")
    assert is_own_voice(unknown, [clip(OURS)], FixedSpeakerThresholds()) == (False, None)
    assert is_own_voice(clip(OURS), [unknown], FixedSpeakerThresholds()) == (False, None)
    assert is_own_voice(clip(OURS), [], FixedSpeakerThresholds()) == (False, None)


@pytest.mark.slow
def test_kokoro_speaks_a_sentence_of_a_plausible_length():
    pytest.importorskip("kokoro_onnx", reason="kokoro-onnx is optional")
    store = Store(offline=True)
    for name in ("kokoro-82m", "kokoro-voices"):
        if store.state(name) is not State.READY:
            pytest.skip(f"model {name} is not in the cache")
    sound = load_kokoro(store).say("Pardon? Who should I text?")
    assert sound.rate_hz == 24_000
    assert 1.0 < sound.duration_s < 3.5
    assert np.abs(sound.samples).max() == pytest.approx(PEAK, rel=1e-3)
