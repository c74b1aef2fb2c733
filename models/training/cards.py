"""Write what was measured into a model card, between two marks, and leave the rest of the card alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

BEGIN = "<!-- measured: written by the training command, do not edit -->"
END = "<!-- end of measured -->"


def write_measured(card: Path, lines: Sequence[str]) -> None:
    """Replace the text between the marks; a card that does not exist yet is made with the marks alone."""
    text = card.read_text(encoding="utf-8") if card.is_file() else f"{BEGIN}\n{END}\n"
    before, found, rest = text.partition(BEGIN)
    if not found or END not in rest:
        raise ValueError(f"{card} lacks the marks between which measurements go")
    after = rest.partition(END)[2]
    card.parent.mkdir(parents=True, exist_ok=True)
    body = "\n".join(lines).rstrip("\n")
    card.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}", encoding="utf-8")


def facts(meta: Mapping[str, Any]) -> str:
    """The description that lies beside the weights, as a table with one row a value."""
    rows = ["| fact | value |", "| --- | --- |"]
    rows += [f"| {name} | {value} |" for name, value in _flat(meta)]
    return "\n".join([*rows, ""])


def _flat(meta: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in meta.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}: ")
        else:
            yield prefix + name, f"{value:.4g}" if isinstance(value, float) else str(value)
