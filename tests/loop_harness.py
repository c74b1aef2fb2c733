"""Runs a scripted conversation through the real loop with the fake models; used by the tests of the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agent import events
from agent.clock import Pace
from agent.closing import ClosingSettings
from agent.eventlog import EventLog, MemorySink, Sink
from agent.events import Event
from agent.loop import Loop, make_clock, make_worker
from agent.session import OwnerMode
from agent.sources import Script, ScriptedSource, Source
from agent.turn_work import Limits, SessionBox, TurnWork
from agent.turns import TurnDetector
from gate.catalogue import Catalogue, Risk, ToolCall
from gate.confirm import ConfirmSettings
from gate.grants import Grant, GrantLedger
from gate.repair import RepairSettings
from gate.thresholds import Thresholds
from models.protocols import Policy
from tests.fake_models import FakeEars, FixedDistanceThresholds, FixedSpeakerThresholds, LevelVad


@dataclass(frozen=True)
class Ran:
    """What the fake executor reports."""

    state: str = "done"
    detail: str = ""
    summary: str = ""


@dataclass
class RecordingExecutor:
    """Redeems grants for real and remembers what ran."""

    calls: list[ToolCall] = field(default_factory=list)
    ledger: GrantLedger = field(default_factory=GrantLedger)

    async def __call__(self, call: ToolCall, grant: Grant, *, now_sample: int) -> Ran:
        self.ledger.redeem(grant, call, now_sample)
        self.calls.append(call)
        return Ran()


@dataclass
class Outcome:
    """What a conversation led to."""

    events: list[Event]
    executed: list[ToolCall]

    @property
    def decisions(self) -> list[events.Decided]:
        return [event for event in self.events if isinstance(event, events.Decided)]

    @property
    def actions(self) -> list[str]:
        return [event.action for event in self.decisions]

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.decisions]


async def converse(
    script: Script | Source,
    ears: FakeEars,
    policy: Policy,
    catalogue: Catalogue,
    *,
    pace: Pace = Pace.CHARGED,
    owner_mode: OwnerMode = OwnerMode.INITIATOR,
    question: str | None = None,
    tools_off: str = "",
    limits: Limits | None = None,
    sinks: Sequence[Sink] = (),
    before_run: Callable[[Loop], None] = lambda loop: None,
    executor: RecordingExecutor | None = None,
    live: bool = False,
    confirmations: ConfirmSettings | None = None,
    grace_s: Mapping[Risk, float] | None = None,
    closing: ClosingSettings | None = None,
) -> Outcome:
    """Run one session to its end."""
    memory = MemorySink()
    clock = make_clock(pace)
    log = EventLog("s", [memory, *sinks], clock.now_s)
    ran = executor or RecordingExecutor()
    source = ScriptedSource(script) if isinstance(script, list | tuple) else script

    def work(position: Callable[[], int]) -> TurnWork:
        return TurnWork(
            ears=ears.ears(), policy=policy, catalogue=catalogue, execute=ran,
            speaker_thresholds=FixedSpeakerThresholds(), distance_thresholds=FixedDistanceThresholds(),
            thresholds=Thresholds(), repair=RepairSettings(), owner_mode=owner_mode, box=SessionBox(), log=log,
            position=position, question=question, tools_off=lambda: tools_off, limits=limits or Limits(),
            confirmations=confirmations or ConfirmSettings(), grace_s=grace_s or {},
        )  # fmt: skip

    loop = Loop(
        source=source, vad=LevelVad(), turns=TurnDetector(), clock=clock, worker=make_worker(pace, clock), log=log,
        work=work, live=live, closing=closing,
    )  # fmt: skip
    before_run(loop)
    try:
        await loop.run()
    finally:
        outcome = Outcome(memory.events, ran.calls)
    return outcome
