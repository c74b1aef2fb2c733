"""The offline judge: no network, no graphics card, the same verdicts every time.

Repair: logistic regression over what the wording does (``repair_features``). Side-talk: one logistic regression that
says whether a response takes up an utterance (``side_talk_features``), asked once for each of the two. Answers: rules
(``answers``). The weights lie beside this file, fitted by ``python -m bench.judges.fit`` on ``training/``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from bench.judgements import VERDICTS, Kind
from bench.judges import linear, wording
from bench.judges.answers import judge_answer
from bench.judges.case import Case, NotJudgedError, Verdict
from bench.judges.echoes import without_echoes
from bench.judges.embedder import Embedder
from bench.judges.linear import Linear
from bench.judges.repair_features import repair_features
from bench.judges.side_talk_features import take_up_features

VERSION: Final = 1
"""To be raised with any change of rules or features; the weights' hash is part of the judge's name anyway."""
WEIGHTS: Final = Path(__file__).with_name("weights") / "offline.json"
REPAIR: Final = "repair"
TAKES_UP: Final = "takes_up"
YES: Final = "yes"
NO: Final = "no"


@cache
def _weights(path: Path) -> tuple[dict[str, Linear], str]:
    return linear.load(path), hashlib.sha256(path.read_bytes()).hexdigest()


class OfflineJudge:
    """Implements ``Judge``.

    Args:
        embedder: sentence embeddings; None for those of the model store.
        classifiers: other weights than the shipped ones, while fitting.
    """

    def __init__(self, embedder: Embedder | None = None, classifiers: Mapping[str, Linear] | None = None) -> None:
        self._embedder = embedder or Embedder()
        shipped, digest = ({}, "") if classifiers is not None else _weights(WEIGHTS)
        self._classifiers = classifiers if classifiers is not None else shipped
        self._digest = digest[:8] or "unshipped"

    def name(self, kind: Kind) -> str:
        """See ``Judge``."""
        return f"offline-v{VERSION}/{self._digest}"

    def judge(self, case: Case) -> Verdict:
        """See ``Judge``.

        Raises:
            ModelError: when the embedding model has not been pulled (answers and side-talk need it).
        """
        match case.kind:
            case "repair":
                _needs(case, "a question", case.question)
                if not without_echoes(wording.without_turn_marks(case.response), (case.question, case.heard)):
                    return Verdict("other", "words: repeated")
                likely = self._classifiers[REPAIR].probabilities(repair_features(case))
                return Verdict(max(likely, key=lambda label: likely[label]), "classifier")
            case "side_talk":
                _needs(case, "both utterances", case.assistant and case.bystander)
                return self._side_talk(case)
            case "answer":
                _needs(case, "accepted answers", " ".join(case.accepted))
                return judge_answer(case, self._embedder.is_word, self._embedder.likest)

    def _side_talk(self, case: Case) -> Verdict:
        response = without_echoes(case.response, (case.assistant, case.bystander))
        if not response:
            return Verdict(LABEL_OF[False, False], "words: repeated")
        takes_up = [
            self._classifiers[TAKES_UP].probabilities(
                take_up_features(
                    one, other, response, accepted, self._embedder.vectors, self._embedder.is_word
                )
            )[YES] >= 0.5
            for one, other, accepted in (
                (case.assistant, case.bystander, case.accepted),
                (case.bystander, case.assistant, case.bystander_accepted),
            )
        ]  # fmt: skip
        return Verdict(LABEL_OF[takes_up[0], takes_up[1]], "classifier")


LABEL_OF: Final = {
    (True, False): "assistant", (False, True): "bystander", (True, True): "both", (False, False): "neither",
}  # fmt: skip
"""The label by whether the utterance to the assistant and the one to the bystander are taken up."""
assert set(LABEL_OF.values()) == set(VERDICTS["side_talk"])


def _needs(case: Case, what: str, found: str) -> None:
    if not found:
        raise NotJudgedError(f"the manifest has not {what}")
