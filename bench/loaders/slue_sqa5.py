"""SLUE-SQA-5 (Shon et al., "SLUE Phase-2", ACL 2023) in its original layout.

::

    slue-sqa5_{fine-tune,dev,test,verified-test}.tsv
    {fine-tune,dev,test,verified-test}/document/DOCUMENT_ID.wav
    {fine-tune,dev,test,verified-test}/word2time/DOCUMENT_ID.txt

A row asks a question about a spoken document; ``answer_spans`` is a list of ``[answer, start, end]`` in seconds, and
``word2time`` has a line a word: as written, normalised, start, end. A line of fewer fields is punctuation, or a word
whose time is not known: it keeps its place, and no mask is made of it. *Pardon?* samples 1,000 rows (section 4.1);
``sample`` draws as many as are wanted.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from bench.build.masking import seeded
from bench.build.phrases import bare, find_phrase, spoken_words
from bench.build.triplets import ORIGINAL
from bench.loaders.rows import (
    Columns,
    LoaderError,
    Row,
    audio_file,
    read_tsv,
    relative,
    trial_id,
    trial_of,
    trials_of,
)
from bench.trials import Expected, Trial

Part = Literal["fine-tune", "dev", "test", "verified-test"]
SPLIT_OF: Final[dict[Part, Literal["train", "dev", "test"]]] = {
    "fine-tune": "train", "dev": "dev", "test": "test", "verified-test": "test",
}  # fmt: skip
COLUMNS: Final = Columns(
    frozenset({"question_id", "raw_question_text", "document_id", "normalized_document_text", "answer_spans"}),
    frozenset(
        {
            "normalized_question_text", "question_speaker_id", "raw_document_text", "document_speaker_id", "split",
        }
    ),
)  # fmt: skip

TimedWord = tuple[str, float | None, float | None]


def load_slue_sqa5(
    root: Path, part: Part, manifest_folder: Path, *, sample: int | None = None, seed: int = 0,
    ignored: frozenset[str] = frozenset(),
) -> list[Trial]:  # fmt: skip
    """Read one part of the corpus.

    Args:
        root: folder of the layout above.
        part: which.
        manifest_folder: where the manifest will lie; its audio paths are relative to that.
        sample: how many rows to draw; None for all.
        seed: decides which.
        ignored: further columns that may be there and are not read.

    Returns:
        Trials in the condition ``original`` with ``transcript``, ``answer_texts`` and ``word_times``, in the table's
        order.

    Raises:
        LoaderError: when the table or a word file is wrong, an id comes twice, an answer is not said, or a document has
            no audio; names every such row.
    """
    table = root / f"slue-sqa5_{part}.tsv"
    columns = Columns(COLUMNS.needed, COLUMNS.known | ignored)
    rows = _drawn(list(read_tsv(table, columns)), sample, seed)
    return trials_of(rows, lambda row: [_trial(root, part, row, manifest_folder)], table)


def _drawn(rows: Sequence[Row], sample: int | None, seed: int) -> list[Row]:
    if sample is None or sample >= len(rows):
        return list(rows)
    return [rows[index] for index in sorted(seeded(seed, "slue-sqa5").permutation(len(rows))[:sample])]


def _trial(root: Path, part: Part, row: Row, manifest_folder: Path) -> Trial:
    document = row.text("document_id")
    path = audio_file(root / part / "document", f"{document}.wav", row.where)
    words = _word_times(root / part / "word2time" / f"{document}.txt", row.where)
    answers = _answers(row)
    said = [text for text, _, _ in words]
    spoken = [answer for answer in answers if find_phrase(said, answer)]
    if not spoken:
        raise LoaderError(f"{row.where}: none of {', '.join(map(repr, answers))} is said in the document {document}")
    name = trial_id("slue", row.text("question_id"), document)
    fields = {
        "id": name, "family": "ear", "condition": ORIGINAL, "audio": relative(path, manifest_folder),
        "question": row.text("raw_question_text"), "expected": Expected(action="answer", answer=answers),
        "triplet": name, "split": SPLIT_OF[part], "transcript": " ".join(said), "answer_texts": spoken,
        "word_times": [list(word) for word in words],
    }  # fmt: skip
    return trial_of(fields, row.where)


def _answers(row: Row) -> tuple[str, ...]:
    """The accepted answers, each once, in order."""
    try:
        answers = [str(answer).strip() for answer, start, end in _literal(row.text("answer_spans"))]
    except (TypeError, ValueError, SyntaxError) as error:
        raise LoaderError(f"{row.where}: answer_spans is no list of [answer, start, end]: {error}") from error
    if not answers or not all(answers):
        raise LoaderError(f"{row.where}: answer_spans holds no answer")
    return tuple(dict.fromkeys(answers))


def _literal(text: str) -> Any:
    """A list written as JSON, or as Python writes one."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return ast.literal_eval(text)


def _word_times(path: Path, where: str) -> list[TimedWord]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise LoaderError(f"{where}: its word times cannot be read: {error}") from error
    words: list[TimedWord] = []
    for number, line in enumerate(lines, 1):
        fields = line.rstrip("\r").split("\t")
        text = fields[1] if len(fields) > 1 and bare(fields[1]) else fields[0]
        if not bare(text):
            continue  # punctuation
        if len(fields) < 4:
            words += [(word, None, None) for word in spoken_words(text)]
            continue
        try:
            start, end = float(fields[2]), float(fields[3])
        except ValueError as error:
            raise LoaderError(f"{where}: {path}:{number}: {fields[2]!r} to {fields[3]!r} is no time") from error
        if 0 <= start < end:
            words += _shared(text, start, end)
        else:
            words += [(word, None, None) for word in spoken_words(text)]
    if not words:
        raise LoaderError(f"{where}: {path} holds no word")
    return words


def _shared(field: str, start: float, end: float) -> list[TimedWord]:
    """A field's words ("1980" is normalised to two) with its time, shared by their letters."""
    texts = spoken_words(field)
    letters = [len(bare(text)) for text in texts]
    edges = [start + (end - start) * sum(letters[:count]) / sum(letters) for count in range(len(texts) + 1)]
    return [(text, round(a, 4), round(b, 4)) for text, a, b in zip(texts, edges, edges[1:], strict=False)]
