"""``summary.operating``: false executions against false rejections, as the gate's threshold moves. From the log alone.

For each call that the policy proposed, the log holds all that the gate looked at: words, damage, and the two scores
with their thresholds. So ``gate.decide`` itself is asked again, once, whether the call would run if the source were
certain; if so it runs exactly while both scores reach their thresholds, and the threshold can be moved over the scores
without playing anything again. Proposals are taken as they were made: a policy that read other verdicts might propose
otherwise, which only a new run can tell.

Decisions that come out otherwise than they were logged when nothing is moved (calls that a repair put together from
several turns) are kept as they were at every threshold, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.measures import FALSE_EXECUTION, FALSE_REJECTION, Played
from bench.rates import rounded
from bench.results import DecisionRecord
from gate.actions import ActionKind, ToolAction
from gate.catalogue import Catalogue, Risk
from gate.decision import Proposal, SessionFacts, decide
from gate.evidence import (
    DamageKind,
    DamageStretch,
    DistanceVerdict,
    Evidence,
    Modality,
    ProximityEvidence,
    SpeakerEvidence,
    SpeakerVerdict,
    Word,
)
from gate.grammar import parse
from gate.span import Span
from gate.thresholds import Thresholds

MOST_POINTS = 101


@dataclass(frozen=True, slots=True)
class Margins:
    """How far the scores of a call that would run lie above what they need; minus infinity where there is no score."""

    speaker: float
    distance: float

    @property
    def both(self) -> float:
        """The lesser of the two."""
        return min(self.speaker, self.distance)


@dataclass(frozen=True, slots=True)
class _Trial:
    """A trial's calls: the margins of those that can be moved, and whether one that cannot has run."""

    is_command: bool
    movable: tuple[Margins, ...]
    ran_anyway: bool

    def critical(self, margin_of: Callable[[Margins], float | None]) -> float:
        """The highest shift of the threshold at which a tool still runs."""
        if self.ran_anyway:
            return math.inf
        return max((m for m in map(margin_of, self.movable) if m is not None), default=-math.inf)


SWEEPS: Mapping[str, Callable[[Margins], float | None]] = {
    "speaker": lambda m: m.speaker if m.distance >= 0 else None,
    "distance": lambda m: m.distance if m.speaker >= 0 else None,
    "both": lambda m: m.both,
}
"""Which threshold is moved: the speaker score's, the near probability's (the other one stays), or both by as much."""


def operating_curves(played: Sequence[Played], thresholds: Thresholds, catalogue: Catalogue) -> dict[str, Any] | None:
    """The curves and their equal-error points.

    Args:
        played: the trials.
        thresholds: the gate's own, as the run had them.
        catalogue: its tools.

    Returns:
        For each sweep its points and where the two rates meet (null where they do not, within any shift); None when no
        call can be moved, as in a run without a gate.
    """
    trials: list[_Trial] = []
    kept = moved = 0
    for one in played:
        if not (FALSE_EXECUTION.applies(one) or FALSE_REJECTION.applies(one)):
            continue
        movable, ran_anyway = [], False
        for decision in one.result.decisions:
            margins = margins_of(decision, thresholds, catalogue)
            would_run = margins is not None and margins.both >= 0
            if would_run != decision.ran:
                kept += 1
                ran_anyway = ran_anyway or decision.ran
            elif margins is not None:
                moved += 1
                movable.append(margins)
        trials.append(_Trial(FALSE_REJECTION.applies(one), tuple(movable), ran_anyway))
    if not moved:
        return None
    curves = {name: _curve([(t.is_command, t.critical(margin)) for t in trials]) for name, margin in SWEEPS.items()}
    return {**curves, "calls": {"moved": moved, "kept_as_they_were": kept}}


def margins_of(decision: DecisionRecord, thresholds: Thresholds, catalogue: Catalogue) -> Margins | None:
    """How far a call's scores lie above what they need, or None when it would not run from any source."""
    action = parse(decision.raw) if decision.raw is not None else None
    if not isinstance(action, ToolAction) or decision.evidence.modality != "audio":
        return None
    evidence = _certain(decision)
    again = decide(
        Proposal(action, decision.raw or ""), evidence, SessionFacts(True, evidence.span.end_sample), thresholds,
        catalogue,
    )  # fmt: skip
    if again.action is not ActionKind.TOOL:
        return None
    tool = catalogue.find(action.call.name)
    demands = thresholds.by_risk[tool.risk if tool is not None else max(Risk)]
    speaker, near = decision.evidence.speaker, decision.evidence.distance
    return Margins(
        _above(speaker.score, speaker.owner_at + demands.owner_margin),
        _above(near.near_probability, max(near.near_at, demands.near_probability_at_least)),
    )


def _above(score: float | None, needed: float) -> float:
    # Scores and thresholds are logged with four digits, each rounded by itself.
    return -math.inf if score is None else round(score - needed + 1e-9, 4)


def _certain(decision: DecisionRecord) -> Evidence:
    """The logged evidence, with a source that is certain."""
    logged = decision.evidence
    span = Span(*decision.span_samples)
    return Evidence(
        decision.turn,
        span,
        tuple(Word(word.text, Span.from_seconds(*word.span_s), word.probability) for word in logged.words),
        SpeakerEvidence(SpeakerVerdict.OWNER, 1.0, 0.0, -1.0, span),
        ProximityEvidence(DistanceVerdict.NEAR, 1.0, 0.0, 0.0, span),
        None
        if logged.damage is None
        else tuple(
            DamageStretch(Span.from_seconds(*d.span_s), DamageKind(d.kind), d.probability) for d in logged.damage
        ),
        Modality(logged.modality),
        overlapped=logged.overlapped,
        own_voice=logged.own_voice,
        source_gap=logged.source_gap,
    )


def _curve(criticals: Sequence[tuple[bool, float]]) -> dict[str, Any]:
    commands = [critical for is_command, critical in criticals if is_command]
    others = [critical for is_command, critical in criticals if not is_command]
    # At a trial's own critical shift its tool still runs; just above it, it does not.
    shifts = sorted({0.0, *(c for _, c in criticals if math.isfinite(c))})
    shifts = [shift for base in shifts for shift in (base, round(base + 1e-4, 4))]
    points = [_point(shift, commands, others) for shift in shifts]
    return {"points": list(_thinned(points)), "equal_error": _equal_error(points)}


def _point(shift: float, commands: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    return {
        "shift": rounded(shift),
        "false_execution": _share(sum(critical >= shift for critical in others), len(others)),
        "false_rejection": _share(sum(critical < shift for critical in commands), len(commands)),
    }


def _share(k: int, n: int) -> dict[str, Any] | None:
    return {"n": n, "k": k, "rate": rounded(k / n)} if n else None


def _thinned(points: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """At most ``MOST_POINTS`` of them, the first, the last and the one that nothing moves among them."""
    step = max(1, math.ceil(len(points) / (MOST_POINTS - 2)))
    for index, point in enumerate(points):
        if index % step == 0 or index == len(points) - 1 or point["shift"] == 0.0:
            yield point


def _equal_error(points: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Where the two rates are nearest to each other, if they cross at all."""
    rates = [
        (point["shift"], point["false_execution"]["rate"], point["false_rejection"]["rate"])
        for point in points
        if point["false_execution"] is not None and point["false_rejection"] is not None
    ]
    if not rates or rates[0][1] < rates[0][2] or rates[-1][1] > rates[-1][2]:
        return None
    shift, execution, rejection = min(rates, key=lambda item: (abs(item[1] - item[2]), abs(item[0])))
    return {
        "shift": shift,
        "rate": rounded((execution + rejection) / 2),
        "false_execution": execution,
        "false_rejection": rejection,
    }
