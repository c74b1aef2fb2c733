"""What the second look at turns saves and loses: ``python -m bench.speech_presence --data DIR``.

Sounds without speech, and utterances that are easily missed (``models.training.speech_presence_scenes``), of voices
and noises that the thresholds were not chosen on, go through the gate's own detector and turns, as they would live.
Each turn is shown to the second look, and to the recogniser whatever the other makes of it (of speech only what is
refused), so that they can be counted alone and together. ``DIR`` holds ``audio/manifest.tsv`` (see
``models.training.corpus``).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent.frames import FRAME_SAMPLES
from agent.turns import TurnClosed, TurnDetector, TurnEvent
from agent.vad import level_dbfs, make_vad
from bench.stats import wilson
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, SpeechEar
from models.speech_presence import SETTINGS, PresenceEar, load
from models.speech_whisper import load as load_speech
from models.store import Store
from models.training import cards, corpus
from models.training.corpus import Part
from models.training.progress import steps
from models.training.speech_presence import WORDS
from models.training.speech_presence_scenes import (
    CONDITIONS,
    SOUNDS,
    Scene,
    quiet_scenes,
    recorded_noises,
    spoken_scenes,
)

UNSEEN_SETS = (
    "librispeech_cohort", "alphanumeric", "picovoice_speech_to_intent", "librispeech_test_other", "vctk", "commands",
    "picovoice_wake_word", "precise_wakewords", "fsdd",
)  # fmt: skip
EDGE_SAMPLES = SAMPLE_RATE_HZ // 5
"""First and last 200 ms of an utterance."""

_TAIL = np.zeros(SAMPLE_RATE_HZ, np.float32)


@dataclass(frozen=True, slots=True)
class Judged:
    """One turn.

    Attributes:
        span: its samples.
        absent: whether the second look refuses it.
        words: how many words the recogniser hears in it, or None where it was not asked.
        look_s: what the second look took.
        recognition_s: what the recogniser took.
    """

    span: Span
    absent: bool
    words: int | None
    look_s: float
    recognition_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """A recording and its turns."""

    scene: Scene
    turns: tuple[Judged, ...]


def turns_of(audio: Audio) -> list[TurnClosed]:
    """The turns that the gate cuts from a recording, with a second of silence after it."""
    vad, detector = make_vad(), TurnDetector()
    stream = np.concatenate([audio, _TAIL])
    found: list[TurnEvent] = []
    for start in range(0, len(stream) - FRAME_SAMPLES + 1, FRAME_SAMPLES):
        frame = stream[start : start + FRAME_SAMPLES]
        found += detector.push(start, frame, vad.is_speech(frame), level_dbfs(frame))
    return [event for event in (*found, *detector.flush()) if isinstance(event, TurnClosed)]


def unseen_speech(folder: Path) -> list[list[corpus.Recording]]:
    """Recordings that chose no threshold, by set."""
    pools = [
        [r for r in corpus.speech(folder, Part.TEST, (name,)) if r.speaker not in WORDS.get(name, ())]
        for name in UNSEEN_SETS
    ]
    return [pool for pool in pools if pool]


def judge(scene: Scene, look: PresenceEar, speech: SpeechEar) -> Outcome:
    """All that is known of a recording's turns."""
    turns = []
    for turn in turns_of(scene.audio):
        start_s = time.perf_counter()
        absent = look.check(turn.samples).absent
        looked_s = time.perf_counter()
        words = len(speech.hear(turn.samples).words) if absent or scene.speech is None else None
        turns.append(Judged(turn.span, absent, words, looked_s - start_s, time.perf_counter() - looked_s))
    return Outcome(scene, tuple(turns))


def report_sounds(outcomes: Sequence[Outcome]) -> list[str]:
    """Turns an hour of sound without speech, and how many of them come out as words."""
    lines = [
        "| sound | min | turns an hour | second look | with words: recogniser alone | both |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    rows: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        kind, name = outcome.scene.kind, outcome.scene.name
        rows.setdefault(kind if kind in SOUNDS else f"{kind}: {name}", []).append(outcome)
    rows["all"] = list(outcomes)
    for name, found in rows.items():
        hours = sum(len(outcome.scene.audio) for outcome in found) / SAMPLE_RATE_HZ / 3600.0
        turns = [turn for outcome in found for turn in outcome.turns]
        kept = [turn for turn in turns if not turn.absent]
        counts = (len(turns), len(kept), *(sum(bool(turn.words) for turn in some) for some in (turns, kept)))
        lines.append(f"| {name} | {hours * 60:.0f} | {' | '.join(f'{count / hours:.0f}' for count in counts)} |")
    return lines


def report_cost(outcomes: Sequence[Outcome]) -> list[str]:
    """What both stages take, and what is saved."""
    turns = [turn for outcome in outcomes for turn in outcome.turns]
    audio_s = sum(turn.span.duration_s for turn in turns)
    hours = sum(len(outcome.scene.audio) for outcome in outcomes) / SAMPLE_RATE_HZ / 3600.0
    look_s = sum(turn.look_s for turn in turns)
    recognition_s = sum(turn.recognition_s for turn in turns)
    saved_s = sum(turn.recognition_s for turn in turns if turn.absent)
    return [
        "| compute on sounds without speech | |",
        "| --- | --- |",
        f"| second look | {1e3 * look_s / audio_s:.1f} ms a second of turn |",
        f"| recognition | {1e3 * recognition_s / audio_s:.0f} ms a second of turn |",
        f"| both, an hour of sound: recognition of every turn | {recognition_s / hours:.0f} s |",
        f"| and with the second look before it | {(look_s + recognition_s - saved_s) / hours:.0f} s |",
    ]


def report_speech(outcomes: Sequence[Outcome], name_of: Callable[[Scene], str], names: Iterable[str]) -> list[str]:
    """Utterances lost, and how much of their edges is missing, before and after."""
    lines = [
        "| speech | utterances | no turn | refused | of these with words | first 200 ms lost | last 200 ms lost |",
        "| --- | ---: | ---: | --- | ---: | --- | --- |",
    ]
    for name in (*names, "all"):
        chosen = [outcome for outcome in outcomes if name in (name_of(outcome.scene), "all")]
        if not chosen:
            continue
        heard = [(outcome, turns) for outcome in chosen if (turns := _on_speech(outcome))]
        refused = [turns for _, turns in heard if all(turn.absent for turn in turns)]
        with_words = sum(any(turn.words for turn in turns) for turns in refused)
        low, high = wilson(len(refused), max(1, len(heard)))
        edges = [_edges_lost(chosen, first) for first in (True, False)]
        cells = [
            name, str(len(chosen)), str(len(chosen) - len(heard)), f"{len(refused)} ({low:.1%} to {high:.1%})",
            str(with_words), *edges,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _on_speech(outcome: Outcome) -> list[Judged]:
    speech = outcome.scene.speech
    return [turn for turn in outcome.turns if speech is not None and turn.span.overlap(speech)]


def _edges_lost(outcomes: Sequence[Outcome], first: bool) -> str:
    """Milliseconds of an utterance's edge in no turn, on average: before, and with the second look."""
    lost: list[tuple[int, int]] = []
    for outcome in outcomes:
        speech = outcome.scene.speech
        assert speech is not None, "only utterances have edges"
        size = min(EDGE_SAMPLES, speech.samples)
        edge = Span(speech.start_sample, speech.start_sample + size)
        if not first:
            edge = Span(speech.end_sample - size, speech.end_sample)
        kept = [[turn for turn in outcome.turns if keep or not turn.absent] for keep in (True, False)]
        before, after = (size - sum(turn.span.overlap(edge) for turn in turns) for turns in kept)
        lost.append((before, after))
    before_ms, after_ms = np.mean(lost, axis=0) * 1000.0 / SAMPLE_RATE_HZ
    return f"{before_ms:.1f}, {after_ms:.1f} ms"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print, as Markdown."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.speech_presence", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--data", type=Path, help="folder of recordings; default: VOICEGATE_DATA")
    parser.add_argument("--card", type=Path, help="model card whose measurements to replace")
    parser.add_argument("--minutes", type=int, default=3, help="of each kind of sound (default 3)")
    parser.add_argument("--utterances", type=int, default=108, help="in each condition (default 108)")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--threads", type=int, default=1, help="of the recogniser (default 1)")
    args = parser.parse_args(argv)
    try:
        folder = corpus.data_folder(args.data)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    look = load()
    if look is None:
        print("the second look cannot be loaded: install the package silero-vad, version 6.2.3", file=sys.stderr)
        return 2
    recogniser = load_speech(Store(), args.threads)
    unseen = (Part.TEST,)
    sound_count = args.minutes * len(SOUNDS) + 2 * len(recorded_noises(folder, unseen))
    quiet = quiet_scenes(folder, unseen, args.minutes, args.seed)
    sounds = [judge(scene, look, recogniser) for scene in steps(quiet, "sounds", sound_count)]
    noises = [recording.read() for recording in corpus.noises(folder, Part.TEST)]
    said = spoken_scenes(unseen_speech(folder), noises, args.utterances, args.seed)
    said_count = args.utterances * len(CONDITIONS)
    spoken = [judge(scene, look, recogniser) for scene in steps(said, "utterances", said_count)]
    lines = [
        cards.facts(json.loads(SETTINGS.read_text(encoding="utf-8"))),
        *report_sounds(sounds), "", *report_cost(sounds), "",
        *report_speech(spoken, lambda scene: scene.kind, CONDITIONS), "",
        *report_speech(spoken, lambda scene: scene.name, UNSEEN_SETS),
    ]  # fmt: skip
    print("\n".join(lines))
    if args.card:
        cards.write_measured(args.card, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
