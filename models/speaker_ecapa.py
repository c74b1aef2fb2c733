"""Who spoke, with the ECAPA-TDNN that this project distils from CAM++, on ONNX Runtime.

Desplanques, Thienpondt and Demuynck, "ECAPA-TDNN: emphasized channel attention, propagation and aggregation in TDNN
based speaker verification" (Interspeech 2020). :mod:`models.training.speaker_ecapa` trains it. Every span is cut out
and goes through the network alone, without padding.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ
from models.fbank import kaldi_fbank
from models.protocols import Audio, ModelId, SpeakerThresholds
from models.speaker_audio import unfit
from models.speaker_calibration import shipped
from models.speaker_track import SpanTrack
from models.trained_network import load_network

if TYPE_CHECKING:
    from models.store import Store

MODEL_NAME: Final = "speaker-ecapa"
WEIGHTS_NAME: Final = "speaker_ecapa.onnx"
MIN_SAMPLES: Final = SAMPLE_RATE_HZ * 4 // 10
"""0.4 s."""


class EcapaEar:
    """A :class:`models.protocols.SpeakerEar`. Keeps no state between calls."""

    def __init__(self, weights: Path, thresholds: SpeakerThresholds | None = None, threads: int = 2) -> None:
        """Load the network.

        Args:
            weights: the ONNX file, its description beside it.
            thresholds: how to judge its scores; None reads the calibration that comes with the project.
            threads: CPU threads.

        Raises:
            CalibrationError: when the project's calibration was made for other weights.
            FileNotFoundError: when a file is missing.
            ValueError: when the weights are not those described.
        """
        network = load_network(MODEL_NAME, weights, threads)
        self._session = network.session
        self._model = network.model
        self._dimension = int(network.session.get_outputs()[0].shape[-1])
        self._thresholds = shipped("ecapa", self._model.sha256) if thresholds is None else thresholds

    @property
    def model(self) -> ModelId:
        """Which weights."""
        return self._model

    @property
    def thresholds(self) -> SpeakerThresholds:
        """Calibrated for this network; without a calibration, every verdict is unsure."""
        return self._thresholds

    @property
    def dimension(self) -> int:
        """Width of an embedding."""
        return self._dimension

    @property
    def min_samples(self) -> int:
        """The shortest span that is embedded."""
        return MIN_SAMPLES

    def track(self, audio: Audio) -> SpanTrack:
        """A turn whose spans can be embedded; the network runs when one is asked for.

        Args:
            audio: float32 ``(samples,)`` at 16 kHz in [-1, 1]; not copied.
        """
        return SpanTrack(self, audio)

    def embed_alone(self, audio: Audio) -> tuple[npt.NDArray[np.float32] | None, str]:
        """Embedding of a stretch, or None and why: float32 ``(dimension,)`` with unit norm."""
        reason = unfit(audio, MIN_SAMPLES)
        if reason:
            return None, reason
        vector: npt.NDArray[np.float32] = self._session.run(None, {"fbank": features(audio)[None]})[0][0]
        norm = float(np.linalg.norm(vector))
        if not np.isfinite(norm) or norm == 0.0:
            return None, "the network gave no finite embedding"
        return (vector / norm).astype(np.float32), ""


def features(audio: Audio) -> npt.NDArray[np.float32]:
    """What the network reads: a filter bank with its mean over time removed, float32 ``(frames, 80)``.

    Args:
        audio: float32 ``(samples,)`` at 16 kHz, at least 25 ms.
    """
    fbank = kaldi_fbank(audio)
    fbank -= fbank.mean(axis=0)
    return fbank


def load(store: Store, threads: int) -> EcapaEar:
    """Load the network from the store.

    Args:
        store: where its files are.
        threads: CPU threads.

    Raises:
        ModelError: when files are missing or damaged.
        CalibrationError: when the project's calibration was made for other weights.
    """
    return EcapaEar(store.path(MODEL_NAME) / WEIGHTS_NAME, threads=threads)
