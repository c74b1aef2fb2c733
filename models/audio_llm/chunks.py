"""Long sound in several parts, for models that hear parts of limited length. Nothing is left out, and it is said."""

from __future__ import annotations

import numpy as np

from gate.span import SAMPLE_RATE_HZ
from models.audio_llm.conversation import AudioPart, Limits
from models.protocols import Audio

_SEARCH_S = 2.0
"""How far before a part's longest possible end a quiet moment is looked for, so that no word is cut in two."""
_FRAME = SAMPLE_RATE_HZ // 50
_SHORTEST = SAMPLE_RATE_HZ // 2
"""The least that a last part may hold: models hear nothing in a few milliseconds."""


def parts_of(audio: Audio, limits: Limits) -> tuple[AudioPart, ...]:
    """Sound as parts that a model can take, cut at the quietest moments; one part where it fits.

    Args:
        audio: float32 ``(samples,)``.
        limits: the model's.

    Returns:
        Parts that are ``audio`` when put together. There may be more of them than the model takes; asking it says so.
    """
    longest = limits.audio_max_s * SAMPLE_RATE_HZ
    parts: list[AudioPart] = []
    start = 0
    while len(audio) - start > longest:
        end = start + _quietest(audio[start : min(start + int(longest), len(audio) - _SHORTEST)])
        parts.append(AudioPart(audio[start:end]))
        start = end
    return (*parts, AudioPart(audio[start:]))


def _quietest(audio: Audio) -> int:
    """The end of the quietest 20 ms near the end of ``audio``."""
    frames = min(round(_SEARCH_S * SAMPLE_RATE_HZ), len(audio) // 2) // _FRAME
    if not frames:
        return len(audio)
    tail = audio[len(audio) - frames * _FRAME :].reshape(frames, _FRAME)
    quietest = int(np.argmin(np.square(tail).mean(axis=1)))
    return len(audio) - (frames - 1 - quietest) * _FRAME
