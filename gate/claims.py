"""Finds answers that claim a deed. Nothing was executed, so "I sent it" would be a lie, and is flagged."""

from __future__ import annotations

import re

_DEEDS = (
    "sent|texted|messaged|called|phoned|dialed|dialled|scheduled|booked|ordered|placed|bought|paid|transferred|unlocked"
    "|locked|opened|closed|turned|switched|set|started|stopped|deleted|removed|erased|shared|added|created|cancelled|canceled"
)
_CLAIM_RE = re.compile(
    rf"\b(?:i(?:'ve|\u2019ve| have| just| already)*\s+(?:{_DEEDS})\b"
    rf"|(?:has|have|is|are|was|were)\s+(?:now\s+|already\s+|just\s+)?(?:been\s+)?(?:{_DEEDS})\b"
    r"|^\s*(?:all\s+)?done\b|^\s*consider it done\b)",
    re.IGNORECASE,
)
_PAST_RE = re.compile(r"\b(?:was|were)\b(?!\s+(?:now|already|just))", re.IGNORECASE)


def claims_execution(answer: str) -> bool:
    """Whether an answer says that something was done.

    A surface test, made to over-report: it flags an event for review and never decides an action.
    """
    return any(not _PAST_RE.search(found.group()) for found in _CLAIM_RE.finditer(answer))
