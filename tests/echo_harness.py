"""A room in which the microphone hears what the gate plays: for tests of the spoken output through the real loop.

Voices are tones in modulated noise. The ears here are the worst that an echo can meet: they hear every voice, however
faint and however much is spoken over it, and take the loudest one for the speaker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np

from agent.clock import Pace
from agent.eventlog import EventLog, MemorySink
from agent.frames import Frame
from agent.hearing import Ears
from agent.loop import Loop, make_clock, make_worker
from agent.output_voice import VoiceSettings, VoiceSink
from agent.own_voice import HeardSource, OwnVoice
from agent.playback import PlaybackRecord, Sound
from agent.session import OwnerMode
from agent.sources import Script, ScriptedSource, SourceItem
from agent.turn_work import SessionBox, TurnWork
from agent.turns import TurnDetector
from agent.voices import Synthesiser
from gate.catalogue import Catalogue, Risk
from gate.confirm import ConfirmSettings
from gate.evidence import Word
from gate.repair import RepairSettings
from gate.span import SAMPLE_RATE_HZ, Span
from gate.thresholds import Thresholds
from models.protocols import Audio, Embedding, Heard, Nearness, Policy, PolicyInput, PolicyOutput
from tests.fake_models import FAKE, FixedDistanceThresholds, FixedSpeakerThresholds, LevelVad, Voice
from tests.loop_harness import Outcome, RecordingExecutor

TONE_FROM = 0.02
"""The amplitude from which the ears hear a voice's tone."""


def speech(voice: Voice, seconds: float, seed: int, level: float = 1.0) -> Audio:
    """What a voice sounds like: its tone, and noise in syllables, so that it has a broad spectrum as speech has."""
    rng = np.random.default_rng(seed)
    count = round(seconds * SAMPLE_RATE_HZ)
    time_s = np.arange(count) / SAMPLE_RATE_HZ
    syllables = 0.55 + 0.45 * np.sin(2 * np.pi * 4.0 * time_s + rng.uniform(0, 6))
    noise = rng.standard_normal(count) * 0.07 * syllables
    edge = np.minimum(1.0, np.minimum(time_s, time_s[-1] - time_s) / 0.01)
    return np.asarray(level * edge * (0.22 * np.sin(2 * np.pi * voice.hz * time_s) + noise), np.float32)


def room_taps(seed: int = 7, rt60_s: float = 0.25) -> np.ndarray:
    """A loudspeaker's way to the microphone: a direct sound and a decay, of unit energy."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(round(rt60_s * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    taps = 0.25 * rng.standard_normal(time_s.size) * 10.0 ** (-3.0 * time_s / rt60_s)
    taps[0] = 1.0
    return taps / np.sqrt(np.sum(taps**2))


def echo_of(samples: Audio, delay_samples: int, gain_db: float, taps: np.ndarray | None = None) -> Audio:
    """A sound as the microphone hears it, from the sample at which it was played on."""
    taps = room_taps() if taps is None else taps
    size = samples.size + taps.size - 1
    wet = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(taps, size), size)
    return np.concatenate([np.zeros(delay_samples), 10.0 ** (gain_db / 20.0) * wet]).astype(np.float32)


# Player and source ----------------------------------------------------------------------------------------------------


@dataclass
class FakePlaying:
    """A sound on the fake device; ``end`` ends it."""

    sound: Sound
    start_sample: int
    stopped_sample: int | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    position: Callable[[], int] = lambda: 0

    def stop(self) -> None:
        if self.stopped_sample is None:
            self.stopped_sample = self.position()
        self.over.set()

    def end(self) -> None:
        self.over.set()

    async def wait(self) -> None:
        await self.over.wait()


class FakePlayer:
    """Takes sounds; whoever simulates the room ends them."""

    def __init__(self, position: Callable[[], int] = lambda: 0, error: Exception | None = None) -> None:
        self.position = position
        self.error = error
        self.played: list[FakePlaying] = []
        self.closed = False

    async def play(self, sound: Sound, on_start: Callable[[], None]) -> FakePlaying:
        if self.error is not None:
            raise self.error
        playing = FakePlaying(sound, self.position(), position=self.position)
        self.played.append(playing)
        on_start()
        return playing

    async def aclose(self) -> None:
        self.closed = True


class EchoingSource:
    """Plays a script into the microphone and adds the echo of whatever the player plays."""

    def __init__(self, script: Script, player: FakePlayer, delay_s: float, gain_db: float) -> None:
        self._script = ScriptedSource(script)
        self._player = player
        self._delay = round(delay_s * SAMPLE_RATE_HZ)
        self._gain_db = gain_db
        self._echoes: dict[int, Audio] = {}

    @property
    def describe(self) -> Any:
        return self._script.describe

    async def open(self) -> None:
        await self._script.open()

    async def aclose(self) -> None:
        await self._script.aclose()

    async def __aiter__(self) -> AsyncIterator[SourceItem]:
        async for item in self._script:
            if isinstance(item, Frame):
                for _ in range(4):  # lets the voice's own task run, as the time between two frames does
                    await asyncio.sleep(0)
                yield Frame(item.start_sample, self._with_echo(item))
            else:
                yield item

    def _with_echo(self, frame: Frame) -> Audio:
        out = frame.samples.astype(np.float32)
        for key, playing in enumerate(self._player.played):
            if key not in self._echoes:
                self._echoes[key] = echo_of(playing.sound.at_rate(SAMPLE_RATE_HZ), self._delay, self._gain_db)
            echo, first = self._echoes[key], frame.start_sample - playing.start_sample
            if playing.stopped_sample is not None and frame.start_sample >= playing.stopped_sample + self._delay:
                continue
            start, end = max(0, first), min(echo.size, first + out.size)
            if start < end:
                out[start - first : end - first] += echo[start:end]
            if first >= playing.sound.at_rate(SAMPLE_RATE_HZ).size:
                playing.end()
        return np.clip(out, -1.0, 1.0)


@dataclass
class ToneVoice:
    """A synthesiser that says every text with the sound of one of the ears' voices."""

    sounds: dict[str, Audio]
    other: Audio
    name: str = "tones"

    def say(self, text: str) -> Sound:
        return Sound(self.sounds.get(text, self.other), SAMPLE_RATE_HZ)


# Ears -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharpEars:
    """Hears every voice by its tone, each with its own words, in the order of their times."""

    voices: Sequence[Voice]
    model: Any = FAKE
    dimension: int = 8
    min_samples: int = SAMPLE_RATE_HZ // 4

    def ears(self) -> Ears:
        return Ears(self, self, _Proximity(self), _NoDamage())

    def hear(self, audio: Audio) -> Heard:
        words: list[Word] = []
        for voice, levels in zip(self.voices, self._levels(audio), strict=True):
            for start, end in _stretches(levels):
                parts = voice.text.split()
                edges = np.linspace(start, end, len(parts) + 1).astype(int)
                words += [
                    Word(part, Span(int(a), int(b)), 0.95) for part, (a, b) in zip(parts, pairwise(edges), strict=True)
                ]
        return Heard(tuple(sorted(words, key=lambda word: word.span)), "" if words else "no speech")

    def track(self, audio: Audio) -> _Track:
        return _Track(self, audio)

    def loudest(self, audio: Audio) -> Voice | None:
        means = [float(np.mean(levels)) if levels.size else 0.0 for levels in self._levels(audio)]
        best = int(np.argmax(means))
        return self.voices[best] if means[best] > TONE_FROM / 2 else None

    def _levels(self, audio: Audio) -> np.ndarray:
        """Amplitude of each voice's tone, ``(voices, frames)``: 40 ms frames, every 20 ms."""
        if audio.size < 640:
            return np.zeros((len(self.voices), 0))
        window = np.hanning(640)
        turns = np.outer(np.arange(640), [voice.hz for voice in self.voices]) * (-2j * np.pi / SAMPLE_RATE_HZ)
        tones = (np.exp(turns) * (2.0 * window / window.sum())[:, None]).astype(np.complex64)
        frames = np.lib.stride_tricks.sliding_window_view(audio, 640)[::320].astype(np.complex64)
        return np.abs(frames @ tones).T


def _stretches(levels: np.ndarray) -> list[tuple[int, int]]:
    active = np.flatnonzero(levels > TONE_FROM)
    runs = np.split(active, np.flatnonzero(np.diff(active) > 15) + 1)
    return [(int(run[0]) * 320, int(run[-1]) * 320 + 640) for run in runs if run.size >= 5]


@dataclass
class _Track:
    owner: SharpEars
    audio: Audio

    def embed(self, span: Span) -> Embedding:
        voice = self.owner.loudest(self.audio[span.start_sample : span.end_sample])
        if voice is None or span.samples < self.owner.min_samples:
            return Embedding(None, span, "too short")
        vector = np.zeros(self.owner.dimension, np.float32)
        vector[voice.speaker] = 1.0
        return Embedding(vector, span)

    def changes(self) -> tuple[int, ...]:
        return ()

    def near(self, span: Span) -> Nearness:
        voice = self.owner.loudest(self.audio[span.start_sample : span.end_sample])
        return Nearness(None if voice is None else voice.near, span)


@dataclass
class _Proximity:
    owner: SharpEars
    model: Any = FAKE
    min_samples: int = SAMPLE_RATE_HZ // 4

    def track(self, audio: Audio) -> _Track:
        return _Track(self.owner, audio)


class _NoDamage:
    model = FAKE

    def find(self, audio: Audio) -> tuple[()]:
        return ()


@dataclass
class PhrasePolicy:
    """Proposes by the first phrase that the transcript holds; anything else is muted."""

    replies: dict[str, str]
    model: Any = FAKE
    seen: list[str] = field(default_factory=list)

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        text = " ".join(word.text for word in turn.segment.words)
        self.seen.append(text)
        return PolicyOutput(next((reply for phrase, reply in self.replies.items() if phrase in text), "[Mute]"))


async def run_inline(call: Callable[[], Any], limit_s: float, **options: Any) -> Any:
    """Synthesis that takes no time: with the virtual clock, a thread would end at another sample in every run."""
    return call()


# The loop -------------------------------------------------------------------------------------------------------------


@dataclass
class Session:
    """A finished session with its voice."""

    outcome: Outcome
    player: FakePlayer
    notices: list[str]
    policy: Policy

    @property
    def executed(self) -> list[str]:
        return [call.name for call in self.outcome.executed]


async def converse_aloud(
    script: Script,
    voices: Sequence[Voice],
    policy: Policy,
    catalogue: Catalogue,
    voice: Synthesiser | None,
    *,
    deaf: bool = True,
    delay_s: float = 0.12,
    gain_db: float = -10.0,
    confirm: frozenset[Risk] = frozenset(),
    own_voice: OwnVoice | None = None,
    before_run: Callable[[Loop], None] = lambda loop: None,
) -> Session:
    """Run a session whose answers sound in its own microphone.

    Args:
        deaf: False leaves the gate without ``OwnVoice``: the control that shows what the echo would do.
    """
    own = own_voice or OwnVoice(PlaybackRecord())
    clock = make_clock(Pace.FREE)
    player = FakePlayer(own.position)
    notices: list[str] = []
    sink = VoiceSink(
        voice=voice, player=player, record=own.record, position=own.position, clock=clock, notice=notices.append,
        settings=VoiceSettings(outcomes=False, earcon_after_s=30.0, wait_s=30.0),
    )  # fmt: skip
    memory, ran = MemorySink(), RecordingExecutor()
    log = EventLog("s", [memory, sink], clock.now_s)
    ears = SharpEars(voices).ears()

    def work(position: Callable[[], int]) -> TurnWork:
        return TurnWork(
            ears=ears, policy=policy, catalogue=catalogue, execute=ran,
            speaker_thresholds=FixedSpeakerThresholds(), distance_thresholds=FixedDistanceThresholds(),
            thresholds=Thresholds(), repair=RepairSettings(), owner_mode=OwnerMode.INITIATOR, box=SessionBox(), log=log,
            position=position, confirmations=ConfirmSettings(confirm), own_voice=own if deaf else None,
            on_source=sink.wearer_speaks,
        )  # fmt: skip

    loop = Loop(
        source=HeardSource(EchoingSource(script, player, delay_s, gain_db), own), vad=LevelVad(), turns=TurnDetector(),
        clock=clock, worker=make_worker(Pace.FREE, clock), log=log, work=work, live=False,
    )  # fmt: skip
    before_run(loop)
    with mock.patch("agent.output_voice.run_detached", run_inline):
        await loop.run()
    return Session(Outcome(memory.events, ran.calls), player, notices, policy)
