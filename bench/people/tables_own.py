"""What people's own commands come to when they open a session with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.people.kinds import COMMANDS, TITLES
from bench.people.replayed import PeopleRun, Replayed
from bench.people.tables_talk import UNUSED_NOTE, Pick, in_parts, share
from bench.report.blocks import Block, Cell, Column, Folded, Group, Row, Table
from bench.report.wording import rate_cell


def own_blocks(run: PeopleRun) -> tuple[Block, ...]:
    """Labelled commands and questions, what kept them back, each of them, and what is not labelled."""
    trials = run.of("own_command")
    labelled = [one for one in trials if one.judged]
    columns = (Column("Right"), Column("Muted"), Column("Wrong tool"), Column("Answered instead"), Column("Pardon"))
    table = Table(
        "Commands and questions of whoever opens the session with them", "What is right", columns,
        (Group("", _rows(labelled, run.seed)),),
        (
            "A tool is right by its name. An answer is right by its kind: what it says is not judged. A trial that "
            f"failed is none of these. {UNUSED_NOTE}",
        ),
    )  # fmt: skip
    return (table, _reasons(labelled), *_each(labelled), *_not_labelled(trials))


def _rows(trials: Sequence[Replayed], seed: int) -> tuple[Row, ...]:
    rows = []
    for kind in COMMANDS:
        for action in ("tool", "answer"):
            whole = [o for o in trials if o.kind == kind.name and o.played.trial.expected.action == action]
            title = f"{'a tool' if action == 'tool' else 'an answer'}: {kind.title}"
            for head, chosen in in_parts(title, whole, lambda one: not one.used_for):
                rows.append(Row(head, tuple(rate_cell(share(chosen, seed, hit)) for hit in _HITS)))
    return tuple(rows)


def _right(one: Replayed) -> bool:
    if one.played.trial.expected.action == "tool":
        return one.played.selects
    return one.played.ok and one.played.result.action == one.played.trial.expected.action


_HITS: tuple[Pick, ...] = (
    _right,
    lambda one: one.played.mutes,
    lambda one: one.played.ran and not one.played.selects,
    lambda one: one.played.ok and one.played.result.action == "answer" and not _right(one),
    lambda one: one.played.pardons,
)


def _reasons(trials: Sequence[Replayed]) -> Table:
    """Why nothing ran where a tool was right."""
    rows = []
    for kind in COMMANDS:
        held = [
            one
            for one in trials
            if one.kind == kind.name and one.played.trial.expected.action == "tool" and not one.played.ran
        ]
        for reason, count in Counter(one.played.result.reason for one in held).most_common():
            rows.append(Row(f"{reason}: {kind.title}", (Cell(str(count)),)))
    return Table(
        "Why no tool ran where one was right", "The gate's reason", (Column("Trials"),), (Group("", tuple(rows)),)
    )


def _each(trials: Sequence[Replayed]) -> tuple[Block, ...]:
    """Each labelled command of the first kind; orders are too many and too alike."""
    rows = []
    for one in trials:
        if one.kind != COMMANDS[0].name:
            continue
        result, expected = one.played.result, one.played.trial.expected
        did = result.action or result.status
        near = one.decisions[0].evidence.distance.verdict if one.decisions else "-"
        cells = (
            Cell(expected.tool or expected.action), Cell(f"{did} {result.tool or ''}".strip()), Cell(result.reason),
            Cell(near), Cell(result.transcript),
        )  # fmt: skip
        rows.append(Row(str(one.field("transcript")), cells))
    if not rows:
        return ()
    columns = (Column("Right"), Column("Done"), Column("Reason"), Column("Distance"), Column("Heard"))
    title = "Each labelled command and question"
    return (Folded(title, (Table(title, "Said", columns, (Group("", tuple(rows)),)),)),)


def _not_labelled(trials: Sequence[Replayed]) -> tuple[Block, ...]:
    rows = []
    for language, title in (("en", "English"), ("fr", "French")):
        chosen = [one for one in trials if not one.judged and one.field("language") == language]
        if chosen:
            done = Counter(one.played.result.action or one.played.result.status for one in chosen)
            cells = [Cell(str(len(chosen)))] + [Cell(str(done[name])) for name in ("mute", "tool", "answer", "pardon")]
            rows.append(Row(title, tuple(cells)))
    if not rows:
        return ()
    columns = tuple(Column(name) for name in ("Recordings", "Muted", "Tool ran", "Answered", "Pardon"))
    table = Table(
        f"What is not labelled: {TITLES[COMMANDS[0].name]}", "Language", columns, (Group("", tuple(rows)),),
        ("No tool for it, a lone answer, or another language than English; neither right nor wrong.",),
    )  # fmt: skip
    return (table,)
