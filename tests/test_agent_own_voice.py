"""The gate is deaf to itself: an echo of its own words never authorises, alone or under the wearer's words."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from agent import events
from agent.own_voice import (
    HISTORY_SAMPLES,
    NOT_OURS,
    REACH_SAMPLES,
    TEXT_AFTER_SAMPLES,
    Echo,
    HeardSource,
    OwnVoice,
    TurnEcho,
)
from agent.playback import PlaybackRecord
from agent.sources import ScriptedSource, Silence, SourceGap
from gate.catalogue import Risk
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span
from tests.echo_harness import PhrasePolicy, Session, ToneVoice, converse_aloud, echo_of, speech
from tests.fake_models import Voice
from tools.catalogue import ToolCatalogue

RATE = SAMPLE_RATE_HZ
CATALOGUE = ToolCatalogue.builtin()
CHAT = Voice(300, "I got off the train.", speaker=0)
ASK = Voice(400, "What can you do?", speaker=0)
OURS = Voice(2300, "You can say unlock the front door.", speaker=0)
"""Our own voice, which these ears take for the wearer's, and near."""
PROMPT = Voice(2600, "Unlock the front door, yes?", speaker=0)
UNLOCK = Voice(600, "Unlock the front door.", speaker=0)
YES = Voice(800, "Yes, go ahead.", speaker=0)
TEXT = Voice(1000, "Text Priya that I am late.", speaker=0)
BYSTANDER = Voice(1200, "Text Priya that I am late.", speaker=1)
HUM = Voice(1400, "Mmm.", speaker=0)
VOICES = [CHAT, ASK, OURS, PROMPT, UNLOCK, YES, TEXT, BYSTANDER, HUM]
REPLIES = {
    "Text Priya": '<|TOOL|>{"name": "send_message", "params": {"recipient": "Priya", "body": "I am late"}}</|TOOL|>',
    "nlock the front door": '<|TOOL|>{"name": "unlock_door", "params": {"door": "front door"}}</|TOOL|>',
    "What can you do?": OURS.text,
}
ANSWER = speech(OURS, 2.4, seed=3)
QUESTION = speech(PROMPT, 2.4, seed=4)


async def talk(*script: object, **options: object) -> Session:
    voice = ToneVoice({OURS.text: ANSWER}, QUESTION)
    return await converse_aloud([Silence(0.5), *script], VOICES, PhrasePolicy(REPLIES), CATALOGUE, voice, **options)


def say(voice: Voice, seconds: float = 1.2, level: float = 1.0) -> np.ndarray:
    return speech(voice, seconds, seed=voice.hz, level=level)


# Through the loop -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gain_db", [-10.0, -3.0])
async def test_an_echo_of_our_answer_that_sounds_like_a_command_runs_nothing_and_gets_no_answer(gain_db: float):
    session = await talk(say(CHAT), Silence(1.0), say(ASK), Silence(5.0), gain_db=gain_db)
    assert session.executed == []
    assert session.outcome.actions == ["mute", "answer", "mute"]
    assert session.outcome.reasons[-1] == "own_voice"
    assert "unlock the front door" in session.outcome.decisions[-1].evidence.transcript
    assert len(session.player.played) == 1


async def test_without_the_check_the_same_echo_would_unlock_the_door():
    session = await talk(say(CHAT), Silence(1.0), say(ASK), Silence(5.0), deaf=False)
    assert session.executed == ["unlock_door"]


async def test_an_echo_under_the_wearers_own_words_is_not_taken_for_her_command():
    # She is 12 dB louder than the echo, so voice and distance are hers; the command is ours.
    under = [say(CHAT), Silence(1.0), say(ASK), Silence(1.2), say(HUM, 2.2, level=1.2), Silence(3.0)]
    session = await talk(*under)
    assert session.executed == []
    spoken_over = session.outcome.decisions[-1].evidence
    assert spoken_over.speaker.verdict == "owner"
    assert (await talk(*under, deaf=False)).executed == ["unlock_door"]


async def test_the_wearers_own_command_over_our_answer_runs_and_silences_it():
    over = [say(CHAT), Silence(1.0), say(ASK), Silence(1.3), say(TEXT), Silence(3.0)]
    session = await talk(*over, gain_db=-24.0)
    assert session.executed == ["send_message"]
    assert session.player.played[0].stopped_sample is not None
    assert len(session.player.played) == 1


async def test_a_bystander_who_talks_over_our_answer_does_not_silence_it():
    over = [say(CHAT), Silence(1.0), say(ASK), Silence(1.3), say(BYSTANDER), Silence(3.0)]
    session = await talk(*over, gain_db=-24.0)
    assert session.executed == []
    assert session.player.played[0].stopped_sample is None
    assert session.player.played[0].over.is_set()


async def test_our_own_question_does_not_confirm_itself_and_the_wearers_prompt_yes_still_counts():
    # Her "yes" comes 0.3 s after our "..., yes?": both stand in one turn.
    def at(pause_s: float) -> list[object]:
        return [say(CHAT), Silence(1.0), say(UNLOCK), Silence(pause_s), say(YES, 0.8), Silence(3.0)]

    alone = await talk(say(CHAT), Silence(1.0), say(UNLOCK), Silence(6.0), confirm=frozenset({Risk.HIGH}))
    assert alone.executed == []
    assert alone.outcome.reasons == ["not_addressed", "confirm", "own_voice"]
    playing = alone.player.played[0]
    asked_s = (playing.start_sample + playing.sound.samples.size) / RATE - (0.5 + 1.2 + 1.0 + 1.2)
    answered = await talk(*at(asked_s + 0.12 + 0.3), confirm=frozenset({Risk.HIGH}))
    assert answered.policy.seen[-1] == YES.text
    assert answered.executed == ["unlock_door"]
    assert answered.outcome.reasons[-1] == "confirmed"


async def test_our_own_voice_never_becomes_the_owner_of_a_session():
    # The first sound of the session is our answer to a typed question; the first person to speak is a stranger to it.
    async def typed(deaf: bool) -> Session:
        ours = Voice(OURS.hz, OURS.text, speaker=5)
        voices = [ours if voice is OURS else voice for voice in VOICES]
        voice = ToneVoice({}, ANSWER)
        script = [Silence(4.5), say(TEXT), Silence(2.0)]
        return await converse_aloud(
            script, voices, PhrasePolicy(REPLIES), CATALOGUE, voice, deaf=deaf,
            before_run=lambda loop: loop.submit_text("What can you do?"),
        )  # fmt: skip

    assert (await typed(deaf=True)).executed == ["send_message"]
    assert (await typed(deaf=False)).executed == ["unlock_door"]


@dataclass
class BrokenOwnVoice(OwnVoice):
    """Fails at every comparison."""

    record: PlaybackRecord = field(default_factory=PlaybackRecord)

    def __post_init__(self) -> None:
        super().__init__(self.record)

    def check(self, *args: object) -> TurnEcho:
        raise RuntimeError("broken")


async def test_when_the_comparison_fails_everything_heard_while_we_sounded_is_ours():
    over = [say(CHAT), Silence(1.0), say(ASK), Silence(1.3), say(TEXT), Silence(3.0), say(TEXT), Silence(2.0)]
    session = await talk(*over, own_voice=BrokenOwnVoice())
    assert session.outcome.reasons[2] == "own_voice"
    assert session.executed == ["send_message"]  # the one that came when we had been silent for long


async def test_a_turn_far_from_any_playback_costs_no_comparison():
    session = await talk(say(CHAT), Silence(1.0), say(TEXT), Silence(1.0))
    assert session.executed == ["send_message"]
    timings = [event.timing.compute for event in session.outcome.events if isinstance(event, events.Decided)]
    assert all(timing.get("own_voice", 0.0) < 0.01 for timing in timings)


# The verdict alone ----------------------------------------------------------------------------------------------------


@dataclass
class Scene:
    """A stretch of stream with a sound of ours in it and people beside it."""

    text: str = "you can say unlock the front door"
    played_at: int = RATE
    delay: int = RATE * 12 // 100
    gain_db: float = -12.0
    seconds: float = 5.0

    def __post_init__(self) -> None:
        self.record = PlaybackRecord()
        self.own = OwnVoice(self.record)
        self.record.start(ANSWER, self.text, self.played_at)
        rng = np.random.default_rng(0)
        self.stream = (rng.standard_normal(round(self.seconds * RATE)) * 3e-4).astype(np.float32)
        self.put(echo_of(ANSWER, self.delay, self.gain_db), self.played_at)

    @property
    def echo_span(self) -> Span:
        start = self.played_at + self.delay
        return Span(start, start + ANSWER.size)

    def put(self, sound: np.ndarray, at: int) -> Span:
        end = min(at + sound.size, self.stream.size)
        self.stream[at:end] += sound[: end - at]
        return Span(at, end)

    def check(self, turn: Span, *words: Word, heard: bool = True) -> TurnEcho:
        if heard:
            for start in range(0, self.stream.size, 320):
                self.own.listen(start, self.stream[start : start + 320])
        local = tuple(Word(w.text, w.span.shifted(-turn.start_sample), w.probability) for w in words)
        return self.own.check(turn, self.stream[turn.start_sample : turn.end_sample], local)


def words_over(span: Span, text: str) -> list[Word]:
    parts = text.split()
    edges = np.linspace(span.start_sample, span.end_sample, len(parts) + 1).astype(int)
    return [Word(part, Span(int(a), int(b)), 0.9) for part, a, b in zip(parts, edges, edges[1:], strict=False)]


def whole(turn: Span) -> Span:
    return Span(0, turn.samples)


def test_an_echo_alone_is_ours_even_when_it_was_misheard():
    scene = Scene()
    turn = Span(scene.echo_span.start_sample - 3000, scene.echo_span.end_sample + 3000)
    echo = scene.check(turn, *words_over(scene.echo_span, "lock up sunny sand call Ben now"))
    verdict = echo.verdict(whole(turn))
    assert verdict.own_voice
    assert verdict.echo is Echo.ONLY
    assert verdict.share is not None
    assert verdict.share > 0.8
    assert len(echo.kept) == 7  # the log shows what was heard


def test_a_single_word_of_echo_is_told_apart_by_what_was_heard_before_the_turn():
    # A turn of one word is too short for a fit; its two seconds of history are not.
    scene = Scene()
    word = Span(scene.echo_span.end_sample - 6000, scene.echo_span.end_sample - 1000)
    turn = Span(word.start_sample - 1500, word.end_sample + 500)
    assert scene.check(turn, Word("Yes.", word, 0.9)).verdict(whole(turn)).own_voice
    assert not scene.own._before(turn.start_sample).size < RATE


def test_a_yes_right_after_our_yes_is_the_wearers():
    scene = Scene(text="unlock the front door, yes?")
    said = scene.put(say(YES, 0.5), scene.echo_span.end_sample + RATE // 8)
    turn = Span(scene.echo_span.start_sample - 3000, said.end_sample + 3000)
    ours = words_over(scene.echo_span, "Unlock the front door, yes?")
    echo = scene.check(turn, *ours, Word("Yes.", said, 0.9))
    assert [word.text for word in echo.kept] == ["Yes."]
    verdict = echo.verdict(whole(turn))
    assert not verdict.own_voice
    assert not verdict.overlapped
    assert verdict.echo is Echo.BESIDE


def test_words_that_the_wearer_may_have_said_under_our_voice_make_the_turn_doubtful():
    # "Do not", as loud as the echo, then "unlock the door" when we are done: leaving out "do not" would unlock it.
    scene = Scene(text="the weather will be fine", gain_db=-3.0)
    hidden = Span(scene.echo_span.end_sample - RATE * 6 // 10, scene.echo_span.end_sample)
    level = float(np.std(scene.stream[hidden.start_sample : hidden.end_sample]) / np.std(say(UNLOCK)))
    scene.put(say(UNLOCK, 0.6, level=level), hidden.start_sample)
    said = scene.put(say(UNLOCK, 1.0), hidden.end_sample + 800)
    turn = Span(scene.echo_span.start_sample - 3000, said.end_sample + 3000)
    echo = scene.check(turn, *words_over(hidden, "Do not"), *words_over(said, "unlock the door."))
    assert [word.text for word in echo.kept] == ["unlock", "the", "door."]
    assert echo.verdict(whole(turn)).overlapped


def test_a_phrase_that_we_are_just_saying_is_ours_however_faint_it_is_under_the_wearers_voice():
    scene = Scene()
    said = scene.put(say(HUM, 2.2, level=1.5), scene.echo_span.start_sample + 800)  # 20 dB above our echo
    turn = Span(said.start_sample - 3000, said.end_sample + 3000)
    echo = scene.check(turn, *words_over(said, "Well I am not so sure about that unlock the front door."))
    assert [word.text for word in echo.kept] == ["Well", "I", "am", "not", "so", "sure", "about", "that"]
    assert max(judged.share or 0.0 for judged in echo.words) < 0.3  # by its sound alone it would have been hers


def test_words_heard_where_nothing_sounds_are_ours_while_we_play():
    # Recognisers make words of silence; while our echo is in the room, they are likely to be ours.
    scene = Scene()
    scene.stream[scene.echo_span.end_sample + 4800 :] = 0.0
    silent = Span(scene.echo_span.end_sample + 6000, scene.echo_span.end_sample + 10_000)
    turn = Span(scene.echo_span.start_sample - 3000, silent.end_sample + 3000)
    echo = scene.check(turn, *words_over(scene.echo_span, "One two three four"), Word("go", silent, 0.4))
    assert echo.words[-1].share is None
    assert echo.verdict(whole(turn)).own_voice


def test_speech_while_we_play_into_earphones_is_the_wearers():
    scene = Scene()
    scene.stream[:] = (np.random.default_rng(1).standard_normal(scene.stream.size) * 3e-4).astype(np.float32)
    said = scene.put(say(TEXT), scene.echo_span.start_sample + 3000)
    turn = Span(said.start_sample - 3000, said.end_sample + 3000)
    echo = scene.check(turn, *words_over(said, TEXT.text))
    assert len(echo.kept) == 6
    verdict = echo.verdict(whole(turn))
    assert not verdict.own_voice
    assert not verdict.overlapped
    assert verdict.echo is Echo.NONE


def far_away(scene: Scene, after_end: int) -> Span:
    """Nothing linear left: our words arrive later than any delay that is searched, through who knows what."""
    scene.stream[:] = (np.random.default_rng(1).standard_normal(scene.stream.size) * 3e-4).astype(np.float32)
    return scene.put(say(HUM, 1.0), scene.played_at + ANSWER.size + after_end)


@pytest.mark.parametrize(
    ("text", "after_end", "ours"),
    [
        ("Unlock the front door.", RATE * 3 // 2, True),
        ("You can save unlock the front door.", RATE * 3 // 2, True),
        ("Unlock the front door.", REACH_SAMPLES + TEXT_AFTER_SAMPLES + 4000, False),
        ("Turn the kitchen light off.", RATE * 3 // 2, False),
        ("Yes, the door.", RATE * 3 // 2, False),
        ("Yes.", RATE * 3 // 2, False),
    ],
)
def test_what_we_just_said_is_ours_by_its_words_where_no_sound_can_tell(text: str, after_end: int, ours: bool):
    scene = Scene(text="You can say: unlock the front door. Yes?", seconds=8.0)
    said = far_away(scene, after_end)
    turn = Span(said.start_sample - 3000, said.end_sample + 3000)
    verdict = scene.check(turn, *words_over(said, text)).verdict(whole(turn))
    assert verdict.own_voice is ours


def test_once_the_devices_delay_is_known_the_wearer_may_repeat_us_a_second_later():
    scene = Scene(seconds=8.0)
    first = Span(scene.echo_span.start_sample - 3000, scene.echo_span.end_sample + 3000)
    assert scene.check(first, *words_over(scene.echo_span, scene.text)).verdict(whole(first)).own_voice
    said = scene.put(say(UNLOCK), scene.played_at + ANSWER.size + REACH_SAMPLES + 4000)
    turn = Span(said.start_sample - 3000, said.end_sample + 3000)
    assert not scene.check(turn, *words_over(said, UNLOCK.text)).verdict(whole(turn)).own_voice


def test_audio_that_cannot_be_compared_is_ours_while_we_sound_and_only_then():
    scene = Scene()
    turn = Span(scene.echo_span.start_sample, scene.echo_span.end_sample)
    broken = np.full(turn.samples, np.nan, np.float32)
    word = Word("unlock", Span(0, 4000), 0.9)
    verdict = scene.own.check(turn, broken, [word]).verdict(whole(turn))
    assert verdict.own_voice
    later = Span(turn.end_sample + 5 * RATE, turn.end_sample + 6 * RATE)
    assert scene.own.check(later, broken[: later.samples], [word]).verdict(Span(0, 4000)) == NOT_OURS


def test_history_across_a_gap_is_not_taken_for_one_stretch():
    own = OwnVoice(PlaybackRecord())
    own.listen(0, np.ones(16_000, np.float32))
    own.lost(48_000)
    own.listen(48_000, np.full(3200, 2.0, np.float32))
    assert own.position() == 51_200
    assert own._before(51_200).tolist() == [2.0] * 3200
    assert own._before(40_000).size == 0


def test_history_survives_the_ring_and_is_bounded():
    own = OwnVoice(PlaybackRecord())
    for start in range(0, 2 * HISTORY_SAMPLES + 960, 320):
        own.listen(start, np.full(320, start, np.float32))
    end = own.position()
    kept = own._before(end)
    assert kept.size == 2 * RATE
    assert kept[-1] == end - 320
    assert kept[0] == end - 2 * RATE
    assert own._before(end - HISTORY_SAMPLES - 320).size == 0


async def test_the_tap_changes_nothing_that_the_loop_gets():
    script = [say(CHAT, 0.3), SourceGap(0, 640), Silence(0.1)]
    own = OwnVoice(PlaybackRecord())
    plain = [item async for item in ScriptedSource(script)]
    tapped = [item async for item in HeardSource(ScriptedSource(script), own)]
    assert len(plain) == len(tapped)
    for before, after in zip(plain, tapped, strict=True):
        assert type(before) is type(after)
        assert before.start_sample == after.start_sample
    assert own.position() == tapped[-1].end_sample
