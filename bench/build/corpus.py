"""Makes a corpus of its plans: speech, rooms, WAV files, manifest. Goes on where it was cut off.

A finished trial is one line in ``built.jsonl`` under its plan's digest; a plan that has not changed is not rendered
again. The manifest is written last and in one piece, so that a manifest that exists is whole.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, cast

from bench.build.plans import Plan
from bench.build.pool import each_with_speech, fill
from bench.build.recordings import Container, write_recording
from bench.build.scenes import Acoustics, Distance, Part, draw_acoustics, render
from bench.build.speech import Speech
from gate.actions import ActionKind
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ

MANIFEST: Final = "manifest.jsonl"
_BUILT: Final = "built.jsonl"
_AUDIO: Final = "audio"

Report = Callable[[str, int, int], None]
"""Told of progress: the stage, how many are done, of how many."""


def build(
    plans: Sequence[Plan], folder: Path, factory: Callable[[], Any], workers: int, report: Report,
    speech_folder: Path | None = None, *, container: Container = "wav",
) -> Path:  # fmt: skip
    """Build a corpus, or what is missing of it.

    Args:
        plans: its trials to be.
        folder: where it goes.
        factory: makes a synthesiser, in this process and in each worker; importable.
        workers: processes, one thread each.
        report: told of progress.
        speech_folder: the speech cache; None for the usual one.
        container: of the recordings; both hold the same samples.

    Returns:
        The manifest's path.

    Raises:
        SpeechBuildError: when something cannot be spoken.
        ValueError: when two plans have one id.
    """
    if len({plan.id for plan in plans}) < len(plans):
        raise ValueError("two trials have one id")
    speech = Speech(factory(), speech_folder)
    (folder / _AUDIO).mkdir(parents=True, exist_ok=True)
    for done, of, _ in fill(speech, (r for plan in plans for r in plan.requests), factory, workers, speech_folder):
        report("speech", done, of)
    known = _built(folder)
    digests = {plan.id: plan.digest(speech.identity) for plan in plans}
    missing = [plan for plan in plans if digests[plan.id] not in known]
    with (folder / _BUILT).open("a", encoding="utf-8") as log:
        rendered = each_with_speech(
            missing, partial(render_plan, folder=folder, container=container), factory, workers, speech_folder
        )
        for done, (plan, trial) in enumerate(rendered, 1):
            digest = digests[plan.id]
            known[digest] = trial
            log.write(json.dumps([digest, trial], ensure_ascii=False) + "\n")
            log.flush()
            report("rooms", done, len(missing))
    path = folder / MANIFEST
    lines = [json.dumps(known[digests[plan.id]], ensure_ascii=False) for plan in plans]
    draft = path.with_suffix(".tmp")
    draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.replace(draft, path)
    return path


def _built(folder: Path) -> dict[str, dict[str, Any]]:
    """What was finished before, by digest; a torn last line and trials whose audio is gone count for nothing."""
    found: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / _BUILT).read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError, ValueError):
                digest, trial = json.loads(line)
                if trial["audio"] is None or (folder / trial["audio"]).exists():
                    found[digest] = trial
    return found


def render_plan(plan: Plan, speech: Speech, folder: Path, container: Container = "wav") -> dict[str, Any]:
    """Render one plan.

    Args:
        plan: the trial to be.
        speech: where its speech comes from.
        folder: of the corpus.
        container: of the recording.

    Returns:
        Its line of the manifest. The recording is there when this returns.
    """
    trial: dict[str, Any] = {
        "id": plan.id, "family": plan.family, "condition": plan.condition, "audio": None, "text": plan.text,
        "question": None, "enrolment": None,
        "expected": {
            "action": plan.expected.action.value,
            "tool": plan.expected.call.name if plan.expected.call and plan.expected.action is ActionKind.TOOL else None,
            "answer": None if plan.expected.answers is None else list(plan.expected.answers),
        },
        "target_tool": plan.target_tool, "segments": [], "pair": plan.pair, "triplet": None, "split": plan.split,
    }  # fmt: skip
    trial |= {key: value for key, value in plan.more.items() if value is not None}
    if plan.place is None:
        return trial
    place = plan.place
    acoustics = _acoustics(place.split, place.index, place.dry, place.snr_db, place.far_m, place.rt60_s)
    parts = tuple(
        Part(
            speech.say(said.request.text, said.request.voice, said.request.speed), said.speaker,
            cast(Distance, said.distance), said.role, said.request.text, said.gap_s,
        )
        for said in plan.utterances
    )  # fmt: skip
    scene = render(parts, acoustics)
    name = f"{_AUDIO}/{plan.id}.{container}"
    digest = write_recording(folder / name, scene.samples, container)
    return trial | {
        "audio": name,
        "segments": [
            segment | {"words": [_word(word) for word in words]}
            for segment, words in zip(scene.segments, scene.words, strict=True)
        ],
        "sha256": digest,
        "voices": {said.speaker: said.request.voice for said in plan.utterances},
        "speed": plan.utterances[0].request.speed,
        "synthesiser": speech.identity,
        "duration_s": round(scene.samples.size / SAMPLE_RATE_HZ, 3),
        "peak": round(scene.peak, 3),
        "scale_db": round(scene.scale_db, 2),
        "gaps_s": [said.gap_s for said in plan.utterances],
        "acoustics": acoustics.facts(),
    }


def _word(word: Word) -> dict[str, Any]:
    span = word.span
    return {"word": word.text, "start": round(span.start_s, 4), "end": round(span.end_s, 4)}


@cache
def _acoustics(
    split: str, index: int, dry: bool | None, snr_db: float | None, far_m: float | None, rt60_s: float | None
) -> Acoustics:
    # The conditions of one command share a room, and follow each other.
    return draw_acoustics(split, index, dry=dry, snr_db=snr_db, far_m=far_m, rt60_s=rt60_s)
