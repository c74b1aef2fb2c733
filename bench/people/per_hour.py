"""How often something happens in an hour of talk, with an exact interval, also where it never happened."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bench.people.replayed import Replayed
from bench.stats import LEVEL, Interval


@dataclass(frozen=True, slots=True)
class PerHour:
    """Events over hours.

    Attributes:
        events: how many.
        hours: of audio that was played.
        distinct_hours: of different recordings among it.
    """

    events: int
    hours: float
    distinct_hours: float

    @property
    def rate(self) -> float:
        """Events an hour."""
        return self.events / self.hours

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the rate.

        A recording that is played again, with another wearer or through a room, is not another hour of talk. So the
        interval is as wide as if the repeats had taught nothing: that of the mean number of events over the distinct
        hours.
        """
        return poisson_interval(self.events * self.distinct_hours / self.hours, self.distinct_hours)


def poisson_interval(events: float, exposure: float, level: float = LEVEL) -> Interval:
    """The exact interval of a Poisson rate (Garwood 1936), which is not empty without any event.

    Args:
        events: how many, at least 0; a mean of repeats may be fractional.
        exposure: over how long.
        level: its coverage.

    Raises:
        ValueError: when the exposure is not positive or the events are negative.
    """
    from scipy.stats import gamma

    if not (exposure > 0 and events >= 0):
        raise ValueError(f"no rate: {events} events in {exposure}")
    tail = (1 - level) / 2
    low = float(gamma.ppf(tail, events)) if events > 0 else 0.0
    return low / exposure, float(gamma.ppf(1 - tail, events + 1)) / exposure


def per_hour(trials: Iterable[Replayed], action: str) -> PerHour | None:
    """How often an action was taken in some trials; those that failed are left out. None without any audio.

    Args:
        trials: the trials.
        action: ``tool`` (that ran), ``answer`` or ``pardon``.
    """
    decided = [one for one in trials if one.decided]
    hours = sum(one.hours for one in decided)
    if not hours > 0:
        return None
    longest: dict[tuple[str, object], float] = {}
    for one in decided:
        # A cut through a room is the same talk again; a cut of another length is another.
        key = (one.recording, one.field("speech_s"))
        longest[key] = max(longest.get(key, 0.0), one.hours)
    return PerHour(sum(one.count(action) for one in decided), hours, sum(longest.values()))
