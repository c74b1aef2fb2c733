"""How long a pause may last before a turn is over, given what its words make so far.

"Text Priya and say …" wants more; "Turn on the lamp." does not. The policy has read the words at the first pause
already, so what it would do with them tells: a call or an answer can be closed early, a question for what is missing
means that the rest may still come. A mute says nothing of the kind, and nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gate.actions import AnswerAction, PardonAction, ToolAction
from gate.decision import Proposal


@dataclass(frozen=True, slots=True)
class ClosingSettings:
    """Closing silence by what was said so far, in milliseconds.

    Attributes:
        complete_ms: after words that make a whole call or question.
        open_ms: after words that lack something.
    """

    complete_ms: int = 360
    open_ms: int = 1200


def closing_ms(proposals: Sequence[Proposal], settings: ClosingSettings) -> int | None:
    """The closing silence that the last words of a turn ask for.

    Args:
        proposals: one a segment of the turn, in order.
        settings: the silences.

    Returns:
        Milliseconds, or None to leave it as it is.
    """
    if not proposals:
        return None
    match proposals[-1].parsed:
        case ToolAction() | AnswerAction():
            return settings.complete_ms
        case PardonAction():
            return settings.open_ms
    return None
