"""The tools that a model may use on the sound of a turn before it acts. They measure; nothing here can do anything.

A call is one JSON object in a strict form, and every fault is answered in one sentence, so that the model can correct
itself. Answers are short: numbers, and words only where a calibration stands behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gate.evidence import SpeakerVerdict
from gate.span import SAMPLE_RATE_HZ, Span
from models.audio_llm.adaptations import measures
from models.audio_llm.adaptations.strict_json import read_object
from models.protocols import Audio, SpeakerEar, SpeakerTrack

MIN_S = 0.1
MAX_LISTED = 8
"""Segments that are listed; of more the first ones."""

_VOICES = {
    SpeakerVerdict.OWNER: "the same voice",
    SpeakerVerdict.OTHER: "two different voices",
    SpeakerVerdict.UNSURE: "it cannot be told whether it is one voice",
}
_SPAN_KEYS = frozenset({"start", "end"})
_KEYS: Mapping[str, frozenset[str]] = {
    "segments": frozenset(),
    "voice_compare": frozenset({"a", "b"}),
    "pitch": _SPAN_KEYS,
    "energy": _SPAN_KEYS,
    "spectrum": _SPAN_KEYS,
}
DESCRIPTION = """\
{"tool": "segments"} lists where somebody speaks, cut where the voice changes.
{"tool": "voice_compare", "a": [0.0, 1.2], "b": [1.5, 2.8]} tells whether two stretches are one voice.
{"tool": "pitch", "start": 0.0, "end": 1.2} measures the pitch of the voice.
{"tool": "energy", "start": 0.0, "end": 1.2} measures how loud it is.
{"tool": "spectrum", "start": 0.0, "end": 1.2} measures its tilt; a far voice has less above 4 kHz."""
"""How the model is told of them. Times are seconds from the start of the sound."""


class CallError(Exception):
    """A call that cannot be run. The message is for the model."""


class SoundTools:
    """The tools on one turn's sound.

    Args:
        audio: float32 ``(samples,)`` at 16 kHz.
        ear: compares voices.
    """

    def __init__(self, audio: Audio, ear: SpeakerEar) -> None:
        self._audio = audio
        self._ear = ear
        self._made: SpeakerTrack | None = None
        self._tools: Mapping[str, Callable[[Mapping[str, object]], str]] = {
            "segments": lambda call: self._segments(),
            "voice_compare": lambda call: self._compare(self._pair(call["a"], "a"), self._pair(call["b"], "b")),
            "pitch": lambda call: _pitch(self._cut(call)),
            "energy": lambda call: _energy(self._cut(call)),
            "spectrum": lambda call: _spectrum(self._cut(call)),
        }

    @property
    def duration_s(self) -> float:
        """How long the sound is."""
        return self._audio.size / SAMPLE_RATE_HZ

    def run(self, text: str) -> str:
        """Run a call.

        Args:
            text: the whole step.

        Returns:
            What was measured, in one line.

        Raises:
            CallError: when it is no call, or cannot be run.
        """
        call = read_object(text)
        if call is None:
            raise CallError("That is not one JSON object and nothing else.")
        name = call.pop("tool", None)
        if not isinstance(name, str) or name not in _KEYS:
            raise CallError(f"There is no such tool. There are: {', '.join(_KEYS)}.")
        if set(call) != _KEYS[name]:
            raise CallError(f"{name} takes {' and '.join(sorted(_KEYS[name])) or 'nothing'} beside its name.")
        if not np.isfinite(self._audio).all():
            raise CallError("The sound cannot be measured: it holds numbers that are not finite.")
        return self._tools[name](call)

    def _track(self) -> SpeakerTrack:
        if self._made is None:
            self._made = self._ear.track(self._audio)
        return self._made

    def _span(self, start: object, end: object) -> Span:
        for value in (start, end):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise CallError("Times are numbers, in seconds.")
        assert isinstance(start, int | float)
        assert isinstance(end, int | float)
        if not 0.0 <= start < end <= self.duration_s + 0.01:
            raise CallError(f"Times run from 0 to {self.duration_s:.2f}, and a start lies before its end.")
        span = Span.from_seconds(start, min(end, self.duration_s))
        if span.duration_s < MIN_S:
            raise CallError(f"A stretch is at least {MIN_S} s long.")
        return span

    def _pair(self, value: object, key: str) -> Span:
        if not isinstance(value, list) or len(value) != 2:
            raise CallError(f"{key} is a pair of times: [start, end].")
        return self._span(value[0], value[1])

    def _cut(self, call: Mapping[str, object]) -> Audio:
        span = self._span(call["start"], call["end"])
        return self._audio[span.start_sample : span.end_sample]

    def _segments(self) -> str:
        spans = measures.cut_at(measures.sounding(self._audio), self._track().changes())
        if not spans:
            return "Nobody speaks."
        listed = ", ".join(f"{span.start_s:.2f} to {span.end_s:.2f} s" for span in spans[:MAX_LISTED])
        more = f", and {len(spans) - MAX_LISTED} more" if len(spans) > MAX_LISTED else ""
        return f"Speech from {listed}{more}."

    def _compare(self, first: Span, second: Span) -> str:
        if first.overlap(second):
            raise CallError("The two stretches overlap.")
        one, other = self._track().embed(first), self._track().embed(second)
        for embedding in (one, other):
            if embedding.vector is None:
                return f"It cannot be told: {embedding.note or 'no voice'}."
        assert one.vector is not None
        assert other.vector is not None
        cosine = float(np.dot(one.vector, other.vector))
        verdict, _, _ = self._ear.thresholds.verdict(cosine, first.duration_s, second.duration_s)
        return f"Cosine {cosine:.2f}: {_VOICES[verdict]}."


def _pitch(audio: Audio) -> str:
    found = measures.pitch(audio)
    if found is None:
        return "No pitch: nothing is voiced there."
    return (
        f"Median {found.median_hz:.0f} Hz, mostly {found.low_hz:.0f} to {found.high_hz:.0f} Hz, "
        f"{found.voiced:.0%} of the time voiced."
    )


def _energy(audio: Audio) -> str:
    rms_dbfs, peak_dbfs = measures.level_dbfs(audio)
    return f"Level {rms_dbfs:.0f} dBFS, peak {peak_dbfs:.0f} dBFS."


def _spectrum(audio: Audio) -> str:
    shape = measures.spectrum(audio)
    return (
        f"Tilt {shape.tilt_db:.1f} dB an octave, centroid {shape.centroid_hz:.0f} Hz, "
        f"4 to 8 kHz {shape.high_db:.0f} dB against what lies below 1 kHz."
    )
