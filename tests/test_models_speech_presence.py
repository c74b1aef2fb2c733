"""The second look: noise costs no recognition and owns no session, and no voice is taken for noise."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from agent import events
from agent.hearing import Ears
from agent.sources import Silence
from bench.speech_presence import Judged, Outcome, report_sounds, report_speech, turns_of
from gate.span import SAMPLE_RATE_HZ, Span
from models import speech_presence
from models.protocols import Audio, Heard, ModelId
from models.speech_presence import (
    WINDOW_SAMPLES,
    Presence,
    PresenceError,
    PresenceThresholds,
    SileroPresence,
    held,
    installed_graph,
    load,
)
from models.training.speech_presence import LOST_TARGET, choose
from models.training.speech_presence_scenes import SOUNDS, Scene, made_scene, whispered
from tests.fake_models import FAKE, FakeEars, ScriptedPolicy, Voice, tone
from tests.loop_harness import Outcome as Conversation
from tests.loop_harness import converse
from tools.catalogue import ToolCatalogue

DEMO = Path(__file__).parent.parent / "bench" / "demo" / "demo.flac"
COMMAND = Voice(400, "Text Priya that I am late.", speaker=0)
HUM = Voice(700, "Thank you.", speaker=3)
SEND = '<|TOOL|>{"name": "send_message", "params": {"recipient": "Priya", "body": "I am late"}}</|TOOL|>'


@pytest.fixture(scope="module")
def ear() -> SileroPresence:
    loaded = load()
    assert loaded is not None
    return loaded


@pytest.fixture(scope="module")
def voice() -> Audio:
    """The first turn of the demo recording."""
    audio, _ = soundfile.read(DEMO, dtype="float32", stop=8 * SAMPLE_RATE_HZ)
    return np.asarray(turns_of(audio)[0].samples)


def noise(seconds: float, rms: float = 0.1) -> Audio:
    return np.random.default_rng(3).normal(0.0, rms, round(seconds * SAMPLE_RATE_HZ)).astype(np.float32)


# The ear --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gain", [1.0, 0.01])
def test_a_voice_is_never_absent_however_quiet(ear: SileroPresence, voice: Audio, gain: float) -> None:
    found = ear.check(voice * np.float32(gain))
    assert not found.absent
    assert found.score is not None
    assert found.score > 0.9


def test_one_short_word_is_not_absent_though_the_network_has_hardly_settled(ear: SileroPresence, voice: Audio) -> None:
    loud = int(np.argmax(np.convolve(voice**2, np.ones(4_800, np.float32), mode="valid")))
    assert not ear.check(voice[loud : loud + 4_800]).absent


def test_speech_without_a_voice_is_speech(ear: SileroPresence, voice: Audio) -> None:
    said = voice[: 2 * SAMPLE_RATE_HZ].astype(np.float64)
    assert not ear.check(whispered(np.random.default_rng(0), said).astype(np.float32)).absent


@pytest.mark.parametrize("rms", [0.3, 0.001])
def test_hiss_is_no_voice_however_loud(ear: SileroPresence, rms: float) -> None:
    found = ear.check(noise(2.0, rms))
    assert found.absent
    assert "no voice: p=0." in found.note


@pytest.mark.parametrize("kind", ["claps and knocks", "beeps and rings"])
def test_most_turns_of_knocks_and_beeps_are_no_voice(ear: SileroPresence, kind: str) -> None:
    turns = turns_of(made_scene(kind, 0, seed=5).audio[: 25 * SAMPLE_RATE_HZ])
    assert len(turns) >= 2, "the first stage opens turns on them, or the second would not be needed"
    assert sum(ear.check(turn.samples).absent for turn in turns) > len(turns) / 2


@pytest.mark.parametrize(
    "audio",
    [
        np.zeros(0, np.float32),
        np.full(100, 0.1, np.float32),
        np.zeros(SAMPLE_RATE_HZ, np.float32),
        np.full(SAMPLE_RATE_HZ, np.nan, np.float32),
        np.append(noise(1.0), np.float32(np.inf)),
    ],
    ids=["empty", "too short", "silent", "not finite", "one infinity"],
)
def test_what_cannot_be_judged_is_not_absent_so_no_doubt_drops_a_turn(ear: SileroPresence, audio: Audio) -> None:
    found = ear.check(audio)
    assert (found.absent, found.score) == (False, None)
    assert found.note


def test_probabilities_that_are_not_finite_drop_no_turn(ear: SileroPresence, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def run(self, names: object, inputs: dict[str, Audio]) -> list[Audio]:
            return [np.full(len(inputs["input"]), np.nan, np.float32)]

    monkeypatch.setattr(ear, "_session", Broken())
    assert not ear.check(noise(1.0)).absent


def test_one_probability_a_window_and_the_same_turn_twice_is_the_same(ear: SileroPresence, voice: Audio) -> None:
    first, second = ear.probabilities(voice), ear.probabilities(voice.copy())
    assert first is not None
    assert first.size == -(-voice.size // WINDOW_SAMPLES)
    np.testing.assert_array_equal(first, second)


def test_another_network_is_refused_because_the_thresholds_were_not_set_for_it() -> None:
    with pytest.raises(PresenceError, match="its description says 0000"):
        SileroPresence(installed_graph(), "0" * 64, PresenceThresholds(0.5, 1))


def test_without_the_package_the_gate_starts_without_a_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PresenceError, match="install the package silero-vad"):
        installed_graph()
    assert load() is None


def test_the_graph_is_found_without_importing_its_package() -> None:
    sha256 = hashlib.sha256(installed_graph().read_bytes()).hexdigest()
    assert sha256 in speech_presence.SETTINGS.read_text(encoding="utf-8")


@given(st.lists(st.floats(0.0, 1.0, width=32), min_size=1, max_size=40), st.integers(1, 8))
def test_a_probability_counts_only_where_it_is_held(values: list[float], windows: int) -> None:
    probabilities = np.array([0.0] * windows + values, np.float32)
    score = held(probabilities, windows)
    runs = np.lib.stride_tricks.sliding_window_view(probabilities >= score, windows)
    assert runs.all(axis=1).any()
    assert not np.lib.stride_tricks.sliding_window_view(probabilities > score, windows).all(axis=1).any()


# The loop -------------------------------------------------------------------------------------------------------------


@dataclass
class Look:
    """Takes the hum for noise, and all else for speech."""

    owner: FakeEars
    error: Exception | None = None
    model: ModelId = FAKE
    seen: int = 0

    def check(self, audio: Audio) -> Presence:
        self.seen += 1
        if self.error is not None:
            raise self.error
        absent = self.owner.voice(audio) is HUM
        return Presence(absent, 0.01 if absent else 0.99, "no voice: p=0.01")


@dataclass
class CountingSpeech:
    """Passes on to another ear, and counts."""

    inner: object
    model: ModelId = FAKE
    turns: int = 0

    def hear(self, audio: Audio) -> Heard:
        self.turns += 1
        return self.inner.hear(audio)  # type: ignore[attr-defined,no-any-return]


@dataclass
class LookingEars(FakeEars):
    """The fake ears with a second look."""

    look_error: Exception | None = None
    look: Look = field(init=False)
    heard: CountingSpeech = field(init=False)

    def ears(self) -> Ears:
        plain = super().ears()
        self.look = Look(self, self.look_error)
        self.heard = CountingSpeech(plain.speech)
        return replace(plain, speech=self.heard, presence=self.look)


async def hum_then_command(ears: LookingEars, **options: object) -> Conversation:
    script = [Silence(0.5), tone(HUM), Silence(1.0), tone(COMMAND), Silence(1.0)]
    policy = ScriptedPolicy({COMMAND.text: SEND})
    return await converse(script, ears, policy, ToolCatalogue.builtin(), **options)  # type: ignore[arg-type]


async def test_noise_costs_no_recognition_and_makes_no_owner_so_the_person_after_it_is_obeyed() -> None:
    ears = LookingEars([COMMAND, HUM])
    outcome = await hum_then_command(ears)
    assert (outcome.actions, outcome.reasons[0]) == (["mute", "tool"], "no_speech")
    assert outcome.decisions[0].detail == "no voice: p=0.01"
    assert (ears.look.seen, ears.heard.turns) == (2, 1)
    assert set(outcome.decisions[0].timing.compute) == {"presence"}
    closed = [event for event in outcome.events if isinstance(event, events.TurnClosed)]
    assert len(closed) == len(outcome.decisions), "every turn is decided, also one that is not heard"


async def test_a_second_look_that_fails_leaves_the_turn_to_the_recogniser() -> None:
    ears = LookingEars([COMMAND], look_error=RuntimeError("broken"))
    outcome = await hum_then_command(ears)
    assert [call.name for call in outcome.executed] == ["send_message"]
    assert {event.where.split()[0] for event in outcome.events if isinstance(event, events.Failed)} == {"presence"}


async def test_a_question_about_a_recording_hears_its_noises_too() -> None:
    ears = LookingEars([COMMAND, HUM])
    await hum_then_command(ears, question="What is that?")
    assert (ears.look.seen, ears.heard.turns) == (0, 2)


# Choosing and measuring -----------------------------------------------------------------------------------------------


def test_the_chosen_threshold_loses_no_more_speech_than_stated_and_refuses_what_is_lower() -> None:
    random = np.random.default_rng(1)
    spoken = [np.clip(random.normal(0.9, 0.1, 20), 0, 1).astype(np.float32) for _ in range(600)]
    quiet = [np.clip(random.normal(0.2, 0.1, 20), 0, 1).astype(np.float32) for _ in range(100)]
    chosen = choose(spoken, quiet)
    lost = sum(held(probabilities, chosen.windows) < chosen.speech_at for probabilities in spoken)
    assert lost <= LOST_TARGET * len(spoken)
    assert all(held(probabilities, chosen.windows) < chosen.speech_at for probabilities in quiet)


@pytest.mark.parametrize("kind", SOUNDS)
def test_every_made_sound_is_finite_and_repeats_itself_so_that_figures_can_be_reproduced(kind: str) -> None:
    first, again, other = (SOUNDS[kind](np.random.default_rng(seed), 4 * SAMPLE_RATE_HZ) for seed in (2, 2, 3))
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_turns_that_are_refused_count_as_lost_speech_and_as_saved_noise() -> None:
    second = SAMPLE_RATE_HZ
    audio = np.zeros(60 * second, np.float32)
    kept, refused = (Judged(Span(0, 2 * second), absent, 3, 0.0, 0.0) for absent in (False, True))
    sounds = [Outcome(Scene("typing", "typing", audio, None), (kept, refused))]
    assert report_sounds(sounds)[2] == "| typing | 1 | 120 | 60 | 120 | 60 |"
    spoken = Scene("plain", "vctk", audio, Span(0, 2 * second))
    [line] = report_speech([Outcome(spoken, (refused,))], lambda scene: scene.kind, ["plain"])[2:3]
    assert line.startswith("| plain | 1 | 0 | 1 (")
    assert line.endswith("| 1 | 0.0, 200.0 ms | 0.0, 200.0 ms |")
