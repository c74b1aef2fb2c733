"""The small set that comes with the project: every family and condition, at most 60 trials and 12 MB.

Dev items and dev voices, but for one held-out command in the cue conditions, which have no dev part; and one dialogue
of the EAR corpus in all its realisations. It tests that the benchmark works, not how good anything is.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.build import cues, vgbench
from bench.build.corpus import Report, build
from bench.build.ear import build_ear
from bench.build.ear_scripts import EarScripts, load_ear_scripts
from bench.build.plans import Plan
from bench.build.scripts import Scripts
from bench.build.speech import cache_folder
from bench.trials import Trial, load_manifest, write_manifest

_SWITCH: Final = 4
_SELF: Final = 5
_DIRECT: Final = 4


def build_smoke(
    scripts: Scripts, folder: Path, factory: Callable[[], Any], workers: int, report: Report,
    speech_folder: Path | None = None, parts_folder: Path | None = None,
) -> Path:  # fmt: skip
    """Build it, or what is missing of it. Recordings are FLAC: half the size.

    Args:
        scripts: what is said.
        folder: where it goes.
        factory: makes a synthesiser, in this process and in each worker; importable.
        workers: processes, one thread each.
        report: told of progress.
        speech_folder: the speech cache; None for the usual one.
        parts_folder: where its parts are built, with what a build needs to go on; None for the usual cache.

    Returns:
        The manifest's path.

    Raises:
        SpeechBuildError, TaggerError, MaskingError: when something cannot be made; name the cure.
    """
    parts = parts_folder or cache_folder() / "smoke-parts"
    made = (
        build(list(smoke(scripts)), parts / "spoken", factory, workers, report, speech_folder, container="flac"),
        build_ear(
            parts / "ear", factory, workers, report, split="dev", only=[_shortest(load_ear_scripts())],
            speech_folder=speech_folder,
        ),
    )  # fmt: skip
    (folder / "audio").mkdir(parents=True, exist_ok=True)
    trials: list[Trial] = []
    for manifest in made:
        for trial in load_manifest(manifest):
            trials.append(trial)
            for file in trial.files(manifest.parent):
                shutil.copyfile(file, folder / "audio" / file.name)
    write_manifest(folder / "manifest.jsonl", trials)
    return folder / "manifest.jsonl"


def smoke(scripts: Scripts) -> Iterator[Plan]:
    """A few trials of every family and condition but EAR's."""
    dev = [plan for plan in vgbench.plans(scripts) if plan.split == "dev"]
    switches = [plan for plan in dev if plan.family == "speaker_switch"]
    by_tool: dict[str | None, list[Plan]] = {}
    for plan in switches:
        by_tool.setdefault(plan.target_tool, []).append(plan)
    for tool in list(by_tool)[:_SWITCH]:
        yield from by_tool[tool][:3]  # the three conditions of one command
    sides = {tuple(map(str, _configuration(plan))): plan for plan in reversed(dev) if plan.family == "side_talk"}
    yield from sides.values()
    yield from _spread([plan for plan in dev if plan.family == "self_talk"], _SELF)
    for condition in ("command", "question"):
        chosen = [plan for plan in dev if plan.family == "direct" and plan.condition == condition]
        yield from _spread(chosen, _DIRECT // 2)
    yield from list(cues.eight(scripts))[: len(cues.EIGHT)]
    yield from (plan for plan in list(cues.six(scripts))[: len(cues.SIX)] if plan.condition == "same/far/600")
    yield from (plan for plan in list(cues.gaps(scripts))[:10] if plan.condition.endswith(("/100", "/300", "/1000")))


def _configuration(plan: Plan) -> tuple[object, ...]:
    return plan.condition, plan.more["assistant_content"], plan.more["bystander_content"]


def _spread(plans: Sequence[Plan], count: int) -> Sequence[Plan]:
    """That many, evenly over the list."""
    step = max(1, len(plans) // count)
    return plans[::step][:count]


def _shortest(scripts: EarScripts) -> str:
    """The id of the dev dialogue with the fewest letters."""
    chosen = min(scripts.of(["dev"]).dialogues, key=lambda script: sum(len(turn.text) for turn in script.utterances()))
    return chosen.id
