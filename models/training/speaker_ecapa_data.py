"""What the ECAPA student hears and what it is told: unclean clips, and the teacher's embedding of the clean recording.

A teacher needs no labels, and it tells apart whatever it is given: recordings are also played slower and faster, which
gives each speaker's voice several sizes. The student hears a stretch of the same recording in a room, in noise,
through a device, or as it is. None of its voices is among those on which speaker ears are measured.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ, Span
from models.fbank import frame_count, kaldi_fbank
from models.protocols import SpeakerEar
from models.training import corpus, devices, rooms, sounds
from models.training.corpus import Part
from models.training.progress import steps
from models.training.proximity import NEAR_M, measured_bank, room_bank
from models.training.speaker_cuts import SETS, is_development, synthetic_takes, voiced
from models.training.speaker_scenes import draw_entry, mixed, through_room

SPEEDS = (0.85, 0.92, 1.0, 1.08, 1.18)
CLIP_S = 4.0
CLIP_FRAMES = frame_count(round(CLIP_S * SAMPLE_RATE_HZ))
SHARD_CLIPS = 128

_ROOMS = 60
_FAR_M = (1.0, 5.0)
_TARGET_S = 8.0
_BINS = 80

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Source:
    """What clips are drawn from.

    Attributes:
        folder: the corpus.
        part: which voices, noises and rooms.
        voices: a folder of synthetic voices beside them, or None.
        seed: for the draw.
    """

    folder: Path
    part: Part
    voices: Path | None
    seed: int


@dataclass(frozen=True, slots=True)
class Clips:
    """Rendered clips, in order of their index.

    Attributes:
        fbank: float16 ``(clips, frames, 80)``, its mean not removed.
        target: int64 ``(clips,)``: each clip's row among the teacher's embeddings.
    """

    fbank: npt.NDArray[np.float16]
    target: npt.NDArray[np.int64]


def recordings(source: Source) -> list[corpus.Recording]:
    """The recordings of a source: of the corpus's part, those that no measurement of a speaker ear is made on."""
    groups = corpus.same_voice_groups(source.folder / "audio" / "alphanumeric" / "suspect_same_voice.tsv")
    real = [
        recording
        for recording in corpus.speech(source.folder, source.part)
        if recording.duration_s >= 1.0
        and (recording.set_name not in SETS or is_development(groups.get(recording.speaker, recording.speaker)))
    ]
    made = [take.source for take in synthetic_takes(source.voices)] if source.voices else []
    return real + made


def targets(ear: SpeakerEar, chosen: Sequence[corpus.Recording], file: Path) -> npt.NDArray[np.float32]:
    """The teacher's embedding of every recording at every speed, float32 ``(recordings * speeds, dimension)``.

    Args:
        ear: the teacher.
        chosen: the recordings.
        file: where the embeddings are kept; taken from there when they are of the same teacher and recordings.
    """
    names = [str(recording.path) for recording in chosen]
    key = hashlib.sha256("\n".join([ear.model.sha256, str(SPEEDS), *names]).encode()).hexdigest()
    if file.is_file():
        with np.load(file) as content:
            if str(content["key"]) == key:
                kept: npt.NDArray[np.float32] = content["vectors"]
                return kept
    vectors = []
    for recording in steps(chosen, "teacher", len(chosen)):
        for speed in SPEEDS:
            audio = at_speed(recording, speed)[: round(_TARGET_S * SAMPLE_RATE_HZ)]
            vector = ear.track(audio).embed(Span(0, audio.size)).vector
            vectors.append(np.zeros(ear.dimension, np.float32) if vector is None else vector)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".part.npz")
    np.savez(partial, key=np.array(key), vectors=np.stack(vectors))
    partial.replace(file)
    return np.stack(vectors)


def at_speed(recording: corpus.Recording, speed: float) -> npt.NDArray[np.float32]:
    """A recording without the silence around it, played that much faster: pitch and formants move with it."""
    import soxr

    audio = voiced(recording.read())
    if speed == 1.0:
        return audio
    return np.asarray(soxr.resample(audio, SAMPLE_RATE_HZ * speed, SAMPLE_RATE_HZ), dtype=np.float32)


def clips(source: Source, count: int, work: Path, workers: int) -> Clips:
    """Render clips in shards; those that lie in ``work`` already are read back.

    Args:
        source: what they are drawn from.
        count: how many, rounded up to whole shards.
        work: where shards are kept.
        workers: processes that render.
    """
    key = hashlib.sha256(repr((source, CLIP_S, SPEEDS, _ROOMS)).encode()).hexdigest()[:12]
    numbers = range(-(-count // SHARD_CLIPS))
    files = [work / f"clips-{source.part}-{key}" / f"{number:05d}.npz" for number in numbers]
    missing = [(source, number, file) for number, file in zip(numbers, files, strict=True) if not file.is_file()]
    if missing:
        files[0].parent.mkdir(parents=True, exist_ok=True)
        for _ in steps(_shards(missing, workers), f"rendering ({source.part})", len(missing)):
            pass
    parts = []
    for file in files:
        with np.load(file) as content:
            parts.append((content["fbank"], content["target"]))
    return Clips(np.concatenate([fbank for fbank, _ in parts]), np.concatenate([target for _, target in parts]))


def _shards(missing: Sequence[tuple[Source, int, Path]], workers: int) -> Iterator[None]:
    if workers <= 1:
        yield from map(_write_shard, missing)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_write_shard, missing)


def _write_shard(job: tuple[Source, int, Path]) -> None:
    source, number, file = job
    renderer = _renderer(source)
    made = [renderer.clip(number * SHARD_CLIPS + index) for index in range(SHARD_CLIPS)]
    partial = file.with_suffix(".part.npz")
    np.savez(
        partial,
        fbank=np.stack([fbank for fbank, _ in made]).astype(np.float16),
        target=np.array([target for _, target in made]),
    )
    partial.replace(file)


@lru_cache(maxsize=2)
def _renderer(source: Source) -> Renderer:
    return Renderer(source)


class Renderer:
    """Draws clips. The same source and index always give the same clip."""

    def __init__(self, source: Source) -> None:
        self._seed = source.seed
        self._recordings = recordings(source)
        by_voice: dict[tuple[str, str], list[int]] = {}
        for index, recording in enumerate(self._recordings):
            by_voice.setdefault((recording.set_name, recording.speaker), []).append(index)
        self._voices = list(by_voice.values())
        # The corpus keeps no rooms or noises for choosing settings by; there the training ones serve.
        self._noises = [recording.read() for recording in corpus.noises(source.folder, Part.TRAIN)]
        self._music = [recording.read() for recording in corpus.music(source.folder, Part.TRAIN)]
        self._bank = room_bank(_ROOMS, source.seed, rooms.Method.HYBRID)
        self._measured = measured_bank(source.folder, Part.TRAIN)

    def clip(self, index: int) -> tuple[npt.NDArray[np.float32], int]:
        """Clip number ``index``: its filter bank, float32 ``(frames, 80)``, and its target's row."""
        rng = np.random.default_rng([self._seed, index])
        mine = self._voices[int(rng.integers(len(self._voices)))]
        which, speed = mine[int(rng.integers(len(mine)))], int(rng.integers(len(SPEEDS)))
        samples = round(CLIP_S * SAMPLE_RATE_HZ)
        speech = sounds.excerpt(rng, [at_speed(self._recordings[which], SPEEDS[speed])], samples)
        heard = speech if rng.random() < 0.15 else self._heard(rng, speech)
        fbank = kaldi_fbank(heard.astype(np.float32), _BINS)
        return fbank, which * len(SPEEDS) + speed

    def _heard(self, rng: np.random.Generator, x: FloatArray) -> FloatArray:
        draw = rng.random()
        if draw < 0.35:
            x = through_room(x, draw_entry(self._bank, NEAR_M, rng))
        elif draw < 0.55:
            x = through_room(x, draw_entry(self._bank, _FAR_M, rng))
        elif draw < 0.65 and self._measured:
            taps, rate_hz = self._measured[int(rng.integers(len(self._measured)))]
            x = rooms.convolve(x, rooms.measured_response(taps, rate_hz, drr_db=rng.uniform(-6.0, 12.0)))
        if rng.random() < 0.7:
            x = mixed(x, self._background(rng, len(x)), rng.uniform(0.0, 25.0))
        if rng.random() < 0.6:
            return devices.through_device(x, rng)
        return devices.to_level(x, rng.uniform(-38.0, -12.0))

    def _background(self, rng: np.random.Generator, samples: int) -> FloatArray:
        draw = rng.random()
        if draw < 0.5 and self._noises:
            return sounds.excerpt(rng, self._noises, samples)
        if draw < 0.65:
            return sounds.babble(rng, samples, self._somebody, int(rng.integers(2, 6)))
        if draw < 0.75:
            return sounds.excerpt(rng, self._music, samples) if self._music else sounds.played_music(rng, samples)
        return sounds.room_tone(rng, samples)

    def _somebody(self, rng: np.random.Generator, samples: int) -> FloatArray:
        mine = self._voices[int(rng.integers(len(self._voices)))]
        return sounds.excerpt(rng, [self._recordings[mine[int(rng.integers(len(mine)))]].read()], samples)


def crop_frames(rng: np.random.Generator, shortest_s: float = 0.5) -> int:
    """How long the clips of one batch are, in frames: log-uniform, so that short spans are learnt as well as long."""
    return round(math.exp(rng.uniform(math.log(shortest_s * 100.0), math.log(CLIP_FRAMES))))
