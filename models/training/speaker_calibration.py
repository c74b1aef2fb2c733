"""Calibrate a speaker ear on one half of the speakers, and measure it on the other.

``python -m models.training.speaker_calibration --data DIR --work DIR [--speaker NAME] [--out FILE] [--card FILE]``

Two situations are calibrated apart. An enrolled wearer is known by one clean clip of 1.2 to 6 s; an initiator by one
cut of 0.8 to 5 s, as recorded or unclean (``models.training.speaker_scenes``). What is judged is a cut of 0.4 to 5 s,
as recorded or unclean, half and half. Targets are two recordings of one person, or two halves of one where there is
only one; impostors are other people of the same set. Durations and conditions weigh the same, sets by their number of
voices, up to twenty. The mean of two clips is only measured, with the thresholds of one: the sets with several clips
of a person are the harder ones, and what they differ in would pass for an effect of the clips.

A logistic regression makes scores log-likelihood ratios. For every pair of durations the ratio that a stated share of
impostors reaches, and the one that a stated share of targets stays below, are taken, and a quadratic in the logarithms
of both durations is fitted to each.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gate.evidence import SpeakerVerdict
from models.protocols import SpeakerEar
from models.speaker_calibration import (
    LLR_TERMS,
    Situation,
    SituationThresholds,
    SpeakerCalibration,
    bound_terms,
    llr_terms,
)
from models.store import Store
from models.training import cards, corpus, speaker_changes, speaker_cuts
from models.training.speaker_cuts import GRID_S as GRID_S
from models.training.speaker_cuts import SETS as SETS
from models.training.speaker_cuts import WHOLE_S, Cut, Take, takes
from models.training.speaker_cuts import is_development as is_development
from models.training.speaker_ears import EARS, load_uncalibrated
from models.training.speaker_measures import Scored, cllr, equal_error_rate, measure, min_cllr, min_dcf
from models.training.speaker_scenes import Condition
from models.training.speaker_trials import Trials, compare, several, single

FALSE_ACCEPT_TARGET = 0.01
FALSE_REJECT_TARGET = 0.03
CHANGE_TURNS = 120
CONDITIONS = (Condition.CLEAN, Condition.UNCLEAN)

_TEST_S = (0.4, 0.8, 1.2, 2.0, 3.0, 5.0)
_ENROLLED_S = (1.2, 2.0, 3.0, WHOLE_S)
_INITIATOR_S = (0.8, 1.2, 2.0, 3.0, 5.0)
_SEED = 17
_FEWEST = 20
"""Of trials of either kind, for a line of a table."""
_NEWTON_STEPS = 25
_RIDGE = 1e-6

FloatArray = npt.NDArray[np.float64]


def pieces(ear: SpeakerEar, folder: Path) -> list[Cut]:
    """Embed every recording as it is, at every duration that it is long enough for."""
    return speaker_cuts.cuts(ear, "unkept", takes(folder), folder, (Condition.CLEAN,), None, GRID_S)


def scores(
    data: Sequence[Cut], row: int, column: int, *, development: bool
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Target and impostor cosines by set, between cuts of two durations of the grid."""
    half = [cut for cut in data if cut.take.development is development]
    found = compare(
        [single(cut) for cut in half if cut.nominal_s == GRID_S[row]],
        [cut for cut in half if cut.nominal_s == GRID_S[column]],
    )
    sets = found.of_tests(lambda item: item.set_name)
    target, impostor = (
        {str(name): found.score[(sets == name) & (found.target == kind)] for name in np.unique(sets)}
        for kind in (True, False)
    )
    return target, impostor


def situation_trials(data: Sequence[Cut], situation: Situation, *, development: bool, averaged: bool) -> Trials:
    """What a situation is calibrated on, or measured on: see the module's text.

    Args:
        data: cuts as recorded and unclean.
        situation: whose references.
        development: which half of the speakers.
        averaged: whether an enrolled wearer is also known by the mean of two clips.
    """
    half = [cut for cut in data if cut.take.development is development]
    if situation is Situation.INITIATOR:
        references = [single(cut) for cut in half if cut.nominal_s in _INITIATOR_S]
    else:
        clean = [cut for cut in half if cut.condition is Condition.CLEAN]
        references = [single(cut) for cut in clean if cut.nominal_s in _ENROLLED_S]
        if averaged:
            references += several([cut for cut in clean if cut.nominal_s == WHOLE_S], 2)
    return compare(references, [cut for cut in half if cut.nominal_s in _TEST_S]).thinned(_SEED)


def fit(trials: Trials) -> dict[str, Any]:
    """Weights of one situation from the trials of development speakers, ready for the file."""
    weight = trials.weights()
    log_reference, log_test = np.log(trials.reference_s), np.log(trials.test_s)
    llr = fit_llr(trials.score, log_reference, log_test, trials.target, weight)
    ratio = _llr_features(trials.score, log_reference, log_test) @ llr
    cells, cell = trials.cells()
    places, bounds = [], []
    for number in range(len(cells)):
        inside = cell == number
        impostor, target = inside & ~trials.target, inside & trials.target
        places.append((log_reference[inside].mean(), log_test[inside].mean()))
        bounds.append(
            (
                quantile(ratio[impostor], weight[impostor], 1.0 - FALSE_ACCEPT_TARGET),
                quantile(ratio[target], weight[target], FALSE_REJECT_TARGET),
            )
        )
    where = np.array(places)
    basis = np.stack(bound_terms(where[:, 0], where[:, 1]), axis=1)
    owner, other = np.linalg.lstsq(basis, np.array(bounds), rcond=None)[0].T
    return {
        "reference_s": _range_s(np.exp(where[:, 0])),
        "test_s": _range_s(np.exp(where[:, 1])),
        "llr": np.round(llr, 5).tolist(),
        "owner_llr": np.round(owner, 5).tolist(),
        "other_llr": np.round(other, 5).tolist(),
    }


def fit_llr(
    score: FloatArray,
    log_reference: FloatArray,
    log_test: FloatArray,
    target: npt.NDArray[np.bool_],
    weight: FloatArray,
) -> FloatArray:
    """The eight weights whose sum is a log-likelihood ratio, by logistic regression (Newton's method).

    Args:
        score: ``(n,)`` cosines.
        log_reference: ``(n,)`` logarithms of the seconds behind the references.
        log_test: likewise of the cuts.
        target: ``(n,)``.
        weight: ``(n,)``; targets and impostors each sum to 1, so that the log-odds are the log-likelihood ratio.
    """
    features = _llr_features(score, log_reference, log_test)
    weights = np.zeros(LLR_TERMS)
    for _ in range(_NEWTON_STEPS):
        probability = 1.0 / (1.0 + np.exp(-np.clip(features @ weights, -40.0, 40.0)))
        gradient = features.T @ (weight * (probability - target)) + _RIDGE * weights
        curvature = (features * (weight * probability * (1.0 - probability))[:, None]).T @ features
        step = np.linalg.solve(curvature + _RIDGE * np.eye(LLR_TERMS), gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-6:
            break
    return weights


def quantile(values: FloatArray, weight: FloatArray, share: float) -> float:
    """The value that such a share of the weight lies at or below."""
    order = np.argsort(values)
    cumulative = np.cumsum(weight[order])
    return float(values[order][min(int(np.searchsorted(cumulative, share * cumulative[-1])), len(values) - 1)])


def verdicts(trials: Trials, thresholds: SituationThresholds) -> dict[SpeakerVerdict, npt.NDArray[np.bool_]]:
    """Which trials get which verdict."""
    limits: dict[tuple[float, float], tuple[float, float]] = {}
    reference_s, test_s = trials.reference_s, trials.test_s
    owner_at, other_below = np.empty(len(trials.score)), np.empty(len(trials.score))
    for number, key in enumerate(zip(np.round(reference_s, 2), np.round(test_s, 2), strict=True)):
        if key not in limits:
            limits[key] = thresholds.verdict(0.0, float(key[0]), float(key[1]))[1:]
        owner_at[number], other_below[number] = limits[key]
    owner, other = trials.score >= owner_at, trials.score < other_below
    return {SpeakerVerdict.OWNER: owner, SpeakerVerdict.OTHER: other, SpeakerVerdict.UNSURE: ~owner & ~other}


def llrs(trials: Trials, thresholds: SituationThresholds) -> FloatArray:
    """Log-likelihood ratios of trials, their durations moved into the calibrated range."""
    logs = [
        np.log(np.clip(seconds, *range_s))
        for seconds, range_s in (
            (trials.reference_s, thresholds.reference_s),
            (trials.test_s, thresholds.test_s),
        )
    ]
    return np.asarray(_llr_features(trials.score, *logs) @ np.array(thresholds.llr), dtype=np.float64)


def report(trials: Trials, thresholds: SituationThresholds) -> list[str]:
    """Two tables about the test speakers in one situation: how well scores tell, and what the thresholds do."""
    cells, cell = trials.cells()
    lines = [
        "| reference s | span s | EER | minDCF 0.01 | minDCF 0.5 | Cllr | min Cllr | owner from | other below | "
        "owners: taken / unsure / refused | strangers: taken / unsure / refused |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    chosen: list[tuple[str, str, Trials]] = [("all", "all", trials)]
    for number, (reference_s, test_s) in enumerate(cells):
        if reference_s in _SHOWN_REFERENCES_S:
            chosen.append((_seconds(reference_s), f"{test_s:g}", trials.chosen(np.flatnonzero(cell == number))))
    for reference_name, test_name, part in chosen:
        limits = ["", ""]
        if part is not trials:
            seconds = float(part.reference_s.mean()), float(part.test_s.mean())
            limits = [f"{value:.2f}" for value in thresholds.verdict(0.0, *seconds)[1:]]
        lines.append(
            _row([reference_name, test_name, *_detection(part, thresholds), *limits, *_shares(part, thresholds)])
        )
    return lines


_SHOWN_REFERENCES_S = (1.2, 3.0, WHOLE_S, 2 * WHOLE_S)


def _seconds(nominal_s: float) -> str:
    names = {WHOLE_S: "one clip, up to 6", 2 * WHOLE_S: "two clips, up to 6 each"}
    return names.get(nominal_s, f"{nominal_s:g}")


def report_conditions(trials: Trials, thresholds: SituationThresholds) -> list[str]:
    """A table of the thresholds by how both sides were heard, and by set, over all durations."""
    lines = [
        "| reference | span | set | owners: taken / unsure / refused | strangers: taken / unsure / refused |",
        "| --- | --- | --- | --- | --- |",
    ]
    one, two = trials.of_references(lambda item: item.condition), trials.of_tests(lambda item: item.condition)
    sets = trials.of_tests(lambda item: item.set_name)
    for heard in sorted(set(zip(one.tolist(), two.tolist(), strict=True))):
        for set_name in SETS:
            which = (one == heard[0]) & (two == heard[1]) & (sets == set_name)
            if min(np.count_nonzero(which & trials.target), np.count_nonzero(which & ~trials.target)) >= _FEWEST:
                part = trials.chosen(which)
                lines.append(_row([*heard, set_name, *_shares(part, thresholds)]))
    return lines


def _detection(trials: Trials, thresholds: SituationThresholds) -> list[str]:
    """EER and detection costs over pairs of log-likelihood ratios, and what calibration costs."""
    ratio, weight = llrs(trials, thresholds), trials.weights()
    base = trials.scored
    scored = Scored(ratio, base.target, base.reference_voice, base.test_voice)
    return [
        f"{measure(scored, equal_error_rate):.1%}",
        *(f"{measure(scored, min_dcf(p_target)):.3f}" for p_target in (0.01, 0.5)),
        f"{cllr(ratio, trials.target, weight):.3f}",
        f"{min_cllr(ratio, trials.target, weight):.3f}",
    ]


def _shares(trials: Trials, thresholds: SituationThresholds) -> list[str]:
    found, weight = verdicts(trials, thresholds), trials.weights()
    cells = []
    for kind in (True, False):
        mine = trials.target == kind
        shares = (
            weight[mine & found[verdict]].sum() / max(weight[mine].sum(), 1e-300)
            for verdict in (SpeakerVerdict.OWNER, SpeakerVerdict.UNSURE, SpeakerVerdict.OTHER)
        )
        cells.append(f"{' / '.join(f'{share:.1%}' for share in shares)} of {np.count_nonzero(mine)}")
    return cells


def held_out_voices(chosen: Sequence[Take]) -> speaker_changes.Voices:
    """Trimmed recordings of the test half, by set and voice."""
    out: speaker_changes.Voices = {}
    for take in chosen:
        if not take.development:
            out.setdefault(take.set_name, {}).setdefault(take.voice, []).append(take.read())
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    """Calibrate a speaker ear from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of recordings; default: VOICEGATE_DATA")
    parser.add_argument("--work", type=Path, help="folder in which embeddings are kept for a second run")
    parser.add_argument("--speaker", default="campplus", choices=sorted(EARS))
    parser.add_argument("--out", type=Path, help="calibration file to write")
    parser.add_argument("--card", type=Path, help="model card whose measurements to replace")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    folder = corpus.data_folder(options.data)
    named = load_uncalibrated(options.speaker, Store(), options.threads)
    everyone = named.unknown(takes(folder))
    data = speaker_cuts.cuts(named.ear, named.key, everyone, folder, CONDITIONS, options.work)
    content = {
        "model": named.name,
        "sha256": named.sha256,
        "false_accept_target": FALSE_ACCEPT_TARGET,
        "false_reject_target": FALSE_REJECT_TARGET,
        **{
            f"{name}_speakers": len({(t.set_name, t.voice) for t in everyone if t.development is half})
            for name, half in (("development", True), ("test", False))
        },
        "situations": {
            situation.value: fit(situation_trials(data, situation, development=True, averaged=False))
            for situation in Situation
        },
    }
    calibration = SpeakerCalibration.from_mapping(content)
    if options.out:
        options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    lines: list[str] = []
    for situation in Situation:
        trials = situation_trials(data, situation, development=False, averaged=True)
        thresholds = calibration.of(situation)
        lines += [f"{_TITLES[situation]}, by duration:", "", *report(trials, thresholds), ""]
        lines += [f"{_TITLES[situation]}, by condition:", "", *report_conditions(trials, thresholds), ""]
    lines += speaker_changes.report(named.ear, held_out_voices(everyone), CHANGE_TURNS, seed=7)
    print("\n".join(lines))
    if options.card:
        cards.write_measured(options.card, lines)


_TITLES = {Situation.ENROLLED: "An enrolled wearer", Situation.INITIATOR: "An initiator"}


def _llr_features(score: FloatArray, log_reference: FloatArray, log_test: FloatArray) -> FloatArray:
    """float64 ``(n, 8)``: the terms of the offset, and those of the slope times the score."""
    terms = np.stack(llr_terms(log_reference, log_test), axis=1)
    return np.concatenate([terms, terms * score[:, None]], axis=1)


def _range_s(seconds: FloatArray) -> list[float]:
    return [round(float(seconds.min()), 3), round(float(seconds.max()), 3)]


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


if __name__ == "__main__":
    main()
