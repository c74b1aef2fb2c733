"""Folders of runs that were never played, for the tests of the report: logs by hand, and a pretended benchmark."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from agent.events import DamageRecord
from agent.settings import Settings
from bench.judgements import JUDGEMENTS
from bench.measures import Played
from bench.provenance import CONFIG, CONFIG_VERSION, sha256_of, write_json
from bench.report.runs import ReportedRun, load_reported
from bench.results import DecisionRecord, TrialResult, TrialTiming, deciding, most_consequential
from bench.run import MANIFEST_COPY
from bench.runlog import RUN_LOG
from bench.score_vgbench import EIGHT_CONDITIONS
from bench.trial_runner import bench_settings
from bench.trials import Expected, Segment, Trial, write_manifest
from gate.span import SAMPLE_RATE_HZ
from tests.bench_contestants import CALL, REPLIES
from tests.bench_harness import decision


def write_run(
    folder: Path, trials: Sequence[Trial], results: Iterable[TrialResult],
    judgements: Iterable[tuple[str, str, str]] = (), **config: Any,
) -> Path:  # fmt: skip
    """A folder as ``bench run`` leaves it.

    Args:
        folder: where.
        trials: its manifest.
        results: its log.
        judgements: ``(id, kind, verdict)`` of each verdict.
        config: keys of the configuration that are to be otherwise.
    """
    folder.mkdir(parents=True)
    write_manifest(folder / MANIFEST_COPY, trials)
    (folder / RUN_LOG).write_text("".join(f"{result.model_dump_json()}\n" for result in results), encoding="utf-8")
    lines = [
        json.dumps({"id": name, "kind": kind, "verdict": verdict, "judge": "test-judge"}) + "\n"
        for name, kind, verdict in judgements
    ]
    if lines:
        (folder / JUDGEMENTS).write_text("".join(lines), encoding="utf-8")
    made: dict[str, Any] = {
        "version": CONFIG_VERSION, "created_unix": 1_760_000_000, "policy": folder.name, "pace": "charged", "seed": 0,
        "timeout_s": 120.0, "patience": 1.0, "workers": None, "executor": "processes", "split": None, "ids": None,
        "limit": None, "manifest": {"name": "manifest.jsonl", "sha256": sha256_of(folder / MANIFEST_COPY)},
        "settings": json.loads(bench_settings(Settings(), threads=1).model_dump_json()),
        "models": {"speech": "a" * 64, "speaker": "b" * 64},
        "code": {"git_commit": "c" * 40, "git_dirty": False, "sha256": "d" * 64},
        "machine": {
            "processor": "A Processor", "cores": 2, "memory_gib": 24.0, "system": "Linux x86_64", "python": "3.11.9",
            "libraries": {"numpy": "2.3.0"},
        },
    }  # fmt: skip
    write_json(folder / CONFIG, {**made, **config})
    return folder


def write_played(folder: Path, played: Sequence[Played], **config: Any) -> Path:
    """The same, from trials as ``bench_harness.played`` makes them."""
    verdicts = [
        (one.trial.id, kind, verdict)
        for one in played
        for kind in ("answer", "repair", "side_talk")
        if (verdict := one.verdict(kind)) is not None  # type: ignore[arg-type]
    ]
    return write_run(folder, [one.trial for one in played], [one.result for one in played], verdicts, **config)


def reported(*folders: Path, manifest: Path | None = None) -> tuple[ReportedRun, ...]:
    """Runs as the report reads them."""
    return load_reported(folders, manifest)


# A pretended benchmark ------------------------------------------------------------------------------------------------

RAW = REPLIES[CALL.text]
PARAMS = {"contact": "my sister"}


def pretend_corpus(folder: Path, *, commands: int = 24, questions: int = 12) -> list[Trial]:
    """Trials of all families that the report draws, each with a short recording; the manifest lies beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    tone = (0.1 * np.sin(2 * np.pi * 220 * np.arange(SAMPLE_RATE_HZ // 4) / SAMPLE_RATE_HZ)).astype(np.float32)
    trials: list[Trial] = []

    def add(
        name: str, family: str, condition: str, expected: Expected, segments: Sequence[Segment], **more: Any
    ) -> None:
        audio = None if "text" in more else f"{name}.wav"
        if audio is not None:
            soundfile.write(folder / audio, tone, SAMPLE_RATE_HZ)
        trials.append(
            Trial(
                id=name,
                family=family,
                condition=condition,
                audio=audio,
                expected=expected,
                segments=tuple(segments),
                split="test",
                **more,
            )
        )

    run, mute = Expected(action="tool", tool="make_call"), Expected(action="mute")
    for number in range(commands):
        pair = f"call-{number:03d}"
        add(f"{pair}.text", "speaker_switch", "text_only", run, (), text=CALL.text, target_tool="make_call", pair=pair)
        for condition in EIGHT_CONDITIONS:
            speaker, distance, _ = condition.split("/")
            right = run if condition.startswith("same/near") else mute
            who = "A" if speaker == "same" else "B"
            add(
                f"{pair}.{condition.replace('/', '-')}", "speaker_switch", condition, right,
                (_said("A", "near", "What a lovely morning.", "context", 0.2), _said(who, distance, CALL.text)),
                target_tool="make_call", pair=pair,
            )  # fmt: skip
    for number in range(questions):
        order = ("assistant_first", "bystander_first")[number % 2]
        add(
            f"side-{number:03d}", "side_talk", order,
            run if number % 3 else Expected(action="answer", answer=("noon",)),
            (_said("A", "near", "Did you see the game?", "bystander", 0.2), _said("A", "near", CALL.text, "assistant")),
            target_tool="make_call" if number % 3 else None,
        )  # fmt: skip
        add(
            f"self-{number:03d}", "self_talk", ("planning", "regret", "quotation")[number % 3], mute,
            (_said("A", "near", "I should really call my sister.", "self"),), target_tool="make_call",
        )  # fmt: skip
        asked: dict[str, Any] = {"question": "What does she like?", "triplet": f"q-{number:03d}"}
        answer, pardon = Expected(action="answer", answer=("steak",)), Expected(action="pardon")
        talk = (_said("A", "near", "I like steak the most.", "dialogue"),)
        add(f"q-{number:03d}.original", "ear", "original", answer, talk, **asked)
        for mask in ("noise", "silence", "music", "babble"):
            add(f"q-{number:03d}.inv-{mask}", "ear", f"semantic_invariant/{mask}", answer, talk, **asked)
            add(f"q-{number:03d}.deg-{mask}", "ear", f"semantic_degrading/{mask}", pardon, talk, **asked)
        add(f"q-{number:03d}.deg-noise-wide", "ear", "semantic_degrading/noise+wide", pardon, talk, **asked)
    write_manifest(folder / "manifest.jsonl", trials)
    return trials


def _said(who: str, distance: str, text: str, role: str = "trigger", at_s: float = 2.0) -> Segment:
    return Segment(start=at_s, end=at_s + 1.2, speaker=who, distance=distance, text=text, role=role)  # type: ignore[arg-type]


def pretend_run(
    folder: Path, trials: Sequence[Trial], *, skill: float, seed: int, gate: bool = True, speed_s: float = 0.8,
    judged: bool = True, **config: Any,
) -> Path:  # fmt: skip
    """A run of these trials by nobody: scores are drawn, and the thresholds decide.

    Args:
        folder: where.
        trials: what is played.
        skill: 0 to 1: how far the scores of wearer and bystander lie apart, and how often the rest is right.
        seed: of the draws.
        gate: whether there is one; without it every call runs.
        speed_s: about how long a decision takes.
        judged: whether free text is judged.
        config: keys of the configuration that are to be otherwise.
    """
    random_of = random.Random(seed)
    results, judgements = [], []
    for trial in trials:
        made, verdicts = _pretended(trial, random_of, skill, gate, speed_s)
        results.append(made)
        judgements += verdicts if judged else []
    return write_run(folder, trials, results, judgements, **config)


def _pretended(
    trial: Trial, draw: random.Random, skill: float, gate: bool, speed_s: float
) -> tuple[TrialResult, list[tuple[str, str, str]]]:
    if draw.random() < 0.01:
        status = draw.choice(("error", "timeout", "unparseable"))
        return TrialResult(id=trial.id, status=status, reason=f"the pretended {status}"), []
    chosen, verdicts = _decided(trial, draw, skill, gate)
    target = trial.target_segment()
    latency_s = speed_s * draw.lognormvariate(0.0, 0.35)
    span_s = (target.start, target.end) if target is not None else (0.0, 0.1)
    at_s = span_s[1] + latency_s
    compute = {"speech": 0.3 * latency_s, "policy": 0.5 * latency_s}
    made = decision(span_s=span_s, at_s=at_s, compute=compute, **chosen)
    if trial.text is not None:
        made = made.model_copy(update={"evidence": made.evidence.model_copy(update={"modality": "text"})})
    if trial.family == "ear" and trial.expected.action == "pardon":
        damage = (DamageRecord(span_s=(2.4, 2.8), kind="masked", probability=0.93),)
        made = made.model_copy(update={"evidence": made.evidence.model_copy(update={"damage": damage})})
    timing = TrialTiming(
        speech_end=span_s[1], endpoint=at_s - 0.1, decision=at_s, audio=4.0, began_unix=1_760_000_000.0,
        ended_unix=1_760_000_002.5,
    )  # fmt: skip
    return _result(trial, [made], timing), verdicts


def _decided(
    trial: Trial, draw: random.Random, skill: float, gate: bool
) -> tuple[dict[str, Any], list[tuple[str, str, str]]]:
    if trial.family == "speaker_switch" or (trial.family == "side_talk" and trial.expected.action == "tool"):
        return _call(trial, draw, skill, gate), []
    right = draw.random() < skill
    if trial.family == "self_talk":
        return (_silence() if right else _run_it()), []
    if trial.family == "side_talk":
        return _answer("It is noon."), [(trial.id, "side_talk", "assistant" if right else "both")]
    if trial.expected.action == "answer":
        told = "Steak." if right else "She likes pasta."
        return _answer(told), [] if right else [(trial.id, "answer", "incorrect")]
    if right:
        return _pardon(), [(trial.id, "repair", draw.choice(("explicit_repair", "generic_refusal")))]
    return _answer("She likes Paris."), [(trial.id, "repair", "other")]


def _call(trial: Trial, draw: random.Random, skill: float, gate: bool) -> dict[str, Any]:
    target = trial.target_segment()
    same = target is None or target.speaker == "A"
    near = target is None or target.distance == "near"
    score = min(1.0, max(0.0, draw.gauss(0.6 + (0.25 if same else -0.25) * skill, 0.12)))
    nearness = min(1.0, max(0.0, draw.gauss(0.8 + (0.15 if near else -0.5) * skill, 0.12)))
    runs = not gate or trial.text is not None or (score >= 0.6 and nearness >= 0.8)
    reason = "licensed" if runs else "other_speaker" if score < 0.6 else "far"
    return {
        **(_run_it() if runs else {"action": "mute", "tool": "make_call", "params": PARAMS, "outcome": None}),
        "speaker": round(score, 4), "near": round(nearness, 4), "raw": RAW, "words": CALL.text, "proposed": "tool",
        "reason": reason if trial.text is None else "typed",
    }  # fmt: skip


def _run_it() -> dict[str, Any]:
    return {"action": "tool", "tool": "make_call", "params": PARAMS, "words": CALL.text, "reason": "licensed"}


def _silence() -> dict[str, Any]:
    return {"action": "mute", "reason": "not_addressed", "words": "I should really call my sister"}


def _answer(text: str) -> dict[str, Any]:
    return {"action": "answer", "answer": text, "reason": "addressed_question", "words": "I like steak the most"}


def _pardon() -> dict[str, Any]:
    return {
        "action": "pardon",
        "answer": "Pardon? What does she like?",
        "reason": "misheard",
        "words": "I like the most",
    }


def _result(trial: Trial, decisions: Sequence[DecisionRecord], timing: TrialTiming) -> TrialResult:
    chosen = deciding(decisions, trial.target_segment())
    assert chosen is not None, "there is a decision"
    return TrialResult(
        id=trial.id, status="ok", action=most_consequential(decisions), tool=chosen.tool, params=chosen.params,
        answer=chosen.answer, reason=chosen.reason, decisions=tuple(decisions), raw=chosen.raw, timing=timing,
        transcript=" ".join(d.evidence.transcript for d in decisions if d.evidence.transcript),
    )  # fmt: skip


# The page, read back --------------------------------------------------------------------------------------------------

_VOID = {"meta", "br", "hr", "img", "input", "link", "source"}


class Page(HTMLParser):
    """A page taken apart, and proof that its tags are balanced.

    Args:
        content: the page.
    """

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        """Each text with the names of the elements around it."""
        self._open: list[str] = []
        self.feed(content)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opens an element."""
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element without content."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Closes one."""
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        """Text."""
        self.texts.append((tuple(self._open), data))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of a name."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        """All that can be read, without the style."""
        return " ".join(" ".join(data for around, data in self.texts if "style" not in around).split())
