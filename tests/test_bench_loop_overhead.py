"""The loop's overhead is measured over the loop: with turns in it, and with the detector that was asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agent import assemble
from agent.frames import FRAME_SAMPLES
from bench import loop_overhead
from bench.loop_overhead import HEADER, LevelDetector, detector_alone, loop_over
from bench.wearers import talk_frames


@pytest.mark.parametrize("detector", ["level", "real"])
async def test_talk_gives_turns_with_either_detector(tmp_path: Path, detector: str):
    kept = vars(assemble)["make_vad"]
    found = await loop_over("talk", talk_frames()[:600], detector, tmp_path)
    assert found.turns == 3, "one every five seconds: a loop that heard nothing would be cheap"
    assert found.cpu_s > 0
    assert found.models_s is not None
    assert vars(assemble)["make_vad"] is kept, "later sessions have the real detector"


async def test_silence_gives_none(tmp_path: Path):
    found = await loop_over("silence", [np.zeros(FRAME_SAMPLES, np.float32)] * 50, "real", tmp_path)
    assert (found.turns, found.models_s) == (0, 0.0)


def test_the_level_detector_tells_a_voice_from_silence():
    detector = LevelDetector()
    frames = talk_frames()
    assert detector.is_speech(frames[20])
    assert not detector.is_speech(np.zeros(FRAME_SAMPLES, np.float32))
    detector.reset()


def test_the_columns_are_those_of_the_rows():
    head, rule = HEADER.splitlines()
    assert head.count("|") == rule.count("|") == detector_alone("talk", talk_frames()[:50]).line().count("|")


@pytest.mark.slow
def test_it_is_a_command(capsys: pytest.CaptureFixture[str]):
    assert loop_overhead.main(["--seconds", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert [line.split("|")[1:3] for line in lines[2:4]] == [[" silence ", " level "], [" silence ", " real "]]
