"""However audio is cut on its way in, the same is decided: a driver's buffer size must never license or lose a call."""

from __future__ import annotations

import asyncio
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import events, source_file
from agent.clock import Pace
from agent.source_file import FileSource
from agent.source_stdin import StdinSource
from agent.sources import ScriptedSource, Silence, Source
from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio
from tests.fake_models import FakeEars, ScriptedPolicy
from tests.loop_harness import converse
from tests.test_agent_loop import BYSTANDER, CATALOGUE, CHAT, COMMAND, MONEY, REPLIES, SIXTY, VOICES, script
from tests.test_agent_source_stdin import piped


def talk() -> Audio:
    """Small talk, a command, the same by a bystander, a command without its amount, and the amount."""
    parts = [
        np.zeros(round(part.seconds * SAMPLE_RATE_HZ), np.float32) if isinstance(part, Silence) else part
        for part in script(CHAT, COMMAND, BYSTANDER, MONEY, SIXTY)
    ]
    # As a 16-bit pipe carries it, and no whole number of frames.
    return (np.round(np.concatenate([*parts, np.zeros(123, np.float32)]) * 32_767) / 32_768).astype(np.float32)


TALK = talk()
ACTIONS = ["mute", "tool", "mute", "pardon", "tool"]


def cut(audio: Audio, sizes: list[int]) -> list[Audio]:
    """The audio in pieces of these sizes, again and again."""
    pieces: list[Audio] = []
    start = 0
    for size in cycle(sizes):
        if start >= len(audio):
            return pieces
        pieces.append(audio[start : start + size])
        start += size
    raise AssertionError("unreachable")


async def everything(source: Source) -> list[dict[str, object]]:
    """All that a session says, in order: spans, scores, decisions, executions."""
    outcome = await converse(source, FakeEars(VOICES), ScriptedPolicy(REPLIES), CATALOGUE, pace=Pace.FREE)
    assert outcome.actions == ACTIONS
    assert [call.name for call in outcome.executed] == ["send_message", "transfer_money"]
    return [
        event.model_dump(exclude={"compute_s"})
        for event in outcome.events
        if not isinstance(event, events.SourceNotice | events.SessionStarted)
    ]


@pytest.fixture(scope="module")
def whole() -> list[dict[str, object]]:
    """What is said of the talk in one piece."""
    return asyncio.run(everything(ScriptedSource([TALK])))


@pytest.mark.parametrize(
    "sizes",
    [[11], [160], [319], [321], [1_003], [1, 4_801, 7, 320, 2, 999]],
    ids=lambda sizes: "-".join(map(str, sizes)),
)
async def test_pieces_of_any_size_lead_to_the_same_decisions(sizes: list[int], whole: list[dict[str, object]]) -> None:
    assert await everything(ScriptedSource(cut(TALK, sizes))) == whole


@settings(max_examples=8)
@given(sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=40).filter(lambda sizes: sum(sizes) > 300))
async def test_no_sequence_of_pieces_changes_a_decision(sizes: list[int], whole: list[dict[str, object]]) -> None:
    assert await everything(ScriptedSource(cut(TALK, sizes))) == whole


@pytest.mark.parametrize("chunk_bytes", [997, 4_097, 65_536])
async def test_a_pipe_that_cuts_samples_in_two_is_decided_as_the_same_audio_in_one_piece(
    chunk_bytes: int, whole: list[dict[str, object]]
) -> None:
    data = (TALK * 32_768).astype("<i2").tobytes()
    with piped(data, chunk_bytes) as descriptor:
        assert await everything(StdinSource(descriptor=descriptor)) == whole


@pytest.mark.parametrize("rate_hz", [16_000, 44_100])
async def test_a_file_is_decided_the_same_in_blocks_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate_hz: int
) -> None:
    path = tmp_path / "talk.wav"
    positions = np.arange(0, len(TALK), SAMPLE_RATE_HZ / rate_hz)
    audio = np.interp(positions, np.arange(len(TALK)), TALK)
    soundfile.write(path, np.stack([audio, audio], axis=1), rate_hz)
    expected = await everything(FileSource(path))
    for values in (2 * 333, 2 * 4_801):
        monkeypatch.setattr(source_file, "_BLOCK_VALUES", values)
        assert await everything(FileSource(path)) == expected
