"""Plays every fault and writes what came of it to ``docs/reliability.md``: ``python -m bench.reliability``.

``--kills N`` also kills N processes at random instants (default 100), and Ctrl-C is sent to real ones. Exit code 1 when
a promise was broken: a call ran twice, one that ran is not in the journal, or one has no end.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.broker_faults import BrokerOutcome, play_broker_faults
from bench.faults import FAULTS, Fault
from bench.process_faults import Interrupted, Kills, interrupt, kill_at_random_instants
from bench.stage import Observed

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "reliability.md"

_HEAD = """# What comes of faults

Written by `python -m bench.reliability`, which plays each fault through the loop, gate, executor, journal and event log
that `voicegate` runs, with rehearsed ears and policy in place of weights (`bench/faults.py`, `bench/stage.py`).
`tests/test_reliability.py` holds every row. Under all of them:

- no call runs twice; an unknown outcome is never tried again by itself;
- a call that ran is in the journal, as *done*, *failed* or *outcome unknown*;
- each call that was decided gets exactly one end in the events, and what comes after its time limit is added to it.

Outcomes: **done**, it took effect; **failed**, it did not; **outcome_unknown**, it may have; **cancelled**, withdrawn
before it ran; **refused**, not run. In most plays a second command follows the fault; its end shows that the gate works
on. "Started" counts the calls that a tool was given, "landed" those that took effect.

"""
_COLUMNS = "| What breaks | Fault | Decided | Outcomes | Journal after a restart | Started | Landed |"


async def observe(fault: Fault) -> Observed:
    """Play one fault in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return await fault.play(Path(folder))


async def table(play: Callable[[Fault], Awaitable[Observed]] = observe) -> str:
    """The table of the faults inside a process.

    Args:
        play: plays a fault, or knows what came of it.

    Raises:
        RuntimeError: when a promise was broken.
    """
    lines = [_COLUMNS, "|---|---|---|---|---|---|---|"]
    for fault in FAULTS.values():
        seen = await play(fault)
        if seen.violations:
            raise RuntimeError(f"{fault.name}: {'; '.join(seen.violations)}")
        lines.append(_row(fault, seen))
    return "\n".join(lines) + "\n"


def _row(fault: Fault, seen: Observed) -> str:
    cells = [
        fault.group, fault.what, _listed(seen.decisions), _listed(seen.outcomes), _listed(seen.journal),
        str(seen.started), str(seen.landed),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _listed(items: tuple[str, ...]) -> str:
    return "; ".join(items) or "none"


def _process_table(kills: Kills, stops: list[tuple[str, Interrupted]]) -> str:
    lines = [
        "## Faults that end the process",
        "",
        "A real `voicegate replay` in a process of its own (`bench/process_faults.py`), its tool writing each effect to"
        " a file.",
        "",
        f"**kill -9** at {kills.kills} random instants around executions: {kills.effects} effects, each once; in the"
        f" journal, {kills.done} calls are done and {kills.unknown} of unknown outcome; in the event file, {kills.torn}"
        f" torn last lines, all others whole; promises broken: {len(kills.violations)}.",
        "",
        "| Ctrl-C | Exit code | Ends after | Last event | Outcomes | Journal after a restart |",
        "|---|---|---|---|---|---|",
    ]
    for what, seen in stops:
        lines.append(
            f"| {what} | {seen.exit_code} | {seen.seconds:.1f} s | {seen.last_event} | {_listed(seen.outcomes)} |"
            f" {_listed(seen.journal)} |"
        )
    return "\n".join(lines) + "\n"


def _broker_table(found: list[BrokerOutcome]) -> str:
    lines = [
        "## Faults of the broker",
        "",
        "The MQTT output against a real mosquitto and against peers that break the protocol"
        " (`tests/test_agent_output_mqtt_broker.py`).",
        "",
        "| Promise | Variants | Result |",
        "|---|---|---|",
        *(f"| {item.promise} | {item.variants} | {item.result} |" for item in found),
    ]
    return "\n".join(lines) + "\n"


def _stops() -> list[tuple[str, Interrupted]]:
    found = []
    for what, model, tool, times in (
        ("while a model computes", "hang", "", 1),
        ("while a tool hangs", "", "hang", 1),
        ("twice, while a tool refuses to end", "", "refuse to end", 2),
    ):
        with tempfile.TemporaryDirectory() as folder:
            found.append((what, interrupt(Path(folder), model=model, tool=tool, times=times)))
    return found


def main() -> int:
    """Write the document."""
    parser = argparse.ArgumentParser(prog="python -m bench.reliability", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="how many processes to kill (default 100)")
    parser.add_argument("--out", type=Path, default=DOCUMENT, metavar="FILE", help=f"default {DOCUMENT}")
    args = parser.parse_args()
    try:
        rows = asyncio.run(table())
    except RuntimeError as error:
        print(f"a promise was broken: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        kills = kill_at_random_instants(Path(folder), args.kills, seed=3)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    broker = play_broker_faults()
    parts = [f"{_HEAD}{rows}", _process_table(kills, _stops()), _broker_table(broker)]
    args.out.write_text("\n".join(parts), encoding="utf-8")
    print(args.out.read_text(encoding="utf-8"))
    return 1 if kills.violations or any(item.result == "broken" for item in broker) else 0


if __name__ == "__main__":
    sys.exit(main())
