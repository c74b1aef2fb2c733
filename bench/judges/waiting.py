"""What of a run has to be judged: exactly those trials whose measures say that a judge has to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from bench.judgements import Judgements, Kind
from bench.judges.case import Case
from bench.measures import SIDE_TALK, Hit, Played, ear_competence, ear_condition, ear_repair, side_talk_correct
from bench.trials import Trial
from gate.span import SAMPLE_RATE_HZ

_MEASURES: Final[Mapping[Kind, tuple[Callable[[Played], bool], Callable[[Played], Hit]]]] = {
    "side_talk": (SIDE_TALK.applies, side_talk_correct),
    "answer": (lambda one: one.trial.family == "ear" and ear_condition(one.trial).answerable, ear_competence),
    "repair": (lambda one: one.trial.family == "ear" and not ear_condition(one.trial).answerable, ear_repair),
}
"""Whom each kind of verdict is about, and the measure that waits for it. Wide masks are judged, too."""


def waiting(played: Sequence[Played]) -> Iterator[Case]:
    """The cases of a run, in its order, whether or not they have been judged."""
    for one in played:
        unjudged = Played(one.trial, one.result, Judgements())
        for kind, (applies, hit) in _MEASURES.items():
            if applies(unjudged) and hit(unjudged) is None:
                yield case_of(one, kind)


def case_of(played: Played, kind: Kind) -> Case:
    """What a judge is shown of a trial. What its manifest lacks is left empty; that is the judge's to refuse."""
    trial = played.trial
    extra = trial.model_extra or {}
    return Case(
        id=trial.id, kind=kind, response=played.result.answer or "", question=trial.question or "",
        accepted=trial.expected.answer or (), assistant=_said(trial, "assistant"), bystander=_said(trial, "bystander"),
        bystander_accepted=_texts(extra.get("bystander_answers")), heard=heard_text(trial) if kind == "repair" else "",
    )  # fmt: skip


def _said(trial: Trial, role: str) -> str:
    return " ".join(segment.text for segment in trial.segments if segment.role == role)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list | tuple) else ()


def heard_text(trial: Trial) -> str:
    """What can be heard of a masked recording, the mask's kind in brackets where it lies: "I like [noise] the most".

    Returns:
        It; empty where the manifest does not tell the words' times and the mask's.
    """
    extra = trial.model_extra or {}
    mask, spoken = extra.get("mask"), extra.get("words")
    try:
        kind = str(mask["kind"])  # type: ignore[index]
        spans = [(float(start), float(end)) for start, end in mask["spans"]]  # type: ignore[index]
        words = [
            (str(text), start / SAMPLE_RATE_HZ, end / SAMPLE_RATE_HZ)
            for utterance in spoken or ()
            for text, start, end in utterance
        ]
    except (KeyError, TypeError, ValueError):
        return ""
    out: list[str] = []
    for text, start_s, end_s in words:
        middle_s = (start_s + end_s) / 2
        if not any(low <= middle_s < high for low, high in spans):
            out.append(text)
        elif not out or out[-1] != f"[{kind}]":
            out.append(f"[{kind}]")
    return " ".join(out)
