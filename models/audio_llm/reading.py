"""From a reply to a policy's output: one reading for every backend and every adaptation."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gate.catalogue import ToolFacts
from gate.grammar import MAX_CHARS
from models.audio_llm.conversation import Reply
from models.audio_llm.dialects import normalise, split_thinking
from models.protocols import PolicyOutput

_MUTE_FIRST_RE = re.compile(r"\s*\[\s*mute\s*\]", re.IGNORECASE)


def read_reply(reply: Reply, tools: Sequence[ToolFacts], dialects: Sequence[str] | None = None) -> PolicyOutput:
    """What a policy puts out for a reply.

    Args:
        reply: the reply.
        tools: the tools that may be named.
        dialects: which converters to try (see ``models.audio_llm.dialects``); None tries all.

    Returns:
        The text after the thinking exactly as written, and beside it the normalised one where that differs.
    """
    thinking, text = split_thinking(reply.text)
    normal = normalise(text, tools, dialects)
    return PolicyOutput(
        text,
        steps=reply.tokens,
        normalised=normal.text if normal.dialect else None,
        dialect=normal.dialect,
        thinking=thinking,
    )


def is_decided(text: str) -> bool:
    """Whether nothing that a model goes on to write can change what its text means. A ``Stop`` for replies.

    A text that begins with the mute label is a Mute, whatever follows, and one that is too long is refused, whatever
    follows. A call is never decided before its model ends: a word after it takes the call back.
    """
    if len(text) > MAX_CHARS:
        return True
    return _MUTE_FIRST_RE.match(split_thinking(text)[1]) is not None
