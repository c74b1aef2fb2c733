"""Rows to train a policy with: ``python -m bench.training_rows --out DIR``.

Joins the project's lines (``models/training/data``), the benchmark's scripts and, for training only, a folder of real
text, and writes ``train.jsonl``, ``dev.jsonl`` and ``test.jsonl`` with a census. A script of the benchmark goes into
the rows of its own split, never into another, and what is nearly the same as a held-out text is not trained on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.build.ear_scripts import EarScripts, load_ear_scripts
from bench.build.scripts import CATALOGUE, DirectScript, Scripts, SideTalkScript, load_scripts
from bench.build.scripts_similarity import CharNgrams
from gate.catalogue import ToolCall
from models.training.policy.census import Census, census, report, to_json
from models.training.policy.lines import (
    DATA,
    SPLITS,
    Asked,
    BothLine,
    CommandLine,
    Material,
    QuestionLine,
    TalkLine,
    ToldLine,
    read_lines,
)
from models.training.policy.mixture import Mixture, build
from models.training.policy.mixture_overlap import HeldOut
from models.training.policy.mixture_recipe import PRESETS, SHIPPED, Recipe
from models.training.policy.mixture_texts import read_texts
from models.training.policy.rows import Row, write_rows

SEED = 1
ORIGIN = "scripts"
_COMPARED = 6000
"""As many texts of train a group is compared with at most."""


@dataclass(frozen=True, slots=True)
class Built:
    """A mixture on disk.

    Attributes:
        mixtures: by split.
        censuses: likewise.
        too_near: lines that were not trained on because a held-out text says nearly the same.
        similarity: how near the texts of dev and test are to those of train.
    """

    mixtures: Mapping[str, Mixture]
    censuses: Mapping[str, Census]
    too_near: int
    similarity: tuple[Nearest, ...]


@dataclass(frozen=True, slots=True)
class Nearest:
    """How alike held-out texts and their nearest neighbours in train are.

    Attributes:
        split: the held-out split.
        kinds: which rows.
        texts: how many distinct texts.
        median, high, most: similarity, 0 to 1: median, 95 % and the largest.
    """

    split: str
    kinds: str
    texts: int
    median: float
    high: float
    most: float


def material_of(split: str, scripts: Scripts, ear: EarScripts) -> Material:
    """The scripts of one split, as lines."""
    switch = [script for script in scripts.speaker_switch if script.split == split]
    direct = [script for script in scripts.direct if script.split == split]
    return Material(
        talk=(
            *(TalkLine(script.context, "small_talk", ORIGIN) for script in switch),
            *(TalkLine(script.text, "self_talk", ORIGIN) for script in scripts.self_talk if script.split == split),
        ),
        commands=(
            *(
                CommandLine(script.command, (ToolCall(script.tool, script.params),), script.context, ORIGIN)
                for script in switch
            ),
            *(line for script in direct if isinstance(line := _meant(script, script.text), CommandLine)),
        ),
        questions=tuple(line for script in direct if isinstance(line := _meant(script, script.text), QuestionLine)),
        both=tuple(
            BothLine(_meant(side, side.assistant), side.bystander, side.utterances[0][0] == "assistant")
            for side in scripts.side_talk
            if side.split == split
        ),
        told=tuple(_told(split, ear)),
    )  # fmt: skip


def build_all(
    out: Path, recipe: Recipe = SHIPPED, *, lines: Path = DATA, texts: Path | None = None, seed: int = SEED
) -> Built:
    """Write the rows of all splits, and ``census.json`` beside them.

    Args:
        out: folder for the files; made if it is not there.
        recipe: the proportions.
        lines: folder of the project's lines.
        texts: folder of real text, used for train alone.
        seed: of all chance.

    Raises:
        BadLineError: when a line is wrong.
        ScriptError, EarScriptError: when a script is.
        OSError: when a file cannot be read or written.
    """
    scripts, ear = load_scripts(), load_ear_scripts()
    material = {split: read_lines(split, lines).plus(material_of(split, scripts, ear)) for split in SPLITS}
    if texts is not None:
        material["train"] = material["train"].plus(read_texts(texts, seed))
    held_out = HeldOut(text for split in SPLITS if split != "train" for text in material[split].texts())
    material["train"], too_near = material["train"].without(held_out.is_near)
    tools = CATALOGUE.all()
    mixtures = {split: build(split, material[split], recipe, tools, seed) for split in SPLITS}
    out.mkdir(parents=True, exist_ok=True)
    for split, mixture in mixtures.items():
        write_rows(out / f"{split}.jsonl", mixture.rows)
    censuses = {split: census(split, mixture.rows) for split, mixture in mixtures.items()}
    (out / "census.json").write_text(to_json(censuses.values()), encoding="utf-8")
    return Built(mixtures, censuses, too_near, tuple(_similarity(mixtures)))


def _meant(script: DirectScript | SideTalkScript, text: str) -> CommandLine | QuestionLine:
    if script.tool is not None and script.params is not None:
        return CommandLine(text, (ToolCall(script.tool, script.params),), "", ORIGIN)
    assert script.answers is not None, script.id
    answer = script.answers[0]
    return QuestionLine(text, f"{answer[0].upper()}{answer[1:]}.", script.answers, ORIGIN)


def _told(split: str, ear: EarScripts) -> Iterator[ToldLine]:
    of_split = ear.of([split])
    for kind, scripts in (("dialogue", of_split.dialogues), ("passage", of_split.passages)):
        for script in scripts:
            turns = tuple((turn.speaker, turn.text) for turn in script.utterances())
            asked = (Asked(script.question, script.answers[0], script.answers),)
            yield ToldLine(turns, asked, kind, ORIGIN)


# How near the held-out texts are ------------------------------------------------------------------------------------

_GROUPS = {
    "commands": ("switch_tool", "command", "typed"),
    "questions": ("question", "typed_question"),
    "talk": ("self_talk", "side_talk", "quoted_commands", "small_talk", "injection"),
    "told": ("dialogue", "passage"),
}
"""Kinds that are compared with each other, without masks: "Text [?]" is the same whoever was to be texted."""


def _similarity(mixtures: Mapping[str, Mixture]) -> Iterator[Nearest]:
    for name, kinds in _GROUPS.items():
        known = _texts(mixtures["train"].rows, kinds)[:_COMPARED]
        for split in SPLITS[1:]:
            found = nearest(split, name, _texts(mixtures[split].rows, kinds), known)
            if found is not None:
                yield found


def nearest(split: str, kinds: str, held_out: Sequence[str], known: Sequence[str]) -> Nearest | None:
    """Similarity of each held-out text to the known text that is most like it, by spelling; None without texts."""
    if not held_out or not known:
        return None
    vectors = CharNgrams().vectors([*held_out, *known])
    best = (vectors[: len(held_out)] @ vectors[len(held_out) :].T).max(axis=1)
    median, high, most = (float(value) for value in np.quantile(best, (0.5, 0.95, 1.0)))
    return Nearest(split, kinds, len(held_out), median, high, most)


def _texts(rows: Sequence[Row], kinds: Sequence[str]) -> list[str]:
    told = [
        " ".join([*(segment.words for segment in row.context), row.segment.words])
        if row.question
        else row.segment.words
        for row in rows
        if row.kind in kinds
    ]
    return list(dict.fromkeys(told))


# The command --------------------------------------------------------------------------------------------------------


def summary(built: Built) -> str:
    """All that is printed: the censuses, what was left out, and the similarities."""
    lines = [report(found) + "\n" for found in built.censuses.values()]
    lines += [f"Not trained on, as held-out texts say nearly the same: {built.too_near} lines.", ""]
    lines += ["| split | arguments in no word | answers unsaid | repeated rows | contradicted rows |"]
    lines += ["| --- | ---: | ---: | ---: | ---: |"]
    lines += [
        f"| {split} | {one.untied} | {one.unsaid} | {one.repeated} | {one.contradicted} |"
        for split, one in built.mixtures.items()
    ]
    lines += [
        "",
        "| nearest in train, by spelling | texts | median | 95 % | most |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {one.split}, {one.kinds} | {one.texts} | {one.median:.2f} | {one.high:.2f} | {one.most:.2f} |"
        for one in built.similarity
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Build, write and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.training_rows", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the rows")
    parser.add_argument("--texts", type=Path, metavar="DIR", help="folder of real text, for training alone")
    parser.add_argument("--lines", type=Path, default=DATA, metavar="DIR", help="folder of the project's lines")
    parser.add_argument(
        "--preset", choices=sorted(PRESETS), default=SHIPPED.name, help="proportions (default: shipped)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of all proportions (default 1)")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of all chance (default {SEED})")
    args = parser.parse_args(argv)
    recipe = scaled(PRESETS[args.preset], args.scale)
    built = build_all(args.out, recipe, lines=args.lines, texts=args.texts, seed=args.seed)
    print(summary(built))
    return 0


def scaled(recipe: Recipe, factor: float) -> Recipe:
    """A recipe for a smaller or larger mixture."""
    rows = {kind: round(count * factor) for kind, count in recipe.rows.items()}
    return replace(recipe, switch_groups=round(recipe.switch_groups * factor), rows=rows)


if __name__ == "__main__":
    sys.exit(main())
