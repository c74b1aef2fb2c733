"""Distilling the ECAPA ear: an interrupted training ends where an uninterrupted one does, on voices it may hear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from gate.span import SAMPLE_RATE_HZ
from models.training import sounds, speaker_ecapa, speaker_ecapa_data
from models.training.corpus import Part
from models.training.speaker_cuts import is_development
from models.training.speaker_ecapa import Recipe, ResumeError, build_network, loss, train, usable
from models.training.speaker_ecapa_data import CLIP_FRAMES, SPEEDS, Clips, Renderer, Source, at_speed, crop_frames

RATE = SAMPLE_RATE_HZ
RECIPE = Recipe(clips=16, steps=4, batch=4, channels=16)


@pytest.fixture(scope="module")
def teacher() -> np.ndarray:
    vectors = np.random.default_rng(0).normal(size=(10, 24)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def data() -> Clips:
    random = np.random.default_rng(1)
    return Clips(random.normal(size=(16, CLIP_FRAMES, 80)).astype(np.float16), random.integers(0, 10, 16))


@pytest.mark.slow
def test_interrupted_training_ends_with_the_weights_of_an_uninterrupted_one(
    tmp_path: Path, data: Clips, teacher: np.ndarray
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("speechbrain")
    whole = train(RECIPE, data, teacher, tmp_path / "whole.pt")
    train(RECIPE, data, teacher, tmp_path / "cut.pt", save_every=1, stop_at=2)
    resumed = train(RECIPE, data, teacher, tmp_path / "cut.pt")
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    with pytest.raises(ResumeError, match="another recipe"):
        train(Recipe(**{**vars_of(RECIPE), "seed": 1}), data, teacher, tmp_path / "cut.pt")


def vars_of(recipe: Recipe) -> dict[str, Any]:
    return {name: getattr(recipe, name) for name in recipe.__slots__}


def test_the_teachers_own_embeddings_are_the_best_answer() -> None:
    torch = pytest.importorskip("torch")
    teacher = torch.nn.functional.normalize(torch.randn(6, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    best = float(loss(5.0 * teacher, teacher))
    assert best < float(loss(teacher.roll(1, 0), teacher))
    assert best < float(loss(teacher + 0.3, teacher))


def test_clips_of_a_teacher_that_gave_no_embedding_are_never_a_target(data: Clips, teacher: np.ndarray) -> None:
    silent = teacher.copy()
    silent[data.target[0]] = 0.0
    found = usable(data, silent)
    assert 0 not in found
    assert len(found) == np.count_nonzero(data.target != data.target[0])


def test_batch_is_cut_not_padded_and_centred(data: Clips) -> None:
    random = np.random.default_rng(0)
    fbank, rows = speaker_ecapa._batch(data, np.array([3, 5]), 60, random)
    assert fbank.shape == (2, 60, 80)
    assert np.abs(fbank.mean(axis=1)).max() < 1e-5
    assert rows.tolist() == data.target[[3, 5]].tolist()


def test_short_clips_are_drawn_as_often_as_long_ones() -> None:
    drawn = np.array([crop_frames(np.random.default_rng(seed)) for seed in range(400)])
    assert drawn.min() >= 50
    assert drawn.max() <= CLIP_FRAMES
    assert 0.4 < np.mean(drawn < 141) < 0.6


@pytest.mark.slow
def test_export_serves_any_length_and_batch(tmp_path: Path) -> None:
    pytest.importorskip("speechbrain")
    assert speaker_ecapa.export(build_network(16, 24), 24, tmp_path / "x.onnx") < 1e-4


# --- data -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    root = tmp_path_factory.mktemp("distil")
    rows = ["path\tset\tspeaker\ttranscript\tcondition\tduration_s\tsample_rate\tsource_repo\tlicense\tnote"]
    random = np.random.default_rng(0)

    def add(path: str, name: str, speaker: str, seconds: float) -> None:
        (root / "audio" / path).parent.mkdir(parents=True, exist_ok=True)
        voice = 0.1 * sounds.coloured_noise(random, round(seconds * RATE), -6.0)
        soundfile.write(root / "audio" / path, np.clip(voice, -1.0, 1.0), RATE)
        rows.append(f"{path}\t{name}\t{speaker}\t\tnear\t{seconds}\t16000\t\t\t")

    for number in range(12):
        add(f"librispeech_cohort/{number}/a.flac", "librispeech_cohort", str(number), 2.0)
    add("picovoice_speech_to_intent/p/a.flac", "picovoice_speech_to_intent", "ps1", 2.0)
    add("noise/x/city.flac", "noise", "x", 3.0)
    (root / "audio" / "manifest.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    for number in range(2):
        (root / "voices" / f"v{number}").mkdir(parents=True)
        soundfile.write(root / "voices" / f"v{number}" / "a.wav", 0.1 * random.standard_normal(RATE), RATE)
    return Source(root, Part.TRAIN, root / "voices", seed=3)


def test_no_voice_is_trained_on_that_a_speaker_ear_is_measured_with(source: Source) -> None:
    found = speaker_ecapa_data.recordings(source)
    real = {recording.speaker for recording in found if recording.set_name == "librispeech_cohort"}
    assert real
    assert all(is_development(speaker) for speaker in real)
    assert {recording.speaker for recording in found if recording.set_name == "synthetic"} == {"v0", "v1"}


def test_faster_speech_is_shorter_and_slower_longer(source: Source) -> None:
    recording = speaker_ecapa_data.recordings(source)[0]
    sizes = [at_speed(recording, speed).size for speed in SPEEDS]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] / sizes[2] == pytest.approx(1 / SPEEDS[0], rel=1e-3)


def test_a_clip_depends_on_its_number_alone(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaker_ecapa_data, "_ROOMS", 1)
    one, two = Renderer(source), Renderer(source)
    two.clip(5)
    for index in range(3):
        fbank, target = one.clip(index)
        again, same = two.clip(index)
        assert fbank.shape == (CLIP_FRAMES, 80)
        assert np.isfinite(fbank).all()
        assert target == same
        assert np.array_equal(fbank, again)
        assert 0 <= target < len(speaker_ecapa_data.recordings(source)) * len(SPEEDS)
