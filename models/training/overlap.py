"""Set the thresholds of the overlap ear, and measure it beside the damage ear on turns of one and of two people.

``python -m models.training.overlap --data DIR --card models/cards/overlap.md``

The network comes trained; only thresholds are chosen here, on voices that the test does not hold. A turn of two people
has one talker throughout and another for 0.2 to 2 s in the middle of it, from 15 dB below to 5 dB above, half of
them from across a room; a turn of one person has the same rooms, backgrounds and devices without the other.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gate.evidence import DamageKind
from gate.span import Span
from models.damage_cnn import DamageCnn
from models.segmentation import HOP_SAMPLES, MODEL_NAME, SETTINGS, OverlapNetwork, frames_span, runs
from models.store import Store
from models.training import cards, corpus, devices, rooms, sounds
from models.training.corpus import SAMPLE_RATE_HZ, Part
from models.training.progress import steps
from models.training.proximity import FAR_FROM_M, BankEntry, room_bank

TURN_S = 4.0
GROW_AT = 0.3
MIN_S = 0.1
FALSE_TURNS_TARGET = 0.01
"""The share of one person's turns that may be marked."""

_SAMPLES = round(TURN_S * SAMPLE_RATE_HZ)
_CANDIDATES = tuple(round(0.3 + 0.025 * step, 3) for step in range(28))
_LENGTHS_S = ((0.2, 0.5), (0.5, 1.0), (1.0, 2.0))
_LEVELS_DB = ((-15.0, -8.0), (-8.0, -2.0), (-2.0, 5.0))

FloatArray = npt.NDArray[np.float64]
Finder = Callable[[npt.NDArray[np.float32]], Sequence[Span]]


@dataclass(frozen=True, slots=True)
class Turn:
    """One rendered turn: samples, where both speak (None in a turn of one), the other's length and level."""

    audio: npt.NDArray[np.float32]
    both: Span | None
    length_s: float
    level_db: float


class Renderer:
    """Draws turns from the voices of some parts. The same seed and index always give the same turn."""

    def __init__(self, folder: Path, parts: Sequence[Part], bank: Sequence[BankEntry], seed: int) -> None:
        self._seed = seed
        self._far = [entry for entry in bank if entry.distance_m >= FAR_FROM_M]
        sets: tuple[str, ...] = ("librispeech_cohort", "alphanumeric", "picovoice_speech_to_intent")
        if Part.TEST in parts:
            sets += ("librispeech_test_other", "vctk")
        self._people: list[dict[str, list[corpus.Recording]]] = []
        for name in sets:
            people: dict[str, list[corpus.Recording]] = {}
            for part in parts:
                for recording in corpus.speech(folder, part, (name,)):
                    if recording.duration_s >= 2.0:
                        people.setdefault(recording.speaker, []).append(recording)
            if len(people) > 1:
                self._people.append(people)
        self._noises = [r.read() for part in parts for r in corpus.noises(folder, part)]

    def turn(self, index: int, two: bool) -> Turn:
        """Turn number ``index``, of one person or of two."""
        rng = np.random.default_rng([self._seed, int(two), index])
        people = self._people[int(rng.integers(len(self._people)))]
        first, second = (str(name) for name in rng.choice(sorted(people), 2, replace=False))
        speech = sounds.unit_power(self._said(rng, people[first], _SAMPLES))
        both, length_s, level_db = None, math.nan, math.nan
        if two:
            length_s = math.exp(rng.uniform(math.log(0.2), math.log(2.0)))
            level_db = rng.uniform(-15.0, 5.0)
            size = round(length_s * SAMPLE_RATE_HZ)
            other = self._loud(rng, people[second], size)
            if rng.random() < 0.5:
                other = self._across(rng, other)
            at = self._where(rng, speech, size)
            around = speech[at : at + size]
            scale = math.sqrt(float(np.mean(around**2)) / max(float(np.mean(other**2)), 1e-12))
            speech[at : at + size] += other * scale * 10.0 ** (level_db / 20.0)
            both = Span(at, at + size)
        snr_db = rng.uniform(8.0, 45.0)
        noise = sounds.room_tone(rng, _SAMPLES)
        if rng.random() < 0.5:
            noise = sounds.unit_power(sounds.excerpt(rng, self._noises, _SAMPLES))
        audio = devices.through_device(speech + noise * 10.0 ** (-snr_db / 20.0), rng)
        return Turn(audio.astype(np.float32), both, length_s, level_db)

    def _said(self, rng: np.random.Generator, pool: Sequence[corpus.Recording], samples: int) -> FloatArray:
        return sounds.excerpt(rng, [pool[int(rng.integers(len(pool)))].read()], samples)

    def _loud(self, rng: np.random.Generator, pool: Sequence[corpus.Recording], samples: int) -> FloatArray:
        """A stretch in which the other really speaks."""
        x = self._said(rng, pool, samples)
        for _ in range(30):
            if corpus.voiced_frames(x.astype(np.float32), 25.0).mean() > 0.8:
                break
            x = self._said(rng, pool, samples)
        return sounds.unit_power(x)

    def _across(self, rng: np.random.Generator, x: FloatArray) -> FloatArray:
        entry = self._far[int(rng.integers(len(self._far)))]
        response = rooms.Response(
            entry.taps.astype(np.float64), entry.direct_sample, entry.distance_m, entry.rt60_s, entry.drr_db
        )
        return sounds.unit_power(rooms.convolve(x, response)[: len(x)])

    def _where(self, rng: np.random.Generator, speech: FloatArray, size: int) -> int:
        """A place where the first talker speaks as well."""
        active = np.repeat(corpus.voiced_frames(speech.astype(np.float32)), 160)
        best = 0
        for _ in range(30):
            at = int(rng.integers(0, _SAMPLES - size))
            if active[at : at + size].mean() > 0.8:
                return at
            best = max(best, at, key=lambda start: float(active[start : start + size].mean()))
        return best


def choose(ear: OverlapNetwork, single: Sequence[Turn]) -> float:
    """The lowest threshold at which no more than the stated share of one person's turns is marked."""
    peaks = []
    shortest = round(MIN_S * SAMPLE_RATE_HZ / HOP_SAMPLES)
    for turn in steps(single, "one voice", len(single)):
        two = ear.probabilities(turn.audio)
        assert two is not None, "rendered turns are long enough"
        found = runs(two, 0.0, GROW_AT, shortest)
        peaks.append(max((float(two[first:last].max()) for first, last in found), default=0.0))
    return next((at for at in _CANDIDATES if np.mean(np.array(peaks) >= at) <= FALSE_TURNS_TARGET), _CANDIDATES[-1])


def report(finders: dict[str, Finder], double: Sequence[Turn], single: Sequence[Turn]) -> list[str]:
    """How many overlaps each finder marks, by length and level, and how many turns of one person."""
    lines = ["| ear | other voice | " + " | ".join(f"{low:g} to {high:g} dB" for low, high in _LEVELS_DB) + " | all |"]
    lines.append("| --- | --- |" + " --- |" * (len(_LEVELS_DB) + 1))
    false = []
    for name, finder in finders.items():
        hits = [_is_found(finder(turn.audio), turn.both) for turn in steps(double, name, len(double))]
        for low_s, high_s in _LENGTHS_S:
            rows = [i for i, turn in enumerate(double) if low_s <= turn.length_s < high_s]
            cells = []
            for low, high in (*_LEVELS_DB, (-math.inf, math.inf)):
                chosen = [hits[i] for i in rows if low <= double[i].level_db < high]
                cells.append(f"{np.mean(chosen):.0%} ({len(chosen)})" if chosen else "-")
            lines.append(f"| {name} | {low_s:g} to {high_s:g} s | {' | '.join(cells)} |")
        marked = sum(bool(finder(turn.audio)) for turn in single)
        false.append(f"| {name} | {marked} of {len(single)} |")
    return [*lines, "", "| ear | turns of one person marked |", "| --- | --- |", *false]


def _is_found(found: Sequence[Span], both: Span | None) -> bool:
    return both is not None and any(span.overlap(both) for span in found)


def meetings(ear: OverlapNetwork, folder: Path) -> list[str]:
    """Frames of real meetings in which two or more people speak, against who spoke when."""
    truth = _who_spoke(folder / "audio" / "ami_meetings" / "rttm")
    counts = dict.fromkeys(("both", "marked", "right"), 0)
    for recording in corpus.recordings(folder):
        name = recording.path.stem
        if recording.set_name != "ami_meetings" or name not in truth:
            continue
        two = ear.probabilities(recording.read())
        assert two is not None, "meetings are long enough"
        at_s = np.array([frames_span(f, f + 1, 10**9).start_sample for f in range(len(two))]) / SAMPLE_RATE_HZ
        talkers = np.zeros(len(two), dtype=int)
        for stretches in truth[name].values():
            talkers += np.any([(at_s >= start) & (at_s < end) for start, end in stretches], axis=0)
        both = talkers > 1
        marked = np.zeros(len(two), dtype=bool)
        for first, last in ear.runs(two):
            marked[first:last] = True
        counts["both"] += int(both.sum())
        counts["marked"] += int(marked.sum())
        counts["right"] += int((both & marked).sum())
    minutes = counts["both"] * HOP_SAMPLES / SAMPLE_RATE_HZ / 60.0
    return [
        "| real meetings, close microphones mixed (AMI) | |",
        "| --- | --- |",
        f"| two at once | {minutes:.1f} min |",
        f"| of it marked | {counts['right'] / max(1, counts['both']):.0%} |",
        f"| of what is marked, right | {counts['right'] / max(1, counts['marked']):.0%} |",
    ]


def _who_spoke(folder: Path) -> dict[str, dict[str, list[tuple[float, float]]]]:
    out: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for path in sorted(folder.glob("*.rttm")):
        for line in path.read_text(encoding="utf-8").splitlines():
            _, name, _, start, length, _, _, who, *_ = line.split()
            out.setdefault(name, {}).setdefault(who, []).append((float(start), float(start) + float(length)))
    return out


def drawn(renderer: Renderer, count: int, two: bool) -> list[Turn]:
    """That many turns."""
    return list(_turns(renderer, steps(range(count), "two voices" if two else "one voice", count), two))


def _turns(renderer: Renderer, numbers: Iterable[int], two: bool) -> Iterator[Turn]:
    for number in numbers:
        yield renderer.turn(number, two)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", help="folder of recordings (default: VOICEGATE_DATA)")
    parser.add_argument("--card", type=Path, help="model card whose measurements to replace")
    parser.add_argument("--turns", type=int, default=600)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--only-measure", action="store_true", help="keep the thresholds")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args(argv)
    folder = corpus.data_folder(args.data)
    store = Store()
    directory, model = store.path(MODEL_NAME), store.model_id(MODEL_NAME)
    bank = room_bank(20, args.seed, rooms.Method.HYBRID)
    if not args.only_measure:
        draft = OverlapNetwork(directory, model, args.threads, {"on_at": 0.5, "grow_at": GROW_AT, "min_s": MIN_S})
        seen = Renderer(folder, (Part.TRAIN, Part.DEV), bank, args.seed)
        on_at = choose(draft, drawn(seen, args.turns, two=False))
        content = {
            "model": MODEL_NAME,
            "thresholds": {"on_at": on_at, "grow_at": GROW_AT, "min_s": MIN_S},
            "target": f"at most {FALSE_TURNS_TARGET:.0%} of one person's turns of {TURN_S:g} s marked (dev)",
        }
        SETTINGS.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    ear, damage = OverlapNetwork(directory, model, args.threads), DamageCnn()
    unseen = Renderer(folder, (Part.TEST,), bank, args.seed + 1)
    double, single = drawn(unseen, args.turns, two=True), drawn(unseen, args.turns, two=False)
    finders: dict[str, Finder] = {
        "overlap": lambda audio: ear.find(audio) or (),
        "damage, voices": lambda audio: [d.span for d in damage.find(audio) or () if d.kind is DamageKind.VOICES],
    }
    settings = json.loads(SETTINGS.read_text(encoding="utf-8"))
    lines = [cards.facts(settings), *report(finders, double, single), "", *meetings(ear, folder)]
    print("\n".join(lines))
    if args.card:
        cards.write_measured(args.card, lines)


if __name__ == "__main__":
    main()
