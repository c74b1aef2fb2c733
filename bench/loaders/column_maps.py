"""Column maps from a file: a TOML table that says what a copy of a corpus calls its columns and their values.

The keys are the fields of the loader's own map (``VgbenchColumns``, ``WearvoxColumns``, ``EarColumns``)::

    id = "item"
    ignored = ["comment"]
    [scenarios]
    "talking to herself" = "self_talk"

Names of values are added to those that the loader knows; what is not named keeps its default.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from bench.loaders.ear import EarColumns
from bench.loaders.rows import LoaderError
from bench.loaders.vgbench import VgbenchColumns
from bench.loaders.wearvox import WearvoxColumns

_Map = TypeVar("_Map", EarColumns, VgbenchColumns, WearvoxColumns)


def read_column_map(path: Path | None, kind: type[_Map]) -> _Map:
    """Read a column map.

    Args:
        path: the TOML file; None for the defaults.
        kind: the loader's map.

    Raises:
        LoaderError: when it cannot be read, or holds something that the map does not have; names it.
    """
    default = kind()
    if path is None:
        return default
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LoaderError(f"{path}: cannot be read: {error}") from error
    known = {field.name: getattr(default, field.name) for field in fields(kind)}
    unknown = sorted(set(read) - set(known))
    if unknown:
        raise LoaderError(f"{path}: unknown {', '.join(map(repr, unknown))}; there are {', '.join(known)}")
    return kind(**{name: _value(path, name, value, known[name]) for name, value in read.items()})


def _value(path: Path, name: str, value: Any, default: Any) -> Any:
    """A value as the map has it: a text, a set of texts, or texts by text."""
    if isinstance(default, str):
        if isinstance(value, str) and value:
            return value
        raise LoaderError(f"{path}: {name} is not the name of a column")
    if isinstance(default, Mapping):
        if isinstance(value, dict) and all(isinstance(one, str) for one in value.values()):
            wrong = sorted(set(value.values()) - set(default.values())) if name != "conditions" else []
            if wrong:
                meant = ", ".join(sorted(set(default.values())))
                raise LoaderError(f"{path}: {name}: no {', '.join(map(repr, wrong))}; there are {meant}")
            return {**default, **value}
        raise LoaderError(f"{path}: {name} is no table of texts")
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return frozenset(value)
    raise LoaderError(f"{path}: {name} is no list of columns")
