"""What the command line loads when it listens: no training library, or starting takes seconds and gigabytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

from models.store import State, Store
from tests.test_architecture import HEAVY, ROOT

DEMO = ROOT / "bench" / "demo" / "demo.flac"
FIRST_COMMAND_S = 10.0
"""The demo up to the wearer's first command."""

REPORT = "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"


def loaded(program: str, *arguments: str, home: Path) -> tuple[set[str], list[str]]:
    """Run a program in a fresh interpreter.

    Returns:
        The packages in ``sys.modules`` at its end, and the lines that it printed before.
    """
    ran = subprocess.run(
        [sys.executable, "-c", f"import json, sys\n{program}\n{REPORT}", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "XDG_DATA_HOME": str(home), "XDG_CONFIG_HOME": str(home)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    *lines, packages = ran.stdout.splitlines()
    return set(json.loads(packages)), lines


def test_the_modules_behind_listen_replay_and_enroll_load_no_training_library(tmp_path: Path) -> None:
    packages, _ = loaded(
        "from agent import cli, enrol, run_sessions, source_microphone, source_stdin\n"
        "from models import damage_cnn, policy_mini, policy_smollm2, proximity_cnn, speaker_campplus, speech_whisper\n"
        "cli.build_parser()",
        home=tmp_path,
    )
    assert {"agent", "models", "numpy"} <= packages
    assert packages & HEAVY == set()


@pytest.mark.slow
def test_a_replay_with_the_real_models_loads_no_training_library_and_still_decides(tmp_path: Path) -> None:
    store = Store(offline=True)
    missing = [name for name in store.registry.default_names() if store.state(name) is not State.READY]
    if missing:
        pytest.skip(f"models are not here: {', '.join(missing)}; run `voicegate models pull`")
    audio, rate_hz = soundfile.read(DEMO)
    soundfile.write(tmp_path / "talk.wav", audio[: round(FIRST_COMMAND_S * rate_hz)], rate_hz)
    packages, lines = loaded(
        "from agent import cli\nassert cli.main(sys.argv[1:]) == 0",
        "replay", str(tmp_path / "talk.wav"), "--json",
        home=tmp_path,
    )  # fmt: skip
    decisions = [json.loads(line) for line in lines]
    assert decisions, "nothing was decided, so nothing was loaded"
    assert any(decision["evidence"]["transcript"] for decision in decisions)
    assert {"ctranslate2", "onnxruntime"} <= packages
    assert packages & HEAVY == set()
