"""Operating curves: the gate itself says what would have run, and the threshold is moved over the logged scores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.clock import Pace
from agent.settings import Settings
from bench.measures import Played
from bench.operating import margins_of, operating_curves
from bench.score import load_run
from bench.trial_runner import bench_settings
from gate.catalogue import Risk
from gate.thresholds import Thresholds
from tests.bench_contestants import CALL, CHAT, FAR_CALL, OTHER_CALL, REPLIES, UNLOCK
from tests.bench_harness import decision, here, options, played, spoken
from tools.catalogue import ToolCatalogue

CATALOGUE = ToolCatalogue.builtin()
THRESHOLDS = Thresholds()
RAW = REPLIES[CALL.text]


def call(
    name: str, right: str, *, speaker: float | None, near: float | None = 0.95, raw: str = RAW, words: str = CALL.text
) -> Played:
    """A trial with one proposed call, decided as the default thresholds decide (owner from 0.6, near from 0.8)."""
    runs = speaker is not None and near is not None and speaker >= 0.6 and near >= 0.8
    made = decision(
        "tool" if runs else "mute", "make_call", speaker=speaker, near=near, raw=raw, words=words, proposed="tool",
        outcome="done" if runs else None,
    )  # fmt: skip
    return played(
        name, "speaker_switch", "same/near/0" if right == "tool" else "diff/near/0", right, made.action,
        tool="make_call" if right == "tool" else None, target="make_call", decisions=[made],
    )  # fmt: skip


def table() -> list[Played]:
    """Commands score 0.9, 0.7, 0.55, 0.5; bystanders 0.65, 0.3, 0.2, and one is far."""
    return [
        call("a", "tool", speaker=0.9), call("b", "tool", speaker=0.7), call("c", "tool", speaker=0.55),
        call("d", "tool", speaker=0.5),
        call("w", "mute", speaker=0.65), call("x", "mute", speaker=0.3), call("y", "mute", speaker=0.2),
        call("z", "mute", speaker=0.99, near=0.1),
    ]  # fmt: skip


def at(curve: dict, shift: float) -> tuple[int, int]:  # type: ignore[type-arg]
    """False executions and false rejections at the nearest point at or below a shift."""
    point = max((p for p in curve["points"] if p["shift"] <= shift + 1e-9), key=lambda p: p["shift"])
    return point["false_execution"]["k"], point["false_rejection"]["k"]


def test_the_unmoved_threshold_gives_what_was_logged_and_moving_it_trades_one_error_for_the_other():
    found = operating_curves(table(), THRESHOLDS, CATALOGUE)
    assert found is not None
    assert found["calls"] == {"moved": 8, "kept_as_they_were": 0}
    speaker = found["speaker"]
    assert at(speaker, 0.0) == (1, 2), "w runs; c and d do not"
    assert at(speaker, 0.06) == (0, 2), "w no longer runs, and b still does"
    assert at(speaker, -0.1) == (1, 0), "now c and d run too"
    assert at(speaker, -0.3) == (2, 0)
    assert at(speaker, 0.35) == (0, 4), "nobody is owner enough"
    for one, two in zip(speaker["points"], speaker["points"][1:], strict=False):
        assert one["false_execution"]["k"] >= two["false_execution"]["k"]
        assert one["false_rejection"]["k"] <= two["false_rejection"]["k"]


def test_the_far_speaker_is_let_in_by_the_distance_threshold_alone():
    found = operating_curves(table(), THRESHOLDS, CATALOGUE)
    assert found is not None
    assert at(found["distance"], -0.7) == (2, 2), "z runs as well; the speaker threshold has not moved"
    assert at(found["distance"], -0.69) == (1, 2)


def test_the_equal_error_point_is_where_the_two_rates_meet():
    found = operating_curves(table(), THRESHOLDS, CATALOGUE)
    assert found is not None
    point = found["speaker"]["equal_error"]
    # From -0.05 to 0.05: w runs, and of the commands only d does not: 1 of 4 and 1 of 4.
    assert point["rate"] == pytest.approx(0.25)
    assert -0.0501 <= point["shift"] <= 0.0501


def test_where_the_rates_never_meet_there_is_no_such_point():
    clean = [call("a", "tool", speaker=None), call("x", "mute", speaker=0.3)]
    found = operating_curves(clean, THRESHOLDS, CATALOGUE)
    assert found is not None
    assert found["distance"]["equal_error"] is None, "without a speaker score no threshold lets the command through"


def test_what_the_gate_refuses_whoever_speaks_is_moved_by_no_threshold():
    assert margins_of(decision(raw=RAW, words="What a lovely morning."), THRESHOLDS, CATALOGUE) is None
    assert margins_of(decision(raw="[Mute]", words=CALL.text), THRESHOLDS, CATALOGUE) is None
    assert margins_of(decision(raw=None), THRESHOLDS, CATALOGUE) is None


def test_a_risky_tool_needs_the_margin_that_its_risk_demands():
    low = margins_of(decision(raw=RAW, words=CALL.text, speaker=0.8), THRESHOLDS, CATALOGUE)
    high = margins_of(decision(raw=REPLIES[UNLOCK.text], words=UNLOCK.text, speaker=0.8), THRESHOLDS, CATALOGUE)
    assert low is not None
    assert high is not None
    assert low.speaker - high.speaker == pytest.approx(THRESHOLDS.by_risk[Risk.HIGH].owner_margin)


def test_decisions_that_the_log_does_not_explain_are_kept_as_they_were():
    merged = call("a", "tool", speaker=0.9)
    odd = replace(merged, result=merged.result.model_copy(update={"decisions": (
        merged.result.decisions[0].model_copy(update={"raw": "[Mute]"}),
    )}))  # fmt: skip
    found = operating_curves([odd, call("x", "mute", speaker=0.7)], THRESHOLDS, CATALOGUE)
    assert found is not None
    assert found["calls"] == {"moved": 1, "kept_as_they_were": 1}
    assert at(found["speaker"], 0.9) == (0, 0), "it ran, and runs at every threshold"


def test_a_run_without_a_gate_has_no_threshold_to_move():
    assert operating_curves([], THRESHOLDS, CATALOGUE) is None


def test_the_real_gate_s_log_is_explained_whole(tmp_path: Path):
    from bench.run import run
    from bench.trials import write_manifest

    write_manifest(
        tmp_path / "manifest.jsonl",
        [
            spoken(tmp_path, "same", [CHAT, CALL], "tool", tool="make_call"),
            spoken(tmp_path, "door", [CHAT, UNLOCK], "tool", tool="unlock_door"),
            spoken(tmp_path, "far", [CHAT, FAR_CALL], "mute"),
            spoken(tmp_path, "other", [CHAT, OTHER_CALL], "mute"),
        ],
    )
    run(options(tmp_path / "manifest.jsonl", tmp_path / "out", pace=Pace.FREE), here)
    found, _, config = load_run(tmp_path / "out")
    settings = bench_settings(Settings.model_validate_json(json.dumps(config["settings"])))
    curves = operating_curves(found, settings.gate.thresholds(), CATALOGUE)
    assert curves is not None
    assert curves["calls"] == {"moved": 4, "kept_as_they_were": 0}
    assert at(curves["speaker"], 0.0) == (0, 0)
    assert at(curves["speaker"], -0.6) == (1, 0), "the other speaker scores 0 and would be let in; the far one not"
