"""Export of the small frame-wise networks to ONNX, with a check that ONNX Runtime computes what torch does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from models.mel_bands import BANDS

OPSET = 17
_TOLERANCE = 1e-3


def export(network: Any, path: Path) -> float:
    """Write a network from ``bands`` ``(batch, frames, 48)`` to ``steps`` with free batch and frame axes.

    Returns:
        The largest absolute difference from torch over three lengths of random input.

    Raises:
        RuntimeError: when that exceeds 1e-3.
    """
    import onnx
    import onnxruntime as ort
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(
        network,
        (torch.zeros(1, 200, BANDS),),
        str(path),
        input_names=["bands"],
        output_names=["steps"],
        dynamic_axes={"bands": {0: "batch", 1: "frames"}, "steps": {0: "batch", 1: "count"}},
        opset_version=OPSET,
        dynamo=False,
    )
    onnx.checker.check_model(onnx.load(str(path)))
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    worst = 0.0
    for frames in (60, 137, 400):
        x = rng.normal(0.0, 1.0, size=(1, frames, BANDS)).astype(np.float32)
        with torch.no_grad():
            reference = network(torch.from_numpy(x)).numpy()
        worst = max(worst, float(np.abs(session.run(None, {"bands": x})[0] - reference).max()))
    if worst > _TOLERANCE:
        raise RuntimeError(f"ONNX differs from torch by {worst:.2e}")
    return worst


def single_thread_session(path: Path) -> Any:
    """An ONNX Runtime session on one CPU thread: small networks gain nothing from more, and results repeat exactly."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
