"""Workers that are killed, hang or cannot load: at most the trial in flight is lost, and it is tried once more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import executors
from bench.executors import Pool, WorkersFailedError
from bench.local_processes import WORKERS_LOG, LocalProcesses
from bench.results import TrialResult
from bench.run import plan, run
from bench.runlog import RUN_LOG, read_log
from bench.trials import write_manifest
from tests.bench_contestants import CALL, CHAT, HANGS, KILLS, KILLS_ONCE, MARK
from tests.bench_harness import options, small_corpus, spoken

pytestmark = pytest.mark.slow


def test_workers_play_what_one_process_plays(tmp_path: Path):
    manifest = small_corpus(tmp_path)
    report = run(options(manifest, tmp_path / "out", workers=2))
    assert report.statuses == {"ok": 6}
    actions = {result.id: result.action for result in read_log(tmp_path / "out" / RUN_LOG)}
    assert actions == {
        "same": "tool", "diff": "mute", "typed": "tool", "chat": "mute", "ask": "answer", "pay": "pardon",
    }  # fmt: skip


def test_a_killed_worker_costs_its_trial_one_attempt_and_a_second_death_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(MARK, str(tmp_path / "mark"))
    trials = [
        spoken(tmp_path, "once", [CHAT, KILLS_ONCE], "mute"),
        spoken(tmp_path, "always", [CHAT, KILLS], "mute"),
        spoken(tmp_path, "after", [CHAT, CALL], "tool", tool="make_call"),
    ]
    write_manifest(tmp_path / "manifest.jsonl", trials)
    run(options(tmp_path / "manifest.jsonl", tmp_path / "out", preflight=False))
    results = {result.id: result for result in read_log(tmp_path / "out" / RUN_LOG)}
    assert {name: (r.status, r.action) for name, r in results.items()} == {
        "once": ("ok", "mute"), "always": ("error", None), "after": ("ok", "tool"),
    }  # fmt: skip
    assert "died 2 times" in results["always"].reason
    assert "SIGKILL" in results["always"].reason


def test_a_worker_that_hangs_beyond_its_trial_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(executors, "KILL_AFTER_S", 1.0)
    trials = [spoken(tmp_path, "hang", [CHAT, HANGS], "mute"), spoken(tmp_path, "next", [CHAT], "mute")]
    write_manifest(tmp_path / "manifest.jsonl", trials)
    planned = plan(options(tmp_path / "manifest.jsonl", tmp_path / "out", timeout_s=0.0, preflight=False))
    # The worker itself is patient; only the pool's own limit can end it.
    patient = LocalProcesses(
        plan(options(tmp_path / "manifest.jsonl", tmp_path, patience=99.0)).spec, 1, tmp_path / "l"
    )
    pool = Pool(patient, 1, planned.spec)
    try:
        pool.start()
        pid = patient.pids[0]
        result = next(pool.play(trials[:1]))
        assert (result.status, result.action) == ("timeout", None)
        assert not _is_alive(pid)
        assert len(patient.pids) == 1, "another worker has taken its place"
    finally:
        pool.close()


def test_what_keeps_a_worker_from_loading_is_said_and_not_tried_for_ever(tmp_path: Path):
    manifest = small_corpus(tmp_path)
    with pytest.raises(RuntimeError, match="voicegate models pull"):
        run(options(manifest, tmp_path / "broken", policy="tests.bench_contestants:broken"))
    with pytest.raises(WorkersFailedError, match=r"3 workers in a row died while loading.*SIGKILL"):
        run(options(manifest, tmp_path / "dies", policy="tests.bench_contestants:dies"))
    assert not (tmp_path / "dies" / RUN_LOG).exists()


def test_a_parent_killed_at_any_instant_loses_no_line_and_takes_its_workers_with_it(tmp_path: Path):
    trials = [spoken(tmp_path, f"t{number}", [CHAT, CALL], "tool", tool="make_call") for number in range(12)]
    write_manifest(tmp_path / "manifest.jsonl", trials)
    out = tmp_path / "out"
    command = [
        sys.executable, "-m", "bench.cli", "run", str(tmp_path / "manifest.jsonl"), "--out", str(out), "--threads", "1",
        "--policy", "tests.bench_contestants:rehearsed", "--workers", "2",
    ]  # fmt: skip
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    parent = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)
    log = out / RUN_LOG
    _until(lambda: log.exists() and log.read_bytes().count(b"\n") >= 3)
    workers = _children(parent.pid)
    assert len(workers) >= 2
    parent.kill()
    parent.wait()
    done = [result.id for result in read_log(log)]
    _until(lambda: not any(_is_alive(pid) for pid in workers))
    assert list(scratch.iterdir()) == [], "its workers clear up after it"
    assert subprocess.run([*command, "--resume"], check=True, capture_output=True).returncode == 0
    results = read_log(log)
    assert [result.id for result in results[: len(done)]] == done, "lines stay as they were"
    assert {result.id for result in results} == {trial.id for trial in trials}
    assert all(isinstance(result, TrialResult) and result.action == "tool" for result in results)


def test_ctrl_c_ends_a_run_with_its_workers_and_says_how_to_go_on(tmp_path: Path):
    trials = [spoken(tmp_path, f"t{number}", [CHAT], "mute") for number in range(3)]
    write_manifest(tmp_path / "manifest.jsonl", [*trials, spoken(tmp_path, "hang", [HANGS], "mute")])
    out = tmp_path / "out"
    command = [
        sys.executable, "-m", "bench.cli", "run", str(tmp_path / "manifest.jsonl"), "--out", str(out), "--threads", "1",
        "--policy", "tests.bench_contestants:rehearsed", "--patience", "99",
    ]  # fmt: skip
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    log = out / RUN_LOG
    _until(lambda: log.exists() and log.read_bytes().count(b"\n") == 3)
    workers = _children(parent.pid)
    parent.send_signal(signal.SIGINT)
    _, said = parent.communicate(timeout=30)
    assert parent.returncode == 130
    assert "--resume" in said
    assert "Traceback" not in said
    assert not any(_is_alive(pid) for pid in workers)
    assert len(read_log(log)) == 3
    assert (out / WORKERS_LOG).exists()


def _until(happened) -> None:  # type: ignore[no-untyped-def]
    limit_s = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < limit_s, "it never happened"
        time.sleep(0.02)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [child for child in map(int, text.split()) if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
