"""The trials about other people's talk, commands and distance. What must not execute, and what should."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.people import labels
from bench.people.clips import Clip
from bench.people.draws import generator, shuffled
from bench.people.kinds import ALONE, COMMANDS, ROOM_COMMANDS, TALK, of_kind
from bench.people.making import Materials
from bench.people.pieces import in_room, joined
from bench.trials import Expected, Trial

ORDERS_IN_ROOM = 6
"""How many coffee orders are also heard through a measured room; they are long."""
OWN = ("commands", "orders")
"""Kinds of commands that also make a session of their own."""


def talk(materials: Materials, wearers: int) -> Iterator[Trial]:
    """Conversations with somebody enrolled who is not in them, and with nobody enrolled.

    Without enrolment the first near speaker owns the session; none of what is said is to an assistant, so that whatever
    runs is nobody's command.

    Args:
        materials: what trials are made of.
        wearers: with how many wearers each recording is played.
    """
    for kind, clip in of_kind(TALK, materials.clips):
        fields: dict[str, Any] = {"recording": clip.name, "used_for": clip.used_for, "distance": kind.distance}
        for number, wearer in enumerate(materials.strangers_for(clip, wearers), 1):
            name = ("enrolled", str(number), clip.stem)
            yield materials.trial("talk", kind.name, name, clip.path, wearer=wearer, **fields)
        yield materials.trial("talk", kind.name, ("nobody", clip.stem), clip.path, **fields)


def strangers_commands(materials: Materials) -> Iterator[Trial]:
    """Commands, orders and wake words with somebody else enrolled."""
    for kind, clip in of_kind(COMMANDS, materials.clips):
        for wearer in materials.strangers_for(clip, 1):
            yield materials.trial(
                "strangers_command", kind.name, (kind.name, clip.stem), clip.path, wearer=wearer,
                recording=clip.name, used_for=clip.used_for, distance=kind.distance, language=_language(clip),
            )  # fmt: skip


def own_commands(materials: Materials) -> Iterator[Trial]:
    """Commands by whoever opens the session with them."""
    for kind, clip in of_kind(COMMANDS, materials.clips):
        if kind.name not in OWN:
            continue
        label = labels.label_of(clip)
        # A manifest knows no "cannot be said"; what is not labelled carries a mute that nobody counts.
        expected = Expected(action=label.action or "mute", tool=label.tool)
        yield materials.trial(
            "own_command", kind.name, (kind.name, clip.stem), clip.path, expected=expected,
            judged=label.action is not None, recording=clip.name, used_for=clip.used_for, distance=kind.distance,
            language=_language(clip), transcript=clip.transcript, not_judged_because=label.why,
        )  # fmt: skip


def far(materials: Materials) -> Iterator[Trial]:
    """Talkers at a known distance, and commands through measured rooms; far commands must not execute.

    Nobody is enrolled, so that only the distance can hold them back.
    """
    for kind, clip in of_kind(ALONE, materials.clips):
        yield materials.trial(
            "far", kind.name, (kind.name, clip.stem), clip.path, recording=clip.name, used_for=clip.used_for,
            distance=kind.distance,
        )  # fmt: skip
    if not materials.rooms:
        return
    for clip in _commands_for_rooms(materials):
        random = generator(materials.seed, "room", clip.name)
        room = materials.rooms[int(random.integers(len(materials.rooms)))]
        name = (ROOM_COMMANDS.name, clip.set_name, clip.stem)
        path = materials.made("far", name, in_room(joined([clip]), room))
        yield materials.trial(
            "far", ROOM_COMMANDS.name, name, path, recording=clip.name, used_for=clip.used_for, distance="far",
            room=room.name, language=_language(clip),
        )  # fmt: skip


def _commands_for_rooms(materials: Materials) -> list[Clip]:
    found = of_kind(COMMANDS, materials.clips)
    orders = [clip for kind, clip in found if kind.name == "orders"]
    chosen = {clip.name for clip in shuffled(orders, materials.seed, "orders in a room")[:ORDERS_IN_ROOM]}
    return [clip for kind, clip in found if kind.name == "commands" or clip.name in chosen]


def _language(clip: Clip) -> str:
    return "fr" if "French" in clip.condition else "en"
