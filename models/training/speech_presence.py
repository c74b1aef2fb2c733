"""Set the thresholds of the second look at turns: ``python -m models.training.speech_presence --data DIR``.

The network comes trained; two numbers are chosen here, on voices and noises that the test does not hold. What becomes
of the gate's turns with them is measured by ``python -m bench.speech_presence``, through the gate's own turn detector.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np

from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio
from models.speech_presence import (
    MODEL_NAME,
    SETTINGS,
    PresenceThresholds,
    Probabilities,
    SileroPresence,
    held,
    installed_graph,
    loud_rms,
)
from models.training import corpus
from models.training.corpus import Part
from models.training.progress import steps
from models.training.speech_presence_scenes import (
    CONDITIONS,
    SOUNDS,
    VOICED_NOISES,
    Scene,
    quiet_scenes,
    recorded_noises,
    spoken_scenes,
)

SENTENCES: Final = ("librispeech_cohort", "alphanumeric", "picovoice_speech_to_intent", "cmu_arctic")
"""Sets of which the training and dev parts choose thresholds."""
WORDS: Final = {
    "fsdd": ("jackson", "lucas", "nicolas", "theo"),
    "moonshine_alnum": ("evmaki", "petewarden"),
    "picovoice_wake_word": ("unlabelled_jarvis", "unlabelled_smart_mirror", "unlabelled_view_glass"),
}
"""Single words, by set and speaker, that choose as well: a detector loses them long before it loses a sentence."""
LOST_TARGET: Final = 0.005
"""The share of utterances that may be taken for noise, over all conditions alike."""

_WINDOWS = (1, 2, 3, 4, 5)
_PIECE_S = 2.0
_AUDIBLE_RMS = 0.001  # a piece of the quiet room alone would open no turn
_PRE_ROLL_S = 0.3
_TAIL_S = 0.2


def choose(spoken: Sequence[Probabilities], quiet: Sequence[Probabilities]) -> PresenceThresholds:
    """The pair of numbers under which fewest sounds pass, among those that lose no more than the target of speech.

    Args:
        spoken: for each utterance, the probability of speech in every window.
        quiet: for each stretch of sound without speech, likewise.
    """
    best, fewest = PresenceThresholds(0.0, 1), math.inf
    for windows in _WINDOWS:
        scores = np.sort([held(probabilities, windows) for probabilities in spoken])
        # Rounded down, so that what was kept here stays kept.
        speech_at = math.floor(scores[math.floor(LOST_TARGET * len(scores))] * 100.0) / 100.0
        passed = float(np.mean([held(probabilities, windows) >= speech_at for probabilities in quiet]))
        if passed < fewest:
            best, fewest = PresenceThresholds(speech_at, windows), passed
    return best


def chosen_on(folder: Path) -> list[list[corpus.Recording]]:
    """Recordings that choose thresholds, by set."""
    sentences = [
        [r for part in (Part.TRAIN, Part.DEV) for r in corpus.speech(folder, part, (name,))] for name in SENTENCES
    ]
    words = [
        [r for r in corpus.recordings(folder) if r.set_name == name and r.speaker in WORDS[name]] for name in WORDS
    ]
    return [pool for pool in (*sentences, *words) if pool]


def _stretches(scenes: Iterator[Scene]) -> Iterator[Audio]:
    """What a turn of each scene would hold: the utterance with pre-roll and tail, or pieces of a sound."""
    for scene in scenes:
        if scene.speech is not None:
            start = scene.speech.start_sample - round(_PRE_ROLL_S * SAMPLE_RATE_HZ)
            yield scene.audio[start : scene.speech.end_sample + round(_TAIL_S * SAMPLE_RATE_HZ)]
        elif not scene.name.startswith(VOICED_NOISES):
            size = round(_PIECE_S * SAMPLE_RATE_HZ)
            pieces = scene.audio[: len(scene.audio) // size * size].reshape(-1, size)
            yield from (piece for piece in pieces if loud_rms(piece) > _AUDIBLE_RMS)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", help="folder of recordings (default: VOICEGATE_DATA)")
    parser.add_argument("--utterances", type=int, default=250, help="in each condition")
    parser.add_argument("--minutes", type=int, default=4, help="of each kind of sound")
    parser.add_argument("--seed", type=int, default=41)
    args = parser.parse_args(argv)
    folder, parts = corpus.data_folder(args.data), (Part.TRAIN, Part.DEV)
    graph = installed_graph()
    ear = SileroPresence(graph, hashlib.sha256(graph.read_bytes()).hexdigest(), PresenceThresholds(0.0, 1))
    noises = [recording.read() for part in parts for recording in corpus.noises(folder, part)]
    spoken = spoken_scenes(chosen_on(folder), noises, args.utterances, args.seed)
    sound_count = args.minutes * len(SOUNDS) + 2 * len(recorded_noises(folder, parts))
    found: list[list[Probabilities]] = []
    for scenes, count in (
        (spoken, args.utterances * len(CONDITIONS)),
        (quiet_scenes(folder, parts, args.minutes, args.seed), sound_count),
    ):
        pieces = _stretches(steps(scenes, "scenes", count))
        found.append([p for piece in pieces if (p := ear.probabilities(piece)) is not None])
    thresholds = choose(*found)
    content = {
        "model": MODEL_NAME,
        "onnx_sha256": ear.model.sha256,
        "thresholds": asdict(thresholds),
        "target": f"at most {LOST_TARGET:.1%} of utterances taken for noise, over all conditions alike",
        "chosen on": f"training and dev: {len(found[0])} utterances, {len(found[1])} stretches of sound",
        "seed": args.seed,
    }
    SETTINGS.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(content, indent=2))


if __name__ == "__main__":
    main()
