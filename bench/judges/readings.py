"""Words of an answer in comparable form: numbers whole, times of day, dates and measures by what they say.

``gate.spoken`` reads numbers; here several of its tokens become one where they say one thing ("half past five", "the
third of June", "six tonnes"). A token may be read in several ways ("four twelve" is a time, a room, a number); two
tokens agree when they share a reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.judges.wording import plain
from gate.spoken import SpokenToken, tokens

Reading = tuple[str, float | str]
"""A kind and a value: ``("number", 412)``, ``("time", 252)`` in minutes of half a day, ``("date", "6-3")``, ``("kg",
6000)`` …"""

MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MONTH_OF = {name: at for at, month in enumerate(MONTHS, 1) for name in (month, month[:3])} | {"sept": 9}
_UNITS: Final[dict[str, tuple[str, float]]] = {
    name: (base, factor)
    for names, base, factor in (
        ("mg milligram milligrams", "kg", 1e-6),
        ("g gram grams gramme grammes", "kg", 1e-3),
        ("kg kilo kilos kilogram kilograms kilogramme kilogrammes", "kg", 1.0),
        ("tonne tonnes ton tons", "kg", 1e3),
        ("mm millimetre millimetres millimeter millimeters", "m", 1e-3),
        ("cm centimetre centimetres centimeter centimeters", "m", 1e-2),
        ("m metre metres meter meters", "m", 1.0),
        ("km kilometre kilometres kilometer kilometers", "m", 1e3),
        ("mile miles", "m", 1609.344),
        ("foot feet ft", "m", 0.3048),
        ("second seconds", "s", 1.0),
        ("minute minutes", "s", 60.0),
        ("hour hours", "s", 3600.0),
        ("day days", "s", 86_400.0),
        ("week weeks", "s", 604_800.0),
        ("month months", "months", 1.0),
        ("year years", "months", 12.0),
        ("percent per_cent", "percent", 1.0),
        ("dollars dollar", "dollars", 1.0),
        ("euros euro", "euros", 1.0),
        ("pounds pound quid", "pounds", 1.0),
        ("degrees degree", "degrees", 1.0),
    )
    for name in names.split()
}
_HALF_DAY: Final = 720
_AFTERNOON = {"pm", "evening", "afternoon", "night", "tonight"}
_MORNING = {"am", "morning"}


@dataclass(frozen=True, slots=True)
class Token:
    """One word, or one thing that several words say.

    Attributes:
        text: a word in comparable form, or the words that it was made of.
        readings: what it may say, if it is no plain word.
        half: for a time, which half of the day: ``am``, ``pm`` or empty when it is not said.
    """

    text: str
    readings: frozenset[Reading] = field(default_factory=frozenset)
    half: str = ""

    def agrees(self, other: Token) -> bool:
        """Whether two tokens say the same."""
        if not self.readings or not other.readings:
            return not self.readings and not other.readings and self.text == other.text
        if self.half and other.half and self.half != other.half:
            return False
        measured = _measures(self), _measures(other)
        if all(measured) and not (measured[0] & measured[1]):
            return False
        return bool(self.readings & other.readings)


def _measures(token: Token) -> frozenset[Reading]:
    return frozenset(reading for reading in token.readings if reading[0] not in ("number", "time", "digits"))


def read(text: str) -> tuple[Token, ...]:
    """The tokens of a text; articles and "of" are left out. Raises nothing, whatever the text."""
    prepared = plain(text).replace("%", " percent ").replace("°", " degrees ").replace("per cent", "percent")
    raw = list(tokens(prepared.replace("-", " ").replace("/", " / ").split()))
    out: list[Token] = []
    at = 0
    while at < len(raw):
        token, used = _time(raw, at) or _date(raw, at) or _digits(raw, at) or _measure(raw, at) or _single(raw[at])
        if token is not None:
            out.append(token)
        at += used
    return tuple(out)


_Taken = tuple[Token | None, int]
_LEFT_OUT = frozenset({"a", "an", "the", "of", "and", "oclock"})


def _single(token: SpokenToken) -> _Taken:
    if token.text in _LEFT_OUT:
        return None, 1
    if token.text in ("noon", "midday"):
        return Token(token.text, frozenset({("time", 0.0)}), "pm"), 1
    if token.text == "midnight":
        return Token(token.text, frozenset({("time", 0.0)}), "am"), 1
    readings = _number_readings(token)
    return Token(token.text, readings), 1


def _number_readings(token: SpokenToken) -> frozenset[Reading]:
    """What a number, an ordinal or a run of numbers may say."""
    text = token.text
    if token.value is not None:
        return frozenset({("number", float(token.value)), ("digits", text)})
    if text[:-2].isdigit() and text[-2:] in ("st", "nd", "rd", "th"):
        return frozenset({("number", float(text[:-2]))})
    parts = text.split(":")
    if len(parts) > 1 and all(part.isdigit() for part in parts):
        joined = "".join(parts)
        found: set[Reading] = {("number", float(joined)), ("digits", joined)}
        if len(parts) == 2 and int(parts[0]) < 25 and len(parts[1]) <= 2 and int(parts[1]) < 60:
            found.add(("time", float((int(parts[0]) * 60 + int(parts[1])) % _HALF_DAY)))
        return frozenset(found)
    if token.number and text.isdigit():
        return frozenset({("number", float(text)), ("digits", text)})
    return frozenset()


def _text(raw: Sequence[SpokenToken], at: int) -> str:
    return raw[at].text if 0 <= at < len(raw) else ""


def _hour(token: SpokenToken) -> int | None:
    value = token.value
    return int(value) if value is not None and value % 1 == 0 and 0 <= value <= 24 else None


def _half_of(raw: Sequence[SpokenToken], at: int) -> tuple[str, int]:
    """Which half of the day is said at a place, and how many tokens say it."""
    first = _text(raw, at)
    if first in ("am", "pm"):
        return first, 1
    for used in (1, 2, 3):
        word = _text(raw, at + used - 1)
        if word in _AFTERNOON | _MORNING and _text(raw, at) in ("in", "at", "this", "tonight", word):
            return ("pm" if word in _AFTERNOON else "am"), used
    return "", 0


def _clock(hour: int, minute: int, half: str, words: str) -> Token:
    if hour > 12:
        half = "pm" if hour < 24 else "am"
    readings: set[Reading] = {("time", float((hour * 60 + minute) % _HALF_DAY))}
    if minute == 0:
        readings.add(("number", float(hour)))
    return Token(words, frozenset(readings), half)


def _time(raw: Sequence[SpokenToken], at: int) -> _Taken | None:
    words = [_text(raw, at + step) for step in range(5)]
    start = 1 if words[0] in ("a", "an") else 0
    if (
        words[start] in ("half", "quarter")
        and words[start + 1] in ("past", "to", "after")
        and at + start + 2 < len(raw)
    ):
        hour = _hour(raw[at + start + 2])
        if hour is not None:
            minute = 30 if words[start] == "half" else 15
            total = hour * 60 + (minute if words[start + 1] != "to" else -minute)
            half, more = _half_of(raw, at + start + 3)
            return _clock(total // 60 % 24, total % 60, half, " ".join(words[start : start + 3])), start + 3 + more
    if at >= len(raw):
        return None
    hour = _hour(raw[at])
    if hour is not None and words[1] in ("past", "to") and at + 2 < len(raw) and (of := _hour(raw[at + 2])) is not None:
        total = of * 60 + (hour if words[1] == "past" else -hour)
        half, more = _half_of(raw, at + 3)
        return _clock(total // 60 % 24, total % 60, half, " ".join(words[:3])), 3 + more
    if hour is not None:
        plus = 1 if words[1] == "oclock" else 0
        half, more = _half_of(raw, at + 1 + plus)
        if plus or more:
            return _clock(hour, 0, half, words[0]), 1 + plus + more
    digits = words[0].replace(".", ":").split(":")
    if len(digits) == 2 and all(part.isdigit() for part in digits) and int(digits[0]) <= 24:
        # "5.30" reaches us as 5.3; a time has two digits behind its point.
        minute = int(digits[1].ljust(2, "0")) if "." in words[0] else int(digits[1])
        half, more = _half_of(raw, at + 1)
        if minute < 60 and (more or ":" in words[0]):
            base = _clock(int(digits[0]), minute, half, words[0])
            return Token(base.text, base.readings | _number_readings(raw[at]), base.half), 1 + more
    return None


def _date(raw: Sequence[SpokenToken], at: int) -> _Taken | None:
    def day(place: int) -> int | None:
        if place >= len(raw):
            return None
        text = raw[place].text
        digits = text[:-2] if text[-2:] in ("st", "nd", "rd", "th") else text
        return int(digits) if digits.isdigit() and 1 <= int(digits) <= 31 else None

    first = _text(raw, at)
    if first in _MONTH_OF:
        gap = 1 if _text(raw, at + 1) == "the" else 0
        number = day(at + 1 + gap)
        if number is not None:
            return Token(first, frozenset({("date", f"{_MONTH_OF[first]}-{number}")})), 2 + gap
    number = day(at)
    if number is not None:
        gap = 1 if _text(raw, at + 1) == "of" else 0
        month = _text(raw, at + 1 + gap)
        if month in _MONTH_OF:
            return Token(month, frozenset({("date", f"{_MONTH_OF[month]}-{number}")})), 2 + gap
    return None


def _digits(raw: Sequence[SpokenToken], at: int) -> _Taken | None:
    """Digits that are read out one by one, with "oh" for a zero."""
    joined, place = "", at
    while place < len(raw):
        text = raw[place].text
        if text in ("oh", "o") and joined:
            joined += "0"
        elif raw[place].number and text.replace(":", "").isdigit():
            joined += text.replace(":", "")
        else:
            break
        place += 1
    if place - at < 2:
        return None
    return Token(joined, frozenset({("digits", joined), ("number", float(joined[:15]))})), place - at


def _measure(raw: Sequence[SpokenToken], at: int) -> _Taken | None:
    if _text(raw, at) == "fortnight":
        return Token("fortnight", frozenset({("s", 14 * 86_400.0)})), 1
    value = raw[at].value
    unit = _UNITS.get(_text(raw, at + 1))
    if value is None or unit is None:
        return None
    base, factor = unit
    readings: set[Reading] = {(base, round(float(value) * factor, 6)), ("number", float(value))}
    return Token(raw[at].text, frozenset(readings)), 2
