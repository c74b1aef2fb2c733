"""The bundled demo, with the real models through the real loop: what it promises to show, it shows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import soundfile

from agent import events
from agent.assemble import load_catalogue, load_parts, make_session, open_journal
from agent.clock import Pace
from agent.eventlog import MemorySink
from agent.session import OwnerMode
from agent.settings import Settings
from agent.source_file import FileSource
from agent.turn_work import Limits
from models.store import Store
from models.store_errors import ModelError
from tools.journal import JournalRow

DEMO = Path(__file__).parent.parent / "bench" / "demo"
TRUTH = json.loads((DEMO / "demo.json").read_text(encoding="utf-8"))
SEGMENTS = TRUTH["segments"]

pytestmark = pytest.mark.slow


class Replayed:
    """The finished session."""

    def __init__(self, found: list[events.Event], rows: tuple[JournalRow, ...]) -> None:
        self.events = found
        self.rows = rows
        self.decisions = [event for event in found if isinstance(event, events.Decided)]

    def of(self, segment: dict) -> events.Decided:
        """The decision about the turn that a labelled utterance lies in."""
        middle_s = (segment["start"] + segment["end"]) / 2
        return next(d for d in self.decisions if d.evidence.span_s[0] <= middle_s < d.evidence.span_s[1])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def replayed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Replayed]:
    settings = Settings()
    catalogue = load_catalogue(settings)
    try:
        parts = load_parts(settings, Store(offline=True), catalogue)
    except ModelError as error:
        pytest.skip(f"no models: {error}")
    sink = MemorySink()
    journal = open_journal(tmp_path_factory.mktemp("demo") / "journal.sqlite3")
    try:
        await make_session(
            source=FileSource(DEMO / "demo.flac"), settings=settings, parts=parts, catalogue=catalogue,
            journal=journal, sinks=[sink], pace=Pace.FREE, live=False, owner_mode=OwnerMode.INITIATOR, owner=None,
            limits=Limits(ear_s=120.0, policy_s=120.0),
        ).run()  # fmt: skip
        yield Replayed(sink.events, journal.rows())
    finally:
        journal.close()


def roles(*names: str) -> list[dict]:
    return [segment for segment in SEGMENTS if segment["role"] in names]


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_a_bystander_says_is_done_cancelled_or_confirmed(replayed: Replayed):
    strangers = roles("bystander")
    assert len(strangers) == 3
    assert [replayed.of(segment).action for segment in strangers] == ["mute"] * 3


@pytest.mark.asyncio(loop_scope="module")
async def test_the_drowned_amount_is_asked_for_completed_confirmed_and_sent(replayed: Replayed):
    (masked,) = [segment for segment in SEGMENTS if segment["mask"]]
    asked = replayed.of(masked)
    assert (asked.action, asked.answer) == ("pardon", "Pardon? How much should I send?")
    completed = replayed.of(roles("repair")[0])
    assert (completed.action, completed.reason) == ("pardon", "confirm")
    assert completed.answer == "Send Ben 60 dollars, yes?"
    confirmed = replayed.of(roles("confirmation")[0])
    assert (confirmed.action, confirmed.reason, confirmed.tool) == ("tool", "confirmed", "transfer_money")


@pytest.mark.asyncio(loop_scope="module")
async def test_the_wearer_takes_a_ride_back_in_time(replayed: Replayed):
    undo = replayed.of(roles("undo")[0])
    assert (undo.reason, undo.tool) == ("withdrawn", "book_ride")


@pytest.mark.asyncio(loop_scope="module")
async def test_the_journal_holds_what_was_done_and_nothing_else(replayed: Replayed):
    assert [(row.tool, row.state.value) for row in replayed.rows] == [
        ("send_message", "done"), ("transfer_money", "done"), ("schedule_event", "done"),
    ]  # fmt: skip
    assert replayed.rows[1].params == {"recipient": "Ben", "amount": 60, "currency": "dollars"}
    assert replayed.rows[2].params["when"] in ("7", "seven"), "corrected in one breath"


@pytest.mark.asyncio(loop_scope="module")
async def test_every_utterance_is_judged_as_labelled(replayed: Replayed):
    judged = [(replayed.of(s).action, replayed.of(s).tool if s["expected"]["tool"] else None) for s in SEGMENTS]
    assert judged == [(s["expected"]["action"], s["expected"]["tool"]) for s in SEGMENTS]


def test_the_recording_is_short_small_and_labelled_in_order():
    info = soundfile.info(DEMO / "demo.flac")
    assert info.samplerate == TRUTH["sample_rate_hz"]
    assert info.duration == pytest.approx(TRUTH["duration_s"], abs=1e-3)
    assert info.duration <= 75.0
    assert (DEMO / "demo.flac").stat().st_size <= 2.5e6
    edges = [edge for segment in SEGMENTS for edge in (segment["start"], segment["end"])]
    assert edges == sorted(edges)
    for segment in SEGMENTS:
        assert [word["word"] for word in segment["words"]] == segment["text"].split()
