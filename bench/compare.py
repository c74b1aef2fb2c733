"""``voicegate bench compare``: what has changed between two runs over the same trials, and whether that is noise.

Trials are paired by their ids. A measure has changed when McNemar's exact test over the trials that came out
differently says so at 5 %, after Holm's correction for having looked at all measures; else the difference is noise.
Every trial that flipped is named, so that it can be listened to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bench.measures import (
    EAR_C,
    EAR_R,
    GATE,
    PROXIMITY_RULE,
    SELF_TALK,
    SIDE_TALK,
    Measure,
    Played,
    switch_measures,
)
from bench.provenance import differences
from bench.rates import rounded
from bench.score import ScoreError, load_run
from bench.score_times import latency_s
from bench.stats import holm, mcnemar_exact, median_difference
from bench.trials import TEXT_ONLY

SIGNIFICANT = 0.05
_NOT_TOLD = ("created_unix", "code.git_commit", "code.git_dirty", "version", "manifest.folder")


@dataclass(frozen=True, slots=True)
class Change:
    """One measure in both runs, over the trials to which it applies in both.

    Attributes:
        name: the measure.
        n: how many trials.
        first: its rate in the first run.
        second: in the second.
        only_first: trials with more credit in the first run, by id.
        only_second: trials with more credit in the second.
        p: McNemar's exact p-value; with partial credits, of the sign test, which it then becomes.
        p_holm: the same, corrected for the number of measures.
        verdict: ``same`` (no trial flipped), ``noise``, ``better``, ``worse``, or ``changed`` where neither is meant.
    """

    name: str
    n: int
    first: float
    second: float
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    p: float
    p_holm: float
    verdict: Literal["same", "noise", "better", "worse", "changed"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, side by side.

    Attributes:
        configuration: what differs in how they were made, as ``(key, first, second)``.
        changes: the measures.
        common: trials that both have played.
        only_first: how many trials only the first has.
        only_second: how many only the second has.
        latency: over trials with a latency in both: their number, the median of the differences (second less first, in
            seconds), its 95 % interval, and whether that leaves out zero.
    """

    configuration: tuple[tuple[str, Any, Any], ...]
    changes: tuple[Change, ...]
    common: int
    only_first: int
    only_second: int
    latency: dict[str, Any] | None

    def as_json(self) -> str:
        """All of it as JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False, default=str)


def compare(first: Path, second: Path, manifest: Path | None = None) -> Comparison:
    """Compare two runs.

    Args:
        first: folder of the one.
        second: folder of the other.
        manifest: labels for both, instead of those that each was run with.

    Raises:
        ScoreError: when they have no trial in common, or were labelled differently.
        ManifestError, RunLogError, JudgementsError, ConfigurationDiffersError: when a file cannot be read.
    """
    ours, _, our_config = load_run(first, manifest)
    theirs, _, their_config = load_run(second, manifest)
    by_id = {one.trial.id: one for one in theirs}
    pairs = [(one, by_id[one.trial.id]) for one in ours if one.trial.id in by_id]
    if not pairs:
        raise ScoreError(f"{first} and {second} have no trial in common")
    relabelled = [one.trial.id for one, other in pairs if one.trial != other.trial]
    if relabelled:
        raise ScoreError(
            f"{len(relabelled)} trials have other labels in {second} ({', '.join(relabelled[:3])}, …); "
            "give the labels for both with --manifest"
        )
    told = (d for d in differences(our_config, their_config) if d[0] not in _NOT_TOLD)
    return Comparison(
        tuple(told), changes(pairs), len(pairs), len(ours) - len(pairs), len(theirs) - len(pairs),
        _latency(pairs, int(our_config["seed"])),
    )  # fmt: skip


def changes(pairs: Sequence[tuple[Played, Played]]) -> tuple[Change, ...]:
    """Every measure that applies to any trial in both runs."""
    found = [_counted(measure, pairs) for measure in _measures(pairs)]
    known = [one for one in found if one is not None]
    adjusted = holm([p for _, _, p in known])
    return tuple(
        _change(measure, counted, p, p_holm) for (measure, counted, p), p_holm in zip(known, adjusted, strict=True)
    )


def _measures(pairs: Sequence[tuple[Played, Played]]) -> list[Measure]:
    conditions = sorted({one.trial.condition for one, _ in pairs if one.trial.family == "speaker_switch"})
    # A typed command is never to be muted, and its muting is no figure of the benchmark.
    switched = [m for c in conditions for m in switch_measures(c) if c != TEXT_ONLY or m.name.endswith("select")]
    return [*GATE, SIDE_TALK, SELF_TALK, PROXIMITY_RULE, EAR_C, EAR_R, *switched]


_Counted = list[tuple[str, float, float]]
"""Id and both credits of each trial that a judge, where one is needed, has judged in both runs."""


def _counted(measure: Measure, pairs: Sequence[tuple[Played, Played]]) -> tuple[Measure, _Counted, float] | None:
    inside = [(one, other) for one, other in pairs if measure.applies(one) and measure.applies(other)]
    credits = [(one.trial.id, measure.hit(one), measure.hit(other)) for one, other in inside]
    counted = [(name, a, b) for name, a, b in credits if a is not None and b is not None]
    if not counted:
        return None
    p = mcnemar_exact(sum(a > b for _, a, b in counted), sum(b > a for _, a, b in counted))
    return measure, counted, p


def _change(measure: Measure, counted: _Counted, p: float, p_holm: float) -> Change:
    first = sum(a for _, a, _ in counted) / len(counted)
    second = sum(b for _, _, b in counted) / len(counted)
    return Change(
        measure.name,
        len(counted),
        rounded(first),
        rounded(second),
        tuple(name for name, a, b in counted if a > b),
        tuple(name for name, a, b in counted if b > a),
        rounded(p),
        rounded(p_holm),
        _verdict(measure, first, second, p_holm, flipped=any(a != b for _, a, b in counted)),
    )


def _verdict(
    measure: Measure, first: float, second: float, p_holm: float, *, flipped: bool
) -> Literal["same", "noise", "better", "worse", "changed"]:
    if not flipped:
        return "same"
    if p_holm >= SIGNIFICANT:
        return "noise"
    if measure.good is None:
        return "changed"
    return "better" if (second > first) == measure.good else "worse"


def _latency(pairs: Sequence[tuple[Played, Played]], seed: int) -> dict[str, Any] | None:
    timed = [(one.trial.cluster, latency_s(one), latency_s(other)) for one, other in pairs]
    known = [(cluster, a, b) for cluster, a, b in timed if a is not None and b is not None]
    found = median_difference([a for _, a, _ in known], [b for _, _, b in known], [c for c, _, _ in known], seed=seed)
    if found is None:
        return None
    median_s, (low, high) = found
    return {
        "n": len(known),
        "median_difference": rounded(median_s),
        "ci95": [rounded(low), rounded(high)],
        "noise": low <= 0 <= high,
    }
