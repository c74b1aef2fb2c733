"""Who spoke, with the GE2E network that the PyPI package Resemblyzer carries. For comparison, not the default.

Three LSTM layers of 256 over windows of 1.6 s, whose unit vectors are averaged (Wan et al., "Generalized end-to-end
loss for speaker verification", ICASSP 2018). It reads 40 mel bands of *power*, not of its logarithm, so the level of a
stretch is set first. It runs on torch, loaded from the checkpoint alone: no code of the package is used.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio, ModelId, SpeakerThresholds
from models.speaker_audio import unfit
from models.speaker_calibration import shipped
from models.speaker_track import SpanTrack

if TYPE_CHECKING:
    from models.store import Store

MODEL_NAME: Final = "ge2e-resemblyzer"
CHECKPOINT_NAME: Final = "pretrained.pt"
MIN_SAMPLES: Final = SAMPLE_RATE_HZ * 4 // 10
"""0.4 s."""

_BANDS = 40
_HIDDEN = 256
_LAYERS = 3
_FFT_SAMPLES = 400
_HOP_SAMPLES = 160
_WINDOW_FRAMES = 160
_STEP_FRAMES = 77
"""1.3 windows a second, as the network's authors use it."""
_LEVEL_DB = -30.0


class Ge2eEar:
    """A :class:`models.protocols.SpeakerEar`. Keeps no state between calls."""

    def __init__(
        self, checkpoint: Path, model: ModelId, thresholds: SpeakerThresholds | None = None, threads: int = 2
    ) -> None:
        """Load the network.

        Args:
            checkpoint: the package's ``pretrained.pt``.
            model: its identity.
            thresholds: how to judge its scores; None reads the project's calibration, if there is one.
            threads: CPU threads; torch has one setting for the whole process.

        Raises:
            CalibrationError: when the project's calibration was made for other weights.
            OSError: when the file is missing.
            RuntimeError: when it holds another network.
        """
        import torch

        torch.set_num_threads(threads)
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)["model_state"]
        self._lstm = torch.nn.LSTM(_BANDS, _HIDDEN, _LAYERS, batch_first=True)
        self._linear = torch.nn.Linear(_HIDDEN, _HIDDEN)
        for name, module in (("lstm.", self._lstm), ("linear.", self._linear)):
            own = {key.removeprefix(name): value for key, value in state.items() if key.startswith(name)}
            module.load_state_dict(own)
            module.eval()
        self._model = model
        self._thresholds = shipped(MODEL_NAME, model.sha256) if thresholds is None else thresholds

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
        return _HIDDEN

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
        """Embedding of a stretch, or None and why: float32 ``(256,)`` with unit norm."""
        reason = unfit(audio, MIN_SAMPLES)
        if reason:
            return None, reason
        vector = self.embed_windows(windows(mel_power(audio))).mean(axis=0)
        norm = float(np.linalg.norm(vector))
        if not np.isfinite(norm) or norm == 0.0:
            return None, "the network gave no finite embedding"
        return (vector / norm).astype(np.float32), ""

    def embed_windows(self, mels: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Unit vectors of windows: float32 ``(windows, frames, 40)`` to ``(windows, 256)``."""
        import torch

        with torch.inference_mode():
            _, (hidden, _) = self._lstm(torch.from_numpy(mels))
            raw = torch.relu(self._linear(hidden[-1]))
            unit: npt.NDArray[np.float32] = torch.nn.functional.normalize(raw, dim=1).numpy()
        return unit


def mel_power(audio: Audio) -> npt.NDArray[np.float32]:
    """Mel bands of power at a fixed level.

    Windows of 25 ms every 10 ms, centred and reflected at the ends; triangles of equal area on Slaney's mel scale.

    Args:
        audio: float32 ``(samples,)`` at 16 kHz, at least 25 ms, not silent.

    Returns:
        float32 ``(1 + samples // 160, 40)``.
    """
    x = audio.astype(np.float64)
    x = x * (10.0 ** (_LEVEL_DB / 20.0) / np.sqrt(np.mean(x * x)))
    padded = np.pad(x, _FFT_SAMPLES // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, _FFT_SAMPLES)[::_HOP_SAMPLES]
    window = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(_FFT_SAMPLES) / _FFT_SAMPLES)
    spectrum = np.fft.rfft(frames * window, axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    return np.asarray(power @ _slaney_filters(), dtype=np.float32)


def windows(mel: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Overlapping windows of 1.6 s; the last one ends with the audio, and a shorter stretch is one shorter window.

    Args:
        mel: float32 ``(frames, 40)``.

    Returns:
        float32 ``(windows, frames, 40)``, at most 160 frames each.
    """
    last = max(0, len(mel) - _WINDOW_FRAMES)
    starts = [*range(0, last, _STEP_FRAMES), last]
    return np.stack([mel[start : start + _WINDOW_FRAMES] for start in starts])


@lru_cache(maxsize=1)
def _slaney_filters() -> npt.NDArray[np.float64]:
    """float64 ``(201, 40)``: linear up to 1 kHz, logarithmic above (Slaney, "Auditory toolbox", 1998)."""
    step = np.log(6.4) / 27.0
    top = 15.0 + np.log(SAMPLE_RATE_HZ / 2.0 / 1000.0) / step
    mels = np.linspace(0.0, top, _BANDS + 2)
    edges_hz = np.where(mels < 15.0, mels * (200.0 / 3.0), 1000.0 * np.exp(step * (mels - 15.0)))
    at_hz = np.fft.rfftfreq(_FFT_SAMPLES, 1.0 / SAMPLE_RATE_HZ)[:, None]
    left, centre, right = edges_hz[:-2], edges_hz[1:-1], edges_hz[2:]
    triangles = np.maximum(0.0, np.minimum((at_hz - left) / (centre - left), (right - at_hz) / (right - centre)))
    return np.asarray(triangles * (2.0 / (right - left)), dtype=np.float64)


def load(store: Store, threads: int) -> Ge2eEar:
    """Load the network from the store.

    Args:
        store: where its file is.
        threads: CPU threads.

    Raises:
        ModelError: when the file is missing or damaged.
        CalibrationError: when the project's calibration was made for other weights.
    """
    return Ge2eEar(store.path(MODEL_NAME) / CHECKPOINT_NAME, store.model_id(MODEL_NAME), threads=threads)
