"""Rows of commands: as meant, by others and from afar, typed, with words masked or left out, two at a time, cut off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from gate.actions import Action, MuteAction, PardonAction, ToolAction
from gate.catalogue import ParamKind, ToolFacts
from models.training.policy.lines import CommandLine, TalkLine
from models.training.policy.mixture_commands import Command, tie
from models.training.policy.mixture_masks import leave_out, mask_argument, mask_elsewhere
from models.training.policy.mixture_scene import Heard, Scene, as_read
from models.training.policy.noise import EVERY_NOISE, Tokens, hailed, noisy, plain, self_correction, text_of
from models.training.policy.rows import Row

ONE_THING = PardonAction("One thing at a time, please.")
NOT_THE_REST = PardonAction("I did not catch the rest.")

Change = Callable[[Command, Random], tuple[Tokens, Action] | None]
CHANGES: Mapping[str, Change] = {
    "masked_argument": mask_argument,
    "masked_elsewhere": mask_elsewhere,
    "missing_argument": leave_out,
}


def heard(scene: Scene, command: Command, rng: Random, slips: Mapping[str, Sequence[str]] | None = None) -> Command:
    """A command as it may have been said and written down, with the call as the words carry it then.

    Args:
        scene: with the recipe.
        command: as it is in its line.
        rng: draws.
        slips: what may be said by mistake first, by argument.
    """
    recipe = scene.recipe
    if slips and rng.random() < recipe.corrected:
        corrected = self_correction(slips)(command.tokens, rng)
        command = (corrected and command.reworded(corrected)) or command
    if rng.random() < recipe.hailed:
        command = command.reworded(hailed(command.tokens, rng)) or command
    if rng.random() < recipe.noise:
        kept = command
        tokens = noisy(kept.tokens, rng, EVERY_NOISE, lambda tokens: kept.reworded(tokens) is not None)
        command = kept.reworded(tokens) or kept
    if rng.random() >= recipe.as_heard:
        command = command.reworded(as_read(command.tokens)) or command
    return command


class CommandRows:
    """All rows that are made of commands with one call.

    Args:
        scene: of the split.
        lines: the commands.
        tools: the tools' facts.
    """

    def __init__(self, scene: Scene, lines: Sequence[CommandLine], tools: Sequence[ToolFacts]) -> None:
        self._scene = scene
        tied = [tie(line, tools) for line in lines]
        self._commands = [command for command in tied if command is not None]
        self.untied = len(tied) - len(self._commands)
        """How many lines have an argument that none of their words says."""
        self._values = _values(self._commands)

    def rows(self) -> Iterator[Row]:
        """Every row of every kind."""
        yield from self._switch()
        yield from self._meant()
        yield from self._typed()
        for kind in CHANGES:
            yield from self._changed(kind)

    def heard(self, command: Command, rng: Random) -> Command:
        """A command as it may have been said and written down."""
        return heard(self._scene, command, rng, self._values[command.tool.name])

    def _switch(self) -> Iterator[Row]:
        """Each command once from a source for which it is right, and several times from others; one context for all."""
        scene, recipe = self._scene, self._scene.recipe
        rng = scene.rng("switch")
        tool_sources, mute_sources = recipe.tool_sources, recipe.mute_sources
        chosen = rng.sample(self._commands, min(recipe.switch_groups, len(self._commands)))
        for number, command in enumerate(chosen):
            context = scene.context(rng, opening=command.line.opening)
            pair = f"{scene.split}.pair.{number:05d}"
            said = self.heard(command, rng)
            heard = Heard("switch_tool", command.line.origin, ToolAction(said.call), said.tokens)
            yield scene.row(heard, rng, tool_sources[number % len(tool_sources)], context=context, pair=pair)
            for at in range(recipe.mutes):
                if at >= len(mute_sources):
                    # The same source again: at least its words are written down otherwise.
                    said = self.heard(command, rng)
                source = mute_sources[(number * recipe.mutes + at) % len(mute_sources)]
                heard = Heard("switch_mute", command.line.origin, MuteAction(), said.tokens)
                yield scene.row(heard, rng, source, context=context, pair=pair)

    def _meant(self) -> Iterator[Row]:
        rng = self._scene.rng("command")
        for command in self._scene.drawn(self._commands, "command", rng):
            said = self.heard(command, rng)
            yield self._scene.row(Heard("command", command.line.origin, ToolAction(said.call), said.tokens), rng)

    def _typed(self) -> Iterator[Row]:
        rng = self._scene.rng("typed")
        for command in self._scene.drawn(self._commands, "typed", rng):
            lower = plain(command.tokens, rng) if rng.random() < self._scene.recipe.noise / 2 else None
            said = (lower and command.reworded(lower)) or command
            yield self._scene.typed(Heard("typed", command.line.origin, ToolAction(said.call), said.tokens), rng)

    def _changed(self, kind: str) -> Iterator[Row]:
        """Rows of commands of which not all was heard or said, from as many commands as it takes."""
        scene = self._scene
        rng = scene.rng(kind)
        wanted = scene.recipe.rows.get(kind, 0)
        for _ in range(scene.recipe.most_repeats):
            for command in rng.sample(self._commands, len(self._commands)):
                if wanted == 0:
                    return
                changed = CHANGES[kind](self.heard(command, rng), rng)
                if changed is not None:
                    wanted -= 1
                    tokens, target = changed
                    yield scene.row(Heard(kind, command.line.origin, target, tokens), rng)


def unfit_rows(scene: Scene, two: Sequence[CommandLine], incomplete: Sequence[TalkLine]) -> Iterator[Row]:
    """Rows of what is meant and cannot be done as it stands: two things in one breath, and what breaks off."""
    rng = scene.rng("two_commands")
    for line in scene.drawn(two, "two_commands", rng):
        yield scene.row(Heard("two_commands", line.origin, ONE_THING, scene.words(line.text, rng)), rng)
    rng = scene.rng("incomplete")
    for cut in scene.drawn(incomplete, "incomplete", rng):
        yield scene.row(Heard("incomplete", cut.origin, NOT_THE_REST, scene.words(cut.text, rng)), rng)


def _values(commands: Sequence[Command]) -> dict[str, dict[str, list[str]]]:
    """How each argument of each tool is said in all commands: what may be said by mistake."""
    out: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for command in commands:
        for name in command.call.params:
            run = command.run(name)
            # What is corrected is short; nobody takes a whole message back.
            if run and len(run) <= 4 and command.param(name).kind is not ParamKind.CHOICE:
                out[command.tool.name][name].append(text_of(command.tokens[run.start : run.stop]))
    return out
