"""Reads words as a person would: numbers whole, never in parts. What ``gate.grounding`` compares.

"two hundred fifty" is one number, and neither 200 nor 50 was said in it. A number that could be read in several ways
("two fifty", "five or six", "two hundred, uh, fifty") keeps its words for comparison but has no value, so no amount can
rest on it. Number words are those of English, parsed by ``text2num``; in other languages digits still count.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise

from text_to_num import find_numbers

FILLERS = frozenset({"uh", "um", "uhm", "umm", "er", "erm", "ah", "eh", "hm", "hmm", "mm"})
"""Sounds between words that carry nothing."""

_SCALES = {
    "dozen": Decimal(12),
    "hundred": Decimal(100),
    "thousand": Decimal(1_000),
    "grand": Decimal(1_000),
    "lakh": Decimal(100_000),
    "million": Decimal(1_000_000),
    "crore": Decimal(10_000_000),
    "billion": Decimal(1_000_000_000),
    "trillion": Decimal(1_000_000_000_000),
}
_UNKNOWN_TO_PARSER = frozenset({"dozen", "grand", "lakh", "crore", "trillion"})
_VAGUE = frozenset({"half", "halves", "quarter", "quarters", "dozens", "hundreds", "thousands", "millions", "billions"})
_ABOUT = frozenset({"few", "couple", "several", "many", "some", "point", "dot"})
"""Before a number word, these change it into one that was not said ("a few hundred", a decimal cut in half)."""
_SYMBOLS = {"$": "dollars", "€": "euros", "£": "pounds", "¥": "yen", "₹": "rupees", "₩": "won"}
_UNITS = {unit: f"{unit}s" for unit in ("dollar", "euro", "pound", "rupee", "franc", "peso", "buck")}
_MAIN_UNITS = frozenset({"dollars", "euros", "pounds", "bucks", "quid", "rupees", "francs", "pesos"})
_HUNDREDTHS = frozenset({"cent", "cents", "penny", "pence", "pennies", "centimes", "paise", "centavos"})
_ORDINAL_ENDS = ("st", "nd", "rd", "th")
_BREAKS = ",.;:?!\u2026\u2014"
_MINUS = "-\u2212"
_MAX_DIGITS = 15
"""More digits are an account or a serial number: text, and beyond what a float can hold exactly."""


@dataclass(frozen=True, slots=True)
class SpokenToken:
    """One word, or one whole number, in comparable form.

    Attributes:
        text: its comparable form: NFKC, casefolded, without punctuation; numbers in digits.
        first: index of the first word that it stands in.
        last: index of the last one.
        number: whether it is a number.
        value: what the number says; None for a word, and for a number that has no one reading.
    """

    text: str
    first: int
    last: int
    number: bool = False
    value: Decimal | None = None


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a written word: letters, digits or a currency sign."""

    written: str
    word: int
    broken: bool
    """Whether punctuation stands before it."""
    digits: bool = False
    attached: bool = False
    """Whether letters touch its digits ("5k")."""
    ordinal: bool = False
    sign: bool = False
    """Whether it stands for a currency sign."""

    # The three names below are the protocol of ``text_to_num.find_numbers``.

    def text(self) -> str:
        """The written form."""
        return self.written

    def nt_separated(self, previous: _Piece) -> bool:
        """Punctuation keeps number words apart."""
        return self.broken

    def not_a_number_part(self) -> bool:
        """Digits are read here, not by the parser."""
        return self.digits


@dataclass(frozen=True, slots=True)
class _Atom:
    """One number as the parser found it, over the pieces ``first`` to ``last``."""

    first: int
    last: int
    text: str
    value: Decimal | None
    scale: bool = False
    ordinal: bool = False
    half: bool = False


def tokens(words: Sequence[str]) -> tuple[SpokenToken, ...]:
    """Words in comparable form, each number as one token.

    Args:
        words: written words in order, with their punctuation.

    Returns:
        The tokens in order. Raises nothing, whatever the text.
    """
    pieces = _pieces(words)
    out: list[SpokenToken] = []
    position = 0
    for group in _groups(pieces):
        token, first = _number(pieces, group)
        out.extend(_word(piece) for piece in pieces[position:first])
        out.append(token)
        position = group[-1].last + 1
    out.extend(_word(piece) for piece in pieces[position:])
    return tuple(out)


def _word(piece: _Piece) -> SpokenToken:
    return SpokenToken(_UNITS.get(piece.written, piece.written), piece.word, piece.word)


# Pieces -----------------------------------------------------------------------------------------------------------


def _pieces(words: Sequence[str]) -> list[_Piece]:
    out: list[_Piece] = []
    broken = False
    for index, word in enumerate(words):
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", word).casefold()).replace("\u2019", "'")
        found = _split(text, index)
        if found:
            found[0] = replace(found[0], broken=broken or text[0] in _BREAKS)
            out.extend(found)
        broken = (broken and not found) or text.rstrip("\"')]}")[-1:] in tuple(_BREAKS)
    return _signs_after_numbers(out)


def _split(text: str, word: int) -> list[_Piece]:
    out: list[_Piece] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char.isdecimal() or (
            char in _MINUS
            and text[position + 1 : position + 2].isdecimal()
            and not (position and text[position - 1].isalnum())
        ):
            piece, position = _read_numeral(text, position, word)
            out.append(piece)
        elif _is_letter(char):
            written, position = _read_letters(text, position)
            if written:
                out.append(_Piece(written, word, False))
        else:
            if char in _SYMBOLS:
                out.append(_Piece(_SYMBOLS[char], word, False, sign=True))
            elif char.isnumeric():  # a digit of a script whose digits do not stack
                out.append(_Piece(char, word, False))
            position += 1
    return out


def _is_letter(char: str) -> bool:
    return char.isalpha() or unicodedata.category(char).startswith("M")


def _is_ideograph(char: str) -> bool:
    return unicodedata.name(char, "").startswith(("CJK UNIFIED", "HIRAGANA", "KATAKANA"))


def _read_letters(text: str, start: int) -> tuple[str, int]:
    """Letters from ``start`` with their marks; a possessive ending and the full stops of "p.m." are dropped."""
    if _is_ideograph(text[start]):
        return text[start], start + 1
    end = start
    letters: list[str] = []
    while end < len(text):
        char = text[end]
        inner_apostrophe = char == "'" and end + 1 < len(text) and _is_letter(text[end + 1])
        if inner_apostrophe or (_is_letter(char) and not _is_ideograph(char)):
            letters.append(char)
        elif not (char == "." and _between_initials(text, end)):
            break
        end += 1
    return "".join(letters).removesuffix("'s").replace("'", ""), end


def _between_initials(text: str, dot: int) -> bool:
    before, after = text[max(0, dot - 2) : dot], text[dot + 1 : dot + 3]
    return (
        before[-1:].isalpha()
        and after[:1].isalpha()
        and not (len(before) == 2 and before[0].isalnum())
        and not (len(after) == 2 and after[1].isalnum())
    )


def _read_numeral(text: str, start: int, word: int) -> tuple[_Piece, int]:
    end = start + 1
    while end < len(text) and text[end].isdecimal():
        end += 1
    whole = text[start:end].replace("\u2212", "-")
    # Commas count only as thousands are written: anything else ("12,50") is two numbers, and so has no one value.
    while len(whole.lstrip("-")) and text[end : end + 1] == "," and text[end + 1 : end + 4].isdecimal():
        if len(text[end + 1 : end + 4]) < 3 or text[end + 4 : end + 5].isdecimal():
            break
        whole += text[end + 1 : end + 4]
        end += 4
    fraction = ""
    if text[end : end + 1] == "." and text[end + 1 : end + 2].isdecimal():
        stop = end + 1
        while stop < len(text) and text[stop].isdecimal():
            stop += 1
        fraction = text[end + 1 : stop]
        end = stop
    written = f"{whole}.{fraction}".rstrip("0").rstrip(".") if fraction else whole
    attached = (start > 0 and _is_letter(text[start - 1])) or (end < len(text) and _is_letter(text[end]))
    ending = text[end : end + 2]
    if ending in _ORDINAL_ENDS and not text[end + 2 : end + 3].isalnum():
        return _Piece(f"{written}{ending}", word, False, digits=True, ordinal=True), end + 2
    return _Piece(written, word, False, digits=True, attached=attached), end


def _signs_after_numbers(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Put each currency sign behind the number that it is written before, as it is spoken: "$5 million"."""
    out: list[_Piece] = []
    index = 0
    while index < len(pieces):
        piece, end = pieces[index], index + 1
        if piece.sign and end < len(pieces) and pieces[end].digits and pieces[end].word == piece.word:
            end += 1
            while end < len(pieces) and pieces[end].written in _SCALES:
                end += 1
            out.extend(pieces[index + 1 : end])
        out.append(piece)
        index = end
    return out


# Numbers ----------------------------------------------------------------------------------------------------------


def _atoms(pieces: Sequence[_Piece]) -> list[_Atom]:
    out: list[_Atom] = []
    for found in find_numbers(list(pieces), "en", 0.0):
        first, last = found.start, found.end - 1
        run = pieces[first : last + 1]
        if any(piece.digits or piece.written in _UNKNOWN_TO_PARSER for piece in run):
            continue
        scale = all(piece.written in _SCALES for piece in run)
        value = None if found.is_ordinal else _decimal(found.text)
        text = found.text if value is None or "." not in found.text else found.text.rstrip("0").rstrip(".")
        out.append(_Atom(first, last, text, value, scale, found.is_ordinal))
    for index, piece in enumerate(pieces):
        if piece.digits:
            value = None if piece.attached or piece.ordinal else _decimal(piece.written)
            out.append(_Atom(index, index, piece.written, value, ordinal=piece.ordinal))
        elif piece.written in _UNKNOWN_TO_PARSER:
            out.append(_Atom(index, index, piece.written, _SCALES[piece.written], scale=True))
        elif piece.written in _VAGUE:
            out.append(_Atom(index, index, piece.written, None, half=piece.written == "half"))
    return sorted(out, key=lambda atom: atom.first)


def _decimal(text: str) -> Decimal | None:
    """The number written in ``text``; None for what is no plain number, and for digits too many to be an amount."""
    digits = text.removeprefix("-").replace(".", "", 1)
    return Decimal(text) if digits.isdecimal() and len(digits) <= _MAX_DIGITS else None


def _groups(pieces: Sequence[_Piece]) -> list[list[_Atom]]:
    """Numbers that stand together and can only be read together."""
    out: list[list[_Atom]] = []
    for atom in _atoms(pieces):
        if out and _belongs(pieces, out[-1][-1], atom):
            out[-1].append(atom)
        else:
            out.append([atom])
    return out


def _between(pieces: Sequence[_Piece], first: _Atom, second: _Atom) -> tuple[str, ...]:
    return tuple(piece.written for piece in pieces[first.last + 1 : second.first])


def _belongs(pieces: Sequence[_Piece], first: _Atom, second: _Atom) -> bool:
    between = _between(pieces, first, second)
    bare = tuple(text for text in between if text not in FILLERS)
    if not bare:
        # "the fifth, sixty dollars" are two numbers; "one third" is one.
        return not first.ordinal or second.ordinal
    if bare == ("and",):
        round_number = first.value is not None and first.value >= 100 and first.value % 100 == 0
        small = second.value is not None and second.value < 1_000
        return len(between) > 1 or (round_number and small) or (second.value is None and not second.ordinal)
    if bare in (("or",), ("point",), ("dot",), ("minus",)):
        return True
    if bare in (("a",), ("an",), ("and", "a"), ("and", "an")):
        return second.scale or second.text in _VAGUE or first.text in _VAGUE
    if _UNITS.get(bare[0], bare[0]) in _MAIN_UNITS:
        # "five dollars fifty" is one sum, with or without the cents.
        return bare[1:] == () or (bare[1:] == ("and",) and _after(pieces, second) in _HUNDREDTHS)
    return False


def _after(pieces: Sequence[_Piece], atom: _Atom) -> str:
    return pieces[atom.last + 1].written if atom.last + 1 < len(pieces) else ""


def _number(pieces: Sequence[_Piece], group: Sequence[_Atom]) -> tuple[SpokenToken, int]:
    """A group as one token, and the index of its first piece."""
    first = group[0].first
    before = pieces[first - 1].written if first else ""
    value = _value(pieces, group)
    text = _comparable(pieces, group, value)
    if before in ("minus", "negative"):
        first -= 1
        value, text = (None if value is None else -value), f"-{text}"
    elif before in _ABOUT or (before == "of" and first > 1 and pieces[first - 2].written in _ABOUT):
        value = None
    token = SpokenToken(text, pieces[first].word, pieces[group[-1].last].word, True, value)
    return token, first


def _value(pieces: Sequence[_Piece], group: Sequence[_Atom]) -> Decimal | None:
    values = [atom.value for atom in group]
    if len(group) == 2 and group[1].half and _between(pieces, *group) == ("and", "a"):
        return None if values[0] is None else values[0] + Decimal("0.5")
    if any(value is None for value in values):
        return None
    known = [value for value in values if value is not None]
    hundredths = _after(pieces, group[-1]) in _HUNDREDTHS
    if len(group) == 1:
        return known[0] / 100 if hundredths else known[0]
    gaps = [_between(pieces, left, right) for left, right in pairwise(group)]
    if all(atom.scale for atom in group[1:]) and not any(gaps):
        product = Decimal(1)
        for value in known:
            product *= value
        return product
    if len(group) == 2 and hundredths and gaps[0] and known[0] % 1 == 0 and 0 <= known[1] < 100:
        unit = gaps[0][0]
        rest = gaps[0][1:]
        if _UNITS.get(unit, unit) in _MAIN_UNITS and rest in ((), ("and",)):
            return known[0] + known[1] / 100
    return None


def _comparable(pieces: Sequence[_Piece], group: Sequence[_Atom], value: Decimal | None) -> str:
    if len(group) == 1:
        return group[0].text
    if value is not None:
        return f"{value.normalize():f}"
    texts = [atom.text for atom in group]
    gaps = [_between(pieces, left, right) for left, right in pairwise(group)]
    if not any(gaps):
        # Long runs of digits are numbers that are dialled, however they are grouped; short ones are times.
        if all(text.isdecimal() for text in texts) and sum(map(len, texts)) >= 5:
            return "".join(texts)
        return ":".join(texts)
    parts = [texts[0]]
    for gap, text in zip(gaps, texts[1:], strict=True):
        parts.extend((*gap, text))
    return "|".join(parts)
