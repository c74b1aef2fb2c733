"""Rows of questions about something told: answered, or asked back when the answer went under (*Pardon?*, section 3.2).

Each question is put to the words as they are, to the words without the answer, and to the words without something
else. Only where nothing that is left says the answer is asking back right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from gate import grammar
from gate.actions import Action, AnswerAction, PardonAction
from gate.evidence import DistanceVerdict, SpeakerVerdict
from gate.spoken import SpokenToken
from gate.spoken import tokens as spoken_tokens
from models.training.policy.lines import Asked, ToldLine
from models.training.policy.mixture_asking import missed
from models.training.policy.mixture_questions import FUNCTION_WORDS
from models.training.policy.mixture_recipe import NEAR, OTHER, OWNER
from models.training.policy.mixture_scene import MARK, Heard, Scene, masked
from models.training.policy.noise import Tokens, bare, fillers, plain, text_of, tokens_of
from models.training.policy.rows import Row, RowSegment

_CLEAR_WORDS = 2
"""A mask elsewhere stays this many words away from the answer."""
_SWAPPED = 0.2
"""Share of the dialogues in which the first voice is not the owner's."""
_UNSURE = 0.04
"""Share of the turns whose voice is unsure."""

Turns = tuple[tuple[str, Tokens], ...]


@dataclass(frozen=True, slots=True)
class Item:
    """One question about one text.

    Attributes:
        line: the text.
        asked: the question.
    """

    line: ToldLine
    asked: Asked

    @property
    def wanted(self) -> tuple[str, ...]:
        """All that counts as the answer."""
        return tuple(dict.fromkeys((self.asked.answer, *self.asked.accepted)))


def told_rows(scene: Scene, lines: Sequence[ToldLine]) -> Iterator[Row]:
    """Every question as answered, asked back, and answered in spite of a mask."""
    items = [Item(line, asked) for line in lines for asked in line.asked]
    fit = [item for item in items if places(_turns(item.line), item.wanted)]
    for kind, change in (("told", _whole), ("told_masked", _without_answer), ("told_masked_elsewhere", _without_other)):
        rng = scene.rng(kind)
        for item in scene.drawn(fit, kind, rng):
            changed = change(_noisy(scene, _turns(item.line), rng), item, rng)
            if changed is not None:
                turns, target = changed
                yield _row(scene, item, kind.replace("told", item.line.kind), turns, target, rng)


def unsaid(items: Sequence[ToldLine]) -> int:
    """How many questions have an answer that nobody says."""
    return sum(not places(_turns(line), Item(line, asked).wanted) for line in items for asked in line.asked)


def places(turns: Turns, wanted: Sequence[str]) -> list[tuple[int, range]]:
    """Where any of the accepted answers is said: turn and words; an answer within a longer one is not listed."""
    found: list[tuple[int, range]] = []
    for number, (_, tokens) in enumerate(turns):
        said = _spoken(tuple(token.text for token in tokens))
        runs = {run for answer in wanted for run in _runs(said, answer)}
        found += [
            (number, run) for run in sorted(runs, key=lambda run: (run.start, run.stop)) if not _within(run, runs)
        ]
    return found


def _within(run: range, runs: set[range]) -> bool:
    return any(run != other and other.start <= run.start and run.stop <= other.stop for other in runs)


@lru_cache(maxsize=65536)
def _spoken(words: tuple[str, ...]) -> tuple[SpokenToken, ...]:
    return spoken_tokens(words)


def _runs(said: Sequence[SpokenToken], answer: str) -> Iterator[range]:
    wanted = [token.text for token in _spoken(tuple(answer.split()))]
    while len(wanted) > 1 and wanted[0] in ("a", "an", "the"):
        wanted = wanted[1:]
    texts = [token.text for token in said]
    for start in range(len(said) - len(wanted) + 1):
        if wanted and texts[start : start + len(wanted)] == wanted:
            yield range(said[start].first, said[start + len(wanted) - 1].last + 1)


def _whole(turns: Turns, item: Item, rng: Random) -> tuple[Turns, Action] | None:
    return turns, AnswerAction(_written(item.asked.answer))


def _without_answer(turns: Turns, item: Item, rng: Random) -> tuple[Turns, Action] | None:
    found = places(turns, item.wanted)
    for number, run in reversed(found):
        speaker, tokens = turns[number]
        start, end = run.start, run.stop
        if rng.random() < 0.4:
            start, end = max(0, start - rng.randint(0, 2)), min(len(tokens), end + rng.randint(0, 2))
        turns = _with(turns, number, (speaker, masked(tokens, start, end)))
    return None if not found or places(turns, item.wanted) else (turns, PardonAction(missed(item.asked.question)))


def _without_other(turns: Turns, item: Item, rng: Random) -> tuple[Turns, Action] | None:
    found = places(turns, item.wanted)
    near = {number for number, _ in found}
    taken = {
        (number, at)
        for number, run in found
        for at in range(run.start - _CLEAR_WORDS, run.stop + _CLEAR_WORDS)
    }  # fmt: skip
    words = [
        (number, at, 1)
        for number, (_, tokens) in enumerate(turns)
        for at, token in enumerate(tokens)
        if bare(token) in FUNCTION_WORDS and (number, at) not in taken
    ]
    stretches = [
        (number, at, rng.randint(1, 3))
        for number, (_, tokens) in enumerate(turns)
        for at in range(len(tokens) - 3)
        # What stands right before the answer may be what tells what it answers.
        if not near & {number, number + 1}
    ]
    drawn = stretches if stretches and rng.random() < 0.35 else words
    if not drawn:
        return None
    number, at, length = rng.choice(drawn)
    speaker, tokens = turns[number]
    turns = _with(turns, number, (speaker, masked(tokens, at, at + length)))
    return _whole(turns, item, rng) if places(turns, item.wanted) else None


def _row(scene: Scene, item: Item, kind: str, turns: Turns, target: Action, rng: Random) -> Row:
    first, second = (OTHER, OWNER) if item.line.kind == "dialogue" and rng.random() < _SWAPPED else (OWNER, OTHER)
    segments: list[RowSegment] = []
    for speaker, tokens in turns if item.line.kind == "dialogue" else _breaths(turns, rng):
        voice = first if speaker == "A" else second
        # The first voice is the first speaker: unsure of it, the question would speak of somebody else.
        if segments and rng.random() < _UNSURE:
            voice = SpeakerVerdict.UNSURE
        gap_s = round(rng.uniform(0.1, 1.5), 2) if segments else 0.0
        distance = NEAR if rng.random() < 0.9 else DistanceVerdict.UNSURE
        segments.append(RowSegment(text_of(_one_mark(tokens)), voice, distance, gap_s))
    heard = Heard(kind, item.line.origin, target, ())
    answers = item.asked.accepted if isinstance(target, AnswerAction) else ()
    return Row(
        scene.name(heard), scene.split, kind, grammar.render(target), segments[-1], tuple(segments[:-1]),
        question=item.asked.question, answers=answers,
    )  # fmt: skip


def _breaths(turns: Turns, rng: Random) -> Turns:
    """The sentences of a passage as they come between two pauses: one to four at a time."""
    out: list[tuple[str, Tokens]] = []
    left = list(turns)
    while left:
        count = rng.randint(1, 4)
        out.append((left[0][0], tuple(token for _, tokens in left[:count] for token in tokens)))
        left = left[count:]
    return tuple(out)


def _one_mark(tokens: Tokens) -> Tokens:
    """With one mark where two stand side by side."""
    return tuple(token for at, token in enumerate(tokens) if not at or token != MARK or tokens[at - 1] != MARK)


def _turns(line: ToldLine) -> Turns:
    return tuple((speaker, tokens_of(words)) for speaker, words in line.turns)


def _noisy(scene: Scene, turns: Turns, rng: Random) -> Turns:
    if rng.random() >= scene.recipe.noise:
        return turns
    if rng.random() < 0.6:
        style = rng.getrandbits(32)  # one recogniser writes one way from the first word to the last
        return tuple((speaker, plain(tokens, Random(style)) or tokens) for speaker, tokens in turns)
    return tuple(
        (speaker, (fillers(tokens, rng) or tokens) if rng.random() < 0.4 else tokens) for speaker, tokens in turns
    )


def _with(turns: Turns, number: int, turn: tuple[str, Tokens]) -> Turns:
    return (*turns[:number], turn, *turns[number + 1 :])


def _written(answer: str) -> str:
    """An answer as a sentence of its own."""
    text = answer.strip()
    text = text if text.endswith((".", "!", "?")) else f"{text}."
    return text[0].upper() + text[1:]
