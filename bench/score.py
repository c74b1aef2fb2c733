"""``voicegate bench score``: from a run's log to ``summary.json``. Nothing is played, and nothing else is read.

The labels come from the copy of the manifest beside the log, or from ``--manifest`` when they have been corrected
since; verdicts on free text come from ``judgements.jsonl``. Scoring the same files gives the same summary, to the byte.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.assemble import load_catalogue
from agent.settings import Settings
from bench.judgements import JUDGEMENTS, Judgements
from bench.measures import Played
from bench.operating import operating_curves
from bench.provenance import CONFIG, read_config, sha256_of, write_json
from bench.ray_replicas import read_replicas, replica_scores
from bench.results import STATUSES
from bench.run import MANIFEST_COPY, select
from bench.runlog import RUN_LOG, read_log
from bench.score_ear import ear_scores
from bench.score_gate import gate_scores
from bench.score_times import compute_scores, latency_scores, throughput
from bench.score_vgbench import vgbench_scores
from bench.trials import Trial, load_manifest

SUMMARY = "summary.json"
SUMMARY_VERSION = 1
_CONFIGURATION = (
    "pace", "timeout_s", "patience", "workers", "executor", "split", "ids", "limit", "manifest", "settings",
    "created_unix",
)  # fmt: skip


class ScoreError(Exception):
    """A run cannot be scored. The message says why."""


def load_run(folder: Path, manifest: Path | None = None) -> tuple[list[Played], list[Trial], dict[str, Any]]:
    """A run as it lies on disk.

    Args:
        folder: the run's.
        manifest: labels to score with, instead of those that it was run with.

    Returns:
        The trials that have a line, in the manifest's order; those of the run's part of the corpus that have none; the
        configuration.

    Raises:
        ScoreError: when the log holds a trial that the manifest does not.
        ManifestError, RunLogError, JudgementsError, ConfigurationDiffersError: when a file cannot be read.
    """
    config = read_config(folder / CONFIG)
    trials = load_manifest(manifest or folder / MANIFEST_COPY, check_files=False)
    results = {result.id: result for result in read_log(folder / RUN_LOG)}
    unknown = results.keys() - {trial.id for trial in trials}
    if unknown:
        raise ScoreError(
            f"{folder / RUN_LOG}: {len(unknown)} trials are not in the manifest ({', '.join(sorted(unknown)[:3])}, …)"
        )
    judgements = Judgements.load(folder / JUDGEMENTS)
    meant = select(trials, config["split"], config["ids"], config["limit"])
    played = [Played(trial, results[trial.id], judgements) for trial in trials if trial.id in results]
    return played, [trial for trial in meant if trial.id not in results], config


def score(folder: Path, manifest: Path | None = None) -> dict[str, Any]:
    """Score a run, and write its ``summary.json``.

    Args:
        folder: the run's.
        manifest: labels to score with, instead of those that it was run with.

    Returns:
        The summary.

    Raises:
        Exception: as ``load_run``.
    """
    played, missing, config = load_run(folder, manifest)
    used = manifest or folder / MANIFEST_COPY
    summary = summarise(played, len(missing), config)
    summary["replicas"] = replica_scores(read_replicas(folder))
    summary["provenance"]["scored"] = {
        "manifest_sha256": sha256_of(used),
        "judgements_sha256": sha256_of(folder / JUDGEMENTS) if (folder / JUDGEMENTS).exists() else None,
    }
    write_json(folder / SUMMARY, summary)
    return summary


def summarise(played: Sequence[Played], not_run: int, config: dict[str, Any]) -> dict[str, Any]:
    """The summary of a run.

    Args:
        played: its trials.
        not_run: how many of the trials that it was to play have no line yet.
        config: what it was made with.
    """
    seed = int(config["seed"])
    settings = Settings.model_validate_json(json.dumps(config["settings"]))
    statuses = Counter(one.result.status for one in played)
    return {
        "version": SUMMARY_VERSION,
        "vgbench": vgbench_scores(played, seed),
        "gate": gate_scores(played, seed),
        "ear": ear_scores(played, seed),
        "latency": latency_scores(played),
        "compute": compute_scores(played),
        "throughput": throughput(played),
        "operating": operating_curves(played, settings.gate.thresholds(), load_catalogue(settings)),
        "status": {**{name: statuses[name] for name in STATUSES}, "not_run": not_run},
        "provenance": {
            "git_commit": config["code"]["git_commit"],
            "git_dirty": config["code"]["git_dirty"],
            "code_sha256": config["code"]["sha256"],
            "policy": config["policy"],
            "models": config["models"],
            "seed": seed,
            "machine": config["machine"],
            "configuration": {
                key: config[key]
                for key in _CONFIGURATION
            },
            "judges": played[0].judgements.judges if played else [],
        },
    }  # fmt: skip
