"""What a corpus consists of before anything is rendered: a plan is one trial to be, and everything that it depends on.

A corpus is a list of plans. ``bench.build.corpus`` makes the speech that they need, renders them and writes the
manifest; it knows nothing of families and conditions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from bench.build.scripts import Expected
from bench.build.speech import Request

RECIPE_VERSION: Final = "2"
"""Part of every plan's digest; raised when rendering changes what comes out."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """One utterance of a plan.

    Attributes:
        request: what is said, by which voice.
        speaker: ``A`` the wearer, ``B`` a bystander.
        distance: ``near`` or ``far``.
        role: what it is in the scenario.
        gap_s: silence before it.
    """

    request: Request
    speaker: str
    distance: str
    role: str
    gap_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a plan is rendered, as ``bench.build.scenes.draw_acoustics`` takes it."""

    split: str
    index: int
    dry: bool | None = None
    snr_db: float | None = None
    far_m: float | None = None
    rt60_s: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One trial to be.

    Attributes:
        id: the trial's.
        family: the trial's.
        condition: the trial's.
        split: the trial's.
        expected: what is right.
        utterances: what is heard, in order; none for a typed trial.
        place: where; None for a typed trial.
        text: what is typed instead.
        target_tool: the tool that the words name.
        pair: links the conditions of one command.
        more: further fields of the manifest.
    """

    id: str
    family: str
    condition: str
    split: str
    expected: Expected
    utterances: tuple[Utterance, ...] = ()
    place: Place | None = None
    text: str | None = None
    target_tool: str | None = None
    pair: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def requests(self) -> tuple[Request, ...]:
        """The speech that it needs."""
        return tuple(utterance.request for utterance in self.utterances)

    def digest(self, synthesiser: str) -> str:
        """Changes with everything that the recording or its labels depend on."""
        listed = json.dumps([RECIPE_VERSION, synthesiser, asdict(self)], sort_keys=True, default=str)
        return hashlib.sha256(listed.encode()).hexdigest()
