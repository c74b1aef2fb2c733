"""What a report is made of, before it becomes HTML or Markdown: sections of tables, figures and sentences.

All text in here is plain. Whoever writes it down escapes it, so that no log can say anything in the page's language.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.report.failures import Failures

Tone = Literal["", "absent", "better", "worse"]
"""What a cell is besides its text: of nothing, or of a change that is no noise."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell.

    Attributes:
        main: the figure.
        lines: what belongs to it (its interval, its counts).
        tone: whether it is more than its text.
    """

    main: str
    lines: tuple[str, ...] = ()
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        head: what the row is about.
        cells: one for each column.
        detail: what has to be known about the row.
        run: the number of the run that the row belongs to, or None.
    """

    head: str
    cells: tuple[Cell, ...]
    detail: str = ""
    run: int | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column.

    Attributes:
        name: what the column is about.
        detail: what has to be known about it.
        run: the number of the run that the column belongs to, or None.
    """

    name: str
    detail: str = ""
    run: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that belong together.

    Attributes:
        title: what they share, or an empty text.
        rows: the rows.
        foreign: whether they are quoted from elsewhere.
    """

    title: str
    rows: tuple[Row, ...]
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        caption: what it shows.
        corner: the head of the first column.
        columns: the others.
        groups: its rows.
        notes: what has to be known to read it.
    """

    caption: str
    corner: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """Drawings that belong together.

    Attributes:
        caption: what they show.
        drawings: complete SVG elements, with a title and a description each.
        keys: the runs that are drawn, by number and name, in the order of the legend; empty without a legend.
        notes: what has to be known to read it.
    """

    caption: str
    drawings: tuple[str, ...]
    keys: tuple[tuple[int, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A sentence or more."""

    text: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Sentences one under the other.

    Attributes:
        items: the sentences.
        warning: whether they say that something is wrong.
    """

    items: tuple[str, ...]
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks that are shown on demand.

    Attributes:
        summary: what is in there.
        blocks: the blocks.
    """

    summary: str
    blocks: tuple[Block, ...]


Block = Table | Figure | Paragraph | Listing | Folded | Failures


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report.

    Attributes:
        anchor: its name in links.
        title: its heading.
        blocks: what is in it.
    """

    anchor: str
    title: str
    blocks: tuple[Block, ...]
