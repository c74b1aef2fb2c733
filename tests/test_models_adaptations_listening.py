"""Thinking while somebody speaks, in the live loop: what is noted, when, what it costs, and that it never acts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from agent import events
from agent.clock import Pace
from agent.listening import Listener
from agent.loop import Loop
from agent.sources import Frame, Script, ScriptedSource, Silence, SourceGap, SourceItem
from agent.turn_work import Limits
from gate.span import SAMPLE_RATE_HZ
from models.audio_llm.adaptations.shanks import EOA, Shanks
from models.audio_llm.policy import AudioLlmPolicy
from models.protocols import PolicyInput, PolicyOutput, SpeechSoFar
from tests.adaptation_chats import SEND, ScriptedChat
from tests.fake_models import FakeEars, ScriptedPolicy, Voice, tone
from tests.loop_harness import Outcome, converse
from tools.catalogue import ToolCatalogue

COMMAND = Voice(400, "Text Priya that I am late.")
OTHER = Voice(500, "Text Priya that I am late.", speaker=1)
CATALOGUE = ToolCatalogue.builtin(())
CHUNK_S = 0.5


class Notes(ScriptedPolicy):
    """Notes how much it has heard of which turn, every half a second."""

    chunk_s = CHUNK_S
    max_chunks = 8

    def __init__(self, note: str | Exception | None = None, reply: str = SEND) -> None:
        super().__init__({COMMAND.text: reply})
        self.note = note
        self.heard: list[SpeechSoFar] = []

    def listen(self, so_far: SpeechSoFar) -> str:
        self.heard.append(so_far)
        if isinstance(self.note, Exception):
            raise self.note
        return self.note if self.note is not None else f"{so_far.turn_id} {len(so_far.audio) / SAMPLE_RATE_HZ:.2f}"

    @property
    def lengths_s(self) -> list[float]:
        return [round(len(so_far.audio) / SAMPLE_RATE_HZ, 2) for so_far in self.heard]


@dataclass
class Kept:
    """Keeps hold of the loop, to look at what it remembers."""

    loops: list[Loop] = field(default_factory=list)

    @property
    def listened(self) -> dict[str, Any]:
        return self.loops[0]._work.box.listened


def script(*voices: Voice, seconds: float = 1.5) -> list[Any]:
    return [Silence(0.5), *(part for voice in voices for part in (tone(voice, seconds), Silence(1.0)))]


async def run(policy: Notes, *parts: Any, **options: Any) -> Outcome:
    ears = options.pop("ears", None) or FakeEars([COMMAND, OTHER])
    source = options.pop("source", None) or list(parts) or script(COMMAND)
    return await converse(source, ears, policy, CATALOGUE, **options)


def costing(monkeypatch: pytest.MonkeyPatch, seconds: Mapping[str, float]) -> None:
    """Stages cost what they are said to, on the charged clock."""

    async def run_request(self: object, request: Any) -> tuple[object, BaseException | None, float]:
        try:
            return request.call(), None, seconds.get(request.stage, 0.0)
        except Exception as error:
            return None, error, seconds.get(request.stage, 0.0)

    monkeypatch.setattr("agent.worker._Inference.run", run_request)


async def test_the_open_turn_is_listened_to_from_its_start_and_its_notes_come_with_it() -> None:
    policy = Notes()
    outcome = await run(policy)
    assert policy.lengths_s == [0.5, 1.0, 1.5], "each time from the turn's first sample, pre-roll included"
    assert policy.seen[-1].notes == ("t0001 0.50", "t0001 1.00", "t0001 1.50")
    assert [so_far.notes for so_far in policy.heard] == [(), ("t0001 0.50",), ("t0001 0.50", "t0001 1.00")]
    whole = policy.seen[-1].audio
    assert whole is not None
    for so_far in policy.heard:
        assert np.array_equal(so_far.audio, whole[: len(so_far.audio)]), "the very samples of the turn"
    assert outcome.actions == ["tool"]


async def test_a_note_that_holds_an_action_never_acts() -> None:
    """What was only considered while the command was half spoken must not run."""
    policy = Notes(note=SEND, reply="[Mute]")
    outcome = await run(policy)
    assert policy.seen[-1].notes == (SEND,) * 3
    assert (outcome.actions, outcome.executed) == (["mute"], [])
    proposed = [event.raw for event in outcome.events if isinstance(event, events.Proposed)]
    assert proposed == ["[Mute]"]


async def test_a_cancelled_turn_forgets_its_notes_and_nothing_is_noted_of_it_any_more() -> None:
    """Words of a turn that was dropped must not come back in another."""
    policy, kept = Notes(), Kept()
    lost = SourceGap(0, SAMPLE_RATE_HZ, 0)
    parts = [Silence(0.5), tone(COMMAND, 1.2), lost, Silence(0.8), tone(COMMAND, 1.5), Silence(1.0)]
    outcome = await run(policy, *parts, before_run=kept.loops.append)
    assert [event.turn for event in outcome.events if isinstance(event, events.Dropped)] == ["t0001"]
    assert {so_far.turn_id for so_far in policy.heard} == {"t0001", "t0002"}
    (decided,) = policy.seen
    assert all(note.startswith("t0002") for note in decided.notes)
    assert kept.listened == {}


async def test_a_note_that_waits_when_its_turn_is_cancelled_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute for a turn that nobody will decide would be taken from the next one."""
    costing(monkeypatch, {"listen": 3.0})
    policy, kept = Notes(), Kept()
    parts = [Silence(0.5), tone(COMMAND, 1.2), SourceGap(0, SAMPLE_RATE_HZ, 0), Silence(5.0)]
    outcome = await run(policy, *parts, before_run=kept.loops.append)
    assert outcome.decisions == []
    assert len(policy.heard) == 1
    assert kept.listened == {}


async def test_notes_are_gone_once_the_turn_is_decided() -> None:
    """A day of listening must not pile up notes."""
    policy, kept = Notes(), Kept()
    await run(policy, *script(COMMAND, OTHER), before_run=kept.loops.append)
    assert len(policy.seen) == 2
    assert all(note.startswith("t0002") for note in policy.seen[1].notes)
    assert kept.listened == {}


async def test_a_turn_that_goes_on_after_a_pause_keeps_its_notes() -> None:
    """The work on the first part is thrown away, what was heard is not."""
    policy = Notes()
    parts = [Silence(0.5), tone(COMMAND, 1.2), Silence(0.4), tone(COMMAND, 1.0), Silence(1.0)]
    await run(policy, *parts)
    assert policy.seen[-1].notes[:2] == ("t0001 0.50", "t0001 1.00")
    assert len(policy.seen[-1].notes) > 3
    assert policy.lengths_s == sorted(set(policy.lengths_s)), "each stretch is listened to once"


async def test_in_a_pause_nothing_is_begun() -> None:
    """The turn's own work comes first then; what became due is heard when they go on, with what they say."""
    policy = Notes()
    await run(policy, Silence(0.5), tone(COMMAND, 1.4), Silence(0.4), tone(COMMAND, 0.5), Silence(1.0))
    assert policy.lengths_s[:3] == [0.5, 1.0, 1.5]
    assert 0.3 + 1.4 + 0.4 < policy.lengths_s[3] < 0.3 + 1.4 + 0.4 + 0.2, "two seconds were complete in the pause"
    assert len(policy.lengths_s) == 5


async def test_thinking_that_ends_before_the_speech_costs_no_latency_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That is what it is for."""
    costing(monkeypatch, {"listen": 0.1})
    timing = (await run(Notes())).decisions[0].timing
    assert timing.compute["listen"] == pytest.approx(0.3)
    assert timing.decision - timing.endpoint == pytest.approx(0.0, abs=0.03)


async def test_thinking_that_outlasts_the_speech_delays_the_decision_by_as_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hidden, it would make a slow model look fast."""
    costing(monkeypatch, {"listen": 2.0})
    timing = (await run(Notes())).decisions[0].timing
    assert timing.compute["listen"] == pytest.approx(6.0)
    first_s = 0.5 - 0.3 + CHUNK_S
    assert timing.decision == pytest.approx(first_s + 6.0, abs=0.1), "one after the other, from the first chunk on"
    assert timing.endpoint - timing.speech_end == pytest.approx(0.6, abs=0.05), "frames were not held up"


async def test_the_free_clock_charges_nothing_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    costing(monkeypatch, {"listen": 2.0})
    timing = (await run(Notes(), pace=Pace.FREE)).decisions[0].timing
    assert timing.decision == timing.endpoint


@pytest.mark.parametrize("cost_s", [0.0, 0.7, 5.0])
async def test_how_long_thinking_takes_changes_no_note(monkeypatch: pytest.MonkeyPatch, cost_s: float) -> None:
    """The same audio must give the same decisions on a fast machine and on a slow one."""
    costing(monkeypatch, {"listen": cost_s})
    policy = Notes()
    await run(policy, *script(COMMAND, OTHER))
    assert [turn.notes for turn in policy.seen] == [
        tuple(f"{turn} {length}" for length in ("0.50", "1.00", "1.50")) for turn in ("t0001", "t0002")
    ]


class Held(Notes):
    """Holds its first note until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.release = threading.Event(), threading.Event()

    def listen(self, so_far: SpeechSoFar) -> str:
        self.entered.set()
        assert self.release.wait(20), "nobody released the note"
        return super().listen(so_far)


class WaitsForTheNote(ScriptedSource):
    """Plays a script, and after its first second of speech waits until the note on it is being written."""

    def __init__(self, script: Script, policy: Held) -> None:
        super().__init__(script)
        self._policy = policy

    async def __aiter__(self) -> AsyncIterator[SourceItem]:
        async for item in super().__aiter__():
            if isinstance(item, Frame) and item.start_sample == round(1.5 * SAMPLE_RATE_HZ):
                await asyncio.to_thread(self._policy.entered.wait, 10)
            yield item


class ReleasesAt:
    """A sink that lets the note be written at an event of some kind."""

    wants_levels = False

    def __init__(self, policy: Held, kind: type) -> None:
        self._policy, self._kind = policy, kind
        self.heard_before: list[int] = []

    def emit(self, event: object) -> None:
        if isinstance(event, self._kind):
            self.heard_before.append(len(self._policy.heard))
            self._policy.release.set()

    async def aclose(self) -> None:
        """Nothing to close."""


async def test_frames_go_on_while_a_note_is_written() -> None:
    """In real time a model that thinks must not make the gate deaf."""
    policy = Held()
    sink = ReleasesAt(policy, events.TurnClosed)
    source = WaitsForTheNote(script(COMMAND), policy)
    outcome = await run(policy, source=source, pace=Pace.WALL, live=True, sinks=[sink])
    assert sink.heard_before == [0], "the turn was heard to its end before its first note was written"
    assert outcome.actions == ["tool"]
    assert len(policy.seen[0].notes) == 3


async def test_a_note_that_is_finished_after_its_turn_was_cancelled_is_thrown_away() -> None:
    """The policy cannot be interrupted; what it writes too late belongs to no turn."""
    policy, kept = Held(), Kept()
    sink = ReleasesAt(policy, events.Dropped)
    parts = [Silence(0.5), tone(COMMAND, 1.2), SourceGap(0, SAMPLE_RATE_HZ, 0), Silence(0.5)]
    source = WaitsForTheNote(parts, policy)
    await run(policy, source=source, pace=Pace.WALL, live=True, sinks=[sink], before_run=kept.loops.append)
    assert (sink.heard_before, len(policy.heard)) == ([0], 1)
    assert kept.listened == {}


class Slow(Notes):
    """Takes a third of a second for each note."""

    def listen(self, so_far: SpeechSoFar) -> str:
        threading.Event().wait(0.3)
        return super().listen(so_far)


@pytest.mark.parametrize(
    ("make", "status", "reason"),
    [
        (lambda: (Notes(note=RuntimeError("CUDA")), None), "error", "policy_failed"),
        (lambda: (Slow(), Limits(policy_s=0.05)), "timeout", "policy_timeout"),
    ],
)
async def test_a_turn_whose_listening_failed_executes_nothing_and_says_why(
    make: Callable[[], tuple[Notes, Limits | None]], status: str, reason: str
) -> None:
    """Half of the thoughts is not the policy that was measured."""
    policy, limits = make()
    outcome = await run(policy, limits=limits)
    assert outcome.executed == []
    assert (outcome.decisions[0].status, outcome.decisions[0].reason) == (status, reason)
    assert "while listening" in outcome.decisions[0].detail
    assert policy.seen == []


async def test_of_a_split_turn_nobody_gets_notes_on_what_was_said_after_them() -> None:
    """The second speaker's words would colour what is made of the first one's."""

    def changes(audio: np.ndarray) -> tuple[int, ...]:
        loud = np.flatnonzero(np.abs(audio) > 0.05)
        return (int(loud[0] + loud[-1]) // 2,) if len(loud) > 2 * SAMPLE_RATE_HZ else ()

    policy = Notes()
    both = np.concatenate([tone(COMMAND, 1.5), tone(OTHER, 1.5)])
    ears = FakeEars([COMMAND, OTHER], changes_at=changes)
    await run(policy, Silence(0.5), both, Silence(1.0), ears=ears)
    first, second = policy.seen
    assert first.notes == ("t0001 0.50", "t0001 1.00", "t0001 1.50")
    assert second.notes[: len(first.notes)] == first.notes
    assert len(second.notes) > len(first.notes)


async def test_a_policy_that_does_not_listen_is_not_made_to() -> None:
    outcome = await converse(script(COMMAND), FakeEars([COMMAND]), ScriptedPolicy({COMMAND.text: SEND}), CATALOGUE)
    assert outcome.actions == ["tool"]
    assert "listen" not in outcome.decisions[0].timing.compute


async def test_a_question_about_a_recording_is_not_thought_about_turn_by_turn() -> None:
    """Nothing is decided about its turns, so notes on them would be compute for nobody."""
    policy = Notes()
    await run(policy, question="Who is late?")
    assert policy.heard == []


async def test_no_turn_is_listened_to_more_often_than_the_policy_wants() -> None:
    policy = Notes()
    policy.max_chunks = 2
    await run(policy)
    assert policy.lengths_s == [0.5, 1.0]


async def test_lost_samples_inside_a_turn_are_silence_in_their_place() -> None:
    """Moved together, the words after the loss would stand where others were."""
    policy = Notes()
    lost = SourceGap(0, SAMPLE_RATE_HZ * 8 // 100, 0)
    await run(policy, Silence(0.5), tone(COMMAND, 0.6), lost, tone(COMMAND, 0.9), Silence(1.0))
    audio = policy.heard[-1].audio
    start = round((0.3 + 0.6) * SAMPLE_RATE_HZ)
    assert not audio[start + 320 : start + 960].any()
    assert np.abs(audio[start + 1600 : start + 3200]).max() > 0.2


def test_a_chunk_is_at_least_a_frame() -> None:
    """A policy that wants to listen all the time would stop the loop."""
    assert Listener(0.0, 3)._chunk_samples == 320


async def test_shanks_notes_while_somebody_speaks_and_acts_when_they_have_stopped() -> None:
    """The adaptation itself, every four seconds of a nine-second turn."""
    chat = ScriptedChat([f"One voice. {EOA}", f"A command: {SEND} {EOA}", SEND])
    outcome = await converse(script(COMMAND, seconds=9.0), FakeEars([COMMAND]), Shanks(AudioLlmPolicy(chat)), CATALOGUE)
    heard_s = [round(sum(sound.seconds for sound in messages[-1].sounds), 1) for messages, _ in chat.seen]
    assert heard_s[:2] == [4.0, 8.0]
    assert f"1. One voice.\n2. A command: {SEND}" in chat.requests[2]
    assert outcome.actions == ["tool"]
    assert len(outcome.executed) == 1


class Wordless(Notes):
    """Writes nothing down."""

    def listen(self, so_far: SpeechSoFar) -> str:
        super().listen(so_far)
        return ""


async def test_an_empty_note_is_no_note() -> None:
    policy = Wordless()
    await run(policy)
    assert len(policy.heard) == 3
    assert policy.seen[0].notes == ()


def test_a_policy_input_without_notes_is_what_it_always_was() -> None:
    """Policies that know nothing of notes are given none."""
    fields = PolicyInput.__dataclass_fields__
    assert fields["notes"].default == ()
    assert PolicyOutput("[Mute]").thinking == ""
