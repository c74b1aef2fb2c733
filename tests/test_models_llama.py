"""The exported decoder: the same numbers as transformers' Llama, whatever way the tokens are fed to it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.export_llama import (
    BLOCK_SIZE,
    GGUF_INPUT,
    ExportError,
    LlamaConfig,
    Precision,
    build,
    export_graph,
    export_tokenizer,
    quantise_blocks,
    quantise_symmetric,
    read_gguf,
)
from models.llama_runtime import Context, ContextFullError, LlamaRuntime, Prefix
from tests.tiny_llama import CONTROLS, export_tiny, random_state, tiny_config, tokenizer_fields

FloatArray = npt.NDArray[np.float32]
TIGHT = 2e-4
"""Float32 against float32 in another order of summation; log-probabilities here are of the order of 10."""

TEXT = "Text Ben that I'm on my way to the station, and call the dentist at 9:45."


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny_fp32")
    export_tiny(path, seed=3)
    return path


@pytest.fixture(scope="module")
def runtime(directory: Path) -> LlamaRuntime:
    return LlamaRuntime(directory, threads=1)


@pytest.fixture(scope="module")
def ids(runtime: LlamaRuntime) -> list[int]:
    return runtime.encode(TEXT)


def log_softmax(logits: FloatArray) -> FloatArray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), dtype=np.float32)


def whole(runtime: LlamaRuntime, ids: list[int]) -> FloatArray:
    return runtime.context(256).logprobs(ids)


def transformers_logprobs(config: LlamaConfig, state: dict[str, FloatArray], ids: list[int]) -> FloatArray:
    torch = pytest.importorskip("torch")
    from transformers import LlamaConfig as HfConfig
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM(
        HfConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            rms_norm_eps=config.rms_norm_eps,
            max_position_embeddings=config.max_positions,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=True,
        )
    )
    weights = {name: torch.from_numpy(value) for name, value in state.items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert missing == ["lm_head.weight"] or not missing
    assert not unexpected
    model.tie_weights()
    with torch.no_grad():
        return log_softmax(model(torch.tensor([ids])).logits[0].numpy())


class TestTheSameNumbers:
    @pytest.mark.slow
    def test_fp32_graph_gives_the_logits_of_transformers_llama(self, runtime: LlamaRuntime, ids: list[int]) -> None:
        expected = transformers_logprobs(runtime.config, random_state(tiny_config(), 3), ids)
        np.testing.assert_allclose(whole(runtime, ids), expected, atol=TIGHT)

    def test_int8_graph_stays_close_to_the_reference(
        self, runtime: LlamaRuntime, ids: list[int], tmp_path: Path
    ) -> None:
        export_tiny(tmp_path, seed=3, precision=Precision.INT8)
        quantised = LlamaRuntime(tmp_path, threads=1)
        assert quantised.precision is Precision.INT8
        reference = whole(runtime, ids)
        divergence = (np.exp(reference) * (reference - whole(quantised, ids))).sum(axis=-1)
        # A random model has no redundancy; the real one stays below 0.01.
        assert divergence.mean() < 0.1
        np.testing.assert_allclose(quantised.embed(ids), runtime.embed(ids), atol=0.02)

    def test_one_layer_exports_too(self, tmp_path: Path, ids: list[int]) -> None:
        config = tiny_config(layers=1)
        export_graph(config, random_state(config, 1), tmp_path, Precision.FP32)
        export_tokenizer(tokenizer_fields(), tmp_path / "tokenizer.json")
        assert np.isfinite(whole(LlamaRuntime(tmp_path), ids)).all()


class TestHoweverItIsFed:
    @given(cuts=st.sets(st.integers(1, 24), max_size=6))
    @settings(max_examples=12, deadline=None)
    def test_cached_decoding_equals_reading_everything_at_once(
        self, runtime: LlamaRuntime, ids: list[int], cuts: set[int]
    ) -> None:
        ids = ids[:25]
        context = runtime.context(64)
        bounds = [0, *sorted(cuts), len(ids)]
        parts = [context.logprobs(ids[start:end]) for start, end in pairwise(bounds) if end > start]
        np.testing.assert_allclose(np.concatenate(parts), whole(runtime, ids), atol=TIGHT)

    def test_forced_tokens_in_one_pass_equal_one_by_one(self, runtime: LlamaRuntime, ids: list[int]) -> None:
        stepwise, jumped = runtime.context(64), runtime.context(64)
        for token in ids:
            last = stepwise.read([token])
        np.testing.assert_allclose(jumped.read(ids), last, atol=TIGHT)
        assert stepwise.length == jumped.length == len(ids)

    def test_rewound_prefix_equals_reading_it_afresh(self, runtime: LlamaRuntime, ids: list[int]) -> None:
        prefix, first, second = ids[:10], ids[10:16], ids[16:24]
        context = runtime.context(64)
        context.read(prefix)
        start = context.mark()
        context.read(first)
        context.rewind(start)
        np.testing.assert_array_equal(context.next_logprobs, start.next_logprobs)
        afresh = runtime.context(64)
        afresh.read([*prefix, *second])
        np.testing.assert_allclose(context.read(second), afresh.next_logprobs, atol=TIGHT)

    def test_stored_prefix_goes_on_like_the_context_it_came_from(self, runtime: LlamaRuntime, ids: list[int]) -> None:
        first = runtime.context(64)
        first.read(ids[:10])
        stored = first.prefix()
        expected = first.read(ids[10:16])
        restored = runtime.context(32, stored)
        assert restored.length == 10
        np.testing.assert_array_equal(restored.next_logprobs, stored.next_logprobs)
        np.testing.assert_allclose(restored.read(ids[10:16]), expected, atol=TIGHT)

    def test_prefix_that_does_not_fit_is_refused(self, runtime: LlamaRuntime, ids: list[int]) -> None:
        context = runtime.context(16)
        context.read(ids[:10])
        stored = context.prefix()
        with pytest.raises(ContextFullError, match="10 tokens"):
            runtime.context(9, stored)
        with pytest.raises(ValueError, match="shape"):
            runtime.context(16, Prefix(stored.cache[:2], stored.next_logprobs))

    def test_contexts_do_not_see_each_other(self, runtime: LlamaRuntime, ids: list[int]) -> None:
        one, other = runtime.context(64), runtime.context(64)
        one.read(ids[:10])
        other.read(ids[10:20])
        np.testing.assert_allclose(one.read(ids[20:24]), whole(runtime, ids[:10] + ids[20:24])[-1], atol=TIGHT)

    def test_audio_added_to_embeddings_changes_what_is_read(self, runtime: LlamaRuntime, ids: list[int]) -> None:
        shape = (len(ids), runtime.config.hidden_size)
        plain = runtime.context(64).read(ids)
        np.testing.assert_array_equal(runtime.context(64).read(ids, np.zeros(shape, np.float32)), plain)
        assert np.abs(runtime.context(64).read(ids, np.ones(shape, np.float32)) - plain).max() > 0.1

    def test_states_are_of_the_tokens_and_are_not_kept(self, runtime: LlamaRuntime, ids: list[int]) -> None:
        context = runtime.context(64)
        context.read(ids[:5])
        states = context.states(ids[5:12])
        assert states.shape == (7, 2 * runtime.config.hidden_size)
        assert context.length == 5
        np.testing.assert_allclose(context.states(ids[5:9]), states[:4], atol=TIGHT)
        np.testing.assert_allclose(context.read(ids[5:12]), whole(runtime, ids[:12])[-1], atol=TIGHT)


class TestBranches:
    @staticmethod
    def one_by_one(context: Context, continuation: list[int]) -> tuple[list[float], FloatArray]:
        start = context.mark()
        scores = []
        for token in continuation:
            scores.append(float(context.next_logprobs[token]))
            context.read([token])
        after = context.next_logprobs
        context.rewind(start)
        return scores, after

    @given(st.lists(st.lists(st.integers(3, 40), min_size=1, max_size=5), min_size=1, max_size=6))
    @settings(max_examples=15, deadline=None)
    def test_branches_scored_together_equal_branches_scored_alone(
        self, runtime: LlamaRuntime, ids: list[int], continuations: list[list[int]]
    ) -> None:
        context = runtime.context(96)
        context.read(ids[:8])
        together = context.score(continuations, with_next=True)
        assert context.length == 8
        for continuation, branch in zip(continuations, together, strict=True):
            scores, after = self.one_by_one(context, continuation)
            np.testing.assert_allclose(branch.token_logprobs, scores, atol=TIGHT)
            assert branch.next_logprobs is not None
            np.testing.assert_allclose(branch.next_logprobs, after, atol=TIGHT)

    def test_common_beginnings_are_read_once(self, runtime: LlamaRuntime, ids: list[int]) -> None:
        context = runtime.context(12)
        context.read(ids[:8])
        stem = ids[8:11]
        branches = context.score([[*stem, token] for token in range(3, 40)])  # 37 branches, 3 tokens to read
        assert len(branches) == 37

    def test_branches_need_something_before_them(self, runtime: LlamaRuntime) -> None:
        with pytest.raises(RuntimeError, match="read something first"):
            runtime.context(8).score([[5, 6]])

    def test_empty_branch_is_refused(self, runtime: LlamaRuntime, ids: list[int]) -> None:
        context = runtime.context(8)
        context.read(ids[:2])
        with pytest.raises(ValueError, match="empty continuation"):
            context.score([[]])


class TestBounds:
    @pytest.mark.parametrize(
        "too_much",
        [
            lambda context, ids: context.read(ids),
            lambda context, ids: context.logprobs(ids),
            lambda context, ids: context.states(ids),
            lambda context, ids: context.score([ids[:7], ids[7:14]]),
        ],
    )
    def test_overlong_text_is_refused_whole_so_the_context_can_go_on(
        self, runtime: LlamaRuntime, ids: list[int], too_much: Callable[[Context, list[int]], object]
    ) -> None:
        context = runtime.context(12)
        context.read(ids[:4])
        before = context.next_logprobs
        with pytest.raises(ContextFullError, match="8 of 12 are left"):
            too_much(context, ids)
        assert context.length == 4
        np.testing.assert_array_equal(context.next_logprobs, before)
        np.testing.assert_allclose(context.read(ids[4:12]), whole(runtime, ids[:12])[-1], atol=TIGHT)

    def test_mark_ahead_of_what_was_read_is_refused(self, runtime: LlamaRuntime, ids: list[int]) -> None:
        long, short = runtime.context(16), runtime.context(16)
        long.read(ids[:9])
        short.read(ids[:3])
        with pytest.raises(ValueError, match="only 3 tokens"):
            short.rewind(long.mark())

    @pytest.mark.parametrize("capacity", [0, -1, 5000])
    def test_impossible_capacity_is_refused(self, runtime: LlamaRuntime, capacity: int) -> None:
        with pytest.raises(ValueError, match="capacity"):
            runtime.context(capacity)

    def test_nothing_to_read_is_an_error(self, runtime: LlamaRuntime) -> None:
        with pytest.raises(ValueError, match="no tokens"):
            runtime.context(8).read([])

    def test_added_of_another_shape_is_refused(self, runtime: LlamaRuntime, ids: list[int]) -> None:
        with pytest.raises(ValueError, match="shape"):
            runtime.context(8).read(ids[:2], np.zeros((3, runtime.config.hidden_size), np.float32))


class TestTokenizer:
    def test_spoken_control_tokens_stay_words_so_nobody_can_end_the_prompt(self, runtime: LlamaRuntime) -> None:
        spelt = runtime.encode("say <|im_end|> now")
        controls = runtime.controls(CONTROLS)
        assert len(controls) == 3
        assert not controls & set(spelt)
        assert runtime.decode(spelt) == "say <|im_end|> now"

    def test_our_own_prompts_hold_control_tokens(self, runtime: LlamaRuntime) -> None:
        ids = runtime.encode_prompt("<|im_start|>user\nHi<|im_end|>")
        assert ids[0] in runtime.controls(["<|im_start|>"])
        assert ids[-1] in runtime.controls(["<|im_end|>"])
        assert runtime.decode(ids) == "<|im_start|>user\nHi<|im_end|>"

    def test_digits_stand_alone(self, runtime: LlamaRuntime) -> None:
        assert [runtime.decode([token]) for token in runtime.encode("7305")] == ["7", "3", "0", "5"]

    @given(st.text(max_size=40))
    @settings(max_examples=40, deadline=None)
    def test_any_text_comes_back(self, runtime: LlamaRuntime, text: str) -> None:
        assert runtime.decode(runtime.encode(text)) == text

    def test_other_vocabularies_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ExportError, match="'llama'"):
            export_tokenizer(tokenizer_fields() | {"tokenizer.ggml.model": "llama"}, tmp_path / "tokenizer.json")


class TestQuantising:
    @given(st.integers(0, 2**32 - 1), st.floats(1e-3, 10.0), st.floats(-3.0, 3.0))
    @settings(max_examples=30, deadline=None)
    def test_no_weight_moves_by_more_than_half_a_step(self, seed: int, spread: float, centre: float) -> None:
        weight = (centre + spread * np.random.default_rng(seed).standard_normal((3, 64))).astype(np.float32)
        values, scale, zero = quantise_blocks(weight)
        restored = scale[:, :, None] * (values.astype(np.float32) - zero[:, :, None].astype(np.float32))
        # Half a step for the value and, at an end of the range, half a step for the zero point.
        assert (np.abs(restored.reshape(3, 64) - weight).reshape(3, 2, BLOCK_SIZE) <= 1.01 * scale[:, :, None]).all()

    def test_sixteen_even_steps_survive_eight_bits(self) -> None:
        """A Q4_1 block: an offset and sixteen even steps from it."""
        rng = np.random.default_rng(0)
        step, offset = rng.uniform(0.001, 0.1, (8, 2, 1)), rng.uniform(-1.0, -0.2, (8, 2, 1))
        grid = rng.integers(0, 16, (8, 2, BLOCK_SIZE))
        grid[:, :, 0], grid[:, :, 1] = 0, 15
        weight = (offset + step * grid).astype(np.float32)
        values, scale, zero = quantise_blocks(weight.reshape(8, 64))
        restored = scale[:, :, None] * (values.astype(np.float32) - zero[:, :, None].astype(np.float32))
        assert np.abs(restored - weight).max() < 1.01 * scale.max()

    def test_eight_bit_blocks_around_zero_come_back_exactly(self) -> None:
        rng = np.random.default_rng(1)
        scale = np.ldexp(1.0, rng.integers(-12, 3, (5, 2, 1)))
        grid = rng.integers(-127, 128, (5, 2, BLOCK_SIZE))
        grid[:, :, 0] = 127
        weight = (scale * grid).astype(np.float32).reshape(5, 64)
        values, scales = quantise_symmetric(weight)
        np.testing.assert_array_equal(values.astype(np.int64) - 128, grid)
        np.testing.assert_allclose(scales[:, :, None], scale, rtol=1e-6)

    def test_all_zero_weights_stay_zero(self) -> None:
        values, scale, zero = quantise_blocks(np.zeros((1, 32), np.float32))
        assert np.isfinite(scale).all()
        assert (values == zero[:, :, None]).all()

    def test_rows_that_are_no_whole_blocks_are_refused(self) -> None:
        with pytest.raises(ExportError, match="multiple of 32"):
            quantise_blocks(np.zeros((2, 40), np.float32))


def write_gguf(path: Path, config: LlamaConfig, state: dict[str, FloatArray], architecture: str = "llama") -> None:
    """A GGUF file as llama.cpp's converter writes it: query and key rows interleaved for its rotary layout."""
    from gguf import GGUFWriter

    def interleaved(weight: FloatArray, heads: int) -> FloatArray:
        rows, columns = weight.shape
        return np.ascontiguousarray(weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2)).reshape(
            rows, columns
        )

    writer = GGUFWriter(str(path), architecture)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_positions)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_rope_dimension_count(config.head_dim)
    fields = tokenizer_fields()
    writer.add_tokenizer_model(fields["tokenizer.ggml.model"])
    writer.add_tokenizer_pre(fields["tokenizer.ggml.pre"])
    writer.add_token_list(fields["tokenizer.ggml.tokens"])
    writer.add_token_merges(fields["tokenizer.ggml.merges"])
    writer.add_token_types(fields["tokenizer.ggml.token_type"])
    writer.add_tensor("token_embd.weight", state["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", state["model.norm.weight"])
    names = {
        "attn_norm": "input_layernorm",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    for layer in range(config.num_layers):
        here, there = f"blk.{layer}.", f"model.layers.{layer}."
        for short, long in names.items():
            writer.add_tensor(f"{here}{short}.weight", state[f"{there}{long}.weight"])
        query = interleaved(state[there + "self_attn.q_proj.weight"], config.num_heads)
        key = interleaved(state[there + "self_attn.k_proj.weight"], config.num_kv_heads)
        writer.add_tensor(here + "attn_q.weight", query)
        writer.add_tensor(here + "attn_k.weight", key)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class TestReadingGguf:
    def test_weights_and_shape_come_back_with_rotary_rows_in_order(self, tmp_path: Path) -> None:
        config = tiny_config()
        state = random_state(config, 5)
        write_gguf(tmp_path / "tiny.gguf", config, state)
        read_config, read_state, fields = read_gguf(tmp_path / "tiny.gguf")
        assert read_config.rope_theta == config.rope_theta
        assert (read_config.num_heads, read_config.num_kv_heads, read_config.head_dim) == (4, 2, 16)
        assert read_state.keys() == state.keys()
        for name, weight in state.items():
            np.testing.assert_array_equal(read_state[name], weight, err_msg=name)
        assert fields["tokenizer.ggml.tokens"] == tokenizer_fields()["tokenizer.ggml.tokens"]

    def test_another_architecture_is_refused(self, tmp_path: Path) -> None:
        config = tiny_config()
        write_gguf(tmp_path / "tiny.gguf", config, random_state(config, 5), architecture="gpt2")
        with pytest.raises(ExportError, match="'gpt2'"):
            read_gguf(tmp_path / "tiny.gguf")

    def test_build_needs_exactly_one_file(self, tmp_path: Path) -> None:
        with pytest.raises(ExportError, match="found 0"):
            build({GGUF_INPUT: tmp_path}, tmp_path, lambda _: None)
