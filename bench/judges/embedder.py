"""Sentence embeddings for the offline judge: all-MiniLM-L6-v2 out of the model store, loaded when first needed."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.build.scripts_similarity import FloatArray, MiniLm
from bench.judges.wording import words
from models.store import Store

MODEL_NAME = "minilm-l6-v2"
_WINDOW_WORDS = 4
_MOST_WORDS = 60
_MOST_KNOWN = 2048
"""So many texts are kept: each response is looked at from two sides, and questions come again."""


class Embedder:
    """The model and its vocabulary. Safe to call from several threads.

    Args:
        store: where the model lies; None for the usual store.
    """

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._model: MiniLm | None = None
        self._words: frozenset[str] | None = None
        self._known: dict[str, FloatArray] = {}

    def vectors(self, texts: Sequence[str]) -> FloatArray:
        """Float32 ``(texts, 384)``, each row of length 1.

        Raises:
            ModelError: when the model has not been pulled.
        """
        with self._lock:
            if self._model is None:
                folder = self._folder()
                from transformers.utils import logging

                logging.disable_progress_bar()  # type: ignore[no-untyped-call]
                self._model = MiniLm(folder)
            new = list(dict.fromkeys(text for text in texts if text not in self._known))
            if len(self._known) + len(new) > _MOST_KNOWN:
                self._known.clear()
                new = list(dict.fromkeys(texts))
            if new:
                self._known.update(zip(new, self._model.vectors(new), strict=True))
            return np.stack([self._known[text] for text in texts])

    def is_word(self, text: str) -> bool:
        """Whether a lower-case text is a word: whether the model's vocabulary has it in one piece.

        Raises:
            ModelError: when the model has not been pulled.
        """
        with self._lock:
            if self._words is None:
                tokenizer = json.loads((self._folder() / "tokenizer.json").read_text(encoding="utf-8"))
                self._words = frozenset(word for word in tokenizer["model"]["vocab"] if word.isalpha())
            return text in self._words

    def likest(self, text: str, others: Sequence[str]) -> float:
        """The largest likeness of a stretch of up to four words of a text to any of some texts, -1 to 1."""
        said = words(text)[:_MOST_WORDS]
        stretches = [
            " ".join(said[at : at + length])
            for length in range(1, _WINDOW_WORDS + 1)
            for at in range(len(said) - length + 1)
        ]
        if not stretches or not others:
            return -1.0
        embedded = np.asarray(self.vectors([*others, *stretches]), np.float64)
        return float((embedded[len(others) :] @ embedded[: len(others)].T).max())

    def _folder(self) -> Path:
        if self._store is None:
            self._store = Store()
        return self._store.path(MODEL_NAME)
