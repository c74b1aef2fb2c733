"""Speaker ears: the same voice is known again, another one is not, and where nothing can be told nothing is said."""

from __future__ import annotations

import json
import math
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.session import ENROLMENT, OwnerMode, OwnerReference, SessionState, judge_speaker
from gate.evidence import DistanceVerdict, SpeakerVerdict
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, Embedding, ModelId, SpeakerEar, SpeakerThresholds
from models.speaker_audio import unfit
from models.speaker_calibration import (
    CalibrationError,
    Situation,
    SpeakerCalibration,
    Uncalibrated,
    in_situation,
    shipped,
)
from models.speaker_campplus import CampPlusEar, load
from models.speaker_changes import MIN_SIDE_SAMPLES, Contrast, find_changes
from models.store import Store
from models.store_errors import ModelError

RATE = SAMPLE_RATE_HZ
ROOT = Path(__file__).parent.parent
DEMO = ROOT / "bench" / "demo"
CALIBRATION = ROOT / "models" / "weights" / "speaker_campplus_calibration.json"

ODD = {
    "nothing": np.zeros(0),
    "one sample": np.full(1, 0.5),
    "ten milliseconds": np.full(160, 0.1),
    "a tenth of a second": np.full(1_600, 0.1),
    "zeros": np.zeros(RATE),
    "a number that is none": np.where(np.arange(RATE) == 77, np.nan, 0.1),
    "infinite": np.full(RATE, np.inf),
    "clipped hard": np.sign(np.sin(np.arange(RATE) / 9.0)),
    "two channels": np.zeros((RATE, 2)),
}
"""Audio that says nothing about a voice."""


# --- CAM++, the default ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ear() -> CampPlusEar:
    try:
        return load(Store(offline=True), threads=2)
    except ModelError as error:
        pytest.skip(f"no speaker model here: {error}")


@pytest.fixture(scope="module")
def scene() -> tuple[Audio, list[dict[str, Any]]]:
    audio, rate = soundfile.read(DEMO / "demo.flac", dtype="float32")
    assert rate == RATE
    return audio, json.loads((DEMO / "demo.json").read_text(encoding="utf-8"))["segments"]


def span_of(segment: dict[str, Any]) -> Span:
    return Span.from_seconds(segment["start"], segment["end"])


def pieces(scene: tuple[Audio, list[dict[str, Any]]], speaker: str) -> list[Audio]:
    audio, segments = scene
    spans = [span_of(s) for s in segments if s["speaker"] == speaker and s["mask"] is None]
    return [audio[span.start_sample : span.end_sample] for span in spans]


def cosine(ear: SpeakerEar, one: Audio, two: Audio) -> float:
    vectors = [ear.track(audio).embed(Span(0, audio.size)).vector for audio in (one, two)]
    assert vectors[0] is not None
    assert vectors[1] is not None
    return float(np.dot(vectors[0], vectors[1]))


@pytest.mark.slow
def test_wearer_is_known_again_and_the_bystander_saying_the_same_is_not_her(
    ear: CampPlusEar, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    wearer, bystander = pieces(scene, "A"), pieces(scene, "B")
    reference = wearer[0]
    for other in wearer[1:]:
        verdict, *_ = ear.thresholds.verdict(cosine(ear, reference, other), reference.size / RATE, other.size / RATE)
        assert verdict is SpeakerVerdict.OWNER
    for stranger in bystander:
        verdict, *_ = ear.thresholds.verdict(
            cosine(ear, reference, stranger), reference.size / RATE, stranger.size / RATE
        )
        assert verdict is SpeakerVerdict.OTHER


def test_embedding_has_unit_norm_and_the_stated_width(
    ear: CampPlusEar, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    audio = pieces(scene, "A")[0]
    embedding = ear.track(audio).embed(Span(0, audio.size))
    assert embedding.vector is not None
    assert embedding.vector.shape == (ear.dimension,) == (192,)
    assert embedding.vector.dtype == np.float32
    assert float(np.linalg.norm(embedding.vector)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("kind", ODD)
def test_odd_audio_gives_no_embedding_a_reason_and_no_change(ear: CampPlusEar, kind: str) -> None:
    audio = ODD[kind].astype(np.float32)
    track = ear.track(audio)
    embedding = track.embed(Span(0, len(audio)))
    assert embedding.vector is None
    assert embedding.note
    assert track.changes() == ()


@pytest.mark.parametrize("samples", [6_400, 6_401, 6_559, 32_000, 32_001, 32_320])
def test_every_length_from_the_minimum_on_gives_a_finite_embedding(ear: CampPlusEar, samples: int) -> None:
    audio = (0.1 * np.random.default_rng(2).standard_normal(samples)).astype(np.float32)
    vector = ear.track(audio).embed(Span(0, samples)).vector
    assert vector is not None
    assert np.isfinite(vector).all()


def test_span_sees_nothing_of_its_neighbours_so_a_bystander_gains_nothing_by_speaking_after_the_owner(
    ear: CampPlusEar, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    owner, bystander = pieces(scene, "A")[0], pieces(scene, "B")[0]
    together = np.concatenate([owner, bystander])
    alone = ear.track(bystander).embed(Span(0, bystander.size)).vector
    within = ear.track(together).embed(Span(owner.size, together.size)).vector
    assert alone is not None
    assert within is not None
    assert np.array_equal(alone, within)


def test_same_audio_gives_the_same_embedding_after_other_audio(
    ear: CampPlusEar, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    one, two = pieces(scene, "A")[:2]
    before = ear.track(one).embed(Span(0, one.size)).vector
    ear.track(two).embed(Span(0, two.size))
    after = ear.track(one).embed(Span(0, one.size)).vector
    assert before is not None
    assert after is not None
    assert np.array_equal(before, after)


@pytest.mark.parametrize("frames", [1, 160, 320, 7_001])
def test_audio_that_came_in_chunks_of_any_size_gives_the_same_embedding(
    ear: CampPlusEar, scene: tuple[Audio, list[dict[str, Any]]], frames: int
) -> None:
    audio = pieces(scene, "A")[0][: 2 * RATE]
    gathered = np.concatenate([audio[start : start + frames] for start in range(0, audio.size, frames)])
    strided = np.stack([audio, -audio], axis=1)[:, 0]
    wanted = ear.track(audio).embed(Span(0, audio.size)).vector
    assert wanted is not None
    for same in (gathered, strided):
        assert np.array_equal(ear.track(same).embed(Span(0, audio.size)).vector, wanted)


def test_number_of_threads_does_not_change_an_embedding_beyond_rounding(
    ear: CampPlusEar, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    audio = pieces(scene, "A")[0][: 2 * RATE]
    alone = load(Store(offline=True), threads=1).track(audio).embed(Span(0, audio.size)).vector
    both = ear.track(audio).embed(Span(0, audio.size)).vector
    assert alone is not None
    assert both is not None
    assert float(np.abs(alone - both).max()) < 1e-5


def test_level_hardly_moves_an_embedding(ear: CampPlusEar, scene: tuple[Audio, list[dict[str, Any]]]) -> None:
    audio = pieces(scene, "A")[0]
    assert cosine(ear, audio, audio * np.float32(0.1)) > 0.999


def test_span_beyond_the_audio_is_embedded_as_far_as_it_goes(
    ear: CampPlusEar, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    audio = pieces(scene, "A")[0]
    track = ear.track(audio)
    assert track.embed(Span(0, audio.size + RATE)).span == Span(0, audio.size)
    assert track.embed(Span(audio.size + 5, audio.size + RATE)).vector is None


@pytest.mark.parametrize("gap_s", [0.0, 0.3])
def test_change_of_voice_is_found_with_and_without_a_pause(
    ear: CampPlusEar, scene: tuple[Audio, list[dict[str, Any]]], gap_s: float
) -> None:
    owner, bystander = pieces(scene, "A")[1], pieces(scene, "B")[0]
    random = np.random.default_rng(0)
    gap = (1e-3 * random.standard_normal(round(gap_s * RATE))).astype(np.float32)
    together = np.concatenate([owner, gap, bystander * np.float32(2.0)])
    [change] = ear.track(together).changes()
    assert owner.size - 0.35 * RATE <= change <= owner.size + gap.size + 0.35 * RATE


def test_one_persons_talk_is_not_split_though_her_level_changes(
    ear: CampPlusEar, scene: tuple[Audio, list[dict[str, Any]]]
) -> None:
    audio = np.concatenate(pieces(scene, "A")[:2])
    louder = np.where(np.arange(audio.size) < audio.size // 2, 0.5, 1.0)
    assert ear.track((audio * louder).astype(np.float32)).changes() == ()


def test_ear_satisfies_the_protocol(ear: CampPlusEar) -> None:
    typed: SpeakerEar = ear
    assert typed.model.name == "campplus-onnx"
    assert typed.min_samples == 6_400


@pytest.mark.slow
def test_live_speaker_ear_loads_neither_torch_nor_transformers(ear: CampPlusEar) -> None:
    code = (
        "import sys, numpy\n"
        "from gate.span import Span\n"
        "from models.speaker_campplus import load\n"
        "from models.store import Store\n"
        "audio = numpy.random.default_rng(0).standard_normal(32000).astype('f4') * 0.1\n"
        "track = load(Store(offline=True), 1).track(audio)\n"
        "assert track.embed(Span(0, 32000)).vector is not None\n"
        "track.changes()\n"
        "assert not {'torch', 'torchaudio', 'transformers', 'speechbrain'} & set(sys.modules), 'heavy import'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)


@pytest.mark.slow
def test_exported_network_computes_what_the_published_architecture_does(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from models.campplus import CamPlusPlus
    from models.export_campplus import build
    from models.fbank import kaldi_fbank

    torch.manual_seed(0)
    network = CamPlusPlus()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.5, 2.0)
    network.eval()
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    torch.save(network.state_dict(), tmp_path / "in" / "campplus_cn_en_common.pt")
    stages: list[str] = []
    build({"campplus": tmp_path / "in"}, tmp_path / "out", stages.append)
    assert stages
    ear = CampPlusEar(tmp_path / "out", ModelId("random", "0"), Uncalibrated(), threads=1)
    audio = (0.1 * np.random.default_rng(0).standard_normal(40_321)).astype(np.float32)
    fbank = torch.from_numpy(kaldi_fbank(audio))[None]
    with torch.inference_mode():
        wanted = network(fbank - fbank.mean(1, keepdim=True))[0].numpy()
    found = ear.track(audio).embed(Span(0, audio.size)).vector
    assert found is not None
    assert np.abs(found - wanted / np.linalg.norm(wanted)).max() < 1e-4


@pytest.mark.slow
def test_network_gives_an_input_the_same_embedding_alone_and_in_a_batch() -> None:
    torch = pytest.importorskip("torch")
    from models.campplus import CamPlusPlus

    torch.manual_seed(0)
    network = CamPlusPlus().eval()
    fbank = torch.randn(3, 160, 80)
    with torch.inference_mode():
        together = network(fbank)
        alone = torch.cat([network(one[None]) for one in fbank])
    assert float((together - alone).abs().max()) < 1e-4


# --- what every ear shares ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gain_db", "refused"), [(-40.0, False), (0.0, False), (3.0, False), (20.0, True)], ids=lambda value: str(value)
)
def test_overdriven_microphone_is_refused_and_a_merely_loud_one_is_not(gain_db: float, refused: bool) -> None:
    speech = np.random.default_rng(0).laplace(0.0, 0.1, RATE)
    audio = np.clip(speech * 10 ** (gain_db / 20), -1.0, 1.0).astype(np.float32)
    assert bool(unfit(audio, 6_400)) is refused


def silence_and_sound(*sounding_s: tuple[float, float], total_s: float) -> Audio:
    random = np.random.default_rng(0)
    audio = 1e-3 * random.standard_normal(round(total_s * RATE))
    for start_s, end_s in sounding_s:
        audio[round(start_s * RATE) : round(end_s * RATE)] *= 100.0
    return audio.astype(np.float32)


def voices(*lengths_s: float) -> Contrast:
    """A measure that knows the truth: voices are labelled 0, 1, 0, ..., and sides compared by their share of 1."""
    label = np.concatenate([np.full(round(length * RATE), index % 2) for index, length in enumerate(lengths_s)])
    sums = np.concatenate([[0], np.cumsum(label)])

    def contrast(start: int, samples: np.ndarray, end: int) -> np.ndarray:
        left = (sums[samples] - sums[start]) / (samples - start)
        right = (sums[end] - sums[samples]) / (end - samples)
        return np.abs(left - right) - 0.6

    return contrast


def test_change_is_moved_into_the_pause_beside_it_so_no_word_is_cut() -> None:
    audio = silence_and_sound((0.0, 2.0), (2.2, 4.0), total_s=4.0)
    [change] = find_changes(audio, voices(1.95, 2.05), 800)
    assert 2.0 * RATE <= change <= 2.2 * RATE


def test_change_without_a_pause_stays_where_it_is_though_one_voice_is_quieter() -> None:
    audio = silence_and_sound((0.0, 4.0), total_s=4.0)
    audio[: 2 * RATE] *= 0.4
    [change] = find_changes(audio, voices(2.0, 2.0), 800)
    assert abs(change - 2 * RATE) <= 0.05 * RATE


def test_both_parts_are_searched_again_so_an_interruption_is_a_segment_of_its_own() -> None:
    audio = silence_and_sound((0.0, 7.0), total_s=7.0)
    found = find_changes(audio, voices(2.0, 4.0, 1.0), 1_600)
    assert [change / RATE for change in found] == pytest.approx([2.0, 6.0], abs=0.1)


def test_coarse_search_is_refined_so_a_slow_network_still_cuts_in_the_right_place() -> None:
    audio = silence_and_sound((0.0, 4.0), total_s=4.0)
    [change] = find_changes(audio, voices(1.77, 2.23), RATE // 4)
    assert abs(change - 1.77 * RATE) <= 0.1 * RATE


def test_one_voice_is_not_cut() -> None:
    assert find_changes(silence_and_sound((0.0, 4.0), total_s=4.0), voices(4.0), 1_600) == ()


def test_measure_that_cannot_tell_cuts_nothing() -> None:
    audio = silence_and_sound((0.0, 4.0), total_s=4.0)
    for unknown in (-np.inf, np.nan):
        assert find_changes(audio, lambda start, at, end, value=unknown: np.full(at.size, value), 1_600) == ()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 6 * RATE), st.integers(0, 2**32 - 1))
def test_segments_are_never_shorter_than_can_be_judged(samples: int, seed: int) -> None:
    audio = silence_and_sound((0.0, 10.0), total_s=samples / RATE)
    random = np.random.default_rng(seed)
    found = find_changes(audio, lambda start, at, end: random.uniform(-0.5, 1.0, at.size), 4_000)
    edges = [0, *found, audio.size]
    if len(edges) > 2:
        assert min(np.diff(edges)) >= MIN_SIDE_SAMPLES


# --- thresholds -----------------------------------------------------------------------------------------------------


def situation(**changes: Any) -> dict[str, Any]:
    """At every duration: 0.5 is as likely the owner's as not, owner from 0.6, other below 0.4."""
    return {
        "reference_s": [1.0, 8.0],
        "test_s": [0.5, 4.0],
        "llr": [-5.0, 0.0, 0.0, 0.0, 10.0, 0.0, 0.0, 0.0],
        "owner_llr": [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        "other_llr": [-1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        **changes,
    }


def content(**changes: Any) -> dict[str, Any]:
    return {"model": "m", "sha256": "s", "situations": {name: situation(**changes) for name in Situation}}


def test_verdict_has_three_ways_and_its_edges_belong_to_the_upper_one() -> None:
    thresholds: SpeakerThresholds = SpeakerCalibration.from_mapping(content())
    for score, wanted in ((0.6, "owner"), (0.599, "unsure"), (0.4, "unsure"), (0.399, "other"), (-1.0, "other")):
        verdict, owner_at, other_below = thresholds.verdict(score, 1.0, 1.0)
        assert verdict is SpeakerVerdict(wanted)
        assert (owner_at, other_below) == pytest.approx((0.6, 0.4))


def test_initiator_is_judged_by_thresholds_of_her_own_so_a_poor_reference_admits_no_more_strangers() -> None:
    stricter = {
        **content(),
        "situations": {"enrolled": situation(), "initiator": situation(owner_llr=[3.0] + [0.0] * 5)},
    }
    thresholds = SpeakerCalibration.from_mapping(stricter)
    assert thresholds.verdict(0.7, 2.0, 2.0)[0] is SpeakerVerdict.OWNER
    assert in_situation(thresholds, Situation.ENROLLED).verdict(0.7, 2.0, 2.0)[0] is SpeakerVerdict.OWNER
    assert in_situation(thresholds, Situation.INITIATOR).verdict(0.7, 2.0, 2.0)[0] is SpeakerVerdict.UNSURE


def test_owner_is_judged_by_how_she_became_one_so_a_first_turn_is_no_enrolment() -> None:
    strict = situation(owner_llr=[3.0] + [0.0] * 5)
    thresholds = SpeakerCalibration.from_mapping(
        {**content(), "situations": {"enrolled": situation(), "initiator": strict}}
    )
    model, span = ModelId("m", "s"), Span(0, 2 * RATE)
    reference = np.array([1.0, 0.0], np.float32)
    heard = Embedding(np.array([0.7, math.sqrt(0.51)], np.float32), span)
    for origin, verdict, owner_at in ((ENROLMENT, SpeakerVerdict.OWNER, 0.6), ("t0001", SpeakerVerdict.UNSURE, 0.8)):
        state = SessionState(OwnerReference(reference, 2.0, model, origin))
        evidence, after = judge_speaker(
            state, OwnerMode.INITIATOR, thresholds, heard, span, DistanceVerdict.NEAR, model, "t0002"
        )
        assert evidence.verdict is verdict
        assert evidence.owner_at == pytest.approx(owner_at)
        assert after is state


def test_thresholds_shown_before_there_is_an_owner_are_those_she_will_be_held_against() -> None:
    strict = situation(owner_llr=[3.0] + [0.0] * 5)
    thresholds = SpeakerCalibration.from_mapping(
        {**content(), "situations": {"enrolled": situation(), "initiator": strict}}
    )
    unknown, span = Embedding(None, Span(0, RATE), "too short"), Span(0, RATE)
    for mode, owner_at in ((OwnerMode.ENROLLED, 0.6), (OwnerMode.INITIATOR, 0.8)):
        evidence, _ = judge_speaker(
            SessionState(), mode, thresholds, unknown, span, DistanceVerdict.NEAR, ModelId("m", "s"), "t0001"
        )
        assert evidence.verdict is SpeakerVerdict.UNSURE
        assert evidence.owner_at == pytest.approx(owner_at)


def test_thresholds_that_know_no_situations_serve_in_both() -> None:
    plain = Uncalibrated()
    assert all(in_situation(plain, one) is plain for one in Situation)


def test_score_that_speaks_against_the_owner_is_never_hers_however_few_strangers_reach_it() -> None:
    lenient = SpeakerCalibration.from_mapping(content(owner_llr=[-3.0] + [0.0] * 5, other_llr=[2.0] + [0.0] * 5))
    verdict, owner_at, other_below = lenient.verdict(0.45, 2.0, 2.0)
    assert (owner_at, other_below) == pytest.approx((0.5, 0.5))
    assert verdict is SpeakerVerdict.OTHER


@given(st.floats(-1.0, 1.0), st.floats(0.3, 9.0), st.floats(0.3, 9.0))
def test_verdict_agrees_with_the_likelihood_ratio_that_it_follows_from(
    score: float, reference_s: float, test_s: float
) -> None:
    part = SpeakerCalibration.from_mapping(
        content(llr=[-6.0, 0.3, -0.4, 0.1, 12.0, 1.0, 2.0, 0.2], owner_llr=[2.0, 0.1, -0.3, 0.0, 0.05, -0.1])
    ).enrolled
    _, owner_at, other_below = part.verdict(score, reference_s, test_s)
    assert other_below <= owner_at
    at_threshold = part.log_likelihood_ratio(owner_at, reference_s, test_s)
    assert part.log_likelihood_ratio(score, reference_s, test_s) >= at_threshold or score < owner_at
    assert at_threshold >= 0.0


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_score_that_is_no_number_is_unsure_so_it_never_opens_the_gate(score: float) -> None:
    assert SpeakerCalibration.from_mapping(content()).verdict(score, 2.0, 2.0)[0] is SpeakerVerdict.UNSURE


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_no_speech_behind_a_score_is_unsure(seconds: float) -> None:
    verdict, owner_at, other_below = SpeakerCalibration.from_mapping(content()).verdict(0.99, 2.0, seconds)
    assert verdict is SpeakerVerdict.UNSURE
    assert math.isfinite(owner_at)
    assert math.isfinite(other_below)


def test_durations_beyond_the_calibrated_ones_are_judged_as_the_nearest() -> None:
    calibration = SpeakerCalibration.from_mapping(content(llr=[-5.0, 0.5, 0.5, 0.0, 10.0, 1.0, 1.0, 0.0]))
    assert calibration.verdict(0.0, 0.1, 0.1)[1:] == calibration.verdict(0.0, 1.0, 0.5)[1:]
    assert calibration.verdict(0.0, 60.0, 60.0)[1:] == calibration.verdict(0.0, 8.0, 4.0)[1:]
    assert calibration.verdict(0.0, 1.0, 0.5)[1:] != calibration.verdict(0.0, 8.0, 4.0)[1:]


def test_threshold_that_no_cosine_reaches_is_a_number_that_every_log_can_hold() -> None:
    unreachable = SpeakerCalibration.from_mapping(
        content(owner_llr=[900.0] + [0.0] * 5, other_llr=[-900.0] + [0.0] * 5)
    )
    verdict, owner_at, other_below = unreachable.verdict(1.0, 2.0, 2.0)
    assert verdict is SpeakerVerdict.UNSURE
    assert other_below < -1.0 < 1.0 < owner_at
    json.dumps([owner_at, other_below], allow_nan=False)


@pytest.mark.parametrize(
    "broken",
    [
        {"reference_s": [1.0]},
        {"test_s": [4.0, 0.5]},
        {"reference_s": [0.0, 1.0]},
        {"llr": [0.0] * 7},
        {"llr": [-5.0, 0.0, 0.0, 0.0, 1.0, 0.0, -2.0, 0.0]},
        {"owner_llr": [math.nan] * 6},
        {"other_llr": "high"},
    ],
)
def test_calibration_that_contradicts_itself_is_refused(tmp_path: Path, broken: dict[str, Any]) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps(content(**broken)), encoding="utf-8")
    with pytest.raises(CalibrationError, match=r"c\.json"):
        SpeakerCalibration.read(path, "s")


@pytest.mark.parametrize("text", ["", "[]", "{}", "not json"])
def test_file_that_is_no_calibration_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CalibrationError, match=r"c\.json"):
        SpeakerCalibration.read(path, "s")


def test_thresholds_of_another_network_are_refused_so_copied_ones_never_admit_strangers(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps(content()), encoding="utf-8")
    assert SpeakerCalibration.read(path, "s").model == "m"
    with pytest.raises(CalibrationError, match="other-weigh"):
        SpeakerCalibration.read(path, "other-weights")


def test_shipped_calibration_belongs_to_the_checkpoint_that_the_registry_pins() -> None:
    registry = tomllib.loads((ROOT / "models" / "registry.toml").read_text(encoding="utf-8"))
    [file] = registry["models"]["campplus"]["files"]
    calibration = SpeakerCalibration.read(CALIBRATION, file["sha256"])
    for part in Situation:
        found = [calibration.of(part).verdict(0.0, 3.0, seconds)[1:] for seconds in (0.4, 0.5, 1.0, 2.0, 4.0, 6.0)]
        assert all(0.25 < owner_at < 0.65 for owner_at, _ in found)
        # The less there is to go by, the less is ruled out.
        assert [other_below for _, other_below in found] == sorted(other_below for _, other_below in found)


def test_network_without_calibration_never_says_owner() -> None:
    verdict, owner_at, other_below = Uncalibrated().verdict(1.0, 9.0, 9.0)
    assert verdict is SpeakerVerdict.UNSURE
    assert other_below < -1.0 < 1.0 < owner_at
    json.dumps([owner_at, other_below], allow_nan=False)


def test_network_whose_calibration_is_not_shipped_is_uncalibrated() -> None:
    assert shipped("nobody-made-this", "0").verdict(1.0, 9.0, 9.0)[0] is SpeakerVerdict.UNSURE


# --- SpeechBrain ----------------------------------------------------------------------------------------------------

HYPERPARAMETERS = """\
# As published: files are named by the repository on the hub.
pretrained_path: nobody/no-such-repository
compute_features: !new:speechbrain.lobes.features.Fbank
    n_mels: 20
mean_var_norm: !new:speechbrain.processing.features.InputNormalization
    norm_type: sentence
    std_norm: False
embedding_model: !new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN
    input_size: 20
    channels: [16, 16, 16, 16, 48]
    kernel_sizes: [5, 3, 3, 3, 1]
    dilations: [1, 2, 3, 4, 1]
    groups: [1, 1, 1, 1, 1]
    attention_channels: 8
    lin_neurons: 24
classifier: !new:speechbrain.lobes.models.ECAPA_TDNN.Classifier
    input_size: 24
    out_neurons: 3
modules:
    compute_features: !ref <compute_features>
    mean_var_norm: !ref <mean_var_norm>
    embedding_model: !ref <embedding_model>
    classifier: !ref <classifier>
pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
    loadables:
        embedding_model: !ref <embedding_model>
        classifier: !ref <classifier>
    paths:
        embedding_model: !ref <pretrained_path>/embedding_model.ckpt
        classifier: !ref <pretrained_path>/classifier.ckpt
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    torch = pytest.importorskip("torch")
    ecapa = pytest.importorskip("speechbrain.lobes.models.ECAPA_TDNN")
    directory = tmp_path_factory.mktemp("ecapa")
    (directory / "hyperparams.yaml").write_text(HYPERPARAMETERS, encoding="utf-8")
    torch.manual_seed(0)
    network = ecapa.ECAPA_TDNN(
        20, channels=[16, 16, 16, 16, 48], kernel_sizes=[5, 3, 3, 3, 1], dilations=[1, 2, 3, 4, 1],
        groups=[1, 1, 1, 1, 1], attention_channels=8, lin_neurons=24,
    )  # fmt: skip
    torch.save(network.state_dict(), directory / "embedding_model.ckpt")
    torch.save(ecapa.Classifier(24, out_neurons=3).state_dict(), directory / "classifier.ckpt")
    yield directory
    # SpeechBrain leaves stand-ins among the modules that raise when looked at, as hypothesis does in later tests.
    for name in [name for name in sys.modules if name.partition(".")[0] == "speechbrain"]:
        del sys.modules[name]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("went to the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def speechbrain_ear(published: Path, no_network: None) -> Callable[..., Any]:
    from models.speaker_speechbrain import SpeechBrainEar

    return lambda **options: SpeechBrainEar(published, ModelId("tiny", "0"), **options)


@pytest.mark.slow
def test_speechbrain_network_loads_from_its_directory_alone_and_leaves_nothing_behind(
    published: Path, speechbrain_ear: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(published.iterdir())
    ear: SpeakerEar = speechbrain_ear()
    audio = (0.1 * np.random.default_rng(0).standard_normal(2 * RATE)).astype(np.float32)
    embedding = ear.track(audio).embed(Span(0, audio.size))
    assert embedding.vector is not None
    assert embedding.vector.shape == (ear.dimension,) == (24,)
    assert float(np.linalg.norm(embedding.vector)) == pytest.approx(1.0, abs=1e-5)
    assert sorted(published.iterdir()) == before
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_speechbrain_gives_no_embedding_and_a_reason_for_odd_audio(speechbrain_ear: Callable[..., Any]) -> None:
    ear = speechbrain_ear()
    for kind, odd in ODD.items():
        audio = odd.astype(np.float32)
        track = ear.track(audio)
        embedding = track.embed(Span(0, len(audio)))
        assert embedding.vector is None, kind
        assert embedding.note, kind
        assert track.changes() == ()


@pytest.mark.slow
def test_speechbrain_embeds_a_clip_the_same_after_one_ten_times_as_long(speechbrain_ear: Callable[..., Any]) -> None:
    ear = speechbrain_ear()
    random = np.random.default_rng(0)
    short = (0.1 * random.standard_normal(RATE)).astype(np.float32)
    long = (0.1 * random.standard_normal(10 * RATE)).astype(np.float32)
    before = ear.track(short).embed(Span(0, short.size)).vector
    ear.track(long).embed(Span(0, long.size))
    joined = np.concatenate([short, long])
    assert np.array_equal(ear.track(short).embed(Span(0, short.size)).vector, before)
    assert np.array_equal(ear.track(joined).embed(Span(0, short.size)).vector, before)


@pytest.mark.slow
def test_speechbrain_splits_a_turn_only_where_its_thresholds_call_the_sides_strangers(
    speechbrain_ear: Callable[..., Any],
) -> None:
    steps = np.arange(RATE * 3 // 2)
    random = np.random.default_rng(0)
    low = 0.1 * np.sign(np.sin(steps * 2 * np.pi * 110 / RATE)) + 0.01 * random.standard_normal(steps.size)
    high = 0.1 * np.sin(steps * 2 * np.pi * 2_300 / RATE) + 0.01 * random.standard_normal(steps.size)
    one, two = low.astype(np.float32), high.astype(np.float32)
    audio = np.concatenate([one, two])
    ear = speechbrain_ear(threads=1)
    assert ear.track(audio).changes() == ()
    halves = (
        cosine(ear, one[: one.size // 2], one[one.size // 2 :]),
        cosine(ear, two[: two.size // 2], two[two.size // 2 :]),
    )
    between = (min(halves) + cosine(ear, one, two)) / 2
    assert min(halves) > between
    # Other below exactly the cosine that lies between one voice's and two voices'.
    strict = SpeakerCalibration.from_mapping(
        content(llr=[-10.0 * between, 0, 0, 0, 10.0, 0, 0, 0], other_llr=[0.0] * 6)
    )
    changes = speechbrain_ear(thresholds=strict, threads=1).track(audio).changes()
    assert min(abs(change - one.size) for change in changes) <= 0.25 * RATE


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["hyperparams.yaml", "embedding_model.ckpt"])
def test_missing_file_is_named_and_not_fetched(published: Path, no_network: None, tmp_path: Path, missing: str) -> None:
    from models.speaker_speechbrain import SpeechBrainEar, SpeechBrainLoadError

    for file in published.iterdir():
        if file.name != missing:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(SpeechBrainLoadError, match=missing.replace(".", r"\.")):
        SpeechBrainEar(tmp_path, ModelId("tiny", "0"))
