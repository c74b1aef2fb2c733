"""The action contract: one instruction for all, and nothing told that was not to be told."""

from __future__ import annotations

import numpy as np
import pytest

from gate.actions import MuteAction, PardonAction, ToolAction
from gate.evidence import DistanceVerdict, Modality, SpeakerVerdict, Word
from gate.grammar import parse
from gate.span import Span
from models.audio_llm.contract import ActionContract, Told
from models.audio_llm.conversation import BackendError, Role
from models.protocols import MASK_MARK, HeardSegment, PolicyInput
from tools.catalogue import ToolCatalogue

TOOLS = ToolCatalogue.builtin(()).all()
SOUND = np.zeros(16_000, np.float32)


def segment(text: str, speaker: SpeakerVerdict = SpeakerVerdict.OWNER) -> HeardSegment:
    words = tuple(Word(part, Span(0, 1), 0.9) for part in text.split())
    return HeardSegment(words, speaker, DistanceVerdict.NEAR)


def turn(**more: object) -> PolicyInput:
    values = {"turn_id": "t1", "segment": segment("call Ben"), "context": (), "tools": TOOLS, "audio": SOUND}
    return PolicyInput(**(values | more))  # type: ignore[arg-type]  # a table of fields


def text_of(contract: ActionContract, given: PolicyInput) -> str:
    return "\n".join(message.text for message in contract.messages(given))


def test_the_forms_in_the_instruction_are_those_that_the_parser_reads() -> None:
    """A model that does as it is told must be understood."""
    lines = ActionContract().instruction(TOOLS).splitlines()
    call = next(line for line in lines if line.startswith("<|TOOL|>"))
    assert isinstance(parse(call), ToolAction)
    assert isinstance(parse(lines[1].split()[1]), MuteAction)
    pardon = next(line for line in lines if line.startswith("4."))
    assert isinstance(parse(pardon.split()[1]), PardonAction)


def test_every_tool_with_every_parameter_and_choice_is_in_the_inventory() -> None:
    """What is not listed cannot be called rightly."""
    instruction = ActionContract().instruction(TOOLS)
    for tool in TOOLS:
        assert f"- {tool.name}: {tool.description}" in instruction
        for param in tool.params:
            assert f"- {param.name} (" in instruction
            assert all(choice in instruction for choice in param.choices)


def test_without_tools_none_are_promised() -> None:
    """Naming tools that are switched off would ask for calls that cannot run."""
    assert "send_message" not in ActionContract().instruction(())


def test_the_opening_is_the_same_for_every_turn() -> None:
    """What changes with the turn cannot be read ahead of it."""
    contract = ActionContract()
    for given in (turn(), turn(context=(segment("hello"),))):
        assert contract.messages(given)[:1] == contract.opening(TOOLS)


def test_the_raw_model_is_not_told_who_speaks() -> None:
    """A raw model's score must be its own hearing, not the ears'."""
    given = turn(context=(segment(f"I am {MASK_MARK} here", SpeakerVerdict.OTHER),))
    told = text_of(ActionContract(Told.WORDS), given).split("The tools:")[1]
    assert "I am here" in told
    for secret in ("Another person", "other", "owner", "near", MASK_MARK):
        assert secret not in told.split("for how long")[1]
    assert "I am" not in text_of(ActionContract(Told.NOTHING), given)


def test_the_ears_verdicts_stand_beside_the_sound_and_the_earlier_words() -> None:
    """Without them a model that hears voices badly guesses who spoke."""
    given = turn(context=(segment(f"I am {MASK_MARK} here", SpeakerVerdict.OTHER),))
    message = ActionContract(Told.VERDICTS).messages(given)[-1]
    assert message.role is Role.USER
    assert len(message.sounds) == 1
    assert f'Another person says, near: "I am {MASK_MARK} here"' in message.text
    assert "speaker owner, distance near" in message.text


def test_the_recognised_words_of_the_turn_itself_are_not_told() -> None:
    """The model is to hear them; a transcript would hide that it does not."""
    assert "call Ben" not in text_of(ActionContract(), turn())


def test_a_question_is_asked_in_the_papers_words_alone() -> None:
    """An instruction to ask back would make the repair score the prompt's."""
    (message,) = ActionContract().messages(turn(question="Where does she live?", context=(segment("hello"),)))
    assert message.text == "Please answer the question based on the audio.\nQuestion: Where does she live?"
    assert len(message.sounds) == 1


def test_typed_words_come_as_text() -> None:
    """There is no sound to make up."""
    message = ActionContract().messages(turn(modality=Modality.TEXT, audio=None))[-1]
    assert (message.text, message.sounds) == ("call Ben", ())


def test_speech_without_its_sound_is_an_error() -> None:
    """A model that is given no sound answers all the same, out of nothing."""
    with pytest.raises(BackendError, match="without its sound"):
        ActionContract().messages(turn(audio=None))
