"""Who spoke, with CAM++ on ONNX Runtime.

Every span is cut out and goes through the network alone. One pass over the whole turn, pooled over the span, would be
cheaper, but context masking and two seconds of convolutions carry the neighbours' voice into the span: in turns of two
real people that raised the equal error rate from 6.6 to 9.7 %, and the harm lies on the side of taking a bystander for
the owner.

The pass over the whole turn is used where the voice may change: the two sides of every candidate are pooled from it.
There it beats embedding the sides alone, which at these lengths scatters more than the other voice distorts.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ, Span
from models.fbank import kaldi_fbank
from models.protocols import Audio, Embedding, ModelId, SpeakerThresholds
from models.speaker_audio import inside, unfit
from models.speaker_calibration import SpeakerCalibration
from models.speaker_changes import MIN_SIDE_SAMPLES, find_changes

if TYPE_CHECKING:
    from models.store import Store

TRUNK_NAME: Final = "trunk.onnx"
HEAD_NAME: Final = "head.npz"
MIN_SAMPLES: Final = SAMPLE_RATE_HZ * 4 // 10
"""0.4 s."""

_FRAME_SAMPLES = SAMPLE_RATE_HZ // 50
"""One frame of the trunk: 20 ms."""
_CHANGE_HOP_SAMPLES = SAMPLE_RATE_HZ // 10
_CHANGE_SIDE_FRAMES = 150
"""Three seconds on either side of a candidate are compared; more would reach into a third person's speech."""
_CHANGE_SHORTNESS = 0.7
_CHANGE_AT = 0.5
"""The voice changes where cosine distance exceeds this + 0.7 x (1 / sqrt(shorter side in s) - 1 / sqrt(2))."""
_CALIBRATION = Path(__file__).parent / "weights" / "speaker_campplus_calibration.json"


class CampPlusEar:
    """A :class:`models.protocols.SpeakerEar`. Keeps no state between calls."""

    def __init__(
        self, directory: Path, model: ModelId, thresholds: SpeakerThresholds | None = None, threads: int = 2
    ) -> None:
        """Load the network.

        Args:
            directory: what :mod:`models.export_campplus` wrote.
            model: its identity.
            thresholds: how to judge its scores; None reads the calibration that comes with the project.
            threads: CPU threads.

        Raises:
            CalibrationError: when the project's calibration was made for other weights.
            OSError: when a file is missing.
            ValueError: when the head is not what the builder writes.
        """
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Spinning threads would take the time of the ears that run beside this one.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._trunk = onnxruntime.InferenceSession(
            str(directory / TRUNK_NAME), options, providers=["CPUExecutionProvider"]
        )
        with np.load(directory / HEAD_NAME, allow_pickle=False) as head:
            self._weight: npt.NDArray[np.float64] = head["weight"].astype(np.float64)
            self._bias: npt.NDArray[np.float64] = head["bias"].astype(np.float64)
            self._checkpoint_sha256 = str(head["checkpoint_sha256"])
        if self._weight.ndim != 2 or self._bias.shape != self._weight.shape[:1]:
            raise ValueError(f"{directory / HEAD_NAME}: not a head: {self._weight.shape}, {self._bias.shape}")
        self._model = model
        self._thresholds = (
            SpeakerCalibration.read(_CALIBRATION, self._checkpoint_sha256) if thresholds is None else thresholds
        )

    @property
    def model(self) -> ModelId:
        """Which weights."""
        return self._model

    @property
    def checkpoint_sha256(self) -> str:
        """Hash of the checkpoint that the network was exported from; what a calibration belongs to."""
        return self._checkpoint_sha256

    @property
    def thresholds(self) -> SpeakerThresholds:
        """Calibrated for this network."""
        return self._thresholds

    @property
    def dimension(self) -> int:
        """Width of an embedding."""
        return self._bias.size

    @property
    def min_samples(self) -> int:
        """The shortest span that is embedded."""
        return MIN_SAMPLES

    def track(self, audio: Audio) -> CampPlusTrack:
        """A turn whose spans can be embedded. The network runs when a span is asked for, not before.

        Args:
            audio: float32 ``(samples,)`` at 16 kHz in [-1, 1]; not copied.
        """
        return CampPlusTrack(self, audio)

    def frames(self, audio: Audio) -> npt.NDArray[np.float32]:
        """Frame-level features.

        Args:
            audio: float32 ``(samples,)``, at least 25 ms.

        Returns:
            float32 ``(frames, 512)``, 50 a second.
        """
        fbank = kaldi_fbank(audio)
        fbank -= fbank.mean(axis=0)
        frames: npt.NDArray[np.float32] = self._trunk.run(None, {"fbank": fbank[None]})[0][0]
        return frames

    def project(self, statistics: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The head: means and deviations ``(spans, 1024)`` to unit vectors ``(spans, dimension)``; zero stays zero."""
        vectors = statistics @ self._weight.T + self._bias
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: npt.NDArray[np.float64] = vectors / np.where(norms > 0.0, norms, 1.0)
        return unit


class CampPlusTrack:
    """One turn. Implements :class:`models.protocols.SpeakerTrack`; spans are embedded once and remembered."""

    def __init__(self, ear: CampPlusEar, audio: Audio) -> None:
        self._ear = ear
        self._audio = audio
        self._embeddings: dict[Span, Embedding] = {}
        self._changes: tuple[int, ...] | None = None

    def embed(self, span: Span) -> Embedding:
        """The embedding of one span, from its own samples alone; what lies outside the audio is left out."""
        span = inside(span, self._audio.size)
        if span not in self._embeddings:
            self._embeddings[span] = self._embed(span)
        return self._embeddings[span]

    def changes(self) -> tuple[int, ...]:
        """Samples at which the voice changes; empty when one person speaks, or when it cannot be told."""
        if self._changes is None:
            self._changes = self._find_changes()
        return self._changes

    def _embed(self, span: Span) -> Embedding:
        cut = self._audio[span.start_sample : span.end_sample]
        reason = unfit(cut, MIN_SAMPLES)
        if reason:
            return Embedding(None, span, reason)
        frames = self._ear.frames(cut)
        vector = _PooledSpans(self._ear, frames).embed(np.array([0]), np.array([len(frames)]))[0].astype(np.float32)
        if not np.isfinite(vector).all() or not vector.any():
            return Embedding(None, span, "the network gave no finite embedding")
        return Embedding(vector, span)

    def _find_changes(self) -> tuple[int, ...]:
        if unfit(self._audio, 2 * MIN_SIDE_SAMPLES):
            return ()
        pooled = _PooledSpans(self._ear, self._ear.frames(self._audio))

        def contrast(start: int, samples: npt.NDArray[np.int64], end: int) -> npt.NDArray[np.float64]:
            first, last = start // _FRAME_SAMPLES, min(end // _FRAME_SAMPLES, pooled.frames)
            middles = samples // _FRAME_SAMPLES
            lefts = np.maximum(first, middles - _CHANGE_SIDE_FRAMES)
            rights = np.minimum(last, middles + _CHANGE_SIDE_FRAMES)
            cosines = np.sum(pooled.embed(lefts, middles) * pooled.embed(middles, rights), axis=1)
            shorter_s = np.minimum(middles - lefts, rights - middles) * (_FRAME_SAMPLES / SAMPLE_RATE_HZ)
            expected = _CHANGE_AT + _CHANGE_SHORTNESS * (shorter_s**-0.5 - 0.5**0.5)
            return np.asarray(1.0 - cosines - expected, dtype=np.float64)

        return find_changes(self._audio, contrast, _CHANGE_HOP_SAMPLES)


class _PooledSpans:
    """Embeddings of any spans of one pass, from running sums: a span costs the same whatever its length."""

    def __init__(self, ear: CampPlusEar, frames: npt.NDArray[np.float32]) -> None:
        self._ear = ear
        self.frames = len(frames)
        wide = frames.astype(np.float64)
        zero = np.zeros((1, wide.shape[1]))
        self._sums = np.concatenate([zero, np.cumsum(wide, axis=0)])
        self._squares = np.concatenate([zero, np.cumsum(wide * wide, axis=0)])

    def embed(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Unit vectors ``(spans, dimension)`` of the frames ``[start, end)``, two or more each."""
        count = (ends - starts)[:, None].astype(np.float64)
        total, squares = self._sums[ends] - self._sums[starts], self._squares[ends] - self._squares[starts]
        deviation = np.sqrt(np.maximum(squares - total * total / count, 0.0) / (count - 1.0))
        return self._ear.project(np.concatenate([total / count, deviation], axis=1))


def load(store: Store, threads: int) -> CampPlusEar:
    """Load the default speaker network from the store.

    Args:
        store: where its files are.
        threads: CPU threads.

    Raises:
        ModelError: when files are missing or damaged.
        CalibrationError: when the project's calibration was made for other weights.
    """
    name = "campplus-onnx"
    return CampPlusEar(store.path(name), store.model_id(name), threads=threads)
