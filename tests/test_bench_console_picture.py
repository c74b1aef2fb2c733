"""The picture of the console shows what was decided, fetches nothing when looked at, and never shows a failed run."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agent.console import LiveConsole
from bench import console_picture
from bench.console_picture import FailedRunError, blank, draw
from tests.fake_models import FakeEars, ScriptedPolicy
from tests.loop_harness import converse
from tests.test_agent_loop import BYSTANDER, CATALOGUE, CHAT, COMMAND, MONEY, REPLIES, VOICES, script
from tests.test_architecture import ROOT


async def panel() -> LiveConsole:
    shown = LiveConsole(blank(100))
    await converse(
        script(CHAT, COMMAND, BYSTANDER, MONEY), FakeEars(VOICES), ScriptedPolicy(REPLIES), CATALOGUE, sinks=[shown]
    )
    return shown


def text_of(svg: str) -> str:
    texts = [node for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")]
    return " ".join("".join(node.itertext()) for node in texts).replace("\xa0", " ")


async def test_the_picture_holds_the_decisions_and_their_reasons():
    text = text_of(draw(await panel(), "voicegate replay talk.wav"))
    assert "voicegate replay talk.wav" in text
    assert "send_message(recipient='Priya', body='I am late') done" in text
    assert "Another person spoke." in text
    assert "PARDON?" in text
    assert "mute 2, pardon 1, tool 1" in text


async def test_the_same_panel_is_the_same_picture_so_it_changes_only_with_the_decisions():
    shown = await panel()
    assert draw(shown, "a") == draw(shown, "a") != draw(shown, "b")


async def test_looking_at_the_picture_asks_no_other_host():
    for svg in (draw(await panel(), "a"), (ROOT / "docs" / "console.svg").read_text(encoding="utf-8")):
        fetched = re.findall(r"""(?:url\(\s*["']?|href=["']|src=["']|@import\s*["'])(?!#)([^)"']*)""", svg)
        assert fetched == []


def test_a_failed_run_is_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    async def fails(recording: Path) -> LiveConsole:
        raise FailedRunError("speech of t0001: TimeoutError")

    monkeypatch.setattr(console_picture, "replay", fails)
    assert console_picture.main([str(tmp_path / "console.svg")]) == 1
    assert not (tmp_path / "console.svg").exists()
    assert "speech of t0001" in capsys.readouterr().err


def test_the_picture_is_written_with_what_was_replayed_as_its_title(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    async def replayed(recording: Path) -> LiveConsole:
        shown = LiveConsole(blank(100))
        await shown.aclose()
        return shown

    monkeypatch.setattr(console_picture, "replay", replayed)
    assert console_picture.main([str(tmp_path / "console.svg")]) == 0
    assert "voicegate replay bench/demo/demo.flac" in text_of((tmp_path / "console.svg").read_text(encoding="utf-8"))
