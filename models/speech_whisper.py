"""Speech to words with Whisper on CTranslate2, on the turn as long as it is.

Whisper (Radford et al., "Robust speech recognition via large-scale weak supervision", 2022) was trained on windows
of 30 s and usually gets its audio padded to that; encoding 30 s for a command of 2 s costs more than all else
together. Here the encoder sees the turn and :data:`TRAILING_SILENCE_S` after it. With less silence the model
repeats itself. Timestamp tokens are left on: they make repetition rarer still, and show where the text has run past
the end of the audio, which is dropped.

A word's probability is the least of its tokens' under forced decoding, punctuation left out. Word times come from
the decoder's cross-attention by dynamic time warping, over the heads that the model's own configuration lists, and
are then settled on the sound by :mod:`models.word_edges`.
"""

from __future__ import annotations

import ctypes
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.logmel import HOP_SAMPLES, whisper_log_mel
from models.protocols import Audio, Heard, ModelId
from models.word_edges import loudness_db, settle_edges

if TYPE_CHECKING:
    from models.store import Store

TRAILING_SILENCE_S: Final = 2.0
MIN_SAMPLES: Final = SAMPLE_RATE_HZ * 15 // 100
"""0.15 s; no word is shorter."""
MAX_WINDOW_S: Final = 27.0
"""The encoder has positions for 30 s; longer audio is heard in windows cut where it is quietest."""

_M_ARENA_MAX = -8
"""glibc's ``malloc.h``."""
_STATE_SAMPLES = 2 * HOP_SAMPLES
"""One encoder state: 20 ms."""
_AUDIBLE_DB = -75.0
_TOKENS_A_SECOND = 10
_TOKENS_EXTRA = 12
_RAN_PAST_END_S = 0.1
_TIMESTAMP_S = 0.02
_NO_SPEECH_WEIGHT = 0.9
_SPEECH_FROM = -1.6
"""Speech where mean token log-probability - 0.9 x no-speech probability exceeds this; fitted by logistic regression on
speech, clean and at 10 dB in babble, against noise and music."""
_DOUBTFUL_BELOW = -0.5
"""Mean token log-probability; of clear English commands in quiet, one in four lies below."""
_LOOP_TOKENS = 8
_LOOP_VARIETY = 0.35
_OTHER_LANGUAGE_FROM = 0.8
_SHORTEST_MEAN_WORD_SAMPLES = SAMPLE_RATE_HZ * 12 // 100
_NO_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
"""Languages written without spaces: each character stands as a word."""


@dataclass(frozen=True, slots=True)
class _Text:
    """Decoded text with what alignment told of it: a log-probability a token, and (token, encoder state) pairs."""

    language: str
    tokens: tuple[int, ...]
    log_probabilities: npt.NDArray[np.float64]
    alignments: Sequence[tuple[int, int]]
    no_speech_probability: float
    mean_log_probability: float


class WhisperEar:
    """A :class:`models.protocols.SpeechEar`. Safe to call from one thread at a time; keeps no state between calls."""

    def __init__(self, directory: Path, model: ModelId, language: str | None = "en", threads: int = 2) -> None:
        """Load the model.

        Args:
            directory: a CTranslate2 Whisper model with its ``tokenizer.json``.
            model: its identity.
            language: ISO 639-1 code of the speech; None detects it in every call.
            threads: CPU threads.

        Raises:
            ValueError: when the model does not know ``language``.
            RuntimeError: when the directory holds no such model.
        """
        import ctranslate2
        from tokenizers import Tokenizer

        use_one_heap()
        self._model_id = model
        self._network = ctranslate2.models.Whisper(
            str(directory), device="cpu", compute_type="int8", inter_threads=1, intra_threads=threads
        )
        self._storage = ctranslate2.StorageView
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._start = self._token("<|startoftranscript|>")
        self._transcribe = self._token("<|transcribe|>")
        self._first_special = self._token("<|endoftext|>")
        self._first_timestamp = self._token("<|notimestamps|>") + 1
        self._language = language
        if language is not None and self._tokenizer.token_to_id(f"<|{language}|>") is None:
            raise ValueError(f"the model does not know the language {language!r}")

    @property
    def model(self) -> ModelId:
        """Which weights."""
        return self._model_id

    def hear(self, audio: Audio) -> Heard:
        """Recognise one turn.

        Args:
            audio: float32 ``(samples,)`` at 16 kHz in [-1, 1].

        Returns:
            The words, or none with a note why. ``encoder_states`` is None only when the audio was not looked at.
        """
        note = _unfit(audio)
        if note:
            return Heard((), note)
        windows = _windows(audio)
        heard = [self._hear_window(audio[window.start_sample : window.end_sample]) for window in windows]
        if len(heard) == 1:
            return heard[0]
        words = tuple(
            replace(word, span=word.span.shifted(window.start_sample))
            for window, part in zip(windows, heard, strict=True)
            for word in part.words
        )
        notes = dict.fromkeys(part.note for part in heard if part.note)
        silences = [part.no_speech_probability for part in heard if part.no_speech_probability is not None]
        states = [part.encoder_states for part in heard if part.encoder_states is not None]
        return Heard(words, "; ".join(notes), min(silences, default=None), np.concatenate(states))

    def _hear_window(self, audio: Audio) -> Heard:
        silence = np.zeros(round(TRAILING_SILENCE_S * SAMPLE_RATE_HZ), dtype=np.float32)
        mel = whisper_log_mel(np.concatenate([audio, silence]))
        encoded = self._network.encode(self._storage.from_array(mel[None]))
        states = np.array(encoded, dtype=np.float32)[0, : -(-audio.size // _STATE_SAMPLES)]
        text, note = self._decode_in_its_language(encoded, audio.size)
        silent = text.no_speech_probability
        if not text.mean_log_probability - _NO_SPEECH_WEIGHT * silent > _SPEECH_FROM:
            why = f"no speech: p={silent:.2f}, mean log-probability {text.mean_log_probability:.2f}"
            return Heard((), why, silent, states)
        if text.mean_log_probability < _DOUBTFUL_BELOW and _repeats_itself(text.tokens):
            return Heard((), "no speech: the text repeats itself", silent, states)
        times = _token_times(text.alignments, len(text.tokens), audio.size)
        words = [
            Word(spelt, Span(times[first], times[last]), float(np.exp(text.log_probabilities[voiced].min())))
            for spelt, first, last, voiced in self._group(text.tokens, text.language)
        ]
        settled = without_loops(_begun(settle_edges(audio, words), audio.size))
        if len(settled) < len(words):
            note = "; ".join(filter(None, [note, f"{len(words) - len(settled)} invented words dropped"]))
        return Heard(settled, note, silent, states)

    def _decode_in_its_language(self, encoded: Any, samples: int) -> tuple[_Text, str]:
        """The text in the language it is spoken in, and a note where that was found out."""
        if self._language is None:
            language, probability = self._detect(encoded)
            return self._decode(encoded, language, samples), f"language: {language} p={probability:.2f}"
        text = self._decode(encoded, self._language, samples)
        if text.mean_log_probability < _DOUBTFUL_BELOW:
            # Another language forced into this one comes out as nonsense, or is taken for noise and lost.
            language, probability = self._detect(encoded)
            if language != self._language and probability >= _OTHER_LANGUAGE_FROM:
                other = self._decode(encoded, language, samples)
                if other.mean_log_probability > text.mean_log_probability:
                    return other, f"language: {language} p={probability:.2f}"
        return text, ""

    def _detect(self, encoded: Any) -> tuple[str, float]:
        [(tag, probability), *_] = self._network.detect_language(encoded)[0]
        return tag.strip("<|>"), float(probability)

    def _decode(self, encoded: Any, language: str, samples: int) -> _Text:
        prompt = [self._start, self._token(f"<|{language}|>"), self._transcribe]
        longest = int(samples / SAMPLE_RATE_HZ * _TOKENS_A_SECOND) + _TOKENS_EXTRA
        result = self._network.generate(
            encoded, [prompt], beam_size=1, max_length=len(prompt) + longest, return_no_speech_prob=True
        )[0]
        tokens = self._inside(result.sequences_ids[0], samples / SAMPLE_RATE_HZ)
        if not tokens:
            return _Text(language, (), np.zeros(0), (), float(result.no_speech_prob), -np.inf)
        # Its own frames only: attention to the silence after them would move the last word's end.
        aligned = self._network.align(encoded, prompt, [tokens], max(2, samples // HOP_SAMPLES))[0]
        log_probabilities = np.log(np.maximum(np.array(aligned.text_token_probs), 1e-10))
        return _Text(
            language, tuple(tokens), log_probabilities, aligned.alignments, float(result.no_speech_prob),
            float(log_probabilities.mean()),
        )  # fmt: skip

    def _inside(self, tokens: Sequence[int], duration_s: float) -> list[int]:
        """Text tokens up to the first closing timestamp at the end of the audio; what follows was made up."""
        out: list[int] = []
        for token in tokens:
            if token < self._first_special:
                out.append(token)
            elif out and (token - self._first_timestamp) * _TIMESTAMP_S >= duration_s - _RAN_PAST_END_S:
                break
        return out

    def _group(self, tokens: Sequence[int], language: str) -> list[tuple[str, int, int, list[int]]]:
        """Tokens to words: text, first token, one past the last token, and the tokens that hold letters or digits."""
        pieces: list[tuple[str, int, int]] = []
        start = 0
        for end in range(1, len(tokens) + 1):
            text = self._tokenizer.decode(list(tokens[start:end]))
            if "\ufffd" not in text or end == len(tokens):  # a character may be spread over several tokens
                pieces.append((text, start, end))
                start = end
        words: list[tuple[str, int, int, list[int]]] = []
        for text, first, last in pieces:
            spoken = any(unicodedata.category(character)[0] in "LNS" for character in text)
            begins = text.startswith(" ") or language in _NO_SPACES
            voiced = list(range(first, last)) if spoken else []
            if words and (not begins or not spoken or not words[-1][3]):
                head, head_first, _, head_voiced = words[-1]
                words[-1] = (head + text, head_first, last, head_voiced + voiced)
            else:
                words.append((text, first, last, voiced))
        return [(text.strip(), first, last, voiced) for text, first, last, voiced in words if voiced]

    def _token(self, text: str) -> int:
        token: int | None = self._tokenizer.token_to_id(text)
        if token is None:
            raise ValueError(f"the tokenizer has no {text}")
        return token


def load(store: Store, threads: int, language: str = "en") -> WhisperEar:
    """Load the default model from the store.

    Args:
        store: where its files are.
        threads: CPU threads.
        language: ISO 639-1 code, or ``auto`` to detect it in every turn.

    Raises:
        ModelError: when files are missing or damaged.
        ValueError: when the model does not know ``language``.
    """
    name = "whisper-base"
    return WhisperEar(store.path(name), store.model_id(name), None if language == "auto" else language, threads)


def use_one_heap() -> None:
    """Let all threads of the process allocate from one heap, where the C library is glibc.

    A thread's own heap begins at a round address, and the encoder's buffers then lie a multiple of 4 KiB apart: on an
    AMD EPYC its two threads get in each other's way and the encoder takes 310 ms instead of 160. Setting
    ``MALLOC_ARENA_MAX=1`` does the same. Threads that already have a heap keep it.
    """
    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    except (AttributeError, OSError, TypeError):  # another C library, with heaps of its own making
        return


def _begun(words: Sequence[Word], samples: int) -> tuple[Word, ...]:
    """The words without those at the end that attention could place only after the audio."""
    kept = list(words)
    while kept and kept[-1].span.start_sample >= samples:
        kept.pop()
    return tuple(kept)


def without_loops(words: Sequence[Word]) -> tuple[Word, ...]:
    """Drop the copies of a phrase that a recogniser repeats faster than anyone speaks.

    Real repetition ("no no no", "stop, stop") stays: its words take their time.

    Args:
        words: in order.

    Returns:
        The words less such copies.
    """
    kept = list(words)
    keys = [_key(word.text) for word in kept]
    for length in range(1, len(kept) // 2 + 1):
        start = 0
        while start + 2 * length <= len(kept):
            end = start + length
            while keys[end : end + length] == keys[start : start + length]:
                end += length
            copies = kept[start + length : end]
            if copies:
                spoken = sum(word.span.samples for word in copies)
                if spoken < len(copies) * _SHORTEST_MEAN_WORD_SAMPLES:
                    del kept[start + length : end], keys[start + length : end]
            start += 1
    return tuple(kept)


def _repeats_itself(tokens: Sequence[int]) -> bool:
    """Whether text consists of few tokens over and over, as made of noise and music."""
    return len(tokens) >= _LOOP_TOKENS and len(set(tokens)) < _LOOP_VARIETY * len(tokens)


def _key(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())


def _unfit(audio: Audio) -> str:
    """Why audio is not worth recognising; empty when it is."""
    if audio.ndim != 1 or audio.size < MIN_SAMPLES:
        return f"too short: {audio.size / SAMPLE_RATE_HZ:.2f} s of {MIN_SAMPLES / SAMPLE_RATE_HZ:.2f} s"
    if not np.isfinite(audio).all():
        return "not finite"
    loudest = float(loudness_db(audio).max())
    if not loudest >= _AUDIBLE_DB:
        return f"silent: {loudest:.0f} dBFS at most"
    return ""


def _windows(audio: Audio) -> list[Span]:
    """The audio in pieces that the encoder can take, cut in the quietest moment of the last third of each."""
    longest = round(MAX_WINDOW_S * SAMPLE_RATE_HZ)
    level_db = loudness_db(audio) if audio.size > longest else np.zeros(0, dtype=np.float32)
    out: list[Span] = []
    start = 0
    while audio.size - start > longest:
        first, last = (start + longest * 2 // 3) // HOP_SAMPLES, (start + longest) // HOP_SAMPLES
        # The rest must be long enough to be heard.
        last = min(last, (audio.size - MIN_SAMPLES) // HOP_SAMPLES)
        quietest = (first + int(np.argmin(level_db[first:last]))) * HOP_SAMPLES
        cut = quietest // _STATE_SAMPLES * _STATE_SAMPLES  # so that states of all windows lie on one grid
        out.append(Span(start, cut))
        start = cut
    return [*out, Span(start, audio.size)]


def _token_times(alignments: Sequence[tuple[int, int]], tokens: int, limit_samples: int) -> list[int]:
    """The sample at which each token begins, and the end of the last: ``tokens + 1`` values that never fall."""
    times = np.full(tokens + 1, limit_samples, dtype=np.int64)
    for token, state in reversed(alignments):
        if token <= tokens:
            times[token] = min(limit_samples, state * _STATE_SAMPLES)
    times = np.minimum.accumulate(times[::-1])[::-1]
    return [int(time) for time in times]
