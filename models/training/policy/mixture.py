"""The training mixture of a policy: rows of all kinds from lines of all kinds, the same bytes every time.

The kinds and proportions start from those of VGBench's training (*Do Audio LLMs Listen Before They Act?*, section 5.1
and appendix H): commands with their counterfactual sources, typed commands, side-talk, self-talk, answers, abstentions.
Added is what it lacks: masks and repair, answers to the owner alone, noise as recognisers make it, earlier talk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gate.catalogue import ToolFacts
from models.training.policy.lines import Material
from models.training.policy.mixture_command_rows import CommandRows, unfit_rows
from models.training.policy.mixture_questions import question_rows, request_rows
from models.training.policy.mixture_recipe import Recipe
from models.training.policy.mixture_scene import Scene
from models.training.policy.mixture_talk import both_rows, talk_rows
from models.training.policy.mixture_told import told_rows, unsaid
from models.training.policy.rows import Row


@dataclass(frozen=True, slots=True)
class Mixture:
    """The rows of one split, and what did not become a row.

    Attributes:
        rows: shuffled.
        untied: commands of which an argument is in none of their words.
        unsaid: questions about something told whose answer nobody says.
        repeated: rows that said the same as another; only counterfactual groups may hold such.
        contradicted: rows that were left out because another row says the same and is to be treated otherwise.
    """

    rows: tuple[Row, ...]
    untied: int
    unsaid: int
    repeated: int
    contradicted: int


def build(split: str, material: Material, recipe: Recipe, tools: Sequence[ToolFacts], seed: int) -> Mixture:
    """Make the rows of one split.

    Args:
        split: ``train``, ``dev`` or ``test``; the last two get a quarter of the recipe's rows.
        material: the split's own lines, and nothing of another split.
        recipe: the proportions.
        tools: the tools' facts.
        seed: of all chance.

    Returns:
        The rows. The same arguments give the same rows in the same order.
    """
    if split != "train":
        recipe = recipe.held_out()
    scene = Scene.of(split, material, recipe, seed)
    commands = CommandRows(scene, material.commands, tools)
    rows = [
        *commands.rows(),
        *unfit_rows(scene, material.two_commands, material.incomplete),
        *question_rows(scene, material.questions),
        *request_rows(scene, material.requests),
        *talk_rows(scene, material),
        *both_rows(scene, material.both, tools),
        *told_rows(scene, material.told),
    ]
    kept = list(_once(rows))
    sound = list(_agreeing(kept))
    scene.rng("order").shuffle(sound)
    return Mixture(
        tuple(sound), commands.untied, unsaid(material.told), len(rows) - len(kept), len(kept) - len(sound)
    )  # fmt: skip


def _once(rows: Sequence[Row]) -> Iterator[Row]:
    seen: set[Row] = set()
    for row in rows:
        alike = replace(row, id="", kind="", pair=None)
        # What is said from two places may read the same once an ear is unsure; the group keeps its proportion.
        if row.pair is not None or alike not in seen:
            seen.add(alike)
            yield row


def _agreeing(rows: Sequence[Row]) -> Iterator[Row]:
    """Without the later of two rows that are the same to a policy, but for their targets."""
    targets: dict[tuple[object, ...], str] = {}
    for row in rows:
        read = (row.segment, row.context, row.question, row.typed)
        if targets.setdefault(read, row.target) == row.target:
            yield row
