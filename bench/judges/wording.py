"""What a response does, as far as its wording shows: it asks, it says that something was lost, it refuses, it hedges.

Cues are general English, not taken from any benchmark's answers. They are evidence for the classifiers, not verdicts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

_SENTENCE = re.compile(r"(?<=[.!?\u2026])[\"')\]*]*\s+|\n+")
_CLAUSE = re.compile(
    r"(?<=[.!?\u2026;:,])\s+|\s+[-\u2013\u2014]+\s+|\n+|\s+(?=(?:and|but|also|as for|by the way)\b)", re.IGNORECASE
)  # fmt: skip
_TURN = re.compile(r"^[ \t]*(?:[A-Z]|(?:[Ss]peaker|[Pp]erson) \w+)[ \t]*:[ \t]*", re.MULTILINE)
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_MARKS: Final = str.maketrans({"\u2019": "'", "\u2018": "'", "`": "'", "\u201c": '"', "\u201d": '"', "\u201e": '"'})
"""Typographic quotation marks, and how they are typed."""

STOP_WORDS: Final = frozenset(
    ("a", "about", "after", "again", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been",
     "before", "being", "but", "by", "can", "could", "did", "do", "does", "doing", "done", "for", "from", "get",
     "go", "got", "had", "has", "have", "he", "her", "here", "him", "his", "how", "i", "if", "in", "into", "is",
     "it", "its", "just", "like", "make", "me", "more", "most", "my", "near", "no", "not", "of", "off", "on", "one",
     "only", "or", "our", "out", "over", "own", "please", "say", "says", "said", "she", "should", "so", "some",
     "such", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "through",
     "to", "too", "under", "up", "us", "very", "was", "we", "were", "what", "when", "where", "which", "while",
     "who", "whom", "whose", "why", "will", "with", "would", "yes", "you", "your", "i'm", "it's", "that's", "i've",
     "you're", "don't", "i'll", "let")
)  # fmt: skip

CUES: Final = {
    "request": r"\b(please|can (you|i|we)|could (you|i|we|someone|the|she|he|they)|would you|will you|may i|might i"
    r"|tell me|repeat|spell|give me|say (it|that|the|them)|let me know|i(?:'d| would)? need|i'd like|need you to"
    r"|would (like|help)|if (you|someone|somebody) (can |could |will )?(tell|let|say|repeat|give|name|mean)"
    r"|play (that|it|the)|fill (it|that) in|read (it|that)|remind me|confirm|clarify)\b",
    "open_repeat": r"\b(pardon|come again|say (that|it) (again|once more)|repeat (that|it|yourself|the question)"
    r"|speak (up|louder|clearly)|try again|record (it|that|your|the)|clearer|more (context|details?|information)"
    r"|what did you say|say what|once more|one more time|again)\b",
    "loss": r"\b(noise|noisy|static|inaudible|unintelligible|missed|missing|cut|masked|covered|drowned|garbled|blank"
    r"|bleeped?|beep|hiss|hum|crackl\w+|click|silence|gap|broke|broken|breaks?|muffled|distorted|swallowed|lost"
    r"|obscured|blurred|hidden|interrupted|dropped|stutter\w*|faded|glitch|chopped|buried|caught|catch|hear|heard"
    r"|understand|understood|make out|made out|got|get|come through|came through|unclear)\b",
    "absence": r"\b(not|n't|never|no|nothing|nobody|without|isn't|wasn't|doesn't|didn't|hasn't|aren't|won't)\b",
    "stated": r"\b(mention\w*|stated?|given?|specif\w+|provid\w+|identif\w+|available|named?|audible|discuss\w*"
    r"|disclosed?|revealed?|reveal|contain\w*|includ\w+|determin\w+|clear|known?|unknown|establish\w*|indicat\w*"
    r"|discern\w*|announced?|conclud\w+|infer\w*|say|says|said|tells?)\b",
    "gap": r"\b(unknown|unclear|missing|omitted|left out|unidentified|inaudible|unintelligible|unspecified|undetermined"
    r"|undisclosed|unavailable|indiscernible|blank|insufficient|incomplete|not (?:\w+ ){0,2}(?:enough|clear|audible"
    r"|known|available|stated|given|mentioned|specified|provided|named|identified|identifiable|discernible|possible)"
    r"|isn't (?:\w+ ){0,2}(?:clear|audible|known|available|stated|given|mentioned|specified|provided|named"
    r"|identified))\b",
    "inability": r"\b(cannot|can't|can not|unable|not able|don't know|do not know|dunno|no idea|no clue|not sure|unsure"
    r"|impossible|hard to|difficult to|not possible|no way|beyond me|couldn't|could not|wasn't able|decline|refuse)\b",
    "other_language": r"(?:\b(?:leider|weiß (?:ich|es) nicht|weiss (?:ich|es) nicht|kann ich (?:\w+ )?nicht"
    r"|keine ahnung|ne sais pas|désolée?|aucune idée|no (?:lo )?sé|lo siento|non (?:lo )?so"
    r"|mi dispiace|não sei|desculpe)\b)",
    "apology": r"\b(sorry|apologi\w+|afraid|unfortunately|regret|forgive|beg your|sry)\b",
    "offer": r"\b(anything else|feel free|help you|assist|ask me|let me know if|would you like|happy to|glad to)\b",
    "hedge": r"\b(probably|perhaps|maybe|possibly|likely|i think|i guess|i believe|i suppose|i would say|i'd say"
    r"|i'd take|must be|might be|sounds like|seems? to be|judging|presumably|roughly|around|about|most)\b",
    "advice": r"\b(should|recommend|consult|contact|ask (the|your|a)|check|best|usually|typically|generally|often)\b",
    "condition": r"\b(if (you|someone|somebody)|once (you|i)|before i|so that i|in order to|then i)\b",
    "audio": r"\b(audio|recording|clip|conversation|passage|speakers?|transcript|segment|based on"
    r"|according to)\b",
    "assistant": r"\b(as an ai|language model|i am an? \w+ assistant|virtual assistant)\b",
}
"""Families of cues: name and pattern."""
_CUES = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in CUES.items()}

_WH = re.compile(
    r"\b(which|what|what's|who|who's|whom|whose|where|where's|when|why|how)\b",
    re.IGNORECASE,
)


def plain(text: str) -> str:
    """One spelling of quotation marks and composed characters, formatting marks removed, space collapsed."""
    text = unicodedata.normalize("NFKC", text).translate(_MARKS).replace("*", " ").replace("#", " ")
    return " ".join(text.split())


def words(text: str) -> list[str]:
    """The words of a text in lower case, apostrophes kept inside them."""
    return _WORD.findall(plain(text).casefold())


def content_words(text: str) -> list[str]:
    """Its words without those that carry little by themselves."""
    return [word for word in words(text) if word not in STOP_WORDS]


def sentences(text: str) -> list[str]:
    """A text cut after full stops, question marks and line breaks; without words, none."""
    unmarked = text.translate(_MARKS)
    return [piece.strip() for piece in _SENTENCE.split(unmarked) if piece and _WORD.search(piece)]


def clauses(text: str) -> list[str]:
    """A text cut at commas and conjunctions, too."""
    return [piece.strip() for piece in _CLAUSE.split(text.translate(_MARKS)) if piece and _WORD.search(piece)]


def has_cue(name: str, text: str) -> bool:
    """Whether a text shows a cue of ``CUES``."""
    return _CUES[name].search(plain(text)) is not None


def is_question(sentence: str) -> bool:
    """Whether a sentence ends as questions do."""
    return sentence.rstrip("\"')]* ").endswith("?")


def asks_what(sentence: str) -> bool:
    """Whether a sentence holds a question word."""
    return _WH.search(sentence) is not None


def alike(one: str, other: str) -> bool:
    """Whether two words are forms of one another: equal, or with a long beginning in common."""
    if one == other:
        return True
    shared = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        shared += 1
    return shared >= 4 and shared >= 0.6 * max(len(one), len(other))


def without(said: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Those of some words that have no form among others."""
    return [word for word in said if not any(alike(word, other) for other in taken)]


def without_turn_marks(text: str) -> str:
    """A text without the marks of who speaks at the beginning of its lines ("A:", "Speaker 2:")."""
    return _TURN.sub("", text)


def share_of(wanted: Sequence[str], found: Sequence[str]) -> float:
    """How many of some words have a form among others, 0 to 1; 0 without any."""
    if not wanted:
        return 0.0
    return sum(any(alike(word, other) for other in found) for word in wanted) / len(wanted)
