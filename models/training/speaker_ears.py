"""Speaker ears by name, to be calibrated and compared: without thresholds, with the hash of their weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models import speaker_resemblyzer
from models.protocols import SpeakerEar
from models.registry import PACKAGE_DIRECTORY
from models.speaker_calibration import Uncalibrated
from models.speaker_campplus import CampPlusEar
from models.speaker_ecapa import WEIGHTS_NAME, EcapaEar
from models.speaker_resemblyzer import Ge2eEar
from models.speaker_speechbrain import SpeechBrainEar
from models.store import Store
from models.training.speaker_cuts import Take, is_for_training


@dataclass(frozen=True, slots=True)
class NamedEar:
    """An ear under test.

    Attributes:
        name: of its calibration file and in tables.
        sha256: hash of the weights that a calibration belongs to.
        ear: the ear; its thresholds are not used.
        trained_here: whether it was trained on some of the corpus's voices.
    """

    name: str
    sha256: str
    ear: SpeakerEar
    trained_here: bool = False

    @property
    def key(self) -> str:
        """Name and hash: what its embeddings are kept under."""
        return f"{self.name}-{self.sha256[:12]}"

    def unknown(self, chosen: Sequence[Take]) -> list[Take]:
        """The takes of voices that it was not trained on: neither thresholds nor figures may rest on the others."""
        return [take for take in chosen if not (self.trained_here and is_for_training(take))]


def load_uncalibrated(name: str, store: Store, threads: int) -> NamedEar:
    """An ear whatever its calibration: the one at hand may belong to other weights.

    Args:
        name: one of :data:`EARS`.
        store: where weights are.
        threads: CPU threads.

    Raises:
        KeyError: when there is none of that name.
        ModelError: when weights are missing or damaged.
    """
    return EARS[name](store, threads)


def _campplus(store: Store, threads: int) -> NamedEar:
    # By its checkpoint: what is built from it on another machine has the same scores and another hash.
    ear = CampPlusEar(store.path("campplus-onnx"), store.model_id("campplus-onnx"), Uncalibrated(), threads)
    return NamedEar("campplus", ear.checkpoint_sha256, ear)


def _speechbrain(store: Store, threads: int) -> NamedEar:
    model = store.model_id("spkrec-ecapa-voxceleb")
    ear = SpeechBrainEar(store.path(model.name), model, Uncalibrated(), threads)
    return NamedEar(model.name, model.sha256, ear)


def _ecapa(store: Store, threads: int) -> NamedEar:
    ear = EcapaEar(PACKAGE_DIRECTORY / "weights" / WEIGHTS_NAME, Uncalibrated(), threads)
    return NamedEar("ecapa", ear.model.sha256, ear, trained_here=True)


def _resemblyzer(store: Store, threads: int) -> NamedEar:
    model = store.model_id(speaker_resemblyzer.MODEL_NAME)
    checkpoint = store.path(model.name) / speaker_resemblyzer.CHECKPOINT_NAME
    return NamedEar(model.name, model.sha256, Ge2eEar(checkpoint, model, Uncalibrated(), threads))


EARS: dict[str, Callable[[Store, int], NamedEar]] = {
    "campplus": _campplus,
    "ecapa": _ecapa,
    "ge2e-resemblyzer": _resemblyzer,
    "spkrec-ecapa-voxceleb": _speechbrain,
}
"""How each is loaded, by the name that its calibration file has."""
