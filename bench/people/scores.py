"""What the speaker ear made of each turn: score, verdict and the seconds that it had, as the loop logged them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.ear_figures import equal_error_rate
from bench.people.draws import generator
from bench.people.replayed import Replayed
from bench.results import DecisionRecord
from bench.stats import Interval, wilson

BINS: tuple[tuple[str, float, float], ...] = (
    ("under 1 s", 0.0, 1.0),
    ("1 to 2 s", 1.0, 2.0),
    ("2 to 4 s", 2.0, 4.0),
    ("4 s and more", 4.0, float("inf")),
)
"""Seconds of speech, half-open."""
RESAMPLES = 1000
MIN_SCORES = 5
"""With fewer scores on a side no equal error rate is stated."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Turn:
    """One decision about a cut of one talker.

    Attributes:
        wearer: who was enrolled.
        is_wearer: whether it is her who talks.
        distance: ``near`` or ``far``.
        speech_s: from the first word to the last, which is what the ear was given; the segment where no word was heard.
        score: the cosine, or None where there was none.
        verdict: ``owner``, ``other`` or ``unsure``.
        used_for: what the two voices have been used for.
        set_name: the set that they are of.
    """

    wearer: str
    is_wearer: bool
    distance: str
    speech_s: float
    score: float | None
    verdict: str
    used_for: frozenset[str]
    set_name: str


def speech_seconds(decision: DecisionRecord) -> float:
    """The seconds that the ears judged: from the first word to the last, or the whole segment without words."""
    evidence = decision.evidence
    if not evidence.words:
        return evidence.span_s[1] - evidence.span_s[0]
    return max(word.span_s[1] for word in evidence.words) - min(word.span_s[0] for word in evidence.words)


def turns_of(trials: Iterable[Replayed]) -> list[Turn]:
    """The turns of the verification trials: decisions that rest on the cut."""
    found = []
    for one in trials:
        cuts = one.played.trial.segments
        for decision in one.decisions:
            if one.wearer is None or not any(decision.rests_on(segment) for segment in cuts):
                continue
            speaker = decision.evidence.speaker
            found.append(
                Turn(
                    one.wearer, one.field("relation") == "same", one.distance, speech_seconds(decision), speaker.score,
                    speaker.verdict, one.used_for, one.kind,
                )
            )  # fmt: skip
    return found


def of_length(turns: Iterable[Turn], low_s: float, high_s: float) -> list[Turn]:
    """The turns of a duration, half-open."""
    return [turn for turn in turns if low_s <= turn.speech_s < high_s]


def equal_error(turns: Sequence[Turn], seed: int) -> tuple[float, Interval] | None:
    """The equal error rate of some turns' scores, with a 95 % interval that resamples wearers; None with too few.

    Args:
        turns: of wearers and of strangers to them.
        seed: of the bootstrap.
    """
    by_wearer: dict[str, tuple[list[float], list[float]]] = {}
    for turn in turns:
        if turn.score is not None:
            by_wearer.setdefault(turn.wearer, ([], []))[0 if turn.is_wearer else 1].append(turn.score)
    groups = [(np.array(own), np.array(others)) for _, (own, others) in sorted(by_wearer.items())]
    targets, impostors = _pooled(groups)
    if len(targets) < MIN_SCORES or len(impostors) < MIN_SCORES:
        return None
    random = generator(seed, "equal error")
    drawn = []
    for _ in range(RESAMPLES):
        own, others = _pooled([groups[index] for index in random.integers(len(groups), size=len(groups))])
        if len(own) and len(others):
            drawn.append(equal_error_rate(own, others))
    rate = equal_error_rate(targets, impostors)
    low, high = (float(bound) for bound in np.quantile(drawn, [0.025, 0.975]))
    # Where all draws agree the bootstrap would claim to be certain; there are only so many wearers.
    return rate, (low, high) if low < high else wilson(rate * len(groups), len(groups))


def _pooled(groups: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    own, others = zip(*groups, strict=True) if groups else ((np.zeros(0),), (np.zeros(0),))
    return np.concatenate(own), np.concatenate(others)
