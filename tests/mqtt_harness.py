"""What the tests of the MQTT output share: a broker made of lists, the executor's holds, and events to publish."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from agent import events
from agent.clock import VirtualClock
from agent.mqtt_connection import BrokerError, Connection, Inbound, Trouble
from agent.mqtt_settings import MqttSettings
from agent.output_mqtt import MqttSink

BASE = "voicegate/gate-1"
SECRET = "sixty dollars to Ben"
"""Stands wherever an event may carry somebody's words."""


def settings(**changes: Any) -> MqttSettings:
    """Plain settings for a gate called ``gate-1``."""
    return MqttSettings(**{"host": "127.0.0.1", "client_id": "gate-1", **changes})


@dataclass
class Holds:
    """The executor's side: who keeps tools off, and all that was ever asked of it."""

    held: dict[str, str] = field(default_factory=dict)
    log: list[tuple[str, str]] = field(default_factory=list)

    def hold(self, source: str, reason: str) -> None:
        self.held[source] = reason
        self.log.append(("hold", source))

    def release(self, source: str) -> None:
        self.held.pop(source, None)
        self.log.append(("release", source))


class FakeConnection:
    """An open connection to a ``FakeBroker``."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.inbox: asyncio.Queue[Inbound | Exception] = asyncio.Queue()
        self.closed = False

    async def subscribe(self, topic: str) -> bool:
        self.broker.subscribed.append(topic)
        return self.broker.may_listen

    async def publish(self, topic: str, payload: str, *, retain: bool) -> None:
        await asyncio.sleep(0)
        if self.broker.stalled:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                if not self.broker.forget_cancellations:
                    raise
                self.broker.forget_cancellations -= 1
        if self.closed or self.broker.lose_next_publish:
            self.broker.lose_next_publish = False
            raise BrokerError(Trouble.HUNG_UP, "the broker hung up")
        self.broker.published.append((topic, payload, retain))
        if self.broker.lose_next_acknowledgement:
            self.broker.lose_next_acknowledgement = False
            raise BrokerError(Trouble.HUNG_UP, "the broker hung up")

    async def messages(self) -> AsyncIterator[Inbound]:
        while True:
            item = await self.inbox.get()
            if isinstance(item, Exception):
                raise item
            yield item

    async def close(self, *, goodbye: bool) -> None:
        self.closed = True
        self.broker.goodbyes.append(goodbye)


@dataclass
class FakeBroker:
    """A broker made of lists. Set ``down`` to what a connection attempt shall fail with."""

    now_s: Callable[[], float] = lambda: 0.0
    down: Exception | None = None
    may_listen: bool = True
    stalled: bool = False
    forget_cancellations: int = 0
    lose_next_publish: bool = False
    lose_next_acknowledgement: bool = False
    attempts_s: list[float] = field(default_factory=list)
    connections: list[FakeConnection] = field(default_factory=list)
    published: list[tuple[str, str, bool]] = field(default_factory=list)
    subscribed: list[str] = field(default_factory=list)
    wills: list[tuple[str, str] | None] = field(default_factory=list)
    goodbyes: list[bool] = field(default_factory=list)

    async def connect(self, settings: MqttSettings, *, will: tuple[str, str] | None = None) -> Connection:
        self.attempts_s.append(self.now_s())
        await asyncio.sleep(0)
        if self.down is not None:
            raise self.down
        self.wills.append(will)
        self.connections.append(FakeConnection(self))
        return self.connections[-1]

    def on(self, topic: str) -> list[str]:
        """The payloads published on a topic below the base."""
        return [payload for where, payload, _ in self.published if where == f"{BASE}/{topic}"]

    def events(self) -> list[dict[str, Any]]:
        """All published events, in order."""
        return [json.loads(payload) for topic, payload, _ in self.published if topic.startswith(f"{BASE}/events/")]

    def deliver(self, payload: bytes, topic: str = f"{BASE}/mute/set", *, retained: bool = False, qos: int = 0) -> None:
        """Send the sink a message."""
        self.connections[-1].inbox.put_nowait(Inbound(topic, payload, retained, qos))

    def lose(self, error: Exception | None = None) -> None:
        """Break the connection."""
        self.connections[-1].closed = True
        self.connections[-1].inbox.put_nowait(error or BrokerError(Trouble.HUNG_UP, "the broker hung up"))


UNREACHABLE = BrokerError(Trouble.UNREACHABLE, "it cannot be reached (Connection refused)")


@dataclass
class Rig:
    """A sink with everything around it under control."""

    sink: MqttSink
    broker: FakeBroker
    clock: VirtualClock
    holds: Holds
    said: list[tuple[str, str]]

    @property
    def codes(self) -> list[str]:
        """What was said, by code."""
        return [code for code, _ in self.said]

    async def pass_s(self, seconds: float, step_s: float = 0.5) -> None:
        """Let time pass in small steps, with room for everybody after each."""
        end_s = self.clock.now_s() + seconds
        while self.clock.now_s() < end_s:
            self.clock.move_to_s(min(end_s, self.clock.now_s() + step_s))
            await settle()


async def settle(turns: int = 60) -> None:
    """Let everything that can go on without time passing go on."""
    for _ in range(turns):
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def rig(down: Exception | None = None, *, start: bool = True, **changes: Any) -> AsyncIterator[Rig]:
    """A sink on a fake broker; closed at the end, when no task of it may be left."""
    before = asyncio.all_tasks()
    clock = VirtualClock()
    broker = FakeBroker(clock.now_s, down)
    sink = MqttSink(settings(**changes), clock, unix_s=lambda: 1_000_000.0 + clock.now_s(), connect=broker.connect)
    out = Rig(sink, broker, clock, Holds(), [])
    if start:
        sink.start(out.holds, lambda code, text: out.said.append((code, text)))
        await settle()
    try:
        yield out
    finally:
        await sink.aclose()
        await settle(3)
        assert asyncio.all_tasks() == before, "a task outlives the output"


def envelope(seq: int, at_s: float = 1.0) -> dict[str, Any]:
    return {"seq": seq, "session": "s", "at_s": at_s, "clock_s": at_s}


def turn_opened(seq: int) -> events.TurnOpened:
    """An event of no weight."""
    return events.TurnOpened(**envelope(seq), turn=f"t{seq:04d}", start_s=1.0)


def executed(seq: int, turn: str = "t0001", outcome: Any = "done") -> events.Executed:
    """A call that has ended."""
    return events.Executed(
        **envelope(seq), turn=turn, tool="transfer_money", params={"recipient": SECRET}, outcome=outcome,
        detail=SECRET, summary=SECRET,
    )  # fmt: skip


def decided(seq: int, turn: str = "t0001", **changes: Any) -> events.Decided:
    """A decision for a call, full of words."""
    fields: dict[str, Any] = {
        "turn": turn, "action": "tool", "tool": "transfer_money", "params": {"recipient": SECRET}, "answer": SECRET,
        "reason": "licensed", "sentence": "The wearer asked for it.", "detail": SECRET, "proposed": "tool",
        "evidence": events.EvidenceRecord(
            span_s=(0.5, 1.0), modality="audio", transcript=SECRET,
            words=(events.WordRecord(text=SECRET, span_s=(0.5, 1.0), probability=0.9),),
            speaker=events.SpeakerRecord(verdict="owner", score=0.8125, owner_at=0.6, other_below=0.4, note=SECRET),
            distance=events.DistanceRecord(
                verdict="near", near_probability=0.9375, near_at=0.8, far_below=0.2, note=SECRET
            ),
            damage=(), overlapped=False, own_voice=False, source_gap=False,
        ),
        "timing": events.TimingRecord(speech_end=1.0, endpoint=1.6, decision=1.75),
    }  # fmt: skip
    return events.Decided(**envelope(seq), **{**fields, **changes})
