"""How well the ears hear real recordings: ``python -m bench.ear_figures --data DIR``.

Proximity and damage are measured by the commands that train them (``models/cards``). Here stand speech and speaker,
whose networks are taken as published:

- *words*: the gate's use of Whisper against faster-whisper's own ``transcribe`` as it comes (beam of five), with the
  same weights, on every English sentence of the recordings that has a transcript;
- *words from nothing*: both again, on noise and music without a word in them;
- *voices*: the equal error rate of two cuts of the same length by people on their own phones and laptops.

``DIR`` holds ``audio/manifest.tsv`` (see ``models.training.corpus``). About ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.build.recordings import read_recording
from bench.stats import cluster_bootstrap, wilson
from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio, SpeechEar
from models.speaker_calibration import Uncalibrated
from models.speaker_campplus import CampPlusEar
from models.speech_whisper import load as load_speech
from models.store import Store
from models.training import corpus, speaker_calibration

SENTENCES = ("commands", "alphanumeric", "public_domain")
"""Sets with transcripts of more than single words."""
PIECE_S = 2.0
"""Length of the pieces of noise and music: that of a short turn."""
EER_SET = "alphanumeric"
EER_DURATIONS_S = (1.0, 2.0, 4.0)
SEED = 5

Recogniser = Callable[[Audio], str]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A recording of which the words are known."""

    path: Path
    set_name: str
    transcript: str


def sentences(folder: Path) -> Iterator[Sentence]:
    """The English sentences of the manifest."""
    with (folder / "audio" / "manifest.tsv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            if row["set"] in SENTENCES and row["transcript"] and "French" not in row["condition"]:
                yield Sentence(folder / "audio" / row["path"], row["set"], row["transcript"])


def words_of(text: str) -> list[str]:
    """Words as they are compared: no case, no punctuation, each digit a word ("2:30 p.m." and "230pm" are the same)."""
    plain = re.sub(r"[.'\u2019]", "", unicodedata.normalize("NFKC", text).casefold())
    return re.findall(r"\d|[^\W\d_]+", plain)


def word_errors(truth: Sequence[str], heard: Sequence[str]) -> int:
    """Insertions, deletions and substitutions of the cheapest alignment (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for number, word in enumerate(truth, 1):
        diagonal, row[0] = row[0], number
        for index, other in enumerate(heard, 1):
            diagonal, row[index] = row[index], min(diagonal + (word != other), row[index] + 1, row[index - 1] + 1)
    return row[-1]


def equal_error_rate(targets: npt.NDArray[np.float64], impostors: npt.NDArray[np.float64]) -> float:
    """The rate at which as large a share of targets is refused as of impostors accepted.

    Args:
        targets: scores of pairs by one person, at least one.
        impostors: scores of pairs by two people, at least one.
    """
    thresholds = np.unique(np.concatenate([targets, impostors]))
    refused = np.searchsorted(np.sort(targets), thresholds, side="left") / len(targets)
    accepted = 1.0 - np.searchsorted(np.sort(impostors), thresholds, side="left") / len(impostors)
    best = int(np.argmin(np.abs(refused - accepted)))
    return float((refused[best] + accepted[best]) / 2)


def the_gates(ear: SpeechEar) -> Recogniser:
    """The gate's ear as text from audio."""
    return lambda audio: " ".join(word.text for word in ear.hear(audio).words)


def plain_whisper(directory: Path, threads: int) -> Recogniser:
    """faster-whisper's ``transcribe`` with its defaults, told only the language."""
    from faster_whisper import WhisperModel

    model = WhisperModel(str(directory), device="cpu", compute_type="int8", cpu_threads=threads)
    return lambda audio: " ".join(part.text for part in model.transcribe(audio, language="en")[0])


def report_words(recognisers: dict[str, Recogniser], folder: Path) -> list[str]:
    """Word error rates by set, with bootstrap intervals over recordings."""
    known = list(sentences(folder))
    counts: dict[str, list[tuple[int, int]]] = {name: [] for name in recognisers}
    for number, sentence in enumerate(known, 1):
        audio, truth = read_recording(sentence.path), words_of(sentence.transcript)
        for name, recognise in recognisers.items():
            counts[name].append((word_errors(truth, words_of(recognise(audio))), len(truth)))
        _progress("sentences", number, len(known))
    lines = ["| sentences | recordings | words |" + "".join(f" {name} |" for name in recognisers)]
    lines.append("| --- | ---: | ---: |" + " --- |" * len(recognisers))
    for set_name in (*SENTENCES, "all"):
        chosen = [index for index, sentence in enumerate(known) if set_name in (sentence.set_name, "all")]
        if not chosen:
            continue
        total = sum(counts[next(iter(recognisers))][index][1] for index in chosen)
        cells = [set_name, str(len(chosen)), str(total)]
        for found in counts.values():
            sums = np.array([found[index] for index in chosen], np.float64)
            errors = sums[:, 0].sum()
            interval = cluster_bootstrap(sums, lambda drawn: drawn[:, 0] / drawn[:, 1], seed=SEED)
            assert interval is not None, "there are words"
            cells.append(f"{errors / total:.1%} ({interval[0]:.1%} to {interval[1]:.1%})")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def report_nothing(recognisers: dict[str, Recogniser], folder: Path) -> list[str]:
    """How many pieces of noise and music come out as words."""
    kinds: dict[str, list[Audio]] = {"noise": [], "café, with people talking": [], "music": []}
    for recording in corpus.recordings(folder):
        if recording.set_name in ("noise", "music"):
            kind = recording.set_name if "babble" not in recording.path.parts else "café, with people talking"
            audio, size = recording.read(), round(PIECE_S * SAMPLE_RATE_HZ)
            kinds[kind] += [audio[start : start + size] for start in range(0, len(audio) - size + 1, size)]
    lines = [f"| {PIECE_S:.0f} s of | pieces |" + "".join(f" {name}: text from |" for name in recognisers)]
    lines.append("| --- | ---: |" + " --- |" * len(recognisers))
    for kind, pieces in kinds.items():
        cells = [kind, str(len(pieces))]
        for recognise in recognisers.values():
            texts = sum(bool(words_of(recognise(piece))) for piece in pieces)
            low, high = wilson(texts, len(pieces))
            cells.append(f"{texts} ({low:.0%} to {high:.0%})")
        lines.append(f"| {' | '.join(cells)} |")
        _progress("kinds of noise", len(lines) - 2, len(kinds))
    return lines


def report_voices(folder: Path, store: Store, threads: int) -> list[str]:
    """Equal error rates by duration, over all speakers of the set."""
    ear = CampPlusEar(store.path("campplus-onnx"), store.model_id("campplus-onnx"), Uncalibrated(), threads)
    data = []
    for piece in speaker_calibration.pieces(ear, folder):
        if piece.set_name == EER_SET:
            data.append(piece)
    lines = ["| both cuts | EER | pairs of one person | pairs of two |", "| --- | ---: | ---: | ---: |"]
    for duration_s in EER_DURATIONS_S:
        at = speaker_calibration.GRID_S.index(duration_s)
        halves = [speaker_calibration.scores(data, at, at, development=half) for half in (True, False)]
        targets, impostors = (
            np.concatenate([half[kind][EER_SET] for half in halves if EER_SET in half[kind]]) for kind in (0, 1)
        )
        rate = equal_error_rate(targets, impostors)
        lines.append(f"| {duration_s:.0f} s | {rate:.1%} | {len(targets) // 2} | {len(impostors) // 2} |")
    return lines


def _progress(what: str, done: int, of: int) -> None:
    if done % 20 == 0 or done == of:
        print(f"{done} of {of} {what}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print, as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.ear_figures", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, help="folder of recordings; default: VOICEGATE_DATA")
    parser.add_argument("--threads", type=int, default=2, help="threads of each model (default 2)")
    parser.add_argument("--only", choices=["words", "nothing", "voices"], help="one part of it")
    args = parser.parse_args(argv)
    try:
        folder = corpus.data_folder(args.data)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    store = Store()
    if args.only != "voices":
        recognisers = {
            "the gate": the_gates(load_speech(store, args.threads)),
            "faster-whisper": plain_whisper(store.path("whisper-base"), args.threads),
        }
        for part, report in (("words", report_words), ("nothing", report_nothing)):
            if args.only in (None, part):
                print("\n".join(report(recognisers, folder)) + "\n", flush=True)
    if args.only in (None, "voices"):
        print("\n".join(report_voices(folder, store, args.threads)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
