"""The measurement of capacity measures what it says: no figure is asserted, but a lie in one would be noticed."""

from __future__ import annotations

import asyncio
import json
import time
from multiprocessing import Pipe
from pathlib import Path

import httpx
import numpy as np
import pytest

from agent.frames import FRAME_SAMPLES, Frame
from bench import capacity, real_time, session_state
from bench.loopback_endpoint import REPLY, serve
from bench.real_time import LAG_P99_MS, LATE_MS, Measured, largest, play, together
from bench.session_state import SharedFrames, measure_state
from bench.wearers import FRAME_S, TALK, Lateness, PacedTalk, talk_frames
from models.audio_llm.conversation import AudioPart, TextPart, user
from models.audio_llm.server_load import chat_from_options

# Sessions run in real time.
pytestmark = pytest.mark.slow


def measured(
    *, loop_lag_s: float = 0.001, frame_lag_s: float = 0.001, turns: int = 5, failed: int = 0, sessions: int = 4
) -> Measured:
    lags = np.full(200, loop_lag_s), np.full(200, frame_lag_s)
    return Measured(sessions, 2.0, *lags, np.full(5, 0.7), turns, failed, 1.0)


@pytest.mark.parametrize("limit", [0, 1, 15, 16, 17, 40, 64, 100, 128, 500])
def test_the_search_finds_a_number_that_held_and_never_one_that_did_not(limit: int):
    asked: list[int] = []

    def keeps(sessions: int) -> bool:
        asked.append(sessions)
        return sessions <= limit

    found = largest(keeps, 16, 128, steps=8)
    assert found == (min(limit, 128) if limit >= 16 else 0)
    assert max(asked) <= 128
    assert found == 0 or found in asked, "what was not measured is not claimed"
    assert len(asked) == len(set(asked)), "no number is measured twice"


def test_few_steps_err_downwards():
    assert largest(lambda sessions: sessions <= 47, 16, 1024, steps=1) == 32


@pytest.mark.parametrize(
    "broken",
    [
        {"loop_lag_s": 1.5 * LAG_P99_MS / 1000},
        {"frame_lag_s": 1.5 * LATE_MS / 1000},
        {"failed": 1},
        {"turns": 0},
    ],
)
def test_a_lag_a_late_frame_a_failed_turn_or_no_turn_at_all_is_not_real_time(broken: dict[str, float]):
    assert measured().keeps_real_time
    assert measured().line().endswith("| yes |")
    found = measured(**broken)  # type: ignore[arg-type]
    assert not found.keeps_real_time
    assert found.line().endswith("| no |")


def test_one_late_process_of_two_is_late():
    found = together([measured(sessions=3), measured(sessions=2, frame_lag_s=0.3)])
    assert (found.sessions, found.turns, found.cpu_s, found.late_frames) == (5, 10, 2.0, 200)
    assert not found.keeps_real_time


def test_the_columns_of_the_tables_are_those_of_their_rows():
    rows = [
        (real_time.HEADER, measured().line()),
        (session_state.HEADER, session_state.SessionState("x", 1, 2.0, 3.0, 4.0).line()),
    ]
    for header, line in rows:
        head, rule = header.splitlines()
        assert head.count("|") == rule.count("|") == line.count("|")


async def test_a_frame_is_late_by_as_much_as_the_loop_is_behind():
    lateness = Lateness(counting=True)
    behind_s = 2.0
    source = PacedTalk(talk_frames(), 0, time.perf_counter() - behind_s, lateness)
    starts: list[int] = []
    async for item in source:
        assert isinstance(item, Frame)
        starts.append(item.start_sample)
        if len(starts) == 3:
            source.stop()
    assert starts == [0, FRAME_SAMPLES, 2 * FRAME_SAMPLES], "what is overdue is not left out"
    assert len(lateness.frames_s) == 3
    assert all(late_s >= behind_s - (number + 1) * FRAME_S for number, late_s in enumerate(lateness.frames_s))


async def test_nothing_is_counted_before_it_is_asked_for():
    lateness = Lateness()
    source = PacedTalk(talk_frames(), 0, time.perf_counter() - 1.0, lateness)
    async for _ in source:
        source.stop()
    assert len(lateness.frames_s) == 0


def test_the_talk_goes_round_in_whole_frames():
    frames = talk_frames()
    assert {frame.shape for frame in frames} == {(FRAME_SAMPLES,)}
    assert sum(bool(np.abs(frame).max() > 0.02) for frame in frames) * FRAME_S == pytest.approx(
        sum(line.seconds for line in TALK), abs=0.2
    )


async def test_state_is_that_of_the_sessions_and_not_of_what_they_are_played(tmp_path: Path):
    small = [np.zeros(FRAME_SAMPLES, np.float32)] * 50
    found = await measure_state("x", 3, lambda tally: [small], tmp_path)
    assert (found.sessions, round(found.threads)) == (3, 1), "one thread each for models"
    assert 0 < found.traced_bytes < 50 * FRAME_SAMPLES * 4 * 3


@pytest.mark.slow
async def test_a_turn_in_the_middle_holds_its_sound(tmp_path: Path):
    bytes_of = {}
    for number, (name, script) in enumerate(session_state.STATES.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        bytes_of[name] = (await measure_state(name, 3, script, folder)).traced_bytes
    silent, between, talking = bytes_of.values()
    assert silent < between < talking
    assert talking - between > session_state.OPEN_TURN_S * 0.5 * 64_000, "float32 samples at 16 kHz"


async def test_shared_frames_count_the_stream_on_across_what_they_wait_for():
    waited = asyncio.Event()

    async def wait() -> None:
        waited.set()

    one = [np.zeros(FRAME_SAMPLES, np.float32)]
    items = [item async for item in SharedFrames([one * 2, wait, one])]
    assert [item.start_sample for item in items if isinstance(item, Frame)] == [0, FRAME_SAMPLES, 2 * FRAME_SAMPLES]
    assert waited.is_set()


@pytest.mark.slow
async def test_sessions_in_real_time_decide_their_turns(tmp_path: Path):
    found = await play(3, 4.0, None, tmp_path)
    assert found.sessions == 3
    assert found.turns >= 2
    assert found.failed == 0
    assert len(found.frame_lag_s) > len(found.loop_lag_s) > 0
    assert found.cpu_s > 0


async def test_the_endpoint_speaks_what_the_client_sends_and_takes_its_time():
    here, there = Pipe()
    server = asyncio.create_task(serve(0.05, there))
    try:
        address = f"http://127.0.0.1:{await asyncio.to_thread(here.recv)}/v1"
        options = {"base_url": address, "model": "m", "stream": "off"}
        chat = chat_from_options("openai-compatible", options, {})
        start_s = time.perf_counter()
        sound = AudioPart(np.zeros(16_000, np.float32))
        reply = await asyncio.to_thread(chat.reply, [user(sound, TextPart("What now?"))], 16)
        assert time.perf_counter() - start_s >= 0.05
        assert reply.text == REPLY
        # A second request on the same connection, and many at once: the time is one reply's, not theirs in a row.
        async with httpx.AsyncClient() as client:
            answers = await asyncio.gather(*(client.post(f"{address}/chat/completions", json={}) for _ in range(20)))
            again = await client.post(f"{address}/chat/completions", json={})
        bodies = [json.loads(answer.content) for answer in [*answers, again]]
        assert {body["choices"][0]["message"]["content"] for body in bodies} == {REPLY}
    finally:
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)


@pytest.mark.slow
def test_capacity_is_a_command_and_prints_all_of_it(capsys: pytest.CaptureFixture[str]):
    small = {"state-sessions": 2, "seconds": 1.5, "processes": 1, "first": 1, "most": 1, "service-ms": 20}
    assert capacity.main([part for name, value in small.items() for part in (f"--{name}", str(value))]) == 0
    out = capsys.readouterr().out
    for text in ("are silent", "between turns", "answers at once", "an endpoint of 20 ms", "kept real time: "):
        assert text in out
