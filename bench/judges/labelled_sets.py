"""Reads the labelled responses: the agreement set (``labelled/``) and the training set (``training/``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from bench.judgements import VERDICTS, Kind
from bench.judges.case import Case

LABELLED: Final = Path(__file__).with_name("labelled")
TRAINING: Final = Path(__file__).with_name("training")
KINDS: Final[tuple[Kind, ...]] = ("side_talk", "repair", "answer")

Text = Annotated[str, StringConstraints(min_length=1)]


class LabelledSetError(ValueError):
    """A set cannot be used. The message names file and line."""


class _Scene(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    scene: Text
    question: str = ""
    heard: str = ""
    assistant: str = ""
    bystander: str = ""
    accepted: tuple[Text, ...] = ()
    responses: tuple[tuple[Text, Text], ...]


@dataclass(frozen=True, slots=True)
class Labelled:
    """One labelled response.

    Attributes:
        scene: what it belongs to; responses of one scene are not independent of each other.
        case: what a judge sees.
        label: what it is.
    """

    scene: str
    case: Case
    label: str


def load(folder: Path, kind: Kind) -> list[Labelled]:
    """The labelled responses of a kind.

    Args:
        folder: ``LABELLED`` or ``TRAINING``.
        kind: which kind.

    Raises:
        LabelledSetError: when a line is wrong, a label is none, a scene comes twice, or lacks what its kind needs.
    """
    path = folder / f"{kind}.jsonl"
    out: list[Labelled] = []
    seen: set[str] = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            scene = _Scene.model_validate_json(line)
        except ValidationError as error:
            raise LabelledSetError(f"{path}:{number}: {error.errors()[0]['msg']}") from error
        needed = (scene.assistant, scene.bystander) if kind == "side_talk" else (scene.question,)
        if not all(needed) or (kind == "answer" and not scene.accepted):
            raise LabelledSetError(f"{path}:{number}: {scene.scene} lacks a text that {kind} needs")
        if scene.scene in seen:
            raise LabelledSetError(f"{path}:{number}: the scene {scene.scene} comes twice")
        seen.add(scene.scene)
        out += _labelled(scene, kind, f"{path}:{number}")
    return out


def _labelled(scene: _Scene, kind: Kind, where: str) -> Sequence[Labelled]:
    found = []
    for at, (label, response) in enumerate(scene.responses):
        if label not in VERDICTS[kind]:
            raise LabelledSetError(f"{where}: {label!r} is no label of {kind}")
        case = Case(
            id=f"{scene.scene}.{at}", kind=kind, response=response, question=scene.question, heard=scene.heard,
            accepted=scene.accepted, assistant=scene.assistant, bystander=scene.bystander,
        )  # fmt: skip
        found.append(Labelled(scene.scene, case, label))
    return found
