"""What came of one trial: the line of the run log, made from the session's events.

A trial can yield several decisions; all of them are kept. The trial's own action is the most consequential one: Tool,
else Answer, else Pardon, else Mute. Where models failed the trial has no action at all, so that a failure can never be
counted as a Mute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from agent import events
from agent.events import Event, EvidenceRecord, SpanS, TimingRecord
from agent.sources import NoticeCode
from bench.trials import ActionName, Segment, Trial
from gate.actions import AnswerAction, MuteAction, PardonAction, ToolAction, Unparseable
from gate.grammar import parse
from gate.span import SAMPLE_RATE_HZ
from models.audio_llm.dialects import Normalised

Status = Literal["ok", "error", "timeout", "unparseable", "no_audio"]
STATUSES: tuple[Status, ...] = ("ok", "error", "timeout", "unparseable", "no_audio")
CONSEQUENCE: tuple[ActionName, ...] = ("tool", "answer", "pardon", "mute")
"""The most consequential first."""
NO_TURN = "no_turn"
"""The reason of a trial in which nobody was heard to speak: a Mute without a decision."""
_WORST_FIRST: tuple[Status, ...] = ("error", "timeout", "unparseable")
_NOT_RUN = frozenset({"refused", "cancelled"})
_NOTHING_TO_HEAR = frozenset({NoticeCode.NO_AUDIO, NoticeCode.TOO_SHORT, NoticeCode.DIGITAL_SILENCE})
_MAX_REASON_CHARS = 500
Normalise = Callable[[str], Normalised]
"""Reads a text in native dialects (``models.audio_llm.dialects``); the class itself leaves it as it is."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DecisionRecord(_Model):
    """One decision of a session.

    Attributes:
        turn: the turn's id in the session.
        action: what was done; None when what was proposed is taken as it is and is no action.
        tool: the tool of the call, also when it was not run.
        params: its arguments.
        answer: what was said, for an answer and a Pardon.
        missing_param: the parameter that a Pardon asks for.
        reason: the gate's reason.
        detail: what in particular.
        status: how ears and policy fared.
        proposed: what the policy wanted.
        raw: the policy's text, or None when it was not asked.
        normalised: that text with the model's native dialect put into the grammar; None where nothing was to be done.
        dialect: what was normalised, or empty.
        outcome: how the call ended, or None when none was made.
        span_samples: ``(start, end)`` of the samples that the decision rests on, at 16 kHz in the session's stream.
        evidence: what the ears measured there.
        timing: where the time went, in seconds of the session's clock.
    """

    turn: str
    action: ActionName | None
    tool: str | None
    params: dict[str, object] | None
    answer: str | None
    missing_param: str | None
    reason: str
    detail: str
    status: Status
    proposed: str
    raw: str | None
    outcome: str | None
    span_samples: tuple[int, int]
    evidence: EvidenceRecord
    timing: TimingRecord
    normalised: str | None = None
    dialect: str = ""

    @property
    def ran(self) -> bool:
        """Whether a tool ran, or may have."""
        return self.action == "tool" and self.outcome not in _NOT_RUN

    def rests_on(self, segment: Segment) -> bool:
        """Whether it was made on samples of a labelled segment. What is typed has no samples, and never does."""
        start_s, end_s = self.evidence.span_s
        return start_s < segment.end and segment.start < end_s


class TrialTiming(_Model):
    """Times of a trial, in seconds from the start of its recording.

    Attributes:
        speech_end: labelled end of the speech that the right action rests on (``Trial.target_segment``).
        endpoint: when the deciding turn was closed.
        decision: when it was decided.
        executed: when its tool had run.
        compute: seconds that each stage ran, over all turns of the trial.
        audio: length of the recording; 0 for a text.
        began_unix: when the trial was started, in Unix seconds.
        ended_unix: when it had ended.
    """

    speech_end: float | None = None
    endpoint: float | None = None
    decision: float | None = None
    executed: float | None = None
    compute: dict[str, float] = Field(default_factory=dict)
    audio: float = 0.0
    began_unix: float = 0.0
    ended_unix: float = 0.0


class TrialResult(_Model):
    """One line of the run log.

    Attributes:
        id: the trial's id.
        status: ``ok``, or why there is no action.
        action: the trial's action, or None where the status is not ``ok``.
        tool: the tool of the deciding decision, also when it did not run.
        params: its arguments.
        answer: what was said; several answers are joined by line breaks.
        reason: the gate's reason, or what went wrong.
        decisions: every decision, in order.
        raw: the policy's text behind the deciding decision.
        timing: when.
        transcript: what was heard, in order.
    """

    id: str
    status: Status
    action: ActionName | None = None
    tool: str | None = None
    params: dict[str, object] | None = None
    answer: str | None = None
    reason: str = ""
    decisions: tuple[DecisionRecord, ...] = ()
    raw: str | None = None
    timing: TrialTiming = Field(default_factory=TrialTiming)
    transcript: str = ""

    @property
    def tools_run(self) -> tuple[str, ...]:
        """The names of the tools that ran, in order."""
        return tuple(decision.tool or "" for decision in self.decisions if decision.ran)


def failed(trial: Trial, status: Status, reason: str, timing: TrialTiming | None = None) -> TrialResult:
    """The result of a trial that came to no end of its own."""
    return TrialResult(
        id=trial.id, status=status, reason=reason[:_MAX_REASON_CHARS], timing=timing or TrialTiming(),
    )  # fmt: skip


def result_of(
    trial: Trial, seen: Sequence[Event], *, as_proposed: bool = False, cut_short: str = "",
    began_unix: float = 0.0, ended_unix: float = 0.0, normalise: Normalise = Normalised, dialects: bool = False,
) -> TrialResult:  # fmt: skip
    """Make a trial's result from the events of its session.

    Args:
        trial: the trial.
        seen: the session's events, in order.
        as_proposed: what the policy proposed counts as done, as in a system that has no gate.
        cut_short: why the session was ended before its end, if it was: the trial then counts as timed out.
        began_unix: when the trial was started.
        ended_unix: when it had ended.
        normalise: reads a policy's text in its native dialects.
        dialects: with ``as_proposed``, whether that reading is the one that counts.

    Returns:
        The result. Nothing in it depends on the labels but ``timing.speech_end`` and, among decisions that weigh the
        same, which of them gives the times.
    """
    decisions = decisions_of(seen, as_proposed=as_proposed, normalise=normalise, dialects=dialects)
    failures = [f"{event.where}: {event.error}" for event in seen if isinstance(event, events.Failed)]
    notices = [event for event in seen if isinstance(event, events.SourceNotice)]
    unheard = [notice.message for notice in notices if notice.code in _NOTHING_TO_HEAR]
    status = "timeout" if cut_short else _status(decisions, failures, unheard)
    # A tool that ran has run, whatever happened afterwards.
    action = most_consequential(decisions) if status == "ok" else None
    chosen = deciding(decisions, trial.target_segment())
    reason = chosen.reason if chosen is not None else NO_TURN
    if status != "ok":
        problems = [cut_short, *unheard, *failures, *(f"{d.turn}: {d.detail or d.reason}" for d in _not_ok(decisions))]
        reason = "; ".join(problem for problem in problems if problem) or status
    return TrialResult(
        id=trial.id,
        status=status,
        action=action,
        tool=chosen.tool if chosen else None,
        params=chosen.params if chosen else None,
        answer=_said(decisions, action, chosen),
        reason=reason[:_MAX_REASON_CHARS],
        decisions=decisions,
        raw=chosen.raw if chosen else None,
        timing=_timing(trial, seen, decisions, chosen, began_unix, ended_unix),
        transcript=" ".join(d.evidence.transcript for d in decisions if d.evidence.transcript),
    )


def most_consequential(decisions: Sequence[DecisionRecord]) -> ActionName:
    """The action of a trial with these decisions."""
    taken = {decision.action for decision in decisions}
    return next((action for action in CONSEQUENCE if action in taken), "mute")


def deciding(decisions: Sequence[DecisionRecord], target: Segment | None) -> DecisionRecord | None:
    """The decision that gives a trial its action; of several with that action, the first on the target's samples.

    Args:
        decisions: all of a trial, in order.
        target: the labelled speech that matters, or None.

    Returns:
        It, or None without decisions. Where nothing was an action (only unparseable proposals), the first of them.
    """
    action = most_consequential(decisions)
    weighing = [decision for decision in decisions if decision.action == action] or list(decisions)
    on_target = [decision for decision in weighing if target is not None and decision.rests_on(target)]
    return next(iter(on_target or weighing), None)


def decisions_of(
    seen: Iterable[Event], *, as_proposed: bool = False, normalise: Normalise = Normalised, dialects: bool = False
) -> tuple[DecisionRecord, ...]:
    """Every decision among a session's events, each with its proposal, and with its outcome when it had one."""
    raw_of: dict[str, str] = {}
    found: list[DecisionRecord] = []
    origin_s = 0.0
    for event in seen:
        match event:
            case events.SessionStarted():
                origin_s = event.clock_s  # the stream starts here on the session's clock
            case events.Proposed():
                raw_of[event.turn] = event.raw
            case events.Decided():
                record = _record(event, raw_of.pop(event.turn, None), origin_s, normalise)
                found.append(_as_proposed(record, dialects) if as_proposed else record)
            case events.Executed() if not as_proposed:
                _add_outcome(found, event, origin_s)
    return tuple(found)


def _record(event: events.Decided, raw: str | None, origin_s: float, normalise: Normalise) -> DecisionRecord:
    normal = Normalised("") if raw is None else normalise(raw)
    timing = event.timing.model_copy(
        update={
            "endpoint": round(event.timing.endpoint - origin_s, 6),
            "decision": round(event.timing.decision - origin_s, 6),
        }
    )
    return DecisionRecord(
        turn=event.turn, action=event.action, tool=event.tool, params=event.params, answer=event.answer,
        missing_param=event.missing_param, reason=event.reason, detail=event.detail, status=event.status,
        proposed=event.proposed, raw=raw, outcome=None, span_samples=_samples(event.evidence.span_s),
        evidence=event.evidence, timing=timing, normalised=normal.text if normal.dialect else None,
        dialect=normal.dialect,
    )  # fmt: skip


def _samples(span_s: SpanS) -> tuple[int, int]:
    return round(span_s[0] * SAMPLE_RATE_HZ), round(span_s[1] * SAMPLE_RATE_HZ)


def proposed_result(result: TrialResult, *, dialects: bool) -> TrialResult:
    """What would have come of a trial without a gate: the policy's text, taken at its word.

    Args:
        result: the trial's line of the log, of a run with a gate or without.
        dialects: whether calls in the model's native dialect count.
    """
    if result.status not in ("ok", "unparseable"):
        return result
    decisions = tuple(_as_proposed(record, dialects) for record in result.decisions)
    status = _status(decisions, [], [])
    action = most_consequential(decisions) if status == "ok" else None
    chosen = deciding(decisions, None)
    update = {
        "status": status, "action": action, "decisions": decisions, "answer": _said(decisions, action, chosen),
        "tool": chosen.tool if chosen else None, "params": chosen.params if chosen else None,
    }  # fmt: skip
    return result.model_copy(update=update)


def _as_proposed(record: DecisionRecord, dialects: bool) -> DecisionRecord:
    """The decision that the policy alone would have made. Without a proposal nothing was said, and nothing is done."""
    if record.raw is None:
        return record.model_copy(update={"action": "mute", "tool": None, "params": None, "answer": None})
    update: dict[str, object] = {
        "action": None, "tool": None, "params": None, "answer": None, "missing_param": None, "reason": "proposed",
        "outcome": None,
    }  # fmt: skip
    if record.status == "unparseable":
        update |= {"status": "ok", "detail": ""}
    match parse(record.normalised if dialects and record.normalised is not None else record.raw):
        case MuteAction():
            update |= {"action": "mute"}
        case ToolAction(call):
            update |= {"action": "tool", "tool": call.name, "params": dict(call.params)}
        case AnswerAction(text):
            update |= {"action": "answer", "answer": text}
        case PardonAction(question):
            update |= {"action": "pardon", "answer": f"Pardon? {question}".strip()}
        case Unparseable() as fault:
            update |= {"status": "unparseable", "reason": "unparseable", "detail": f"{fault.fault}: {fault.detail}"}
    return record.model_copy(update=update)


def _add_outcome(found: list[DecisionRecord], event: events.Executed, origin_s: float) -> None:
    for index in range(len(found) - 1, -1, -1):
        record = found[index]
        if record.turn == event.turn and record.action == "tool" and record.outcome is None:
            timing = record.timing.model_copy(update={"executed": round(event.clock_s - origin_s, 6)})
            found[index] = record.model_copy(update={"outcome": event.outcome, "timing": timing})
            return


def _not_ok(decisions: Sequence[DecisionRecord]) -> list[DecisionRecord]:
    return [decision for decision in decisions if decision.status != "ok"]


def _status(decisions: Sequence[DecisionRecord], failures: Sequence[str], unheard: Sequence[str]) -> Status:
    """A trial is ok when nothing failed, or when it acted all the same: a failure elsewhere does not undo an action."""
    if unheard:
        return "no_audio"
    if any(decision.status == "ok" and decision.action in ("tool", "answer") for decision in decisions):
        return "ok"
    found = {decision.status for decision in decisions}
    found |= {"timeout" if ": TimeoutError" in failure else "error" for failure in failures}
    return next((status for status in _WORST_FIRST if status in found), "ok")


def _said(decisions: Sequence[DecisionRecord], action: ActionName | None, chosen: DecisionRecord | None) -> str | None:
    if action == "answer":
        return "\n".join(d.answer for d in decisions if d.action == "answer" and d.answer is not None)
    return chosen.answer if chosen is not None else None


def compute_s(decisions: Iterable[DecisionRecord]) -> list[dict[str, float]]:
    """Seconds of each stage, turn by turn. The parts of a turn that was split (``t0001.2``) were computed together."""
    by_turn = {decision.turn.split(".")[0]: decision.timing.compute for decision in decisions}
    return list(by_turn.values())


def _timing(
    trial: Trial, seen: Sequence[Event], decisions: Sequence[DecisionRecord], chosen: DecisionRecord | None,
    began_unix: float, ended_unix: float,
) -> TrialTiming:  # fmt: skip
    compute: dict[str, float] = {}
    for turn in compute_s(decisions):
        for stage, seconds in turn.items():
            compute[stage] = round(compute.get(stage, 0.0) + seconds, 6)
    target = trial.target_segment()
    started = next((event for event in seen if isinstance(event, events.SessionStarted)), None)
    duration_s = started.source.get("duration_s") if started is not None else None
    return TrialTiming(
        speech_end=target.end if target is not None else None,
        endpoint=chosen.timing.endpoint if chosen else None,
        decision=chosen.timing.decision if chosen else None,
        executed=chosen.timing.executed if chosen else None,
        compute=compute,
        audio=float(duration_s) if isinstance(duration_s, int | float) else 0.0,
        began_unix=round(began_unix, 3),
        ended_unix=round(ended_unix, 3),
    )
