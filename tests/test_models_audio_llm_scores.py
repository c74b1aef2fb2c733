"""Strict and normalised scores of the same replies, in the bench's log and summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.clock import Pace
from agent.settings import Settings
from bench.contestants import Contestant, make_setup
from bench.rehearsal import RehearsedEars, rehearsed_parts
from bench.results import TrialResult, proposed_result
from bench.score_gate import gate_scores
from bench.trial_runner import RunSpec, TrialRunner, bench_settings
from bench.trials import Trial
from models.audio_llm.policy import AudioLlmPolicy
from models.store import Store
from tests.bench_contestants import CALL, CHAT, LINES
from tests.bench_harness import decision, played, spoken
from tests.test_models_audio_llm_policy import ScriptedChat

BRACKETS = '[make_call(contact="my sister")]'
CANONICAL = '<|TOOL|>{"name": "make_call", "params": {"contact": "my sister"}}</|TOOL|>'


def play(folder: Path, trial: Trial, reply: str, *, dialects: bool = False, as_proposed: bool = True) -> TrialResult:
    settings = bench_settings(Settings.model_validate({"models": {"dialects": dialects}}), threads=1)
    setup = make_setup(settings, Store())
    parts = rehearsed_parts(RehearsedEars(LINES), AudioLlmPolicy(ScriptedChat(reply)))
    contestant = Contestant(parts, setup.catalogue, as_proposed=as_proposed)
    runner = TrialRunner(RunSpec("x", settings.model_dump_json(), Pace.CHARGED, 0, 60.0, folder), contestant)
    try:
        return runner.run(trial)
    finally:
        runner.close()


@pytest.fixture
def command(tmp_path: Path) -> Trial:
    return spoken(tmp_path, "same", [CHAT, CALL], "tool", tool="make_call")


def test_the_log_keeps_the_reply_and_its_normalised_form(tmp_path: Path, command: Trial) -> None:
    """A score that cannot be recomputed from the log cannot be checked."""
    result = play(tmp_path, command, BRACKETS, as_proposed=False)
    last = result.decisions[-1]
    assert (last.raw, last.normalised, last.dialect) == (BRACKETS, CANONICAL, "af3_brackets")
    assert TrialResult.model_validate_json(result.model_dump_json()) == result
    plain = play(tmp_path, command, CANONICAL, as_proposed=False).decisions[-1]
    assert (plain.normalised, plain.dialect) == (None, "")


def test_without_a_gate_a_dialect_counts_only_where_the_settings_say_so(tmp_path: Path, command: Trial) -> None:
    """The papers mix strict and normalised credit; here each is named."""
    strict = play(tmp_path, command, BRACKETS)
    assert (strict.action, strict.tool) == ("answer", None)
    normalised = play(tmp_path, command, BRACKETS, dialects=True)
    assert (normalised.action, normalised.tool, normalised.tools_run) == ("tool", "make_call", ("make_call",) * 2)


def test_both_readings_can_be_taken_from_one_log(tmp_path: Path, command: Trial) -> None:
    """One run, two scores: the model is not asked twice."""
    result = play(tmp_path, command, BRACKETS, as_proposed=False)
    assert proposed_result(result, dialects=False).action == "answer"
    read = proposed_result(result, dialects=True)
    assert (read.status, read.action, read.tool) == ("ok", "tool", "make_call")


def test_a_reply_that_is_unparseable_as_it_stands_may_be_read_in_its_dialect() -> None:
    """Function calls outside of the marks are a fault to the strict reader, and plain to the other."""
    raw = '{"name": "make_call", "arguments": {"contact": "Ben"}}'
    one = decision(
        "pardon", raw=raw, normalised=CANONICAL, dialect="function_json", status="unparseable", detail="a fault"
    )
    result = TrialResult(id="x", status="unparseable", decisions=(one,))
    assert proposed_result(result, dialects=False).status == "unparseable"
    read = proposed_result(result, dialects=True)
    assert (read.status, read.action, read.decisions[0].detail) == ("ok", "tool", "")


@pytest.mark.parametrize("status", ["error", "timeout", "no_audio"])
def test_a_failure_stays_one_in_either_reading(status: Any) -> None:
    """No reading makes a reply where there was none."""
    result = TrialResult(id="x", status=status)
    assert proposed_result(result, dialects=True) == proposed_result(result, dialects=False) == result


def test_the_summary_shows_both_readings_side_by_side() -> None:
    """Audio Flamingo 3's zero is a zero of form, and the summary has to show it."""
    native = decision("answer", raw=BRACKETS, normalised=CANONICAL, dialect="af3_brackets")
    muted = decision("mute", raw="[Mute]")
    table = [
        played("a", "direct", "plain", "tool", "answer", tool="make_call", decisions=[native]),
        played("b", "direct", "plain", "mute", "answer", target="make_call", decisions=[native]),
        played("c", "self_talk", "planning", "mute", "mute", decisions=[muted]),
    ]
    both = gate_scores(table, seed=0)["proposals"]
    counts = {
        reading: {name: (rate["k"], rate["n"]) for name, rate in rates.items() if rate is not None}
        for reading, rates in both.items()
    }
    assert counts["strict"]["false_rejection"] == (1, 1)
    assert counts["normalised"]["false_rejection"] == (0, 1)
    assert counts["strict"]["false_execution"] == (0, 2)
    assert counts["normalised"]["false_execution"] == (1, 2)
    assert counts["strict"]["vgbench.self_talk.mute"] == counts["normalised"]["vgbench.self_talk.mute"] == (1, 1)


def test_where_no_dialect_was_met_there_is_nothing_to_compare() -> None:
    """Two equal columns would look like a measurement."""
    table = [played("c", "self_talk", "planning", "mute", "mute", decisions=[decision("mute", raw="[Mute]")])]
    assert gate_scores(table, seed=0)["proposals"] is None
