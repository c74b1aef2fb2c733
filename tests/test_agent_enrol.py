"""Enrolment: a clip that would make a bad reference is refused with what was measured and what is needed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from agent import cli, enrol, run_sessions, source_microphone
from agent.assemble import Parts, default_profile
from agent.enrol import ClipRefusedError, ClipReport, check_clip, make_reference, reference_from_files
from agent.exit_codes import ExitCode
from agent.settings import Settings
from agent.sources import NoticeCode, ScriptedSource, Silence, SourceError, SourceGap, SourceNotice
from gate.evidence import SpeakerVerdict
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, Embedding
from tests.fake_models import (
    FAKE,
    FakeEars,
    FixedDistanceThresholds,
    FixedSpeakerThresholds,
    LevelVad,
    ScriptedPolicy,
    Voice,
    tone,
)
from tests.test_agent_loop import BYSTANDER, CHAT, COMMAND, REPLIES, VOICES

ADA = Voice(1300, "I read the newspaper every morning.", speaker=0)
BEN = Voice(1400, "I never read the newspaper.", speaker=1)
FAR_ADA = Voice(1500, "I read the newspaper every morning.", speaker=0, near=0.05)
PERHAPS_NEAR_ADA = Voice(1600, "I read the newspaper every morning.", speaker=0, near=0.79)
ADA_OF_UNKNOWN_DISTANCE = Voice(1700, "I read the newspaper every morning.", speaker=0, near=None)
ADA_OF_BROKEN_DISTANCE = Voice(1800, "I read the newspaper every morning.", speaker=0, near=float("nan"))
PEOPLE = [ADA, BEN, FAR_ADA, PERHAPS_NEAR_ADA, ADA_OF_UNKNOWN_DISTANCE, ADA_OF_BROKEN_DISTANCE]


def clip(*parts: Audio, pause_s: float = 0.5) -> Audio:
    """Parts of speech with quiet pauses before, between and after them."""
    pause = np.full(round(pause_s * SAMPLE_RATE_HZ), 0.001, np.float32)
    pieces = [pause]
    for part in parts:
        pieces += [part, pause]
    return np.concatenate(pieces)


def check(audio: Audio, ears: FakeEars | None = None, thresholds: object = None) -> ClipReport:
    heard = ears or FakeEars(PEOPLE)
    judged = thresholds or FixedSpeakerThresholds()
    return check_clip(audio, LevelVad(), heard.ears(), judged, FixedDistanceThresholds())  # type: ignore[arg-type]


def refusal(audio: Audio, ears: FakeEars | None = None, thresholds: object = None) -> str:
    with pytest.raises(ClipRefusedError) as caught:
        check(audio, ears, thresholds)
    return str(caught.value)


# One clip -------------------------------------------------------------------------------------------------------------


def test_a_good_clip_is_measured():
    report = check(clip(tone(ADA, 2.0), tone(ADA, 1.5)))
    assert report.speech_s == pytest.approx(3.5, abs=0.05)
    assert report.snr_db > 40.0
    assert report.near_probability == 0.99
    assert report.embedding.vector is not None
    assert report.embedding.vector[0] == 1.0
    assert report.embedding.span.start_s == pytest.approx(0.5, abs=0.03), "from the first word to the last"
    assert report.embedding.span.end_s == pytest.approx(4.5, abs=0.03)


@pytest.mark.parametrize(
    ("audio", "seconds"),
    [
        (clip(tone(ADA, 2.0)), "2.0"),
        (np.zeros(5 * SAMPLE_RATE_HZ, np.float32), "0.0"),
        (np.zeros(0, np.float32), "0.0"),
    ],
    ids=["two seconds", "silence", "nothing"],
)
def test_too_little_speech_is_refused_with_how_much_there_was_and_is_needed(audio: Audio, seconds: str):
    assert refusal(audio) == f"{seconds} s of speech, needs 3 s; say a few sentences"


def test_three_seconds_are_enough_and_one_frame_less_is_not():
    exactly = 3 * SAMPLE_RATE_HZ
    speech = tone(ADA, 4.0)
    pause = np.full(320 * 20, 0.001, np.float32)  # whole frames, so that no frame is half speech
    assert check(np.concatenate([pause, speech[:exactly], pause])).speech_s == pytest.approx(3.0)
    assert "s of speech" in refusal(np.concatenate([pause, speech[: exactly - 320], pause]))


def test_a_clipped_clip_is_refused_because_it_sounds_like_nobody():
    audio = np.clip(clip(tone(ADA, 4.0)) * 4.0, -1.0, 1.0)
    said = refusal(audio)
    assert said.startswith("clipped: ")
    assert "at most 0.1%" in said
    assert "turn the gain down" in said


def test_a_single_loud_click_is_no_clipping():
    audio = clip(tone(ADA, 4.0))
    audio[20_000] = 1.0
    assert check(audio).speech_s > 3.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_value_that_is_no_number_is_enough_to_refuse(bad: float):
    audio = clip(tone(ADA, 4.0))
    audio[30_000] = bad
    assert refusal(audio) == "holds values that are not numbers"


def test_speech_that_hardly_rises_above_the_noise_is_refused_with_its_level():
    audio = clip(tone(ADA, 4.0, amplitude=0.1))
    noisy = audio + np.random.default_rng(0).uniform(-0.045, 0.045, len(audio)).astype(np.float32)
    said = refusal(noisy)
    assert said.startswith("too noisy: speech is 9 dB above the pauses")
    assert "needs 10 dB" in said


def test_a_clip_without_a_pause_is_measured_against_its_quietest_moments():
    loud, low = tone(ADA, 2.0), tone(ADA, 2.0, amplitude=0.06)
    assert check(np.concatenate([loud, low])).snr_db == pytest.approx(11.0, abs=1.0)
    assert "too noisy" in refusal(tone(ADA, 4.0)), "a tone that never stops is no speech"


@pytest.mark.parametrize(
    ("voice", "measured"),
    [
        (FAR_ADA, "0.05"),
        (PERHAPS_NEAR_ADA, "0.79"),
        (ADA_OF_UNKNOWN_DISTANCE, "unknown"),
        (ADA_OF_BROKEN_DISTANCE, "nan"),
    ],
    ids=["far", "perhaps near", "unknown", "nan"],
)
def test_only_a_voice_that_is_surely_near_can_become_the_wearers(voice: Voice, measured: str):
    said = refusal(clip(tone(voice, 4.0)))
    assert said == f"too far away: near probability {measured}, needs 0.80; speak from 20-40 cm"


def test_two_voices_one_after_the_other_are_refused_so_a_bystander_is_never_enrolled():
    said = refusal(clip(tone(ADA, 2.0), tone(BEN, 2.1)))
    assert said == "more than one voice: before and after 2.8 s score 0.00, one voice scores 0.60 or more"


def test_a_bystanders_words_between_the_wearers_are_refused_though_both_halves_are_hers():
    audio = np.concatenate([clip(tone(ADA, 2.0)), tone(BEN, 0.8), clip(tone(ADA, 2.0))])
    starts = 3 * SAMPLE_RATE_HZ
    ears = FakeEars(PEOPLE, changes_at=lambda audio: (starts, starts + round(0.8 * SAMPLE_RATE_HZ)))
    said = refusal(audio, ears)
    assert said.startswith("more than one voice: before and after 3.0 s score 0.00")


def test_one_voice_that_seems_to_change_is_enrolled_if_both_sides_are_alike():
    ears = FakeEars(PEOPLE, changes_at=lambda audio: (len(audio) // 3,))
    assert check(clip(tone(ADA, 4.0)), ears=ears).speech_s == pytest.approx(4.0, abs=0.05)


def test_a_change_too_near_the_end_to_tell_who_spoke_is_refused():
    ears = FakeEars(PEOPLE, changes_at=lambda audio: (len(audio) - round(0.8 * SAMPLE_RATE_HZ),))
    assert refusal(clip(tone(ADA, 4.0)), ears).startswith("perhaps more than one voice: it seems to change at")


def test_halves_that_may_or_may_not_be_one_voice_are_refused():
    class Unsure:
        def verdict(self, score: float, reference_s: float, test_s: float) -> tuple[SpeakerVerdict, float, float]:
            return SpeakerVerdict.UNSURE, 1.1, 0.4

    assert refusal(clip(tone(ADA, 4.0)), thresholds=Unsure()).startswith("more than one voice")


def test_a_clip_that_gives_no_voice_print_is_refused_with_the_reason():
    ears = FakeEars(PEOPLE, min_samples=60 * SAMPLE_RATE_HZ)
    assert refusal(clip(tone(ADA, 4.0)), ears) == "no speaker embedding: too short"


# Several clips --------------------------------------------------------------------------------------------------------


def report_of(*vector: float, speech_s: float = 4.0) -> ClipReport:
    unit = np.array(vector, np.float32) / np.linalg.norm(vector)
    return ClipReport(speech_s, 30.0, 0.99, Embedding(unit.astype(np.float32), Span(0, 64_000)))


def test_clips_of_one_voice_become_one_reference():
    reference = make_reference(
        [report_of(1, 0), report_of(1, 0.5, speech_s=6.0)], FakeEars(PEOPLE).ears(), FixedSpeakerThresholds()
    )
    assert (reference.speech_s, reference.model, reference.origin) == (10.0, FAKE, "enrolment")
    assert np.linalg.norm(reference.vector) == pytest.approx(1.0)
    assert reference.vector[0] > reference.vector[1] > 0.0, "between the two"


def test_clips_of_different_voices_are_refused_wherever_they_stand():
    same, other = report_of(1, 0), report_of(0, 1)
    for reports in ([same, other], [same, same, other], [other, same, same]):
        with pytest.raises(ClipRefusedError, match=r"two clips hold different voices: score 0\.00, needs 0\.60"):
            make_reference(reports, FakeEars(PEOPLE).ears(), FixedSpeakerThresholds())


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def parts() -> Parts:
    ears = FakeEars([*PEOPLE, *VOICES]).ears()
    return Parts(ears, ScriptedPolicy(REPLIES), "scripted", FixedSpeakerThresholds(), FixedDistanceThresholds())


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, parts: Parts) -> None:
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    for module in (run_sessions, enrol):
        monkeypatch.setattr(module, "load_parts", lambda settings, store, catalogue: parts)
    monkeypatch.setattr("agent.assemble.make_vad", lambda mode: LevelVad())
    monkeypatch.setattr(enrol, "make_vad", lambda mode: LevelVad())


def write(path: Path, audio: Audio) -> Path:
    soundfile.write(path, audio, SAMPLE_RATE_HZ, subtype="FLOAT")
    return path


async def test_a_refused_file_is_named_and_good_ones_beside_it_do_not_save_it(tmp_path: Path, parts: Parts):
    good = write(tmp_path / "good.wav", clip(tone(ADA, 4.0)))
    short = write(tmp_path / "short.wav", clip(tone(ADA, 1.0)))
    reference = await reference_from_files([good], parts, Settings())
    assert reference.speech_s == pytest.approx(4.0, abs=0.05)
    with pytest.raises(ClipRefusedError, match=r"short\.wav: 1\.0 s of speech"):
        await reference_from_files([good, short], parts, Settings())
    with pytest.raises(SourceError, match=r"gone\.wav"):
        await reference_from_files([good, tmp_path / "gone.wav"], parts, Settings())


async def test_the_channel_of_the_settings_is_the_one_that_is_enrolled(tmp_path: Path, parts: Parts):
    ada, ben = clip(tone(ADA, 4.0)), clip(tone(BEN, 4.0))
    both = write(tmp_path / "both.wav", np.stack([ada, ben], axis=1))
    for channel in (0, 1):
        settings = Settings.model_validate({"source": {"channel": channel}})
        reference = await reference_from_files([both], parts, settings)
        assert int(np.argmax(reference.vector)) == channel


async def test_a_file_with_samples_that_are_no_numbers_enrols_nobody(tmp_path: Path, parts: Parts):
    audio = clip(tone(ADA, 4.0))
    audio[30_000:30_100] = np.nan
    with pytest.raises(SourceError, match=r"hole\.wav: 100 of 80000 samples are not numbers"):
        await reference_from_files([write(tmp_path / "hole.wav", audio)], parts, Settings())


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """The bystander speaks first, and near; then the wearer gives the same command."""
    silence = np.zeros(SAMPLE_RATE_HZ, np.float32)
    return write(
        tmp_path / "talk.wav",
        np.concatenate([silence, tone(BYSTANDER), silence, tone(CHAT), silence, tone(COMMAND), silence]),
    )


def decisions(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    """Action and speaker of each decision in the order of speech: a Tool line waits for its outcome."""
    lines = sorted(map(json.loads, capsys.readouterr().out.splitlines()), key=lambda line: line["span_s"])
    return [(line["action"], line["evidence"]["speaker"]["verdict"]) for line in lines]


def test_who_was_enrolled_from_files_is_known_again_by_the_next_run(
    tmp_path: Path, talk: Path, capsys: pytest.CaptureFixture[str]
):
    clips = [str(write(tmp_path / f"{number}.wav", clip(tone(ADA, 3.0 + number)))) for number in (1, 2)]
    assert cli.main(["enroll", *clips, "--name", "Ada"]) == ExitCode.OK
    assert capsys.readouterr().out == f"Ada is enrolled from 9.0 s of speech: {default_profile()}\n"
    assert cli.main(["replay", "--json", str(talk)]) == ExitCode.OK
    assert decisions(capsys) == [("mute", "other"), ("mute", "owner"), ("tool", "owner")]


def test_a_profile_elsewhere_counts_when_it_is_named(tmp_path: Path, talk: Path, capsys: pytest.CaptureFixture[str]):
    file, out = write(tmp_path / "ben.wav", clip(tone(BEN, 4.0))), tmp_path / "ben.json"
    assert cli.main(["enroll", str(file), "--out", str(out)]) == ExitCode.OK
    assert not default_profile().exists()
    capsys.readouterr()
    assert cli.main(["replay", "--json", str(talk), "--profile", str(out)]) == ExitCode.OK
    assert decisions(capsys) == [("tool", "owner"), ("mute", "other"), ("mute", "other")]


def test_a_clip_for_one_run_enrols_nobody_for_the_next(tmp_path: Path, talk: Path, capsys: pytest.CaptureFixture[str]):
    file = write(tmp_path / "ada.wav", clip(tone(ADA, 4.0)))
    assert cli.main(["replay", "--json", str(talk), "--enrolment", str(file)]) == ExitCode.OK
    assert decisions(capsys) == [("mute", "other"), ("mute", "owner"), ("tool", "owner")]
    assert not default_profile().exists()


def test_a_refused_clip_leaves_the_old_profile_and_ends_with_its_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    good, far = (write(tmp_path / f"{voice.hz}.wav", clip(tone(voice, 4.0))) for voice in (ADA, FAR_ADA))
    assert cli.main(["enroll", str(good)]) == ExitCode.OK
    before = default_profile().read_bytes()
    assert cli.main(["enroll", str(far)]) == ExitCode.PROFILE
    captured = capsys.readouterr()
    assert f"{far}: too far away" in captured.err
    assert "Traceback" not in captured.err
    assert default_profile().read_bytes() == before


# The microphone -------------------------------------------------------------------------------------------------------


@pytest.fixture
def microphone(monkeypatch: pytest.MonkeyPatch):
    """What the microphone hears."""
    opened: list[ScriptedSource] = []

    def hears(*script: object) -> list[ScriptedSource]:
        def make(device: object, *, clock: object, channel: int | None) -> ScriptedSource:
            opened.append(ScriptedSource(script))  # type: ignore[arg-type]
            return opened[-1]

        monkeypatch.setattr(source_microphone, "MicrophoneSource", make)
        return opened

    return hears


def test_from_the_microphone_as_long_as_was_asked_is_recorded_and_then_it_is_closed(
    microphone, capsys: pytest.CaptureFixture[str]
):
    notice = SourceNotice(NoticeCode.OPENED, "opened Desk microphone")
    opened = microphone(notice, Silence(0.5), tone(ADA, 60.0))
    assert cli.main(["enroll", "--name", "Ada", "--seconds", "6"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "recording 6 s" in out
    assert "Ada is enrolled from 5.5 s of speech" in out
    assert opened[0]._closed


def test_samples_lost_while_recording_enrol_nobody(microphone, capsys: pytest.CaptureFixture[str]):
    opened = microphone(Silence(0.5), tone(ADA, 3.0), SourceGap(0, 1_600, 0), tone(ADA, 3.0))
    assert cli.main(["enroll"]) == ExitCode.PROFILE
    assert "record it again" in capsys.readouterr().err
    assert not default_profile().exists()
    assert opened[0]._closed


def test_a_recording_that_ends_at_once_enrols_nobody(microphone, capsys: pytest.CaptureFixture[str]):
    microphone()
    assert cli.main(["enroll"]) == ExitCode.PROFILE
    assert "0.0 s of speech" in capsys.readouterr().err
