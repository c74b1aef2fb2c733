"""Anybody's recordings become triplets, or are left out with the reason; what a mask failed to take is found out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr

from agent.exit_codes import ExitCode
from bench import cli
from bench.build import mask_command
from bench.build.alignment import Aligner, AlignmentError, WhisperAligner
from bench.build.function_words import TaggerError
from bench.build.mask_recordings import Materials, mask_recordings, recordings_in
from bench.build.masked_check import CHECKED, CHECKS, Verdict, check, verdicts, write_checked
from bench.build.recordings import RecordingError, read_recording
from bench.build.triplets import DEGRADING, ORIGINAL, conditions
from bench.judges.waiting import heard_text
from bench.trials import Expected, ManifestError, Trial, load_manifest, write_manifest
from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio, Heard
from tests.support_masking import ListTagger, Whistler, times

# Recordings are masked, aligned and heard again.
pytestmark = pytest.mark.slow

TEXTS = {
    "dinner": ("My favourite food is pasta what do you like I like steak the most of all", "steak"),
    "city": ("I really like the rain in Boston but it is the people that I miss", "Boston"),
    "drink": ("You drink coffee and I drink tea in the morning with a spoon of honey", "tea"),
    "pet": ("The dog of my brother sleeps in the garden and it is called Biscuit now", "Biscuit"),
    "colour": ("I want a wall in orange and you would like to paint it grey or blue", "orange"),
}


class Nobody:
    """An aligner that must not be needed."""

    name = "nobody"
    error_s = 0.03

    def align(self, audio: Audio, text: str) -> Any:
        """See :meth:`bench.build.alignment.Aligner.align`."""
        raise AlignmentError("nobody aligns here")


@pytest.fixture
def whistler() -> Whistler:
    return Whistler()


def original(folder: Path, name: str, whistler: Whistler, **more: Any) -> Trial:
    """One recording with its transcript and word times, as a loader makes it."""
    text, answer = TEXTS.get(name, (name, ""))
    text = more.pop("say", text)
    samples, words = whistler.say(text)
    soundfile.write(folder / f"{name}.wav", samples, SAMPLE_RATE_HZ)
    fields = {
        "id": f"own.{name}", "family": "ear", "condition": ORIGINAL, "audio": f"{name}.wav", "question": "What is it?",
        "expected": Expected(action="answer", answer=(answer,)), "triplet": f"own.{name}", "split": "test",
        "transcript": text, "answer_texts": [answer], "word_times": times(words), "licence": "mine",
    }  # fmt: skip
    fields |= more
    return Trial.model_validate({key: value for key, value in fields.items() if value is not None})


def corpus(folder: Path, whistler: Whistler, names: Sequence[str] = tuple(TEXTS), **more: Any) -> Path:
    write_manifest(folder / "manifest.jsonl", [original(folder, name, whistler, **more) for name in names])
    return folder / "manifest.jsonl"


def materials(*aligners: Aligner, **more: Any) -> Materials:
    return Materials(aligners or (Nobody(),), ListTagger(), **more)


def extra(trial: Trial) -> dict[str, Any]:
    return dict(trial.model_extra or {})


# Triplets -------------------------------------------------------------------------------------------------------------


def test_every_recording_becomes_a_whole_triplet_in_which_only_the_masked_words_are_gone(
    tmp_path: Path, whistler: Whistler
) -> None:
    done = mask_recordings(corpus(tmp_path, whistler), tmp_path / "out", materials())
    assert (done.triplets, done.left_out) == (5, {})
    trials = load_manifest(done.manifest)
    assert [trial.condition for trial in trials] == list(conditions()) * 5
    for trial in trials:
        audio = tmp_path / "out" / str(trial.audio)
        assert hashlib.sha256(audio.read_bytes()).hexdigest() == extra(trial)["sha256"]
        text, answer = TEXTS[str(trial.triplet).removeprefix("own.")]
        heard = [word.text for word in whistler.hear(read_recording(audio)).words]
        degraded = trial.condition.startswith(DEGRADING)
        assert (answer.casefold() in heard) is not degraded, trial.id
        assert trial.expected == (
            Expected(action="pardon") if degraded else Expected(action="answer", answer=(answer,))
        )
        if trial.condition == ORIGINAL:
            assert heard == [word.casefold() for word in text.split()]
            assert extra(trial)["mask"] is None
        elif "+" not in trial.condition:
            lost = len(text.split()) - len(heard)
            assert 1 <= lost <= 2, "the word, and no more than what sounds like it"
        assert extra(trial)["licence"] == "mine", "what the manifest says beyond the contract is kept"
        assert "word_times" not in extra(trial)
        assert extra(trial)["times_from"] == "given"


def test_a_judge_is_told_what_can_be_heard_of_a_masked_recording(tmp_path: Path, whistler: Whistler) -> None:
    done = mask_recordings(corpus(tmp_path, whistler), tmp_path / "out", materials(), kinds=("noise",), wide=False)
    told = {trial.id: heard_text(trial) for trial in load_manifest(done.manifest)}
    assert told["own.dinner.degrading.noise"] == (
        "My favourite food is pasta what do you like I like [noise] the most of all"
    )
    assert told["own.dinner.invariant.noise"].count("[noise]") == 1
    assert "steak" in told["own.dinner.invariant.noise"]


def test_the_same_manifest_is_masked_the_same_way_again(tmp_path: Path, whistler: Whistler) -> None:
    manifest = corpus(tmp_path, whistler, ["dinner", "city"])
    one, again, other = (
        mask_recordings(manifest, tmp_path / name, materials(), kinds=("noise",), seed=seed).manifest.read_text()
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert one == again
    assert one != other


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"answer_texts": ["fish"]}, "the answer 'fish' is not said"),
        ({"transcript": None}, "no transcript"),
        ({"transcript": "quite another text"}, "times are of other words"),
        ({"word_times": None}, "nobody: nobody aligns here"),
        ({"word_times": [["My", "soon", 2.0]]}, "word_times are no list"),
        ({"word_times": [["My", 3.0, 2.0]]}, "word_times are no list"),
        ({"answer_texts": "steak"}, "no list of texts"),
        ({"expected": Expected(action="answer", answer=("steak", "pasta"))}, "'pasta' counts as the answer"),
    ],
)
def test_a_recording_that_cannot_be_masked_is_left_out_whole_and_the_reason_is_told(
    tmp_path: Path, whistler: Whistler, more: dict[str, Any], why: str
) -> None:
    trials = [original(tmp_path, name, whistler) for name in list(TEXTS)[1:]]
    trials.append(original(tmp_path, "dinner", whistler, **more))
    write_manifest(tmp_path / "manifest.jsonl", trials)
    done = mask_recordings(tmp_path / "manifest.jsonl", tmp_path / "out", materials(), kinds=("silence",))
    assert done.triplets == 4
    assert list(done.left_out) == ["own.dinner"]
    assert why in done.left_out["own.dinner"]
    assert not any("dinner" in trial.id for trial in load_manifest(done.manifest))
    assert not list((tmp_path / "out" / "audio").glob("own.dinner*"))


def test_a_word_whose_time_the_corpus_does_not_know_is_kept_but_never_masked(
    tmp_path: Path, whistler: Whistler
) -> None:
    def untimed(word: str) -> Path:
        trial = original(tmp_path, "dinner", whistler)
        rows = [[text, *([None, None] if text == word else [a, b])] for text, a, b in extra(trial)["word_times"]]
        write_manifest(tmp_path / "manifest.jsonl", [trial.model_copy(update={"word_times": rows})])
        return tmp_path / "manifest.jsonl"

    done = mask_recordings(untimed("pasta"), tmp_path / "a", materials(), kinds=("silence",))
    words = extra(load_manifest(done.manifest)[0])["words"][0]
    assert [text for text, _, _ in words] == TEXTS["dinner"][0].split()
    with pytest.raises(ManifestError, match="not known when 'steak' is said"):
        mask_recordings(untimed("steak"), tmp_path / "b", materials(), kinds=("silence",))


def test_recordings_without_times_are_aligned_and_the_record_says_by_whom(tmp_path: Path, whistler: Whistler) -> None:
    manifest = corpus(tmp_path, whistler, ["dinner"], word_times=None)
    aligners = (Nobody(), WhisperAligner(lambda: whistler))
    done = mask_recordings(manifest, tmp_path / "out", materials(*aligners), kinds=("noise",), wide=False)
    trials = {trial.condition: trial for trial in load_manifest(done.manifest)}
    assert {extra(trial)["times_from"] for trial in trials.values()} == {"whisper"}
    degraded = read_recording(tmp_path / "out" / str(trials[f"{DEGRADING}/noise"].audio))
    assert "steak" not in [word.text for word in whistler.hear(degraded).words]


def test_a_last_word_that_ends_a_rounding_after_the_recording_is_no_reason_to_leave_it_out(
    tmp_path: Path, whistler: Whistler
) -> None:
    trial = original(tmp_path, "pet", whistler, say="The dog is called Biscuit and you and I like it")
    samples, _ = soundfile.read(tmp_path / "pet.wav", dtype="float32")
    rows = extra(trial)["word_times"]
    soundfile.write(tmp_path / "pet.wav", samples[: round(rows[-1][2] * SAMPLE_RATE_HZ) - 200], SAMPLE_RATE_HZ)
    write_manifest(tmp_path / "manifest.jsonl", [trial])
    assert mask_recordings(tmp_path / "manifest.jsonl", tmp_path / "o", materials(), kinds=("noise",)).triplets == 1
    soundfile.write(tmp_path / "pet.wav", samples[: round(rows[-1][2] * SAMPLE_RATE_HZ) - 2000], SAMPLE_RATE_HZ)
    with pytest.raises(ManifestError, match="ends after the recording"):
        mask_recordings(tmp_path / "manifest.jsonl", tmp_path / "p", materials(), kinds=("noise",))


def test_a_transcript_in_capitals_is_not_tagged_as_a_row_of_names(tmp_path: Path, whistler: Whistler) -> None:
    class Shy(ListTagger):
        def tags(self, text: str) -> tuple[frozenset[str], ...]:
            assert not text.isupper()
            return super().tags(text)

    text = TEXTS["dinner"][0].upper()
    manifest = corpus(tmp_path, whistler, ["dinner"], say=text)
    shy = Materials((Nobody(),), Shy())
    assert mask_recordings(manifest, tmp_path / "out", shy, kinds=("noise",)).triplets == 1


# Babble ---------------------------------------------------------------------------------------------------------------


def test_babble_is_made_of_recordings_that_are_known_not_to_say_the_answer(tmp_path: Path, whistler: Whistler) -> None:
    def left_out(*names: str) -> dict[str, str]:
        trials = [original(tmp_path, name, whistler) for name in ("dinner", *names)]
        trials.append(original(tmp_path, "tells", whistler, say="We had steaks and steak again in the evening"))
        trials.append(original(tmp_path, "unknown", whistler, say="Nobody wrote this down", transcript=None))
        trials.append(original(tmp_path, "train", whistler, say="This is of another split", split="train"))
        write_manifest(tmp_path / "manifest.jsonl", trials)
        done = mask_recordings(
            tmp_path / "manifest.jsonl", tmp_path / "out", materials(), kinds=("silence", "babble"), wide=False
        )
        return done.left_out

    assert "own.dinner" not in left_out("city", "drink", "pet")
    assert "babble needs 3 other recordings of speech or more, not 2" in left_out("city", "drink")["own.dinner"]


def test_one_recording_alone_is_masked_without_babble_or_with_voices_that_are_brought(
    tmp_path: Path, whistler: Whistler
) -> None:
    manifest = corpus(tmp_path, whistler, ["dinner"])
    with pytest.raises(ManifestError, match="leave that mask out"):
        mask_recordings(manifest, tmp_path / "a", materials())
    assert mask_recordings(manifest, tmp_path / "b", materials(), kinds=("noise", "silence", "music")).triplets == 1
    (tmp_path / "voices").mkdir()
    for name in ("city", "drink", "pet"):
        original(tmp_path / "voices", name, whistler)
    brought = materials(voices=recordings_in(tmp_path / "voices"))
    assert mask_recordings(manifest, tmp_path / "c", brought).triplets == 1


# What is wrong with a manifest ----------------------------------------------------------------------------------------


def test_a_manifest_is_never_overwritten_by_its_own_triplets(tmp_path: Path, whistler: Whistler) -> None:
    manifest = corpus(tmp_path, whistler)
    before = manifest.read_bytes()
    with pytest.raises(ManifestError, match="folder of their own"):
        mask_recordings(manifest, tmp_path, materials())
    assert manifest.read_bytes() == before


def test_a_manifest_without_originals_is_refused(tmp_path: Path, whistler: Whistler) -> None:
    manifest = corpus(tmp_path, whistler, ["dinner"])
    with pytest.raises(ManifestError, match="no trial of the family ear"):
        mask_recordings(manifest, tmp_path / "out", materials(), split="dev")


def test_a_recording_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "torn.wav").write_bytes(b"RIFF")
    with pytest.raises(RecordingError, match=r"torn\.wav"):
        read_recording(tmp_path / "torn.wav")
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), SAMPLE_RATE_HZ)
    with pytest.raises(RecordingError, match=r"empty\.wav: is empty"):
        read_recording(tmp_path / "empty.wav")
    (tmp_path / "none").mkdir()
    with pytest.raises(ManifestError, match="holds no recording"):
        recordings_in(tmp_path / "none")
    assert recordings_in(None) == []


def test_any_rate_and_channel_count_is_read_as_the_project_hears_it(tmp_path: Path) -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(44_100) / 44_100)
    soundfile.write(tmp_path / "s.wav", np.stack([tone, 0 * tone], axis=1), 44_100)
    found = read_recording(tmp_path / "s.wav")
    assert found.dtype == np.float32
    wanted = soxr.resample(0.5 * tone, 44_100, SAMPLE_RATE_HZ)
    assert found.size == pytest.approx(wanted.size, abs=2)
    np.testing.assert_allclose(found[100:-100], wanted[100 : found.size - 100], atol=1e-3)


# The check ------------------------------------------------------------------------------------------------------------


def told(condition: str, triplet: str = "t") -> Trial:
    return Trial(
        id=f"{triplet}.{condition.replace('/', '.')}", family="ear", condition=condition, audio="a.wav", question="?",
        expected=Expected(action="answer", answer=("steak",)), triplet=triplet, split="test",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "in_original", "in_masked", "verdict"),
    [
        ("semantic_degrading/noise", True, False, Verdict.HOLDS),
        ("semantic_degrading/noise", True, True, Verdict.FAILS),
        ("semantic_degrading/noise", False, True, Verdict.FAILS),
        ("semantic_degrading/noise", False, False, Verdict.UNKNOWN),
        ("semantic_invariant/noise", True, True, Verdict.HOLDS),
        ("semantic_invariant/noise", True, False, Verdict.FAILS),
        ("semantic_invariant/noise", False, False, Verdict.UNKNOWN),
    ],
)
def test_a_label_holds_only_when_hearing_the_recording_agrees(
    condition: str, in_original: bool, in_masked: bool, verdict: Verdict
) -> None:
    trials = [told(ORIGINAL), told(condition)]
    said = {True: "I like steak", False: "I like"}
    texts = {trials[0].id: said[in_original], trials[1].id: said[in_masked]}
    assert verdicts(trials, texts, {"t": ("steak",)}) == {trials[1].id: verdict}


class Counting:
    """An ear that counts what it hears, and may be stopped."""

    def __init__(self, whistler: Whistler, most: int = 10**6) -> None:
        self.whistler, self.model, self.most, self.heard = whistler, whistler.model, most, 0

    def hear(self, audio: Audio) -> Heard:
        """See :meth:`models.protocols.SpeechEar.hear`."""
        if self.heard == self.most:
            raise KeyboardInterrupt
        self.heard += 1
        return self.whistler.hear(audio)


def test_masks_that_do_their_work_hold_and_one_that_missed_the_answer_is_found_out(
    tmp_path: Path, whistler: Whistler
) -> None:
    out = tmp_path / "out"
    manifest = mask_recordings(corpus(tmp_path, whistler), out, materials(), kinds=("noise", "silence")).manifest
    found = check(manifest, Counting(whistler))
    assert found.failed == ()
    assert set(found.verdicts.values()) == {Verdict.HOLDS}
    assert found.without_failures() == list(found.trials)

    # A mask at the wrong place: the original, under the name of a degraded recording.
    (out / "audio" / "own.city.degrading.noise.flac").write_bytes(
        (out / "audio" / "own.city.original.flac").read_bytes()
    )
    ear = Counting(whistler)
    found = check(manifest, ear)
    assert ear.heard == 1, "only what has changed is heard again"
    assert found.failed == ("own.city.degrading.noise",)
    kept = load_manifest(write_checked(manifest, found))
    assert len(kept) == 4 * 7, "the whole triplet goes"
    assert not any(trial.triplet == "own.city" for trial in kept)
    assert "semantic_degrading/noise" in found.table()


def test_a_check_that_was_stopped_goes_on_and_another_ear_hears_all_anew(tmp_path: Path, whistler: Whistler) -> None:
    manifest = mask_recordings(
        corpus(tmp_path, whistler, ["dinner"]), tmp_path / "out", materials(), kinds=("noise", "silence")
    ).manifest
    with pytest.raises(KeyboardInterrupt):
        check(manifest, Counting(whistler, most=4))
    log = manifest.with_name(CHECKS)
    log.write_text(log.read_text() + '{"id": "own.din')
    ear = Counting(whistler)
    found = check(manifest, ear)
    assert ear.heard == 3
    assert len(found.verdicts) == 6
    other = Counting(whistler)
    other.model = type(whistler.model)("another", "1" * 64)
    check(manifest, other)
    assert other.heard == 7


def test_a_triplet_without_its_original_cannot_be_checked(tmp_path: Path, whistler: Whistler) -> None:
    manifest = mask_recordings(
        corpus(tmp_path, whistler, ["dinner"]), tmp_path / "out", materials(), kinds=("noise",)
    ).manifest
    trials = load_manifest(manifest)
    write_manifest(manifest, trials[1:])
    with pytest.raises(ManifestError, match="no original with an answer"):
        check(manifest, Counting(whistler))
    with pytest.raises(ManifestError, match="no trial of the family ear on dev"):
        check(manifest, Counting(whistler), split="dev")


def test_when_every_mask_failed_no_empty_manifest_is_written(tmp_path: Path, whistler: Whistler) -> None:
    manifest = mask_recordings(
        corpus(tmp_path, whistler, ["dinner"]), tmp_path / "out", materials(), kinds=("noise",)
    ).manifest
    audio = manifest.parent / "audio"
    (audio / "own.dinner.degrading.noise.flac").write_bytes((audio / "own.dinner.original.flac").read_bytes())
    with pytest.raises(ManifestError, match="in every triplet"):
        write_checked(manifest, check(manifest, Counting(whistler)))
    assert not manifest.with_name(CHECKED).exists()


# Commands -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def _no_models(monkeypatch: pytest.MonkeyPatch, whistler: Whistler) -> None:
    monkeypatch.setattr("bench.build.function_words.SpacyTagger", ListTagger)
    monkeypatch.setattr(mask_command, "_ear", lambda threads: whistler)


@pytest.mark.usefixtures("_no_models")
def test_a_user_masks_and_checks_from_the_command_line(
    tmp_path: Path, whistler: Whistler, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, out = corpus(tmp_path, whistler), tmp_path / "out"
    assert cli.main(["mask", str(manifest), "--out", str(out), "--masks", "noise", "babble"]) == ExitCode.OK
    captured = capsys.readouterr().out
    assert "5 triplets (word times: 5 given), 0 recordings left out" in captured
    assert str(out / "manifest.jsonl") in captured
    assert cli.main(["mask-check", str(out / "manifest.jsonl"), "--write"]) == ExitCode.OK
    captured = capsys.readouterr().out
    assert "semantic_invariant/babble" in captured
    assert str(out / CHECKED) in captured
    assert len(load_manifest(out / CHECKED)) == 5 * 7


@pytest.mark.usefixtures("_no_models")
def test_what_was_left_out_and_what_failed_shows_in_the_exit_code(
    tmp_path: Path, whistler: Whistler, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = [original(tmp_path, name, whistler) for name in TEXTS]
    trials[0] = trials[0].model_copy(update={"answer_texts": ["fish"]})
    write_manifest(tmp_path / "manifest.jsonl", trials)
    arguments = ["mask", str(tmp_path / "manifest.jsonl"), "--out", str(tmp_path / "out"), "--no-wide"]
    assert cli.main([*arguments, "--masks", "silence"]) == ExitCode.FAILED
    assert "left out: own.dinner: the answer 'fish'" in capsys.readouterr().err
    audio = tmp_path / "out" / "audio"
    (audio / "own.city.degrading.silence.flac").write_bytes((audio / "own.city.original.flac").read_bytes())
    assert cli.main(["mask-check", str(tmp_path / "out" / "manifest.jsonl")]) == ExitCode.FAILED
    assert "fails: own.city.degrading.silence" in capsys.readouterr().out


def test_without_a_tagger_the_cure_is_one_line(
    tmp_path: Path, whistler: Whistler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise TaggerError("no part-of-speech tagger: pip install 'voicegate[bench]'")

    monkeypatch.setattr("bench.build.function_words.SpacyTagger", missing)
    manifest = corpus(tmp_path, whistler, ["dinner"])
    assert cli.main(["mask", str(manifest), "--out", str(tmp_path / "out")]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "voicegate[bench]" in said
    assert "Traceback" not in said


def test_what_was_heard_is_on_record(tmp_path: Path, whistler: Whistler) -> None:
    manifest = mask_recordings(
        corpus(tmp_path, whistler, ["dinner"]), tmp_path / "out", materials(), kinds=("noise",), wide=False
    ).manifest
    check(manifest, Counting(whistler))
    lines = [json.loads(line) for line in manifest.with_name(CHECKS).read_text().splitlines()]
    assert [line["id"] for line in lines] == [trial.id for trial in load_manifest(manifest)]
    assert lines[0]["text"] == TEXTS["dinner"][0].casefold()
    assert {line["ear"] for line in lines} == {"whistler-0000000000000000"}
