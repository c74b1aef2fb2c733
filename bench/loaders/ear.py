"""The corpus of *Pardon?* as its authors share it: a JSON Lines file of questions and a folder of audio a condition.

Their scripts look for ``ID*.wav`` and take the first hit, so that question 1 may be asked about the audio of 10. Here a
file's name holds the id whole, with what the whole folder has in common around it, or the row is an error. They read
``id`` and ``question``; the other columns are not documented. ``EarColumns`` says what is read from which, and can be
changed.

It is also the way in for anybody's own recordings: with a ``transcript``, their originals can be masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from bench.build.triplets import DEGRADING
from bench.loaders.rows import (
    Columns,
    LoaderError,
    Row,
    audio_file,
    read_jsonl,
    relative,
    trial_id,
    trial_of,
    trials_of,
)
from bench.trials import Expected, Trial

ID: Final = "{id}"


@dataclass(frozen=True, slots=True)
class EarColumns:
    """Which column holds what.

    Attributes:
        id: the question's id, a text or a number.
        question: the question.
        answer: the answer: a text, or a list of accepted ones.
        transcript: what is said, where the file tells it.
        ignored: columns that may be there and are not read.
    """

    id: str = "id"
    question: str = "question"
    answer: str = "answer"
    transcript: str = "transcript"
    ignored: frozenset[str] = frozenset()

    def check(self) -> Columns:
        """As the reader takes them."""
        return Columns(frozenset({self.id, self.question, self.answer}), self.ignored | {self.transcript})


@dataclass(frozen=True, slots=True)
class EarAudio:
    """The audio of one condition.

    Attributes:
        folder: where it lies.
        name: how a file in it is called; ``{id}`` stands for the question's id.
    """

    folder: Path
    name: str = f"{ID}.wav"

    @classmethod
    def of(cls, place: str) -> EarAudio:
        """A folder of ``ID.wav``, or a path in which ``{id}`` stands for the id: ``masked/{id}_noise.wav``."""
        if ID not in place:
            return cls(Path(place))
        parts = Path(place).parts
        first = next(index for index, part in enumerate(parts) if ID in part)
        return cls(Path(*parts[:first]), Path(*parts[first:]).as_posix())

    def file(self, name: str, where: str) -> Path:
        """The audio of a question.

        Raises:
            LoaderError: when it is not there.
        """
        return audio_file(self.folder, self.name.replace(ID, name), where)


def load_ear(
    questions: Path, audio: Mapping[str, EarAudio], manifest_folder: Path, *, columns: EarColumns | None = None,
    split: Literal["train", "dev", "test"] = "test",
) -> list[Trial]:  # fmt: skip
    """Read the corpus.

    Args:
        questions: the JSON Lines file.
        audio: where the audio of each condition is, by condition: ``original``, ``semantic_invariant/noise`` …
        manifest_folder: where the manifest will lie; its audio paths are relative to that.
        columns: which column holds what; None for the default names.
        split: which split the corpus becomes; it has none of its own.

    Returns:
        The trials, every condition of one question after the other. The answer of unanswerable ones is kept in the
        field ``answer_texts``.

    Raises:
        LoaderError: when the file is wrong, a condition is unknown, an id comes twice, or a question has no audio in
            one of the folders; names every such row.
    """
    chosen = columns or EarColumns()

    def make(row: Row) -> list[Trial]:
        made: list[Trial] = []
        problems: list[str] = []
        for condition, place in audio.items():
            try:
                path = place.file(row.text(chosen.id), row.where)
                made.append(_trial(row, condition, relative(path, manifest_folder), chosen, split))
            except LoaderError as error:
                problems.append(str(error))
        if problems:
            raise LoaderError.of(problems)
        return made

    return trials_of(read_jsonl(questions, chosen.check()), make, questions)


def _trial(row: Row, condition: str, audio: str, columns: EarColumns, split: Literal["train", "dev", "test"]) -> Trial:
    answers = row.texts(columns.answer)
    triplet = trial_id("ear", row.text(columns.id))
    answerable = not condition.startswith(DEGRADING)
    fields: dict[str, Any] = {
        "id": trial_id(triplet, condition.replace("/", ".").replace("+", "-")), "family": "ear",
        "condition": condition, "audio": audio, "question": row.text(columns.question),
        "expected": Expected(action="answer", answer=answers) if answerable else Expected(action="pardon"),
        "triplet": triplet, "split": split, "answer_texts": list(answers[:1]),
    }  # fmt: skip
    if (transcript := row.optional(columns.transcript)) is not None:
        fields["transcript"] = transcript
    return trial_of(fields, row.where)
