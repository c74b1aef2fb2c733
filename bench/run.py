"""``voicegate bench run``: plays a manifest and writes what came of it, one line a trial, in the order of their ends.

The folder of a run holds ``config.json`` (what it was made with), ``manifest.jsonl`` (a copy, so that it can be scored
without the corpus), ``run.jsonl`` (the log) and ``workers.log``. Whatever ends a run (Ctrl-C, kill -9, a full disk, the
power) costs the trials in flight at most; ``--resume`` goes on with the rest.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.clock import Pace
from agent.settings import Settings, load_settings
from bench.alone import alone
from bench.executors import Cluster, Pool
from bench.local_processes import WORKERS_LOG, LocalProcesses
from bench.preflight import PreflightError, is_sound, one_of_each_family, require_space
from bench.progress import RunProgress
from bench.provenance import (
    CONFIG,
    CONFIG_VERSION,
    code_provenance,
    cores,
    machine,
    read_config,
    require_same,
    require_same_models,
    sha256_of,
    write_json,
)
from bench.ray_placement import Placement
from bench.ray_replicas import REPLICAS
from bench.results import TrialResult
from bench.runlog import RUN_LOG, RunLog
from bench.trial_runner import RunSpec, bench_settings
from bench.trials import Trial, load_manifest

MANIFEST_COPY = "manifest.jsonl"
DEFAULT_TIMEOUT_S = 120.0
_LOCK = ".lock"


class RunRefusedError(Exception):
    """A run cannot be started as it was asked for. The message says what to do."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What is asked for.

    Attributes:
        manifest: what to play.
        policy: what is measured (see ``bench.contestants``).
        out: the run's folder.
        pace: which clock.
        resume: go on with the log that is there.
        limit: only the first trials of the manifest, after ``split``.
        split: only that part of the corpus.
        ids: only these trials.
        workers: how many; None: one on this machine, as many as there is room for on a Ray cluster.
        threads: threads of each worker's models; None: this machine's cores, shared among the workers.
        timeout_s: how long a trial may take, in real seconds.
        seed: of everything that is drawn at random.
        patience: multiplies the time limits of ears and policy (see ``RunSpec``).
        settings: a settings file, or None for the defaults.
        ray: address of a Ray cluster, or None.
        gpus: GPUs of each replica there (see ``bench.ray_placement``).
        resources: what each takes there of other resources.
        preflight: play one trial of each family before the rest, and stop when one fails.
    """

    manifest: Path
    policy: str
    out: Path
    pace: Pace = Pace.CHARGED
    resume: bool = False
    limit: int | None = None
    split: str | None = None
    ids: tuple[str, ...] | None = None
    workers: int | None = None
    threads: int | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    seed: int = 0
    patience: float = 1.0
    settings: Path | None = None
    ray: str | None = None
    gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)
    preflight: bool = True


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run has done.

    Attributes:
        out: its folder.
        total: trials of the whole run.
        played: those that this call has played.
        statuses: how these ended.
        elapsed_s: real seconds that they took, loading left out.
        audio_seconds_per_second: throughput of this call.
    """

    out: Path
    total: int
    played: int
    statuses: dict[str, int]
    elapsed_s: float
    audio_seconds_per_second: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A run as it will be made: its trials, and what its workers are told."""

    options: RunOptions
    trials: list[Trial]
    spec: RunSpec
    threads: int
    config: dict[str, Any] = field(repr=False)


MakeCluster = Callable[[Plan], Cluster]


def plan(options: RunOptions) -> Plan:
    """Read the manifest and settle everything that is to be settled before models are loaded.

    Raises:
        ManifestError: when the manifest is wrong.
        SettingsError: when the settings are.
        RunRefusedError: when nothing is left to play, or GPUs are asked for without a cluster that has them.
        PlacementError: when replicas cannot be placed as asked for.
    """
    if options.ray is None and (options.gpus or options.resources):
        raise RunRefusedError("GPUs and resources of replicas are those of a Ray cluster: name it with --ray")
    trials = select(load_manifest(options.manifest), options.split, options.ids, options.limit)
    if not trials:
        raise RunRefusedError(f"{options.manifest}: none of its trials is of the split {options.split!r}")
    threads = options.threads or max(1, cores() // (options.workers or 1))
    settings = Settings() if options.settings is None else load_settings(options.settings)
    spec = RunSpec(
        policy=options.policy, settings=bench_settings(settings, threads=threads).model_dump_json(), pace=options.pace,
        seed=options.seed, timeout_s=options.timeout_s, folder=options.manifest.parent.resolve(),
        patience=options.patience,
    )  # fmt: skip
    config = _config(options, spec)
    if options.ray is not None:
        config["replica"] = _placement(options, threads).needs()
    return Plan(options, trials, spec, threads, config)


def select(trials: Sequence[Trial], split: str | None, ids: Sequence[str] | None, limit: int | None) -> list[Trial]:
    """The trials of a manifest that a run is to play, in its order."""
    wanted = None if ids is None else set(ids)
    chosen = [t for t in trials if split in (None, t.split) and (wanted is None or t.id in wanted)]
    return chosen[:limit]


def cluster_of(plan: Plan) -> Cluster:
    """The workers that were asked for: processes here, or actors on a Ray cluster."""
    if plan.options.ray is None:
        return LocalProcesses(plan.spec, plan.threads, plan.options.out / WORKERS_LOG)
    from bench.ray_run import RayCluster

    return RayCluster(
        plan.spec, plan.threads, plan.options.ray, _placement(plan.options, plan.threads), plan.options.out / REPLICAS
    )


def _placement(options: RunOptions, threads: int) -> Placement:
    return Placement(float(threads), options.gpus, options.resources)


def run(
    options: RunOptions, make_cluster: MakeCluster = cluster_of, on_result: Callable[[TrialResult], None] | None = None
) -> RunReport:
    """Play a manifest.

    Args:
        options: what is asked for.
        make_cluster: makes the workers.
        on_result: called with each result once it is on disk.

    Returns:
        What was done.

    Raises:
        ManifestError, SettingsError, RunRefusedError, ConfigurationDiffersError, PreflightError, WorkersFailedError,
        ModelError, UnknownContestantError: before or without harm to what is logged; each names its cure.
        KeyboardInterrupt: on Ctrl-C; the log can be continued.
    """
    planned = plan(options)
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out
    busy = RunRefusedError(f"{out}: another run is writing here; wait for it, or name another --out")
    with alone(out / _LOCK, busy):
        _require_place(options, planned.config)
        require_space(options.out, len(planned.trials))
        cluster = make_cluster(planned)
        pool = Pool(cluster, options.workers or cluster.room, planned.spec)
        try:
            models = pool.start()
            _begin(options, {**planned.config, "models": models})
            with RunLog(options.out / RUN_LOG) as log:
                return _play(planned, pool, log, on_result)
        finally:
            pool.close()


def _play(planned: Plan, pool: Pool, log: RunLog, on_result: Callable[[TrialResult], None] | None) -> RunReport:
    todo = [trial for trial in planned.trials if trial.id not in log.done]
    before = len(planned.trials) - len(todo)
    first = one_of_each_family(todo) if planned.options.preflight else []
    first_ids = {trial.id for trial in first}
    rest = [trial for trial in todo if trial.id not in first_ids]
    with RunProgress(len(planned.trials), before) as progress:

        def keep(result: TrialResult) -> None:
            log.append(result)
            progress.add(result)
            if on_result is not None:
                on_result(result)

        unsound: list[TrialResult] = []
        for result in pool.play(first):
            # What is to be mended first leaves no line: it would have to be undone.
            if is_sound(result):
                keep(result)
            else:
                unsound.append(result)
        if unsound:
            raise PreflightError.of(unsound)
        for result in pool.play(rest):
            keep(result)
        elapsed_s = progress.elapsed_s
    return RunReport(
        planned.options.out, len(planned.trials), len(todo), dict(progress.statuses), elapsed_s,
        progress.audio_seconds_per_second,
    )  # fmt: skip


def _require_place(options: RunOptions, config: dict[str, Any]) -> None:
    """Refuse a folder with a log that must not be added to."""
    log = options.out / RUN_LOG
    if not log.exists():
        return
    if not options.resume:
        raise RunRefusedError(f"{log} exists: add --resume to go on with it, or name another folder with --out")
    require_same(read_config(options.out / CONFIG), config)


def _begin(options: RunOptions, config: dict[str, Any]) -> None:
    """Write down what the run is made with; when it goes on, check the models, which are known only now."""
    if (options.out / RUN_LOG).exists():
        require_same_models(read_config(options.out / CONFIG)["models"], config["models"])
        return
    shutil.copyfile(options.manifest, options.out / MANIFEST_COPY)
    write_json(options.out / CONFIG, config)


def _config(options: RunOptions, spec: RunSpec) -> dict[str, Any]:
    return {
        "version": CONFIG_VERSION,
        "created_unix": round(time.time()),
        "policy": options.policy,
        "pace": options.pace.value,
        "seed": options.seed,
        "timeout_s": options.timeout_s,
        "patience": options.patience,
        "workers": options.workers,
        "executor": "processes" if options.ray is None else "ray",
        "split": options.split,
        "ids": None if options.ids is None else list(options.ids),
        "limit": options.limit,
        "manifest": {
            "name": options.manifest.name,
            "sha256": sha256_of(options.manifest),
            # Where a report finds the audio; relative, so that both folders can be moved together.
            "folder": os.path.relpath(options.manifest.parent.resolve(), options.out.resolve()),
        },
        "settings": json.loads(spec.settings),
        "models": {},
        "code": code_provenance(),
        "machine": machine(),
    }
