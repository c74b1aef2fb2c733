"""What is heard as near and as far, by how the recording was made, and whether anything from afar executes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.people.clips import NETWORK_THRESHOLDS, NETWORK_TRAINING
from bench.people.kinds import ALONE, COMMANDS, ROOM_COMMANDS, TALK, TITLES
from bench.people.replayed import PeopleRun, Replayed
from bench.people.tables_talk import executions, in_parts, share
from bench.people.wearers import SETS
from bench.rates import Rate, rate_of
from bench.report.blocks import Block, Column, Group, Row, Table
from bench.report.wording import INTERVAL_NOTE, rate_cell

_KINDS = (*TALK, *ALONE, ROOM_COMMANDS, *COMMANDS)
_VERDICTS = ("near", "unsure", "far")
_VERDICT_COLUMNS = tuple(Column(name, "of decisions") for name in ("Near", "Unsure", "Far"))
_NETWORK_USES = frozenset({NETWORK_TRAINING, NETWORK_THRESHOLDS})


def distance_blocks(run: PeopleRun) -> tuple[Block, ...]:
    """Distance verdicts of near and of far recordings, and executions from afar."""
    far = [one for one in run.trials if one.distance == "far"]
    near = [one for one in run.trials if one.distance == "near"]
    tables = (
        Table(
            "Recordings from afar", "Recordings", (Column("Tool ran", "of trials"), *_VERDICT_COLUMNS),
            (Group("", tuple(_rows(far, run.seed, executed=True))),),
            (
                "In a measured room: near speech convolved with an impulse response measured in a real room, not a "
                "recording from afar. With the cuts the wearer is enrolled; in the other rows nobody is.",
            ),
        ),
        Table(
            "Recordings from near by", "Recordings", _VERDICT_COLUMNS,
            (Group("", tuple(_rows(near, run.seed, executed=False))),),
            (
                f"{INTERVAL_NOTE} It resamples recordings. Unused voices have neither trained nor set the networks "
                "that judge distance and damage; rows without such a row have no others.",
            ),
        ),
    )  # fmt: skip
    return (*tables, *executions(one for one in far if one.kind == ROOM_COMMANDS.name))


def _is_unused(one: Replayed) -> bool:
    return not one.used_for & _NETWORK_USES


def _rows(trials: Sequence[Replayed], seed: int, *, executed: bool) -> Iterator[Row]:
    direct = [one for one in trials if one.study != "verification" and not _is_repeat(one)]
    whole = {TITLES[kind.name]: [one for one in direct if one.kind == kind.name] for kind in _KINDS}
    cuts = [one for one in trials if one.study == "verification"]
    where = " in a measured room" if executed else ""
    whole |= {f"cuts of {name}{where}": [one for one in cuts if one.kind == name] for name in SETS}
    for title, theirs in whole.items():
        for head, chosen in in_parts(title, [one for one in theirs if one.decided], _is_unused):
            ran = (rate_cell(share(chosen, seed, lambda one: one.played.ran)),) if executed else ()
            heard = (rate_cell(verdict_rate(chosen, verdict, seed)) for verdict in _VERDICTS)
            yield Row(head, (*ran, *heard))


def _is_repeat(one: Replayed) -> bool:
    """Whether the same recording is also played in another way: talk with somebody enrolled, strangers' commands that
    also open a session of their own."""
    if one.study == "talk":
        return one.wearer is not None
    return one.study == "strangers_command" and one.kind in ("commands", "orders")


def verdict_rate(trials: Sequence[Replayed], verdict: str, seed: int) -> Rate | None:
    """The share of decisions with a verdict on the distance."""
    decisions = [(one.recording, decision) for one in trials for decision in one.decisions]
    hits = [float(decision.evidence.distance.verdict == verdict) for _, decision in decisions]
    return rate_of([recording for recording, _ in decisions], hits, seed)
