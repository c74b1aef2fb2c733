"""Playing a manifest: each trial a session of its own, each line on disk as it ends, nothing mixed or invented."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from agent.clock import Pace
from agent.settings import Settings
from bench import run as run_module
from bench.preflight import PreflightError, require_space
from bench.provenance import CONFIG, ConfigurationDiffersError
from bench.results import TrialResult
from bench.run import MANIFEST_COPY, RunRefusedError, run
from bench.runlog import RUN_LOG, RunLog, RunLogError, read_log
from bench.trial_runner import RunSpec, TrialRunner, bench_settings
from bench.trials import Expected, Trial, load_manifest, write_manifest
from gate.span import SAMPLE_RATE_HZ
from tests.bench_contestants import BREAKS, CALL, CHAT, FAR_CALL, GARBLED, HANGS, NAME, OTHER_CALL, QUESTION, UNLOCK
from tests.bench_harness import PAUSE_S, here, options, record, small_corpus, spoken


def play(folder: Path, *trials: Trial, timeout_s: float = 60.0, policy: str = NAME) -> list[TrialResult]:
    settings = bench_settings(Settings(), threads=1).model_dump_json()
    runner = TrialRunner(RunSpec(policy, settings, Pace.CHARGED, 0, timeout_s, folder))
    try:
        return [runner.run(trial) for trial in trials]
    finally:
        runner.close()


def test_a_trial_s_line_says_what_was_done_why_on_which_samples_and_when(tmp_path: Path):
    trial = spoken(tmp_path, "same", [CHAT, CALL], "tool", tool="make_call")
    (result,) = play(tmp_path, trial)
    assert (result.status, result.action, result.tool) == ("ok", "tool", "make_call")
    assert result.params == {"contact": "my sister"}
    assert (result.reason, result.raw) == ("licensed", result.decisions[1].raw)
    assert result.transcript == f"{CHAT.text} {CALL.text}"
    assert [d.action for d in result.decisions] == ["mute", "tool"]
    assert result.decisions[1].outcome == "done", "calls of medium risk run at once: no grace time to wait out"
    start, end = result.decisions[1].span_samples
    assert start / SAMPLE_RATE_HZ < trial.segments[1].end < end / SAMPLE_RATE_HZ + 0.1
    timing = result.timing
    assert timing.speech_end == trial.segments[1].end
    assert timing.endpoint is not None
    assert timing.decision is not None
    assert timing.executed is not None
    assert timing.speech_end < timing.endpoint <= timing.decision <= timing.executed
    assert {"speech", "speaker", "proximity", "damage", "policy"} <= set(timing.compute)
    assert timing.audio == pytest.approx(2 * CALL.seconds + 3 * PAUSE_S, abs=0.01)
    assert timing.ended_unix > timing.began_unix > 0
    fields = json.loads(result.model_dump_json())
    assert list(fields) == [
        "id", "status", "action", "tool", "params", "answer", "reason", "decisions", "raw", "timing", "transcript",
    ]  # fmt: skip


def test_calls_of_high_risk_are_not_confirmed_since_a_recording_cannot_answer(tmp_path: Path):
    (result,) = play(tmp_path, spoken(tmp_path, "door", [CHAT, UNLOCK], "tool", tool="unlock_door"))
    assert (result.action, result.tool, result.decisions[-1].outcome) == ("tool", "unlock_door", "done")


def test_each_trial_is_a_new_session_with_an_owner_of_its_own(tmp_path: Path):
    mine = spoken(tmp_path, "mine", [CHAT, CALL], "tool", tool="make_call")
    theirs = spoken(tmp_path, "theirs", [OTHER_CALL], "tool", tool="make_call")
    stranger = spoken(tmp_path, "stranger", [CHAT, OTHER_CALL], "mute")
    results = play(tmp_path, mine, theirs, stranger, mine)
    assert [result.action for result in results] == ["tool", "tool", "mute", "tool"]
    assert results[2].reason == "other_speaker"


def test_a_far_command_is_muted_and_its_evidence_is_in_the_log(tmp_path: Path):
    (result,) = play(tmp_path, spoken(tmp_path, "far", [CHAT, FAR_CALL], "mute"))
    assert (result.action, result.reason) == ("mute", "far")
    assert result.decisions[1].evidence.distance.near_probability == pytest.approx(0.05)
    assert result.decisions[1].proposed == "tool", "the policy was for it"


def test_with_a_clip_of_the_wearer_only_she_is_heard(tmp_path: Path):
    clip, _ = record(tmp_path, "clip", replace(CHAT, seconds=4.0))
    mine = spoken(tmp_path, "mine", [CALL], "tool", tool="make_call", enrolment=clip)
    other = spoken(tmp_path, "other", [OTHER_CALL], "mute", enrolment=clip)
    short = spoken(tmp_path, "short", [CALL], "mute", enrolment="mine.wav")
    results = play(tmp_path, mine, other, short)
    assert [(r.status, r.action) for r in results] == [("ok", "tool"), ("ok", "mute"), ("error", None)]
    assert "needs 3 s" in results[2].reason, "a clip that cannot be enrolled is no trial without an owner"


def test_a_typed_trial_needs_no_acoustic_evidence(tmp_path: Path):
    trial = Trial(
        id="typed", family="speaker_switch", condition="text_only", text=CALL.text, split="test",
        expected=Expected(action="tool", tool="make_call"),
    )  # fmt: skip
    (result,) = play(tmp_path, trial)
    assert (result.action, result.reason, result.timing.speech_end, result.timing.audio) == ("tool", "typed", None, 0.0)


def test_a_question_is_asked_beside_the_recording(tmp_path: Path):
    trial = spoken(tmp_path, "q", [CHAT, QUESTION], "answer", question="What time?", answer=("noon",))
    (result,) = play(tmp_path, trial)
    assert (result.action, result.answer, [d.turn for d in result.decisions]) == ("answer", "It is noon.", ["question"])


@pytest.mark.parametrize(("line", "status"), [(GARBLED, "unparseable"), (BREAKS, "error")])
def test_what_failed_has_no_action_so_it_cannot_be_counted_as_a_mute(tmp_path: Path, line: Any, status: str):
    (result,) = play(tmp_path, spoken(tmp_path, "bad", [CHAT, line], "mute"))
    assert (result.status, result.action) == (status, None)
    assert result.reason
    assert len(result.decisions) == 2, "what was decided is kept"


def test_an_action_stands_though_something_else_in_the_session_failed(tmp_path: Path):
    (result,) = play(tmp_path, spoken(tmp_path, "both", [CHAT, BREAKS, CALL], "tool", tool="make_call"))
    assert (result.status, result.action) == ("ok", "tool")


def test_a_hanging_model_is_a_timeout(tmp_path: Path):
    trial = spoken(tmp_path, "hang", [CHAT, HANGS], "mute")
    settings = bench_settings(Settings(), threads=1).model_dump_json()
    runner = TrialRunner(RunSpec(NAME, settings, Pace.CHARGED, 0, 1.0, tmp_path))
    try:
        result, after = runner.run(trial), runner.run(spoken(tmp_path, "next", [CHAT, CALL], "tool", tool="make_call"))
    finally:
        runner.close()
    assert (result.status, result.action, result.reason) == ("timeout", None, "not done after 1 s")
    assert after.action == "tool", "the next trial is played all the same"


@pytest.mark.parametrize(
    ("samples", "status"), [(np.zeros(0), "no_audio"), (np.zeros(16_000), "no_audio"), (None, "error")]
)
def test_a_file_with_nothing_to_hear_is_not_a_correct_mute(tmp_path: Path, samples: Any, status: str):
    if samples is None:
        (tmp_path / "x.wav").write_bytes(b"RIFFjunk")
    else:
        soundfile.write(tmp_path / "x.wav", samples, SAMPLE_RATE_HZ)
    trial = Trial(id="x", family="direct", condition="x", audio="x.wav", expected=Expected(action="mute"), split="test")
    (result,) = play(tmp_path, trial)
    assert (result.status, result.action) == (status, None)
    assert "x.wav" in result.reason


def test_a_recording_in_which_nobody_speaks_is_a_mute_by_a_working_system(tmp_path: Path):
    noise = np.random.default_rng(0).normal(0, 1e-4, 3 * SAMPLE_RATE_HZ)
    soundfile.write(tmp_path / "x.wav", noise, SAMPLE_RATE_HZ)
    trial = Trial(id="x", family="direct", condition="x", audio="x.wav", expected=Expected(action="mute"), split="test")
    (result,) = play(tmp_path, trial)
    assert (result.status, result.action, result.reason, result.decisions) == ("ok", "mute", "no_turn", ())


def test_without_a_gate_the_proposal_is_what_is_done(tmp_path: Path):
    trials = [
        spoken(tmp_path, "far", [CHAT, FAR_CALL], "mute"),
        spoken(tmp_path, "garbled", [GARBLED], "mute"),
        spoken(tmp_path, "breaks", [BREAKS], "mute"),
    ]
    far, garbled, breaks = play(tmp_path, *trials, policy="tests.bench_contestants:ungated")
    assert (far.action, far.tool, far.tools_run) == ("tool", "make_call", ("make_call",))
    assert (garbled.status, garbled.decisions[0].action) == ("unparseable", None)
    assert (breaks.status, breaks.action) == ("error", None)


# A run -------------------------------------------------------------------------------------------------------------


def test_a_run_leaves_its_log_its_configuration_and_its_labels(tmp_path: Path):
    manifest, out = small_corpus(tmp_path), tmp_path / "out"
    report = run(options(manifest, out), here)
    assert (report.played, report.total, report.statuses) == (6, 6, {"ok": 6})
    assert report.audio_seconds_per_second > 0
    results = {result.id: result for result in read_log(out / RUN_LOG)}
    assert {name: result.action for name, result in results.items()} == {
        "same": "tool", "diff": "mute", "typed": "tool", "chat": "mute", "ask": "answer", "pay": "pardon",
    }  # fmt: skip
    config = json.loads((out / CONFIG).read_text())
    assert config["models"] == {"rehearsal": "0" * 64}
    assert config["settings"]["gate"]["confirm"] == []
    assert config["settings"]["tools"]["grace_medium_s"] == 0.0
    assert {"git_commit", "git_dirty", "sha256"} <= set(config["code"])
    assert config["machine"]["cores"] >= 1
    assert len(config["manifest"]["sha256"]) == 64
    assert (out / MANIFEST_COPY).read_bytes() == manifest.read_bytes()


def test_a_log_is_never_added_to_unasked(tmp_path: Path):
    manifest, out = small_corpus(tmp_path), tmp_path / "out"
    run(options(manifest, out, limit=2), here)
    before = (out / RUN_LOG).read_bytes()
    with pytest.raises(RunRefusedError, match="--resume"):
        run(options(manifest, out), here)
    assert (out / RUN_LOG).read_bytes() == before


def test_resume_plays_what_is_missing_and_no_trial_twice(tmp_path: Path):
    manifest, out = small_corpus(tmp_path), tmp_path / "out"
    run(options(manifest, out, limit=2), here)
    with (out / RUN_LOG).open("ab") as log:
        log.write(b'{"id": "typed", "sta')  # as a kill in the middle of a write leaves it
    report = run(options(manifest, out, resume=True), here)
    assert (report.played, report.total) == (4, 6)
    assert Counter(result.id for result in read_log(out / RUN_LOG)) == Counter(t.id for t in load_manifest(manifest))
    assert run(options(manifest, out, resume=True), here).played == 0


def test_resume_takes_ids_exactly_and_never_by_their_beginning(tmp_path: Path):
    trials = [spoken(tmp_path, name, [CHAT], "mute") for name in ("a.10", "a.1")]
    write_manifest(tmp_path / "manifest.jsonl", trials)
    run(options(tmp_path / "manifest.jsonl", tmp_path / "out", limit=1), here)
    run(options(tmp_path / "manifest.jsonl", tmp_path / "out", resume=True), here)
    assert [result.id for result in read_log(tmp_path / "out" / RUN_LOG)] == ["a.10", "a.1"]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"policy": "tests.bench_contestants:ungated"}, "policy"),
        ({"pace": Pace.FREE}, "pace"),
        ({"threads": 2}, "settings.models.threads"),
        ({"seed": 1}, "seed"),
        ({"timeout_s": 5.0}, "timeout_s"),
        ({"split": "dev"}, "split"),
    ],
)
def test_a_changed_configuration_does_not_mix_with_an_old_log_and_is_named(
    tmp_path: Path, change: dict[str, Any], key: str
):
    trials = [spoken(tmp_path, "a", [CHAT], "mute"), spoken(tmp_path, "b", [CHAT], "mute", split="dev")]
    write_manifest(tmp_path / "manifest.jsonl", trials)
    run(options(tmp_path / "manifest.jsonl", tmp_path / "out", limit=1), here)
    before = (tmp_path / "out" / RUN_LOG).read_bytes()
    with pytest.raises(ConfigurationDiffersError, match=rf"{key} was .* and is "):
        run(options(tmp_path / "manifest.jsonl", tmp_path / "out", resume=True, **change), here)
    assert (tmp_path / "out" / RUN_LOG).read_bytes() == before


def test_changed_data_code_or_models_do_not_mix_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    manifest, out = small_corpus(tmp_path), tmp_path / "out"
    run(options(manifest, out, limit=2), here)
    content = manifest.read_bytes()
    manifest.write_bytes(content + b"\n")
    with pytest.raises(ConfigurationDiffersError, match=r"manifest\.sha256"):
        run(options(manifest, out, resume=True), here)
    manifest.write_bytes(content)
    config = json.loads((out / CONFIG).read_text())
    (out / CONFIG).write_text(json.dumps(config | {"models": {"rehearsal": "1" * 64}}))
    with pytest.raises(ConfigurationDiffersError, match="rehearsal"):
        run(options(manifest, out, resume=True), here)
    (out / CONFIG).write_text(json.dumps(config))
    code = {"git_commit": "of another day", "git_dirty": True, "sha256": config["code"]["sha256"]}
    monkeypatch.setattr(run_module, "code_provenance", lambda: code)
    run(options(manifest, out, resume=True, limit=3), here)  # what was committed meanwhile changes nothing
    monkeypatch.setattr(run_module, "code_provenance", lambda: code | {"sha256": "other"})
    with pytest.raises(ConfigurationDiffersError, match=r"code\.sha256"):
        run(options(manifest, out, resume=True), here)


def test_a_log_whose_configuration_is_gone_is_not_continued(tmp_path: Path):
    manifest, out = small_corpus(tmp_path), tmp_path / "out"
    run(options(manifest, out, limit=1), here)
    (out / CONFIG).unlink()
    with pytest.raises(ConfigurationDiffersError, match=r"config\.json"):
        run(options(manifest, out, resume=True), here)


def test_ctrl_c_leaves_a_log_that_can_be_continued(tmp_path: Path):
    manifest, out = small_corpus(tmp_path), tmp_path / "out"
    seen: list[str] = []

    def interrupt(result: TrialResult) -> None:
        seen.append(result.id)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(options(manifest, out), here, interrupt)
    assert [result.id for result in read_log(out / RUN_LOG)] == seen, "what was reported is on disk"
    assert run(options(manifest, out, resume=True), here).played == 4


def test_a_run_that_cannot_go_well_stops_before_it_begins_and_leaves_nothing_to_undo(tmp_path: Path):
    trials = [
        spoken(tmp_path, "good", [CHAT], "mute", family="self_talk", condition="plain"),
        spoken(tmp_path, "bad", [BREAKS], "mute"),
        spoken(tmp_path, "later", [CHAT], "mute"),
    ]
    write_manifest(tmp_path / "manifest.jsonl", trials)
    with pytest.raises(PreflightError, match=r"bad: error: .*the model is broken"):
        run(options(tmp_path / "manifest.jsonl", tmp_path / "out"), here)
    assert [result.id for result in read_log(tmp_path / "out" / RUN_LOG)] == ["good"], "what passed is kept"
    report = run(options(tmp_path / "manifest.jsonl", tmp_path / "out", resume=True, preflight=False), here)
    assert report.statuses == {"error": 1, "ok": 1}


def test_a_full_disk_is_said_before_and_not_after(tmp_path: Path):
    with pytest.raises(PreflightError, match="MB needed"):
        require_space(tmp_path, 10**12)


def test_a_disk_that_fills_up_costs_the_line_that_did_not_fit_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / RUN_LOG
    with RunLog(path) as log:
        log.append(TrialResult(id="a", status="ok"))
        write = os.write
        with monkeypatch.context() as full:
            full.setattr(os, "write", lambda file, line: write(file, line[: len(line) // 2]))
            with pytest.raises(RunLogError, match="--resume"):
                log.append(TrialResult(id="b", status="ok"))
        assert log.done == {"a"}
        log.append(TrialResult(id="b", status="ok"))
    assert [result.id for result in read_log(path)] == ["a", "b"]


def test_two_runs_do_not_write_one_log(tmp_path: Path):
    manifest, out = small_corpus(tmp_path), tmp_path / "out"

    def second(result: TrialResult) -> None:
        with pytest.raises(RunRefusedError, match="another run"):
            run(options(manifest, out, resume=True), here)

    run(options(manifest, out, limit=1), here, second)


def test_settings_of_this_computer_s_owner_do_not_come_in():
    settings = Settings.model_validate({"session": {"owner": "enrolled"}, "models": {"threads": 7}})
    settings = settings.model_copy(update={"output": settings.output.model_copy(update={"events": Path("e.jsonl")})})
    found = bench_settings(settings)
    assert (found.session.owner, found.output.events, found.models.threads) == ("auto", None, 7)


# The log -----------------------------------------------------------------------------------------------------------


def test_a_torn_line_is_cut_off_and_a_broken_one_is_named(tmp_path: Path):
    path = tmp_path / RUN_LOG
    with RunLog(path) as log:
        log.append(TrialResult(id="a", status="ok"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    assert [result.id for result in read_log(path)] == ["a"]
    with RunLog(path) as log:
        assert log.done == {"a"}
        log.append(TrialResult(id="b", status="ok"))
    assert [result.id for result in read_log(path)] == ["a", "b"]
    path.write_bytes(whole + b"{}\n")
    with pytest.raises(RunLogError, match=":2: not a result"):
        read_log(path)
    path.write_bytes(whole + whole)
    with pytest.raises(RunLogError, match="'a' has a result on line 1"):
        read_log(path)
