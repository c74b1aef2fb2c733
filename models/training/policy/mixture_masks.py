"""Commands of which something went unheard or unsaid: what then is right.

After *Pardon?* (section 3.2): where the words of an argument are gone, the right thing is to ask for just that
argument; where other words are gone, it is still the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from gate.actions import Action, PardonAction, ToolAction
from gate.catalogue import ParamKind
from gate.grounding import ground_choice, ground_number, ground_text
from models.training.policy.mixture_commands import Command
from models.training.policy.mixture_scene import MARK, index_of, masked, words_of
from models.training.policy.noise import Token, Tokens, bare, word_set

_ARTICLES = frozenset({"a", "an", "the", "my", "our", "some", "of", "and", "to"})
SPARE = word_set("""
    please can could would will you i i'd a the my me to for just and so now then okay well oh hey assistant computer
    do go ahead thanks thank it that is of in on at with need want like should
    """)
"""Words of which a command can spare any one."""
_CONNECTING = word_set("""
    that saying say says to at for on with and a an the my from about of in by until till her him them some as called
    named titled it's telling which then just so be reading
    """)
"""Words that lead on to an argument."""
_BROKEN = word_set(
    "what's is are was it he she i we they or what it'll we'll i'm that's there's want need not if whether called like"
)
"""Where one of these is what is left last, the sentence broke off."""
_PLAIN_VERBS = word_set(
    "call ring phone dial text message order buy reorder unlock open close shut lock delete erase clear wipe remove pay"
)
"""Single words that say what to do without saying to what; "pop" and "nuke" do not."""
_GLUE = word_set("a an the my our to for on at of with that and in by until till from about please")
"""Words that a mask may take along and nobody misses."""
_POLITE = frozenset({"please", "thanks", "thank", "you", "now"})
_CURRENCIES = frozenset(
    {"dollars", "euros", "pounds", "yen", "yuan", "rupees", "francs", "pesos", "won", "quid", "bucks"}
)
_PARTIAL = 0.4
"""Share of the masks that leave some words of a longer argument standing."""
_WIDE = 0.25
"""Share of the masks that take a word beside the argument with it."""


def mask_argument(command: Command, rng: Random) -> tuple[Tokens, Action] | None:
    """One argument covered: ask for it."""
    places = dict(_argument_places(command))
    if not places:
        return None
    name = rng.choice(sorted(places))
    start, end = places[name].start, places[name].stop
    facts = command.param(name)
    if facts.kind is ParamKind.TEXT and end - start > 1 and rng.random() < _PARTIAL:
        start, end = _part(command.tokens, start, end, rng)
    if rng.random() < _WIDE:
        start, end = _widened(command.tokens, start, end, rng)
    tokens = masked(command.tokens, start, end)
    return None if _still_said(command, name, tokens) else (tokens, PardonAction(facts.ask))


def mask_elsewhere(command: Command, rng: Random) -> tuple[Tokens, Action] | None:
    """Words covered that no argument needs: it is still the call."""
    beside = list(_spare_sentences(command))
    if beside and rng.random() < 0.5:
        start, end = rng.choice(beside)
        first = rng.randrange(start, end)
        place = range(first, min(end, first + rng.randint(1, 4)))
    else:
        spare = list(_spare_words(command))
        if not spare:
            return None
        at = rng.choice(spare)
        place = range(at, at + 1)
    tokens = masked(command.tokens, place.start, place.stop)
    changed = command.reworded(tokens)
    return None if changed is None else (tokens, ToolAction(changed.call))


def leave_out(command: Command, rng: Random) -> tuple[Tokens, Action] | None:
    """The last argument, which the tool needs, not said at all ("Text Priya."): ask for it."""
    tokens = list(command.tokens)
    polite: list[Token] = []
    while tokens and bare(tokens[-1]) in _POLITE:
        polite.insert(0, tokens.pop())
    while tokens and bare(tokens[-1]) in _CURRENCIES and not tokens[-1].part:
        tokens.pop()
    name = tokens[-1].part if tokens else ""
    if not name or not command.param(name).required:
        return None
    kept = tokens[: command.run(name).start]
    while kept and not kept[-1].part and bare(kept[-1]) in _CONNECTING:
        kept.pop()
    # What broke off in the middle of a phrase is another kind of row.
    if not kept or kept[-1].text.endswith((",", ":")) or bare(kept[-1]) in _BROKEN:
        return None
    if len(kept) == 1 and bare(kept[0]) not in _PLAIN_VERBS:
        return None
    if command.tokens[-1].text.endswith((".", "?", "!")) and not polite:
        kept[-1] = Token(f"{kept[-1].text.rstrip('.,;:?!')}{command.tokens[-1].text[-1]}", kept[-1].part)
    left = (*kept, *polite)
    return None if _still_said(command, name, left) else (left, PardonAction(command.param(name).ask))


def _argument_places(command: Command) -> Iterator[tuple[str, range]]:
    """Where each argument that words name is said."""
    words = words_of(command.tokens)
    for name, value in command.call.params.items():
        run = command.run(name)
        if command.param(name).kind is ParamKind.CHOICE:
            named = ground_choice(str(value), words) or ()
            places = sorted(index_of(word) for word in named)
            if places and not any(command.tokens[at].part for at in places):
                # "Turn the lamp off": without its last word nobody knows what to do.
                together = places[-1] - places[0] + 1 == len(places)
                yield name, range(places[0] if together else places[-1], places[-1] + 1)
        elif run:
            yield name, run


def _part(tokens: Tokens, start: int, end: int, rng: Random) -> tuple[int, int]:
    """A stretch of an argument that holds more than an article, and less than all of it."""
    length = rng.randint(1, end - start - 1)
    first = rng.randrange(start, end - length + 1)
    content = any(bare(token) not in _ARTICLES for token in tokens[first : first + length])
    return (first, first + length) if content else (start, end)


def _widened(tokens: Tokens, start: int, end: int, rng: Random) -> tuple[int, int]:
    if start and not tokens[start - 1].part and bare(tokens[start - 1]) in _GLUE and rng.random() < 0.5:
        return start - 1, end
    if end < len(tokens) and not tokens[end].part and bare(tokens[end]) in _GLUE:
        return start, end + 1
    return start, end


def _still_said(command: Command, name: str, tokens: Tokens) -> bool:
    words, value, kind = words_of(tokens), command.call.params[name], command.param(name).kind
    if kind is ParamKind.TEXT:
        return ground_text(str(value), words) is not None
    if kind is ParamKind.CHOICE:
        return ground_choice(str(value), words) is not None
    assert isinstance(value, int | float), value
    return ground_number(float(value), words) is not None


def _needed(command: Command) -> set[int]:
    """The words that say arguments, also choices."""
    needed = {index for index, token in enumerate(command.tokens) if token.part}
    words = words_of(command.tokens)
    for name, value in command.call.params.items():
        if command.param(name).kind is ParamKind.CHOICE:
            needed |= {index_of(word) for word in ground_choice(str(value), words) or ()}
    return needed


def _spare_words(command: Command) -> Iterator[int]:
    """Words that can be spared and do not touch an argument: a mask beside one may hide more of it."""
    needed = _needed(command)
    for index, token in enumerate(command.tokens):
        if token != MARK and bare(token) in SPARE and not needed & {index - 1, index, index + 1}:
            yield index


def _spare_sentences(command: Command) -> Iterator[tuple[int, int]]:
    """Sentences without a word that is needed: reasons, chat."""
    needed = _needed(command)
    start = 0
    for index, token in enumerate(command.tokens):
        if token.text[-1] in ".?!" or index + 1 == len(command.tokens):
            inside = range(start, index + 1)
            if len(inside) > 3 and needed and not needed & set(inside):
                yield start, index + 1
            start = index + 1
