"""Rows of questions to the assistant, and of requests that it cannot serve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from gate import spoken
from gate.actions import AnswerAction, MuteAction, PardonAction
from models.training.policy.lines import QuestionLine, RequestLine
from models.training.policy.mixture_scene import MARK, Heard, Scene, as_read, masked
from models.training.policy.noise import EVERY_NOISE, Token, Tokens, bare, hailed, noisy, tokens_of, word_set
from models.training.policy.rows import Row

CANNOT = {
    "do": "Sorry, I cannot do that.",
    "look_up": "Sorry, I cannot look that up.",
    "play": "Sorry, I cannot play that.",
    "know": "Sorry, I do not know that.",
}
"""What is answered to what no tool does, no service is there for, no player plays, and nobody here knows."""

FUNCTION_WORDS = word_set("""
    a an the is are was were am be been do does did can could would will shall should may might have has had of to in on
    at for by with from i you we they he she it me us my your our their his her its this that these those some any one
    please so and or as than there here just hey okay ok assistant computer
    """)
"""Words that a question can lose and still be understood."""
QUESTION_WORDS = word_set("what who whom whose which where when why how what's who's where's when's how's")
_TURNING = word_set("not no never without before after under over between versus or and than")
"""Words without which a question asks something else."""
_DETERMINERS = word_set("a an the my your our his her their this that these those")
_PREPOSITIONS = word_set("with in on at by for from to like under over about into than")
_WEAK = word_set("""
    actually really roughly exactly anyway right now today please again just ever even still properly usually always
    called mean please then though instead normally officially
    """)
"""Words that are content, and can be missed."""
_LONGEST_ECHO = 9
_SHORTEST, _LONGEST = 4, 14


def question_rows(scene: Scene, questions: Sequence[QuestionLine]) -> Iterator[Row]:
    """Questions asked by the owner, typed, asked by others, and with words masked."""
    rng = scene.rng("question")
    for line in scene.drawn(questions, "question", rng):
        yield scene.row(_answered("question", line, _asked(scene, line.text, rng)), rng)
    rng = scene.rng("typed_question")
    for line in scene.drawn(questions, "typed_question", rng):
        yield scene.typed(_answered("typed_question", line, tokens_of(line.text)), rng)
    rng = scene.rng("question_other")
    for line in scene.drawn(questions, "question_other", rng):
        heard = Heard("question_other", line.origin, MuteAction(), _asked(scene, line.text, rng))
        yield scene.row(heard, rng, scene.stranger(rng))
    fit = [
        line for line in questions if _SHORTEST <= len(line.text.split()) <= _LONGEST and _is_one_sentence(line.text)
    ]
    rng = scene.rng("masked_question")
    for line in scene.drawn(fit, "masked_question", rng):
        tokens, echo = mask_key_word(scene.words(line.text, rng), rng)
        if echo:
            yield scene.row(Heard("masked_question", line.origin, PardonAction(echo), tokens), rng)
    rng = scene.rng("question_masked_elsewhere")
    for line in scene.drawn(fit, "question_masked_elsewhere", rng):
        still = mask_function_word(scene.words(line.text, rng), rng)
        if still is not None:
            yield scene.row(_answered("question_masked_elsewhere", line, still), rng)


def request_rows(scene: Scene, requests: Sequence[RequestLine]) -> Iterator[Row]:
    """Requests by the owner that can only be turned down."""
    rng = scene.rng("cannot")
    for line in scene.drawn(requests, "cannot", rng):
        tokens = _asked(scene, line.text, rng)
        yield scene.row(Heard("cannot", line.origin, AnswerAction(CANNOT[line.reply]), tokens), rng)


def mask_key_word(tokens: Tokens, rng: Random) -> tuple[Tokens, str]:
    """Cover the word that a question is about.

    Returns:
        The words, and the question that asks for it, with "what" in its place; empty when there is no such word.
    """
    names = [
        index for index, token in enumerate(tokens) if index and token.text[:1].isupper() and _is_content(tokens, index)
    ]
    content = [index for index in range(1, len(tokens)) if _is_content(tokens, index)]
    if not content:
        return tokens, ""
    at = rng.choice(names) if names and rng.random() < 0.4 else content[-1]
    start = at
    while start > 1 and start in names and start - 1 in names and tokens[start - 1].text[-1].isalnum():
        start -= 1  # a name of several words goes as a whole
    return masked(tokens, start, at + 1), _echo(tokens, start, at + 1)


def mask_function_word(tokens: Tokens, rng: Random) -> Tokens | None:
    """Cover a word that a question does not need; None when it has none."""
    spare = [
        index
        for index, token in enumerate(tokens)
        if index and bare(token) in FUNCTION_WORDS - _TURNING and token.text[-1].isalnum()
    ]
    if not spare:
        return None
    at = rng.choice(spare)
    return masked(tokens, at, at + 1)


def _echo(tokens: Tokens, start: int, end: int) -> str:
    """The question once more, with "what" for what is covered; less of it where less is enough."""
    before = _fluent(tokens[_clause_start(tokens, start) : start])
    after = _fluent(tokens[end:])
    if not before or "what" in (before[-1].lower(), *(word.lower() for word in after[:1])):
        return ""
    if not after:
        before = _last_phrase(before)
    elif len(before) + len(after) >= _LONGEST_ECHO:
        before, after = before[-3:], []
    if before[-1] == "an":
        before = [*before[:-1], "a"]
    text = " ".join([*before, "what", *after]).rstrip(".,;:!? ")
    return f"{text[0].upper()}{text[1:]}?"


def _last_phrase(words: list[str]) -> list[str]:
    """What to say before "what?" of the words before it: "the capital of", "with the", or all that was asked."""
    if words[-1].lower() == "of":
        first = max(
            (at for at, word in enumerate(words) if word.lower() in _DETERMINERS), default=max(0, len(words) - 2)
        )
        return words[first:]
    if words[-1].lower() in _DETERMINERS:
        return words[-2:] if len(words) > 2 and words[-2].lower() in _PREPOSITIONS else words[-1:]
    if len(words) < _LONGEST_ECHO:
        return words
    return words[-1:] if words[-1].lower() in _PREPOSITIONS else words[-2:]


def _fluent(tokens: Tokens) -> list[str]:
    """The words without sounds of thinking, and without a word said twice on end."""
    words = [token.text.strip('"()') for token in tokens if bare(token) not in spoken.FILLERS]
    return [word for at, word in enumerate(words) if not at or bare(Token(word)) != bare(Token(words[at - 1]))]


def _clause_start(tokens: Tokens, at: int) -> int:
    """Where the clause of a word begins: after the last comma, or after what calls the assistant."""
    start = at
    while start > 0 and tokens[start - 1].text[-1] not in ",.!?;:":
        start -= 1
    return start


def _is_content(tokens: Tokens, at: int) -> bool:
    word = bare(tokens[at])
    return tokens[at] != MARK and len(word) > 2 and word not in FUNCTION_WORDS | QUESTION_WORDS | _TURNING | _WEAK


def _is_one_sentence(text: str) -> bool:
    return text.endswith("?") and not any(mark in text[:-1] for mark in ".?!;")


def _answered(kind: str, line: QuestionLine, tokens: Tokens) -> Heard:
    return Heard(kind, line.origin, AnswerAction(line.answer), tokens, line.accepted)


def _asked(scene: Scene, text: str, rng: Random) -> Tokens:
    tokens = tokens_of(text)
    if rng.random() < scene.recipe.hailed:
        tokens = hailed(tokens, rng)
    if rng.random() < scene.recipe.noise:
        tokens = noisy(tokens, rng, EVERY_NOISE)
    return tokens if rng.random() < scene.recipe.as_heard else as_read(tokens)
