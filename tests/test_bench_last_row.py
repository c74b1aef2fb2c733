"""The row that a run leaves: of registered policies alone, counted from its log, and never worth a failed run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.bench_rows import RATES, read_rows, rows_file
from bench import last_row
from bench.last_row import remember, row_of
from bench.provenance import CONFIG
from bench.run import run
from bench.runlog import RUN_LOG
from tests.bench_harness import here, options, small_corpus


@pytest.fixture(autouse=True)
def _a_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def played(tmp_path: Path) -> Path:
    """A run of the small corpus that says it was a policy of the registry's."""
    out = tmp_path / "out"
    run(options(small_corpus(tmp_path), out), here)
    rename(out, "smollm2")
    return out


def rename(out: Path, policy: str) -> None:
    config = json.loads((out / CONFIG).read_text())
    (out / CONFIG).write_text(json.dumps(config | {"policy": policy}))


def test_a_row_counts_what_the_log_says(played: Path):
    row = row_of(played)
    assert row is not None
    assert (row.policy, row.trials, row.failed, row.manifest) == ("smollm2", 6, 0, "manifest.jsonl")
    assert row.date.endswith("+00:00")
    assert set(row.rates) == set(RATES)
    counts = {name: None if share is None else (share.k, share.n) for name, share in row.rates.items()}
    assert counts == {
        "side_talk": None, "self_talk": (1, 1), "speaker_switch": (2, 2), "false_execution": (0, 4),
        "false_rejection": (0, 1),
    }  # fmt: skip


@pytest.mark.parametrize("policy", ["no-veto:smollm2", "tests.bench_contestants:rehearsed", "always-mute"])
def test_a_baseline_s_figures_are_never_shown_as_a_policy_s(played: Path, policy: str):
    rename(played, policy)
    assert row_of(played) is None
    remember(played)
    assert not rows_file().exists()


def test_options_stay_with_the_name(played: Path):
    rename(played, "vllm:preset=af3")
    remember(played)
    assert list(read_rows(rows_file())) == ["vllm:preset=af3"]


def test_a_run_in_which_nothing_was_played_has_no_row(played: Path):
    (played / RUN_LOG).write_bytes(b"")
    assert row_of(played) is None


def test_a_row_that_cannot_be_kept_costs_the_run_nothing(
    played: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(last_row, "write_row", full)
    remember(played)
    assert "No space left" in capsys.readouterr().err
