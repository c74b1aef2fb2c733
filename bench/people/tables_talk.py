"""What other people's talk sets off: executions, answers and Pardons in an hour, and what strangers' commands do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bench.people.kinds import COMMANDS, TALK, TITLES
from bench.people.per_hour import PerHour, per_hour
from bench.people.replayed import PeopleRun, Replayed
from bench.rates import Rate, rate_of
from bench.report.blocks import Block, Cell, Column, Group, Listing, Row, Table
from bench.report.wording import absent_cell, count_of, rate_cell

_ACTIONS = (("tool", "Tools run"), ("answer", "Answers"), ("pardon", "Pardons"))
Pick = Callable[[Replayed], bool]


def talk_blocks(run: PeopleRun) -> tuple[Block, ...]:
    """Executions, answers and Pardons per hour of other people's talk, and each execution by name."""
    talk = run.of("talk")
    enrolled = [one for one in talk if one.wearer is not None]
    nobody = [one for one in talk if one.wearer is None]
    reading = [one for one in run.of("verification") if one.field("relation") == "different"]
    own = [one for one in run.of("verification") if one.field("relation") == "same"]
    groups = (
        Group("Somebody else is enrolled", _rows(enrolled)),
        Group("Nobody is enrolled: the first near speaker owns the session", _rows(nobody)),
        Group(
            "Cuts of people reading aloud or spelling",
            tuple(
                row
                for name, trials in (("strangers to the wearer", reading), ("the enrolled wearer", own))
                for row in _row(name, trials)
            ),
        ),
    )
    table = Table(
        "What other people's talk sets off, per hour", "Recordings",
        (Column("Hours", "recordings, distinct hours"), *(Column(name) for _, name in _ACTIONS)), groups,
        (
            "Events in an hour, with their number, the hours played and the exact 95% Poisson interval. A recording "
            "that was played with several wearers counts once in the width of the interval.",
        ),
    )  # fmt: skip
    return (table, *executions([*talk, *reading, *own]))


def executions(trials: Iterable[Replayed]) -> tuple[Block, ...]:
    """Each tool that ran and should not have, by the trial and the words that were heard."""
    found = [
        f"{one.played.trial.id}: {decision.tool}, on \u201c{decision.evidence.transcript}\u201d"
        for one in trials
        for decision in one.decisions
        if decision.ran
    ]
    return (Listing(tuple(found), warning=True),) if found else ()


def _rows(trials: Sequence[Replayed]) -> tuple[Row, ...]:
    rows = [row for kind in TALK for row in _row(kind.title, [one for one in trials if one.kind == kind.name])]
    return (*rows, *_row("all of these", trials))


def _row(title: str, trials: Sequence[Replayed]) -> list[Row]:
    found = per_hour(trials, "tool")
    if found is None:
        return []
    recordings = len({one.recording for one in trials if one.decided})
    hours = Cell(f"{found.hours:.3f}", (count_of(recordings, "recording"), f"{found.distinct_hours:.3f} h distinct"))
    return [Row(title, (hours, *(_hourly(per_hour(trials, action)) for action, _ in _ACTIONS)))]


def _hourly(found: PerHour | None) -> Cell:
    if found is None:
        return absent_cell()
    low, high = found.interval
    return Cell(f"{found.rate:.1f}", (f"{found.events} in {found.hours:.3f} h", f"{low:.1f} to {high:.1f}"))


def strangers_blocks(run: PeopleRun) -> tuple[Block, ...]:
    """What strangers' commands do where somebody else is enrolled; nothing may execute."""
    trials = run.of("strangers_command")
    groups = (
        Group("All recordings", _command_rows(trials, run.seed)),
        Group(
            "Of these, voices that trained nothing and chose no threshold",
            _command_rows([one for one in trials if not one.used_for], run.seed),
        ),
    )
    table = Table(
        "Commands of strangers, with somebody else enrolled", "Recordings",
        (
            Column("Tool ran"), Column("Answered"), Column("Pardon"), Column("Muted"),
            Column("Heard as somebody else", "of decisions"), Column("Heard as the wearer", "of decisions"),
        ),
        groups,
        ("Each rate stands with its hits, its trials and its 95% interval; intervals of decisions resample trials.",),
    )  # fmt: skip
    return (table, *executions(trials))


def _command_rows(trials: Sequence[Replayed], seed: int) -> tuple[Row, ...]:
    rows = []
    for name in (*(kind.name for kind in COMMANDS), None):
        chosen = [one for one in trials if one.decided and name in (None, one.kind)]
        if chosen:
            actions = (rate_cell(share(chosen, seed, _does(action))) for action in ("tool", "answer", "pardon", "mute"))
            heard = (rate_cell(of_decisions(chosen, seed, verdict)) for verdict in ("other", "owner"))
            rows.append(Row("all of these" if name is None else TITLES[name], (*actions, *heard)))
    return tuple(rows)


def _does(action: str) -> Pick:
    if action == "tool":
        return lambda one: one.played.ran
    return lambda one: one.played.ok and one.played.result.action == action


def share(trials: Sequence[Replayed], seed: int, hit: Pick) -> Rate | None:
    """The share of trials for which something holds; trials over one recording are one cluster."""
    return rate_of([one.recording for one in trials], [float(hit(one)) for one in trials], seed)


def of_decisions(trials: Sequence[Replayed], seed: int, verdict: str) -> Rate | None:
    """The share of decisions with a verdict on the speaker."""
    decisions = [(one.recording, decision) for one in trials for decision in one.decisions]
    hits = [float(decision.evidence.speaker.verdict == verdict) for _, decision in decisions]
    return rate_of([recording for recording, _ in decisions], hits, seed)
