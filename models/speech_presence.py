"""A second look at a turn: is there any speech in it, before it costs recognition?

Silero VAD (Silero Team, "Silero VAD: pre-trained enterprise-grade voice activity detector", 2021 to 2025, MIT),
version 6.2, in the form in which its package carries it for whole recordings: one graph that takes all windows of a
turn at once.
WebRTC's detector, which opens and closes turns, judges each frame by the levels of six bands; this recurrent network
has learned what voices do over time.

Before that the turn is brought to one level, loud enough to flatten its peaks, and half a second of silence is put in
front: by itself the network is less sure of quiet voices, and surer of loud noises, than either deserves, and it misses
single words that begin before it has settled. Where it is not sure that nobody spoke, the recogniser decides.
Data, thresholds and measured error: ``models/cards/speech_presence.md``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from models.protocols import Audio, ModelId

MODEL_NAME: Final = "silero-vad"
PACKAGE: Final = "silero_vad"
GRAPH: Final = Path("data") / "silero_vad_16k_sequence.onnx"
SETTINGS: Final = Path(__file__).parent / "weights" / "speech_presence.json"

WINDOW_SAMPLES: Final = 512
"""One probability: 32 ms."""

_CONTEXT_SAMPLES = 64  # of the window before, which the graph reads with each window
_STATE_SHAPE = (1, 1, 128)
_LEVEL_FRAME_SAMPLES = 160
_LOUD_PERCENTILE = 95.0
_LOUD_RMS = 0.3
_LEAD_WINDOWS = 16
_SILENT_RMS = 1e-6

Probabilities = npt.NDArray[np.float32]
"""Of speech, one a window."""


class PresenceError(Exception):
    """The network is not there, or not the one that the thresholds were set for."""


@dataclass(frozen=True, slots=True)
class Presence:
    """What the second look says of a turn.

    Attributes:
        absent: True only when it is sure that nobody speaks; False as well when it cannot tell.
        score: the probability of speech that was held for the stated time, 0 to 1, or None where it cannot tell.
        note: the score and the threshold, or why there is no score.
    """

    absent: bool
    score: float | None
    note: str


class PresenceEar(Protocol):
    """Whether anybody speaks in a turn at all."""

    @property
    def model(self) -> ModelId: ...

    def check(self, audio: Audio) -> Presence:
        """Look at one turn. Raises nothing on odd audio: what it cannot judge is not absent."""
        ...


@dataclass(frozen=True, slots=True)
class PresenceThresholds:
    """When speech is absent.

    Attributes:
        speech_at: the probability that speech reaches.
        windows: for how many windows in a row it does.
    """

    speech_at: float
    windows: int


class SileroPresence:
    """A :class:`PresenceEar`. Keeps no state between calls; one thread.

    Args:
        graph: the ONNX file.
        sha256: the graph that the thresholds were set for.
        thresholds: when speech is absent.

    Raises:
        PresenceError: when the graph is another one.
        OSError: when the file is missing.
    """

    def __init__(self, graph: Path, sha256: str, thresholds: PresenceThresholds) -> None:
        import onnxruntime

        content = graph.read_bytes()
        if (found := hashlib.sha256(content).hexdigest()) != sha256:
            raise PresenceError(f"{graph.name} has sha256 {found}, its description says {sha256}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # the graph holds unused initialisers, each worth a warning
        self._session: Any = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self._thresholds = thresholds
        self._model = ModelId(MODEL_NAME, sha256)

    @property
    def model(self) -> ModelId:
        """Name and hash of the weights."""
        return self._model

    def check(self, audio: Audio) -> Presence:
        """Look at one turn.

        Args:
            audio: float32 ``(samples,)`` at 16 kHz, pre-roll included: the network warms up on it.

        Returns:
            Absent when the probability of speech stays below the threshold. Not absent when it cannot tell: too short,
            silent, not finite.
        """
        probabilities = self.probabilities(audio)
        if probabilities is None or probabilities.size < self._thresholds.windows:
            return Presence(False, None, "too short, silent or not finite")
        score = held(probabilities, self._thresholds.windows)
        if not score < self._thresholds.speech_at:
            return Presence(False, score, f"speech: p={score:.2f}")
        return Presence(True, score, f"no voice: p={score:.2f}, below {self._thresholds.speech_at:.2f}")

    def probabilities(self, audio: Audio) -> Probabilities | None:
        """The probability of speech in each window of 512 samples, the last one filled up with zeros.

        Returns:
            float32 ``(windows,)`` in [0, 1], or None as in ``check``.
        """
        samples = np.asarray(audio, dtype=np.float32).reshape(-1)
        level = loud_rms(samples)
        if not level > _SILENT_RMS:
            return None
        windows = -(-samples.size // WINDOW_SAMPLES)
        start = _CONTEXT_SAMPLES + _LEAD_WINDOWS * WINDOW_SAMPLES
        padded = np.zeros(start + windows * WINDOW_SAMPLES, dtype=np.float32)
        padded[start : start + samples.size] = np.clip(samples * (_LOUD_RMS / level), -1.0, 1.0)
        framed = np.lib.stride_tricks.sliding_window_view(padded, _CONTEXT_SAMPLES + WINDOW_SAMPLES)[::WINDOW_SAMPLES]
        state = np.zeros(_STATE_SHAPE, dtype=np.float32)
        inputs = {"input": np.ascontiguousarray(framed), "h": state, "c": state}
        found = np.asarray(self._session.run(["speech_probs"], inputs)[0], dtype=np.float32).reshape(-1)[_LEAD_WINDOWS:]
        return found if np.isfinite(found).all() else None


def held(probabilities: Probabilities, windows: int) -> float:
    """The highest probability that is reached in each of so many windows in a row."""
    return float(np.lib.stride_tricks.sliding_window_view(probabilities, windows).min(axis=1).max())


def loud_rms(samples: Audio) -> float:
    """RMS of a turn's loud frames: the 95th percentile over frames of 10 ms. NaN under one frame or if not finite."""
    count = samples.size // _LEVEL_FRAME_SAMPLES
    if count == 0 or not np.isfinite(samples).all():
        return float("nan")
    frames = samples[: count * _LEVEL_FRAME_SAMPLES].reshape(count, _LEVEL_FRAME_SAMPLES).astype(np.float64)
    return float(np.sqrt(np.percentile(np.mean(frames**2, axis=1), _LOUD_PERCENTILE)))


def installed_graph() -> Path:
    """The ONNX file inside the installed package, which is found but not imported.

    Raises:
        PresenceError: when the package or the file is missing; names the package.
    """
    found = importlib.util.find_spec(PACKAGE)
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        if (path := Path(folder) / GRAPH).is_file():
            return path
    raise PresenceError(f"{GRAPH.name} is not there; install the package silero-vad, version 6.2.3")


def load() -> SileroPresence | None:
    """The second look where its network is installed. Without it nothing is lost but time: the recogniser decides."""
    description = json.loads(SETTINGS.read_text(encoding="utf-8"))
    try:
        return SileroPresence(
            installed_graph(), description["onnx_sha256"], PresenceThresholds(**description["thresholds"])
        )
    except PresenceError:
        return None
