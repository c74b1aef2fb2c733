"""Corpora are built as described: splits never share a voice or a room, labels are true, work is never redone."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from bench.build import cues, vgbench
from bench.build.catalogue import CORPORA
from bench.build.corpus import build, render_plan
from bench.build.kokoro import times_of_words
from bench.build.plans import Plan
from bench.build.scenes import FADE_SAMPLES, SEGMENT_DBFS, Part, draw_acoustics, render
from bench.build.scripts import Scripts, load_scripts
from bench.build.smoke import smoke
from bench.build.speech import Request, Speech, SpokenText, sounding, speak
from bench.build.voices import SPLITS, Voice, draw_pair, voices_of
from bench.trials import load_manifest
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span


class Hummer:
    """A synthesiser whose words are tones, a fifth of a second each with a pause between."""

    identity = "hummer-1"

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str, voice: Voice, speed: float = 1.0) -> tuple[np.ndarray, tuple[Word, ...]]:
        self.said.append(text)
        out, words = [np.zeros(4000, np.float32)], []
        at = 4000
        for index, word in enumerate(text.split()):
            hz = 150 + 10 * (len(voice.name) + index)
            tone = 0.3 * np.sin(2 * np.pi * hz * np.arange(3200) / SAMPLE_RATE_HZ)
            out += [tone.astype(np.float32), np.zeros(800, np.float32)]
            words.append(Word(word, Span(at, at + 3200), 1.0))
            at += 4000
        return np.concatenate(out), tuple(words)


@pytest.fixture(scope="module")
def scripts() -> Scripts:
    return load_scripts()


def spoken(text: str, voice: str = "af_heart") -> SpokenText:
    return SpokenText(*Hummer().say(text, Voice(voice)))


# Voices and rooms -----------------------------------------------------------------------------------------------------


def test_no_voice_of_one_split_is_part_of_a_voice_of_another() -> None:
    for one, other in combinations(SPLITS, 2):
        parts = [{part for voice in voices_of(split) for part in voice.parts} for split in (one, other)]
        assert not parts[0] & parts[1]
    assert sum(map(len, SPLITS.values())) == 28


@pytest.mark.parametrize("split", SPLITS)
def test_wearer_and_bystander_never_share_a_voice_and_are_often_of_one_sex(split: str) -> None:
    rng = np.random.default_rng(1)
    pairs = [draw_pair(split, rng) for _ in range(300)]
    assert not any(wearer.shares_a_part_with(bystander) for wearer, bystander in pairs)
    same = sum(wearer.sex == bystander.sex for wearer, bystander in pairs)
    assert 110 < same < 190


@pytest.mark.slow
def test_rooms_are_drawn_again_by_their_index_and_never_in_two_splits() -> None:
    assert draw_acoustics("dev", 7).facts() == draw_acoustics("dev", 7).facts()
    dims = {split: {draw_acoustics(split, index).room.dims_m for index in range(3)} for split in SPLITS}
    assert all(not dims[one] & dims[other] for one, other in combinations(SPLITS, 2))


def test_a_wearer_is_near_and_a_bystander_far_in_the_room_that_was_asked_for() -> None:
    for index in range(4):
        acoustics = draw_acoustics("test", index, dry=False, rt60_s=0.5)
        assert acoustics.near is not None
        assert 0.1 <= acoustics.near.distance_m <= 0.4
        assert 1.5 <= acoustics.far.distance_m <= 4.5
        assert acoustics.near.drr_db > acoustics.far.drr_db + 5
        assert acoustics.far.rt60_s == pytest.approx(0.5, rel=0.35)
    assert draw_acoustics("test", 0, far_m=3.0).far.distance_m == pytest.approx(3.0, abs=0.01)


# Scenes ---------------------------------------------------------------------------------------------------------------


def test_every_segment_is_equally_loud_so_that_level_never_tells_near_from_far() -> None:
    parts = (
        Part(spoken("one two three four"), "A", "near", "context", "one two three four"),
        Part(spoken("five six seven eight"), "B", "far", "trigger", "five six seven eight", 1.0),
    )
    scene = render(parts, draw_acoustics("train", 3, dry=False, snr_db=60.0))
    for segment in scene.segments:
        piece = scene.samples[round(segment["start"] * SAMPLE_RATE_HZ) : round(segment["end"] * SAMPLE_RATE_HZ)]
        level = 10 * np.log10(np.mean(piece.astype(np.float64) ** 2)) - scene.scale_db
        assert level == pytest.approx(SEGMENT_DBFS, abs=1.0)


@pytest.mark.parametrize("gap_s", [0.0, 0.1, 0.6])
def test_the_gap_is_the_one_asked_for_to_the_sample(gap_s: float) -> None:
    parts = (
        Part(spoken("one two"), "A", "near", "context", "one two"),
        Part(spoken("three four"), "A", "near", "trigger", "three four", gap_s),
    )
    scene = render(parts, draw_acoustics("train", 3))
    first, second = scene.words
    gap = second[0].span.start_sample - first[-1].span.end_sample
    assert gap == round(gap_s * SAMPLE_RATE_HZ)


def test_the_labels_lie_on_the_words() -> None:
    scene = render(
        (Part(spoken("one two three"), "A", "near", "self", "one two three"),),
        draw_acoustics("dev", 1, dry=True, snr_db=60),
    )
    energy = scene.samples.astype(np.float64) ** 2
    for word in scene.words[0]:
        inside = energy[word.span.start_sample : word.span.end_sample].mean()
        after = energy[word.span.end_sample + FADE_SAMPLES : word.span.end_sample + 600].mean()
        assert inside > 100 * after


def test_the_same_scene_has_the_same_samples_and_never_clips() -> None:
    parts = (Part(spoken("one two"), "A", "near", "self", "one two"),)
    first, again = (render(parts, draw_acoustics("dev", 5)) for _ in range(2))
    np.testing.assert_array_equal(first.samples, again.samples)
    assert np.abs(first.samples).max() <= 0.99 + 1e-6


# Word times -----------------------------------------------------------------------------------------------------------


def test_words_that_are_run_together_share_the_time_of_their_group() -> None:
    words = times_of_words(["on", "the", "line"], [2, 2, 4], [(4, 1.0, 1.4), (4, 1.5, 1.9)], 40_000)
    assert [word.text for word in words] == ["on", "the", "line"]
    assert words[0].span.end_sample == words[1].span.start_sample
    assert words[0].span.samples == pytest.approx(words[1].span.samples, abs=1)
    assert words[2].span.start_s == pytest.approx(1.46)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data())
def test_every_word_gets_a_span_and_they_are_in_order(lengths: list[int], data: st.DataObject) -> None:
    groups, at = [], 0.0
    left = list(lengths)
    while left:
        taken = data.draw(st.integers(1, min(3, len(left))))
        count = sum(left[:taken])
        groups.append((count, at, at + 0.1 * count))
        at += 0.1 * count + 0.05
        left = left[taken:]
    words = times_of_words([f"w{i}" for i in range(len(lengths))], lengths, groups, round(at * SAMPLE_RATE_HZ))
    assert [word.text for word in words] == [f"w{i}" for i in range(len(lengths))]
    for before, after in pairwise(words):
        assert before.span.end_sample <= after.span.start_sample


# Speech and corpora ---------------------------------------------------------------------------------------------------


def test_speech_is_made_once_and_any_change_makes_it_anew(tmp_path: Path) -> None:
    hummer = Hummer()
    speech = Speech(hummer, tmp_path)
    first = speech.say("one two", "af_heart")
    again = speech.say("one two", "af_heart")
    np.testing.assert_array_equal(first.samples, again.samples)
    assert first.words == again.words
    speech.say("one two", "af_heart", 1.08)
    speech.say("one two", "am_adam")
    speech.say("one three", "af_heart")
    assert hummer.said == ["one two", "one two", "one two", "one three"]


def test_speech_that_was_cut_off_while_it_was_written_is_made_again(tmp_path: Path) -> None:
    hummer = Hummer()
    speech = Speech(hummer, tmp_path)
    speech.say("one", "af_heart")
    next(tmp_path.rglob("*.json")).unlink()
    assert not speech.has(Request("one", "af_heart"))
    speech.say("one", "af_heart")
    assert len(hummer.said) == 2


def few(scripts: Scripts) -> list[Plan]:
    plans = list(vgbench.switch_plans(scripts.speaker_switch[0], 0))
    return [replace(plan, utterances=plan.utterances) for plan in plans]


@pytest.mark.slow
def test_a_corpus_that_was_cut_off_goes_on_and_ends_the_same(scripts: Scripts, tmp_path: Path) -> None:
    def report(stage: str, done: int, of: int) -> None:
        seen.append((stage, done, of))

    seen: list[tuple[str, int, int]] = []
    plans = few(scripts)
    path = build(plans, tmp_path / "c", Hummer, 1, report, tmp_path / "s")
    whole = path.read_text()
    path.unlink()
    log = tmp_path / "c" / "built.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([lines[0], lines[1][: len(lines[1]) // 2]]) + "\n")
    seen.clear()
    build(plans, tmp_path / "c", Hummer, 1, report, tmp_path / "s")
    assert path.read_text() == whole
    assert [item for item in seen if item[0] == "rooms"][-1][2] == 2, "the finished one was not rendered again"


@pytest.mark.slow
def test_what_is_built_is_a_manifest_that_the_bench_reads_and_its_hashes_are_true(
    scripts: Scripts, tmp_path: Path
) -> None:
    import hashlib

    path = build(few(scripts), tmp_path / "c", Hummer, 1, lambda *_: None, tmp_path / "s")
    trials = load_manifest(path)
    assert [trial.condition for trial in trials] == ["same/near/600", "diff/far/600", "text_only"]
    assert [trial.expected.action for trial in trials] == ["tool", "mute", "tool"]
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row["audio"]:
            assert hashlib.sha256((path.parent / row["audio"]).read_bytes()).hexdigest() == row["sha256"]
            info = soundfile.info(path.parent / row["audio"])
            assert (info.samplerate, info.channels, info.subtype) == (16_000, 1, "PCM_16")


def test_conditions_of_one_command_share_voices_room_and_words(scripts: Scripts, tmp_path: Path) -> None:
    (tmp_path / "audio").mkdir()
    speech = Speech(Hummer(), tmp_path / "s")
    same, diff, _ = (render_plan(plan, speech, tmp_path) for plan in few(scripts))
    assert same["acoustics"] == diff["acoustics"]
    assert same["voices"]["A"] == diff["voices"]["A"]
    assert [part["text"] for part in same["segments"]] == [part["text"] for part in diff["segments"]]
    assert [part["distance"] for part in diff["segments"]] == ["near", "far"]


@pytest.mark.parametrize("name", CORPORA)
def test_no_two_trials_of_a_corpus_have_one_id(name: str, scripts: Scripts) -> None:
    ids = [plan.id for plan in CORPORA[name](scripts)]
    assert len(set(ids)) == len(ids)


def test_only_the_wearer_near_by_may_run_a_tool_in_any_cue_study(scripts: Scripts) -> None:
    for study in cues.STUDIES.values():
        for plan in study(scripts):
            near_wearer = plan.condition.startswith("same/near")
            assert (plan.expected.action.value == "tool") == near_wearer
            assert plan.split == "test"


def test_the_paper_sizes_are_kept(scripts: Scripts) -> None:
    counts: dict[str, int] = {}
    for plan in vgbench.plans(scripts):
        counts[plan.family] = counts.get(plan.family, 0) + 1
    assert counts == {"speaker_switch": 1200, "side_talk": 395, "self_talk": 223, "direct": 150}
    assert len(list(cues.six(scripts))) == 480
    assert len(list(cues.eight(scripts))) == 640


def test_the_smoke_set_is_small_and_holds_every_family_and_cue_condition(scripts: Scripts) -> None:
    plans = list(smoke(scripts))
    assert len(plans) <= 60
    assert len({plan.id for plan in plans}) == len(plans)
    assert {plan.family for plan in plans} == {"speaker_switch", "side_talk", "self_talk", "direct"}
    assert {plan.condition for plan in plans} >= {*cues.EIGHT, *cues.SIX, "text_only"}
    configurations = {
        (plan.condition, plan.more["assistant_content"], plan.more["bystander_content"])
        for plan in plans
        if plan.family == "side_talk"
    }
    assert len(configurations) == 8


# Word times -----------------------------------------------------------------------------------------------------------


class Lingerer(Hummer):
    """Gives each word the pause after it, as real synthesisers do."""

    def say(self, text: str, voice: Voice, speed: float = 1.0) -> tuple[np.ndarray, tuple[Word, ...]]:
        samples, words = super().say(text, voice, speed)
        quiet = 0.001 * np.random.default_rng(0).standard_normal(6400).astype(np.float32)
        late = [Word(word.text, Span(word.span.start_sample, word.span.end_sample + 800), 1.0) for word in words[:-1]]
        last = Word(words[-1].text, Span(words[-1].span.start_sample, samples.size + 6000), 1.0)
        return np.concatenate([samples, quiet]), (*late, last)


def test_a_word_ends_where_its_sound_does_lest_every_latency_look_shorter() -> None:
    said = speak(Lingerer(), "stop the music", Voice("af_heart"))
    true = Hummer().say("stop the music", Voice("af_heart"))[1]
    for word, right in zip(said.words, true, strict=True):
        assert word.text == right.text
        assert abs(word.span.start_sample - right.span.start_sample) <= 320
        assert abs(word.span.end_sample - right.span.end_sample) <= 320


def test_a_word_without_a_sound_keeps_its_place() -> None:
    samples = np.concatenate([np.ones(1600, np.float32), np.zeros(1600, np.float32)])
    words = (Word("a", Span(0, 1600), 1.0), Word("b", Span(2400, 2800), 1.0), Word("c", Span(3200, 3200), 1.0))
    assert sounding(samples, words)[1:] == words[1:]
