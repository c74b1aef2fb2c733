"""From the gate's values to the event schema."""

from __future__ import annotations

import math
from typing import Any

from agent import events
from gate.actions import ActionKind, Unparseable, kind_of
from gate.decision import Decision, Proposal
from gate.evidence import Evidence
from gate.reasons import Reason
from gate.span import Span

_FAILED = frozenset({Reason.POLICY_FAILED, Reason.EAR_FAILED})


def span_s(span: Span) -> events.SpanS:
    """A span in seconds."""
    return round(span.start_s, 4), round(span.end_s, 4)


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 4)


def evidence_record(evidence: Evidence) -> events.EvidenceRecord:
    """The evidence as it is logged. Scores that are not finite are logged as null."""
    speaker, near = evidence.speaker, evidence.proximity
    return events.EvidenceRecord(
        span_s=span_s(evidence.span),
        modality=evidence.modality.value,
        transcript=evidence.transcript,
        words=tuple(
            events.WordRecord(text=word.text, span_s=span_s(word.span), probability=_finite(word.probability) or 0.0)
            for word in evidence.words
        ),
        speaker=events.SpeakerRecord(
            verdict=speaker.verdict.value,
            score=_finite(speaker.score),
            owner_at=round(speaker.owner_at, 4),
            other_below=round(speaker.other_below, 4),
            note=speaker.note,
        ),
        distance=events.DistanceRecord(
            verdict=near.verdict.value,
            near_probability=_finite(near.near_probability),
            near_at=round(near.near_at, 4),
            far_below=round(near.far_below, 4),
            note=near.note,
        ),
        damage=None
        if evidence.damage is None
        else tuple(
            events.DamageRecord(span_s=span_s(d.span), kind=d.kind.value, probability=_finite(d.probability) or 0.0)
            for d in evidence.damage
        ),
        overlapped=evidence.overlapped,
        own_voice=evidence.own_voice,
        source_gap=evidence.source_gap,
    )


def status_of(proposal: Proposal) -> str:
    """How the policy fared: ok, unparseable, error, timeout or no_audio. Never counted as Mute by the bench."""
    if isinstance(proposal.parsed, Unparseable):
        return "unparseable"
    if proposal.failure is Reason.POLICY_TIMEOUT:
        return "timeout"
    if proposal.failure in _FAILED:
        return "error"
    return "ok"


def proposed_kind(proposal: Proposal) -> str:
    """What the policy wanted: an action's kind, "unparseable", or "none"."""
    if proposal.parsed is None:
        return "none"
    if isinstance(proposal.parsed, Unparseable):
        return "unparseable"
    return kind_of(proposal.parsed).value


def decided_fields(decision: Decision) -> dict[str, Any]:
    """The fields of a ``Decided`` event, less its timing."""
    spoken = decision.action in (ActionKind.ANSWER, ActionKind.PARDON)
    return {
        "turn": decision.evidence.turn_id,
        "action": decision.action.value,
        "tool": decision.call.name if decision.call else None,
        "params": dict(decision.call.params) if decision.call else None,
        "answer": decision.text if spoken else None,
        "missing_param": decision.missing_param,
        "reason": decision.reason.value,
        "sentence": decision.reason.sentence,
        "detail": decision.detail,
        "status": status_of(decision.proposal),
        "proposed": proposed_kind(decision.proposal),
        "evidence": evidence_record(decision.evidence),
    }
