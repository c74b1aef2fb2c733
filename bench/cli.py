"""``voicegate bench …``: from building trials to the report. Parsing is quick; each command imports what it needs.

The command line of ``agent`` finds this by the entry point ``bench`` in the group ``voicegate.commands`` of this
package's own metadata, so that it need not know of the benchmark. ``python -m bench.cli`` is the same.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from agent.exit_codes import ExitCode
from bench.build.command import add_build_parser
from bench.build.mask_command import add_mask_parsers
from bench.loaders.command import add_import_parser

if TYPE_CHECKING:
    from bench.judges.case import Judge
    from bench.run import RunOptions

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_DEFAULT_POLICY = "smollm2"


def add_bench_parser(commands: Subparsers) -> None:
    """Add ``bench`` and its own commands to a command line."""
    bench = commands.add_parser("bench", help="measure: play trials, score and compare runs")
    bench.set_defaults(run_command=_command)
    inner = bench.add_subparsers(dest="bench_command", required=True, metavar="COMMAND")
    add_build_parser(inner)
    add_import_parser(inner)
    add_mask_parsers(inner)

    run = inner.add_parser("run", help="play a manifest of trials and log what came of each")
    _play_flags(run, default_policy=None)
    run.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the run")
    run.add_argument(
        "--pace", choices=["charged", "wall", "free"], default="charged",
        help="charged (default): as fast as it can be computed, with the latencies of real time",
    )  # fmt: skip
    run.add_argument("--resume", action="store_true", help="go on with the log that is in DIR")
    run.add_argument("--limit", type=_positive, metavar="N", help="only the first N trials")
    run.add_argument(
        "--workers", "--replicas", type=_positive, metavar="N",
        help="processes, each with its own models (default 1); with --ray: replicas (default: as many as fit)",
    )  # fmt: skip
    run.add_argument("--ray", metavar="ADDRESS", help="replicas on a Ray cluster instead; local starts one here")
    run.add_argument(
        "--gpus-per-replica", type=_not_negative, default=0.0, metavar="X",
        help="with --ray: GPUs of each replica; below 1, several share one (default 0)",
    )  # fmt: skip
    run.add_argument(
        "--resource", type=_resource, action="append", default=[], metavar="NAME=AMOUNT",
        help="with --ray: what each replica takes of a resource that nodes were started with; may be repeated",
    )  # fmt: skip
    run.add_argument("--no-preflight", action="store_true", help="do not stop when the first trial of a family fails")

    score = inner.add_parser("score", help="write the summary of a run, from its log alone")
    score.add_argument("dir", type=Path, metavar="DIR", help="folder of the run")
    score.add_argument("--manifest", type=Path, metavar="FILE", help="corrected labels")
    score.add_argument("--json", action="store_true", help="print the summary as JSON")

    _add_judge_parser(inner)

    compare = inner.add_parser("compare", help="what has changed between two runs, and whether it is noise")
    compare.add_argument("first", type=Path, metavar="A", help="folder of a run")
    compare.add_argument("second", type=Path, metavar="B", help="folder of another")
    compare.add_argument("--manifest", type=Path, metavar="FILE", help="labels for both")
    compare.add_argument("--json", action="store_true", help="print all of it as JSON")

    report = inner.add_parser("report", help="runs side by side on one page, with the failures to listen to")
    report.add_argument("dirs", nargs="+", type=Path, metavar="DIR", help="folders of runs; the first is the baseline")
    report.add_argument("--out", type=Path, metavar="FILE", help="HTML page (default: report.html in the first DIR)")
    report.add_argument("--markdown", type=Path, metavar="FILE", help="the tables as Markdown; alone, no page is made")
    report.add_argument(
        "--audio", choices=["link", "embed", "none"], default="link",
        help="recordings of failures: link (default), embed in the page, or none",
    )  # fmt: skip
    report.add_argument(
        "--embed-mib", type=_not_negative, default=20.0, metavar="MIB", help="most that is embedded (default 20)"
    )
    report.add_argument("--manifest", type=Path, metavar="FILE", help="labels for all, with the recordings beside it")

    parity = inner.add_parser("parity", help="compare the charged clock with real time, over some trials")
    _play_flags(parity, default_policy=_DEFAULT_POLICY)
    parity.add_argument("--out", type=Path, metavar="DIR", help="keep both runs there (default: a temporary folder)")
    parity.add_argument("--limit", type=_positive, default=20, metavar="N", help="how many trials (default 20)")
    parity.add_argument(
        "--tolerance",
        type=float,
        default=0.1,
        metavar="SHARE",
        help="how far latencies may lie apart, as a share of the wall clock's median (default 0.1)",
    )


def _add_judge_parser(inner: Subparsers) -> None:
    judge = inner.add_parser("judge", help="judge the free text of a run: answers, repairs, who was answered")
    judge.add_argument("dir", type=Path, nargs="?", metavar="DIR", help="folder of the run")
    judge.add_argument(
        "--judge", choices=["offline", "llm"], default="offline",
        help="offline (default): rules and small classifiers, here; llm: a model behind an OpenAI-compatible endpoint",
    )  # fmt: skip
    judge.add_argument("--agreement", action="store_true", help="measure the judge on the labelled responses instead")
    judge.add_argument("--json", action="store_true", help="with --agreement: print the figures as JSON")
    judge.add_argument("--manifest", type=Path, metavar="FILE", help="corrected labels")
    judge.add_argument("--replace", action="store_true", help="put verdicts that are there aside, and judge all anew")
    judge.add_argument(
        "--base-url", default="https://api.openai.com/v1", metavar="URL",
        help="llm: the endpoint (default: OpenAI's); the key is read from OPENAI_API_KEY",
    )  # fmt: skip
    judge.add_argument("--model", metavar="NAME", help="llm: the model (default: the papers' judges, by kind)")
    judge.add_argument("--timeout-s", type=float, default=60.0, metavar="S", help="llm: of an attempt (default 60)")
    judge.add_argument("--retries", type=int, default=4, metavar="N", help="llm: attempts after the first (default 4)")
    judge.add_argument("--workers", type=_positive, default=1, metavar="N", help="llm: cases at a time (default 1)")


def _play_flags(parser: argparse.ArgumentParser, default_policy: str | None) -> None:
    parser.add_argument("manifest", type=Path, metavar="MANIFEST", help="trials, as JSON Lines beside their audio")
    parser.add_argument(
        "--policy", required=default_policy is None, default=default_policy, metavar="NAME",
        help="what is measured: a policy of the product, a baseline, or module:function (see bench/contestants.py)",
    )  # fmt: skip
    parser.add_argument("--split", choices=["train", "dev", "test"], help="only that part of the corpus")
    parser.add_argument("--threads", type=_positive, help="threads per model (default: the cores, shared by workers)")
    parser.add_argument(
        "--timeout-s", type=float, default=120.0, metavar="S", help="how long a trial may take (default 120)"
    )
    parser.add_argument(
        "--patience", type=float, default=1.0, metavar="X",
        help="multiplies the time limits of ears and policy; above 1 on a machine that others use too (default 1)",
    )  # fmt: skip
    parser.add_argument(
        "--settings", type=Path, default=argparse.SUPPRESS, metavar="FILE",
        help="settings file (TOML); without it the defaults, never this computer's own",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of everything drawn at random (default 0)")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def _resource(text: str) -> tuple[str, float]:
    from bench.ray_placement import PlacementError, parse_resource

    try:
        return parse_resource(text)
    except PlacementError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a size")
    return value


def _command(args: argparse.Namespace) -> int:
    """Run a parsed command.

    Returns:
        The exit code. What a person can mend is printed; a bug keeps its traceback.
    """
    from bench.build.command import run as build
    from bench.build.ear_scripts import EarScriptError
    from bench.build.fillers import FillerError
    from bench.build.function_words import TaggerError
    from bench.build.kokoro import SpeechBuildError
    from bench.build.mask_command import run_mask, run_mask_check
    from bench.build.masking import MaskingError
    from bench.build.recordings import RecordingError
    from bench.contestants import UnknownContestantError
    from bench.executors import WorkersFailedError
    from bench.judgements import JudgementsError
    from bench.judges.endpoint import EndpointError
    from bench.judges.judging import JudgingRefusedError
    from bench.loaders.command import run_import
    from bench.loaders.rows import LoaderError
    from bench.preflight import PreflightError
    from bench.provenance import ConfigurationDiffersError
    from bench.ray_placement import PlacementError
    from bench.report.errors import ReportError
    from bench.run import RunRefusedError
    from bench.runlog import RunLogError
    from bench.score import ScoreError
    from bench.trials import ManifestError

    usage = (
        ManifestError, RunRefusedError, ConfigurationDiffersError, UnknownContestantError, ScoreError, ReportError,
        JudgingRefusedError, EndpointError, LoaderError, RecordingError, EarScriptError, TaggerError, FillerError,
        PlacementError,
    )  # fmt: skip
    failed = (WorkersFailedError, JudgementsError, PreflightError, RunLogError, MaskingError, SpeechBuildError)
    commands = {
        "build": build, "import": run_import, "mask": run_mask, "mask-check": run_mask_check, "run": _run,
        "judge": _judge, "score": _score, "compare": _compare, "report": _report, "parity": _parity,
    }  # fmt: skip
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return commands[args.bench_command](args)
    except (*usage, *failed) as error:
        print(f"voicegate: {error}", file=sys.stderr)
        return ExitCode.USAGE if isinstance(error, usage) else ExitCode.FAILED


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _options(args: argparse.Namespace, out: Path, **more: Any) -> RunOptions:
    from bench.run import RunOptions

    return RunOptions(
        manifest=args.manifest, policy=args.policy, out=out, split=args.split, threads=args.threads,
        timeout_s=args.timeout_s, seed=args.seed, patience=args.patience,
        settings=getattr(args, "settings", None), **more,
    )  # fmt: skip


def _run(args: argparse.Namespace) -> int:
    from agent.clock import Pace
    from bench.last_row import remember
    from bench.progress import as_duration
    from bench.ray_replicas import read_replicas, replica_lines
    from bench.run import run

    options = _options(
        args, args.out, pace=Pace(args.pace), resume=args.resume, limit=args.limit, workers=args.workers, ray=args.ray,
        preflight=not args.no_preflight, gpus=args.gpus_per_replica, resources=dict(args.resource),
    )  # fmt: skip
    if options.pace is Pace.WALL and (options.workers or 1) > 1:
        print("several workers share the cores, so times at wall pace will show it", file=sys.stderr)
    try:
        report = run(options)
    except KeyboardInterrupt:
        print(f"stopped; go on with --resume (the log is in {args.out})", file=sys.stderr)
        raise
    remember(report.out)
    for line in replica_lines(read_replicas(report.out)):
        print(line)
    statuses = ", ".join(f"{count} {name}" for name, count in sorted(report.statuses.items())) or "nothing was left"
    print(
        f"{report.played} of {report.total} trials played in {as_duration(report.elapsed_s)}: {statuses}\n"
        f"{report.audio_seconds_per_second:.2f} s of audio a second\n"
        f"next: voicegate bench score {report.out}"
    )
    return ExitCode.OK


def _score(args: argparse.Namespace) -> int:
    import json

    from bench.last_row import remember
    from bench.score import SUMMARY, score

    summary = score(args.dir, args.manifest)
    remember(args.dir)
    if args.json:
        print(json.dumps(summary, indent=2, ensure_ascii=False))
        return ExitCode.OK
    from bench.tables import show, summary_table

    show(summary_table(summary))
    print(args.dir / SUMMARY)
    return ExitCode.OK


def _judge(args: argparse.Namespace) -> int:
    import os

    from bench.judges.judging import JudgingRefusedError, judge_run, report_lines

    if (args.dir is None) != args.agreement:
        raise JudgingRefusedError("name the folder of a run, or --agreement to measure the judge itself")
    judge: Judge
    if args.judge == "llm":
        from bench.judges.endpoint import Endpoint
        from bench.judges.llm import LlmJudge

        key = os.environ.get("OPENAI_API_KEY")
        endpoint = Endpoint(args.base_url, key, timeout_s=args.timeout_s, retries=max(0, args.retries))
        judge = LlmJudge(endpoint, args.model)
    else:
        from bench.judges.offline import OfflineJudge

        judge = OfflineJudge()
    if args.agreement:
        return _agreement(judge, as_json=args.json)
    # The offline judge's model uses the cores itself; more cases at a time would only get in each other's way.
    workers = args.workers if args.judge == "llm" else 1
    report = judge_run(args.dir, judge, manifest=args.manifest, replace=args.replace, workers=workers)
    print("\n".join(report_lines(report, args.dir)))
    return ExitCode.FAILED if report.not_judged else ExitCode.OK


def _agreement(judge: Judge, *, as_json: bool) -> int:
    import json

    from bench.judges.agreement import lines, measure_all
    from bench.judges.case import JudgeStoppedError
    from bench.judges.rules import RulesFirst

    try:
        found = measure_all(RulesFirst(judge))
    except JudgeStoppedError as error:
        print(f"voicegate: {error}", file=sys.stderr)
        return ExitCode.FAILED
    print(json.dumps({one.kind: one.as_json() for one in found}, indent=2) if as_json else "\n".join(lines(found)))
    return ExitCode.FAILED if any(one.not_judged for one in found) else ExitCode.OK


def _compare(args: argparse.Namespace) -> int:
    from bench.compare import compare

    found = compare(args.first, args.second, args.manifest)
    if args.json:
        print(found.as_json())
        return ExitCode.OK
    from bench.tables import comparison_table, show

    show(comparison_table(found))
    return ExitCode.OK


def _report(args: argparse.Namespace) -> int:
    from bench.report.players import AudioMode
    from bench.report.writing import PAGE, ReportOptions, write_report

    page = args.out if args.out is not None or args.markdown is not None else args.dirs[0] / PAGE
    options = ReportOptions(
        folders=tuple(args.dirs), page=page, markdown=args.markdown, audio=AudioMode(args.audio),
        embed_mib=args.embed_mib, manifest=args.manifest,
    )  # fmt: skip
    for path in write_report(options):
        print(path)
    return ExitCode.OK


def _parity(args: argparse.Namespace) -> int:
    import tempfile

    from bench.parity import parity
    from bench.tables import parity_lines

    with tempfile.TemporaryDirectory(prefix="voicegate-parity-") as scratch:
        options = _options(args, args.out or Path(scratch))
        found = parity(options, args.limit, args.tolerance)
    for line in parity_lines(found):
        print(line)
    return ExitCode.OK if found.holds else ExitCode.FAILED


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command without the rest of ``voicegate``: ``python -m bench.cli run …``.

    Args:
        argv: arguments without the program's name; the process's own by default.

    Returns:
        The exit code.
    """
    from agent import cli
    from bench.cli import add_bench_parser as add  # run as a program, this module has another name

    return cli.main(["bench", *(sys.argv[1:] if argv is None else argv)], more=(add,))


if __name__ == "__main__":
    from agent.cli import end

    end(main())
