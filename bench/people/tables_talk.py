"""What other people's talk sets off: executions, answers and Pardons in an hour, and what strangers' commands do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from bench.people.kinds import ALONE, COMMANDS, TALK, TITLES
from bench.people.per_hour import PerHour, per_hour
from bench.people.replayed import PeopleRun, Replayed
from bench.rates import Rate, rate_of
from bench.report.blocks import Block, Cell, Column, Group, Listing, Row, Table
from bench.report.wording import INTERVAL_NOTE, absent_cell, count_of, rate_cell

_ACTIONS = (("tool", "Tools run"), ("answer", "Answers"), ("pardon", "Pardons"))
_KINDS = tuple(kind.name for kind in (*TALK, *ALONE))
"""Talk that is to nobody's assistant: conversations, and one side of some."""
UNUSED_NOTE = "Unused voices have trained no network and chosen no threshold; rows without such a row have no others."
Pick = Callable[[Replayed], bool]


def talk_blocks(run: PeopleRun) -> tuple[Block, ...]:
    """Executions, answers and Pardons per hour of other people's talk, and each execution by name."""
    talk = [one for one in run.of("talk", "far") if one.kind in _KINDS]
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
            "Events in an hour of what was played, with their number and the exact 95% Poisson interval. A recording "
            "that was played with several wearers, or also through a room, counts once in the width of the interval.",
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
    rows = [row for name in _KINDS for row in _row(TITLES[name], [one for one in trials if one.kind == name])]
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
    return Cell(f"{found.rate:.1f}", (f"n {found.events}", f"{low:.1f} to {high:.1f}"))


def strangers_blocks(run: PeopleRun) -> tuple[Block, ...]:
    """What strangers' commands do where somebody else is enrolled; nothing may execute."""
    trials = run.of("strangers_command")
    table = Table(
        "Commands of strangers, with somebody else enrolled", "Recordings",
        (
            Column("Tool ran"), Column("Answered"), Column("Pardon"), Column("Muted"),
            Column("Heard as somebody else", "of decisions"), Column("Heard as the wearer", "of decisions"),
        ),
        (Group("", _command_rows(trials, run.seed)),),
        (f"{INTERVAL_NOTE} Intervals of decisions resample recordings. {UNUSED_NOTE}",),
    )  # fmt: skip
    return (table, *executions(trials))


def _command_rows(trials: Sequence[Replayed], seed: int) -> tuple[Row, ...]:
    rows = []
    for name in (*(kind.name for kind in COMMANDS), None):
        title = "all of these" if name is None else TITLES[name]
        for head, chosen in in_parts(title, [o for o in trials if o.decided and name in (None, o.kind)], _is_unused):
            actions = (rate_cell(share(chosen, seed, _does(action))) for action in ("tool", "answer", "pardon", "mute"))
            heard = (rate_cell(of_decisions(chosen, seed, verdict)) for verdict in ("other", "owner"))
            rows.append(Row(head, (*actions, *heard)))
    return tuple(rows)


def in_parts(title: str, trials: Sequence[Replayed], is_unused: Pick) -> Iterator[tuple[str, list[Replayed]]]:
    """A row over all trials, and one over those whose voices have been used for nothing, where that is another."""
    unused = [one for one in trials if is_unused(one)]
    if trials:
        yield title, list(trials)
    if 0 < len(unused) < len(trials):
        yield f"{title}, unused voices", unused


def _is_unused(one: Replayed) -> bool:
    return not one.used_for


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
