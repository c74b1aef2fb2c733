"""What the journal holds, as lines for a person."""

from __future__ import annotations

from collections.abc import Sequence

from tools.journal import JournalRow


def journal_line(row: JournalRow) -> str:
    """One call as one line: its state, the tool, the turn that licensed it, and what the back end said."""
    return f"{row.state:<16} {row.tool}  {row.turn_id}  {row.detail}"


def journal_lines(rows: Sequence[JournalRow]) -> list[str]:
    """A heading and a line for each call. Calls that were refused, declined or taken back in time never got there."""
    if not rows:
        return ["journal: no calls"]
    return [f"journal: {len(rows)} call{'s' * (len(rows) != 1)}", *(f"  {journal_line(row)}" for row in rows)]
