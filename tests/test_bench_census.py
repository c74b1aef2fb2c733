"""The census of a corpus: what two splits share is said, for a leak makes every held-out figure worthless."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.build.census import leaks, listed, main, ranges, table

ROOM = {
    "room_m": [5.0, 4.0, 2.5], "rt60_requested_s": 0.3, "snr_db": 20.0, "noise": "hum", "far_cutoff_hz": 5000,
    "near": "dry", "far": {"distance_m": 2.0, "rt60_s": 0.31, "drr_db": -1.0},
    "wearer_far": {"distance_m": 3.0, "rt60_s": 0.32, "drr_db": -4.0},
}  # fmt: skip


def trial(name: str, split: str, voice: str, *, room_m: float = 5.0, **more: Any) -> dict[str, Any]:
    return {
        "id": name, "family": "self_talk", "condition": "planning", "audio": f"{name}.wav", "text": None,
        "question": None, "enrolment": None, "expected": {"action": "mute", "tool": None, "answer": None},
        "target_tool": None, "pair": None, "triplet": None, "split": split,
        "segments": [
            {"start": 0.0, "end": 1.0, "speaker": "B", "distance": "far", "text": "so", "role": "self"},
        ],
        "voices": {"A": voice}, "duration_s": 1800.0, "sha256": name, "peak": 0.5,
        "acoustics": ROOM | {"room_m": [room_m, 4.0, 2.5]},
    } | more  # fmt: skip


def write(folder: Path, *trials: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "manifest.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in trials))
    return path


def test_hours_voices_and_rooms_are_counted_by_split(tmp_path: Path) -> None:
    path = write(
        tmp_path / "small",
        trial("a", "train", "af_heart"),
        trial("b", "train", "af_heart+af_sky", room_m=6.0),
        trial("c", "test", "af_nova"),
    )
    lines = table(listed([path])).splitlines()
    assert lines[2:] == [
        "| small | test | 1 | 1 | 0.50 | 1 | 0 | 1 | 1 of 1 |",
        "| small | train | 2 | 1 | 1.00 | 2 | 1 | 2 | 2 of 2 |",
    ]


def test_only_responses_that_are_heard_count(tmp_path: Path) -> None:
    shown = ranges(listed([write(tmp_path / "small", trial("a", "train", "af_heart"))]))
    assert "| far bystander: distance, m | 1 | 2.00 |" in shown
    assert "wearer from afar" not in shown
    assert "near mouth" not in shown, "dry speech has no response"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"voice": "af_nova+af_sky", "room_m": 7.0}, "voices or parts of blends"),
        ({"voice": "af_nova", "room_m": 5.0}, "rooms"),
        ({"voice": "af_nova", "room_m": 7.0, "sha256": "a"}, "recordings"),
        ({"voice": "af_nova", "room_m": 7.0, "script_family": "band"}, "script families"),
    ],
)
def test_a_leak_between_splits_is_said_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: dict[str, Any], said: str
) -> None:
    voice = other.pop("voice")
    path = write(
        tmp_path / "small",
        trial("a", "train", "af_heart+af_sky", script_family="band"),
        trial("b", "test", voice, **other),
    )
    assert said in leaks(listed([path]))[0]
    assert main([str(path)]) == 1
    assert said in capsys.readouterr().out


def test_disjoint_splits_are_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "small", trial("a", "train", "af_heart"), trial("b", "test", "af_nova", room_m=7.0))
    assert main([str(path)]) == 0
    assert "No voice, room" in capsys.readouterr().out
