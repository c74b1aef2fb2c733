"""Can a policy start here: what is missing is named with its cure, and what cannot be known is not claimed."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from models import policy_ready
from models.components import POLICIES
from models.policy_needs import NEEDS
from models.policy_ready import Readiness, key_states, readiness
from models.store import State
from models.store_errors import ModelError, ModelFault

SECRET = "sk-secret-value"


class Shelf:
    """A store in which everything stands as said."""

    def __init__(self, state: State = State.READY, unknown: bool = False) -> None:
        self._state = state
        self._unknown = unknown

    def state(self, name: str) -> State:
        if self._unknown:
            raise ModelError(ModelFault.UNKNOWN_MODEL, f"no model {name!r}", "Update voicegate")
        return self._state


def check(name: str, environ: Mapping[str, str] | None = None, store: Shelf | None = None) -> Readiness:
    return readiness(name, NEEDS[name], store or Shelf(), environ or {})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def cached(cache: Path, repo: str, *files: str) -> None:
    """Put a checkpoint into the hub's cache."""
    place = cache / f"models--{repo.replace('/', '--')}"
    snapshot = place / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("a" * 40)
    for file in files:
        (snapshot / file).write_text("{}")


@pytest.mark.parametrize("state", [State.MISSING, State.STALE])
def test_a_model_that_is_not_pulled_is_named_with_the_command_that_fetches_it(state: State):
    found = check("smollm2", store=Shelf(state))
    assert found.ready is False
    assert "voicegate models pull smollm2-135m-onnx" in found.text
    assert check("smollm2", store=Shelf()) == Readiness(True, "its models are here")
    assert check("smollm2", store=Shelf(State.UNVERIFIED)).ready is True, "the next load hashes it"


def test_a_model_that_no_registry_knows_is_not_ready():
    assert check("smollm2", store=Shelf(unknown=True)).ready is False


def test_a_checkpoint_is_looked_for_in_the_cache_alone(cache: Path):
    found = check("qwen2-audio")
    assert found.ready is False
    assert "hf download Qwen/Qwen2-Audio-7B-Instruct" in found.text
    cached(cache, "Qwen/Qwen2-Audio-7B-Instruct", "config.json")
    assert check("qwen2-audio").ready is False, "half a checkpoint does not load"
    assert "lacks model.safetensors" in check("qwen2-audio").text


def test_a_checkpoint_that_is_here_may_still_not_fit_the_memory(cache: Path):
    cached(cache, "Qwen/Qwen2-Audio-7B-Instruct", "config.json", "model.safetensors")
    found = check("qwen2-audio")
    assert found.ready is None
    assert "memory" in found.text


def test_transformers_that_are_too_old_are_said_before_a_download_of_gigabytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(policy_ready, "version", lambda name: "4.57.0")
    found = check("qwen2-audio")
    assert (found.ready, "transformers>=" in found.text) == (False, True)


def test_a_key_is_set_or_not_and_its_value_is_nowhere():
    assert check("gpt-4o-audio").ready is False
    assert "OPENAI_API_KEY" in check("gpt-4o-audio").text
    found = check("gpt-4o-audio", {"OPENAI_API_KEY": SECRET})
    assert found.ready is True
    states = key_states(NEEDS["gemini"], {"GOOGLE_API_KEY": SECRET, "GEMINI_API_KEY": "  "})
    assert states == {"GEMINI_API_KEY": False, "GOOGLE_API_KEY": True}
    assert check("gemini", {"GOOGLE_API_KEY": SECRET}).ready is True
    broken = check("gpt-4o-audio", {"OPENAI_API_KEY": f"{SECRET} with blanks"})
    assert broken.ready is False, "a key that no header can carry is none"
    assert SECRET not in json.dumps([found.text, broken.text, states])


def test_whether_a_server_answers_is_not_claimed(monkeypatch: pytest.MonkeyPatch):
    def refuse(*given: object, **more: object) -> None:
        raise AssertionError("somebody opens a connection")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for name in POLICIES:
        check(name, {key: SECRET for key in NEEDS[name].keys})
    assert check("vllm").ready is None
    assert "http://127.0.0.1:8000/v1" in check("vllm").text
    assert check("openai-compatible").ready is None
    assert "base_url=…,model=…" in check("openai-compatible").text


def test_a_worker_needs_a_python_that_is_one(tmp_path: Path):
    python = tmp_path / "python"
    name = "VOICEGATE_DESTA_PYTHON"
    assert check("desta").ready is False
    assert check("desta", {name: str(python)}).ready is False
    python.touch()
    assert check("desta", {name: str(python)}).ready is False, "it cannot be executed"
    python.chmod(0o755)
    assert check("desta", {name: str(python)}).ready is None, "what is installed there is not known"
