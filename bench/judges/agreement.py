"""How far a judge agrees with the labels of the agreement set: accuracy, Cohen's kappa, and who was taken for what.

``python -m bench.judges.agreement`` measures the offline judge; ``voicegate bench judge --agreement`` any judge.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench.judgements import VERDICTS, Kind
from bench.judges.case import Judge, NotJudgedError
from bench.judges.labelled_sets import KINDS, LABELLED, Labelled, load
from bench.stats import Interval, cluster_bootstrap

FloatArray = npt.NDArray[np.float64]
SEED: Final = 0
_SHOWN_CHARS: Final = 100


@dataclass(frozen=True, eq=False)
class Agreement:
    """A judge against the labels of one kind.

    Attributes:
        kind: the kind.
        judge: who judged.
        labels: what can be said, in the order of the table.
        table: float64 ``(labels, labels)``: rows are the labels of the set, columns what the judge said.
        scenes: how many scenes the responses come from.
        not_judged: how many responses the judge had no verdict on; they are in no figure.
        kappa_ci95: of Cohen's kappa, resampling whole scenes; None when it has none.
        accuracy_ci95: of the accuracy, likewise.
        missed: scene, label, what was said instead, response.
    """

    kind: Kind
    judge: str
    labels: tuple[str, ...]
    table: FloatArray
    scenes: int
    not_judged: int
    kappa_ci95: Interval | None
    accuracy_ci95: Interval | None
    missed: tuple[tuple[str, str, str, str], ...]

    @property
    def n(self) -> int:
        """How many responses were judged."""
        return int(self.table.sum())

    def as_json(self) -> dict[str, Any]:
        """All of it but the responses."""
        return {
            "judge": self.judge,
            "n": self.n,
            "scenes": self.scenes,
            "not_judged": self.not_judged,
            "accuracy": round(accuracy(self.table), 4) if self.n else None,
            "accuracy_ci95": _rounded(self.accuracy_ci95),
            "kappa": round(cohens_kappa(self.table), 4) if self.n else None,
            "kappa_ci95": _rounded(self.kappa_ci95),
            "labels": list(self.labels),
            "table": self.table.astype(int).tolist(),
        }


def _rounded(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [round(bound, 4) for bound in interval]


def confusion(wanted: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> FloatArray:
    """How often each label was given which verdict: float64 ``(labels, labels)``, a row a label of the first."""
    place = {label: at for at, label in enumerate(labels)}
    table = np.zeros((len(labels), len(labels)))
    for one, other in zip(wanted, said, strict=True):
        table[place[one], place[other]] += 1
    return table


def accuracy(table: FloatArray) -> float:
    """The share of verdicts on the diagonal of a table."""
    return float(np.trace(table) / table.sum())


def cohens_kappa(table: FloatArray) -> float:
    """Cohen's kappa (Cohen 1960): agreement beyond what the two would reach by chance, 1 at most, 0 by chance.

    Args:
        table: float64 ``(labels, labels)``: how often one gave the row's label and the other the column's.

    Returns:
        It; 1 where both give one and the same label to everything, as then nobody disagrees and chance explains all.

    Raises:
        ValueError: when the table is not square, or empty.
    """
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not table.sum() > 0:
        raise ValueError("kappa needs a square table with something in it")
    return float(_kappas(table.reshape(1, -1), table.shape[0])[0])


def _kappas(flat: FloatArray, labels: int) -> FloatArray:
    """Kappa of each of some tables, ``(draws, labels * labels)``; NaN of an empty one."""
    tables = flat.reshape(len(flat), labels, labels)
    total = tables.sum(axis=(1, 2))
    total = np.where(total > 0, total, np.nan)
    observed = np.trace(tables, axis1=1, axis2=2) / total
    chance = (tables.sum(axis=1) * tables.sum(axis=2)).sum(axis=1) / total**2
    beyond = 1 - chance
    out = np.divide(observed - chance, beyond, out=np.ones_like(beyond), where=beyond > 1e-12)
    return np.where(np.isnan(total), np.nan, out)


def measure(
    judge: Judge, kind: Kind, items: Sequence[Labelled], progress: Callable[[], None] = lambda: None
) -> Agreement:
    """Judge labelled responses and compare.

    Args:
        judge: who judges; sees the case and not the label.
        kind: the kind of all of them.
        items: the responses.
        progress: called after each.

    Raises:
        JudgeStoppedError: when the judge cannot judge anything.
    """
    labels = VERDICTS[kind]
    scenes = sorted({item.scene for item in items})
    row = {scene: at for at, scene in enumerate(scenes)}
    sums = np.zeros((len(scenes), len(labels) ** 2))
    missed: list[tuple[str, str, str, str]] = []
    not_judged = 0
    for item in items:
        try:
            said = judge.judge(item.case).label
        except NotJudgedError:
            not_judged += 1
        else:
            sums[row[item.scene], labels.index(item.label) * len(labels) + labels.index(said)] += 1
            if said != item.label:
                missed.append((item.scene, item.label, said, item.case.response))
        progress()
    table = sums.sum(axis=0).reshape(len(labels), len(labels))
    diagonal = np.eye(len(labels)).ravel().astype(bool)
    return Agreement(
        kind, judge.name(kind), labels, table, len(scenes), not_judged,
        cluster_bootstrap(sums, lambda drawn: _kappas(drawn, len(labels)), seed=SEED),
        cluster_bootstrap(sums, lambda drawn: drawn[:, diagonal].sum(axis=1) / drawn.sum(axis=1), seed=SEED),
        tuple(missed),
    )  # fmt: skip


def measure_all(judge: Judge, folder: Path = LABELLED, progress: Callable[[], None] = lambda: None) -> list[Agreement]:
    """A judge against the whole agreement set, kind by kind.

    Raises:
        JudgeStoppedError: when the judge cannot judge anything.
        LabelledSetError: when the set cannot be read.
    """
    return [measure(judge, kind, load(folder, kind), progress) for kind in KINDS]


def lines(found: Sequence[Agreement], *, missed: bool = False) -> list[str]:
    """What is printed: figures and table of each kind, and on wish each response that was judged otherwise."""
    out: list[str] = []
    for one in found:
        out.append(f"{one.kind}: {one.judge}, {one.n} responses to {one.scenes} scenes, {one.not_judged} not judged")
        if not one.n:
            continue
        out.append(f"  accuracy {accuracy(one.table):.3f} {_interval(one.accuracy_ci95)}")
        out.append(f"  Cohen's kappa {cohens_kappa(one.table):.3f} {_interval(one.kappa_ci95)}")
        width = max(len(label) for label in one.labels)
        out.append("  " + "label \\ judge".ljust(width) + "".join(f"  {label:>{width}}" for label in one.labels))
        for label, counts in zip(one.labels, one.table.astype(int).tolist(), strict=True):
            out.append("  " + label.ljust(max(width, 13)) + "".join(f"  {count:>{width}}" for count in counts))
        if missed:
            out += [
                f"  {scene}: {label}, judged {said}: {text[:_SHOWN_CHARS]}" for scene, label, said, text in one.missed
            ]
    return out


def _interval(interval: Interval | None) -> str:
    return "" if interval is None else f"[{interval[0]:.3f}, {interval[1]:.3f}]"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the offline judge.

    Args:
        argv: ``--json`` for figures as JSON, ``--missed`` for the responses that were judged otherwise.
    """
    from bench.judges.offline import OfflineJudge
    from bench.judges.rules import RulesFirst

    given = list(sys.argv[1:] if argv is None else argv)
    if unknown := set(given) - {"--json", "--missed"}:
        print(f"unknown: {', '.join(sorted(unknown))}; there are --json and --missed", file=sys.stderr)
        return 2
    found = measure_all(RulesFirst(OfflineJudge()))
    if "--json" in given:
        print(json.dumps({one.kind: one.as_json() for one in found}, indent=2))
    else:
        print("\n".join(lines(found, missed="--missed" in given)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
