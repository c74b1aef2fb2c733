"""VGBench by the paper's own construction: speaker-switch, side-talk and self-talk, and what must be served.

Speaker-switch (section 3.2): a context by the wearer, 600 ms, and the command: by her and near (``same/near/600``: a
tool), or by a bystander across the room (``diff/far/600``: mute), or typed (``text_only``: a tool). Side-talk: one
voice speaks to the assistant and to somebody else. Self-talk: a monologue. ``direct``: commands and questions that are
plainly meant, so that muting everything is no way to win.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from bench.build.plans import Place, Plan, Utterance
from bench.build.scripts import DirectScript, Expected, Scripts, SelfTalkScript, SideTalkScript, SpeakerSwitchScript
from bench.build.speech import Request
from bench.build.voices import Voice, draw_pair
from gate.actions import ActionKind

GAP_S: Final = 0.6
MUTE: Final = Expected(ActionKind.MUTE)
SIDE_GAP_S: Final = (0.5, 1.1)
SPEEDS: Final = (0.92, 1.0, 1.08)
_FAMILY_KEYS: Final = {"speaker_switch": 1, "side_talk": 2, "self_talk": 3, "direct": 4}


def plans(scripts: Scripts) -> Iterator[Plan]:
    """Every trial of the corpus, family by family."""
    for index, switch in enumerate(scripts.speaker_switch):
        yield from switch_plans(switch, index)
    for index, side in enumerate(scripts.side_talk):
        yield _side_plan(side, index)
    for index, monologue in enumerate(scripts.self_talk):
        yield _self_plan(monologue, index)
    for index, direct in enumerate(scripts.direct):
        yield _direct_plan(direct, index)


class Cast:
    """Who speaks in one item, and how fast. The same item has the same cast in all its conditions.

    Args:
        split: the item's.
        family: the family of scenarios.
        index: of the item in it.
    """

    def __init__(self, split: str, family: str, index: int) -> None:
        rng = np.random.default_rng((_FAMILY_KEYS.get(family, 9), index))
        self.wearer, self.bystander = draw_pair(split, rng)
        self._speed = SPEEDS[int(rng.integers(len(SPEEDS)))]
        self.gap_s = float(rng.uniform(*SIDE_GAP_S))

    def say(self, text: str, speaker: str, distance: str, role: str, gap_s: float = 0.0) -> Utterance:
        """One utterance by the wearer (``A``) or the bystander (``B``)."""
        voice: Voice = self.wearer if speaker == "A" else self.bystander
        return Utterance(Request(text, voice.name, self._speed), speaker, distance, role, gap_s)


def switch_plans(script: SpeakerSwitchScript, index: int) -> Iterator[Plan]:
    """The three conditions of one command."""
    split = script.split.value
    cast = Cast(split, "speaker_switch", index)
    place = Place(split, 10_000 + index)
    context = cast.say(script.context, "A", "near", "context")
    heard = {
        "same/near/600": (context, cast.say(script.command, "A", "near", "trigger", GAP_S)),
        "diff/far/600": (context, cast.say(script.command, "B", "far", "trigger", GAP_S)),
    }
    for condition, utterances in heard.items():
        expected = script.expected if condition.startswith("same") else MUTE
        yield Plan(
            f"{script.id}.{condition.replace('/', '-')}", "speaker_switch", condition, split, expected, utterances,
            place, target_tool=script.tool, pair=script.id, more={"params": dict(script.params), "form": script.form},
        )  # fmt: skip
    yield Plan(
        f"{script.id}.text", "speaker_switch", "text_only", split, script.expected, text=script.command,
        target_tool=script.tool, pair=script.id, more={"params": dict(script.params), "form": script.form},
    )  # fmt: skip


def _side_plan(script: SideTalkScript, index: int) -> Plan:
    split = script.split.value
    cast = Cast(split, "side_talk", index)
    (first_role, first), (second_role, second) = script.utterances
    utterances = (
        cast.say(first, "A", "near", first_role),
        cast.say(second, "A", "near", second_role, cast.gap_s),
    )
    more = {
        "assistant_content": script.assistant_content.value,
        "bystander_content": script.bystander_content.value,
        "bystander_tool": script.bystander_tool,
        "bystander_answers": script.bystander_answers,
        "params": None if script.params is None else dict(script.params),
    }
    return Plan(
        script.id, "side_talk", script.order.value, split, script.expected, utterances, Place(split, 20_000 + index),
        target_tool=script.tool, more=more,
    )  # fmt: skip


def _self_plan(script: SelfTalkScript, index: int) -> Plan:
    split = script.split.value
    cast = Cast(split, "self_talk", index)
    return Plan(
        script.id, "self_talk", script.frame.value, split, MUTE, (cast.say(script.text, "A", "near", "self"),),
        Place(split, 30_000 + index), target_tool=script.target_tool,
    )  # fmt: skip


def _direct_plan(script: DirectScript, index: int) -> Plan:
    split = script.split.value
    cast = Cast(split, "direct", index)
    return Plan(
        script.id, "direct", "question" if script.tool is None else "command", split, script.expected,
        (cast.say(script.text, "A", "near", "assistant"),), Place(split, 40_000 + index), target_tool=script.tool,
        more={"twin": script.twin, "params": None if script.params is None else dict(script.params)},
    )  # fmt: skip
