"""Verdicts on free text: made by a judge after the run, kept beside its log, read when it is scored.

A line of ``judgements.jsonl`` is ``{"id": …, "kind": …, "verdict": …, "judge": …}``. What kind of verdict a trial needs
follows from its family and condition; a judge reads the trial's ``answer`` in the log and nothing else of it. What has
not been judged is null: it is counted as such, and the figures that need it are null too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

JUDGEMENTS = "judgements.jsonl"

Kind = Literal["answer", "repair", "side_talk"]
VERDICTS: Mapping[Kind, tuple[str, ...]] = {
    "answer": ("correct", "incorrect"),
    "repair": ("explicit_repair", "generic_refusal", "other"),
    "side_talk": ("assistant", "bystander", "both", "neither"),
}
"""What a judge can say. ``answer``: is the answer to a question right (EAR)? ``repair``: what does the response do
where the question cannot be answered (EAR)? ``side_talk``: which of the two utterances does it answer (VGBench)?"""


class JudgementsError(Exception):
    """Judgements cannot be read. The message names the line."""


class Judgement(BaseModel):
    """One verdict.

    Attributes:
        id: the trial's id.
        kind: what was asked.
        verdict: what the judge says, one of ``VERDICTS[kind]``.
        judge: who says it, by name and version.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    id: str
    kind: Kind
    verdict: str
    judge: str

    @model_validator(mode="after")
    def _is_a_verdict(self) -> Self:
        if self.verdict not in VERDICTS[self.kind]:
            raise ValueError(
                f"{self.verdict!r} is no verdict on {self.kind}; there are {', '.join(VERDICTS[self.kind])}"
            )
        return self


class Judgements:
    """The verdicts on a run.

    Args:
        judgements: by the trial's id and the kind of verdict.
    """

    def __init__(self, judgements: Mapping[tuple[str, Kind], Judgement] | None = None) -> None:
        self._judgements = dict(judgements or {})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read them; none where there is no file.

        Raises:
            JudgementsError: when a line is wrong, or a trial is judged twice; names the line. A last line without its
                newline is torn and passed over.
        """
        found: dict[tuple[str, Kind], Judgement] = {}
        if not path.exists():
            return cls()
        for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
            try:
                judgement = Judgement.model_validate_json(line)
            except ValidationError as error:
                raise JudgementsError(f"{path}:{number}: {error.errors()[0]['msg']}") from error
            key = (judgement.id, judgement.kind)
            if key in found:
                raise JudgementsError(f"{path}:{number}: {judgement.id!r} has a verdict of this kind already")
            found[key] = judgement
        return cls(found)

    def verdict(self, trial_id: str, kind: Kind) -> str | None:
        """The verdict on a trial, or None when it has not been judged."""
        judgement = self._judgements.get((trial_id, kind))
        return None if judgement is None else judgement.verdict

    @property
    def judges(self) -> list[str]:
        """Who has judged, in alphabetical order."""
        return sorted({judgement.judge for judgement in self._judgements.values()})

    def __len__(self) -> int:
        return len(self._judgements)
