"""Where the figures come from: what each run was made with, and how its trials ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from bench.report.blocks import Cell, Folded, Group, Row, Table
from bench.report.runs import ReportedRun
from bench.report.tables_gate import columns_of
from bench.report.wording import absent_cell
from bench.results import STATUSES

_UNKNOWN = "unknown"
_HASH_CHARS = 12


def runs_table(runs: Sequence[ReportedRun]) -> Table:
    """What was measured, on what, how."""
    facts: dict[str, Callable[[ReportedRun], Cell]] = {
        "Policy": lambda run: Cell(run.policy),
        "Begun": lambda run: Cell(_date(run.config["created_unix"])),
        "Commit": _commit,
        "Manifest": _manifest,
        "Part": _part,
        "Trials": lambda run: Cell(f"{len(run.played)} of {len(run.played) + len(run.missing)} played"),
        "Pace": lambda run: Cell(str(run.config["pace"])),
        "Seed": lambda run: Cell(str(run.seed)),
        "Machine": _machine,
        "Workers": lambda run: Cell(_or_default(run.config["workers"]), (str(run.config["executor"]),)),
        "Time limits": lambda run: Cell(
            f"{run.config['timeout_s']:g} s a trial", (f"patience {run.config['patience']:g}",)
        ),
        "Judges": _judges,
    }
    rows = tuple(Row(name, tuple(told(run) for run in runs)) for name, told in facts.items())
    return Table("The runs", "", columns_of(runs), (Group("", rows),))


def status_table(runs: Sequence[ReportedRun]) -> Table:
    """How the trials ended."""
    rows = tuple(
        Row(name.replace("_", " "), tuple(Cell(str(run.summary["status"][name])) for run in runs))
        for name in (*STATUSES, "not_run")
    )
    return Table(
        "How the trials ended, in trials", "Status", columns_of(runs), (Group("", rows),),
        ("A trial that failed has no action. It is never counted as a Mute.",),
    )  # fmt: skip


def models_table(runs: Sequence[ReportedRun]) -> Folded:
    """The models of each run with their hashes, and the libraries that compute."""
    models = sorted({name for run in runs for name in run.config["models"]})
    libraries = sorted({name for run in runs for name in _libraries(run)})
    groups = (
        Group(
            "Models, by the sha256 of what was loaded",
            tuple(Row(name, tuple(_hash(run.config["models"].get(name)) for run in runs)) for name in models),
        ),
        Group(
            "Libraries", tuple(Row(name, tuple(_text(_libraries(run).get(name)) for run in runs)) for name in libraries)
        ),
    )
    shown = tuple(group for group in groups if group.rows)
    table = Table("Models and libraries", "", columns_of(runs), shown, ("Whole hashes are in config.json.",))
    return Folded("Models and libraries", (table,))


def _commit(run: ReportedRun) -> Cell:
    code = run.config["code"]
    commit, dirty = code["git_commit"], code["git_dirty"]
    state = {None: "not known whether changed", True: "with uncommitted changes", False: "clean"}[dirty]
    return Cell(
        commit[:_HASH_CHARS] if commit else _UNKNOWN, (state, f"code sha256 {code['sha256'][:_HASH_CHARS]}")
    )  # fmt: skip


def _manifest(run: ReportedRun) -> Cell:
    manifest = run.config["manifest"]
    lines = [f"sha256 {manifest['sha256'][:_HASH_CHARS]}"]
    if run.labels_sha256 is not None:
        lines.append(f"scored with other labels, sha256 {run.labels_sha256[:_HASH_CHARS]}")
    return Cell(str(manifest["name"]), tuple(lines))


def _part(run: ReportedRun) -> Cell:
    config = run.config
    told = [f"split {config['split']}"] if config["split"] else []
    told += [f"the first {config['limit']}"] if config["limit"] is not None else []
    told += [f"{len(config['ids'])} chosen ids"] if config["ids"] is not None else []
    return Cell(", ".join(told) or "all of it")


def _machine(run: ReportedRun) -> Cell:
    machine = run.config["machine"]
    cores = f"{machine['cores']} core{'' if machine['cores'] == 1 else 's'}"
    return Cell(
        str(machine["processor"]),
        (f"{cores}, {machine['memory_gib']} GiB", f"{machine['system']}, Python {machine['python']}"),
    )


def _judges(run: ReportedRun) -> Cell:
    judges = run.played[0].judgements.judges if run.played else []
    return Cell(", ".join(judges)) if judges else absent_cell("none")


def _libraries(run: ReportedRun) -> dict[str, Any]:
    found = run.config["machine"].get("libraries", {})
    return found if isinstance(found, dict) else {}


def _hash(value: str | None) -> Cell:
    return absent_cell("not used") if value is None else Cell(str(value)[:_HASH_CHARS])


def _text(value: object) -> Cell:
    return absent_cell(_UNKNOWN) if value is None else Cell(str(value))


def _or_default(value: object) -> str:
    return "default" if value is None else str(value)


def _date(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
