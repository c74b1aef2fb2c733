"""What is asked about: dialogues of two people and passages of one, each with a question and the words that answer it.

``scripts/ear_dialogues.jsonl`` follows *What Do You Like?* (Wu et al., "Just ASR + LLM?", SLT 2024) in its open form:
a few short turns, and a question whose answer one of them gives. ``scripts/ear_passages.jsonl`` follows SLUE-SQA-5
(Shon et al., "SLUE Phase-2", ACL 2023): a longer passage, and a question that a stretch of it answers. All of it is
written by hand.

The answer is said once, in one turn or sentence, and nowhere else in any form that counts as the answer: with those
words gone, nobody can answer. The unit that is split is the *family*, a scene or a topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError, model_validator

from bench.build.answers import says
from bench.build.phrases import find_phrase, spoken_words
from bench.build.scripts import SCRIPTS, Id, Spoken

DIALOGUES = SCRIPTS / "ear_dialogues.jsonl"
PASSAGES = SCRIPTS / "ear_passages.jsonl"

Gender = Literal["female", "male"]
SpeakerLabel = Literal["A", "B"]
Answer = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 .,:'-]*$", max_length=60)]

TURNS = range(4, 9)
TURN_WORDS = range(1, 25)
PASSAGE_WORDS = range(100, 161)
_SENTENCE_RE = re.compile(r"(?<=[.?!])\s+")


class EarScriptError(ValueError):
    """The scripts cannot be used. The message names file and line."""


class Turn(BaseModel):
    """What one speaker says at a time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    speaker: SpeakerLabel
    text: Spoken


class _Asked(BaseModel):
    """What dialogues and passages share.

    Attributes:
        id: unique among all.
        family: the scene or topic.
        split: its part of the corpus.
        question: what is asked about it, in writing.
        answers: what counts as an answer. The first is said word for word; the others are other ways to write it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Id
    family: Id
    split: Literal["train", "dev", "test"]
    question: Annotated[str, StringConstraints(pattern=r"^[A-Z].*\?$", max_length=160)]
    answers: Annotated[tuple[Answer, ...], "one or more"]

    def utterances(self) -> tuple[Turn, ...]:
        """What is said, in pieces that are spoken in one breath: turns, or the sentences of a passage."""
        raise NotImplementedError

    def voice_of(self, speaker: SpeakerLabel) -> Gender:
        """What kind of voice a speaker has."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _is_answered_once(self) -> Self:
        if not self.answers:
            raise ValueError("has no answer")
        said = [spoken_words(turn.text) for turn in self.utterances()]
        places = [(words, place) for words in said for place in find_phrase(words, self.answers[0])]
        if len(places) != 1:
            raise ValueError(f"the answer {self.answers[0]!r} is said {len(places)} times in one breath, not once")
        answering, place = places[0]
        # Every other utterance, and what stands before and after the answer in its own.
        rest = [words for words in said if words is not answering]
        rest += [answering[: place[0]], answering[place[-1] + 1 :]]
        for answer in self.answers:
            if any(says(words, answer) for words in rest):
                raise ValueError(f"{answer!r} is said elsewhere, too: masking one place would not take it")
            if says(self.question.split(), answer):
                raise ValueError(f"the question says {answer!r}")
        return self


class EarDialogue(_Asked):
    """Two people talking.

    Attributes:
        voices: the kind of voice of A, who speaks first, and of B.
        turns: what they say.
    """

    voices: dict[SpeakerLabel, Gender]
    turns: tuple[Turn, ...]

    def utterances(self) -> tuple[Turn, ...]:
        """The turns."""
        return self.turns

    def voice_of(self, speaker: SpeakerLabel) -> Gender:
        """What kind of voice a speaker has."""
        return self.voices[speaker]

    @model_validator(mode="after")
    def _is_a_dialogue(self) -> Self:
        if len(self.turns) not in TURNS:
            raise ValueError(f"has {len(self.turns)} turns; {TURNS[0]} to {TURNS[-1]} are allowed")
        if self.turns[0].speaker != "A" or {turn.speaker for turn in self.turns} != {"A", "B"}:
            raise ValueError("A speaks first, and both speak")
        for turn in self.turns:
            if (count := len(spoken_words(turn.text))) not in TURN_WORDS:
                raise ValueError(f"a turn has {count} words; {TURN_WORDS[0]} to {TURN_WORDS[-1]} are allowed")
        if set(self.voices) != {"A", "B"}:
            raise ValueError("the voices of A and B are named")
        asks_by_voice = re.search(r"\b(man|woman)\b", self.question)
        if asks_by_voice and len(set(self.voices.values())) < 2:
            raise ValueError(f"the question speaks of the {asks_by_voice[1]}, and both voices are alike")
        return self


class EarPassage(_Asked):
    """One person telling something.

    Attributes:
        voice: the kind of voice.
        text: what is told.
    """

    voice: Gender
    text: Spoken

    def utterances(self) -> tuple[Turn, ...]:
        """The sentences."""
        return tuple(Turn(speaker="A", text=sentence) for sentence in _SENTENCE_RE.split(self.text))

    def voice_of(self, speaker: SpeakerLabel) -> Gender:
        """What kind of voice a speaker has."""
        return self.voice

    @model_validator(mode="after")
    def _is_a_passage(self) -> Self:
        count = len(spoken_words(self.text))
        if count not in PASSAGE_WORDS:
            raise ValueError(f"has {count} words; {PASSAGE_WORDS[0]} to {PASSAGE_WORDS[-1]} are allowed")
        return self


EarScript = EarDialogue | EarPassage
_S = TypeVar("_S", EarDialogue, EarPassage)


@dataclass(frozen=True, slots=True)
class EarScripts:
    """All of them.

    Attributes:
        dialogues: in the order of their file.
        passages: in the order of theirs.
    """

    dialogues: tuple[EarDialogue, ...]
    passages: tuple[EarPassage, ...]

    def __iter__(self) -> Iterator[EarScript]:
        yield from self.dialogues
        yield from self.passages

    def of(self, splits: Sequence[str]) -> EarScripts:
        """Those of some splits."""
        return EarScripts(
            tuple(script for script in self.dialogues if script.split in splits),
            tuple(script for script in self.passages if script.split in splits),
        )


def load_ear_scripts(dialogues: Path = DIALOGUES, passages: Path = PASSAGES) -> EarScripts:
    """Read and check them.

    Raises:
        EarScriptError: when a file cannot be read, a line is wrong, an id, a question about the same words or a text
            comes twice, or a family stands in two splits; names every such line.
    """
    problems: list[str] = []
    found = EarScripts(tuple(_read(dialogues, EarDialogue, problems)), tuple(_read(passages, EarPassage, problems)))
    problems += _clashes(found)
    if problems:
        raise EarScriptError("\n".join(problems))
    return found


def _read(path: Path, kind: type[_S], problems: list[str]) -> Iterator[_S]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise EarScriptError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield kind.model_validate_json(line)
        except ValidationError as error:
            for item in error.errors():
                where = ".".join(str(part) for part in item["loc"])
                problems.append(f"{path}:{number}: {where}: {str(item['msg']).removeprefix('Value error, ')}")


def _clashes(scripts: EarScripts) -> list[str]:
    problems: list[str] = []
    split_of: dict[str, str] = {}
    seen: dict[str, str] = {}
    for script in scripts:
        if split_of.setdefault(script.family, script.split) != script.split:
            problems.append(f"{script.id}: the family {script.family} is in {split_of[script.family]}, too")
        said = " ".join(turn.text for turn in script.utterances())
        for what, key in (("id", script.id), ("text", said)):
            if key in seen:
                problems.append(f"{script.id}: has the {what} of {seen[key]}")
            seen[key] = script.id
    return problems
