"""The loop's own processor time for a second of audio: ``python -m bench.loop_overhead``.

One session after the other on the free clock, as fast as it goes, with rehearsed ears and a policy that answers at
once. Measured are silence and talk (a turn every five seconds), each with a detector that only looks at the level and
with the real one; and the real detector alone, over the same frames. Processor time is that of all threads of the
process, so other programs on the machine slow it down without being counted.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from agent import assemble
from agent.assemble import open_journal
from agent.clock import Pace
from agent.frames import FRAME_SAMPLES, Samples
from agent.vad import Pcm, Vad, level_dbfs, make_vad
from bench.session_state import SharedFrames
from bench.wearers import FRAME_S, Tally, instant_parts, talk_frames, wearer

HEADER = "| frames | detector | CPU ms a second of audio | turns | of it in ears and policy ms |\n" + (
    "| --- | --- | ---: | ---: | ---: |"
)
_VOICE_DBFS = -40.0


class LevelDetector:
    """Speech is what is loud: as good as free, and right for a rehearsal."""

    frame_samples = FRAME_SAMPLES

    def is_speech(self, frame: Pcm) -> bool:
        """Whether the frame is loud."""
        return level_dbfs(frame) > _VOICE_DBFS

    def reset(self) -> None:
        """It remembers nothing."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """What some frames cost.

    Attributes:
        frames: which.
        detector: which.
        cpu_s: processor seconds for a second of audio.
        turns: turns decided.
        models_s: real seconds in ears and policy for a second of audio; None where there were none.
    """

    frames: str
    detector: str
    cpu_s: float
    turns: int
    models_s: float | None

    def line(self) -> str:
        """As it is printed."""
        models = "" if self.models_s is None else f"{1000 * self.models_s:.2f}"
        return f"| {self.frames} | {self.detector} | {1000 * self.cpu_s:.2f} | {self.turns} | {models} |"


def detector_alone(name: str, frames: Sequence[Samples]) -> Overhead:
    """The real detector over frames, without a loop."""
    vad = make_vad()
    start_s = time.process_time()
    for frame in frames:
        vad.is_speech(frame)
    return Overhead(name, "real, alone", (time.process_time() - start_s) / (len(frames) * FRAME_S), 0, None)


async def loop_over(name: str, frames: Sequence[Samples], detector: str, folder: Path) -> Overhead:
    """A session over frames.

    Args:
        name: what they are.
        frames: each float32 ``(320,)``.
        detector: ``level`` or ``real``.
        folder: for its journal; an empty one.
    """
    journal, tally = open_journal(folder / "journal.sqlite3"), Tally()
    with _detector(detector):
        session = wearer(SharedFrames([frames]), instant_parts(), journal, tally, Pace.FREE)
    start_s = time.process_time()
    ended = await session.run()
    cpu_s, audio_s = time.process_time() - start_s, len(frames) * FRAME_S
    journal.close()
    return Overhead(name, detector, cpu_s / audio_s, tally.decided, ended.compute_s / audio_s)


@contextmanager
def _detector(name: str) -> Iterator[None]:
    """Sessions that are made meanwhile have this detector.

    ``make_session`` knows one detector, as the product does; what stands in its place is assigned by name, since it is
    no part of that module's interface.
    """
    if name == "real":
        yield
        return
    kept = vars(assemble)["make_vad"]

    def level(mode: int = 1) -> Vad:
        return LevelDetector()

    setattr(assemble, "make_vad", level)  # noqa: B010
    try:
        yield
    finally:
        setattr(assemble, "make_vad", kept)  # noqa: B010


def measure(audio_s: float) -> Iterator[Overhead]:
    """All rows, one after the other.

    Args:
        audio_s: how much audio each of them hears.
    """
    count = round(audio_s / FRAME_S)
    zeros = np.zeros(FRAME_SAMPLES, np.float32)
    for name, frames in (("silence", [zeros] * count), ("talk", list(islice(cycle(talk_frames()), count)))):
        for detector in ("level", "real"):
            with tempfile.TemporaryDirectory(prefix="voicegate-overhead-") as folder:
                yield asyncio.run(loop_over(name, frames, detector, Path(folder)))
        yield detector_alone(name, frames)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.loop_overhead", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="seconds of audio of each row (default 300)")
    args = parser.parse_args(argv)
    list(measure(5.0))  # what is imported and filled on first use is no part of it
    print(HEADER)
    for found in measure(args.seconds):
        print(found.line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
