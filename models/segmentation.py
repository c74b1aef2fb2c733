"""Where two people speak at once: pyannote's segmentation network on ONNX Runtime.

Plaquet and Bredin, "Powerset multi-class cross entropy loss for neural speaker diarization", Interspeech 2023. Each
frame of 17 ms is one of: nobody, one of up to three voices, two of them at once. What counts here is how likely two
are. The network reads up to ten seconds, as it was trained; longer audio is read in windows that overlap by half.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, ModelId

if TYPE_CHECKING:
    from models.store import Store

MODEL_NAME: Final = "pyannote-segmentation-onnx"
GRAPH_NAME: Final = "segmentation.onnx"
HOP_SAMPLES: Final = 270
FIRST_FRAME_SAMPLES: Final = 991
"""Samples that one frame depends on directly; the first frame's centre lies in their middle."""
MIN_SAMPLES: Final = SAMPLE_RATE_HZ // 2
SETTINGS: Final = Path(__file__).parent / "weights" / "overlap.json"

_WINDOW_SAMPLES = 10 * SAMPLE_RATE_HZ
_TWO_VOICES = slice(4, 7)
_SILENT_RMS = 1e-5


class OverlapNetwork:
    """An :class:`models.protocols.OverlapEar`. Keeps no state between calls.

    Args:
        directory: what :mod:`models.export_pyannet` wrote.
        model: its identity.
        threads: CPU threads.
        settings: thresholds, or None to read those that come with the project.

    Raises:
        OSError: when a file is missing.
    """

    def __init__(
        self, directory: Path, model: ModelId, threads: int = 1, settings: dict[str, float] | None = None
    ) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = onnxruntime.InferenceSession(
            str(directory / GRAPH_NAME), options, providers=["CPUExecutionProvider"]
        )
        self._model = model
        chosen = settings if settings is not None else json.loads(SETTINGS.read_text(encoding="utf-8"))["thresholds"]
        self._on_at = float(chosen["on_at"])
        self._grow_at = float(chosen["grow_at"])
        self._min_frames = round(float(chosen["min_s"]) * SAMPLE_RATE_HZ / HOP_SAMPLES)

    @property
    def model(self) -> ModelId:
        """Which weights."""
        return self._model

    def find(self, audio: Audio) -> tuple[Span, ...] | None:
        """Stretches in which two voices sound at once, in order.

        Args:
            audio: float32 ``(samples,)`` at 16 kHz.

        Returns:
            Spans relative to ``audio``; None when it cannot tell (under 0.5 s, silent, not finite).
        """
        two = self.probabilities(audio)
        if two is None:
            return None
        return tuple(frames_span(first, last, audio.size) for first, last in self.runs(two))

    def runs(self, two: npt.NDArray[np.float32]) -> list[tuple[int, int]]:
        """The frames ``[first, last)`` that are marked, given :meth:`probabilities`."""
        return runs(two, self._on_at, self._grow_at, self._min_frames)

    def probabilities(self, audio: Audio) -> npt.NDArray[np.float32] | None:
        """How likely two voices sound at once, every 270 samples: float32 ``(frames,)``, or None as in ``find``."""
        samples = np.asarray(audio, dtype=np.float32).reshape(-1)
        if samples.size < MIN_SAMPLES or not np.isfinite(samples).all():
            return None
        if float(np.sqrt(np.mean(samples.astype(np.float64) ** 2))) < _SILENT_RMS:
            return None
        frames = 1 + (samples.size - FIRST_FRAME_SAMPLES) // HOP_SAMPLES
        total, weight = np.zeros(frames, dtype=np.float64), np.zeros(frames, dtype=np.float64)
        for start in _window_starts(samples.size):
            logs = self._session.run(None, {"waveform": samples[None, start : start + _WINDOW_SAMPLES]})[0][0]
            part = np.exp(logs[:, _TWO_VOICES]).sum(axis=1)
            first = start // HOP_SAMPLES
            part = part[: frames - first]
            # The middle of a window knows more of what surrounds it than its edges do.
            trust = np.minimum(np.arange(1, len(part) + 1), np.arange(len(part), 0, -1)).astype(np.float64)
            total[first : first + len(part)] += part * trust
            weight[first : first + len(part)] += trust
        two = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0.0)
        return two.astype(np.float32) if np.isfinite(two).all() else None


def runs(two: npt.NDArray[np.float32], on_at: float, grow_at: float, min_frames: int) -> list[tuple[int, int]]:
    """Runs of frames ``[first, last)`` of at least ``min_frames`` over ``grow_at`` that reach ``on_at`` somewhere."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], (two >= grow_at).astype(np.int8), [0]))))
    return [
        (int(first), int(last))
        for first, last in zip(edges[::2], edges[1::2], strict=True)
        if last - first >= min_frames and float(two[first:last].max()) >= on_at
    ]


def frames_span(first: int, last: int, samples: int) -> Span:
    """The samples that frames ``[first, last)`` stand for: half a hop around the centre of each."""
    start = first * HOP_SAMPLES + (FIRST_FRAME_SAMPLES - HOP_SAMPLES) // 2
    return Span(min(start, samples), min(samples, start + (last - first) * HOP_SAMPLES))


def _window_starts(samples: int) -> Sequence[int]:
    """Starts of the windows, each a whole number of frames into the audio; the last one ends with it or before."""
    if samples <= _WINDOW_SAMPLES:
        return (0,)
    hop = _WINDOW_SAMPLES // 2 // HOP_SAMPLES * HOP_SAMPLES
    last = (samples - _WINDOW_SAMPLES) // HOP_SAMPLES * HOP_SAMPLES
    return (*range(0, last, hop), last)


def load(store: Store, threads: int) -> OverlapNetwork:
    """Load it from the store.

    Raises:
        ModelError: when files are missing or damaged.
    """
    return OverlapNetwork(store.path(MODEL_NAME), store.model_id(MODEL_NAME), threads)
