"""The line that a run leaves in the user's data folder, for ``voicegate policies`` to show (``agent.bench_rows``)."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from agent.bench_rows import BenchRow, RowsUnreadableError, Share, rows_file, write_row
from bench.measures import FALSE_EXECUTION, FALSE_REJECTION, PROXIMITY_RULE, SELF_TALK, SIDE_TALK
from bench.rates import Rate, measured
from bench.score import load_run
from models.components import POLICIES

_MEASURES = {
    "side_talk": SIDE_TALK,
    "self_talk": SELF_TALK,
    "speaker_switch": PROXIMITY_RULE,
    "false_execution": FALSE_EXECUTION,
    "false_rejection": FALSE_REJECTION,
}
"""``agent.bench_rows.RATES``, and what each is measured by: trial by trial, no condition weighs more than another."""


def row_of(folder: Path) -> BenchRow | None:
    """The row of a run; None when it was of no policy of the registry, or nothing was played.

    Raises:
        Exception: as ``bench.score.load_run``.
    """
    played, _, config = load_run(folder)
    if config["policy"].partition(":")[0] not in POLICIES or not played:
        return None
    seed = int(config["seed"])
    ended_unix = max(one.result.timing.ended_unix for one in played)
    return BenchRow(
        policy=config["policy"],
        date=datetime.fromtimestamp(ended_unix, UTC).isoformat(timespec="seconds"),
        manifest=config["manifest"]["name"],
        manifest_sha256=config["manifest"]["sha256"],
        folder=str(folder.resolve()),
        pace=config["pace"],
        trials=len(played),
        failed=sum(not one.ok for one in played),
        rates={name: _share(measured(measure, played, seed)) for name, measure in _MEASURES.items()},
    )


def remember(folder: Path) -> None:
    """Keep the row of a run. A row that cannot be kept costs nothing but itself, and is said on standard error."""
    try:
        row = row_of(folder)
        if row is not None:
            write_row(rows_file(), row)
    except (OSError, RowsUnreadableError) as error:
        print(f"voicegate policies will not show this run: {error}", file=sys.stderr)


def _share(rate: Rate | None) -> Share | None:
    return None if rate is None else Share(**rate)
