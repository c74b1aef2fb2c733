"""Set the thresholds of a speaker ear by duration, on one half of the speakers, and measure it on the other.

``python -m models.training.speaker_calibration --data DIR [--speaker NAME] [--out FILE] [--card FILE]``

Recordings are trimmed to their voice, cut at random to each duration of the grid, and embedded exactly as in the
live loop. Targets are two recordings of one person, or two halves of one where there is only one; impostors are
other people of the same set, so that rooms and devices do not give them away. For every pair of durations the score
that a stated share of impostors reaches, and the score that a stated share of targets stays below, are taken over
the development speakers, each set weighing the same; a curve in the inverse roots of the two durations, fitted to
them, makes the grid.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gate.evidence import SpeakerVerdict
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import SpeakerEar
from models.speaker_calibration import SpeakerCalibration, Uncalibrated
from models.speaker_campplus import CampPlusEar
from models.speaker_speechbrain import SpeechBrainEar
from models.store import Store
from models.training import cards, corpus, speaker_changes
from models.word_edges import HOP_SAMPLES, active_frames, loudness_db

SETS = ("alphanumeric", "librispeech_cohort", "librispeech_test_other", "vctk", "cmu_arctic", "eagle")
GRID_S = (0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
FALSE_ACCEPT_TARGET = 0.01
FALSE_REJECT_TARGET = 0.01
CHANGE_TURNS = 120

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Piece:
    """One embedded cut.

    Attributes:
        set_name: the set of recordings.
        speaker: who, unique in the set.
        voice: speakers that may be one person share it; they are never impostors of each other.
        recording: pieces of one recording are never compared.
        grid_index: its duration's place in :data:`GRID_S`.
        development: whether its speaker is of the development half.
        vector: float32 ``(dimension,)``.
    """

    set_name: str
    speaker: str
    voice: str
    recording: str
    grid_index: int
    development: bool
    vector: npt.NDArray[np.float32]


def pieces(ear: SpeakerEar, folder: Path) -> Iterator[Piece]:
    """Embed every recording at every duration that it is long enough for."""
    random = np.random.default_rng(5)
    groups = _same_voice(folder / "audio" / "alphanumeric" / "suspect_same_voice.tsv")
    for recording in corpus.recordings(folder):
        if recording.set_name not in SETS:
            continue
        voice = groups.get(recording.speaker, recording.speaker)
        development = is_development(voice)
        audio = _voiced(recording.read())
        parts = np.array_split(audio, 2) if recording.set_name == "librispeech_cohort" else [audio]
        for number, part in enumerate(parts):
            for index, duration_s in enumerate(GRID_S):
                samples = round(duration_s * SAMPLE_RATE_HZ)
                if part.size < samples:
                    continue
                start = int(random.integers(0, part.size - samples + 1))
                embedding = ear.track(part[start : start + samples]).embed(Span(0, samples))
                if embedding.vector is not None:
                    name = f"{recording.path.name}#{number}"
                    yield Piece(
                        recording.set_name, recording.speaker, voice, f"{recording.speaker}/{name}", index, development,
                        embedding.vector,
                    )  # fmt: skip


def fit(data: Sequence[Piece]) -> dict[str, Any]:
    """Grids of ``owner_at`` and ``other_below`` from the development speakers, ready for the file."""
    cells = [(row, column) for row in range(len(GRID_S)) for column in range(row, len(GRID_S))]
    raw = {"owner_at": np.zeros(len(cells)), "other_below": np.zeros(len(cells))}
    for number, (row, column) in enumerate(cells):
        target, impostor = scores(data, row, column, development=True)
        raw["owner_at"][number] = _quantile(impostor, 1.0 - FALSE_ACCEPT_TARGET)
        raw["other_below"][number] = _quantile(target, FALSE_REJECT_TARGET)
    roots = np.array(GRID_S) ** -0.5
    short, long = roots[[row for row, _ in cells]], roots[[column for _, column in cells]]
    shorter, longer = np.maximum(roots[:, None], roots[None]), np.minimum(roots[:, None], roots[None])
    grids = {}
    for name, values in raw.items():
        weights = np.linalg.lstsq(_basis(short, long), values, rcond=None)[0]
        grids[name] = _basis(shorter, longer) @ weights
    grids["other_below"] = np.minimum(grids["other_below"], grids["owner_at"])
    return {
        "durations_s": list(GRID_S),
        "false_accept_target": FALSE_ACCEPT_TARGET,
        "false_reject_target": FALSE_REJECT_TARGET,
        **{name: np.round(grid, 4).tolist() for name, grid in grids.items()},
    }


def scores(
    data: Sequence[Piece], row: int, column: int, *, development: bool
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Target and impostor cosines by set, between pieces of two durations."""
    target: dict[str, FloatArray] = {}
    impostor: dict[str, FloatArray] = {}
    for set_name in SETS:
        one, two = (
            [p for p in data if p.set_name == set_name and p.grid_index == index and p.development is development]
            for index in (row, column)
        )
        if not one or not two:
            continue
        cosines = np.stack([p.vector for p in one]).astype(np.float64) @ np.stack([p.vector for p in two]).T
        same = np.array([[a.speaker == b.speaker and a.recording != b.recording for b in two] for a in one])
        other = np.array([[a.voice != b.voice for b in two] for a in one])
        target[set_name], impostor[set_name] = cosines[same], cosines[other]
    return target, impostor


def rates(data: Sequence[Piece], calibration: SpeakerCalibration, row: int, column: int) -> dict[str, float | int]:
    """What the thresholds do on the test speakers, all sets together."""
    target, impostor = scores(data, row, column, development=False)
    verdicts = {
        kind: [
            calibration.verdict(float(score), GRID_S[row], GRID_S[column])[0]
            for values in by_set.values()
            for score in values
        ]
        for kind, by_set in (("target", target), ("impostor", impostor))
    }
    out: dict[str, float | int] = {kind: len(found) for kind, found in verdicts.items()}
    for kind, found in verdicts.items():
        for verdict in SpeakerVerdict:
            out[f"{kind} {verdict.value}"] = sum(v is verdict for v in found) / max(1, len(found))
    return out


def _basis(short: FloatArray, long: FloatArray) -> FloatArray:
    """What a threshold is a linear function of, given the inverse roots of the shorter and the longer duration."""
    return np.stack([np.ones_like(short), short, short * short, long], axis=-1)


def _quantile(by_set: dict[str, FloatArray], share: float) -> float:
    """Quantile over all sets, each weighing the same but for those too small to have one."""
    large = [values for values in by_set.values() if values.size >= 20]
    values = np.concatenate(large)
    weights = np.concatenate([np.full(v.size, 1.0 / v.size) for v in large])
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(cumulative, share * cumulative[-1])])


def held_out_voices(folder: Path) -> speaker_changes.Voices:
    """Trimmed recordings of the test half, by set and voice."""
    groups = _same_voice(folder / "audio" / "alphanumeric" / "suspect_same_voice.tsv")
    out: speaker_changes.Voices = {}
    for recording in corpus.recordings(folder):
        voice = groups.get(recording.speaker, recording.speaker)
        if recording.set_name in SETS and not is_development(voice):
            out.setdefault(recording.set_name, {}).setdefault(voice, []).append(_voiced(recording.read()))
    return out


def is_development(voice: str) -> bool:
    """Whether the thresholds were fitted on a speaker's voice; they are measured on the others."""
    return hashlib.sha256(voice.encode()).digest()[0] % 2 == 0


def _voiced(audio: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    sounding = np.flatnonzero(active_frames(loudness_db(audio)))
    if sounding.size == 0:
        return audio
    return audio[int(sounding[0]) * HOP_SAMPLES : (int(sounding[-1]) + 1) * HOP_SAMPLES]


def _same_voice(path: Path) -> dict[str, str]:
    with path.open(encoding="utf-8", newline="") as lines:
        return {row["response_id"]: row["cluster"] for row in csv.DictReader(lines, delimiter="\t")}


def main(arguments: Sequence[str] | None = None) -> None:
    """Calibrate a speaker ear from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of recordings; default: VOICEGATE_DATA")
    parser.add_argument("--speaker", default="campplus", choices=["campplus", "spkrec-ecapa-voxceleb"])
    parser.add_argument("--out", type=Path, help="calibration file to write")
    parser.add_argument("--card", type=Path, help="model card whose measurements to replace")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    folder = corpus.data_folder(options.data)
    ear, sha256 = _load(options.speaker, options.threads)
    data = list(pieces(ear, folder))
    content = {"model": options.speaker, "sha256": sha256, **fit(data)}
    content["development_speakers"] = len({(p.set_name, p.voice) for p in data if p.development})
    content["test_speakers"] = len({(p.set_name, p.voice) for p in data if not p.development})
    if options.out:
        options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    lines = [
        *report(data, SpeakerCalibration.from_mapping(content)),
        "",
        *speaker_changes.report(ear, held_out_voices(folder), CHANGE_TURNS, seed=7),
    ]
    print("\n".join(lines))
    if options.card:
        cards.write_measured(options.card, lines)


def report(data: Sequence[Piece], calibration: SpeakerCalibration) -> list[str]:
    """A table of what the thresholds do on the test speakers, a line for each pair of durations."""
    lines = [
        "| reference s | span s | owner from | other below | owners: taken / unsure / refused | "
        "strangers: taken / unsure / refused |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row, column in ((1, 1), (3, 3), (5, 5), (7, 7), (8, 1), (8, 3), (8, 5), (8, 7)):
        found = rates(data, calibration, row, column)
        _, owner_at, other_below = calibration.verdict(0.0, GRID_S[row], GRID_S[column])
        cells = [str(GRID_S[row]), str(GRID_S[column]), f"{owner_at:.2f}", f"{other_below:.2f}"]
        for kind in ("target", "impostor"):
            shares = (f"{found[f'{kind} {verdict}']:.1%}" for verdict in ("owner", "unsure", "other"))
            cells.append(f"{' / '.join(shares)} of {found[kind]}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _load(name: str, threads: int) -> tuple[SpeakerEar, str]:
    """The ear without thresholds, and the hash of the weights that its calibration will belong to."""
    store = Store()
    if name == "campplus":
        directory, model = store.path("campplus-onnx"), store.model_id("campplus-onnx")
        ear = CampPlusEar(directory, model, Uncalibrated(), threads)
        return ear, ear.checkpoint_sha256
    model = store.model_id(name)
    return SpeechBrainEar(store.path(name), model, Uncalibrated(), threads), model.sha256


if __name__ == "__main__":
    main()
