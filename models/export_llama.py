"""Llama-family weights in a GGUF file to an ONNX graph of ONNX Runtime's fused CPU operators. Needs no torch.

The graph is written node by node with ``onnx.helper``: SimplifiedLayerNormalization, packed-QKV GroupQueryAttention
with rotary embedding and a shared key/value buffer, MatMulNBits (weights in blocks of 32, int8 compute). What it
computes is the decoder of Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models", with
grouped-query attention (Ainslie et al. 2023).

Inputs of the graph, with S new tokens, T = past + S tokens in all, C the capacity of the key/value buffer, K positions:

=========================  =======  ======================  ========================================================
name                       dtype    shape                   meaning
=========================  =======  ======================  ========================================================
``inputs_embeds``          float32  (1, S, hidden)          token embeddings, plus whatever a caller adds to them
``position_ids``           int64    (1, S)                  rotary position of each new token
``attention_bias``         float32  (1, 1, S, T)            added to the attention scores: 0, or a large negative
                                                            number between branches that must not see each other
``seqlens_k``              int32    (1,)                    T - 1
``total_sequence_length``  int32    (1,)                    T
``logits_at``              int64    (K,)                    which of the S tokens need logits
``past_key_<i>``           float32  (1, kv_heads, C, head)  buffer of layer i; the same memory as
                                                            ``present_key_<i>``
``past_value_<i>``         float32  (1, kv_heads, C, head)  likewise
=========================  =======  ======================  ========================================================

Outputs: ``logits`` float32 (K, vocabulary); ``states`` float32 (1, S, 2 * hidden), the residual stream half-way and
five sixths of the way up, side by side, for a caller that compares what the model makes of a text; ``present_key_<i>``
and ``present_value_<i>``.

Token embeddings are looked up outside the graph. They are tied to the output head, so the runtime maps the head's own
file into memory and reads S rows of it: no second table, and audio projections can be added to the embeddings for
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

BUILDER_VERSION = "2"
"""Part of the cache key of what ``build`` writes; raised whenever its output changes."""

GGUF_INPUT = "smollm2-135m-instruct-gguf"
"""Key of ``build``'s ``inputs``: the directory that holds the one GGUF file."""

GRAPH_FILE = "model.onnx"
WEIGHTS_FILE = "model.weights.bin"
EMBEDDING_FILE = "embedding.bin"
EMBEDDING_SCALES_FILE = "embedding_scales.bin"
CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"

BLOCK_SIZE = 32
"""Weights a block: GGUF's own block size, so that requantising follows the source's blocks."""

_OPSET = 21
_ALIGNMENT = 4096

FloatArray = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]


class ExportError(ValueError):
    """The source is not a model that this exporter can write."""


class Precision(StrEnum):
    """How the matrices are stored and multiplied."""

    FP32 = "fp32"
    """The reference: float32 throughout."""
    INT8 = "int8"
    """8-bit blocks with a zero point, activations quantised to int8 for the product."""


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Shape of a Llama decoder whose output head is tied to its embedding.

    Attributes:
        vocab_size: tokens in the vocabulary.
        hidden_size: width of the residual stream.
        intermediate_size: width of the gated feed-forward layer.
        num_layers: decoder layers.
        num_heads: query heads.
        num_kv_heads: key and value heads.
        head_dim: width of a head.
        rope_theta: base of the rotary angles (rotate-half layout).
        rms_norm_eps: added to the mean square.
        max_positions: longest sequence that the rotary tables cover.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float
    rms_norm_eps: float
    max_positions: int


# Reading --------------------------------------------------------------------------------------------------------------


def read_gguf(path: Path) -> tuple[LlamaConfig, dict[str, FloatArray], dict[str, Any]]:
    """Read a GGUF file of the ``llama`` architecture.

    Returns:
        The shape; the weights dequantised to float32 under the names of transformers' ``LlamaForCausalLM``, query and
        key rows back in rotate-half order (GGUF stores them interleaved); and the tokenizer fields by their GGUF keys.

    Raises:
        ExportError: when the file is of another architecture, or its output head is not tied to the embedding.
    """
    from gguf import GGUFReader
    from gguf.quants import dequantize

    reader = GGUFReader(str(path))
    fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    if fields.get("general.architecture") != "llama":
        raise ExportError(f"{path.name}: architecture is {fields.get('general.architecture')!r}, not 'llama'")
    if any(key.startswith("llama.rope.scaling") for key in fields):
        raise ExportError(f"{path.name}: scaled rotary embeddings are not supported")

    num_heads = int(fields["llama.attention.head_count"])
    hidden_size = int(fields["llama.embedding_length"])
    tensors = {str(tensor.name): tensor for tensor in reader.tensors}
    if "output.weight" in tensors:
        raise ExportError(f"{path.name}: the output head is not tied to the embedding")
    config = LlamaConfig(
        vocab_size=len(fields["tokenizer.ggml.tokens"]),
        hidden_size=hidden_size,
        intermediate_size=int(fields["llama.feed_forward_length"]),
        num_layers=int(fields["llama.block_count"]),
        num_heads=num_heads,
        num_kv_heads=int(fields.get("llama.attention.head_count_kv", num_heads)),
        head_dim=int(fields.get("llama.rope.dimension_count", hidden_size // num_heads)),
        rope_theta=float(fields.get("llama.rope.freq_base", 10_000.0)),
        rms_norm_eps=float(fields["llama.attention.layer_norm_rms_epsilon"]),
        max_positions=int(fields["llama.context_length"]),
    )

    def weight(name: str) -> FloatArray:
        tensor = tensors[name]
        return np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)

    state = {
        "model.embed_tokens.weight": weight("token_embd.weight"),
        "model.norm.weight": weight("output_norm.weight"),
    }
    for layer in range(config.num_layers):
        here, there = f"blk.{layer}.", f"model.layers.{layer}."
        state |= {
            there + "input_layernorm.weight": weight(here + "attn_norm.weight"),
            there + "self_attn.q_proj.weight": _rotate_half_rows(weight(here + "attn_q.weight"), config.num_heads),
            there + "self_attn.k_proj.weight": _rotate_half_rows(weight(here + "attn_k.weight"), config.num_kv_heads),
            there + "self_attn.v_proj.weight": weight(here + "attn_v.weight"),
            there + "self_attn.o_proj.weight": weight(here + "attn_output.weight"),
            there + "post_attention_layernorm.weight": weight(here + "ffn_norm.weight"),
            there + "mlp.gate_proj.weight": weight(here + "ffn_gate.weight"),
            there + "mlp.up_proj.weight": weight(here + "ffn_up.weight"),
            there + "mlp.down_proj.weight": weight(here + "ffn_down.weight"),
        }
    tokenizer = {name: value for name, value in fields.items() if name.startswith("tokenizer.")}
    return config, state, tokenizer


def _rotate_half_rows(weight: FloatArray, heads: int) -> FloatArray:
    """Undo GGUF's interleaving: within a head, rows (0, 1, 2, 3, …) hold (0, d/2, 1, d/2 + 1, …) of the original."""
    rows, columns = weight.shape
    interleaved = weight.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(interleaved.swapaxes(1, 2)).reshape(rows, columns)


# Quantising -----------------------------------------------------------------------------------------------------------


def quantise_blocks(weight: FloatArray) -> tuple[ByteArray, FloatArray, ByteArray]:
    """Quantise rows in blocks of 32 to 8 bits: ``w = scale * (q - zero_point)``, the range including zero.

    A block of a Q4_1 tensor holds at most 16 evenly spaced values, so 255 steps over the same range lose almost nothing
    of it. Four bits would: Q4_1's offset is a real number where MatMulNBits' fast kernel wants an integer zero point,
    and rounding it moves whole blocks by up to half a step.

    Args:
        weight: float32 ``(N, K)`` with K a multiple of 32.

    Returns:
        ``q`` uint8 ``(N, K / 32, 32)``, ``scale`` float32 ``(N, K / 32)``, ``zero_point`` uint8 ``(N, K / 32)``:
        MatMulNBits' layout.

    Raises:
        ExportError: when K is not a multiple of 32.
    """
    blocks = _blocks(weight)
    low = np.minimum(blocks.min(axis=2), 0.0)
    high = np.maximum(blocks.max(axis=2), 0.0)
    scale = np.where(high > low, (high - low) / 255.0, 1.0).astype(np.float32)
    zero_point = np.clip(np.rint(-low / scale), 0, 255)
    values = np.clip(np.rint(blocks / scale[:, :, None]) + zero_point[:, :, None], 0, 255)
    return values.astype(np.uint8), scale, zero_point.astype(np.uint8)


def quantise_symmetric(weight: FloatArray) -> tuple[ByteArray, FloatArray]:
    """Quantise rows in blocks of 32 to 8 bits around 128: ``w = scale * (q - 128)``.

    A Q8_0 tensor of a GGUF file comes back to its own integers, so the tied embedding loses nothing.

    Args:
        weight: float32 ``(N, K)`` with K a multiple of 32.

    Returns:
        ``q`` uint8 ``(N, K / 32, 32)`` and ``scale`` float32 ``(N, K / 32)``.

    Raises:
        ExportError: when K is not a multiple of 32.
    """
    blocks = _blocks(weight)
    largest = np.abs(blocks).max(axis=2)
    scale = np.where(largest > 0.0, largest / 127.0, 1.0).astype(np.float32)
    values = np.clip(np.rint(blocks / scale[:, :, None]) + 128.0, 0, 255)
    return values.astype(np.uint8), scale


def _blocks(weight: FloatArray) -> FloatArray:
    rows, columns = weight.shape
    if columns % BLOCK_SIZE:
        raise ExportError(f"row length {columns} is not a multiple of {BLOCK_SIZE}")
    return weight.reshape(rows, columns // BLOCK_SIZE, BLOCK_SIZE)


# Writing --------------------------------------------------------------------------------------------------------------


class _Graph:
    """Collects nodes and initialisers; large initialisers go to files beside the graph."""

    def __init__(self, out_dir: Path) -> None:
        from onnx import TensorProto, helper

        self._helper = helper
        self._proto = TensorProto
        self._out_dir = out_dir
        self._weights = (out_dir / WEIGHTS_FILE).open("wb")
        self.nodes: list[Any] = []
        self.initialisers: list[Any] = []

    def node(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Any
    ) -> None:
        self.nodes.append(
            self._helper.make_node(operator, list(inputs), list(outputs), name=outputs[0], domain=domain, **attributes)
        )

    def small(self, name: str, array: npt.NDArray[Any]) -> str:
        """An initialiser inside the graph file."""
        from onnx import numpy_helper

        self.initialisers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def large(self, name: str, array: npt.NDArray[Any], file: str = WEIGHTS_FILE) -> str:
        """An initialiser in ``file``: appended, page-aligned, to the weights, or alone in a file of its own."""
        data = np.ascontiguousarray(array)
        if file == WEIGHTS_FILE:
            self._weights.write(b"\0" * (-self._weights.tell() % _ALIGNMENT))
            offset = self._weights.tell()
            self._weights.write(data.tobytes())
        else:
            offset = 0
            (self._out_dir / file).write_bytes(data.tobytes())
        tensor = self._proto(
            name=name,
            data_type=self._helper.np_dtype_to_tensor_dtype(data.dtype),
            dims=data.shape,
            data_location=self._proto.EXTERNAL,
        )
        for key, value in {"location": file, "offset": offset, "length": data.nbytes}.items():
            tensor.external_data.add(key=key, value=str(value))
        self.initialisers.append(tensor)
        return name

    def matrix(self, source: str, result: str, name: str, weight: FloatArray, precision: Precision) -> None:
        """``result = source @ weight.T``."""
        outputs, inputs = weight.shape
        if precision is Precision.FP32:
            self.node("MatMul", [source, self.large(name, weight.T)], [result])
            return
        values, scale, zero_point = quantise_blocks(weight)
        parts = [
            self.large(name + ".q", values),
            self.large(name + ".scale", scale),
            self.large(name + ".zero", zero_point),
        ]
        self._eight_bits(source, parts, result, inputs, outputs)

    def tied_head(self, source: str, result: str, embedding: FloatArray, precision: Precision) -> None:
        """``result = source @ embedding.T`` for a flat source, the table in files that the runtime reads too."""
        outputs, inputs = embedding.shape
        if precision is Precision.FP32:
            self.node("Gemm", [source, self.large("embedding", embedding, EMBEDDING_FILE)], [result], transB=1)
            return
        values, scale = quantise_symmetric(embedding)
        parts = [
            self.large("embedding.q", values, EMBEDDING_FILE),
            self.large("embedding.scale", scale, EMBEDDING_SCALES_FILE),
        ]
        self._eight_bits(source, parts, result, inputs, outputs)

    def _eight_bits(self, source: str, parts: Sequence[str], result: str, inputs: int, outputs: int) -> None:
        self.node(
            "MatMulNBits",
            [source, *parts],
            [result],
            domain="com.microsoft",
            K=inputs,
            N=outputs,
            bits=8,
            block_size=BLOCK_SIZE,
            accuracy_level=4,  # int8 products: two to four times as fast as dequantising to float32
        )

    def save(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        import onnx

        self._weights.close()
        graph = self._helper.make_graph(self.nodes, "llama", list(inputs), list(outputs), self.initialisers)
        model = self._helper.make_model(
            graph,
            opset_imports=[self._helper.make_opsetid("", _OPSET), self._helper.make_opsetid("com.microsoft", 1)],
            ir_version=10,
            producer_name="voicegate",
        )
        onnx.save(model, self._out_dir / GRAPH_FILE)


def export_graph(
    config: LlamaConfig,
    state: Mapping[str, FloatArray],
    out_dir: Path,
    precision: Precision = Precision.INT8,
    max_positions: int = 4096,
) -> None:
    """Write the graph, its weights and ``config.json`` into ``out_dir``.

    Args:
        config: the decoder's shape.
        state: float32 weights under the names of transformers' ``LlamaForCausalLM``; the head is the embedding.
        out_dir: an existing directory.
        precision: how matrices are stored and multiplied.
        max_positions: rows of the rotary tables; the model's own limit where that is smaller.

    Raises:
        ExportError: when a row length is not a multiple of the quantisation block.
        KeyError: when a weight is missing.
    """
    from onnx import TensorProto, helper

    positions = min(max_positions, config.max_positions)
    half = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
    angles = np.outer(np.arange(positions, dtype=np.float64), config.rope_theta**-half)
    graph = _Graph(out_dir)
    graph.small("cos", np.cos(angles).astype(np.float32))
    graph.small("sin", np.sin(angles).astype(np.float32))
    graph.small("split", np.array([config.intermediate_size] * 2, dtype=np.int64))

    cache_shape: list[str | int | None] = [1, config.num_kv_heads, "capacity", config.head_dim]
    inputs = [
        helper.make_tensor_value_info("inputs_embeds", TensorProto.FLOAT, [1, "new", config.hidden_size]),
        helper.make_tensor_value_info("position_ids", TensorProto.INT64, [1, "new"]),
        helper.make_tensor_value_info("attention_bias", TensorProto.FLOAT, [1, 1, "new", "total"]),
        helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, [1]),
        helper.make_tensor_value_info("total_sequence_length", TensorProto.INT32, [1]),
        helper.make_tensor_value_info("logits_at", TensorProto.INT64, ["selected"]),
    ]
    outputs = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["selected", config.vocab_size]),
        helper.make_tensor_value_info("states", TensorProto.FLOAT, [1, "new", 2 * config.hidden_size]),
    ]
    residuals: list[str] = []

    residual = "inputs_embeds"
    pending = ""
    for layer in range(config.num_layers):
        here, name = f"layer{layer}.", f"model.layers.{layer}."
        norm = graph.small(here + "attn_norm", state[name + "input_layernorm.weight"])
        residual = _norm(graph, config, residual, pending, norm, here + "attn_in")
        packed = np.concatenate([state[f"{name}self_attn.{part}_proj.weight"] for part in "qkv"])
        graph.matrix(here + "attn_in", here + "qkv", here + "qkv_weight", packed, precision)
        caches = [f"past_key_{layer}", f"past_value_{layer}", f"present_key_{layer}", f"present_value_{layer}"]
        inputs += [helper.make_tensor_value_info(cache, TensorProto.FLOAT, cache_shape) for cache in caches[:2]]
        outputs += [helper.make_tensor_value_info(cache, TensorProto.FLOAT, cache_shape) for cache in caches[2:]]
        lengths = ["seqlens_k", "total_sequence_length"]
        graph.node(
            "GroupQueryAttention",
            [here + "qkv", "", "", *caches[:2], *lengths, "cos", "sin", "position_ids", "attention_bias"],
            [here + "heads", *caches[2:]],
            domain="com.microsoft",
            num_heads=config.num_heads,
            kv_num_heads=config.num_kv_heads,
            do_rotary=1,
            rotary_interleaved=0,
        )
        output = state[name + "self_attn.o_proj.weight"]
        graph.matrix(here + "heads", here + "attn_out", here + "out_weight", output, precision)

        norm = graph.small(here + "mlp_norm", state[name + "post_attention_layernorm.weight"])
        residual = _norm(graph, config, residual, here + "attn_out", norm, here + "mlp_in")
        residuals.append(residual)
        packed = np.concatenate([state[f"{name}mlp.{part}_proj.weight"] for part in ("gate", "up")])
        graph.matrix(here + "mlp_in", here + "gate_up", here + "gate_up_weight", packed, precision)
        graph.node("Split", [here + "gate_up", "split"], [here + "gate", here + "up"], axis=-1)
        # x * sigmoid(alpha * x) with alpha 1 is SiLU.
        graph.node("QuickGelu", [here + "gate"], [here + "gate_silu"], domain="com.microsoft", alpha=1.0)
        graph.node("Mul", [here + "gate_silu", here + "up"], [here + "gated"])
        down = state[name + "mlp.down_proj.weight"]
        graph.matrix(here + "gated", here + "mlp_out", here + "down_weight", down, precision)
        pending = here + "mlp_out"

    taps = [residuals[config.num_layers // 2], residuals[config.num_layers * 5 // 6]]
    graph.node("Concat", taps, ["states"], axis=-1)
    # Only the wanted positions reach the last norm and the head, the widest matrix of all.
    graph.node("Add", [residual, pending], ["hidden"])
    graph.small("row", np.array([-1, config.hidden_size], dtype=np.int64))
    graph.node("Gather", ["hidden", "logits_at"], ["hidden_at"], axis=1)
    graph.node("Reshape", ["hidden_at", "row"], ["hidden_rows"])
    graph.small("final_norm", state["model.norm.weight"])
    epsilon = config.rms_norm_eps
    graph.node("SimplifiedLayerNormalization", ["hidden_rows", "final_norm"], ["final"], epsilon=epsilon, axis=-1)
    graph.tied_head("final", "logits", state["model.embed_tokens.weight"], precision)
    graph.save(inputs, outputs)

    settings = asdict(config) | {"max_positions": positions, "precision": str(precision)}
    (out_dir / CONFIG_FILE).write_text(json.dumps(settings, indent=2) + "\n")


def _norm(graph: _Graph, config: LlamaConfig, residual: str, pending: str, weight: str, result: str) -> str:
    """Add ``pending`` (unless empty) to the residual stream, normalise the sum into ``result``, return the sum."""
    epsilon = config.rms_norm_eps
    if not pending:
        graph.node("SimplifiedLayerNormalization", [residual, weight], [result], epsilon=epsilon, axis=-1)
        return residual
    total = result + ".residual"
    graph.node(
        "SkipSimplifiedLayerNormalization",
        [pending, residual, weight],
        [result, "", "", total],
        domain="com.microsoft",
        epsilon=epsilon,
    )
    return total


def export_tokenizer(fields: Mapping[str, Any], path: Path) -> None:
    """Write a GGUF file's byte-level BPE tokenizer as ``tokenizer.json`` of the ``tokenizers`` package.

    Args:
        fields: the ``tokenizer.*`` fields of the GGUF file.
        path: where to write.

    Raises:
        ExportError: when the vocabulary is not byte-level BPE with SmolLM's pre-tokenisation (each digit alone).
    """
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    kind, split = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if (kind, split) != ("gpt2", "smollm"):
        raise ExportError(f"tokenizer is {kind!r} with pre-tokenisation {split!r}; expected 'gpt2' with 'smollm'")
    tokens: list[str] = list(fields["tokenizer.ggml.tokens"])
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    tokenizer.save(str(path))


def build(inputs: Mapping[str, Path], out_dir: Path, progress: Callable[[str], None]) -> None:
    """Build the files of the runtime and of the policy from the GGUF file.

    Args:
        inputs: ``GGUF_INPUT`` to the directory that holds exactly one ``*.gguf`` file.
        out_dir: an existing, empty directory.
        progress: is told each stage in a few words.

    Raises:
        ExportError: when there is not exactly one GGUF file, or it is not a model that can be written.
    """
    found = sorted(inputs[GGUF_INPUT].rglob("*.gguf"))
    if len(found) != 1:
        raise ExportError(f"expected one GGUF file in {inputs[GGUF_INPUT]}, found {len(found)}")
    progress("reading the weights")
    config, state, tokenizer = read_gguf(found[0])
    progress("writing the graph")
    export_graph(config, state, out_dir)
    progress("writing the tokenizer")
    export_tokenizer(tokenizer, out_dir / TOKENIZER_FILE)
    from models.policy_smollm2 import write_readings

    write_readings(out_dir, progress)
