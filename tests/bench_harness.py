"""Small corpora of rehearsed lines, and hand-made logs, for the tests of the benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from agent.events import DistanceRecord, EvidenceRecord, SpeakerRecord, TimingRecord, WordRecord
from bench.executors import Cluster, InThisProcess
from bench.judgements import Judgement, Judgements, Kind
from bench.measures import Played
from bench.rehearsal import Line, speak
from bench.results import DecisionRecord, TrialResult, TrialTiming
from bench.run import Plan, RunOptions
from bench.trials import Expected, Segment, Trial, write_manifest
from gate.span import SAMPLE_RATE_HZ
from tests.bench_contestants import CALL, CHAT, NAME, OTHER_CALL, PAY, QUESTION

PAUSE_S = 0.9


def record(folder: Path, name: str, *lines: Line) -> tuple[str, tuple[Segment, ...]]:
    """Write a recording of some lines, the last of them the trigger; its name and its labels."""
    pause = np.zeros(round(PAUSE_S * SAMPLE_RATE_HZ), np.float32)
    pieces, segments, at_s = [pause], [], PAUSE_S
    for index, line in enumerate(lines):
        pieces += [speak(line), pause]
        segments.append(
            Segment(
                start=round(at_s, 3), end=round(at_s + line.seconds, 3), speaker="AB"[line.speaker],
                distance="near" if line.near > 0.5 else "far", text=line.text,
                role="trigger" if index == len(lines) - 1 else "context",
            )
        )  # fmt: skip
        at_s += line.seconds + PAUSE_S
    soundfile.write(folder / f"{name}.wav", np.concatenate(pieces), SAMPLE_RATE_HZ)
    return f"{name}.wav", tuple(segments)


def spoken(folder: Path, name: str, lines: Sequence[Line], action: str, **fields: Any) -> Trial:
    """A trial with a recording."""
    audio, segments = record(folder, name, *lines)
    values: dict[str, Any] = {"family": "direct", "condition": "plain", "split": "test", **fields}
    expected = Expected(action=action, tool=values.pop("tool", None), answer=values.pop("answer", None))  # type: ignore[arg-type]
    return Trial(id=name, audio=audio, segments=segments, expected=expected, **values)


def small_corpus(folder: Path) -> Path:
    """Six trials of four kinds; their manifest."""
    trials = [
        spoken(
            folder, "same", [CHAT, CALL], "tool", tool="make_call", target_tool="make_call", family="speaker_switch",
            condition="same/near/0", pair="call",
        ),
        spoken(
            folder, "diff", [CHAT, OTHER_CALL], "mute", target_tool="make_call", family="speaker_switch",
            condition="diff/near/0", pair="call",
        ),
        Trial(
            id="typed", family="speaker_switch", condition="text_only", text=CALL.text, target_tool="make_call",
            expected=Expected(action="tool", tool="make_call"), pair="call", split="test",
        ),
        spoken(folder, "chat", [CHAT], "mute", family="self_talk", condition="planning"),
        spoken(folder, "ask", [CHAT, QUESTION], "answer", answer=("noon",)),
        spoken(folder, "pay", [CHAT, PAY], "pardon", target_tool="transfer_money"),
    ]  # fmt: skip
    write_manifest(folder / "manifest.jsonl", trials)
    return folder / "manifest.jsonl"


def options(manifest: Path, out: Path, **more: Any) -> RunOptions:
    """A run of the rehearsal."""
    return RunOptions(**{"manifest": manifest, "policy": NAME, "out": out, "threads": 1, **more})


def here(plan: Plan) -> Cluster:
    """Plays in this process."""
    return InThisProcess(plan.spec)


# Logs by hand --------------------------------------------------------------------------------------------------------


def decision(
    action: str | None = "mute",
    tool: str | None = None,
    *,
    turn: str = "t0001",
    span_s: tuple[float, float] = (1.0, 2.0),
    at_s: float = 2.8,
    speaker: float | None = 0.9,
    near: float | None = 0.95,
    raw: str | None = None,
    words: str = "",
    **fields: Any,
) -> DecisionRecord:
    """One decision of a log."""
    parts = words.split()
    step = (span_s[1] - span_s[0]) / max(1, len(parts))
    timing = TimingRecord(
        speech_end=span_s[1], endpoint=at_s - 0.1, decision=at_s, compute=fields.pop("compute", {"speech": 0.1}),
    )  # fmt: skip
    evidence = EvidenceRecord(
        span_s=span_s, modality="audio", transcript=words, damage=(), overlapped=None, own_voice=False,
        source_gap=False,
        words=tuple(
            WordRecord(text=p, span_s=(span_s[0] + i * step, span_s[0] + (i + 1) * step), probability=0.95)
            for i, p in enumerate(parts)
        ),
        speaker=SpeakerRecord(verdict="owner", score=speaker, owner_at=0.6, other_below=0.4),
        distance=DistanceRecord(verdict="near", near_probability=near, near_at=0.8, far_below=0.2),
    )  # fmt: skip
    values: dict[str, Any] = {
        "turn": turn, "action": action, "tool": tool, "params": None, "answer": None, "missing_param": None,
        "reason": "test", "detail": "", "status": "ok", "proposed": "none", "raw": raw,
        "outcome": "done" if action == "tool" else None,
        "span_samples": (round(span_s[0] * SAMPLE_RATE_HZ), round(span_s[1] * SAMPLE_RATE_HZ)),
        "evidence": evidence, "timing": timing, **fields,
    }  # fmt: skip
    return DecisionRecord(**values)


def played(
    name: str, family: str, condition: str, expected: str, did: str | None, *, tool: str | None = None,
    target: str | None = None, ran: str | None = None, status: str = "ok", said: str | None = None,
    accepted: tuple[str, ...] | None = None, decisions: Sequence[DecisionRecord] | None = None,
    verdicts: Sequence[tuple[Kind, str]] = (), pair: str | None = None, triplet: str | None = None,
    text: str | None = None, segments: tuple[Segment, ...] | None = None, timing: TrialTiming | None = None,
) -> Played:  # fmt: skip
    """A trial and what came of it: what was right, and what was done."""
    if segments is None:
        segments = (Segment(start=1.0, end=2.0, speaker="A", distance="near", text="x", role="trigger"),)
    trial = Trial(
        id=name, family=family, condition=condition, audio=None if text else "a.wav", text=text,  # type: ignore[arg-type]
        expected=Expected(action=expected, tool=tool, answer=accepted), target_tool=target or tool, pair=pair,  # type: ignore[arg-type]
        triplet=triplet, split="test", segments=segments,
    )  # fmt: skip
    made = decisions
    if made is None:
        made = [decision(did, ran if did == "tool" else None, answer=said)] if did else []
    result = TrialResult(
        id=name, status=status, action=did if status == "ok" else None, answer=said, decisions=tuple(made),  # type: ignore[arg-type]
        timing=timing or TrialTiming(),
    )  # fmt: skip
    given = {(name, kind): Judgement(id=name, kind=kind, verdict=verdict, judge="test") for kind, verdict in verdicts}
    return Played(trial, result, Judgements(given))
