"""Do masks do what they are there for? ``python -m bench.build.masked_check MANIFEST``.

*Pardon?* has human listeners verify its triplets (section 4.1); here the speech ear listens. A degraded recording in
which it still hears the answer is labelled wrongly, and so is an invariant one in which it no longer does. Where it
does not hear the answer in the original either, it cannot tell: that is a name that it does not know, not a mask that
fails, and is counted as such.

Every recording is heard once; verdicts go to ``check.jsonl`` beside the manifest as they come, and a second run goes on
where the first stopped. ``--write`` writes ``manifest.checked.jsonl`` without the triplets that failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from bench.build.answers import heard
from bench.build.recordings import read_recording
from bench.build.triplets import DEGRADING, INVARIANT, ORIGINAL
from bench.trials import ManifestError, Trial, load_manifest, write_manifest
from models.protocols import SpeechEar

CHECKS: Final = "check.jsonl"
CHECKED: Final = "manifest.checked.jsonl"
TELL_EVERY_S: Final = 10.0


class Verdict(StrEnum):
    """What hearing a masked recording says of its label."""

    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"
    """The answer was not heard in the original."""


@dataclass(frozen=True, slots=True)
class Hearing:
    """What was heard in one recording.

    Attributes:
        id: the trial's.
        sha256: of the recording, where the manifest tells it.
        answer: whether the answer was heard.
        text: all that was heard.
    """

    id: str
    sha256: str | None
    answer: bool
    text: str


def listen(trial: Trial, answers: Sequence[str], folder: Path, ear: SpeechEar) -> Hearing:
    """Hear one recording.

    Args:
        trial: whose recording.
        answers: what counts as the answer.
        folder: the manifest's.
        ear: hears it.

    Raises:
        RecordingError: when it cannot be read.
    """
    assert trial.audio is not None, "trials of the family ear are recordings"
    words = [word.text for word in ear.hear(read_recording(folder / trial.audio)).words]
    return Hearing(trial.id, _sha256(trial), heard(words, answers), " ".join(words))


def verdicts(trials: Sequence[Trial], hearings: Mapping[str, Hearing]) -> dict[str, Verdict]:
    """Judge masked recordings by what was heard in them and in their originals.

    Args:
        trials: of the family ear; whole triplets.
        hearings: by the trial's id.

    Returns:
        The verdict on every masked recording that was heard, by its id.
    """
    in_original = {
        trial.triplet: hearings[trial.id].answer
        for trial in trials
        if trial.condition == ORIGINAL and trial.id in hearings
    }
    return {
        trial.id: _verdict(trial, hearings[trial.id].answer, in_original.get(trial.triplet, False))
        for trial in trials
        if trial.id in hearings and trial.condition != ORIGINAL
    }


def _verdict(trial: Trial, heard_masked: bool, heard_original: bool) -> Verdict:
    degraded = trial.condition.startswith(DEGRADING)
    if degraded and heard_masked:
        return Verdict.FAILS  # what is heard despite the mask was not masked, whatever was heard without it
    if not heard_original:
        return Verdict.UNKNOWN
    return Verdict.HOLDS if degraded or heard_masked else Verdict.FAILS


def without_failures(trials: Sequence[Trial], judged: Mapping[str, Verdict]) -> list[Trial]:
    """The trials of triplets in which no mask failed."""
    failed = {trial.triplet for trial in trials if judged.get(trial.id) is Verdict.FAILS}
    return [trial for trial in trials if trial.triplet not in failed]


def answers_by_triplet(trials: Iterable[Trial]) -> dict[str, tuple[str, ...]]:
    """What counts as the answer, from the originals: degraded trials do not say it.

    Raises:
        ManifestError: when a triplet has no original, or its original has no answer.
    """
    listed = list(trials)
    answers = {
        trial.triplet: trial.expected.answer
        for trial in listed
        if trial.condition == ORIGINAL and trial.triplet and trial.expected.answer
    }
    for trial in listed:
        if trial.triplet not in answers:
            raise ManifestError(f"{trial.id}: its triplet has no original with an answer")
    return {name: answer for name, answer in answers.items() if name is not None and answer is not None}


def _sha256(trial: Trial) -> str | None:
    return (trial.model_extra or {}).get("sha256")


def _before(path: Path) -> dict[str, Hearing]:
    found: dict[str, Hearing] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_text(encoding="utf-8").split("\n"):
            with contextlib.suppress(ValueError, TypeError):  # a torn last line
                hearing = Hearing(**json.loads(line))
                found[hearing.id] = hearing
    return found


def check(manifest: Path, ear: SpeechEar, *, split: str | None = None) -> tuple[list[Trial], dict[str, Verdict]]:
    """Hear every recording of a manifest that was not heard before.

    Args:
        manifest: of the family ear.
        ear: hears it.
        split: only that split.

    Returns:
        The trials, and the verdicts by trial.

    Raises:
        ManifestError: when the manifest is wrong.
        RecordingError: when a recording cannot be read.
    """
    trials = [trial for trial in load_manifest(manifest) if trial.family == "ear" and split in (None, trial.split)]
    answers = answers_by_triplet(trials)
    path = manifest.with_name(CHECKS)
    hearings = _before(path)
    todo = [t for t in trials if t.id not in hearings or hearings[t.id].sha256 != _sha256(t)]
    told_s = time.monotonic()
    with path.open("a", encoding="utf-8") as log:
        for done, trial in enumerate(todo, 1):
            assert trial.triplet is not None, "answers_by_triplet has looked"
            hearing = listen(trial, answers[trial.triplet], manifest.parent, ear)
            hearings[trial.id] = hearing
            line = {"id": hearing.id, "sha256": hearing.sha256, "answer": hearing.answer, "text": hearing.text}
            log.write(json.dumps(line, ensure_ascii=False) + "\n")
            log.flush()
            if time.monotonic() - told_s >= TELL_EVERY_S or done == len(todo):
                told_s = time.monotonic()
                print(f"heard {done} of {len(todo)} recordings", file=sys.stderr, flush=True)
    return trials, verdicts(trials, hearings)


def table(trials: Sequence[Trial], judged: Mapping[str, Verdict]) -> str:
    """The verdicts by condition, as text."""
    counts: dict[str, Counter[Verdict]] = defaultdict(Counter)
    for trial in trials:
        if trial.id in judged:
            counts[trial.condition][judged[trial.id]] += 1
    rows = [f"{'condition':<34}{'holds':>7}{'fails':>7}{'unknown':>9}"]
    for condition in sorted(counts, key=lambda name: (not name.startswith(INVARIANT), name)):
        found = counts[condition]
        rows.append(f"{condition:<34}{found[Verdict.HOLDS]:>7}{found[Verdict.FAILS]:>7}{found[Verdict.UNKNOWN]:>9}")
    return "\n".join(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line.

    Returns:
        0 when no mask fails, 1 when one does.
    """
    from models.speech_whisper import load
    from models.store import Store

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--split", choices=["train", "dev", "test"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true", help=f"write {CHECKED} without the triplets that failed")
    args = parser.parse_args(argv)
    trials, judged = check(args.manifest, load(Store(), args.threads), split=args.split)
    print(table(trials, judged))
    failed = sorted(name for name, verdict in judged.items() if verdict is Verdict.FAILS)
    for name in failed:
        print(f"fails: {name}")
    if args.write:
        write_manifest(args.manifest.with_name(CHECKED), without_failures(trials, judged))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
