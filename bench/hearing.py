"""Every figure about hearing, from one command: ``python -m bench.hearing --data DIR --work DIR``.

Runs the measurements of each ear one after the other, none of which trains anything, and writes the tables of the
model cards (``models/cards``). ``--only NAME`` runs one; ``cost`` times the ears together on the demo's turns, where
each stands beside the others in the same run. What has ended is not run again when the command is repeated with the
same ``--work``; ``--again`` runs it all.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ, Span

CARDS = Path("models/cards")
TURN_S = 4.0
ROUNDS = 20
DEMO = Path(__file__).parent / "demo" / "demo.flac"

Audio = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Part:
    """One measurement.

    Attributes:
        name: what ``--only`` takes.
        shows: what it measures, for ``--help``.
        command: the module and its arguments; ``{data}`` and ``{work}`` are filled in.
    """

    name: str
    shows: str
    command: tuple[str, ...]


PARTS = (
    Part(
        "speaker", "who spoke: thresholds, error by duration, changes of voice",
        ("models.training.speaker_calibration", "--data", "{data}", "--card", str(CARDS / "speaker_campplus.md")),
    ),
    Part(
        "overlap", "two voices at once",
        ("models.training.overlap", "--data", "{data}", "--only-measure", "--card", str(CARDS / "overlap.md")),
    ),
    Part(
        "proximity", "how near, by room, distance and recording",
        ("models.training.proximity", "--data", "{data}", "--work", "{work}", "--only-measure"),
    ),
    Part(
        "damage", "what could not be heard, by kind, length and level",
        ("models.training.damage", "--data", "{data}", "--work", "{work}", "--only-measure"),
    ),
    Part(
        "presence", "what is taken for speech: false turns, missed and clipped speech",
        ("bench.speech_presence", "--data", "{data}", "--card", str(CARDS / "speech_presence.md")),
    ),
    Part("words", "word errors, and words out of noise", ("bench.ear_figures", "--data", "{data}", "--only", "words")),
)  # fmt: skip


def run(part: Part, data: Path, work: Path) -> None:
    """Run one measurement; its progress is shown as it comes.

    Raises:
        subprocess.CalledProcessError: when it fails.
    """
    module, *rest = (word.format(data=data, work=work) for word in part.command)
    subprocess.run([sys.executable, "-m", module, *rest], check=True)


def cost(threads: int) -> list[str]:
    """What each ear costs on turns of four seconds, in one run: lines of Markdown."""
    import soundfile

    from models.damage_cnn import DamageCnn
    from models.proximity_cnn import ProximityCnn
    from models.segmentation import load as load_overlap
    from models.speaker_campplus import load as load_speaker
    from models.store import Store

    samples, _ = soundfile.read(DEMO, dtype="float32")
    size = round(TURN_S * SAMPLE_RATE_HZ)
    turns: list[Audio] = [samples[start : start + size] for start in range(0, len(samples) - size, size)]
    turns = [turn for turn in turns if float(np.sqrt(np.mean(turn**2))) > 0.01][:6]
    store = Store()
    speaker, overlap = load_speaker(store, threads), load_overlap(store, threads)
    proximity, damage = ProximityCnn(), DamageCnn()
    whole = Span(0, size)

    def who(audio: Audio) -> None:
        track = speaker.track(audio)
        track.changes()
        track.embed(whole)

    ears: dict[str, Callable[[Audio], object]] = {
        "who, and changes of voice": who,
        "how near": lambda audio: proximity.track(audio).near(whole),
        "what was covered": damage.find,
        "two voices at once (commands only)": overlap.find,
    }
    taken_s: dict[str, list[float]] = {name: [] for name in ears}
    for round_number in range(ROUNDS + 1):
        for turn in turns:
            for name, ear in ears.items():
                began_s = time.perf_counter()
                ear(turn)
                if round_number:  # the first round warms up
                    taken_s[name].append(time.perf_counter() - began_s)
    medians = {name: statistics.median(values) for name, values in taken_s.items()}
    lines = [f"| a turn of {TURN_S:g} s, {threads} threads | p50 ms | share of the turn |", "| --- | ---: | ---: |"]
    for name, seconds in (*medians.items(), ("together", sum(medians.values()))):
        lines.append(f"| {name} | {seconds * 1000:.0f} | {seconds / TURN_S:.2%} |")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what was asked for."""
    names = [*(part.name for part in PARTS), "cost"]
    listed = "; ".join(f"{part.name}: {part.shows}" for part in PARTS)
    parser = argparse.ArgumentParser(
        prog="python -m bench.hearing", description=(__doc__ or "").split("\n", 1)[0], epilog=listed
    )
    parser.add_argument("--data", type=Path, help="folder of recordings; cost needs none")
    parser.add_argument("--work", type=Path, default=Path("hearing"), help="for rendered data (default: ./hearing)")
    parser.add_argument("--only", choices=names, action="append", help="one part; may be repeated")
    parser.add_argument("--again", action="store_true", help="also what has ended before")
    parser.add_argument("--threads", type=int, default=2, help="threads of each ear under cost (default 2)")
    args = parser.parse_args(argv)
    wanted = args.only or names
    chosen = [part for part in PARTS if part.name in wanted]
    if chosen and args.data is None:
        parser.error("--data is needed for all but cost")
    args.work.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(chosen, 1):
        done = args.work / f"{part.name}.done"
        if done.is_file() and not args.again:
            print(f"{part.name}: measured before ({done}); --again measures anew")
            continue
        print(f"[{number}/{len(chosen)}] {part.name}: {part.shows}", flush=True)
        try:
            run(part, args.data, args.work)
        except subprocess.CalledProcessError as error:
            print(f"{part.name} failed with exit code {error.returncode}", file=sys.stderr)
            return 1
        done.touch()
    if "cost" in wanted:
        print("\n".join(cost(args.threads)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
