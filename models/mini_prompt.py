"""What voxgate-mini reads: one system prompt with the contract and the tools, and a turn as lines of who said what.

A line is ``owner, near, 0.6 s: Text Priya that I am late``: whose voice, how near, the silence before it, the words.
The last line is the one to act on. Training and serving share this file: what was trained is what is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gate.catalogue import ParamKind, ToolFacts
from gate.evidence import DistanceVerdict, Modality, SpeakerVerdict
from models.dialogue_lines import labelled_lines
from models.protocols import HeardSegment, PolicyInput


class Reading(StrEnum):
    """How much of what the ears say is written out; the ablations of the model."""

    WORDS = "words"
    """The words alone."""
    VERDICTS = "verdicts"
    """With speaker, distance and gap."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the prompt.

    Attributes:
        text: to be encoded by itself.
        word: which word of the segment to act on it spells, or None; what was heard of the word is added to it.
    """

    text: str
    word: int | None = None


_SYSTEM = (
    "<|im_start|>system\n"
    "You are a voice assistant that your owner wears. You hear all that is said nearby. Write one action for the last "
    "line: [Mute] when it is not for you, a tool call, a short answer, or Pardon? and what you need to know.\n"
    "Tools:\n"
)
_SPEAKER = {SpeakerVerdict.OWNER: "owner", SpeakerVerdict.OTHER: "other", SpeakerVerdict.UNSURE: "someone"}
_DISTANCE = {DistanceVerdict.NEAR: "near", DistanceVerdict.FAR: "far", DistanceVerdict.UNSURE: "somewhere"}
REPLY = "<|im_end|>\n<|im_start|>assistant\n"
"""Before the action."""
END = "<|im_end|>"
"""After it."""


def system_prompt(tools: Sequence[ToolFacts]) -> str:
    """The contract and the tools, up to where a turn begins; the same for every turn of a session."""
    lines = "\n".join(_described(tool) for tool in tools)
    return f"{_SYSTEM}{lines}<|im_end|>\n<|im_start|>user\n"


def turn_prompt(turn: PolicyInput, reading: Reading = Reading.VERDICTS) -> list[Piece]:
    """A turn, from where the system prompt ends to where the action begins.

    Args:
        turn: the turn with what the ears say.
        reading: how much of that is written out.

    Returns:
        Pieces in order; each word of the segment to act on is a piece of its own.
    """
    if turn.question is not None:
        told = labelled_lines([*turn.context, turn.segment], _words)
        return [Piece(told), Piece(f"\nQuestion: {turn.question}"), Piece(REPLY)]
    pieces = [Piece(f"{_lead(segment, reading)}{_words(segment)}\n") for segment in turn.context]
    typed = turn.modality is Modality.TEXT
    pieces.append(Piece("owner, typed:" if typed else _lead(turn.segment, reading).rstrip()))
    pieces += [Piece(f" {word.text}", index) for index, word in enumerate(turn.segment.words)]
    return [*pieces, Piece(REPLY)]


def _described(tool: ToolFacts) -> str:
    params = []
    for param in tool.params:
        kind = "|".join(param.choices) if param.kind is ParamKind.CHOICE and len(param.choices) <= 8 else ""
        params.append(f"{param.name}{'' if param.required else '?'}{': ' + kind if kind else ''}")
    return f"{tool.name}({', '.join(params)}): {tool.description}"


def _lead(segment: HeardSegment, reading: Reading) -> str:
    if reading is Reading.WORDS:
        return "said: "
    gap = f", {segment.gap_before_s:.1f} s" if segment.gap_before_s >= 0.05 else ""
    return f"{_SPEAKER[segment.speaker]}, {_DISTANCE[segment.distance]}{gap}: "


def _words(segment: HeardSegment) -> str:
    return " ".join(word.text for word in segment.words)
