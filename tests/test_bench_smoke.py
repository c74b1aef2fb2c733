"""The smoke set: what comes with the project plays, is judged and scored whole, on the real models.

Only the structure of the summary is held: that every family and condition is scored, on how many trials, and that none
failed. How good the figures are is no test's business. ``python -m tests.test_bench_smoke`` writes the structure anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.build.cues import EIGHT, SIX
from bench.build.triplets import conditions
from bench.score import SUMMARY
from bench.trials import load_manifest
from models.store import Store
from models.store_errors import ModelError

SMOKE = Path(__file__).parent.parent / "bench" / "smoke"
STRUCTURE = SMOKE / "structure.json"


def structure(summary: dict[str, Any]) -> dict[str, Any]:
    """What of a summary does not depend on how good the system is: the number of trials behind each rate, and the
    names of all else."""
    return {key: _shape(summary[key]) for key in ("vgbench", "gate", "ear", "status")}


def _shape(value: Any) -> Any:
    if not isinstance(value, dict):
        return value if value is None else type(value).__name__
    if "ci95" in value:
        return {"n": value["n"]} | {key: _shape(value[key]) for key in value if isinstance(value[key], dict)}
    return {key: _shape(inner) for key, inner in value.items()}


def play(out: Path) -> dict[str, Any]:
    """Run, judge and score the smoke set as a user does."""
    for arguments in (
        ("run", SMOKE / "manifest.jsonl", "--policy", "smollm2", "--out", out, "--workers", "2", "--patience", "5"),
        ("judge", out),
        ("score", out),
    ):
        command = [sys.executable, "-m", "bench.cli", *map(str, arguments)]
        done = subprocess.run(command, cwd=SMOKE.parent.parent, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
    summary: dict[str, Any] = json.loads((out / SUMMARY).read_text(encoding="utf-8"))
    return summary


def test_it_is_small_enough_to_come_with_the_project() -> None:
    trials = load_manifest(SMOKE / "manifest.jsonl")
    assert len(trials) <= 60
    assert sum(file.stat().st_size for file in SMOKE.rglob("*")) <= 12_000_000


def test_it_leaves_no_family_and_no_condition_out() -> None:
    trials = load_manifest(SMOKE / "manifest.jsonl")
    assert {trial.family for trial in trials} == {"speaker_switch", "side_talk", "self_talk", "direct", "ear"}
    found = {trial.condition for trial in trials}
    assert found >= {*EIGHT, *SIX, *conditions(), "text_only", "assistant_first", "bystander_first"}


@pytest.mark.slow
def test_every_family_and_condition_is_scored_and_no_trial_fails(tmp_path: Path) -> None:
    try:
        Store().ensure_default()
        Store().path("minilm-l6-v2")
    except (ModelError, OSError) as error:
        pytest.skip(f"the models are not here: {error}")
    summary = play(tmp_path)
    assert structure(summary) == json.loads(STRUCTURE.read_text(encoding="utf-8"))
    status = dict(summary["status"])
    assert status.pop("ok") == len(load_manifest(SMOKE / "manifest.jsonl"))
    assert not any(status.values())


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        STRUCTURE.write_text(json.dumps(structure(play(Path(folder))), indent=1) + "\n", encoding="utf-8")
