"""The MQTT output against a broker made of lists: what is published, kept, dropped, said, and what can come back."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from agent import events, output_mqtt
from agent.mqtt_connection import BrokerError, Trouble
from agent.mqtt_settings import ToolsOff
from agent.output_mqtt import BROKER_HOLD, FIRST_YIELD_S, LAST_RETRY_S, MUTE_HOLD, STABLE_S
from agent.sources import Silence
from gate.grants import GrantLedger
from tests.fake_models import FakeEars, ScriptedPolicy, Voice, tone
from tests.loop_harness import converse
from tests.mqtt_harness import (
    UNREACHABLE,
    Holds,
    decided,
    envelope,
    executed,
    rig,
    settings,
    settle,
    turn_opened,
)
from tests.support_tools import good_call, mint
from tools.backend import OwnBackend, StubBackend
from tools.catalogue import ToolCatalogue
from tools.executor import Executor
from tools.journal import Journal
from tools.records import Refusal

TAKEN_OVER = BrokerError(Trouble.TAKEN_OVER, "another client has connected as 'gate-1'")
SILENT = BrokerError(Trouble.LOST, "the broker did not acknowledge within 10 s")


# What is published ----------------------------------------------------------------------------------------------------


async def test_each_event_is_published_once_in_order_under_an_id_of_its_own():
    async with rig() as r:
        for event in (turn_opened(0), decided(1), executed(2)):
            r.sink.emit(event)
        await settle()
        found = r.broker.events()
    assert [event["id"] for event in found] == ["s-0", "s-1", "s-2"]
    assert [event["event"] for event in found] == ["turn_opened", "decided", "executed"]
    assert not any(event["late"] or event["dropped_before"] for event in found)
    topics = [topic for topic, _, retain in r.broker.published if not retain]
    assert topics == [f"voicegate/gate-1/events/{event['event']}" for event in found]


async def test_levels_are_never_published_so_the_broker_is_not_flooded():
    async with rig() as r:
        r.sink.emit(events.Level(**envelope(0), level_dbfs=-20.0, is_speech=True))
        await settle()
        assert r.broker.events() == []
    assert not r.sink.wants_levels


async def test_emitting_never_waits_for_a_broker_that_hangs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(output_mqtt, "CLOSE_LIMIT_S", 0.05)
    async with rig() as r:
        r.broker.stalled = True
        for seq in range(100):
            r.sink.emit(turn_opened(seq))  # not a coroutine: it cannot wait
        await settle()
        assert r.broker.events() == []


async def test_state_says_online_listening_and_offline_and_the_will_says_offline():
    async with rig() as r:
        assert r.broker.wills == [("voicegate/gate-1/state", "offline")]
        started = events.SessionStarted(
            **envelope(0), source={}, pace="wall", owner="initiator", policy="p", models={}, thresholds={}
        )
        r.sink.emit(started)
        await settle()
        ended = events.SessionEnded(**envelope(1), audio_s=1.0, turns=0, decisions={}, reason="stopped")
        r.sink.emit(ended)
        await settle()
    assert r.broker.on("state") == ["online", "listening", "online", "offline"]
    assert all(retain for topic, _, retain in r.broker.published if topic.endswith("/state"))


async def test_last_decision_is_retained_and_learns_how_its_call_ended():
    async with rig() as r:
        r.sink.emit(decided(0, "t0001"))
        await settle()
        r.sink.emit(executed(1, "t0000"))
        r.sink.emit(executed(2, "t0001", "outcome_unknown"))
        await settle()
    first, second = (json.loads(payload) for payload in r.broker.on("last_decision"))
    assert (first["action"], first["reason"], first["outcome"]) == ("tool", "licensed", None)
    assert second == {**first, "outcome": "outcome_unknown"}


# Outages --------------------------------------------------------------------------------------------------------------


async def test_events_of_an_outage_come_later_once_each_with_the_same_id_and_marked_late():
    async with rig() as r:
        r.broker.down = UNREACHABLE
        r.broker.lose()
        await settle()
        for seq in range(3):
            r.sink.emit(executed(seq))
        await r.pass_s(300.0, 2.0)
        assert r.broker.events() == []
        r.broker.down = None
        await r.pass_s(LAST_RETRY_S)
        r.sink.emit(executed(3))
        await settle()
        found = r.broker.events()
    assert [event["id"] for event in found] == ["s-0", "s-1", "s-2", "s-3"]
    assert [event["late"] for event in found] == [True, True, True, False]
    assert {event["unix_s"] for event in found[:3]} == {1_000_000.0}, "stamped when it happened, not when it was sent"


async def test_an_event_whose_acknowledgement_was_lost_comes_again_under_its_own_id_so_readers_can_tell():
    async with rig() as r:
        r.broker.lose_next_acknowledgement = True
        r.sink.emit(executed(0))
        r.sink.emit(executed(1))
        await settle()
        await r.pass_s(2.0)
        found = r.broker.events()
    assert [event["id"] for event in found] == ["s-0", "s-0", "s-1"]
    assert found[0] == found[1]


async def test_a_broken_publish_loses_and_doubles_nothing():
    async with rig() as r:
        r.broker.lose_next_publish = True
        for seq in range(4):
            r.sink.emit(executed(seq))
        await r.pass_s(2.0)
        assert [event["id"] for event in r.broker.events()] == [f"s-{seq}" for seq in range(4)]


async def test_after_a_reconnect_the_switch_is_subscribed_again_and_retained_topics_are_republished():
    async with rig() as r:
        r.sink.emit(decided(0))
        await settle()
        r.broker.published.clear()
        r.broker.lose()
        await settle()
        await r.pass_s(2.0)
        assert r.broker.subscribed == ["voicegate/gate-1/mute/set"] * 2
        retained = {topic for topic, _, retain in r.broker.published if retain}
    assert retained == {f"voicegate/gate-1/{name}" for name in ("state", "mute/state", "last_decision")}


async def test_retries_double_up_to_a_minute_the_same_on_each_run_and_start_anew_after_a_stable_connection():
    async with rig(UNREACHABLE) as r:
        await r.pass_s(250.0)
        assert r.broker.attempts_s == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 123.0, 183.0, 243.0]
        r.broker.down = None
        await r.pass_s(LAST_RETRY_S + STABLE_S)
        r.broker.down = UNREACHABLE
        r.broker.lose()
        await settle()
        lost_s = r.clock.now_s()
        await r.pass_s(8.0)
        assert [round(at_s - lost_s, 1) for at_s in r.broker.attempts_s[-3:]] == [1.0, 3.0, 7.0]


async def test_an_outage_of_hours_is_one_line_not_thousands():
    async with rig(UNREACHABLE) as r:
        await r.pass_s(3600.0, 10.0)
        assert r.codes == ["unreachable"]
        r.broker.down = BrokerError(Trouble.REFUSED, "the broker refuses us")
        await r.pass_s(600.0, 10.0)
        assert r.codes == ["unreachable", "refused"], "another reason is another line"
        r.broker.down = None
        await r.pass_s(61.0, 1.0)
        assert r.codes == ["unreachable", "refused", "connected"]


async def test_ten_thousand_events_without_a_broker_stay_within_the_bound_and_keep_effects_and_decisions():
    async with rig(UNREACHABLE, queue_messages=100) as r:
        for seq in range(0, 10_000, 1000):
            r.sink.emit(executed(seq))
            r.sink.emit(decided(seq + 1))
            for other in range(seq + 2, seq + 1000):
                r.sink.emit(turn_opened(other))
        await settle()
        assert len(r.sink._outbox) == 100
        assert r.codes.count("dropping") == 1, "said once, not ten thousand times"
        r.broker.down = None
        await r.pass_s(2.0)
        found = r.broker.events()
        assert r.codes[-1] == "dropped"
        assert "9900" in r.said[-1][1]
    kinds = [event["event"] for event in found]
    assert (kinds.count("executed"), kinds.count("decided"), len(found)) == (10, 10, 100)
    assert [event["seq"] for event in found] == sorted(event["seq"] for event in found)
    assert [event["dropped_before"] for event in found] == [9900] + [0] * 99, "the next message reports it, once"


async def test_without_end_nothing_but_effects_still_stays_within_the_bound():
    async with rig(UNREACHABLE, queue_messages=10) as r:
        for seq in range(1000):
            r.sink.emit(executed(seq))
        assert len(r.sink._outbox) == 10
        r.broker.down = None
        await r.pass_s(2.0)
        assert [event["seq"] for event in r.broker.events()] == list(range(990, 1000)), "the oldest go"


async def test_an_event_that_cannot_be_written_is_said_and_passed_over_and_does_not_block_the_others():
    async with rig(transcripts=True) as r:
        r.sink.emit(decided(0, params={"amount": object()}))
        r.sink.emit(executed(1))
        await settle()
        assert [event["id"] for event in r.broker.events()] == ["s-1"]
        assert r.codes == ["connected", "unpublishable"]


async def test_broken_text_does_not_break_the_connection():
    async with rig(transcripts=True) as r:
        r.sink.emit(decided(0, answer="half a character: \ud83d"))
        await settle()
        assert [event["id"] for event in r.broker.events()] == ["s-0"]
        assert r.codes == ["connected"]


# Tools off ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [UNREACHABLE, BrokerError(Trouble.REFUSED, "wrong password"), BrokerError(Trouble.TLS, "no trust")]
)
async def test_a_broker_that_was_never_reached_keeps_tools_off_until_it_is(error: BrokerError):
    async with rig(error) as r:
        await r.pass_s(100.0, 2.0)
        assert set(r.holds.held) == {BROKER_HOLD}
        r.broker.down = None
        await r.pass_s(LAST_RETRY_S)
        assert r.holds.held == {}
        assert r.codes == [error.trouble.value, "connected"], "one line per change"


@pytest.mark.parametrize(
    ("policy", "at_start", "in_outage"),
    [
        (ToolsOff.UNTIL_CONNECTED, True, False),
        (ToolsOff.WHILE_DISCONNECTED, True, True),
        (ToolsOff.NEVER, False, False),
    ],
)
async def test_when_a_missing_broker_switches_tools_off_is_the_users_choice(
    policy: ToolsOff, at_start: bool, in_outage: bool
):
    async with rig(UNREACHABLE, tools_off=policy) as r:
        assert (BROKER_HOLD in r.holds.held) is at_start
        r.broker.down = None
        await r.pass_s(2.0)
        assert r.holds.held == {}
        r.broker.down = UNREACHABLE
        r.broker.lose()
        await settle()
        assert (BROKER_HOLD in r.holds.held) is in_outage


async def test_a_fault_of_the_output_itself_is_said_and_switches_tools_off(monkeypatch: pytest.MonkeyPatch):
    async with rig(tools_off=ToolsOff.NEVER) as r:
        monkeypatch.setattr(output_mqtt, "event_message", lambda *args, **kwargs: 1 / 0)
        r.sink.emit(executed(0))
        await settle()
        assert r.codes[-1] == "failed"
        assert set(r.holds.held) == {BROKER_HOLD}
        r.sink.emit(executed(1))  # and the loop goes on


# The switch -----------------------------------------------------------------------------------------------------------


async def test_the_switch_keeps_tools_off_and_takes_back_no_hold_but_its_own():
    async with rig() as r:
        r.holds.hold("owner", "nobody is enrolled")
        r.broker.deliver(b"ON")
        await settle()
        assert set(r.holds.held) == {"owner", MUTE_HOLD}
        r.broker.deliver(b"OFF")
        await settle()
        assert set(r.holds.held) == {"owner"}
    assert r.broker.on("mute/state") == ["OFF", "ON", "OFF"]
    assert r.codes == ["connected", "muted", "unmuted"]


async def test_off_alone_releases_nothing_so_a_message_can_never_open_the_gate():
    async with rig() as r:
        r.holds.hold("owner", "nobody is enrolled")
        before = list(r.holds.log)
        r.broker.deliver(b"OFF")
        await settle()
        assert r.holds.log == before
        assert r.broker.on("mute/state") == ["OFF", "OFF"], "who pressed it gets an answer"


IGNORED = {
    "retained, perhaps from last week": (b"ON", {"retained": True}),
    "retained OFF": (b"OFF", {"retained": True}),
    "redelivered (DUP needs QoS 1)": (b"OFF", {"qos": 1}),
    "0 bytes": (b"", {}),
    "1 MB": (b"ON" * 500_000, {}),
    "not UTF-8": (b"\xff\xfe\x00ON", {}),
    "JSON": (b'{"state": "ON"}', {}),
    "a tool call": (b'{"name": "unlock_door", "params": {"door": "front"}}', {}),
    "lower case": (b"off", {}),
    "with a newline": (b"OFF\n", {}),
    "another topic": (b"OFF", {"topic": "voicegate/gate-1/mute/state"}),
    "a wildcard for a topic": (b"OFF", {"topic": "voicegate/+/mute/#"}),
}


@pytest.mark.parametrize("case", IGNORED)
async def test_anything_but_a_fresh_on_or_off_changes_nothing_and_is_noted(case: str):
    payload, how = IGNORED[case]
    async with rig() as r:
        r.broker.deliver(b"ON")
        await settle()
        before = list(r.holds.log)
        r.broker.deliver(payload, **how)
        await settle()
        assert r.holds.log == before
        assert r.codes == ["connected", "muted", "ignored"]
        assert len(r.said[-1][1]) < 200, "a hostile payload is not repeated"
        r.broker.deliver(b"OFF")
        await settle()
        assert r.holds.held == {}, "the loop lives"


async def test_a_flood_of_garbage_is_a_few_lines_and_the_switch_still_works():
    async with rig() as r:
        for _ in range(1500):
            r.broker.deliver(b"garbage")
        r.broker.deliver(b"ON")
        await settle(4000)
        assert r.codes == ["connected", *["ignored"] * 4, "muted"]
        assert [text.rpartition(" (")[2] for _, text in r.said[2:5]] == [
            "10 times now)", "100 times now)", "1000 times now)",
        ]  # fmt: skip


async def test_a_restart_does_not_unmute(tmp_path: Path):
    file = tmp_path / "state" / "muted"
    async with rig(mute_file=file) as r:
        r.broker.deliver(b"ON")
        await settle()
    async with rig(UNREACHABLE, mute_file=file) as r:
        assert MUTE_HOLD in r.holds.held, "before the broker is reached"
        r.broker.down = None
        await r.pass_s(2.0)
        assert r.broker.on("mute/state") == ["ON"]
        r.broker.deliver(b"OFF")
        await settle()
    async with rig(mute_file=file) as r:
        assert r.holds.held == {}


async def test_a_mute_that_cannot_be_kept_is_said_and_holds_all_the_same(tmp_path: Path):
    (tmp_path / "file").write_text("")
    async with rig(mute_file=tmp_path / "file" / "muted") as r:
        r.broker.deliver(b"ON")
        await settle()
        assert MUTE_HOLD in r.holds.held
        assert r.codes == ["connected", "mute_not_kept", "muted"]


async def test_a_broker_that_forbids_the_switch_is_said():
    async with rig(start=False) as r:
        r.broker.may_listen = False
        r.sink.start(r.holds, lambda code, text: r.said.append((code, text)))
        await settle()
        assert r.codes == ["connected", "no_switch"]


async def test_muted_over_mqtt_the_real_executor_runs_nothing(tmp_path: Path):
    journal, backend, ledger = Journal(tmp_path / "j.sqlite3", unix_s=lambda: 0.0), StubBackend(), GrantLedger()
    async with rig() as r:
        executor = Executor(
            ToolCatalogue.builtin(), OwnBackend(backend), journal, ledger, r.clock, session_id="s"
        )  # fmt: skip
        r.sink._holds = executor
        r.broker.deliver(b"ON")
        await settle()
        record = await executor.execute(good_call(), mint(good_call()), now_sample=0)
        assert record.refusal is Refusal.TOOLS_OFF
        assert backend.effects == ()
        await executor.aclose()
    journal.close()


# Two clients with one id ----------------------------------------------------------------------------------------------


async def test_same_client_id_twice_is_a_clear_line_and_no_endless_kicking():
    async with rig() as r:
        for times, minutes in enumerate((10, 20, 40, 80), 1):
            r.broker.lose(TAKEN_OVER)
            await settle()
            await r.pass_s(60.0 * minutes - 1.0, 10.0)
            assert len(r.broker.connections) == times, "the other one is left alone, longer each time"
            assert f"stays away for {minutes} minutes" in r.said[-1][1]
            await r.pass_s(2.0)
            assert len(r.broker.connections) == times + 1
        assert r.codes == ["connected", *["taken_over", "connected"] * 4]
        await r.pass_s(STABLE_S, 10.0)
        r.broker.lose(TAKEN_OVER)
        await settle()
        assert "for 10 minutes" in r.said[-1][1]


async def test_a_broker_that_does_not_say_so_is_understood_at_the_third_hang_up_in_a_row():
    async with rig() as r:
        for pause_s in (1.0, 2.0):
            r.broker.lose()
            await settle()
            await r.pass_s(pause_s)
        assert len(r.broker.connections) == 3
        r.broker.lose()
        await settle()
        assert r.said[-1][0] == "taken_over"
        assert "another client seems to connect as 'gate-1'" in r.said[-1][1]
        await r.pass_s(FIRST_YIELD_S - 1.0, 10.0)
        assert len(r.broker.connections) == 3
        await r.pass_s(2.0)
        assert len(r.broker.connections) == 4


@pytest.mark.parametrize("between", ["the broker is away", "the connection lasts", "the broker is silent"])
async def test_a_broker_that_restarts_or_a_bad_network_is_not_taken_for_another_client(between: str):
    async with rig() as r:
        for _ in range(6):
            if between == "the connection lasts":
                await r.pass_s(STABLE_S, 10.0)
            r.broker.down = UNREACHABLE if between == "the broker is away" else None
            r.broker.lose(SILENT if between == "the broker is silent" else None)
            await settle()
            await r.pass_s(LAST_RETRY_S / 2, 2.0)
            r.broker.down = None
            await r.pass_s(LAST_RETRY_S, 2.0)
        assert "taken_over" not in r.codes
        assert len(r.broker.connections) == 7


async def test_leaving_does_not_throw_the_other_client_out():
    async with rig() as r:
        r.broker.lose(TAKEN_OVER)
        await settle()
        r.sink.emit(executed(0))
        await r.sink.aclose()
        assert len(r.broker.connections) == 1


# The end --------------------------------------------------------------------------------------------------------------


async def test_the_last_event_before_ctrl_c_is_flushed():
    async with rig() as r:
        r.sink.emit(executed(0))
        r.sink.emit(events.SessionEnded(**envelope(1), audio_s=1.0, turns=0, decisions={}, reason="stopped"))
        await r.sink.aclose()
        assert [event["event"] for event in r.broker.events()] == ["executed", "session_ended"]
        assert r.broker.on("state")[-1] == "offline"
        assert r.broker.goodbyes == [True]


async def test_at_the_end_one_more_attempt_is_made_so_a_broker_that_is_back_gets_everything():
    async with rig(UNREACHABLE) as r:
        r.sink.emit(executed(0))
        await r.pass_s(20.0)
        r.broker.down = None
        await r.sink.aclose()
        assert [event["id"] for event in r.broker.events()] == ["s-0"]


async def test_what_could_not_be_delivered_at_the_end_is_said_to_be_lost(caplog: pytest.LogCaptureFixture):
    async with rig(UNREACHABLE) as r:
        for seq in range(3):
            r.sink.emit(executed(seq))
        with caplog.at_level(logging.WARNING, "agent.output_mqtt"):
            await r.sink.aclose()
    assert [record.message for record in caplog.records if "lost" in record.message] == [
        "MQTT 127.0.0.1:1883: 3 events could not be published and are lost to the broker"
    ]


async def test_a_broker_that_never_acknowledges_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(output_mqtt, "CLOSE_LIMIT_S", 0.05)
    async with rig() as r:
        r.broker.stalled = True
        r.sink.emit(executed(0))
        await settle()
        await asyncio.wait_for(r.sink.aclose(), 0.5)
        assert r.broker.goodbyes == [False], "or nobody would ever say that the gate is offline"
    assert "1 events could not be published" in caplog.text


async def test_a_cancellation_that_asyncio_forgets_does_not_keep_the_gate_from_ending(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(output_mqtt, "CLOSE_LIMIT_S", 0.05)
    async with rig() as r:
        r.broker.stalled, r.broker.forget_cancellations = True, 3
        for seq in range(10):
            r.sink.emit(executed(seq))
        await settle()
        await asyncio.wait_for(r.sink.aclose(), 0.5)
        assert r.broker.forget_cancellations == 0


async def test_a_second_ctrl_c_ends_the_flush_at_once_and_leaves_no_task(caplog: pytest.LogCaptureFixture):
    async with rig() as r:
        r.broker.stalled = True
        r.sink.emit(executed(0))
        await settle()
        closing = asyncio.create_task(r.sink.aclose())
        await settle()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    assert "1 events could not be published" in caplog.text


async def test_an_output_that_was_never_started_closes_too():
    async with rig(start=False) as r:
        r.sink.emit(executed(0))


async def test_another_output_that_fails_on_our_notice_does_not_stop_the_publishing():
    async with rig(start=False) as r:

        def full_disk(code: str, text: str) -> None:
            raise OSError("no space left on device")

        r.sink.start(r.holds, full_disk)
        r.sink.emit(executed(0))
        await settle()
        assert [event["id"] for event in r.broker.events()] == ["s-0"]


async def test_a_certificate_that_is_not_checked_is_said_at_the_start():
    from agent.mqtt_settings import TlsSettings

    async with rig(tls=TlsSettings(insecure=True)) as r:
        assert r.codes[0] == "insecure"


async def test_without_anybody_to_tell_the_log_is_told(caplog: pytest.LogCaptureFixture):
    async with rig(start=False) as r:
        with caplog.at_level(logging.WARNING):
            r.sink.start(Holds())
            await settle()
    assert "connected as gate-1" in caplog.text


# In the loop ----------------------------------------------------------------------------------------------------------

COMMAND = Voice(400, "Text Priya that I am late.")
SEND = '<|TOOL|>{"name": "send_message", "params": {"recipient": "Priya", "body": "I am late"}}</|TOOL|>'


async def _converse(r):
    return await converse(
        [Silence(0.5), tone(COMMAND), Silence(1.0)], FakeEars([COMMAND]), ScriptedPolicy({COMMAND.text: SEND}),
        ToolCatalogue.builtin(), sinks=[r.sink],
    )  # fmt: skip


async def test_the_gate_decides_the_same_with_and_without_a_broker():
    async with rig() as with_broker:
        good = await _converse(with_broker)
    async with rig(UNREACHABLE) as without:
        bad = await _converse(without)
    assert good.actions == bad.actions == ["tool"]
    assert len(good.executed) == len(bad.executed) == 1
    published = [event["id"] for event in with_broker.broker.events()]
    assert published == [f"s-{event.seq}" for event in good.events], "every event of the session, the last included"
    assert without.broker.events() == []


async def test_no_words_leave_the_machine_unless_the_settings_say_so():
    async with rig() as silent:
        await _converse(silent)
    async with rig(transcripts=True) as open_rig:
        await _converse(open_rig)
    assert "Priya" not in repr(silent.broker.published)
    assert "Priya" in repr(open_rig.broker.published)


def test_the_settings_of_these_tests_name_a_loopback_address_only():
    assert settings().host == "127.0.0.1"
