"""What an argument may hold: text types that admit what people say and refuse what only an attack or a fault writes.

A spoken argument is data. No back end should ever paste one into a path, a shell, a query or an MQTT topic, but one
will, so the types that *identify* something (a person, a door, a file) refuse what such places give a meaning. Letters
are held to one script after Unicode Technical Standard 39, "highly restrictive" level, so that a name cannot be spelt
with the look-alike letters of another script. Nothing is ever trimmed, folded or otherwise mended here: a value is what
was written, or it is refused.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_JOINERS = frozenset("\u200c\u200d")  # needed to spell Persian and Indic words, and emoji

_EAST_ASIAN = frozenset({"CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})
_LATIN_LETTERS = frozenset("æœøßđðþłħıŋŧəƏÆŒØẞĐÐÞŁĦŊŦ")
"""Latin letters that do not decompose to ASCII yet belong to living orthographies; the rest of the block is phonetic or
decorative and mostly looks like something else (U+0251 like a, U+1D00 like A)."""
_FRACTIONS = str.maketrans("", "", "½¼¾")
_PLACEHOLDERS = frozenset({"null", "none", "nil", "nan", "undefined", "unknown", "tbd"})
"""What models write where they have no value."""

_WORD = r"[^\W_]"
_APOSTROPHES = "'\u2019\u02bb\u02bc"
_DASHES = "\\-\u2010\u2011\u2013\u2014"
_CONTACT = re.compile(
    rf"{_WORD}(?:{_WORD}|[{_APOSTROPHES}]|[ ](?=\S)|(?<=\w)\.(?=[ \w]|$)|(?<=[\w.])[{_DASHES}](?=\w))*"
)
_PHONE = re.compile(r"\+?(?:[0-9]|\((?=[0-9]))(?:[0-9]|[ .-](?=[0-9(])|\((?=[0-9])|(?<=[0-9])\)(?=[ 0-9-]))*")
_PHRASE = re.compile(
    rf"""
    (?:[$€£¥](?=[0-9]) | -(?=[0-9]))? {_WORD}
    (?: {_WORD}
      | [{_APOSTROPHES}]
      | [ ](?=\S)                                                  # single spaces, none at the end
      | (?<=[\w{_APOSTROPHES}]) \. (?![./])                        # 7:30 p.m.
      | (?<=[\w.%°{_APOSTROPHES}]) , (?=[ 0-9])                    # Springfield, Ohio; 1,000
      | (?<=\w) : (?=[ 0-9])                                       # 7:30
      | (?<=[\w.{_APOSTROPHES}]) [{_DASHES}] (?=[\w ]) | (?<=[ ]) [{_DASHES}] (?=[ ])
      | (?<=[0-9]) / (?=[0-9])                                     # 6/13, 1/2
      | (?<=\w) & (?=\w) | (?<=\w[ ]) & (?=[ ]\w)                  # AT&T, salt & vinegar
      | (?<=[0-9]) [%°] (?!\w) | (?<=[0-9]) ° (?=[CF](?!\w))       # 50%, 22 °C
      | (?<=[ ]) [$€£¥] (?=[0-9])                                  # a $20 gift card
      | (?<=\w) \+ (?=[ ]|$)                                       # Disney+
    )*
    """,
    re.VERBOSE,
)
_NOT_IN_FREE_TEXT = re.compile(r"[\[\]{}<>|\\`]|\$[({]|\.\./|/[+#]|(?:^|\s);")


def without_hidden_characters(text: str) -> str:
    """Return ``text`` when each of its characters can be seen or heard.

    Raises:
        ValueError: on a control, format (bidirectional override, zero-width), surrogate, private-use or unassigned
            character, or a line or paragraph separator.
    """
    for char in text:
        if unicodedata.category(char) in _HIDDEN_CATEGORIES and char not in _JOINERS:
            raise ValueError(f"holds the hidden character U+{ord(char):04X}")
    return text


def _without_marks(text: str) -> str:
    """``text`` without its combining marks, which Python's ``\\w`` does not match."""
    return "".join(char for char in unicodedata.normalize("NFC", text) if unicodedata.category(char)[0] != "M")


def _script(char: str) -> str:
    """The script of a letter, read from its Unicode name, since ``unicodedata`` has no such property."""
    return unicodedata.name(char, "UNNAMED").split(" ", 1)[0].split("-", 1)[0]


def _one_script(text: str) -> None:
    if unicodedata.normalize("NFKC", text.translate(_FRACTIONS)) != unicodedata.normalize(
        "NFC", text.translate(_FRACTIONS)
    ):
        raise ValueError("holds characters that stand in for others (full-width, mathematical, ligatures)")
    scripts: set[str] = set()
    for char in text:
        if not char.isalpha() or char in _APOSTROPHES:
            continue
        script = _script(char)
        base = unicodedata.normalize("NFD", char)[0]
        if script == "LATIN" and not base.isascii() and base not in _LATIN_LETTERS:
            raise ValueError(f"holds the look-alike letter U+{ord(char):04X}")
        scripts.add(script)
    if len(scripts) > 1 and not scripts <= _EAST_ASIAN | {"LATIN"}:
        raise ValueError(f"mixes the scripts {', '.join(sorted(scripts)).lower()}, so letters may be look-alikes")


def _identifying(text: str) -> None:
    if text.casefold() in _PLACEHOLDERS:
        raise ValueError("is a placeholder, not a value")
    _one_script(text)


def contact_name(text: str) -> str:
    """Return ``text`` when it can be a person's name in a contact list, or a telephone number.

    Raises:
        ValueError: when it cannot; the message says why without repeating the value.
    """
    _identifying(text)
    bare = _without_marks(text)
    if _PHONE.fullmatch(bare):
        if sum(char.isdigit() for char in bare) < 3:
            raise ValueError("is too short for a telephone number")
        return text
    if not _CONTACT.fullmatch(bare) or not any(char.isalpha() for char in bare):
        raise ValueError("is not a name: letters, digits, spaces, apostrophes, hyphens and full stops only")
    return text


def phrase(text: str) -> str:
    """Return ``text`` when it reads like the spoken name of a thing, a place, an amount or a time.

    Raises:
        ValueError: when it does not; the message says why without repeating the value.
    """
    _identifying(text)
    if not _PHRASE.fullmatch(_without_marks(text)):
        raise ValueError("is not a plain phrase: words, numbers and the punctuation of names, times and prices only")
    return text


def free_text(text: str) -> str:
    """Return ``text`` when it is prose that a person may dictate. Markup, brackets and escapes are not.

    Raises:
        ValueError: when it is not; the message says why without repeating the value.
    """
    if text != text.strip():
        raise ValueError("begins or ends with a space")
    if not any(char.isalnum() for char in text):
        raise ValueError("holds no word")
    found = _NOT_IN_FREE_TEXT.search(unicodedata.normalize("NFKC", text))
    if found:
        raise ValueError(f"holds {found.group().strip()!r}, which nobody dictates")
    return text


ContactName = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(contact_name)]
"""A person or a number to reach: "Ben", "Dr. O'Brien", "José", "+1 415 555 0134"."""

ThingName = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(phrase)]
"""A thing at hand: "the front door", "kitchen light", "photos from last summer"."""

Phrase = Annotated[str, StringConstraints(min_length=1, max_length=120), AfterValidator(phrase)]
"""An item or a place: "two large pizzas", "24 Main Street, Springfield", "salt & vinegar crisps"."""

TimePhrase = Annotated[str, StringConstraints(min_length=1, max_length=80), AfterValidator(phrase)]
"""A time or a duration as it was said: "tomorrow at 7:30 p.m.", "for half an hour". The back end works it out."""

Title = Annotated[str, StringConstraints(min_length=1, max_length=120), AfterValidator(free_text)]
"""A short heading in the speaker's words."""

MessageText = Annotated[str, StringConstraints(min_length=1, max_length=1000), AfterValidator(free_text)]
"""Words for another person to read. Free prose, so a back end must treat it as data and nothing else."""
