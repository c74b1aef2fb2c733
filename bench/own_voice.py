"""How deaf the gate is to its own voice, and to the wearer's meanwhile: ``python -m bench.own_voice --data DIR``.

Sentences of the gate's synthesiser are played in simulated rooms (``models.training.rooms``): a small loudspeaker with
its band limits and, in three of ten scenes, with distortion; 20 to 400 ms of delay; two clocks that drift apart by up
to 120 ppm in one scene of three; room noise of -66 to -56 dBFS; a person at 10 to 40 cm. Words are stretches of 0.35 s
of sound, each known to be ours or hers. The recordings of real devices under ``DIR/audio/aec_playback`` follow.

Thresholds were chosen on ``--part dev``; ``--part test`` has other sentences and other people.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from agent.frames import FRAME_SAMPLES
from agent.own_voice import OwnVoice, TurnEcho
from agent.playback import PlaybackRecord
from agent.voices import VoiceError, load_kokoro
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.store import Store
from models.training import corpus, rooms
from models.training.corpus import Part
from models.training.sounds import coloured_noise

Signal = npt.NDArray[np.float64]

WORD_SAMPLES = SAMPLE_RATE_HZ * 35 // 100
PLAYED_DBFS = -23.0
STYLES = ("af_heart", "am_michael", "bf_emma", "am_fenrir")
SENTENCES = {
    Part.DEV: (
        "Pardon? Who should I text?",
        "Okay, cancelled.",
        "You asked me before to unlock the front door. Shall I?",
        "It is nine degrees and cloudy, with a little rain in the evening.",
        "Too late, that is already done.",
        "For example, you can say: turn off the kitchen light, or call Ben.",
        "Pardon? At what time?",
        "A marathon is forty two kilometres and one hundred and ninety five metres long.",
    ),
    Part.TEST: (
        "Transfer sixty dollars to Ben, yes?",
        "The capital of France is Paris. It has about two million inhabitants.",
        "Pardon? Please say it again, closer to me.",
        "Send Priya the message: I am running ten minutes late, yes?",
        "I am not sure that was you. Please say: yes, go ahead with it.",
        "Your next meeting is at half past three with the design team.",
        "Delete all photos of last summer, yes?",
        "Order two large pizzas to the office, yes?",
    ),
}
PEOPLE = ("librispeech_cohort", "alphanumeric", "picovoice_speech_to_intent")


@dataclass(frozen=True, slots=True)
class Condition:
    """One row of the table.

    Attributes:
        name: as it is printed.
        echo_db: the echo's level against what is played; None for earphones.
        person_db: the person's level above the echo; None where nobody speaks.
        afterwards: whether she speaks only when the echo is over.
    """

    name: str
    echo_db: float | None
    person_db: float | None = None
    afterwards: bool = False


CONDITIONS = (
    *(Condition(f"echo alone, {db:.0f} dB", db) for db in (-5.0, -10.0, -15.0, -20.0, -25.0, -30.0)),
    *(Condition(f"wearer {db:.0f} dB above the echo", -10.0, db) for db in (0.0, 5.0, 10.0, 20.0)),
    Condition("wearer, we play into earphones", None, 20.0),
    Condition("wearer, 50 to 600 ms after the echo", -10.0, 20.0, afterwards=True),
)


@dataclass(slots=True)
class Tally:
    """Counts of one row."""

    turns: int = 0
    own_turns: int = 0
    overlapped_turns: int = 0
    our_words: int = 0
    our_words_kept: int = 0
    her_words: int = 0
    her_words_kept: int = 0

    def add(self, echo: TurnEcho, turn: Span) -> None:
        """Count one turn, whose words are named "ours" and "hers"."""
        verdict = echo.verdict(Span(0, turn.samples))
        self.turns += 1
        self.own_turns += verdict.own_voice
        self.overlapped_turns += verdict.overlapped and not verdict.own_voice
        kept = [] if verdict.own_voice else [word.text for word in echo.kept]
        names = [judged.word.text for judged in echo.words]
        self.our_words += names.count("ours")
        self.our_words_kept += kept.count("ours")
        self.her_words += names.count("hers")
        self.her_words_kept += kept.count("hers")

    def row(self, name: str) -> str:
        """As a line of a Markdown table."""
        ours = f"{self.our_words_kept} / {self.our_words}" if self.our_words else "-"
        hers = f"{self.her_words_kept} / {self.her_words}" if self.her_words else "-"
        return f"| {name} | {self.own_turns} / {self.turns} | {self.overlapped_turns} | {ours} | {hers} |"


@dataclass(frozen=True, slots=True)
class Scene:
    """What the microphone heard, in parts of which the truth is known; all ``(samples,)`` at 16 kHz."""

    played: Signal
    played_at: int
    echo: Signal
    echo_span: Span
    person: Signal
    person_span: Span | None
    noise: Signal

    def check(self) -> tuple[TurnEcho, Span]:
        """The verdict on the turn that holds everything that is spoken."""
        microphone = (self.echo + self.person + self.noise).astype(np.float32)
        words = [Word("hers", span, 1.0) for span in _words(self.person, self.person_span)]
        for span in _words(self.echo, self.echo_span if self.echo.any() else None):
            there = slice(span.start_sample, span.end_sample)
            # Only where she is silent: in a mixture, whose word a recogniser would hear is anybody's guess.
            if _rms(self.person[there]) < 0.1 * _rms(self.echo[there]):
                words.append(Word("ours", span, 1.0))
        spoken = [span for span in (self.person_span, self.echo_span if self.echo.any() else None) if span]
        if self.person_span is not None and self.person_span.start_sample >= self.echo_span.end_sample:
            spoken, words = [self.person_span], [word for word in words if word.text == "hers"]
        margin = SAMPLE_RATE_HZ * 3 // 10
        turn = Span(
            max(0, min(span.start_sample for span in spoken) - margin),
            min(microphone.size, max(span.end_sample for span in spoken) + margin),
        )
        record = PlaybackRecord()
        # Without the text: this measures what the sound alone tells.
        record.start(self.played.astype(np.float32), "", self.played_at)
        own = OwnVoice(record)
        for start in range(0, turn.end_sample, FRAME_SAMPLES):
            own.listen(start, microphone[start : start + FRAME_SAMPLES])
        local = [
            Word(word.text, word.span.shifted(-turn.start_sample), 1.0)
            for word in sorted(words, key=lambda word: word.span)
        ]
        return own.check(turn, microphone[turn.start_sample : turn.end_sample], local), turn


def _rms(x: Signal) -> float:
    return float(np.sqrt(np.mean(np.square(x)) + 1e-20))


def _active_rms(x: Signal) -> float:
    """Level of the parts within 30 dB of the loudest 20 ms."""
    energy = np.mean(np.square(x[: x.size // 320 * 320].reshape(-1, 320)), axis=1)
    return float(np.sqrt(energy[energy > energy.max() * 1e-3].mean() + 1e-20))


def _words(x: Signal, span: Span | None) -> list[Span]:
    if span is None:
        return []
    level = 0.5 * _active_rms(x[span.start_sample : span.end_sample])
    starts = range(span.start_sample, span.end_sample - WORD_SAMPLES + 1, WORD_SAMPLES)
    return [Span(start, start + WORD_SAMPLES) for start in starts if _rms(x[start : start + WORD_SAMPLES]) >= level]


def _loudspeaker(x: Signal, rng: np.random.Generator) -> Signal:
    from scipy.signal import butter, sosfilt

    low_hz = rng.uniform(120.0, 350.0)
    limited = sosfilt(butter(2, (low_hz, 7200.0), "bandpass", fs=SAMPLE_RATE_HZ, output="sos"), x)
    drive = rng.uniform(0.3, 1.5) if rng.random() < 0.3 else 0.15
    peak = float(np.abs(limited).max())
    return np.asarray(np.tanh(limited / peak * drive) / drive * peak)


def _on_another_clock(x: Signal, drift_ppm: float) -> Signal:
    import soxr

    fine = soxr.resample(x, SAMPLE_RATE_HZ, 4 * SAMPLE_RATE_HZ, quality="VHQ")
    return np.asarray(np.interp(np.arange(x.size) * (1.0 + drift_ppm * 1e-6) * 4.0, np.arange(fine.size), fine))


def make_scene(
    rng: np.random.Generator, played: Signal, people: Sequence[corpus.Recording], condition: Condition
) -> Scene:
    """Draw one scene.

    Args:
        rng: draws everything.
        played: what is played, at 16 kHz.
        people: whom the person is drawn from.
        condition: levels.
    """
    from scipy.signal import fftconvolve

    played = played * 10.0 ** (PLAYED_DBFS / 20.0) / _active_rms(played)
    delay = round(rng.uniform(0.02, 0.4) * SAMPLE_RATE_HZ)
    drift_ppm = rng.uniform(-120.0, 120.0) if rng.random() < 1 / 3 else 0.0
    room = rooms.draw_room(rng, (0.15, 0.6))
    size = np.array(room.dims_m)
    microphone = size * rng.uniform(0.3, 0.7, 3)
    angle, distance = rng.uniform(0.0, 2.0 * np.pi), rng.uniform(0.3, 1.5)
    way = np.array([distance * np.cos(angle), distance * np.sin(angle), rng.uniform(-0.2, 0.2)])
    loudspeaker = np.clip(microphone + way, 0.2, size - 0.2)
    response = rooms.impulse_responses(room, loudspeaker, microphone[None], int(rng.integers(1 << 30)))[0]
    wet = fftconvolve(_on_another_clock(_loudspeaker(played, rng), drift_ppm), response.taps)

    start = round(rng.uniform(0.3, 0.8) * SAMPLE_RATE_HZ)
    total = start + played.size + 2 * SAMPLE_RATE_HZ
    echo_span = Span(start + delay, start + delay + played.size)
    echo = np.zeros(total)
    length = min(wet.size, total - echo_span.start_sample)
    echo[echo_span.start_sample : echo_span.start_sample + length] = wet[:length]
    level_db = PLAYED_DBFS + (condition.echo_db if condition.echo_db is not None else -10.0)
    echo *= 10.0 ** (level_db / 20.0) / _active_rms(echo[echo_span.start_sample : echo_span.end_sample])

    person, person_span = np.zeros(total), None
    if condition.person_db is not None:
        said = _utterance(rng, people, room, microphone)
        said *= 10.0 ** ((level_db + condition.person_db) / 20.0) / _active_rms(said)
        if condition.afterwards:
            at = echo_span.end_sample + round(rng.uniform(0.05, 0.6) * SAMPLE_RATE_HZ)
        else:
            last = max(echo_span.start_sample + 1, echo_span.end_sample - said.size * 7 // 10)
            at = int(rng.integers(max(0, echo_span.start_sample - SAMPLE_RATE_HZ // 5), last))
        said = said[: total - at]
        person[at : at + said.size] = said
        person_span = Span(at, at + said.size)
    noise = coloured_noise(rng, total, -3.0)
    noise *= 10.0 ** (rng.uniform(-66.0, -56.0) / 20.0) / _rms(noise)
    if condition.echo_db is None:
        echo[:] = 0.0
    return Scene(played, start, echo, echo_span, person, person_span, noise)


def _utterance(
    rng: np.random.Generator, people: Sequence[corpus.Recording], room: rooms.Room, microphone: Signal
) -> Signal:
    """One to 2.2 s of a person near the microphone."""
    dry = np.asarray(people[int(rng.integers(len(people)))].read(), np.float64)
    length = round(rng.uniform(1.0, 2.2) * SAMPLE_RATE_HZ)
    whole = _active_rms(dry)
    for _ in range(20):
        at = int(rng.integers(0, max(1, dry.size - length)))
        if _rms(dry[at : at + length]) > 0.5 * whole:
            break
    direction = rng.normal(size=3)
    way = rng.uniform(0.1, 0.4) * direction / np.linalg.norm(direction)
    mouth = np.clip(microphone + way, 0.1, np.array(room.dims_m) - 0.1)
    response = rooms.impulse_responses(room, mouth, microphone[None], int(rng.integers(1 << 30)))[0]
    return rooms.convolve(dry[at : at + length], response)


def simulated(part: Part, turns: int, seed: int, data: Path, store: Store) -> list[str]:
    """The table over simulated rooms.

    Raises:
        VoiceError: when the synthesiser or its model is missing.
    """
    voices = [load_kokoro(store, style, threads=2) for style in STYLES]
    sounds = [
        voices[index % len(voices)].say(text).at_rate(SAMPLE_RATE_HZ).astype(np.float64)
        for index, text in enumerate(SENTENCES[part])
    ]
    people = [item for item in corpus.speech(data, part, PEOPLE) if 1.2 < item.duration_s < 16.0]
    rng = np.random.default_rng(seed)
    lines = []
    for condition in CONDITIONS:
        tally = Tally()
        for _ in range(turns):
            played = sounds[int(rng.integers(len(sounds)))]
            tally.add(*make_scene(rng, played, people, condition).check())
        lines.append(tally.row(condition.name))
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return lines


def real_devices(data: Path) -> list[str]:
    """The table over recordings of real devices: three triplets of the AEC Challenge."""
    folder = data / "audio" / "aec_playback"

    def read(name: str) -> Signal:
        return corpus.read_all_channels(folder / name)[0][:, 0]

    far, far_played = read("farend/farend_singletalk_mic.flac"), read("farend/farend_singletalk_lpb.flac")
    both, both_played = read("doubletalk/doubletalk_mic.flac"), read("doubletalk/doubletalk_lpb.flac")
    near = read("nearend/nearend_singletalk_mic.flac")
    # In this clip nobody but the loudspeaker is heard for the first 3.9 s; then a person talks over it.
    begins = round(3.9 * SAMPLE_RATE_HZ)
    count = min(near.size, far.size, far_played.size)
    noise = coloured_noise(np.random.default_rng(0), count, -3.0)
    noise *= 10.0 ** (-62.0 / 20.0) / _rms(noise)
    lines = [
        _stretches("echo alone (130 ppm of drift)", far, far_played, "ours"),
        _stretches("echo alone, 20 dB weaker", far[:count] * 0.1 + noise, far_played, "ours"),
        _stretches("echo alone, 30 dB weaker", far[:count] * 10.0**-1.5 + noise, far_played, "ours"),
        _stretches("echo alone (another device)", both[:begins], both_played, "ours"),
        _stretches("a person over it", both[begins:], both_played[begins:], "hers"),
        _stretches("a person, other playback in earphones", near[:count], far_played, "hers"),
    ]
    for person_db in (0.0, 5.0, 10.0, 20.0):
        gain = _active_rms(near) / _active_rms(far) * 10.0 ** (-person_db / 20.0)
        mixed = near[:count] + gain * far[:count]
        lines.append(_stretches(f"a person {person_db:.0f} dB above an echo", mixed, far_played, "hers", near))
    return lines


def _stretches(name: str, microphone: Signal, played: Signal, whose: str, marked: Signal | None = None) -> str:
    """One recording in turns of 2.5 s, all of whose words are one party's."""
    record = PlaybackRecord()
    record.start(played.astype(np.float32), "", 0)
    own = OwnVoice(record)
    heard = microphone.astype(np.float32)
    for start in range(0, heard.size, FRAME_SAMPLES):
        own.listen(start, heard[start : start + FRAME_SAMPLES])
    source = microphone if marked is None else marked[: microphone.size]
    words = _words(source, Span(0, source.size))
    tally = Tally()
    length = SAMPLE_RATE_HZ * 5 // 2
    for start in range(0, heard.size - length + 1, length):
        turn = Span(start, start + length)
        inside = [Word(whose, span.shifted(-start), 1.0) for span in words if span.overlap(turn) == WORD_SAMPLES]
        if inside:
            tally.add(own.check(turn, heard[start : start + length], inside), turn)
    return tally.row(name)


HEAD = """| {title} | turns taken for ours | doubtful | our words kept | wearer's words kept |
| --- | --- | --- | --- | --- |"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print two Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.own_voice", description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of recordings (default: VOICEGATE_DATA)")
    parser.add_argument("--part", choices=["dev", "test"], default="test")
    parser.add_argument("--turns", type=int, default=40, help="turns per row (default 40)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    try:
        data = corpus.data_folder(args.data)
        lines = simulated(Part(args.part), args.turns, args.seed, data, Store())
    except (FileNotFoundError, VoiceError) as error:
        print(error, file=sys.stderr)
        return 1
    print(HEAD.format(title=f"simulated rooms, {args.part}, seed {args.seed}"), *lines, sep="\n")
    print()
    print(HEAD.format(title="real devices"), *real_devices(data), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
