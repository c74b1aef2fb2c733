"""Loading of networks that transformers has classes for: where their files are, in which precision, on which device.

Nothing is fetched unless it is asked for, nothing is guessed, and a checkpoint that leaves a layer random is refused.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from packaging.version import Version

from models.audio_llm.contract import Told
from models.audio_llm.dialects import DIALECTS
from models.audio_llm.options import Options
from models.protocols import ModelId
from models.store_errors import ModelError, ModelFault

MIN_TRANSFORMERS = "5.24"
"""The first release with all five classes whose processors and caches were tested here."""
_BLOB_RE = re.compile(r"[0-9a-f]{64}")
_DTYPES = ("auto", "bfloat16", "float16", "float32")
_QUANTS = ("none", "8bit", "4bit")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NativeOptions:
    """What can be chosen for a network that runs in this process.

    Attributes:
        repo: its name on the hub.
        folder: a local folder instead, or None.
        download: whether missing files are fetched from the hub.
        dtype: ``auto`` takes bfloat16 on a GPU that has it, float16 on another, and float32 on a CPU.
        device: ``auto`` (the first GPU, else the CPU), ``cpu``, ``cuda``, ``cuda:1``, or ``all`` (over all GPUs).
        quant: ``none``, ``8bit`` or ``4bit`` (bitsandbytes).
        dialects: which native dialects are normalised beside the strict reading; None takes all.
        told: what the model is told beside the sound.
        tokens: how many tokens an action may take.
        thinking: whether the model may think before it acts, where its template leaves the choice.
    """

    repo: str
    folder: Path | None = None
    download: bool = False
    dtype: str = "auto"
    device: str = "auto"
    quant: str = "none"
    dialects: tuple[str, ...] | None = None
    told: Told = Told.VERDICTS
    tokens: int = 256
    thinking: bool = False


def read_options(policy: str, repo: str, values: Mapping[str, str]) -> NativeOptions:
    """Read the options of a native policy.

    Args:
        policy: its name in the registry.
        repo: its model's name on the hub.
        values: what was given.

    Raises:
        OptionsError: when an option or a value does not exist.
        ModelError: when a folder does not exist.
    """
    given = Options(policy, values)
    thinking = given.is_on("thinking")
    options = NativeOptions(
        repo=given.text("repo", repo),
        folder=given.folder("dir"),
        download=given.is_on("download"),
        dtype=given.choice("dtype", _DTYPES, "auto"),
        device=given.text("device", "auto"),
        quant=given.choice("quant", _QUANTS, "none"),
        dialects=given.choices("dialects", DIALECTS),
        told=Told(given.choice("told", Told, Told.VERDICTS)),
        tokens=given.count("tokens", 2048 if thinking else 256),
        thinking=thinking,
    )
    given.end()
    return options


def transformers_class(name: str) -> Any:
    """A class of transformers.

    Raises:
        ModelError: when transformers is older than ``MIN_TRANSFORMERS``, or its class cannot be imported.
    """
    installed = version("transformers")
    cure = f'Install it: pip install "transformers>={MIN_TRANSFORMERS}"'
    if Version(installed) < Version(MIN_TRANSFORMERS):
        raise ModelError(ModelFault.MISSING, f"{name} needs transformers {MIN_TRANSFORMERS}, here is {installed}", cure)
    try:
        import transformers

        return getattr(transformers, name)
    except (AttributeError, ImportError, RuntimeError) as error:
        # A torchvision that does not match torch makes every multimodal class fail to import.
        raise ModelError(ModelFault.MISSING, f"transformers {installed} cannot give {name}: {error}", cure) from error


def find_folder(policy: str, options: NativeOptions) -> Path:
    """Where the checkpoint's files are.

    Raises:
        ModelError: when they are not here, or not all of them; the cure names the command that fetches them.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    cure = (
        f"Fetch it: hf download {options.repo}; or name its folder: {policy}:dir=FOLDER; or allow: {policy}:download=on"
    )
    if options.folder is not None:
        folder = options.folder
    else:
        try:
            folder = Path(snapshot_download(options.repo, local_files_only=not options.download))
        except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
            raise ModelError(ModelFault.MISSING, f"{options.repo} is not in the hub's cache", cure) from error
    for name in ("config.json", *_weight_files(folder)):
        if not (folder / name).is_file():
            raise ModelError(ModelFault.MISSING, f"{folder} lacks {name}", cure, file=name)
    return folder


def _weight_files(folder: Path) -> list[str]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return ["model.safetensors"]
    return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))


def folder_sha256(folder: Path) -> str:
    """One sha256 over names and contents of all files directly in a checkpoint's folder.

    Files of the hub's cache are stored under their sha256 where they are large, so those need not be read again.
    """
    total = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        blob = path.resolve().name
        if path.is_symlink() and _BLOB_RE.fullmatch(blob):
            digest = blob
        else:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{path.name} {digest}\n".encode())
    return total.hexdigest()


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a network runs, and how exact.

    Attributes:
        device: a torch device, or ``all``.
        dtype: name of a torch dtype.
        quant: ``none``, ``8bit`` or ``4bit``.
    """

    device: str
    dtype: str
    quant: str

    def __str__(self) -> str:
        return " ".join([self.device, self.dtype, *([self.quant] if self.quant != "none" else [])])


def choose_placement(options: NativeOptions) -> Placement:
    """Settle what was left to choose.

    Raises:
        ModelError: when a device does not exist, or quantisation is asked for and cannot be had.
    """
    import torch

    has_gpu = torch.cuda.is_available()
    device = options.device
    if device == "auto":
        device = "cuda:0" if has_gpu else "cpu"
    if device != "cpu" and not (device == "all" or re.fullmatch(r"cuda(:\d+)?", device)):
        raise ModelError(ModelFault.MISSING, f"device={device}: there is no such", "Use auto, cpu, cuda, cuda:N or all")
    if device != "cpu" and not has_gpu:
        raise ModelError(ModelFault.MISSING, f"device={device}, and torch sees no GPU", "Use device=cpu")
    dtype = options.dtype
    if dtype == "auto":
        dtype = "float32" if device == "cpu" else "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
    if options.quant != "none":
        if importlib.util.find_spec("bitsandbytes") is None:
            raise ModelError(
                ModelFault.MISSING, f"quant={options.quant} needs bitsandbytes", "Install it: pip install bitsandbytes"
            )
        if device == "cpu":
            raise ModelError(ModelFault.MISSING, f"quant={options.quant} needs a GPU", "Leave quant out")
    if device == "all" or options.quant != "none":
        _need_accelerate()
    return Placement(device, dtype, options.quant)


def _need_accelerate() -> None:
    if importlib.util.find_spec("accelerate") is None:
        raise ModelError(
            ModelFault.MISSING, "device=all and quant need accelerate", "Install it: pip install accelerate"
        )


def load_network(class_name: str, folder: Path, placement: Placement) -> Any:
    """Load a network from a folder, ready to infer.

    Args:
        class_name: its class in transformers.
        folder: the checkpoint.
        placement: where it goes.

    Raises:
        ModelError: when the class is missing, the files are unreadable, or they leave a layer without weights.
    """
    import torch

    network_class = transformers_class(class_name)
    extra: dict[str, Any] = {}
    if placement.device == "all":
        extra["device_map"] = "auto"
    elif placement.device != "cpu" and importlib.util.find_spec("accelerate") is not None:
        extra["device_map"] = {"": placement.device}  # straight to the GPU: no copy in the computer's memory
    if placement.quant != "none":
        quantised = {"load_in_8bit": True} if placement.quant == "8bit" else {"load_in_4bit": True}
        extra["quantization_config"] = transformers_class("BitsAndBytesConfig")(**quantised)
    try:
        network, report = network_class.from_pretrained(
            folder,
            dtype=getattr(torch, placement.dtype),
            local_files_only=True,
            output_loading_info=True,
            **extra,
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ModelError(ModelFault.BUILD_FAILED, f"{folder} does not load: {error}", "Fetch it again") from error
    lacking = sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])
    if lacking:
        raise ModelError(
            ModelFault.BUILD_FAILED,
            f"{folder} has no weights for {lacking[0]} ({len(lacking)} in all)",
            "Fetch it again",
        )
    if "device_map" not in extra:
        network = network.to(placement.device)
    return network.eval()


def identity(name: str, folder: Path, placement: Placement) -> ModelId:
    """The record of what was loaded, which the session's log shows: precision and device change what a model writes."""
    model = ModelId(f"{name} ({placement})", folder_sha256(folder))
    _log.info("%s, transformers %s, from %s", model.name, version("transformers"), folder)
    return model
