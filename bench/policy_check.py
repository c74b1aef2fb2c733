"""What a policy makes of words that it has not seen: ``python -m bench.policy_check``.

The held-out part of the benchmark's scripts (``bench.build.scripts``) is put to the policy alone, as if all of it had
been heard right and said by the owner, near by: no ears, no gate. So it shows how far the policy by itself tells what
is meant for the assistant. What it gets wrong, the gate can only catch by asking for an argument or for a "yes": talk
in the owner's own voice that is proposed as a call is the costliest mistake.

Nothing may be tuned on these figures; thresholds and prompts are chosen on the part ``dev``.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent.settings import Settings
from bench.build.scripts import CATALOGUE, Expected, Scripts, Split, load_scripts
from bench.stats import proportion_interval
from gate import grammar
from gate.actions import ActionKind, AnswerAction, MuteAction, PardonAction, ToolAction
from gate.evidence import DistanceVerdict, SpeakerVerdict, Word
from gate.grounding import normal_form
from gate.span import SAMPLE_RATE_HZ, Span
from models.components import load_policy
from models.protocols import HeardSegment, Policy, PolicyInput
from models.store import Store

_WORD_SAMPLES = SAMPLE_RATE_HZ // 3
SEED = 5
"""Of the intervals' resampling."""


class Kind(StrEnum):
    """Who the words are for."""

    COMMAND = "commands"
    QUESTION = "questions"
    SMALL_TALK = "small talk"
    """To nobody in particular, and naming no tool."""
    SELF_TALK = "self-talk"
    """Monologues, most of them with words that name a tool."""
    SIDE_TALK = "side-talk"
    """To somebody else in the room; half of it names a tool."""


@dataclass(frozen=True, slots=True)
class Item:
    """One utterance.

    Attributes:
        id: the script's, with the part of it that is said.
        family: its family; items of one family are not independent.
        kind: who it is for.
        text: the words.
        expected: the right action.
    """

    id: str
    family: str
    kind: Kind
    text: str
    expected: Expected


@dataclass(frozen=True, slots=True)
class Result:
    """What a policy wrote about an item.

    Attributes:
        item: the item.
        text: all that it wrote.
        action: the kind of action, or "unparseable", which is none of the four.
        is_right: the right kind of action; of a command, also the right tool.
        is_exact: besides, every argument as the script has it, or an accepted answer. Talk has nothing more to it.
    """

    item: Item
    text: str
    action: str
    is_right: bool
    is_exact: bool


def items(scripts: Scripts, split: Split) -> Iterator[Item]:
    """The utterances of one part of the scripts."""
    mute = Expected(ActionKind.MUTE)
    for switch in scripts.speaker_switch:
        if switch.split is split:
            yield Item(f"{switch.id}/command", switch.family, Kind.COMMAND, switch.command, switch.expected)
            yield Item(f"{switch.id}/context", switch.family, Kind.SMALL_TALK, switch.context, mute)
    for direct in scripts.direct:
        if direct.split is split:
            kind = Kind.QUESTION if direct.tool is None else Kind.COMMAND
            yield Item(direct.id, direct.family, kind, direct.text, direct.expected)
    for side in scripts.side_talk:
        if side.split is split:
            kind = Kind.QUESTION if side.tool is None else Kind.COMMAND
            yield Item(f"{side.id}/assistant", side.family, kind, side.assistant, side.expected)
            yield Item(f"{side.id}/bystander", side.family, Kind.SIDE_TALK, side.bystander, mute)
    for monologue in scripts.self_talk:
        if monologue.split is split:
            yield Item(monologue.id, monologue.family, Kind.SELF_TALK, monologue.text, mute)


def heard(item: Item) -> PolicyInput:
    """The item as the policy is given it: every word certain, the owner speaking, near."""
    words = tuple(
        Word(text, Span(number * _WORD_SAMPLES, (number + 1) * _WORD_SAMPLES), 1.0)
        for number, text in enumerate(item.text.split())
    )
    segment = HeardSegment(words, SpeakerVerdict.OWNER, DistanceVerdict.NEAR)
    return PolicyInput(item.id, segment, (), CATALOGUE.all())


def judge(item: Item, text: str) -> Result:
    """Hold what was written against the right action."""
    written = grammar.parse(text)
    match written:
        case MuteAction():
            right = exact = item.expected.action is ActionKind.MUTE
            return Result(item, text, "mute", right, exact)
        case AnswerAction():
            right = item.expected.action is ActionKind.ANSWER
            said = written.text.casefold()
            exact = right and any(answer.casefold() in said for answer in item.expected.answers or ())
            return Result(item, text, "answer", right, exact)
        case PardonAction():
            return Result(item, text, "pardon", False, False)
        case ToolAction():
            wanted = item.expected.call
            right = wanted is not None and written.call.name == wanted.name
            exact = right and wanted is not None and same_arguments(dict(written.call.params), dict(wanted.params))
            return Result(item, text, "tool", right, exact)
    return Result(item, text, "unparseable", False, False)


def same_arguments(written: dict[str, object], wanted: dict[str, object]) -> bool:
    """Whether arguments say the same, whatever their case, articles and punctuation."""
    if written.keys() != wanted.keys():
        return False
    return all(
        normal_form(value) == normal_form(other)
        if isinstance(value, str) and isinstance(other, str)
        else value == other
        for value, other in ((written[name], wanted[name]) for name in wanted)
    )


def ask(policy: Policy, asked: Sequence[Item], *, progress: bool = False) -> list[Result]:
    """Put every item to the policy, each by itself. What it raises is an error of the policy and is not caught."""
    policy.prepare(CATALOGUE.all())
    results = []
    for number, item in enumerate(asked, 1):
        results.append(judge(item, policy.propose(heard(item)).text))
        if progress and (number % 50 == 0 or number == len(asked)):
            print(f"{number} of {len(asked)} utterances", file=sys.stderr, flush=True)
    return results


def report(results: Sequence[Result]) -> list[str]:
    """The figures as a table in Markdown; intervals are of 95 % and resample families (``bench.stats``)."""
    lines = [
        "| said near by, by the owner | n | families | right | 95 % | to the letter | mute | tool | answer | pardon |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind in Kind:
        found = [result for result in results if result.item.kind is kind]
        if not found:
            continue
        families = [result.item.family for result in found]
        right, exact = (sum(flags) for flags in zip(*((r.is_right, r.is_exact) for r in found), strict=True))
        low, high = proportion_interval(families, [float(result.is_right) for result in found], seed=SEED)
        wrote = Counter(result.action for result in found)
        cells = [
            kind.value, str(len(found)), str(len(set(families))), f"{right} ({right / len(found):.0%})",
            f"{low:.0%} to {high:.0%}", f"{exact} ({exact / len(found):.0%})" if kind in _HAVE_CONTENT else "",
            *(str(wrote[action]) for action in ("mute", "tool", "answer", "pardon")),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    unparseable = sum(result.action == "unparseable" for result in results)
    return lines if not unparseable else [*lines, "", f"Outside the grammar: {unparseable}."]


_HAVE_CONTENT = (Kind.COMMAND, Kind.QUESTION)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.policy_check", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--policy", default=Settings().models.policy, help="which (see models/components.py)")
    parser.add_argument("--split", type=Split, choices=list(Split), default=Split.TEST, help="part of the scripts")
    parser.add_argument("--threads", type=int, default=2, help="threads (default 2)")
    parser.add_argument("--wrong", action="store_true", help="also list what it got wrong")
    args = parser.parse_args(argv)
    policy = load_policy(args.policy, Store(), args.threads)
    results = ask(policy, list(items(load_scripts(), args.split)), progress=True)
    print(f"{policy.model.name} ({policy.model.sha256[:12]}), scripts: {args.split}\n")
    print("\n".join(report(results)))
    if args.wrong:
        for result in results:
            if not result.is_right:
                print(f"\n{result.item.kind}, {result.item.id}: {result.item.text}\n    {result.text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
