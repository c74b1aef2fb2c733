"""Counting self-corrections: what is carried out, what is left in doubt, and what comes out right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.self_corrections import count, main, report


def write(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_requests_talk_and_user_turns_are_counted_and_nothing_else(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.jsonl",
        {"text": "Set an alarm at six, no, at seven."},
        {"turns": [["user", "A coffee at six no seven"], ["assistant", "At six, no, at seven."]]},
        {"turns": ["Hello there.", "Hi."]},
        {"intent": "none"},
    )
    found = count(path)
    assert (found.texts, found.corrected, found.doubted, found.right) == (4, 1, 1, None)


def test_in_pairs_what_reads_like_the_original_is_right(tmp_path: Path) -> None:
    path = write(
        tmp_path / "disfl_qa.jsonl",
        {"disfluent": "Who won in 1999, I mean 2001?", "original": "Who won in 2001?"},
        {"disfluent": "Who won in 1999, I mean 2001?", "original": "Who lost in 2001?"},
        {"disfluent": "Who won or what not?", "original": "Who won?"},
    )
    found = count(path, paired=True)
    assert (found.texts, found.corrected, found.right) == (3, 2, 1)
    assert "| disfl_qa | 3 | 2 | 0 | 1 of 2 |" in report({"disfl_qa": found})


def test_a_missing_set_is_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "snips.jsonl", {"text": "Call Ben, no, call Ann."})
    main([str(tmp_path), "--show", "1"])
    out = capsys.readouterr().out
    assert "clinc150.jsonl: not there" in out
    assert "| snips | 1 | 1 | 0 |  |" in out
    assert "    call Ann." in out
