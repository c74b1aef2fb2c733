"""How an audio LLM is trained: a TOML file a model, in ``configs`` or the user's own (docs/training-gpus.md)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from models.components import parse_options
from models.training.policy.audio_llm_lora import LoraSettings

FOLDER = Path(__file__).parent / "configs"


@dataclass(frozen=True, slots=True)
class PaperSettings:
    """What a dry run lays out on paper.

    Attributes:
        network: the class in transformers.
        row_tokens: of a long row: instruction, sound and what is told beside it.
        target_tokens: of a long action.
        train_rows: rows of the mixture, for the number of updates.
        architecture: arguments of the class's configuration, where they are not its defaults. Without them a dry run
            needs the checkpoint's own ``config.json``.
    """

    network: str
    row_tokens: int = 1536
    target_tokens: int = 96
    train_rows: int = 5748
    architecture: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """One file.

    Attributes:
        name: of the file.
        policy: the policy's name in the registry.
        options: options of the policy ("told", "dir", …).
        lora: what learns.
        sft, grpo: settings of the two stages where they differ from ``SftSettings`` and ``GrpoSettings``.
        paper: for a dry run.
    """

    name: str
    policy: str
    options: dict[str, str]
    lora: LoraSettings
    sft: dict[str, Any]
    grpo: dict[str, Any]
    paper: PaperSettings


def read_config(model: str) -> TrainingConfig:
    """Read a configuration.

    Args:
        model: the name of a shipped one ("qwen3-omni") or a file ("mine.toml"), and options of the policy behind it:
            ``qwen3-omni:dir=FOLDER,told=nothing``.

    Raises:
        ValueError: when there is none of that name, or the file is not what it should be.
        UnknownComponentError: when the options are not ``key=value,key=value``.
        OSError: when the file cannot be read.
    """
    head, _, behind = model.partition(":")
    path = Path(head) if head.endswith(".toml") else FOLDER / f"{head}.toml"
    if path.parent == FOLDER and not path.is_file():
        names = ", ".join(sorted(file.stem for file in FOLDER.glob("*.toml")))
        raise ValueError(f"no model {head!r}. There are: mini, {names}, or a TOML file")
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    try:
        return _config(path.stem, values, parse_options(behind) if behind else {})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _config(name: str, values: Mapping[str, Any], behind: Mapping[str, str]) -> TrainingConfig:
    from models.training.policy.grpo import GrpoSettings
    from models.training.policy.sft import SftSettings

    tables = {"options": None, "lora": LoraSettings, "sft": SftSettings, "grpo": GrpoSettings, "paper": PaperSettings}
    if unknown := set(values) - {"policy", *tables}:
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
    if lacking := [key for key in ("policy", "paper") if key not in values]:
        raise ValueError(f"no {lacking[0]}")
    for table, kind in tables.items():
        known = set() if kind is None else {item.name for item in fields(kind)}
        if kind is not None and (wrong := set(values.get(table, {})) - known):
            raise ValueError(f"[{table}] has no {', '.join(sorted(wrong))}; there are {', '.join(sorted(known))}")
    options = {str(key): str(value) for key, value in values.get("options", {}).items()}
    return TrainingConfig(
        name, str(values["policy"]), options | dict(behind), LoraSettings(**values.get("lora", {})),
        dict(values.get("sft", {})), dict(values.get("grpo", {})), PaperSettings(**values["paper"]),
    )  # fmt: skip
