"""voxgate-mini's adapter on disk: LoRA's matrices and the projection of what was heard, and what they belong to.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022: a weight W becomes W + (alpha / r) B A.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from models.mini_prompt import Reading

ADAPTER_FILE = "adapter.safetensors"
SETTINGS_FILE = "adapter.json"
PROJECTION = "projection.weight"
STATE_WIDTH = 512
"""Width of whisper-base's encoder states."""

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter.

    Attributes:
        base: the model that it changes.
        scale: alpha / r.
        reading: how much of the ears' verdicts it was trained to read.
        fusion: whether it hears the words.
        matrices: A and B by the name of the weight that they change, with ``.lora_A`` or ``.lora_B``.
        projection: float32 ``(hidden, 512)``, or None.
    """

    base: str
    scale: float
    reading: Reading
    fusion: bool
    matrices: dict[str, FloatArray]
    projection: FloatArray | None

    def change(self, weight: str) -> FloatArray | None:
        """What is added to a weight of transformers' ``LlamaForCausalLM``, or None."""
        name = weight.removesuffix(".weight")
        down, up = self.matrices.get(f"{name}.lora_A"), self.matrices.get(f"{name}.lora_B")
        if down is None or up is None:
            return None
        return np.asarray(self.scale * (up @ down), dtype=np.float32)


def read_adapter(folder: Path) -> Adapter:
    """Read what a learner saved.

    Raises:
        OSError: when a file is missing.
        ValueError: when A and B do not come in pairs.
    """
    from safetensors.numpy import load_file

    settings = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    matrices = {name: value.astype(np.float32) for name, value in load_file(str(folder / ADAPTER_FILE)).items()}
    projection = matrices.pop(PROJECTION, None)
    changed = {name.rpartition(".")[0] for name in matrices}
    if set(matrices) != {f"{name}.lora_{half}" for name in changed for half in "AB"}:
        raise ValueError(f"{folder / ADAPTER_FILE} is not an adapter: its matrices do not come in pairs")
    return Adapter(
        settings["base"], settings["alpha"] / settings["rank"], Reading(settings["reading"]), bool(settings["fusion"]),
        matrices, projection,
    )  # fmt: skip


def join_adapters(first: Adapter, second: Adapter) -> Adapter:
    """One adapter that does what two do, the second trained on top of the first: their ranks add up.

    Raises:
        ValueError: when they do not belong together.
    """
    if (first.base, first.reading, first.fusion) != (second.base, second.reading, second.fusion):
        raise ValueError("the adapters belong to different models")
    if set(first.matrices) != set(second.matrices):
        raise ValueError("the adapters change different weights")
    joined: dict[str, FloatArray] = {}
    for name, matrix in first.matrices.items():
        if name.endswith(".lora_A"):
            joined[name] = np.concatenate([matrix, second.matrices[name]], axis=0)
        else:
            joined[name] = np.concatenate([first.scale * matrix, second.scale * second.matrices[name]], axis=1)
    return Adapter(first.base, 1.0, first.reading, first.fusion, joined, first.projection)


def write_adapter(folder: Path, adapter: Adapter) -> None:
    """Write an adapter as ``read_adapter`` reads it, in half precision: a repository carries it."""
    from safetensors.numpy import save_file

    tensors: dict[str, npt.NDArray[np.float16]] = {
        name: np.ascontiguousarray(matrix, dtype=np.float16) for name, matrix in adapter.matrices.items()
    }
    if adapter.projection is not None:
        tensors[PROJECTION] = np.ascontiguousarray(adapter.projection, dtype=np.float16)
    rank = next(matrix.shape[0] for name, matrix in adapter.matrices.items() if name.endswith(".lora_A"))
    settings = {
        "base": adapter.base, "rank": rank, "alpha": adapter.scale * rank, "reading": str(adapter.reading),
        "fusion": adapter.fusion,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(folder / ADAPTER_FILE))
    (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
