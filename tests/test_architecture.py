"""The rules that keep the rooms apart, read from the source: who imports whom, who reads time, who mints grants."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "gate": set(),
    "tools": {"gate"},
    "models": {"gate"},
    "agent": {"gate", "tools", "models"},
    "bench": {"gate", "tools", "models", "agent"},
}
"""What each package may import of ours, besides itself."""
GATE_IMPORTS = {
    "__future__", "collections", "dataclasses", "decimal", "enum", "functools", "gate", "hashlib", "itertools", "json",
    "math", "re", "text_to_num", "typing", "unicodedata",
}  # fmt: skip
"""All that a pure decision needs: no file, no network, no clock, no thread, no chance."""
GATE_EXTRAS = {"gate/grants.py": {"hmac", "secrets", "threading"}}
"""The seal of a grant, and the lock of the ledger."""
HEAVY = {"torch", "torchaudio", "transformers", "speechbrain", "pyroomacoustics", "faster_whisper"}
CLOCKS = {
    ("time", name)
    for stem in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for name in (stem, f"{stem}_ns")
} | {
    ("time", "sleep"), ("time", "localtime"), ("time", "gmtime"), ("time", "strftime"), ("asyncio", "sleep"),
    ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"), ("threading", "Timer"),
}  # fmt: skip


_CLOCK_NAMES = {name for _, name in CLOCKS}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def sources(package: str) -> list[Path]:
    return sorted(path for path in (ROOT / package).rglob("*.py") if "__pycache__" not in path.parts)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


ALL = [path for package in MAY_IMPORT for path in sources(package)]
ids = named


@cache
def nodes(tree_or_item: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes below one, itself included: each file is looked at by many tests."""
    return tuple(ast.walk(tree_or_item))


@cache
def imports(node: ast.AST) -> tuple[tuple[str, str], ...]:
    """Each import below ``node``, wherever it stands: the module, and the name taken from it or ""."""
    return tuple(_imports(node))


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    for item in nodes(node):
        if isinstance(item, ast.Import):
            for alias in item.names:
                yield alias.name, ""
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0, "relative imports hide which package is meant"
            for alias in item.names:
                yield item.module or "", alias.name
        elif isinstance(item, ast.Call) and _last_name(item.func) == "import_module":
            for argument in item.args[:1]:
                if isinstance(argument, ast.Constant):
                    yield str(argument.value), ""


def _last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


@cache
def at_import_time(module: ast.Module) -> tuple[ast.stmt, ...]:
    """The statements that run when a module is imported, without the bodies of functions and type-checking blocks."""
    return tuple(_at_import_time(module))


def _at_import_time(module: ast.Module) -> Iterator[ast.stmt]:
    waiting: list[ast.stmt] = list(module.body)
    while waiting:
        item = waiting.pop()
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(item, ast.If) and "TYPE_CHECKING" in ast.unparse(item.test):
            waiting.extend(item.orelse)
            continue
        if isinstance(item, ast.Import | ast.ImportFrom):
            yield item
        for field in ("body", "orelse", "finalbody"):
            waiting.extend(getattr(item, field, []))
        for handler in getattr(item, "handlers", []):
            waiting.extend(handler.body)


def test_all_five_packages_are_looked_at() -> None:
    for package in MAY_IMPORT:
        assert sources(package), package


@pytest.mark.parametrize("path", ALL, ids=ids)
def test_a_package_imports_only_what_it_may(path: Path) -> None:
    package = named(path).split("/")[0]
    ours = {module.split(".")[0] for module, _ in imports(tree(path))} & (MAY_IMPORT.keys() | {"tests"})
    assert ours <= MAY_IMPORT[package] | {package}


@pytest.mark.parametrize("path", sources("gate"), ids=ids)
def test_the_gate_is_pure_so_a_decision_depends_on_its_arguments_alone(path: Path) -> None:
    used = {module.split(".")[0] for module, _ in imports(tree(path))}
    assert used <= GATE_IMPORTS | GATE_EXTRAS.get(named(path), set())
    called = {
        node.func.id for node in nodes(tree(path)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"open", "input", "print", "exec", "eval", "compile", "__import__", "globals"}


def clock_reads(module: ast.Module) -> set[tuple[str, str]]:
    """Reads of a clock and waits, as ``(module, name)``, also through an alias or a from-import."""
    aliases = {
        alias.asname or alias.name: alias.name
        for item in nodes(module)
        if isinstance(item, ast.Import)
        for alias in item.names
    }
    found = {pair for pair in imports(module) if pair in CLOCKS}
    for item in nodes(module):
        if isinstance(item, ast.Attribute) and item.attr in _CLOCK_NAMES:
            owner = ast.unparse(item.value)
            found.add((aliases.get(owner, owner).rsplit(".", 1)[-1], item.attr))
    return found & CLOCKS


def test_the_search_for_clocks_finds_them() -> None:
    for text, pair in (
        ("import time\ntime.time()", ("time", "time")),
        ("import time as t\nx = t.perf_counter", ("time", "perf_counter")),
        ("from time import monotonic_ns as m", ("time", "monotonic_ns")),
        ("import asyncio\nasync def f():\n    await asyncio.sleep(1)", ("asyncio", "sleep")),
        ("import datetime\ndatetime.datetime.now()", ("datetime", "now")),
        ("from datetime import datetime\ndatetime.utcnow()", ("datetime", "utcnow")),
    ):
        assert pair in clock_reads(ast.parse(text)), text
    assert clock_reads(ast.parse("clock.now_s()\nself.time.sleepy")) == set()


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in ALL
        if not named(path).startswith(("bench/", "models/training/")) and named(path) != "agent/clock.py"
    ],
    ids=ids,
)
def test_only_the_clock_reads_time_so_replay_decides_as_live_does(path: Path) -> None:
    assert clock_reads(tree(path)) == set()


def test_only_the_decision_mints_grants_so_no_other_code_can_license_a_call() -> None:
    minting = {
        named(path)
        for path in ALL
        if any(name == "_mint" for _, name in imports(tree(path)))
        or any(isinstance(node, ast.Attribute) and node.attr == "_mint" for node in nodes(tree(path)))
    }
    assert minting == {"gate/decision.py"}
    sealing = {named(path) for path in ALL if re.search(r"_MINT_KEY|\b_seal\(", path.read_text(encoding="utf-8"))}
    assert sealing == {"gate/grants.py"}


@pytest.mark.parametrize("path", ALL, ids=ids)
def test_no_module_is_named_like_one_of_the_standard_library(path: Path) -> None:
    names = {path.stem if path.stem != "__init__" else path.parent.name}
    assert not names & (sys.stdlib_module_names - {"__main__"})


@pytest.mark.parametrize("path", ALL, ids=ids)
def test_every_module_and_all_that_is_public_in_it_says_what_it_is(path: Path) -> None:
    module = tree(path)
    assert ast.get_docstring(module), "the module has no docstring"
    public = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    bare = [
        item.name
        for item in module.body
        if isinstance(item, public) and not item.name.startswith("_") and not ast.get_docstring(item)
    ]
    assert bare == []


@cache
def module_file(module: str) -> Path | None:
    """The file of one of our modules, or None for anybody else's."""
    base = ROOT.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def loaded_with(path: Path) -> dict[str, str]:
    """Every library that importing a file of ours loads, and which file of ours asks for it."""
    found: dict[str, str] = {}
    seen: set[Path] = set()
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for item in at_import_time(tree(file)):
            for module, name in imports(item):
                inner = [module_file(f"{module}.{name}"), module_file(module)] if name else [module_file(module)]
                waiting.extend(file for file in inner if file is not None)
                if not any(inner):
                    found[module.split(".")[0]] = named(file)
    return found


@pytest.mark.parametrize(
    "path", [path for path in ALL if named(path).split("/")[0] in ("gate", "tools", "agent")], ids=ids
)
def test_importing_the_live_path_loads_no_heavy_library_so_start_up_stays_fast(path: Path) -> None:
    assert {library: by for library, by in loaded_with(path).items() if library in HEAVY} == {}


_SKIPPED = {
    ".git",
    ".venv",
    "venv",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
}
_TEXT = {
    ".py",
    ".md",
    ".toml",
    ".txt",
    ".cfg",
    ".ini",
    ".json",
    ".jsonl",
    ".yml",
    ".yaml",
    ".sh",
    ".html",
    ".js",
    ".css",
}
_TEXT_NAMES = {"Makefile", "LICENSE", "NOTICE", ".gitignore"}
# Put together from parts, or this file would find itself.
_FOREIGN = re.compile(
    "|".join(
        (
            r"(?<![\w.])/wo" + r"rk/",
            r"/tmp/" + r"lab\b",
            r"\bhelper" + r" session",
            r"\bissue" + r" #",
            r"\bBRIEF" + r"\.md",
        )
    ),
    re.IGNORECASE,
)


def own_files() -> list[Path]:
    out: list[Path] = []
    waiting = [ROOT]
    while waiting:
        for path in waiting.pop().iterdir():
            if path.name in _SKIPPED or path == ROOT / "build" or path.name.endswith(".egg-info") or path.is_symlink():
                continue
            if path.is_dir():
                waiting.append(path)
            elif path.suffix.lower() in _TEXT or path.name in _TEXT_NAMES or path.parent.name == ".ci":
                out.append(path)
    return sorted(out)


def test_the_project_speaks_of_itself_only() -> None:
    found = [
        f"{named(path)}:{number}: {line.strip()[:80]}"
        for path in own_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if _FOREIGN.search(line)
    ]
    assert found == []
