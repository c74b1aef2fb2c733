"""Builders for the gate's values, with defaults under which a call may run, and a small catalogue of tools.

Every default licenses; a test changes the one thing that it is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gate.actions import Parsed, ToolAction
from gate.catalogue import CallFault, CallProblem, ParamFacts, ParamKind, Risk, ToolCall, ToolFacts
from gate.decision import Decision, Proposal, SessionFacts, decide
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
from gate.span import SAMPLE_RATE_HZ, Span
from gate.thresholds import Thresholds

WORD_SAMPLES = SAMPLE_RATE_HZ * 3 // 10
"""Length of a built word; words follow each other after a tenth of a second."""
STEP_SAMPLES = SAMPLE_RATE_HZ * 4 // 10

LAMP = ToolFacts(
    "lamp",
    "Switch a lamp.",
    Risk.LOW,
    (
        ParamFacts("device", ParamKind.TEXT, True, "Which lamp?"),
        ParamFacts("action", ParamKind.CHOICE, True, "What should I do with it?", ("turn_on", "turn_off", "dim")),
        ParamFacts("fade", ParamKind.BOOLEAN, False, "Slowly?"),
    ),
)
MESSAGE = ToolFacts(
    "message",
    "Text a contact.",
    Risk.MEDIUM,
    (
        ParamFacts("recipient", ParamKind.TEXT, True, "Who should I text?"),
        ParamFacts("body", ParamKind.TEXT, True, "What should I say?"),
    ),
)
TRANSFER = ToolFacts(
    "transfer",
    "Send money.",
    Risk.HIGH,
    (
        ParamFacts("recipient", ParamKind.TEXT, True, "Who should I pay?"),
        ParamFacts("amount", ParamKind.NUMBER, True, "How much?"),
        ParamFacts("currency", ParamKind.CHOICE, False, "In which currency?", ("dollars", "euros", "won")),
    ),
)
ORDER = ToolFacts(
    "order",
    "Buy an item.",
    Risk.MEDIUM,
    (
        ParamFacts("item", ParamKind.TEXT, True, "What should I order?"),
        ParamFacts("quantity", ParamKind.INTEGER, True, "How many?"),
    ),
)
PANIC = ToolFacts("panic", "Call for help.", Risk.HIGH, ())


@dataclass(frozen=True)
class ToolBox:
    """A catalogue of plain facts: strict kinds, no coercion, no null."""

    tools: tuple[ToolFacts, ...] = (LAMP, MESSAGE, TRANSFER, ORDER, PANIC)

    def find(self, name: str) -> ToolFacts | None:
        """The tool of exactly that name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def all(self) -> tuple[ToolFacts, ...]:
        """Every tool."""
        return self.tools

    def summary(self, call: ToolCall) -> str:
        """The call as a short sentence."""
        return f"{call.name} {', '.join(map(str, call.params.values()))}".strip()

    def check(self, call: ToolCall) -> tuple[CallProblem, ...]:
        """Missing, extra and ill-typed arguments, in call order."""
        tool = self.find(call.name)
        if tool is None:
            return (CallProblem(CallFault.UNKNOWN_TOOL, None, f"no tool {call.name!r}"),)
        out = [
            CallProblem(CallFault.MISSING_PARAM, facts.name, f"{facts.name} is missing")
            for facts in tool.params
            if facts.required and facts.name not in call.params
        ]
        for name, value in call.params.items():
            facts = tool.param(name)
            if facts is None:
                out.append(CallProblem(CallFault.EXTRA_PARAM, name, f"{name} is unknown"))
            elif not _fits(facts, value):
                out.append(CallProblem(CallFault.BAD_VALUE, name, f"{name} does not take {value!r:.40}"))
        return tuple(out)


def _fits(facts: ParamFacts, value: object) -> bool:
    match facts.kind:
        case ParamKind.TEXT:
            return isinstance(value, str)
        case ParamKind.CHOICE:
            return value in facts.choices
        case ParamKind.BOOLEAN:
            return isinstance(value, bool)
        case ParamKind.INTEGER:
            return isinstance(value, int) and not isinstance(value, bool)
        case ParamKind.NUMBER:
            return isinstance(value, int | float) and not isinstance(value, bool)


TOOLS = ToolBox()
_LONG = Span(0, 10 * SAMPLE_RATE_HZ)
THRESHOLDS = Thresholds()


def words(text: str, start_sample: int = 0, probability: float = 0.9) -> tuple[Word, ...]:
    """The words of a text, 0.3 s each, 0.1 s apart."""
    return tuple(
        Word(part, Span(at, at + WORD_SAMPLES), probability)
        for part, at in ((part, start_sample + index * STEP_SAMPLES) for index, part in enumerate(text.split()))
    )


def speaker(
    verdict: SpeakerVerdict = SpeakerVerdict.OWNER,
    score: float | None = 0.8,
    span: Span = _LONG,
    owner_at: float = 0.5,
    other_below: float = 0.3,
) -> SpeakerEvidence:
    """A speaker claim; by default surely the owner."""
    return SpeakerEvidence(verdict, score, owner_at, other_below, span)


def proximity(
    verdict: DistanceVerdict = DistanceVerdict.NEAR,
    near_probability: float | None = 0.95,
    span: Span = _LONG,
    near_at: float = 0.6,
    far_below: float = 0.4,
) -> ProximityEvidence:
    """A distance claim; by default surely near."""
    return ProximityEvidence(verdict, near_probability, near_at, far_below, span)


def damage(start_sample: int, end_sample: int, kind: DamageKind = DamageKind.NOISE) -> DamageStretch:
    """A damaged stretch, surely one."""
    return DamageStretch(Span(start_sample, end_sample), kind, 0.99)


def evidence(
    said: str | Sequence[Word] = "send 60 dollars to Priya",
    *,
    turn_id: str = "t1",
    start_sample: int = 0,
    by: SpeakerEvidence | None = None,
    at: ProximityEvidence | None = None,
    damaged: tuple[DamageStretch, ...] | None = (),
    modality: Modality = Modality.AUDIO,
    overlapped: bool | None = False,
    own_voice: bool = False,
    source_gap: bool = False,
) -> Evidence:
    """Evidence of one turn; by default the owner near by, undamaged."""
    heard = words(said, start_sample) if isinstance(said, str) else tuple(said)
    span = Span(start_sample, max((word.span.end_sample for word in heard), default=start_sample + SAMPLE_RATE_HZ))
    return Evidence(
        turn_id,
        span,
        heard,
        by or speaker(span=span),
        at or proximity(span=span),
        damaged,
        modality,
        overlapped,
        own_voice,
        source_gap,
    )


def call(name: str, **params: object) -> ToolCall:
    """A call."""
    return ToolCall(name, params)


PAY_PRIYA = call("transfer", recipient="Priya", amount=60)


def tool(name: str, **params: object) -> Proposal:
    """A proposal to run a tool."""
    return Proposal(ToolAction(call(name, **params)))


def judge(
    proposal: Proposal | Parsed | None = None,
    on: Evidence | None = None,
    *,
    has_owner: bool = True,
    now_sample: int | None = None,
    tools_off: str = "",
    question: bool = False,
    thresholds: Thresholds = THRESHOLDS,
    catalogue: ToolBox = TOOLS,
) -> Decision:
    """``decide`` with defaults: the call ``PAY_PRIYA``, heard in full from the owner near by, at the turn's end."""
    if not isinstance(proposal, Proposal):
        proposal = Proposal(proposal if proposal is not None else ToolAction(PAY_PRIYA))
    on = on or evidence()
    now = on.span.end_sample if now_sample is None else now_sample
    return decide(proposal, on, SessionFacts(has_owner, now, tools_off, question), thresholds, catalogue)
