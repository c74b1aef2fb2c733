"""Training of the audio LLMs at tiny size: each class hears, learns only where it may, and serves what it learnt."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from agent.train import _with_sound, add_train_parser
from gate import grammar
from gate.evidence import DistanceVerdict, SpeakerVerdict
from models.audio_llm.contract import ActionContract, Told
from models.audio_llm.policy import AudioLlmPolicy
from models.protocols import Audio
from models.training.policy.audio_llm_config import FOLDER, read_config
from models.training.policy.audio_llm_inputs import read_sound
from models.training.policy.audio_llm_lora import (
    LEARNING,
    Base,
    LoraSettings,
    MisplacedLoraError,
    add_lora,
    attention,
    check_places,
    matrices,
    merge_lora,
)
from models.training.policy.audio_llm_paper import GPUS_GB, kept_bytes, lay_out, sft_load, updates
from models.training.policy.checkpoints import Checkpoints
from models.training.policy.grpo import GrpoSettings
from models.training.policy.processes import ALONE, share
from models.training.policy.rows import BadRowError, Row, RowSegment, write_rows
from models.training.policy.sft import SftSettings
from models.training.policy.sft import train as train_sft
from tests.tiny_audio_llms import FAMILIES, WINDOW_S, Tiny, one_thread, save_checkpoint
from tests.tiny_learner import TOOLS

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
from models.training.policy.audio_llm_learner import AudioLlmLearner  # noqa: E402

CALL = '<|TOOL|>{"name": "make_call", "params": {"contact": "Ben"}}</|TOOL|>'
FAST = LoraSettings(rank=8, alpha=16, dropout=0.0, gradient_checkpointing=False)
NAMES = [tool.name for tool in TOOLS]
OWNER = RowSegment("Call Ben.")
OTHER = RowSegment("Call Ben.", SpeakerVerdict.OTHER, DistanceVerdict.FAR, 0.6)
ROWS = [
    Row("call", "train", "command", CALL, OWNER, pair="p1", audio="low.wav", audio_end_s=1.0),
    Row(
        "call.other", "train", "command", grammar.MUTE, OTHER, (RowSegment("What a day."),), pair="p1",
        audio="two.wav", audio_start_s=1.0, audio_end_s=2.5,
    ),
    Row("typed", "train", "text", CALL, OWNER, typed=True),
    Row("asked", "train", "question", "Paris.", OWNER, question="Which city?", audio="two.wav"),
]  # fmt: skip


def tone(hz: float, seconds: float = 1.0) -> Audio:
    t = np.arange(round(seconds * 16_000)) / 16_000
    return (0.3 * np.sin(2 * np.pi * hz * t)).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def torch_alone() -> Iterator[None]:
    import peft

    peft.LoraConfig  # noqa: B018  # what it imports takes seconds: here, and not in the first test
    with one_thread():
        FAMILIES["qwen2-audio"]()
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings beside which rows stand."""
    path = tmp_path_factory.mktemp("rows")
    sounds = {"low": tone(220), "high": tone(880), "two": np.concatenate([tone(220), tone(700, 1.5)])}
    for name, sound in sounds.items():
        soundfile.write(path / f"{name}.wav", sound, 16_000, subtype="FLOAT")
    return path


@pytest.fixture(scope="module", params=FAMILIES)
def tiny(request: pytest.FixtureRequest) -> Tiny:
    """One class."""
    return FAMILIES[request.param]()


Learn = Callable[..., AudioLlmLearner]


@pytest.fixture(scope="module")
def learn(folder: Path) -> Learn:
    """Makes a learner of a class, the same one each time."""

    def made(
        tiny: Tiny, settings: LoraSettings = FAST, before: Path | None = None, told: Told = Told.VERDICTS
    ) -> AudioLlmLearner:
        chat = tiny.chat()
        torch.manual_seed(3)
        return AudioLlmLearner(chat, ActionContract(told), TOOLS, folder, settings, before)

    return made


def changed(learner: AudioLlmLearner, seed: int = 4) -> AudioLlmLearner:
    """Its adapter is no longer nothing."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for matrix in learner.trainable():
            matrix.add_(0.1 * torch.randn(matrix.shape, generator=generator))
    return learner


def scores(learner: AudioLlmLearner, rows: Sequence[Row] = ROWS) -> list[float]:
    """Log-probability of each row's target."""
    with torch.no_grad():
        found, _ = learner.logprobs([learner.example(r) for r in rows], [learner.target(r.target) for r in rows])
    return [float(value) for value in found.sum(dim=1)]


def written(learner: AudioLlmLearner, row: Row = ROWS[0], tokens: int = 6) -> str:
    [[sampled]] = learner.sample([learner.example(row)], 1, temperature=0.0, max_tokens=tokens, seed=1)
    return sampled.text


# What it reads -------------------------------------------------------------------------------------------------------


def test_it_learns_from_the_very_prompt_and_sound_that_it_will_be_given(tiny: Tiny, learn: Learn, folder: Path) -> None:
    """What is trained on one prompt and served on another has learnt for nothing."""
    learner = changed(learn(tiny))
    for row in ROWS[:2]:
        turn = replace(row.turn(TOOLS), audio=read_sound(row, folder))
        policy = AudioLlmPolicy(learner._chat, ActionContract(), action_tokens=6)
        assert policy.propose(turn).text == written(learner, row)


def test_rows_score_alike_alone_in_a_batch_and_in_one_plain_pass(tiny: Tiny, learn: Learn) -> None:
    learner = changed(learn(tiny))
    together = scores(learner)
    assert together == pytest.approx([scores(learner, [row])[0] for row in ROWS], abs=2e-3)
    for row, score in zip(ROWS, together, strict=True):
        inputs, target = learner._rows.inputs(learner.example(row)), learner.target(row.target)
        start = inputs["input_ids"].shape[1]
        inputs["input_ids"] = torch.cat([inputs["input_ids"], torch.tensor([target])], dim=1)
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        with torch.no_grad():
            logits = learner._network(**inputs).logits[0]
        plain = torch.log_softmax(logits + learner._never, dim=-1)
        assert score == pytest.approx(float(sum(plain[start - 1 + i, t] for i, t in enumerate(target))), abs=2e-3)


def test_two_clips_teach_two_things(tiny: Tiny, learn: Learn) -> None:
    """Where the gradient does not depend on the sound, nothing is learnt of it."""
    gradients = []
    for name in ("low.wav", "high.wav"):
        learner = changed(learn(tiny))
        found, _ = learner.logprobs([learner.example(replace(ROWS[0], audio=name))], [learner.target(CALL)])
        found.sum().backward()
        gradients.append(torch.cat([matrix.grad.flatten() for matrix in learner.trainable()]))
    assert float((gradients[0] - gradients[1]).norm()) > 1e-3 * float(gradients[0].norm())


def test_only_the_targets_tokens_are_scored(learn: Learn) -> None:
    learner = learn(FAMILIES["qwen3-omni"]())
    targets = [learner.target(row.target) for row in ROWS]
    found, mask = learner.logprobs([learner.example(row) for row in ROWS], targets)
    assert mask.sum(dim=1).tolist() == [len(target) for target in targets]
    assert not found[~mask].any()


def test_long_sound_is_heard_in_parts_or_refused_and_never_cut(learn: Learn, folder: Path) -> None:
    soundfile.write(folder / "long.wav", tone(300, WINDOW_S + 1.5), 16_000)
    row = replace(ROWS[0], audio="long.wav", audio_end_s=0.0)
    learner = learn(FAMILIES["qwen2-audio"]())
    assert learner._rows.inputs(learner.example(row))["input_features"].shape[0] == 2
    with pytest.raises(BadRowError, match="row call"):
        learn(FAMILIES["audio-flamingo-3"]()).example(replace(row, audio="very_long.wav"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"audio": None}, "names no recording"),
        ({"audio": "none.wav"}, "cannot be read"),
        ({"audio_start_s": 0.5, "audio_end_s": 1.5}, "is not within"),
        ({"audio_start_s": 0.5, "audio_end_s": 0.5}, "is not within"),
        ({"audio": "fast.wav"}, "8000 Hz"),
        ({"audio": "stereo.wav"}, "2 channels"),
    ],
)
def test_a_row_whose_sound_is_not_there_teaches_nothing(folder: Path, change: dict[str, Any], said: str) -> None:
    """Read as typed words, a bystander's command would teach to mute what the owner types."""
    soundfile.write(folder / "fast.wav", tone(220), 8_000)
    soundfile.write(folder / "stereo.wav", np.stack([tone(220)] * 2, axis=1), 16_000)
    with pytest.raises(BadRowError, match=f"row call.*{said}"):
        read_sound(replace(ROWS[0], **change), folder)


def test_spoken_rows_without_sound_are_left_out_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [*ROWS, Row("words", "train", "self_talk", grammar.MUTE, OWNER)]
    assert _with_sound(rows, Path("train.jsonl")) == ROWS
    assert "1 spoken rows name no recording" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no row"):
        _with_sound(rows[-1:], Path("train.jsonl"))


# Where it learns -----------------------------------------------------------------------------------------------------


def test_lora_sits_on_the_language_models_attention_and_nothing_else_learns(tiny: Tiny, learn: Learn) -> None:
    learner = learn(tiny)
    names = [name for name, p in learner._network.named_parameters() if p.requires_grad or ".lora_" in name]
    layers = 1 if tiny.name == "nemotron-omni" else 2
    assert len(names) == 2 * 4 * layers
    assert all("language_model" in name and ".layers." in name for name in names)
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in names} == {"q_proj", "k_proj", "v_proj", "o_proj"}
    assert len(learner.trainable()) == len(names)


def test_lora_in_the_audio_encoder_is_an_error() -> None:
    """Among experts, PEFT takes a pattern for the last parts of names: the encoder's attention would learn too."""
    from peft import LoraConfig, get_peft_model

    network = FAMILIES["qwen3-omni"]().network()
    places = attention(network)
    pattern = r".*language_model.*\.(q|k|v|o)_proj"
    get_peft_model(network, LoraConfig(r=2, target_modules=pattern), adapter_name=LEARNING)
    with pytest.raises(MisplacedLoraError, match=r"audio_tower.*would learn"):
        check_places(network, places)


def test_an_attention_without_lora_is_an_error() -> None:
    network = FAMILIES["qwen2-audio"]().network()
    places = attention(network)
    add_lora(network, FAST)
    next(iter(matrices(network).values())).requires_grad_(False)
    with pytest.raises(MisplacedLoraError, match="does not learn"):
        check_places(network, places)


@contextmanager
def bytes_kept(network: Any) -> Iterator[list[int]]:
    """How much autograd keeps within, weights left out."""
    own = {parameter.untyped_storage()._cdata for parameter in network.parameters()}
    kept: dict[int, Any] = {}
    total = [0]

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield total
    total[0] = sum(storage.nbytes() for storage in kept.values())


def test_layers_computed_again_keep_less_and_teach_the_same(tiny: Tiny, learn: Learn) -> None:
    """Also without dropout, as pair GRPO needs it."""
    gradients, kept = [], []
    for checkpointing in (False, True):
        learner = changed(learn(tiny, replace(FAST, gradient_checkpointing=checkpointing)))
        learner.train(False)
        with bytes_kept(learner._network) as total:
            found, _ = learner.logprobs([learner.example(r) for r in ROWS], [learner.target(r.target) for r in ROWS])
        kept += total
        found.sum().backward()
        gradients.append(torch.cat([matrix.grad.flatten() for matrix in learner.trainable()]))
        assert written(learner)
    assert kept[1] < kept[0] / 2
    assert torch.allclose(gradients[0], gradients[1], rtol=1e-3, atol=1e-4)


def test_dropout_is_the_adapters_alone(learn: Learn) -> None:
    learner = changed(learn(FAMILIES["qwen3-omni"](), replace(FAST, dropout=0.5)))
    learner.train(True)
    assert scores(learner) != scores(learner)
    assert not learner._network.get_decoder().layers[0].self_attn.training
    learner.train(False)
    assert scores(learner) == scores(learner)


# What it writes ------------------------------------------------------------------------------------------------------


def test_a_place_for_sound_is_never_written_however_likely(tiny: Tiny, learn: Learn) -> None:
    """Scored again, such a completion would ask the network for sound that is not there."""
    learner = learn(tiny)
    before = scores(learner)
    places = learner._places()
    assert learner._chat._processor.audio_token_id in places

    def tempted(module: Any, given: Any, logits: Any) -> Any:
        logits = logits.clone()
        logits[..., places] += 1000.0
        return logits

    hook = learner._head.register_forward_hook(tempted)
    drawn = learner.sample([learner.example(ROWS[0])], 3, temperature=1.0, max_tokens=5, seed=1)
    assert scores(learner) == pytest.approx(before, abs=1e-3)
    hook.remove()
    assert not {token for sampled in drawn[0] for token in sampled.tokens} & set(places)


def test_draws_repeat_with_their_seed_come_from_the_whole_distribution_and_leave_chance_alone(learn: Learn) -> None:
    learner = learn(FAMILIES["qwen2-audio"]())
    examples = [learner.example(row) for row in ROWS[:2]]
    torch.manual_seed(11)
    expected = torch.rand(1)
    torch.manual_seed(11)
    first, again, other = (learner.sample(examples, 2, temperature=1.0, max_tokens=4, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first != other
    assert torch.equal(torch.rand(1), expected)
    [flat] = learner.sample([learner.example(ROWS[3])], 80, temperature=1e4, max_tokens=1, seed=1)
    # Generation's default takes fifty tokens into account.
    assert len({sampled.tokens for sampled in flat}) > 60


def test_a_completion_ends_at_its_end_mark(learn: Learn) -> None:
    learner = learn(FAMILIES["qwen2.5-omni"]())
    end = learner._chat._ends[0]
    assert learner._sampled([41, 42, end, end]).tokens == (41, 42, end)
    assert learner._sampled([41, 42, end, end]).ended
    assert not learner._sampled([41, 42]).ended
    assert learner.target("[Mute]")[-1] == end
    with pytest.raises(ValueError, match="cannot be a target"):
        learner.target("<|im_end|>")


# On disk -------------------------------------------------------------------------------------------------------------


def test_what_was_saved_comes_back_and_serves_as_it_was_trained(tiny: Tiny, learn: Learn, tmp_path: Path) -> None:
    learner = changed(learn(tiny))
    learner.save(tmp_path)
    fresh = learn(tiny)
    assert scores(fresh) != pytest.approx(scores(learner), abs=1e-2)
    fresh.restore(tmp_path)
    assert scores(fresh) == scores(learner)
    assert written(fresh) == written(learner)
    chat = tiny.chat()
    merge_lora(chat._network, tmp_path, learner._base)
    turn = replace(ROWS[0].turn(TOOLS), audio=tone(220))
    assert AudioLlmPolicy(chat, ActionContract(), action_tokens=6).propose(turn).text == written(learner)


def test_an_adapter_of_another_model_or_told_something_else_is_refused(learn: Learn, tmp_path: Path) -> None:
    learner = changed(learn(FAMILIES["qwen2-audio"]()))
    learner.save(tmp_path)
    with pytest.raises(ValueError, match="told verdicts"):
        learn(FAMILIES["qwen2-audio"](), told=Told.NOTHING).restore(tmp_path)
    with pytest.raises(ValueError, match="other matrices"):
        learn(FAMILIES["qwen2-audio"](), replace(FAST, rank=4)).restore(tmp_path)
    other = Base("other", "1" * 64, learner._base.told)
    with pytest.raises(ValueError, match="sha256"):
        merge_lora(FAMILIES["qwen2-audio"]().network(), tmp_path, other)
    with pytest.raises(ValueError, match="cannot be changed there"):
        merge_lora(FAMILIES["nemotron-omni"]().network(), tmp_path, learner._base)


def test_the_reference_is_the_stage_before_and_learning_goes_on_from_it(
    tiny: Tiny, learn: Learn, tmp_path: Path
) -> None:
    first = changed(learn(tiny))
    with first.reference():
        assert scores(first) == pytest.approx(scores(learn(tiny)), abs=1e-3)
    first.save(tmp_path)
    second = learn(tiny, before=tmp_path)
    assert scores(second) == scores(first)
    changed(second, seed=5)
    assert scores(second) != pytest.approx(scores(first), abs=1e-2)
    with second.reference(), torch.no_grad():
        assert scores(second) == scores(first)
    assert all(matrix.requires_grad for matrix in second.trainable())
    assert len(second.trainable()) == len(first.trainable())


# Both stages ---------------------------------------------------------------------------------------------------------


def undecided(learner: AudioLlmLearner, sides: Sequence[Row], folder: Path, epochs: int) -> Path:
    """SFT until either side of a pair is called for and muted alike: of a dead action nothing is learnt.

    Returns:
        The checkpoint.
    """
    rows = [
        learner.example(replace(row, id=f"{row.id}.{n}", target=target))
        for row in sides
        for n, target in enumerate((CALL, grammar.MUTE))
    ]
    settings = SftSettings(epochs=epochs, learning_rate=1e-2, batch=2, effective_batch=4, evaluate_updates=10**6)
    train_sft(learner, rows, rows[:1], NAMES, settings, Checkpoints(folder), {})
    [saved] = folder.glob("checkpoint-*")
    return saved


@pytest.mark.slow
def test_each_class_learns_by_sft_and_the_next_stage_begins_where_it_ended(
    tiny: Tiny, learn: Learn, tmp_path: Path
) -> None:
    learner = learn(tiny)
    saved = undecided(learner, ROWS[:2], tmp_path / "sft", 30)
    log = [json.loads(line) for line in (tmp_path / "sft/log.jsonl").read_text().splitlines()]
    assert log[-1]["train_loss"] < 0.8 * log[0]["train_loss"]

    second = learn(tiny, before=saved)
    assert scores(second) == scores(learner)
    assert written(second) == written(learner)


# Several processes ---------------------------------------------------------------------------------------------------


def test_the_parts_of_all_processes_are_everything_once() -> None:
    class Seven:
        count = 7

        def __init__(self, rank: int) -> None:
            self.rank = rank

    parts = [share(range(23), Seven(rank)) for rank in range(7)]  # type: ignore[arg-type]
    assert sorted(item for part in parts for item in part) == list(range(23))
    assert list(share(range(23), ALONE)) == list(range(23))


def test_only_one_process_writes(tmp_path: Path) -> None:
    """Two writers of one checkpoint leave half of each."""
    other = Checkpoints(tmp_path / "run", writes=False)
    other.begin({"seed": 1})
    other.log({"update": 1})
    other.save(None, None, 1)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_more_processes_than_batches_are_refused(learn: Learn, tmp_path: Path) -> None:
    learner = learn(FAMILIES["qwen2-audio"]())
    two = replace(ALONE, count=2)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="1 batches an update for 2 processes"):
        train_sft(
            learner, [], [], NAMES, SftSettings(batch=4, effective_batch=4), Checkpoints(tmp_path), {}, two
        )  # fmt: skip


CONFIG = """
policy = "qwen2-audio"
[lora]
rank = 4
alpha = 8
dropout = 0.0
[sft]
epochs = 2
learning_rate = 5e-3
batch = 1
effective_batch = 4
checkpoint_updates = 1
evaluate_updates = 100
[grpo]
completions = 4
groups = 2
updates = 2
max_tokens = 4
temperature = 2.0
[paper]
network = "Qwen2AudioForConditionalGeneration"
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def train(processes: int, *flags: str) -> subprocess.CompletedProcess[str]:
    """``voicegate train``, alone or under accelerate's launcher."""
    launcher = [
        "-m", "accelerate.commands.launch", "--cpu", "--num_processes", str(processes), "--num_machines", "1",
        "--main_process_port", str(free_port()), "--mixed_precision", "no", "--dynamo_backend", "no",
    ]  # fmt: skip
    return subprocess.run(
        [sys.executable, *(launcher if processes > 1 else []), "-m", "agent.cli", "train", *flags],
        capture_output=True, text=True, timeout=600, env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parent.parent,
    )  # fmt: skip


@pytest.mark.slow
def test_two_processes_learn_what_one_does_and_one_of_them_writes(folder: Path, tmp_path: Path) -> None:
    save_checkpoint(FAMILIES["qwen2-audio"](), tmp_path / "base")
    (tmp_path / "mine.toml").write_text(CONFIG)
    rows = [replace(row, id=f"{row.id}.{n}", audio=None if row.typed else f"{row.audio}") for row in ROWS for n in "ab"]
    for split in ("train", "dev"):
        write_rows(folder / f"{split}.jsonl", rows)
    model = f"{tmp_path / 'mine.toml'}:dir={tmp_path / 'base'}"
    common = ("--rows", str(folder), "--model", model, "--dev-rows", "3", "--threads", "1")
    for processes in (1, 2):
        done = train(processes, "sft", *common, "--out", str(tmp_path / f"sft{processes}"))
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.count("rows to learn from") == 1
    logs = [(tmp_path / f"sft{n}/log.jsonl").read_text().splitlines() for n in (1, 2)]
    assert [json.loads(line)["update"] for line in logs[1]] == [1, 2, 3, 4]
    losses = [[json.loads(line)["train_loss"] for line in log] for log in logs]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    from safetensors.numpy import load_file

    one, two = (load_file(next((tmp_path / f"sft{n}").glob("checkpoint-*/adapter.safetensors"))) for n in (1, 2))
    assert set(one) == set(two)
    assert all(np.allclose(one[name], two[name], atol=1e-4) for name in one)
    assert any(np.abs(one[name]).max() > 1e-3 for name in one if name.endswith("lora_B"))

    done = train(2, "grpo", *common, "--from", str(tmp_path / "sft2"), "--out", str(tmp_path / "grpo"))
    assert done.returncode == 0, done.stderr[-2000:]
    log = [json.loads(line) for line in (tmp_path / "grpo/log.jsonl").read_text().splitlines()]
    assert [entry["update"] for entry in log] == [1, 2]
    assert len(list((tmp_path / "grpo").glob("checkpoint-*"))) == 1


# On paper ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_configuration_has_the_papers_hyper_parameters(path: Path) -> None:
    config = read_config(path.stem)
    assert config.policy in FAMILIES
    assert (config.lora.rank, config.lora.alpha) == (32, 64)
    sft = SftSettings(**config.sft)
    assert (sft.epochs, sft.learning_rate, sft.effective_batch) == (3, 1e-4, 32)
    assert GrpoSettings(**config.grpo).kl > 0
    assert "540 for 5,748 rows" in updates(config, sft, 8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('policy = "qwen2-audio"', "no paper"),
        ('[paper]\nnetwork = "X"', "no policy"),
        (f"{CONFIG}\n[colour]\nred = 1", "unknown: colour"),
        (CONFIG.replace("rank = 4", "ranks = 4"), r"\[lora\] has no ranks"),
        (CONFIG.replace("epochs = 2", "epoch = 2"), r"\[sft\] has no epoch"),
    ],
)
def test_a_misspelt_setting_is_refused_not_ignored(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"mine.toml.*{said}"):
        read_config(str(path))
    with pytest.raises(ValueError, match="There are: mini, audio-flamingo-3"):
        read_config("gpt-5")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "billions", "trainable"),
    [
        ("qwen2-audio", 8.40, 33_554_432),
        ("qwen2.5-omni", 8.93, 20_185_088),
        ("qwen3-omni", 31.72, 26_738_688),
        ("audio-flamingo-3", 8.27, 20_185_088),
    ],
)
def test_a_full_size_run_on_paper_finds_sizes_and_memory_without_weights(
    name: str, billions: float, trainable: int
) -> None:
    config = read_config(name)
    paper = lay_out(config, sft_load(config, SftSettings(**config.sft)))
    assert sum(paper.parameters.values()) / 1e9 == pytest.approx(billions, abs=0.01)
    assert paper.trainable == trainable
    assert paper.memory_gb["weights"] == pytest.approx(2 * billions, abs=0.03)
    assert paper.memory_gb["weights"] < paper.needed_gb < max(GPUS_GB)


def test_memory_on_paper_is_what_autograd_keeps(tiny: Tiny) -> None:
    """Of the language model, layer by layer, on real numbers."""
    if tiny.name == "nemotron-omni":
        pytest.skip("its Mamba layers are kernels on a GPU and many small steps here")
    network = tiny.network().bfloat16()
    add_lora(network, FAST)
    rows, tokens = 2, 40
    embedded = torch.zeros(rows, tokens, network.config.get_text_config().hidden_size, dtype=torch.bfloat16)
    with bytes_kept(network) as total:
        network.get_decoder()(
            inputs_embeds=embedded, attention_mask=torch.ones(rows, tokens, dtype=torch.long), use_cache=False
        )
    assert kept_bytes(network.to("meta"), rows, tokens) == pytest.approx(total[0], rel=0.15)


def test_a_dry_run_prints_what_the_checkpoint_would_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny: Tiny
) -> None:
    import argparse

    (tmp_path / "base").mkdir()
    tiny.config.save_pretrained(tmp_path / "base")
    parser = argparse.ArgumentParser()
    add_train_parser(parser.add_subparsers())
    for stage in ("sft", "grpo"):
        args = parser.parse_args(
            ["train", stage, "--dry-run", "--gpus", "4", "--model", f"{tiny.name}:dir={tmp_path / 'base'}"]
        )
        assert args.run_command(args) == 0
        out = capsys.readouterr().out
        assert "no weights read" in out
        assert "memory of each of 4 GPUs" in out
    args = parser.parse_args(["train", "sft", "--model", tiny.name])
    assert args.run_command(args) == 1
    assert "--rows is needed" in capsys.readouterr().err
