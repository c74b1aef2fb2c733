"""The order of the conditions of speaker-switch: typed, then the wearer near, then what is not to be acted on."""

from __future__ import annotations

from bench.trials import TEXT_ONLY


def condition_order(condition: str) -> tuple[int, str]:
    """Sorts the conditions of speaker-switch."""
    if condition == TEXT_ONLY:
        return 0, ""
    speaker, distance, gap = condition.split("/")
    return 1 + 2 * (speaker != "same") + (distance != "near"), gap.zfill(9)


def wants_a_tool(condition: str) -> bool:
    """Whether the command is to run there: typed, or by the same speaker near."""
    return condition == TEXT_ONLY or condition.startswith("same/near/")


def spelt_out(condition: str) -> str:
    """What a condition means."""
    if condition == TEXT_ONLY:
        return "typed"
    speaker, distance, gap = condition.split("/")
    return f"{'same speaker' if speaker == 'same' else 'another speaker'}, {distance}, {int(gap)} ms gap"
