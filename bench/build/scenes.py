"""Puts spoken texts into a room: who speaks from where, in what order, in what noise; one recording out, with labels.

After the construction of VGBench (section 3.3 and appendices F, G): segments are rendered one by one, brought to
-20 dBFS each *after* rendering, so that level never tells near from far, with 5 ms fades, at 16 kHz mono. Beyond the
paper, wearer and bystander share one simulated room, near speech has that room's reverberation too (or none: the
paper's dry variant, drawn for one scene in four), and noise lies under everything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from bench.build.speech import SpokenText
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.training import rooms, sounds

SEGMENT_DBFS: Final = -20.0
FADE_SAMPLES: Final = SAMPLE_RATE_HZ * 5 // 1000
LEAD_S: Final = 0.5
TAIL_S: Final = 0.5
NEAR_M: Final = (0.1, 0.4)
FAR_M: Final = (1.5, 4.5)
RT60_S: Final = (0.2, 0.9)
NOISE_KINDS: Final = ("room tone", "pink noise", "machine hum")
PEAK_LIMIT: Final = 0.99
DECAY_KEPT_S: Final = 0.3
"""How long a segment's reverberation sounds on into what follows."""
DRY_SHARE: Final = 0.25
LOUD_NOISE_SHARE: Final = 0.2

FloatArray = npt.NDArray[np.float64]
Distance = Literal["near", "far"]

_SPLIT_KEYS: Final = {"train": 1, "dev": 2, "test": 3}
"""Seeds of rooms: no room of one split is drawn in another."""
_PLACING_TRIES = 200


@dataclass(frozen=True, eq=False)
class Acoustics:
    """Where a scene takes place; everything a rendering depends on but the speech.

    Attributes:
        room: the room.
        near: from the wearer's mouth to her microphone, or None for the dry variant.
        far: from a bystander's mouth to the same microphone.
        wearer_far: from the wearer's mouth when she stands away from the microphone.
        rt60_requested_s: what the room was drawn for.
        far_cutoff_hz: of the first-order low-pass on far speech: what a turned head and things in the way take.
        snr_db: speech at its -20 dBFS over the noise.
        noise: the kind of noise.
        seed: of the noise.
    """

    room: rooms.Room
    near: rooms.Response | None
    far: rooms.Response
    wearer_far: rooms.Response
    rt60_requested_s: float
    far_cutoff_hz: float
    snr_db: float
    noise: str
    seed: int

    def facts(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return {
            "room_m": [round(side, 2) for side in self.room.dims_m],
            "rt60_requested_s": round(self.rt60_requested_s, 3),
            "near": "dry" if self.near is None else _measured(self.near),
            "far": _measured(self.far),
            "wearer_far": _measured(self.wearer_far),
            "far_cutoff_hz": round(self.far_cutoff_hz),
            "snr_db": round(self.snr_db, 1),
            "noise": self.noise,
        }


@dataclass(frozen=True, slots=True)
class Part:
    """One utterance of a scene.

    Attributes:
        speech: what is said, dry.
        speaker: ``A`` the wearer, ``B`` a bystander.
        distance: where the speaker is.
        role: what it is in the scenario (``bench.trials``).
        text: its words.
        gap_s: silence before it, from the end of what came before; of the first part, after the lead.
    """

    speech: SpokenText = field(repr=False)
    speaker: str
    distance: Distance
    role: str
    text: str
    gap_s: float = 0.0


@dataclass(frozen=True, eq=False)
class Scene:
    """One recording.

    Attributes:
        samples: float32 ``(samples,)`` at 16 kHz.
        segments: as the manifest has them: start, end (s), speaker, distance, text, role.
        words: every word with its samples, segment by segment.
        peak: largest magnitude before any scaling.
        scale_db: by how much the whole was turned down so that it does not clip; 0 for most.
    """

    samples: npt.NDArray[np.float32] = field(repr=False)
    segments: tuple[dict[str, Any], ...]
    words: tuple[tuple[Word, ...], ...]
    peak: float
    scale_db: float


def draw_acoustics(
    split: str,
    index: int,
    *,
    dry: bool | None = None,
    snr_db: float | None = None,
    far_m: float | None = None,
    rt60_s: float | None = None,
) -> Acoustics:
    """Draw a scene's acoustics. The same split and index give the same ones.

    Args:
        split: train, dev or test; rooms of two splits are never the same.
        index: of the scene.
        dry: whether near speech is dry; None draws it.
        snr_db: fixes the noise's level; None draws 15 to 35 dB, or 8 to 15 dB for one scene in five.
        far_m: fixes the bystander's distance; None draws it.
        rt60_s: fixes the reverberation time asked for; None draws it.

    Raises:
        KeyError: when there is no such split.
    """
    rng = np.random.default_rng((_SPLIT_KEYS[split], index))
    for _ in range(_PLACING_TRIES):
        wanted = rt60_s if rt60_s is not None else math.exp(rng.uniform(*np.log(RT60_S)))
        room = rooms.draw_room(rng, (wanted * 0.97, wanted * 1.03))
        dims = np.array(room.dims_m)
        mic = np.array([rng.uniform(0.25, 0.75) * dims[0], rng.uniform(0.25, 0.75) * dims[1], rng.uniform(0.9, 1.5)])
        near = _mouth_at(rng, mic, dims, rng.uniform(*NEAR_M))
        bystander = _mouth_at(rng, mic, dims, far_m if far_m is not None else rng.uniform(*FAR_M))
        away = _mouth_at(rng, mic, dims, far_m if far_m is not None else rng.uniform(*FAR_M))
        if near is not None and bystander is not None and away is not None:
            break
    else:
        raise RuntimeError(f"no room was found for {far_m} m at {rt60_s} s")
    seed = int(rng.integers(2**31))

    def response(mouth: FloatArray, most_turned_deg: float) -> rooms.Response:
        facing = [rng.uniform(0.0, most_turned_deg)]
        return rooms.impulse_responses(room, mouth, mic[None], seed, facing_deg=facing)[0]

    is_dry = bool(rng.random() < DRY_SHARE) if dry is None else dry
    near_response, far, wearer_far = response(near, 60.0), response(bystander, 180.0), response(away, 180.0)
    drawn_snr_db = rng.uniform(8.0, 15.0) if rng.random() < LOUD_NOISE_SHARE else rng.uniform(15.0, 35.0)
    return Acoustics(
        room, None if is_dry else near_response, far, wearer_far, wanted, rng.uniform(3500.0, 7500.0),
        drawn_snr_db if snr_db is None else snr_db, NOISE_KINDS[int(rng.integers(len(NOISE_KINDS)))], seed,
    )  # fmt: skip


def render(parts: tuple[Part, ...], acoustics: Acoustics) -> Scene:
    """Play the parts in the room.

    Args:
        parts: in order.
        acoustics: where.

    Returns:
        The recording. A gap is the silence between the end of one part's words and the start of the next one's; the
        room's decay and the noise go on in it.
    """
    mix = np.zeros(round(LEAD_S * SAMPLE_RATE_HZ))
    at = mix.size
    segments: list[dict[str, Any]] = []
    words: list[tuple[Word, ...]] = []
    for part in parts:
        wet, spoken = _placed(part, acoustics)
        start = at + round(part.gap_s * SAMPLE_RATE_HZ)
        shift = start - spoken[0].span.start_sample  # the words, not the breath before them, begin after the gap
        first = max(0, shift)
        wet = wet[first - shift :]
        if mix.size < first + wet.size:
            mix = np.pad(mix, (0, first + wet.size - mix.size))
        mix[first : first + wet.size] += wet
        moved = tuple(Word(word.text, word.span.shifted(shift), word.probability) for word in spoken)
        at = moved[-1].span.end_sample
        words.append(moved)
        segments.append(
            {
                "start": round(start / SAMPLE_RATE_HZ, 4), "end": round(at / SAMPLE_RATE_HZ, 4),
                "speaker": part.speaker, "distance": part.distance, "text": part.text, "role": part.role,
            }
        )  # fmt: skip
    total = max(mix.size, at + round(TAIL_S * SAMPLE_RATE_HZ))
    mix = np.pad(mix, (0, total - mix.size))
    mix += _noise(acoustics, total) * 10.0 ** ((SEGMENT_DBFS - acoustics.snr_db) / 20.0)
    peak = float(np.abs(mix).max())
    scale = min(1.0, PEAK_LIMIT / peak)
    scale_db = 20.0 * math.log10(scale)
    return Scene((mix * scale).astype(np.float32), tuple(segments), tuple(words), peak, scale_db)


def _placed(part: Part, acoustics: Acoustics) -> tuple[FloatArray, tuple[Word, ...]]:
    """A part as the microphone hears it, at -20 dBFS over its words, faded; and its words, relative to it."""
    speech = part.speech.trimmed()
    dry = np.asarray(speech.samples, np.float64)
    response = acoustics.near
    if part.distance == "far":
        response = acoustics.far if part.speaker != "A" else acoustics.wearer_far
    wet = dry if response is None else rooms.convolve(dry, response, keep_decay=True)
    if part.distance == "far":
        wet = _low_pass(wet, acoustics.far_cutoff_hz)
    wet = wet[: dry.size + round(DECAY_KEPT_S * SAMPLE_RATE_HZ)]
    voiced = wet[speech.words[0].span.start_sample : speech.words[-1].span.end_sample]
    level = math.sqrt(float(np.mean(voiced**2))) if voiced.size else 0.0
    wet = wet * (10.0 ** (SEGMENT_DBFS / 20.0) / max(level, 1e-9))
    fade = np.minimum(1.0, np.arange(wet.size) / FADE_SAMPLES)
    tail = min(wet.size, max(FADE_SAMPLES, wet.size - dry.size))
    fade[-tail:] *= np.linspace(1.0, 0.0, tail)
    return wet * fade, speech.words


def _low_pass(x: FloatArray, cutoff_hz: float) -> FloatArray:
    from scipy.signal import butter, sosfilt

    sos = butter(1, cutoff_hz, fs=SAMPLE_RATE_HZ, output="sos")
    return np.asarray(sosfilt(sos, x), dtype=np.float64)


def _noise(acoustics: Acoustics, samples: int) -> FloatArray:
    rng = np.random.default_rng(acoustics.seed)
    if acoustics.noise == "pink noise":
        return sounds.coloured_noise(rng, samples, -3.0)
    if acoustics.noise == "machine hum":
        time_s = np.arange(samples) / SAMPLE_RATE_HZ
        hz = 48.0 + 4.0 * rng.random()
        hum = np.zeros(samples)
        for harmonic in (1, 2, 3, 4, 6):
            hum += rng.uniform(0.2, 1.0) / harmonic * np.sin(2 * np.pi * hz * harmonic * time_s)
        return sounds.unit_power(hum + 0.7 * sounds.coloured_noise(rng, samples, -6.0))
    return sounds.room_tone(rng, samples)


def _mouth_at(rng: np.random.Generator, mic: FloatArray, dims: FloatArray, distance_m: float) -> FloatArray | None:
    """A mouth at that distance from the microphone, inside the room and at a person's height; None when none fits."""
    for _ in range(40):
        direction = rng.normal(size=3) * np.array([1.0, 1.0, 0.3])
        mouth = mic + direction / np.linalg.norm(direction) * distance_m
        if np.all(mouth > 0.1) and np.all(mouth < dims - 0.1) and 0.8 < mouth[2] < 1.9:
            return np.asarray(mouth)
    return None


def _measured(response: rooms.Response) -> dict[str, float | None]:
    def known(value: float, digits: int) -> float | None:
        return round(value, digits) if math.isfinite(value) else None

    return {
        "distance_m": round(response.distance_m, 2),
        "rt60_s": known(response.rt60_s, 3),
        "drr_db": known(response.drr_db, 1),
    }


def span_of(segment: dict[str, Any]) -> Span:
    """A segment's samples."""
    return Span(round(segment["start"] * SAMPLE_RATE_HZ), round(segment["end"] * SAMPLE_RATE_HZ))
