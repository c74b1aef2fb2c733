"""Running a builder: the function that derives a model from others.

A builder runs in a process of its own, so that what it imports (torch, onnx) is neither paid for nor kept by the
process that serves, and so that its crash or its memory use is not ours.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from models.store_errors import ModelError, ModelFault

if TYPE_CHECKING:  # the child process needs none of it
    from models.registry import BuildSpec

_VERSION_NAME = "BUILDER_VERSION"
_ERROR_TAIL_CHARS = 2000


def _no_version(build: BuildSpec, why: str) -> ModelError:
    return ModelError(
        ModelFault.BUILD_FAILED,
        f"{build.module} has no readable {_VERSION_NAME} ({why})",
        "Reinstall voicegate; a builder's module needs that string constant",
    )


def builder_version(build: BuildSpec) -> str:
    """The builder's version string, read from its module's source text.

    The text is parsed, not run: the version is looked at on every load of a built model, where importing an exporter
    and what it imports would cost more than the load.

    Raises:
        ModelError: ``BUILD_FAILED`` if there is no such module or no such constant.
    """
    try:
        found = importlib.util.find_spec(build.module)
    except ModuleNotFoundError:
        found = None
    if found is None or found.origin is None:
        raise _no_version(build, "there is no such module")
    for node in ast.parse(Path(found.origin).read_bytes()).body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        named = any(isinstance(target, ast.Name) and target.id == _VERSION_NAME for target in targets)
        if named and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return node.value.value
    raise _no_version(build, "no string literal is assigned to it")


def run_builder(
    name: str, build: BuildSpec, inputs: Mapping[str, Path], out_dir: Path, progress: Callable[[str], None]
) -> None:
    """Build a model's files in a child process.

    Args:
        name: the model's name, for messages.
        build: which function.
        inputs: model name to the verified directory of that model.
        out_dir: an existing, empty directory.
        progress: is told each stage in a few words.

    Raises:
        ModelError: ``BUILD_FAILED`` with the last lines that the builder wrote.
    """
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    job = json.dumps(
        {"function": build.function, "inputs": {key: str(path) for key, path in inputs.items()}, "out": str(out_dir)}
    )
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "models.store_build", job],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
        try:
            assert child.stdout is not None
            with child.stdout:
                for line in child.stdout:
                    progress(line.rstrip("\n"))
            status = child.wait()
        except BaseException:  # Ctrl-C too: no builder is left running behind
            child.kill()
            child.wait()
            raise
        if status != 0:
            log.seek(0)
            tail = log.read()[-_ERROR_TAIL_CHARS:].strip()
            last_line = tail.rpartition("\n")[2]
            error = ModelError(
                ModelFault.BUILD_FAILED,
                f"building {name} with {build.function} failed (exit status {status}): {last_line}",
                "If memory or disk ran out, free some and pull again; else report it with what the builder wrote",
            )
            error.add_note(tail)
            raise error


def _main(job_text: str) -> None:
    """The child: import the function, run it, write its progress to standard output and all else to standard error."""
    job = json.loads(job_text)
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is log, not progress
    module, _, function = job["function"].partition(":")
    build = getattr(importlib.import_module(module), function)
    build(
        {key: Path(path) for key, path in job["inputs"].items()},
        Path(job["out"]),
        lambda text: print(text, file=lines),
    )


if __name__ == "__main__":
    _main(sys.argv[1])
