"""How sure is sure enough, by risk. Fixed before a session starts; never learned from live turns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from gate.catalogue import Risk


@dataclass(frozen=True, slots=True)
class RiskThresholds:
    """What one risk class demands beyond the ears' own verdicts.

    Attributes:
        owner_margin: how far the speaker's score must lie above the ear's owner threshold.
        near_probability_at_least: the lowest near probability.
        word_probability_at_least: the lowest recogniser probability of any word that carries an argument.
        refuse_any_damage: whether damage anywhere in the command, not only at an argument, asks again.

    Raises:
        ValueError: when a number does not lie in 0 to 1.
    """

    owner_margin: float
    near_probability_at_least: float
    word_probability_at_least: float
    refuse_any_damage: bool

    def __post_init__(self) -> None:
        for name in ("owner_margin", "near_probability_at_least", "word_probability_at_least"):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0.0 <= value <= 1.0):
                raise ValueError(f"{name} must lie in 0..1, not {value}")


def _default_by_risk() -> dict[Risk, RiskThresholds]:
    return {
        Risk.LOW: RiskThresholds(0.0, 0.5, 0.2, False),
        Risk.MEDIUM: RiskThresholds(0.0, 0.5, 0.3, False),
        Risk.HIGH: RiskThresholds(0.03, 0.7, 0.4, True),
    }


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The gate's own thresholds.

    Attributes:
        by_risk: demands of each risk class; all three must be there, and a higher risk never demands less.
        mask_reach_samples: a damaged stretch this close to an argument's words makes the argument doubtful: a masked
            neighbour ("sixty [noise] dollars") can change the value.
        grant_life_samples: how long after its turn's end a call may still be decided and its grant redeemed.

    Raises:
        ValueError: when a class is missing, a higher risk demands less than a lower one, or a length is out of range.
    """

    by_risk: Mapping[Risk, RiskThresholds] = field(default_factory=_default_by_risk)
    mask_reach_samples: int = 2_400
    grant_life_samples: int = 240_000

    def __post_init__(self) -> None:
        missing = [risk.name for risk in Risk if risk not in self.by_risk]
        if missing:
            raise ValueError(f"no thresholds for risk {', '.join(missing)}")
        for lower, higher in ((Risk.LOW, Risk.MEDIUM), (Risk.MEDIUM, Risk.HIGH)):
            for item in fields(RiskThresholds):
                if getattr(self.by_risk[higher], item.name) < getattr(self.by_risk[lower], item.name):
                    raise ValueError(f"{item.name} of {higher.name} risk must not be below that of {lower.name} risk")
        if self.mask_reach_samples < 0 or self.grant_life_samples <= 0:
            raise ValueError("mask_reach_samples must be >= 0 and grant_life_samples > 0")
