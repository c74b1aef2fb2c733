"""Who is taken for the wearer, by seconds of speech and distance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.people.clips import SPEAKER_THRESHOLDS
from bench.people.replayed import PeopleRun
from bench.people.scores import BINS, Turn, equal_error, of_length, turns_of
from bench.rates import rate_of
from bench.report.blocks import Block, Cell, Column, Group, Row, Table
from bench.report.wording import absent_cell, count_of, interval, percent, rate_cell

_GROUPS: tuple[tuple[str, Callable[[Turn], bool]], ...] = (
    ("Voices that chose no threshold", lambda turn: SPEAKER_THRESHOLDS not in turn.used_for),
    (
        "Of these, people with their own phones and laptops (alphanumeric)",
        lambda turn: SPEAKER_THRESHOLDS not in turn.used_for and turn.set_name == "alphanumeric",
    ),
    ("All voices", lambda turn: True),
)


def verification_blocks(run: PeopleRun) -> tuple[Block, ...]:
    """Equal error rates and what the shipped thresholds do, and how often one talker's turn was cut as two voices."""
    turns = turns_of(run.of("verification"))
    groups = tuple(Group(title, _rows([turn for turn in turns if of(turn)], run.seed)) for title, of in _GROUPS)
    table = Table(
        "Whether the wearer is known, and strangers are not taken for her", "Cuts",
        (
            Column("Equal error rate"), Column("Wearer accepted"), Column("Wearer refused"),
            Column("Stranger accepted"), Column("Stranger refused"),
        ),
        groups,
        (
            "By the seconds from the first word to the last of each turn. The rest is unsure, which never executes. "
            "The equal error rate is the scores' own, wherever the thresholds lie; the rates are those of the shipped "
            "thresholds. Intervals resample wearers. Strangers are of the wearer's own set. Far: near speech convolved "
            "with an impulse response measured in a real room.",
        ),
    )  # fmt: skip
    return (table, _splits(run))


def _rows(turns: Sequence[Turn], seed: int) -> tuple[Row, ...]:
    rows = []
    for distance in ("near", "far"):
        for title, low_s, high_s in BINS:
            chosen = [turn for turn in of_length(turns, low_s, high_s) if turn.distance == distance]
            if chosen:
                rates = (_rate(chosen, seed, own, verdict) for own in (True, False) for verdict in ("owner", "other"))
                rows.append(Row(f"{distance}, {title}", (_error(chosen, seed), *rates)))
    return tuple(rows)


def _rate(turns: Sequence[Turn], seed: int, is_wearer: bool, verdict: str) -> Cell:
    chosen = [turn for turn in turns if turn.is_wearer is is_wearer]
    hits = [float(turn.verdict == verdict) for turn in chosen]
    return rate_cell(rate_of([turn.wearer for turn in chosen], hits, seed), absent_cell("none"))


def _error(turns: Sequence[Turn], seed: int) -> Cell:
    found = equal_error(turns, seed)
    own = sum(turn.is_wearer and turn.score is not None for turn in turns)
    others = sum(not turn.is_wearer and turn.score is not None for turn in turns)
    counts = f"{own} own, {others} strangers'"
    if found is None:
        return absent_cell("too few", counts)
    rate, (low, high) = found
    return Cell(percent(rate), (counts, interval(low, high)))


def _splits(run: PeopleRun) -> Table:
    """How often the change of voice was found in turns that hold one voice."""
    rows = []
    for study, title in (("own_command", "commands and orders"), ("verification", "cuts of one talker")):
        whole, split, none = 0, 0, 0
        for one in run.of(study):
            ids = {decision.turn.split(".")[0] for decision in one.decisions}
            parted = {d.turn.split(".")[0] for d in one.decisions if "." in d.turn}
            whole += len(ids)
            split += len(parted)
            none += one.decided and not one.decisions
        if whole:
            clusters = [str(number) for number in range(whole)]
            rate = rate_of(clusters, [1.0] * split + [0.0] * (whole - split), run.seed)
            rows.append(Row(title, (rate_cell(rate), Cell(count_of(none, "trial")))))
    columns = (Column("Turns cut as two voices"), Column("No turn at all"))
    return Table("One talker heard as two", "Recordings", columns, (Group("", tuple(rows)),))
