"""What a built corpus holds: ``python -m bench.build.census MANIFEST…``.

Counted from manifests alone: trials, hours, voices and rooms by corpus and split, the range of everything that was
drawn for them, and whether two splits share a voice, a part of a blended voice, a room or a script family. How broad
the scripts are is ``bench.build.breadth``'s business.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from bench.build.voices import Voice
from bench.trials import ManifestError, Trial, load_manifest


@dataclass(frozen=True, slots=True)
class Listed:
    """A trial of one of the manifests."""

    corpus: str
    trial: Trial

    @property
    def more(self) -> Mapping[str, Any]:
        """The fields beyond the contract: what was drawn."""
        return self.trial.model_extra or {}

    @property
    def acoustics(self) -> Mapping[str, Any] | None:
        """Where it was rendered; None for what was typed."""
        return self.more.get("acoustics")

    @property
    def room(self) -> tuple[object, ...] | None:
        """Names the room."""
        if self.acoustics is None:
            return None
        return (*self.acoustics["room_m"], self.acoustics["rt60_requested_s"])

    @property
    def distances(self) -> set[str]:
        """Which of the room's responses are heard in it: near, far, wearer_far."""
        return {
            "near" if segment.distance == "near" else "wearer_far" if segment.speaker == "A" else "far"
            for segment in self.trial.segments
        }


def listed(paths: Iterable[Path]) -> list[Listed]:
    """The trials of manifests; a corpus has the name of its folder.

    Raises:
        ManifestError: when a manifest is wrong.
    """
    return [
        Listed(path.resolve().parent.name, trial) for path in paths for trial in load_manifest(path, check_files=False)
    ]


def table(trials: Sequence[Listed]) -> str:
    """Counts by corpus and split, as Markdown."""
    groups: dict[tuple[str, str], list[Listed]] = defaultdict(list)
    for one in trials:
        groups[one.corpus, one.trial.split or "none"].append(one)
    lines = [
        "| corpus | split | trials | conditions | hours | voices | of them blends | rooms | recordings dry near by |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (corpus, split), members in sorted(groups.items()):
        voices = _voices(members)
        heard = [one for one in members if one.acoustics is not None]
        hours = sum(float(one.more.get("duration_s", 0.0)) for one in members) / 3600
        dry = sum(one.acoustics is not None and one.acoustics["near"] == "dry" for one in heard)
        lines.append(
            f"| {corpus} | {split} | {len(members)} | {len({one.trial.condition for one in members})} | {hours:.2f} | "
            f"{len(voices)} | {sum(len(Voice(name).parts) > 1 for name in voices)} | "
            f"{len({one.room for one in heard})} | {dry} of {len(heard)} |"
        )
    return "\n".join(lines)


def ranges(trials: Sequence[Listed]) -> str:
    """The range of what was drawn and measured, once a recording, as Markdown."""
    rows = [
        ("RT60 requested, s", [float(one.acoustics["rt60_requested_s"]) for one in trials if one.acoustics]),
        ("signal to noise, dB", [float(one.acoustics["snr_db"]) for one in trials if one.acoustics]),
    ]
    for place, name in (("near", "near mouth"), ("far", "far bystander"), ("wearer_far", "wearer from afar")):
        for key, unit in (("distance_m", "distance, m"), ("rt60_s", "RT60 measured, s"), ("drr_db", "DRR, dB")):
            rows.append((f"{name}: {unit}", list(_facts(trials, place, key))))
    rows.append(("peak, 1 is full scale, before it was held to that", [float(v) for v in _more(trials, "peak")]))
    lines = ["| | n | min | 5 % | median | 95 % | max |", "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for name, values in rows:
        if values:
            shown = " | ".join(f"{value:.2f}" for value in np.quantile(values, [0, 0.05, 0.5, 0.95, 1]))
            lines.append(f"| {name} | {len(values)} | {shown} |")
    return "\n".join(lines)


def leaks(trials: Sequence[Listed]) -> list[str]:
    """What two splits share and should not, one line each; none is as it should be."""
    by_split: dict[str, list[Listed]] = defaultdict(list)
    for one in trials:
        by_split[one.trial.split or "none"].append(one)
    found = []
    for (first, ours), (second, theirs) in combinations(sorted(by_split.items()), 2):
        for what, of in (
            ("voices or parts of blends", lambda ones: {p for name in _voices(ones) for p in Voice(name).parts}),
            ("rooms", lambda ones: {one.room for one in ones} - {None}),
            ("recordings", lambda ones: {one.more.get("sha256") for one in ones} - {None}),
            ("EAR script families", lambda ones: {one.more.get("script_family") for one in ones} - {None}),
        ):
            shared = of(ours) & of(theirs)
            if shared:
                found.append(f"{first} and {second} share {len(shared)} {what}: {sorted(map(str, shared))[:3]}")
    return found


def _voices(trials: Iterable[Listed]) -> set[str]:
    return {name for one in trials for name in one.more.get("voices", {}).values()}


def _more(trials: Iterable[Listed], key: str) -> Iterator[Any]:
    return (one.more[key] for one in trials if key in one.more)


def _facts(trials: Iterable[Listed], place: str, key: str) -> Iterator[float]:
    for one in trials:
        facts = None if one.acoustics is None or place not in one.distances else one.acoustics[place]
        if isinstance(facts, dict):
            yield float(facts[key])


def main(argv: Sequence[str] | None = None) -> int:
    """Command line.

    Returns:
        0; 1 when two splits share something that they should not.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("manifests", type=Path, nargs="+", metavar="MANIFEST")
    args = parser.parse_args(argv)
    try:
        trials = listed(args.manifests)
    except ManifestError as error:
        parser.error(str(error))
    print(table(trials), ranges(trials), sep="\n\n")
    problems = leaks(trials)
    print("\n" + ("\n".join(problems) or "No voice, room, recording or script family of one split is in another."))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
