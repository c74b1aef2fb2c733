"""How well speaker ears tell people apart: by duration, distance, noise, device, sex and number of enrolment clips.

``python -m models.training.speaker_report --data DIR --work DIR --speaker NAME [--speaker NAME ...] [--card FILE]``

Every ear is given the same cuts of the same recordings (``models.training.speaker_cuts``) and judged by plain cosines.
A reference is one recording as it is, up to 6 s, unless a table says otherwise; a trial compares it with a cut of
another recording of the same set. Voices that one of the ears was trained on are left out for all. Intervals are 95 %,
over voices. ``--voices`` names a folder of synthetic voices, one folder of WAV files each, which no ear may have been
trained on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from models.store import Store
from models.training import cards, corpus
from models.training.speaker_cuts import WHOLE_S, Cut, cuts, synthetic_takes, takes
from models.training.speaker_ears import EARS, NamedEar, load_uncalibrated
from models.training.speaker_measures import BoolArray, Scored, Statistic, equal_error_rate, interval, measure, min_dcf
from models.training.speaker_scenes import Condition
from models.training.speaker_trials import Reference, Trials, compare, several, single

SELF_RECORDED = "alphanumeric"
READ = ("librispeech_cohort", "librispeech_test_other", "vctk", "cmu_arctic")
DURATIONS_S = (0.5, 0.8, 1.0, 1.2, 2.0, 3.0, 4.0, 5.0)
CONDITION_S = (0.8, 1.2, 2.0, 3.0)
CLIPS = (1, 2, 3)
CLIP_S = (1.2, 2.0)

_SEED = 23
_HALF_CLIP_S = 3.0
_MEASURES: tuple[tuple[str, Statistic], ...] = (
    ("EER", equal_error_rate),
    ("minDCF 0.01", min_dcf(0.01)),
    ("minDCF 0.5", min_dcf(0.5)),
)

Measured = tuple[NamedEar, list[Cut]]


def by_duration(measured: Sequence[Measured], sets: Sequence[str]) -> list[str]:
    """A table over the length of the cut."""
    rows = []
    for duration_s in DURATIONS_S:
        rows.append(
            (f"{duration_s:g} s", [compare(_whole(data, sets), _clean(data, sets, duration_s)) for _, data in measured])
        )
    return _table("span", measured, [(name, [found.scored for found in trials]) for name, trials in rows])


def by_equal_duration(measured: Sequence[Measured], sets: Sequence[str]) -> list[str]:
    """A table over the length of both sides: what is known of an initiator after so short a first turn."""
    rows = []
    for duration_s in DURATIONS_S:
        trials = [
            compare([single(cut) for cut in chosen], chosen)
            for chosen in (_clean(data, sets, duration_s) for _, data in measured)
        ]
        rows.append((f"{duration_s:g} s", [found.scored for found in trials]))
    return _table("both sides", measured, rows)


def by_condition(measured: Sequence[Measured]) -> list[str]:
    """A table over how the cut is heard; the reference is as recorded."""
    rows = []
    for condition in Condition:
        if condition is Condition.UNCLEAN:
            continue
        for duration_s in CONDITION_S:
            tests = [
                [c for c in data if (c.set_name, c.condition, c.nominal_s) == (SELF_RECORDED, condition, duration_s)]
                for _, data in measured
            ]
            trials = [
                compare(_whole(data, (SELF_RECORDED,)), mine) for (_, data), mine in zip(measured, tests, strict=True)
            ]
            rows.append((f"{condition}, {duration_s:g} s", [found.scored for found in trials]))
    return _table("heard", measured, rows)


def by_person(measured: Sequence[Measured]) -> list[str]:
    """A table over sex and device, as the speakers stated them."""
    groups: list[tuple[str, Callable[[Trials], BoolArray]]] = [
        ("all", lambda found: np.ones(len(found.score), dtype=np.bool_)),
        ("strangers of the same sex", lambda found: found.target | _both(found, lambda cut: cut.take.sex)),
        ("women", lambda found: _side(found, "Female", lambda cut: cut.take.sex)),
        ("men", lambda found: _side(found, "Male", lambda cut: cut.take.sex)),
        ("phones", lambda found: _side(found, "Phone Recorder", lambda cut: cut.take.device)),
        ("laptops", lambda found: _side(found, "Laptop", lambda cut: cut.take.device)),
    ]
    rows = []
    for duration_s in CONDITION_S[1:]:
        trials = [
            compare(_whole(data, (SELF_RECORDED,)), _clean(data, (SELF_RECORDED,), duration_s)) for _, data in measured
        ]
        for name, chosen in groups:
            rows.append((f"{name}, {duration_s:g} s", [found.scored.chosen(chosen(found)) for found in trials]))
    return _table("who", measured, rows)


def by_clips(measured: Sequence[Measured]) -> list[str]:
    """A table over the number of enrolment clips, their unit vectors averaged, of people with enough clips for all."""
    sets = (SELF_RECORDED, *READ[1:])
    rows = []
    for duration_s in CLIP_S:
        for set_names, name in (((SELF_RECORDED,), "self-recorded"), (sets[1:], "read")):
            most = CLIPS[:-1] if SELF_RECORDED in set_names else CLIPS
            kinds = [(count, WHOLE_S, f"{count} of up to 6 s") for count in most] + [(2, _HALF_CLIP_S, "2 of 3 s")]
            for count, clip_s, words in kinds:
                scored = []
                for _, data in measured:
                    clips = _several_clips([cut for cut in _clean(data, set_names, clip_s)], most[-1])
                    scored.append(compare(several(clips, count), _clean(data, set_names, duration_s)).scored)
                rows.append((f"{name}: {words}, span {duration_s:g} s", scored))
    return _table("clips", measured, rows)


def _several_clips(clips: Sequence[Cut], more_than: int) -> list[Cut]:
    """Clips of the speakers who have more than so many."""
    count: dict[tuple[str, str], int] = {}
    for clip in clips:
        key = clip.set_name, clip.take.speaker
        count[key] = count.get(key, 0) + 1
    return [clip for clip in clips if count[clip.set_name, clip.take.speaker] > more_than]


def _whole(data: Sequence[Cut], sets: Sequence[str]) -> list[Reference]:
    return [single(cut) for cut in _clean(data, sets, WHOLE_S)]


def _clean(data: Sequence[Cut], sets: Sequence[str], nominal_s: float) -> list[Cut]:
    return [
        cut for cut in data if cut.set_name in sets and cut.condition is Condition.CLEAN and cut.nominal_s == nominal_s
    ]


def _both(found: Trials, fact: Callable[[Reference | Cut], str]) -> BoolArray:
    return np.asarray(found.of_references(fact) == found.of_tests(fact), dtype=np.bool_)


def _side(found: Trials, value: str, fact: Callable[[Reference | Cut], str]) -> BoolArray:
    return np.asarray((found.of_references(fact) == value) & (found.of_tests(fact) == value), dtype=np.bool_)


def _table(what: str, measured: Sequence[Measured], rows: Sequence[tuple[str, Sequence[Scored]]]) -> list[str]:
    """One line a row: trials and voices, then each ear's measures with their intervals."""
    heads = [f"{named.name}: {name}" for named, _ in measured for name, _ in _MEASURES]
    lines = [
        f"| {what} | one person / two | voices | {' | '.join(heads)} |",
        f"| --- | --- | --- |{' --- |' * len(heads)}",
    ]
    for name, of_ears in rows:
        first = of_ears[0]
        voices = len(set(first.reference_voice.tolist()))
        cells = [name, f"{np.count_nonzero(first.target)} / {np.count_nonzero(~first.target)}", str(voices)]
        for scored in of_ears:
            cells += [_cell(scored, statistic, percent=title == "EER") for title, statistic in _MEASURES]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cell(scored: Scored, statistic: Statistic, *, percent: bool) -> str:
    if not scored.complete:
        return "-"
    low, high = interval(scored, statistic, seed=_SEED)
    numbers = [f"{value:.1%}" if percent else f"{value:.3f}" for value in (measure(scored, statistic), low, high)]
    return f"{numbers[0]} ({numbers[1]} to {numbers[2]})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure speaker ears from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of recordings; default: VOICEGATE_DATA")
    parser.add_argument("--work", type=Path, help="folder in which embeddings are kept for a second run")
    parser.add_argument("--speaker", action="append", choices=sorted(EARS), help="an ear; give it once for each")
    parser.add_argument("--voices", type=Path, help="folder of synthetic voices: VOICE/*.wav")
    parser.add_argument("--card", type=Path, help="model card whose measurements to replace")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    folder = corpus.data_folder(options.data)
    store = Store()
    ears = [load_uncalibrated(name, store, options.threads) for name in options.speaker or ["campplus"]]
    everyone = takes(folder, (SELF_RECORDED, *READ))
    for named in ears:
        everyone = named.unknown(everyone)
    self_recorded = [take for take in everyone if take.set_name == SELF_RECORDED]
    worse = [condition for condition in Condition if condition not in (Condition.CLEAN, Condition.UNCLEAN)]
    measured: list[Measured] = []
    synthetic: list[Measured] = []
    for named in ears:
        data = cuts(named.ear, named.key, everyone, folder, (Condition.CLEAN,), options.work)
        data += cuts(named.ear, named.key, self_recorded, folder, worse, options.work, CONDITION_S)
        measured.append((named, data))
        if options.voices:
            made = synthetic_takes(options.voices)
            synthetic.append((named, cuts(named.ear, named.key, made, folder, (Condition.CLEAN,), options.work)))
    lines = report(measured, synthetic)
    print("\n".join(lines))
    if options.card:
        cards.write_measured(options.card, lines)


def report(measured: Sequence[Measured], synthetic: Sequence[Measured]) -> list[str]:
    """All tables, with a line before each that says what it is of.

    Args:
        measured: ears with their cuts of real people.
        synthetic: with those of synthetic voices; may be empty.
    """
    parts = [
        ("People on their own phones and laptops, by length of the span:", by_duration(measured, (SELF_RECORDED,))),
        ("The same, with a reference as short as the span:", by_equal_duration(measured, (SELF_RECORDED,))),
        ("Read speech, by length of the span:", by_duration(measured, READ)),
        ("Own phones and laptops, by distance and noise:", by_condition(measured)),
        ("Own phones and laptops, by sex and device:", by_person(measured)),
        ("By number of enrolment clips:", by_clips(measured)),
    ]
    if synthetic:
        sets = sorted({cut.set_name for _, data in synthetic for cut in data})
        parts.append(("Synthetic voices, by length of the span:", by_duration(synthetic, sets)))
    lines: list[str] = []
    for title, table in parts:
        lines += [title, "", *table, ""]
    return lines


if __name__ == "__main__":
    main()
