"""Whether two words are one: plurals, derived forms, slips of spelling, British and American names, initials.

A slip is only forgiven where what was written is no word: "codein" is codeine, but "cocaine" is not, and neither is
"Ireland" Iceland. What a word is, a vocabulary says.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Final

IsWord = Callable[[str], bool]
"""Whether a lower-case text is a word of the language."""

_ENDINGS: Final = frozenset(
    ("", "s", "es", "ed", "ing", "er", "or", "ers", "ors", "e", "ist", "ists", "ion", "ly", "y", "ies", "ness", "al",
     "ment", "ian")
)  # fmt: skip
_LEAST_STEM: Final = 4
_SLIP_LETTERS: Final = 4
"""A shorter word may not be misspelt: nothing would be left of it."""
_ALIKE_FROM: Final = 0.75
_ALIKE_LETTERS: Final = 6

SYNONYMS: Final = tuple(
    frozenset(group.split("|"))
    for group in (
        "lift|elevator", "flat|apartment", "petrol station|gas station|filling station|service station",
        "aubergine|eggplant", "courgette|zucchini", "autumn|fall", "film|movie",
        "cinema|movies|pictures|movie theater|movie theatre", "underground|subway|metro|tube", "lorry|truck",
        "holiday|vacation", "biscuit|cookie", "sweets|candy", "trousers|pants", "mother|mum|mom|mummy|mommy",
        "father|dad|daddy", "grandmother|granny|grandma|gran|nan", "grandfather|grandpa|granddad|grandad",
        "child|kid", "ill|sick|unwell", "doctor|physician", "shop|store", "car|automobile", "bicycle|bike",
        "motorcycle|motorbike", "fridge|refrigerator", "television|tv|telly", "telephone|phone",
        "plane|airplane|aeroplane|aircraft", "tin|can", "rubbish|garbage|trash", "pavement|sidewalk",
        "football|soccer", "maths|mathematics|math", "big|large", "small|little", "noisy|loud", "tired|sleepy",
        "sofa|couch|settee", "pharmacy|drugstore|chemist", "railway|railroad", "tap|faucet", "postman|mailman",
        "present|gift", "rucksack|backpack", "quick|fast", "begin|start", "uk|united kingdom|great britain|britain",
        "usa|us|united states|america|united states of america", "nyc|new york|new york city", "la|los angeles",
        "eu|european union",
    )
)  # fmt: skip
"""Names of one thing, mostly British and American."""
_GROUP_OF = {name: at for at, group in enumerate(SYNONYMS) for name in group}


def other_names(text: str) -> list[str]:
    """Other names of what a text names, in lower case; initials of a name of several words."""
    lower = text.lower()
    found = sorted(SYNONYMS[_GROUP_OF[lower]] - {lower}) if lower in _GROUP_OF else []
    words = lower.split()
    if len(words) > 1 and all(word.isalpha() for word in words):
        found.append("".join(word[0] for word in words))
    return found


def same_word(wanted: str, found: str, is_word: IsWord) -> bool:
    """Whether a word that was found stands for one that was wanted.

    Args:
        wanted: in lower case.
        found: in lower case.
        is_word: the vocabulary.
    """
    if wanted == found or singular(wanted) == singular(found) or derived(wanted, found):
        return True
    group = _GROUP_OF.get(wanted, _GROUP_OF.get(singular(wanted)))
    if group is not None and group == _GROUP_OF.get(found, _GROUP_OF.get(singular(found))):
        return True
    return misspelt(wanted, found, is_word)


def singular(word: str) -> str:
    """A noun without the ending of the plural, as far as the spelling tells."""
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith("es") and len(word) > 4 and word[-3] in "sxzh":
        return word[:-2]
    if word.endswith("s") and not word.endswith("ss") and len(word) > 3:
        return word[:-1]
    return word


def derived(one: str, other: str) -> bool:
    """Whether two words are forms of one stem ("swim" and "swimming", "plumber" and "plumbing")."""
    shared = next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )  # fmt: skip
    for stem in (shared, shared - 1):
        if stem < _LEAST_STEM:
            continue
        doubled = one[stem - 1]
        if all(
            rest in _ENDINGS or (rest[:1] == doubled and rest[1:] in ("ing", "er", "ed", "ers"))
            for rest in (one[stem:], other[stem:])
        ):
            return True
    return False


def misspelt(wanted: str, found: str, is_word: IsWord) -> bool:
    """Whether a word is a slip of the pen for another; never where it is a word itself."""
    if len(wanted) < _SLIP_LETTERS or not found or found[0] != wanted[0] or is_word(found):
        return False
    if one_edit(wanted, found) or (len(found) >= _SLIP_LETTERS and wanted.startswith(found)):
        return True
    return len(wanted) >= _ALIKE_LETTERS and SequenceMatcher(None, wanted, found, autojunk=False).ratio() >= _ALIKE_FROM


def one_edit(one: str, other: str) -> bool:
    """Whether one letter more, less, changed, or two swapped, makes one text of the other."""
    if abs(len(one) - len(other)) > 1:
        return False
    at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    if len(one) == len(other):
        swapped = one[at : at + 2] == other[at : at + 2][::-1] and one[at + 2 :] == other[at + 2 :]
        return one[at + 1 :] == other[at + 1 :] or swapped
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return longer[at + 1 :] == shorter[at:]
