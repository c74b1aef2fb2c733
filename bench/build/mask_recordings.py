"""Triplets of recordings that exist: ``python -m bench.build.mask_recordings MANIFEST --out FOLDER``.

Takes trials of the family ear in the condition ``original``, such as the loaders of ``bench.loaders`` make of WDYL and
SLUE-SQA-5, aligns what is said in them, and writes a manifest of triplets. A trial needs, beside what every trial has,

- ``transcript``: what is said in the recording;
- ``answer_texts``: the words of it that answer the question, as they are said (default: the first accepted answer);
- ``words``: ``[[text, start, end], …]`` in seconds, where the corpus gives them; they are aligned where not.

A babble mask is made of the other recordings of the manifest's split. A trial that cannot be masked (the answer is not
said, a word was not found) is told on standard error and left out; it never becomes a triplet that lacks a part.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.build.alignment import Aligner, AlignmentError, FirstAligner, GivenTimes, SphinxAligner, WhisperAligner
from bench.build.answers import heard
from bench.build.ear import MANIFEST, SEED, trial_suffix, write_flac
from bench.build.fillers import BABBLE_VOICES, FillerError, Fillers, MaskKind
from bench.build.function_words import SpacyTagger, Tagger, function_words
from bench.build.masking import MASK_KINDS, MaskingError, seeded
from bench.build.phrases import bare
from bench.build.recordings import read_recording
from bench.build.triplets import ORIGINAL, Recording, realise
from bench.trials import Expected, ManifestError, Trial, load_manifest, write_manifest
from gate.evidence import Word
from gate.span import Span
from models.protocols import Audio

AUDIO_SUFFIXES: Final = frozenset({".wav", ".flac", ".ogg", ".mp3"})
TELL_EVERY_S: Final = 10.0
_BABBLE_SPARE = 3


@dataclass(frozen=True, slots=True)
class Materials:
    """What masking needs beside the recordings.

    Attributes:
        aligner: places words that have no times.
        tagger: knows parts of speech.
        noise: recordings that stand in for white noise.
        music: recordings that stand in for music made here.
    """

    aligner: Aligner
    tagger: Tagger
    noise: Sequence[Audio] = ()
    music: Sequence[Audio] = ()


def mask_recordings(
    manifest: Path, out: Path, materials: Materials, *, kinds: Sequence[MaskKind] = MASK_KINDS, wide: bool = True,
    seed: int = SEED, split: str | None = None,
) -> tuple[Path, dict[str, str]]:  # fmt: skip
    """Make triplets of a manifest's originals.

    Args:
        manifest: with originals.
        out: folder for the triplets; made.
        materials: aligner, tagger, and real noise and music where wanted.
        kinds: which masks.
        wide: whether to make degrading masks with the expanded window, too.
        seed: decides what is drawn.
        split: only that split.

    Returns:
        The new manifest, and why each trial that is missing from it could not be masked, by its id.

    Raises:
        ManifestError: when the manifest is wrong, holds no original, or none could be masked.
        RecordingError: when a recording cannot be read.
    """
    originals = [
        trial
        for trial in load_manifest(manifest)
        if trial.family == "ear" and trial.condition == ORIGINAL and split in (None, trial.split)
    ]
    if not originals:
        raise ManifestError(f"{manifest}: holds no trial of the family ear in the condition {ORIGINAL}")
    (out / "audio").mkdir(parents=True, exist_ok=True)
    made: list[Trial] = []
    problems: dict[str, str] = {}
    told_s = time.monotonic()
    for done, trial in enumerate(originals, 1):
        others = [other for other in originals if other.split == trial.split]
        try:
            made += _triplet(trial, others, manifest.parent, out, materials, kinds, wide=wide, seed=seed)
        except (AlignmentError, MaskingError, FillerError) as error:
            problems[trial.id] = str(error)
        if time.monotonic() - told_s >= TELL_EVERY_S:
            told_s = time.monotonic()
            print(f"masked {done} of {len(originals)} recordings", file=sys.stderr, flush=True)
    if not made:
        raise ManifestError(
            f"{manifest}: no recording could be masked, the first because {next(iter(problems.values()))}"
        )
    path = out / MANIFEST
    write_manifest(path, made)
    return path, problems


def _triplet(
    trial: Trial, others: Sequence[Trial], folder: Path, out: Path, materials: Materials, kinds: Sequence[MaskKind],
    *, wide: bool, seed: int,
) -> list[Trial]:  # fmt: skip
    assert trial.audio is not None, "trials of the family ear are recordings"
    audio = read_recording(folder / trial.audio)
    recording = _recording(trial, audio, materials)
    voices = _voices(trial, others, folder, seed) if "babble" in kinds else []
    fillers = Fillers(voices, materials.noise, materials.music)
    triplet = trial.triplet or trial.id
    kept = {key: value for key, value in (trial.model_extra or {}).items() if key != "words"}
    trials: list[Trial] = []
    for realisation in realise(recording, fillers, seed, kinds, wide=wide):
        name = f"{triplet}.{trial_suffix(realisation.condition)}"
        digest = write_flac(out / "audio" / f"{name}.flac", realisation)
        facts = kept | {
            "mask": realisation.mask,
            "sha256": digest,
            "words": [[word.text, word.span.start_sample, word.span.end_sample] for word in recording.words],
        }
        changed = {
            "id": name, "condition": realisation.condition, "audio": f"audio/{name}.flac", "triplet": triplet,
            "enrolment": None, "expected": trial.expected if realisation.answerable else Expected(action="pardon"),
        }  # fmt: skip
        trials.append(Trial.model_validate({**dict(trial), **facts, **changed}))
    return trials


def _recording(trial: Trial, audio: Audio, materials: Materials) -> Recording:
    extra = trial.model_extra or {}
    transcript = extra.get("transcript")
    if not isinstance(transcript, str) or not transcript.strip():
        raise AlignmentError("the trial has no transcript")
    answers = extra.get("answer_texts") or list((trial.expected.answer or ())[:1])
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise AlignmentError("the trial's answer_texts are no list of texts")
    words = _aligner(extra.get("words"), materials).align(audio, transcript)
    return Recording(trial.id, audio, words, tuple(answers), function_words(transcript, materials.tagger))


def _aligner(given: Any, materials: Materials) -> Aligner:
    if given is None:
        return materials.aligner
    try:
        words = [Word(str(text), Span.from_seconds(float(start), float(end)), 1.0) for text, start, end in given]
    except (TypeError, ValueError) as error:
        raise AlignmentError(f"the trial's words are no list of text, start and end in seconds: {error}") from error
    return GivenTimes([word for word in words if bare(word.text)])


def _voices(trial: Trial, others: Sequence[Trial], folder: Path, seed: int) -> list[Audio]:
    """Other recordings, in which no answer is said."""
    answers = trial.expected.answer or ()
    fit = [
        other.audio
        for other in others
        if other.audio is not None
        and other.audio != trial.audio
        and not heard(str((other.model_extra or {}).get("transcript", "")).split(), answers)
    ]
    named = sorted(set(fit))
    drawn = seeded(seed, trial.id, "babble").permutation(len(named))[: BABBLE_VOICES + _BABBLE_SPARE]
    return [read_recording(folder / named[index]) for index in drawn]


def recordings_in(folder: Path | None) -> list[Audio]:
    """Every recording of a folder, in the order of their names; none when there is no folder."""
    if folder is None:
        return []
    return [read_recording(path) for path in sorted(folder.rglob("*")) if path.suffix.lower() in AUDIO_SUFFIXES]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line.

    Returns:
        0, or 1 when some recording could not be masked.
    """
    from models.speech_whisper import load
    from models.store import Store

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--split", choices=["train", "dev", "test"])
    parser.add_argument("--masks", nargs="+", choices=MASK_KINDS, default=list(MASK_KINDS))
    parser.add_argument("--no-wide", action="store_true", help="only the window of the answer's own words")
    parser.add_argument("--noise", type=Path, metavar="FOLDER", help="real noise in place of white noise")
    parser.add_argument("--music", type=Path, metavar="FOLDER", help="real music in place of music made here")
    parser.add_argument("--seed", type=int, default=SEED)
    args = parser.parse_args(argv)
    aligner = FirstAligner(SphinxAligner(), WhisperAligner(load(Store(), threads=2)))
    materials = Materials(aligner, SpacyTagger(), recordings_in(args.noise), recordings_in(args.music))
    path, problems = mask_recordings(
        args.manifest, args.out, materials, kinds=args.masks, wide=not args.no_wide, seed=args.seed, split=args.split
    )
    for name, problem in problems.items():
        print(f"left out: {name}: {problem}", file=sys.stderr)
    print(path)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
