"""Damage ear: stretches in which a listener could not have heard the words, by what covered or removed them.

A small convolutional network on mel bands labels every 20 ms as sound speech (with its natural pauses) or as noise,
cut to silence, music or other voices put in place of speech: the maskings of semantic-acoustic masking (EAR), which
keep an utterance's timing and replace the sound of words. It sees 1.3 s to each side, so that a steady background is
no damage and a burst is. Clipping is found in the samples themselves. Training, data and measured error:
``models/cards/damage.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gate.evidence import DamageKind, DamageStretch
from gate.span import SAMPLE_RATE_HZ, Span
from models.mel_bands import HOP_SAMPLES, WINDOW_SAMPLES, mel_band_db
from models.protocols import Audio, ModelId
from models.trained_network import load_network

STRIDE_FRAMES = 2
"""Mel frames per output step: 20 ms."""

STEP_SAMPLES = STRIDE_FRAMES * HOP_SAMPLES

KINDS = (DamageKind.NOISE, DamageKind.SILENCE, DamageKind.MUSIC, DamageKind.VOICES)
"""The network's classes 1 to 4; class 0 is undamaged."""

WEIGHTS = Path(__file__).parent / "weights" / "damage.onnx"

# A step's frames reach from its first sample over two frames' length; its centre is what a stretch is measured by.
_STEP_CENTRE_SAMPLES = (STEP_SAMPLES - HOP_SAMPLES + WINDOW_SAMPLES) // 2
_MIN_SAMPLES = round(0.3 * SAMPLE_RATE_HZ)
_SILENT_RMS = 1e-5
_FLOOR_DB = -90.0

_CLIPPED_AT = 0.999
_CLIPPED_RUN_SAMPLES = 3  # one or two samples at full scale are a loud peak, not a flattened wave
_CLIP_BLOCK_SAMPLES = 800
_CLIP_SHARE = 0.10  # share of a 50 ms block that is flattened before words suffer

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DamageThresholds:
    """How step probabilities become stretches.

    Attributes:
        grow_at: a stretch extends over neighbouring steps whose probability of damage is at least this.
        on_at: per kind, the mean probability of damage over a stretch's surest 60 ms from which it is reported.
        merge_steps: stretches of one kind with at most this many steps between them become one.
        min_steps: shorter ones are dropped.
    """

    grow_at: float
    on_at: Mapping[DamageKind, float]
    merge_steps: int
    min_steps: int


def relative_bands(bands_db: FloatArray) -> FloatArray:
    """Mel bands relative to the turn's loud frames, scaled to about unit range, float32 ``(frames, 48)``."""
    total = 10.0 * np.log10(np.power(10.0, bands_db.astype(np.float64) / 10.0).sum(axis=1))
    reference = np.percentile(total, 85.0)
    return np.asarray((np.maximum(bands_db - reference, _FLOOR_DB) + 40.0) / 20.0, dtype=np.float32)


def candidate_stretches(probabilities: FloatArray, thresholds: DamageThresholds) -> list[tuple[int, int, int, float]]:
    """Runs of damaged steps.

    Args:
        probabilities: float32 ``(steps, 5)``, softmax over undamaged and the four kinds.
        thresholds: ``grow_at``, ``merge_steps`` and ``min_steps`` are used, ``on_at`` is the caller's.

    Returns:
        ``(first step, last step + 1, index into KINDS, score)`` in order.
    """
    damaged = 1.0 - probabilities[:, 0]
    edges = np.flatnonzero(np.diff(np.concatenate(([0], (damaged >= thresholds.grow_at).astype(np.int8), [0]))))
    runs: list[list[int]] = []
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        kind = int(np.argmax(probabilities[first:last, 1:].sum(axis=0)))
        if runs and first - runs[-1][1] <= thresholds.merge_steps and runs[-1][2] == kind:
            runs[-1][1] = last
        else:
            runs.append([first, last, kind])
    out = []
    for first, last, kind in runs:
        if last - first >= thresholds.min_steps:
            inside = damaged[first:last]
            score = float(np.convolve(inside, np.full(3, 1 / 3), mode="valid").max()) if len(inside) >= 3 else 0.0
            out.append((first, last, kind, score))
    return out


class DamageCnn:
    """The damage ear (see the module's text). Keeps no state between calls.

    Args:
        weights: the ONNX file; thresholds are read from the JSON file of the same name beside it.
        threads: ONNX Runtime's threads for one call.

    Raises:
        FileNotFoundError: when either file is missing.
        ValueError: when the weights are not those that the JSON file describes.
    """

    def __init__(self, weights: Path = WEIGHTS, threads: int = 1) -> None:
        network = load_network("damage", weights, threads)
        self._session = network.session
        self._thresholds = thresholds_from_json(network.description["thresholds"])
        self._model = network.model

    @property
    def model(self) -> ModelId:
        """Name and hash of the weights."""
        return self._model

    def find(self, audio: Audio) -> tuple[DamageStretch, ...] | None:
        """Damaged stretches, ordered by start; a clipped stretch may overlap another.

        Args:
            audio: float32 ``(samples,)`` at 16 kHz.

        Returns:
            None when it cannot tell: shorter than 0.3 s, not finite, or silent throughout.
        """
        samples = np.asarray(audio, dtype=np.float32).reshape(-1)
        if samples.size < _MIN_SAMPLES or not np.isfinite(samples).all():
            return None
        if float(np.sqrt(np.mean(samples.astype(np.float64) ** 2))) < _SILENT_RMS:
            return None
        logits = self._session.run(None, {"bands": relative_bands(mel_band_db(samples))[None]})[0][0]
        if not np.isfinite(logits).all():
            return None
        stretches = []
        for first, last, kind, score in candidate_stretches(softmax(logits), self._thresholds):
            if score >= self._thresholds.on_at[KINDS[kind]]:
                stretches.append(DamageStretch(step_span(first, last, samples.size), KINDS[kind], score))
        stretches.extend(clipped_stretches(samples))
        return tuple(sorted(stretches, key=lambda s: (s.span.start_sample, s.span.end_sample)))


def thresholds_from_json(values: Mapping[str, Any]) -> DamageThresholds:
    """Thresholds as the training command stored them."""
    return DamageThresholds(
        grow_at=float(values["grow_at"]),
        on_at={DamageKind(name): float(value) for name, value in values["on_at"].items()},
        merge_steps=int(values["merge_steps"]),
        min_steps=int(values["min_steps"]),
    )


def softmax(logits: FloatArray) -> FloatArray:
    """Softmax over the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True), dtype=np.float32)


def step_span(first: int, last: int, samples: int) -> Span:
    """The samples that steps ``[first, last)`` stand for: from 10 ms before the first centre to 10 ms after the
    last."""
    start = max(0, first * STEP_SAMPLES + _STEP_CENTRE_SAMPLES - STEP_SAMPLES // 2)
    return Span(min(start, samples), min(samples, max(start, (last - first) * STEP_SAMPLES + start)))


def clipped_stretches(audio: FloatArray) -> list[DamageStretch]:
    """Stretches in which at least a tenth of every 50 ms block lies in flat runs at full scale.

    The probability is the flattened share of the worst block, with 0.3 and more counted as certain.
    """
    at_limit = np.abs(audio) >= _CLIPPED_AT
    edges = np.flatnonzero(np.diff(np.concatenate(([0], at_limit.astype(np.int8), [0]))))
    flat = np.zeros(audio.size, dtype=np.float32)
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        # Both polarities belong to one run only if no sample lies between, which no voice does; treat as it comes.
        if end - start >= _CLIPPED_RUN_SAMPLES:
            flat[start:end] = 1.0
    blocks = audio.size // _CLIP_BLOCK_SAMPLES
    share = flat[: blocks * _CLIP_BLOCK_SAMPLES].reshape(blocks, _CLIP_BLOCK_SAMPLES).mean(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], (share >= _CLIP_SHARE).astype(np.int8), [0]))))
    return [
        DamageStretch(
            Span(first * _CLIP_BLOCK_SAMPLES, last * _CLIP_BLOCK_SAMPLES),
            DamageKind.CLIPPING,
            float(min(1.0, share[first:last].max() / 0.3)),
        )
        for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    ]
