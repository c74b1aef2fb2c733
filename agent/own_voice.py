"""Keeps the gate deaf to itself: which words of a turn are our own playback, heard again. An ear without weights.

Two witnesses. The *acoustic* one fits the echo of what was played (``agent.echo``) and asks, word by word, how much of
the energy it explains. The *textual* one compares the words with those that were spoken aloud, for paths that no linear
filter follows (a wireless loudspeaker seconds late, heavy distortion).

An echo never authorises. A word that our playback explains is not the wearer's, so it is left out of the turn; a turn
of nothing but such words is our own voice; and where the wearer may have spoken *under* the playback, so that a "don't"
could have gone unheard, the turn counts as overlapped, and the gate asks again. Doubt falls on the side of "ours".
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import pairwise

import numpy as np

from agent.echo import AHEAD_SAMPLES, LEAD_SAMPLES, MIN_SAMPLES, EchoEstimate, estimate_echo, explained
from agent.frames import Frame, Samples
from agent.playback import PlaybackRecord
from agent.sources import Description, Source, SourceGap, SourceItem
from gate.evidence import Word
from gate.grounding import normal_form
from gate.span import SAMPLE_RATE_HZ, Span

OWN_FROM = 0.3
"""A word is ours from this explained share on: with the wearer 3.7 dB above the echo, or less."""
CONTESTED_BELOW = 0.75
"""Below this, somebody may have spoken under the playback; a loud echo alone is explained by more."""
CONTESTED_LEVEL = 10.0 ** (-15.0 / 10.0)
"""What is left of a contested word must be at most 15 dB weaker than the wearer's words: she does not drop lower."""
TRACE_FROM = 0.1
"""From this share on there is an echo in the word, and a word that we also said counts as ours."""

TEXT_SHARE = 0.7
TEXT_MIN_WORDS = 3
"""So many words, in our order, must be what we said for the text alone to condemn them: a phrase while we sound, or
this share of the turn within ``TEXT_AFTER_SAMPLES``. A "yes" after "..., yes?" is therefore judged by its sound."""
TEXT_AFTER_SAMPLES = 2 * SAMPLE_RATE_HZ
"""How long after the end of a sound the text still counts while the device's delay is unknown."""

REACH_SAMPLES = SAMPLE_RATE_HZ * 9 // 10
"""How long after its end a sound can still be in the microphone: 0.52 s of delay and the room's decay."""
CONTEXT_SAMPLES = 2 * SAMPLE_RATE_HZ
"""Microphone audio before the turn that the path is fitted on as well: a turn of one word is too short for a fit."""
PIECE_SAMPLES = 5 * SAMPLE_RATE_HZ
"""Longer audio is fitted in pieces: paths move."""
NEIGHBOUR_SAMPLES = SAMPLE_RATE_HZ // 2
"""A contested word this near to a word of the wearer's may belong to her sentence."""
HISTORY_SAMPLES = 30 * SAMPLE_RATE_HZ
MIN_WORD_SAMPLES = SAMPLE_RATE_HZ * 24 // 100
"""Recognised word times are rough; nothing shorter than this is measured."""


class Echo(StrEnum):
    """What of a span is our own voice."""

    NONE = "none"
    BESIDE = "beside"
    """Our voice sounds in it, and somebody else's too."""
    ONLY = "only"


@dataclass(frozen=True, slots=True)
class OwnVoiceVerdict:
    """What one span of a turn is.

    Attributes:
        echo: how much of it is ours.
        own_voice: True when none of its words can be told from our own; goes into the evidence.
        overlapped: True when the wearer may have said more, under our voice, than was heard; goes into the evidence.
        share: the explained share of the energy of its words, or None when not measured.
        note: why, in a few words.
    """

    echo: Echo
    own_voice: bool
    overlapped: bool
    share: float | None
    note: str = ""


NOT_OURS = OwnVoiceVerdict(Echo.NONE, False, False, None)


@dataclass(frozen=True, slots=True)
class _Judged:
    word: Word
    share: float | None = None
    ours: bool = False
    left_power: float = float("inf")
    """What our playback does not explain, per sample."""

    @property
    def contested(self) -> bool:
        return self.ours and (self.share is None or self.share < CONTESTED_BELOW)


@dataclass(frozen=True, slots=True)
class TurnEcho:
    """What of one turn is our own voice. Spans are relative to the turn's first sample, as from any other ear.

    Attributes:
        words: every word with its judgement.
        spoken: our own words that may be in it, in comparable form.
        estimates: fits with the place of their first sample, or None when they failed; empty when no sound of ours can
            be in the turn.
    """

    words: tuple[_Judged, ...] = ()
    spoken: tuple[str, ...] = ()
    estimates: tuple[tuple[int, EchoEstimate], ...] | None = field(default=(), repr=False)

    @classmethod
    def without_playback(cls, words: Sequence[Word]) -> TurnEcho:
        """A turn in whose reach nothing was played: every word is somebody else's."""
        return cls(tuple(_Judged(word) for word in words))

    @property
    def kept(self) -> tuple[Word, ...]:
        """The words that are not ours; all of them when every one is, so that the log shows what was heard."""
        others = tuple(judged.word for judged in self.words if not judged.ours)
        return others or tuple(judged.word for judged in self.words)

    def verdict(self, span: Span) -> OwnVoiceVerdict:
        """What the words of a span, a segment of the turn or the whole of it, are.

        Args:
            span: relative to the turn's first sample.
        """
        inside = [judged for judged in self.words if span.start_sample <= _middle(judged.word) < span.end_sample]
        ours = [judged for judged in inside if judged.ours]
        others = [judged.word for judged in inside if not judged.ours]
        if self.estimates is None:
            return OwnVoiceVerdict(Echo.ONLY, True, False, None, "our voice sounded, and could not be measured")
        if not others:
            share = _share(self.estimates, [judged.word.span for judged in ours] or [span])
            if not ours and not (share is not None and share >= OWN_FROM):
                return NOT_OURS
            hidden = any(judged.contested for judged in ours)
            note = "all of it is explained by our playback" if share is None else f"our playback explains {share:.0%}"
            return OwnVoiceVerdict(Echo.BESIDE if hidden else Echo.ONLY, True, hidden, share, note)
        share = _share(self.estimates, [word.span for word in others])
        heard = [token for word in others for token in normal_form(word.text)]
        said = _in_order(heard, self.spoken)
        if len(said) >= TEXT_MIN_WORDS and len(said) >= TEXT_SHARE * len(heard):
            note = f"{len(said)} of {len(heard)} words are what was just spoken"
            return OwnVoiceVerdict(Echo.ONLY, True, False, share, note)
        loud = CONTESTED_LEVEL * min(judged.left_power for judged in inside if not judged.ours)
        hidden = any(
            judged.contested
            and judged.left_power >= loud
            and any(_distance(judged.word.span, word.span) < NEIGHBOUR_SAMPLES for word in others)
            for judged in ours
        )
        beside = bool(ours) or (share is not None and share >= TRACE_FROM)
        note = f"{len(ours)} words left out: our own playback" if ours else ""
        return OwnVoiceVerdict(Echo.BESIDE if beside else Echo.NONE, False, hidden, share, note)


class OwnVoice:
    """Remembers what the microphone heard and compares turns with what was played.

    ``listen`` and ``lost`` run on the event loop's thread, ``check`` on the models'.

    Args:
        record: what was played.
    """

    def __init__(self, record: PlaybackRecord) -> None:
        self.record = record
        self._lock = threading.Lock()
        self._ring = np.zeros(HISTORY_SAMPLES, np.float32)
        self._unbroken_from = 0
        self._position = 0
        self._path_known = False

    def position(self) -> int:
        """The stream's position in samples, as far as the microphone has been read."""
        return self._position

    def listen(self, start_sample: int, samples: Samples) -> None:
        """Take the next audio of the stream, float32 ``(n,)`` at 16 kHz."""
        with self._lock:
            if start_sample != self._position:
                self._unbroken_from = start_sample
            self._position = start_sample + samples.size
            places = np.arange(start_sample, self._position) % HISTORY_SAMPLES
            self._ring[places] = samples

    def lost(self, end_sample: int) -> None:
        """The source lost samples; the stream goes on at ``end_sample``."""
        with self._lock:
            self._position = end_sample
            self._unbroken_from = end_sample

    def check(self, span: Span, samples: Samples, words: Sequence[Word]) -> TurnEcho:
        """Compare one turn with what was played. Costs nothing when nothing was played in its reach.

        Args:
            span: the turn, in the stream.
            samples: its audio, float32 ``(span.samples,)``.
            words: the recognised words, spans relative to the turn's first sample.

        Returns:
            The turn's words with what they are. Raises nothing: audio that cannot be measured counts as ours while we
            sounded.
        """
        spoken = self._spoken(span)
        if not self._audible(span):
            return replace(TurnEcho.without_playback(words), spoken=spoken)
        estimates = self._measure(span, samples)
        if estimates is None:
            return self.unmeasured(span, words)
        repeated, phrases = _repeated(words, spoken)
        judged = []
        for index, word in enumerate(words):
            energy, left = _energy(estimates, [word.span])
            share = explained(energy, left)
            # A word without energy, while we sound, is one that the recogniser has from elsewhere: doubt is ours.
            ours = share is None or share >= (TRACE_FROM if index in repeated else OWN_FROM) or index in phrases
            judged.append(_Judged(word, share, ours, left / max(word.span.samples, MIN_WORD_SAMPLES)))
        return TurnEcho(tuple(judged), spoken, estimates)

    def unmeasured(self, span: Span, words: Sequence[Word]) -> TurnEcho:
        """What a turn counts as when comparing it failed: ours, if anything of ours can be in it."""
        if not self._audible(span):
            return replace(TurnEcho.without_playback(words), spoken=self._spoken(span))
        return TurnEcho(tuple(_Judged(word, ours=True) for word in words), self._spoken(span), None)

    def _audible(self, span: Span) -> bool:
        return bool(self.record.within(_reaching_back(span, REACH_SAMPLES)))

    def _spoken(self, span: Span) -> tuple[str, ...]:
        # Once the device's delay has been measured, a sound is known to be over when it is over.
        after = 0 if self._path_known else TEXT_AFTER_SAMPLES
        played = self.record.within(_reaching_back(span, REACH_SAMPLES + after))
        return tuple(token for entry in played for token in normal_form(entry.text))

    def _measure(self, span: Span, samples: Samples) -> tuple[tuple[int, EchoEstimate], ...] | None:
        """Fits over the turn and what came before it, in pieces; None when that cannot be done."""
        before = self._before(span.start_sample)
        audio = np.concatenate([before, samples])
        if audio.size < MIN_SAMPLES or not np.isfinite(audio).all():
            return None
        count = max(1, -(-audio.size // PIECE_SAMPLES))
        edges = np.linspace(0, audio.size, count + 1).astype(int)
        out = []
        for start, end in pairwise(edges):
            first = span.start_sample - before.size + int(start) - LEAD_SAMPLES
            reference = self.record.reference(first, LEAD_SAMPLES + int(end - start) + AHEAD_SAMPLES)
            estimate = estimate_echo(audio[start:end], reference)
            out.append((int(start) - before.size, estimate))
            whole = estimate.share(Span(0, int(end - start)))
            self._path_known = self._path_known or (whole is not None and whole >= 2 * OWN_FROM)
        return tuple(out)

    def _before(self, sample: int) -> Samples:
        """What was heard before a place of the stream, as far as it is kept and unbroken."""
        with self._lock:
            first = max(sample - CONTEXT_SAMPLES, self._unbroken_from, self._position - HISTORY_SAMPLES)
            if first >= sample or sample > self._position:
                return np.zeros(0, np.float32)
            return self._ring[np.arange(first, sample) % HISTORY_SAMPLES]


class HeardSource:
    """A source that lets ``OwnVoice`` hear everything it yields, and changes nothing.

    Args:
        source: the microphone.
        own_voice: what listens.
    """

    def __init__(self, source: Source, own_voice: OwnVoice) -> None:
        self._source = source
        self._own_voice = own_voice

    @property
    def describe(self) -> Description:
        """What the source says of itself."""
        return self._source.describe

    async def open(self) -> None:
        """Open the source.

        Raises:
            SourceError: when it cannot be used.
        """
        await self._source.open()

    async def __aiter__(self) -> AsyncIterator[SourceItem]:
        """The source's items."""
        async for item in self._source:
            if isinstance(item, Frame):
                self._own_voice.listen(item.start_sample, item.samples)
            elif isinstance(item, SourceGap):
                self._own_voice.lost(item.end_sample)
            yield item

    async def aclose(self) -> None:
        """Close the source."""
        await self._source.aclose()


def _reaching_back(span: Span, samples: int) -> Span:
    # At least one sample long, so that an empty turn still meets what sounded around it.
    return Span(max(0, span.start_sample - samples), max(span.end_sample, span.start_sample + 1))


def _middle(word: Word) -> int:
    return (word.span.start_sample + word.span.end_sample) // 2


def _distance(first: Span, second: Span) -> int:
    return max(0, max(first.start_sample, second.start_sample) - min(first.end_sample, second.end_sample))


def _share(estimates: Sequence[tuple[int, EchoEstimate]], spans: Sequence[Span]) -> float | None:
    """The explained share over spans relative to the turn; None when they hold nothing above the noise."""
    return explained(*_energy(estimates, spans))


def _energy(estimates: Sequence[tuple[int, EchoEstimate]], spans: Sequence[Span]) -> tuple[float, float]:
    """Energy above the noise in spans relative to the turn, and what is left of it."""
    energy, left = 0.0, 0.0
    for span in spans:
        short = max(0, MIN_WORD_SAMPLES - span.samples)
        for offset, estimate in estimates:
            # In samples of the fitted piece, which may begin before the turn.
            start = span.start_sample - short // 2 - offset
            end = span.end_sample + (short + 1) // 2 - offset
            if start < estimate.samples and end > 0:
                found = estimate.energy(Span(max(0, start), min(end, estimate.samples)))
                energy, left = energy + found[0], left + found[1]
    return energy, left


def _in_order(heard: Sequence[str], spoken: Sequence[str], run: int = 1) -> list[int]:
    """Places in ``heard`` of the tokens that stand in ``spoken`` in the same order, in runs of at least ``run``."""
    if not heard or not spoken:
        return []
    blocks = SequenceMatcher(None, list(heard), list(spoken), autojunk=False).get_matching_blocks()
    return [block.a + step for block in blocks if block.size >= run for step in range(block.size)]


def _repeated(words: Sequence[Word], spoken: Sequence[str]) -> tuple[frozenset[int], frozenset[int]]:
    """Indices of the words that we said in the same order, and of those that belong to a whole phrase of ours."""
    owners = [index for index, word in enumerate(words) for _ in normal_form(word.text)]
    heard = [token for word in words for token in normal_form(word.text)]
    return (
        frozenset(owners[place] for place in _in_order(heard, spoken)),
        frozenset(owners[place] for place in _in_order(heard, spoken, TEXT_MIN_WORDS)),
    )
