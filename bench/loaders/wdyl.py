"""*What Do You Like?* (Wu et al., "Just ASR + LLM?", SLT 2024) in its original layout.

``wdyl_dialogues.txt`` is one dictionary: a number to each dialogue, with what the first speaker (``q``) and the second
(``a``) say and like, and two ways to ask for the favourite of the one whom ``ask`` names, by the speaker's sex and by
who speaks first. ``wdyl_questions.tsv`` names the audio of each dialogue and asks five multiple-choice questions.

*Pardon?* asks openly (Table 2: "Which city does the second speaker like the most?"), one question a dialogue; so does
this loader, and it leaves the choices alone. ``voicegate bench mask`` makes triplets of its trials.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Final, Literal

from bench.build.phrases import find_phrase
from bench.build.triplets import ORIGINAL
from bench.loaders.rows import Columns, LoaderError, audio_file, read_tsv, relative, trial_id, trial_of
from bench.trials import Expected, Trial

DIALOGUES: Final = "wdyl_dialogues.txt"
QUESTIONS: Final = "wdyl_questions.tsv"
COLUMNS: Final = Columns(frozenset({"id", "audio", "n_frames", "prompt", "tgt_text", "with_speech"}))
_FIELDS = frozenset({"q", "a", "type", "ask", "QS", "OS", "AS"})
_SIDE_FIELDS = frozenset({"gender", "content", "sub"})
_BY_SEX, _BY_ORDER = 0, 1

Asked = Literal["order", "sex"]


def load_wdyl(
    texts: Path, audio: Path, manifest_folder: Path, *, asked: Asked = "order", split: Literal["train", "dev", "test"]
) -> list[Trial]:
    """Read the corpus.

    Args:
        texts: folder with the two text files.
        audio: folder in which the paths of ``wdyl_questions.tsv`` are found.
        manifest_folder: where the manifest will lie; its audio paths are relative to that.
        asked: whether the question names the speaker by who speaks first, or by sex.
        split: which split the corpus becomes; it has none of its own.

    Returns:
        One trial a dialogue, in the condition ``original``, with ``transcript`` and ``answer_texts``.

    Raises:
        LoaderError: when a file is not of this layout, or a dialogue has no audio; names the rows.
    """
    dialogues = _dialogues(texts / DIALOGUES)
    audio_of = _audio(texts / QUESTIONS)
    trials: list[Trial] = []
    problems: list[str] = []
    for number, dialogue in dialogues.items():
        where = f"{texts / DIALOGUES}: dialogue {number}"
        try:
            if number not in audio_of:
                raise LoaderError(f"{where}: {QUESTIONS} names no audio for it")
            name, row = audio_of[number]
            path = audio_file(audio, name, row)
            trials.append(_trial(number, dialogue, where, relative(path, manifest_folder), asked, split))
        except LoaderError as error:
            problems.append(str(error))
    unknown = sorted(set(audio_of) - set(dialogues))
    problems += [f"{audio_of[number][1]}: there is no dialogue {number}" for number in unknown]
    if problems:
        raise LoaderError.of(problems)
    return trials


def _trial(
    number: int, dialogue: dict[str, Any], where: str, audio: str, asked: Asked, split: Literal["train", "dev", "test"]
) -> Trial:
    told = dialogue["ask"]
    answer = dialogue[told]["sub"]
    transcript = f"{dialogue['q']['content']} {dialogue['a']['content']}"
    if not find_phrase(dialogue[told]["content"].split(), answer):
        raise LoaderError(f"{where}: {told!r} does not say {answer!r}")
    if asked == "sex" and dialogue["q"]["gender"] == dialogue["a"]["gender"]:
        raise LoaderError(f"{where}: both speakers are of one sex, so the question must name them by order")
    name = trial_id("wdyl", str(number))
    fields = {
        "id": name, "family": "ear", "condition": ORIGINAL, "audio": audio,
        "question": dialogue["QS"][_BY_ORDER if asked == "order" else _BY_SEX],
        "expected": Expected(action="answer", answer=(answer,)), "triplet": name, "split": split,
        "transcript": transcript, "answer_texts": [answer], "topic": dialogue["type"],
    }  # fmt: skip
    return trial_of(fields, where)


def _dialogues(path: Path) -> dict[int, dict[str, Any]]:
    try:
        read = ast.literal_eval(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, SyntaxError) as error:
        raise LoaderError(f"{path}: cannot be read: {error}") from error
    if not isinstance(read, dict):
        raise LoaderError(f"{path}: is no dictionary")
    problems = [f"{path}: dialogue {number}: {fault}" for number, d in read.items() if (fault := _fault(number, d))]
    if problems:
        raise LoaderError.of(problems)
    return read


def _fault(number: object, dialogue: object) -> str:
    """What is wrong with a dialogue; empty when nothing is."""
    if not isinstance(number, int):
        return "its key is no number"
    if not isinstance(dialogue, dict) or set(dialogue) != _FIELDS:
        return f"its fields are not {', '.join(sorted(_FIELDS))}"
    for side in ("q", "a"):
        told = dialogue[side]
        if (
            not isinstance(told, dict)
            or set(told) != _SIDE_FIELDS
            or not all(isinstance(v, str) for v in told.values())
        ):
            return f"{side!r} has not the texts {', '.join(sorted(_SIDE_FIELDS))}"
    if dialogue["ask"] not in ("q", "a"):
        return f"it asks for {dialogue['ask']!r}, who is neither 'q' nor 'a'"
    questions = dialogue["QS"]
    if not isinstance(questions, list) or len(questions) != 2 or not all(isinstance(q, str) for q in questions):
        return "it has not two questions"
    return ""


def _audio(path: Path) -> dict[int, tuple[str, str]]:
    """The audio of each dialogue, and the row that names it."""
    found: dict[int, tuple[str, str]] = {}
    for row in read_tsv(path, COLUMNS):
        number, _, choice = row.text("id").partition("_")
        if not number.isdecimal() or not choice.isdecimal():
            raise LoaderError(f"{row.where}: the id {row.text('id')!r} is not DIALOGUE_CHOICE")
        name = row.text("audio")
        before = found.setdefault(int(number), (name, row.where))
        if before[0] != name:
            raise LoaderError(f"{row.where}: dialogue {number} has the audio {before[0]!r} at {before[1]}")
    return found
