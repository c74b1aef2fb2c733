"""What stands in the way of reading runs side by side, said before the first figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.report.runs import ReportedRun
from bench.report.wording import count_of


def warnings_of(runs: Sequence[ReportedRun]) -> tuple[str, ...]:
    """Sentences about what differs between runs, and about what is wrong with one."""
    return (*_between(runs), *(sentence for run in runs for sentence in _within(run)))


def _between(runs: Sequence[ReportedRun]) -> Iterator[str]:
    if len(runs) < 2:
        return
    told: tuple[tuple[Callable[[ReportedRun], Any], str], ...] = (
        (
            lambda run: run.labels_sha256 or run.config["manifest"]["sha256"],
            "The runs have different manifests (by sha256), so their rates are not over the same trials: {}.",
        ),
        (lambda run: run.config["pace"], "The runs were played at different paces, so latencies do not compare: {}."),
        (_machine, "The runs were made on different machines, so latencies and compute do not compare: {}."),
        (
            lambda run: (run.config["workers"] or "default", run.config["executor"]),
            "The runs had different workers, so latencies and compute do not compare: {}.",
        ),
        (lambda run: run.config["seed"], "The runs have different seeds: {}."),
        (
            lambda run: (run.config["timeout_s"], run.config["patience"]),
            "The runs had different time limits and patience, so their failures do not compare: {}.",
        ),
    )
    for value_of, sentence in told:
        values = [value_of(run) for run in runs]
        if any(value != values[0] for value in values):
            yield sentence.format(
                ", ".join(f"{run.key} {_shown(value)}" for run, value in zip(runs, values, strict=True))
            )
    yield from _different_trials(runs)


def _machine(run: ReportedRun) -> tuple[Any, ...]:
    machine = run.config["machine"]
    return machine["processor"], f"{machine['cores']} cores", f"{machine['memory_gib']} GiB"


def _different_trials(runs: Sequence[ReportedRun]) -> Iterator[str]:
    played = [{one.trial.id for one in run.played} for run in runs]
    common = set.intersection(*played)
    if any(len(ids) != len(common) for ids in played):
        sizes = ", ".join(f"{run.key} {len(ids)}" for run, ids in zip(runs, played, strict=True))
        yield f"The runs have not played the same trials: {count_of(len(common), 'trial')} in all of them; {sizes}."
    first = {one.trial.id: one.trial for one in runs[0].played}
    for run in runs[1:]:
        other = sum(one.trial.id in first and one.trial != first[one.trial.id] for one in run.played)
        if other:
            yield f"{count_of(other, 'trial')} of {run.title} stand with other labels in {runs[0].title}."


def _within(run: ReportedRun) -> Iterator[str]:
    code, status = run.config["code"], run.summary["status"]
    if not run.played:
        yield f"{run.title} has no trial in its log yet."
    if code["git_dirty"]:
        yield f"{run.title} was made with uncommitted changes: its commit alone does not bring it back."
    elif code["git_dirty"] is None:
        yield f"{run.title} was made outside a checkout: which commit it is of is not known."
    if run.missing:
        yield f"{run.title} is not complete: {count_of(len(run.missing), 'trial')} not run."
    failed = sum(status[name] for name in ("error", "timeout", "unparseable", "no_audio"))
    if failed:
        yield (
            f"{run.title}: {count_of(failed, 'trial')} came to no action (error, timeout, unparseable or no audio); "
            "they count against it, never for it."
        )
    if run.labels_sha256 is not None:
        yield f"{run.title} is scored with other labels than those that it was run with."
    waiting = run.summary["ear"]["not_judged"]
    waiting_for = {
        "side-talk response": run.summary["vgbench"]["side_talk"]["not_judged"],
        "answer": waiting["answers"],
        "repair": waiting["repairs"],
    }
    told = [count_of(number, name) for name, number in waiting_for.items() if number]
    if told:
        yield f"{run.title} is not judged yet, so the figures that need it are missing: {', '.join(told)}."


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " / ".join(str(part) for part in value)
    text = str(value)
    return text[:12] if len(text) == 64 else text
