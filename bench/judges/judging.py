"""``voicegate bench judge``: asks a judge about each response of a run that has no verdict yet, and keeps what it says.

A verdict is a line of ``judgements.jsonl``, on disk at once, so that judging can be stopped at any point and gone on
with by the same command. What could not be judged leaves no line: it is counted, and a later call tries again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from bench.alone import alone
from bench.judgements import JUDGEMENTS, Judgement, Judgements
from bench.judges.case import Case, Judge, JudgeStoppedError, NotJudgedError, Verdict
from bench.judges.labelled_sets import KINDS
from bench.judges.rules import RulesFirst
from bench.judges.verdict_log import VerdictLog
from bench.judges.waiting import waiting
from bench.progress import StepProgress
from bench.score import load_run

REPLACED = "judgements.replaced.jsonl"
"""Where ``--replace`` moves what was there."""
_LOCK = ".judging.lock"


class JudgingRefusedError(Exception):
    """A run cannot be judged as it was asked for. The message says what to do."""


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A case without a verdict."""

    case: Case
    why: str


@dataclass
class JudgingReport:
    """What came of judging a run.

    Attributes:
        total: how many responses a judge has to say something on.
        before: how many of them had a verdict already.
        judged: verdicts made now, by kind and label.
        by_rule: how many of those a rule made.
        not_judged: those without a verdict, and why.
        stopped: why the judge stopped, if it did; cases that it did not come to are among ``not_judged``.
        elapsed_s: real seconds.
    """

    total: int = 0
    before: int = 0
    judged: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_rule: int = 0
    not_judged: list[NotJudged] = field(default_factory=list)
    stopped: str = ""
    elapsed_s: float = 0.0


def judge_run(
    folder: Path, judge: Judge, *, manifest: Path | None = None, replace: bool = False, workers: int = 1
) -> JudgingReport:
    """Judge what has to be judged of a run.

    Args:
        folder: the run's.
        judge: who judges what no rule settles.
        manifest: labels to judge with, instead of those that it was run with.
        replace: move verdicts that are there out of the way, and judge all anew.
        workers: how many cases are with the judge at a time.

    Raises:
        JudgingRefusedError: when another judge's verdicts are there, or somebody is judging this run right now.
        JudgementsError: when verdicts cannot be read or written.
        Exception: as ``bench.score.load_run``.
    """
    played, _, _ = load_run(folder, manifest)
    with alone(folder / _LOCK, JudgingRefusedError(f"{folder}: somebody is judging this run; wait for it")):
        path = folder / JUDGEMENTS
        if replace and path.exists():
            path.replace(folder / REPLACED)
        done = Judgements.load(path)
        _require_same(path, done, judge)
        cases = list(waiting(played))
        left = [case for case in cases if done.verdict(case.id, case.kind) is None]
        report = JudgingReport(total=len(cases), before=len(cases) - len(left))
        with VerdictLog(folder) as log, StepProgress("responses", len(cases), report.before) as progress:
            for case, found in _judged(left, RulesFirst(judge), workers, report):
                if isinstance(found, Verdict):
                    log.append(
                        Judgement(
                            id=case.id, kind=case.kind, verdict=found.label, judge=judge.name(case.kind), by=found.by,  # type: ignore[call-arg]
                        )
                    )  # fmt: skip
                    report.judged[case.kind, found.label] += 1
                    report.by_rule += found.by.startswith("rule: ")
                else:
                    report.not_judged.append(NotJudged(case, found))
                progress.add(bad=not isinstance(found, Verdict))
            report.elapsed_s = progress.elapsed_s
    return report


def _judged(
    cases: Sequence[Case], judge: Judge, workers: int, report: JudgingReport
) -> Iterator[tuple[Case, Verdict | str]]:
    """Each case with its verdict, or with the reason why there is none, as they come."""
    ask = _asking(judge, report)
    if workers == 1:
        yield from ((case, ask(case)) for case in cases)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="judge") as pool:
        try:
            # Few at a time, so that a stop costs no more than the cases that are with the judge.
            running: dict[Future[Verdict | str], Case] = {}
            for case in cases:
                running[pool.submit(ask, case)] = case
                if len(running) >= 2 * workers:
                    yield from _ended(running)
            while running:
                yield from _ended(running)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _ended(running: dict[Future[Verdict | str], Case]) -> Iterator[tuple[Case, Verdict | str]]:
    ended, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in ended:
        yield running.pop(future), future.result()


def _asking(judge: Judge, report: JudgingReport) -> Callable[[Case], Verdict | str]:
    def ask(case: Case) -> Verdict | str:
        if report.stopped:
            return f"not asked: {report.stopped}"
        try:
            return judge.judge(case)
        except NotJudgedError as error:
            return str(error)
        except JudgeStoppedError as error:
            report.stopped = report.stopped or str(error)
            return str(error)

    return ask


def _require_same(path: Path, done: Judgements, judge: Judge) -> None:
    ours = {judge.name(kind) for kind in KINDS}
    others = [name for name in done.judges if name not in ours]
    if others:
        raise JudgingRefusedError(
            f"{path} holds verdicts of {', '.join(others)}, and verdicts of two judges do not mix; "
            f"--replace moves them to {REPLACED} and judges all anew"
        )


def report_lines(report: JudgingReport, folder: Path) -> list[str]:
    """What is printed in the end."""
    from bench.progress import as_duration

    new = sum(report.judged.values())
    out = [
        f"{new} of {report.total} responses judged in {as_duration(report.elapsed_s)}, {report.by_rule} of them by "
        f"rule; {report.before} had a verdict already, {len(report.not_judged)} not judged"
    ]
    for kind in KINDS:
        labels = [f"{count} {label}" for (one, label), count in sorted(report.judged.items()) if one == kind]
        if labels:
            out.append(f"{kind}: {', '.join(labels)}")
    if report.stopped:
        out.append(f"the judge stopped: {report.stopped}")
    reasons = Counter(one.why for one in report.not_judged if not one.why.startswith("not asked: "))
    out += [f"not judged, {count}: {why}" for why, count in reasons.most_common(5)]
    if report.not_judged:
        out.append("the same command goes on with those that have no verdict; until then their figures are null")
    else:
        out.append(f"next: voicegate bench score {folder}")
    return out
