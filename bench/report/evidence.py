"""What the gate knew in a trial and what it made of it, in words and numbers, from the log alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from agent.events import DamageRecord, EvidenceRecord
from bench.measures import Played
from bench.report.runs import ReportedRun
from bench.results import DecisionRecord
from bench.score_times import latency_s
from gate.catalogue import Risk
from gate.reasons import Reason

MOST_CHARS = 1_000
"""Of any text of a log; the rest is in the log."""

Fact = tuple[str, str]
"""What it is, and what it says."""


@dataclass(frozen=True, slots=True)
class DecisionFacts:
    """One decision.

    Attributes:
        title: what was decided about which stretch of the recording.
        facts: the reason and what it rests on.
    """

    title: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A trial as the gate saw it.

    Attributes:
        facts: about the whole of it.
        decisions: each of them, in order.
    """

    facts: tuple[Fact, ...]
    decisions: tuple[DecisionFacts, ...]


def evidence_of(run: ReportedRun, played: Played) -> Evidence:
    """What a run knew in one of its trials."""
    result = played.result
    facts: list[Fact] = []
    if not played.ok:
        facts.append((result.status, cut(result.reason)))
    facts.append(("Heard", cut(result.transcript) or "no words"))
    if result.answer is not None:
        facts.append(("Said", cut(result.answer)))
    latency = latency_s(played)
    if latency is not None:
        facts.append(("Latency", f"{latency:.3f} s from the labelled end of speech to the decision"))
    return Evidence(tuple(facts), tuple(_decision(run, decision) for decision in result.decisions))


def cut(text: str) -> str:
    """A text of a log, without what is too long to be read here."""
    rest = len(text) - MOST_CHARS
    return text if rest <= 0 else f"{text[:MOST_CHARS]}… ({rest:,} more characters are in the log)"


def _decision(run: ReportedRun, decision: DecisionRecord) -> DecisionFacts:
    start_s, end_s = decision.evidence.span_s
    done = {"mute": "silence", "answer": "answer", "pardon": "Pardon", "tool": "tool", None: "no action"}[
        decision.action
    ]
    facts: list[Fact] = [("Reason", f"{_sentence(decision.reason)} [{decision.reason}]")]
    if decision.detail:
        facts.append(("In particular", cut(decision.detail)))
    if decision.tool is not None:
        ended = "no outcome logged: counts as run" if decision.outcome is None else f"outcome: {decision.outcome}"
        outcome = ended if decision.action == "tool" else "not called"
        facts.append(("Call", cut(f"{decision.tool} {_shown(decision.params)} ({outcome})")))
    if decision.missing_param is not None:
        facts.append(("Asks for", decision.missing_param))
    if decision.answer is not None:
        facts.append(("Says", cut(decision.answer)))
    facts.extend(_heard(run, decision))
    proposed = decision.proposed if decision.raw is None else f"{decision.proposed}: {decision.raw}"
    facts.append(("The policy proposed", cut(proposed)))
    facts.append(("Times", _times(decision)))
    return DecisionFacts(f"{decision.turn}, {start_s:.2f} to {end_s:.2f} s: {done}", tuple(facts))


def _sentence(reason: str) -> str:
    """The gate's sentence; a run without a gate has a reason of its own."""
    if reason == "proposed":
        return "Taken as it was proposed, without a gate."
    try:
        return Reason(reason).sentence
    except ValueError:
        return "No reason of the gate."


def _heard(run: ReportedRun, decision: DecisionRecord) -> Iterator[Fact]:
    evidence = decision.evidence
    if evidence.modality != "audio":
        yield "Evidence", "typed, so there is none of the source"
        return
    yield from _source(run, decision)
    yield "Damage", _damage(evidence.damage)
    flags = [
        name
        for name, is_so in (
            ("two people at once", evidence.overlapped), ("its own voice", evidence.own_voice),
            ("samples lost inside", evidence.source_gap),
        )
        if is_so
    ]  # fmt: skip
    if evidence.overlapped is None:
        flags.append("whether two spoke at once is not known")
    if flags:
        yield "Also", ", ".join(flags)
    yield "Words", _words(evidence)


def _source(run: ReportedRun, decision: DecisionRecord) -> Iterator[Fact]:
    """Both scores with what they need: the ear's own threshold, and for a call what its risk demands on top."""
    speaker, near = decision.evidence.speaker, decision.evidence.distance
    needs_speaker, needs_near, because = speaker.owner_at, near.near_at, ""
    if decision.tool is not None:
        tool = run.catalogue.find(decision.tool)
        risk = tool.risk if tool is not None else min(Risk)
        demands = run.thresholds.by_risk[risk]
        needs_speaker += demands.owner_margin
        needs_near = max(needs_near, demands.near_probability_at_least)
        because = f" for a call of {risk.name.lower()} risk"
    yield "Speaker", _score(
        speaker.verdict, "score", speaker.score, needs_speaker, f"other below {speaker.other_below:.3f}", because,
        speaker.note,
    )  # fmt: skip
    yield "Distance", _score(
        near.verdict, "near probability", near.near_probability, needs_near,
        f"far below {near.far_below:.3f}", because, near.note,
    )  # fmt: skip


def _score(verdict: str, what: str, score: float | None, needed: float, below: str, because: str, note: str) -> str:
    if score is None:
        told = f"no {what}, {needed:.3f} needed"
    else:
        # Scores and thresholds are logged with four digits, each rounded by itself.
        against = "reaches" if round(score - needed, 4) >= 0 else "falls short of"
        told = f"{what} {score:.3f} {against} the {needed:.3f} needed"
    return f"{verdict}; {told}{because}; {below}{f' ({note})' if note else ''}"


def _damage(damage: tuple[DamageRecord, ...] | None) -> str:
    if damage is None:
        return "not measured"
    if not damage:
        return "none found"
    return ", ".join(f"{d.kind} {d.span_s[0]:.2f} to {d.span_s[1]:.2f} s ({d.probability:.2f})" for d in damage)


def _words(evidence: EvidenceRecord) -> str:
    if not evidence.words:
        return "none"
    return cut(" ".join(f"{word.text} ({word.probability:.2f})" for word in evidence.words))


def _times(decision: DecisionRecord) -> str:
    timing = decision.timing
    told = [f"decided at {timing.decision:.3f} s", f"{timing.latency_s:.3f} s after the detected end of speech"]
    if timing.executed is not None:
        told.append(f"executed at {timing.executed:.3f} s")
    told += [f"{stage} {value:.3f} s" for stage, value in sorted(timing.compute.items())]
    return ", ".join(told)


def _shown(params: dict[str, object] | None) -> str:
    return json.dumps(params or {}, ensure_ascii=False, default=str)
