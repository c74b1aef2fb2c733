"""Rows of what is not for the assistant: thinking aloud, talk between people, quoted commands, injections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from gate.actions import AnswerAction, MuteAction, ToolAction
from gate.catalogue import ToolFacts
from gate.evidence import SpeakerVerdict
from models.training.policy.lines import BothLine, CommandLine, Material, TalkLine
from models.training.policy.mixture_command_rows import heard
from models.training.policy.mixture_commands import tie
from models.training.policy.mixture_recipe import FAR, NEAR, OTHER, WEARER, Source
from models.training.policy.mixture_scene import Heard, Scene
from models.training.policy.noise import Tokens
from models.training.policy.rows import Row, RowSegment

BY_OTHERS = {
    "self_talk": 0.05, "side_talk": 0.25, "quoted_commands": 0.15, "small_talk": 0.1, "others_request": 1.0,
    "others_talk": 1.0, "own_talk": 0.0,
}  # fmt: skip
"""Kinds of talk, and which share of each is said by somebody else, or from afar."""
_LINES_OF = {"others_request": "others"}
"""Kinds of rows whose lines have another name."""
_TURN_GAP_S = (0.5, 1.1)
"""Silence between the two parts when one voice turns from one addressee to the other (VGBench's own)."""


def talk_rows(scene: Scene, material: Material) -> Iterator[Row]:
    """Talk that is right to leave alone, and injections."""
    for kind, share in BY_OTHERS.items():
        lines = [line for line in material.talk if line.kind == _LINES_OF.get(kind, kind)]
        rng = scene.rng(kind)
        for line in scene.drawn(lines, kind, rng):
            source = scene.stranger(rng) if rng.random() < share else WEARER
            yield scene.row(Heard(kind, line.origin, MuteAction(), scene.words(line.text, rng)), rng, source)
    rng = scene.rng("injection")
    for line in scene.drawn(material.injections, "injection", rng):
        source = WEARER if line.kind == "wearer_reading" else _intruder(rng)
        yield scene.row(_muted("injection", line, scene.words(line.text, rng)), rng, source)


def both_rows(scene: Scene, lines: Sequence[BothLine], tools: Sequence[ToolFacts]) -> Iterator[Row]:
    """One voice, two addressees: both parts in one turn, or one part a turn, with the other before it."""
    rng = scene.rng("side_talk_both")
    for line in scene.drawn(lines, "side_talk_both", rng):
        other = scene.words(line.bystander, rng)
        said = _meant(
            scene, line, tools, rng, () if line.assistant_first else other, other if line.assistant_first else ()
        )
        if said is not None:
            yield scene.row(replace(said, kind="side_talk_both"), rng)
    rng = scene.rng("side_talk_assistant")
    for line in scene.drawn(lines, "side_talk_assistant", rng):
        said = _meant(scene, line, tools, rng)
        before = () if line.assistant_first else _before(scene, line.bystander, rng)
        if said is not None:
            yield scene.row(replace(said, kind="side_talk_assistant"), rng, _after(before, rng), context=before)
    rng = scene.rng("side_talk_bystander")
    for line in scene.drawn(lines, "side_talk_bystander", rng):
        before = _before(scene, line.meant.text, rng) if line.assistant_first else ()
        tokens = scene.words(line.bystander, rng)
        bystanders = Heard("side_talk_bystander", line.meant.origin, MuteAction(), tokens)
        yield scene.row(bystanders, rng, _after(before, rng), context=before)


def _muted(kind: str, line: TalkLine, tokens: Tokens) -> Heard:
    return Heard(kind, line.origin, MuteAction(), tokens)


def _intruder(rng: Random) -> Source:
    """Somebody else or a loudspeaker; the ears are not always sure that it is nobody they know."""
    speaker = OTHER if rng.random() < 0.75 else SpeakerVerdict.UNSURE
    return Source(speaker, rng.choice((NEAR, FAR)))


def _meant(
    scene: Scene, line: BothLine, tools: Sequence[ToolFacts], rng: Random, before: Tokens = (), after: Tokens = ()
) -> Heard | None:
    """The assistant's part among other words, with what is right; None when the words do not carry its call."""
    if not isinstance(line.meant, CommandLine):
        tokens = (*before, *scene.words(line.meant.text, rng), *after)
        return Heard("", line.meant.origin, AnswerAction(line.meant.answer), tokens, line.meant.accepted)
    command = tie(line.meant, tools)
    if command is None:
        return None
    said = heard(scene, command, rng)
    said_among = said.reworded((*before, *said.tokens, *after))
    return None if said_among is None else Heard("", line.meant.origin, ToolAction(said_among.call), said_among.tokens)


def _before(scene: Scene, text: str, rng: Random) -> tuple[RowSegment, ...]:
    """The other part, said just before, with now and then something before it."""
    words = " ".join(token.text for token in scene.words(text, rng))
    earlier = scene.context(rng)[:2] if rng.random() < scene.recipe.context / 2 else ()
    return (*earlier, RowSegment(words, WEARER.speaker, WEARER.distance, scene.gap_s(rng, bool(earlier))))


def _after(before: Sequence[RowSegment], rng: Random) -> Source:
    return Source(gap_s=round(rng.uniform(*_TURN_GAP_S), 2)) if before else WEARER
