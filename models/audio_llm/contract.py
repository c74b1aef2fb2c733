"""The action contract: what every audio language model is told, in the same words, whichever backend runs it.

The forms are VGBench's (*Do Audio LLMs Listen Before They Act?*, section 3.4: mute, tool, answer, one tool inventory
for all) and, beside them, *Pardon?*. A question about a recording is asked in the words of *Pardon?*, appendix A.1,
which name neither refusal nor repair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gate import grammar
from gate.catalogue import ParamFacts, ParamKind, ToolFacts
from gate.evidence import Modality
from models import prompt
from models.audio_llm.conversation import AudioPart, BackendError, Message, Part, Status, TextPart, system, user
from models.protocols import MASK_MARK, HeardSegment, PolicyInput

QUESTION = "Please answer the question based on the audio.\nQuestion: {question}"
"""*Pardon?*, appendix A.1."""

_FORMS = f"""You are a voice assistant that one person wears: the owner. You hear the owner and everybody around. \
Decide what is to be done about the last thing that was said, and write exactly one of these four forms, and nothing \
before or after it.
1. {grammar.MUTE} when it was not said to you: people talk to each other or to themselves, somebody else gives the \
command or gives it from afar, or a command is only quoted, planned or imagined.
2. One call of a tool, when the owner tells you from near by to do what that tool does:
{grammar.TOOL_OPEN}{{"name": "the_tool", "params": {{"a_param": "its value"}}}}{grammar.TOOL_CLOSE}
3. A short answer in plain words, when the owner asks you something that needs no tool.
4. {grammar.PARDON} and one short question, when it was said to you and words that matter could not be heard.
Values are copied from what was said, never guessed. Parameters that are optional and were not said are left out.
"""
_KINDS = {
    ParamKind.TEXT: "text",
    ParamKind.NUMBER: "number",
    ParamKind.INTEGER: "whole number",
    ParamKind.BOOLEAN: "true or false",
}


class Told(StrEnum):
    """What a model is told beside the sound."""

    NOTHING = "nothing"
    """The sound alone."""
    WORDS = "words"
    """And the words that were heard before it, without who said them: a plain pipeline."""
    VERDICTS = "verdicts"
    """And who said each, how near, by the ears' verdicts; also of the sound itself."""


@dataclass(frozen=True, slots=True)
class ActionContract:
    """Makes the conversation of a turn.

    Attributes:
        told: what the model is told beside the sound.
    """

    told: Told = Told.VERDICTS

    def instruction(self, tools: Sequence[ToolFacts]) -> str:
        """The four forms and the inventory. It depends on nothing but the tools."""
        if not tools:
            return f"{_FORMS}There are no tools now."
        return f"{_FORMS}The tools:\n" + "\n".join(_described(tool) for tool in tools)

    def opening(self, tools: Sequence[ToolFacts]) -> list[Message]:
        """The messages that every turn with these tools starts with."""
        return [system(self.instruction(tools))]

    def messages(self, turn: PolicyInput) -> list[Message]:
        """The whole conversation of one turn.

        Raises:
            BackendError: WRONG_INPUT when a turn of speech comes without its sound.
        """
        if turn.question is not None:
            return [user(*self.material(turn), QUESTION.format(question=turn.question))]
        return [*self.opening(turn.tools), user(*self.material(turn))]

    def material(self, turn: PolicyInput) -> tuple[Part, ...]:
        """What the user's message holds: the sound, or what was typed, and what the model is told beside it.

        Raises:
            BackendError: WRONG_INPUT when a turn of speech comes without its sound.
        """
        if turn.modality is Modality.TEXT:
            typed = " ".join(word.text for word in turn.segment.words)
            if turn.question is not None:
                return (TextPart(typed),)
            return tuple(TextPart(text) for text in (self._before(turn), typed) if text)
        if turn.audio is None:
            raise BackendError(Status.WRONG_INPUT, "a turn of speech without its sound")
        sound = AudioPart(turn.audio)
        if turn.question is not None:
            # The sound of a question is the whole recording: nothing came before it.
            return (sound,)
        beside = (self._before(turn), self._source(turn.segment))
        return (sound, *(TextPart(text) for text in beside if text))

    def _before(self, turn: PolicyInput) -> str:
        """The earlier segments, one a line, or the empty string."""
        if self.told is Told.NOTHING or not turn.context:
            return ""
        lines = [self._line(segment) for segment in turn.context]
        head = "Said before:"
        if any(MASK_MARK in line for line in lines):
            head = f"Said before ({MASK_MARK} stands for words that could not be heard):"
        return "\n".join([head, *lines])

    def _line(self, segment: HeardSegment) -> str:
        if self.told is Told.VERDICTS:
            return prompt.spoken(" ".join(word.text for word in segment.words), segment.speaker, segment.distance)
        # Where damage stands is an ear's knowledge too.
        return " ".join(word.text for word in segment.words if word.text != MASK_MARK)

    def _source(self, segment: HeardSegment) -> str:
        if self.told is not Told.VERDICTS:
            return ""
        return f"By its voice and distance, the sound is of: speaker {segment.speaker}, distance {segment.distance}."


def _described(tool: ToolFacts) -> str:
    head = f"- {tool.name}: {tool.description}"
    if not tool.params:
        return f"{head} No params."
    return "\n".join([head, *(f"  - {_param(param)}" for param in tool.params)])


def _param(param: ParamFacts) -> str:
    kind = f"one of {', '.join(param.choices)}" if param.kind is ParamKind.CHOICE else _KINDS[param.kind]
    need = "" if param.required else ", optional"
    note = f": {param.description}" if param.description else ""
    return f"{param.name} ({kind}{need}){note}"
