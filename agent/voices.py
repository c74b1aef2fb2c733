"""What the gate speaks with: a synthesiser where one is installed, none otherwise (then ``agent.earcon`` stands in).

Kokoro-82M runs through ``kokoro-onnx``, an optional package: its phonemizer loads eSpeak NG, which is under the GPL, so
neither is a dependency of this project. The model itself comes from the model store.
"""

from __future__ import annotations

import importlib
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from agent.playback import Sound
from gate.evidence import SpeakerVerdict
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Embedding, SpeakerEar, SpeakerThresholds
from models.store_errors import ModelError

if TYPE_CHECKING:
    from models.store import Store

MODEL_NAME = "kokoro-82m"
STYLES_NAME = "kokoro-voices"
DEFAULT_STYLE = "af_heart"
PEAK = 0.5
"""-6 dBFS."""
KEPT_SOUNDS = 32
"""How many sentences are kept ready; the gate's own questions return often."""

_STYLE_SHAPE = (510, 1, 256)

_REFERENCE_TEXT = (
    "This is how I sound when I read a few sentences aloud.",
    "The weather is mild today, and the evening will be clear.",
    "Pardon? Please say it again, a little closer to me.",
)
"""Some eight seconds of speech with most sounds of English."""


class VoiceError(Exception):
    """There is no voice, or it cannot say something. The message names the cure."""


class Synthesiser(Protocol):
    """Text to sound."""

    @property
    def name(self) -> str:
        """What speaks, for the log."""
        ...

    def say(self, text: str) -> Sound:
        """Speak one text. Blocks for about as long as the speech lasts; call it on a thread.

        Raises:
            VoiceError: when it cannot be said.
        """
        ...


class KokoroVoice:
    """Kokoro-82M in one voice style. Keeps the last sentences, so that what returns is there at once.

    Args:
        engine: a ``kokoro_onnx.Kokoro``.
        style: its voice, float32 ``(510, 1, 256)``.
        name: the style's name; its first letter tells American (a) from British (b) English.
    """

    def __init__(self, engine: Any, style: np.ndarray, name: str) -> None:
        self._engine = engine
        self._style = style
        self._language = "en-gb" if name.startswith("b") else "en-us"
        self._kept: OrderedDict[str, Sound] = OrderedDict()
        self._lock = threading.Lock()  # for what is kept; a call that was given up may still be running
        self._name = name

    @property
    def name(self) -> str:
        """The model and its style."""
        return f"{MODEL_NAME}/{self._name}"

    def say(self, text: str) -> Sound:
        """Speak one text, 24 kHz, at a peak of ``PEAK``.

        Raises:
            VoiceError: when the text holds nothing that can be spoken, or the engine fails.
        """
        with self._lock:
            if text in self._kept:
                self._kept.move_to_end(text)
                return self._kept[text]
        try:
            samples, rate_hz = self._engine.create(text, self._style, lang=self._language)
            samples = np.array(samples, np.float32).reshape(-1)
            samples *= PEAK / max(float(np.max(np.abs(samples))), 1e-9)
            sound = Sound(samples, int(rate_hz))
        except Exception as error:  # the engine and its phonemizer raise many kinds
            raise VoiceError(f"{self.name} cannot say {text[:40]!r}: {type(error).__name__}: {error}") from error
        with self._lock:
            self._kept[text] = sound
            while len(self._kept) > KEPT_SOUNDS:
                self._kept.popitem(last=False)
        return sound


def load_kokoro(store: Store, style: str = DEFAULT_STYLE, threads: int = 1) -> KokoroVoice:
    """Load Kokoro from the model store.

    Args:
        store: where its files are.
        style: the voice ("af_heart", "bm_george", ...).
        threads: CPU threads; one, since the ears run beside it.

    Raises:
        VoiceError: when the package or a file is missing; names the cure.
    """
    try:
        kokoro_onnx = importlib.import_module("kokoro_onnx")
    except ImportError as error:
        raise VoiceError("no synthesiser: pip install kokoro-onnx") from error
    try:
        graph = store.file(MODEL_NAME, "kokoro.onnx")
        style_file = store.file(STYLES_NAME, f"{style}.bin")
    except ModelError as error:
        raise VoiceError(f"no voice: {error}; run `voicegate models pull {MODEL_NAME} {STYLES_NAME}`") from error
    import onnxruntime

    values = np.fromfile(style_file, np.float32)
    if values.size != np.prod(_STYLE_SHAPE):
        raise VoiceError(f"{style_file} holds {values.size} values, not {int(np.prod(_STYLE_SHAPE))}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        engine = _engine(kokoro_onnx, session, values.reshape(_STYLE_SHAPE))
    except Exception as error:  # eSpeak NG that cannot be loaded, a graph that is none
        raise VoiceError(f"no voice: {type(error).__name__}: {error}") from error
    return KokoroVoice(engine, values.reshape(_STYLE_SHAPE), style)


def _engine(kokoro_onnx: Any, session: Any, style: np.ndarray) -> Any:
    # The engine insists on an archive of styles, though every call brings its own.
    with tempfile.TemporaryDirectory(prefix="voicegate-", ignore_cleanup_errors=True) as folder:
        archive = Path(folder) / "styles.npz"
        np.savez(archive, style=style)
        engine = kokoro_onnx.Kokoro.from_session(session, str(archive))
        engine.voices.close()
        engine.voices = {}
    return engine


def own_voice_reference(ear: SpeakerEar, voice: Synthesiser) -> Embedding:
    """What the gate's own voice sounds like to the speaker ear, so that nobody enrols it as the wearer's.

    Args:
        ear: the session's speaker ear.
        voice: the synthesiser.

    Returns:
        The embedding of some eight seconds of speech, or unknown.

    Raises:
        VoiceError: when the voice fails.
    """
    parts = [_at_16_khz(voice.say(text)) for text in _REFERENCE_TEXT]
    audio = np.concatenate(parts)
    return ear.track(audio).embed(Span(0, audio.size))


def is_own_voice(
    embedding: Embedding, references: Sequence[Embedding], thresholds: SpeakerThresholds
) -> tuple[bool, float | None]:
    """Whether a clip holds the gate's own voice.

    Args:
        embedding: of the clip.
        references: from ``own_voice_reference``, by the same ear.
        thresholds: that ear's.

    Returns:
        The answer with the highest score; unknown embeddings are no match. Doubt ("unsure") is no match either: a clip
        that a person cannot enrol would lock her out for sounding alike.
    """
    scores = []
    for reference in references:
        if embedding.vector is None or reference.vector is None:
            continue
        score = float(np.dot(embedding.vector, reference.vector))
        verdict, _, _ = thresholds.verdict(score, reference.span.duration_s, embedding.span.duration_s)
        scores.append((verdict is SpeakerVerdict.OWNER, score))
    if not scores:
        return False, None
    return any(same for same, _ in scores), max(score for _, score in scores)


def _at_16_khz(sound: Sound) -> np.ndarray:
    pause = np.zeros(SAMPLE_RATE_HZ // 5, np.float32)
    return np.concatenate([sound.at_rate(SAMPLE_RATE_HZ), pause])
