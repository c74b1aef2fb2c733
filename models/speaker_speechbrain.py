"""Who spoke, with any speaker network that SpeechBrain can load (Ravanelli et al., "SpeechBrain", 2021).

For trying another network, not for speed: it runs on torch. What SpeechBrain leaves to its caller is settled here:
nothing is ever fetched, whatever paths the network's own file names; every array is checked before it gets there;
and each is embedded by itself, since padding in a batch changes the result.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, Embedding, ModelId, SpeakerThresholds
from models.speaker_audio import inside, unfit
from models.speaker_calibration import SpeakerCalibration, Uncalibrated
from models.speaker_changes import MIN_SIDE_SAMPLES, find_changes

if TYPE_CHECKING:
    from models.store import Store

MIN_SAMPLES: Final = SAMPLE_RATE_HZ * 5 // 10
"""0.5 s."""

_HYPERPARAMETERS = "hyperparams.yaml"
_CHANGE_HOP_SAMPLES = SAMPLE_RATE_HZ // 4
"""Coarse, since every side of every candidate is a pass of its own."""
_CHANGE_SIDE_SAMPLES = 2 * SAMPLE_RATE_HZ


class SpeechBrainLoadError(Exception):
    """The directory is no speaker network of SpeechBrain's, or lacks a file. The message names it."""


class SpeechBrainEar:
    """A :class:`models.protocols.SpeakerEar` over SpeechBrain's ``EncoderClassifier``. Keeps no state between calls."""

    def __init__(
        self, directory: Path, model: ModelId, thresholds: SpeakerThresholds | None = None, threads: int = 2
    ) -> None:
        """Load the network. Its ``hyperparams.yaml`` can name any Python object, so only verified directories
        belong here.

        Args:
            directory: ``hyperparams.yaml`` and the files that it names, as published.
            model: its identity.
            thresholds: how to judge its scores; None makes every verdict unsure.
            threads: CPU threads; torch has one setting for the whole process.

        Raises:
            SpeechBrainLoadError: when a file is missing or does not fit.
        """
        import torch
        from speechbrain.inference.classifiers import EncoderClassifier
        from speechbrain.utils.fetching import FetchConfig, LocalStrategy

        file = directory / _HYPERPARAMETERS
        if not file.is_file():
            raise SpeechBrainLoadError(f"{directory} has no {_HYPERPARAMETERS}")
        # Published files refer to their own repository by name, which would be fetched though the files lie here.
        own_path = {"pretrained_path": str(directory)} if _has_key(file.read_text("utf-8"), "pretrained_path") else {}
        torch.set_num_threads(threads)
        try:
            self._network = EncoderClassifier.from_hparams(
                source=str(directory),
                hparams_file=_HYPERPARAMETERS,
                overrides=own_path,
                local_strategy=LocalStrategy.NO_LINK,
                fetch_config=FetchConfig(allow_network=False),
                run_opts={"device": "cpu"},
            )
        except Exception as error:  # whatever the objects that the file names may raise
            raise SpeechBrainLoadError(f"{directory}: {type(error).__name__}: {error}") from error
        self._model = model
        self._thresholds: SpeakerThresholds = Uncalibrated() if thresholds is None else thresholds
        self._dimension = self._encode(np.full(MIN_SAMPLES, 0.01, dtype=np.float32)).size

    @property
    def model(self) -> ModelId:
        """Which weights."""
        return self._model

    @property
    def thresholds(self) -> SpeakerThresholds:
        """As given; without any, every verdict is unsure."""
        return self._thresholds

    @property
    def dimension(self) -> int:
        """Width of an embedding."""
        return self._dimension

    @property
    def min_samples(self) -> int:
        """The shortest span that is embedded."""
        return MIN_SAMPLES

    def track(self, audio: Audio) -> SpeechBrainTrack:
        """A turn whose spans can be embedded; the network runs when one is asked for.

        Args:
            audio: float32 ``(samples,)`` at 16 kHz in [-1, 1]; not copied.
        """
        return SpeechBrainTrack(self, audio)

    def embed_alone(self, audio: Audio) -> tuple[npt.NDArray[np.float32] | None, str]:
        """Embedding of a stretch, or None and why: float32 ``(dimension,)`` with unit norm."""
        reason = unfit(audio, MIN_SAMPLES)
        if reason:
            return None, reason
        try:
            vector = self._encode(audio)
        except RuntimeError as error:  # what torch raises when a stretch is too short for a layer
            return None, f"the network refused it: {error}"
        norm = float(np.linalg.norm(vector))
        if not np.isfinite(norm) or norm == 0.0:
            return None, "the network gave no finite embedding"
        return (vector / norm).astype(np.float32), ""

    def _encode(self, audio: Audio) -> npt.NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            batch_of_one = torch.from_numpy(np.array(audio, dtype=np.float32))[None]
            encoded = self._network.encode_batch(batch_of_one)
        vector: npt.NDArray[np.float32] = encoded.reshape(-1).numpy()
        return vector


class SpeechBrainTrack:
    """One turn. Implements :class:`models.protocols.SpeakerTrack`; spans are embedded once and remembered."""

    def __init__(self, ear: SpeechBrainEar, audio: Audio) -> None:
        self._ear = ear
        self._audio = audio
        self._embeddings: dict[Span, Embedding] = {}

    def embed(self, span: Span) -> Embedding:
        """The embedding of one span, from its own samples alone; what lies outside the audio is left out."""
        span = inside(span, self._audio.size)
        if span not in self._embeddings:
            vector, note = self._ear.embed_alone(self._audio[span.start_sample : span.end_sample])
            self._embeddings[span] = Embedding(vector, span, note)
        return self._embeddings[span]

    def changes(self) -> tuple[int, ...]:
        """Samples at which the voice changes: where the thresholds call the two sides different people.

        Empty when one person speaks, and when the network is not calibrated.
        """
        if unfit(self._audio, 2 * MIN_SIDE_SAMPLES):
            return ()
        return find_changes(self._audio, self._contrast, _CHANGE_HOP_SAMPLES)

    def _contrast(self, start: int, samples: npt.NDArray[np.int64], end: int) -> npt.NDArray[np.float64]:
        """How far the cosine of the two sides lies under the threshold of being different people."""
        return np.array([self._contrast_at(start, int(at), end) for at in samples])

    def _contrast_at(self, start: int, at: int, end: int) -> float:
        left = self.embed(Span(max(start, at - _CHANGE_SIDE_SAMPLES), at))
        right = self.embed(Span(at, min(end, at + _CHANGE_SIDE_SAMPLES)))
        if left.vector is None or right.vector is None:
            return -np.inf
        cosine = float(np.dot(left.vector, right.vector))
        _, _, other_below = self._ear.thresholds.verdict(cosine, left.span.duration_s, right.span.duration_s)
        return other_below - cosine


def load(store: Store, threads: int) -> SpeechBrainEar:
    """Load SpeechBrain's ECAPA-TDNN from the store, with the calibration beside the project's weights if there is one.

    Args:
        store: where its files are.
        threads: CPU threads.

    Raises:
        ModelError: when files are missing or damaged.
        SpeechBrainLoadError: when SpeechBrain cannot load them.
        CalibrationError: when there is a calibration, made for other weights.
    """
    name = "spkrec-ecapa-voxceleb"
    model = store.model_id(name)
    file = Path(__file__).parent / "weights" / f"speaker_{name}_calibration.json"
    thresholds = SpeakerCalibration.read(file, model.sha256) if file.is_file() else None
    return SpeechBrainEar(store.path(name), model, thresholds, threads)


def _has_key(yaml_text: str, key: str) -> bool:
    """Whether a YAML text has a top-level key. Parsing it would run the objects that it names."""
    return any(line.startswith(f"{key}:") for line in yaml_text.splitlines())
