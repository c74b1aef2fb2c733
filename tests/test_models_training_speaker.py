"""Measuring and calibrating speaker ears: rates as defined, trials that mean something, thresholds that hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from gate.evidence import SpeakerVerdict
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, Embedding, ModelId
from models.speaker_calibration import SituationThresholds, Uncalibrated, bound_terms
from models.training import corpus, speaker_calibration, speaker_ears, speaker_measures, speaker_report
from models.training.corpus import Part, Recording
from models.training.speaker_cuts import HALVED, WHOLE_S, Cut, Take, cuts, spans, takes
from models.training.speaker_measures import Scored, cllr, equal_error_rate, interval, measure, min_cllr, min_dcf
from models.training.speaker_scenes import SCENES, Condition, Scenes, mixed, scene_of
from models.training.speaker_trials import Trials, averaged, compare, several, single

RATE = SAMPLE_RATE_HZ


def unit(*numbers: float) -> np.ndarray:
    return np.asarray(numbers, np.float32) / np.float32(np.linalg.norm(numbers))


def take(speaker: str, recording: str, **changes: object) -> Take:
    source = Recording(Path(recording), "alphanumeric", speaker, "near", 6.0, Part.TEST)
    facts: dict[str, object] = {
        "set_name": "alphanumeric", "speaker": speaker, "voice": speaker, "recording": recording, "source": source,
        "half": None, "development": False, **changes,
    }  # fmt: skip
    return Take(**facts)  # type: ignore[arg-type]


def cut(
    speaker: str, recording: str, vector: np.ndarray, seconds: float = 2.0, condition: Condition = Condition.CLEAN,
    **changes: object,
) -> Cut:  # fmt: skip
    return Cut(take(speaker, recording, **changes), condition, seconds, seconds, vector)


def scored(targets: list[float], impostors: list[float]) -> Scored:
    count = len(targets) + len(impostors)
    return Scored(
        np.array(targets + impostors), np.arange(count) < len(targets), np.arange(count), np.arange(count) + 1
    )


# --- measures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "impostors", "wanted"),
    [
        ([0.9, 0.8], [0.1, 0.2], 0.0),
        ([0.1, 0.2], [0.9, 0.8], 1.0),
        ([0.9, 0.1], [0.8, 0.2], 0.5),
        ([0.5, 0.6, 0.7, 0.2], [0.1, 0.15, 0.18, 0.55], 0.25),
    ],
)
def test_equal_error_rate_is_where_both_errors_are_alike(
    targets: list[float], impostors: list[float], wanted: float
) -> None:
    assert measure(scored(targets, impostors), equal_error_rate) == pytest.approx(wanted)


def test_scores_that_tie_are_decided_alike_so_a_constant_score_tells_nothing() -> None:
    constant = scored([0.5] * 4, [0.5] * 4)
    assert measure(constant, equal_error_rate) == pytest.approx(0.5)
    assert measure(constant, min_dcf(0.01)) == pytest.approx(1.0)
    assert min_cllr(constant.score, constant.target) == pytest.approx(1.0)


def test_detection_cost_weighs_errors_by_the_prior() -> None:
    one_in_ten_missed = scored([0.0] + [1.0] * 9, [0.5] * 10)
    assert measure(one_in_ten_missed, min_dcf(0.5)) == pytest.approx(0.1)
    one_in_ten_accepted = scored([1.0] * 10, [2.0] + [0.5] * 9)
    assert measure(one_in_ten_accepted, min_dcf(0.5)) == pytest.approx(0.1)
    assert measure(one_in_ten_accepted, min_dcf(0.01)) == pytest.approx(1.0)


def test_nothing_to_compare_is_no_number() -> None:
    empty = scored([0.5], [])
    assert math.isnan(measure(empty, equal_error_rate))
    assert all(map(math.isnan, interval(empty, equal_error_rate, seed=0)))


def test_ratio_that_says_nothing_costs_one_bit_and_a_wrong_one_more() -> None:
    target = np.array([True, True, False, False])
    assert cllr(np.zeros(4), target) == pytest.approx(1.0)
    assert cllr(np.array([9.0, 9.0, -9.0, -9.0]), target) < 0.01
    assert cllr(np.array([-9.0, -9.0, 9.0, 9.0]), target) > 5.0


@given(st.integers(0, 1_000))
def test_no_monotone_calibration_costs_less_than_the_least(seed: int) -> None:
    random = np.random.default_rng(seed)
    target = random.random(80) < 0.5
    target[:2] = True, False
    score = random.normal(target * 2.0, 1.0)
    least = min_cllr(score, target)
    assert least == pytest.approx(min_cllr(np.exp(3.0 * score), target))
    for scale, shift in ((1.0, -1.0), (2.0, -2.0), (0.3, 0.0)):
        assert cllr(scale * score + shift, target) >= least - 1e-9


def test_interval_draws_voices_so_many_trials_of_few_people_do_not_look_sure() -> None:
    random = np.random.default_rng(0)
    people = np.repeat(np.arange(6), 40)
    skill = np.array([0.0, 3.0, 3.0, 3.0, 0.0, 3.0])
    target = np.tile([True, False], 120)
    score = random.normal(np.where(target, skill[people], 0.0), 1.0)
    few = Scored(score, target, people, np.where(target, people, (people + 1) % 6))
    alone = Scored(score, target, np.arange(240), np.where(target, np.arange(240), np.arange(240) + 1000))
    low, high = interval(few, equal_error_rate, seed=1)
    narrow_low, narrow_high = interval(alone, equal_error_rate, seed=1)
    assert low <= measure(few, equal_error_rate) <= high
    assert high - low > 1.5 * (narrow_high - narrow_low)


def test_interval_does_not_depend_on_how_much_memory_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = scored([0.9, 0.4, 0.8], [0.1, 0.5, 0.3])
    whole = interval(trials, equal_error_rate, seed=3)
    monkeypatch.setattr(speaker_measures, "_MAX_CELLS", 20)
    assert interval(trials, equal_error_rate, seed=3) == whole


# --- trials ---------------------------------------------------------------------------------------------------------


def test_no_trial_pairs_a_recording_with_itself_or_people_who_may_be_one() -> None:
    data = [
        cut("a", "a1", unit(1, 0)), cut("a", "a2", unit(1, 0.1)), cut("b", "b1", unit(0, 1), voice="c"),
        cut("d", "d1", unit(0.1, 1), voice="c"), cut("e", "e1", unit(1, 1), set_name="vctk"),
        cut("f", "f1", unit(1, 1), development=True),
    ]  # fmt: skip
    found = compare([single(item) for item in data], data)
    pairs = {
        (one, two): bool(target)
        for one, two, target in zip(
            found.of_references(lambda item: item.take.recording),
            found.of_tests(lambda item: item.take.recording),
            found.target,
            strict=True,
        )
    }
    assert pairs == {
        ("a1", "a2"): True, ("a2", "a1"): True, ("a1", "b1"): False, ("a2", "b1"): False, ("a1", "d1"): False,
        ("a2", "d1"): False, ("b1", "a1"): False, ("b1", "a2"): False, ("d1", "a1"): False, ("d1", "a2"): False,
    }  # fmt: skip


def test_unclean_sides_share_their_room_and_noise_so_these_do_not_give_the_stranger_away() -> None:
    voices = [f"v{number}" for number in range(24)]
    data = [cut(name, name, unit(1, number), condition=Condition.UNCLEAN) for number, name in enumerate(voices)]
    found = compare([single(item) for item in data], data)
    assert len(found.score) > 0
    assert all(
        found.of_references(lambda item: scene_of(item.take.voice))
        == found.of_tests(lambda item: scene_of(item.take.voice))
    )
    assert {scene_of(name) for name in voices} == set(range(SCENES))


def test_halves_of_one_recording_are_compared_in_one_direction_alone() -> None:
    first = cut("a", "a#0", unit(1, 0), set_name=HALVED, half=0)
    second = cut("a", "a#1", unit(1, 0), set_name=HALVED, half=1)
    found = compare([single(first), single(second)], [first, second])
    assert (len(found.score), bool(found.target[0])) == (1, True)


def test_several_clips_are_averaged_as_directions_and_never_met_by_their_own_recordings() -> None:
    clips = [cut("a", f"a{n}", unit(1, n)) for n in range(3)] + [cut("b", "b0", unit(-1, 0))]
    references = several(clips, 2)
    assert [sorted(item.recordings) for item in references] == [["a0", "a1"], ["a0", "a2"], ["a1", "a2"]]
    assert float(np.linalg.norm(references[0].vector)) == pytest.approx(1.0)
    assert references[0].speech_s == 4.0
    found = compare(references, clips)
    assert np.count_nonzero(found.target) == 3
    loud = averaged([clips[0], clips[1]]).vector
    assert loud == pytest.approx(unit(*(unit(1, 0) + unit(1, 1))))


def test_conditions_and_durations_weigh_alike_and_a_set_by_its_voices() -> None:
    data = [cut(f"v{n}", f"v{n}.{k}", unit(1, n)) for n in range(4) for k in range(2)]
    data += [cut("v0", "v0.long", unit(1, 0), seconds=5.0), cut("v1", "v1.long", unit(1, 1), seconds=5.0)]
    found = compare([single(item) for item in data], data)
    weight = found.weights()
    assert weight[found.target].sum() == pytest.approx(1.0)
    assert weight[~found.target].sum() == pytest.approx(1.0)
    _, cell = found.cells()
    impostors = [weight[~found.target & (cell == number)].sum() for number in np.unique(cell[~found.target])]
    assert impostors == pytest.approx([1.0 / len(impostors)] * len(impostors))


def test_thinning_keeps_every_kind_of_trial() -> None:
    data = [cut(f"v{n}", f"v{n}.{k}", unit(1, n)) for n in range(6) for k in range(3)]
    found = compare([single(item) for item in data], data)
    thin = found.thinned(seed=0, most=10)
    assert np.count_nonzero(thin.target) == 10
    assert np.count_nonzero(~thin.target) == 10


# --- calibration ----------------------------------------------------------------------------------------------------


def simulated(development: bool, seed: int) -> Trials:
    """Cosines of people whose scores scatter more the less they say."""
    random = np.random.default_rng(seed)
    seconds = (0.5, 1.0, 2.0, 4.0)
    references, tests, columns = [], [], ([], [], [], [])  # type: ignore[var-annotated]
    for index, reference_s in enumerate(seconds):
        references.append(single(cut("a", f"r{reference_s}", unit(1, 0), reference_s, development=development)))
        tests.append(cut("a", f"t{reference_s}", unit(1, 0), reference_s, development=development))
        for other, test_s in enumerate(seconds):
            spread = 0.08 + 0.05 / test_s + 0.03 / reference_s
            for target, mean in ((True, 0.7), (False, 0.1)):
                count = 3_000
                values = (np.full(count, index), np.full(count, other), random.normal(mean, spread, count))
                for column, value in zip(columns, (*values, np.full(count, target)), strict=True):
                    column.append(value)
    one, two, score, target = (np.concatenate(column) for column in columns)
    return Trials(references, tests, one, two, score, target.astype(bool))


@pytest.fixture(scope="module")
def thresholds() -> SituationThresholds:
    content = speaker_calibration.fit(simulated(True, 0))
    return SituationThresholds(
        tuple(content["reference_s"]), tuple(content["test_s"]),
        *(tuple(content[name]) for name in ("llr", "owner_llr", "other_llr")),
    )  # fmt: skip


def test_stated_share_of_strangers_is_taken_for_the_owner_at_every_duration(thresholds: SituationThresholds) -> None:
    fresh = simulated(False, 1)
    owner = speaker_calibration.verdicts(fresh, thresholds)[SpeakerVerdict.OWNER]
    cells, cell = fresh.cells()
    for number, seconds in enumerate(cells):
        share = owner[(cell == number) & ~fresh.target].mean()
        assert share < 0.02, seconds
        if max(seconds) <= 1.0:
            assert share > 0.004, seconds


def test_long_spans_are_not_owned_on_evidence_against_the_owner(thresholds: SituationThresholds) -> None:
    _, owner_at, other_below = thresholds.verdict(0.0, 4.0, 4.0)
    assert other_below == pytest.approx(owner_at, abs=0.05)
    assert thresholds.log_likelihood_ratio(owner_at, 4.0, 4.0) >= -1e-9
    assert owner_at == pytest.approx(0.4, abs=0.06)


def test_fitted_ratio_costs_hardly_more_than_the_best_of_the_fresh_scores(thresholds: SituationThresholds) -> None:
    fresh = simulated(False, 1)
    ratio = speaker_calibration.llrs(fresh, thresholds)
    assert cllr(ratio, fresh.target) < min_cllr(ratio, fresh.target) + 0.02
    one = thresholds.log_likelihood_ratio(float(fresh.score[0]), 0.5, 0.5)
    assert one == pytest.approx(float(ratio[0]), abs=1e-6)


def test_bound_is_quadratic_in_both_logarithms() -> None:
    assert bound_terms(2.0, 3.0) == (1.0, 2.0, 3.0, 6.0, 4.0, 9.0)


@pytest.mark.parametrize(("share", "wanted"), [(0.0, 1.0), (0.25, 1.0), (0.26, 5.0), (1.0, 5.0)])
def test_quantile_counts_weight_not_values(share: float, wanted: float) -> None:
    assert speaker_calibration.quantile(np.array([5.0, 1.0]), np.array([3.0, 1.0]), share) == wanted


# --- cuts -----------------------------------------------------------------------------------------------------------


@dataclass
class LoudnessEar:
    """Embeds a stretch as its mean and its level, and counts."""

    model: ModelId = field(default_factory=lambda: ModelId("loudness", "0"))
    thresholds: Uncalibrated = field(default_factory=Uncalibrated)
    dimension: int = 2
    min_samples: int = RATE // 2
    asked: int = 0

    def track(self, audio: Audio) -> _LoudnessTrack:
        return _LoudnessTrack(self, audio)


@dataclass
class _LoudnessTrack:
    ear: LoudnessEar
    audio: Audio

    def embed(self, span: Span) -> Embedding:
        self.ear.asked += 1
        part = self.audio[span.start_sample : span.end_sample]
        if part.size < self.ear.min_samples:
            return Embedding(None, span, "too short")
        return Embedding(unit(float(np.std(part)), float(np.abs(part).max())), span)

    def changes(self) -> tuple[int, ...]:
        return ()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("people")
    rows = ["path\tset\tspeaker\ttranscript\tcondition\tduration_s\tsample_rate\tsource_repo\tlicense\tnote"]
    random = np.random.default_rng(0)

    def add(path: str, name: str, speaker: str, seconds: float, condition: str = "near", note: str = "") -> None:
        (root / "audio" / path).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(root / "audio" / path, 0.1 * random.standard_normal(round(seconds * RATE)), RATE)
        rows.append(f"{path}\t{name}\t{speaker}\t\t{condition}\t{seconds}\t16000\t\t\t{note}")

    for speaker in ("R_1", "R_2", "R_3"):
        for number in range(2):
            add(f"alphanumeric/{speaker}/{number}.flac", "alphanumeric", speaker, 2.5, note="Female; Laptop")
    add("librispeech_cohort/1/a.flac", HALVED, "1", 4.0)
    add("eagle/falcon/test.flac", "eagle", "falcon", 2.0, condition="near, multi-speaker")
    for stem in ("city", "train"):
        add(f"noise/x/{stem}.flac", "noise", "x", 3.0, condition="noise")
    (root / "audio" / "alphanumeric" / "suspect_same_voice.tsv").write_text(
        "cluster\tresponse_id\nc1\tR_1\nc1\tR_2\n", encoding="utf-8"
    )
    (root / "audio" / "manifest.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return root


def test_takes_say_who_may_be_one_person_and_leave_out_recordings_of_several(folder: Path) -> None:
    found = takes(folder)
    assert {item.speaker: item.voice for item in found} == {"R_1": "c1", "R_2": "c1", "R_3": "R_3", "1": "1"}
    assert [item.half for item in found if item.set_name == HALVED] == [0, 1]
    assert {(item.sex, item.device) for item in found if item.set_name == "alphanumeric"} == {("Female", "Laptop")}
    first, second = (item.read() for item in found if item.set_name == HALVED)
    assert abs(first.size - second.size) <= 1
    assert not np.array_equal(first, second)


def test_cuts_are_embedded_once_and_the_same_when_read_back(folder: Path, tmp_path: Path) -> None:
    ear, chosen = LoudnessEar(), takes(folder)
    conditions = (Condition.CLEAN, Condition.SNR_0)
    made = cuts(ear, "k", chosen, folder, conditions, tmp_path)
    asked = ear.asked
    again = cuts(ear, "k", chosen, folder, conditions, tmp_path)
    assert ear.asked == asked
    assert [(item.take, item.condition, item.nominal_s, item.duration_s) for item in again] == [
        (item.take, item.condition, item.nominal_s, item.duration_s) for item in made
    ]
    assert all(np.array_equal(one.vector, two.vector) for one, two in zip(made, again, strict=True))
    cuts(ear, "other-weights", chosen, folder, conditions, tmp_path)
    assert ear.asked > asked


def test_cuts_of_equal_length_are_compared_by_set_and_half(folder: Path) -> None:
    data = speaker_calibration.pieces(LoudnessEar(), folder)
    at = speaker_calibration.GRID_S.index(2.0)
    halves = [speaker_calibration.scores(data, at, at, development=half) for half in (True, False)]
    targets = [half[0].get("alphanumeric", np.zeros(0)) for half in halves]
    assert sum(map(len, targets)) == 6, "three people with two recordings, in both directions"
    assert {name for target, impostor in halves for name in (*target, *impostor)} <= {"alphanumeric", HALVED}


def test_take_too_short_for_a_duration_or_an_ear_gives_no_cut_of_it(folder: Path) -> None:
    found = cuts(LoudnessEar(), "k", takes(folder, ("alphanumeric",)), folder, (Condition.CLEAN,), None)
    assert {item.nominal_s for item in found} == {0.5, 0.8, 1.0, 1.2, 2.0, WHOLE_S}
    assert all(item.duration_s == item.nominal_s for item in found if item.nominal_s != WHOLE_S)


def test_every_ear_is_given_the_same_stretches() -> None:
    assert dict(spans("a", 10 * RATE)) == dict(spans("a", 10 * RATE))
    assert dict(spans("a", 10 * RATE)) != dict(spans("b", 10 * RATE))
    assert all(span.end_sample <= 3 * RATE for _, span in spans("a", 3 * RATE))


@pytest.mark.parametrize("condition", [Condition.SNR_20, Condition.SNR_0])
def test_noise_lies_as_far_below_the_speech_as_stated(folder: Path, condition: Condition) -> None:
    random = np.random.default_rng(1)
    speech = (0.1 * random.standard_normal(2 * RATE)).astype(np.float32)
    wanted = {Condition.SNR_20: 20.0, Condition.SNR_0: 0.0}[condition]
    noise = random.standard_normal(2 * RATE)
    added = mixed(speech.astype(np.float64), noise, wanted) - speech
    assert 10 * np.log10(np.mean(speech.astype(np.float64) ** 2) / np.mean(added**2)) == pytest.approx(wanted, abs=0.1)
    heard = Scenes(folder, development=True).render(speech, condition, "v", "r")
    assert heard.shape == speech.shape
    assert np.mean(heard**2) == pytest.approx(np.mean(speech.astype(np.float64) ** 2), rel=1e-3)


def test_scene_depends_on_names_alone_so_a_resumed_run_hears_the_same(folder: Path) -> None:
    speech = (0.1 * np.random.default_rng(1).standard_normal(RATE)).astype(np.float32)
    one, two = Scenes(folder, development=True), Scenes(folder, development=True)
    two.render(speech, Condition.SNR_5, "w", "another")
    first = one.render(speech, Condition.SNR_5, "v", "r")
    assert np.array_equal(first, two.render(speech, Condition.SNR_5, "v", "r"))
    assert not np.array_equal(first, Scenes(folder, development=False).render(speech, Condition.SNR_5, "v", "r"))


def test_figures_and_thresholds_never_rest_on_voices_that_the_network_was_trained_on() -> None:
    trained = take("a", "a1", development=True, source=Recording(Path("a"), "s", "a", "", 1.0, Part.TRAIN))
    chosen_by = take("b", "b1", development=True, source=Recording(Path("b"), "s", "b", "", 1.0, Part.DEV))
    tested = take("c", "c1", source=Recording(Path("c"), "s", "c", "", 1.0, Part.TRAIN))
    everyone = [trained, chosen_by, tested]
    assert speaker_ears.NamedEar("x", "0", LoudnessEar(), trained_here=True).unknown(everyone) == [chosen_by, tested]
    assert speaker_ears.NamedEar("x", "0", LoudnessEar()).unknown(everyone) == everyone


# --- report ---------------------------------------------------------------------------------------------------------


def test_report_sets_ears_side_by_side_with_trials_and_intervals() -> None:
    random = np.random.default_rng(0)
    data = [
        Cut(
            take(f"v{n}", f"v{n}.{k}", sex="Female" if n % 2 else "Male", device="Laptop"), Condition.CLEAN, seconds,
            seconds, unit(*(np.eye(6)[n] + 0.2 * random.standard_normal(6))),
        )
        for n in range(6)
        for k in range(3)
        for seconds in (1.2, 2.0, 3.0, WHOLE_S)
    ]  # fmt: skip
    named = speaker_ears.NamedEar("ear", "0" * 64, LoudnessEar())
    lines = speaker_report.report([(named, data), (named, data)], [])
    row = next(line for line in lines if line.startswith("| 2 s |"))
    assert row.count(" to ") == 6
    assert "36 / 270 | 6" in row
    women = next(line for line in lines if line.startswith("| women, 2 s"))
    assert "18 / 54 | 3" in women
    assert next(line for line in lines if line.startswith("| measured room, 2 s")).count("| - ") == 6
    two = next(line for line in lines if line.startswith("| self-recorded: 2 of up to 6 s, span 2 s"))
    assert "18 / 270" in two


def test_corpus_and_takes_are_read_in_one_order(folder: Path) -> None:
    found = [item.source.path for item in takes(folder, ("alphanumeric",))]
    assert found == [item.path for item in corpus.recordings(folder) if item.set_name == "alphanumeric"]
