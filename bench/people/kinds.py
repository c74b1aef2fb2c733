"""Which recordings of the manifest are conversations, commands, far and near, by their set and condition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from bench.people.clips import Clip
from bench.people.errors import PeopleError

Distance = Literal["near", "far", "mixed"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of recording.

    Attributes:
        name: as trials carry it.
        title: as tables show it.
        set_name: the set that it is of.
        condition: how its condition begins in the manifest.
        distance: how near the talkers were; ``mixed`` where both, or where nobody has written it down.
    """

    name: str
    title: str
    set_name: str
    condition: str
    distance: Distance

    def takes(self, clip: Clip) -> bool:
        """Whether a recording is of this kind."""
        return clip.set_name == self.set_name and clip.condition.startswith(self.condition)


TALK: Final = (
    Kind("meeting", "meeting, mix of headsets (AMI)", "ami_meetings", "near", "near"),
    Kind("meeting_table", "meeting, probably from the table (AMI)", "ami_meetings", "far?", "far"),
    Kind("table", "two talkers, table microphone (AMI)", "ami_near_far", "far (table microphone", "far"),
    Kind("table_mix", "two talkers, headsets filtered to the table (AMI)", "ami_near_far", "far (synthetic", "far"),
    Kind("dialogue", "dialogue (Picovoice Falcon)", "eagle", "near, multi-speaker", "near"),
    Kind("mixture", "one near, one far, simulated room (Google)", "google_distance", "mixture", "mixed"),
    Kind("speech", "speech in a hall (public domain)", "public_domain", "", "mixed"),
)
"""People who talk to each other, or to many; nobody of them to an assistant."""

COMMANDS: Final = (
    Kind("commands", "commands and questions", "commands", "near", "near"),
    Kind("orders", "coffee orders", "picovoice_speech_to_intent", "near", "near"),
    Kind("keywords", "keywords", "picovoice_wake_word", "near", "near"),
    Kind("wake_words", "wake words, home microphones", "precise_wakewords", "near", "near"),
)
"""People who talk to an assistant."""

ALONE: Final = (
    Kind("headset", "headset (AMI)", "ami_near_far", "near (headset", "near"),
    Kind("filtered", "headset filtered to the table (AMI)", "ami_near_far", "far (headset signal", "far"),
    Kind("simulated_near", "under 1.5 m, simulated room (Google)", "google_distance", "near ground truth", "near"),
    Kind("simulated_far", "over 1.5 m, simulated room (Google)", "google_distance", "far ground truth", "far"),
)
"""One talker at a known distance."""

ROOM_COMMANDS: Final = Kind("room", "commands in a measured room", "", "", "far")
"""Made when trials are built: commands through the impulse responses of real rooms."""

_WHOLE_SETS: Final = frozenset(kind.set_name for kind in (*TALK, *COMMANDS, *ALONE)) - {"eagle"}
TITLES: Final[Mapping[str, str]] = {
    kind.name: kind.title for kind in (*TALK, *COMMANDS, *ALONE, ROOM_COMMANDS)
}  # fmt: skip


def of_kind(kinds: Sequence[Kind], clips: Iterable[Clip]) -> list[tuple[Kind, Clip]]:
    """The recordings of some kinds, each with its kind, in the manifest's order."""
    return [(kind, clip) for clip in clips for kind in kinds if kind.takes(clip)]


def require_all_known(clips: Iterable[Clip]) -> None:
    """Check that no recording of the sets that are replayed whole is passed over in silence.

    Raises:
        PeopleError: when one is of no kind; names it.
    """
    kinds = (*TALK, *COMMANDS, *ALONE)
    lost = [c for c in clips if c.set_name in _WHOLE_SETS and not any(kind.takes(c) for kind in kinds)]
    if lost:
        listed = ", ".join(f"{clip.name} ({clip.condition})" for clip in lost[:5])
        raise PeopleError(f"{len(lost)} recordings are of no known kind: {listed}; bench/people/kinds.py lists them")
