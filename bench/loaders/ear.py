"""The corpus of *Pardon?* as its authors share it: a JSON Lines file of questions and a folder of audio a condition.

Their scripts look for ``ID*.wav`` and take the first hit, so that question 1 may be asked about the audio of 10. Here a
file's name is its id, a suffix that the whole folder has in common, and ``.wav``, or the row is an error. The names of
the columns are not documented; ``EarColumns`` says what is read from which, and can be changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from bench.build.triplets import DEGRADING
from bench.loaders.rows import Columns, LoaderError, Row, audio_file, read_jsonl, relative, trial_id
from bench.trials import Expected, Trial

SUFFIX: Final = ".wav"


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
        suffix: what stands in every file's name between the id and ``.wav``: ``_noise``.
    """

    folder: Path
    suffix: str = ""


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
        LoaderError: when the file is wrong, an id comes twice, or a question has no audio in one of the folders; names
            every such row.
    """
    chosen = columns or EarColumns()
    trials: list[Trial] = []
    problems: list[str] = []
    seen: dict[str, str] = {}
    for row in read_jsonl(questions, chosen.check()):
        name = row.text(chosen.id)
        if name in seen:
            problems.append(f"{row.where}: the id {name!r} is taken at {seen[name]}")
            continue
        seen[name] = row.where
        for condition, place in audio.items():
            try:
                path = audio_file(place.folder, f"{name}{place.suffix}{SUFFIX}", row.where)
                trials.append(_trial(name, row, condition, relative(path, manifest_folder), chosen, split))
            except LoaderError as error:
                problems.append(str(error))
    if not seen:
        problems.append(f"{questions}: holds no question")
    if problems:
        raise LoaderError.of(problems)
    return trials


def _trial(
    name: str, row: Row, condition: str, audio: str, columns: EarColumns, split: Literal["train", "dev", "test"]
) -> Trial:
    answers = _answers(row, columns.answer)
    triplet = trial_id("ear", name)
    answerable = not condition.startswith(DEGRADING)
    transcript = row.optional(columns.transcript)
    return Trial(
        id=trial_id(triplet, condition.replace("/", ".").replace("+", "-")), family="ear", condition=condition,
        audio=audio, question=row.text(columns.question),
        expected=Expected(action="answer", answer=answers) if answerable else Expected(action="pardon"),
        triplet=triplet, split=split, answer_texts=list(answers[:1]), **({} if transcript is None else {"transcript": transcript}),
    )  # type: ignore[call-arg]  # fields beyond the contract are kept  # fmt: skip


def _answers(row: Row, column: str) -> tuple[str, ...]:
    value = row.cells[column]
    if isinstance(value, Sequence) and not isinstance(value, str):
        if not value or not all(isinstance(one, str) and one.strip() for one in value):
            raise LoaderError(f"{row.where}: the column {column!r} is no list of texts")
        return tuple(one.strip() for one in value)
    return (row.text(column),)
