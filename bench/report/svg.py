"""Just enough SVG: elements with escaped text, rounded numbers, round ticks. No library, so that pages stay small."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_REPLACED = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0), 0xFFFE, 0xFFFF)}
for _kept in (0x09, 0x0A, 0x0D):
    del _REPLACED[_kept]


def text_of(text: str) -> str:
    """Any text as it may stand in HTML, between tags and in quoted attributes."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return escape(whole.translate(_REPLACED), quote=True)


def number(value: float) -> str:
    """A coordinate, to a hundredth."""
    told = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if told == "-0" else told


def element(name: str, *children: str, **attributes: str | float) -> str:
    """An element.

    Args:
        name: its name.
        children: what is in it: elements, or text that has been escaped.
        attributes: an underscore at the end of a name is dropped, one inside becomes a hyphen.
    """
    told = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{text_of(value) if isinstance(value, str) else number(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{told}>{''.join(children)}</{name}>" if children else f"<{name}{told}/>"


def label(text: str, x: float, y: float, **attributes: str | float) -> str:
    """Some text at a place."""
    return element("text", text_of(text), x=x, y=y, **attributes)


def drawing(anchor: str, title: str, description: str, width: float, height: float, children: Iterable[str]) -> str:
    """A whole drawing, with a title and a description for those who do not see it.

    Args:
        anchor: its name in the page, used by nothing else.
        title: what it shows.
        description: what can be seen in it.
        width: in its own units.
        height: in its own units.
        children: its elements.
    """
    named = (
        element("title", text_of(title), id=f"{anchor}-title"),
        element("desc", text_of(description), id=f"{anchor}-desc"),
    )
    return element(
        "svg", *named, *children, viewBox=f"0 0 {number(width)} {number(height)}", role="img",
        aria_labelledby=f"{anchor}-title {anchor}-desc",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to places on an axis.

    Attributes:
        low: the value at ``start``.
        high: the value at ``end``.
        start: a coordinate.
        end: another.
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Whether a value lies on the axis."""
        return self.low <= value <= self.high


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round values from ``low`` to ``high``, both within what they span; ``high`` above ``low``."""
    raw = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 10) for index in range(first, last + 1)]


def rounded_up(value: float) -> float:
    """The next round number, at or above a positive value."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        factor * power for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if factor * power >= value * (1 - 1e-9)
    )


def steps(points: Sequence[tuple[float, float]], x: Scale, y: Scale) -> str:
    """The path of a function that keeps its value until the next point."""
    parts = [f"M{number(x(points[0][0]))} {number(y(points[0][1]))}"]
    for at, value in points[1:]:
        parts.append(f"H{number(x(at))}V{number(y(value))}")
    return "".join(parts)


def polyline(points: Sequence[tuple[float, float]], x: Scale, y: Scale) -> str:
    """The path through some points."""
    return "M" + "L".join(f"{number(x(at))} {number(y(value))}" for at, value in points)


@dataclass(frozen=True, slots=True)
class Frame:
    """The part of a drawing inside its axes, in its units."""

    left: float
    top: float
    right: float
    bottom: float


def axes(frame: Frame, x: Scale, y: Scale, x_name: str, y_name: str, *, unit: str = "", in_percent: str = "") -> str:
    """Both axes, their ticks and their names.

    Args:
        frame: where.
        x: the horizontal scale.
        y: the vertical scale.
        x_name: what runs to the right.
        y_name: what runs upwards; it stands above the axis.
        unit: written behind the values on ``x``.
        in_percent: which of ``x`` and ``y`` hold shares, such as ``"xy"``.
    """
    parts = []
    for value in ticks(y.low, y.high):
        at = y(value)
        parts.append(element("line", x1=frame.left, x2=frame.right, y1=at, y2=at, class_="grid"))
        told = f"{value * 100:g}%" if "y" in in_percent else f"{value:g}"
        parts.append(label(told, frame.left - 6, at + 4, text_anchor="end", class_="tick"))
    for value in ticks(x.low, x.high):
        at = x(value)
        parts.append(element("line", x1=at, x2=at, y1=frame.top, y2=frame.bottom, class_="grid"))
        told = f"{value * 100:g}%" if "x" in in_percent else f"{value:g}{unit}"
        parts.append(label(told, at, frame.bottom + 16, text_anchor="middle", class_="tick"))
    parts.append(element("path", d=f"M{frame.left} {frame.top}V{frame.bottom}H{frame.right}", class_="axis"))
    parts.append(label(x_name, (frame.left + frame.right) / 2, frame.bottom + 33, text_anchor="middle", class_="name"))
    parts.append(label(y_name, 4, frame.top - 10, class_="name"))
    return "".join(parts)
