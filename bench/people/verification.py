"""Who is known again: cuts of stated lengths by the enrolled person and by others, near and through measured rooms.

Strangers are of the wearer's own set, so that another microphone does not give them away, and where the set allows it
of the same half of the voices: the half that the thresholds were fitted on, or the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from bench.people.clips import SPEAKER_THRESHOLDS, Clip
from bench.people.draws import generator, shuffled
from bench.people.making import Materials
from bench.people.pieces import Piece, cut, in_room
from bench.people.wearers import SETS, Wearer
from bench.trials import Segment, Trial

SPEECH_S: Final = (0.8, 1.5, 3.0, 4.5)
FITTED_WEARERS: Final = 6
"""How many wearers are drawn of those whose voices the thresholds were fitted on; all others are taken."""
CLIPS_OF_OTHERS: Final = 2
"""Recordings of each relation for a wearer whose voice has chosen nothing; one for the others."""
Relation = Literal["same", "different"]


def verification(materials: Materials) -> Iterator[Trial]:
    """Trials for every wearer: her own voice and strangers', at each length, near and from afar."""
    for wearer in chosen_wearers(materials.wearers, materials.seed):
        count = 1 if SPEAKER_THRESHOLDS in wearer.used_for else CLIPS_OF_OTHERS
        name = f"{wearer.set_name}.{wearer.speaker}"
        own = shuffled(wearer.others, materials.seed, "own", name)
        for clip in own[:count]:
            yield from _trials(materials, wearer, clip, "same")
        for clip in strangers_of(wearer, materials.clips, materials.seed)[:count]:
            yield from _trials(materials, wearer, clip, "different")


def chosen_wearers(wearers: Sequence[Wearer], seed: int) -> list[Wearer]:
    """Which wearers are played: everybody whose voice has chosen nothing, and some of the rest."""
    fitted = [wearer for wearer in wearers if SPEAKER_THRESHOLDS in wearer.used_for]
    drawn = {(w.set_name, w.speaker) for w in shuffled(fitted, seed, "fitted wearers")[:FITTED_WEARERS]}
    return [
        wearer
        for wearer in wearers
        if SPEAKER_THRESHOLDS not in wearer.used_for or (wearer.set_name, wearer.speaker) in drawn
    ]


def strangers_of(wearer: Wearer, clips: Sequence[Clip], seed: int) -> list[Clip]:
    """A recording of each stranger of the wearer's set, in a drawn order; those of her half of the voices first.

    Whoever may be the wearer under another name is no stranger.
    """
    by_voice: dict[str, list[Clip]] = {}
    for clip in clips:
        is_alone = clip.set_name in SETS and "multi-speaker" not in clip.condition
        if is_alone and clip.set_name == wearer.set_name and clip.voice != wearer.voice:
            by_voice.setdefault(clip.voice, []).append(clip)
    name = f"{wearer.set_name}.{wearer.speaker}"
    drawn = [
        shuffled(theirs, seed, "stranger's clip", name, voice)[0]
        for voice in shuffled(sorted(by_voice), seed, "strangers", name)
        if (theirs := by_voice[voice])
    ]
    is_fitted = SPEAKER_THRESHOLDS in wearer.used_for
    return sorted(drawn, key=lambda clip: (SPEAKER_THRESHOLDS in clip.used_for) != is_fitted)


def _trials(materials: Materials, wearer: Wearer, clip: Clip, relation: Relation) -> Iterator[Trial]:
    for speech_s in SPEECH_S:
        name = (wearer.set_name, wearer.speaker, relation, clip.stem, f"{speech_s:g}")
        random = generator(materials.seed, "cut", *name)
        piece = cut(clip, speech_s, random)
        if piece is None:
            continue
        yield _trial(materials, wearer, clip, relation, piece, (*name, "near"), "near")
        if materials.rooms:
            room = materials.rooms[int(random.integers(len(materials.rooms)))]
            heard = Piece(in_room(piece.samples, room), piece.start_s, piece.end_s)
            yield _trial(materials, wearer, clip, relation, heard, (*name, "far"), "far", room.name)


def _trial(
    materials: Materials, wearer: Wearer, clip: Clip, relation: Relation, piece: Piece, name: tuple[str, ...],
    distance: Literal["near", "far"], room: str | None = None,
) -> Trial:  # fmt: skip
    path = materials.made("verification", name, piece.samples)
    segment = Segment(
        start=piece.start_s, end=piece.end_s, speaker="A" if relation == "same" else "B", distance=distance, text="",
        role="dialogue",
    )  # fmt: skip
    return materials.trial(
        "verification", clip.set_name, name, path, wearer=wearer, recording=clip.name, used_for=clip.used_for,
        segments=(segment,), talker=f"{clip.set_name}/{clip.voice}", relation=relation, distance=distance, room=room,
        speech_s=round(piece.end_s - piece.start_s, 3),
    )  # fmt: skip
