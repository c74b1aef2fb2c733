"""The EAR corpus is built as described: triplets that differ by the mask alone, and a babble that never helps."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from bench.build import ear
from bench.build.answers import heard, says
from bench.build.ear import EarPlan, build_ear, ear_plans, render_plan
from bench.build.ear_scripts import EarPassage, EarScriptError, EarScripts, load_ear_scripts
from bench.build.masking import FADE_S, MASK_KINDS, MaskingError
from bench.build.scenes import draw_acoustics
from bench.build.speech import Speech
from bench.build.triplets import DEGRADING, ORIGINAL, conditions
from bench.build.voices import SPLITS, Voice
from bench.trials import Trial, load_manifest, write_manifest
from gate.span import SAMPLE_RATE_HZ
from tests.support_masking import ListTagger, Whistler

FADE = round(FADE_S * SAMPLE_RATE_HZ)


@pytest.fixture(scope="module")
def scripts() -> EarScripts:
    return load_ear_scripts()


@pytest.fixture(scope="module")
def plans(scripts: EarScripts) -> list[EarPlan]:
    return ear_plans(scripts.of(["dev"]), ListTagger())


@pytest.fixture(scope="module")
def one_room() -> Iterator[None]:
    """Simulating rooms takes the longest; what is tested here does not depend on which."""
    acoustics = draw_acoustics("dev", 20_000, snr_db=30.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ear, "draw_acoustics", lambda split, index, snr_db: acoustics)
        yield


@pytest.fixture(scope="module")
def corpus(plans: list[EarPlan], one_room: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Trial]]:
    """A dialogue and a passage of dev, whistled, rendered and masked."""
    folder = tmp_path_factory.mktemp("ear")
    (folder / "audio").mkdir()
    passage = next(plan for plan in plans if isinstance(plan.script, EarPassage))
    speech = Speech(Whistler(), folder / "s")
    trials = [trial for plan in (plans[0], passage) for trial in render_plan(plan, speech, folder)]
    write_manifest(folder / "manifest.jsonl", trials)
    return folder, load_manifest(folder / "manifest.jsonl")


def pcm(folder: Path, trial: Trial) -> np.ndarray:
    assert trial.audio is not None
    samples, _ = soundfile.read(folder / trial.audio, dtype="int16")
    return samples


def triplets(trials: list[Trial]) -> Iterator[tuple[Trial, list[Trial]]]:
    for original in (trial for trial in trials if trial.condition == ORIGINAL):
        yield original, [t for t in trials if t.triplet == original.triplet and t is not original]


def extra(trial: Trial) -> dict[str, Any]:
    return dict(trial.model_extra or {})


# Scripts --------------------------------------------------------------------------------------------------------------


def test_there_are_dialogues_and_passages_in_every_split_and_no_family_is_torn(scripts: EarScripts) -> None:
    counts = Counter((script.split, type(script).__name__) for script in scripts)
    assert counts == {
        ("train", "EarDialogue"): 90, ("dev", "EarDialogue"): 30, ("test", "EarDialogue"): 30,
        ("train", "EarPassage"): 36, ("dev", "EarPassage"): 12, ("test", "EarPassage"): 12,
    }  # fmt: skip
    splits: dict[str, set[str]] = {}
    for script in scripts:
        splits.setdefault(script.family, set()).add(script.split)
    assert all(len(found) == 1 for found in splits.values())


def test_passages_are_long_and_dialogues_are_of_two_people(scripts: EarScripts) -> None:
    for passage in scripts.passages:
        words = sum(len(turn.text.split()) for turn in passage.utterances())
        assert 100 <= words <= 160
        assert {turn.speaker for turn in passage.utterances()} == {"A"}
    for dialogue in scripts.dialogues:
        assert {turn.speaker for turn in dialogue.turns} == {"A", "B"}
        assert not any(mark in dialogue.question for mark in ("A.", "B.", "C.")), "questions are open"


def test_without_the_answers_words_nobody_can_answer(scripts: EarScripts) -> None:
    for script in scripts:
        said = [turn.text.split() for turn in script.utterances()]
        assert sum(says(words, script.answers[0]) for words in said) == 1, script.id
        assert not any(says(script.question.split(), answer) for answer in script.answers), script.id


DIALOGUE: dict[str, Any] = {
    "id": "dlg.x.1", "family": "dlg.x", "split": "dev", "voices": {"A": "female", "B": "male"},
    "turns": [
        {"speaker": "A", "text": "What do you like to eat?"}, {"speaker": "B", "text": "I like dumplings the most."},
        {"speaker": "A", "text": "I never tried."}, {"speaker": "B", "text": "Come over."},
    ],
    "question": "What does the second speaker like?", "answers": ["dumplings"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"answers": ["pizza"]}, "said 0 times"),
        ({"answers": ["dumplings", "dumpling", "come over"]}, "said elsewhere"),
        ({"question": "Are dumplings good?"}, "the question says"),
        ({"question": "What does the man like?", "voices": {"A": "male", "B": "male"}}, "both voices are alike"),
        ({"turns": DIALOGUE["turns"][:2]}, "2 turns"),
        ({"turns": [turn | {"speaker": "A"} for turn in DIALOGUE["turns"]]}, "both speak"),
        ({"answers": []}, "no answer"),
    ],
)
def test_a_script_whose_mask_would_not_make_it_unanswerable_is_refused_with_its_line(
    tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    (tmp_path / "d.jsonl").write_text(json.dumps(DIALOGUE) + "\n" + json.dumps(DIALOGUE | changed | {"id": "dlg.x.2"}))
    (tmp_path / "p.jsonl").write_text("")
    with pytest.raises(EarScriptError, match=rf"d\.jsonl:2: .*{why}"):
        load_ear_scripts(tmp_path / "d.jsonl", tmp_path / "p.jsonl")


def test_scripts_that_clash_are_refused(tmp_path: Path) -> None:
    other = DIALOGUE | {"split": "test"}
    (tmp_path / "d.jsonl").write_text(json.dumps(DIALOGUE) + "\n" + json.dumps(other))
    (tmp_path / "p.jsonl").write_text("")
    with pytest.raises(EarScriptError) as caught:
        load_ear_scripts(tmp_path / "d.jsonl", tmp_path / "p.jsonl")
    assert "the family dlg.x is in dev, too" in str(caught.value)
    assert "has the id of dlg.x.1" in str(caught.value)
    assert "has the text of dlg.x.1" in str(caught.value)


# Plans ----------------------------------------------------------------------------------------------------------------


def test_a_voice_is_of_its_speakers_sex_and_split_and_nobody_elses(plans: list[EarPlan]) -> None:
    for plan in plans:
        voices = [Voice(name) for name in plan.voices.values()]
        assert all(set(voice.parts) <= set(SPLITS[plan.split]) for voice in voices)
        assert len({part for voice in voices for part in voice.parts}) == sum(len(voice.parts) for voice in voices)
        for speaker, name in plan.voices.items():
            assert Voice(name).sex == plan.script.voice_of(speaker)[0]
    assert len({plan.room for plan in plans}) == len(plans)


def test_the_babble_never_says_the_answer_nor_is_it_said_by_somebody_in_the_recording(plans: list[EarPlan]) -> None:
    for plan in plans:
        assert len(plan.babble) >= 5
        for request in plan.babble:
            assert not any(says(request.text.split(), answer) for answer in plan.script.answers), plan.script.id
            assert request not in plan.said
            assert not any(Voice(request.voice).shares_a_part_with(Voice(name)) for name in plan.voices.values())
            assert set(Voice(request.voice).parts) <= set(SPLITS[plan.split])


def test_a_split_is_built_alone_as_it_is_built_with_the_others(scripts: EarScripts, plans: list[EarPlan]) -> None:
    mixed = EarScripts(
        tuple(s for s in scripts.dialogues if s.split == "dev" or s.id.endswith(".1")), scripts.of(["dev"]).passages
    )
    together = {plan.script.id: plan for plan in ear_plans(mixed, ListTagger())}
    assert all(together[plan.script.id] == plan for plan in plans)


def test_train_has_one_mask_a_script_in_turn_and_the_others_have_all(scripts: EarScripts) -> None:
    train = ear_plans(EarScripts(scripts.of(["train"]).dialogues[:8], ()), ListTagger())
    assert Counter(plan.kinds for plan in train) == {(kind,): 2 for kind in MASK_KINDS}
    assert all(bool(plan.babble) is (plan.kinds == ("babble",)) for plan in train)
    assert {plan.trials for plan in train} == {4}


def test_a_changed_script_is_built_anew_and_an_unchanged_one_is_not(plans: list[EarPlan]) -> None:
    plan = plans[0]
    digest = plan.digest("v")
    assert replace(plan).digest("v") == digest
    assert plan.digest("w") != digest
    changed = plan.script.model_copy(update={"answers": (*plan.script.answers, "another")})
    for other in (replace(plan, script=changed), replace(plan, babble=plan.babble[1:]), replace(plan, snr_db=0.0)):
        assert other.digest("v") != digest


# The corpus -----------------------------------------------------------------------------------------------------------


def test_what_is_built_is_a_manifest_of_whole_triplets_and_its_hashes_are_true(
    corpus: tuple[Path, list[Trial]],
) -> None:
    folder, trials = corpus
    assert len(trials) == 2 * len(conditions())
    for original, others in triplets(trials):
        assert (original.condition, *(trial.condition for trial in others)) == conditions()
    for trial in trials:
        assert trial.question
        right = "pardon" if trial.condition.startswith(DEGRADING) else "answer"
        assert trial.expected.action == right
        assert (trial.expected.answer is not None) is (right == "answer")
        assert hashlib.sha256((folder / str(trial.audio)).read_bytes()).hexdigest() == extra(trial)["sha256"]
        info = soundfile.info(folder / str(trial.audio))
        assert (info.samplerate, info.channels, info.subtype) == (SAMPLE_RATE_HZ, 1, "PCM_16")


def test_a_masked_recording_is_the_original_to_the_sample_outside_the_mask(corpus: tuple[Path, list[Trial]]) -> None:
    folder, trials = corpus
    for original, others in triplets(trials):
        clean = pcm(folder, original)
        for trial in others:
            samples = pcm(folder, trial)
            assert samples.size == clean.size, "the temporal structure is kept"
            untouched = np.ones(clean.size, bool)
            for start, end in extra(trial)["mask"]["spans"]:
                # Times are written to a tenth of a millisecond.
                first = max(0, round(start * SAMPLE_RATE_HZ) - FADE - 2)
                last = round(end * SAMPLE_RATE_HZ) + FADE + 2
                untouched[first:last] = False
                assert (samples[first:last] != clean[first:last]).any()
            np.testing.assert_array_equal(samples[untouched], clean[untouched])


def test_a_degrading_mask_lies_on_the_answer_and_an_invariant_one_away_from_it(
    corpus: tuple[Path, list[Trial]],
) -> None:
    _, trials = corpus
    for original, others in triplets(trials):
        words = [word for utterance in extra(original)["words"] for word in utterance]
        assert original.expected.answer is not None
        for trial in others:
            mask = extra(trial)["mask"]
            under = [
                text
                for text, start, end in words
                if any(
                    low * SAMPLE_RATE_HZ - 2 <= start and end <= high * SAMPLE_RATE_HZ + 2
                    for low, high in mask["spans"]
                )
            ]
            if trial.condition.startswith(DEGRADING):
                assert says(under, original.expected.answer[0])
                assert mask["of"] == "answer"
            else:
                assert under == mask["words"]
                assert len(under) == 1
                assert all(
                    low >= after or high <= before
                    for low, high in mask["spans"]
                    for before, after in mask["answer_spans"]
                ), "it touches the answer"


def test_conditions_of_one_question_share_voices_room_words_and_labels(corpus: tuple[Path, list[Trial]]) -> None:
    _, trials = corpus
    for original, others in triplets(trials):
        for trial in others:
            assert trial.segments == original.segments
            assert trial.question == original.question
            for fact in ("voices", "acoustics", "words", "duration_s"):
                assert extra(trial)[fact] == extra(original)[fact]


@pytest.mark.slow
def test_a_build_that_was_cut_off_goes_on_and_ends_the_same(scripts: EarScripts, tmp_path: Path) -> None:
    few = EarScripts(scripts.of(["train"]).dialogues[:3], ())  # noise, silence, music: nobody else has to speak
    seen: list[tuple[str, int, int]] = []

    def build(limit: int | None = None) -> Path:
        return build_ear(
            tmp_path / "c", Whistler, 1, lambda *what: seen.append(what), scripts=few, tagger=ListTagger(),
            speech_folder=tmp_path / "s", limit=limit,
        )  # fmt: skip

    whole = build().read_text()
    log = tmp_path / "c" / "built.jsonl"
    first, second, third = log.read_text().splitlines()
    log.write_text("\n".join([first, second, third[: len(third) // 2]]) + "\n")
    gone = load_manifest(tmp_path / "c" / "manifest.jsonl")[0]
    (tmp_path / "c" / str(gone.audio)).unlink()
    (tmp_path / "c" / "manifest.jsonl").unlink()
    seen.clear()
    assert build().read_text() == whole
    assert [of for stage, _, of in seen if stage == "masks"][-1] == 2, "the torn one, and the one whose audio is gone"
    assert len(load_manifest(build(limit=5))) == 8, "the limit ends with a whole triplet"
    assert seen[-1][2] == 2, "nothing was made again"


def test_a_script_that_cannot_be_masked_stops_the_build_and_is_named(
    plans: list[EarPlan], one_room: None, tmp_path: Path
) -> None:
    (tmp_path / "audio").mkdir()
    deaf = replace(plans[0], function_words=())
    with pytest.raises(MaskingError, match=rf"{plans[0].script.id}: .*no function word"):
        render_plan(deaf, Speech(Whistler(), tmp_path / "s"), tmp_path)


def test_hearing_the_shipped_scripts_finds_their_answers(scripts: EarScripts) -> None:
    """What the check looks for must be found in a perfect transcript of each, or it could verify nothing."""
    for script in scripts.of(["dev", "test"]):
        words = [word for turn in script.utterances() for word in turn.text.split()]
        assert heard(words, script.answers), script.id
