"""Builds the live speaker network from CAM++'s checkpoint: the trunk for ONNX Runtime and the head for NumPy.

Two parts, so that one pass of the trunk serves any number of pooled windows: ``trunk.onnx`` maps a filter bank to
frame-level features, ``head.npz`` holds the affine layer after pooling.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from models.fbank import frame_count
from models.speaker_campplus import HEAD_NAME, TRUNK_NAME

BUILDER_VERSION = "1"

_CHECKPOINT_NAME = "campplus_cn_en_common.pt"
_OPSET = 17
_CHECKED_MEL_FRAMES = (48, 200, 201, 633)
"""Below, at and just above the two-second segments of the masking, and several of them."""
_TOLERANCE = 1e-3
"""Largest allowed difference between torch and ONNX Runtime; features are of the order of 1 to 10."""


def build(inputs: Mapping[str, Path], out_dir: Path, progress: Callable[[str], None]) -> None:
    """Write ``trunk.onnx`` and ``head.npz``.

    Args:
        inputs: ``{"campplus": directory that holds the checkpoint}``.
        out_dir: an existing directory.
        progress: is told each stage in a few words.

    Raises:
        RuntimeError: when the checkpoint does not fit the architecture, or the exported trunk computes something else.
    """
    import onnxruntime
    import torch

    from models.campplus import MEL_BINS, NORM_EPSILON, CamPlusPlus, Trunk

    progress("reading the checkpoint")
    checkpoint = inputs["campplus"] / _CHECKPOINT_NAME
    network = CamPlusPlus()
    network.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True))
    network.eval()

    progress("exporting the trunk")
    trunk = Trunk(network).eval()
    example = torch.zeros(1, frame_count(48_000), MEL_BINS)
    with warnings.catch_warnings():
        # The exporter that traces is the one that needs no further package.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module="torch.onnx")
        torch.onnx.export(
            trunk,
            (example,),
            str(out_dir / TRUNK_NAME),
            input_names=["fbank"],
            output_names=["frames"],
            dynamic_axes={"fbank": {1: "mel_frames"}, "frames": {1: "frames"}},
            opset_version=_OPSET,
            dynamo=False,
        )

    progress("writing the head")
    state = network.state_dict()
    scale = torch.rsqrt(state["xvector.dense.nonlinear.batchnorm.running_var"] + NORM_EPSILON)
    np.savez(
        out_dir / HEAD_NAME,
        weight=(state["xvector.dense.linear.weight"][:, :, 0] * scale[:, None]).numpy(),
        bias=(-state["xvector.dense.nonlinear.batchnorm.running_mean"] * scale).numpy(),
        checkpoint_sha256=np.array(hashlib.sha256(checkpoint.read_bytes()).hexdigest()),
    )

    progress("comparing with torch")
    session = onnxruntime.InferenceSession(str(out_dir / TRUNK_NAME), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    for mel_frames in _CHECKED_MEL_FRAMES:
        fbank = random.normal(0.0, 3.0, (1, mel_frames, MEL_BINS)).astype(np.float32)
        with torch.inference_mode():
            wanted = trunk(torch.from_numpy(fbank)).numpy()
        difference = float(np.abs(session.run(None, {"fbank": fbank})[0] - wanted).max())
        if not difference <= _TOLERANCE:
            raise RuntimeError(f"the exported trunk differs from torch by {difference:.2g} on {mel_frames} frames")
