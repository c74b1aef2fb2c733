"""What the wearer's own near speech through the same microphone adds to a proximity score: fit and measure it.

``python -m models.training.proximity_relative --data DIR --work DIR``

An absolute score carries over badly to a microphone unlike the training ones. In a session there is something to
compare with: the wearer's enrolment, or the first turn of whoever began. Each scene here is one room, one background
and one device; in it the wearer is heard near twice, once as the reference, and somebody else is heard from afar.
Logistic regression on the two calibrated log-odds, the span's and the reference's, gives the relative log-odds of near.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from models.mel_bands import mel_band_db
from models.proximity_cnn import WEIGHTS, Calibration, Relative
from models.training import corpus, rooms, sounds
from models.training.corpus import SAMPLE_RATE_HZ, Part
from models.training.onnx_export import single_thread_session
from models.training.progress import steps
from models.training.proximity import (
    CLIP_S,
    TARGET_ERROR,
    BankEntry,
    Recipe,
    Renderer,
    activity,
    frame_outputs,
    one_talker,
    pool,
    room_bank,
    span_steps,
    step_means,
)

FloatArray = npt.NDArray[np.float64]

DURATIONS_S = (0.6, 1.0, 2.5)
_REFERENCE_M = 0.3
"""What the level of far speech is reckoned from."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One clip as the network reads it: mel bands in dB ``(frames, 48)`` and where somebody speaks ``(frames,)``."""

    bands_db: npt.NDArray[np.float16]
    weight: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Scene:
    """The wearer near, twice, and somebody far, in one room through one device."""

    reference: Heard
    near: Heard
    far: Heard


class SceneRenderer(Renderer):
    """Draws scenes of one recipe. The same seed and index always give the same scene."""

    def __init__(self, folder: Path, recipe: Recipe, bank: Sequence[BankEntry], seed: int) -> None:
        super().__init__(folder, recipe, bank, seed)
        by_room: dict[int, tuple[list[BankEntry], list[BankEntry]]] = {}
        for near in self._near:
            by_room.setdefault(near.room, ([], []))[0].append(near)
        for far in self._far:
            by_room.setdefault(far.room, ([], []))[1].append(far)
        self._rooms = [pair for pair in by_room.values() if pair[0] and pair[1]]

    def scene(self, index: int) -> Scene:
        """Scene number ``index``."""
        rng = np.random.default_rng([self._seed, 1, index])
        near_here, far_here = self._rooms[int(rng.integers(len(self._rooms)))]
        worn = near_here[int(rng.integers(len(near_here)))]
        away = far_here[int(rng.integers(len(far_here)))]
        dry = rng.random() < self._recipe.dry
        samples = round(CLIP_S * SAMPLE_RATE_HZ)
        reference, near = (self._from(rng, None if dry else worn, samples) for _ in range(2))
        far = self._from(rng, away, samples)
        # A benchmark levels both talkers, a real microphone hears the far one fainter over the same background.
        fall_db = 0.0 if rng.random() < 0.5 else -20.0 * math.log10(away.distance_m / _REFERENCE_M)
        scenery = int(rng.integers(2**31))
        return Scene(
            self._heard(reference, scenery, 0.0), self._heard(near, scenery, 0.0), self._heard(far, scenery, fall_db)
        )

    def _from(self, rng: np.random.Generator, entry: BankEntry | None, samples: int) -> FloatArray:
        if entry is None:
            return sounds.unit_power(self._dry(rng, samples))
        response = rooms.Response(
            entry.taps.astype(np.float64), entry.direct_sample, entry.distance_m, entry.rt60_s, entry.drr_db
        )
        lead = SAMPLE_RATE_HZ // 2
        return sounds.unit_power(rooms.convolve(self._dry(rng, samples + lead), response)[lead:])

    def _heard(self, speech: FloatArray, scenery: int, level_db: float) -> Heard:
        """Through the scene's background and device, which the seed alone determines."""
        audio, _ = self._recorded(np.random.default_rng(scenery), speech, -level_db)
        bands = mel_band_db(audio)
        return Heard(bands.astype(np.float16), activity(speech, len(bands)))


def rendered(
    folder: Path, part: Part, rooms_count: int, count: int, seed: int, work: Path, workers: int
) -> list[Scene]:
    """Scenes of one part, from the cache or rendered now."""
    path = work / f"scenes-{part}-{rooms_count}-{count}-{seed}.npz"
    if not path.is_file():
        work.mkdir(parents=True, exist_ok=True)
        recipe = dataclasses.replace(one_talker(part, rooms_count), measured=0.0)
        bank = room_bank(rooms_count, seed, recipe.method)
        with ProcessPoolExecutor(
            workers, mp_context=get_context("fork"), initializer=_start_worker, initargs=(folder, recipe, bank, seed)
        ) as workers_pool:
            scenes = list(steps(workers_pool.map(_scene, range(count), chunksize=8), f"scenes ({part})", count))
        clips = [clip for scene in scenes for clip in (scene.reference, scene.near, scene.far)]
        partial = path.with_suffix(".part.npz")
        np.savez(partial, bands=np.stack([c.bands_db for c in clips]), weight=np.stack([c.weight for c in clips]))
        partial.replace(path)
    with np.load(path) as data:
        heard = [Heard(bands, weight) for bands, weight in zip(data["bands"], data["weight"], strict=True)]
    return [Scene(*heard[first : first + 3]) for first in range(0, len(heard), 3)]


_renderer: SceneRenderer | None = None


def _start_worker(folder: Path, recipe: Recipe, bank: Sequence[BankEntry], seed: int) -> None:
    global _renderer
    _renderer = SceneRenderer(folder, recipe, bank, seed)


def _scene(index: int) -> Scene:
    if _renderer is None:
        raise RuntimeError("the worker was not started")
    return _renderer.scene(index)


@dataclass(frozen=True)
class Pairs:
    """Spans with their reference, as calibrated log-odds.

    Attributes:
        span: ``(n,)`` of the span.
        reference: ``(n,)`` of the wearer's near speech in the same scene.
        near: ``(n,)`` truth.
        duration_s: of the spans.
    """

    span: FloatArray
    reference: FloatArray
    near: npt.NDArray[np.bool_]
    duration_s: float


def score(session: Any, scenes: Sequence[Scene], calibration: Calibration, seed: int) -> list[Pairs]:
    """One span of each near and each far clip for every duration, in which speech fills at least 40 % of the frames."""
    rng = np.random.default_rng(seed)
    rows: dict[float, list[tuple[float, float, bool]]] = {duration_s: [] for duration_s in DURATIONS_S}
    for scene in steps(scenes, "scoring", len(scenes)):
        reference = float(calibration.log_odds(np.array(pool(_outputs(session, scene.reference))), CLIP_S))
        for heard, near in ((scene.near, True), (scene.far, False)):
            outputs, active = _outputs(session, heard), step_means(heard.weight[None])[0]
            for duration_s in DURATIONS_S:
                size = span_steps(duration_s)
                starts = [at for at in range(len(active) - size + 1) if active[at : at + size].mean() >= 0.4]
                if starts:
                    at = starts[int(rng.integers(len(starts)))]
                    logit = np.array(pool(outputs[at : at + size]))
                    rows[duration_s].append((float(calibration.log_odds(logit, duration_s)), reference, near))
    out = []
    for duration_s, kept in rows.items():
        spans, references, truth = (np.array(column) for column in zip(*kept, strict=True))
        out.append(Pairs(spans, references, truth, duration_s))
    return out


def _outputs(session: Any, heard: Heard) -> npt.NDArray[np.float32]:
    return frame_outputs(session, heard.bands_db.astype(np.float32))


def fit(pairs: Sequence[Pairs]) -> Relative:
    """Logistic regression, and the thresholds that keep each error within the target at the worst duration."""
    from scipy.optimize import minimize

    rows = np.concatenate([np.stack([p.span, p.reference, np.ones_like(p.span)], axis=1) for p in pairs])
    sign = np.where(np.concatenate([p.near for p in pairs]), 1.0, -1.0)

    def loss(weights: FloatArray) -> float:
        return float(np.logaddexp(0.0, -sign * (rows @ weights)).mean() + 1e-4 * np.sum(weights[:2] ** 2))

    span, reference, offset = (float(w) for w in minimize(loss, np.array([1.0, 0.0, 0.0]), method="BFGS").x)
    draft = Relative(span, reference, offset, 0.5, 0.5)
    near_at = max(float(np.quantile(_probability(draft, p)[~p.near], 1.0 - TARGET_ERROR)) for p in pairs)
    far_below = min(float(np.quantile(_probability(draft, p)[p.near], TARGET_ERROR)) for p in pairs)
    return dataclasses.replace(draft, near_at=max(near_at, far_below), far_below=min(near_at, far_below))


def _probability(relative: Relative, pairs: Pairs) -> FloatArray:
    return relative.probability(pairs.span, pairs.reference)


def report(pairs: Sequence[Pairs], calibration: Calibration, relative: Relative) -> list[str]:
    """Both scores side by side, as lines of Markdown."""
    from scipy.stats import rankdata

    lines = [
        "| span | score | AUC | near: kept / unsure / called far | far: accepted / unsure / refused |",
        "| --- | --- | --- | --- | --- |",
    ]
    for p in pairs:
        absolute = 1.0 / (1.0 + np.exp(-np.clip(p.span, -60.0, 60.0)))
        for name, value, limits in (
            ("absolute", absolute, (calibration.near_at, calibration.far_below)),
            ("relative", _probability(relative, p), (relative.near_at, relative.far_below)),
        ):
            ones, zeros = int(p.near.sum()), int((~p.near).sum())
            auc = float((rankdata(value)[p.near].sum() - ones * (ones + 1) / 2) / (ones * zeros))
            cells = [_outcomes(value[truth], *limits) for truth in (p.near, ~p.near)]
            lines.append(f"| {p.duration_s:.1f} s | {name} | {auc:.4f} | {cells[0]} ({ones}) | {cells[1]} ({zeros}) |")
    return lines


def _outcomes(value: FloatArray, near_at: float, far_below: float) -> str:
    near, far = float(np.mean(value >= near_at)), float(np.mean(value < far_below))
    return f"{near:.1%} / {1.0 - near - far:.1%} / {far:.1%}"


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", help="folder of recordings (default: VOICEGATE_DATA)")
    parser.add_argument("--work", type=Path, required=True, help="folder for rendered data")
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--scenes", type=int, default=1500)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(argv)
    folder = corpus.data_folder(args.data)
    description_path = args.weights.with_suffix(".json")
    description = json.loads(description_path.read_text(encoding="utf-8"))
    calibration = Calibration(**description["calibration"])
    session = single_thread_session(args.weights)
    dev = rendered(folder, Part.DEV, 120, args.scenes, args.seed, args.work, args.workers)
    relative = fit(score(session, dev, calibration, args.seed))
    test = rendered(folder, Part.TEST, 80, args.scenes, args.seed + 1, args.work, args.workers)
    print("\n".join(report(score(session, test, calibration, args.seed), calibration, relative)))
    description["relative"] = dataclasses.asdict(relative)
    description_path.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
