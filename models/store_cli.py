"""``voicegate models``: list, pull, verify, path."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from models.store import State, Store
from models.store_console import BarProgress, PlainProgress
from models.store_errors import ModelError
from models.store_progress import PullProgress, megabytes

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

EXIT_OK = 0
EXIT_USAGE = 2
EXIT_MODEL_PROBLEM = 3

_STATE_STYLES = {
    State.READY: "green",
    State.MISSING: "dim",
    State.STALE: "yellow",
    State.UNVERIFIED: "yellow",
}
_PLAIN_WIDTH_COLUMNS = 120


def add_models_parser(subparsers: Subparsers) -> None:
    """Add the ``models`` command and its own commands to a parser."""
    models = subparsers.add_parser("models", help="list, fetch and verify the models")
    commands = models.add_subparsers(dest="models_command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="the models, what they are for and whether they are here")
    pull = commands.add_parser("pull", help="fetch models, or all that voicegate needs by default")
    pull.add_argument("names", nargs="*", metavar="NAME", help="a model; without any, the default set")
    pull.add_argument("--all-default", action="store_true", help="the default set, beside the names given")
    pull.add_argument("--offline", action="store_true", help="connect to nothing; use what lies on this machine")
    pull.add_argument(
        "--trust-first-use",
        action="store_true",
        help="accept a hub model whose hashes are not known, and pin what comes",
    )
    verify = commands.add_parser("verify", help="read every byte of the models that are here and compare hashes")
    verify.add_argument("names", nargs="*", metavar="NAME", help="a model; without any, all that are here")
    path = commands.add_parser("path", help="print the directory of a verified model")
    path.add_argument("name", metavar="NAME")


def run(args: argparse.Namespace, out: TextIO | None = None, err: TextIO | None = None) -> int:
    """Carry out a parsed ``models`` command.

    Args:
        args: of a parser made by ``add_models_parser``.
        out: where results go; None for standard output.
        err: where progress and errors go; None for standard error.

    Returns:
        0 when all is well, 3 on a model problem. (Usage errors end in 2 in argparse.)
    """
    said = Console(file=out if out is not None else sys.stdout)
    told = Console(file=err if err is not None else sys.stderr)
    try:
        store = Store(offline=True if getattr(args, "offline", False) else None)
        if args.models_command == "list":
            _list(store, said)
        elif args.models_command == "pull":
            _pull(store, args, told)
        elif args.models_command == "verify":
            return _verify(store, args.names, said, told)
        else:
            print(store.path(args.name), file=said.file)
    except ModelError as error:
        _print_error(told, error)
        return EXIT_MODEL_PROBLEM
    return EXIT_OK


def _print_error(console: Console, error: ModelError) -> None:
    console.print(f"[bold red]error[/] [dim]{error.code.value}[/]", end=" ", highlight=False)
    console.print(error.message, markup=False, highlight=False, soft_wrap=True)
    console.print(f"  {error.cure}", markup=False, highlight=False, soft_wrap=True)
    for note in getattr(error, "__notes__", ()):  # what a failed builder wrote
        console.print(textwrap.indent(note, "  | "), markup=False, highlight=False, soft_wrap=True, style="dim")


def _list(store: Store, console: Console) -> None:
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH_COLUMNS
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("Model", no_wrap=True)
    table.add_column("For")
    table.add_column("Size", justify="right", no_wrap=True)
    table.add_column("Licence", no_wrap=True)
    table.add_column("State", no_wrap=True)
    needed_for: dict[str, list[str]] = {}
    for model in store.registry:
        for name in model.build.inputs if model.build else ():
            needed_for.setdefault(name, []).append(model.name)
    here_bytes = 0
    for model in store.registry:
        state = store.state(model.name)
        size_bytes = store.size_bytes(model.name)
        if state is not State.MISSING and model.repo is None:
            here_bytes += size_bytes or 0
        estimate = "~" if model.build is not None and state is State.MISSING else ""
        table.add_row(
            f"{model.name} [bold]*[/]" if model.default else model.name,
            model.role.value.replace("_", " "),
            estimate + megabytes(size_bytes) if size_bytes is not None else "?",
            model.licence,
            f"[{_STATE_STYLES[state]}]{state.value}[/]",
        )
    console.print(table)
    console.print("* needed by default: voicegate models pull", highlight=False)
    kept_bytes = sum(path.stat().st_size for path in _downloads(store))
    kept = f", and {megabytes(kept_bytes)} of kept downloads" if kept_bytes else ""
    here = megabytes(here_bytes) if here_bytes else "nothing"
    console.print(f"{here} in {store.cache_dir}{kept}", highlight=False, soft_wrap=True)


def _downloads(store: Store) -> list[Path]:
    directory = store.downloads.directory
    return [path for path in directory.iterdir() if path.is_file()] if directory.is_dir() else []


@contextmanager
def _shown_on(console: Console) -> Iterator[PullProgress]:
    if console.is_terminal:
        with BarProgress(console) as bar:
            yield bar
    else:
        yield PlainProgress(console)


def _pull(store: Store, args: argparse.Namespace, console: Console) -> None:
    names = list(args.names)
    if args.all_default or not names:
        names += store.registry.default_names()
    with _shown_on(console) as progress:
        store.pull(names, progress, trust_first_use=args.trust_first_use)
    console.print(f"ready in {store.cache_dir}: {', '.join(dict.fromkeys(names))}", highlight=False, soft_wrap=True)


def _verify(store: Store, names: list[str], said: Console, told: Console) -> int:
    """Verify the named models, or all that are here."""
    chosen = names or [model.name for model in store.registry if store.state(model.name) is not State.MISSING]
    if not chosen:
        said.print("no model is here yet: voicegate models pull")
    sound = True
    for name in chosen:
        problems = store.verify(name)
        for problem in problems:
            _print_error(told, problem)
        if not problems:
            size_bytes = store.size_bytes(name) or 0
            said.print(f"{name}: all bytes as recorded ({megabytes(size_bytes)})", highlight=False, soft_wrap=True)
        sound = sound and not problems
    return EXIT_OK if sound else EXIT_MODEL_PROBLEM
