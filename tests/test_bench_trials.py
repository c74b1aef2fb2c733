"""The manifest: what is written is read back, and whatever is wrong is named by its line and never becomes a score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.trials import Expected, ManifestError, Segment, Trial, load_manifest, write_manifest

GOOD: dict[str, Any] = {
    "id": "a", "family": "direct", "condition": "plain", "audio": "a.wav", "expected": {"action": "mute"},
    "split": "test",
}  # fmt: skip


def write(folder: Path, *lines: object) -> Path:
    path = folder / "manifest.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.wav").touch()
    return tmp_path


def test_a_trial_is_read_with_every_field_and_unknown_ones_are_kept(folder: Path):
    segment = {
        "start": 0, "end": 1.5, "speaker": "A", "distance": "near", "text": "Hi.", "role": "trigger", "words": [1],
    }  # fmt: skip
    line = {**GOOD, "segments": [segment], "voice": "af_heart", "split": "dev", "pair": "p", "question": "Why?"}
    (trial,) = load_manifest(write(folder, line))
    assert (trial.id, trial.split, trial.pair, trial.question, trial.enrolment) == ("a", "dev", "p", "Why?", None)
    assert trial.segments[0].end == 1.5
    assert trial.model_dump()["voice"] == "af_heart"
    assert trial.segments[0].model_dump()["words"] == [1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"family": "gossip"}, "family"),
        ({"expected": {"action": "sing"}}, "expected.action"),
        ({"expected": {"action": "tool"}}, "no tool is named"),
        ({"expected": {"action": "mute", "tool": "make_call"}}, "target_tool"),
        ({"audio": "absent.wav"}, "no such file"),
        ({"enrolment": "absent.wav"}, "no such file"),
        ({"text": "typed too"}, "exactly one"),
        ({"audio": None}, "exactly one"),
        ({"id": "no spaces"}, "id"),
        ({"id": "a\n"}, "id"),
        ({"split": "holdout"}, "split"),
        ({"family": "speaker_switch", "condition": "same/near"}, "no condition 'same/near'"),
        ({"family": "speaker_switch", "condition": "text_only"}, "text_only"),
        ({"family": "ear", "condition": "semantic_degrading/hum"}, "no condition"),
        ({"family": "side_talk", "condition": "both_first"}, "no condition"),
        (
            {"segments": [{"start": 2, "end": 1, "speaker": "A", "distance": "near", "text": "", "role": "self"}]},
            "ends",
        ),
        (
            {"segments": [{"start": 0, "end": 1, "speaker": "A", "distance": "nigh", "text": "", "role": "self"}]},
            "near",
        ),
    ],
)
def test_what_is_wrong_is_an_error_that_names_its_line_so_it_never_becomes_a_score(
    folder: Path, change: dict[str, Any], says: str
):
    path = write(folder, {**GOOD, "id": "first"}, "", {**GOOD, **change})
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert says in str(caught.value)


def test_every_wrong_line_is_named_at_once(folder: Path):
    path = write(folder, {**GOOD, "family": "x"}, GOOD, "{torn", {**GOOD, "id": "b", "split": 7})
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert [line.split(":")[1] for line in str(caught.value).splitlines()] == ["1", "3", "4"]


def test_ids_are_taken_exactly_and_once(folder: Path):
    trials = load_manifest(write(folder, {**GOOD, "id": "a.1"}, {**GOOD, "id": "a.10"}))
    assert [trial.id for trial in trials] == ["a.1", "a.10"], "one id may begin like another"
    with pytest.raises(ManifestError, match=r":2: the id 'a' is taken by line 1"):
        load_manifest(write(folder, GOOD, GOOD))


def test_an_empty_or_absent_manifest_is_an_error_and_not_a_run_of_nothing(folder: Path):
    with pytest.raises(ManifestError, match="holds no trial"):
        load_manifest(write(folder))
    with pytest.raises(ManifestError, match="cannot be read"):
        load_manifest(folder / "none.jsonl")


def test_scoring_reads_the_labels_without_the_audio(tmp_path: Path):
    assert load_manifest(write(tmp_path, GOOD), check_files=False)[0].id == "a"


def test_two_trials_with_one_id_are_not_written(tmp_path: Path):
    trial = Trial(**GOOD | {"expected": Expected(action="mute")})
    with pytest.raises(ManifestError, match="'a'"):
        write_manifest(tmp_path / "m.jsonl", [trial, trial])
    assert list(tmp_path.iterdir()) == [], "no half of a manifest is left behind"


TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
SEGMENT = st.builds(
    lambda start, length, **fields: Segment(start=start, end=start + length, **fields),
    start=st.floats(0, 100), length=st.floats(0.1, 10), speaker=st.sampled_from("ABC"),
    distance=st.sampled_from(["near", "far"]), text=TEXT,
    role=st.sampled_from(["context", "trigger", "assistant", "bystander", "self", "dialogue"]),
)  # fmt: skip
TRIAL = st.builds(
    lambda number, **fields: Trial(
        id=f"t.{number}", family="wearvox", audio="a.wav", expected=Expected(action="answer", answer=("yes", "no")),
        **fields,
    ),
    number=st.integers(0, 10**6), condition=TEXT.filter(bool), question=st.none() | TEXT.filter(bool),
    segments=st.lists(SEGMENT, max_size=3).map(tuple), split=st.sampled_from(["train", "dev", "test"]),
    extra=st.none() | TEXT | st.lists(st.integers(), max_size=3),
)  # fmt: skip


@given(trials=st.lists(TRIAL, min_size=1, max_size=4, unique_by=lambda trial: trial.id))
def test_what_is_written_is_read_back_whatever_the_texts_hold(
    tmp_path_factory: pytest.TempPathFactory, trials: list[Trial]
):
    folder = tmp_path_factory.mktemp("manifest")
    write_manifest(folder / "m.jsonl", trials)
    assert load_manifest(folder / "m.jsonl", check_files=False) == trials


def segment(start: float, role: str) -> Segment:
    return Segment(start=start, end=start + 1, speaker="A", distance="near", text="x", role=role)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("roles", "wanted"),
    [
        (["context", "trigger"], 1),
        (["assistant", "bystander"], 0),
        (["bystander", "assistant"], 1),
        (["self", "self", "context"], 1),
        (["dialogue", "dialogue"], 1),
        (["context"], 0),
    ],
)
def test_the_speech_that_the_right_action_rests_on_is_found_by_its_role(roles: list[str], wanted: int):
    segments = tuple(segment(2.0 * index, role) for index, role in enumerate(roles))
    trial = Trial(**{**GOOD, "expected": Expected(action="mute"), "segments": tuple(reversed(segments))})
    assert trial.target_segment() == segments[wanted], "whatever the order in the file"


def test_without_labels_there_is_no_such_speech():
    assert Trial(**{**GOOD, "expected": Expected(action="mute")}).target_segment() is None
