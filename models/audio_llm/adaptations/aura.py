"""AURA: who spoke, to whom and how near is said in a step of its own, before the action.

After *AURA: agent for understanding, reasoning, and automated tool use in voice-driven tasks* (Maben et al., ASRU 2025,
arXiv 2506.23049), whose agent writes a thought, an action and its payload, reads an observation, and goes on until it
answers, three times at most. Here the one action before the last is ``attribute``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gate.grammar import render
from models.audio_llm.adaptations.adapted import ACT, AdaptationError, Adapted, Exchange
from models.audio_llm.adaptations.backends import load_backend
from models.audio_llm.adaptations.strict_json import read_object
from models.audio_llm.conversation import Message, Part, assistant, user
from models.audio_llm.worked_turns import WorkedTurn
from models.protocols import PolicyInput, PolicyOutput

if TYPE_CHECKING:
    from models.store import Store

MAX_TURNS = 3
"""As the paper's. The last is the action's."""
STEP_TOKENS = 160
FIELDS: Mapping[str, Mapping[str, str]] = {
    "speaker": {
        "owner": "the owner speaks",
        "other": "somebody else speaks",
        "unsure": "who speaks cannot be told",
    },
    "addressee": {
        "assistant": "to the assistant",
        "person": "to another person",
        "self": "to themselves",
        "unsure": "to whom cannot be told",
    },
    "distance": {"near": "from near by", "far": "from afar", "unsure": "from where cannot be told"},
}
"""What an attribution says, and how each value is read back to the model."""

OBSERVATION = "Observation:"
_END = "</payload>"
_STEP_RE = re.compile(
    r"<thought>(?P<thought>.*?)</thought>\s*<action>(?P<action>.*?)</action>\s*<payload>(?P<payload>.*?)</payload>",
    re.DOTALL,
)
ATTRIBUTE = "Attribute."
_MARKS = ("<thought>", "<action>", "<payload>", "</thought>", "</action>", "</payload>", OBSERVATION, ATTRIBUTE)
_FORM = "<thought>{thought}</thought><action>attribute</action><payload>{payload}</payload>"


class Aura(Adapted):
    """A chat that attributes the turn, reads its own attribution back, and then acts. Two replies, three at most."""

    name = "aura"
    protocol = "\n".join(
        [
            f"Each time you are first told: {ATTRIBUTE} Then say who speaks, to whom, and how near, in this form:",
            _FORM.format(
                thought="one short sentence on what you hear",
                payload='{"speaker": "...", "addressee": "...", "distance": "..."}',
            ),
            *(f"The {field} is one of: {', '.join(values)}." for field, values in FIELDS.items()),
            f"Then you are told: {ACT} Only then write one of the four forms.",
        ]
    )

    def adapted(self, turn: PolicyInput, exchange: Exchange) -> PolicyOutput:
        """Attribution, once more where it was malformed, then the action."""
        request = ATTRIBUTE
        for _ in range(MAX_TURNS - 1):
            found = read_attribution(exchange.step(request, self.room(STEP_TOKENS), _END))
            if isinstance(found, dict):
                return self.act(exchange, _to_act(found), turn.tools, [_in_words(found)])
            request = f"{OBSERVATION} {found} {ATTRIBUTE}"
        raise AdaptationError(f"{self.name}: no attribution in {MAX_TURNS - 1} turns: {found}")

    def demonstration(self, worked: WorkedTurn, material: tuple[Part, ...]) -> list[Message]:
        """The attribution and the action."""
        found = {"speaker": str(worked.speaker), "addressee": worked.addressee, "distance": str(worked.distance)}
        step = _FORM.format(thought=_in_words(found).capitalize() + ".", payload=json.dumps(found))
        return [
            user(*material, ATTRIBUTE), assistant(step), user(_to_act(found)), assistant(render(worked.action)),
        ]  # fmt: skip

    def is_step(self, text: str) -> bool:
        """Whether it holds a mark of an attribution, or of what asks for one."""
        return any(mark in text for mark in _MARKS)


def read_attribution(text: str) -> dict[str, str] | str:
    """An attribution, or what is wrong with it in one sentence.

    Args:
        text: the whole step.
    """
    step = _STEP_RE.fullmatch(text)
    if step is None:
        return "That is not the form: a thought, an action and a payload, and nothing around them."
    if step["action"].strip() != "attribute":
        return 'The action of this step is "attribute" and no other.'
    payload = read_object(step["payload"])
    if payload is None or set(payload) != set(FIELDS):
        return f"The payload is one JSON object with exactly {', '.join(FIELDS)}."
    found = {field: value for field, value in payload.items() if isinstance(value, str)}
    for field, values in FIELDS.items():
        if found.get(field) not in values:
            return f"{field} is one of {', '.join(values)}."
    return found


def _to_act(attribution: Mapping[str, str]) -> str:
    """An attribution as it is read back to the model; nothing is added to what it said."""
    return f"{OBSERVATION} {_in_words(attribution)}. {ACT}"


def _in_words(attribution: Mapping[str, str]) -> str:
    return ", ".join(FIELDS[field][attribution[field]] for field in FIELDS)


def load(store: Store, threads: int, options: Mapping[str, str] | None = None) -> Aura:
    """AURA on a backend (see ``load_backend``).

    Raises:
        UnknownComponentError: for a backend or an option that does not exist.
        ModelError: when its model is not here; names the cure.
    """
    return Aura(load_backend(Aura.name, store, threads, options))
