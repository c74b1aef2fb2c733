"""``voicegate train``: fine-tune a policy on rows, by SFT and by pair GRPO, and ship the adapter.

The same commands train the embedded model on a laptop and the large audio LLMs on GPUs (``--model``, docs/training.md).
Rows come from ``python -m bench.training_rows``.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.exit_codes import ExitCode

if TYPE_CHECKING:
    from models.training.policy.learner import Example, Learner

MINI = "mini"


def add_train_parser(subparsers: Any) -> None:
    """Add the ``train`` command and its own commands to a parser."""
    train = subparsers.add_parser("train", help="fine-tune a policy")
    commands = train.add_subparsers(dest="train_command", required=True, metavar="COMMAND")
    sft = commands.add_parser("sft", help="supervised fine-tuning; goes on where it was cut off")
    grpo = commands.add_parser("grpo", help="pair GRPO on top of a fine-tuned policy; goes on where it was cut off")
    for command in (sft, grpo):
        command.add_argument("--rows", type=Path, required=True, metavar="DIR", help="train.jsonl and dev.jsonl")
        command.add_argument("--out", type=Path, required=True, metavar="DIR", help="the run: checkpoints and log")
        command.add_argument("--model", default=MINI, help="mini (default), or an audio LLM by name (docs/training.md)")
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--dev-rows", type=int, default=400, help="how many dev rows are measured (default 400)")
        command.add_argument("--threads", type=int, default=2)
        command.add_argument("--limit", type=int, help="only so many training rows")
        command.add_argument(
            "--reading", choices=["words", "verdicts"], default="verdicts",
            help="what it reads beside the words: nothing, or what the ears say (default)",
        )  # fmt: skip
        command.add_argument("--states", type=Path, metavar="FILE", help="encoder states of rows; switches fusion on")
    sft.add_argument("--epochs", type=int, default=3)
    sft.add_argument("--learning-rate", type=float, default=1e-4)
    sft.add_argument("--batch", type=int, default=16, help="rows at once (default 16)")
    sft.add_argument("--effective-batch", type=int, default=32, help="rows an update (default 32)")
    grpo.add_argument("--from", dest="before", type=Path, required=True, metavar="DIR", help="adapter to go on from")
    grpo.add_argument("--unpaired", action="store_true", help="the control: each side of a pair is a group of its own")
    grpo.add_argument("--updates", type=int, default=150)
    grpo.add_argument("--learning-rate", type=float, default=2e-5)
    grpo.add_argument("--completions", type=int, default=16, help="K: completions a group (default 16)")
    ship = commands.add_parser("ship", help="copy a run's newest adapter to where the model store builds from")
    ship.add_argument("run", type=Path, metavar="RUN")
    ship.add_argument("--before", type=Path, metavar="DIR", help="the adapter that the run went on from (after GRPO)")
    ship.add_argument("--to", type=Path, default=Path("models/weights/voxgate_mini"), metavar="DIR")
    train.set_defaults(run_command=run)


def run(args: argparse.Namespace) -> int:
    """Carry out a parsed ``train`` command."""
    try:
        return _ship(args) if args.train_command == "ship" else _train(args)
    except (OSError, ValueError) as error:
        print(f"voicegate: {error}", file=sys.stderr)
        return int(ExitCode.FAILED)


def _train(args: argparse.Namespace) -> int:
    import torch

    from models.training.policy import grpo, sft
    from models.training.policy.checkpoints import Checkpoints
    from tools.catalogue import ToolCatalogue

    torch.set_num_threads(args.threads)
    tools = ToolCatalogue.builtin().all()
    learner = _learner(args, tools)
    train_rows, dev_rows = (_examples(learner, args.rows / f"{split}.jsonl") for split in ("train", "dev"))
    train_rows = train_rows[: args.limit]
    # Every so manieth: the file is in the order of its kinds.
    dev_rows = dev_rows[:: max(1, len(dev_rows) // args.dev_rows)]
    names = [tool.name for tool in tools]
    facts = {"rows": _hash(args.rows / "train.jsonl"), "limit": str(args.limit), "settings": repr(_facts(args))}
    print(f"{learner.name}: {len(train_rows)} rows to learn from, {len(dev_rows)} to measure on", flush=True)
    checkpoints = Checkpoints(args.out)
    if args.train_command == "sft":
        settings = _given(sft.SftSettings(), args)
        found = sft.train(learner, train_rows, dev_rows, names, settings, checkpoints, facts)
    else:
        chosen = replace(_given(grpo.GrpoSettings(), args), paired=not args.unpaired)
        found = grpo.train(learner, train_rows, dev_rows, names, chosen, checkpoints, facts)
    for name, value in found.items():
        print(f"dev {name}: {value:.4f}")
    return int(ExitCode.OK)


def _learner(args: argparse.Namespace, tools: Sequence[Any]) -> Learner:
    before = _newest(args.before) if args.train_command == "grpo" else None
    if args.model != MINI:
        from models.training.policy.audio_llm_learner import load_learner

        return load_learner(args.model, tools, args.rows, before)
    import numpy as np
    import torch
    from tokenizers import Tokenizer

    from models.export_llama import TOKENIZER_FILE
    from models.mini_prompt import Reading
    from models.policy_smollm2 import MODEL_NAME
    from models.store import Store
    from models.training.policy.mini_learner import MiniLearner, MiniSettings, fitting_dtype, load_base

    store = Store()
    base = "smollm2-135m-instruct-gguf"
    torch.manual_seed(args.seed)
    network = load_base(store.path(base), fitting_dtype())
    tokenizer = Tokenizer.from_file(str(store.file(MODEL_NAME, TOKENIZER_FILE)))
    settings = MiniSettings(reading=Reading(args.reading), fusion=args.states is not None)
    states = {} if args.states is None else dict(np.load(args.states, allow_pickle=False))
    return MiniLearner(network, tokenizer, tools, settings, states, base, before)


def _examples(learner: Learner, path: Path) -> list[Example]:
    from models.training.policy.rows import read_rows

    return [learner.example(row) for row in read_rows(path)]


def _given(settings: Any, args: argparse.Namespace) -> Any:
    """The settings with the flags of the same name in them."""
    flags = {item.name: getattr(args, item.name) for item in fields(settings) if hasattr(args, item.name)}
    return replace(settings, **flags)


def _facts(args: argparse.Namespace) -> dict[str, str]:
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
    from models.mini_adapter import ADAPTER_FILE, join_adapters, read_adapter, write_adapter

    newest = _newest(args.run)
    adapter = read_adapter(newest)
    if args.before is not None:
        adapter = join_adapters(read_adapter(_newest(args.before)), adapter)
    write_adapter(args.to, adapter)
    size = (args.to / ADAPTER_FILE).stat().st_size
    print(f"{newest} is in {args.to} ({size / 1e6:.1f} MB); build it with: voicegate models pull voxgate-mini-onnx")
    return int(ExitCode.OK)
