"""``voicegate bench import NAME SOURCE --out DIR``: others' corpora as manifests of the bench's own trials.

The recordings stay where they are; the manifest names them relative to its own folder.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agent.exit_codes import ExitCode

if TYPE_CHECKING:
    from bench.trials import Trial

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_import_parser(commands: Subparsers) -> None:
    """Add ``import`` to the bench's commands."""
    bring = commands.add_parser("import", help="read a corpus in its original layout into a manifest")
    names = bring.add_subparsers(dest="import_name", required=True, metavar="NAME")

    wdyl = _corpus(names, "wdyl", "What Do You Like: wdyl_dialogues.txt, wdyl_questions.tsv", "folder of both texts")
    wdyl.add_argument("--audio", type=Path, metavar="DIR", help="where the table's audio paths start (default: SOURCE)")
    wdyl.add_argument("--asked", choices=["order", "sex"], default="order", help="how the question names the speaker")
    _add_split(wdyl)

    ear = _corpus(names, "ear", "EAR, or any recordings with transcript and answer", "JSON Lines file of questions")
    ear.add_argument(
        "--audio", action="append", required=True, metavar="CONDITION=PATH", type=_condition_audio,
        help="a condition's recordings: a folder of ID.wav, or a path with {id} in it; may be given again",
    )  # fmt: skip
    _add_split(ear)
    _add_columns(ear)

    slue = _corpus(names, "slue-sqa5", "SLUE-SQA-5: slue-sqa5_PART.tsv, documents, word times", "its folder")
    slue.add_argument("--part", choices=["fine-tune", "dev", "test", "verified-test"], default="test")
    slue.add_argument("--sample", type=int, metavar="N", help="draw N questions (the EAR paper: 1000)")
    slue.add_argument("--ignore", nargs="+", default=[], metavar="COLUMN", help="further columns, which are not read")
    slue.add_argument("--seed", type=int, default=0, metavar="N", help="decides which (default 0)")

    vgbench = _corpus(names, "vgbench", "VGBench, by a column map", "its table, .jsonl or .tsv")
    _add_audio_folder(vgbench)
    _add_columns(vgbench)

    wearvox = _corpus(
        names, "wearvox", "WearVox, the protocol's 384 items, by a column map", "its table, .jsonl or .tsv"
    )
    _add_audio_folder(wearvox)
    _add_columns(wearvox)
    wearvox.add_argument("--any-number", action="store_true", help="take any items, not only the protocol's 384")


def _corpus(names: Subparsers, name: str, what: str, source: str) -> argparse.ArgumentParser:
    parser = names.add_parser(name, help=what)
    parser.add_argument("source", type=Path, metavar="SOURCE", help=source)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the manifest")
    return parser


def _add_split(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--split", choices=["train", "dev", "test"], default="test", help="what the corpus becomes (default test)"
    )


def _add_columns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--columns", type=Path, metavar="FILE", help="column map (TOML), where the defaults do not fit")


def _add_audio_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--audio", type=Path, metavar="DIR", help="where the table's audio paths start (default: the table's folder)"
    )


def _condition_audio(text: str) -> tuple[str, str]:
    condition, equals, place = text.partition("=")
    if not equals or not condition or not place:
        raise argparse.ArgumentTypeError(f"{text!r} is not CONDITION=PATH")
    return condition, place


def run_import(args: argparse.Namespace) -> int:
    """Read a corpus and write its manifest.

    Returns:
        The exit code.

    Raises:
        LoaderError: when the corpus is not as its loader expects; names every wrong row.
    """
    from bench.trials import write_manifest

    args.out.mkdir(parents=True, exist_ok=True)
    trials = _READERS[args.import_name](args)
    path = args.out / "manifest.jsonl"
    write_manifest(path, trials)
    counts = Counter(f"{trial.family} {trial.condition}" for trial in trials)
    for name, count in sorted(counts.items()):
        print(f"{count:>6} {name}")
    print(path)
    return ExitCode.OK


def _wdyl(args: argparse.Namespace) -> list[Trial]:
    from bench.loaders.wdyl import load_wdyl

    return load_wdyl(args.source, args.audio or args.source, args.out, asked=args.asked, split=args.split)


def _ear(args: argparse.Namespace) -> list[Trial]:
    from bench.loaders.column_maps import read_column_map
    from bench.loaders.ear import EarAudio, EarColumns, load_ear
    from bench.loaders.rows import LoaderError

    audio: dict[str, EarAudio] = {}
    for condition, place in args.audio:
        if condition in audio:
            raise LoaderError(f"the condition {condition!r} has two places for its audio")
        audio[condition] = EarAudio.of(place)
    return load_ear(args.source, audio, args.out, columns=read_column_map(args.columns, EarColumns), split=args.split)


def _slue_sqa5(args: argparse.Namespace) -> list[Trial]:
    from bench.loaders.slue_sqa5 import load_slue_sqa5

    return load_slue_sqa5(
        args.source, args.part, args.out, sample=args.sample, seed=args.seed, ignored=frozenset(args.ignore)
    )


def _vgbench(args: argparse.Namespace) -> list[Trial]:
    from bench.loaders.column_maps import read_column_map
    from bench.loaders.vgbench import VgbenchColumns, load_vgbench

    columns = read_column_map(args.columns, VgbenchColumns)
    return load_vgbench(args.source, args.audio or args.source.parent, args.out, columns)


def _wearvox(args: argparse.Namespace) -> list[Trial]:
    from bench.loaders.column_maps import read_column_map
    from bench.loaders.wearvox import WearvoxColumns, load_wearvox

    columns = read_column_map(args.columns, WearvoxColumns)
    folder = args.audio or args.source.parent
    return load_wearvox(args.source, folder, args.out, columns, protocol=not args.any_number)


_READERS: dict[str, Callable[[argparse.Namespace], list[Trial]]] = {
    "wdyl": _wdyl, "ear": _ear, "slue-sqa5": _slue_sqa5, "vgbench": _vgbench, "wearvox": _wearvox,
}  # fmt: skip
