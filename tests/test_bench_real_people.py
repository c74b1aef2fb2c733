"""Real people replayed: what is played of a folder of recordings, and what its report makes of a log."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from agent.exit_codes import ExitCode
from bench.people import labels, verification
from bench.people.building import build
from bench.people.clips import SPEAKER_THRESHOLDS, read_clips
from bench.people.errors import PeopleError
from bench.people.kinds import COMMANDS, of_kind, require_all_known
from bench.people.per_hour import PerHour, poisson_interval
from bench.people.pieces import LEAD_S, cut, far_rooms, in_room
from bench.people.report import report
from bench.people.scores import Turn, equal_error
from bench.real_people import main
from bench.results import DecisionRecord, TrialResult, TrialTiming, deciding, most_consequential
from bench.trials import Expected, Segment, Trial, load_manifest
from gate.span import SAMPLE_RATE_HZ
from models.training.speaker_calibration import is_development
from tests.bench_harness import decision
from tests.report_harness import write_run
from tools.catalogue import ToolCatalogue

# Corpora are written and read back for every test.
pytestmark = pytest.mark.slow

COLUMNS = (
    "path", "set", "speaker", "transcript", "condition", "duration_s", "sample_rate", "source_repo", "license", "note",
)  # fmt: skip
PEOPLE = ("R_one", "R_four", "R_three", "R_five", "R_a")
SAME_VOICE = ("R_three", "R_five")
CLIPS: tuple[tuple[str, str, str, float, str], ...] = (
    *(
        (f"alphanumeric/{who}/{what}.wav", who, "near (self-recorded)", 5.5, "")
        for who in PEOPLE
        for what in ("Names", "Numbers", "Addresses")
    ),
    *(
        (f"librispeech_test_other/{who}/{who}-{n}.wav", who, "near (read audiobook)", 5.5, "")
        for who in ("1688", "1998", "2033")
        for n in (0, 1)
    ),
    *((f"cmu_arctic/bdl/a{n}.wav", "bdl", "near (studio)", 2.4, "") for n in range(4)),
    ("ami_meetings/multi/dev01.wav", "multi", "near headset mix, multi-speaker", 3.0, ""),
    ("ami_meetings/multi_far/EN.wav", "multi_far", "far? (level suggests table array)", 3.0, ""),
    ("ami_near_far/real_ex1/mix.wav", "real_ex1", "far (table microphone, 2 talkers)", 2.0, ""),
    ("ami_near_far/real_ex1_src1/headset.wav", "real_ex1_src1", "near (headset)", 2.0, ""),
    ("ami_near_far/real_ex1_src1/filtered.wav", "real_ex1_src1", "far (headset signal filtered)", 2.0, ""),
    ("google_distance/x/mix.wav", "x", "mixture near+far, simulated room, real voices", 2.0, ""),
    ("google_distance/x/src0.wav", "x", "near ground truth (<1.5 m)", 2.0, ""),
    ("google_distance/x/src1.wav", "x", "far ground truth (>1.5 m)", 2.0, ""),
    ("eagle/falcon_dialog/test.wav", "falcon_dialog", "near, multi-speaker", 2.0, ""),
    ("public_domain/jfk/jfk.wav", "jfk", "near/hall", 2.0, ""),
    ("commands/rhasspy3/turn_on_the_lamp.wav", "rhasspy3", "near", 2.0, ""),
    ("commands/ohf_en/what_time_is_it.wav", "ohf_en", "near (developer voice)", 2.0, ""),
    ("commands/ohf_fr/annuler.wav", "ohf_fr", "near (developer voice, French)", 2.0, ""),
    ("picovoice_speech_to_intent/ps1/a.wav", "ps1", "near (crowd-sourced)", 2.0, "intent=orderDrink slots={}"),
    ("picovoice_wake_word/u/a.wav", "u", "near (crowd-sourced)", 2.0, ""),
    ("precise_wakewords/k/a.wav", "k", "near (home microphones)", 2.0, ""),
    ("rir/rir/rir_clap.wav", "rir", "measured, seminar room (clap)", 0.5, ""),
)
"""Path, speaker, condition, seconds and note."""


def sound(seconds: float, seed: int) -> np.ndarray:
    """Syllables of noise over a quiet floor, with silence before and after."""
    random = np.random.default_rng(seed)
    count = round(seconds * SAMPLE_RATE_HZ)
    time_s = np.arange(count) / SAMPLE_RATE_HZ
    loud = 0.2 * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * time_s)) * ((time_s > 0.2) & (time_s < seconds - 0.2))
    return (loud + 0.001) * random.standard_normal(count)


def impulse_response() -> np.ndarray:
    """A click and a strong decay: far, by its ratio of direct to reverberant sound."""
    random = np.random.default_rng(1)
    count = SAMPLE_RATE_HZ // 2
    taps = 0.08 * random.standard_normal(count) * np.exp(-np.arange(count) / (0.08 * SAMPLE_RATE_HZ))
    taps[40] = 1.0
    return taps / np.abs(taps).max() * 0.9


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of recordings as the user has one, but tiny."""
    folder = tmp_path_factory.mktemp("data")
    write_data(folder, CLIPS)
    return folder


def write_data(folder: Path, clips: Sequence[tuple[str, str, str, float, str]]) -> None:
    audio = folder / "audio"
    audio.mkdir(parents=True)
    with (audio / "manifest.tsv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, delimiter="\t")
        table.writeheader()
        for number, (name, speaker, condition, seconds, note) in enumerate(clips):
            samples = impulse_response() if name.startswith("rir/") else sound(seconds, number)
            (audio / name).parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(audio / name, samples, SAMPLE_RATE_HZ)
            table.writerow(
                {
                    "path": name, "set": name.split("/")[0], "speaker": speaker, "transcript": "", "note": note,
                    "condition": condition, "duration_s": seconds, "sample_rate": SAMPLE_RATE_HZ,
                    "source_repo": "made up", "license": "CC0",
                }
            )  # fmt: skip
    same = "".join(f"c1\t{who}\n" for who in SAME_VOICE)
    (audio / "alphanumeric").mkdir(exist_ok=True)
    (audio / "alphanumeric" / "suspect_same_voice.tsv").write_text(f"cluster\tresponse_id\n{same}", encoding="utf-8")


def accepts(path: Path) -> str | None:
    return None


@pytest.fixture(scope="module")
def trials(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    return load_manifest(build(data, tmp_path_factory.mktemp("corpus"), accepts).manifest)


def of(trials: Sequence[Trial], study: str) -> list[Trial]:
    return [trial for trial in trials if extra(trial, "study") == study]


def extra(trial: Trial, name: str) -> Any:
    return (trial.model_extra or {})[name]


# What is played ------------------------------------------------------------------------------------------------------


def test_every_conversation_is_played_with_strangers_enrolled_and_with_nobody(trials: list[Trial]) -> None:
    talk = of(trials, "talk")
    recordings = {extra(trial, "recording") for trial in talk}
    assert len(recordings) == 6
    for recording in recordings:
        wearers = [extra(trial, "wearer") for trial in talk if extra(trial, "recording") == recording]
        assert wearers.count(None) == 1
        assert len(wearers) == 3 == len(set(wearers))
    assert {trial.expected.action for trial in talk} == {"mute"}


def test_every_command_and_wake_word_is_played_with_somebody_else_enrolled(trials: list[Trial]) -> None:
    found = of(trials, "strangers_command")
    assert len(found) == 6
    for trial in found:
        assert trial.enrolment is not None
        assert extra(trial, "wearer").split("/")[0] not in extra(trial, "recording")
        assert trial.expected.action == "mute"


def test_own_commands_carry_the_label_and_nobody_is_enrolled(trials: list[Trial]) -> None:
    found = {extra(t, "recording").rsplit("/", 1)[-1]: t for t in of(trials, "own_command")}
    right = {name: (t.expected.action, t.expected.tool, extra(t, "judged")) for name, t in found.items()}
    assert right == {
        "turn_on_the_lamp.wav": ("tool", "control_device", True),
        "what_time_is_it.wav": ("answer", None, True),
        "annuler.wav": ("mute", None, False),
        "a.wav": ("tool", "place_order", True),
    }
    assert all(trial.enrolment is None for trial in found.values())


def test_far_recordings_and_commands_through_a_measured_room_have_nobody_to_hold_them_back(trials: list[Trial]) -> None:
    found = of(trials, "far")
    kinds = [extra(trial, "kind") for trial in found]
    assert sorted(set(kinds)) == ["filtered", "headset", "room", "simulated_far", "simulated_near"]
    assert kinds.count("room") == 4
    assert {extra(t, "room") for t in found if extra(t, "kind") == "room"} == {"rir_clap#0"}
    assert all(trial.enrolment is None and trial.expected.action == "mute" for trial in found)


def test_a_voice_that_may_be_the_wearers_own_is_never_played_as_a_stranger(trials: list[Trial]) -> None:
    found = of(trials, "verification")
    different = [trial for trial in found if extra(trial, "relation") == "different"]
    assert different
    assert all(extra(trial, "talker") != extra(trial, "wearer") for trial in different)
    assert all(extra(t, "talker") == extra(t, "wearer") for t in found if extra(t, "relation") == "same")
    assert {extra(t, "talker").split("/")[0] == extra(t, "wearer").split("/")[0] for t in different} == {True}
    assert "alphanumeric/c1" in {extra(trial, "wearer") for trial in found}


def test_a_wearer_is_never_known_by_the_clip_that_she_was_enrolled_from(trials: list[Trial]) -> None:
    for trial in of(trials, "verification"):
        assert trial.enrolment is not None
        assert not trial.enrolment.endswith(extra(trial, "recording"))


def test_voices_that_chose_a_threshold_are_marked_so_that_no_figure_hides_them(data: Path, trials: list[Trial]) -> None:
    voices = {clip.speaker: clip for clip in read_clips(data) if clip.set_name == "librispeech_test_other"}
    for speaker, clip in voices.items():
        assert (SPEAKER_THRESHOLDS in clip.used_for) is is_development(speaker)
    for trial in trials:
        assert trial.split == ("train" if "network_training" in extra(trial, "used_for") else trial.split)
        assert (trial.split == "test") is (extra(trial, "used_for") == [])


def test_strangers_are_of_the_same_half_of_the_voices_where_the_set_allows_it(data: Path) -> None:
    clips = read_clips(data)
    wearers = [c for c in clips if c.set_name == "alphanumeric"]
    halves = {SPEAKER_THRESHOLDS in clip.used_for for clip in wearers}
    assert halves == {True, False}, "the made-up names fall into both halves"
    for clip in wearers:
        wearer = verification.Wearer("alphanumeric", clip.speaker, clip.voice, clip.path, (), clip.used_for)
        found = verification.strangers_of(wearer, clips, seed=0)
        first_half = [stranger.used_for == clip.used_for for stranger in found]
        assert clip.voice not in {stranger.voice for stranger in found}
        assert first_half == sorted(first_half, reverse=True) or not any(first_half)


def test_the_same_seed_gives_the_same_trials_to_the_byte(tmp_path: Path) -> None:
    few = [clip for clip in CLIPS if not clip[0].startswith(("alphanumeric/", "librispeech_test_other/2033"))]
    data = tmp_path / "data"
    write_data(data, few)
    first, second = (build(data, tmp_path / name, accepts, seed=4).manifest for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()
    recordings = sorted(path.name for path in (tmp_path / "one" / "audio").iterdir())
    assert recordings
    for name in recordings:
        assert (tmp_path / "one" / "audio" / name).read_bytes() == (tmp_path / "two" / "audio" / name).read_bytes()
    assert build(data, tmp_path / "one", accepts, seed=5).manifest.read_bytes() != second.read_bytes()


def test_clips_that_are_refused_are_passed_over_and_counted(data: Path, tmp_path: Path) -> None:
    def check(path: Path) -> str | None:
        return "too far away" if path.stem in ("Names", "Numbers") else None

    enrolled = build(data, tmp_path, check).enrolled
    assert {w.enrolment.stem for w in enrolled.wearers if w.set_name == "alphanumeric"} == {"Addresses"}
    assert enrolled.refused["too far away"] == enrolled.tried - enrolled.people > 0
    told = json.loads((tmp_path / "built.json").read_text(encoding="utf-8"))
    assert told["enrolment"]["refused"] == {"too far away": enrolled.refused["too far away"]}


def test_somebody_with_short_recordings_only_is_enrolled_from_several(data: Path, tmp_path: Path) -> None:
    wearers = {wearer.speaker: wearer for wearer in build(data, tmp_path, accepts).enrolled.wearers}
    joined = wearers["bdl"]
    assert joined.enrolment.parent == tmp_path / "audio"
    assert soundfile.info(joined.enrolment).duration == pytest.approx(7.2)
    assert len(joined.others) == 1


def test_a_cut_has_the_length_that_was_asked_for_between_two_silences(data: Path) -> None:
    clip = next(clip for clip in read_clips(data) if clip.set_name == "alphanumeric")
    piece = cut(clip, 1.5, np.random.default_rng(0))
    assert piece is not None
    start, end = round(piece.start_s * SAMPLE_RATE_HZ), round(piece.end_s * SAMPLE_RATE_HZ)
    assert (piece.start_s, piece.end_s) == (LEAD_S, LEAD_S + 1.5)
    speech, around = piece.samples[start:end], np.concatenate([piece.samples[:start], piece.samples[end:]])
    assert np.std(speech) > 20 * np.std(around) > 0
    assert np.abs(speech[0]) < 1e-9
    assert cut(clip, 5.4, np.random.default_rng(0)) is None


def test_a_far_version_is_as_loud_as_the_near_one_so_that_level_tells_nothing(data: Path) -> None:
    clip = next(clip for clip in read_clips(data) if clip.set_name == "alphanumeric")
    near = cut(clip, 3.0, np.random.default_rng(0))
    room = far_rooms(data)[0]
    assert near is not None
    assert room.response.drr_db < 4
    far = in_room(near.samples, room)
    assert np.mean(far[: near.samples.size] ** 2) == pytest.approx(np.mean(near.samples**2))
    assert far.size > near.samples.size, "the room's decay at the end is kept"


def test_without_a_measured_room_far_versions_are_left_out(tmp_path: Path) -> None:
    write_data(tmp_path / "data", [clip for clip in CLIPS if not clip[0].startswith("rir/")])
    found = build(tmp_path / "data", tmp_path / "corpus", accepts)
    assert found.rooms == ()
    assert {extra(trial, "distance") for trial in of(found.trials, "verification")} == {"near"}
    assert "room" not in {extra(trial, "kind") for trial in found.trials}


# What is refused -----------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["build", "--data", str(tmp_path / "none"), "--out", str(tmp_path / "out")])
    assert code == ExitCode.USAGE
    assert "audio/manifest.tsv" in capsys.readouterr().err


def test_without_a_folder_the_way_to_name_one_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("VOICEGATE_DATA", raising=False)
    assert main(["build", "--out", str(tmp_path)]) == ExitCode.USAGE
    assert "--data" in capsys.readouterr().err


def test_a_recording_that_is_missing_is_named(tmp_path: Path) -> None:
    write_data(tmp_path, CLIPS)
    (tmp_path / "audio" / CLIPS[3][0]).unlink()
    with pytest.raises(PeopleError, match=CLIPS[3][0]):
        read_clips(tmp_path)


def test_a_manifest_without_a_column_is_refused_by_its_name(tmp_path: Path) -> None:
    write_data(tmp_path, CLIPS[:1])
    table = tmp_path / "audio" / "manifest.tsv"
    table.write_text(table.read_text(encoding="utf-8").replace("license", "licence"), encoding="utf-8")
    with pytest.raises(PeopleError, match="no column license"):
        read_clips(tmp_path)


def test_a_recording_of_unknown_kind_is_an_error_so_that_none_is_lost_in_silence(tmp_path: Path) -> None:
    write_data(tmp_path, [*CLIPS, ("google_distance/phone/p.wav", "phone", "phone in a room", 2.0, "")])
    with pytest.raises(PeopleError, match=r"google_distance/phone/p\.wav"):
        build(tmp_path, tmp_path / "out", accepts)


def test_nobody_to_enrol_is_an_error_that_says_why(data: Path, tmp_path: Path) -> None:
    with pytest.raises(PeopleError, match=r"nobody can be enrolled.*too noisy \(\d+\)"):
        build(data, tmp_path, lambda path: "too noisy")


def test_a_run_over_other_trials_is_refused(tmp_path: Path) -> None:
    trial = Trial(id="x", family="direct", condition="c", text="hi", expected=Expected(action="mute"), split="test")
    with pytest.raises(PeopleError, match="no field 'study'"):
        report(write_run(tmp_path / "run", [trial], [TrialResult(id="x", status="ok", action="mute")]))


# Labels --------------------------------------------------------------------------------------------------------------


def test_every_labelled_tool_exists() -> None:
    tools = {fact.name for fact in ToolCatalogue.builtin().all()}
    used = {label.tool for label in labels.listed().values() if label.action == "tool"}
    assert used <= tools
    assert used


def test_only_plain_requests_are_labelled_and_the_rest_says_why() -> None:
    for stem, label in labels.listed().items():
        assert (label.action == "tool") is (label.tool is not None), stem
        assert (label.action is None) is bool(label.why), stem
        if stem.startswith("ohf_fr/"):
            assert label.action is None, stem


# Statistics ----------------------------------------------------------------------------------------------------------


def test_the_poisson_interval_is_exact_also_without_any_event() -> None:
    # Ulm (1990): 0 events 0 to 3.69, 10 events 4.80 to 18.39.
    assert poisson_interval(0, 1.0) == pytest.approx((0.0, 3.6889), abs=1e-4)
    assert poisson_interval(10, 2.0) == pytest.approx((4.7954 / 2, 18.3904 / 2), abs=1e-4)
    for events, exposure in ((1, 0.0), (-1, 1.0)):
        with pytest.raises(ValueError, match="no rate"):
            poisson_interval(events, exposure)


def test_playing_a_recording_again_does_not_narrow_the_interval() -> None:
    assert PerHour(0, 2.0, 0.5).interval == PerHour(0, 0.5, 0.5).interval
    assert PerHour(8, 2.0, 0.5).interval == PerHour(2, 0.5, 0.5).interval
    assert PerHour(8, 2.0, 0.5).rate == 4.0


def test_the_equal_error_rate_is_where_both_errors_meet() -> None:
    own = [0.9, 0.8, 0.7, 0.6, 0.2]
    others = [0.5, 0.4, 0.3, 0.1, 0.0]
    turns = [
        Turn(f"w{index}", is_wearer, "near", 2.0, score, "unsure", frozenset(), "alphanumeric")
        for is_wearer, scores in ((True, own), (False, others))
        for index, score in enumerate(scores)
    ]
    found = equal_error(turns, seed=0)
    assert found is not None
    # At 0.5 one of five owners is refused (0.2) and one of five strangers accepted (0.5).
    assert found[0] == pytest.approx(0.2)
    assert 0.0 <= found[1][0] <= 0.2 <= found[1][1] <= 1.0
    assert equal_error(turns[:4] + turns[5:], seed=0) is None, "four scores are too few"


def test_scores_that_never_overlap_claim_no_certainty_beyond_their_few_wearers() -> None:
    turns = [
        Turn(f"w{number}", is_wearer, "near", 2.0, 0.9 if is_wearer else 0.1, "unsure", frozenset(), "vctk")
        for number in range(6)
        for is_wearer in (True, False)
    ]
    assert equal_error(turns, seed=0) == (0.0, pytest.approx((0.0, 0.3903), abs=1e-3))


# The report ----------------------------------------------------------------------------------------------------------


def made(study: str, name: str, *decisions: DecisionRecord, audio_s: float = 36.0, **fields: Any) -> Any:
    """A trial of a study with what came of it."""
    values: dict[str, Any] = {
        "study": study, "kind": "meeting", "distance": "near", "recording": name, "wearer": None, "judged": True,
        "used_for": [], "language": "en", **fields,
    }  # fmt: skip
    expected, status = values.pop("expected", Expected(action="mute")), values.pop("status", "ok")
    trial = Trial(
        id=name, family="direct", condition=f"people/{study}", audio=f"{name}.wav", expected=expected, split="test",
        enrolment=None if values["wearer"] is None else "w.wav", **values,
    )  # fmt: skip
    chosen = deciding(decisions, None)
    result = TrialResult(
        id=name, status=status, action=most_consequential(decisions) if status == "ok" else None, decisions=decisions,
        tool=chosen.tool if chosen else None, reason=chosen.reason if chosen else "no_turn",
        timing=TrialTiming(audio=audio_s), transcript="as heard",
    )  # fmt: skip
    return trial, result


def report_of(folder: Path, *both: Any) -> str:
    return report(write_run(folder / "run", [trial for trial, _ in both], [result for _, result in both]))


def row(text: str, head: str, number: int = 0) -> list[str]:
    """The cells of the table row with this head; of several the one of that number."""
    found = [line for line in text.splitlines() if line.startswith(f"| {head} |")]
    return [cell.strip() for cell in found[number].strip("|").split("|")][1:]


def heard(verdict: str, score: float | None = 0.5, near: str = "near", **more: Any) -> DecisionRecord:
    """A decision with these verdicts on speaker and distance."""
    made_of = decision(**more)
    evidence = made_of.evidence.model_copy(
        update={
            "speaker": made_of.evidence.speaker.model_copy(update={"verdict": verdict, "score": score}),
            "distance": made_of.evidence.distance.model_copy(update={"verdict": near}),
        }
    )
    return made_of.model_copy(update={"evidence": evidence})


def test_false_executions_stand_with_their_hours_and_an_exact_interval(tmp_path: Path) -> None:
    call = decision("tool", "make_call", words="call bob")
    text = report_of(
        tmp_path,
        made("talk", "one", call, decision("answer"), recording="m"),
        made("talk", "two", decision("pardon"), decision("pardon"), recording="n"),
        made("talk", "three", decision("mute"), wearer="vctk/p1", recording="m"),
        made("talk", "four", decision("mute"), wearer="vctk/p2", recording="m"),
        made("far", "five", decision("tool", "pay"), kind="headset"),
    )
    nobody = row(text, "meeting, mix of headsets (AMI)", 1)
    low, high = (float(bound) for bound in np.array(poisson_interval(1, 0.02)))
    assert nobody[0] == "0.020 (2 recordings; 0.020 h distinct)"
    assert nobody[1] == nobody[2] == f"50.0 (n 1; {low:.1f} to {high:.1f})"
    assert nobody[3].startswith("100.0 (n 2;")
    enrolled = row(text, "meeting, mix of headsets (AMI)", 0)
    assert enrolled[0] == "0.020 (1 recording; 0.010 h distinct)"
    assert enrolled[1] == "0.0 (n 0; 0.0 to 368.9)"
    assert row(text, "headset (AMI)")[1].startswith("100.0 (n 1;")
    assert row(text, "all of these", 1)[1].startswith("66.7 (n 2;")
    assert "one: make_call, on \u201ccall bob\u201d" in text


def test_a_cut_that_is_also_heard_through_a_room_is_not_twice_the_talk(tmp_path: Path) -> None:
    stranger = {"kind": "vctk", "wearer": "vctk/p1", "relation": "different", "recording": "m", "speech_s": 1.5}
    text = report_of(
        tmp_path,
        made("verification", "near", decision("mute"), **stranger),
        made("verification", "far", decision("mute"), audio_s=54.0, **{**stranger, "distance": "far"}),
        made("verification", "longer", decision("mute"), **{**stranger, "speech_s": 3.0}),
    )
    assert row(text, "strangers to the wearer")[0] == "0.035 (1 recording; 0.025 h distinct)"


def test_a_trial_that_failed_adds_no_quiet_hours_and_no_mute(tmp_path: Path) -> None:
    text = report_of(
        tmp_path,
        made("talk", "fine", decision("mute")),
        made("talk", "late", status="timeout"),
        made("strangers_command", "ok", heard("other"), kind="commands", wearer="vctk/p1"),
        made("strangers_command", "bad", status="error", kind="commands", wearer="vctk/p1"),
    )
    assert row(text, "meeting, mix of headsets (AMI)")[0].startswith("0.010 (1 recording")
    assert row(text, "commands and questions")[3].startswith("100.0% (1/1;")
    assert "late: timeout" in text


def test_a_call_that_was_not_run_is_no_execution(tmp_path: Path) -> None:
    refused = decision("tool", "make_call", outcome="refused")
    text = report_of(tmp_path, made("talk", "one", refused))
    assert row(text, "meeting, mix of headsets (AMI)")[1].startswith("0.0 (n 0;")


def test_strangers_commands_count_what_ran_and_whose_voice_was_heard(tmp_path: Path) -> None:
    stranger = {"kind": "orders", "wearer": "vctk/p1"}
    text = report_of(
        tmp_path,
        made("strangers_command", "a", heard("other"), heard("unsure"), **stranger),
        made("strangers_command", "b", heard("owner", action="tool", tool="place_order"), **stranger),
        made("strangers_command", "c", heard("other"), **stranger, used_for=["network_training"]),
        made("strangers_command", "d", heard("other", action="pardon"), **stranger, used_for=["network_training"]),
    )
    whole, unused = row(text, "coffee orders"), row(text, "coffee orders, unused voices")
    assert [cell.split(";")[0] for cell in whole] == [
        "25.0% (1/4", "0.0% (0/4", "25.0% (1/4", "50.0% (2/4", "60.0% (3/5", "20.0% (1/5",
    ]  # fmt: skip
    assert [cell.split(";")[0] for cell in unused] == [
        "50.0% (1/2", "0.0% (0/2", "0.0% (0/2", "50.0% (1/2", "33.3% (1/3", "33.3% (1/3",
    ]  # fmt: skip


def test_own_commands_are_right_wrong_or_held_back_with_the_reason(tmp_path: Path) -> None:
    lamp = {"kind": "commands", "expected": Expected(action="tool", tool="control_device"), "transcript": "lamp on"}
    time = {"kind": "commands", "expected": Expected(action="answer"), "transcript": "what time is it"}
    text = report_of(
        tmp_path,
        made("own_command", "a", decision("tool", "control_device"), **lamp),
        made("own_command", "b", decision("tool", "make_call"), **lamp),
        made("own_command", "c", decision("mute", reason="not_near"), **lamp),
        made("own_command", "d", decision("pardon", reason="doubtful"), **lamp),
        made("own_command", "e", decision("answer"), **time),
        made("own_command", "f", status="error", **time),
        made("own_command", "g", decision("tool", "make_call"), kind="commands", judged=False, language="fr"),
    )
    tool = row(text, "a tool: commands and questions")
    assert [cell.split(";")[0] for cell in tool] == [
        "25.0% (1/4", "25.0% (1/4", "25.0% (1/4", "0.0% (0/4", "25.0% (1/4",
    ]  # fmt: skip
    assert row(text, "an answer: commands and questions")[0].startswith("50.0% (1/2;")
    assert row(text, "not_near: commands and questions") == ["1"]
    assert row(text, "French") == ["1", "0", "1", "0", "0"]
    assert row(text, "lamp on", 2)[:3] == ["control_device", "mute", "not_near"]


def test_distance_verdicts_are_counted_by_decision_and_executions_from_afar_by_trial(tmp_path: Path) -> None:
    text = report_of(
        tmp_path,
        made("far", "a", heard("unsure", near="far"), heard("unsure", near="unsure"), kind="room", distance="far"),
        made("far", "b", heard("owner", near="near", action="tool", tool="make_call"), kind="room", distance="far"),
        made("far", "c", heard("owner"), kind="headset"),
        made("talk", "d", heard("other", near="far"), kind="table", distance="far", wearer="vctk/p1"),
    )
    far = row(text, "commands in a measured room")
    assert [cell.split(";")[0] for cell in far] == ["50.0% (1/2", "33.3% (1/3", "33.3% (1/3", "33.3% (1/3"]
    assert row(text, "headset (AMI)", 1)[0].startswith("100.0% (1/1;")
    assert not [line for line in text.splitlines() if "table microphone (AMI) | 0.0% (0/1" in line]
    assert "b: make_call" in text


def test_verification_counts_verdicts_by_seconds_of_speech_and_by_who_chose_the_thresholds(tmp_path: Path) -> None:
    def cut_of(name: str, relation: str, seconds: float, verdict: str, **fields: Any) -> Any:
        segment = Segment(start=0.5, end=0.5 + seconds, speaker="A", distance="near", text="", role="dialogue")
        turn = heard(verdict, words="so many words", span_s=(0.5, 0.5 + seconds))
        values = {"kind": "alphanumeric", "wearer": f"alphanumeric/{name}", "relation": relation, **fields}
        return made("verification", name, turn, segments=(segment,), **values)

    text = report_of(
        tmp_path,
        cut_of("a", "same", 1.5, "owner"),
        cut_of("b", "same", 1.5, "unsure"),
        cut_of("c", "same", 1.5, "other", used_for=["speaker_thresholds"]),
        cut_of("d", "different", 1.5, "other"),
        cut_of("e", "different", 2.5, "owner"),
        cut_of("f", "same", 0.8, "owner", distance="far"),
    )
    unused = row(text, "near, 1 to 2 s", 0)
    assert unused[0] == "too few (2 own, 1 strangers')"
    assert [cell.split(";")[0] for cell in unused[1:]] == ["50.0% (1/2", "0.0% (0/2", "0.0% (0/1", "100.0% (1/1"]
    every = row(text, "near, 1 to 2 s", 2)
    assert [cell.split(";")[0] for cell in every[1:3]] == ["33.3% (1/3", "33.3% (1/3"]
    assert row(text, "near, 2 to 4 s")[3].startswith("100.0% (1/1;")
    assert row(text, "far, under 1 s")[1].startswith("100.0% (1/1;")


def test_a_turn_of_one_talker_that_was_cut_as_two_voices_is_counted(tmp_path: Path) -> None:
    parted = [heard("owner", turn="t0001.1"), heard("other", turn="t0001.2")]
    text = report_of(
        tmp_path,
        made("own_command", "a", *parted, kind="orders"),
        made("own_command", "b", heard("owner"), kind="orders"),
        made("own_command", "c", kind="orders"),
        made("verification", "v", heard("owner"), kind="vctk", wearer="vctk/p", relation="same"),
    )
    assert row(text, "commands and orders")[0].startswith("50.0% (1/2;")
    assert row(text, "commands and orders")[1] == "1 trial"


def test_the_report_of_the_same_folder_is_the_same_text_and_names_what_was_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = [made("talk", "one", decision("mute")), made("talk", "two", decision("mute"))]
    folder = write_run(tmp_path / "run", [trial for trial, _ in both], [both[0][1]])
    assert main(["report", str(folder)]) == ExitCode.OK
    first = capsys.readouterr().out
    assert first == report(folder)
    assert "1 not run" in first
    assert first.count("Not run.") == 3
    assert main(["report", str(tmp_path)]) == ExitCode.USAGE


# The real folder -----------------------------------------------------------------------------------------------------


def test_every_recording_of_the_real_folder_is_known_and_every_command_has_a_label() -> None:
    folder = os.environ.get("VOICEGATE_DATA")
    if not folder or not (Path(folder) / "audio" / "manifest.tsv").is_file():
        pytest.skip("VOICEGATE_DATA names no folder of recordings")
    clips = read_clips(Path(folder))
    require_all_known(clips)
    own = [clip for kind, clip in of_kind(COMMANDS, clips) if kind.name in ("commands", "orders")]
    assert own
    assert [clip.name for clip in own if labels.label_of(clip) is labels.NOT_LISTED] == []
