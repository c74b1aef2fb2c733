"""Others' corpora are read in their own layout, exactly: no id by prefix, no column guessed, no row skipped."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.exit_codes import ExitCode
from bench import cli
from bench.build.alignment import WhisperAligner
from bench.build.mask_recordings import Materials, mask_recordings
from bench.build.triplets import DEGRADING
from bench.loaders.column_maps import read_column_map
from bench.loaders.ear import EarAudio, EarColumns, load_ear
from bench.loaders.rows import Columns, LoaderError, audio_file, read_jsonl, read_table, trial_id
from bench.loaders.slue_sqa5 import load_slue_sqa5
from bench.loaders.vgbench import VgbenchColumns, load_vgbench
from bench.loaders.wdyl import load_wdyl
from bench.loaders.wearvox import PROTOCOL, WearvoxColumns, load_wearvox
from bench.trials import Expected, Trial, load_manifest
from gate.span import SAMPLE_RATE_HZ
from tests.support_masking import ListTagger, Whistler


def wav(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.zeros(160, np.float32), SAMPLE_RATE_HZ)


def jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def tsv(path: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def bench(*arguments: object) -> int:
    return cli.main(["import", *(str(argument) for argument in arguments)])


def imported(folder: Path) -> list[Trial]:
    """The manifest that a command wrote; its audio is there, or this raises."""
    return load_manifest(folder / "manifest.jsonl")


def extra(trial: Trial) -> dict[str, Any]:
    return dict(trial.model_extra or {})


# What Do You Like -----------------------------------------------------------------------------------------------------

DIALOGUES = {
    1: {
        "q": {"gender": "woman", "content": "I like tea, what's your favorite beverage?", "sub": "tea"},
        "a": {"gender": "man", "content": "Milk is my favorite beverage.", "sub": "milk"},
        "type": "beverage", "ask": "a",
        "QS": ["What is the man's favorite beverage?", "What is the second speaker's favorite beverage?"],
        "OS": ["A. tea; B. milk; C. wine."] * 5, "AS": ["B"] * 5,
    },
    10: {
        "q": {"gender": "man", "content": "My favorite food is pasta, what's your favorite food?", "sub": "pasta"},
        "a": {"gender": "woman", "content": "I like steak the most.", "sub": "steak"},
        "type": "food", "ask": "q",
        "QS": ["What is the man's favorite food?", "What is the first speaker's favorite food?"],
        "OS": ["A. pasta; B. steak; C. ramen."] * 5, "AS": ["A"] * 5,
    },
}  # fmt: skip


def wdyl(folder: Path, dialogues: Mapping[int, Any] = DIALOGUES, audio: Sequence[int] = (1, 10)) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "wdyl_dialogues.txt").write_text(repr(dict(dialogues)), encoding="utf-8")
    rows = [
        {
            "id": f"{number}_{choice}", "audio": f"what_do_you_like/v3/{number}.wav", "n_frames": "111111",
            "prompt": "Which? A. tea; B. milk; C. wine.", "tgt_text": "B", "with_speech": "True",
        }
        for number in DIALOGUES for choice in range(5)
    ]  # fmt: skip
    tsv(folder / "wdyl_questions.tsv", rows)
    for number in audio:
        wav(folder / f"what_do_you_like/v3/{number}.wav")
    return folder


def test_wdyl_becomes_one_open_question_a_dialogue(tmp_path: Path) -> None:
    source = wdyl(tmp_path / "wdyl")
    assert bench("wdyl", source, "--out", tmp_path / "out") == ExitCode.OK
    one, ten = imported(tmp_path / "out")
    assert (one.id, one.question, one.expected.answer) == (
        "wdyl.1", "What is the second speaker's favorite beverage?", ("milk",)
    )  # fmt: skip
    assert (ten.id, ten.question, ten.expected.answer) == (
        "wdyl.10", "What is the first speaker's favorite food?", ("pasta",)
    )  # fmt: skip
    assert extra(one)["transcript"] == "I like tea, what's your favorite beverage? Milk is my favorite beverage."
    assert extra(one)["answer_texts"] == ["milk"]
    assert str(ten.audio).endswith("wdyl/what_do_you_like/v3/10.wav")
    assert {trial.split for trial in (one, ten)} == {"test"}
    assert bench("wdyl", source, "--out", tmp_path / "sex", "--asked", "sex", "--split", "dev") == ExitCode.OK
    assert [trial.question for trial in imported(tmp_path / "sex")] == [
        "What is the man's favorite beverage?", "What is the man's favorite food?"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "changed", "why"),
    [
        (1, {"ask": "b"}, "dialogue 1: it asks for 'b'"),
        (1, {"a": DIALOGUES[1]["a"] | {"sub": "mil"}}, "'a' does not say 'mil'"),  # type: ignore[operator]
        (10, {"QS": ["only one?"]}, "not two questions"),
        (10, {"q": {"gender": "man"}}, "'q' has not the texts"),
        (10, {"more": 1}, "its fields are not"),
        (11, DIALOGUES[10], "names no audio"),
    ],
)
def test_a_wdyl_dialogue_of_another_form_is_named(
    tmp_path: Path, number: int, changed: dict[str, Any], why: str
) -> None:
    dialogues = DIALOGUES | {number: DIALOGUES.get(number, {}) | changed}
    with pytest.raises(LoaderError, match=why):
        load_wdyl(wdyl(tmp_path / "w", dialogues), tmp_path / "w", tmp_path, split="test")


def test_wdyl_never_takes_the_audio_of_ten_for_one(tmp_path: Path) -> None:
    source = wdyl(tmp_path / "wdyl", audio=(10,))
    with pytest.raises(LoaderError, match=r"no such audio: .*/v3/1\.wav"):
        load_wdyl(source, source, tmp_path, split="test")


def test_a_question_that_names_the_speaker_by_sex_needs_two_sexes(tmp_path: Path) -> None:
    same = DIALOGUES[1] | {"q": {**DIALOGUES[1]["q"], "gender": "man"}}  # type: ignore[dict-item]
    source = wdyl(tmp_path / "wdyl", DIALOGUES | {1: same})
    with pytest.raises(LoaderError, match="of one sex"):
        load_wdyl(source, source, tmp_path, asked="sex", split="test")


def test_the_thousand_dialogues_of_wdyl_are_read_as_they_are_published(tmp_path: Path) -> None:
    data = os.environ.get("VOICEGATE_DATA")
    texts = Path(data) / "wdyl" if data else None
    if texts is None or not (texts / "wdyl_dialogues.txt").is_file():
        pytest.skip("VOICEGATE_DATA names no folder with the texts of What Do You Like")
    folder = tmp_path / "what_do_you_like" / "whatdoyoulike_v3"
    folder.mkdir(parents=True)
    for number in range(1000):
        (folder / f"{number}.wav").touch()
    trials = load_wdyl(texts, tmp_path, tmp_path, split="test")
    assert [trial.id for trial in trials] == [f"wdyl.{number}" for number in range(1000)]
    assert Counter(extra(trial)["topic"] for trial in trials) == {"food": 342, "city": 331, "beverage": 327}
    assert all("speaker" in str(trial.question) for trial in trials), "asked by who speaks first, openly"


# EAR ------------------------------------------------------------------------------------------------------------------


def ear(folder: Path, ids: Sequence[Any] = (1, 10, 11), **more: Any) -> Path:
    rows = [
        {"id": one, "question": "What is the second speaker's favorite food?", "answer": "Steak", **more} for one in ids
    ]
    return jsonl(folder / "questions.jsonl", rows)


def test_ear_is_read_with_the_audio_of_every_condition(tmp_path: Path) -> None:
    questions = ear(tmp_path, transcript="I like steak the most.")
    for name in ("1", "10", "11"):
        wav(tmp_path / "clean" / f"{name}.wav")
        wav(tmp_path / "masked" / f"{name}_noise.wav")
        wav(tmp_path / "by_id" / name / "wide.flac")
    code = bench(
        "ear", questions, "--audio", f"original={tmp_path}/clean",
        "--audio", f"semantic_degrading/noise={tmp_path}/masked/{{id}}_noise.wav",
        "--audio", f"semantic_degrading/noise+wide={tmp_path}/by_id/{{id}}/wide.flac", "--out", tmp_path / "out",
    )  # fmt: skip
    assert code == ExitCode.OK
    trials = imported(tmp_path / "out")
    assert [trial.id for trial in trials[:3]] == [
        "ear.1.original", "ear.1.semantic_degrading.noise", "ear.1.semantic_degrading.noise-wide"
    ]  # fmt: skip
    assert len(trials) == 9
    for trial in trials:
        degraded = trial.condition.startswith(DEGRADING)
        assert trial.expected == (
            Expected(action="pardon") if degraded else Expected(action="answer", answer=("Steak",))
        )
        assert extra(trial)["answer_texts"] == ["Steak"]
        assert trial.triplet == f"ear.{trial.id.split('.')[1]}"
    assert [str(trial.audio).rsplit("/", 2)[-1] for trial in trials[3:6]] == ["10.wav", "10_noise.wav", "wide.flac"]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 120), min_size=1, max_size=6, unique=True), st.data())
def test_audio_is_found_by_the_whole_id_and_never_by_its_beginning(
    tmp_path_factory: pytest.TempPathFactory, ids: list[int], data: st.DataObject
) -> None:
    there = data.draw(st.sets(st.sampled_from(range(0, 121)), max_size=12))
    folder = tmp_path_factory.mktemp("ear")
    for one in there:
        (folder / f"{one}_noise.wav").touch()
        (folder / f"{one}_noise2.wav").touch()
    audio = {"semantic_degrading/noise": EarAudio.of(f"{folder}/{{id}}_noise.wav")}
    missing = [one for one in ids if one not in there]
    if missing:
        with pytest.raises(LoaderError) as caught:
            load_ear(ear(folder, ids), audio, folder)
        assert [f"/{one}_noise.wav" in str(caught.value) for one in ids] == [one in missing for one in ids]
    else:
        trials = load_ear(ear(folder, ids), audio, folder)
        assert [trial.audio for trial in trials] == [f"{one}_noise.wav" for one in ids]


@pytest.mark.parametrize(
    ("ids", "more", "why"),
    [
        ((1, "1"), {}, "id 'ear.1.original' is taken at"),
        (("a b", "a?b"), {}, "is taken at"),
        ((1,), {"mood": "sad"}, "unknown column 'mood'"),
        ((1,), {"answer": ""}, "column 'answer' is empty"),
        ((1,), {"answer": []}, "is no list of texts"),
        ((1,), {"question": None}, "column 'question' is empty"),
        (("../1",), {}, "lies outside"),
    ],
)
def test_an_ear_row_that_is_wrong_is_named_with_its_line(
    tmp_path: Path, ids: Sequence[Any], more: dict[str, Any], why: str
) -> None:
    for one in ("1", "a b", "a?b"):
        wav(tmp_path / "clean" / f"{one}.wav")
    with pytest.raises(LoaderError, match=why) as caught:
        load_ear(ear(tmp_path, ids, **more), {"original": EarAudio(tmp_path / "clean")}, tmp_path)
    assert f"questions.jsonl:{len(ids)}" in str(caught.value)


def test_a_condition_that_is_not_in_the_contract_is_refused(tmp_path: Path) -> None:
    wav(tmp_path / "clean" / "1.wav")
    with pytest.raises(LoaderError, match="no condition 'masked'"):
        load_ear(ear(tmp_path, (1,)), {"masked": EarAudio(tmp_path / "clean")}, tmp_path)


def test_an_empty_file_of_questions_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="holds no row"):
        load_ear(jsonl(tmp_path / "q.jsonl", []), {"original": EarAudio(tmp_path)}, tmp_path)


def test_anybodys_recordings_are_imported_and_masked(tmp_path: Path) -> None:
    whistler = Whistler()
    rows = []
    for name, text, answer in (
        ("talk", "I went to the harbour of Boston and it rains", "Boston"),
        ("note", "You said that the key is in the kitchen and it is a red one", "kitchen"),
    ):
        samples, _ = whistler.say(text)
        soundfile.write(tmp_path / f"{name}.flac", samples, SAMPLE_RATE_HZ)
        rows.append({"nr": name, "ask": "Where?", "right": [answer], "transcript": text, "mood": "calm"})
    jsonl(tmp_path / "mine.jsonl", rows)
    (tmp_path / "map.toml").write_text('id = "nr"\nquestion = "ask"\nanswer = "right"\nignored = ["mood"]\n')
    code = bench(
        "ear", tmp_path / "mine.jsonl", "--audio", f"original={tmp_path}/{{id}}.flac",
        "--columns", tmp_path / "map.toml", "--out", tmp_path / "in",
    )  # fmt: skip
    assert code == ExitCode.OK
    materials = Materials([WhisperAligner(lambda: whistler)], ListTagger())
    done = mask_recordings(tmp_path / "in" / "manifest.jsonl", tmp_path / "out", materials, kinds=("noise",))
    assert (done.triplets, done.left_out) == (2, {})


# SLUE-SQA-5 -----------------------------------------------------------------------------------------------------------

SLUE_ROW = {
    "question_id": "TriviaQA-1", "question_speaker_id": "s1", "raw_question_text": "When was the bridge opened?",
    "normalized_question_text": "when was the bridge opened", "document_id": "Bridge_1", "document_speaker_id": "s2",
    "raw_document_text": "The bridge, of steel, was opened in 1980.",
    "normalized_document_text": "the bridge of steel was opened in nineteen eighty",
    "answer_spans": '[["nineteen eighty", 1.9, 2.5], ["1980", 1.9, 2.5], ["nineteen eighty", 1.9, 2.5]]',
}  # fmt: skip
WORD2TIME = (
    "The\tthe\t0.1\t0.2\nbridge\tbridge\t0.2\t0.6\n,\nof\tof\t0.6\t0.8\nsteel\tsteel\n,\nwas\twas\t1.2\t1.4\n"
    "opened\topened\t1.4\t1.8\nin\tin\t1.8\t1.9\n1980\tnineteen eighty\t1.9\t2.5\n.\n"
)


def slue(folder: Path, rows: Sequence[Mapping[str, str]] = (SLUE_ROW,), words: str = WORD2TIME) -> Path:
    folder.mkdir(exist_ok=True)
    tsv(folder / "slue-sqa5_verified-test.tsv", rows)
    samples = 0.1 * np.random.default_rng(0).standard_normal(round(2.6 * SAMPLE_RATE_HZ))
    (folder / "verified-test" / "document").mkdir(parents=True, exist_ok=True)
    (folder / "verified-test" / "word2time").mkdir(parents=True, exist_ok=True)
    soundfile.write(folder / "verified-test" / "document" / "Bridge_1.wav", samples, SAMPLE_RATE_HZ)
    (folder / "verified-test" / "word2time" / "Bridge_1.txt").write_text(words)
    return folder


def test_slue_is_read_with_the_word_times_that_it_comes_with(tmp_path: Path) -> None:
    source = slue(tmp_path / "slue")
    assert bench("slue-sqa5", source, "--part", "verified-test", "--out", tmp_path / "out") == ExitCode.OK
    (trial,) = imported(tmp_path / "out")
    assert trial.id == "slue.TriviaQA-1.Bridge_1"
    assert trial.question == "When was the bridge opened?"
    assert trial.expected.answer == ("nineteen eighty", "1980")
    assert extra(trial)["transcript"] == "the bridge of steel was opened in nineteen eighty"
    assert extra(trial)["answer_texts"] == ["nineteen eighty"]
    times = extra(trial)["word_times"]
    assert times[0] == ["the", 0.1, 0.2]
    assert times[3] == ["steel", None, None], "a word that the corpus could not place is not lost"
    assert times[-2] == ["nineteen", 1.9, pytest.approx(2.24, abs=0.01)]
    assert times[-1][2] == 2.5


def test_slue_passages_are_masked_where_their_answers_are_said(tmp_path: Path) -> None:
    source = slue(tmp_path / "slue")
    assert bench("slue-sqa5", source, "--part", "verified-test", "--out", tmp_path / "in") == ExitCode.OK
    done = mask_recordings(
        tmp_path / "in" / "manifest.jsonl", tmp_path / "out", Materials((), ListTagger()), kinds=("noise",), wide=False
    )
    degraded = next(trial for trial in load_manifest(done.manifest) if trial.condition.startswith(DEGRADING))
    assert extra(degraded)["mask"]["words"] == ["nineteen", "eighty"]
    ((start, end),) = extra(degraded)["mask"]["spans"]
    assert (start, end) == (pytest.approx(1.87), pytest.approx(2.6, abs=0.1))


@pytest.mark.parametrize(
    ("changed", "words", "why"),
    [
        ({"answer_spans": "[['nineteen eighty', 1.9, 2.5]]"}, WORD2TIME, None),
        ({"answer_spans": "nineteen eighty"}, WORD2TIME, "answer_spans is no list"),
        ({"answer_spans": "[]"}, WORD2TIME, "holds no answer"),
        ({"answer_spans": '[["gold", 0.1, 0.2]]'}, WORD2TIME, "'gold' is said in the document Bridge_1"),
        ({"document_id": "Bridge"}, WORD2TIME, r"no such audio: .*Bridge\.wav"),
        ({}, "The\tthe\tsoon\t0.2\n", "'soon' to '0.2' is no time"),
        ({}, ".\n", "holds no word"),
    ],
)
def test_a_slue_row_that_is_wrong_is_named(
    tmp_path: Path, changed: dict[str, str], words: str, why: str | None
) -> None:
    source = slue(tmp_path / "slue", [SLUE_ROW | changed], words)
    if why is None:
        assert len(load_slue_sqa5(source, "verified-test", tmp_path)) == 1
        return
    with pytest.raises(LoaderError, match=why) as caught:
        load_slue_sqa5(source, "verified-test", tmp_path)
    assert "slue-sqa5_verified-test.tsv:2" in str(caught.value)


def test_a_sample_of_slue_is_drawn_by_its_seed_and_keeps_the_order(tmp_path: Path) -> None:
    rows = [SLUE_ROW | {"question_id": f"Q-{number:02d}"} for number in range(20)]
    source = slue(tmp_path / "slue", rows)
    one, again, other = (
        [trial.id for trial in load_slue_sqa5(source, "verified-test", tmp_path, sample=5, seed=seed)]
        for seed in (1, 1, 2)
    )
    assert one == again == sorted(one)
    assert len(one) == 5
    assert other != one
    with pytest.raises(LoaderError, match=r"taken at .*:2"):
        load_slue_sqa5(slue(tmp_path / "slue", [SLUE_ROW, SLUE_ROW]), "verified-test", tmp_path)


def test_a_new_column_of_slue_is_refused_until_it_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = slue(tmp_path / "slue", [SLUE_ROW | {"dialect": "x"}])
    flags = ("slue-sqa5", source, "--part", "verified-test", "--out", tmp_path / "out")
    assert bench(*flags) == ExitCode.USAGE
    assert "unknown column 'dialect'" in capsys.readouterr().err
    assert bench(*flags, "--ignore", "dialect") == ExitCode.OK


# VGBench --------------------------------------------------------------------------------------------------------------

VGBENCH = [
    {"id": "s1", "scenario": "speaker-switch", "condition": "single", "audio": "a.wav", "text": "", "pair": "p1",
     "target": '<|TOOL|>{"name": "set_alarm", "params": {"time": "7 am"}}</|TOOL|>', "target_tool": "set_alarm",
     "split": "test"},
    {"id": "s2", "scenario": "speaker-switch", "condition": "switch", "audio": "b.wav", "text": "", "pair": "p1",
     "target": "[Mute]", "target_tool": "set_alarm", "split": "test"},
    {"id": "s3", "scenario": "speaker-switch", "condition": "text-only", "audio": "", "text": "Set an alarm.",
     "pair": "p1", "target": '<|TOOL|>{{"name": "set_alarm", "params": {}}}</|TOOL|>', "target_tool": "", "split": ""},
    {"id": "t1", "scenario": "side-talk", "condition": "bystander-first", "audio": "c.wav", "text": "", "pair": "",
     "target": "Paris.", "target_tool": "", "split": "dev"},
    {"id": "m1", "scenario": "self-talk", "condition": "quoted", "audio": "d.wav", "text": "", "pair": "",
     "target": "[Mute]", "target_tool": "make_call", "split": "train"},
]  # fmt: skip


def vgbench(folder: Path, rows: Sequence[Mapping[str, str]] = VGBENCH, suffix: str = "jsonl") -> Path:
    for name in "abcd":
        wav(folder / "wavs" / f"{name}.wav")
    path = folder / f"items.{suffix}"
    return jsonl(path, rows) if suffix == "jsonl" else tsv(path, rows)


@pytest.mark.parametrize("suffix", ["jsonl", "tsv"])
def test_vgbench_becomes_trials_with_its_conditions_and_targets(tmp_path: Path, suffix: str) -> None:
    table = vgbench(tmp_path, suffix=suffix)
    assert bench("vgbench", table, "--audio", tmp_path / "wavs", "--out", tmp_path / "out") == ExitCode.OK
    single, switch, typed, side, alone = imported(tmp_path / "out")
    assert [trial.condition for trial in (single, switch, typed, side, alone)] == [
        "same/near/0", "diff/far/600", "text_only", "bystander_first", "quoted"
    ]  # fmt: skip
    assert single.expected == Expected(action="tool", tool="set_alarm")
    assert switch.expected == Expected(action="mute")
    assert switch.target_tool == "set_alarm"
    assert (typed.text, typed.audio, typed.target_tool, typed.split) == ("Set an alarm.", None, "set_alarm", "test")
    assert {single.pair, switch.pair, typed.pair} == {"vgbench.p1"}
    assert side.expected == Expected(action="answer", answer=("Paris.",))
    assert (alone.family, alone.split, alone.expected.action) == ("self_talk", "train", "mute")


def test_a_copy_of_vgbench_with_other_names_is_read_by_a_column_map(tmp_path: Path) -> None:
    rows = [
        {"item": "1", "kind": "talking to herself", "cond": "joke", "wav": "a.wav", "gold": "[Mute]", "note": "x"},
        {"item": "2", "kind": "speaker-switch", "cond": "near bystander", "wav": "b.wav", "gold": "[Mute]", "note": ""},
    ]
    table = jsonl(tmp_path / "items.jsonl", rows)
    for name in "ab":
        wav(tmp_path / f"{name}.wav")
    (tmp_path / "map.toml").write_text(
        'id = "item"\nscenario = "kind"\ncondition = "cond"\naudio = "wav"\ntarget = "gold"\nignored = ["note"]\n'
        '[scenarios]\n"talking to herself" = "self_talk"\n[conditions]\n"near bystander" = "diff/near/600"\n'
    )
    code = bench("vgbench", table, "--columns", tmp_path / "map.toml", "--out", tmp_path / "out")
    assert code == ExitCode.OK
    one, two = imported(tmp_path / "out")
    assert (one.family, one.condition) == ("self_talk", "joke")
    assert (two.family, two.condition) == ("speaker_switch", "diff/near/600"), "what is not named keeps its default"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"scenario": "karaoke"}, "no scenario 'karaoke'; there are"),
        ({"condition": "upside down"}, "no condition 'upside down'"),
        ({"target": '<|TOOL|>{"name": "set_alarm"'}, "is no .Mute., tool call or answer"),
        ({"audio": ""}, "column 'audio' is empty"),
        ({"audio": "z.wav"}, "no such audio"),
        ({"audio": "../secret.wav"}, "lies outside"),
        ({"split": "exam"}, "split"),
        ({"id": "s2"}, "is taken"),
        ({"speaker": "A"}, "unknown column 'speaker'"),
    ],
)
def test_a_vgbench_row_that_is_wrong_is_named_with_its_line(tmp_path: Path, changed: dict[str, str], why: str) -> None:
    table = vgbench(tmp_path, [VGBENCH[1] | {"id": "s2"}, VGBENCH[0] | changed])
    with pytest.raises(LoaderError, match=why) as caught:
        load_vgbench(table, tmp_path / "wavs", tmp_path)
    assert "items.jsonl:2" in str(caught.value)


def test_every_wrong_row_is_told_at_once(tmp_path: Path) -> None:
    rows = [VGBENCH[0] | {"id": f"r{number}", "audio": f"{number}.wav"} for number in range(30)]
    with pytest.raises(LoaderError) as caught:
        load_vgbench(vgbench(tmp_path, rows), tmp_path / "wavs", tmp_path)
    lines = str(caught.value).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and 10 more"


# WearVox --------------------------------------------------------------------------------------------------------------


def wearvox_rows() -> list[dict[str, Any]]:
    """The protocol's 384 items, made up."""
    made: list[dict[str, Any]] = []
    for task, count in (
        ("closed_book", 59), ("grounded", 55), ("abstain", 58), ("tool", 112), ("translation", 100)
    ):  # fmt: skip
        for number in range(count):
            row: dict[str, Any] = {"id": f"{task}-{number}", "task": task, "audio": "a.wav"}
            if task == "tool":
                row["reference"] = {"name": "set_timer", "params": {"minutes": number}}
            elif task != "abstain":
                row["reference"] = ["Guten Tag.", "Hallo."] if task == "translation" else "Paris"
            if task == "grounded":
                row["grounding"] = "Search result: Paris is the capital of France."
            made.append(row)
    return made


def test_wearvoxs_384_items_become_trials_of_the_four_parts(tmp_path: Path) -> None:
    table = jsonl(tmp_path / "items.jsonl", wearvox_rows())
    wav(tmp_path / "a.wav")
    assert bench("wearvox", table, "--out", tmp_path / "out") == ExitCode.OK
    trials = imported(tmp_path / "out")
    assert len(trials) == 384
    assert Counter(trial.condition for trial in trials) == PROTOCOL
    first = {trial.condition: trial for trial in reversed(trials)}
    assert first["A/closed_book"].expected == Expected(action="answer", answer=("Paris",))
    assert first["A/closed_book"].question is None
    assert str(first["A/grounded"].question).startswith("Search result")
    assert first["B/abstain"].expected == Expected(action="mute")
    tool = first["C/tool"]
    assert tool.expected == Expected(action="tool", tool="set_timer")
    assert extra(tool)["params"] == {"minutes": 0}
    assert extra(first["D/translation"])["reference"] == ["Guten Tag.", "Hallo."]


def test_another_number_of_wearvox_items_is_not_passed_off_as_the_protocol(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = jsonl(tmp_path / "items.jsonl", wearvox_rows()[:-1])
    wav(tmp_path / "a.wav")
    assert bench("wearvox", table, "--out", tmp_path / "out") == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "D/translation 99 of 100" in said
    assert "--any-number" in said
    assert not (tmp_path / "out" / "manifest.jsonl").exists()
    assert bench("wearvox", table, "--out", tmp_path / "out", "--any-number") == ExitCode.OK
    assert len(imported(tmp_path / "out")) == 383


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"task": "singing"}, "no task 'singing'"),
        ({"task": "tool", "reference": "set_timer"}, "is no JSON"),
        ({"task": "tool", "reference": {"name": "set_timer"}}, "no call with name and params"),
        ({"task": "tool", "reference": '{"name": "set_timer", "params": {}}'}, None),
        ({"task": "closed_book"}, "column 'reference' is empty"),
        ({"task": "grounded", "reference": "Paris"}, "column 'grounding' is empty"),
        ({"task": "translation", "reference": ["", "Hallo"]}, "no list of texts"),
    ],
)
def test_a_wearvox_item_that_is_wrong_is_named(tmp_path: Path, row: dict[str, Any], why: str | None) -> None:
    wav(tmp_path / "a.wav")
    table = jsonl(tmp_path / "items.jsonl", [{"id": "1", "audio": "a.wav"} | row])
    if why is None:
        (trial,) = load_wearvox(table, tmp_path, tmp_path, protocol=False)
        assert trial.expected.tool == "set_timer"
        return
    with pytest.raises(LoaderError, match=rf"items\.jsonl:1: .*{why}"):
        load_wearvox(table, tmp_path, tmp_path, protocol=False)


# Tables and maps ------------------------------------------------------------------------------------------------------


def test_a_table_that_cannot_be_read_is_named_with_its_line(tmp_path: Path) -> None:
    columns = Columns(frozenset({"id"}), frozenset({"text"}))
    for text, suffix, why in (
        ("{", "jsonl", ":1: is no JSON"),
        ("[1]", "jsonl", ":1: is no object"),
        ('{"text": "x"}', "jsonl", "no column 'id'; there are text"),
        ("id\ttext\n1\n", "tsv", ":2: has 1 fields, and the heading 2"),
        ("text\nx\n", "tsv", "no column 'id'"),
        ("id\n1\n", "csv", "neither .jsonl nor .tsv"),
    ):
        path = tmp_path / f"t.{suffix}"
        path.write_text(text)
        with pytest.raises(LoaderError, match=why):
            list(read_table(path, columns))
    with pytest.raises(LoaderError, match="cannot be read"):
        list(read_jsonl(tmp_path / "absent.jsonl", columns))


def test_quotes_in_a_tsv_are_text(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text('id\ttext\n1\t"Well," he said\n')
    assert [row.text("text") for row in read_table(path, Columns(frozenset({"id", "text"})))] == ['"Well," he said']


def test_audio_outside_the_folder_is_never_read(tmp_path: Path) -> None:
    wav(tmp_path / "secret.wav")
    (tmp_path / "in").mkdir()
    for name in ("../secret.wav", str(tmp_path / "secret.wav")):
        with pytest.raises(LoaderError, match="lies outside"):
            audio_file(tmp_path / "in", name, "row 1")


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_an_id_made_of_anything_is_one_that_a_manifest_allows(parts: list[str]) -> None:
    name = trial_id("x", *parts)
    assert Trial.model_validate(
        {
            "id": name, "family": "direct", "condition": "a", "text": "b", "expected": Expected(action="mute"),
            "split": "test",
        }
    ).id == name  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ('colour = "x"', VgbenchColumns, "unknown 'colour'; there are id, scenario"),
        ("id = 1", EarColumns, "id is not the name of a column"),
        ('ignored = "x"', EarColumns, "ignored is no list of columns"),
        ('[scenarios]\nx = "karaoke"', VgbenchColumns, "scenarios: no 'karaoke'; there are self_talk"),
        ("[tasks]\nx = 1", WearvoxColumns, "tasks is no table of texts"),
        ("id = ", WearvoxColumns, "cannot be read"),
    ],
)
def test_a_column_map_that_is_wrong_is_refused(tmp_path: Path, text: str, kind: Any, why: str) -> None:
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(LoaderError, match=rf"map\.toml: .*{why}"):
        read_column_map(tmp_path / "map.toml", kind)


def test_without_a_column_map_the_defaults_hold() -> None:
    assert read_column_map(None, EarColumns) == EarColumns()


def test_what_is_wrong_with_a_command_is_one_line_and_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("wdyl", tmp_path, "--out", tmp_path / "out") == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "wdyl_dialogues.txt: cannot be read" in said
    assert "Traceback" not in said
    with pytest.raises(SystemExit):
        bench("ear", "q.jsonl", "--audio", "clean", "--out", tmp_path)
    assert "'clean' is not CONDITION=PATH" in capsys.readouterr().err
    twice = ("--audio", "original=a", "--audio", "original=b")
    assert bench("ear", "q.jsonl", *twice, "--out", tmp_path) == ExitCode.USAGE
    assert "two places" in capsys.readouterr().err
