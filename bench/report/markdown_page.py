"""A report as Markdown: the same tables without the drawings and the list of failures, to be pasted into a README."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bench.report.blocks import Block, Cell, Figure, Folded, Listing, Paragraph, Section, Table
from bench.report.failures import Failures
from bench.report.svg import text_of

_SPECIAL = re.compile(r"([\\`*\[\]|~#]|(?<!\w)_|_(?!\w))")
_AT_START = re.compile(r"^([-+>]|\d+[.)])(?=\s|$)")


def markdown_page(title: str, sections: Sequence[Section], closing: Sequence[str] = ()) -> str:
    """The text.

    Args:
        title: its title.
        sections: its parts.
        closing: sentences at its end.
    """
    lines = [f"# {plain(title)}", ""]
    for section in sections:
        lines += [f"## {plain(section.title)}", ""]
        for block in section.blocks:
            lines += _block(block)
    for sentence in closing:
        lines += [_line(sentence), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def plain(text: str) -> str:
    """A text in which nothing means anything to Markdown, HTML within it included, on one line."""
    one_line = " ".join(text.encode("utf-8", "replace").decode("utf-8").split())
    safe = one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", safe)


def _line(text: str) -> str:
    return _AT_START.sub(lambda found: f"&#{ord(found[1][0])};{found[1][1:]}", plain(text))


def _block(block: Block) -> Iterator[str]:
    match block:
        case Table():
            yield from _table(block)
        case Paragraph(text):
            yield from (_line(text), "")
        case Listing(items):
            yield from (f"- {_line(item)}" for item in items)
            yield ""
        case Folded(summary, blocks):
            yield from ("<details>", f"<summary>{text_of(summary)}</summary>", "")
            for inner in blocks:
                yield from _block(inner)
            yield from ("</details>", "")
        case Figure() | Failures():
            return


def _table(table: Table) -> Iterator[str]:
    yield from (f"**{plain(table.caption)}**", "")
    heads = [f"{plain(column.name)}{_below(column.detail)}" for column in table.columns]
    yield _cells([plain(table.corner), *heads])
    yield _cells(["---", *("---:" for _ in heads)])
    for group in table.groups:
        if group.title:
            yield _cells([f"*{plain(group.title)}*", *("" for _ in heads)])
        for row in group.rows:
            yield _cells([f"{plain(row.head)}{_below(row.detail)}", *(_cell(cell) for cell in row.cells)])
    yield ""
    for note in table.notes:
        yield from (_line(note), "")


def _below(detail: str) -> str:
    return f" ({plain(detail)})" if detail else ""


def _cell(cell: Cell) -> str:
    main = plain(cell.main)
    return f"{main} ({'; '.join(plain(line) for line in cell.lines)})" if cell.lines else main


def _cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
