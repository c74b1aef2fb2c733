"""What shows what a response does about a question that cannot be answered: does it ask, and for what; does it say that
something is missing; does it assert anything that the question has not said?"""

from __future__ import annotations

import math
import re

from bench.judges import wording
from bench.judges.case import Case

_QUIET_CUES = ("absence", "inability", "loss", "gap", "request", "other_language", "apology")
"""A sentence with one of these asserts no answer by itself."""


def repair_features(case: Case) -> dict[str, float]:
    """Features of a response to a question.

    Args:
        case: with its question.

    Returns:
        Numbers by name; always the same names.
    """
    response = wording.without_turn_marks(case.response)
    asked = wording.content_words(case.question)
    sentences = wording.sentences(response) or [response]
    asking = [one for one in sentences if wording.is_question(one) or wording.has_cue("request", one)]
    asking_words = wording.content_words(" ".join(asking))
    quiet = [one for one in sentences if _asserts(one)]
    said = wording.content_words(response)
    new = wording.without(said, asked)
    newly_asserted = wording.without(wording.content_words(" ".join(quiet)), asked)
    features: dict[str, float] = {f"cue {name}": float(wording.has_cue(name, response)) for name in wording.CUES}
    features |= {
        "a question": float(any(wording.is_question(one) for one in sentences)),
        "ends in a question": float(wording.is_question(sentences[-1])),
        "a question with a question word": float(
            any(wording.is_question(one) and wording.asks_what(one) for one in sentences)
        ),
        "asks": float(bool(asking)),
        "asks for what was asked": wording.share_of(asked, asking_words),
        "asks with a question word": float(bool(asking) and wording.asks_what(" ".join(asking))),
        "words of the asking": float(len(asking_words)),
        "takes up the question": wording.share_of(asked, said),
        "asserts": float(bool(quiet)),
        "new words asserted": math.log1p(len(newly_asserted)),
        "share of assertions": len(quiet) / len(sentences),
        "words": math.log1p(len(said)),
        "sentences": math.log1p(len(sentences)),
        "digits": float(re.search(r"\d", response) is not None),
        "new words": math.log1p(len(new)),
        "speaks as others": float(response != case.response),
        "breaks off": float("..." in response or "…" in response),
        "guesses": float(wording.has_cue("hedge", response) and bool(new) and not asking),
        "asserts something new": float(bool(newly_asserted)),
        "asserts beside a gap": float(bool(newly_asserted) and wording.has_cue("gap", response)),
    }
    return features


def _asserts(sentence: str) -> bool:
    return not wording.is_question(sentence) and not any(wording.has_cue(cue, sentence) for cue in _QUIET_CUES)
