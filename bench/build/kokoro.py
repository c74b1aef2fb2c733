"""Kokoro-82M with word times, for building corpora. (``agent.voices`` is the live voice; it needs no word times.)

The published model computes phoneme durations but does not return them; the one node that holds them is made an output
in memory, and ``kokoro_onnx`` turns it into times. Where its phonemizer runs words together ("on the" has one group of
phonemes), the group's time is shared among them by their length in letters.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import soxr

from bench.build.voices import Voice
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span

if TYPE_CHECKING:
    from models.store import Store

MODEL_NAME: Final = "kokoro-82m"
STYLES_NAME: Final = "kokoro-voices"
LATE_S: Final = 0.04
"""By how much the durations place sounds later than they are: 30 to 50 ms at energy onsets."""
PUNCTUATION: Final = '.,!?;:—…"“”()'

_DURATIONS = "/encoder/Clip_output_0"
_STYLE_SHAPE = (510, 1, 256)


class SpeechBuildError(RuntimeError):
    """Speech cannot be made. The message names the cure or the text."""


class Kokoro:
    """Text to samples and word times.

    Args:
        store: where model and styles are.

    Raises:
        SpeechBuildError: when ``kokoro-onnx`` is missing.
        ModelError: when the model is not in the store.
    """

    def __init__(self, store: Store) -> None:
        try:
            self._package = importlib.import_module("kokoro_onnx")
        except ImportError as error:
            raise SpeechBuildError("building speech needs kokoro-onnx: pip install 'voicegate[tts]'") from error
        self.identity = f"{MODEL_NAME}-{store.model_id(MODEL_NAME).sha256[:16]}"
        self._styles_folder = store.path(STYLES_NAME)
        self._styles: dict[str, npt.NDArray[np.float32]] = {}
        self._path = store.file(MODEL_NAME, "kokoro.onnx")
        self._loaded: Any = None

    def say(self, text: str, voice: Voice, speed: float = 1.0) -> tuple[npt.NDArray[np.float32], tuple[Word, ...]]:
        """Speak one text.

        Args:
            text: what to say; numbers as words.
            voice: who says it.
            speed: 1 is the voice's own.

        Returns:
            float32 ``(samples,)`` at 16 kHz, and every word of the text with its samples.

        Raises:
            SpeechBuildError: when the text holds nothing that can be spoken.
        """
        language = "en-gb" if voice.accent == "b" else "en-us"
        audio, rate_hz, timings = self._engine.create_timed(
            text, self._style(voice), speed=speed, lang=language, trim=False
        )
        groups = _groups(timings)
        if not groups:
            raise SpeechBuildError(f"nothing to say in {text!r}")
        samples = np.asarray(soxr.resample(audio, rate_hz, SAMPLE_RATE_HZ), dtype=np.float32)
        lengths = [max(1, len(self._engine.tokenizer.phonemize(word, language))) for word in text.split()]
        return samples, times_of_words(text.split(), lengths, groups, samples.size)

    @property
    def _engine(self) -> Any:
        # Loaded when the first text is not in the cache, which may be never.
        if self._loaded is None:
            self._loaded = self._load(self._path)
        return self._loaded

    def _style(self, voice: Voice) -> npt.NDArray[np.float32]:
        if voice.name not in self._styles:
            parts = [np.fromfile(self._styles_folder / f"{name}.bin", np.float32) for name in voice.parts]
            self._styles[voice.name] = np.mean([part.reshape(_STYLE_SHAPE) for part in parts], axis=0)
        return self._styles[voice.name]

    def _load(self, path: Path) -> Any:
        import onnx
        import onnxruntime

        graph = onnx.load(str(path))
        graph.graph.node.append(onnx.helper.make_node("Identity", [_DURATIONS], ["duration"]))
        graph.graph.output.append(onnx.helper.make_tensor_value_info("duration", onnx.TensorProto.FLOAT, None))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # the order of summation, and so the samples, depend on the thread count
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        with tempfile.TemporaryDirectory(prefix="voicegate-") as scratch:
            timed = Path(scratch) / "timed.onnx"
            onnx.save(graph, str(timed))
            session = onnxruntime.InferenceSession(str(timed), options, providers=["CPUExecutionProvider"])
            archive = Path(scratch) / "styles.npz"  # the engine insists on one, though every call brings its own style
            np.savez(archive, style=np.zeros(_STYLE_SHAPE, np.float32))
            return self._package.Kokoro.from_session(session, str(archive))


def _groups(timings: Sequence[Any]) -> list[tuple[int, float, float]]:
    """Runs of phonemes between spaces: how many, and from when to when in seconds."""
    out: list[list[Any]] = [[]]
    for timing in timings:
        if timing.phoneme == " ":
            out.append([])
        elif timing.phoneme not in PUNCTUATION:
            out[-1].append(timing)
    return [(len(group), float(group[0].start), float(group[-1].end)) for group in out if group]


def times_of_words(
    words: Sequence[str], lengths: Sequence[int], groups: Sequence[tuple[int, float, float]], samples: int
) -> tuple[Word, ...]:
    """Give each word its samples.

    Args:
        words: the text's words.
        lengths: how many phonemes each has when spoken alone, at least 1.
        groups: as the speech has them: phonemes, start and end in seconds; not always one a word.
        samples: of the speech.

    Returns:
        One word a word, spans in order. Words and groups are matched in order so that each group holds about as many
        phonemes as its words (dynamic programming); words that share a group share its time.
    """
    shares = _match(lengths, [count for count, _, _ in groups])
    out: list[Word] = []
    at = 0
    for (first, last), (start_s, end_s) in (
        ((words_span, _cover(groups, group_span))) for words_span, group_span in shares
    ):
        total = sum(lengths[first:last])
        done = 0
        for index in range(first, last):
            begin = start_s + (end_s - start_s) * done / total
            done += lengths[index]
            finish = start_s + (end_s - start_s) * done / total
            start = min(max(at, round((begin - LATE_S) * SAMPLE_RATE_HZ)), samples)
            at = min(max(start, round((finish - LATE_S) * SAMPLE_RATE_HZ)), samples)
            out.append(Word(words[index], Span(start, at), 1.0))
    return tuple(out)


def _cover(groups: Sequence[tuple[int, float, float]], span: tuple[int, int]) -> tuple[float, float]:
    return groups[span[0]][1], groups[span[1] - 1][2]


def _match(lengths: Sequence[int], counts: Sequence[int]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Pair runs of words with runs of groups, one of the two runs being of length one, at least difference in phonemes.

    Returns:
        ``((first word, last word), (first group, last group))``, ends exclusive.
    """
    most = 4
    best: dict[tuple[int, int], tuple[float, tuple[int, int] | None]] = {(0, 0): (0.0, None)}
    for i in range(len(lengths) + 1):
        for j in range(len(counts) + 1):
            if (i, j) not in best:
                continue
            cost = best[i, j][0]
            for di, dj in [(1, 1), *((n, 1) for n in range(2, most + 1)), *((1, n) for n in range(2, most + 1))]:
                k, m = i + di, j + dj
                if k > len(lengths) or m > len(counts):
                    continue
                # Joined runs cost a little more, so that equal fits stay one to one.
                step = abs(sum(lengths[i:k]) - sum(counts[j:m])) + 0.5 * (di + dj - 2)
                if (k, m) not in best or cost + step < best[k, m][0]:
                    best[k, m] = (cost + step, (i, j))
    end = (len(lengths), len(counts))
    if end not in best:
        raise SpeechBuildError(f"{len(counts)} groups of phonemes cannot be shared among {len(lengths)} words")
    out = []
    while (before := best[end][1]) is not None:
        out.append(((before[0], end[0]), (before[1], end[1])))
        end = before
    return out[::-1]
