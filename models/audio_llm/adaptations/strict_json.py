"""One JSON object in a model's step, read strictly."""

from __future__ import annotations

import json
import math


def read_object(text: str) -> dict[str, object] | None:
    """The object that ``text`` is, or None.

    A text around it, a key that stands twice, ``NaN`` and numbers out of range each make it none.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite, parse_int=_in_range
        )
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key stands twice")
    return out


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value


def _in_range(text: str) -> int:
    if len(text) > 15:
        raise ValueError(f"{text[:15]}… is out of range")
    return int(text)
