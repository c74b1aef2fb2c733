"""The report on a run over real people, as Markdown, from the run's folder alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.people.replayed import PeopleRun, load_people
from bench.people.tables_distance import distance_blocks
from bench.people.tables_own import own_blocks
from bench.people.tables_talk import strangers_blocks, talk_blocks
from bench.people.tables_verification import verification_blocks
from bench.report.blocks import Block, Listing, Paragraph, Section
from bench.report.markdown_page import markdown_page
from bench.report.wording import count_of

_MOST_REASONS = 12
_PARTS: tuple[tuple[str, str, tuple[str, ...], Callable[[PeopleRun], tuple[Block, ...]]], ...] = (
    ("talk", "Other people's talk", ("talk", "verification"), talk_blocks),
    ("strangers", "Strangers' commands", ("strangers_command",), strangers_blocks),
    ("own", "Own commands", ("own_command",), own_blocks),
    ("distance", "Near and far", ("talk", "strangers_command", "own_command", "far", "verification"), distance_blocks),
    ("verification", "Who speaks", ("verification",), verification_blocks),
)
"""Each part: anchor, title, the studies that it is about, and what makes it."""


def report(folder: Path) -> str:
    """The report.

    Args:
        folder: of a run over the manifest of ``python -m bench.real_people build``.

    Returns:
        Markdown. The same folder gives the same text.

    Raises:
        PeopleError, ScoreError, ManifestError, RunLogError, ConfigurationDiffersError: when the run cannot be read.
    """
    run = load_people(folder)
    sections = [Section("run", "What was played", _run_blocks(run))]
    for anchor, title, studies, blocks in _PARTS:
        made = blocks(run) if run.of(*studies) else (Paragraph("Not run."),)
        sections.append(Section(anchor, title, made))
    return markdown_page("Real people, replayed", sections)


def _run_blocks(run: PeopleRun) -> tuple[Block, ...]:
    config = run.config
    statuses = Counter(one.played.result.status for one in run.trials)
    hours = sum(one.hours for one in run.trials)
    reasons = Counter(decision.reason for one in run.trials for decision in one.decisions)
    total = sum(reasons.values())
    told = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common(_MOST_REASONS))
    items = [
        f"policy {config['policy']}, clock {config['pace']}, patience {config['patience']:g}, seed {run.seed}",
        f"{count_of(len(run.trials), 'trial')} of {hours:.2f} h: "
        + ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
        + (f"; {run.not_run} not run" if run.not_run else ""),
        f"{count_of(total, 'decision')} by reason: {told}",
    ]
    broken = tuple(
        f"{one.played.trial.id}: {one.played.result.status}: {one.played.result.reason}"
        for one in run.trials
        if not one.played.ok
    )
    return (Listing(tuple(items)), *((Listing(broken, warning=True),) if broken else ()))
