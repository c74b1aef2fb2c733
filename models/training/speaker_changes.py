"""Measure how a speaker ear finds changes of voice: turns of two people end to end, and turns of one.

Two people come from one set of recordings, at levels up to 10 dB apart, with pauses of 0 to 0.6 s, over one noise
floor, so that neither microphone nor level nor pause gives the change away. One person's turns are 4 to 9 s of one
recording, every fourth with a step in level.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ
from models.protocols import SpeakerEar

GAPS_S = (0.0, 0.1, 0.3, 0.6)

_TOLERANCE_S = 0.5
_FLOOR_DB = -60.0
_LEVEL_DB = -26.0

Audio = npt.NDArray[np.float32]
Voices = dict[str, dict[str, list[Audio]]]
"""Trimmed recordings by set and by voice."""


def report(ear: SpeakerEar, voices: Voices, turns: int, seed: int) -> list[str]:
    """Detection and false splits, as lines of Markdown.

    Args:
        ear: the ear.
        voices: whose speech; every voice is someone else than every other.
        turns: how many turns of two people, and how many of one.
        seed: for the draw.
    """
    random = np.random.default_rng(seed)
    sets = [name for name, people in voices.items() if len(people) >= 2]
    found: dict[float, list[bool]] = defaultdict(list)
    off_s: list[float] = []
    extra = 0
    for number in range(turns):
        people = voices[sets[number % len(sets)]]
        gap_s = GAPS_S[number % len(GAPS_S)]
        first, second = (_cut(people[str(name)], 1.0, 4.0, random) for name in random.choice(sorted(people), 2, False))
        gap = np.zeros(round(gap_s * SAMPLE_RATE_HZ), dtype=np.float32)
        turn = np.concatenate([_at_level(first, random), gap, _at_level(second, random)])
        changes = ear.track(_with_floor(turn, random)).changes()
        distances_s = [max(0, first.size - at, at - first.size - gap.size) / SAMPLE_RATE_HZ for at in changes]
        hit = bool(distances_s) and min(distances_s) <= _TOLERANCE_S
        found[gap_s].append(hit)
        extra += len(changes) - hit
        if hit:
            off_s.append(min(distances_s))
    splits, minutes = 0, 0.0
    for number in range(turns):
        people = voices[sets[number % len(sets)]]
        turn = _at_level(_cut(people[str(random.choice(sorted(people)))], 4.0, 9.0, random), random)
        if number % 4 == 3:
            turn[turn.size // 2 :] *= 10.0 ** (random.choice([-6.0, 6.0]) / 20.0)
        splits += len(ear.track(_with_floor(turn, random)).changes())
        minutes += turn.size / SAMPLE_RATE_HZ / 60.0
    return [
        "| changes of voice | |",
        "| --- | --- |",
        *(f"| found, pause {gap_s} s | {sum(hits)} of {len(hits)} |" for gap_s, hits in sorted(found.items())),
        f"| off by, median and 90 % | {np.median(off_s):.2f} s, {np.percentile(off_s, 90):.2f} s |",
        f"| further splits in these {turns} turns | {extra} |",
        f"| false splits of one person's talk | {splits} in {minutes:.1f} min |",
    ]


def _cut(recordings: Sequence[Audio], least_s: float, most_s: float, random: np.random.Generator) -> Audio:
    """A stretch of one recording; the longest is taken where none is long enough."""
    long_enough = [audio for audio in recordings if audio.size >= least_s * SAMPLE_RATE_HZ]
    audio = long_enough[random.integers(len(long_enough))] if long_enough else max(recordings, key=len)
    samples = min(audio.size, round(random.uniform(least_s, most_s) * SAMPLE_RATE_HZ))
    start = int(random.integers(0, audio.size - samples + 1))
    return audio[start : start + samples]


def _at_level(audio: Audio, random: np.random.Generator) -> Audio:
    level = 10.0 ** ((_LEVEL_DB + random.uniform(-5.0, 5.0)) / 20.0)
    return np.asarray(audio * (level / np.sqrt(np.mean(audio**2) + 1e-12)), dtype=np.float32)


def _with_floor(audio: Audio, random: np.random.Generator) -> Audio:
    floor = 10.0 ** (_FLOOR_DB / 20.0) * random.standard_normal(audio.size)
    return np.asarray(audio + floor, dtype=np.float32)
