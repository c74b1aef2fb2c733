"""Draws the console at the end of a replay as a picture: ``python -m bench.console_picture docs/console.svg``.

The recording goes through the real loop with the real models, and the panel is the one that a terminal shows; nothing
is drawn that was not decided. The picture names no font on another host: looking at it asks nobody for anything.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from agent import events
from agent.assemble import load_catalogue, load_parts, make_session, open_journal
from agent.cli import end
from agent.clock import Pace
from agent.console import LiveConsole
from agent.eventlog import MemorySink
from agent.session import OwnerMode
from agent.settings import Settings
from agent.source_file import FileSource
from agent.turn_work import Limits
from models.store import Store

DEMO = Path(__file__).parent / "demo" / "demo.flac"
COLUMNS = 100
"""Wide enough for a call and for a reason on one line each, narrow enough to be read on a page."""
PATIENCE = Limits(ear_s=60.0, policy_s=60.0)
"""With a clock that computing does not move: a busy machine may draw slowly, it must not draw other decisions."""
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"


class FailedRunError(Exception):
    """Something failed in the run, so its picture would show that instead of the decisions. The message says what."""


async def replay(recording: Path) -> LiveConsole:
    """Replay a recording with the default settings and without enrolment.

    Returns:
        The panel as the session leaves it.

    Raises:
        FailedRunError: when a model failed or was too slow.
        ModelError: when models are missing; names the cure.
        SourceError: when the recording cannot be played.
    """
    settings = Settings()
    catalogue = load_catalogue(settings)
    parts = await asyncio.to_thread(load_parts, settings, Store(), catalogue)
    panel, memory = LiveConsole(blank(COLUMNS)), MemorySink()
    with tempfile.TemporaryDirectory(prefix="voicegate-") as folder:
        journal = open_journal(Path(folder) / "journal.sqlite3")
        try:
            await make_session(
                source=FileSource(recording), settings=settings, parts=parts, catalogue=catalogue, journal=journal,
                sinks=[panel, memory], pace=Pace.FREE, live=False, owner_mode=OwnerMode.INITIATOR, owner=None,
                limits=PATIENCE,
            ).run()  # fmt: skip
        finally:
            journal.close()
    failed = [f"{event.where}: {event.error}" for event in memory.events if isinstance(event, events.Failed)]
    if failed:
        raise FailedRunError("; ".join(failed))
    return panel


def blank(columns: int, *, record: bool = False) -> Console:
    """A console that shows nothing on this terminal.

    Args:
        columns: its width.
        record: True keeps what is printed for ``export_svg``.
    """
    return Console(file=io.StringIO(), record=record, width=columns, force_terminal=True, color_system="truecolor")


def draw(panel: LiveConsole, title: str, columns: int = COLUMNS) -> str:
    """A panel as SVG, the same bytes for the same panel."""
    console = blank(columns, record=True)
    console.print(panel)
    svg = console.export_svg(title=title, theme=DIMMED_MONOKAI, unique_id="voicegate")
    svg = re.sub(r"@font-face\s*\{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("font-family: Fira Code, monospace", f"font-family: {FONTS}")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Replay, draw, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.console_picture", description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", type=Path, metavar="FILE.svg", help="where to write the picture")
    parser.add_argument("--recording", type=Path, default=DEMO, help="what to replay (default: the bundled demo)")
    args = parser.parse_args(argv)
    print(f"replaying {args.recording.name}", file=sys.stderr)
    try:
        panel = asyncio.run(replay(args.recording))
    except FailedRunError as error:
        print(f"not drawn, the run failed: {error}; is the machine busy? Run it again", file=sys.stderr)
        return 1
    args.out.write_text(draw(panel, f"voicegate replay {_shown(args.recording)}"), encoding="utf-8")
    print(f"wrote {args.out}", file=sys.stderr)
    return 0


def _shown(recording: Path) -> str:
    root = Path(__file__).parent.parent
    whole = recording.resolve()
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) else recording.name


if __name__ == "__main__":
    end(main())
