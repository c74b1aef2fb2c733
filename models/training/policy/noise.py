"""What recognisers and speakers do to words, so that the policy does not only know clean sentences.

Each kind of noise takes words and a source of chance, and returns the words as they would have been written down, or
None where it has nothing to act on. Words carry the name of the argument that they belong to: when a recogniser
mishears a name, the call has to hold the name as it was heard, because nothing else was heard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType
from typing import Final

from gate import spoken


@dataclass(frozen=True, slots=True)
class Token:
    """One word as written.

    Attributes:
        text: with its punctuation.
        part: the argument that it belongs to, or empty.
    """

    text: str
    part: str = ""


Tokens = tuple[Token, ...]
Noise = Callable[[Tokens, Random], Tokens | None]

EDGES: Final = "\"'.,!?;:()…‘’“”–—-"  # noqa: RUF001 - typographic marks are what is stripped
"""Marks that are no part of a word when they stand at its ends."""
_PUNCTUATION: Final = ".,!?;:"


def word_set(words: str) -> frozenset[str]:
    """Words that are listed with spaces or line breaks between them."""
    return frozenset(words.split())


def tokens_of(text: str) -> Tokens:
    """The words of a text, none belonging to an argument."""
    return tuple(map(Token, text.split()))


def text_of(tokens: Sequence[Token]) -> str:
    """The words as one text."""
    return " ".join(token.text for token in tokens)


def bare(token: Token) -> str:
    """The word in lower case, without punctuation at its ends."""
    return token.text.strip(EDGES).lower()


# What recognisers do ------------------------------------------------------------------------------------------------


def plain(tokens: Tokens, rng: Random) -> Tokens | None:
    """Without punctuation, in lower case, or both: as many recognisers write."""
    drops, lowers = rng.choice(((True, True), (True, True), (True, True), (True, False), (False, True)))
    out = []
    for token in tokens:
        text = re.sub(r"\b([ap])\.m\b\.?", r"\1m", token.text) if drops else token.text
        text = text.strip(_PUNCTUATION + '"()') if drops else text
        text = text.lower() if lowers else text
        if text.strip(EDGES):
            out.append(replace(token, text=text))
    return _changed(tokens, tuple(out))


_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SIGNS = {"dollars": "$", "euros": "€", "pounds": "£"}
_NO_DIGITS = frozenset({"one", "a", "an", "dozen", "half", "quarter", "second", "first", "oh", "and", "point"})
"""Number words that recognisers leave as words, or that are seldom numbers."""


def number_words(number: int) -> str:
    """A number as it is said ("two hundred and fifty").

    Raises:
        ValueError: below 0 or from a million.
    """
    if not 0 <= number < 1_000_000:
        raise ValueError(f"{number} is not spelled out")
    if number < 20:
        return _ONES[number]
    if number < 100:
        rest = number % 10
        return _TENS[number // 10] + (f"-{_ONES[rest]}" if rest else "")
    size, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    head, rest = divmod(number, size)
    joint = " and " if rest and rest < 100 else " "
    return f"{number_words(head)} {name}" + (f"{joint}{number_words(rest)}" if rest else "")


def numbers(tokens: Tokens, rng: Random) -> Tokens | None:
    """Numbers in digits where they were in words, and the other way round."""
    found = [token for token in spoken.tokens([token.text for token in tokens]) if token.number]
    out = list(tokens)
    # From the end, so that the places before stay what they are.
    for number in reversed(found):
        run = out[number.first : number.last + 1]
        if len({token.part for token in run}) > 1 or any(not token.text for token in run):
            continue
        if any(char.isdigit() for token in run for char in token.text):
            written = _in_words(run)
        else:
            written = _in_digits(number, run, rng)
        if written is None:
            continue
        end = number.last + 1
        sign = _SIGNS.get(bare(out[end])) if end < len(out) and run[-1].text[-1] not in _PUNCTUATION else None
        last = run[-1]
        if sign and written[:1].isdigit() and out[end].part in ("", last.part) and rng.random() < 0.5:
            written, last = f"{sign}{written}", out[end]
            end += 1
        words = f"{written}{_ending(last.text)}".split()
        out[number.first : end] = [Token(word, run[0].part) for word in words]
    return _changed(tokens, tuple(out))


def _in_digits(number: spoken.SpokenToken, run: Sequence[Token], rng: Random) -> str | None:
    words = {part for token in run for part in bare(token).split("-")}
    if words <= _NO_DIGITS or words & {"dozen", "half", "quarter", "point", "second", "first"}:
        return None
    if number.value is not None and number.value % 1 == 0:
        value = int(number.value)
        return f"{value:,}" if value >= 10_000 or (value >= 1000 and rng.random() < 0.5) else str(value)
    # "six thirty" has no one value, and is written as a time.
    return number.text if re.fullmatch(r"\d{1,2}:[0-5]\d|\d{1,2}(st|nd|rd|th)", number.text) else None


def _in_words(run: Sequence[Token]) -> str | None:
    if len(run) != 1:
        return None
    text = run[0].text.strip(EDGES)
    if time := re.fullmatch(r"(\d{1,2}):([0-5]\d)", text):
        hour, minute = map(int, time.groups())
        if minute == 0:
            return f"{number_words(hour)} o'clock"
        return f"{number_words(hour)} {'oh ' if minute < 10 else ''}{number_words(minute)}"
    text = text.replace(",", "")
    return number_words(int(text)) if text.isdecimal() and text[0] != "0" and len(text) <= 6 else None


_ALIKE_SETS = """
    to two too; for four fore; there their they're; your you're; by buy bye; here hear; right write; whether weather;
    our hour; then than; its it's; wait weight; male mail; son sun; ate eight; one won; be bee; sea see; meet meat;
    week weak; where wear; new knew; would wood; piece peace; sale sail; flower flour; hole whole; break brake;
    road rode; cell sell; cent sent scent; dear deer; die dye; fair fare; feet feat; hair hare; heel heal; led lead;
    made maid; pair pear; plain plane; poor pour; rain reign; sight site; some sum; stair stare; steal steel;
    tail tale; threw through; tide tied; toe tow; waist waste; way weigh; which witch; role roll; bored board;
    in and; a the; at that; this the; on in; an and; of off; can could; text texts; send sent; call called; door doors;
    light lights; cab cap; ride right; order older; lock look; lamp lamb; pay play; mum mom; gran grand; bus boss;
    need knead; them him; him them; want won't; when went; will we'll; hall whole; gate great; pick big; tell till;
    tickets ticket; bill built; fan van; heating eating; blinds blind; photo photos; message messages; dinner diner;
    kettle cattle; share chair; close clothes; radio ratio; garage carriage; tea tee; desk disk; ask asked; ten tin;
    seven eleven; fifteen fifty; thirteen thirty; fourteen forty; sixteen sixty; seventeen seventy
"""
_ALIKE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        word: tuple(other for other in group.split() if other != word)
        for group in _ALIKE_SETS.split(";")
        for word in group.split()
    }
)


def alike(tokens: Tokens, rng: Random) -> Tokens | None:
    """One word heard as another that sounds the same, or nearly."""
    places = [index for index, token in enumerate(tokens) if bare(token) in _ALIKE]
    if not places:
        return None
    at = rng.choice(places)
    heard = rng.choice(_ALIKE[bare(tokens[at])])
    return _with(tokens, at, _reworded(tokens[at], heard))


_SHORT: Final = frozenset(
    {"a", "an", "the", "to", "of", "in", "on", "at", "is", "it", "my", "me", "and", "that", "i", "can", "you", "please"}
)


def short_words(tokens: Tokens, rng: Random) -> Tokens | None:
    """One short word dropped, or written twice."""
    places = [index for index, token in enumerate(tokens) if bare(token) in _SHORT]
    if not places or len(tokens) < 3:
        return None
    at = rng.choice(places)
    if rng.random() < 0.6:
        kept = list(tokens[:at]) + list(tokens[at + 1 :])
        if ending := _ending(tokens[at].text):
            if at == 0 or kept[at - 1].text[-1] in _PUNCTUATION:
                return None
            kept[at - 1] = replace(kept[at - 1], text=kept[at - 1].text + ending)
        if at == 0:
            kept[0] = replace(kept[0], text=kept[0].text[:1].upper() + kept[0].text[1:])
        return tuple(kept)
    if _inside(tokens, at):
        return None  # an argument that says a word twice is not what was meant
    return (*tokens[:at], Token(tokens[at].text.strip(EDGES)), _lowered(tokens[at]), *tokens[at + 1 :])


_APART: Final = {
    "tomorrow": "to morrow", "weekend": "week end", "everyone": "every one", "everybody": "every body",
    "someone": "some one", "anyone": "any one", "bedroom": "bed room", "bathroom": "bath room", "upstairs": "up stairs",
    "downstairs": "down stairs", "birthday": "birth day", "haircut": "hair cut", "outside": "out side",
    "maybe": "may be", "into": "in to", "voicemail": "voice mail", "headphones": "head phones", "doorbell": "door bell",
    "notebook": "note book", "landlord": "land lord", "airport": "air port", "grandma": "grand ma",
    "grandpa": "grand pa", "sometimes": "some times", "daughter's": "daughters", "toothpaste": "tooth paste",
    "football": "foot ball", "midnight": "mid night", "goodbye": "good bye", "screenshots": "screen shots",
    "playlist": "play list", "cardboard": "card board", "backyard": "back yard", "sunday": "sun day",
    "lunchtime": "lunch time", "keyboard": "key board", "anything": "any thing", "something": "some thing",
    "everything": "every thing", "myself": "my self", "inside": "in side", "cannot": "can not",
}  # fmt: skip
_TOGETHER: Final = {
    ("living", "room"): "livingroom", ("ice", "cream"): "icecream", ("all", "right"): "alright", ("a", "lot"): "alot",
    ("every", "day"): "everyday", ("back", "door"): "backdoor", ("front", "door"): "frontdoor",
    ("any", "more"): "anymore", ("bus", "stop"): "busstop",
    ("post", "office"): "postoffice", ("thank", "you"): "thankyou", ("want", "to"): "wanna",
    ("going", "to"): "gonna", ("got", "to"): "gotta", ("give", "me"): "gimme",
    ("let", "me"): "lemme", ("text", "message"): "textmessage", ("some", "time"): "sometime", ("may", "be"): "maybe",
    ("garage", "door"): "garagedoor", ("washing", "machine"): "washingmachine", ("out", "of"): "outta",
    ("coffee", "machine"): "coffeemachine", ("dining", "room"): "diningroom", ("bath", "room"): "bathroom",
}  # fmt: skip


def joins(tokens: Tokens, rng: Random) -> Tokens | None:
    """One word written as two, or two as one."""
    apart = [(index, index + 1) for index, token in enumerate(tokens) if bare(token) in _APART]
    together = [
        (index, index + 2)
        for index in range(len(tokens) - 1)
        if (bare(tokens[index]), bare(tokens[index + 1])) in _TOGETHER
        and tokens[index].part == tokens[index + 1].part
        and tokens[index].text[-1] not in _PUNCTUATION
    ]
    if not apart + together:
        return None
    start, end = rng.choice(apart + together)
    run = tokens[start:end]
    written = _APART[bare(run[0])] if len(run) == 1 else _TOGETHER[bare(run[0]), bare(run[1])]
    first, *rest = written.split()
    texts = [_cased(first, run[0].text), *rest]
    texts[-1] += _ending(run[-1].text)
    return (*tokens[:start], *(Token(text, run[0].part) for text in texts), *tokens[end:])


# What speakers do ---------------------------------------------------------------------------------------------------

_FILLERS: Final = ("uh", "um", "er", "uh", "um", "erm", "hmm", "you know", "like")


def fillers(tokens: Tokens, rng: Random) -> Tokens | None:
    """One or two sounds of thinking, never within an argument."""
    out = tokens
    for _ in range(1 if rng.random() < 0.7 else 2):
        places = [index for index in range(len(out)) if not _inside(out, index)]
        at = rng.choice(places)
        before = out[:at]
        if before and before[-1].text[-1] not in _PUNCTUATION:
            before = (*before[:-1], replace(before[-1], text=f"{before[-1].text},"))
        words = f"{rng.choice(_FILLERS)},".split()
        opens = at == 0 or before[-1].text[-1] in ".!?"
        if opens:
            words[0] = words[0].capitalize()
        after = (_lowered(out[at]), *out[at + 1 :]) if opens else out[at:]
        out = (*before, *map(Token, words), *after)
    return out


def restart(tokens: Tokens, rng: Random) -> Tokens | None:
    """One to three words said, dropped, and said again ("Text, uh, text Priya")."""
    starts = [index for index in range(len(tokens) - 1) if not _inside(tokens, index)]
    if not starts:
        return None
    start = 0 if rng.random() < 0.5 and 0 in starts else rng.choice(starts)
    end = min(len(tokens) - 1, start + rng.randint(1, 3))
    while end > start and (tokens[end - 1].text[-1] in _PUNCTUATION or not bare(tokens[end - 1])):
        end -= 1
    if end == start:
        return None
    said = [Token(token.text) for token in tokens[start:end]]
    said[-1] = Token(f"{said[-1].text},")
    between = (Token(f"{rng.choice(_FILLERS[:5])},"),) if rng.random() < 0.5 else ()
    return (*tokens[:start], *said, *between, _lowered(tokens[start]), *tokens[start + 1 :])


_TAKING_BACK: Final = ("no,", "no wait,", "sorry,", "I mean,", "no, sorry,", "actually,", "wait, no,", "or rather,")
_BEFORE_VALUES: Final = frozenset({"at", "on", "to", "for", "in", "by", "until", "with", "from"})


def self_correction(alternatives: Mapping[str, Sequence[str]]) -> Noise:
    """An argument said wrongly first, and put right in the same breath: "at six, no wait, at seven".

    Args:
        alternatives: what may be said first, by argument.
    """

    def corrected(tokens: Tokens, rng: Random) -> Tokens | None:
        parts = sorted({token.part for token in tokens if alternatives.get(token.part)})
        if not parts:
            return None
        part = rng.choice(parts)
        start = next(index for index, token in enumerate(tokens) if token.part == part)
        right = [bare(token) for token in tokens if token.part == part]
        # Of like length, as what is mixed up is: a time for a time, a name for a name.
        likely = [other for other in alternatives[part] if abs(len(other.split()) - len(right)) <= 1]
        wrong = [other for other in likely if bare(Token(other)) != " ".join(right)]
        if not wrong:
            return None
        lead = tokens[start - 1 : start] if start and bare(tokens[start - 1]) in _BEFORE_VALUES else ()
        again = lead if rng.random() < 0.7 else ()
        said = rng.choice(wrong).strip(EDGES)
        return (
            *tokens[:start],
            *map(Token, f"{said}, {rng.choice(_TAKING_BACK)}".split()),
            *(Token(token.text.lower()) for token in again),
            *tokens[start:],
        )

    return corrected


_NAMES: Final = ("computer", "assistant", "voicegate", "assistant", "computer")
_GREETINGS: Final = ("hey", "okay", "ok", "hi", "hello", "")


def hailed(tokens: Tokens, rng: Random) -> Tokens:
    """The assistant called by a name first ("Hey computer, …"): only for what is meant for it."""
    call = f"{rng.choice(_GREETINGS)} {rng.choice(_NAMES)}".strip()
    call = call[0].upper() + call[1:]
    if rng.random() < 0.7:
        return (*map(Token, f"{call},".split()), _lowered(tokens[0]), *tokens[1:])
    return (*map(Token, f"{call}.".split()), *tokens)


EVERY_NOISE: Final[Mapping[str, tuple[float, Noise]]] = MappingProxyType(
    {
        "plain": (4.0, plain),
        "numbers": (2.0, numbers),
        "alike": (1.5, alike),
        "short_words": (1.5, short_words),
        "joins": (1.0, joins),
        "fillers": (2.0, fillers),
        "restart": (1.5, restart),
    }
)
"""What may happen to any words: by name, how often, and what."""


def noisy(
    tokens: Tokens,
    rng: Random,
    kinds: Mapping[str, tuple[float, Noise]],
    is_fit: Callable[[Tokens], bool] = lambda tokens: True,
) -> Tokens:
    """One kind of noise, seldom two, drawn by their weights.

    Args:
        tokens: the words.
        rng: draws.
        kinds: what may be drawn.
        is_fit: whether words can stay like that; noise that they cannot is not applied.
    """
    names = list(kinds)
    for _ in range(1 if rng.random() < 0.7 else 2):
        (name,) = rng.choices(names, [kinds[name][0] for name in names])
        changed = kinds[name][1](tokens, rng)
        if changed and is_fit(changed):
            tokens = changed
    return tokens


def _inside(tokens: Tokens, at: int) -> bool:
    """Whether a word goes on with the argument of the word before it."""
    return at > 0 and bool(tokens[at].part) and tokens[at].part == tokens[at - 1].part


def _changed(before: Tokens, after: Tokens) -> Tokens | None:
    return after if after and after != before else None


def _with(tokens: Tokens, at: int, token: Token) -> Tokens:
    return (*tokens[:at], token, *tokens[at + 1 :])


def _ending(text: str) -> str:
    """The punctuation after a word."""
    return text[len(text.rstrip(_PUNCTUATION)) :]


def _cased(word: str, like: str) -> str:
    return word[:1].upper() + word[1:] if like[:1].isupper() else word


def _reworded(token: Token, word: str) -> Token:
    inner = token.text.strip(EDGES)
    return replace(token, text=token.text.replace(inner, _cased(word, inner), 1))


_OPENERS: Final = word_set("""
    a an the my your our this that these those it is are was were do does did can could would will should shall may
    have has let's let please turn switch set put send text tell message call ring phone dial order buy get book take
    add schedule delete erase clear remove wipe unlock lock open close shut share pay transfer wire give make start
    stop play who what when where why how which whose if in on at to for from with and but so or then just before
    after while because since there here now okay right well oh we you he she they not no yes
    """)
"""Words that lose their capital when something stands before them; names keep it."""


def _lowered(token: Token) -> Token:
    if bare(token) not in _OPENERS:
        return token
    return replace(token, text=token.text[:1].lower() + token.text[1:])
