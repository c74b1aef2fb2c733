"""How figures are written: a rate never without its counts and its interval, and what was not measured in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bench.measures import Hit, Measure, Played
from bench.report.blocks import Cell

NOT_RUN = "not run"
NOT_JUDGED = "not judged"
DOES_NOT_APPLY = "n/a"
INTERVAL_NOTE = "Each rate stands with its hits, its trials and its 95% interval."


def percent(share: float) -> str:
    """A share of 1 as a percentage."""
    return f"{share:.1%}"


def seconds(value: float) -> str:
    """A time."""
    return f"{value:.3f} s"


def interval(low: float, high: float) -> str:
    """The interval of a rate."""
    return f"{low * 100:.1f} to {high * 100:.1f}%"


def counts(rate: Mapping[str, Any]) -> str:
    """Hits and trials, or the number of what was averaged."""
    return f"n {rate['n']}" if rate["k"] is None else f"{rate['k']:g}/{rate['n']}"


def rate_cell(rate: Mapping[str, Any] | None, absent: Cell | None = None) -> Cell:
    """A rate as ``bench.rates`` has it.

    Args:
        rate: the rate, or None.
        absent: what to say without one; None: that it was not run.
    """
    if rate is None:
        return absent or absent_cell()
    known = rate.get("ci95")
    within = interval(*known) if known is not None else "no interval"
    return Cell(percent(rate["rate"]), (counts(rate), within))


def absent_cell(why: str = NOT_RUN, *lines: str) -> Cell:
    """A figure that there is none of."""
    return Cell(why, lines, "absent")


def why_absent(measure: Measure, played: Iterable[Played]) -> Cell:
    """Why a rate over these trials is null: they were not run, or a judge has still to speak."""
    return why_null(measure.hit(one) for one in played if measure.applies(one))


def why_null(credits: Iterable[Hit]) -> Cell:
    """Why the rate of some trials is null, from their credits."""
    waiting = sum(credit is None for credit in credits)
    return absent_cell(NOT_JUDGED, f"{waiting} waiting") if waiting else absent_cell()


def count_of(number: int, thing: str) -> str:
    """A number of things: ``1 trial``, ``2 trials``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
