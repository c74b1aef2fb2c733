"""How often self-corrections are found in what people really say, and how often that is right.

``python -m bench.self_corrections FOLDER``

``FOLDER`` holds texts as JSON Lines. In requests to assistants and in talk hardly anybody corrects herself, so what is
carried out there is mostly wrong; those counts are the false alarms. Disfl-QA (Gupta et al. 2021, "Disfl-QA: A
Benchmark Dataset for Understanding Disfluencies in Question Answering") pairs disfluent questions with the fluent
originals: what is carried out there should give the original. It is written without the punctuation and the pauses that
a recogniser hears, so much of it must stay undecided.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gate.correction import correct
from gate.evidence import Word
from gate.grounding import normal_form
from gate.self_repairs import self_repairs
from gate.span import SAMPLE_RATE_HZ, Span

PAIRED = "disfl_qa"
SETS = ("snips", "clinc150", "slurp", "hwu64", "taskmaster4_coffee", "topical_chat", "ami_sentences")
WORD_SAMPLES = SAMPLE_RATE_HZ * 3 // 10


@dataclass
class Counts:
    """What became of one set.

    Attributes:
        texts: how many.
        corrected: of them, those in which a correction was carried out.
        doubted: those in which one was found and left alone.
        right: of ``corrected``, those that then read like the fluent original; None where there is none.
        shown: examples, as (said, read).
    """

    texts: int = 0
    corrected: int = 0
    doubted: int = 0
    right: int | None = None
    shown: list[tuple[str, str]] = field(default_factory=list)


def as_words(text: str) -> tuple[Word, ...]:
    """A written text as evenly spoken words, without pauses."""
    parts = text.split()
    return tuple(Word(part, Span(at * WORD_SAMPLES, (at + 1) * WORD_SAMPLES), 1.0) for at, part in enumerate(parts))


def texts_of(row: dict[str, Any]) -> Iterator[str]:
    """What people said in one row of a set."""
    for turn in row.get("turns", ()):
        if isinstance(turn, str):
            yield turn
        elif turn[0] == "user":
            yield turn[1]
    if "text" in row:
        yield row["text"]


def count(path: Path, paired: bool = False) -> Counts:
    """Count over one file.

    Args:
        path: JSON Lines; in a paired set each row has ``disfluent`` and ``original``.
        paired: whether it is one.

    Raises:
        OSError: when it cannot be read.
    """
    found = Counts(right=0 if paired else None)
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            for text in (row["disfluent"],) if paired else texts_of(row):
                _add(found, text, row["original"] if paired else None)
    return found


def _add(found: Counts, text: str, original: str | None) -> None:
    heard = as_words(text)
    found.texts += 1
    corrected = correct(heard)
    if not corrected.spans:
        found.doubted += bool(self_repairs(heard))
        return
    found.corrected += 1
    reads = " ".join(word.text for word in corrected.words)
    found.shown.append((text, reads))
    if original is not None and found.right is not None:
        found.right += normal_form(reads) == normal_form(original)


def report(counts: dict[str, Counts]) -> str:
    """The counts as Markdown."""
    lines = ["| set | texts | carried out | left in doubt | as the original |", "| --- | --- | --- | --- | --- |"]
    for name, found in counts.items():
        right = "" if found.right is None else f"{found.right} of {found.corrected}"
        lines.append(f"| {name} | {found.texts} | {found.corrected} | {found.doubted} | {right} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of NAME.jsonl files")
    parser.add_argument("--show", type=int, default=0, help="print so many corrections of each set")
    args = parser.parse_args(argv)
    counts: dict[str, Counts] = {}
    for name in (*SETS, PAIRED):
        path = args.folder / f"{name}.jsonl"
        if not path.is_file():
            print(f"{path}: not there, left out")
            continue
        counts[name] = count(path, paired=name == PAIRED)
        print(f"{name}: {counts[name].texts} texts", flush=True)
        for said, reads in counts[name].shown[: args.show]:
            print(f"  {said}\n    {reads}")
    print(f"\n{report(counts)}")


if __name__ == "__main__":
    main()
