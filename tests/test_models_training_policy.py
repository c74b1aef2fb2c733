"""Training of the policy at tiny size: the loops learn, are gone on with, and serve what was trained."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gate import grammar
from gate.actions import ActionKind
from gate.evidence import DistanceVerdict, SpeakerVerdict
from models.export_llama import TOKENIZER_FILE, Precision, export_tokenizer
from models.export_mini import merged, write
from models.llama_runtime import LlamaRuntime
from models.mini_adapter import STATE_WIDTH, join_adapters, read_adapter, write_adapter
from models.mini_prompt import Reading, system_prompt, turn_prompt
from models.policy_mini import MiniPolicy, word_states
from models.protocols import MASK_MARK, ModelId
from models.training.policy.batches import updates
from models.training.policy.checkpoints import Checkpoints, OtherRunError
from models.training.policy.evaluate import outcomes, summary
from models.training.policy.grpo import GrpoSettings, advantages, pairs_of, reward, rollouts
from models.training.policy.grpo import train as train_grpo
from models.training.policy.mini_learner import MiniLearner, MiniSettings
from models.training.policy.rows import BadRowError, Row, RowSegment, read_rows, write_rows
from models.training.policy.sft import SftSettings, rate
from models.training.policy.sft import train as train_sft
from tests.tiny_learner import TOOLS, tiny_learner
from tests.tiny_llama import random_state, tiny_config, tokenizer_fields

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

CALL = '<|TOOL|>{"name": "make_call", "params": {"contact": "Ben"}}</|TOOL|>'
ROWS = [
    Row("call", "train", "command", CALL, RowSegment("Call Ben."), pair="p1"),
    Row(
        "call.other", "train", "command", grammar.MUTE,
        RowSegment("Call Ben.", SpeakerVerdict.OTHER, DistanceVerdict.FAR, 0.6), (RowSegment("What a day."),),
        pair="p1",
    ),
    Row("talk", "train", "self_talk", grammar.MUTE, RowSegment("I should call Ben some day, should I not?")),
    Row("ask", "train", "question", "Paris.", RowSegment("What is the capital of France?")),
    Row("masked", "train", "repair", "Pardon? Who should I call?", RowSegment(f"Call {MASK_MARK} now.")),
]  # fmt: skip


def lone_logprob(learner: MiniLearner, row: Row) -> float:
    """The target's log-probability by one plain pass over everything, without cache or padding."""
    prompt = system_prompt(TOOLS) + "".join(piece.text for piece in turn_prompt(row.turn(()), learner.settings.reading))
    pieces = [system_prompt(TOOLS), *(p.text for p in turn_prompt(row.turn(()), learner.settings.reading))]
    assert "".join(pieces) == prompt
    ids = [token for piece in pieces for token in learner._encode(piece)]
    target = learner.target(row.target)
    with torch.no_grad():
        logits = learner._network(input_ids=torch.tensor([[*ids, *target]])).logits[0]
        scores = torch.log_softmax(logits.float(), dim=-1)
    return float(sum(scores[len(ids) + index - 1, token] for index, token in enumerate(target)))


def test_rows_come_back_as_they_were_written_so_a_run_can_be_repeated(tmp_path: Path) -> None:
    rows = [
        *ROWS,
        Row(
            "heard", "dev", "command", CALL,
            RowSegment("Call Ben.", gap_s=0.25, times_s=((0.1, 0.4), (0.5, 0.9))), typed=False, audio="a.wav",
            audio_start_s=1.5, audio_end_s=2.75, answers=("x",), question="Who?",
        ),
    ]  # fmt: skip
    path = tmp_path / "rows.jsonl"
    assert write_rows(path, rows) == len(rows)
    assert list(read_rows(path)) == rows


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target": "<|TOOL|>{broken"}, "no action"),
        ({"colour": "red"}, "unknown keys colour"),
        ({"segment": {"words": "Call Ben.", "speaker": "nobody", "distance": "near"}}, "nobody"),
        ({"segment": {"words": "a b", "speaker": "owner", "distance": "near", "times_s": [[0, 1]]}}, "word times"),
    ],
)
def test_a_row_that_is_none_is_refused_by_its_line_and_teaches_nothing(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(path, ROWS[:1])
    values = json.loads(path.read_text()) | change
    path.write_text(path.read_text() + json.dumps(values) + "\n")
    with pytest.raises(BadRowError, match=rf"rows.jsonl:2: .*{said}"):
        list(read_rows(path))


def test_what_a_turn_reads_names_voice_distance_and_gap_and_marks_the_words_to_act_on() -> None:
    pieces = turn_prompt(ROWS[1].turn(()), Reading.VERDICTS)
    text = "".join(piece.text for piece in pieces)
    assert text.startswith("owner, near: What a day.\nother, far, 0.6 s: Call Ben.<|im_end|>")
    assert [(piece.text, piece.word) for piece in pieces if piece.word is not None] == [(" Call", 0), (" Ben.", 1)]
    plain = "".join(piece.text for piece in turn_prompt(ROWS[1].turn(()), Reading.WORDS))
    assert "other" not in plain
    assert "far" not in plain


def test_rows_score_alike_alone_in_a_batch_and_without_any_cache() -> None:
    learner = tiny_learner()
    examples = [learner.example(row) for row in ROWS]
    targets = [learner.target(row.target) for row in ROWS]
    with torch.no_grad():
        together, mask = learner.logprobs(examples, targets)
        alone = [learner.logprobs([e], [t])[0].sum().item() for e, t in zip(examples, targets, strict=True)]
    assert mask.sum(dim=1).tolist() == [len(target) for target in targets]
    assert together.sum(dim=1).tolist() == pytest.approx(alone, abs=1e-3)
    assert alone == pytest.approx([lone_logprob(learner, row) for row in ROWS], abs=1e-3)


def test_greedy_completions_are_the_likeliest_tokens_and_draws_repeat_with_their_seed() -> None:
    learner = tiny_learner()
    examples = [learner.example(row) for row in ROWS[:2]]
    [first], [_] = learner.sample(examples, 1, temperature=0.0, max_tokens=4, seed=1)
    for length in range(1, len(first.tokens) + 1):
        with torch.no_grad():
            scores, _ = learner.logprobs([examples[0]], [first.tokens[:length]])
            other = (first.tokens[length - 1] + 7) % 1000
            worse, _ = learner.logprobs([examples[0]], [(*first.tokens[: length - 1], other)])
        assert float(scores[0, -1]) >= float(worse[0, -1])
    again = [learner.sample(examples, 3, temperature=9.0, max_tokens=4, seed=5) for _ in range(2)]
    assert again[0] == again[1]
    assert again[0] != learner.sample(examples, 3, temperature=9.0, max_tokens=4, seed=6)


def test_an_epoch_shows_each_row_once_and_the_same_epoch_again_in_the_same_order() -> None:
    learner = tiny_learner()
    examples = [learner.example(row) for row in ROWS] * 9
    first = updates(examples, 8, 4, seed=1, epoch=0)
    assert sorted(index for update in first for batch in update for index in batch) == list(range(len(examples)))
    assert first == updates(examples, 8, 4, seed=1, epoch=0)
    assert first != updates(examples, 8, 4, seed=1, epoch=1)


def test_no_update_is_of_one_length_alone_or_it_would_be_of_one_action_alone() -> None:
    learner = tiny_learner()
    short, long = (replace(learner.example(ROWS[0]), cost=cost) for cost in (10, 90))
    drawn = updates([short] * 200 + [long] * 200, 16, 8, seed=1, epoch=0)
    shares = [sum(index < 200 for batch in update for index in batch) / 16 for update in drawn]
    assert all(0.1 < share < 0.9 for share in shares)
    mixed = sum(len({index < 200 for index in batch}) > 1 for update in drawn for batch in update)
    assert mixed <= len(drawn), "within an update, like lengths share a batch"


def test_an_updates_batches_teach_what_they_teach_alone() -> None:
    learner = tiny_learner(LEARNING)
    examples = [learner.example(row) for row in ROWS]
    targets = [learner.target(row.target) for row in ROWS]

    def gradients() -> list[torch.Tensor]:
        found = [p.grad.clone() for p in learner.trainable() if p.grad is not None]
        for parameter in learner.trainable():
            parameter.grad = None
        return found

    for parameter in learner.trainable():
        torch.nn.init.normal_(parameter, std=0.05)
    for example, target in zip(examples, targets, strict=True):
        learner.logprobs([example], [target])[0].sum().backward()
    alone = gradients()
    with learner.update():
        for first in range(0, len(examples), 2):
            learner.logprobs(examples[first : first + 2], targets[first : first + 2])[0].sum().backward()
    together = gradients()
    assert len(alone) == len(together) == len(learner.trainable())
    for one, other in zip(alone, together, strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-4 * float(one.abs().max()) + 1e-8)


def test_the_token_that_decides_can_count_more(tmp_path: Path) -> None:
    learner = tiny_learner(LEARNING)
    examples = [learner.example(row) for row in ROWS]
    logs = []
    for weight in (1.0, 50.0):
        learner = tiny_learner(LEARNING)
        settings = SftSettings(
            epochs=1, batch=4, effective_batch=len(ROWS), learning_rate=0.0, first_token_weight=weight
        )  # fmt: skip
        folder = tmp_path / str(weight)
        train_sft(learner, examples, examples[:1], [tool.name for tool in TOOLS], settings, Checkpoints(folder), {})
        logs.append(json.loads((folder / "log.jsonl").read_text().splitlines()[0]))
    assert logs[0]["first_token_loss"] == pytest.approx(logs[1]["first_token_loss"])
    apart = [abs(log["train_loss"] - log["first_token_loss"]) for log in logs]
    assert apart[1] < apart[0] / 3


def test_the_learning_rate_rises_then_falls_to_a_tenth() -> None:
    rates = [rate(number, 200, 0.05) for number in range(200)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.1, abs=0.01)


@pytest.mark.slow
def test_sft_learns_the_rows_and_goes_on_after_a_kill_to_the_very_same_weights(tmp_path: Path) -> None:
    settings = SftSettings(
        epochs=40, learning_rate=5e-3, batch=5, effective_batch=5, checkpoint_updates=15, evaluate_updates=100
    )

    def run(folder: Path, stop_after: int | None) -> dict[str, float]:
        learner = tiny_learner()
        examples = [learner.example(row) for row in ROWS]
        checkpoints = Checkpoints(folder)
        if stop_after is None:
            return train_sft(learner, examples, examples, [t.name for t in TOOLS], settings, checkpoints, {})
        log = Checkpoints.log

        class _KillError(Exception):
            pass

        def killed(self: Checkpoints, entry: dict[str, float]) -> None:
            log(self, entry)
            if entry["update"] >= stop_after:
                raise _KillError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Checkpoints, "log", killed)
            with pytest.raises(_KillError):
                train_sft(learner, examples, examples, [t.name for t in TOOLS], settings, checkpoints, {})
        return {}

    before = summary(list(outcomes(tiny_learner(), [tiny_learner().example(r) for r in ROWS], [t.name for t in TOOLS])))
    whole = run(tmp_path / "whole", None)
    assert whole["loss"] < before["loss"] / 2
    run(tmp_path / "cut", 20)
    gone_on = run(tmp_path / "cut", None)
    assert gone_on == pytest.approx(whole, abs=1e-4)
    [one] = (tmp_path / "whole").glob("checkpoint-*/adapter.safetensors")
    [two] = (tmp_path / "cut").glob("checkpoint-*/adapter.safetensors")
    first, second = read_adapter(one.parent), read_adapter(two.parent)
    for name, matrix in first.matrices.items():
        assert np.allclose(matrix, second.matrices[name], atol=1e-5)


def test_a_folder_of_another_run_is_not_gone_on_with(tmp_path: Path) -> None:
    Checkpoints(tmp_path).begin({"seed": 1, "rows": "aa"})
    Checkpoints(tmp_path).begin({"seed": 1, "rows": "aa"})
    with pytest.raises(OtherRunError, match="seed: 1 there, 2 now"):
        Checkpoints(tmp_path).begin({"seed": 2, "rows": "aa"})


@pytest.mark.parametrize(
    ("text", "target", "earned"),
    [
        (grammar.MUTE, grammar.MUTE, 1.0),
        (CALL, CALL, 1.0),
        (CALL.replace("Ben", "Ann"), CALL, 1.0),
        (CALL.replace("make_call", "send_message"), CALL, -1.0),
        (grammar.MUTE, CALL, -1.0),
        (CALL, grammar.MUTE, -1.0),
        ("<|TOOL|>{'name': 1}</|TOOL|>", CALL, -1.2),
        ("<|TOOL|>{'name': 1}</|TOOL|>", grammar.MUTE, -1.2),
        ("Paris.", "Paris is the capital.", 0.5),
        (grammar.MUTE, "Paris.", -1.0),
        ("", "Paris.", -0.5),
        (CALL, "Paris.", -0.5),
        ("Pardon? Who should I call?", "Pardon? Who?", 1.0),
        (CALL, "Pardon? Who?", -1.0),
    ],
)
def test_completions_are_rewarded_as_the_paper_says(text: str, target: str, earned: float) -> None:
    assert reward(text, target) == earned


def test_a_group_whose_rewards_are_alike_teaches_nothing_and_others_have_mean_zero() -> None:
    assert advantages([1.0, 1.0, 1.0]) is None
    scaled = advantages([1.0, -1.0, -1.0, 1.0, -1.2])
    assert scaled is not None
    assert sum(scaled) == pytest.approx(0.0, abs=1e-6)


def test_pairs_are_one_command_under_two_sources_with_the_call_first() -> None:
    learner = tiny_learner()
    [(call, mute)] = pairs_of([learner.example(row) for row in ROWS])
    assert (call.row.id, mute.row.id) == ("call", "call.other")


LEARNING = MiniSettings(rank=32, alpha=64, dropout=0.0)


@pytest.fixture(scope="module")
def undecided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter after SFT that calls and mutes on either side of a pair alike: of a dead action nothing is learnt."""
    learner = tiny_learner(LEARNING)
    mixed = [
        learner.example(Row(f"{row.id}{n}", "train", "mix", target, row.segment, row.context))
        for n, target in enumerate((CALL, grammar.MUTE))
        for row in ROWS[:2]
    ]
    settings = SftSettings(epochs=150, learning_rate=5e-3, batch=4, effective_batch=4, evaluate_updates=10**6)
    folder = tmp_path_factory.mktemp("sft")
    train_sft(learner, mixed, mixed, [tool.name for tool in TOOLS], settings, Checkpoints(folder), {})
    [adapter] = folder.glob("checkpoint-*")
    return adapter


@pytest.mark.slow
@pytest.mark.parametrize("paired", [True, False])
def test_both_sides_of_a_pair_are_one_group_and_in_the_control_each_is_its_own(undecided: Path, paired: bool) -> None:
    learner = tiny_learner(LEARNING, before=undecided)
    sides = [learner.example(row) for row in ROWS[:2]]
    settings = GrpoSettings(paired=paired, completions=16, max_tokens=80)
    groups = rollouts(learner, sides, settings, seed=3)
    assert [len(group) for group in groups] == ([16] if paired else [8, 8])
    for group in groups:
        assert len({rollout.example.row.id for rollout in group}) == (2 if paired else 1)
        assert sum(rollout.advantage for rollout in group) == pytest.approx(0.0, abs=1e-3)
        earned = {(rollout.reward, round(rollout.advantage, 3)) for rollout in group}
        assert len(earned) == len({reward for reward, _ in earned}), "one reward, one advantage within a group"


@pytest.mark.slow
def test_grpo_tells_the_sides_of_a_pair_apart(tmp_path: Path, undecided: Path) -> None:
    learner = tiny_learner(LEARNING, before=undecided)

    def called(index: int) -> float:
        with torch.no_grad():
            scores, _ = learner.logprobs([learner.example(ROWS[index])], [learner.target(grammar.TOOL_OPEN)[:-1]])
        return math.exp(float(scores.sum()))

    before = called(0), called(1)
    assert all(0.2 < share < 0.8 for share in before)
    settings = GrpoSettings(
        completions=8, groups=2, updates=30, learning_rate=1e-3, max_tokens=80, other_share=0.0,
        evaluate_updates=1000, checkpoint_updates=25,
    )  # fmt: skip
    sides = [learner.example(row) for row in ROWS[:2]]
    train_grpo(learner, sides, sides, [tool.name for tool in TOOLS], settings, Checkpoints(tmp_path), {})
    assert called(0) > 0.6
    assert called(1) < 0.4
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert any("reward: command, tool" in entry for entry in log)
    with learner.reference():
        assert (called(0), called(1)) == pytest.approx(before, abs=1e-3)


def test_what_is_heard_starts_at_nothing_and_then_reaches_the_words_alone() -> None:
    random = np.random.default_rng(1)
    states = {"call": random.normal(0, 1, (2, STATE_WIDTH)).astype(np.float16)}
    hearing = tiny_learner(MiniSettings(rank=8, alpha=16, dropout=0.0, fusion=True), states)
    deaf = tiny_learner()
    row = ROWS[0]
    targets = [deaf.target(row.target)]
    with torch.no_grad():
        before, _ = hearing.logprobs([hearing.example(row)], targets)
        plain, _ = deaf.logprobs([deaf.example(row)], targets)
        assert torch.allclose(before, plain, atol=1e-5)
        assert hearing._projection is not None
        torch.nn.init.normal_(hearing._projection.weight, std=0.05)
        after, _ = hearing.logprobs([hearing.example(row)], targets)
        unheard, _ = hearing.logprobs([hearing.example(ROWS[2])], targets)
        same, _ = deaf.logprobs([deaf.example(ROWS[2])], targets)
    assert not torch.allclose(after, plain, atol=1e-3)
    assert torch.allclose(unheard, same, atol=1e-5)


def adapted(folder: Path, fusion: bool) -> MiniLearner:
    """A learner whose adapter is no longer nothing, saved."""
    states = {"call": np.random.default_rng(2).normal(0, 1, (2, STATE_WIDTH)).astype(np.float16)}
    learner = tiny_learner(MiniSettings(rank=8, alpha=16, dropout=0.0, fusion=fusion), states)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in learner.trainable():
            parameter.add_(0.03 * torch.randn(parameter.shape, generator=generator))
    learner.save(folder)
    return learner


@pytest.mark.parametrize("fusion", [False, True])
def test_what_is_served_scores_rows_as_what_was_trained_did(tmp_path: Path, fusion: bool) -> None:
    learner = adapted(tmp_path / "adapter", fusion)
    out = tmp_path / "onnx"
    out.mkdir()
    write(tiny_config(), random_state(tiny_config(), 3, 0.08), read_adapter(tmp_path / "adapter"), out, Precision.FP32)
    export_tokenizer(tokenizer_fields(), out / TOKENIZER_FILE)
    policy = MiniPolicy(out, ModelId("tiny", "0" * 64))
    row = ROWS[0]
    turn = row.turn(TOOLS)
    if fusion:
        states = np.repeat(learner._states["call"].astype(np.float32), 20, axis=0)
        from dataclasses import replace

        from gate.evidence import Word
        from gate.span import Span

        words = tuple(
            Word(text, Span(100 + i * 6400, 100 + (i + 1) * 6400 - 320), 1.0) for i, text in enumerate(("Call", "Ben."))
        )
        segment = replace(turn.segment, words=words)
        turn = replace(turn, segment=segment, encoder_states=states, start_sample=100)
        assert np.allclose(word_states(states, segment, 100), learner._states["call"], atol=1e-3)
    found = dict(policy.propose(turn).action_scores)
    forms = {ActionKind.MUTE: grammar.MUTE, ActionKind.TOOL: grammar.TOOL_OPEN, ActionKind.PARDON: grammar.PARDON}
    for kind, text in forms.items():
        with torch.no_grad():
            scores, _ = learner.logprobs([learner.example(row)], [learner.target(text)[:-1]])
        assert found[str(kind)] == pytest.approx(float(scores.sum()), abs=2e-3)


def test_an_adapter_of_another_model_or_reading_is_refused(tmp_path: Path) -> None:
    adapted(tmp_path, fusion=False)
    other = tiny_learner(MiniSettings(rank=8, alpha=16, reading=Reading.WORDS))
    with pytest.raises(ValueError, match="holds an adapter for"):
        other.restore(tmp_path)
    state = random_state(tiny_config(layers=1), 3, 0.08)
    with pytest.raises(ValueError, match="does not fit"):
        merged(state, read_adapter(tmp_path))


def test_the_system_prompt_is_read_once_and_other_tools_are_read_anew(tmp_path: Path) -> None:
    adapted(tmp_path / "adapter", fusion=False)
    out = tmp_path / "onnx"
    out.mkdir()
    write(tiny_config(), random_state(tiny_config(), 3, 0.08), read_adapter(tmp_path / "adapter"), out, Precision.FP32)
    export_tokenizer(tokenizer_fields(), out / TOKENIZER_FILE)
    policy = MiniPolicy(out, ModelId("tiny", "0" * 64))
    policy.prepare(TOOLS)
    first = policy.propose(ROWS[0].turn(TOOLS))
    policy.propose(ROWS[2].turn(TOOLS))
    assert policy.propose(ROWS[0].turn(TOOLS)) == first
    fewer = policy.propose(ROWS[0].turn(TOOLS[:1]))
    assert dict(fewer.action_scores)["mute"] != dict(first.action_scores)["mute"]
    assert "tool" not in dict(policy.propose(ROWS[0].turn(())).action_scores)
    runtime = LlamaRuntime(out)
    assert runtime.encode_prompt(system_prompt(TOOLS))


def test_two_stages_shipped_as_one_adapter_change_the_weights_as_both_did(tmp_path: Path) -> None:
    adapted(tmp_path / "first", fusion=True)
    second = tiny_learner(MiniSettings(rank=8, alpha=16, dropout=0.0, fusion=True), {}, tmp_path / "first")
    with torch.no_grad():
        for parameter in second.trainable():
            parameter.add_(0.03 * torch.ones_like(parameter))
    second.save(tmp_path / "second")
    one, two = read_adapter(tmp_path / "first"), read_adapter(tmp_path / "second")
    write_adapter(tmp_path / "both", join_adapters(one, two))
    both = read_adapter(tmp_path / "both")
    assert both.projection is not None
    assert np.allclose(both.projection, one.projection, atol=1e-3)
    for name in {key.rpartition(".")[0] for key in one.matrices}:
        parts = one.change(name), two.change(name)
        assert parts[0] is not None
        assert parts[1] is not None
        assert np.allclose(both.change(name), parts[0] + parts[1], atol=2e-3)


def test_training_goes_on_from_an_adapter_as_it_was_shipped(tmp_path: Path) -> None:
    trained = adapted(tmp_path / "run", fusion=False)
    write_adapter(tmp_path / "shipped", read_adapter(tmp_path / "run"))
    again = tiny_learner()
    again.restore(tmp_path / "shipped")
    with torch.no_grad():
        scores = [
            learner.logprobs([learner.example(ROWS[0])], [learner.target(ROWS[0].target)])[0]
            for learner in (trained, again, tiny_learner())
        ]
    assert torch.allclose(scores[0], scores[1], atol=0.02), "half precision is all that is lost"
    assert not torch.allclose(scores[0], scores[2], atol=0.2)
