"""When is she finished? Cut-offs against latency, by closing silence: ``python -m bench.closing --data DIR``.

Plays recordings of one utterance each and asks of every way to close a turn how often it cuts the speaker off (more
than one turn for one utterance) and how long after her last sound the turn is over. Fixed silences need the voice
detector alone; the adaptive one (``[turns] adaptive``) runs the whole loop, since what was said decides.

Pauses inside an utterance are the speakers' own: readers between clauses, people who order coffee between items.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from agent import events
from agent.assemble import Parts, load_catalogue, load_parts, make_session, open_journal
from agent.clock import Pace
from agent.eventlog import MemorySink
from agent.frames import FRAME_SAMPLES
from agent.session import OwnerMode
from agent.settings import Settings
from agent.sources import ScriptedSource, Silence
from agent.turns import TurnClosed, TurnDetector, TurnSettings
from agent.vad import level_dbfs, make_vad
from bench.progress import StepProgress
from bench.stats import quantile, wilson
from bench.trial_runner import bench_settings
from gate.span import SAMPLE_RATE_HZ
from models.store import Store
from models.training import corpus
from tools.catalogue import ToolCatalogue

SETS = ("librispeech_test_other", "vctk", "picovoice_speech_to_intent", "commands")
HANGOVERS_MS = (300, 400, 600, 800, 1000, 1200)
LEAD_S = 0.5
TAIL_S = 2.5
ROOM_DBFS = -65.0
"""Level of the noise that the utterances lie in: digital silence between words exists on no microphone."""

Audio = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Closed:
    """How one utterance was closed: into how many turns, and how long after its last sound the last one was over."""

    turns: int
    after_s: float


def utterances(folder: Path, most: int) -> Iterator[tuple[str, Audio]]:
    """Recordings with their set, in a quiet room's noise; at most so many of each set."""
    random = np.random.default_rng(3)
    for name in SETS:
        found = [r for r in corpus.recordings(folder) if r.set_name == name and r.duration_s <= 14.0]
        for recording in found[:: max(1, len(found) // most)][:most]:
            audio = recording.read()
            noise = 10.0 ** (ROOM_DBFS / 20.0) * random.standard_normal(audio.size)
            yield name, (audio + noise).astype(np.float32)


def framed(audio: Audio) -> Audio:
    """With silence before and after, in whole frames."""
    random = np.random.default_rng(4)
    lead, tail = round(LEAD_S * SAMPLE_RATE_HZ), round(TAIL_S * SAMPLE_RATE_HZ)
    room = (10.0 ** (ROOM_DBFS / 20.0) * random.standard_normal(lead + tail)).astype(np.float32)
    whole = np.concatenate([room[:lead], audio, room[lead:]])
    return whole[: whole.size // FRAME_SAMPLES * FRAME_SAMPLES]


def fixed(audio: Audio, hangover_ms: int) -> Closed:
    """Close after a silence of one length."""
    vad = make_vad()
    detector = TurnDetector(TurnSettings(hangover_ms=hangover_ms))
    closed: list[TurnClosed] = []
    samples = framed(audio)
    for start in range(0, samples.size, FRAME_SAMPLES):
        frame = samples[start : start + FRAME_SAMPLES]
        found = detector.push(start, frame, vad.is_speech(frame), level_dbfs(frame))
        closed += [event for event in found if isinstance(event, TurnClosed)]
    closed += [event for event in detector.flush() if isinstance(event, TurnClosed)]
    if not closed:
        return Closed(0, float("nan"))
    return Closed(len(closed), (closed[-1].decided_sample - closed[-1].speech_end_sample) / SAMPLE_RATE_HZ)


async def adaptive(audio: Audio, settings: Settings, parts: Parts, catalogue: ToolCatalogue, folder: Path) -> Closed:
    """Close as what was said so far suggests, through the whole loop on the charged clock."""
    sink = MemorySink()
    journal = open_journal(folder / "journal.sqlite3")
    session = make_session(
        source=ScriptedSource([framed(audio), Silence(0.1)]), settings=settings, parts=parts, catalogue=catalogue,
        journal=journal, sinks=[sink], pace=Pace.CHARGED, live=False, owner_mode=OwnerMode.INITIATOR, owner=None,
    )  # fmt: skip
    await session.run()
    journal.close()
    turns = [event for event in sink.events if isinstance(event, events.TurnClosed)]
    decided = [event for event in sink.events if isinstance(event, events.Decided)]
    if not decided:
        return Closed(len(turns), float("nan"))
    timing = decided[-1].timing
    return Closed(len(turns), timing.endpoint - timing.speech_end)


def row(name: str, sets: Sequence[str], found: Sequence[Closed]) -> str:
    """One line of the table: cut-offs by set, all with their interval, and latency."""
    cells = [name]
    for wanted in SETS:
        chosen = [closed for one, closed in zip(sets, found, strict=True) if one == wanted]
        cells.append(f"{sum(closed.turns > 1 for closed in chosen)} of {len(chosen)}")
    cut = sum(closed.turns > 1 for closed in found)
    low, high = wilson(cut, len(found))
    after_s = [closed.after_s for closed in found if closed.after_s == closed.after_s]
    cells.append(f"{cut / len(found):.1%} ({low:.1%} to {high:.1%})")
    cells += [f"{statistics.median(after_s) * 1000:.0f}", f"{(quantile(after_s, 0.95) or 0.0) * 1000:.0f}"]
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.closing", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, help="folder of recordings (default: VOICEGATE_DATA)")
    parser.add_argument("--policy", help="whose reading closes turns (default: the settings' own)")
    parser.add_argument("--most", type=int, default=48, help="utterances of each set (default 48)")
    parser.add_argument("--fixed-only", action="store_true", help="leave the adaptive closing out")
    args = parser.parse_args(argv)
    found = list(utterances(corpus.data_folder(args.data), args.most))
    sets = [name for name, _ in found]
    print(f"| closing silence | {' | '.join(SETS)} | cut off, 95 % | over after, p50 ms | p95 ms |")
    print("| --- |" + " ---: |" * (len(SETS) + 3))
    for hangover_ms in HANGOVERS_MS:
        print(row(f"{hangover_ms} ms", sets, [fixed(audio, hangover_ms) for _, audio in found]), flush=True)
    if args.fixed_only:
        return 0
    values = json.loads(bench_settings(Settings()).model_dump_json())
    values["turns"]["adaptive"] = True
    if args.policy:
        values["models"]["policy"] = args.policy
    settings = Settings.model_validate_json(json.dumps(values))
    catalogue = load_catalogue(settings)
    parts = load_parts(settings, Store(), catalogue)
    closed: list[Closed] = []
    with tempfile.TemporaryDirectory() as scratch, StepProgress("utterances", len(found)) as progress:
        for _, audio in found:
            closed.append(asyncio.run(adaptive(audio, settings, parts, catalogue, Path(scratch))))
            progress.add()
    print(row(f"adaptive, {settings.models.policy}", sets, closed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
