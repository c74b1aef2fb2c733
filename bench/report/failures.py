"""Which trials went wrong, and how: the dangerous ways first. Each failed trial is in one kind, the worst that it is.

The kinds are made of the questions in ``bench.measures``, so that what is listed is what was counted: a trial also
says which of the gate's rates it weighs on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.measures import (
    EAR_C,
    FALSE_EXECUTION,
    FALSE_REJECTION,
    GATE,
    MISSED_PARDON,
    REPAIR_CREDIT,
    SIDE_TALK,
    UNNEEDED_PARDON,
    WRONG_TOOL,
    Measure,
    Played,
)
from bench.report.evidence import Evidence
from bench.report.players import Player
from bench.report.runs import ReportedRun
from bench.trials import Trial


def _hits(measure: Measure) -> Callable[[Played], bool]:
    return lambda p: measure.applies(p) and bool(measure.hit(p))


def _wants(played: Played, action: str) -> bool:
    return played.trial.expected.action == action


def _answers(played: Played) -> bool:
    return any(decision.action == "answer" for decision in played.result.decisions)


def _answered_the_wrong_utterance(played: Played) -> bool:
    if played.trial.family != "side_talk":
        return False
    if _wants(played, "tool"):
        return played.selects and _answers(played)
    if not (_wants(played, "answer") and played.ok and played.result.action == "answer"):
        return False
    return played.verdict("side_talk") not in (None, "assistant")


def _poor_repair(played: Played) -> bool:
    verdict = played.verdict("repair") if played.trial.family == "ear" and played.pardons else None
    return _wants(played, "pardon") and verdict is not None and REPAIR_CREDIT[verdict] < 1


def _waits_for_repair(played: Played) -> bool:
    return played.trial.family == "ear" and played.pardons and _wants(played, "pardon") and not played.verdict("repair")


def _wrong_answer(played: Played) -> bool:
    return EAR_C.applies(played) and played.ok and played.result.action == "answer" and EAR_C.hit(played) == 0.0


@dataclass(frozen=True, slots=True)
class FailureKind:
    """A way to go wrong.

    Attributes:
        name: its name in links.
        title: what happened.
        harm: why that is bad, or what else may be behind it.
        dangerous: whether something was done that should not have been.
        applies: whether it happened in a trial, when no kind before it did.
        waits: whether a judge has still to say so.
    """

    name: str
    title: str
    harm: str
    dangerous: bool
    applies: Callable[[Played], bool]
    waits: Callable[[Played], bool] = lambda played: False


def _waits(measure: Measure) -> Callable[[Played], bool]:
    return lambda p: measure.applies(p) and measure.hit(p) is None


KINDS: tuple[FailureKind, ...] = (
    FailureKind(
        "false-execution", "False execution", "A tool ran where none should have run.", True, _hits(FALSE_EXECUTION)
    ),
    FailureKind(
        "wrong-tool", "Wrong tool", "A command was heard, and another tool ran, alone or too.", True, _hits(WRONG_TOOL)
    ),
    FailureKind(
        "stopped-late", "Licensed, and stopped by the executor",
        "The gate let a call through where no tool was right; only the executor kept it from running.", True,
        lambda p: p.ok and p.result.action == "tool" and not p.ran and not _wants(p, "tool"),
    ),
    FailureKind(
        "wrong-utterance", "Answered what was said to somebody else",
        "The bystander's words were answered, alone or too.", True, _answered_the_wrong_utterance,
        _waits(SIDE_TALK),
    ),
    FailureKind(
        "spoke", "Answered where silence was right", "Speech that was not for the assistant got an answer.", True,
        lambda p: p.ok and _wants(p, "mute") and p.result.action == "answer",
    ),
    FailureKind(
        "no-end", "Error, timeout, unparseable or no audio", "No action came of it, and none is made up for it.", False,
        lambda p: not p.ok,
    ),
    FailureKind(
        "missed-pardon", "Missed Pardon",
        "What was needed had not come through, and no Pardon asked for it (an answer may still be judged a repair).",
        False, _hits(MISSED_PARDON),
    ),
    FailureKind(
        "false-rejection", "False rejection", "A spoken command that was to run ran nothing.", False,
        _hits(FALSE_REJECTION),
    ),
    FailureKind(
        "typed-rejection", "Typed command not run", "A typed command that was to run ran nothing.", False,
        lambda p: _wants(p, "tool") and not p.ran,
    ),
    FailureKind(
        "unneeded-pardon", "Unneeded Pardon", "It was asked again where nothing was missing.", False,
        _hits(UNNEEDED_PARDON),
    ),
    FailureKind(
        "wrong-answer", "Wrong answer", "A question that can be answered was answered wrongly.", False, _wrong_answer,
        _waits(EAR_C),
    ),
    FailureKind(
        "unanswered", "No answer", "A question that can be answered got none.", False,
        lambda p: _wants(p, "answer") and p.result.action != "answer",
    ),
    FailureKind(
        "poor-repair", "Pardon without repair", "It was asked again, and the judge sees no targeted question in it.",
        False, _poor_repair, _waits_for_repair,
    ),
)  # fmt: skip
"""The most dangerous first."""


def kind_of(played: Played) -> FailureKind | None:
    """How a trial went wrong; None where it did not, or where only a judge can tell and has not."""
    return next((kind for kind in KINDS if kind.applies(played)), None)


def weighs_on(played: Played) -> tuple[str, ...]:
    """The gate's rates that a trial is a hit in; all of them are bad."""
    return tuple(measure.name for measure in GATE if measure.applies(played) and measure.hit(played))


def what_was_done(played: Played) -> str:
    """What came of a trial, in a few words."""
    result = played.result
    tools = " and ".join(result.tools_run)
    if not played.ok:
        return f"{result.status}{f', after {tools} ran' if tools else ''}"
    if tools:
        return f"ran {tools}{', and answered' if _answers(played) else ''}"
    said = {"mute": "stayed silent", "pardon": "asked again", "answer": "answered", "tool": "call not executed"}
    return said[result.action or "mute"]


def what_was_right(trial: Trial) -> str:
    """What is right in a trial, in a few words."""
    if trial.expected.action == "tool":
        return f"run {trial.expected.tool}"
    return {"mute": "stay silent", "pardon": "ask again", "answer": "answer"}[trial.expected.action]


@dataclass(frozen=True, slots=True)
class FailedIn:
    """What one run did in a trial that it failed.

    Attributes:
        run: the run's number.
        done: what it did.
        weighs_on: the gate's rates that this worsens.
        verdicts: what a judge says, as ``(kind, verdict)``.
        evidence: what the gate knew, and decided.
    """

    run: int
    done: str
    weighs_on: tuple[str, ...]
    verdicts: tuple[tuple[str, str], ...]
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class FailedTrial:
    """A trial that went wrong in one way.

    Attributes:
        trial: the trial.
        runs: what each run did that failed in this way.
        others: the runs that did not, each with what it did and how that is called, as ``(number, done, kind)``.
        player: its recording.
    """

    trial: Trial
    runs: tuple[FailedIn, ...]
    others: tuple[tuple[int, str, str], ...]
    player: Player


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """All trials that went wrong in one way."""

    kind: FailureKind
    trials: tuple[FailedTrial, ...]

    def count(self, run: int) -> int:
        """How many of them a run has."""
        return sum(failed.run == run for trial in self.trials for failed in trial.runs)


@dataclass(frozen=True, slots=True)
class Failures:
    """All that went wrong, the dangerous first.

    Attributes:
        groups: by kind; kinds that did not happen are left out.
        titles: of the runs, by number.
    """

    groups: tuple[FailureGroup, ...]
    titles: tuple[str, ...]


def failures_of(
    runs: Sequence[ReportedRun],
    evidence_of: Callable[[ReportedRun, Played], Evidence],
    player_of: Callable[[Sequence[ReportedRun], Trial], Player],
) -> Failures:
    """Find and group the failures of all runs. A trial that several runs failed in one way stands there once.

    Args:
        runs: the runs.
        evidence_of: tells what a run knew in a trial.
        player_of: finds the recording of a trial in one of some runs; asked in the order of the page.
    """
    # Runs may have labelled a trial of the same id differently: that is another trial.
    of_trial: dict[tuple[str, str], list[tuple[ReportedRun, Played]]] = {}
    for run in runs:
        for one in run.played:
            of_trial.setdefault((one.trial.id, one.trial.model_dump_json()), []).append((run, one))
    groups = []
    for kind in KINDS:
        failed: list[FailedTrial] = []
        for found in of_trial.values():
            inside = [(run, one) for run, one in found if kind_of(one) is kind]
            if inside:
                trial = inside[0][1].trial
                failed.append(
                    FailedTrial(
                        trial,
                        tuple(_failed_in(run, one, evidence_of(run, one)) for run, one in inside),
                        tuple(_other(run, one) for run, one in found if kind_of(one) is not kind),
                        player_of([run for run, _ in found], trial),
                    )
                )
        if failed:
            groups.append(FailureGroup(kind, tuple(failed)))
    return Failures(tuple(groups), tuple(run.title for run in runs))


def _failed_in(run: ReportedRun, played: Played, evidence: Evidence) -> FailedIn:
    verdicts = tuple(
        (kind, verdict)
        for kind in ("answer", "repair", "side_talk")
        if (verdict := played.verdict(kind)) is not None
    )  # fmt: skip
    return FailedIn(run.number, what_was_done(played), weighs_on(played), verdicts, evidence)


def _other(run: ReportedRun, played: Played) -> tuple[int, str, str]:
    kind = kind_of(played)
    return run.number, what_was_done(played), "" if kind is None else kind.title.lower()
