"""The spoken output: what is said and when, who can interrupt it, and that nothing ever waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest

from agent import earcon, events
from agent.clock import VirtualClock, WallClock
from agent.output_voice import MAX_CHARACTERS, VoiceSettings, VoiceSink, _speakable
from agent.own_voice import Echo, OwnVoiceVerdict
from agent.playback import STOP_MARGIN_SAMPLES, PlaybackRecord, Sound
from agent.player import PlayerError
from agent.voices import Synthesiser, VoiceError
from gate.evidence import DistanceVerdict, SpeakerVerdict
from gate.span import SAMPLE_RATE_HZ
from tests.echo_harness import FakePlayer, FakePlaying, run_inline
from tests.gate_builders import evidence, proximity, speaker

RATE = SAMPLE_RATE_HZ
SAID = Sound(np.full(2 * RATE, 0.1, np.float32), RATE)


@dataclass
class Spoken:
    """A synthesiser that remembers; each text has its own length, so that sounds can be told apart."""

    texts: list[str] = field(default_factory=list)
    error: Exception | None = None
    name: str = "spoken"

    def say(self, text: str) -> Sound:
        self.texts.append(text)
        if self.error is not None:
            raise self.error
        return Sound(np.full(RATE + len(text), 0.1, np.float32), RATE)


class Hung:
    """A synthesiser that does not return."""

    name = "hung"

    def __init__(self) -> None:
        self.release = threading.Event()

    def say(self, text: str) -> Sound:
        self.release.wait(30)
        return SAID


@dataclass
class Rig:
    """A sink with everything around it."""

    voice: Synthesiser | None
    settings: VoiceSettings = field(default_factory=VoiceSettings)
    player: FakePlayer = field(default_factory=FakePlayer)
    clock: VirtualClock | WallClock = field(default_factory=VirtualClock)

    def __post_init__(self) -> None:
        self.record = PlaybackRecord()
        self.notices: list[str] = []
        self.position = 10 * RATE
        self.player.position = lambda: self.position
        self.sink = VoiceSink(
            voice=self.voice, player=self.player, record=self.record, position=lambda: self.position,
            clock=self.clock, notice=self.notices.append, settings=self.settings,
        )  # fmt: skip

    async def emit(self, *found: events.Event) -> None:
        for event in found:
            self.sink.emit(event)
        await settle()

    async def wait_s(self, seconds: float) -> None:
        assert isinstance(self.clock, VirtualClock)
        self.clock.move_to_s(self.clock.now_s() + seconds)
        await settle()

    async def end(self) -> None:
        """The sound that is playing ends."""
        self.last.end()
        await settle()

    @property
    def last(self) -> FakePlaying:
        return self.player.played[-1]

    @property
    def lengths(self) -> list[int]:
        return [playing.sound.samples.size for playing in self.player.played]


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Synthesis that ends at once, so that the virtual clock alone says when things happen."""
    monkeypatch.setattr("agent.output_voice.run_detached", run_inline)


@asynccontextmanager
async def rig(voice: Synthesiser | None, **options: object) -> AsyncIterator[Rig]:
    made = Rig(voice, **options)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.sink.aclose()


def envelope(at_s: float = 10.0) -> dict[str, object]:
    return {"seq": 0, "session": "s", "at_s": at_s, "clock_s": at_s}


def decided(
    action: str,
    text: str | None = None,
    turn: str = "t1",
    who: str = "owner",
    where: str = "near",
    span_s: tuple[float, float] = (8.0, 9.5),
    own_voice: bool = False,
    reason: str = "addressed_question",
) -> events.Decided:
    return events.Decided(
        **envelope(), turn=turn, action=action, tool=None, params=None, answer=text, reason=reason, sentence="",
        proposed="answer", timing=events.TimingRecord(speech_end=9.0, endpoint=9.5, decision=9.6),
        evidence=events.EvidenceRecord(
            span_s=span_s, modality="audio", transcript="", words=(), damage=(), overlapped=None, own_voice=own_voice,
            source_gap=False, speaker=events.SpeakerRecord(verdict=who, score=0.7, owner_at=0.5, other_below=0.3),
            distance=events.DistanceRecord(verdict=where, near_probability=0.9, near_at=0.8, far_below=0.2),
        ),
    )  # fmt: skip


def executed(outcome: str) -> events.Executed:
    return events.Executed(**envelope(), turn="t1", tool="send_message", params={}, outcome=outcome)


def opened(turn: str) -> events.TurnOpened:
    return events.TurnOpened(**envelope(), turn=turn, start_s=9.0)


def closed(turn: str) -> events.TurnClosed:
    return events.TurnClosed(**envelope(), turn=turn, span_s=(9.0, 10.0), reason="silence")


# What is said ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("inline")
async def test_answers_questions_and_confirmations_are_spoken_and_silence_is_kept_otherwise():
    voice = Spoken()
    async with rig(voice) as made:
        await made.emit(decided("mute"), decided("tool"), decided("answer", ""))
        assert voice.texts == []
        for action, text, reason in (
            ("answer", "Paris.", "addressed_question"),
            ("pardon", "Pardon? Who should I text?", "argument_missing"),
            ("pardon", "Transfer 60 dollars to Ben, yes?", "confirm"),
        ):
            await made.emit(decided(action, text, reason=reason))
            assert voice.texts[-1] == text
            assert made.lengths[-1] == RATE + len(text)
            await made.end()
        assert made.notices == []


@pytest.mark.usefixtures("inline")
async def test_a_done_call_sounds_and_one_that_went_wrong_is_said():
    voice = Spoken()
    async with rig(voice) as made:
        await made.emit(executed("done"))
        assert made.last.sound is earcon.done()
        await made.end()
        for outcome in ("failed", "outcome_unknown", "refused"):
            await made.emit(executed(outcome))
            assert voice.texts[-1].startswith(("That", "I cannot tell"))
            await made.end()
        before = len(made.player.played)
        await made.emit(executed("cancelled"))  # its decision was answered already
        assert len(made.player.played) == before


async def test_without_a_synthesiser_earcons_stand_in():
    async with rig(None) as made:
        await made.emit(decided("pardon", "Pardon? Say it again."))
        assert made.last.sound is earcon.pardon()
        await made.end()
        await made.emit(decided("answer", "Paris."))
        assert made.last.sound is earcon.done()
        await made.end()
        await made.emit(executed("failed"))
        assert made.last.sound is earcon.pardon()


@pytest.mark.usefixtures("inline")
async def test_an_answer_that_claims_a_deed_nobody_did_is_not_said_aloud():
    voice = Spoken()
    async with rig(voice) as made:
        claim = events.ClaimWithoutExecution(**envelope(), turn="t1", answer="I have sent it.")
        await made.emit(decided("answer", "I have sent it."), claim)
        assert voice.texts == []
        assert made.notices == ["voice: answer of t1 not spoken: it claims a deed that was not done"]


def test_long_answers_are_cut_after_a_sentence_and_markup_is_not_read_out():
    assert _speakable("**Paris** is `big`.\n\n# Yes") == "Paris is big . Yes"
    long = "This is a sentence. " * 60
    assert len(_speakable(long)) <= MAX_CHARACTERS
    assert _speakable(long).endswith("sentence.")
    assert len(_speakable("word " * 200)) <= MAX_CHARACTERS


# When -----------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("inline")
async def test_nothing_is_said_while_somebody_speaks():
    async with rig(Spoken()) as made:
        await made.emit(opened("t2"), decided("answer", "Paris."))
        await made.wait_s(2.0)
        assert made.player.played == []
        await made.emit(closed("t2"))
        assert len(made.player.played) == 1


@pytest.mark.usefixtures("inline")
async def test_an_answer_that_has_waited_too_long_is_dropped_and_that_is_said():
    async with rig(Spoken(), settings=VoiceSettings(wait_s=4.0)) as made:
        await made.emit(opened("t2"), decided("answer", "Paris."))
        await made.wait_s(4.5)
        await made.emit(closed("t2"))
        assert made.player.played == []
        assert made.notices == ["voice: answer of t1 not spoken: somebody kept speaking (4 s)"]


async def test_speech_that_is_ready_when_it_is_of_no_use_any_more_is_dropped():
    voice = Hung()
    async with rig(voice, settings=VoiceSettings(wait_s=4.0)) as made:
        await made.emit(decided("answer", "Paris."))
        await made.wait_s(5.0)
        voice.release.set()
        await eventually(lambda: bool(made.notices))
        assert made.player.played == []
        assert made.notices == ["voice: answer of t1 not spoken: it was ready too late (4 s)"]


@pytest.mark.usefixtures("inline")
async def test_of_too_many_that_wait_the_newest_win_and_what_is_dropped_is_said():
    async with rig(Spoken()) as made:
        await made.emit(decided("answer", "zero", turn="t0"))
        for index in (1, 2, 3):
            # A typed question has no speaker, so it interrupts nothing.
            await made.emit(decided("answer", "x" * index, turn=f"t{index}", who="unsure"))
        assert made.notices == ["voice: answer of t1 not spoken: newer ones are waiting"]
        for _ in range(3):
            await made.end()
        assert made.lengths == [RATE + 4, RATE + 2, RATE + 3]


@pytest.mark.usefixtures("inline")
async def test_what_waits_is_of_no_use_once_the_wearer_has_said_something_new():
    async with rig(Spoken()) as made:
        await made.emit(opened("t2"), decided("answer", "old", turn="t1"))
        await made.emit(closed("t2"), decided("answer", "newer", turn="t2", span_s=(9.0, 9.8)))
        assert made.lengths == [RATE + 5]
        assert made.notices == ["voice: answer of t1 not spoken: the wearer has spoken since"]


# Who interrupts -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize(
    ("who", "where", "own_voice", "end_s", "stops"),
    [
        ("owner", "near", False, 12.0, True),
        ("owner", "near", True, 12.0, False),
        ("owner", "far", False, 12.0, False),
        ("other", "near", False, 12.0, False),
        ("unsure", "near", False, 12.0, False),
        ("owner", "near", False, 9.9, False),  # she spoke before we began
    ],
)
async def test_only_the_wearer_near_by_stops_the_voice(
    who: str, where: str, own_voice: bool, end_s: float, stops: bool
):
    async with rig(Spoken()) as made:
        await made.emit(decided("answer", "Paris."))
        made.position = 11 * RATE
        await made.emit(decided("mute", turn="t2", who=who, where=where, own_voice=own_voice, span_s=(10.5, end_s)))
        assert (made.last.stopped_sample is not None) is stops


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize(
    ("who", "where", "echo", "stops"),
    [
        (SpeakerVerdict.OWNER, DistanceVerdict.NEAR, Echo.NONE, True),
        (SpeakerVerdict.OWNER, DistanceVerdict.NEAR, Echo.BESIDE, True),
        (SpeakerVerdict.OWNER, DistanceVerdict.NEAR, Echo.ONLY, False),
        (SpeakerVerdict.OTHER, DistanceVerdict.NEAR, Echo.NONE, False),
        (SpeakerVerdict.UNSURE, DistanceVerdict.NEAR, Echo.NONE, False),
        (SpeakerVerdict.OWNER, DistanceVerdict.UNSURE, Echo.NONE, False),
    ],
)
async def test_the_wearer_stops_the_voice_before_her_turn_has_ended(
    who: SpeakerVerdict, where: DistanceVerdict, echo: Echo, stops: bool
):
    async with rig(Spoken()) as made:
        await made.emit(decided("answer", "Paris."))
        made.position = 11 * RATE
        heard = evidence(start_sample=10 * RATE + 1000, by=speaker(who), at=proximity(where))
        made.sink.wearer_speaks(heard, OwnVoiceVerdict(echo, echo is not Echo.NONE, False, 0.5))
        await settle()
        assert (made.last.stopped_sample is not None) is stops


@pytest.mark.usefixtures("inline")
async def test_what_an_interruption_cut_off_is_no_reference_for_echoes():
    async with rig(Spoken()) as made:
        await made.emit(decided("answer", "Paris."))
        began = made.position
        made.position += RATE // 4
        await made.emit(decided("mute", turn="t2", span_s=(10.5, 12.0)))
        end = made.position + STOP_MARGIN_SAMPLES
        assert made.record.reference(began, end - began).all()
        assert not made.record.reference(end, RATE).any()


# Trouble --------------------------------------------------------------------------------------------------------------


async def test_a_question_whose_speech_takes_long_is_announced_by_its_earcon():
    voice = Hung()
    clock = VirtualClock()
    async with rig(voice, clock=clock, settings=VoiceSettings(earcon_after_s=0.4)) as made:
        await made.emit(decided("pardon", "Pardon?"))
        assert made.player.played == []
        await made.wait_s(0.5)
        assert made.last.sound is earcon.pardon()
        await made.end()
        voice.release.set()
        await eventually(lambda: len(made.player.played) == 2)
        assert made.last.sound is SAID


async def test_speech_that_takes_too_long_is_given_up_for_an_earcon_and_the_loop_never_waits():
    voice = Hung()
    async with rig(voice, clock=WallClock(), settings=VoiceSettings(synthesis_s=0.02)) as made:
        made.sink.emit(decided("answer", "Paris."))  # returns although the synthesiser does not
        await eventually(lambda: len(made.player.played) == 1)
        assert made.last.sound is earcon.done()
        assert "an earcon instead" in made.notices[0]
        voice.release.set()


@pytest.mark.usefixtures("inline")
async def test_a_synthesiser_that_fails_is_named_once_not_at_every_sentence():
    voice = Spoken(error=VoiceError("no model"))
    async with rig(voice) as made:
        for _ in range(3):
            await made.emit(decided("answer", "Paris."))
            assert made.last.sound is earcon.done()
            await made.end()
        assert made.notices == ["voice: no model; an earcon instead"]


@pytest.mark.usefixtures("inline")
async def test_without_an_output_device_one_line_is_said_and_the_gate_goes_on_silently():
    player = FakePlayer(error=PlayerError("the default output device cannot be opened: none"))
    async with rig(Spoken(), player=player) as made:
        for _ in range(3):
            await made.emit(decided("answer", "Paris."))
        assert made.notices == ["voice output is off: the default output device cannot be opened: none"]
        player.error = None
        await made.emit(decided("answer", "Paris."))
        assert len(made.player.played) == 1
        await made.end()
        player.error = PlayerError("the default output device cannot be opened: none")
        await made.emit(decided("answer", "Paris."))
        assert len(made.notices) == 2


@pytest.mark.usefixtures("inline")
async def test_a_voice_that_raises_anything_at_all_does_not_end_the_output():
    voice = Spoken(error=RuntimeError("segfault, nearly"))
    async with rig(voice) as made:
        await made.emit(decided("answer", "Paris."))
        assert made.notices == ["voice output failed: RuntimeError: segfault, nearly"]
        voice.error = None
        await made.emit(decided("answer", "Paris."))
        assert len(made.player.played) == 1


@pytest.mark.parametrize("voice", [Spoken(), Hung()])
async def test_closing_takes_less_than_a_second_whatever_hangs_and_leaves_no_task(voice: Synthesiser):
    before = asyncio.all_tasks()
    clock = WallClock()
    made = Rig(voice, clock=clock)
    await made.emit(decided("pardon", "Pardon?"), decided("answer", "Paris.", who="unsure"))
    began_s = clock.now_s()
    await made.sink.aclose()
    assert clock.now_s() - began_s < 1.0
    assert made.player.closed
    assert all(playing.over.is_set() for playing in made.player.played)
    made.sink.emit(decided("answer", "Paris."))
    await made.sink.aclose()
    await settle()
    assert asyncio.all_tasks() == before
    if isinstance(voice, Hung):
        voice.release.set()


async def eventually(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("did not come about within a second")
