"""The queue before the broker: bounded, in order, and what matters most is dropped last."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import events
from agent.events import Event
from agent.mqtt_outbox import Outbox
from tests.mqtt_harness import decided, envelope, executed, turn_opened


def of_weight(weight: int, seq: int) -> Event:
    return (turn_opened, decided, executed)[weight](seq)


def drained(outbox: Outbox) -> list[int]:
    return [outbox.take().event.seq for _ in range(len(outbox))]


@settings(max_examples=150)
@given(st.lists(st.integers(0, 2), max_size=60), st.integers(1, 12))
def test_whatever_comes_it_stays_within_the_bound_in_order_and_keeps_the_heaviest_and_newest(
    weights: list[int], limit: int
):
    outbox = Outbox(limit)
    for seq, weight in enumerate(weights):
        outbox.put(of_weight(weight, seq), 0.0, 0.0)
        assert len(outbox) <= limit
    kept = drained(outbox)
    # The rule, said the other way round: of all that came, the heaviest, and among equals the newest.
    best = sorted(range(len(weights)), key=lambda seq: (weights[seq], seq), reverse=True)[:limit]
    assert kept == sorted(best)
    assert outbox.dropped == outbox.untold == len(weights) - len(kept)


def test_an_event_that_could_not_be_sent_goes_back_to_its_place():
    outbox = Outbox(10)
    for seq, weight in enumerate((0, 2, 1)):
        outbox.put(of_weight(weight, seq), 0.0, 0.0)
    first = outbox.take()
    outbox.give_back(first)
    assert drained(outbox) == [0, 1, 2]


def test_what_is_in_flight_is_not_dropped_under_the_senders_hands():
    outbox = Outbox(2)
    outbox.put(executed(0), 0.0, 0.0)
    in_flight = outbox.take()
    for seq in (1, 2, 3):
        outbox.put(turn_opened(seq), 0.0, 0.0)
    outbox.give_back(in_flight)
    assert drained(outbox) == [0, 2, 3]


@pytest.mark.parametrize(
    "event",
    [
        events.LateResult(**envelope(0), turn="t", tool="x", outcome="done"),
        events.ClaimWithoutExecution(**envelope(0), turn="t", answer="Done."),
        executed(0),
    ],
    ids=lambda event: event.event,
)
def test_everything_about_effects_outlives_decisions(event: Event):
    outbox = Outbox(1)
    outbox.put(event, 0.0, 0.0)
    assert not outbox.put(decided(1), 0.0, 0.0)
    assert drained(outbox) == [0]


def test_each_dropped_event_is_told_of_once():
    outbox = Outbox(1)
    for seq in range(4):
        outbox.put(turn_opened(seq), 0.0, 0.0)
    assert outbox.untold == 3
    outbox.told(3)
    outbox.put(turn_opened(4), 0.0, 0.0)
    assert (outbox.untold, outbox.dropped) == (1, 4)


def test_a_queue_of_nothing_is_refused():
    with pytest.raises(ValueError, match="a queue of 0 events"):
        Outbox(0)
    with pytest.raises(IndexError):
        Outbox(1).take()
