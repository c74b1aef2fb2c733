"""Grants: one exact call, once, in time."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.catalogue import ToolCall
from gate.decision import Decision
from gate.grants import Grant, GrantError, GrantLedger, call_digest
from gate.span import Span
from tests.gate_builders import PAY_PRIYA, THRESHOLDS, call, evidence, judge, tool


def granted(turn_id: str = "t1", decision: Decision | None = None) -> Grant:
    decision = decision or judge(on=evidence(turn_id=turn_id))
    assert decision.grant is not None
    return decision.grant


def test_a_grant_runs_its_call() -> None:
    grant = granted()
    GrantLedger().redeem(grant, PAY_PRIYA, grant.span.end_sample)


def test_spent_grant_is_refused_so_a_call_never_runs_twice() -> None:
    ledger, grant = GrantLedger(), granted()
    ledger.redeem(grant, PAY_PRIYA, 0)
    with pytest.raises(GrantError, match="spent"):
        ledger.redeem(grant, PAY_PRIYA, 0)


def test_the_same_turn_decided_again_yields_no_second_run() -> None:
    ledger = GrantLedger()
    ledger.redeem(granted(), PAY_PRIYA, 0)
    with pytest.raises(GrantError, match="spent"):
        ledger.redeem(granted(), PAY_PRIYA, 0)


def test_another_call_of_the_same_turn_is_refused_so_one_turn_executes_at_most_once() -> None:
    ledger = GrantLedger()
    ledger.redeem(granted(), PAY_PRIYA, 0)
    other = judge(tool("message", recipient="Priya", body="dollars"))
    assert other.call is not None
    with pytest.raises(GrantError, match="spent"):
        ledger.redeem(granted(decision=other), other.call, 0)


def test_the_same_words_said_again_in_a_new_turn_run_again() -> None:
    ledger = GrantLedger()
    ledger.redeem(granted("t1"), PAY_PRIYA, 0)
    ledger.redeem(granted("t2"), PAY_PRIYA, 0)


@pytest.mark.parametrize(
    "other",
    [
        call("transfer", recipient="Priya", amount=61),
        call("transfer", recipient="priya", amount=60),
        call("transfer", recipient="Priya", amount=60.0),
        call("transfer", recipient="Priya", amount="60"),
        call("transfer", recipient="Priya", amount=60, currency="dollars"),
        call("transfer", recipient="Priya"),
        call("message", recipient="Priya", amount=60),
        call("transfer", recipient="Priya", amount=True),
    ],
)
def test_a_grant_bound_to_another_call_is_refused_so_nothing_else_can_run(other: ToolCall) -> None:
    with pytest.raises(GrantError, match="another call"):
        GrantLedger().redeem(granted(), other, 0)


def test_a_refused_redemption_does_not_spend_the_grant() -> None:
    ledger, grant = GrantLedger(), granted()
    for attempt in (call("transfer"), call("message")):
        with pytest.raises(GrantError):
            ledger.redeem(grant, attempt, 0)
    ledger.redeem(grant, PAY_PRIYA, 0)


def test_the_order_of_arguments_is_no_difference() -> None:
    GrantLedger().redeem(granted(), ToolCall("transfer", {"amount": 60, "recipient": "Priya"}), 0)


def test_arguments_changed_after_the_decision_are_refused() -> None:
    params: dict[str, object] = {"recipient": "Priya", "amount": 60}
    decision = judge(tool("transfer", **params))
    mutable = ToolCall("transfer", dict(params))
    grant = granted(decision=decision)
    mutable.params["amount"] = 9_000  # type: ignore[index]
    with pytest.raises(GrantError, match="another call"):
        GrantLedger().redeem(grant, mutable, 0)


def test_an_expired_grant_is_refused_so_a_late_call_never_runs_by_surprise() -> None:
    grant = granted()
    assert grant.expires_sample == evidence().span.end_sample + THRESHOLDS.grant_life_samples
    GrantLedger().redeem(grant, PAY_PRIYA, grant.expires_sample)
    with pytest.raises(GrantError, match="expired"):
        GrantLedger().redeem(grant, PAY_PRIYA, grant.expires_sample + 1)


def test_a_time_that_is_no_number_counts_as_expired() -> None:
    with pytest.raises(GrantError, match="expired"):
        GrantLedger().redeem(granted(), PAY_PRIYA, float("nan"))  # type: ignore[arg-type]


@pytest.mark.parametrize("seal", ["", "0" * 64, "é"])
def test_a_grant_made_by_hand_is_refused(seal: str) -> None:
    with pytest.raises((GrantError, TypeError)):
        Grant("t1:x", "t1", call_digest(PAY_PRIYA), Span(0, 1), 10**9, seal)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("grant_id", "t9:x"),
        ("turn_id", "t9"),
        ("digest", call_digest(call("panic"))),
        ("span", Span(0, 1)),
        ("expires_sample", 10**12),
    ],
)
def test_an_altered_grant_is_refused_however_it_was_altered(name: str, value: object) -> None:
    grant = granted()
    with pytest.raises(GrantError):
        dataclasses.replace(grant, **{name: value})  # type: ignore[arg-type]
    object.__setattr__(grant, name, value)
    with pytest.raises(GrantError, match=r"not a minted grant|another call"):
        GrantLedger().redeem(grant, PAY_PRIYA, 0)


def test_a_copy_of_a_grant_is_the_same_grant_and_spent_with_it() -> None:
    ledger, grant = GrantLedger(), granted()
    ledger.redeem(grant, PAY_PRIYA, 0)
    for twin in (copy.copy(grant), copy.deepcopy(grant), dataclasses.replace(grant), pickle.loads(pickle.dumps(grant))):
        with pytest.raises(GrantError, match="spent"):
            ledger.redeem(twin, PAY_PRIYA, 0)


@pytest.mark.parametrize("thing", [None, "t1", 1, object(), {"grant_id": "t1"}])
def test_what_is_no_grant_is_refused(thing: object) -> None:
    with pytest.raises(GrantError, match="not a minted grant"):
        GrantLedger().redeem(thing, PAY_PRIYA, 0)  # type: ignore[arg-type]


def test_the_seal_is_in_no_log_line() -> None:
    grant = granted()
    assert grant._seal not in repr(grant)


class SlowSet(set[str]):
    """A set that lets other threads in between a look and what follows it."""

    def __contains__(self, item: object) -> bool:
        found = super().__contains__(item)
        time.sleep(0.002)
        return found


def test_of_many_threads_with_one_grant_exactly_one_runs() -> None:
    grant, threads = granted(), 8
    ledger = GrantLedger()
    ledger._spent = SlowSet()
    barrier = Barrier(threads)

    def attempt(_: int) -> bool:
        barrier.wait()
        try:
            ledger.redeem(grant, PAY_PRIYA, 0)
        except GrantError:
            return False
        return True

    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(attempt, range(threads))) == 1


@given(st.lists(st.tuples(st.sampled_from(["t1", "t2", "t3"]), st.sampled_from([60, 61]), st.integers(0, 400_000))))
@settings(max_examples=60, deadline=None)
def test_in_any_order_of_attempts_a_turn_runs_at_most_once_and_only_as_granted(
    attempts: list[tuple[str, int, int]],
) -> None:
    ledger = GrantLedger()
    grants = {turn: granted(turn) for turn in ("t1", "t2", "t3")}
    ran: list[str] = []
    for turn, amount, now in attempts:
        try:
            ledger.redeem(grants[turn], call("transfer", recipient="Priya", amount=amount), now)
        except GrantError:
            continue
        assert amount == 60
        assert now <= grants[turn].expires_sample
        ran.append(turn)
    assert len(ran) == len(set(ran))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}, b"x", "\ud800"])
def test_arguments_that_json_cannot_carry_have_no_digest(value: object) -> None:
    with pytest.raises(ValueError, match=r"JSON|encode"):
        call_digest(call("transfer", amount=value))


def test_a_bottomless_argument_has_no_digest() -> None:
    endless: list[object] = []
    for _ in range(100_000):
        endless = [endless]
    with pytest.raises(ValueError, match="JSON"):
        call_digest(call("transfer", amount=endless))
