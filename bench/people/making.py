"""What the studies make trials with: recordings by their paths, drawn wearers, and the fields that reports read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from bench.loaders.rows import relative, trial_id
from bench.people.clips import SPEAKER_THRESHOLDS, Clip, Use
from bench.people.draws import shuffled
from bench.people.pieces import MeasuredRoom, Signal, write
from bench.people.wearers import Wearer
from bench.trials import Expected, Segment, Trial

Study = Literal["talk", "strangers_command", "own_command", "far", "verification"]
MUTE: Final = Expected(action="mute")
FAMILY: Final = "direct"
AUDIO: Final = "audio"
"""Where recordings that are made lie, in the manifest's folder."""


@dataclass(frozen=True, slots=True)
class Materials:
    """What trials are made of.

    Attributes:
        clips: all recordings.
        wearers: who can be enrolled.
        rooms: measured rooms to hear people from afar in.
        folder: the manifest's.
        seed: of everything drawn.
        on_write: called after each recording that is made.
    """

    clips: Sequence[Clip] = field(repr=False)
    wearers: Sequence[Wearer] = field(repr=False)
    rooms: Sequence[MeasuredRoom] = field(repr=False)
    folder: Path
    seed: int
    on_write: Callable[[], None] = lambda: None

    def strangers_for(self, clip: Clip, count: int) -> list[Wearer]:
        """Wearers who are not in a recording, drawn by it; those whose voice has chosen no threshold come first.

        Nobody in a recording of another set is a wearer: the sets have no people in common.
        """
        others = [w for w in self.wearers if w.voice != clip.voice and w.set_name != clip.set_name]
        drawn = shuffled(others, self.seed, "stranger", clip.name)
        return sorted(drawn, key=lambda wearer: SPEAKER_THRESHOLDS in wearer.used_for)[:count]

    def made(self, study: Study, name: Sequence[str], samples: Signal) -> Path:
        """Write a recording that is made for a trial of that name; its path."""
        path = self.folder / AUDIO / f"{trial_id(study, *name)}.wav"
        write(path, samples)
        self.on_write()
        return path

    def trial(
        self, study: Study, kind: str, name: Sequence[str], audio: Path, *, expected: Expected = MUTE,
        judged: bool = True, wearer: Wearer | None = None, used_for: Iterable[Use] = (), recording: str,
        segments: tuple[Segment, ...] = (), **more: Any,
    ) -> Trial:  # fmt: skip
        """One trial.

        Args:
            study: what it is for.
            kind: which kind of recording it is.
            name: what its id is made of, besides the study.
            audio: the recording.
            expected: what is right.
            judged: whether that is known; without, the trial is only counted.
            wearer: who is enrolled, or None.
            used_for: what the voices in it have been used for; the wearer's comes on top.
            recording: which recording it is, however it is played.
            segments: labelled speech.
            more: further fields.
        """
        uses = set(used_for) | (set(wearer.used_for) if wearer is not None else set())
        fields: dict[str, Any] = {
            "study": study, "kind": kind, "judged": judged, "recording": recording, "used_for": sorted(uses),
            "wearer": None if wearer is None else f"{wearer.set_name}/{wearer.voice}", **more,
        }  # fmt: skip
        return Trial(
            id=trial_id(study, *name), family=FAMILY, condition=f"people/{study}/{kind}",
            audio=relative(audio, self.folder), expected=expected, segments=segments, split=_split(uses),
            enrolment=None if wearer is None else relative(wearer.enrolment, self.folder), **fields,
        )  # fmt: skip


def _split(uses: set[Use]) -> Literal["train", "dev", "test"]:
    """What the voices of a trial have been: trained with, used to choose thresholds, or neither."""
    if "network_training" in uses:
        return "train"
    return "dev" if uses else "test"
