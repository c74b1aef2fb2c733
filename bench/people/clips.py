"""The recordings that the user's folder lists, and what each has been used for while this project was made.

The folder holds ``audio/manifest.tsv`` (see ``models.training.corpus``). A recording whose voice has chosen a threshold
or trained a network says less than one that has not, so each carries that with it, by the very rules that the training
commands divide the voices by.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bench.people.errors import PeopleError
from models.training import corpus, speaker_calibration
from models.training.corpus import Part

SPEAKER_THRESHOLDS = "speaker_thresholds"
"""The voice is of the half that the speaker ear's thresholds were fitted on."""
NETWORK_TRAINING = "network_training"
"""The voice trained the networks for nearness and damage."""
NETWORK_THRESHOLDS = "network_thresholds"
"""The voice chose their thresholds."""
Use = Literal["speaker_thresholds", "network_training", "network_thresholds"]

_COLUMNS = frozenset(
    {"path", "set", "speaker", "transcript", "condition", "duration_s", "source_repo", "license", "note"}
)


@dataclass(frozen=True, slots=True)
class Clip:
    """One line of the manifest.

    Attributes:
        path: where it lies.
        name: its path as the manifest has it.
        set_name: the set of recordings that it is of.
        speaker: who speaks, unique in the set, or what stands in its place.
        voice: speakers who are likely one person share it; they are never strangers to each other.
        transcript: what is said, where that is known.
        condition: how it was recorded, in the manifest's words.
        note: anything else that the manifest says.
        source: where it comes from.
        licence: under which terms.
        duration_s: its length.
        used_for: what its voice has been used for.
    """

    path: Path
    name: str
    set_name: str
    speaker: str
    voice: str
    transcript: str
    condition: str
    note: str
    source: str = field(repr=False)
    licence: str = field(repr=False)
    duration_s: float
    used_for: frozenset[Use]

    @property
    def stem(self) -> str:
        """Its name within the set, without the suffix."""
        return Path(self.name).with_suffix("").as_posix().removeprefix(f"{self.set_name}/")


def read_clips(folder: Path | None) -> list[Clip]:
    """Every recording of a folder, in the manifest's order.

    Args:
        folder: the user's; None: the one that ``VOICEGATE_DATA`` names.

    Raises:
        PeopleError: when there is no such folder, its manifest is no such table, or a recording is missing.
    """
    try:
        data = corpus.data_folder(folder)
    except FileNotFoundError as error:
        raise PeopleError(f"{error}; see docs/real-people.md for what it holds") from error
    audio = data / "audio"
    table = audio / "manifest.tsv"
    with table.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines, delimiter="\t")
        absent = _COLUMNS - set(reader.fieldnames or ())
        if absent:
            raise PeopleError(f"{table}: has no column {', '.join(sorted(absent))}")
        rows = list(reader)
    voices = corpus.same_voice_groups(audio / "alphanumeric" / "suspect_same_voice.tsv")
    clips = [
        Clip(
            recording.path, row["path"], row["set"], row["speaker"], voices.get(row["speaker"], row["speaker"]),
            row["transcript"], row["condition"], row["note"], row["source_repo"], row["license"],
            recording.duration_s, _used_for(row["set"], voices.get(row["speaker"], row["speaker"]), recording.part),
        )
        for row, recording in zip(rows, corpus.recordings(data), strict=True)
    ]  # fmt: skip
    gone = [clip.name for clip in clips if not clip.path.is_file()]
    if gone:
        raise PeopleError(f"{table}: {len(gone)} recordings are not there: {', '.join(gone[:5])}")
    return clips


def _used_for(set_name: str, voice: str, part: Part) -> frozenset[Use]:
    uses: set[Use] = set()
    if set_name in speaker_calibration.SETS and speaker_calibration.is_development(voice):
        uses.add("speaker_thresholds")
    if part is Part.TRAIN:
        uses.add("network_training")
    if part is Part.DEV:
        uses.add("network_thresholds")
    return frozenset(uses)
