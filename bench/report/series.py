"""How runs are told apart in drawings: by colour, by the shape of their marks, by their dashes, and by their letters.

The colours are those of ``style.css`` (``--s0`` to ``--s5``), apart in lightness as well as in hue, and are repeated
after six runs; shapes are repeated after seven, so no two of the first 42 runs look the same.
"""

from __future__ import annotations

import math

from bench.report.svg import element, number

COLOURS = 6
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "5 2", "1 3", "12 4")


def colour(run: int) -> str:
    """The class that gives a run its colour."""
    return f"s{run % COLOURS}"


def line(path: str, run: int) -> str:
    """A line of a run."""
    dashes = _DASHES[run % len(_DASHES)]
    more = {"stroke_dasharray": dashes} if dashes else {}
    return element("path", d=path, class_=f"line {colour(run)}", **more)


def mark(run: int, x: float, y: float, size: float = 5.0, *, hollow: bool = False) -> str:
    """A mark of a run at a place; ``size`` is about its radius."""
    kind = f"mark {colour(run)}{' hollow' if hollow else ''}"
    shape = run % 7
    if shape == 0:
        return element("circle", cx=x, cy=y, r=size, class_=kind)
    if shape in (1, 3):
        half = size * 0.9
        turned = {"transform": f"rotate(45 {number(x)} {number(y)})"} if shape == 3 else {}
        return element("rect", x=x - half, y=y - half, width=2 * half, height=2 * half, class_=kind, **turned)
    corners = {2: (3, -90.0), 4: (3, 90.0), 5: (5, -90.0), 6: (6, 0.0)}[shape]
    count, first = corners
    points = " ".join(
        f"{number(x + 1.2 * size * math.cos(math.radians(first + 360 * i / count)))},"
        f"{number(y + 1.2 * size * math.sin(math.radians(first + 360 * i / count)))}"
        for i in range(count)
    )
    return element("polygon", points=points, class_=kind)


def swatch(run: int) -> str:
    """A piece of a run's line with its mark, for a legend. Whoever cannot see it has the run's letter beside it."""
    return element(
        "svg", line("M0 7H34", run), mark(run, 17, 7, 4.5), viewBox="0 0 34 14", class_="swatch", aria_hidden="true"
    )
