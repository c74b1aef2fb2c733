"""Who said what, as labelled lines, for a question about a recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gate.evidence import SpeakerVerdict
from models.protocols import HeardSegment

_LABELS = ("First speaker", "Second speaker")


def labelled_lines(segments: Sequence[HeardSegment], words_of: Callable[[HeardSegment], str]) -> str:
    """The segments as lines. The first voice is the first speaker; what one voice says on end is one line.

    Args:
        segments: in order.
        words_of: the words of a segment as the model reads them.
    """
    order: list[SpeakerVerdict] = []
    lines: list[tuple[str, list[str]]] = []
    for segment in segments:
        if segment.speaker is not SpeakerVerdict.UNSURE and segment.speaker not in order:
            order.append(segment.speaker)
        label = _LABELS[order.index(segment.speaker)] if segment.speaker in order else "Unknown speaker"
        if lines and lines[-1][0] == label:
            lines[-1][1].append(words_of(segment))
        else:
            lines.append((label, [words_of(segment)]))
    return "\n".join(f"{label}: {' '.join(parts)}" for label, parts in lines)
