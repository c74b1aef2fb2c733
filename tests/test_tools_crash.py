"""Kill -9 at any instant: no call runs twice, and none is lost without a record of an unknown outcome.

A child process executes the same ten turns again and again under grants that are minted anew each time, as if every
turn were delivered anew after each crash, and dies by SIGKILL: after a number of executed lines of ``tools`` (so that
each line of executor and journal is a possible last one) or after a span of real time (so that a commit may be cut).
Effects go to a file of their own, one appended line each: they are the truth that the journal is held against.

What a killed process cannot show is a power cut; for that the journal relies on SQLite's synchronous=FULL.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

import pytest

import tools.executor
from gate.grants import GrantLedger
from tests.support_tools import HandClock, Ticks, fast_directory, good_call, mint
from tools.catalogue import ToolCatalogue
from tools.executor import Executor
from tools.journal import Journal
from tools.records import ExecutionState as State
from tools.spec import ToolSpec

TURNS = [f"turn-{number}" for number in range(10)]
_TOOLS = str(Path(tools.executor.__file__).parent)


# The child ---------------------------------------------------------------------------------------------------------


class _FileEffects:
    """Has one durable effect a call: a line appended to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def perform(self, tool: ToolSpec, *, key: str) -> str:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{key}\n".encode())
        os.close(descriptor)
        return "appended"


class _LineCounter:
    """Counts executed lines of ``tools`` in all threads; kills the process at the given one."""

    def __init__(self, kill_at: int) -> None:
        self.lines = 0
        self._kill_at = kill_at

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(_TOOLS) else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        self.lines += 1
        if self.lines == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._line


async def _session(folder: Path, report: int) -> None:
    journal = Journal(folder / "journal.db", unix_s=Ticks())
    os.write(report, b"o")
    executor = Executor(
        ToolCatalogue.builtin(),
        _FileEffects(folder / "effects"),
        journal,
        GrantLedger(),
        HandClock(),
        session_id="session-1",
    )
    for turn in TURNS:
        await executor.execute(good_call(), mint(good_call(), turn), now_sample=0)
    await executor.aclose()
    journal.close()


def _child(folder: Path, kill_at_line: int, report: int) -> int:
    counter = _LineCounter(kill_at_line)
    if kill_at_line >= 0:
        threading.settrace(counter)
        sys.settrace(counter)
    asyncio.run(_session(folder, report))
    sys.settrace(None)
    return counter.lines


def _nursery() -> None:
    """Forks one child for each line of JSON on standard input and says how it ended.

    A fork of a process that has imported everything, and has no threads, dies a hundred times in the time in which a
    new interpreter would start ten times.
    """
    for line in sys.stdin:
        order = json.loads(line)
        report, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(report)
            lines = _child(Path(order["folder"]), order["kill_at_line"], write)
            os.write(write, str(lines).encode())
            os._exit(0)
        os.close(write)
        if order["after_open"]:
            os.read(report, 1)
        if order["kill_after_s"] is not None:
            time.sleep(order["kill_after_s"])
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        said = os.read(report, 32).decode()
        os.close(report)
        answer = {
            "killed": os.WIFSIGNALED(status),
            "exit": os.waitstatus_to_exitcode(status),
            "lines": said.lstrip("o"),
        }
        print(json.dumps(answer), flush=True)


# The parent --------------------------------------------------------------------------------------------------------


@dataclass
class Nursery:
    """The process that children are forked from."""

    stdin: IO[str]
    stdout: IO[str]

    def run(
        self, folder: Path, *, kill_at_line: int = -1, kill_after_s: float | None = None, after_open: bool = False
    ) -> dict[str, Any]:
        order = {
            "folder": str(folder),
            "kill_at_line": kill_at_line,
            "kill_after_s": kill_after_s,
            "after_open": after_open,
        }
        self.stdin.write(f"{json.dumps(order)}\n")
        self.stdin.flush()
        answer: dict[str, Any] = json.loads(self.stdout.readline())
        assert answer["exit"] in (0, -signal.SIGKILL)
        return answer


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    if not hasattr(os, "fork"):
        pytest.skip("needs fork and SIGKILL")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.test_tools_crash"],
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    yield Nursery(process.stdin, process.stdout)
    process.stdin.close()
    assert process.wait(10) == 0
    process.stdout.close()


def effects(folder: Path) -> Counter[str]:
    """How often each turn had its effect."""
    file = folder / "effects"
    return Counter(line.split(":")[1] for line in file.read_text().splitlines()) if file.exists() else Counter()


def check(folder: Path) -> Counter[State]:
    """Open the journal as the next start does and hold it against the effects."""
    landed = effects(folder)
    assert all(count == 1 for count in landed.values()), f"ran twice: {landed}"
    journal = Journal(folder / "journal.db", unix_s=Ticks())
    states = {row.turn_id: row.state for row in journal.rows()}
    journal.close()
    assert set(states.values()) <= {State.DONE, State.OUTCOME_UNKNOWN}
    assert set(landed) <= set(states), "an effect without a record"
    assert {turn for turn, state in states.items() if state is State.DONE} <= set(landed), "done without an effect"
    return Counter(states.values())


def finish(nursery: Nursery, folder: Path) -> Counter[State]:
    """Let one child live: every turn has its one record then, and what was unknown stays so."""
    unknown = check(folder)[State.OUTCOME_UNKNOWN]
    assert nursery.run(folder)["exit"] == 0
    states = check(folder)
    assert states.total() == len(TURNS)
    assert states[State.OUTCOME_UNKNOWN] == unknown
    return states


def kill_at_lines(nursery: Nursery, base: Path, fractions: list[float]) -> list[Counter[State]]:
    """Kill one fresh run at each of the given parts of its lines."""
    whole = base / "whole"
    whole.mkdir()
    lines = int(nursery.run(whole, kill_at_line=0)["lines"])
    ends = []
    for number, fraction in enumerate(fractions):
        folder = base / str(number)
        folder.mkdir()
        answer = nursery.run(folder, kill_at_line=1 + int(fraction * (lines - 1)))
        assert answer["killed"] or fraction > 0.95  # the two threads' lines interleave, so the total varies a little
        ends.append(finish(nursery, folder))
    return ends


def kill_after_times(nursery: Nursery, folder: Path, kills: int, seed: int) -> int:
    """Kill one run again and again at random times, each child starting where the last one died.

    Most die while they execute, one in four while they open and recover. Returns how many outcomes are unknown.
    """
    draw = random.Random(seed)
    for number in range(kills):
        nursery.run(folder, kill_after_s=draw.uniform(0.0, 0.04), after_open=number % 4 != 3)
        check(folder)
    return finish(nursery, folder)[State.OUTCOME_UNKNOWN]


def test_killed_at_any_line_no_call_runs_twice_and_none_is_lost(nursery: Nursery) -> None:
    with tempfile.TemporaryDirectory(dir=fast_directory()) as folder:
        for states in kill_at_lines(nursery, Path(folder), [0.05, 0.31, 0.52, 0.77]):
            assert states[State.OUTCOME_UNKNOWN] <= 1


def test_killed_at_any_time_no_call_runs_twice_and_none_is_lost(nursery: Nursery, tmp_path: Path) -> None:
    kill_after_times(nursery, tmp_path, kills=4, seed=1)


@pytest.mark.slow
def test_a_hundred_kills_run_nothing_twice_and_lose_nothing(nursery: Nursery, tmp_path: Path) -> None:
    draw = random.Random(2)
    ends = kill_at_lines(nursery, tmp_path, [draw.random() for _ in range(60)])
    unknown = sum(states[State.OUTCOME_UNKNOWN] for states in ends)
    assert all(states[State.OUTCOME_UNKNOWN] <= 1 for states in ends)
    assert 0 < unknown < 60, "kills must fall inside and outside the window between the two commits"
    cut = 0
    for seed in range(50):
        with tempfile.TemporaryDirectory() as folder:
            cut += kill_after_times(nursery, Path(folder), kills=8, seed=seed)
        if seed >= 4 and cut > 0:  # on a fast machine the time between the two commits is seldom hit
            break
    assert cut > 0


if __name__ == "__main__":
    _nursery()
