"""Faults that end the whole process: kill -9 around executions, Ctrl-C once and twice.

A real ``voicegate replay`` runs in a process of its own (``bench.rehearsed_voicegate``). Its tool appends a line to a
file: that file is the truth, and the journal and the event file are held against it.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from agent import events
from agent.clock import unix_time_s
from agent.jsonl import read_events
from bench.rehearsed_voicegate import main as voicegate
from bench.rehearsed_voicegate import write_settings, write_talk
from bench.stage import HALL, KITCHEN
from tools.journal import Journal

COMMANDS = 6
LIMIT_S = 60.0
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Kills:
    """What a number of kills came to.

    Attributes:
        kills: processes that died by SIGKILL.
        finished: processes that ended before their kill.
        effects: lines that the tool wrote.
        done: calls that the journal calls done.
        unknown: calls that it calls unknown.
        torn: broken last lines of event files.
        violations: broken promises; empty when all were kept.
    """

    kills: int
    finished: int
    effects: int
    done: int
    unknown: int
    torn: int
    violations: tuple[str, ...]


def kill_at_random_instants(folder: Path, kills: int, seed: int) -> Kills:
    """Kill a replay of ``COMMANDS`` commands again and again, every time at another instant of its executions.

    All runs share one journal, so each also opens what the one before it left behind.

    Args:
        folder: an empty one, on a real disk if commits are to be cut.
        kills: how many processes to kill.
        seed: of the instants.
    """
    talk, settings = folder / "talk.wav", write_settings(folder)
    write_talk(talk, *(KITCHEN if number % 2 else HALL for number in range(COMMANDS)))
    arguments = ["--settings", str(settings), "replay", str(talk), "--json", "--pace", "free"]
    draw = random.Random(seed)
    with _children() as start:
        whole_s = _first_to_last_effect_s(start(folder, arguments))
        dead = finished = 0
        while dead < kills and finished < kills:
            child = start(folder, arguments)
            child.wait_for_effects(1)
            time.sleep(draw.uniform(0.0, whole_s))
            if child.kill():
                dead += 1
            else:
                finished += 1
    return _judge(folder, dead, finished)


class _Child:
    """A forked ``voicegate``; counts the effects that it adds."""

    def __init__(self, folder: Path, process: multiprocessing.process.BaseProcess, ready: Connection) -> None:
        self._effects = folder / "effects"
        self._before = self._lines()
        self._process = process
        process.start()
        ready.recv()

    def _lines(self) -> int:
        return self._effects.read_bytes().count(b"\n") if self._effects.exists() else 0

    def wait_for_effects(self, count: int) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while self._lines() - self._before < count and self._process.is_alive() and time.monotonic() < deadline_s:
            time.sleep(0.0005)

    def kill(self) -> bool:
        """Kill -9; says whether it was still alive."""
        self._process.kill()  # no error when it has ended
        self._process.join(LIMIT_S)
        return self._process.exitcode == -signal.SIGKILL


def _first_to_last_effect_s(child: _Child) -> float:
    child.wait_for_effects(1)
    start_s = time.monotonic()
    child.wait_for_effects(COMMANDS)
    whole_s = time.monotonic() - start_s
    child.wait_for_effects(COMMANDS + 1)  # until it has ended
    return whole_s


@contextmanager
def _children() -> Iterator[type]:
    """Starts children by forking a server that has imported everything: a hundred in the time of ten interpreters."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bench.process_faults"])
    living: list[multiprocessing.process.BaseProcess] = []

    class Starter(_Child):
        def __init__(self, folder: Path, arguments: list[str]) -> None:
            receive, send = context.Pipe(duplex=False)
            process = context.Process(target=_run_child, args=(str(folder), arguments, send), daemon=True)
            living.append(process)
            super().__init__(folder, process, receive)

    try:
        yield Starter
    finally:
        for process in living:
            process.kill()
            process.join(LIMIT_S)


def _run_child(folder: str, arguments: list[str], ready: Connection) -> None:
    os.environ["REHEARSAL_EFFECTS"] = str(Path(folder) / "effects")
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the rest of this process
    ready.send("ready")
    sys.exit(voicegate(arguments))


def _judge(folder: Path, dead: int, finished: int) -> Kills:
    landed = Counter((folder / "effects").read_text().splitlines())
    # Opened as the next start does, which is when a call that was cut off becomes known as such.
    journal = Journal(folder / "journal.sqlite3", unix_s=unix_time_s)
    states = {row.key: str(row.state) for row in journal.rows()}
    journal.close()
    violations = [f"{key} ran {count} times" for key, count in landed.items() if count > 1]
    violations += [f"{key} ran and is not in the journal" for key in landed.keys() - states.keys()]
    violations += [f"{key} is done, but never ran" for key, s in states.items() if s == "done" and key not in landed]
    violations += [f"{key} is {s}" for key, s in states.items() if s not in ("done", "outcome_unknown")]
    path = folder / "events.jsonl"
    written = list(read_events(path))  # raises when a whole line is no event
    said_done = [event for event in written if isinstance(event, events.Executed) and event.outcome == "done"]
    turns = {f"{key.split(':')[0]}:{key.split(':')[1]}" for key, state in states.items() if state == "done"}
    violations += [
        f"the events call {event.session}:{event.turn} done, the journal does not"
        for event in said_done
        if f"{event.session}:{event.turn}" not in turns
    ]
    counts = Counter(states.values())
    torn = sum(1 for line in path.read_bytes().splitlines() if line and not line.endswith(b"}"))
    return Kills(
        dead, finished, landed.total(), counts["done"], counts["outcome_unknown"], torn, tuple(violations)
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Interrupted:
    """How a process ended after Ctrl-C.

    Attributes:
        exit_code: its exit code.
        seconds: real seconds from the (last) Ctrl-C to its end.
        last_event: the kind of the last event in the file.
        outcomes: the outcomes in the event file.
        journal: the calls' states as the next start finds them.
        effects: lines that the tool wrote.
        numbered: whether the events are numbered without a hole.
        said: what it wrote to standard error.
    """

    exit_code: int
    seconds: float
    last_event: str
    outcomes: tuple[str, ...]
    journal: tuple[str, ...]
    effects: int
    numbered: bool
    said: str


def interrupt(folder: Path, *, model: str = "", tool: str = "", times: int = 1) -> Interrupted:
    """Send Ctrl-C to a real ``voicegate replay`` while its policy or its tool is at work.

    Args:
        folder: an empty one.
        model: "hang": the policy never answers, and Ctrl-C comes then.
        tool: "hang" or "refuse to end": the tool never answers, and Ctrl-C comes then.
        times: how often, 0.2 s apart.

    Raises:
        TimeoutError: when it never got to where it was to be interrupted, or did not end.
    """
    talk, settings, effects = folder / "talk.wav", write_settings(folder), folder / "effects"
    write_talk(talk, KITCHEN, HALL)
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.rehearsed_voicegate", "--settings", str(settings), "replay", str(talk), "--json"],
        cwd=ROOT,
        env={**os.environ, "REHEARSAL_EFFECTS": str(effects), "REHEARSAL_MODEL": model, "REHEARSAL_TOOL": tool},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        reached = effects.with_suffix(".model") if model else effects
        deadline_s = time.monotonic() + LIMIT_S
        while not reached.exists():
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise TimeoutError(f"it never got there (exit code {process.poll()})")
            time.sleep(0.005)
        for number in range(times):
            if number:
                time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            start_s = time.monotonic()
        _, said = process.communicate(timeout=LIMIT_S)
        seconds = time.monotonic() - start_s
    except subprocess.TimeoutExpired as error:
        raise TimeoutError("it does not end after Ctrl-C") from error
    finally:
        process.kill()
        process.wait()
    written = list(read_events(folder / "events.jsonl"))
    journal = Journal(folder / "journal.sqlite3", unix_s=unix_time_s)
    states = tuple(str(row.state) for row in journal.rows())
    journal.close()
    return Interrupted(
        process.returncode, seconds, written[-1].event,
        tuple(event.outcome for event in written if isinstance(event, events.Executed)), states,
        len(effects.read_text().splitlines()) if effects.exists() else 0,
        [event.seq for event in written] == list(range(len(written))), said,
    )  # fmt: skip
