"""Train, calibrate, measure and export the proximity ear: near (0.1-0.5 m) or far (from 1.5 m), from one channel.

``python -m models.training.proximity --data DIR --out models/weights --card models/cards/proximity.md``

Near and far clips differ in the room only: voices, noise, signal-to-noise ratio, microphones and codecs are drawn
from the same distributions for both. A quarter of the clips switch from one talker to another at the other distance,
so that frames near a change of talker learn to answer for their own side of it. Distances between 0.5 and 1.2 m carry
a label that falls from near to far, so that the calibrated probability is unsure where the question is.

Rendered data are cached under ``--work`` by seed and size; a second run with the same arguments trains at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from models.mel_bands import BANDS, HOP_SAMPLES, mel_band_db
from models.proximity_cnn import (
    LEVEL_HALF_FRAMES,
    STRIDE_FRAMES,
    Calibration,
    normalised,
)
from models.training import cards, corpus, devices, rooms, sounds
from models.training.corpus import SAMPLE_RATE_HZ, Part
from models.training.onnx_export import export, single_thread_session
from models.training.progress import steps

FloatArray = npt.NDArray[np.float64]

CLIP_S = 3.0
NEAR_M = (0.1, 0.5)
FAR_FROM_M = 1.5
_FAR_LABEL_FROM_M = 1.2
_LEAD_S = 0.6  # speech before the clip, so that a clip may begin inside a reverberant tail
_DURATIONS_S = (0.6, 1.0, 2.5)
TARGET_ERROR = 0.01


@dataclass(frozen=True, slots=True)
class BankEntry:
    """One impulse response of a bank."""

    taps: npt.NDArray[np.float32]
    direct_sample: int
    distance_m: float
    rt60_s: float
    drr_db: float
    room: int


@dataclass(frozen=True, slots=True)
class Clip:
    """One rendered training or test clip.

    Attributes:
        bands_db: float16 ``(frames, 48)``.
        label: float32 ``(frames,)``: 1 near, 0 far, between for distances between.
        weight: float32 ``(frames,)``: 1 where somebody speaks, else 0.
        distance_m: of the only talker, or NaN for a clip with two and for measured rooms, whose distance is not known.
        near: whether the only talker is near; None with two talkers or a distance between.
        rt60_s, drr_db: measured on the response; NaN without one.
        snr_db: of speech over noise before the device.
    """

    bands_db: npt.NDArray[np.float16]
    label: npt.NDArray[np.float32]
    weight: npt.NDArray[np.float32]
    distance_m: float
    near: bool | None
    rt60_s: float
    drr_db: float
    snr_db: float


@dataclass(frozen=True)
class Recipe:
    """What is rendered, and how much of it.

    Attributes:
        part: whose voices, noises and measured rooms.
        simulated_rooms: number of simulated rooms.
        method: how their late field is made.
        measured: share of reverberant clips that use a measured room.
        switches: share of clips with two talkers.
        between: share of clips at distances between near and far.
        dry: share of near clips without any room.
    """

    part: Part
    simulated_rooms: int
    method: rooms.Method = rooms.Method.HYBRID
    measured: float = 0.2
    switches: float = 0.25
    between: float = 0.08
    dry: float = 0.25


def label_of_distance(distance_m: float) -> float:
    """1 up to 0.5 m, 0 from 1.2 m, linear in the logarithm of distance between."""
    span = math.log(_FAR_LABEL_FROM_M / NEAR_M[1])
    return float(np.clip(1.0 - math.log(distance_m / NEAR_M[1]) / span, 0.0, 1.0))


def room_bank(count: int, seed: int, method: rooms.Method) -> list[BankEntry]:
    """Responses of ``count`` drawn rooms: per room three near, one between and four far microphones."""
    bank = []
    for index in steps(range(count), f"rooms ({method})", count):
        rng = np.random.default_rng([seed, index])
        room = rooms.draw_room(rng)
        dims = np.array(room.dims_m)
        source = np.array([rng.uniform(0.6, dims[0] - 0.6), rng.uniform(0.6, dims[1] - 0.6), rng.uniform(1.0, 1.75)])
        distances = [math.exp(rng.uniform(*np.log(NEAR_M))) for _ in range(3)] + [rng.uniform(0.55, 1.45)]
        distances += [math.exp(rng.uniform(math.log(FAR_FROM_M), math.log(5.0))) for _ in range(4)]
        placed = [(mic, d) for d in distances if (mic := _place_mic(rng, source, dims, d)) is not None]
        # People speak into a near microphone, or wear it below the chin; a bystander may face anywhere.
        facing = [rng.uniform(0.0, 80.0) if d <= NEAR_M[1] else rng.uniform(0.0, 180.0) for _, d in placed]
        mics = np.array([mic for mic, _ in placed])
        for response in rooms.impulse_responses(
            room, source, mics, int(rng.integers(2**31)), facing_deg=facing, method=method
        ):
            bank.append(_entry(response, index))
    return bank


def measured_bank(folder: Path, part: Part) -> list[tuple[npt.NDArray[np.float64], int]]:
    """Channels of the measured impulse responses of one part, with their rates."""
    out: list[tuple[FloatArray, int]] = []
    for recording in corpus.measured_rooms(folder, part):
        samples, rate = corpus.read_all_channels(recording.path)
        out.extend((samples[:, channel], rate) for channel in range(samples.shape[1]))
    return out


class Renderer:
    """Draws clips of one recipe. The same seed and index always give the same clip."""

    def __init__(self, folder: Path, recipe: Recipe, bank: Sequence[BankEntry], seed: int) -> None:
        self._recipe = recipe
        self._seed = seed
        self._near = [e for e in bank if e.distance_m <= NEAR_M[1]]
        self._far = [e for e in bank if e.distance_m >= FAR_FROM_M]
        self._between = [e for e in bank if NEAR_M[1] < e.distance_m < FAR_FROM_M]
        self._measured = measured_bank(folder, recipe.part) if recipe.measured > 0 else []
        self._speech: dict[str, list[corpus.Recording]] = {}
        for recording in corpus.speech(folder, recipe.part):
            if recording.duration_s >= 1.0:
                self._speech.setdefault(recording.set_name, []).append(recording)
        if recipe.part is Part.TEST:
            # Held-out readers of the training corpora are few; read speech of others joins them.
            for recording in corpus.speech(folder, Part.TEST, ("librispeech_test_other", "vctk")):
                self._speech.setdefault(recording.set_name, []).append(recording)
        self._noises = [r.read() for r in corpus.noises(folder, recipe.part)]

    def clip(self, index: int) -> Clip:
        """Clip number ``index``."""
        rng = np.random.default_rng([self._seed, index])
        if rng.random() < self._recipe.switches:
            return self._switch(rng)
        draw = rng.random()
        if draw < self._recipe.between:
            return self._single(rng, None)
        return self._single(rng, bool(rng.random() < 0.5))

    def _single(self, rng: np.random.Generator, near: bool | None) -> Clip:
        samples = round(CLIP_S * SAMPLE_RATE_HZ)
        speech, entry = self._talker(rng, near, samples)
        audio, snr_db = self._recorded(rng, speech)
        distance = entry.distance_m if entry is not None else (0.3 if near else math.nan)
        label = 1.0 if near else 0.0 if near is not None else label_of_distance(distance)
        bands = mel_band_db(audio)
        weight = activity(speech, len(bands))
        return Clip(
            bands.astype(np.float16),
            np.full(len(bands), label, dtype=np.float32),
            weight,
            entry.distance_m if entry is not None else math.nan,
            near,
            entry.rt60_s if entry is not None else math.nan,
            entry.drr_db if entry is not None else math.nan,
            snr_db,
        )

    def _switch(self, rng: np.random.Generator) -> Clip:
        samples = round(CLIP_S * SAMPLE_RATE_HZ)
        near_first = bool(rng.random() < 0.5)
        gap = round(rng.uniform(0.0, 0.7) * SAMPLE_RATE_HZ)
        cut = round(rng.uniform(0.25, 0.75) * (samples - gap))
        lengths = (cut, samples - gap - cut)
        # A benchmark levels both talkers, a real microphone hears the far one fainter.
        far_gain_db = 0.0 if rng.random() < 0.5 else rng.uniform(-18.0, -3.0)
        audio = np.zeros(samples)
        label = np.zeros(samples // HOP_SAMPLES + 1, dtype=np.float32)
        weight = np.zeros_like(label)
        start = 0
        for position, length in enumerate(lengths):
            near = near_first == (position == 0)
            speech, _ = self._talker(rng, near, length)
            fade = min(80, length // 2)
            speech[:fade] *= np.arange(fade) / fade
            speech[length - fade :] *= np.arange(fade)[::-1] / fade
            if not near:
                speech *= 10.0 ** (far_gain_db / 20.0)
            audio[start : start + length] += speech
            first = math.ceil(start / HOP_SAMPLES)
            active = activity(speech, max(0, (length - 400) // HOP_SAMPLES))
            label[first : first + len(active)] = float(near)
            weight[first : first + len(active)] = active
            start += length + gap
        recorded, snr_db = self._recorded(rng, audio)
        bands = mel_band_db(recorded)
        n = len(bands)
        return Clip(bands.astype(np.float16), label[:n], weight[:n], math.nan, None, math.nan, math.nan, snr_db)

    def _talker(self, rng: np.random.Generator, near: bool | None, samples: int) -> tuple[FloatArray, BankEntry | None]:
        """Speech of unit power at a distance, without noise or device."""
        lead = round(_LEAD_S * SAMPLE_RATE_HZ)
        dry = self._dry(rng, samples + lead)
        if near and rng.random() < self._recipe.dry:
            return sounds.unit_power(dry[lead:]), None
        if near is not None and self._measured and rng.random() < self._recipe.measured:
            taps, rate = self._measured[int(rng.integers(len(self._measured)))]
            drr_db = rng.uniform(9.0, 24.0) if near else rng.uniform(-12.0, 4.0)
            response = rooms.measured_response(taps, rate, drr_db=drr_db)
            entry = dataclasses.replace(_entry(response, -1), distance_m=math.nan)
        else:
            pool = self._near if near else self._far if near is not None else self._between
            entry = pool[int(rng.integers(len(pool)))]
            response = rooms.Response(
                entry.taps.astype(np.float64), entry.direct_sample, entry.distance_m, entry.rt60_s, entry.drr_db
            )
        return sounds.unit_power(rooms.convolve(dry, response)[lead:]), entry

    def _dry(self, rng: np.random.Generator, samples: int) -> FloatArray:
        names = sorted(self._speech)
        weights = np.array([{"librispeech_cohort": 0.5, "cmu_arctic": 0.05}.get(name, 0.22) for name in names])
        pool = self._speech[names[int(rng.choice(len(names), p=weights / weights.sum()))]]
        for _ in range(20):
            x = sounds.excerpt(rng, [pool[int(rng.integers(len(pool)))].read()], samples)
            active = corpus.voiced_frames(x.astype(np.float32))
            if np.abs(x).max() > 0 and active[-round(100 * samples / SAMPLE_RATE_HZ * 0.6) :].mean() > 0.35:
                break
        if rng.random() < 0.3:  # another tempo and pitch of the same voice: more voices than there are
            import soxr

            speed = rng.uniform(0.88, 1.14)
            x = np.asarray(soxr.resample(x, SAMPLE_RATE_HZ * speed, SAMPLE_RATE_HZ), dtype=np.float64)
            x = np.pad(x, (0, max(0, samples - len(x))), mode="wrap")[:samples]
        return x

    def _recorded(
        self, rng: np.random.Generator, speech: FloatArray, fainter_db: float = 0.0
    ) -> tuple[npt.NDArray[np.float32], float]:
        """Speech with background, through a device. Returns the audio and the signal-to-noise ratio, which is drawn for
        speech that is not fainter than it would be near."""
        samples = len(speech)
        snr_db = (rng.uniform(30.0, 55.0) if rng.random() < 0.4 else rng.uniform(2.0, 30.0)) - fainter_db
        draw = rng.random()
        if draw < 0.45:
            noise = sounds.unit_power(sounds.excerpt(rng, self._noises, samples))
        elif draw < 0.85:
            noise = sounds.room_tone(rng, samples)
        else:
            noise = sounds.babble(rng, samples, self._far_voice, int(rng.integers(2, 6)))
        power = float(np.mean(speech**2))
        mixed = speech + noise * math.sqrt(power) * 10.0 ** (-snr_db / 20.0)
        return devices.through_device(mixed, rng).astype(np.float32), snr_db

    def _far_voice(self, rng: np.random.Generator, samples: int) -> FloatArray:
        entry = self._far[int(rng.integers(len(self._far)))]
        response = rooms.Response(
            entry.taps.astype(np.float64), entry.direct_sample, entry.distance_m, entry.rt60_s, entry.drr_db
        )
        return rooms.convolve(self._dry(rng, samples), response)


def build_network() -> Any:
    """The torch network: ``(batch, frames, 48)`` normalised bands to ``(batch, frames / 4, 2)`` logit and attention."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width: int, dilation: int) -> None:
            super().__init__()
            self.depthwise = nn.Conv1d(width, width, 7, padding=3 * dilation, dilation=dilation, groups=width)
            self.pointwise = nn.Conv1d(width, width, 1)
            self.norm = nn.BatchNorm1d(width)
            self.drop = nn.Dropout(0.2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.drop(torch.relu(self.norm(self.pointwise(self.depthwise(x)))))
            return x + y

    class ProximityNetwork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers: list[nn.Module] = []
            for inside, outside, kernel, stride in (
                (1, 16, 5, (1, 2)),
                (16, 32, 3, (2, 2)),
                (32, 48, 3, (1, 2)),
                (48, 80, 3, (2, 2)),
            ):
                layers += [nn.Conv2d(inside, outside, kernel, stride, kernel // 2), nn.BatchNorm2d(outside), nn.ReLU()]
            self.front = nn.Sequential(*layers)
            self.squeeze = nn.Sequential(nn.Conv1d(80 * BANDS // 16, 96, 1), nn.BatchNorm1d(96), nn.ReLU())
            self.blocks = nn.Sequential(*(Block(96, dilation) for dilation in (1, 2, 3)))
            self.head = nn.Conv1d(96, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.front(x.unsqueeze(1)).transpose(2, 3).flatten(1, 2)
            out: torch.Tensor = self.head(self.blocks(self.squeeze(y))).transpose(1, 2)
            return out

    return ProximityNetwork()


def train(clips: Sequence[Clip], *, seed: int, epochs: int, threads: int, batch: int = 64) -> Any:
    """Fit the network. Loss: pooled verdict of a drawn span, plus every speaking frame's own verdict."""
    import torch
    from torch.nn import functional as F  # noqa: N812 (torch's own convention)

    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    network = build_network().to(memory_format=torch.channels_last)
    bands = np.stack([c.bands_db for c in clips])
    labels = torch.from_numpy(step_means(np.stack([c.label for c in clips])))
    weights = torch.from_numpy(step_means(np.stack([c.weight for c in clips])))
    features = np.stack([normalised(b.astype(np.float32)) for b in bands]).astype(np.float16)
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=0.05)
    per_epoch = len(clips) // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=epochs * per_epoch, pct_start=0.2)
    rng = np.random.default_rng(seed)
    losses: list[float] = []
    for number in steps(range(epochs * per_epoch), "training", epochs * per_epoch):
        if number % per_epoch == 0:
            order = rng.permutation(len(clips))
        chosen = order[number % per_epoch * batch :][:batch]
        x = features[chosen].astype(np.float32)
        x = _varied(x, rng)
        frames = int(rng.integers(100, 301)) // STRIDE_FRAMES * STRIDE_FRAMES
        first = int(rng.integers(0, (300 - frames) // STRIDE_FRAMES + 1)) * STRIDE_FRAMES
        part = slice(first // STRIDE_FRAMES, (first + frames) // STRIDE_FRAMES)
        y, w = labels[chosen][:, part], weights[chosen][:, part]
        network.train()
        with torch.autocast("cpu", torch.bfloat16):
            out = network(torch.from_numpy(x[:, first : first + frames]))
        out = out.float()[:, : y.shape[1]]
        logit, attention = out[..., 0], F.softplus(out[..., 1]) + 1e-3
        frame_loss = (F.binary_cross_entropy_with_logits(logit, y, reduction="none") * w).sum() / w.sum().clamp(min=1.0)
        span = int(rng.integers(12, min(63, y.shape[1]) + 1))
        at = int(rng.integers(0, y.shape[1] - span + 1))
        inside = slice(at, at + span)
        share = w[:, inside].sum(1)
        target = (y[:, inside] * w[:, inside]).sum(1) / share.clamp(min=1e-3)
        pooled = (logit[:, inside] * attention[:, inside]).sum(1) / attention[:, inside].sum(1)
        use = (share > 0.3 * span).float()
        span_loss = (
            F.binary_cross_entropy_with_logits(pooled, target, reduction="none") * use
        ).sum() / use.sum().clamp(min=1.0)
        loss = span_loss + 0.5 * frame_loss
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 2.0)
        optimiser.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if (number + 1) % per_epoch == 0:
            print(f"epoch {(number + 1) // per_epoch}: loss {np.mean(losses[-per_epoch:]):.4f}", flush=True)
    return network.eval()


@dataclass(frozen=True)
class Scored:
    """Pooled logits of spans of one duration.

    Attributes:
        logit: ``(n,)`` pooled, not calibrated.
        near: ``(n,)`` truth.
        duration_s: of the spans.
        clips: the clip of each span, for breakdowns.
    """

    logit: FloatArray
    near: npt.NDArray[np.bool_]
    duration_s: float
    clips: tuple[Clip, ...]


def score_clips(session: Any, clips: Iterable[Clip], durations_s: Sequence[float], seed: int) -> list[Scored]:
    """Pooled logits of drawn spans in which speech fills at least 40 % of the frames, one per clip and duration.

    The whole clip goes through the network once, as a turn does at run time.
    """
    rng = np.random.default_rng(seed)
    logits: list[list[float]] = [[] for _ in durations_s]
    kept: list[list[Clip]] = [[] for _ in durations_s]
    for clip in clips:
        if clip.near is None:
            continue
        frames = frame_outputs(session, clip.bands_db.astype(np.float32))
        active = step_means(clip.weight[None])[0]
        for which, duration_s in enumerate(durations_s):
            span = span_steps(duration_s)
            starts = [s for s in range(len(active) - span + 1) if active[s : s + span].mean() >= 0.4]
            if starts:
                at = starts[int(rng.integers(len(starts)))]
                logits[which].append(pool(frames[at : at + span]))
                kept[which].append(clip)
    return [
        Scored(np.array(values), np.array([c.near for c in chosen], dtype=np.bool_), duration_s, tuple(chosen))
        for values, chosen, duration_s in zip(logits, kept, durations_s, strict=True)
    ]


def score_recordings(
    session: Any, audio: Iterable[npt.NDArray[np.float32]], durations_s: Sequence[float]
) -> list[FloatArray]:
    """Pooled logits, per duration, of the adjoining spans of recordings in which speech fills at least half."""
    out: list[list[float]] = [[] for _ in durations_s]
    for x in audio:
        frames = frame_outputs(session, mel_band_db(x))
        active = step_means(corpus.voiced_frames(x)[: len(frames) * STRIDE_FRAMES].astype(np.float32)[None])[0]
        for which, duration_s in enumerate(durations_s):
            span = span_steps(duration_s)
            for at in range(0, min(len(frames), len(active)) - span + 1, span):
                if active[at : at + span].mean() >= 0.5:
                    out[which].append(pool(frames[at : at + span]))
    return [np.array(values) for values in out]


def calibrate(scored: Sequence[Scored]) -> Calibration:
    """Platt scaling with the duration as side input, and thresholds for the stated target.

    ``near_at``: at most 1 % of far dev spans reach it, at the worst of the durations; ``far_below``: at most 1 % of
    near dev spans fall below it, likewise. Where the two would cross, the band between them is what is unsure.
    """
    from scipy.optimize import minimize

    rows = np.concatenate([_calibration_inputs(s.logit, s.duration_s) for s in scored])
    sign = np.where(np.concatenate([s.near for s in scored]), 1.0, -1.0)

    def loss(weights: FloatArray) -> float:
        # A weak pull to zero, so that data that separate perfectly still give finite odds.
        return float(np.logaddexp(0.0, -sign * (rows @ weights)).mean() + 1e-4 * np.sum(weights[:2] ** 2))

    scale, scale_log_s, offset_log_s, offset = (
        float(w) for w in minimize(loss, np.array([1.0, 0.0, 0.0, 0.0]), method="BFGS").x
    )
    draft = Calibration(scale, scale_log_s, offset, offset_log_s, 0.5, 0.5)
    near_at = max(
        float(np.quantile(draft.probability(s.logit[~s.near], s.duration_s), 1.0 - TARGET_ERROR)) for s in scored
    )
    far_below = min(float(np.quantile(draft.probability(s.logit[s.near], s.duration_s), TARGET_ERROR)) for s in scored)
    return dataclasses.replace(draft, near_at=max(near_at, far_below), far_below=min(near_at, far_below))


def table(scored: Sequence[Scored], calibration: Calibration, title: str) -> list[str]:
    """Markdown rows: AUC and the four outcomes per duration."""
    lines = [f"**{title}**", ""]
    lines += ["| span | near / far | AUC | near: kept / unsure / called far | far: accepted / unsure / refused |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    for s in scored:
        p = calibration.probability(s.logit, s.duration_s)
        outcome = [_outcomes(p[s.near], calibration), _outcomes(p[~s.near], calibration)]
        lines.append(
            f"| {s.duration_s:.1f} s | {int(s.near.sum())} / {int((~s.near).sum())} | {_auc(s):.4f} | "
            f"{outcome[0]} | {outcome[1]} |"
        )
    return [*lines, ""]


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", help="folder of recordings (default: VOICEGATE_DATA)")
    parser.add_argument("--out", type=Path, default=Path("models/weights"))
    parser.add_argument("--card", type=Path, default=Path("models/cards/proximity.md"))
    parser.add_argument("--work", type=Path, required=True, help="folder for rendered data (about 0.5 GB)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--clips", type=int, default=9000)
    parser.add_argument("--rooms", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only-measure", action="store_true", help="calibrate and measure weights that exist")
    args = parser.parse_args(argv)
    folder = corpus.data_folder(args.data)
    weights = args.out / "proximity.onnx"
    train_recipe = Recipe(Part.TRAIN, args.rooms)
    dev_recipe = one_talker(Part.DEV, 120)
    parity = math.nan
    if not args.only_measure:
        clips = rendered(folder, train_recipe, args.clips, args.seed, args.work, args.workers)
        parity = export(train(clips, seed=args.seed, epochs=args.epochs, threads=args.workers), weights)
        print(f"exported {weights}, largest difference from torch {parity:.1e}")
    session = single_thread_session(weights)
    dev = rendered(folder, dev_recipe, 3000, args.seed + 1, args.work, args.workers)
    calibration = calibrate(score_clips(session, dev, _DURATIONS_S, args.seed))
    lines = []
    tests = {
        "Unseen simulated rooms, voices and noises": one_talker(Part.TEST, 80),
        "The same with the image source model run to the end (another renderer)": one_talker(
            Part.TEST, 40, method=rooms.Method.IMAGE
        ),
        "Unseen measured rooms (direct sound scaled to DRR 9 to 24 dB near, -12 to 4 dB far)": one_talker(
            Part.TEST, 8, measured=1.0, dry=0.0
        ),
    }
    for title, recipe in tests.items():
        test = rendered(folder, recipe, 1500, args.seed + 2, args.work, args.workers)
        scored = score_clips(session, test, _DURATIONS_S, args.seed)
        lines += table(scored, calibration, title)
        if recipe.measured == 0.0 and recipe.method is rooms.Method.HYBRID:
            lines += _breakdown(scored[1], calibration)
    lines += _real_tables(session, folder, calibration)
    print("\n".join(lines))
    meta = {
        "model": "proximity",
        "onnx_sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "parameters": _parameter_count(weights),
        "calibration": dataclasses.asdict(calibration),
        "target": "far accepted as near <= 1 %, near called far <= 1 %, on unseen voices and simulated rooms (dev)",
        "level_half_frames": LEVEL_HALF_FRAMES,
        "training": {
            "clips": args.clips,
            "clip_s": CLIP_S,
            "rooms": args.rooms,
            "epochs": args.epochs,
            "seed": args.seed,
        },
    }
    (args.out / "proximity.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
    cards.write_measured(args.card, [cards.facts(meta), *lines])


def one_talker(
    part: Part, count: int, *, method: rooms.Method = rooms.Method.HYBRID, measured: float = 0.0, dry: float = 0.25
) -> Recipe:
    """A recipe for calibrating and testing: one talker a clip, near or far, never between."""
    return Recipe(part, count, method=method, measured=measured, switches=0.0, between=0.0, dry=dry)


def rendered(folder: Path, recipe: Recipe, count: int, seed: int, work: Path, workers: int) -> list[Clip]:
    """Clips of a recipe, from the cache or rendered now."""
    key = hashlib.sha256(
        json.dumps([dataclasses.asdict(recipe), count, seed, CLIP_S], default=str).encode()
    ).hexdigest()
    path = work / f"proximity-{recipe.part}-{key[:12]}.npz"
    if not path.is_file():
        work.mkdir(parents=True, exist_ok=True)
        bank = room_bank(recipe.simulated_rooms, seed, recipe.method)
        with ProcessPoolExecutor(
            workers, mp_context=get_context("fork"), initializer=_start_worker, initargs=(folder, recipe, bank, seed)
        ) as pool:
            done = list(steps(pool.map(_render_one, range(count), chunksize=16), f"clips ({recipe.part})", count))
        _save(path, done)
    return list(_load(path))


_renderer: Renderer | None = None


def _start_worker(folder: Path, recipe: Recipe, bank: Sequence[BankEntry], seed: int) -> None:
    global _renderer
    _renderer = Renderer(folder, recipe, bank, seed)


def _render_one(index: int) -> Clip:
    if _renderer is None:
        raise RuntimeError("the worker was not started")
    return _renderer.clip(index)


def _save(path: Path, clips: Sequence[Clip]) -> None:
    facts = np.array(
        [[c.distance_m, math.nan if c.near is None else float(c.near), c.rt60_s, c.drr_db, c.snr_db] for c in clips]
    )
    temporary = path.with_suffix(".part.npz")
    np.savez(
        temporary,
        bands=np.stack([c.bands_db for c in clips]),
        label=np.stack([c.label for c in clips]),
        weight=np.stack([c.weight for c in clips]),
        facts=facts,
    )
    temporary.replace(path)


def _load(path: Path) -> Iterator[Clip]:
    with np.load(path) as data:
        bands, labels, weights, facts = (data[name] for name in ("bands", "label", "weight", "facts"))
    for b, label, weight, (distance, near, rt60, drr, snr) in zip(bands, labels, weights, facts, strict=True):
        yield Clip(b, label, weight, distance, None if math.isnan(near) else bool(near), rt60, drr, snr)


def _varied(x: npt.NDArray[np.float32], rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """More microphones and backgrounds at no cost: what they do to normalised bands ``(batch, frames, 48)``.

    A smooth response per clip; for half of them a steady noise floor, added as power; for a third a band limit.
    """
    batch = len(x)
    knots = np.linspace(0, BANDS - 1, 7)
    curve = rng.normal(0.0, 4.0, size=(batch, 7))
    decibels = x * 15.0 - 30.0 + np.stack([np.interp(np.arange(BANDS), knots, c) for c in curve])[:, None, :]
    slope = np.linspace(0.5, -0.5, BANDS) * rng.uniform(0.0, 25.0, size=(batch, 1))
    floor = slope + np.where(rng.random((batch, 1)) < 0.5, rng.uniform(-60.0, -25.0, size=(batch, 1)), -90.0)
    # Noise power in a band fluctuates from frame to frame as its few bins do.
    flicker = rng.normal(0.0, 2.0, size=decibels.shape)
    decibels = 10.0 * np.log10(10.0 ** (decibels / 10.0) + 10.0 ** ((floor[:, None, :] + flicker) / 10.0))
    top = np.where(rng.random(batch) < 0.2, rng.integers(33, BANDS, size=batch), BANDS)
    bottom = np.where(rng.random(batch) < 0.15, rng.integers(0, 7, size=batch), 0)
    bands = np.arange(BANDS)
    outside = (bands[None] >= top[:, None]) | (bands[None] < bottom[:, None])
    decibels = np.where(outside[:, None, :], np.maximum(decibels - 45.0, -70.0), np.maximum(decibels, -70.0))
    return np.asarray((decibels + 30.0) / 15.0, dtype=np.float32)


def _place_mic(rng: np.random.Generator, source: FloatArray, dims: FloatArray, distance_m: float) -> FloatArray | None:
    """A microphone at that distance inside the room, mostly lower than the mouth; None when none fits."""
    for _ in range(40):
        direction = rng.normal(size=3) * np.array([1.0, 1.0, 0.5])
        mic = source + direction / np.linalg.norm(direction) * distance_m
        if np.all(mic > 0.08) and np.all(mic < dims - 0.08):
            return np.asarray(mic)
    return None


def _entry(response: rooms.Response, room: int) -> BankEntry:
    energy = np.cumsum(response.taps[::-1] ** 2)[::-1]
    # Below -65 dB of what is left the tail cannot matter; cutting it there halves memory and convolution.
    keep = int(np.searchsorted(-energy, -energy[0] * 10**-6.5)) + 1
    return BankEntry(
        response.taps[:keep].astype(np.float32),
        response.direct_sample,
        response.distance_m,
        response.rt60_s,
        response.drr_db,
        room,
    )


def activity(speech: FloatArray, frames: int) -> npt.NDArray[np.float32]:
    """1 for each frame whose centre lies in speech, before noise is added."""
    active = corpus.voiced_frames(speech.astype(np.float32), 25.0)
    centre = np.minimum(np.arange(frames) + 1, max(len(active) - 1, 0))
    return active[centre].astype(np.float32) if len(active) else np.zeros(frames, dtype=np.float32)


def step_means(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Mean over the frames that share one output step, ``(n, frames)`` to ``(n, ceil(frames / 4))``."""
    n, frames = values.shape
    count = -(-frames // STRIDE_FRAMES)
    padded = np.pad(values, ((0, 0), (0, count * STRIDE_FRAMES - frames)), mode="edge")
    return np.asarray(padded.reshape(n, count, STRIDE_FRAMES).mean(axis=2), dtype=np.float32)


def frame_outputs(session: Any, bands_db: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The network's steps over one clip: float32 ``(steps, 2)``, logit and attention."""
    out = session.run(None, {"bands": normalised(bands_db)[None]})[0][0]
    return np.asarray(out, dtype=np.float32)


def span_steps(duration_s: float) -> int:
    """How many of the network's steps make up a span."""
    return round(duration_s * SAMPLE_RATE_HZ / HOP_SAMPLES / STRIDE_FRAMES)


def pool(frames: npt.NDArray[np.float32]) -> float:
    """The logit of a span from its steps ``(steps, 2)``, weighed by attention."""
    attention = np.logaddexp(0.0, frames[:, 1]) + 1e-3
    return float((frames[:, 0] * attention).sum() / attention.sum())


def _calibration_inputs(logit: FloatArray, duration_s: float) -> FloatArray:
    log_s = math.log(duration_s)
    return np.stack([logit, logit * log_s, np.full_like(logit, log_s), np.ones_like(logit)], axis=1)


def _auc(scored: Scored) -> float:
    """Area under the ROC curve: the share of near-far pairs in the right order (Mann-Whitney)."""
    from scipy.stats import rankdata

    near = int(scored.near.sum())
    far = len(scored.near) - near
    if near == 0 or far == 0:
        return math.nan
    return float((rankdata(scored.logit)[scored.near].sum() - near * (near + 1) / 2) / (near * far))


def _outcomes(probability: FloatArray, calibration: Calibration) -> str:
    if len(probability) == 0:
        return "-"
    near = float(np.mean(probability >= calibration.near_at))
    far = float(np.mean(probability < calibration.far_below))
    return f"{near:.1%} / {1.0 - near - far:.1%} / {far:.1%}"


def _breakdown(scored: Scored, calibration: Calibration) -> list[str]:
    p = calibration.probability(scored.logit, scored.duration_s)
    lines = [
        f"The same, spans of {scored.duration_s:.1f} s, by condition (kept or accepted / unsure / called far):",
        "",
    ]
    lines += ["| condition | near | far |", "| --- | --- | --- |"]
    facts = {name: np.array([getattr(c, name) for c in scored.clips]) for name in ("rt60_s", "snr_db", "distance_m")}
    groups: list[tuple[str, npt.NDArray[np.bool_]]] = []
    for low, high in ((0.0, 0.3), (0.3, 0.5), (0.5, 2.0)):
        groups.append((f"RT60 {low:.1f}-{high:.1f} s", (facts["rt60_s"] >= low) & (facts["rt60_s"] < high)))
    groups.append(("no room", np.isnan(facts["rt60_s"]) & scored.near))
    for low, high in ((2, 10), (10, 20), (20, 30), (30, 56)):
        groups.append((f"SNR {low}-{high} dB", (facts["snr_db"] >= low) & (facts["snr_db"] < high)))
    for low, high in ((0.1, 0.25), (0.25, 0.51), (1.5, 2.2), (2.2, 5.1)):
        groups.append((f"{low:.2g}-{high:.2g} m", (facts["distance_m"] >= low) & (facts["distance_m"] < high)))
    for name, chosen in groups:
        cells = [_outcomes(p[chosen & truth], calibration) for truth in (scored.near, ~scored.near)]
        counts = [int((chosen & truth).sum()) for truth in (scored.near, ~scored.near)]
        lines.append(f"| {name} | {cells[0]} ({counts[0]}) | {cells[1]} ({counts[1]}) |")
    return [*lines, ""]


def _real_tables(session: Any, folder: Path, calibration: Calibration) -> list[str]:
    """Real recordings, none of which was trained on."""
    everything = [r for r in corpus.recordings(folder) if r.part is Part.TEST]
    groups = {
        "headset, AMI (near)": [r for r in everything if r.set_name == "ami_near_far" and "(headset)" in r.condition],
        "table microphone, AMI (far)": [
            r for r in everything if r.set_name == "ami_near_far" and "(table" in r.condition
        ],
        "headset filtered to match a table microphone, AMI (far-like)": [
            r for r in everything if r.set_name == "ami_near_far" and "filtered to match" in r.condition
        ],
        "under 1.5 m, simulated by others (near)": [
            r for r in everything if r.set_name == "google_distance" and r.condition.startswith("near")
        ],
        "over 1.5 m, simulated by others (far)": [
            r for r in everything if r.set_name == "google_distance" and r.condition.startswith("far")
        ],
    }
    for name in (
        "alphanumeric",
        "picovoice_speech_to_intent",
        "commands",
        "picovoice_wake_word",
        "precise_wakewords",
        "librispeech_test_other",
        "vctk",
        "eagle",
    ):
        groups[f"{name} (near)"] = [r for r in everything if r.set_name == name]
    lines = ["**Real recordings, none of them trained on**", ""]
    lines += ["near / unsure / far in % of spans (number of spans); median calibrated log-odds at 1 s", ""]
    lines += ["| recordings | 0.6 s | 1.0 s | 2.5 s | log-odds |", "| --- | --- | --- | --- | --- |"]
    for name, chosen in groups.items():
        cells = []
        middle = math.nan
        logits = score_recordings(session, (r.read() for r in chosen), _DURATIONS_S)
        for duration_s, logit in zip(_DURATIONS_S, logits, strict=True):
            p = calibration.probability(logit, duration_s)
            cells.append(f"{_outcomes(p, calibration)} ({len(logit)})")
            if duration_s == 1.0 and len(logit):
                middle = float(np.median(calibration.log_odds(logit, duration_s)))
        lines.append(f"| {name} | {' | '.join(cells)} | {middle:+.1f} |")
    return [*lines, ""]


def _parameter_count(weights: Path) -> int:
    import onnx

    return sum(math.prod(t.dims) for t in onnx.load(str(weights)).graph.initializer)


if __name__ == "__main__":
    main()
