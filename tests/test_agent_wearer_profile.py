"""The wearer's profile: a wrong one is refused at the start, and no live turn ever changes it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agent.session import OwnerMode, OwnerReference, SessionState, judge_speaker
from agent.wearer_profile import ProfileError, average, load_profile, save_profile
from gate.evidence import DistanceVerdict, SpeakerVerdict
from gate.span import Span
from models.protocols import Embedding, ModelId
from tests.fake_models import FixedSpeakerThresholds

MODEL = ModelId("net", "a" * 64)


def unit(*values: float) -> np.ndarray:
    vector = np.array(values, np.float32)
    return vector / np.linalg.norm(vector)


REFERENCE = OwnerReference(unit(1, 2, 3), 6.0, MODEL, "enrolment")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "wearer.json"
    save_profile(path, "Ada", REFERENCE, 2)
    return path


def test_a_profile_comes_back_as_it_was(path: Path):
    loaded = load_profile(path, MODEL, 3)
    assert np.allclose(loaded.vector, REFERENCE.vector, atol=1e-6)
    assert (loaded.speech_s, loaded.model, loaded.origin) == (6.0, MODEL, "enrolment")


def test_a_profile_is_readable_by_its_owner_only(path: Path):
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": "other-net"}, "other-net"),
        ({"sha256": "b" * 64}, "enroll again"),
        ({"vector": [1.0, 0.0]}, "2 numbers"),
        ({"vector": [0.0, 0.0, 0.0]}, "unit vector"),
        ({"vector": [5.0, 0.0, 0.0]}, "unit vector"),
        ({"version": 99}, "version 99"),
        ({"extra": 1}, "not a profile"),
        ({"speech_s": "6"}, "not a profile"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused(path: Path, change: dict[str, object], named: str):
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ProfileError, match=named):
        load_profile(path, MODEL, 3)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"vector": NaN}'])
def test_a_damaged_profile_is_refused(path: Path, text: str):
    path.write_text(text)
    with pytest.raises(ProfileError, match="enroll again"):
        load_profile(path, MODEL, 3)


def test_a_nan_vector_is_refused(path: Path):
    path.write_text(path.read_text().replace(str(float(REFERENCE.vector[0])), "NaN"))
    with pytest.raises(ProfileError):
        load_profile(path, MODEL, 3)


def test_a_missing_profile_names_the_cure(tmp_path: Path):
    with pytest.raises(ProfileError, match="voicegate enroll"):
        load_profile(tmp_path / "none.json", MODEL, 3)


def test_a_failed_write_leaves_the_old_enrolment(path: Path, monkeypatch: pytest.MonkeyPatch):
    before = path.read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("agent.wearer_profile.os.fsync", full)
    with pytest.raises(ProfileError, match="not enrolled"):
        save_profile(path, "Eve", replace(REFERENCE, speech_s=9.0), 1)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_no_clip_counts_more_for_being_louder():
    loud = Embedding(np.array([100.0, 0.0], np.float32), Span(0, 1))
    quiet = Embedding(np.array([0.0, 0.01], np.float32), Span(0, 1))
    assert np.allclose(average([loud, quiet]), unit(1, 1))


def test_clips_that_cancel_out_are_refused():
    with pytest.raises(ProfileError, match="different voices"):
        average([Embedding(unit(1, 0), Span(0, 1)), Embedding(unit(-1, 0), Span(0, 1))])


def test_nothing_to_average_is_refused():
    with pytest.raises(ProfileError, match="no clip"):
        average([Embedding(None, Span(0, 1), "too short")])


# Who owns a session -----------------------------------------------------------------------------------------------

SPAN = Span(0, 48_000)


def judge(
    state: SessionState, vector: np.ndarray | None, distance: DistanceVerdict, mode: OwnerMode, turn: str = "t0001"
):
    embedding = Embedding(vector, SPAN, "" if vector is not None else "too short")
    return judge_speaker(state, mode, FixedSpeakerThresholds(), embedding, SPAN, distance, MODEL, turn)


def test_the_first_near_speaker_becomes_the_owner_and_stays_it():
    evidence, state = judge(SessionState(), unit(1, 0), DistanceVerdict.NEAR, OwnerMode.INITIATOR)
    assert evidence.verdict is SpeakerVerdict.OWNER
    reference = state.owner
    for vector in (unit(0, 1), unit(1, 0.2)):
        _, state = judge(state, vector, DistanceVerdict.NEAR, OwnerMode.INITIATOR)
    assert state.owner is reference, "a profile never learns from live turns"


@pytest.mark.parametrize("distance", [DistanceVerdict.FAR, DistanceVerdict.UNSURE])
def test_whoever_is_not_near_owns_nothing(distance: DistanceVerdict):
    evidence, state = judge(SessionState(), unit(1, 0), distance, OwnerMode.INITIATOR)
    assert evidence.verdict is SpeakerVerdict.UNSURE
    assert state.owner is None


NEAR, UNSURE, FAR = DistanceVerdict.NEAR, DistanceVerdict.UNSURE, DistanceVerdict.FAR
WEARER, BYSTANDER = unit(1, 0), unit(0, 1)


@pytest.mark.parametrize(
    ("heard", "owner"),
    [
        ([("1", WEARER, UNSURE), ("2", BYSTANDER, NEAR)], None),
        ([("1", WEARER, UNSURE), ("2", BYSTANDER, NEAR), ("2", BYSTANDER, NEAR)], None),
        ([("1", WEARER, UNSURE), ("1", BYSTANDER, NEAR)], None),
        ([("1", WEARER, UNSURE), ("2", BYSTANDER, NEAR), ("3", WEARER, UNSURE), ("4", BYSTANDER, NEAR)], None),
        ([("1", WEARER, UNSURE), ("2", WEARER, NEAR)], WEARER),
        ([("1", WEARER, UNSURE), ("1", WEARER, NEAR)], WEARER),
        ([("1", WEARER, FAR), ("2", BYSTANDER, NEAR)], BYSTANDER),
        ([("1", BYSTANDER, UNSURE), ("2", WEARER, NEAR), ("3", WEARER, NEAR)], WEARER),
        ([("1", BYSTANDER, UNSURE), ("2", WEARER, NEAR), ("3", WEARER, UNSURE), ("4", WEARER, NEAR)], WEARER),
    ],
)
def test_a_wearer_first_heard_at_an_unsure_distance_does_not_lose_the_session_to_the_next_voice_nearby(
    heard: list[tuple[str, np.ndarray, DistanceVerdict]], owner: np.ndarray | None
):
    state = SessionState()
    for turn, vector, distance in heard:
        evidence, state = judge(state, vector, distance, OwnerMode.INITIATOR, turn)
        assert (evidence.verdict is SpeakerVerdict.OWNER) == (state.owner is not None)
    assert (None if state.owner is None else state.owner.vector) is owner


def test_with_enrolment_demanded_and_nobody_enrolled_nobody_becomes_owner():
    evidence, state = judge(SessionState(), unit(1, 0), DistanceVerdict.NEAR, OwnerMode.ENROLLED)
    assert evidence.verdict is SpeakerVerdict.UNSURE
    assert state.owner is None


def test_no_embedding_is_unsure_never_owner():
    for state in (SessionState(), SessionState(owner=REFERENCE)):
        evidence, _ = judge(state, None, DistanceVerdict.NEAR, OwnerMode.INITIATOR)
        assert evidence.verdict is SpeakerVerdict.UNSURE
        assert evidence.score is None
