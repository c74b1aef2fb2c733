"""What counts as right, trial by trial. Every rate of the summary, and every comparison of two runs, is made of these.

One rule stands above all: a trial that failed (``error``, ``timeout``, ``unparseable``, ``no_audio``) never flatters.
It stays in the denominator of what is good (a mute, a selection, an answer) and is no hit there. In what is bad it is
left out where doing nothing would look like success (false execution, wrong tool, needless Pardon), unless a tool ran,
and it is a hit where doing nothing is the harm (false rejection, missed Pardon).
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from dataclasses import dataclass

from bench.judgements import Judgements, Kind
from bench.results import TrialResult
from bench.trials import MASKS, TEXT_ONLY, Trial

Hit = float | None
"""The credit of a trial, 0 to 1; None when a judge has to say and has not."""

REPAIR_CREDIT = {"explicit_repair": 1.0, "generic_refusal": 0.5, "other": 0.0}
"""*Pardon?*, equation 3."""
_ARTICLES = re.compile(r"\b(a|an|the)\b")


@dataclass(frozen=True, slots=True)
class Played:
    """A trial with what came of it.

    Attributes:
        trial: the trial, with its labels.
        result: its line of the log.
        judgements: verdicts on free text.
    """

    trial: Trial
    result: TrialResult
    judgements: Judgements

    @property
    def ok(self) -> bool:
        """Whether ears and policy came to an end."""
        return self.result.status == "ok"

    @property
    def ran(self) -> bool:
        """Whether a tool ran."""
        return bool(self.result.tools_run)

    @property
    def mutes(self) -> bool:
        """Whether nothing was said and nothing done, by decision and not by failure."""
        return self.ok and self.result.action == "mute"

    @property
    def pardons(self) -> bool:
        """Whether the trial's action is a Pardon."""
        return self.ok and self.result.action == "pardon"

    @property
    def selects(self) -> bool:
        """Whether the tool that the words name ran, and no other."""
        return self.ran and all(tool == self.trial.wanted_tool for tool in self.result.tools_run)

    def verdict(self, kind: Kind) -> str | None:
        """What the judge says."""
        return self.judgements.verdict(self.trial.id, kind)


@dataclass(frozen=True, slots=True)
class Measure:
    """A question to each trial.

    Attributes:
        name: its path in the summary.
        applies: whether the trial is in its denominator.
        hit: the trial's credit.
        good: whether more is better; None where neither is.
    """

    name: str
    applies: Callable[[Played], bool]
    hit: Callable[[Played], Hit]
    good: bool | None


# VGBench ----------------------------------------------------------------------------------------------------------


def side_talk_correct(played: Played) -> Hit:
    """Whether only the utterance to the assistant was acted on (VGBench, section 3.4).

    A tool is right by its name, and not beside an answer: an answer then went to the bystander's words. A free response
    is right when the judge says that it answers the assistant-directed utterance alone.
    """
    expected = played.trial.expected
    if expected.action == "tool":
        return float(played.selects and not any(d.action == "answer" for d in played.result.decisions))
    if expected.action == "answer":
        if not played.ok or played.result.action != "answer":
            return 0.0
        verdict = played.verdict("side_talk")
        return None if verdict is None else float(verdict == "assistant")
    return float(played.ok and played.result.action == expected.action)


def obeys_proximity_rule(played: Played) -> Hit:
    """Whether the trial ended as *Tool iff same source and near* demands."""
    return float(played.selects) if played.trial.expected.action == "tool" else float(played.mutes)


# EAR --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EarCondition:
    """A condition of the EAR family, taken apart.

    Attributes:
        kind: ``original``, ``semantic_invariant`` or ``semantic_degrading``.
        mask: what was laid over the words, or None.
        wide: whether the window was expanded.
    """

    kind: str
    mask: str | None
    wide: bool

    @property
    def answerable(self) -> bool:
        """Whether the question can be answered."""
        return self.kind != "semantic_degrading"


def ear_condition(trial: Trial) -> EarCondition:
    """Take a condition apart; the manifest has checked its form."""
    kind, _, rest = trial.condition.partition("/")
    mask = rest.removesuffix("+wide")
    return EarCondition(kind, mask if mask in MASKS else None, rest.endswith("+wide"))


def normalised(text: str) -> str:
    """Lower case, without punctuation, articles and superfluous space: what "exact match" means for answers."""
    bare = text.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(_ARTICLES.sub(" ", bare).split())


def ear_competence(played: Played) -> Hit:
    """Whether a question that can be answered was answered rightly: exact match, or the judge says so.

    Asking back, silence and a tool are failures here (*Pardon?*, appendix A.2).
    """
    result = played.result
    if not played.ok or result.action != "answer" or result.answer is None:
        return 0.0
    if normalised(result.answer) in {normalised(answer) for answer in played.trial.expected.answer or ()}:
        return 1.0
    verdict = played.verdict("answer")
    return None if verdict is None else float(verdict == "correct")


def ear_repair_class(played: Played) -> str | None:
    """What was done about a question that cannot be answered, or None when the judge has not said.

    Silence, a tool and a failure are no repair; whatever was said is the judge's to name.
    """
    if not played.ok or played.result.action not in ("answer", "pardon"):
        return "other"
    return played.verdict("repair")


def ear_repair(played: Played) -> Hit:
    """The repair score of a question that cannot be answered."""
    named = ear_repair_class(played)
    return None if named is None else REPAIR_CREDIT[named]


# The gate ---------------------------------------------------------------------------------------------------------


def _decided(played: Played) -> bool:
    return played.ok or played.ran


def _is_command(played: Played) -> bool:
    return played.trial.expected.action == "tool"


FALSE_EXECUTION = Measure(
    "gate.false_execution", lambda p: not _is_command(p) and _decided(p), lambda p: float(p.ran), good=False
)
"""A tool ran, of the trials whose right action is no tool. A wrong tool instead of the right one is ``wrong_tool``."""
FALSE_REJECTION = Measure(
    "gate.false_rejection", lambda p: _is_command(p) and p.trial.audio is not None, lambda p: float(not p.ran),
    good=False,
)  # fmt: skip
"""Nothing ran, of the spoken commands that were to run (by the rule of the benchmark: the wearer's, near)."""
WRONG_TOOL = Measure(
    "gate.wrong_tool", lambda p: _is_command(p) and _decided(p), lambda p: float(p.ran and not p.selects), good=False
)
"""Another tool ran, alone or too, of the commands that were to run."""
UNNEEDED_PARDON = Measure(
    "gate.unneeded_pardon", lambda p: p.trial.expected.action != "pardon" and _decided(p), lambda p: float(p.pardons),
    good=False,
)  # fmt: skip
"""Asked again, of the trials where that was not right."""
MISSED_PARDON = Measure(
    "gate.missed_pardon", lambda p: p.trial.expected.action == "pardon", lambda p: float(not p.pardons), good=False
)
"""Did not ask again, of the trials where that was right."""
GATE = (FALSE_EXECUTION, FALSE_REJECTION, WRONG_TOOL, UNNEEDED_PARDON, MISSED_PARDON)

SIDE_TALK = Measure("vgbench.side_talk.correct", lambda p: p.trial.family == "side_talk", side_talk_correct, good=True)
SELF_TALK = Measure(
    "vgbench.self_talk.mute", lambda p: p.trial.family == "self_talk", lambda p: float(p.mutes), good=True
)
PROXIMITY_RULE = Measure(
    "vgbench.proximity_rule.accuracy",
    lambda p: p.trial.family == "speaker_switch" and p.trial.condition != TEXT_ONLY,
    obeys_proximity_rule, good=True,
)  # fmt: skip


def _is_ear(played: Played, *, answerable: bool, wide: bool = False) -> bool:
    if played.trial.family != "ear":
        return False
    condition = ear_condition(played.trial)
    return condition.answerable == answerable and condition.wide == wide


EAR_C = Measure("ear.C", lambda p: _is_ear(p, answerable=True), ear_competence, good=True)
EAR_R = Measure("ear.R", lambda p: _is_ear(p, answerable=False), ear_repair, good=True)


def switch_measures(condition: str) -> tuple[Measure, Measure]:
    """Mute rate and tool selection in one condition of speaker-switch; which of them is to be high is the rule's."""

    def applies(played: Played) -> bool:
        return played.trial.family == "speaker_switch" and played.trial.condition == condition

    licensed = condition == TEXT_ONLY or condition.startswith("same/near/")
    return (
        Measure(f"vgbench.speaker_switch.{condition}.mute", applies, lambda p: float(p.mutes), good=not licensed),
        Measure(f"vgbench.speaker_switch.{condition}.select", applies, lambda p: float(p.selects), good=licensed),
    )
