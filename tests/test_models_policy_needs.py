"""The table of policies against the code: a row that lies sends somebody to the wrong GPU, key or option."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import pytest

from models.audio_llm.server_load import CHATS
from models.audio_llm.server_presets import GEMINI, PRESETS
from models.components import POLICIES, UnknownComponentError, load_policy
from models.policy_needs import NEEDS, Runs
from models.registry import Registry
from models.store import Store

DOCS = Path(__file__).resolve().parent.parent / "docs"
WITH_OPTIONS = [name for name in POLICIES if NEEDS[name].options]


def test_every_policy_of_the_registry_has_a_row():
    assert set(POLICIES) <= set(NEEDS)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_on_its_page_and_in_the_index(name: str):
    page = NEEDS[name].page
    assert f"`{name}`" in (DOCS / page).read_text(encoding="utf-8") or page == "policies.md"
    (row,) = re.findall(rf"^\| `{re.escape(name)}` \|.*$", (DOCS / "policies.md").read_text(encoding="utf-8"), re.M)
    assert page == "policies.md" or f"({page}" in row, "the index leads to its page"


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_the_options_of_a_row_are_those_that_the_policy_takes(name: str, monkeypatch: pytest.MonkeyPatch):
    needs = NEEDS[name]
    for key in needs.keys:
        monkeypatch.setenv(key, "a-key")
    if needs.python:
        monkeypatch.setenv(needs.python, "python")
    given = ",".join(["zzz=1", *(f"{option}=http://host/v1" for option in needs.required)])
    with pytest.raises(UnknownComponentError, match="no option 'zzz'") as caught:
        load_policy(f"{name}:{given}", cast(Store, None), 1)
    taken = str(caught.value).partition("There are: ")[2].split(", ")
    behind = [option for option in needs.options if option != "backend"]
    assert behind == list(dict.fromkeys(taken))


@pytest.mark.parametrize("name", sorted(set(POLICIES) - set(WITH_OPTIONS)))
def test_a_policy_without_options_takes_none(name: str):
    with pytest.raises(UnknownComponentError, match="takes no options"):
        load_policy(f"{name}:zzz=1", cast(Store, None), 1)


@pytest.mark.parametrize("name", [name for name in POLICIES if NEEDS[name].required])
def test_without_what_a_row_calls_needed_the_policy_does_not_start(name: str):
    needs = NEEDS[name]
    for left_out in needs.required:
        rest = ",".join(f"{option}=http://host/v1" for option in needs.required if option != left_out)
        with pytest.raises(UnknownComponentError):
            load_policy(f"{name}:{rest}", cast(Store, None), 1)


def test_keys_and_addresses_are_those_that_requests_go_out_with():
    presets = {"gpt-4o-audio": PRESETS["gpt-4o-audio"], "gemini": GEMINI, "vllm": PRESETS["vllm-qwen3-omni"]}
    for name, preset in presets.items():
        assert (NEEDS[name].keys, NEEDS[name].needs_key) == (preset.keys, preset.needs_key)
        assert NEEDS[name].server == preset.base_url
        assert NEEDS[name].runs is (Runs.PROVIDER if preset.needs_key else Runs.SERVER)


def test_what_runs_elsewhere_is_said_to():
    elsewhere = {Runs.SERVER, Runs.PROVIDER, Runs.WORKER}
    assert {name for name in POLICIES if NEEDS[name].runs in elsewhere} == set(POLICIES) & set(CHATS)


def test_models_of_rows_are_in_the_model_registry():
    known = {model.name for model in Registry.load()}
    for name in POLICIES:
        assert set(NEEDS[name].models) <= known, name
