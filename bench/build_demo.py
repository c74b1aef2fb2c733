"""Makes the bundled demo recording: one scene in a living room, with its ground truth.

``python -m bench.build_demo``; it needs the ``tts`` extra and ``voicegate models pull kokoro-82m kokoro-voices``.

A wearer with a microphone 0.2 m from her mouth tells of her day, gives a command and talks to herself. A command whose
amount is drowned by a burst of noise is asked about, completed, confirmed and executed; a ride is called off in time; a
meeting is corrected in one breath; a question is answered. A bystander, 3 m away in the same room, tries to cancel the
command, repeats it as his own, and says "yes" in her place. Both are synthetic voices (Kokoro-82M, Apache-2.0), placed
in the room by image sources with a diffuse tail; room tone lies under everything. Levels are as the microphone would
hear them: the bystander is fainter because he is farther away.

The same inputs give the same samples. Word times come from the voice model's own phoneme durations, moved to the
scene's time; the room simulation keeps alignment. What is decided about the recording is decided by the models when it
is replayed; the actions in the ground truth are what would be right.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.build.kokoro import Kokoro
from bench.build.speech import Synthesiser, speak
from bench.build.voices import Voice
from gate.span import SAMPLE_RATE_HZ
from models.store import Store
from models.training import rooms, sounds

FloatArray = npt.NDArray[np.float64]

SEED = 20
WEARER = "af_heart"
BYSTANDER = "am_michael"
COMMAND = "Text Maria that I will be home at seven."
ROOM_DIMS_M = (5.6, 4.3, 2.6)
ROOM_RT60_S = 0.42
MIC_M = (3.6, 1.5, 1.25)
WEARER_M = (3.6, 1.38, 1.41)
"""0.2 m from the microphone."""
BYSTANDER_M = (1.1, 3.1, 1.6)
"""3.0 m from it."""
LEAD_S = 1.0
TAIL_S = 1.5
SPEECH_DBFS = -23.0
ROOM_TONE_DB = -33.0
"""Of the room tone, relative to the wearer's speech."""


@dataclass(frozen=True, slots=True)
class Line:
    """One utterance of the scene.

    Attributes:
        speaker: "A" the wearer, "B" the bystander.
        text: what is said.
        role: what it is in the scene (context, trigger, self, repair, confirmation, undo, bystander).
        action: the right action.
        tool: the right tool, when the action is a tool.
        target_tool: the tool that the words name, also when they must not call it.
        gap_s: silence before it.
        masked: words that a noise burst replaces.
    """

    speaker: str
    text: str
    role: str
    action: str
    gap_s: float
    tool: str | None = None
    target_tool: str | None = None
    masked: tuple[str, ...] = ()


YES = "Yes, go ahead with it."
SCRIPT = (
    Line("A", "Okay, I finally got off the train, it was so crowded today.", "context", "mute", 0.0),
    Line("A", COMMAND, "trigger", "tool", 1.5, tool="send_message", target_tool="send_message"),
    Line("B", "No, actually, please just cancel that.", "bystander", "mute", 1.4),
    Line("B", COMMAND, "bystander", "mute", 2.2, target_tool="send_message"),
    Line("A", "Maybe I should call a taxi. No, I will walk, it's not far.", "self", "mute", 1.7),
    Line(
        "A",
        "Transfer two hundred dollars to Ben.",
        "trigger",
        "pardon",
        1.6,
        target_tool="transfer_money",
        masked=("two", "hundred"),
    ),
    Line("A", "Sixty dollars to Ben.", "repair", "pardon", 2.2, target_tool="transfer_money"),
    Line("B", YES, "bystander", "mute", 2.0, target_tool="transfer_money"),
    Line("A", YES, "confirmation", "tool", 1.5, tool="transfer_money", target_tool="transfer_money"),
    Line(
        "A",
        "Schedule lunch with Sarah at six, no, at seven.",
        "trigger",
        "tool",
        5.0,
        tool="schedule_event",
        target_tool="schedule_event",
    ),
    Line("A", "Book a ride to the station.", "trigger", "tool", 2.5, tool="book_ride", target_tool="book_ride"),
    Line("A", "No, cancel that.", "undo", "answer", 1.4, target_tool="book_ride"),
    Line("A", "What is the capital of France?", "trigger", "answer", 2.5),
)


def build(synthesiser: Synthesiser) -> tuple[FloatArray, dict[str, Any]]:
    """The scene as float64 ``(samples,)`` at 16 kHz, and its ground truth."""
    rng = np.random.default_rng(SEED)
    room = rooms.Room.with_rt60(ROOM_DIMS_M, ROOM_RT60_S, rng)
    responses = {
        "A": rooms.impulse_responses(room, WEARER_M, [MIC_M], SEED, facing_deg=[40.0])[0],
        "B": rooms.impulse_responses(room, BYSTANDER_M, [MIC_M], SEED + 1, facing_deg=[45.0])[0],
    }
    scene = np.zeros(0)
    segments: list[dict[str, Any]] = []
    for line in SCRIPT:
        spoken = speak(synthesiser, line.text, Voice(WEARER if line.speaker == "A" else BYSTANDER)).trimmed()
        dry = sounds.unit_power(spoken.samples.astype(np.float64))
        wet = rooms.convolve(dry, responses[line.speaker], keep_decay=True)
        gap = round((line.gap_s if segments else LEAD_S) * SAMPLE_RATE_HZ)
        start = (round(segments[-1]["end"] * SAMPLE_RATE_HZ) if segments else 0) + gap
        scene = np.pad(scene, (0, max(0, start + len(wet) - len(scene))))
        scene[start : start + len(wet)] += wet
        timed = [
            {
                "word": word.text,
                "start": round((start + word.span.start_sample) / SAMPLE_RATE_HZ, 3),
                "end": round((start + word.span.end_sample) / SAMPLE_RATE_HZ, 3),
            }
            for word in spoken.words
        ]
        segments.append(
            {
                "start": timed[0]["start"],
                "end": timed[-1]["end"],
                "speaker": line.speaker,
                "distance": "near" if line.speaker == "A" else "far",
                "text": line.text,
                "role": line.role,
                "expected": {"action": line.action, "tool": line.tool},
                "target_tool": line.target_tool,
                "mask": None,
                "words": timed,
            }
        )
    scene = np.pad(scene, (0, round(TAIL_S * SAMPLE_RATE_HZ)))
    wearers = [
        scene[round(s["start"] * SAMPLE_RATE_HZ) : round(s["end"] * SAMPLE_RATE_HZ)]
        for s in segments
        if s["speaker"] == "A"
    ]
    level = math.sqrt(float(np.mean(np.concatenate(wearers) ** 2)))
    scene = scene / level
    for line, segment in zip(SCRIPT, segments, strict=True):
        if line.masked:
            segment["mask"] = _mask(scene, segment, line.masked, rng)
    scene += sounds.coloured_noise(rng, len(scene), -5.0) * 10.0 ** (ROOM_TONE_DB / 20.0)
    scene *= 10.0 ** (SPEECH_DBFS / 20.0)
    truth = {
        "audio": "demo.flac",
        "sample_rate_hz": SAMPLE_RATE_HZ,
        "speakers": {"A": f"wearer, Kokoro voice {WEARER}", "B": f"bystander, Kokoro voice {BYSTANDER}"},
        "room": {
            "dims_m": list(ROOM_DIMS_M),
            "room_tone_db": ROOM_TONE_DB,
            **{
                f"{speaker}_{name}": round(getattr(response, name), 2)
                for speaker, response in responses.items()
                for name in ("distance_m", "rt60_s", "drr_db")
            },
        },
        "segments": segments,
    }
    return scene, truth


def _mask(
    scene: FloatArray, segment: dict[str, Any], masked: Sequence[str], rng: np.random.Generator
) -> dict[str, Any]:
    """Replace the named words by white noise at the speech's level, in place; the timing of the rest stays.

    The noise reaches half way to the words beside them.
    """
    words = segment["words"]
    inside = [i for i, w in enumerate(words) if w["word"].strip(".,").lower() in masked]
    chosen = words[inside[0] : inside[-1] + 1]
    start = round((words[inside[0] - 1]["end"] + chosen[0]["start"]) / 2 * SAMPLE_RATE_HZ)
    end = round((chosen[-1]["end"] + words[inside[-1] + 1]["start"]) / 2 * SAMPLE_RATE_HZ)
    fade = 80
    edge = np.ones(end - start)
    edge[:fade] = np.arange(fade) / fade
    edge[-fade:] = edge[:fade][::-1]
    noise = sounds.coloured_noise(rng, end - start, 0.0)
    scene[start:end] = scene[start:end] * (1.0 - edge) + noise * edge
    return {
        "kind": "noise",
        "words": [w["word"] for w in chosen],
        "start": start / SAMPLE_RATE_HZ,
        "end": end / SAMPLE_RATE_HZ,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    import soundfile

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "demo")
    args = parser.parse_args(argv)
    scene, truth = build(Kokoro(Store()))
    args.out.mkdir(parents=True, exist_ok=True)
    peak = float(np.abs(scene).max())
    if peak >= 1.0:
        raise RuntimeError(f"the scene would clip: peak {peak:.2f}")
    soundfile.write(args.out / "demo.flac", scene, SAMPLE_RATE_HZ, subtype="PCM_16")
    truth["duration_s"] = round(len(scene) / SAMPLE_RATE_HZ, 3)
    (args.out / "demo.json").write_text(json.dumps(truth, indent=2) + "\n", encoding="utf-8")
    print(f"{truth['duration_s']:.1f} s, peak {peak:.2f}, {(args.out / 'demo.flac').stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
