"""Triplets of recordings that exist: ``voicegate bench mask MANIFEST --out FOLDER``.

Takes trials of the family ear in the condition ``original``, such as ``voicegate bench import`` makes of WDYL,
SLUE-SQA-5 or anybody's own recordings, aligns what is said in them, and writes a manifest of triplets. A trial needs,
beside what every trial has,

- ``transcript``: what is said in the recording;
- ``answer_texts``: the words of it that answer the question, as they are said (default: the first accepted answer);
- ``word_times``: ``[[text, start, end], …]`` in seconds, where the corpus gives them, with null for times that it does
  not know; without this field the words are aligned.

A babble mask is made of the other recordings of the manifest's split, where they have a transcript that does not say
the answer. A trial that cannot be masked (the answer is not said, a word was not found) is left out with the reason;
it never becomes a triplet that lacks a part.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.build.alignment import Aligner, Alignment, AlignmentError, GivenTimes, align_with_first, with_guesses
from bench.build.answers import heard
from bench.build.ear import MANIFEST, SEED, trial_suffix
from bench.build.fillers import BABBLE_VOICES, FillerError, Fillers, MaskKind
from bench.build.function_words import Tagger, function_words
from bench.build.masking import MASK_KINDS, MaskingError, seeded
from bench.build.phrases import bare
from bench.build.recordings import read_recording, write_recording
from bench.build.triplets import ORIGINAL, Recording, realise
from bench.trials import Expected, ManifestError, Trial, load_manifest, write_manifest
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio

AUDIO_SUFFIXES: Final = frozenset({".wav", ".flac", ".ogg", ".mp3"})
TELL_EVERY_S: Final = 10.0
ROUNDED_S: Final = 0.05
"""A corpus' last word may end this much after the recording: its times are rounded."""
_BABBLE_SPARE: Final = 3


@dataclass(frozen=True, slots=True)
class Materials:
    """What masking needs beside the recordings.

    Attributes:
        aligners: place words that have no times; the first that can.
        tagger: knows parts of speech.
        noise: recordings that stand in for white noise.
        music: recordings that stand in for music made here.
        voices: recordings that babble is made of, in place of the manifest's others. Nobody knows what is said in them:
            ``bench.build.masked_check`` hears whether it tells the answer.
    """

    aligners: Sequence[Aligner]
    tagger: Tagger
    noise: Sequence[Audio] = ()
    music: Sequence[Audio] = ()
    voices: Sequence[Audio] = ()


@dataclass(frozen=True, slots=True)
class Masked:
    """What came of a manifest.

    Attributes:
        manifest: the new one.
        triplets: how many it holds.
        left_out: why each other trial could not be masked, by its id.
    """

    manifest: Path
    triplets: int
    left_out: dict[str, str]


def mask_recordings(
    manifest: Path, out: Path, materials: Materials, *, kinds: Sequence[MaskKind] = MASK_KINDS, wide: bool = True,
    seed: int = SEED, split: str | None = None,
) -> Masked:  # fmt: skip
    """Make triplets of a manifest's originals.

    Args:
        manifest: with originals.
        out: folder for the triplets; made.
        materials: aligners, tagger, and real noise, music and voices where wanted.
        kinds: which masks.
        wide: whether to make degrading masks with the expanded window, too.
        seed: decides what is drawn.
        split: only that split.

    Raises:
        ManifestError: when the manifest is wrong, holds no original, none could be masked, or the new one would take
            its place.
        RecordingError: when a recording cannot be read.
    """
    originals = [
        trial
        for trial in load_manifest(manifest)
        if trial.family == "ear" and trial.condition == ORIGINAL and split in (None, trial.split)
    ]
    if not originals:
        raise ManifestError(f"{manifest}: holds no trial of the family ear in the condition {ORIGINAL}")
    path = out / MANIFEST
    if path.resolve() == manifest.resolve():
        raise ManifestError(f"{manifest}: the masked recordings need a folder of their own")
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
        name, why = next(iter(problems.items()))
        raise ManifestError(f"{manifest}: none of {len(originals)} recordings could be masked; {name}: {why}")
    write_manifest(path, made)
    return Masked(path, len(originals) - len(problems), problems)


def _triplet(
    trial: Trial, others: Sequence[Trial], folder: Path, out: Path, materials: Materials, kinds: Sequence[MaskKind],
    *, wide: bool, seed: int,
) -> list[Trial]:  # fmt: skip
    assert trial.audio is not None, "trials of the family ear are recordings"
    audio = read_recording(folder / trial.audio)
    recording, times_from = _recording(trial, audio, materials)
    voices: Sequence[Audio] = ()
    if "babble" in kinds:
        voices = materials.voices or _voices(trial, recording, others, folder, seed)
    triplet = trial.triplet or trial.id
    kept = {key: value for key, value in trial if key != "word_times"}
    kept["times_from"] = times_from
    # As corpora built here have them: samples, utterance by utterance.
    kept["words"] = [[[word.text, word.span.start_sample, word.span.end_sample] for word in recording.words]]
    trials: list[Trial] = []
    for made in realise(recording, Fillers(voices, materials.noise, materials.music), seed, kinds, wide=wide):
        name = f"{triplet}.{trial_suffix(made.condition)}"
        changed = {
            "id": name, "condition": made.condition, "audio": f"audio/{name}.flac", "triplet": triplet,
            "enrolment": None, "expected": trial.expected if made.answerable else Expected(action="pardon"),
            "mask": made.mask, "sha256": write_recording(out / "audio" / f"{name}.flac", made.samples, "flac"),
        }  # fmt: skip
        trials.append(Trial.model_validate(kept | changed))
    return trials


def _recording(trial: Trial, audio: Audio, materials: Materials) -> tuple[Recording, str]:
    """The recording with its words' times, and where those come from."""
    extra = trial.model_extra or {}
    transcript = extra.get("transcript")
    if not isinstance(transcript, str) or not transcript.strip():
        raise AlignmentError("the trial has no transcript")
    accepted = trial.expected.answer or ()
    answers = extra.get("answer_texts") or list(accepted[:1])
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise AlignmentError("the trial's answer_texts are no list of texts")
    aligned = _aligned(extra.get("word_times"), audio, transcript, materials.aligners)
    # A tagger takes words in capitals for names.
    tagged = function_words(transcript.lower() if transcript.isupper() else transcript, materials.tagger)
    recording = Recording(
        trial.id, audio, aligned.words, tuple(answers), (*answers, *accepted), tagged, aligned.error_s
    )  # fmt: skip
    return recording, aligned.name


def _aligned(given: Any, audio: Audio, transcript: str, aligners: Sequence[Aligner]) -> Alignment:
    if given is None:
        return align_with_first(aligners, audio, transcript)
    try:
        rows = [(str(text), start, end) for text, start, end in given if bare(str(text))]
        placed = {
            index: _inside(Span.from_seconds(float(start), float(end)), audio.size)
            for index, (_, start, end) in enumerate(rows)
            if start is not None and end is not None
        }
    except (TypeError, ValueError) as error:
        raise AlignmentError(f"word_times are no list of text, start and end in seconds: {error}") from error
    words: tuple[Word, ...] = with_guesses([text for text, _, _ in rows], placed, audio.size)
    return align_with_first([GivenTimes(words)], audio, transcript)


def _inside(span: Span, samples: int) -> Span:
    over = span.end_sample - samples
    if 0 < over <= ROUNDED_S * SAMPLE_RATE_HZ and span.start_sample < samples:
        return Span(span.start_sample, samples)
    return span


def _voices(trial: Trial, recording: Recording, others: Sequence[Trial], folder: Path, seed: int) -> list[Audio]:
    """Other recordings, known not to say the answer."""
    fit = {
        other.audio
        for other in others
        if other.audio is not None
        and other.audio != trial.audio
        and (transcript := str((other.model_extra or {}).get("transcript") or ""))
        and not heard(transcript.split(), recording.accepted)
    }
    named = sorted(fit)
    drawn = seeded(seed, trial.id, "babble").permutation(len(named))[: BABBLE_VOICES + _BABBLE_SPARE]
    return [read_recording(folder / named[index]) for index in drawn]


def recordings_in(folder: Path | None) -> list[Audio]:
    """Every recording of a folder, in the order of their names; none when there is no folder.

    Raises:
        ManifestError: when the folder holds none.
        RecordingError: when one cannot be read.
    """
    if folder is None:
        return []
    found = [read_recording(path) for path in sorted(folder.rglob("*")) if path.suffix.lower() in AUDIO_SUFFIXES]
    if not found:
        raise ManifestError(f"{folder}: holds no recording ({', '.join(sorted(AUDIO_SUFFIXES))})")
    return found
