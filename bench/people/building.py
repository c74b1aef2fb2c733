"""From the user's folder to a manifest that ``voicegate bench run`` plays."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import soundfile

from agent.assemble import Parts
from agent.enrol import ClipRefusedError, reference_from_files
from agent.settings import Settings
from bench.people.clips import read_clips
from bench.people.errors import PeopleError
from bench.people.kinds import require_all_known
from bench.people.making import AUDIO, Materials
from bench.people.pieces import far_rooms
from bench.people.studies import far, own_commands, strangers_commands, talk
from bench.people.verification import verification
from bench.people.wearers import Check, Enrolled, enrol_all, people_of
from bench.progress import StepProgress
from bench.provenance import write_json
from bench.trials import Trial, write_manifest
from models.store import Store
from models.training.corpus import data_folder

MANIFEST = "manifest.jsonl"
BUILT = "built.json"
SEED = 0
WEARERS = 2
_LENGTH = re.compile(r"[\d.]+ s of speech.*")


@dataclass(frozen=True, slots=True)
class Built:
    """What a build came to.

    Attributes:
        manifest: where it lies.
        trials: its trials.
        enrolled: what enrolling people came to.
        rooms: the measured rooms that far versions were made with.
        seconds: length of all that will be played, by study.
    """

    manifest: Path
    trials: tuple[Trial, ...]
    enrolled: Enrolled
    rooms: tuple[str, ...]
    seconds: dict[str, float]


def product_check() -> Check:
    """Enrolment as the product does it. The models are loaded for the first clip, which may raise ``ModelError``."""

    @cache
    def parts() -> Parts:
        from bench.contestants import load_contestant, make_setup

        return load_contestant("always-mute", make_setup(Settings(), Store())).parts

    def check(path: Path) -> str | None:
        try:
            asyncio.run(reference_from_files([path], parts(), Settings()))
        except ClipRefusedError as error:
            return _LENGTH.sub("too little speech", str(error).removeprefix(f"{path}: ")).split(":")[0]
        return None

    return check


def build(data: Path | None, out: Path, check: Check, *, seed: int = SEED, wearers: int = WEARERS) -> Built:
    """Write the manifest, and the recordings that are made for it.

    Args:
        data: the user's folder; None: the one that ``VOICEGATE_DATA`` names.
        out: folder of the manifest; recordings of the user's are named from there, and never copied.
        check: says whether a clip can be enrolled from.
        seed: of everything drawn.
        wearers: with how many enrolled wearers each conversation is played.

    Raises:
        PeopleError: when the folder cannot be used, or nobody in it can be enrolled.
    """
    clips = read_clips(data)
    require_all_known(clips)
    folder = data_folder(data)
    (out / AUDIO).mkdir(parents=True, exist_ok=True)
    for old in (out / AUDIO).glob("*.wav"):
        old.unlink()  # of an earlier build
    with StepProgress("people enrolled", len(people_of(clips))) as progress:
        enrolled = enrol_all(clips, out / AUDIO, check, seed, progress.add)
    if not enrolled.wearers:
        why = ", ".join(f"{reason} ({count})" for reason, count in enrolled.refused.most_common()) or "no such set"
        raise PeopleError(f"{folder}: nobody can be enrolled from its recordings: {why}")
    rooms = far_rooms(folder)
    materials = Materials(clips, enrolled.wearers, rooms, out, seed)
    trials: list[Trial] = []
    with StepProgress("studies", 5) as progress:
        for study in (talk(materials, wearers), strangers_commands(materials), own_commands(materials),
                      far(materials), verification(materials)):  # fmt: skip
            trials += study
            progress.add()
    manifest = out / MANIFEST
    write_manifest(manifest, trials)
    seconds = _seconds(trials, out)
    built = Built(manifest, tuple(trials), enrolled, tuple(room.name for room in rooms), seconds)
    write_json(out / BUILT, _as_json(built, seed, wearers))
    return built


def lines(built: Built) -> list[str]:
    """What a build came to, for people."""
    counts = Counter(str((trial.model_extra or {})["study"]) for trial in built.trials)
    out = [f"{counts[study]:>6} {study}, {seconds / 60:.1f} min" for study, seconds in built.seconds.items()]
    enrolled = built.enrolled
    refused = ", ".join(f"{why} ({count})" for why, count in enrolled.refused.most_common())
    out += [
        f"{len(built.trials)} trials, {sum(built.seconds.values()) / 60:.1f} min of audio",
        f"enrolled {len(enrolled.wearers)} of {enrolled.people} people, from {enrolled.tried} clips"
        + (f"; refused: {refused}" if refused else ""),
        f"measured rooms: {', '.join(built.rooms) or 'none, so far versions are left out'}",
        str(built.manifest),
    ]
    return out


def _seconds(trials: Sequence[Trial], folder: Path) -> dict[str, float]:
    lengths: dict[str, float] = {}
    found: dict[str, float] = {}
    for trial in trials:
        assert trial.audio is not None, "every trial here has a recording"
        if trial.audio not in lengths:
            lengths[trial.audio] = float(soundfile.info(folder / trial.audio).duration)
        study = str((trial.model_extra or {})["study"])
        found[study] = found.get(study, 0.0) + lengths[trial.audio]
    return found


def _as_json(built: Built, seed: int, wearers: int) -> dict[str, Any]:
    enrolled = built.enrolled
    return {
        "seed": seed,
        "wearers": wearers,
        "trials": len(built.trials),
        "seconds": {study: round(seconds, 1) for study, seconds in built.seconds.items()},
        "enrolment": {
            "people": enrolled.people, "enrolled": len(enrolled.wearers), "clips_tried": enrolled.tried,
            "refused": dict(enrolled.refused),
        },
        "rooms": list(built.rooms),
    }  # fmt: skip
