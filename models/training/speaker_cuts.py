"""Cuts of real recordings, heard under a condition and embedded by a speaker ear. Each is embedded once and kept.

A recording is trimmed to its voice, cut at random to each duration of the grid, and embedded exactly as in the live
loop. The cuts are the same for every ear and under every condition. Where a set has one recording of a person, its two
halves stand for two.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import SpeakerEar
from models.training import corpus
from models.training.progress import steps
from models.training.speaker_scenes import Condition, Scenes, seed_of
from models.word_edges import HOP_SAMPLES, active_frames, loudness_db

SETS = ("alphanumeric", "librispeech_cohort", "librispeech_test_other", "vctk", "cmu_arctic", "eagle")
HALVED = "librispeech_cohort"
"""The set with one recording of each person."""
GRID_S = (0.4, 0.5, 0.8, 1.0, 1.2, 2.0, 3.0, 4.0, 5.0)
SYNTHETIC = "synthetic"
"""The name of a folder of synthetic voices, as a set."""
WHOLE_S = 6.0
"""Stands for a whole recording, up to that length: what an enrolment clip or a long first turn gives."""
NOMINAL_S = (*GRID_S, WHOLE_S)

_LONGEST_S = 12.0
_CUTS_VERSION = "1"
_MANY_VOICES = "multi-speaker"
_SELF_RECORDED = "alphanumeric"
"""The set whose notes say the speaker's sex and device."""

Audio = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Take:
    """One recording, or a half of one, before it is cut.

    Attributes:
        set_name: the set of recordings.
        speaker: who, unique in the set.
        voice: speakers that may be one person share it; they are never impostors of each other.
        recording: unique; cuts of one are never compared.
        source: the file.
        half: 0 or 1 of a halved recording, else None.
        development: whether thresholds are fitted on this voice; they are measured on the others.
        sex: as the speaker stated ("Female"), or empty.
        device: likewise ("Laptop").
    """

    set_name: str
    speaker: str
    voice: str
    recording: str
    source: corpus.Recording
    half: int | None
    development: bool
    sex: str = ""
    device: str = ""

    def read(self) -> Audio:
        """The voice without the silence around it, float32 ``(samples,)`` at 16 kHz, at most 12 s."""
        audio = voiced(self.source.read())
        if self.half is not None:
            audio = np.array_split(audio, 2)[self.half]
        return audio[: round(_LONGEST_S * SAMPLE_RATE_HZ)]


@dataclass(frozen=True, slots=True)
class Cut:
    """One embedded cut.

    Attributes:
        take: what it was cut from.
        condition: how it was heard.
        nominal_s: its place in :data:`NOMINAL_S`.
        duration_s: how long it is.
        vector: float32 ``(dimension,)``, unit norm.
    """

    take: Take
    condition: Condition
    nominal_s: float
    duration_s: float
    vector: npt.NDArray[np.float32]

    @property
    def set_name(self) -> str:
        """The set of its recording."""
        return self.take.set_name


def takes(folder: Path, sets: Sequence[str] = SETS) -> list[Take]:
    """All takes of some sets of the corpus, in the manifest's order."""
    audio = folder / "audio"
    groups = corpus.same_voice_groups(audio / "alphanumeric" / "suspect_same_voice.tsv")
    with (audio / "manifest.tsv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    out = []
    for row, source in zip(rows, corpus.recordings(folder), strict=True):
        if source.set_name not in sets or _MANY_VOICES in source.condition:
            continue
        voice = groups.get(source.speaker, source.speaker)
        sex, _, device = row["note"].partition("; ") if source.set_name == _SELF_RECORDED else ("", "", "")
        for half in (0, 1) if source.set_name == HALVED else (None,):
            name = row["path"] if half is None else f"{row['path']}#{half}"
            out.append(
                Take(source.set_name, source.speaker, voice, name, source, half, is_development(voice), sex, device)
            )
    return out


def synthetic_takes(folder: Path) -> list[Take]:
    """Takes of a folder with one folder of WAV files for each voice; none of them is of the development half.

    Raises:
        FileNotFoundError: when there are no such files.
    """
    paths = sorted(folder.glob("*/*.wav"))
    if not paths:
        raise FileNotFoundError(f"{folder} holds no VOICE/*.wav")
    out = []
    for path in paths:
        voice = path.parent.name
        source = corpus.Recording(path, SYNTHETIC, voice, "", 0.0, corpus.Part.TEST)
        out.append(Take(SYNTHETIC, voice, voice, f"{voice}/{path.name}", source, None, development=False))
    return out


def cuts(
    ear: SpeakerEar,
    key: str,
    chosen: Sequence[Take],
    folder: Path,
    conditions: Sequence[Condition],
    work: Path | None,
    nominal_s: Sequence[float] = NOMINAL_S,
) -> list[Cut]:
    """Embed takes under conditions, with progress; what was embedded before is read back.

    Args:
        ear: the ear.
        key: of its weights: name and hash. Embeddings of other weights lie apart.
        chosen: which takes.
        folder: the corpus, for its noises and rooms.
        conditions: how they are heard.
        work: where embeddings are kept; None keeps none.
        nominal_s: which durations.
    """
    scenes = {half: Scenes(folder, development=half) for half in (True, False)}
    out: list[Cut] = []
    jobs = [(take, condition) for condition in conditions for take in chosen]
    for take, condition in steps(jobs, f"embedding ({key.partition('-')[0]})", len(jobs)):
        file = work / key / _slug(condition) / f"{seed_of(_CUTS_VERSION, take.recording):014x}.npz" if work else None
        found = _kept(file, nominal_s)
        if found is None:
            found = _embed(ear, take, condition, scenes[take.development], nominal_s)
            _keep(file, found)
        out.extend(
            Cut(take, condition, nominal, duration_s, vector)
            for nominal, (duration_s, vector) in found.items()
            if np.isfinite(vector).all()
        )
    return out


def is_development(voice: str) -> bool:
    """Whether thresholds are fitted on a speaker's voice; they are measured on the others."""
    return hashlib.sha256(voice.encode()).digest()[0] % 2 == 0


def is_for_training(take: Take) -> bool:
    """Whether a network of this project may be trained on a take: of the corpus's training part, development half."""
    return take.development and take.source.part is corpus.Part.TRAIN


def voiced(audio: Audio) -> Audio:
    """A recording from where its sound begins to where it ends; as it is where nothing sounds."""
    sounding = np.flatnonzero(active_frames(loudness_db(audio)))
    if sounding.size == 0:
        return audio
    return audio[int(sounding[0]) * HOP_SAMPLES : (int(sounding[-1]) + 1) * HOP_SAMPLES]


_Found = dict[float, tuple[float, npt.NDArray[np.float32]]]
"""Duration and embedding by nominal duration; an embedding of NaN where the take is too short or the ear gave none."""


def _embed(ear: SpeakerEar, take: Take, condition: Condition, scenes: Scenes, nominal_s: Sequence[float]) -> _Found:
    clean = take.read()
    audio = scenes.render(clean, condition, take.voice, take.recording).astype(np.float32)
    track = ear.track(audio)
    found: _Found = {}
    for nominal, span in spans(take.recording, audio.size):
        if nominal in nominal_s:
            embedding = track.embed(span) if span.samples else None
            vector = None if embedding is None else embedding.vector
            found[nominal] = (
                span.duration_s, np.full(ear.dimension, np.nan, np.float32) if vector is None else vector
            )  # fmt: skip
    return found


def spans(recording: str, samples: int) -> Iterator[tuple[float, Span]]:
    """Where a take is cut, by nominal duration: the same for every ear and condition; empty where it is too short."""
    random = np.random.default_rng([5, seed_of(recording)])
    for duration_s in GRID_S:
        size = round(duration_s * SAMPLE_RATE_HZ)
        share = random.random()
        start = int(share * (samples - size + 1))
        yield duration_s, Span(start, start + size) if size <= samples else Span(0, 0)
    yield WHOLE_S, Span(0, min(samples, round(WHOLE_S * SAMPLE_RATE_HZ)))


def _kept(file: Path | None, nominal_s: Sequence[float]) -> _Found | None:
    if file is None or not file.is_file():
        return None
    with np.load(file) as content:
        found = {
            float(nominal): (float(duration_s), vector)
            for nominal, duration_s, vector in zip(
                content["nominal_s"], content["duration_s"], content["vectors"], strict=True
            )
        }
    return {nominal: found[nominal] for nominal in nominal_s} if set(nominal_s) <= set(found) else None


def _keep(file: Path | None, found: _Found) -> None:
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".part.npz")
    np.savez(
        partial,
        nominal_s=np.array(list(found)),
        duration_s=np.array([duration_s for duration_s, _ in found.values()]),
        vectors=np.stack([vector for _, vector in found.values()]),
    )
    partial.replace(file)


def _slug(condition: Condition) -> str:
    return condition.name.lower()
