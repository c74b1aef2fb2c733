"""How fast is the gate, against its own recogniser alone and against a plain pipeline: ``python -m bench.speed``.

One run, one set of turns, everything interleaved turn by turn so that a busy machine slows all alike; the figures to
quote are the ratios. Two comparisons:

(a) *compute per turn*: all stages of the gate (speech, speaker, proximity, damage, policy; thrown-away early work
    included) against faster-whisper's own ``transcribe`` with the same weights, alone;
(b) *end of speech to decision*: the gate on the charged clock against the plain pipeline of ``bench.plain_pipeline``
    (800 ms of silence, then transcribe, embed, generate).

Turns are the utterances of the bundled demo recording, and with ``--data DIR`` also the clips under ``DIR/commands``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from agent import events
from agent.assemble import Parts, load_catalogue, load_parts, make_session, open_journal
from agent.clock import Pace
from agent.eventlog import MemorySink
from agent.session import OwnerMode
from agent.settings import Settings
from agent.sources import ScriptedSource
from bench.plain_pipeline import PlainPipeline, PlainTiming
from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio
from models.store import Store

DEMO = Path(__file__).parent / "demo"
TAIL_S = 1.5
TARGET_COMPUTE_RATIO = 0.7
TARGET_LATENCY_RATIO = 0.4


@dataclass(frozen=True, slots=True)
class Utterance:
    """One turn to time: audio with silence around it, and where its speech ends."""

    name: str
    audio: Audio
    speech_start_s: float
    speech_end_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """One turn through all three."""

    gate_compute_s: float
    gate_latency_s: float
    transcribe_s: dict[str, float]
    plain: PlainTiming


def demo_utterances() -> list[Utterance]:
    """The utterances of the demo recording, each with half a second of the recording before it."""
    audio, rate_hz = soundfile.read(DEMO / "demo.flac", dtype="float32")
    assert rate_hz == SAMPLE_RATE_HZ, "the demo recording is 16 kHz"
    out = []
    for index, segment in enumerate(json.loads((DEMO / "demo.json").read_text())["segments"]):
        start, end = (round(segment[key] * SAMPLE_RATE_HZ) for key in ("start", "end"))
        lead = min(start, SAMPLE_RATE_HZ // 2)
        clip = np.concatenate([audio[start - lead : end], np.zeros(round(TAIL_S * SAMPLE_RATE_HZ), np.float32)])
        lead_s = lead / SAMPLE_RATE_HZ
        out.append(Utterance(f"demo {index}: {segment['role']}", clip, lead_s, lead_s + (end - start) / SAMPLE_RATE_HZ))
    return out


def folder_utterances(folder: Path, most: int) -> list[Utterance]:
    """Clips of a folder, labelled by level: speech ends with the last frame within 35 dB of the loudest."""
    out = []
    for file in sorted((folder / "commands").rglob("*.flac"))[:most]:
        audio, rate_hz = soundfile.read(file, dtype="float32")
        if rate_hz != SAMPLE_RATE_HZ or audio.ndim != 1 or not 1.0 <= len(audio) / SAMPLE_RATE_HZ <= 12.0:
            continue
        frames = audio[: len(audio) // 320 * 320].reshape(-1, 320)
        level_db = 10 * np.log10(np.mean(np.square(frames, dtype=np.float64), axis=1) + 1e-12)
        loud = np.flatnonzero(level_db > level_db.max() - 35)
        silence = np.zeros(round(TAIL_S * SAMPLE_RATE_HZ), np.float32)
        speech = audio[: (int(loud[-1]) + 1) * 320]
        out.append(
            Utterance(file.stem, np.concatenate([speech, silence]), int(loud[0]) * 0.02, len(speech) / SAMPLE_RATE_HZ)
        )
    return out


async def time_gate(utterance: Utterance, parts: Parts, settings: Settings, folder: Path) -> tuple[float, float] | None:
    """Compute and latency of one utterance through the real loop on the charged clock, or None when it gave no turn."""
    sink = MemorySink()
    journal = open_journal(folder / f"{time.perf_counter_ns()}.sqlite3")
    try:
        ended = await make_session(
            source=ScriptedSource([utterance.audio]), settings=settings, parts=parts,
            catalogue=load_catalogue(settings), journal=journal, sinks=[sink], pace=Pace.CHARGED, live=False,
            owner_mode=OwnerMode.INITIATOR, owner=None,
        ).run()  # fmt: skip
    finally:
        journal.close()
    decided = [event for event in sink.events if isinstance(event, events.Decided)]
    if not decided:
        return None
    turns = len({event.turn for event in decided})
    return ended.compute_s / turns, decided[-1].timing.decision - utterance.speech_end_s


def time_transcribe(pipeline: PlainPipeline, audio: Audio) -> dict[str, float]:
    """faster-whisper's own ``transcribe``, as it comes and in its faster settings, in seconds."""
    out = {}
    for name, options in (
        ("default", {}),
        ("greedy", {"beam_size": 1, "best_of": 1, "temperature": 0.0}),
        ("greedy, word times", {"beam_size": 1, "best_of": 1, "temperature": 0.0, "word_timestamps": True}),
    ):
        start_s = time.perf_counter()
        segments, _ = pipeline.whisper.transcribe(audio, language="en", **options)
        list(segments)
        out[name] = time.perf_counter() - start_s
    return out


async def measure(utterances: list[Utterance], repeats: int, threads: int) -> tuple[list[Row], float]:
    """Time every utterance ``repeats`` times; one warm-up round is thrown away. Also returns the gate's load time."""
    store = Store()
    settings = Settings.model_validate({"models": {"threads": threads}})
    start_s = time.perf_counter()
    parts = load_parts(settings, store, load_catalogue(settings))
    load_s = time.perf_counter() - start_s
    gguf = next(store.path("smollm2-135m-instruct-gguf").glob("*.gguf"))
    tools = "\n".join(f"- {tool.name}: {tool.description}" for tool in load_catalogue(settings).all())
    prompt = (
        "You are a voice assistant. Reply with [Mute], with one tool call "
        '<|TOOL|>{"name": ..., "params": {...}}</|TOOL|>, or with an answer. Tools:\n' + tools
    )
    pipeline = PlainPipeline(store.path("whisper-base"), gguf, prompt, threads)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="voicegate-speed-") as scratch:
        for round_number in range(repeats + 1):
            for utterance in utterances:
                gate = await time_gate(utterance, parts, settings, Path(scratch))
                endpoint_s = pipeline.endpoint_s(utterance.audio, utterance.speech_end_s)
                until = round((utterance.speech_end_s + min(endpoint_s, TAIL_S)) * SAMPLE_RATE_HZ)
                turn = utterance.audio[:until]
                transcribe_s = time_transcribe(pipeline, turn)
                plain = pipeline.run(turn, endpoint_s)
                if gate is None or round_number == 0:
                    continue
                rows.append(Row(*gate, transcribe_s, plain))
                print(f"\rround {round_number}/{repeats}, {len(rows)} turns", end="", flush=True)
    print()
    return rows, load_s


def report(rows: list[Row], load_s: float, threads: int) -> str:
    """The result as Markdown."""

    def p(values: list[float], share: float) -> float:
        return float(np.percentile(values, share)) * 1000

    gate = [row.gate_compute_s for row in rows]
    latency = [row.gate_latency_s for row in rows]
    plain_latency = [row.plain.endpoint_s + row.plain.compute_s for row in rows]
    lines = [
        f"{len(rows)} turns, {threads} threads; gate loaded in {load_s:.2f} s",
        "",
        "| | p50 ms | p95 ms | gate / this, p50 | p95 |",
        "| --- | --- | --- | --- | --- |",
        f"| whole gate, compute per turn | {p(gate, 50):.0f} | {p(gate, 95):.0f} | | |",
    ]
    for name in rows[0].transcribe_s:
        values = [row.transcribe_s[name] for row in rows]
        lines.append(
            f"| (a) faster-whisper transcribe, {name} | {p(values, 50):.0f} | {p(values, 95):.0f} | "
            f"{p(gate, 50) / p(values, 50):.2f} | {p(gate, 95) / p(values, 95):.2f} |"
        )
    lines += [
        f"| gate, end of speech to decision | {p(latency, 50):.0f} | {p(latency, 95):.0f} | | |",
        f"| (b) plain pipeline, end of speech to decision | {p(plain_latency, 50):.0f} | {p(plain_latency, 95):.0f} | "
        f"{p(latency, 50) / p(plain_latency, 50):.2f} | {p(latency, 95) / p(plain_latency, 95):.2f} |",
        "",
        f"targets: (a) at most {TARGET_COMPUTE_RATIO} of transcribe as it comes; (b) at most {TARGET_LATENCY_RATIO} "
        "at p50 and p95",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="timed rounds (default 5)")
    parser.add_argument("--threads", type=int, default=2, help="threads per model (default 2)")
    parser.add_argument("--data", type=Path, help="also time the clips under DIR/commands")
    parser.add_argument("--most", type=int, default=20, help="at most so many of those (default 20)")
    args = parser.parse_args()
    utterances = demo_utterances() + (folder_utterances(args.data, args.most) if args.data else [])
    rows, load_s = asyncio.run(measure(utterances, args.repeats, args.threads))
    print(report(rows, load_s, args.threads))


if __name__ == "__main__":
    main()
