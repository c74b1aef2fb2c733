"""Do masks do what they are there for? ``voicegate bench mask-check MANIFEST``.

*Pardon?* has human listeners verify its triplets (section 4.1); here the speech ear listens. A degraded recording in
which it still hears the answer is labelled wrongly, and so is an invariant one in which it no longer does. Where it
does not hear the answer in the original either, it cannot tell: that is a name that it does not know, not a mask that
fails, and is counted as such.

What was heard goes to ``check.jsonl`` beside the manifest as it comes, with the recording's hash and the ear's, and a
second run goes on where the first stopped. ``manifest.checked.jsonl`` leaves out the triplets that failed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
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
        sha256: of the recording.
        ear: who heard it, with the hash of its weights.
        text: all that was heard.
    """

    id: str
    sha256: str
    ear: str
    text: str


@dataclass(frozen=True, slots=True)
class Check:
    """What hearing the recordings of a manifest says of their masks.

    Attributes:
        trials: those of the family ear, in the manifest's order.
        verdicts: on every masked recording, by its id.
    """

    trials: tuple[Trial, ...]
    verdicts: Mapping[str, Verdict]

    @property
    def failed(self) -> tuple[str, ...]:
        """The masked recordings that are labelled wrongly, in the manifest's order."""
        return tuple(trial.id for trial in self.trials if self.verdicts.get(trial.id) is Verdict.FAILS)

    def without_failures(self) -> list[Trial]:
        """The trials of triplets in which no mask failed."""
        wrong = set(self.failed)
        failed = {trial.triplet for trial in self.trials if trial.id in wrong}
        return [trial for trial in self.trials if trial.triplet not in failed]

    def table(self) -> str:
        """The verdicts by condition, as text."""
        counts: dict[str, Counter[Verdict]] = defaultdict(Counter)
        for trial in self.trials:
            if trial.id in self.verdicts:
                counts[trial.condition][self.verdicts[trial.id]] += 1
        rows = [f"{'condition':<34}" + "".join(f"{verdict:>9}" for verdict in Verdict)]
        for condition in sorted(counts, key=lambda name: (not name.startswith(INVARIANT), name)):
            rows.append(f"{condition:<34}" + "".join(f"{counts[condition][verdict]:>9}" for verdict in Verdict))
        return "\n".join(rows)


def check(manifest: Path, ear: SpeechEar, *, split: str | None = None) -> Check:
    """Hear every recording of a manifest that this ear has not heard as it is now.

    Args:
        manifest: of the family ear.
        ear: hears it.
        split: only that split.

    Raises:
        ManifestError: when the manifest is wrong, holds no trial of the family ear, or a triplet has no original with
            an answer.
        RecordingError: when a recording cannot be read.
    """
    trials = tuple(trial for trial in load_manifest(manifest) if trial.family == "ear" and split in (None, trial.split))
    if not trials:
        raise ManifestError(f"{manifest}: holds no trial of the family ear{f' on {split}' if split else ''}")
    answers = answers_by_triplet(trials)
    path = manifest.with_name(CHECKS)
    before = _before(path)
    texts: dict[str, str] = {}
    told_s = time.monotonic()
    with path.open("a", encoding="utf-8") as log:
        for done, trial in enumerate(trials, 1):
            known = before.get(trial.id)
            now = _unheard(trial, manifest.parent, ear)
            if known is None or (known.sha256, known.ear) != (now.sha256, now.ear):
                known = _listen(now, trial, manifest.parent, ear)
                log.write(json.dumps(asdict(known), ensure_ascii=False) + "\n")
                log.flush()
            texts[trial.id] = known.text
            if time.monotonic() - told_s >= TELL_EVERY_S:
                told_s = time.monotonic()
                print(f"heard {done} of {len(trials)} recordings", file=sys.stderr, flush=True)
    return Check(trials, verdicts(trials, texts, answers))


def write_checked(manifest: Path, found: Check) -> Path:
    """Write ``manifest.checked.jsonl`` beside a manifest, without the triplets that failed.

    Raises:
        ManifestError: when every one of them failed.
    """
    kept = found.without_failures()
    if not kept:
        raise ManifestError(f"{manifest}: in every triplet a mask failed")
    path = manifest.with_name(CHECKED)
    write_manifest(path, kept)
    return path


def verdicts(
    trials: Sequence[Trial], texts: Mapping[str, str], answers: Mapping[str, Sequence[str]]
) -> dict[str, Verdict]:
    """Judge masked recordings by what was heard in them and in their originals.

    Args:
        trials: of the family ear; whole triplets.
        texts: what was heard, by the trial's id.
        answers: what counts as the answer, by triplet.

    Returns:
        The verdict on every masked recording, by its id.
    """
    answered = {trial.id: heard(texts[trial.id].split(), answers[trial.triplet or ""]) for trial in trials}
    in_original = {trial.triplet: answered[trial.id] for trial in trials if trial.condition == ORIGINAL}
    return {
        trial.id: _verdict(trial, answered[trial.id], in_original[trial.triplet])
        for trial in trials
        if trial.condition != ORIGINAL
    }


def _verdict(trial: Trial, heard_masked: bool, heard_original: bool) -> Verdict:
    degraded = trial.condition.startswith(DEGRADING)
    if degraded and heard_masked:
        return Verdict.FAILS  # what is heard despite the mask was not masked, whatever was heard without it
    if not heard_original:
        return Verdict.UNKNOWN
    return Verdict.HOLDS if degraded or heard_masked else Verdict.FAILS


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
    return answers


def _unheard(trial: Trial, folder: Path, ear: SpeechEar) -> Hearing:
    """What is known of a recording before it is heard."""
    assert trial.audio is not None, "trials of the family ear are recordings"
    digest = hashlib.sha256((folder / trial.audio).read_bytes()).hexdigest()
    return Hearing(trial.id, digest, f"{ear.model.name}-{ear.model.sha256[:16]}", "")


def _listen(unheard: Hearing, trial: Trial, folder: Path, ear: SpeechEar) -> Hearing:
    assert trial.audio is not None, "trials of the family ear are recordings"
    words = ear.hear(read_recording(folder / trial.audio)).words
    return Hearing(unheard.id, unheard.sha256, unheard.ear, " ".join(word.text for word in words))


def _before(path: Path) -> dict[str, Hearing]:
    found: dict[str, Hearing] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_text(encoding="utf-8").split("\n"):
            with contextlib.suppress(ValueError, TypeError):  # a torn last line
                hearing = Hearing(**json.loads(line))
                found[hearing.id] = hearing
    return found
