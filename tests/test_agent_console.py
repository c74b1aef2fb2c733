"""The console says what was decided and why, on a terminal and in a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from agent import events
from agent.console import LiveConsole, PlainConsole, call_text
from agent.eventlog import EventLog
from agent.events import EVENT
from tests.fake_models import FakeEars, ScriptedPolicy
from tests.loop_harness import converse
from tests.test_agent_loop import BYSTANDER, CATALOGUE, CHAT, COMMAND, MONEY, REPLIES, VOICES, script


async def _through(sink) -> None:
    await converse(
        script(CHAT, COMMAND, BYSTANDER, MONEY), FakeEars(VOICES), ScriptedPolicy(REPLIES), CATALOGUE, sinks=[sink]
    )


async def test_plain_lines_show_action_words_reason_and_score():
    out = io.StringIO()
    await _through(PlainConsole(out))
    text = out.getvalue()
    assert "TOOL     send_message(recipient='Priya', body='I am late')" in text
    assert 'heard: "Text Priya that I am late."' in text
    assert "executed send_message(recipient='Priya', body='I am late'): done" in text
    assert "not run: send_message" in text
    assert "Another person spoke. (speaker other: score 0.00, owner from 0.60)" in text
    assert "PARDON?" in text
    assert "How much" in text
    assert "ended (end of source)" in text


async def test_the_panel_shows_the_last_decisions_and_the_score_needed():
    out = io.StringIO()
    sink = LiveConsole(Console(file=out, force_terminal=True, width=120))
    await _through(sink)
    text = out.getvalue()
    assert "needs 0.60" in text
    assert "TOOL" in text
    assert "PARDON?" in text
    assert sink.wants_levels


async def test_the_panel_survives_every_kind_of_event():
    sink = LiveConsole(Console(file=io.StringIO(), force_terminal=True, width=60))
    log = EventLog("s", [sink], lambda: 0.0)
    log.emit(events.SourceNotice, 0, code="only_zeros", message="only zeros: permission or muted?")
    log.emit(events.SourceLost, 0, lost_samples=320)
    log.emit(events.Failed, 0, where="policy of t0001", error="RuntimeError: broken")
    log.emit(events.ClaimWithoutExecution, 0, turn="t0001", answer="I turned it off.")
    log.level(events.Level, 0, level_dbfs=-20.0, is_speech=True)
    await sink.aclose()


def test_a_call_reads_as_a_call():
    assert call_text("make_call", {"contact": "Ben"}) == "make_call(contact='Ben')"
    assert call_text(None, None) == ""


@pytest.mark.parametrize("name", ["audio", "samples", "vector", "embedding"])
def test_no_event_can_carry_audio_or_a_voice_print(name: str):
    assert f'"{name}"' not in str(EVENT.json_schema())
