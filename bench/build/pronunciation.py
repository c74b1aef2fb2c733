"""How an English word that no dictionary has may be pronounced, for forced alignment only.

The aligner knows the words and has to place them, so a rough pronunciation does: neighbours hold it in place. Letters
become ARPABET sounds by rules, the longest spelling first. Nothing that is spoken or recognised rests on this.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

_SPELLINGS = {
    "tion": "SH AH N", "sion": "ZH AH N", "ough": "OW", "augh": "AO", "eigh": "EY", "tch": "CH", "igh": "AY",
    "sch": "SH", "dge": "JH", "air": "EH R", "ear": "IH R", "eer": "IH R", "ire": "AY ER", "our": "AO R",
    "ch": "CH", "sh": "SH", "th": "TH", "ph": "F", "wh": "W", "ck": "K", "ng": "NG", "qu": "K W", "gh": "G",
    "ee": "IY", "ea": "IY", "oo": "UW", "ou": "AW", "ow": "OW", "oi": "OY", "oy": "OY", "ai": "EY", "ay": "EY",
    "au": "AO", "aw": "AO", "ie": "IY", "ei": "EY", "ey": "IY", "ue": "UW", "ew": "UW", "oa": "OW", "ar": "AA R",
    "er": "ER", "ir": "ER", "ur": "ER", "or": "AO R", "a": "AE", "b": "B", "c": "K", "d": "D", "e": "EH", "f": "F",
    "g": "G", "h": "HH", "i": "IH", "j": "JH", "k": "K", "l": "L", "m": "M", "n": "N", "o": "AA", "p": "P", "q": "K",
    "r": "R", "s": "S", "t": "T", "u": "AH", "v": "V", "w": "W", "x": "K S", "y": "IY", "z": "Z",
}  # fmt: skip
_INITIAL = {"kn": "N", "wr": "R", "ps": "S", "gn": "N", "y": "Y", "x": "Z"}
_SOFT_BEFORE = ("e", "i", "y")
_SOFT = {"c": "S", "g": "JH"}
_LONGEST = max(map(len, _SPELLINGS))


def pronounce(word: str, known: Callable[[str], str | None]) -> str | None:
    """A pronunciation for a word.

    Args:
        word: letters, with apostrophes or accents if it has any.
        known: gives a word's pronunciation from a dictionary, or None.

    Returns:
        ARPABET sounds without stress, separated by spaces; None when the word has no Latin letter to read.
    """
    plain = unicodedata.normalize("NFKD", word.casefold()).replace("\u2019", "'")
    for ending, sound in (("'s", "Z"), ("s'", "Z"), ("'ll", "AH L"), ("'d", "D"), ("'ve", "V"), ("'re", "ER")):
        stem = plain.removesuffix(ending)
        if stem != plain and (of_stem := known(stem)) is not None:
            return f"{of_stem} {sound}"
    letters = "".join(char for char in plain if "a" <= char <= "z")
    return _by_rule(letters) if letters else None


def _by_rule(letters: str) -> str:
    if len(letters) > 3 and letters.endswith("e") and letters[-2] not in "aeiou":
        letters = letters[:-1]  # a final e is silent
    sounds: list[str] = []
    position = 0
    while position < len(letters):
        spelling, sound = _spelling_at(letters, position)
        position += len(spelling)
        while len(spelling) == 1 and letters[position : position + 1] == spelling and spelling not in "aeiou":
            position += 1  # a doubled consonant is one sound
        sounds.append(sound)
    return " ".join(sounds)


def _spelling_at(letters: str, position: int) -> tuple[str, str]:
    if position == 0:
        for spelling, sound in _INITIAL.items():
            if letters.startswith(spelling):
                return spelling, sound
    for length in range(_LONGEST, 1, -1):
        spelling = letters[position : position + length]
        if len(spelling) == length and spelling in _SPELLINGS:
            return spelling, _SPELLINGS[spelling]
    letter = letters[position]
    if letter in _SOFT and letters[position + 1 : position + 2] in _SOFT_BEFORE:
        return letter, _SOFT[letter]
    return letter, _SPELLINGS[letter]
