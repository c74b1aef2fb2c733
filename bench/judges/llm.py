"""A language model as judge, behind any endpoint that speaks OpenAI's protocol."""

from __future__ import annotations

from bench.judgements import Kind
from bench.judges.case import Case, Verdict
from bench.judges.endpoint import Endpoint
from bench.judges.prompts import PAPER_JUDGES, instructions, prompt_version, quoted, read_label


class LlmJudge:
    """Implements ``Judge``.

    Args:
        endpoint: where the model is.
        model: its name there; None for the judge of the paper that a kind comes from.
    """

    def __init__(self, endpoint: Endpoint, model: str | None = None) -> None:
        self._endpoint = endpoint
        self._model = model

    def model(self, kind: Kind) -> str:
        """The model that judges cases of a kind."""
        return self._model or PAPER_JUDGES[kind]

    def name(self, kind: Kind) -> str:
        """See ``Judge``."""
        return f"{self.model(kind)}/{prompt_version(kind)}"

    def judge(self, case: Case) -> Verdict:
        """See ``Judge``."""
        reply = self._endpoint.complete(self.model(case.kind), instructions(case.kind), quoted(case))
        return Verdict(read_label(case.kind, reply), "model")
