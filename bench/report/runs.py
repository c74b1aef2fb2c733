"""The runs of a report, read from their folders and scored anew; the summaries that lie there are not believed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.assemble import load_catalogue
from agent.settings import Settings
from bench.measures import Played
from bench.provenance import sha256_of
from bench.score import load_run, summarise
from bench.trials import Trial
from gate.catalogue import Catalogue
from gate.thresholds import Thresholds


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """One run.

    Attributes:
        number: its place in the report, from 0.
        folder: where it lies.
        played: its trials, in the manifest's order.
        missing: those that have no line yet.
        config: what it was made with.
        summary: its scores.
        labels: the manifest that other labels were taken from, or None for those that it was run with.
        labels_sha256: of the labels that it is scored with, where they are not those that it was run with.
        corpus: folder that the paths of the recordings start from, or None when it is not known.
        thresholds: the gate's.
        catalogue: the tools that it had.
    """

    number: int
    folder: Path
    played: tuple[Played, ...]
    missing: tuple[Trial, ...]
    config: dict[str, Any] = field(repr=False)
    summary: dict[str, Any] = field(repr=False)
    labels: Path | None
    labels_sha256: str | None
    corpus: Path | None
    thresholds: Thresholds = field(repr=False)
    catalogue: Catalogue = field(repr=False)

    @property
    def key(self) -> str:
        """The letter that stands for it: A to Z, then AA and so on."""
        letters, rest = "", self.number + 1
        while rest:
            rest, last = divmod(rest - 1, 26)
            letters = chr(ord("A") + last) + letters
        return letters

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.resolve().name

    @property
    def title(self) -> str:
        """Letter and name."""
        return f"{self.key} {self.name}"

    @property
    def seed(self) -> int:
        """Of everything drawn at random."""
        return int(self.config["seed"])

    @property
    def policy(self) -> str:
        """What is measured."""
        return str(self.config["policy"])


def load_reported(folders: Sequence[Path], manifest: Path | None = None) -> tuple[ReportedRun, ...]:
    """Read and score runs.

    Args:
        folders: theirs, in the order of the report.
        manifest: labels to score all of them with, instead of those that each was run with; the recordings are then
            looked for beside it.

    Raises:
        ScoreError, ManifestError, RunLogError, JudgementsError, ConfigurationDiffersError: when a run cannot be read.
    """
    return tuple(_load(number, folder, manifest) for number, folder in enumerate(folders))


def _load(number: int, folder: Path, manifest: Path | None) -> ReportedRun:
    played, missing, config = load_run(folder, manifest)
    settings = Settings.model_validate_json(json.dumps(config["settings"]))
    labels_sha256 = None if manifest is None else sha256_of(manifest)
    return ReportedRun(
        number=number,
        folder=folder,
        played=tuple(played),
        missing=tuple(missing),
        config=config,
        summary=summarise(played, len(missing), config),
        labels=manifest,
        labels_sha256=None if labels_sha256 == config["manifest"]["sha256"] else labels_sha256,
        corpus=_corpus(folder, manifest, config),
        thresholds=settings.gate.thresholds(),
        catalogue=load_catalogue(settings),
    )


def _corpus(folder: Path, manifest: Path | None, config: dict[str, Any]) -> Path | None:
    """The folder of the manifest: the one that is named, or the one that the run has written down (its path may start
    from the run's folder)."""
    if manifest is not None:
        return manifest.parent
    recorded = config["manifest"].get("folder")
    return folder / recorded if isinstance(recorded, str) else None
