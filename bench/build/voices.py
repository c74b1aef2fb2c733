"""Which synthetic voices speak in which split: no voice of the test split is heard in training or on dev.

Kokoro's 28 English voices, and blends of two of one sex within one split (the mean of their style vectors), which
sound like a third person. The demo recording's voices belong to the training split.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

TRAIN: Final = (
    "af_heart", "af_alloy", "af_aoede", "af_jessica", "af_nicole", "af_sky", "am_adam", "am_echo", "am_michael",
    "am_onyx", "am_santa", "bf_alice", "bf_isabella", "bm_daniel", "bm_fable",
)  # fmt: skip
DEV: Final = ("af_kore", "af_river", "am_liam", "bf_lily", "bm_lewis")
TEST: Final = ("af_bella", "af_nova", "af_sarah", "am_eric", "am_fenrir", "am_puck", "bf_emma", "bm_george")

SPLITS: Final = {"train": TRAIN, "dev": DEV, "test": TEST}

BLEND_MARK: Final = "+"


@dataclass(frozen=True, slots=True)
class Voice:
    """One voice.

    Attributes:
        name: a voice of Kokoro, or two joined by ``+``.
    """

    name: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The voices that it is made of."""
        return tuple(self.name.split(BLEND_MARK))

    @property
    def sex(self) -> str:
        """``f`` or ``m``."""
        return self.name[1]

    @property
    def accent(self) -> str:
        """``a`` American or ``b`` British: how its first part pronounces."""
        return self.name[0]

    def shares_a_part_with(self, other: Voice) -> bool:
        """Whether the two have a voice in common, and so may sound alike."""
        return bool(set(self.parts) & set(other.parts))


def voices_of(split: str) -> tuple[Voice, ...]:
    """Every voice of a split: its plain ones, then the blends of two of one sex and accent.

    Raises:
        KeyError: when there is no such split.
    """
    plain = [Voice(name) for name in SPLITS[split]]
    blends = [
        Voice(f"{a.name}{BLEND_MARK}{b.name}")
        for a, b in combinations(plain, 2)
        if (a.sex, a.accent) == (b.sex, b.accent)
    ]
    return (*plain, *blends)


def draw_pair(split: str, rng: np.random.Generator) -> tuple[Voice, Voice]:
    """A wearer and a bystander who have no voice in common; every second pair is of one sex, the harder case."""
    choices = voices_of(split)
    wearer = choices[int(rng.integers(len(choices)))]
    same_sex = bool(rng.random() < 0.5)
    others = [v for v in choices if not v.shares_a_part_with(wearer) and (v.sex == wearer.sex) == same_sex]
    return wearer, others[int(rng.integers(len(others)))]
