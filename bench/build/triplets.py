"""The realisations of one question that *Pardon?* compares (section 3.3): the recording as it is, the recording with a
function word masked, and the recording with the answer masked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bench.build.fillers import Fillers, MaskKind
from bench.build.masking import (
    GUARD_S,
    MASK_KINDS,
    MaskSpec,
    Window,
    answer_windows,
    check_gone,
    function_word_window,
    masked,
    seeded,
)
from gate.evidence import Word
from models.protocols import Audio

ORIGINAL: Final = "original"
INVARIANT: Final = "semantic_invariant"
DEGRADING: Final = "semantic_degrading"


@dataclass(frozen=True, eq=False)
class Recording:
    """A recording that a question is asked about.

    Attributes:
        name: names it; all that is drawn for it depends on the name.
        samples: float32 ``(samples,)`` at 16 kHz.
        words: all that is said in it, with times.
        answers: what answers the question, as it is spoken; each is masked wherever it is said.
        accepted: everything that counts as the answer; none of it may be left when those are masked.
        function_words: which of the words an invariant mask may take.
        guard_s: how far the answer's mask reaches into its neighbours: what their times may err by.
    """

    name: str
    samples: Audio = field(repr=False)
    words: tuple[Word, ...]
    answers: tuple[str, ...]
    accepted: tuple[str, ...]
    function_words: tuple[int, ...]
    guard_s: float = GUARD_S

    @property
    def spoken(self) -> list[str]:
        """The words without their times."""
        return [word.text for word in self.words]


@dataclass(frozen=True, eq=False)
class Realisation:
    """One recording of a triplet.

    Attributes:
        condition: as the manifest spells it.
        samples: float32 ``(samples,)`` at 16 kHz, as many as the original has.
        mask: what was replaced, for the manifest; None for the original.
    """

    condition: str
    samples: Audio = field(repr=False)
    mask: dict[str, Any] | None = None

    @property
    def answerable(self) -> bool:
        """Whether a listener can still answer."""
        return not self.condition.startswith(DEGRADING)


def conditions(kinds: Sequence[MaskKind] = MASK_KINDS, *, wide: bool = True) -> tuple[str, ...]:
    """The conditions of a triplet with some masks, in the order that ``realise`` makes them."""
    invariant = [f"{INVARIANT}/{MaskSpec(kind).name}" for kind in kinds]
    widths = (False, True) if wide else (False,)
    degrading = [f"{DEGRADING}/{MaskSpec(kind, width).name}" for kind in kinds for width in widths]
    return (ORIGINAL, *invariant, *degrading)


def realise(
    recording: Recording, fillers: Fillers, seed: int, kinds: Sequence[MaskKind] = MASK_KINDS, *, wide: bool = True
) -> Iterator[Realisation]:
    """Make the recordings of one question.

    All invariant masks take the same function word, and all degrading masks the same answer, so that only the mask
    differs between them.

    Args:
        recording: the original.
        fillers: material for masks.
        seed: with the recording's name, decides everything that is drawn.
        kinds: which masks.
        wide: whether to make each degrading mask with the expanded window, too.

    Yields:
        One for each of ``conditions(kinds, wide=wide)``, in that order.

    Raises:
        MaskingError: when the answer is not said, has no time, is said elsewhere in other words, or no function word is
            left to mask.
        FillerError: when there is no material for a mask.
    """
    size = recording.samples.size
    answer = answer_windows(recording.words, recording.answers, size, guard_s=recording.guard_s)
    check_gone(recording.spoken, answer, recording.accepted)
    expanded = answer_windows(recording.words, recording.answers, size, guard_s=recording.guard_s, wide=True)
    function_word = function_word_window(
        recording.words, recording.function_words, answer, size, seeded(seed, recording.name, "function word")
    )
    yield Realisation(ORIGINAL, recording.samples)
    for condition in conditions(kinds, wide=wide)[1:]:
        meaning, name = condition.split("/")
        spec = MaskSpec(next(kind for kind in kinds if kind == name.split("+")[0]), name.endswith("+wide"))
        windows = (function_word,) if meaning == INVARIANT else expanded if spec.wide else answer
        rng = seeded(seed, recording.name, condition)
        samples = masked(recording.samples, windows, spec.kind, fillers, rng)
        yield Realisation(condition, samples, _facts(recording, spec, meaning, windows, answer))


def _facts(
    recording: Recording, spec: MaskSpec, meaning: str, windows: Sequence[Window], answer: Sequence[Window]
) -> dict[str, Any]:
    """What the manifest says of a mask."""
    return {
        "kind": spec.kind,
        "wide": spec.wide,
        "of": "function_word" if meaning == INVARIANT else "answer",
        "spans": [_seconds(window) for window in windows],
        "words": [recording.spoken[index] for window in windows for index in window.words],
        "answer_spans": [_seconds(window) for window in answer],
    }


def _seconds(window: Window) -> list[float]:
    return [float(np.round(edge, 4)) for edge in (window.span.start_s, window.span.end_s)]
