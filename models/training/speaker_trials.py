"""Trials of a speaker ear: a reference against a cut, by one person or by two of the same set of recordings.

Strangers are compared within one set, so that a different microphone does not give them away, and in the same room,
noise and device where both sides are unclean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from models.training.speaker_cuts import Cut, Take
from models.training.speaker_measures import BoolArray, FloatArray, IntArray, Scored
from models.training.speaker_scenes import Condition, scene_of

FULL_WEIGHT_VOICES = 20
"""From so many voices on, a set weighs as much as any other; one of two voices says little about strangers."""

_MOST_A_GROUP = 1_500
_PAIRS_A_SPEAKER = 3


@dataclass(frozen=True, slots=True)
class Reference:
    """What an owner is known by.

    Attributes:
        take: of its first clip.
        recordings: of all its clips; no trial compares one with itself.
        condition: how they were heard.
        nominal_s: the sum of its clips' nominal durations.
        speech_s: the sum of their durations.
        vector: float32 ``(dimension,)``, unit norm.
    """

    take: Take
    recordings: frozenset[str]
    condition: Condition
    nominal_s: float
    speech_s: float
    vector: npt.NDArray[np.float32]

    @property
    def set_name(self) -> str:
        """The set of its recordings."""
        return self.take.set_name


@dataclass(frozen=True, slots=True)
class Trials:
    """Pairs of a reference and a cut.

    Attributes:
        references: what they refer to.
        tests: likewise.
        reference: int64 ``(n,)``: which reference.
        test: int64 ``(n,)``: which cut.
        score: float64 ``(n,)``: their cosine.
        target: bool ``(n,)``: whether one person spoke both.
    """

    references: Sequence[Reference]
    tests: Sequence[Cut]
    reference: IntArray
    test: IntArray
    score: FloatArray
    target: BoolArray

    @property
    def reference_s(self) -> FloatArray:
        """Seconds behind each trial's reference."""
        return self.of_references(lambda item: item.speech_s)

    @property
    def test_s(self) -> FloatArray:
        """Seconds of each trial's cut."""
        return self.of_tests(lambda item: item.duration_s)

    @property
    def scored(self) -> Scored:
        """Scores with the voices on both sides."""
        numbers: dict[tuple[str, str], int] = {}
        one, two = (
            np.array([numbers.setdefault((item.set_name, item.take.voice), len(numbers)) for item in side])
            for side in (self.references, self.tests)
        )
        return Scored(self.score, self.target, one[self.reference], two[self.test])

    def of_references(self, fact: Callable[[Reference], object]) -> npt.NDArray[Any]:
        """A fact about each trial's reference."""
        return np.array([fact(item) for item in self.references])[self.reference]

    def of_tests(self, fact: Callable[[Cut], object]) -> npt.NDArray[Any]:
        """A fact about each trial's cut."""
        return np.array([fact(item) for item in self.tests])[self.test]

    def chosen(self, which: BoolArray | IntArray) -> Trials:
        """Some of the trials."""
        return Trials(
            self.references, self.tests, self.reference[which], self.test[which], self.score[which], self.target[which]
        )

    def cells(self) -> tuple[list[tuple[float, float]], IntArray]:
        """The pairs of nominal durations that occur, and which of them each trial has."""
        one, two = self.of_references(lambda item: item.nominal_s), self.of_tests(lambda item: item.nominal_s)
        found, cell = np.unique(np.stack([one, two], axis=1), axis=0, return_inverse=True)
        return [(float(a), float(b)) for a, b in found], cell.reshape(-1)

    def weights(self) -> FloatArray:
        """How much each trial counts, so that durations and conditions weigh alike, sets by their voices.

        Targets and impostors each sum to 1.
        """
        group, voices = self._groups()
        count = np.bincount(group)
        weight = np.minimum(voices, FULL_WEIGHT_VOICES) / count[group]
        for kind in (True, False):
            weight[self.target == kind] /= max(weight[self.target == kind].sum(), 1e-300)
        return np.asarray(weight, dtype=np.float64)

    def thinned(self, seed: int, most: int = _MOST_A_GROUP) -> Trials:
        """At most so many trials of each kind, set, condition and pair of durations, drawn at random."""
        group, _ = self._groups()
        order = np.random.default_rng(seed).permutation(len(group))
        order = order[np.argsort(group[order], kind="stable")]
        starts = np.concatenate([[0], np.cumsum(np.bincount(group))[:-1]])
        rank = np.arange(len(order)) - starts[group[order]]
        return self.chosen(np.sort(order[rank < most]))

    def _groups(self) -> tuple[IntArray, FloatArray]:
        """Each trial's group, and how many voices its set has."""
        names = sorted({item.set_name for item in self.references})
        voices = np.array([len({i.take.voice for i in self.references if i.set_name == n}) for n in names], float)
        conditions = list(Condition)
        set_index = self.of_references(lambda item: names.index(item.set_name))
        one = self.of_references(lambda item: conditions.index(item.condition))
        two = self.of_tests(lambda item: conditions.index(item.condition))
        _, cell = self.cells()
        key = (((cell * len(names) + set_index) * len(conditions) + one) * len(conditions) + two) * 2 + self.target
        return np.unique(key, return_inverse=True)[1].reshape(-1), voices[set_index]


def single(cut: Cut) -> Reference:
    """One clip as a reference."""
    return Reference(
        cut.take, frozenset({cut.take.recording}), cut.condition, cut.nominal_s, cut.duration_s, cut.vector
    )


def averaged(clips: Sequence[Cut]) -> Reference:
    """Several clips of one speaker as a reference: the mean of their unit vectors, itself made one."""
    mean = np.mean([clip.vector for clip in clips], axis=0, dtype=np.float64)
    return Reference(
        clips[0].take,
        frozenset(clip.take.recording for clip in clips),
        clips[0].condition,
        sum(clip.nominal_s for clip in clips),
        sum(clip.duration_s for clip in clips),
        np.asarray(mean / np.linalg.norm(mean), dtype=np.float32),
    )


def several(clips: Sequence[Cut], count: int, most: int = _PAIRS_A_SPEAKER) -> list[Reference]:
    """References of ``count`` different recordings each, some for every speaker who has more than that many."""
    out = []
    ordered = sorted(clips, key=lambda clip: (clip.set_name, clip.take.speaker, clip.take.recording))
    for _, group in groupby(ordered, key=lambda clip: (clip.set_name, clip.take.speaker)):
        mine = list(group)
        if len(mine) > count:
            out += [averaged(chosen) for chosen in list(combinations(mine, count))[:most]]
    return out


def compare(references: Sequence[Reference], tests: Sequence[Cut]) -> Trials:
    """Every trial of these references and cuts that says something.

    Left out are a recording against itself, people who may be one person, different sets, and unclean sides that are
    unclean in different ways. Of halved recordings, first halves are references and second halves tests.
    """
    usable_references = [item for item in references if item.take.half in (None, 0)]
    usable_tests = [item for item in tests if item.take.half in (None, 1)]
    parts: list[tuple[IntArray, IntArray, FloatArray, BoolArray]] = []
    for set_name in sorted({item.set_name for item in usable_tests}):
        one = np.array([n for n, item in enumerate(usable_references) if item.set_name == set_name], dtype=np.int64)
        two = np.array([n for n, item in enumerate(usable_tests) if item.set_name == set_name], dtype=np.int64)
        if not one.size or not two.size:
            continue
        left, right = [usable_references[n] for n in one], [usable_tests[n] for n in two]
        cosines = np.stack([item.vector for item in left]) @ np.stack([item.vector for item in right]).T
        target, impostor = _kinds(left, right)
        row, column = np.nonzero(target | impostor)
        parts.append((one[row], two[column], cosines[row, column].astype(np.float64), target[row, column]))
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return Trials(usable_references, usable_tests, none, none, np.zeros(0), np.zeros(0, dtype=np.bool_))
    reference, test, score, is_target = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Trials(usable_references, usable_tests, reference, test, score, is_target)


def _kinds(left: Sequence[Reference], right: Sequence[Cut]) -> tuple[BoolArray, BoolArray]:
    """Which pairs are one person's, and which two people's; ``(references, tests)`` each."""

    def equal(one: Sequence[object], two: Sequence[object]) -> BoolArray:
        numbers: dict[object, int] = {}
        a, b = (np.array([numbers.setdefault(item, len(numbers)) for item in side]) for side in (one, two))
        return np.asarray(a[:, None] == b[None], dtype=np.bool_)

    same_speaker = equal([item.take.speaker for item in left], [item.take.speaker for item in right])
    same_voice = equal([item.take.voice for item in left], [item.take.voice for item in right])
    same_half = equal([item.take.development for item in left], [item.take.development for item in right])
    recordings = [item.take.recording for item in right]
    shared = np.array([[name in item.recordings for name in recordings] for item in left])
    unclean = [np.array([item.condition is Condition.UNCLEAN for item in side]) for side in (left, right)]
    same_scene = equal([scene_of(item.take.voice) for item in left], [scene_of(item.take.voice) for item in right])
    sensible = same_half & (same_scene | ~(unclean[0][:, None] & unclean[1][None]))
    return sensible & same_speaker & ~shared, sensible & ~same_voice
