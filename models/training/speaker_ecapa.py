"""Distil CAM++ into an ECAPA-TDNN that hears through rooms, noise, devices and shortness.

``python -m models.training.speaker_ecapa --data DIR --work DIR [--voices DIR] [--device cuda]``

The network is built of SpeechBrain's blocks (Ravanelli et al., 2021). It learns to give an unclean, short clip the
embedding that the teacher gives the clean recording, and to be as like the other recordings of the batch as the teacher
says it is (Fang et al., "SEED: self-supervised distillation for visual representation", ICLR 2021). Everything lies
under ``--work``: the teacher's embeddings, the clips, and a checkpoint that the same command goes on from. At the end
the network is written to ``--out`` as ONNX with its description.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from models.registry import PACKAGE_DIRECTORY
from models.speaker_calibration import Uncalibrated
from models.speaker_campplus import CampPlusEar
from models.speaker_ecapa import WEIGHTS_NAME
from models.store import Store
from models.training import corpus
from models.training.corpus import Part
from models.training.progress import steps
from models.training.speaker_ecapa_data import CLIP_FRAMES, Clips, Source, clips, crop_frames, recordings, targets

if TYPE_CHECKING:
    import torch

BINS = 80

_LIKENESS_WEIGHT = 0.2
_LIKENESS_SCALE = 20.0
_DEV_CLIPS = 256
_CHECK_S = (1.0, 3.0)
_OPSET = 17
_TOLERANCE = 1e-3


class ResumeError(Exception):
    """The work folder holds a checkpoint of another recipe. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is trained, and for how long.

    Attributes:
        seed: of weights and batches; what is drawn at a step depends on it and the step alone.
        clips: how many are rendered.
        steps: optimiser steps.
        batch: clips a step.
        channels: width of the network; 512 makes 6.3 million parameters.
        rate: the highest learning rate.
    """

    seed: int = 0
    clips: int = 20_000
    steps: int = 12_000
    batch: int = 64
    channels: int = 512
    rate: float = 1e-3


def build_network(channels: int, dimension: int) -> torch.nn.Module:
    """The student: filter bank ``(batch, frames, 80)`` to embeddings ``(batch, dimension)``."""
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN
    from torch import Tensor, nn

    class Student(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ecapa = ECAPA_TDNN(BINS, channels=[channels] * 4 + [3 * channels], lin_neurons=dimension)

        def forward(self, fbank: Tensor) -> Tensor:
            embedding: Tensor = self.ecapa(fbank)
            return embedding.squeeze(1)

    return Student()


def loss(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """How far the student is from the teacher, and how differently it sees the others of the batch.

    Args:
        student: ``(batch, dimension)``.
        teacher: likewise, unit norm.
    """
    from torch.nn.functional import cross_entropy, normalize

    cosines = normalize(student, dim=1) @ teacher.T
    wanted = (_LIKENESS_SCALE * teacher @ teacher.T).softmax(dim=1)
    likeness = cross_entropy(_LIKENESS_SCALE * cosines, wanted)
    return (1.0 - cosines.diagonal()).mean() + _LIKENESS_WEIGHT * likeness


def train(
    recipe: Recipe,
    data: Clips,
    teacher: npt.NDArray[np.float32],
    checkpoint: Path,
    *,
    device: str = "cpu",
    save_every: int = 200,
    stop_at: int | None = None,
) -> torch.nn.Module:
    """Train, or go on from the checkpoint.

    Args:
        recipe: what and how long.
        data: rendered clips.
        teacher: float32 ``(rows, dimension)``; a row of zeros is no target.
        checkpoint: written every ``save_every`` steps and at the end.
        device: torch's.
        save_every: steps.
        stop_at: end after this step as if interrupted; None trains to the end.

    Raises:
        ResumeError: when the checkpoint is of another recipe.
    """
    import torch

    torch.manual_seed(recipe.seed)
    network = build_network(recipe.channels, teacher.shape[1]).to(device)
    optimiser = torch.optim.AdamW(network.parameters(), lr=recipe.rate, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.rate, total_steps=recipe.steps, pct_start=0.1)
    first = 0
    if checkpoint.is_file():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        if state["recipe"] != dataclasses.asdict(recipe):
            raise ResumeError(
                f"{checkpoint} is of another recipe, {state['recipe']}: move it away or use another --work"
            )
        for part, name in ((network, "network"), (optimiser, "optimiser"), (schedule, "schedule")):
            part.load_state_dict(state[name])
        first = int(state["step"])
    chosen = usable(data, teacher)
    network.train()
    last = recipe.steps if stop_at is None else stop_at
    for step in steps(range(first, last), "training", last - first):
        rng = np.random.default_rng([recipe.seed, step])
        fbank, rows = _batch(data, rng.choice(chosen, recipe.batch), crop_frames(rng), rng)
        with torch.autocast(device.partition(":")[0], torch.bfloat16, enabled=device != "cpu"):
            out = network(torch.from_numpy(fbank).to(device))
        found = loss(out.float(), torch.from_numpy(teacher[rows]).to(device))
        optimiser.zero_grad(set_to_none=True)
        found.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 2.0)
        optimiser.step()
        schedule.step()
        if (step + 1) % save_every == 0 or step + 1 == last:
            print(f"step {step + 1}: loss {float(found.detach()):.4f}", flush=True)
            _save(checkpoint, recipe, step + 1, network, optimiser, schedule)
    return network.eval()


def usable(data: Clips, teacher: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Clips of recordings that the teacher gave an embedding for; others have a row of zeros."""
    return np.flatnonzero(np.abs(teacher[data.target]).sum(axis=1) > 0)


def agreement(network: torch.nn.Module, data: Clips, teacher: npt.NDArray[np.float32]) -> dict[str, float]:
    """Mean cosine to the teacher on clips of voices that were not trained on, by duration."""
    import torch

    device = next(network.parameters()).device
    out: dict[str, float] = {}
    for seconds in _CHECK_S:
        fbank = _centred(data.fbank[:, : round(100 * seconds)])
        with torch.inference_mode():
            found = torch.cat(
                [network(part.to(device)).cpu() for part in torch.split(torch.from_numpy(fbank), 32)]
            ).numpy()
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        out[f"{seconds:g} s"] = round(float(np.mean(np.sum(found * teacher[data.target], axis=1))), 4)
    return out


def export(network: torch.nn.Module, dimension: int, path: Path) -> float:
    """Write the network from ``fbank`` ``(batch, frames, 80)`` to ``embedding``, batch and frames free.

    Returns:
        The largest absolute difference from torch over several lengths and batches of random input.

    Raises:
        RuntimeError: when that exceeds 1e-3.
    """
    import onnxruntime
    import torch

    network = network.cpu().eval()
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # The exporter that traces is the one that needs no further package. The blocks warn that lengths may become
        # constants; the comparison below tries several.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            # Of one: the blocks would fix a larger batch's size.
            (torch.zeros(1, 200, BINS),),
            str(path),
            input_names=["fbank"],
            output_names=["embedding"],
            dynamic_axes={"fbank": {0: "batch", 1: "frames"}, "embedding": {0: "batch"}},
            opset_version=_OPSET,
            dynamo=False,
        )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    worst = 0.0
    for batch, frames in ((1, 38), (1, 200), (3, 201), (2, 611)):
        fbank = rng.normal(0.0, 3.0, (batch, frames, BINS)).astype(np.float32)
        with torch.inference_mode():
            wanted = network(torch.from_numpy(fbank)).numpy()
        found = session.run(None, {"fbank": fbank})[0]
        if found.shape != (batch, dimension):
            raise RuntimeError(f"the exported network gives {found.shape} for a batch of {batch}")
        worst = max(worst, float(np.abs(found - wanted).max()))
    if not worst <= _TOLERANCE:
        raise RuntimeError(f"ONNX differs from torch by {worst:.2g}")
    return worst


def _batch(
    data: Clips, chosen: npt.NDArray[np.int64], frames: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Equally long stretches of clips, and their targets' rows: padding would teach the network to hear it."""
    starts = rng.integers(0, data.fbank.shape[1] - frames + 1, len(chosen))
    cut = np.stack([data.fbank[clip, start : start + frames] for clip, start in zip(chosen, starts, strict=True)])
    return _centred(cut), data.target[chosen]


def _centred(fbank: npt.NDArray[np.float16]) -> npt.NDArray[np.float32]:
    wide = fbank.astype(np.float32)
    return np.asarray(wide - wide.mean(axis=1, keepdims=True), dtype=np.float32)


def _save(checkpoint: Path, recipe: Recipe, step: int, network: Any, optimiser: Any, schedule: Any) -> None:
    import torch

    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    partial = checkpoint.with_suffix(".part")
    torch.save(
        {
            "recipe": dataclasses.asdict(recipe),
            "step": step,
            "network": network.state_dict(),
            "optimiser": optimiser.state_dict(),
            "schedule": schedule.state_dict(),
        },
        partial,
    )
    partial.replace(checkpoint)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the student from the command line, or go on."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of recordings; default: VOICEGATE_DATA")
    parser.add_argument(
        "--work", type=Path, required=True, help="folder of clips and checkpoint; give it again to go on"
    )
    parser.add_argument("--voices", type=Path, help="folder of synthetic voices to train on as well: VOICE/*.wav")
    parser.add_argument(
        "--out", type=Path, default=PACKAGE_DIRECTORY / "weights", help="folder for the finished network"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2, help="processes that render")
    for field in dataclasses.fields(Recipe):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    options = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(options.threads)
    recipe = Recipe(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Recipe)})
    folder = corpus.data_folder(options.data)
    store = Store()
    ear = CampPlusEar(store.path("campplus-onnx"), store.model_id("campplus-onnx"), Uncalibrated(), options.threads)
    prepared = {}
    for part, count, voices in ((Part.TRAIN, recipe.clips, options.voices), (Part.DEV, _DEV_CLIPS, None)):
        source = Source(folder, part, voices, recipe.seed)
        chosen = recordings(source)
        teacher = targets(ear, chosen, options.work / f"teacher-{part}.npz")
        prepared[part] = clips(source, count, options.work, options.workers), teacher, chosen
    data, teacher, chosen = prepared[Part.TRAIN]
    network = train(recipe, data, teacher, options.work / "checkpoint.pt", device=options.device)
    weights = options.out / WEIGHTS_NAME
    difference = export(network, ear.dimension, weights)
    description = {
        "onnx_sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "teacher_sha256": ear.checkpoint_sha256,
        "recipe": dataclasses.asdict(recipe),
        "clip_frames": CLIP_FRAMES,
        "voices": len({(recording.set_name, recording.speaker) for recording in chosen}),
        "agreement_with_teacher": agreement(network, *prepared[Part.DEV][:2]),
        "onnx_difference": float(f"{difference:.2g}"),
    }
    weights.with_suffix(".json").write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(description, indent=1))


if __name__ == "__main__":
    main()
