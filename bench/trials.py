"""The trial manifest: a JSON Lines file beside its audio, one recording or text a line, with the action that is right.

Every benchmark becomes this one form, and nothing downstream knows where a trial came from. Reading is strict where a
mistake would become a score: an unknown family, condition or action, an audio file that is not there, a second use of
an id are errors that name the line. Fields that are not known here are kept and passed by.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

Family = Literal["speaker_switch", "side_talk", "self_talk", "ear", "direct", "wearvox"]
ActionName = Literal["mute", "tool", "answer", "pardon"]
Role = Literal["context", "trigger", "assistant", "bystander", "self", "dialogue"]
TrialId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$")]
Named = Annotated[str, StringConstraints(min_length=1)]

TEXT_ONLY = "text_only"
MASKS = ("noise", "silence", "music", "babble")
"""What can stand where words were masked (EAR)."""
_CONDITIONS = {
    "speaker_switch": re.compile(rf"(same|diff)/(near|far)/\d+|{TEXT_ONLY}"),
    "side_talk": re.compile(r"assistant_first|bystander_first"),
    "ear": re.compile(rf"original|semantic_(invariant|degrading)/({'|'.join(MASKS)})(\+wide)?"),
}
"""How conditions of a family are spelt; the other families name theirs freely."""
_DECIDING_ROLES = frozenset({"trigger", "assistant", "self"})
_MOST_PROBLEMS_SHOWN = 20


class ManifestError(ValueError):
    """A manifest cannot be used. The message has one line a problem, each with its line number."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)


class Segment(_Model):
    """One stretch of labelled speech. For scoring only; no system is ever shown it.

    Attributes:
        start: where it starts, in seconds.
        end: where it ends, in seconds.
        speaker: who speaks: ``A`` is the wearer, the others follow.
        distance: how near the mouth is.
        text: what is said.
        role: what the speech is in the scenario.
    """

    start: float = Field(ge=0)
    end: float
    speaker: Named
    distance: Literal["near", "far"]
    text: str
    role: Role

    @model_validator(mode="after")
    def _ends_after_it_starts(self) -> Self:
        if not self.end > self.start:
            raise ValueError(f"the segment ends at {self.end} s, not after its start at {self.start} s")
        return self


class Expected(_Model):
    """What is right.

    Attributes:
        action: the right action.
        tool: the right tool when that action is ``tool``; None otherwise.
        answer: accepted answers, where the answer is scored.
    """

    action: ActionName
    tool: Named | None = None
    answer: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _names_a_tool_for_a_tool(self) -> Self:
        if self.action == "tool" and self.tool is None:
            raise ValueError("the right action is a tool, and no tool is named")
        if self.action != "tool" and self.tool is not None:
            raise ValueError(
                f"the right action is {self.action}, so expected.tool must be null; name it in target_tool"
            )
        return self


class Trial(_Model):
    """One recording, or one text, and what is right about it.

    Attributes:
        id: unique in the manifest.
        family: which family of scenarios.
        condition: which condition of that family.
        audio: path of the recording, relative to the manifest, or None.
        text: what is typed instead, or None.
        question: a question about the recording, given to the policy as text beside it, or None.
        enrolment: path of a clip of the wearer, relative to the manifest; None: whoever speaks first and near owns it.
        expected: what is right.
        target_tool: the tool that the words name, also where the right action is to mute.
        segments: labelled speech.
        pair: links the conditions of one command.
        triplet: links the realisations of one question.
        split: which part of the corpus.
    """

    id: TrialId
    family: Family
    condition: Named
    audio: Named | None = None
    text: Named | None = None
    question: Named | None = None
    enrolment: Named | None = None
    expected: Expected
    target_tool: Named | None = None
    segments: tuple[Segment, ...] = ()
    pair: Named | None = None
    triplet: Named | None = None
    split: Literal["train", "dev", "test"]

    @model_validator(mode="after")
    def _is_audio_or_text(self) -> Self:
        if (self.audio is None) == (self.text is None):
            raise ValueError("exactly one of audio and text is set")
        form = _CONDITIONS.get(self.family)
        if form is not None and not form.fullmatch(self.condition):
            raise ValueError(f"no condition {self.condition!r} in {self.family}; it is spelt {form.pattern}")
        if self.family == "speaker_switch" and (self.condition == TEXT_ONLY) != (self.text is not None):
            raise ValueError(f"in speaker_switch the condition {TEXT_ONLY}, and no other, has a text")
        return self

    @property
    def cluster(self) -> str:
        """What links this trial to others that are not independent of it: its pair, its triplet, or itself alone."""
        return self.pair or self.triplet or self.id

    @property
    def wanted_tool(self) -> str | None:
        """The tool that the words name, whether or not it is right to run it."""
        return self.expected.tool or self.target_tool

    def target_segment(self) -> Segment | None:
        """The labelled speech that the expected action rests on, or None without labels.

        It is the last segment whose role is ``trigger``, ``assistant`` or ``self``: one of them stands in each family
        for the words that are to be acted on or let pass. Without one (the dialogues of EAR, whose question is answered
        after all of it) it is the last segment.
        """
        ordered = sorted(self.segments, key=lambda segment: segment.end)
        deciding = [segment for segment in ordered if segment.role in _DECIDING_ROLES]
        return next(reversed(deciding or ordered), None)

    def files(self, folder: Path) -> list[Path]:
        """The files that the trial needs; ``folder`` is the manifest's."""
        return [folder / name for name in (self.audio, self.enrolment) if name is not None]


def load_manifest(path: Path, *, check_files: bool = True) -> list[Trial]:
    """Read a manifest.

    Args:
        path: the JSON Lines file.
        check_files: whether every audio file and enrolment clip must be there; scoring needs none of them.

    Returns:
        The trials in the order of the file.

    Raises:
        ManifestError: when the file cannot be read, holds no trial, or a line is wrong; names every wrong line.
    """
    try:
        # Not splitlines: a text may hold one of Unicode's other line breaks.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: cannot be read: {error}") from error
    trials: list[Trial] = []
    problems: list[str] = []
    line_of: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            trial = _read(line)
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
            continue
        if trial.id in line_of:
            problems.append(f"{path}:{number}: the id {trial.id!r} is taken by line {line_of[trial.id]}")
        line_of.setdefault(trial.id, number)
        if check_files:
            absent = [file for file in trial.files(path.parent) if not file.is_file()]
            problems.extend(f"{path}:{number}: {trial.id}: no such file: {file}" for file in absent)
        trials.append(trial)
    if not problems and not trials:
        problems.append(f"{path}: holds no trial")
    if problems:
        raise ManifestError(_listed(problems))
    return trials


def write_manifest(path: Path, trials: Iterable[Trial]) -> None:
    """Write a manifest whole or not at all; ``load_manifest`` reads the same trials back.

    Raises:
        ManifestError: when two trials have the same id.
        OSError: when it cannot be written.
    """
    lines: list[str] = []
    seen: set[str] = set()
    for trial in trials:
        if trial.id in seen:
            raise ManifestError(f"{path}: two trials have the id {trial.id!r}")
        seen.add(trial.id)
        lines.append(trial.model_dump_json() + "\n")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text("".join(lines), encoding="utf-8", newline="\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _read(line: str) -> Trial:
    try:
        return Trial.model_validate_json(line)
    except ValidationError as error:
        raise ValueError("; ".join(_problem(item) for item in error.errors())) from None


def _problem(item: object) -> str:
    assert isinstance(item, dict), "pydantic lists problems as dictionaries"
    where = ".".join(str(part) for part in item["loc"])
    message = str(item["msg"]).removeprefix("Value error, ")
    if not where:
        return message
    shown = json.dumps(item["input"], ensure_ascii=False, default=str)
    return f"{where}: {message}" if item["type"] == "missing" else f"{where} is {shown[:80]}: {message}"


def _listed(problems: Sequence[str]) -> str:
    shown = list(problems[:_MOST_PROBLEMS_SHOWN])
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    return "\n".join(shown)
