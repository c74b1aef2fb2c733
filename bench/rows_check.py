"""What a policy writes for rows that it was not trained on: ``python -m bench.rows_check ROWS --policy NAME``.

The policy alone, given the words and the ears' verdicts of each row, without gate. Beside the kind of action this
scores what the papers leave unscored: whether every argument of the right tool is right, to the letter and normalised,
and whether a repair asks for what is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.settings import Settings
from bench.build.answers import heard
from bench.policy_check import same_arguments
from bench.stats import proportion_interval
from gate import grammar
from gate.actions import Action, AnswerAction, PardonAction, ToolAction, Unparseable
from models.components import load_policy
from models.protocols import Policy
from models.store import Store
from models.training.policy.rows import Row, read_rows
from tools.catalogue import ToolCatalogue

SEED = 5


@dataclass(frozen=True, slots=True)
class Scored:
    """What was written for a row.

    Attributes:
        row: the row.
        text: all that was written.
        is_right: the right kind of action; of a call, also the right tool.
        arguments_exact: of a right tool, whether every argument is as the row has it; None otherwise.
        arguments_same: the same, whatever case, articles and punctuation.
        content: whether an answer is an accepted one, or a repair asks what the row asks; None for the rest.
    """

    row: Row
    text: str
    is_right: bool
    arguments_exact: bool | None = None
    arguments_same: bool | None = None
    content: bool | None = None


def score(row: Row, text: str) -> Scored:
    """Hold what was written against the row's target."""
    written, wanted = grammar.parse(text), grammar.parse(row.target)
    assert not isinstance(wanted, Unparseable), "rows are checked when they are read"
    if not _same_kind(written, wanted):
        return Scored(row, text, False)
    match written, wanted:
        case ToolAction(call), ToolAction(target):
            if call.name != target.name:
                return Scored(row, text, False)
            exact = dict(call.params) == dict(target.params)
            return Scored(row, text, True, exact, same_arguments(dict(call.params), dict(target.params)))
        case AnswerAction(said), AnswerAction():
            return Scored(row, text, True, content=heard(said.split(), row.answers) if row.answers else None)
        case PardonAction(question), PardonAction(asked):
            return Scored(row, text, True, content=question.casefold() == asked.casefold())
    return Scored(row, text, True)


def _same_kind(written: Action | Unparseable, wanted: Action) -> bool:
    return type(written) is type(wanted)


def ask(policy: Policy, rows: Sequence[Row]) -> list[Scored]:
    """Put every row to the policy."""
    tools = ToolCatalogue.builtin().all()
    policy.prepare(tools)
    out = []
    for number, row in enumerate(rows, 1):
        out.append(score(row, policy.propose(row.turn(tools)).text))
        if number % 100 == 0 or number == len(rows):
            print(f"{number} of {len(rows)} rows", file=sys.stderr, flush=True)
    return out


def report(found: Sequence[Scored]) -> list[str]:
    """A table by kind of row; intervals resample words, which several rows may share under other sources."""
    by_kind: dict[str, list[Scored]] = defaultdict(list)
    for item in found:
        by_kind[item.row.kind].append(item)
    lines = [
        "| kind | n | right | 95 % | arguments to the letter | normalised | answer or question right |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for kind, items in sorted(by_kind.items()):
        texts = [item.row.segment.words for item in items]
        low, high = proportion_interval(texts, [float(item.is_right) for item in items], seed=SEED)
        right = sum(item.is_right for item in items) / len(items)
        cells = [kind, str(len(items)), f"{right:.1%}", f"{low:.1%} to {high:.1%}"]
        for values in zip(*((i.arguments_exact, i.arguments_same, i.content) for i in items), strict=True):
            known = [value for value in values if value is not None]
            cells.append(f"{sum(known) / len(known):.1%} of {len(known)}" if known else "")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.rows_check", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("rows", type=Path, help="a file of rows (python -m bench.training_rows)")
    parser.add_argument("--policy", default=Settings().models.policy, help="which (see models/components.py)")
    parser.add_argument("--limit", type=int, help="every so manieth row, this many in all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--wrong", action="store_true", help="also list what it got wrong")
    args = parser.parse_args(argv)
    rows = list(read_rows(args.rows))
    if args.limit:
        rows = rows[:: max(1, len(rows) // args.limit)][: args.limit]
    policy = load_policy(args.policy, Store(), args.threads)
    found = ask(policy, rows)
    print(f"{policy.model.name} ({policy.model.sha256[:12]}), {args.rows.name}\n")
    print("\n".join(report(found)))
    if args.wrong:
        for item in found:
            if not item.is_right or item.arguments_same is False:
                row = item.row
                print(f"\n{row.kind}, {row.id}: {row.segment.words}\n    {item.text}\n    {row.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
