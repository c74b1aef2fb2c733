"""What the papers print, quoted. Measured on other audio: to be read beside a run, never compared item by item."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from bench.report.blocks import Cell, Group, Row
from bench.report.wording import absent_cell

FOREIGN = "published, other audio: not comparable item by item"
NOT_STATED = "not stated"


@dataclass(frozen=True, slots=True)
class Published:
    """Rows that one place of a paper prints.

    Attributes:
        paper: the paper's title and where it is to be found.
        kind: which of our tables they stand in: ``vgbench``, ``cues``, ``proximity`` or ``ear``.
        where: the table or section.
        heading: what was measured.
        n: how many items stand behind a figure, where that is said.
        rows: the systems, each with its figures in percent.
    """

    paper: str
    kind: str
    where: str
    heading: str
    n: Mapping[str, int]
    rows: Mapping[str, Mapping[str, float]]


@cache
def published() -> tuple[Published, ...]:
    """All that ``published.toml`` holds."""
    read = tomllib.loads(files("bench.report").joinpath("published.toml").read_text(encoding="utf-8"))
    return tuple(_block(block, read["papers"]) for block in read["blocks"])


def _block(block: Mapping[str, Any], papers: Mapping[str, Mapping[str, str]]) -> Published:
    paper = papers[block["paper"]]
    rows = {row["system"]: {key: value for key, value in row.items() if key != "system"} for row in block["rows"]}
    return Published(
        f"{paper['title']} ({paper['source']})", block["kind"], block["where"], block["heading"], block.get("n", {}),
        rows,
    )  # fmt: skip


def published_groups(kind: str, keys: Sequence[str]) -> tuple[Group, ...]:
    """The rows of a kind as groups of a table, one column for each key."""
    return tuple(
        Group(
            f"{block.heading}: {FOREIGN} ({block.where})",
            tuple(
                Row(system, tuple(_cell(values.get(key), block.n.get(key)) for key in keys))
                for system, values in block.rows.items()
            ),
            foreign=True,
        )
        for block in published()
        if block.kind == kind
    )


def sources(kind: str) -> tuple[str, ...]:
    """The papers that rows of a kind are quoted from."""
    return tuple(dict.fromkeys(f"Quoted from {block.paper}." for block in published() if block.kind == kind))


def _cell(value: float | None, n: int | None) -> Cell:
    if value is None:
        return absent_cell(NOT_STATED)
    return Cell(f"{value}%", () if n is None else (f"n {n}",))
