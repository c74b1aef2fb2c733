"""Speech to words with Whisper on CTranslate2, on the turn as long as it is.

Whisper (Radford et al., "Robust speech recognition via large-scale weak supervision", 2022) was trained on windows of 30 s and
usually gets its audio padded to that; encoding 30 s for a command of 2 s costs more than all else together. Here the encoder
sees the turn and :data:`TRAILING_SILENCE_S` after it. With less silence the model repeats itself. Timestamp tokens are left on:
they make repetition rarer still, and show where the text has run past the end of the audio, which is dropped.

A word's probability is the least of its tokens' under forced decoding, punctuation left out. Word times come from the decoder's
cross-attention by dynamic time warping, over the heads that the model's own configuration lists, and are then settled on
the sound by :mod:`models.word_edges`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace
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

_STATE_SAMPLES = 2 * HOP_SAMPLES
"""One encoder state: 20 ms."""
_AUDIBLE_DB = -75.0
_TOKENS_A_SECOND = 10
_TOKENS_EXTRA = 12
_RAN_PAST_END_S = 0.1
_NO_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
"""Languages written without spaces: each character stands as a word."""


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
