"""``voicegate policies``: every policy is listed, unknown facts are said to be unknown, and no key is ever printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent import cli, policies
from agent.bench_rows import RATES, BenchRow, RowsUnreadableError, Share, last_row, read_rows, rows_file, write_row
from agent.exit_codes import ExitCode
from models.components import POLICIES
from models.policy_needs import NEEDS
from models.policy_ready import Readiness
from models.store import State

SECRET = "sk-secret-value"


@pytest.fixture(autouse=True)
def _a_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("VOICEGATE_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)


def row(policy: str = "smollm2", date: str = "2026-03-01T10:00:00+00:00", **more: object) -> BenchRow:
    share = Share(k=3, n=4, rate=0.75, ci95=(0.3, 0.95))
    values: dict[str, object] = {
        "policy": policy, "date": date, "manifest": "manifest.jsonl", "manifest_sha256": "0" * 64, "folder": "runs/x",
        "pace": "charged", "trials": 57, "failed": 0, "rates": {"false_execution": share, "side_talk": None}, **more,
    }  # fmt: skip
    return BenchRow.model_validate(values)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["policies", *arguments]) == ExitCode.OK
    return capsys.readouterr().out


def test_json_lists_every_policy_with_what_it_needs_and_never_a_key(capsys: pytest.CaptureFixture[str]):
    text = printed(capsys, "--json")
    found = {one["name"]: one for one in json.loads(text)["policies"]}
    assert list(found) == list(POLICIES)
    assert SECRET not in text
    gpt = found["gpt-4o-audio"]
    assert gpt["keys"] == {"OPENAI_API_KEY": True}
    assert (gpt["needs_key"], gpt["ready"], gpt["memory_gb"]) == (True, True, None)
    assert (found["gemini"]["ready"], found["vllm"]["ready"]) == (False, None)
    assert found["smollm2"]["ready"] is False, "nothing is pulled in this test's store"
    assert "models pull" in found["smollm2"]["ready_text"]
    assert found["openai-compatible"]["required_options"] == ["base_url", "model"]
    assert all(one["last_run"] is None for one in found.values())


def test_people_are_told_what_is_not_known(capsys: pytest.CaptureFixture[str]):
    text = printed(capsys)
    assert SECRET not in text
    for name in POLICIES:
        assert f"\n{name}: " in f"\n{text}"
    blocks = {block.partition(":")[0].strip(): " ".join(block.split()) for block in text.split("\n\n")}
    assert "memory not known" in blocks["gpt-4o-audio"]
    assert "OPENAI_API_KEY (set)" in blocks["gpt-4o-audio"]
    assert "GEMINI_API_KEY (not set)" in blocks["gemini"]
    assert "(not known)" in blocks["vllm"]
    assert "model (needed)" in blocks["openai-compatible"]
    assert "none on this machine" in blocks["smollm2"]
    assert max(map(len, text.splitlines())) <= 120


def test_the_last_run_is_shown_whatever_options_it_had(capsys: pytest.CaptureFixture[str]):
    write_row(rows_file(), row("vllm:preset=af3", "2026-03-02T10:00:00+00:00", failed=2))
    write_row(rows_file(), row("vllm", "2026-03-01T10:00:00+00:00"))
    found = {one["name"]: one for one in json.loads(printed(capsys, "--json"))["policies"]}
    assert found["vllm"]["last_run"]["policy"] == "vllm:preset=af3"
    assert found["smollm2"]["last_run"] is None
    text = " ".join(printed(capsys).split())
    assert "2026-03-02, as vllm:preset=af3, 57 trials of manifest.jsonl (2 failed): side-talk right not known" in text
    assert "false executions 75% of 4" in text


def test_rows_that_cannot_be_read_are_said_and_cost_nothing_else(capsys: pytest.CaptureFixture[str]):
    rows_file().parent.mkdir(parents=True)
    rows_file().write_text('{"version": 1, "rows": {"smollm2": {}}}')
    assert "last runs are not known" in printed(capsys)
    assert json.loads(printed(capsys, "--json"))["rows_fault"]
    with pytest.raises(RowsUnreadableError):
        write_row(rows_file(), row())
    assert rows_file().read_text().count("smollm2") == 1, "what could not be read is not overwritten"
    rows_file().write_text('{"version": 9, "rows": {}}')
    with pytest.raises(RowsUnreadableError, match="version 9"):
        read_rows(rows_file())


def test_a_row_takes_the_place_of_its_policy_s_last_one_and_of_no_other(tmp_path: Path):
    path = tmp_path / "new" / "rows.json"
    for one in (row("a"), row("a:b=c"), row("a", "2026-03-05T10:00:00+00:00", trials=3), row("ab")):
        write_row(path, one)
    rows = read_rows(path)
    assert {name: one.trials for name, one in rows.items()} == {"a": 3, "a:b=c": 57, "ab": 57}
    newest = last_row(rows, "a")
    assert newest is not None
    assert newest.trials == 3
    assert last_row(rows, "c") is None


def test_every_rate_has_a_name_and_false_executions_stand_beside_false_rejections():
    assert {"side_talk", "self_talk", "speaker_switch", "false_execution", "false_rejection"} == set(RATES)


def test_the_mark_says_unknown_where_it_is_unknown():
    unknown = Readiness(None, "the server is not asked")
    facts = policies.PolicyFacts("vllm", NEEDS["vllm"], {"VLLM_API_KEY": False}, unknown, None)
    assert next(facts.lines()).endswith("(not known)")
    assert facts.as_json()["ready"] is None


def test_states_of_the_store_are_asked_for_and_nothing_is_loaded():
    asked: list[str] = []

    class Shelf:
        """Writes down what it is asked."""

        def state(self, name: str) -> State:
            asked.append(name)
            return State.READY

    found = policies.facts(Shelf(), {}, {})
    assert [one.name for one in found] == list(POLICIES)
    assert "smollm2-135m-onnx" in asked
