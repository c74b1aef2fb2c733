"""A small network that was trained here: an ONNX file, and a JSON file of the same name that describes it.

The description holds the sha256 of the weights, so that thresholds never meet a network that they were not set for.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.protocols import ModelId


@dataclass(frozen=True, slots=True)
class TrainedNetwork:
    """A network that is ready to run.

    Attributes:
        session: ONNX Runtime's.
        description: all that the JSON file says.
        model: name and hash of the weights.
    """

    session: Any
    description: dict[str, Any]
    model: ModelId


def load_network(name: str, weights: Path, threads: int) -> TrainedNetwork:
    """Load a network and its description.

    Args:
        name: what it is called in events and logs.
        weights: the ONNX file.
        threads: ONNX Runtime's threads for one call.

    Raises:
        FileNotFoundError: when either file is missing.
        ValueError: when the weights are not those that the JSON file describes.
    """
    import onnxruntime as ort

    description: dict[str, Any] = json.loads(weights.with_suffix(".json").read_text(encoding="utf-8"))
    content = weights.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != description["onnx_sha256"]:
        raise ValueError(f"{weights} has sha256 {sha256}, its description says {description['onnx_sha256']}")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return TrainedNetwork(session, description, ModelId(name, sha256))
