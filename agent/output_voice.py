"""Speaks answers and "Pardon?", or sounds an earcon: one output among others, driven by the session's events.

Rules: never while somebody speaks into the microphone; never late (what is no longer of use is dropped, and said to
be); stopped by the wearer alone. A bystander cannot make it speak and cannot make it fall silent. No device, no
synthesiser: one line, and the gate goes on without a voice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from agent import earcon, events
from agent.clock import Clock
from agent.detached import run_detached
from agent.events import Event
from agent.own_voice import Echo, OwnVoiceVerdict
from agent.playback import PlaybackRecord, Played, Sound
from agent.player import Player, PlayerError, Playing
from agent.voices import Synthesiser, VoiceError
from gate.evidence import DistanceVerdict, Evidence, SpeakerVerdict
from gate.span import SAMPLE_RATE_HZ

QUEUED = 2
"""How many utterances may wait; the oldest goes first when there is one too many."""
CLOSE_LIMIT_S = 0.5
MAX_CHARACTERS = 400
"""About half a minute; a longer answer is cut after a sentence."""

_OUTCOMES = {
    "failed": "That did not work.",
    "outcome_unknown": "I cannot tell whether that was done.",
    "refused": "That was refused.",
}


@dataclass(frozen=True, slots=True)
class VoiceSettings:
    """How patient the voice is.

    Attributes:
        wait_s: how old an utterance may be when it begins; older ones are dropped.
        synthesis_s: how long making the speech may take; then the earcon is all there is.
        earcon_after_s: a "Pardon?" whose speech is not ready by then is announced by its earcon.
        outcomes: whether executions are sounded: an earcon when done, a sentence when not.
    """

    wait_s: float = 6.0
    synthesis_s: float = 6.0
    earcon_after_s: float = 0.4
    outcomes: bool = True


class _Kind(StrEnum):
    ANSWER = "answer"
    PARDON = "Pardon"
    OUTCOME = "outcome"


@dataclass(slots=True, eq=False)
class _Utterance:
    turn: str
    kind: _Kind
    text: str
    since_s: float
    cancelled: bool = False


@dataclass(slots=True)
class _Current:
    """The sound that is on the device."""

    utterance: _Utterance
    played: Played | None = None
    """Set once the device has taken the first sample."""
    handle: Playing | None = None
    stopped: bool = False


class VoiceSink:
    """A sink that speaks. Make it inside a running event loop.

    Args:
        voice: the synthesiser, or None for earcons only.
        player: the output device.
        record: told what is played and when, for ``agent.own_voice``.
        position: the stream's position in samples; called from the driver's thread.
        clock: the session's clock.
        notice: takes one line for the person at the console: what was dropped, what is missing.
        settings: how patient it is.
    """

    wants_levels = False

    def __init__(
        self,
        *,
        voice: Synthesiser | None,
        player: Player,
        record: PlaybackRecord,
        position: Callable[[], int],
        clock: Clock,
        notice: Callable[[str], None],
        settings: VoiceSettings | None = None,
    ) -> None:
        self._voice = voice
        self._player = player
        self._record = record
        self._position = position
        self._clock = clock
        self._notice = notice
        self._settings = settings or VoiceSettings()
        self._waiting: deque[_Utterance] = deque()
        self._open_turns: set[str] = set()
        self._changed = asyncio.Event()
        self._current: _Current | None = None
        self._at_work: _Utterance | None = None
        self._said: dict[str, str] = {}
        self._closed = False
        self._task = asyncio.create_task(self._run(), name="voicegate-voice")

    # Events -------------------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Take one event; returns at once."""
        if self._closed:
            return
        match event:
            case events.TurnOpened():
                self._open_turns.add(event.turn)
            case events.TurnClosed() | events.Dropped():
                self._open_turns.discard(event.turn)
                self._changed.set()
            case events.Decided():
                self._decided(event)
            case events.ClaimWithoutExecution():
                self._retract(event.turn)
            case events.Executed() if self._settings.outcomes:
                self._executed(event)

    def wearer_speaks(self, evidence: Evidence, own: OwnVoiceVerdict) -> None:
        """A turn's source is known, perhaps before the turn has ended: the wearer interrupts, nobody else does.

        Stopping harms nobody, so a wearer who is hardly louder than the playback is heard here already, though nothing
        she says is carried out.

        Args:
            evidence: who and how near.
            own: what of it is our own voice.
        """
        owner = evidence.speaker.verdict is SpeakerVerdict.OWNER
        near = evidence.proximity.verdict is DistanceVerdict.NEAR
        if owner and near and own.echo is not Echo.ONLY:
            self._interrupt(evidence.span.end_sample)

    def _decided(self, event: events.Decided) -> None:
        self._open_turns.discard(event.turn)
        self._changed.set()
        evidence = event.evidence
        licensed = evidence.speaker.verdict == "owner" and evidence.distance.verdict == "near"
        if licensed and not evidence.own_voice and evidence.modality == "audio":
            self._interrupt(round(evidence.span_s[1] * SAMPLE_RATE_HZ))
            self._supersede()
        if event.action in ("answer", "pardon") and event.answer:
            kind = _Kind.ANSWER if event.action == "answer" else _Kind.PARDON
            self._enqueue(_Utterance(event.turn, kind, _speakable(event.answer), self._clock.now_s()))

    def _executed(self, event: events.Executed) -> None:
        if event.outcome == "done" or event.outcome in _OUTCOMES:
            text = _OUTCOMES.get(event.outcome, "")
            self._enqueue(_Utterance(event.turn, _Kind.OUTCOME, text, self._clock.now_s()))

    def _retract(self, turn: str) -> None:
        """An answer that claims a deed which nobody did is not said aloud."""
        for utterance in [u for u in self._waiting if u.turn == turn and u.kind is _Kind.ANSWER]:
            self._waiting.remove(utterance)
            self._drop(utterance, "it claims a deed that was not done")

    def _enqueue(self, utterance: _Utterance) -> None:
        while len(self._waiting) >= QUEUED:
            self._drop(self._waiting.popleft(), "newer ones are waiting")
        self._waiting.append(utterance)
        self._changed.set()

    def _interrupt(self, end_sample: int) -> None:
        """The wearer spoke up to ``end_sample``: if that was during a sound, it ends, with what waits behind it."""
        current = self._current
        if current is None or current.played is None or end_sample <= current.played.start_sample:
            return
        if current.stopped:
            return
        current.stopped = True
        current.utterance.cancelled = True
        if current.handle is not None:
            current.handle.stop()
        self._record.stop(current.played, self._position())

    def _supersede(self) -> None:
        """The wearer has said something new: what she was to hear about earlier turns is of no use any more."""
        older = [utterance for utterance in self._waiting if utterance.kind is not _Kind.OUTCOME]
        for utterance in older:
            self._waiting.remove(utterance)
        at_work, playing = self._at_work, self._current is not None
        if at_work is not None and at_work.kind is not _Kind.OUTCOME and not playing and not at_work.cancelled:
            at_work.cancelled = True
            older.append(at_work)
        for utterance in older:
            self._drop(utterance, "the wearer has spoken since")

    def _drop(self, utterance: _Utterance, why: str) -> None:
        self._notice(f"voice: {utterance.kind} of {utterance.turn} not spoken: {why}")

    # Speaking -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            while not self._waiting:
                self._changed.clear()
                await self._changed.wait()
            utterance = self._waiting.popleft()
            self._at_work = utterance
            try:
                await self._speak(utterance)
            except PlayerError as error:
                self._say_once("device", f"voice output is off: {error}")
            except Exception as error:  # a voice or a driver may raise anything; the gate goes on without them
                self._say_once("device", f"voice output failed: {type(error).__name__}: {error}")
            finally:
                self._at_work = None

    async def _speak(self, utterance: _Utterance) -> None:
        making = asyncio.create_task(self._make(utterance), name="voicegate-synthesis")
        try:
            if utterance.kind is _Kind.PARDON and not await self._ready(making):
                if not await self._floor(utterance):
                    return
                await self._play(utterance, earcon.pardon(), "")
            sound, text = await making
            if await self._floor(utterance):
                await self._play(utterance, sound, text)
        finally:
            making.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await making

    async def _make(self, utterance: _Utterance) -> tuple[Sound, str]:
        """The utterance as a sound with the words in it."""
        substitute = earcon.pardon() if utterance.kind is _Kind.PARDON else earcon.done()
        if utterance.kind is _Kind.OUTCOME and utterance.text:
            substitute = earcon.pardon()
        voice = self._voice
        if voice is None or not utterance.text:
            return substitute, ""
        try:
            sound = await run_detached(
                lambda: voice.say(utterance.text), self._settings.synthesis_s, name="voicegate-synthesis"
            )
        except TimeoutError:
            self._drop(utterance, f"making it took more than {self._settings.synthesis_s:.0f} s; an earcon instead")
            return substitute, ""
        except VoiceError as error:
            self._say_once("synthesiser", f"voice: {error}; an earcon instead")
            return substitute, ""
        self._said.pop("synthesiser", None)
        return sound, utterance.text

    async def _ready(self, making: asyncio.Task[tuple[Sound, str]]) -> bool:
        """Whether the speech is there within the time after which an earcon announces it."""
        if self._voice is None:
            return True
        await self._until(making, self._settings.earcon_after_s)
        return making.done()

    async def _floor(self, utterance: _Utterance) -> bool:
        """Wait until nobody speaks. False, and the utterance is dropped, when that takes too long."""
        while not utterance.cancelled:
            left_s = utterance.since_s + self._settings.wait_s - self._clock.now_s()
            if left_s <= 0:
                why = "somebody kept speaking" if self._open_turns else "it was ready too late"
                self._drop(utterance, f"{why} ({self._settings.wait_s:.0f} s)")
                return False
            if not self._open_turns:
                return True
            self._changed.clear()
            await self._until(asyncio.create_task(self._changed.wait()), left_s, cancel=True)
        return False

    async def _play(self, utterance: _Utterance, sound: Sound, text: str) -> None:
        reference = sound.at_rate(SAMPLE_RATE_HZ)  # here, not in the driver's callback
        current = _Current(utterance)
        self._current = current

        def started() -> None:
            current.played = self._record.start(reference, text, self._position())

        try:
            handle = current.handle = await self._player.play(sound, started)
            if current.stopped:
                handle.stop()
            try:
                await handle.wait()
            except BaseException:
                handle.stop()
                if current.played is not None:
                    self._record.stop(current.played, self._position())
                raise
            self._said.pop("device", None)
        finally:
            self._current = None

    async def _until(self, task: asyncio.Task[object], seconds: float, *, cancel: bool = False) -> None:
        """Wait for a task, at most some seconds of the session's clock."""
        timer = asyncio.create_task(self._clock.sleep_s(seconds))
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            if cancel:
                task.cancel()

    def _say_once(self, about: str, line: str) -> None:
        """Say a lasting trouble once, and again only after it had gone or has changed."""
        if self._said.get(about) != line:
            self._said[about] = line
            self._notice(line)

    async def aclose(self) -> None:
        """Fall silent and close the device, within a second."""
        if self._closed:
            return
        self._closed = True
        self._waiting.clear()
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=CLOSE_LIMIT_S)
        await self._player.aclose()


def _speakable(text: str) -> str:
    """The text without what only reads well, cut after a sentence when it is long."""
    plain = " ".join(text.replace("*", " ").replace("`", " ").replace("#", " ").split())
    if len(plain) <= MAX_CHARACTERS:
        return plain
    cut = plain[:MAX_CHARACTERS]
    end = max(cut.rfind(mark) for mark in (". ", "? ", "! "))
    return cut[: end + 1] if end > 0 else cut[: cut.rfind(" ")]
