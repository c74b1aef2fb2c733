"""What the ears alone allow: a perfect recogniser, and a policy that always proposes the labelled command.

Whoever says the command and from wherever, the right call is proposed for it, and nothing for all other words. So what
runs and what does not is decided by the gate on what the ears say of voice, distance, overlap and damage: the upper
bound for any policy behind these ears, and the lower bound on what they let through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.assemble import Parts
from bench.baselines.oracle_words import OracleSpeechEar, labelled_words
from bench.contestants import Contestant, Setup
from bench.stream import HeardStream
from bench.trials import Trial
from gate import grammar
from gate.actions import AnswerAction, ToolAction
from gate.catalogue import ToolCall, ToolFacts
from gate.evidence import Modality
from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio, Heard, ModelId, PolicyInput, PolicyOutput

_DECIDING = frozenset({"trigger", "assistant"})


@dataclass(frozen=True, slots=True)
class SilentEar:
    """Hears nothing by itself: the labels speak."""

    model: ModelId

    def hear(self, audio: Audio) -> Heard:
        """No words."""
        return Heard(())


@dataclass(frozen=True, slots=True)
class LabelledPolicy:
    """Proposes what a trial's labels name, for the words that they name it for; None outside of a trial."""

    trial: Trial | None = None
    model: ModelId = ModelId("labels", "0" * 64)  # noqa: RUF009 - immutable

    def prepare(self, tools: Sequence[ToolFacts]) -> None:
        """Nothing to prepare."""

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        """The labelled action for the turn in which the labelled command was said."""
        trial = self.trial
        if trial is None:
            return PolicyOutput(grammar.MUTE)
        if turn.modality is Modality.AUDIO and not _is_command(trial, turn):
            return PolicyOutput(grammar.MUTE)
        return PolicyOutput(_named(trial))


def _is_command(trial: Trial, turn: PolicyInput) -> bool:
    """Whether most of the labelled command stands in the turn, whatever else was said with it in one breath."""
    middles = {(word.span.start_sample + word.span.end_sample) // 2 for word in turn.segment.words}
    command = [segment for segment in trial.segments if segment.role in _DECIDING]
    inside = [at for at in middles if any(s.start <= at / SAMPLE_RATE_HZ < s.end for s in command)]
    return len(inside) * 2 > sum(len(segment.text.split()) for segment in command) > 0


def _named(trial: Trial) -> str:
    """The call that the words name, also where the right action is to mute; the answer where one is asked for."""
    params: dict[str, Any] | None = getattr(trial, "params", None)
    if trial.target_tool is not None and params is not None:
        return grammar.render(ToolAction(ToolCall(trial.target_tool, params)))
    answers = trial.expected.answer
    return grammar.render(AnswerAction(answers[0])) if answers else grammar.MUTE


def for_trial(parts: Parts, trial: Trial, heard: HeardStream) -> Parts:
    """The parts with a recogniser and a policy that know this trial's labels."""
    ear = OracleSpeechEar(SilentEar(parts.ears.speech.model), labelled_words(trial), heard)
    return replace(parts, ears=replace(parts.ears, speech=ear), policy=LabelledPolicy(trial))


def load(setup: Setup) -> Contestant:
    """Load the product's ears; each trial gets its own recogniser and policy."""
    return Contestant(setup.parts(LabelledPolicy()), setup.catalogue, parts_for=for_trial)
