"""One training example of a policy: a turn as the live loop would hand it over, and what is right to write.

Rows are JSON Lines, so that they can be looked at, counted and shared by every learner: the embedded model reads their
words and verdicts, an audio LLM the recordings that they name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gate import grammar
from gate.actions import Unparseable
from gate.catalogue import ToolFacts
from gate.evidence import DistanceVerdict, Modality, SpeakerVerdict, Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import HeardSegment, PolicyInput

_WORD_SAMPLES = SAMPLE_RATE_HZ // 3
"""Length of a word whose times are not known."""


class BadRowError(ValueError):
    """A row is not what it should be. The message names it and says what is wrong."""


@dataclass(frozen=True, slots=True)
class RowSegment:
    """One stretch of one person's speech.

    Attributes:
        words: as recognised, ``MASK_MARK`` where some were not heard, separated by single spaces.
        speaker: what the ears say of the voice.
        distance: what they say of its distance.
        gap_s: silence before it, in seconds.
        times_s: start and end of each word in the recording, or None when there is none.
    """

    words: str
    speaker: SpeakerVerdict = SpeakerVerdict.OWNER
    distance: DistanceVerdict = DistanceVerdict.NEAR
    gap_s: float = 0.0
    times_s: tuple[tuple[float, float], ...] | None = None

    def heard(self) -> HeardSegment:
        """The segment as a policy reads it."""
        texts = self.words.split()
        if self.times_s is None:
            spans = [Span(i * _WORD_SAMPLES, (i + 1) * _WORD_SAMPLES) for i in range(len(texts))]
        else:
            spans = [Span(round(a * SAMPLE_RATE_HZ), round(b * SAMPLE_RATE_HZ)) for a, b in self.times_s]
        words = tuple(Word(text, span, 1.0) for text, span in zip(texts, spans, strict=True))
        return HeardSegment(words, self.speaker, self.distance, self.gap_s)


@dataclass(frozen=True, slots=True)
class Row:
    """One example.

    Attributes:
        id: unique in its file, ``[A-Za-z0-9._-]+``.
        split: ``train``, ``dev`` or ``test``.
        kind: what it is an example of ("command", "self_talk", …), for the census and for scores by kind.
        target: the right action in the grammar, exactly as it is to be written.
        segment: the stretch to act on.
        context: earlier stretches, oldest first.
        question: a question about all that was heard, or None.
        typed: whether the words were typed instead of spoken.
        pair: rows that share it are one command under counterfactual sources, or None (for pair GRPO).
        audio: path of the recording, relative to the file of rows, or None.
        audio_start_s, audio_end_s: the segment's place in it, in seconds.
        answers: accepted answers where the target is one, for scoring; empty otherwise.
    """

    id: str
    split: str
    kind: str
    target: str
    segment: RowSegment
    context: tuple[RowSegment, ...] = ()
    question: str | None = None
    typed: bool = False
    pair: str | None = None
    audio: str | None = None
    audio_start_s: float = 0.0
    audio_end_s: float = 0.0
    answers: tuple[str, ...] = field(default=())

    def turn(self, tools: Sequence[ToolFacts]) -> PolicyInput:
        """The row as a policy is given it in the live loop, without samples or encoder states."""
        return PolicyInput(
            self.id, self.segment.heard(), tuple(segment.heard() for segment in self.context), tools, self.question,
            Modality.TEXT if self.typed else Modality.AUDIO,
        )  # fmt: skip


def write_rows(path: Path, rows: Iterable[Row]) -> int:
    """Write rows; the old file stays until the new one is complete.

    Returns:
        How many.
    """
    partial = path.with_suffix(path.suffix + ".part")
    count = 0
    with partial.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(_to_json(row), ensure_ascii=False) + "\n")
            count += 1
    partial.replace(path)
    return count


def read_rows(path: Path) -> Iterator[Row]:
    """Read rows.

    Raises:
        BadRowError: when a line is not a row, or its target is not an action; names the line.
        OSError: when the file cannot be read.
    """
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield _from_json(json.loads(line))
                except (ValueError, TypeError, KeyError) as error:
                    raise BadRowError(f"{path}:{number}: {error}") from error


def _to_json(row: Row) -> dict[str, Any]:
    """Without what is as usual, so that a line can be read."""
    out: dict[str, Any] = {"id": row.id, "split": row.split, "kind": row.kind, "target": row.target}
    out["segment"] = _segment_to_json(row.segment)
    if row.context:
        out["context"] = [_segment_to_json(segment) for segment in row.context]
    usual = asdict(Row("", "", "", "", RowSegment("")))
    for name in ("question", "typed", "pair", "audio", "audio_start_s", "audio_end_s", "answers"):
        value = getattr(row, name)
        if value != usual[name]:
            out[name] = list(value) if isinstance(value, tuple) else value
    return out


def _segment_to_json(segment: RowSegment) -> dict[str, Any]:
    out: dict[str, Any] = {"words": segment.words, "speaker": str(segment.speaker), "distance": str(segment.distance)}
    if segment.gap_s:
        out["gap_s"] = round(segment.gap_s, 3)
    if segment.times_s is not None:
        out["times_s"] = [[round(a, 3), round(b, 3)] for a, b in segment.times_s]
    return out


def _from_json(values: dict[str, Any]) -> Row:
    known = {
        "id", "split", "kind", "target", "segment", "context", "question", "typed", "pair", "audio", "audio_start_s",
        "audio_end_s", "answers",
    }  # fmt: skip
    if unknown := set(values) - known:
        raise ValueError(f"unknown keys {', '.join(sorted(unknown))}")
    if isinstance(grammar.parse(values["target"]), Unparseable):
        raise ValueError(f"the target is no action: {values['target']!r}")
    fields = dict(values)
    fields["segment"] = _segment_from_json(values["segment"])
    fields["context"] = tuple(_segment_from_json(segment) for segment in values.get("context", ()))
    fields["answers"] = tuple(values.get("answers", ()))
    return Row(**fields)


def _segment_from_json(values: dict[str, Any]) -> RowSegment:
    times = values.get("times_s")
    segment = RowSegment(
        values["words"], SpeakerVerdict(values["speaker"]), DistanceVerdict(values["distance"]),
        float(values.get("gap_s", 0.0)), None if times is None else tuple((float(a), float(b)) for a, b in times),
    )  # fmt: skip
    if segment.times_s is not None and len(segment.times_s) != len(segment.words.split()):
        raise ValueError(f"{len(segment.times_s)} word times for {len(segment.words.split())} words")
    return segment
