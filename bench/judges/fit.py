"""``python -m bench.judges.fit``: fits the offline judge's classifiers on the training set and writes their weights.

Prints what ten-fold cross-validation by scene says of each; that is the figure by which features and penalties were
chosen. The agreement set is not read here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.judgements import VERDICTS, Kind
from bench.judges.agreement import accuracy, cohens_kappa, confusion
from bench.judges.echoes import without_echoes
from bench.judges.embedder import Embedder
from bench.judges.labelled_sets import KINDS, TRAINING, Labelled, load
from bench.judges.linear import Linear, fit
from bench.judges.offline import NO, REPAIR, TAKES_UP, WEIGHTS, YES, OfflineJudge
from bench.judges.repair_features import repair_features
from bench.judges.side_talk_features import take_up_features

FOLDS: Final = 10
STRENGTH: Final = 0.1
"""The inverse of the penalty; of 0.03 to 1, within the noise of cross-validation all alike."""


@dataclass(frozen=True, eq=False)
class _Examples:
    """Feature rows with what is right, and the response that each belongs to."""

    labels: tuple[str, ...]
    rows: Sequence[Mapping[str, float]]
    wanted: Sequence[str]
    of: Sequence[int]

    def fitted(self, chosen: Callable[[int], bool]) -> Linear:
        """The classifier from the responses that are chosen."""
        inside = [at for at, response in enumerate(self.of) if chosen(response)]
        rows, wanted = [self.rows[at] for at in inside], [self.wanted[at] for at in inside]
        return fit(self.labels, rows, wanted, strength=STRENGTH)


def _repair_examples(items: Sequence[Labelled]) -> _Examples:
    rows = [repair_features(item.case) for item in items]
    return _Examples(VERDICTS["repair"], rows, [item.label for item in items], range(len(items)))


def _take_up_examples(items: Sequence[Labelled], embedder: Embedder) -> _Examples:
    """Two examples a response: whether it takes up the one utterance, and the other."""
    rows: list[Mapping[str, float]] = []
    wanted: list[str] = []
    of: list[int] = []
    for at, item in enumerate(items):
        case = item.case
        response = without_echoes(case.response, (case.assistant, case.bystander))
        if not response:
            continue
        for one, other, accepted, taken in (
            (case.assistant, case.bystander, case.accepted, ("assistant", "both")),
            (case.bystander, case.assistant, case.bystander_accepted, ("bystander", "both")),
        ):
            rows.append(take_up_features(one, other, response, accepted, embedder.vectors, embedder.is_word))
            wanted.append(YES if item.label in taken else NO)
            of.append(at)
    return _Examples((NO, YES), rows, wanted, of)


def _fold_of(items: Sequence[Labelled], seed: int) -> list[int]:
    scenes = sorted({item.scene for item in items})
    order = np.random.default_rng(seed).permutation(len(scenes))
    fold = {scene: int(place) % FOLDS for scene, place in zip(scenes, order, strict=True)}
    return [fold[item.scene] for item in items]


def _cross_validated(name: str, items: Sequence[Labelled], examples: _Examples, embedder: Embedder) -> list[str]:
    folds = _fold_of(items, seed=0)
    said: list[str] = [""] * len(items)
    for fold in range(FOLDS):
        judge = OfflineJudge(embedder, {name: examples.fitted(lambda at, fold=fold: folds[at] != fold)})  # type: ignore[misc]
        for at, item in enumerate(items):
            if folds[at] == fold:
                said[at] = judge.judge(item.case).label
    return said


def _show(kind: Kind, items: Sequence[Labelled], said: Sequence[str], how: str) -> None:
    table = confusion([item.label for item in items], said, VERDICTS[kind])
    print(f"{kind}: {len(items)} responses, {how}: accuracy {accuracy(table):.3f}, kappa {cohens_kappa(table):.3f}")


def main(argv: Sequence[str] | None = None) -> int:
    """Fit, print, and write unless told not to.

    Args:
        argv: arguments without the program's name.
    """
    parser = argparse.ArgumentParser(
        prog="python -m bench.judges.fit", description="fit the offline judge's classifiers"
    )
    parser.add_argument("--dry-run", action="store_true", help="only print; leave the weights as they are")
    args = parser.parse_args(argv)
    embedder = Embedder()
    sets = {kind: load(TRAINING, kind) for kind in KINDS}
    examples = {
        REPAIR: _repair_examples(sets["repair"]),
        TAKES_UP: _take_up_examples(sets["side_talk"], embedder),
    }
    kinds: dict[str, Kind] = {REPAIR: "repair", TAKES_UP: "side_talk"}
    for name, kind in kinds.items():
        said = _cross_validated(name, sets[kind], examples[name], embedder)
        _show(kind, sets[kind], said, f"{FOLDS}-fold cross-validation by scene")
    rules = OfflineJudge(embedder, {})
    answers = sets["answer"]
    _show(
        "answer", answers, [rules.judge(item.case).label for item in answers], "the rules on what they were made with"
    )
    if args.dry_run:
        return 0
    classifiers = {name: one.fitted(lambda at: True) for name, one in examples.items()}
    WEIGHTS.parent.mkdir(exist_ok=True)
    data = {"classifiers": {name: one.as_json() for name, one in classifiers.items()}}
    WEIGHTS.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(WEIGHTS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
