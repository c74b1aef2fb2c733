"""Loads tools from the user's own files. A tool is one file; nothing else has to be told of it.

Loading a file runs its code, so only a path that the user named is loaded, and never one that others can write to.
"""

from __future__ import annotations

import hashlib
import importlib.util
import stat
import sys
from pathlib import Path

from tools.spec import ToolSpec, is_tool


class ToolLoadError(Exception):
    """A file of the user's could not be loaded as a tool. The message names the file and the reason."""


def load_user_tools(path: Path) -> tuple[type[ToolSpec], ...]:
    """Load the tools of one file, or of every ``*.py`` in a directory whose name does not begin with an underscore.

    Args:
        path: the file or the directory; sub-directories are not searched.

    Returns:
        The tool classes that the files define, by file name and then in the order of definition.

    Raises:
        ToolLoadError: when the path is missing or others may write to it, a file does not run or does not define a
            tool. Nothing is skipped silently.
    """
    path = path.expanduser().resolve()
    if path.is_dir():
        _refuse_writable_by_others(path)
        files = sorted(file for file in path.glob("*.py") if not file.name.startswith("_"))
        if not files:
            raise ToolLoadError(f"{path}: holds no *.py file")
    elif path.is_file():
        files = [path]
    else:
        raise ToolLoadError(f"{path}: no such file or directory")
    return tuple(tool for file in files for tool in _load_file(file))


def _load_file(file: Path) -> list[type[ToolSpec]]:
    _refuse_writable_by_others(file)
    # The path's hash keeps two files of the same name apart; pydantic looks the module up to resolve annotations.
    name = f"voicegate_user_tool_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ToolLoadError(f"{file}: is no Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ToolLoadError(f"{file}: {type(error).__name__}: {error}") from error
    found = (value for value in vars(module).values() if is_tool(value) and value.__module__ == name)
    tools = list(dict.fromkeys(found))  # one class under two names is one tool
    if not tools:
        del sys.modules[name]
        raise ToolLoadError(f"{file}: defines no tool (a ToolSpec with name, description and risk)")
    return tools


def _refuse_writable_by_others(path: Path) -> None:
    if path.stat().st_mode & stat.S_IWOTH:
        raise ToolLoadError(f"{path}: anyone may write to it, so its code is not trusted; run: chmod o-w {path}")
