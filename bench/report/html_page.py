"""A report as one HTML page: style and drawings inside, no script, nothing fetched but the recordings beside it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from bench.report import series
from bench.report.blocks import Block, Cell, Column, Figure, Folded, Group, Listing, Paragraph, Row, Section, Table
from bench.report.failures import Failures
from bench.report.failures_html import failures_html, scrolled
from bench.report.svg import text_of

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; media-src 'self' file: data:; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
"""Whatever a log may hold, the browser runs no script in this page and asks no other host for anything."""


def html_page(title: str, sections: Sequence[Section], closing: Sequence[str] = ()) -> str:
    """The page.

    Args:
        title: its title.
        sections: its parts.
        closing: sentences at its end.
    """
    style = files("bench.report").joinpath("style.css").read_text(encoding="utf-8")
    links = "".join(f'<li><a href="#{one.anchor}">{text_of(one.title)}</a></li>' for one in sections)
    body = "".join(_section(one) for one in sections)
    ending = "".join(f"<p>{text_of(sentence)}</p>" for sentence in closing)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{text_of(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text_of(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f'<header><h1>{text_of(title)}</h1><nav aria-label="Sections"><ul>{links}</ul></nav></header>\n'
        f"<main>\n{body}</main>\n<footer>{ending}</footer>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    blocks = "\n".join(_block(block) for block in section.blocks)
    return (
        f'<section id="{section.anchor}" aria-labelledby="{section.anchor}-heading">'
        f'<h2 id="{section.anchor}-heading">{text_of(section.title)}</h2>\n{blocks}\n</section>\n'
    )


def _block(block: Block) -> str:
    match block:
        case Table():
            return _table(block)
        case Figure():
            return _figure(block)
        case Paragraph(text):
            return f"<p>{text_of(text)}</p>"
        case Listing(items, warning):
            kind = ' class="warning"' if warning else ""
            return f"<ul{kind}>{''.join(f'<li>{text_of(item)}</li>' for item in items)}</ul>"
        case Folded(summary, blocks):
            inner = "".join(_block(one) for one in blocks)
            return f"<details><summary>{text_of(summary)}</summary>{inner}</details>"
        case Failures():
            return failures_html(block)


def _notes(notes: Sequence[str]) -> str:
    return "".join(f'<p class="note">{text_of(note)}</p>' for note in notes)


def _table(table: Table) -> str:
    corner = f'<th scope="col">{text_of(table.corner)}</th>' if table.corner else "<td></td>"
    heads = "".join(_column(column) for column in table.columns)
    bodies = "".join(_rows(group, len(table.columns) + 1) for group in table.groups)
    caption = f"<caption><span>{text_of(table.caption)}</span></caption>"
    drawn = f"<table>{caption}<thead><tr>{corner}{heads}</tr></thead>{bodies}</table>"
    return scrolled(drawn, table.caption) + _notes(table.notes)


def _column(column: Column) -> str:
    swatch = "" if column.run is None else f"{series.swatch(column.run)} "
    detail = f"<small>{text_of(column.detail)}</small>" if column.detail else ""
    return f'<th scope="col">{swatch}{text_of(column.name)}{detail}</th>'


def _rows(group: Group, width: int) -> str:
    title = ""
    if group.title:
        title = f'<tr><th scope="rowgroup" colspan="{width}"><span>{text_of(group.title)}</span></th></tr>'
    rows = "".join(_row(row) for row in group.rows)
    kind = ' class="foreign"' if group.foreign else ""
    return f"<tbody{kind}>{title}{rows}</tbody>"


def _row(row: Row) -> str:
    swatch = "" if row.run is None else f"{series.swatch(row.run)} "
    detail = f"<small>{text_of(row.detail)}</small>" if row.detail else ""
    cells = "".join(_cell(cell) for cell in row.cells)
    return f'<tr><th scope="row">{swatch}{text_of(row.head)}{detail}</th>{cells}</tr>'


def _cell(cell: Cell) -> str:
    kind = f' class="{cell.tone}"' if cell.tone else ""
    lines = "".join(f"<small>{text_of(line)}</small>" for line in cell.lines)
    return f"<td{kind}>{text_of(cell.main)}{lines}</td>"


def _figure(figure: Figure) -> str:
    if not figure.drawings:
        drawn = '<p class="absent">Not run: there is nothing to draw.</p>'
    else:
        drawn = f'<div class="panels">{"".join(figure.drawings)}</div>'
    keys = "".join(f"<li>{series.swatch(run)} {text_of(name)}</li>" for run, name in figure.keys)
    legend = f'<ul class="legend" aria-label="Runs">{keys}</ul>' if keys else ""
    return (
        f"<figure><figcaption>{text_of(figure.caption)}</figcaption>{legend}{drawn}{_notes(figure.notes)}</figure>"
    )  # fmt: skip
