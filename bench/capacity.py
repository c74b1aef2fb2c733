"""What a wearer costs: ``python -m bench.capacity``.

Two measurements, with rehearsed ears, so that neither recogniser nor language model is in them (docs/scale.md adds
those up):

- *state*: bytes of a session that is silent, between turns, and in the middle of one (``bench.session_state``);
- *load*: the largest number of simultaneous sessions that keep real time on this machine (``bench.real_time``), with a
  policy that answers at once, and with one that asks an OpenAI-compatible endpoint over HTTP which takes a fixed time.

The endpoint runs on the same cores. A number that does not keep real time is asked once more: on a machine that is
shared one stumble may be somebody else's.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from bench import real_time, session_state
from bench.loopback_endpoint import endpoint
from bench.provenance import cores, machine
from bench.wearers import TURN_EVERY_S


def report_state(sessions: int) -> None:
    """Measure and print bytes a session."""
    print(session_state.HEADER)
    for name in session_state.STATES:
        # Each in a fresh process: what one leaves free in the heap the next would take.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            print(process.submit(_state, name, sessions).result().line(), flush=True)


def _state(name: str, sessions: int) -> session_state.SessionState:
    with tempfile.TemporaryDirectory(prefix="voicegate-capacity-") as folder:
        script = session_state.STATES[name]
        return asyncio.run(session_state.measure_state(name, sessions, script, Path(folder)))


def report_load(players: real_time.Machine, name: str, base_url: str | None, args: argparse.Namespace) -> int:
    """Search and print the largest number of sessions.

    Args:
        players: plays sessions.
        name: what the policy is.
        base_url: its endpoint, or None.
        args: the command line's.

    Returns:
        The largest number.
    """
    print(f"\n{name}:\n\n{real_time.HEADER}", flush=True)

    def keeps(sessions: int) -> bool:
        for _ in range(2):
            found = players.play(sessions, args.seconds, base_url)
            print(found.line(), flush=True)
            if found.keeps_real_time:
                return True
        return False

    best = real_time.largest(keeps, args.first, args.most)
    print(f"\nthe largest number that kept real time: {best} sessions", flush=True)
    return best


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--state-sessions", type=int, default=40, metavar="N", help="sessions measured (default 40)")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each number is watched (default 4)")
    parser.add_argument("--processes", type=int, default=cores(), help="event loops (default: one a core)")
    parser.add_argument("--first", type=int, default=16, metavar="N", help="sessions to begin with (default 16)")
    parser.add_argument("--most", type=int, default=1024, metavar="N", help="sessions to end at (default 1024)")
    parser.add_argument("--service-ms", type=float, default=300.0, help="the endpoint's time for a reply (default 300)")
    parser.add_argument("--only", choices=["state", "instant", "endpoint"], help="one part of it")
    args = parser.parse_args(argv)
    here = machine()
    print(f"{here['processor']}, {here['cores']} cores, {args.processes} processes; a turn every {TURN_EVERY_S:g} s")
    print(f"real time: loop lag p99 at most {real_time.LAG_P99_MS:g} ms, no frame done {real_time.LATE_MS:g} ms late\n")
    if args.only in (None, "state"):
        report_state(args.state_sessions)
    if args.only == "state":
        return 0
    with real_time.machine(args.processes) as players:
        if args.only in (None, "instant"):
            report_load(players, "a policy that answers at once", None, args)
        if args.only in (None, "endpoint"):
            with endpoint(args.service_ms / 1000) as base_url:
                report_load(players, f"a policy that asks an endpoint of {args.service_ms:g} ms", base_url, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
