"""``voicegate bench build NAME``: builds the benchmark's corpora into the cache, with progress, resumable."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.exit_codes import ExitCode

if TYPE_CHECKING:
    from bench.build.speech import Synthesiser

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

NAMES = ("vgbench", "cue6", "cue8", "gaps", "sweep", "ear", "smoke")


def add_build_parser(commands: Subparsers) -> None:
    """Add ``build`` to the bench's commands."""
    build = commands.add_parser("build", help="build the corpora: speech, rooms, masks, manifests")
    build.add_argument("name", choices=[*NAMES, "all"], help="which one; all: every one but smoke")
    build.add_argument("--split", choices=["train", "dev", "test"], help="only that part of it")
    build.add_argument("--limit", type=int, metavar="N", help="only the first N trials")
    build.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: cores)"
    )
    build.add_argument("--out", type=Path, metavar="DIR", help="where to (default: the cache, VOICEGATE_BENCH)")
    build.add_argument(
        "--synthesiser", choices=["kokoro", "espeak"], default="kokoro",
        help="kokoro (default), or espeak: another kind of voice, for the slice that nothing is trained on",
    )  # fmt: skip


def make_kokoro() -> Synthesiser:
    """The default synthesiser, from the model store; called in every process."""
    from bench.build.kokoro import Kokoro
    from models.store import Store

    return Kokoro(Store())


def make_espeak() -> Synthesiser:
    """The second synthesiser; called in every process."""
    from bench.build.espeak import Espeak

    return Espeak()


def run(args: argparse.Namespace) -> int:
    """Build what was asked for.

    Returns:
        The exit code.
    """
    names = [name for name in NAMES if name != "smoke"] if args.name == "all" else [args.name]
    for name in names:
        print(f"{name}: {_build(name, args)}", flush=True)
    return ExitCode.OK


def _build(name: str, args: argparse.Namespace) -> Path:
    from bench.build.catalogue import CORPORA, of_split
    from bench.build.corpus import build
    from bench.build.scripts import load_scripts
    from bench.build.speech import cache_folder

    factory = make_kokoro if args.synthesiser == "kokoro" else make_espeak
    folder = args.out or cache_folder() / (name if args.synthesiser == "kokoro" else f"{name}-{args.synthesiser}")
    with _Progress(name) as progress:
        if name == "ear":
            from bench.build.ear import build_ear

            return build_ear(folder, factory, args.workers, progress, split=args.split, limit=args.limit)
        if name == "smoke":
            from bench.build.smoke import build_smoke

            return build_smoke(load_scripts(), folder, factory, args.workers, progress)
        plans = list(of_split(CORPORA[name], args.split)(load_scripts()))[: args.limit]
        return build(plans, folder, factory, args.workers, progress)


class _Progress:
    """A bar a stage, on standard error."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._name = name
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TimeRemainingColumn(), console=Console(stderr=True),
        )  # fmt: skip
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> _Progress:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def __call__(self, stage: str, done: int, of: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(f"{self._name}: {stage}", total=of)
        self._bars.update(self._tasks[stage], completed=done, total=of)
