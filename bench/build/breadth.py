"""How broad the scripts are, and how far test is from train: ``python -m bench.build.breadth``.

Counts, distinct n-grams (distinct-n: Li et al. 2016, "A diversity-promoting objective function"), wordings that are
equal once their arguments are masked, and the nearest neighbour in train of everything in dev and test. Prints a
report with the closest pairs, so that leaks can be read and removed, and refreshes the table in ``scripts/README.md``.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.build.scripts import SCRIPTS, Scripts, Split, load_scripts
from bench.build.scripts_grounding import Value, masked, plain, refused_by_gate
from bench.build.scripts_similarity import CharNgrams, FloatArray, Measure, MiniLm, ModelMissingError, installed_folder
from models.prompt import EXEMPLARS

README = SCRIPTS / "README.md"
BEGIN, END = "<!-- breadth: begin -->", "<!-- breadth: end -->"
_LONGEST_NGRAM = 4
_SHOW_EVERY = 512


@dataclass(frozen=True, slots=True)
class Line:
    """One text of one script.

    Attributes:
        script: the script's id.
        family: its family.
        split: its split.
        kind: which texts it is counted with ("switch commands").
        text: the words.
        wording: the words with their arguments masked; the words themselves where there are no arguments.
    """

    script: str
    family: str
    split: Split
    kind: str
    text: str
    wording: str


@dataclass(frozen=True, slots=True)
class Command:
    """A text with the call that it licenses."""

    script: str
    split: Split
    text: str
    tool: str
    params: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A held-out text and the text of train that is most like it."""

    line: Line
    nearest: Line
    similarity: float


def commands(scripts: Scripts) -> Iterator[Command]:
    """Everything that is to be executed, of every file."""
    for switch in (*scripts.speaker_switch, *scripts.cue_commands):
        yield Command(switch.id, switch.split, switch.command, switch.tool, switch.params)
    for side in scripts.side_talk:
        if side.tool is not None and side.params is not None:
            yield Command(side.id, side.split, side.assistant, side.tool, side.params)
    for direct in scripts.direct:
        if direct.tool is not None and direct.params is not None:
            yield Command(direct.id, direct.split, direct.text, direct.tool, direct.params)


def lines(scripts: Scripts) -> list[Line]:
    """Every text of every script, one a line."""
    wordings = {command.script: masked(command.text, command.tool, command.params) for command in commands(scripts)}
    out: list[Line] = []

    def add(script: str, family: str, split: Split, kind: str, text: str, of_call: bool = False) -> None:
        wording = wordings.get(script) if of_call else None
        out.append(Line(script, family, split, kind, text, wording or " ".join(plain(text))))

    for item in scripts.speaker_switch:
        add(item.id, item.family, item.split, "switch commands", item.command, True)
        add(item.id, item.family, item.split, "switch contexts", item.context)
    for cue in scripts.cue_commands:
        add(cue.id, cue.family, cue.split, "cue commands", cue.command, True)
        add(cue.id, cue.family, cue.split, "cue contexts", cue.context)
    for side in scripts.side_talk:
        add(side.id, side.family, side.split, "side-talk, to the assistant", side.assistant, True)
        add(side.id, side.family, side.split, "side-talk, to a bystander", side.bystander)
    for own in scripts.self_talk:
        add(own.id, own.family, own.split, "self-talk", own.text)
    for direct in scripts.direct:
        add(direct.id, direct.family, direct.split, "direct", direct.text, True)
    return out


def distinct_ngrams(texts: Iterable[str], n: int) -> tuple[int, int]:
    """How many different n-grams of words there are, and how many n-grams in all; none crosses a text's end."""
    seen: set[tuple[str, ...]] = set()
    total = 0
    for text in texts:
        words = plain(text)
        for at in range(len(words) - n + 1):
            seen.add(words[at : at + n])
            total += 1
    return len(seen), total


def equal_wordings(scripts: Scripts) -> list[tuple[str, tuple[str, ...]]]:
    """Wordings that more than one command has once its arguments are masked, with the commands' ids."""
    by_wording: dict[str, list[str]] = defaultdict(list)
    for command in commands(scripts):
        by_wording[masked(command.text, command.tool, command.params)].append(command.script)
    return [(wording, tuple(ids)) for wording, ids in sorted(by_wording.items()) if len(ids) > 1]


def neighbours(
    held_out: Sequence[Line], known: Sequence[Line], vectors: Mapping[str, FloatArray], wordings: bool = False
) -> list[Neighbour]:
    """The nearest known text for each held-out text, the most alike first.

    Args:
        held_out: texts to look up.
        known: texts to look among, at least one; those of a held-out text's own family are passed over.
        vectors: the unit vector of every text, or of every wording.
        wordings: compare wordings.
    """
    mine, theirs = (
        np.stack([vectors[line.wording if wordings else line.text] for line in group]) for group in (held_out, known)
    )
    families = np.array([line.family for line in known])
    out: list[Neighbour] = []
    for line, row in zip(held_out, mine @ theirs.T, strict=True):
        others = np.where(families == line.family, -1.0, row)
        at = int(others.argmax())
        out.append(Neighbour(line, known[at], float(others[at])))
    return sorted(out, key=lambda found: -found.similarity)


def embedded(measure: Measure, texts: Iterable[str]) -> dict[str, FloatArray]:
    """The unit vector of each text, each computed once."""
    once = list(dict.fromkeys(texts))
    return dict(zip(once, measure.vectors(once), strict=True))


# The report -------------------------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    body = [" | ".join(map(str, row)) for row in rows]
    rule = " | ".join(["---"] + ["---:"] * (len(head) - 1))
    return "\n".join(f"| {row} |" for row in (" | ".join(head), rule, *body))


def _counts(scripts: Scripts) -> str:
    def row(name: str, items: Sequence[object]) -> list[object]:
        splits = Counter(item.split for item in items)  # type: ignore[attr-defined]
        families = len({item.family for item in items})  # type: ignore[attr-defined]
        return [name, len(items), *(splits[split] for split in Split), families]

    rows = [row(f"{name}.jsonl", getattr(scripts, name)) for name in Scripts.FILES]
    return _table(["file", "scripts", "train", "dev", "test", "families"], rows)


def _ngram_table(all_lines: Sequence[Line]) -> str:
    by_kind: dict[str, list[str]] = defaultdict(list)
    for line in all_lines:
        by_kind[line.kind].append(line.text)
    rows = [_ngram_row(kind, texts) for kind, texts in by_kind.items()]
    rows.append(_ngram_row("all", [line.text for line in all_lines]))
    return _table(["texts", "n", "words", *(f"distinct-{n}" for n in range(1, _LONGEST_NGRAM + 1)), "openings"], rows)


def _ngram_row(kind: str, texts: Sequence[str]) -> list[object]:
    counted = [distinct_ngrams(texts, n) for n in range(1, _LONGEST_NGRAM + 1)]
    openings = len({plain(text)[:2] for text in texts}) / len(texts)
    shown = [f"{distinct} ({distinct / total:.3f})" for distinct, total in counted]
    return [kind, len(texts), counted[0][1], *shown, f"{openings:.2f}"]


def _wordings(scripts: Scripts) -> str:
    found = list(commands(scripts))
    wordings = {masked(command.text, command.tool, command.params) for command in found}
    per_switch = {masked(item.command, item.tool, item.params) for item in scripts.speaker_switch}
    arguments = sum(len(command.params) for command in found)
    refused = [(item, param) for item in found for param in refused_by_gate(item.text, item.tool, item.params)]
    listed = "".join(f"\n- `{item.script}`, `{param}`: {item.text}" for item, param in refused)
    return (
        f"{len(found)} commands in all files have {len(wordings)} distinct wordings once their arguments are masked "
        f"({len(per_switch)} of {len(scripts.speaker_switch)} in speaker_switch.jsonl); "
        f"{len(equal_wordings(scripts))} wordings occur more than once.\n\n"
        f"Of {arguments} arguments, {len(refused)} are said but would be asked for again by the gate, even if every "
        f"word were heard:{listed or ' none.'}"
    )


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Two groups of lines, compared by one measure; ``pairs`` has the most alike first."""

    of: str
    by: str
    pairs: Sequence[Neighbour]

    def row(self) -> list[object]:
        values = np.array([pair.similarity for pair in self.pairs])
        figures = (np.median(values), np.quantile(values, 0.95), values.max())
        return [self.of, self.by, len(values), *(f"{value:.2f}" for value in figures)]

    def closest(self, shown: int) -> Iterator[str]:
        for pair in self.pairs[:shown]:
            yield f"{pair.similarity:.3f} {self.of}, {self.by}"
            for line in (pair.line, pair.nearest):
                yield f"    {line.split} {line.script} [{line.kind}]: {line.text}"


def _comparisons(scripts: Scripts, measure: Measure) -> Iterator[_Comparison]:
    """Held-out texts, held-out wordings of commands, and test against the examples in the policy's own prompt."""
    every = lines(scripts)
    calls = {command.script for command in commands(scripts)}
    worded = [line for line in every if line.script in calls and line.wording != " ".join(plain(line.text))]
    prompt = _prompt_lines()
    vectors = embedded(measure, (line.text for line in (*every, *prompt)))
    wording_vectors = embedded(measure, (line.wording for line in worded))
    for name, group, known_vectors, wordings in (
        ("texts", every, vectors, False),
        ("wordings", worded, wording_vectors, True),
    ):
        by_split = {split: [line for line in group if line.split is split] for split in Split}
        for split, label in ((Split.TEST, "test"), (Split.DEV, "dev"), (Split.TRAIN, "train, other families,")):
            found = neighbours(by_split[split], by_split[Split.TRAIN], known_vectors, wordings)
            yield _Comparison(f"{name}: {label} to train", measure.name, found)
    test = [line for line in every if line.split is Split.TEST]
    yield _Comparison("texts: test to the policy's prompt", measure.name, neighbours(test, prompt, vectors))


def _prompt_lines() -> list[Line]:
    return [
        Line(f"prompt.{kind}.{at}", f"prompt.{kind}", Split.TRAIN, "prompt", text, " ".join(plain(text)))
        for kind, texts in EXEMPLARS.items()
        for at, text in enumerate(texts)
    ]


def report(scripts: Scripts, measures: Sequence[Measure], shown: int) -> tuple[str, str]:
    """The report as Markdown, and the ``shown`` closest pairs of each comparison as text.

    Args:
        scripts: what is measured.
        measures: similarities to measure with, at least one.
        shown: pairs of each comparison.
    """
    found = [comparison for measure in measures for comparison in _comparisons(scripts, measure)]
    head = ["nearest neighbour of", "by", "n", "median", "95 %", "max"]
    parts = [
        _counts(scripts),
        _ngram_table(lines(scripts)),
        _wordings(scripts),
        _table(head, (comparison.row() for comparison in found)),
        *(measure.note for measure in measures),
    ]
    pairs = [line for comparison in found for line in comparison.closest(shown)]
    return "\n\n".join(parts) + "\n", "\n".join(pairs)


def refresh(readme: Path, table: str) -> None:
    """Put a report between the two marks of a file.

    Raises:
        ValueError: when the marks are not there.
    """
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{readme} has no {BEGIN} … {END}; put the two lines back where the table belongs")
    readme.write_text(f"{before}{BEGIN}\n\n{table}\n{END}{after}", encoding="utf-8")


def _show_progress(done: int, total: int) -> None:
    if done == total or done % _SHOW_EVERY < _SHOW_EVERY // 8:
        print(f"embedded {done:,} of {total:,} texts", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns 1 when two commands have the same wording, else 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.build.breadth", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", type=Path, help="folder of all-MiniLM-L6-v2; without it, the installed package's")
    parser.add_argument("--no-model", action="store_true", help="spelling only; leaves the README as it is")
    parser.add_argument("--pairs", type=int, default=12, help="closest pairs shown of each comparison (default 12)")
    options = parser.parse_args(arguments)
    measures: list[Measure] = [CharNgrams()]
    if not options.no_model:
        try:
            measures.append(MiniLm(options.model or installed_folder(), _show_progress))
        except ModelMissingError as error:
            print(f"{error}; or measure spelling alone with --no-model", file=sys.stderr)
            return 1
    scripts = load_scripts()
    table, pairs = report(scripts, measures, options.pairs)
    print(table)
    print(pairs)
    if not options.no_model:
        refresh(README, table)
    same = equal_wordings(scripts)
    for wording, ids in same:
        print(f"the same wording: {wording}: {', '.join(ids)}", file=sys.stderr)
    return 1 if same else 0


if __name__ == "__main__":
    sys.exit(main())
