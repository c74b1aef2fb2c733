"""``voicegate bench``: found without the agent knowing of it, and what a person can mend is said in a line."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint, EntryPoints, PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from agent import cli as agent_cli
from agent.bench_rows import read_rows, rows_file
from agent.exit_codes import ExitCode
from bench import cli
from bench import run as run_module
from bench.provenance import CONFIG
from bench.ray_replicas import REPLICAS, Place, Replicas
from bench.run import MANIFEST_COPY
from tests.bench_contestants import NAME
from tests.bench_harness import here, small_corpus


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(run_module.run, "__defaults__", (here, None))


def bench(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments])


def test_a_run_is_played_scored_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    manifest, out = small_corpus(tmp_path), tmp_path / "out"
    assert bench("run", manifest, "--policy", NAME, "--out", out, "--limit", 2) == ExitCode.OK
    assert bench("run", manifest, "--policy", NAME, "--out", out, "--resume") == ExitCode.OK
    captured = capsys.readouterr()
    assert "4 of 6 trials played" in captured.out
    assert "s of audio a second" in captured.out
    assert bench("score", out) == ExitCode.OK
    assert "gate.false_execution" in capsys.readouterr().out
    assert bench("score", out, "--json", "--manifest", manifest) == ExitCode.OK
    summary = json.loads(capsys.readouterr().out)
    assert summary["gate"]["false_execution"]["n"] == 4
    assert bench("compare", out, out, "--json") == ExitCode.OK
    assert {change["verdict"] for change in json.loads(capsys.readouterr().out)["changes"]} == {"same"}
    assert bench("compare", out, out) == ExitCode.OK
    assert "6 trials in both" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["run", "absent.jsonl", "--policy", NAME, "--out", "{out}"], ExitCode.USAGE, "cannot be read"),
        (["run", "{manifest}", "--policy", "nobody", "--out", "{out}"], ExitCode.USAGE, "always-mute"),
        (["run", "{manifest}", "--policy", NAME, "--out", "{done}"], ExitCode.USAGE, "--resume"),
        (["run", "{manifest}", "--policy", NAME, "--out", "{done}", "--resume", "--seed", "3"], ExitCode.USAGE, "seed"),
        (["score", "{out}"], ExitCode.USAGE, "config.json"),
    ],
)
def test_what_can_be_mended_is_one_line_with_its_cure_and_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: ExitCode, says: str
):
    places = {"manifest": small_corpus(tmp_path), "out": tmp_path / "out", "done": tmp_path / "done"}
    assert bench("run", places["manifest"], "--policy", NAME, "--out", places["done"], "--limit", 1) == ExitCode.OK
    capsys.readouterr()
    assert bench(*(argument.format(**places) for argument in arguments)) == code
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said


def test_limits_below_one_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        bench("run", "m.jsonl", "--policy", NAME, "--out", tmp_path, "--workers", 0)
    assert caught.value.code == ExitCode.USAGE
    assert "at least 1" in capsys.readouterr().err


def test_a_registered_command_is_found_without_the_agent_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    entry = EntryPoint("bench", "bench.cli:add_bench_parser", "voicegate.commands")

    class Distribution:
        """As importlib.metadata describes one."""

        entry_points = EntryPoints([entry, EntryPoint("voicegate", "agent.cli:entry", "console_scripts")])

    class Metadata:
        """As much of importlib.metadata as is used."""

        PackageNotFoundError = PackageNotFoundError
        distribution = staticmethod(lambda name: Distribution())

    # Only what the command line itself looks up: the run asks for the versions of libraries by the same function.
    monkeypatch.setattr(agent_cli, "metadata", Metadata)
    settings = tmp_path / "voicegate.toml"
    settings.write_text("[models]\nspeaker = 'campplus-onnx'\n")
    out = tmp_path / "out"
    command: list[Any] = [
        "--settings",
        settings,
        "bench",
        "run",
        small_corpus(tmp_path),
        "--policy",
        NAME,
        "--out",
        out,
    ]
    assert agent_cli.main([str(part) for part in [*command, "--limit", "1"]]) == ExitCode.OK
    assert (out / MANIFEST_COPY).exists()
    with pytest.raises(SystemExit):
        agent_cli.main(["--help"])
    assert "bench" in capsys.readouterr().out


def test_without_its_own_metadata_the_command_line_works_all_the_same(monkeypatch: pytest.MonkeyPatch):
    def unknown(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(agent_cli.metadata, "distribution", unknown)
    assert agent_cli.build_parser().parse_args(["devices"]).command == "devices"


def test_where_replicas_go_is_part_of_the_configuration(tmp_path: Path):
    manifest, out = small_corpus(tmp_path), tmp_path / "out"
    on_ray = ["--ray", "auto", "--gpus-per-replica", 0.5, "--resource", "fast=2", "--threads", 3]
    assert bench("run", manifest, "--policy", NAME, "--out", out, "--limit", 1, *on_ray) == ExitCode.OK
    config = json.loads((out / CONFIG).read_text())
    assert config["replica"] == {"CPU": 3.0, "GPU": 0.5, "fast": 2.0}
    here_again = bench("run", manifest, "--policy", NAME, "--out", out, "--resume")
    assert here_again == ExitCode.USAGE, "times of another machine do not go into one log"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--gpus-per-replica", "1"], "--ray"),
        (["--resource", "fast=1"], "--ray"),
        (["--ray", "auto", "--gpus-per-replica", "1.5"], "whole number"),
    ],
)
def test_gpus_that_no_replica_can_have_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], says: str
):
    manifest = small_corpus(tmp_path)
    assert bench("run", manifest, "--policy", NAME, "--out", tmp_path / "out", *flags) == ExitCode.USAGE
    assert says in capsys.readouterr().err


def test_what_replicas_played_is_printed_and_in_the_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    manifest, out = small_corpus(tmp_path), tmp_path / "out"
    out.mkdir()
    replicas = Replicas(out / REPLICAS)
    replicas.started(1)
    replicas.loaded(1, Place("node-a", 7, ("0",)))
    replicas.over(1)
    assert bench("run", manifest, "--policy", NAME, "--out", out, "--limit", 1) == ExitCode.OK
    assert "replica 1 on node-a, GPU 0: 0 trials" in capsys.readouterr().out
    assert bench("score", out, "--json") == ExitCode.OK
    assert [one["node"] for one in json.loads(capsys.readouterr().out)["replicas"]] == ["node-a"]


def test_a_run_and_its_score_leave_the_row_that_voicegate_policies_shows(tmp_path: Path):
    manifest, out = small_corpus(tmp_path), tmp_path / "out"
    assert bench("run", manifest, "--policy", NAME, "--out", out) == ExitCode.OK
    assert not rows_file().exists(), "a contestant of a module's is no policy of the registry"
    config = json.loads((out / CONFIG).read_text())
    (out / CONFIG).write_text(json.dumps(config | {"policy": "smollm2"}))
    assert bench("score", out) == ExitCode.OK
    assert read_rows(rows_file())["smollm2"].trials == 6


@pytest.mark.slow
def test_parity_is_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    manifest = small_corpus(tmp_path)
    code = bench("parity", manifest, "--policy", NAME, "--limit", 1, "--tolerance", 5)
    assert code == ExitCode.OK
    assert "1 of 1 trials decided the same on both clocks" in capsys.readouterr().out
