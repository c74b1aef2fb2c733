"""Who can be enrolled: people of whom there is one recording to enrol from, and another to be known by.

A clip is enrolled as ``voicegate enroll`` does, with its demands on length, noise, distance and on there being one
voice. What it refuses is counted by reason: its wearer would be asked to record again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.people.clips import Clip, Use
from bench.people.draws import shuffled
from bench.people.pieces import joined, write

SETS: Final = ("alphanumeric", "librispeech_test_other", "vctk", "cmu_arctic", "eagle")
"""Sets with several recordings of one person each."""
ENROL_FROM_S: Final = 4.5
"""A shorter recording hardly holds the three seconds of speech that enrolment asks for."""
_JOIN_TO_S: Final = 7.0

Check = Callable[[Path], str | None]
"""Says why a clip cannot be enrolled from, or None when it can."""


@dataclass(frozen=True, slots=True)
class Wearer:
    """One person who can be enrolled.

    Attributes:
        set_name: the set that she is of.
        speaker: her name in it.
        voice: shared by speakers who are likely one person.
        enrolment: the clip that she is enrolled from.
        others: her other recordings.
        used_for: what her voice has been used for.
    """

    set_name: str
    speaker: str
    voice: str
    enrolment: Path
    others: tuple[Clip, ...]
    used_for: frozenset[Use]


@dataclass(frozen=True, slots=True)
class Enrolled:
    """What enrolling everybody came to.

    Attributes:
        wearers: those who can be enrolled, in the manifest's order.
        tried: how many clips were tried.
        refused: how many of them were refused, by reason.
        people: of how many people.
    """

    wearers: tuple[Wearer, ...]
    tried: int
    refused: Counter[str]
    people: int


def people_of(clips: Sequence[Clip]) -> dict[tuple[str, str], list[Clip]]:
    """Set and name of everybody with several recordings, with these."""
    people: dict[tuple[str, str], list[Clip]] = {}
    for clip in clips:
        if clip.set_name in SETS and "multi-speaker" not in clip.condition:
            people.setdefault((clip.set_name, clip.speaker), []).append(clip)
    return {who: theirs for who, theirs in people.items() if len(theirs) > 1}


def enrol_all(
    clips: Sequence[Clip], folder: Path, check: Check, seed: int, on_person: Callable[[], None] = lambda: None
) -> Enrolled:
    """Find a clip for each person of the sets.

    Args:
        clips: all recordings.
        folder: where clips that are joined of several are written.
        check: enrols a clip.
        seed: decides which clip of a person is tried first.
        on_person: called after each person.
    """
    wearers, refused, tried = [], Counter[str](), 0
    people = people_of(clips)
    for (set_name, speaker), theirs in people.items():
        for path, used in _candidates(theirs, folder, seed):
            tried += 1
            why = check(path)
            if why is None:
                others = tuple(clip for clip in theirs if clip not in used)
                first = theirs[0]
                wearers.append(Wearer(set_name, speaker, first.voice, path, others, first.used_for))
                break
            refused[why] += 1
        on_person()
    return Enrolled(tuple(wearers), tried, refused, len(people))


def _candidates(theirs: Sequence[Clip], folder: Path, seed: int) -> list[tuple[Path, list[Clip]]]:
    """What a person could be enrolled from: each long recording; where there is none, several short ones in a row."""
    order = shuffled(theirs, seed, "enrolment", theirs[0].set_name, theirs[0].speaker)
    long = [clip for clip in order if clip.duration_s >= ENROL_FROM_S]
    if long:
        return [(clip.path, [clip]) for clip in long]
    chosen: list[Clip] = []
    for clip in order[:-1]:  # one is left to be known by
        if sum(one.duration_s for one in chosen) < _JOIN_TO_S:
            chosen.append(clip)
    path = folder / f"enrolment.{theirs[0].set_name}.{theirs[0].speaker}.wav"
    write(path, joined(chosen))
    return [(path, chosen)]
