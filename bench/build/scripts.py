"""The scripts of the benchmark: what is said, by whom, to whom, and what is the right thing to do about it.

Five files of JSON Lines beside this module, all written by hand, after the construction of VGBench (sections 3.2, 3.3
and appendices F and G): commands that a bystander repeats, one voice that speaks to the assistant and to somebody
else, monologues that sound like commands, plainly addressed commands and questions, and held-out commands for the cue
studies. A script holds words and labels, no audio.

The unit that is split is the *family*: one scene, one speaker, one idea. Every script of a family is in its split, so
nothing in test shares names, topic or wording pattern with train. ``families.jsonl`` names them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError, model_validator

from gate.actions import ActionKind
from gate.catalogue import ToolCall
from tools.catalogue import ToolCatalogue

SCRIPTS = Path(__file__).with_name("scripts")
"""The folder of the scripts that come with the benchmark."""

CATALOGUE = ToolCatalogue.builtin()
"""The ten consequential tools that the scripts name."""

_ID_RE = r"[A-Za-z0-9._-]+"
_SPOKEN_RE = re.compile(r"[A-Z][A-Za-z ,.'?!:;-]*[.?!]")


def _words(text: str, low: int, high: int) -> str:
    count = len(text.split(" "))
    if not low <= count <= high:
        raise ValueError(f"has {count} words; {low} to {high} are allowed")
    return text


def _spoken(text: str) -> str:
    """``text`` when a synthesiser can say it as it stands: letters and plain punctuation, numbers as words."""
    if not _SPOKEN_RE.fullmatch(text) or "  " in text:
        raise ValueError("is not plain spoken text: a capital, letters and , . ' ? ! : ; - only, numbers as words")
    return text


def _at_most_one_of_a_kind(answers: tuple[str, ...]) -> tuple[str, ...]:
    if not answers or len({answer.casefold() for answer in answers}) < len(answers):
        raise ValueError("must hold at least one answer and none twice")
    return answers


Id = Annotated[str, StringConstraints(pattern=_ID_RE, min_length=1, max_length=80)]
Spoken = Annotated[str, AfterValidator(_spoken)]
Answers = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1, max_length=40)], ...], AfterValidator(_at_most_one_of_a_kind)
]
ToolName = Literal[
    "send_message", "make_call", "schedule_event", "place_order", "transfer_money",
    "unlock_door", "control_device", "book_ride", "delete_data", "share_location",
]  # fmt: skip
Params = dict[str, str | int | float]


class Split(StrEnum):
    """Which part of the benchmark a family belongs to."""

    TRAIN = "train"
    DEV = "dev"
    """Where thresholds are chosen."""
    TEST = "test"


class Order(StrEnum):
    """Who is spoken to first in a side-talk recording."""

    ASSISTANT_FIRST = "assistant_first"
    BYSTANDER_FIRST = "bystander_first"


class Content(StrEnum):
    """What an utterance of a side-talk recording is like."""

    TOOL = "tool"
    """Its words name one of the ten tools."""
    CONVERSATION = "conversation"


class Form(StrEnum):
    """How a command is put."""

    IMPERATIVE = "imperative"
    REQUEST = "request"
    """A polite question."""
    NEED = "need"
    """A want or a need, stated."""
    FRAGMENT = "fragment"
    """No finite verb, or none that says what to do."""
    DISFLUENT = "disfluent"
    """Fillers, restarts, repairs."""
    LEAD_IN = "lead_in"
    """A reason, condition or time before the command."""
    SUGGESTION = "suggestion"
    """A proposal or a statement with the force of a command."""


class Frame(StrEnum):
    """The discourse frame that takes the force of a command out of a monologue."""

    PLANNING = "planning"
    REGRET = "regret"
    QUOTATION = "quotation"
    SARCASM = "sarcasm"
    RHETORICAL = "rhetorical"
    READING_ALOUD = "reading_aloud"
    REHEARSAL = "rehearsal"
    HYPOTHETICAL = "hypothetical"
    SINGING = "singing"
    NARRATING = "narrating"
    SELF_CORRECTION = "self_correction"
    WISH = "wish"
    MEMORY = "memory"
    COMPLAINT = "complaint"
    COUNTERFACTUAL = "counterfactual"


@dataclass(frozen=True, slots=True)
class Expected:
    """The right action for a script.

    Attributes:
        action: mute, tool or answer.
        call: the call, when the action is tool.
        answers: the accepted answers, when it is answer; each counts, whatever its case.
    """

    action: ActionKind
    call: ToolCall | None = None
    answers: tuple[str, ...] | None = None


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class Family(_Row):
    """One scene, one speaker, one idea.

    Attributes:
        id: its name.
        split: the split of all its scripts.
        idea: who speaks, and in what situation.
    """

    id: Id
    split: Split
    idea: Annotated[str, StringConstraints(min_length=10, max_length=120)]


class Script(_Row):
    """What all scripts have.

    Attributes:
        id: unique over all files.
        family: the family's id.
        split: the family's split.
    """

    id: Id
    family: Id
    split: Split

    @property
    def expected(self) -> Expected:
        """The right action."""
        raise NotImplementedError


def _call(tool: str, params: Params) -> ToolCall:
    """The call, checked against its tool.

    Raises:
        ValueError: when it does not fit.
    """
    call = ToolCall(tool, params)
    problems = CATALOGUE.check(call)
    if problems:
        raise ValueError("; ".join(problem.detail for problem in problems))
    return call


class SpeakerSwitchScript(Script):
    """A command, after a first sentence by which its speaker becomes the session's owner.

    The sentence is ordinary talk, not addressed to anybody: the right action about it alone is Mute. What is right
    about the command depends on who says it and from where, which the recording decides.

    Attributes:
        form: how the command is put.
        tool: the tool that the command names.
        params: its arguments, each carried by words of the command.
        context: what the wearer says before.
        command: the command.
    """

    form: Form
    tool: ToolName
    params: Params
    context: Annotated[Spoken, AfterValidator(lambda text: _words(text, 6, 16))]
    command: Annotated[Spoken, AfterValidator(lambda text: _words(text, 4, 18))]

    @model_validator(mode="after")
    def _call_fits(self) -> SpeakerSwitchScript:
        _call(self.tool, self.params)
        return self

    @property
    def expected(self) -> Expected:
        """What is right when the owner gives the command near the microphone, or types it."""
        return Expected(ActionKind.TOOL, _call(self.tool, self.params))


class SideTalkScript(Script):
    """Two utterances by one voice: one to the assistant, one to somebody else in the room.

    Only the first counts: the assistant's part is acted on, the bystander's part is ignored.

    Attributes:
        order: which of the two is spoken first.
        assistant: what is said to the assistant.
        bystander: what is said to the other person.
        tool: the tool that the assistant's part names, or None when it is a question.
        params: the tool's arguments.
        answers: accepted answers to the question.
        bystander_tool: the tool that the bystander's part names, or None when it is conversation.
        bystander_answers: what would answer the bystander's part, when that can be looked up: an answer that holds one
            of these was given to the wrong question.
    """

    order: Order
    assistant: Annotated[Spoken, AfterValidator(lambda text: _words(text, 3, 19))]
    bystander: Annotated[Spoken, AfterValidator(lambda text: _words(text, 3, 19))]
    tool: ToolName | None = None
    params: Params | None = None
    answers: Answers | None = None
    bystander_tool: ToolName | None = None
    bystander_answers: Answers | None = None

    @model_validator(mode="after")
    def _one_right_action(self) -> SideTalkScript:
        _tool_or_answers(self.tool, self.params, self.answers)
        if self.tool is not None and self.tool == self.bystander_tool:
            raise ValueError("both utterances name the same tool, so nothing shows which one was acted on")
        if self.bystander_tool is not None and self.bystander_answers is not None:
            raise ValueError("what names a tool has no answers")
        return self

    @property
    def assistant_content(self) -> Content:
        """What the assistant's part is like."""
        return Content.CONVERSATION if self.tool is None else Content.TOOL

    @property
    def bystander_content(self) -> Content:
        """What the bystander's part is like."""
        return Content.CONVERSATION if self.bystander_tool is None else Content.TOOL

    @property
    def configuration(self) -> tuple[Order, Content, Content]:
        """Order, the assistant's content and the bystander's: one of VGBench's eight."""
        return self.order, self.assistant_content, self.bystander_content

    @property
    def utterances(self) -> tuple[tuple[Literal["assistant", "bystander"], str], ...]:
        """Addressee and words, in the order in which they are spoken."""
        to_assistant: tuple[Literal["assistant", "bystander"], str] = ("assistant", self.assistant)
        to_bystander: tuple[Literal["assistant", "bystander"], str] = ("bystander", self.bystander)
        first_is_assistant = self.order is Order.ASSISTANT_FIRST
        return (to_assistant, to_bystander) if first_is_assistant else (to_bystander, to_assistant)

    @property
    def expected(self) -> Expected:
        """The right action about the recording."""
        return _expected(self.tool, self.params, self.answers)


class SelfTalkScript(Script):
    """A monologue. The right action is Mute, whatever it sounds like.

    Attributes:
        frame: what takes its force as a command away.
        text: what is said.
        target_tool: the tool that its words name, or None.
    """

    frame: Frame
    text: Annotated[Spoken, AfterValidator(lambda text: _words(text, 6, 26))]
    target_tool: ToolName | None = None

    @property
    def expected(self) -> Expected:
        """Mute."""
        return Expected(ActionKind.MUTE)


class DirectScript(Script):
    """A command or a question to the assistant, with nobody else about. It must be served.

    The commands are twins of monologues: the same words of the same family, now meant. A gate that mutes whatever
    sounds like a monologue fails on them.

    Attributes:
        text: what is said.
        tool: the tool that it names, or None when it is a question.
        params: the tool's arguments.
        answers: accepted answers to the question.
        twin: the id of the monologue that a command mirrors.
    """

    text: Annotated[Spoken, AfterValidator(lambda text: _words(text, 4, 18))]
    tool: ToolName | None = None
    params: Params | None = None
    answers: Answers | None = None
    twin: Id | None = None

    @model_validator(mode="after")
    def _one_right_action(self) -> DirectScript:
        _tool_or_answers(self.tool, self.params, self.answers)
        if (self.twin is None) != (self.tool is None):
            raise ValueError("a command has a twin, a question has none")
        return self

    @property
    def expected(self) -> Expected:
        """The right action."""
        return _expected(self.tool, self.params, self.answers)


def _tool_or_answers(tool: str | None, params: Params | None, answers: tuple[str, ...] | None) -> None:
    if tool is None:
        if params is not None or answers is None:
            raise ValueError("needs a tool with its params, or else answers")
        return
    if params is None or answers is not None:
        raise ValueError("needs params with its tool, and no answers")
    _call(tool, params)


def _expected(tool: str | None, params: Params | None, answers: tuple[str, ...] | None) -> Expected:
    if tool is None or params is None:
        return Expected(ActionKind.ANSWER, answers=answers)
    return Expected(ActionKind.TOOL, _call(tool, params))


class ScriptError(Exception):
    """The scripts are not what they should be. The message names the file, the line and the field."""


@dataclass(frozen=True, slots=True)
class Scripts:
    """All scripts, each kind in the order of its file.

    Attributes:
        families: by id.
        speaker_switch: 400 commands, forty a tool.
        side_talk: 395 recordings with two addressees.
        self_talk: 223 monologues.
        direct: 150 that must be served, half of them commands.
        cue_commands: 80 commands for the cue studies, eight a tool, all test.
    """

    families: Mapping[str, Family]
    speaker_switch: tuple[SpeakerSwitchScript, ...]
    side_talk: tuple[SideTalkScript, ...]
    self_talk: tuple[SelfTalkScript, ...]
    direct: tuple[DirectScript, ...]
    cue_commands: tuple[SpeakerSwitchScript, ...]

    FILES: ClassVar[tuple[str, ...]] = ("speaker_switch", "side_talk", "self_talk", "direct", "cue_commands")

    def all(self) -> Iterator[Script]:
        """Every script, file by file."""
        yield from self.speaker_switch
        yield from self.side_talk
        yield from self.self_talk
        yield from self.direct
        yield from self.cue_commands


RowT = TypeVar("RowT", bound=_Row)


def load_scripts(folder: Path = SCRIPTS) -> Scripts:
    """Load and check every script.

    Args:
        folder: where ``families.jsonl`` and the five files are.

    Returns:
        The scripts; each valid by itself, ids unique, each in a known family and in that family's split, no family
        empty, each twin in its command's family and of its tool.

    Raises:
        ScriptError: when that is not so, or a file cannot be read.
    """
    families = {family.id: family for family in _rows(folder / "families.jsonl", Family)}
    scripts = Scripts(
        families,
        _rows(folder / "speaker_switch.jsonl", SpeakerSwitchScript),
        _rows(folder / "side_talk.jsonl", SideTalkScript),
        _rows(folder / "self_talk.jsonl", SelfTalkScript),
        _rows(folder / "direct.jsonl", DirectScript),
        _rows(folder / "cue_commands.jsonl", SpeakerSwitchScript),
    )
    _check_families(scripts)
    _check_twins(scripts)
    return scripts


def _rows(path: Path, kind: type[RowT]) -> tuple[RowT, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ScriptError(f"{path}: {error.strerror}; the scripts are part of the repository, restore them") from error
    rows: list[RowT] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = kind.model_validate_json(line)
        except ValidationError as error:
            faults = (f"{'.'.join(map(str, item['loc'])) or 'line'}: {item['msg']}" for item in error.errors())
            raise ScriptError(f"{path.name}:{number}: {'; '.join(faults)}") from None
        _note_id(row, seen, path, number)
        rows.append(row)
    return tuple(rows)


def _note_id(row: _Row, seen: dict[str, int], path: Path, number: int) -> None:
    name = str(getattr(row, "id", ""))
    if name in seen:
        raise ScriptError(f"{path.name}:{number}: the id {name!r} is already on line {seen[name]}")
    seen[name] = number


def _check_families(scripts: Scripts) -> None:
    used: set[str] = set()
    ids: set[str] = set()
    for script in scripts.all():
        family = scripts.families.get(script.family)
        if family is None:
            raise ScriptError(f"{script.id}: the family {script.family!r} is not in families.jsonl; add it there")
        if family.split is not script.split:
            raise ScriptError(f"{script.id}: is in {script.split}, but its family {family.id} is in {family.split}")
        if script.id in ids:
            raise ScriptError(f"{script.id}: the id is used in two files")
        ids.add(script.id)
        used.add(script.family)
    unused = sorted(scripts.families.keys() - used)
    if unused:
        raise ScriptError(f"families.jsonl: no script belongs to {', '.join(unused)}")


def _check_twins(scripts: Scripts) -> None:
    monologues = {script.id: script for script in scripts.self_talk}
    for script in scripts.direct:
        if script.twin is None:
            continue
        twin = monologues.get(script.twin)
        if twin is None or twin.family != script.family or twin.target_tool != script.tool:
            raise ScriptError(
                f"{script.id}: its twin {script.twin!r} is no monologue of its family that names its tool"
            )
