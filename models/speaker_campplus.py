"""Who spoke, with CAM++ on ONNX Runtime.

Every span is cut out and goes through the network alone. One pass over the whole turn, pooled over the span, would be cheaper, but
context masking and two seconds of convolutions carry the neighbours' voice into the span: with two people in one turn that
raised the equal error rate from 6.6 to 9.7 % on people with their own phones and laptops, and the harm lies on the side of
taking a bystander for the owner.

The pass over the whole turn finds where the voice changes: windows pooled from it point out candidates, and each is then put
to the test with both sides cut out and embedded alone.
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
from models.speaker_changes import find_changes, window_spans

if TYPE_CHECKING:
    from models.store import Store

TRUNK_NAME: Final = "trunk.onnx"
HEAD_NAME: Final = "head.npz"
MIN_SAMPLES: Final = SAMPLE_RATE_HZ * 4 // 10
"""0.4 s."""

_FRAME_SAMPLES = SAMPLE_RATE_HZ // 50
"""One frame of the trunk: 20 ms."""
_CHANGE_HOP_SAMPLES = SAMPLE_RATE_HZ // 10
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
            self._weight: npt.NDArray[np.float32] = head["weight"]
            self._bias: npt.NDArray[np.float32] = head["bias"]
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

    def pool(self, frames: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Embedding of frames: ``(frames, 512)``, two or more, to float32 ``(dimension,)`` with unit norm."""
        statistics = np.concatenate([frames.mean(axis=0), frames.std(axis=0, ddof=1)])
        vector = self._weight @ statistics + self._bias
        norm = float(np.linalg.norm(vector))
        return (vector / norm).astype(np.float32) if norm > 0.0 else vector


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
        vector = self._ear.pool(self._ear.frames(cut))
        if not np.isfinite(vector).all() or not vector.any():
            return Embedding(None, span, "the network gave no finite embedding")
        return Embedding(vector, span)
