"""How to ask for what went unheard of something told: what it was, and for it to be said again.

*Pardon?* (section 3.3) credits a repair in full when it names what is missing and asks for just that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from models.training.policy.noise import word_set

_AGAIN: Final = "Could you repeat that part?"
_DO = ("do", "does", "did")
_AUXILIARIES: Final = word_set(
    "do does did is are was were will would can could should shall may might must has have had"
)
_PRONOUNS: Final = word_set("i you he she it we they there one people everybody everyone somebody")
_DETERMINERS: Final = word_set("the a an my his her their our its this that these those both")
_ADJECTIVES: Final = word_set(
    "favourite favorite new old first last next best biggest worst usual main real current little lucky"
)
_AFTER_NOUNS: Final = word_set("called named made kept like for from about with on in at to good bad wrong")
"""What may follow a noun and is no part of its name."""
_LINKS: Final = word_set("in on at with from who that of and near behind beside under over whose which")
"""After a noun these say which one is meant, and where the verb stands cannot be told."""
_ADVERBS: Final = word_set("never always already often still also just not first now ever once almost")
_HEAD: Final = re.compile(
    r"^(?P<wh>(?:(?:at|on|in|to|from|for|with|under|by|of) )?(?:what|which|who|whom|whose|where|when|why|how)\b"
    r"(?: [a-z'-]+){0,3}?) (?P<aux>" + "|".join(sorted(_AUXILIARIES)) + r") (?P<rest>.+)$"
)


def missed(question: str) -> str:
    """What to say when the answer to a question went unheard.

    "What is the first speaker's plan?" becomes "I could not hear what the first speaker's plan is. Could you repeat
    that part?". Where the order of the words cannot be told without a parser, the question itself is put.
    """
    main, comma, rest = question.rstrip("?").partition(", ")
    clause = _indirect(main)
    if clause is None:
        return f"I could not hear that part. {question}"
    return f"I could not hear {clause}{comma}{rest}. {_AGAIN}"


def _indirect(question: str) -> str | None:
    """A question as a clause of another sentence; None when that takes a parser."""
    words = question.split()
    if not words:
        return None
    words[0] = words[0][0].lower() + words[0][1:]
    text = " ".join(words)
    found = _HEAD.match(text)
    if found is None:
        # "Who brings the music": the question word is what the verb belongs to, and nothing changes places.
        return text if _may_be_subject(words) and not _AUXILIARIES & set(words) else None
    wh, aux, rest = found["wh"], found["aux"], found["rest"].split()
    count = _subject(rest, aux)
    if count is None:
        opens_noun = rest[0] in _DETERMINERS or rest[0][:1].isupper() or rest[0][:1].isdigit()
        return text if _may_be_subject(wh.split()) and not opens_noun and aux not in _DO else None
    subject, tail = " ".join(rest[:count]), rest[count:]
    if aux in _DO:
        return None if not tail or tail[0] in _LINKS | {"not"} else f"{wh} {subject} {_finite(aux, tail)}"
    return " ".join([wh, subject, aux, *tail])


def _may_be_subject(words: Sequence[str]) -> bool:
    return words[0] in ("who", "what", "which", "whose") or tuple(words[:2]) in (("how", "many"), ("how", "much"))


def _subject(words: Sequence[str], aux: str) -> int | None:
    """How many words the subject takes, where that is plain: a pronoun, "the second speaker('s plan)", a name."""
    if words[0].lower() in _PRONOUNS:
        return 1
    if words[0][:1].isupper():
        count = 1
        while count < len(words) and words[count][:1].isupper():
            count += 1
    elif len(words) > 2 and words[0] == "the" and words[1] in ("first", "second") and words[2].startswith("speaker"):
        count = 3
    elif len(words) > 1 and words[0] == "the" and re.fullmatch(r"(man|woman|speaker|narrator|boss)('s)?", words[1]):
        count = 2
    else:
        return None
    return _with_owned(words, count, aux) if words[count - 1].endswith("'s") else count


def _with_owned(words: Sequence[str], owner: int, aux: str) -> int | None:
    """The owner with what is owned: a noun, after an adjective perhaps; None when nothing is left of it."""
    count = owner + (2 if owner < len(words) and _is_adjective(words[owner]) else 1)
    if aux in ("is", "are", "was", "were") and len(words) == count + 1 and not _follows_noun(words[count]):
        count += 1  # "the second speaker's shoe size"
    return count if count <= len(words) else None


def _is_adjective(word: str) -> bool:
    return word in _ADJECTIVES or word.endswith("ly")


def _follows_noun(word: str) -> bool:
    return word in _AFTER_NOUNS or word.endswith(("ing", "ed"))


def _finite(aux: str, tail: Sequence[str]) -> str:
    """Verb and what follows without "did" or "does" ("did order today": "ordered today")."""
    at = 0
    while at + 1 < len(tail) and (tail[at] in _ADVERBS or tail[at].endswith("ly")):
        at += 1
    verb = tail[at]
    if aux == "did":
        verb = _IRREGULAR.get(verb) or _past(verb)
    elif aux == "does":
        verb = _third(verb)
    return " ".join([*tail[:at], verb, *tail[at + 1 :]])


_IRREGULAR: Final = {
    "be": "was", "beat": "beat", "become": "became", "begin": "began", "bend": "bent", "bet": "bet", "bite": "bit",
    "blow": "blew", "break": "broke", "bring": "brought", "build": "built", "buy": "bought", "catch": "caught",
    "choose": "chose", "come": "came", "cost": "cost", "creep": "crept", "cut": "cut", "deal": "dealt", "dig": "dug",
    "do": "did", "draw": "drew", "drink": "drank", "drive": "drove", "eat": "ate", "fall": "fell", "feed": "fed",
    "feel": "felt", "fight": "fought", "find": "found", "fly": "flew", "forbid": "forbade", "forget": "forgot",
    "forgive": "forgave", "freeze": "froze", "get": "got", "give": "gave", "go": "went", "grind": "ground",
    "grow": "grew", "hang": "hung", "have": "had", "hear": "heard", "hide": "hid", "hit": "hit", "hold": "held",
    "hurt": "hurt", "keep": "kept", "know": "knew", "lay": "laid", "lead": "led", "leave": "left", "lend": "lent",
    "let": "let", "lie": "lay", "light": "lit", "lose": "lost", "make": "made", "mean": "meant", "meet": "met",
    "pay": "paid", "put": "put", "quit": "quit", "read": "read", "ride": "rode", "ring": "rang", "rise": "rose",
    "run": "ran", "say": "said", "see": "saw", "seek": "sought", "sell": "sold", "send": "sent", "set": "set",
    "shake": "shook", "shine": "shone", "shoot": "shot", "shut": "shut", "sing": "sang", "sink": "sank", "sit": "sat",
    "sleep": "slept", "slide": "slid", "speak": "spoke", "spend": "spent", "spin": "spun", "split": "split",
    "spread": "spread", "stand": "stood", "steal": "stole", "stick": "stuck", "sting": "stung", "strike": "struck",
    "swear": "swore", "sweep": "swept", "swim": "swam", "swing": "swung", "take": "took", "teach": "taught",
    "tear": "tore", "tell": "told", "think": "thought", "throw": "threw", "understand": "understood", "upset": "upset",
    "wake": "woke", "wear": "wore", "win": "won", "wind": "wound", "write": "wrote",
}  # fmt: skip
_DOUBLED: Final = word_set(
    "plan stop drop ship pop shop swap pin grab rob plug trip slip wrap chop hug beg prefer refer admit regret"
)


def _past(verb: str) -> str:
    if verb in _DOUBLED:
        return f"{verb}{verb[-1]}ed"
    if verb.endswith("e"):
        return f"{verb}d"
    return f"{verb[:-1]}ied" if verb.endswith("y") and verb[-2:-1] not in "aeiou" else f"{verb}ed"


def _third(verb: str) -> str:
    if verb == "have":
        return "has"
    if verb.endswith(("s", "sh", "ch", "x", "z", "o")):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if verb.endswith("y") and verb[-2:-1] not in "aeiou" else f"{verb}s"
