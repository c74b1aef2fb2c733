"""``voicegate train``: fine-tune a policy on rows, by SFT and by pair GRPO, and ship the adapter.

The same commands train the embedded model on a laptop and the large audio LLMs on GPUs (``--model``, docs/training.md).
Rows come from ``python -m bench.training_rows``.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.exit_codes import ExitCode
from models.components import UnknownComponentError

if TYPE_CHECKING:
    from models.training.policy.audio_llm_config import TrainingConfig
    from models.training.policy.learner import Example, Learner
    from models.training.policy.rows import Row

MINI = "mini"


def add_train_parser(subparsers: Any) -> None:
    """Add the ``train`` command and its own commands to a parser."""
    train = subparsers.add_parser("train", help="fine-tune a policy")
    commands = train.add_subparsers(dest="train_command", required=True, metavar="COMMAND")
    sft = commands.add_parser("sft", help="supervised fine-tuning; goes on where it was cut off")
    grpo = commands.add_parser("grpo", help="pair GRPO on top of a fine-tuned policy; goes on where it was cut off")
    for command in (sft, grpo):
        command.add_argument("--rows", type=Path, metavar="DIR", help="train.jsonl and dev.jsonl")
        command.add_argument("--out", type=Path, metavar="DIR", help="the run: checkpoints and log")
        command.add_argument(
            "--model", default=MINI, help="mini (default), or an audio LLM: NAME or FILE.toml (docs/training-gpus.md)"
        )
        command.add_argument(
            "--dry-run", action="store_true", help="print what an audio LLM would take, on paper; needs no weights"
        )
        command.add_argument("--gpus", type=int, default=8, help="of a dry run (default 8)")
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--dev-rows", type=int, default=400, help="how many dev rows are measured (default 400)")
        command.add_argument("--threads", type=int, default=2)
        command.add_argument("--limit", type=int, help="only so many training rows")
        command.add_argument(
            "--reading", choices=["words", "verdicts"], default="verdicts",
            help="what it reads beside the words: nothing, or what the ears say (default)",
        )  # fmt: skip
        command.add_argument("--states", type=Path, metavar="FILE", help="encoder states of rows; switches fusion on")
    # What is not given is the model's: of its configuration, or of SftSettings and GrpoSettings.
    sft.add_argument("--epochs", type=int, help="(mini: 3)")
    sft.add_argument("--learning-rate", type=float, help="(mini: 1e-4)")
    sft.add_argument("--batch", type=int, help="rows at once, in each process (mini: 16)")
    sft.add_argument("--effective-batch", type=int, help="rows an update, over all processes (mini: 32)")
    sft.add_argument("--from", dest="before", type=Path, metavar="DIR", help="adapter to begin with, instead of none")
    sft.add_argument("--first-token-weight", type=float, help="of the token that decides the kind of action (1)")
    grpo.add_argument("--from", dest="before", type=Path, metavar="DIR", help="adapter to go on from")
    grpo.add_argument("--unpaired", action="store_true", help="the control: each side of a pair is a group of its own")
    grpo.add_argument("--updates", type=int, help="(mini: 150)")
    grpo.add_argument("--learning-rate", type=float, help="(mini: 2e-5)")
    grpo.add_argument("--completions", type=int, help="K: completions a group (mini: 16)")
    ship = commands.add_parser("ship", help="copy a run's newest adapter to where the model store builds from")
    ship.add_argument("run", type=Path, metavar="RUN")
    ship.add_argument("--before", type=Path, metavar="DIR", help="the adapter that the run went on from (after GRPO)")
    ship.add_argument("--to", type=Path, default=Path("models/weights/voxgate_mini"), metavar="DIR")
    train.set_defaults(run_command=run)


def run(args: argparse.Namespace) -> int:
    """Carry out a parsed ``train`` command."""
    try:
        if args.train_command == "ship":
            return _ship(args)
        return _dry_run(args) if args.dry_run else _train(args)
    except (OSError, ValueError, UnknownComponentError) as error:
        print(f"voicegate: {error}", file=sys.stderr)
        return int(ExitCode.FAILED)


def _train(args: argparse.Namespace) -> int:
    import torch

    from models.training.policy import grpo, sft
    from models.training.policy.audio_llm_processes import launched
    from models.training.policy.checkpoints import Checkpoints
    from tools.catalogue import ToolCatalogue

    _need(args, "rows", "out", *(["before"] if args.train_command == "grpo" else []))
    processes = launched()
    torch.set_num_threads(args.threads)
    tools = ToolCatalogue.builtin().all()
    config = _config(args.model)
    learner = _learner(args, tools)
    train_rows, dev_rows = (_examples(learner, args.rows / f"{split}.jsonl", config) for split in ("train", "dev"))
    train_rows = train_rows[: args.limit]
    # Every so manieth: the file is in the order of its kinds.
    dev_rows = dev_rows[:: max(1, len(dev_rows) // args.dev_rows)]
    names = [tool.name for tool in tools]
    facts = {"rows": _hash(args.rows / "train.jsonl"), "limit": str(args.limit), "settings": repr(_facts(args, config))}
    if not processes.rank:
        print(f"{learner.name}: {len(train_rows)} rows to learn from, {len(dev_rows)} to measure on", flush=True)
    checkpoints = Checkpoints(args.out, writes=not processes.rank)
    if args.train_command == "sft":
        if args.before is not None:
            learner.restore(_newest(args.before))
            facts["from"] = str(args.before)
        found = sft.train(learner, train_rows, dev_rows, names, _sft(args, config), checkpoints, facts, processes)
    else:
        found = grpo.train(learner, train_rows, dev_rows, names, _grpo(args, config), checkpoints, facts, processes)
    if not processes.rank:
        for name, value in found.items():
            print(f"dev {name}: {value:.4f}")
    return int(ExitCode.OK)


def _dry_run(args: argparse.Namespace) -> int:
    from models.training.policy import audio_llm_paper as on_paper

    config = _config(args.model)
    if config is None:
        raise ValueError("--dry-run is about audio LLMs: --model NAME")
    is_sft = args.train_command == "sft"
    load = on_paper.sft_load(config, _sft(args, config)) if is_sft else on_paper.grpo_load(config, _grpo(args, config))
    for line in on_paper.described(config, on_paper.lay_out(config, load), load, args.gpus):
        print(line)
    if is_sft:
        print(on_paper.updates(config, _sft(args, config), args.gpus))
    return int(ExitCode.OK)


def _need(args: argparse.Namespace, *names: str) -> None:
    for name in names:
        if getattr(args, name) is None:
            raise ValueError(f"--{'from' if name == 'before' else name} is needed")


def _config(model: str) -> TrainingConfig | None:
    """The configuration of an audio LLM; the embedded model has none."""
    if model == MINI:
        return None
    from models.training.policy.audio_llm_config import read_config

    return read_config(model)


def _sft(args: argparse.Namespace, config: TrainingConfig | None) -> Any:
    from models.training.policy.sft import SftSettings

    return _given(SftSettings(**({} if config is None else config.sft)), args)


def _grpo(args: argparse.Namespace, config: TrainingConfig | None) -> Any:
    from models.training.policy.grpo import GrpoSettings

    settings = _given(GrpoSettings(**({} if config is None else config.grpo)), args)
    return replace(settings, paired=not args.unpaired)


def _learner(args: argparse.Namespace, tools: Sequence[Any]) -> Learner:
    import torch

    before = _newest(args.before) if args.train_command == "grpo" else None
    torch.manual_seed(args.seed)
    if args.model != MINI:
        from models.training.policy.audio_llm_learner import load_learner

        return load_learner(args.model, tools, args.rows, before)
    import numpy as np
    from tokenizers import Tokenizer

    from models.export_llama import TOKENIZER_FILE
    from models.mini_prompt import Reading
    from models.policy_smollm2 import MODEL_NAME
    from models.store import Store
    from models.training.policy.mini_learner import MiniLearner, MiniSettings, fitting_dtype, load_base

    store = Store()
    base = "smollm2-135m-instruct-gguf"
    network = load_base(store.path(base), fitting_dtype())
    tokenizer = Tokenizer.from_file(str(store.file(MODEL_NAME, TOKENIZER_FILE)))
    settings = MiniSettings(reading=Reading(args.reading), fusion=args.states is not None)
    states = {} if args.states is None else dict(np.load(args.states, allow_pickle=False))
    return MiniLearner(network, tokenizer, tools, settings, states, base, before)


def _examples(learner: Learner, path: Path, config: TrainingConfig | None) -> list[Example]:
    from models.training.policy.rows import read_rows

    rows = read_rows(path)
    return [learner.example(row) for row in (rows if config is None else _with_sound(rows, path))]


def _with_sound(rows: Iterable[Row], path: Path) -> list[Row]:
    """The rows that an audio LLM can learn from: without its sound, what was spoken would pass for what was typed.

    Raises:
        ValueError: when there are none.
    """
    every = list(rows)
    kept = [row for row in every if row.typed or row.audio is not None]
    if len(kept) < len(every):
        print(f"{path}: {len(every) - len(kept)} spoken rows name no recording and are left out", file=sys.stderr)
    if not kept:
        raise ValueError(f"{path} has no row that was typed or names its recording")
    return kept


def _given(settings: Any, args: argparse.Namespace) -> Any:
    """The settings with the flags of the same name in them, as far as they were given."""
    flags = {item.name: getattr(args, item.name, None) for item in fields(settings)}
    return replace(settings, **{name: value for name, value in flags.items() if value is not None})


def _facts(args: argparse.Namespace, config: TrainingConfig | None) -> dict[str, str]:
    if config is not None:
        # Not the folder: a checkpoint that has moved is the same, and its sha256 stands in the learner's name.
        return {"model": config.name, "told": config.options.get("told", ""), "lora": repr(config.lora)}
    return {"model": args.model, "reading": args.reading, "fusion": str(args.states is not None)}


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _newest(run_or_adapter: Path) -> Path:
    """The newest checkpoint of a run; the folder itself when it holds an adapter.

    Raises:
        FileNotFoundError: when there is none.
    """
    from models.mini_adapter import ADAPTER_FILE

    if (run_or_adapter / ADAPTER_FILE).is_file():
        return run_or_adapter
    found = sorted(run_or_adapter.glob("checkpoint-*"))
    if not found:
        raise FileNotFoundError(f"{run_or_adapter} holds neither an adapter nor a run's checkpoint")
    return found[-1]


def _ship(args: argparse.Namespace) -> int:
    from models.mini_adapter import ADAPTER_FILE, SETTINGS_FILE, join_adapters, read_adapter, write_adapter

    newest = _newest(args.run)
    adapter = read_adapter(newest)
    if args.before is not None:
        adapter = join_adapters(read_adapter(_newest(args.before)), adapter)
    write_adapter(args.to, adapter)
    print(f"{newest} is in {args.to}. For models/registry.toml:")
    for name in (ADAPTER_FILE, SETTINGS_FILE):
        path = args.to / name
        print(f'name = "{name}"\nsha256 = "{_hash(path)}"\nsize_bytes = {path.stat().st_size}')
    print("then build it with: voicegate models pull voxgate-mini-onnx")
    return int(ExitCode.OK)
