"""Loading: from the hub's cache or a folder, and with an error that names the cure where anything is missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models import components
from models.audio_llm import loading
from models.audio_llm.contract import Told
from models.audio_llm.conversation import AudioPart, system, user
from models.audio_llm.loading import (
    NativeOptions,
    choose_placement,
    find_folder,
    folder_sha256,
    read_options,
    transformers_class,
)
from models.audio_llm.options import OptionsError
from models.audio_llm.policy import AudioLlmPolicy
from models.components import UnknownComponentError, load_policy, parse_options
from models.store_errors import ModelError
from tests.tiny_audio_llms import FAMILIES, one_thread, save_checkpoint

pytestmark = pytest.mark.slow

REPO = "example/model"
MESSAGES = [system("Act."), user(AudioPart(np.sin(np.arange(16_000) / 9).astype(np.float32)), "Now?")]


@pytest.fixture(scope="module", autouse=True)
def torch_alone() -> Iterator[None]:
    with one_thread():
        FAMILIES["qwen2-audio"]()
        yield


def options(**more: Any) -> NativeOptions:
    return NativeOptions(REPO, **more)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_checkpoint_in_a_folder_becomes_the_policy(name: str, tmp_path: Path) -> None:
    """The real loading code on the hub's real layout: the same replies as from the network itself."""
    tiny = FAMILIES[name]()
    save_checkpoint(tiny, tmp_path, seed=3)
    policy = load_policy(f"{name}:dir={tmp_path},told=words,dialects=af3_brackets,device=cpu", None, 1)
    assert isinstance(policy, AudioLlmPolicy)
    assert policy.model.name == f"{name}/{tmp_path.name} (cpu float32)"
    assert len(policy.model.sha256) == 64
    assert (policy.contract.told, policy.dialects) == (Told.WORDS, ("af3_brackets",))
    assert policy.chat.limits == tiny.chat().limits
    assert policy.chat.reply(MESSAGES, 6) == tiny.chat(3).reply(MESSAGES, 6)


def test_a_checkpoint_that_leaves_a_layer_random_is_refused(tmp_path: Path) -> None:
    """It would run, and write nonsense that looks like a weak model's."""
    from safetensors.torch import load_file, save_file

    save_checkpoint(FAMILIES["qwen2-audio"](), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["lm_head.weight" if "lm_head.weight" in weights else sorted(weights)[0]]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="has no weights for"):
        load_policy(f"qwen2-audio:dir={tmp_path}", None, 1)


def test_a_model_that_is_not_here_names_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fetched unasked: sixty gigabytes are not a default."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="hf download Qwen/Qwen3-Omni-30B-A3B-Instruct"):
        load_policy("qwen3-omni", None, 1)
    with pytest.raises(ModelError, match="is no folder"):
        load_policy(f"qwen3-omni:dir={tmp_path / 'nowhere'}", None, 1)


def test_a_download_is_made_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``local_files_only`` is the difference between a start and a bill."""
    asked: list[bool] = []

    def snapshot(repo: str, *, local_files_only: bool) -> str:
        asked.append(local_files_only)
        for name in ("config.json", "model.safetensors"):
            (tmp_path / name).touch()
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    find_folder("x", options())
    find_folder("x", options(download=True))
    assert asked == [True, False]


def test_a_folder_with_a_missing_shard_is_refused(tmp_path: Path) -> None:
    """A download that was broken off looks complete from outside."""
    (tmp_path / "config.json").write_text("{}")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "one.safetensors").touch()
    with pytest.raises(ModelError, match=r"lacks two\.safetensors"):
        find_folder("x", options(folder=tmp_path))


def test_the_hash_is_over_every_file_and_takes_the_hubs_word_for_its_blobs(tmp_path: Path) -> None:
    """A record that does not change with the weights records nothing; sixty gigabytes are not read twice."""
    blobs, snapshot, plain = (tmp_path / name for name in ("blobs", "snapshot", "plain"))
    for folder in (blobs, snapshot, plain):
        folder.mkdir()
    content = b"weights"
    digest = hashlib.sha256(content).hexdigest()
    (plain / "model.safetensors").write_bytes(content)
    (blobs / digest).write_bytes(b"not read")
    (snapshot / "model.safetensors").symlink_to(blobs / digest)
    assert folder_sha256(snapshot) == folder_sha256(plain)
    (plain / "model.safetensors").write_bytes(b"other")
    assert folder_sha256(snapshot) != folder_sha256(plain)


def test_an_old_transformers_names_the_version_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import error deep inside says nothing to a user."""
    monkeypatch.setattr(loading, "version", lambda package: "4.57.1")
    with pytest.raises(ModelError, match=r"needs transformers 5\.24, here is 4\.57\.1.*pip install"):
        transformers_class("NemotronH_Omni_Reasoning_V3")
    monkeypatch.undo()
    with pytest.raises(ModelError, match="cannot give NoSuchClass"):
        transformers_class("NoSuchClass")


def test_the_placement_is_settled_and_shown() -> None:
    """Precision and device change what a model writes, so both belong to its record."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("says what happens without a GPU")
    assert str(choose_placement(options())) == "cpu float32"
    assert str(choose_placement(options(dtype="bfloat16", device="cpu"))) == "cpu bfloat16"
    with pytest.raises(ModelError, match="sees no GPU"):
        choose_placement(options(device="cuda:0"))
    with pytest.raises(ModelError, match="there is no such"):
        choose_placement(options(device="tpu"))


def test_quantisation_without_its_package_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unquantised model in its place would not fit, or would be another model."""
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip install bitsandbytes"):
        choose_placement(options(quant="4bit"))
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: object())
    with pytest.raises(ModelError, match="needs a GPU"):
        choose_placement(options(quant="4bit", device="cpu"))


def test_options_are_read() -> None:
    """All of them at once, as on the command line."""
    given = parse_options("dtype=bfloat16,device=cuda:1,quant=8bit,dialects=none,told=nothing,tokens=99,repo=a/b")
    read = read_options("x", REPO, given)
    assert read == NativeOptions("a/b", None, False, "bfloat16", "cuda:1", "8bit", (), Told.NOTHING, 99, False)
    assert read_options("x", REPO, {}) == NativeOptions(REPO)
    assert read_options("x", REPO, {"thinking": "on"}).tokens > NativeOptions(REPO).tokens


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dtyp=bfloat16", "Did you mean 'dtype'"),
        ("dtype=int3", "there are auto, bfloat16"),
        ("dialects=latin", "there are mute_word"),
        ("tokens=0", "not a whole number"),
        ("download=yes", "there are on, off"),
    ],
)
def test_a_wrong_option_is_named(text: str, message: str) -> None:
    """An ignored option is a run under other conditions than was thought."""
    with pytest.raises(OptionsError, match=message):
        read_options("x", REPO, parse_options(text))


@pytest.mark.parametrize("text", ["dir", "dir=", "=x", "dir=a,dir=b", "dir=a,", ""])
def test_malformed_options_are_refused(text: str) -> None:
    """Half an option is none."""
    with pytest.raises(UnknownComponentError, match="key=value"):
        parse_options(text)


def test_options_for_a_policy_that_takes_none_are_refused() -> None:
    """Its user believes that they do something."""
    with pytest.raises(UnknownComponentError, match="takes no options"):
        load_policy("smollm2:dtype=bfloat16", None, 1)


def test_thinking_where_there_is_no_such_switch_is_refused() -> None:
    """Qwen2-Audio does not think; its longer time would go unexplained."""
    with pytest.raises(OptionsError, match="no thinking"):
        load_policy("qwen2-audio:thinking=on", None, 1)


def test_every_native_class_is_in_the_registry() -> None:
    """A class that cannot be chosen is not there."""
    assert set(FAMILIES) <= set(components.POLICIES)
