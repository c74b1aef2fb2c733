"""What a run was made with: code, settings, models, data, machine. Kept beside the log, so that figures can be placed.

Everything that can change a result or a time is in it; a run is only continued when all of that is the same.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CONFIG = "config.json"
CONFIG_VERSION = 1
ROOT = Path(__file__).resolve().parent.parent
_CODE = (
    "gate/**/*", "tools/**/*", "models/*", "agent/**/*", "bench/baselines/*", "bench/trials.py", "bench/results.py",
    "bench/stream.py", "bench/contestants.py", "bench/trial_runner.py",
)  # fmt: skip
"""What a trial runs through: training, the building of corpora, and scoring change nothing in a run's log."""
_CODE_SUFFIXES = (".py", ".toml")
_LIBRARIES = ("numpy", "ctranslate2", "onnxruntime", "tokenizers", "torch", "transformers", "webrtcvad-wheels", "soxr")
_MAY_DIFFER = ("created_unix", "code.git_commit", "code.git_dirty", "limit", "models", "manifest.folder")
"""Keys in which a continued run may differ from its beginning: they name the run and change none of its results. What
was committed does not matter where the code itself is the same. Models are compared once they are loaded."""


class ConfigurationDiffersError(Exception):
    """A run cannot be continued: something that bears on its results has changed. The message names the keys."""


def sha256_of(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def code_provenance() -> dict[str, Any]:
    """Which code runs: the commit, whether the checkout differs from it, and a hash over the code that a trial
    runs through.

    Returns:
        ``git_commit`` and ``git_dirty`` are None outside a checkout.
    """
    is_checkout = _git("rev-parse", "--show-toplevel") == str(ROOT)
    changed = _git("status", "--porcelain", "--untracked-files=no") if is_checkout else None
    digest = hashlib.sha256()
    for pattern in _CODE:
        for path in sorted(ROOT.glob(pattern)):
            if path.suffix in _CODE_SUFFIXES and path.is_file():
                digest.update(f"{path.relative_to(ROOT).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return {
        "git_commit": _git("rev-parse", "HEAD") if is_checkout else None,
        "git_dirty": None if changed is None else bool(changed),
        "sha256": digest.hexdigest(),
    }


def machine() -> dict[str, Any]:
    """What it runs on: processor, cores that this process may use, memory, and the libraries that compute."""
    return {
        "processor": _processor(),
        "cores": cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "libraries": {name: version for name in _LIBRARIES if (version := _version(name)) is not None},
    }


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_same(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Check that a run may be continued.

    Args:
        old: the configuration that its log was begun with.
        new: the one that it would go on with.

    Raises:
        ConfigurationDiffersError: when it may not; names each key with both values.
    """
    differing = [
        f"{key} was {_shown(before)} and is {_shown(now)}"
        for key, before, now in differences(old, new)
        if not any(key == free or key.startswith(f"{free}.") for free in _MAY_DIFFER)
    ]
    if differing:
        raise ConfigurationDiffersError(
            f"the log was begun with another configuration: {'; '.join(differing)}. Name a new folder with --out, or "
            "go back to what it was begun with"
        )


def require_same_models(old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Check that the models that were loaded are those of the log.

    Raises:
        ConfigurationDiffersError: when they are not; names them.
    """
    require_same({"loaded": dict(old)}, {"loaded": dict(new)})


def read_config(path: Path) -> dict[str, Any]:
    """A run's configuration.

    Raises:
        ConfigurationDiffersError: when it is missing or cannot be read: then nothing is known of the log beside it.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationDiffersError(f"{path}: cannot be read ({error}); name a new folder with --out") from error
    if not isinstance(config, dict) or config.get("version") != CONFIG_VERSION:
        raise ConfigurationDiffersError(f"{path}: not a configuration of this version; name a new folder with --out")
    return config


def write_json(path: Path, value: object) -> None:
    """Write a JSON file whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def differences(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two configurations differ, as ``(dotted key, old value, new value)``."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in [*old, *(name for name in new if name not in old)]:
            yield from differences(old.get(name), new.get(name), f"{key}.{name}" if key else str(name))
    elif old != new:
        yield key, old, new


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
