"""Builds voxgate-mini for ONNX Runtime: the base model's weights, the adapter of the project, one graph.

LoRA is merged, so serving costs what the base model costs; the projection of what was heard stays beside the graph,
because the runtime adds it to the token embeddings itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from models.export_llama import (
    GGUF_INPUT,
    TOKENIZER_FILE,
    ExportError,
    FloatArray,
    LlamaConfig,
    Precision,
    export_graph,
    export_tokenizer,
    read_gguf,
)
from models.mini_adapter import Adapter, read_adapter

BUILDER_VERSION = "1"

ADAPTER_INPUT = "voxgate-mini"
"""Key of ``build``'s ``inputs``: the directory that holds the adapter."""
PROJECTION_FILE = "projection.npy"
READING_FILE = "reading.json"


def merged(state: Mapping[str, FloatArray], adapter: Adapter) -> dict[str, FloatArray]:
    """The weights with the adapter's changes.

    Raises:
        ExportError: when the adapter changes a weight that is not there, or of another shape.
    """
    out = dict(state)
    for name in {key.rpartition(".")[0] for key in adapter.matrices}:
        change = adapter.change(name)
        weight = out.get(f"{name}.weight")
        if change is None or weight is None or weight.shape != change.shape:
            raise ExportError(f"the adapter does not fit the model at {name}")
        out[f"{name}.weight"] = np.asarray(weight + change, dtype=np.float32)
    return out


def write(
    config: LlamaConfig, state: Mapping[str, FloatArray], adapter: Adapter, out_dir: Path,
    precision: Precision = Precision.INT8,
) -> None:  # fmt: skip
    """Write graph, weights, projection and what the model reads; the tokenizer is the base model's.

    Raises:
        ExportError: when the adapter does not fit.
    """
    export_graph(config, merged(state, adapter), out_dir, precision)
    if adapter.projection is not None:
        np.save(out_dir / PROJECTION_FILE, adapter.projection.astype(np.float32))
    facts = {"reading": str(adapter.reading), "fusion": adapter.fusion}
    (out_dir / READING_FILE).write_text(json.dumps(facts) + "\n", encoding="utf-8")


def build(inputs: Mapping[str, Path], out_dir: Path, progress: Callable[[str], None]) -> None:
    """Build the served model.

    Args:
        inputs: ``GGUF_INPUT`` to the base model's directory, ``ADAPTER_INPUT`` to the adapter's.
        out_dir: an existing, empty directory.
        progress: is told each stage in a few words.

    Raises:
        ExportError: when there is not exactly one GGUF file, or the adapter does not fit it.
    """
    found = sorted(inputs[GGUF_INPUT].rglob("*.gguf"))
    if len(found) != 1:
        raise ExportError(f"expected one GGUF file in {inputs[GGUF_INPUT]}, found {len(found)}")
    progress("reading the weights")
    config, state, tokenizer = read_gguf(found[0])
    progress("merging the adapter and writing the graph")
    write(config, state, read_adapter(inputs[ADAPTER_INPUT]), out_dir)
    progress("writing the tokenizer")
    export_tokenizer(tokenizer, out_dir / TOKENIZER_FILE)
