"""How far the aligners are off, against speech whose times are known: ``python -m bench.build.align_error``.

Speech comes from the synthesiser, which tells when each word begins. It puts a short span of its own between two
words, and the onset that a listener hears lies within it: so an onset counts as right anywhere from the end of the word
before to the told start, and its error is how far it lies outside of that. The error against the told start itself is
given, too.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.build.alignment import Aligner, AlignmentError, SphinxAligner, WhisperAligner
from bench.build.ear_scripts import load_ear_scripts
from bench.build.speech import Speech, SpokenText
from bench.build.voices import voices_of
from gate.span import SAMPLE_RATE_HZ


@dataclass(frozen=True, slots=True)
class OnsetErrors:
    """Errors of one aligner over some speech.

    Attributes:
        outside_ms: how far each onset lies outside the span in which it may lie; negative: early.
        told_ms: how far it lies from the told start.
        missed: words without a time.
        real_time_factor: seconds of work for a second of speech.
    """

    outside_ms: np.ndarray
    told_ms: np.ndarray
    missed: int
    real_time_factor: float

    def line(self, name: str) -> str:
        """As a line of the table."""
        size = np.abs(self.outside_ms)
        return (
            f"{name:<14}{self.outside_ms.size:>6}{self.missed:>8}{size.mean():>8.1f}{np.median(size):>8.1f}"
            f"{np.percentile(size, 90):>8.1f}{np.percentile(size, 99):>8.1f}{(size <= 50).mean():>9.1%}"
            f"{np.abs(self.told_ms).mean():>10.1f}{self.real_time_factor:>7.2f}"
        )


HEADER = (
    f"{'aligner':<14}{'words':>6}{'missed':>8}{'mean':>8}{'median':>8}{'p90':>8}{'p99':>8}{'<=50 ms':>9}"
    f"{'vs told':>10}{'RTF':>7}"
)


def onset_errors(aligner: Aligner, spoken: Sequence[tuple[str, SpokenText]]) -> OnsetErrors:
    """Align speech and compare.

    Args:
        aligner: what is measured.
        spoken: texts with their speech, one or more.
    """
    outside: list[float] = []
    told: list[float] = []
    missed = 0
    with contextlib.suppress(AlignmentError):
        aligner.align(spoken[0][1].samples, spoken[0][0])  # loads what is loaded when it is first needed
    began_s = time.monotonic()
    for text, speech in spoken:
        try:
            aligned = aligner.align(speech.samples, text)
        except AlignmentError:
            missed += len(speech.words)
            continue
        before = 0
        for found, known in zip(aligned, speech.words, strict=True):
            if found.probability == 0.0:
                missed += 1
            else:
                onset, start = found.span.start_sample, known.span.start_sample
                outside.append(max(0, onset - start) - max(0, before - onset))
                told.append(onset - start)
            before = known.span.end_sample
    seconds = sum(speech.samples.size for _, speech in spoken) / SAMPLE_RATE_HZ
    scale = 1000.0 / SAMPLE_RATE_HZ
    return OnsetErrors(
        np.array(outside) * scale, np.array(told) * scale, missed, (time.monotonic() - began_s) / seconds
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    from bench.build.command import make_kokoro
    from models.speech_whisper import load
    from models.store import Store

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--texts", type=int, default=24, metavar="N", help="how many turns of dev dialogues to speak")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="of the recogniser (default 2)")
    args = parser.parse_args(argv)
    speech = Speech(make_kokoro())
    turns = [turn.text for script in load_ear_scripts().of(["dev"]).dialogues for turn in script.turns]
    voices = [voice for voice in voices_of("dev") if len(voice.parts) == 1]
    chosen = turns[:: max(1, len(turns) // args.texts)][: args.texts]
    spoken = [(text, speech.say(text, voices[number % len(voices)].name)) for number, text in enumerate(chosen)]
    print(f"{len(chosen)} turns, {len(voices)} voices; errors in ms\n{HEADER}")
    for aligner in (SphinxAligner(), WhisperAligner(lambda: load(Store(), args.threads))):
        print(onset_errors(aligner, spoken).line(aligner.name), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
