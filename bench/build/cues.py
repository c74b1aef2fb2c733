"""The cue studies: the same 80 held-out commands, with one cue changed at a time (VGBench, appendices G and H).

``cue6``: six conditions in which distance is that of the trigger alone. ``cue8``: speaker x distance x gap, where in a
far condition the context is far too. ``gaps``: what a shorter or longer pause before the trigger does. ``sweep``: how
far, how reverberant and how noisy it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from bench.build.plans import Place, Plan
from bench.build.scripts import Scripts, SpeakerSwitchScript
from bench.build.vgbench import MUTE, Cast

SIX: Final = ("same/near/0", "same/near/600", "same/far/600", "diff/near/0", "diff/near/600", "diff/far/600")
EIGHT: Final = tuple(
    f"{who}/{where}/{gap}" for who in ("same", "diff") for where in ("near", "far") for gap in (0, 600)
)
GAPS_MS: Final = (0, 100, 300, 600, 1000)
DISTANCES_M: Final = (1.5, 2.0, 3.0, 4.0)
RT60S_S: Final = (0.2, 0.4, 0.6, 0.8)
SNRS_DB: Final = (5.0, 10.0, 15.0, 25.0)
SWEPT_COMMANDS: Final = 20
"""The sweeps take the first two commands of each tool."""
_FIRST_PLACE: Final = 50_000


def six(scripts: Scripts) -> Iterator[Plan]:
    """The validity set: only the trigger is moved away."""
    for index, script in enumerate(scripts.cue_commands):
        for condition in SIX:
            yield _plan("cue6", script, index, condition, context_far=False)


def eight(scripts: Scripts) -> Iterator[Plan]:
    """The scene-consistent set: in a far condition everything is far."""
    for index, script in enumerate(scripts.cue_commands):
        for condition in EIGHT:
            yield _plan("cue8", script, index, condition, context_far="/far/" in condition)


def gaps(scripts: Scripts) -> Iterator[Plan]:
    """Same and different speaker, both near, over the pause before the trigger."""
    for index, script in enumerate(scripts.cue_commands):
        for gap_ms in GAPS_MS:
            for who in ("same", "diff"):
                yield _plan("gap", script, index, f"{who}/near/{gap_ms}", context_far=False)


def sweep(scripts: Scripts) -> Iterator[Plan]:
    """Distance, reverberation and noise, one at a time, for the wearer near by and for the bystander far away."""
    for index, script in enumerate(scripts.cue_commands[:SWEPT_COMMANDS]):
        place = Place("test", _FIRST_PLACE + index, dry=False)
        for far_m in DISTANCES_M:
            at = Place(place.split, place.index, dry=False, far_m=far_m)
            yield _plan("sweep", script, index, "diff/far/600", False, at, {"swept": "distance_m", "value": far_m})
        for rt60_s in RT60S_S:
            at = Place(place.split, place.index, dry=False, rt60_s=rt60_s)
            for condition in ("same/near/600", "diff/far/600"):
                yield _plan("sweep", script, index, condition, False, at, {"swept": "rt60_s", "value": rt60_s})
        for snr_db in SNRS_DB:
            at = Place(place.split, place.index, dry=False, snr_db=snr_db)
            for condition in ("same/near/600", "diff/far/600"):
                yield _plan("sweep", script, index, condition, False, at, {"swept": "snr_db", "value": snr_db})


STUDIES: Final[Mapping[str, Callable[[Scripts], Iterator[Plan]]]] = {
    "cue6": six,
    "cue8": eight,
    "gaps": gaps,
    "sweep": sweep,
}


def _plan(
    study: str,
    script: SpeakerSwitchScript,
    index: int,
    condition: str,
    context_far: bool,
    place: Place | None = None,
    swept: Mapping[str, object] | None = None,
) -> Plan:
    who, where, gap_ms = condition.split("/")
    cast = Cast("test", "cue", index)
    utterances = (
        cast.say(script.context, "A", "far" if context_far else "near", "context"),
        cast.say(script.command, "A" if who == "same" else "B", where, "trigger", int(gap_ms) / 1000),
    )
    right = script.expected if (who, where) == ("same", "near") else MUTE
    mark = f".{swept['swept']}-{swept['value']}" if swept else ""
    return Plan(
        f"{study}.{script.id}.{condition.replace('/', '-')}{mark}", "speaker_switch", condition, "test", right,
        utterances, place or Place("test", _FIRST_PLACE + index), target_tool=script.tool, pair=script.id,
        more={"study": study, "params": dict(script.params), **(swept or {})},
    )  # fmt: skip
