"""The scene around the words of a row: who says them, from where, after what, and how they were written down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

from gate import grammar
from gate.actions import Action
from gate.correction import correct
from gate.evidence import DistanceVerdict, SpeakerVerdict, Word
from gate.span import Span
from models.protocols import MASK_MARK
from models.training.policy.lines import Material
from models.training.policy.mixture_recipe import FAR, NEAR, OTHER, OWNER, WEARER, Recipe, Source
from models.training.policy.noise import EVERY_NOISE, Token, Tokens, noisy, text_of, tokens_of
from models.training.policy.rows import Row, RowSegment

MARK = Token(MASK_MARK)
_WORD_SAMPLES = 4_800
_MOST_CONTEXT = 4
"""As many segments as the live loop keeps."""
_LONG_GAP = 0.1
"""Share of the gaps that are longer than five seconds."""
_MASKED_CONTEXT = 0.04
_OWN, _OTHERS, _QUESTIONS, _COMMANDS = "own", "others", "questions", "commands"
_CONTEXT_WEIGHTS = {_OWN: 4.5, _OTHERS: 3.0, _QUESTIONS: 1.5, _COMMANDS: 1.0}

_T = TypeVar("_T")


def words_of(tokens: Sequence[Token]) -> tuple[Word, ...]:
    """The words as the gate reads them, each certain; the span tells which one it is (``index_of``)."""
    return tuple(
        Word(token.text, Span(at * _WORD_SAMPLES, (at + 1) * _WORD_SAMPLES), 1.0) for at, token in enumerate(tokens)
    )


def index_of(word: Word) -> int:
    """Which of the tokens given to ``words_of`` a word was."""
    return word.span.start_sample // _WORD_SAMPLES


def as_read(tokens: Tokens) -> Tokens:
    """The words after certain self-corrections, as the live loop hands them to a policy."""
    return tuple(Token(word.text, tokens[index_of(word)].part) for word in correct(words_of(tokens)).words)


def masked(tokens: Tokens, start: int, end: int) -> Tokens:
    """The words with one mark in the place of some."""
    return (*tokens[:start], MARK, *tokens[end:])


@dataclass(frozen=True, slots=True)
class Heard:
    """What a row is about, without its scene.

    Attributes:
        kind: the row's.
        origin: where the words come from: "lines", "scripts" or "real".
        target: what is right.
        tokens: the words.
        answers: accepted answers.
    """

    kind: str
    origin: str
    target: Action
    tokens: Tokens
    answers: tuple[str, ...] = ()


@dataclass
class Scene:
    """Makes the rows of one split.

    Attributes:
        split: the split.
        recipe: the proportions.
        seed: of all chance. Each kind of row draws by itself, so that one kind does not change with another.
        surroundings: what may have been said before, by kind.
    """

    split: str
    recipe: Recipe
    seed: int
    surroundings: Mapping[str, Sequence[str]]
    _numbers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, split: str, material: Material, recipe: Recipe, seed: int) -> Scene:
        """A scene whose contexts come from the split's own lines."""
        talk = {kind: [line.text for line in material.talk if line.kind == kind] for kind in _kinds(material)}
        return cls(
            split, recipe, seed,
            {
                _OWN: [*talk.get("small_talk", ()), *talk.get("self_talk", ()), *talk.get("side_talk", ())],
                _OTHERS: [*talk.get("side_talk", ()), *talk.get("others", ()), *talk.get("others_talk", ())],
                _QUESTIONS: [line.text for line in material.questions],
                _COMMANDS: [line.text for line in material.commands],
            },
        )  # fmt: skip

    def rng(self, kind: str) -> Random:
        """The chance of one kind of row."""
        return Random(f"{self.seed}/{self.split}/{kind}")

    def drawn(self, lines: Sequence[_T], kind: str, rng: Random) -> Iterator[_T]:
        """As many lines as the recipe wants for a kind, each once before any comes again."""
        wanted = min(self.recipe.rows.get(kind, 0), len(lines) * self.recipe.most_repeats)
        while wanted > 0:
            for line in rng.sample(lines, min(wanted, len(lines))):
                wanted -= 1
                yield line

    def words(self, text: str, rng: Random) -> Tokens:
        """A text that holds no arguments, as it may have been written down."""
        tokens = tokens_of(text)
        if rng.random() < self.recipe.noise:
            tokens = noisy(tokens, rng, EVERY_NOISE)
        return tokens if rng.random() < self.recipe.as_heard else as_read(tokens)

    def row(
        self,
        heard: Heard,
        rng: Random,
        source: Source = WEARER,
        *,
        context: tuple[RowSegment, ...] | None = None,
        pair: str | None = None,
    ) -> Row:
        """A spoken row.

        Args:
            heard: the words and what is right.
            rng: draws.
            source: who says them.
            context: what was said before; None to draw it.
            pair: the row's.
        """
        if context is None:
            context = self.context(rng) if rng.random() < self.recipe.context else ()
        source = self.unsure(source, rng)
        gap_s = source.gap_s if source.gap_s is not None else self.gap_s(rng, bool(context))
        segment = RowSegment(text_of(heard.tokens), source.speaker, source.distance, gap_s)
        return Row(
            self.name(heard), self.split, heard.kind, grammar.render(heard.target), segment, context, pair=pair,
            answers=heard.answers,
        )  # fmt: skip

    def typed(self, heard: Heard, rng: Random) -> Row:
        """A typed row; nothing is measured of it."""
        context = self.context(rng) if rng.random() < self.recipe.context / 2 else ()
        return Row(
            self.name(heard), self.split, heard.kind, grammar.render(heard.target),
            RowSegment(text_of(heard.tokens)), context, typed=True, answers=heard.answers,
        )  # fmt: skip

    def name(self, heard: Heard) -> str:
        """An id that says split, kind and origin."""
        key = f"{self.split}.{heard.kind}.{heard.origin}"
        self._numbers[key] = self._numbers.get(key, 0) + 1
        return f"{key}.{self._numbers[key]:05d}"

    def unsure(self, source: Source, rng: Random) -> Source:
        """The source with an ear that is now and then unsure, where the gate decides alike either way.

        One of owner and near may be missing, not both; what is refused for one reason is refused without the other.
        """
        if rng.random() >= self.recipe.unsure:
            return source
        allowed: list[Source] = []
        if source.speaker is OTHER or (source.speaker is OWNER and source.distance is NEAR):
            allowed.append(replace(source, distance=DistanceVerdict.UNSURE))
        if source.distance is NEAR and source.speaker is OWNER:
            allowed.append(replace(source, speaker=SpeakerVerdict.UNSURE))
        if source.distance is FAR and any(one.speaker is OWNER for one in self.recipe.strangers):
            allowed.append(replace(source, speaker=SpeakerVerdict.UNSURE))
        return rng.choice(allowed) if allowed else source

    def stranger(self, rng: Random) -> Source:
        """Somebody whose words do not count."""
        return rng.choice(self.recipe.strangers)

    def gap_s(self, rng: Random, follows: bool) -> float:
        """Silence before the words, in seconds; none at the beginning of a session."""
        if not follows and rng.random() < 0.5:
            return 0.0
        longest = 60.0 if rng.random() < _LONG_GAP else 5.0
        return round(rng.uniform(0.0, longest), 2)

    def context(self, rng: Random, opening: str | None = None) -> tuple[RowSegment, ...]:
        """One to four earlier segments.

        Args:
            rng: draws.
            opening: what the owner says first, near by; None when it may be anybody; empty to draw it.
        """
        count = rng.choice((1, 1, 2, 2, 3, _MOST_CONTEXT))
        out: list[RowSegment] = []
        if opening is not None:
            own = opening or rng.choice(self.surroundings[_OWN] or ("Good morning.",))
            out.append(RowSegment(text_of(self.words(own, rng)), OWNER, NEAR, 0.0))
            count = rng.choice((1, 1, 1, 2, 3, _MOST_CONTEXT))
        kinds = [kind for kind in _CONTEXT_WEIGHTS if self.surroundings.get(kind)]
        while kinds and len(out) < count:
            (kind,) = rng.choices(kinds, [_CONTEXT_WEIGHTS[kind] for kind in kinds])
            source = rng.choice((Source(OTHER, NEAR), Source(OTHER, FAR))) if kind == _OTHERS else WEARER
            source = self.unsure(source, rng)
            tokens = self.words(rng.choice(self.surroundings[kind]), rng)
            if len(tokens) > 3 and rng.random() < _MASKED_CONTEXT:
                start = rng.randrange(len(tokens) - 1)
                tokens = masked(tokens, start, start + rng.randint(1, 2))
            gap_s = self.gap_s(rng, bool(out))
            out.append(RowSegment(text_of(tokens), source.speaker, source.distance, gap_s))
        return tuple(out)


def _kinds(material: Material) -> list[str]:
    return sorted({line.kind for line in material.talk})
