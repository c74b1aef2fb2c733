"""``summary.latency``, ``summary.compute`` and ``summary.throughput``: how long it took, from the log's own times.

Latency runs from the labelled end of the speech that matters to the decision about it. A decision that was made about
other speech has no such latency: it is left out and counted. Recordings whose question is asked at their end are timed
from their last word, so the silence at the end of the file, and the one that the loop appends, are part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bench.measures import FALSE_EXECUTION, FALSE_REJECTION, Played
from bench.rates import rounded
from bench.results import compute_s, deciding
from bench.stats import quantile

OUTCOMES: Mapping[str, Callable[[Played], bool]] = {
    "right_execution": lambda p: p.trial.expected.action == "tool" and p.selects,
    "false_execution": lambda p: FALSE_EXECUTION.applies(p) and bool(FALSE_EXECUTION.hit(p)),
    "right_mute": lambda p: p.trial.expected.action == "mute" and p.mutes,
    "false_rejection": lambda p: FALSE_REJECTION.applies(p) and bool(FALSE_REJECTION.hit(p)),
    "pardon": lambda p: p.pardons,
    "answer": lambda p: p.ok and p.result.action == "answer",
}
"""What came of a trial. A Pardon to a command is a false rejection too, and is in both."""


def latency_s(played: Played) -> float | None:
    """Seconds from the labelled end of speech to the decision, or None without labels or a decision about that speech.

    The deciding decision is looked for anew, so that corrected labels can be scored without another run.
    """
    target = played.trial.target_segment()
    chosen = deciding(played.result.decisions, target)
    if target is None or chosen is None or not chosen.rests_on(target):
        return None
    return chosen.timing.decision - target.end


def latency_scores(played: Sequence[Played]) -> dict[str, Any]:
    """Quantiles by what came of the trial; None where that never happened, or never with a latency."""
    return {name: _latency([one for one in played if is_so(one)]) for name, is_so in OUTCOMES.items()}


def _latency(played: Sequence[Played]) -> dict[str, Any] | None:
    found = [latency_s(one) for one in played]
    known = [value for value in found if value is not None]
    if not known:
        return None
    return {**_quantiles(known), "max": rounded(max(known)), "without": len(found) - len(known)}


def _quantiles(values: Sequence[float]) -> dict[str, Any]:
    half, most = quantile(values, 0.5), quantile(values, 0.95)
    assert half is not None, "quantiles are of values"
    assert most is not None, "quantiles are of values"
    return {"n": len(values), "p50": rounded(half), "p95": rounded(most)}


def compute_scores(played: Iterable[Played]) -> dict[str, Any]:
    """Seconds of compute of each stage, over turns."""
    seconds: dict[str, list[float]] = {}
    for one in played:
        for turn in compute_s(one.result.decisions):
            for stage, value in turn.items():
                seconds.setdefault(stage, []).append(value)
    return {stage: _quantiles(seconds[stage]) for stage in sorted(seconds)}


def throughput(played: Sequence[Played]) -> dict[str, Any] | None:
    """Seconds of audio a real second, over the time in which trials were running: breaks between calls do not count."""
    spans = sorted((one.result.timing.began_unix, one.result.timing.ended_unix) for one in played)
    spans = [(start, end) for start, end in spans if end > start]
    if not spans:
        return None
    busy_s, reached = 0.0, spans[0][0]
    for start, end in spans:
        busy_s += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    audio_s = sum(one.result.timing.audio for one in played)
    return {
        "audio_seconds_per_second": rounded(audio_s / busy_s),
        "audio_seconds": rounded(audio_s),
        "busy_seconds": rounded(busy_s),
    }
