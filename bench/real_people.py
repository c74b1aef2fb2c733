"""Recordings of real people through the live loop, and what comes of it.

``python -m bench.real_people build --data DIR --out CORPUS`` writes trials over the recordings of a folder that is the
user's own; ``voicegate bench run CORPUS/manifest.jsonl --policy smollm2 --out RUN`` plays them; ``python -m
bench.real_people report RUN`` prints what came of them, from the run's folder alone. docs/real-people.md tells what the
folder holds and what was measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from agent.exit_codes import ExitCode
from bench.build.recordings import RecordingError
from bench.people.errors import PeopleError


def main(argv: Sequence[str] | None = None) -> int:
    """Command line.

    Args:
        argv: arguments without the program's name; the process's own by default.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m bench.real_people", description=(__doc__ or "").split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="write trials over a folder of recordings")
    build.add_argument("--data", type=Path, metavar="DIR", help="the folder; default: VOICEGATE_DATA")
    build.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the manifest")
    build.add_argument("--seed", type=int, default=0, metavar="N", help="of everything drawn at random (default 0)")
    build.add_argument(
        "--wearers", type=int, default=2, metavar="N", help="enrolled wearers for each conversation (default 2)"
    )
    report = commands.add_parser("report", help="print what came of a run, as Markdown")
    report.add_argument("dir", type=Path, metavar="RUN_DIR", help="folder of the run")
    args = parser.parse_args(argv)
    return _build(args) if args.command == "build" else _report(args)


def _build(args: argparse.Namespace) -> int:
    from bench.people.building import build, lines, product_check
    from models.store_errors import ModelError

    try:
        built = build(args.data, args.out, product_check(), seed=args.seed, wearers=args.wearers)
    except ModelError as error:
        print(f"voicegate: {error}", file=sys.stderr)
        return ExitCode.MODELS
    except (PeopleError, RecordingError, OSError) as error:
        print(f"voicegate: {error}", file=sys.stderr)
        return ExitCode.USAGE
    print("\n".join(lines(built)))
    print(f"next: voicegate bench run {built.manifest} --policy smollm2 --out RUN_DIR")
    return ExitCode.OK


def _report(args: argparse.Namespace) -> int:
    from bench.people.report import report
    from bench.provenance import ConfigurationDiffersError
    from bench.runlog import RunLogError
    from bench.score import ScoreError
    from bench.trials import ManifestError

    try:
        print(report(args.dir), end="")
    except (PeopleError, ConfigurationDiffersError, ManifestError, RunLogError, ScoreError) as error:
        print(f"voicegate: {error}", file=sys.stderr)
        return ExitCode.USAGE
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
