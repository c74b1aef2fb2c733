"""What is in a file of rows, in numbers: kinds, actions, tools, verdicts, and how much language there is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gate import grammar
from gate.actions import ToolAction, Unparseable, kind_of
from models.training.policy.rows import Row

LONGEST_NGRAM = 4


@dataclass(frozen=True, slots=True)
class Census:
    """The numbers of one split.

    Attributes:
        split: the split.
        rows: how many there are.
        kinds: rows by kind and action.
        actions: rows by action.
        tools: rows by the tool of their call.
        verdicts: spoken rows by speaker, distance and action.
        typed: rows that are typed.
        with_context: spoken rows with earlier segments, without questions about something told.
        pairs: groups of one command under several sources, and the rows in them that are right for the call and for
            silence.
        origins: rows by where their words come from.
        texts: distinct texts to act on.
        words: of a row to act on: fewest, median, most; and of all rows.
        ngrams: distinct n-grams of the distinct texts, by n, and the share of all that they are.
    """

    split: str
    rows: int
    kinds: Mapping[tuple[str, str], int]
    actions: Mapping[str, int]
    tools: Mapping[str, int]
    verdicts: Mapping[tuple[str, str, str], int]
    typed: int
    with_context: int
    pairs: tuple[int, int, int]
    origins: Mapping[str, int]
    texts: int
    words: tuple[int, int, int, int]
    ngrams: Mapping[int, tuple[int, float]]

    def as_json(self) -> dict[str, Any]:
        """For a file beside the rows; keys of several parts are joined by slashes."""
        return {
            "rows": self.rows, "kinds": _joined(self.kinds), "actions": dict(self.actions), "tools": dict(self.tools),
            "verdicts": _joined(self.verdicts), "typed": self.typed, "with_context": self.with_context,
            "pairs": list(self.pairs), "origins": dict(self.origins), "texts": self.texts, "words": list(self.words),
            "ngrams": {str(n): [count, round(share, 3)] for n, (count, share) in self.ngrams.items()},
        }  # fmt: skip


def census(split: str, rows: Sequence[Row]) -> Census:
    """Count some rows."""
    action = {row.id: _action(row) for row in rows}
    spoken = [row for row in rows if not row.typed and row.question is None]
    texts = sorted({row.segment.words for row in rows})
    lengths = sorted(len(row.segment.words.split()) for row in rows)
    groups = [row for row in rows if row.pair is not None]
    return Census(
        split, len(rows),
        _counted((row.kind, action[row.id]) for row in rows),
        _counted(action[row.id] for row in rows),
        _counted(tool for row in rows if (tool := _tool(row))),
        _counted((str(row.segment.speaker), str(row.segment.distance), action[row.id]) for row in spoken),
        sum(row.typed for row in rows),
        sum(bool(row.context) for row in spoken),
        (len({row.pair for row in groups}), _of(groups, "tool"), _of(groups, "mute")),
        _counted(origin_of(row) for row in rows),
        len(texts),
        (lengths[0], lengths[len(lengths) // 2], lengths[-1], sum(lengths)) if lengths else (0, 0, 0, 0),
        {n: distinct_ngrams(texts, n) for n in range(1, LONGEST_NGRAM + 1)},
    )  # fmt: skip


def origin_of(row: Row) -> str:
    """Where a row's words come from, which its id says: "lines", "scripts" or "real"."""
    parts = row.id.split(".")
    return parts[2] if len(parts) > 2 else "unknown"


def distinct_ngrams(texts: Iterable[str], n: int) -> tuple[int, float]:
    """How many different n-grams of words there are, and which share of all (Li et al. 2016, distinct-n)."""
    grams = [gram for text in texts for gram in _ngrams(text, n)]
    return len(set(grams)), len(set(grams)) / len(grams) if grams else 0.0


def report(found: Census) -> str:
    """The numbers as tables in Markdown."""
    total = max(found.rows, 1)
    lines = [
        f"## {found.split}: {found.rows} rows",
        "",
        "| kind | action | rows | share |",
        "| --- | --- | ---: | ---: |",
    ]
    lines += [f"| {kind} | {action} | {n} | {n / total:.1%} |" for (kind, action), n in found.kinds.items()]
    lines += ["", "| action | rows | share |", "| --- | ---: | ---: |"]
    lines += [f"| {action} | {n} | {n / total:.1%} |" for action, n in found.actions.items()]
    lines += ["", "| tool | rows |", "| --- | ---: |", *(f"| {tool} | {n} |" for tool, n in found.tools.items())]
    lines += ["", "| speaker | distance | action | spoken rows |", "| --- | --- | --- | ---: |"]
    lines += [f"| {' | '.join(key)} | {n} |" for key, n in found.verdicts.items()]
    fewest, median, most, words = found.words
    groups, calls, mutes = found.pairs
    lines += [
        "",
        f"Typed: {found.typed}. Spoken with earlier talk: {found.with_context}.",
        f"Groups of one command under several sources: {groups}, {calls} rows for the call, {mutes} for silence.",
        f"Rows by origin of their words: {', '.join(f'{name} {n}' for name, n in found.origins.items())}.",
        f"Distinct texts to act on: {found.texts}. Words in them: {fewest} to {most}, median {median}, {words} in all.",
        "Distinct n-grams: "
        + ", ".join(f"{n}: {count} ({share:.3f})" for n, (count, share) in found.ngrams.items()) + ".",
    ]  # fmt: skip
    return "\n".join(lines)


def to_json(found: Iterable[Census]) -> str:
    """All splits as one JSON document."""
    return json.dumps({one.split: one.as_json() for one in found}, indent=1)


def _action(row: Row) -> str:
    parsed = grammar.parse(row.target)
    assert not isinstance(parsed, Unparseable), row.id
    return kind_of(parsed).value


def _of(rows: Sequence[Row], action: str) -> int:
    return sum(_action(row) == action for row in rows)


def _tool(row: Row) -> str:
    parsed = grammar.parse(row.target)
    return parsed.call.name if isinstance(parsed, ToolAction) else ""


def _ngrams(text: str, n: int) -> Iterator[tuple[str, ...]]:
    words = [bare for word in text.lower().split() if (bare := word.strip('.,!?;:"()'))]
    yield from (tuple(words[at : at + n]) for at in range(len(words) - n + 1))


def _counted(keys: Iterable[Any]) -> dict[Any, int]:
    return dict(sorted(Counter(keys).items()))


def _joined(counts: Mapping[Any, int]) -> dict[str, int]:
    return {"/".join(key): n for key, n in counts.items()}
