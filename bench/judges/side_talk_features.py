"""What shows whether a response takes up an utterance: likeness in meaning, piece by piece, against the other one;
words in common; an accepted answer in it; a refusal that could be about anything."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from bench.build.scripts_similarity import FloatArray
from bench.judges import wording
from bench.judges.answers import stands_in
from bench.judges.same_word import IsWord

Vectors = Callable[[Sequence[str]], FloatArray]
"""Sentence embeddings: float32 ``(texts, width)``, each row of length 1."""

_CUES = ("inability", "apology", "offer", "assistant", "request")


def take_up_features(
    utterance: str, other: str, response: str, accepted: Sequence[str], vectors: Vectors, is_word: IsWord
) -> dict[str, float]:
    """Features of a response with regard to one of two utterances.

    Args:
        utterance: the one that may have been taken up.
        other: the other one.
        response: the response.
        accepted: accepted answers to the utterance; may be none.
        vectors: embeds texts.
        is_word: the vocabulary, for slips of spelling in an answer.

    Returns:
        Numbers by name; always the same names.
    """
    # Small models go round in circles: what is said again is no more than what was said once.
    pieces = list(dict.fromkeys([*wording.clauses(response), *wording.sentences(response)]))
    embedded = np.asarray(vectors([utterance, other, *pieces, response]), np.float64)
    to_it, to_other = embedded[2:] @ embedded[0], embedded[2:] @ embedded[1]
    own, others = wording.content_words(utterance), wording.content_words(other)
    only_own, only_others = wording.without(own, others), wording.without(others, own)
    said = wording.content_words(response)
    new = wording.without(said, [*own, *others])
    hit = bool(accepted) and stands_in(response, accepted, is_word)
    features = {
        "likest piece": float(to_it.max()),
        "likest piece, other": float(to_other.max()),
        "likeness": float(to_it[-1]),
        "likeness, other": float(to_other[-1]),
        "most on its side": float((to_it - to_other).max()),
        "least on its side": float((to_it - to_other).min()),
        "lead": float(to_it.max() - to_other.max()),
        "unlikest piece": float(to_it.min()),
        "its words said": wording.share_of(only_own, said),
        "other words said": wording.share_of(only_others, said),
        "said in its words": wording.share_of(said, only_own),
        "said in other words": wording.share_of(said, only_others),
        "new words": math.log1p(len(new)),
        "words": math.log1p(len(said)),
        "sentences": math.log1p(len(wording.sentences(response))),
        "a word or two": float(len(said) <= 2),
        "it asks": float(_asks(utterance)),
        "other asks": float(_asks(other)),
        "a number where it asks": float(re.search(r"\d", response) is not None and wording.asks_what(utterance)),
        "has an answer": float(bool(accepted)),
        "its answer said": float(hit),
        "its answer not said": float(bool(accepted) and not hit),
    }
    return features | {f"cue {cue}": float(wording.has_cue(cue, response)) for cue in _CUES}


def _asks(utterance: str) -> bool:
    return wording.is_question(utterance) or wording.asks_what(utterance)
