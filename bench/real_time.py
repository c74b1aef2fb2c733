"""How many sessions keep real time: sessions with audio in real time, and how late the loop is with it.

Real time is kept when, over some seconds, the event loop's lag stays within ``LAG_P99_MS`` at its 99th percentile, no
frame is done later than ``LATE_MS`` after it was due, and no turn fails. Each process has an event loop of its own and
its share of the sessions.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from agent.assemble import open_journal
from bench.wearers import FRAME_S, Lateness, PacedTalk, Tally, instant_parts, talk_frames, wearer
from models.protocols import Policy

LAG_P99_MS = 20.0
"""One frame: beyond that the next one waits."""
LATE_MS = 100.0
"""A tenth of a second is what a wearer could notice. A microphone's queue loses audio after five seconds only."""
_TICK_S = 0.01
_WARM_UP_S = 1.5
_SEED = 11


@dataclass(frozen=True, slots=True)
class Measured:
    """Some sessions over some seconds, in one process or in several.

    Attributes:
        sessions: how many.
        seconds: how long each process was watched.
        loop_lag_s: how much too late each tick of the event loop came.
        frame_lag_s: how long after it was due each frame was done.
        latency_s: from the end of speech to the decision.
        turns: turns decided since the start.
        failed: turns and other things that failed since the start.
        cpu_s: processor seconds while they were watched, threads of workers among it.
    """

    sessions: int
    seconds: float
    loop_lag_s: np.ndarray
    frame_lag_s: np.ndarray
    latency_s: np.ndarray
    turns: int
    failed: int
    cpu_s: float

    @property
    def late_frames(self) -> int:
        """Frames that were done too late."""
        return int(np.count_nonzero(self.frame_lag_s > LATE_MS / 1000))

    @property
    def keeps_real_time(self) -> bool:
        """Whether it does, by this module's definition."""
        return self.turns > 0 and not self.failed and not self.late_frames and lag_ms(self.loop_lag_s, 99) <= LAG_P99_MS

    def line(self) -> str:
        """As it is printed."""
        lags = (lag_ms(self.loop_lag_s, 50), lag_ms(self.loop_lag_s, 99), lag_ms(self.frame_lag_s, 99))
        latency = " | ".join(f"{lag_ms(self.latency_s, share):.0f}" for share in (50, 99))
        return (
            f"| {self.sessions} | {' | '.join(f'{lag:.1f}' for lag in lags)} | "
            f"{lag_ms(self.frame_lag_s, 100):.0f} | {self.late_frames} of {len(self.frame_lag_s)} | {self.turns} | "
            f"{self.failed} | {latency} | {self.cpu_s / self.seconds:.2f} | {'yes' if self.keeps_real_time else 'no'} |"
        )


HEADER = (
    "| sessions | loop lag p50 ms | p99 | frame lag p99 ms | max | late frames | turns | failed | "
    "decision after speech p50 ms | p99 | cores busy | real time |\n" + "| ---: " * 11 + "| --- |"
)


def lag_ms(values_s: np.ndarray, share: float) -> float:
    """A percentile, in milliseconds; NaN of nothing."""
    return float(np.percentile(values_s, share)) * 1000 if len(values_s) else float("nan")


def together(parts: Sequence[Measured]) -> Measured:
    """What several processes measured at the same time."""
    return Measured(
        sum(part.sessions for part in parts),
        max(part.seconds for part in parts),
        np.concatenate([part.loop_lag_s for part in parts]),
        np.concatenate([part.frame_lag_s for part in parts]),
        np.concatenate([part.latency_s for part in parts]),
        sum(part.turns for part in parts),
        sum(part.failed for part in parts),
        sum(part.cpu_s for part in parts),
    )


async def play(sessions: int, seconds: float, policy: Policy | None, folder: Path) -> Measured:
    """Play sessions in real time in this event loop.

    Args:
        sessions: how many; they start spread over a frame, and over the talk.
        seconds: how long to watch, after the warm-up.
        policy: None takes the one that answers at once.
        folder: for their journal; an empty one.
    """
    frames, parts, draw = talk_frames(), instant_parts(policy), random.Random(_SEED)
    journal = open_journal(folder / "journal.sqlite3")
    lateness, tally = Lateness(), Tally()
    begin_s = time.perf_counter() + 0.1
    sources = [
        PacedTalk(frames, draw.randrange(len(frames)), begin_s + draw.random() * FRAME_S, lateness)
        for _ in range(sessions)
    ]
    tasks = [asyncio.create_task(wearer(source, parts, journal, tally).run()) for source in sources]
    loop_lag_s: array[float] = array("d")
    await asyncio.sleep(_WARM_UP_S)
    lateness.counting = True
    cpu_s, start_s = time.process_time(), time.perf_counter()
    while time.perf_counter() - start_s < seconds:
        tick_s = time.perf_counter()
        await asyncio.sleep(_TICK_S)
        loop_lag_s.append(max(0.0, time.perf_counter() - tick_s - _TICK_S))
    cpu_s, watched_s = time.process_time() - cpu_s, time.perf_counter() - start_s
    lateness.counting = False
    for source in sources:
        source.stop()
    await asyncio.gather(*tasks)
    journal.close()
    return Measured(
        sessions, watched_s, np.array(loop_lag_s), np.array(lateness.frames_s), np.array(tally.latency_s),
        tally.decided, tally.failed, cpu_s,
    )  # fmt: skip


def _process(sessions: int, seconds: float, base_url: str | None) -> Measured:
    policy: Policy | None = None
    if base_url is not None:
        from models.audio_llm.server_load import policy_from_options

        options = {"base_url": base_url, "model": "loopback", "stream": "off", "retries": "0"}
        policy = policy_from_options("openai-compatible", options, {})
    with tempfile.TemporaryDirectory(prefix="voicegate-capacity-") as folder:
        return asyncio.run(play(sessions, seconds, policy, Path(folder)))


class Machine:
    """Processes that play sessions at the same time, one for each core.

    Args:
        pools: one process each.
    """

    def __init__(self, pools: Sequence[ProcessPoolExecutor]) -> None:
        self._pools = pools

    def play(self, sessions: int, seconds: float, base_url: str | None) -> Measured:
        """Play sessions, shared among the processes.

        Args:
            sessions: how many.
            seconds: how long to watch.
            base_url: the endpoint that the policy asks; None takes the policy that answers at once.
        """
        shares = [len(range(number, sessions, len(self._pools))) for number in range(len(self._pools))]
        calls = [
            pool.submit(_process, share, seconds, base_url)
            for pool, share in zip(self._pools, shares, strict=True)
            if share
        ]
        return together([call.result() for call in calls])


@contextmanager
def machine(processes: int) -> Iterator[Machine]:
    """So many processes, spawned: a fork would copy locks without the threads that hold them."""
    with ExitStack() as stack:
        pools = [stack.enter_context(ProcessPoolExecutor(1, mp_context=get_context("spawn"))) for _ in range(processes)]
        yield Machine(pools)


def largest(keeps: Callable[[int], bool], first: int, most: int, steps: int = 3) -> int:
    """The largest number that keeps real time, by doubling and then halving what is left.

    Args:
        keeps: asks one number.
        first: where to begin.
        most: beyond which nothing is asked.
        steps: how often the interval is halved.

    Returns:
        The largest number that did; 0 when even ``first`` did not.
    """
    good, bad, number = 0, most + 1, min(first, most)
    while good < number < bad:
        if keeps(number):
            good, number = number, min(2 * number, most)
        else:
            bad = number
    for _ in range(steps if good and bad <= most else 0):
        middle = (good + bad) // 2
        if middle in (good, bad):
            break
        if keeps(middle):
            good = middle
        else:
            bad = middle
    return good
