"""What is heard as near and as far, by how the recording was made, and whether anything from afar executes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.people.clips import NETWORK_THRESHOLDS, NETWORK_TRAINING
from bench.people.kinds import ALONE, COMMANDS, ROOM_COMMANDS, TALK, TITLES
from bench.people.replayed import PeopleRun, Replayed
from bench.people.tables_talk import executions, share
from bench.rates import Rate, rate_of
from bench.report.blocks import Block, Column, Group, Row, Table
from bench.report.wording import rate_cell

_SETS = ("alphanumeric", "librispeech_test_other", "vctk", "cmu_arctic", "eagle")
_NETWORK_USES = frozenset({NETWORK_TRAINING, NETWORK_THRESHOLDS})


def distance_blocks(run: PeopleRun) -> tuple[Block, ...]:
    """Distance verdicts of near and of far recordings, and executions from afar."""
    far = [one for one in run.trials if one.distance == "far"]
    near = [one for one in run.trials if one.distance == "near"]
    nobody = [one for one in far if one.study in ("talk", "far")]
    unseen = "voices that did not train or set the network"
    table = Table(
        "How near the talkers were heard to be", "Recordings",
        (
            Column("Tool ran", "of trials"), Column("Near", "of decisions"), Column("Unsure", "of decisions"),
            Column("Far", "of decisions"),
        ),
        (
            Group("Far", tuple(_rows(far, run.seed))),
            Group(f"Far, {unseen}", tuple(_rows(_unseen(far), run.seed))),
            Group("Near", tuple(_rows(near, run.seed))),
            Group(f"Near, {unseen}", tuple(_rows(_unseen(near), run.seed))),
        ),
        (
            "Each rate stands with its hits, its trials or decisions and its 95% interval, which resamples recordings. "
            "In a measured room: near speech convolved with an impulse response measured in a real room, not a "
            "recording from afar. What the reading rows say is that the wearer is enrolled; in the others nobody is.",
        ),
    )  # fmt: skip
    return (table, *executions(nobody))


def _unseen(trials: Sequence[Replayed]) -> list[Replayed]:
    return [one for one in trials if not one.used_for & _NETWORK_USES]


def _rows(trials: Sequence[Replayed], seed: int) -> Iterator[Row]:
    direct = [one for one in trials if one.study != "verification" and not _is_repeat(one)]
    for kind in (*TALK, *ALONE, ROOM_COMMANDS, *COMMANDS):
        yield from _row(TITLES[kind.name], [one for one in direct if one.kind == kind.name], seed)
    cuts = [one for one in trials if one.study == "verification"]
    for name in _SETS:
        where = " in a measured room" if cuts and cuts[0].distance == "far" else ""
        yield from _row(f"cuts of {name}{where}", [one for one in cuts if one.kind == name], seed)


def _is_repeat(one: Replayed) -> bool:
    """Whether the same recording is also played in another way: talk with somebody enrolled, strangers' commands that
    also open a session of their own."""
    if one.study == "talk":
        return one.wearer is not None
    return one.study == "strangers_command" and one.kind in ("commands", "orders")


def _row(title: str, trials: Sequence[Replayed], seed: int) -> Iterator[Row]:
    decided = [one for one in trials if one.decided]
    if not decided:
        return
    ran = share(decided, seed, lambda one: one.played.ran)
    heard = (verdict_rate(decided, verdict, seed) for verdict in ("near", "unsure", "far"))
    yield Row(title, (rate_cell(ran), *(rate_cell(rate) for rate in heard)))


def verdict_rate(trials: Sequence[Replayed], verdict: str, seed: int) -> Rate | None:
    """The share of decisions with a verdict on the distance."""
    decisions = [(one.recording, decision) for one in trials for decision in one.decisions]
    hits = [float(decision.evidence.distance.verdict == verdict) for _, decision in decisions]
    return rate_of([recording for recording, _ in decisions], hits, seed)
