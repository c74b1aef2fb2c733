"""Train, set thresholds for, measure and export the damage ear: noise, silence, music or voices in place of words.

``python -m models.training.damage --data DIR --work DIR --out models/weights --card models/cards/damage.md``

Clips are real speech, close or reverberant, over a steady background. Spans that look like words (from one dip of the
envelope to a later one, 80 to 900 ms) are replaced or covered, at -10 to +10 dB relative to the speech, with hard or
5 ms edges: the semantic-acoustic masking of EAR, with the whole signal's timing preserved. What must not be reported
is rendered with equal care: long pauses, digital silence between phrases, noise gates, suppressors and codecs, knocks
and clicks, steady noise, music and babble underneath, another person taking over.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gate.evidence import DamageKind
from models.damage_cnn import (
    KINDS,
    STRIDE_FRAMES,
    DamageThresholds,
    candidate_stretches,
    relative_bands,
    softmax,
    step_span,
)
from models.mel_bands import BANDS, mel_band_db
from models.training import cards, corpus, devices, rooms, sounds
from models.training.corpus import SAMPLE_RATE_HZ, Part
from models.training.onnx_export import export, single_thread_session
from models.training.progress import steps

FloatArray = npt.NDArray[np.float64]

CLIP_S = 4.0
_SAMPLES = round(CLIP_S * SAMPLE_RATE_HZ)
_IGNORE = -1
_LENGTHS_S = ((0.08, 0.2), (0.2, 0.4), (0.4, 0.95))
COMMON = {"plain": 0.3, "noisy": 0.25, "reverberant": 0.15, "pauses": 0.12, "gated": 0.1, "two talkers": 0.08}
"""Scenes and their shares in most of the clips."""

HARD = {"short": 0.7, "two talkers": 0.3}
"""Scenes that undamaged dev speech showed to be taken for damage, added to training in a second helping: a word or two
alone in silence (taken for another voice's burst) and one talker after another (the seam taken for a cut)."""

_FALSE_PER_MINUTE = {
    DamageKind.NOISE: 0.1,
    DamageKind.SILENCE: 0.2,
    DamageKind.MUSIC: 0.1,
    DamageKind.VOICES: 0.2,
}
"""How many false stretches of each kind per minute of undamaged dev speech the thresholds may let through."""


@dataclass(frozen=True, slots=True)
class Mask:
    """One damaged span of a clip.

    Attributes:
        start, end: samples.
        kind: what took the place of speech.
        level_db: of the masking sound over the speech; NaN for silence.
        how: "replaced", "covered" (speech goes on underneath), "digital" or "background" (silence cut to zeros or to
        the
            background that was there).
    """

    start: int
    end: int
    kind: DamageKind
    level_db: float
    how: str


@dataclass(frozen=True, slots=True)
class Clip:
    """One rendered clip: ``bands_db`` float16 ``(frames, 48)``, ``target`` int8 per step (-1 is ignored), masks,
    scene."""

    bands_db: npt.NDArray[np.float16]
    target: npt.NDArray[np.int8]
    masks: tuple[Mask, ...]
    scene: str


class Renderer:
    """Draws clips. The same seed and index always give the same clip."""

    def __init__(
        self,
        folder: Path,
        part: Part,
        bank: Sequence[rooms.Response],
        seed: int,
        masked: float,
        scenes: Mapping[str, float],
    ) -> None:
        self._seed = seed
        self._scenes = tuple(scenes)
        self._shares = np.array(list(scenes.values())) / sum(scenes.values())
        self._masked = masked
        self._bank = bank
        self._speech: list[list[corpus.Recording]] = []
        names: tuple[str, ...] = ("librispeech_cohort", "alphanumeric", "picovoice_speech_to_intent")
        names += ("librispeech_test_other", "vctk") if part is Part.TEST else ("cmu_arctic",)
        for name in names:
            pool = [r for r in corpus.speech(folder, part, (name,)) if r.duration_s >= 2.5]
            if pool:
                self._speech.append(pool)
        self._noises = [r.read() for r in corpus.noises(folder, part)]
        # Two pieces of music can be spared for training; thresholds are set on them too, testing is on the third.
        self._music = [r.read() for r in corpus.music(folder, Part.TEST if part is Part.TEST else Part.TRAIN)]

    def clip(self, index: int) -> Clip:
        """Clip number ``index``."""
        rng = np.random.default_rng([self._seed, index])
        scene = str(rng.choice(self._scenes, p=self._shares))
        speech, active = self._spoken(rng, scene)
        background = self._background(rng, scene, speech)
        device_first = rng.random() < 0.5
        masks = self._masks(rng, speech, active, device_first) if rng.random() < self._masked else ()
        if device_first:
            # The masking that a benchmark does: on the finished recording. The background goes where the words go,
            # unless the cut leaves it.
            audio = devices.through_device(speech + background, rng)
            scale = math.sqrt(float(np.mean(audio**2)) / max(float(np.mean((speech + background) ** 2)), 1e-20))
            audio = self._apply(rng, audio, background * scale, masks, over_background=False)
        else:
            # What happens in the air or in the microphone: the device hears the mask, too.
            audio = self._apply(rng, speech, np.zeros_like(speech), masks, over_background=True) + background
            audio = devices.through_device(audio, rng)
        if rng.random() < 0.3:
            audio = self._transients(rng, audio)
        bands = mel_band_db(audio.astype(np.float32))
        return Clip(bands.astype(np.float16), self._target(len(bands), masks, active), masks, scene)

    def _spoken(self, rng: np.random.Generator, scene: str) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Speech of unit active power, and which 10 ms frames hold it."""
        x = self._voice(rng, _SAMPLES)
        if scene == "two talkers":
            cut = _pause_near(corpus.voiced_frames(x.astype(np.float32)), len(x) // 320)
            other = self._voice(rng, _SAMPLES)
            start = _pause_near(corpus.voiced_frames(other.astype(np.float32)), len(other) // 640)
            rest = other[start * 160 :][: _SAMPLES - cut * 160]
            x = np.concatenate([x[: cut * 160], rest, np.zeros(_SAMPLES - cut * 160 - len(rest))])
        if scene == "pauses":
            x = _with_longer_pauses(rng, x)[:_SAMPLES]
        if scene == "gated":
            x = _gated(rng, x)
        if scene == "short":
            x = _alone(rng, x)
        active = corpus.voiced_frames(x.astype(np.float32))
        if scene == "reverberant" or rng.random() < 0.2:
            x = rooms.convolve(x, self._bank[int(rng.integers(len(self._bank)))])
        x = np.pad(x, (0, _SAMPLES - len(x)))
        active = np.pad(active, (0, _SAMPLES // 160 - len(active)))
        loud = np.repeat(active, 160)
        power = float(np.mean(x[loud] ** 2)) if loud.any() else 0.0
        return x / math.sqrt(max(power, 1e-12)), active

    def _voice(self, rng: np.random.Generator, samples: int) -> FloatArray:
        pool = self._speech[int(rng.integers(len(self._speech)))]
        for _ in range(20):
            x = sounds.excerpt(rng, [pool[int(rng.integers(len(pool)))].read()], samples)
            if np.abs(x).max() > 0 and corpus.voiced_frames(x.astype(np.float32)).mean() > 0.4:
                break
        return sounds.unit_power(x)

    def _background(self, rng: np.random.Generator, scene: str, speech: FloatArray) -> FloatArray:
        if scene == "noisy":
            snr_db = rng.uniform(3.0, 20.0)
        elif rng.random() < 0.35:
            return np.zeros_like(speech)
        else:
            snr_db = rng.uniform(20.0, 55.0)
        draw = rng.random()
        if draw < 0.4:
            noise = sounds.unit_power(sounds.excerpt(rng, self._noises, len(speech)))
        elif draw < 0.75:
            noise = sounds.room_tone(rng, len(speech))
        elif draw < 0.87:
            noise = self._played(rng, len(speech))
        else:
            noise = sounds.babble(rng, len(speech), self._voice, int(rng.integers(3, 7)))
        return np.asarray(noise * 10.0 ** (-snr_db / 20.0))

    def _played(self, rng: np.random.Generator, samples: int) -> FloatArray:
        if rng.random() < 0.5:
            return sounds.played_music(rng, samples)
        return sounds.unit_power(sounds.excerpt(rng, self._music, samples))

    def _masks(
        self, rng: np.random.Generator, speech: FloatArray, active: npt.NDArray[np.bool_], device_first: bool
    ) -> tuple[Mask, ...]:
        masks: list[Mask] = []
        for _ in range(int(rng.integers(1, 4))):
            span = _word_like(rng, speech, active)
            if span is None or any(span[0] < m.end + 4000 and m.start < span[1] + 4000 for m in masks):
                continue
            kind = KINDS[int(rng.choice(len(KINDS), p=(0.28, 0.3, 0.2, 0.22)))]
            if kind is DamageKind.SILENCE:
                # Words that vanish in the air leave the background standing; only an edit leaves zeros.
                how, level_db = ("digital" if device_first and rng.random() < 0.8 else "background"), math.nan
            elif rng.random() < 0.25:
                how, level_db = "covered", rng.uniform(3.0, 12.0)
            else:
                how, level_db = "replaced", rng.uniform(-10.0, 10.0)
            masks.append(Mask(*span, kind, level_db, how))
        return tuple(sorted(masks, key=lambda m: m.start))

    def _apply(
        self,
        rng: np.random.Generator,
        audio: FloatArray,
        background: FloatArray,
        masks: Sequence[Mask],
        *,
        over_background: bool,
    ) -> FloatArray:
        out = audio.copy()
        for mask in masks:
            length = mask.end - mask.start
            part = slice(mask.start, mask.end)
            near = audio[max(0, mask.start - 8000) : mask.end + 8000]
            level = math.sqrt(float(np.mean(near**2)) + 1e-20) * 1.3  # speech without its pauses is a little louder
            fade = 0 if rng.random() < 0.5 else min(80, length // 2)
            edge = np.ones(length)
            edge[:fade] = np.arange(fade) / max(fade, 1)
            edge[length - fade :] = edge[:fade][::-1]
            if mask.kind is DamageKind.SILENCE:
                sound = background[part] if mask.how == "background" and not over_background else np.zeros(length)
            else:
                sound = self._sound(rng, mask.kind, length) * level * 10.0 ** (mask.level_db / 20.0)
            kept = 1.0 if mask.how == "covered" else 1.0 - edge
            out[part] = out[part] * kept + sound * edge
        peak = float(np.abs(out).max())
        return out / peak if peak > 1.0 and not over_background else out

    def _sound(self, rng: np.random.Generator, kind: DamageKind, length: int) -> FloatArray:
        if kind is DamageKind.MUSIC:
            return self._played(rng, length)
        if kind is DamageKind.VOICES:
            for _ in range(10):
                x = sounds.babble(rng, length, self._voice_piece, 1 if rng.random() < 0.3 else int(rng.integers(2, 7)))
                if corpus.voiced_frames(x.astype(np.float32)).mean() > 0.6:
                    break
            return x
        draw = rng.random()
        if draw < 0.35:
            return sounds.coloured_noise(rng, length, 0.0)
        if draw < 0.5:
            return sounds.coloured_noise(rng, length, rng.uniform(-7.0, 2.0))
        if draw < 0.6:
            return sounds.band_noise(rng, length)
        if draw < 0.7:
            tone = np.sin(2 * math.pi * rng.uniform(300.0, 2500.0) * np.arange(length) / SAMPLE_RATE_HZ)
            return sounds.unit_power(tone)
        return sounds.unit_power(sounds.excerpt(rng, self._noises, length))

    def _voice_piece(self, rng: np.random.Generator, samples: int) -> FloatArray:
        x = self._voice(rng, max(samples, SAMPLE_RATE_HZ))
        start = int(rng.integers(0, len(x) - samples + 1))
        piece: FloatArray = x[start : start + samples]
        return piece

    def _transients(self, rng: np.random.Generator, audio: FloatArray) -> FloatArray:
        """Knocks, cups and keys: short, over the speech or in its pauses, and no reason to ask again."""
        out = audio.copy()
        loud = float(np.percentile(np.abs(audio), 99)) + 1e-9
        for _ in range(int(rng.integers(1, 5))):
            sound = sounds.knock(rng)[: round(0.07 * SAMPLE_RATE_HZ)] * loud * rng.uniform(0.2, 1.5)
            start = int(rng.integers(0, len(out) - len(sound)))
            out[start : start + len(sound)] += sound
        return np.asarray(np.clip(out, -1.0, 1.0))

    def _target(self, frames: int, masks: Sequence[Mask], active: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
        count = -(-frames // STRIDE_FRAMES)
        target = np.zeros(count, dtype=np.int8)
        for mask in masks:
            for index in range(count):
                span = step_span(index, index + 1, _SAMPLES + 320)
                inside = min(span.end_sample, mask.end) - max(span.start_sample, mask.start)
                if inside >= 0.95 * span.samples:
                    target[index] = 1 + KINDS.index(mask.kind)
                elif inside > -0.5 * span.samples and target[index] == 0:
                    target[index] = _IGNORE  # a step that is half mask is neither right nor wrong
        return target


def build_network() -> Any:
    """The torch network: ``(batch, frames, 48)`` relative bands to ``(batch, frames / 2, 5)`` class logits."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width: int, dilation: int) -> None:
            super().__init__()
            self.depthwise = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation, groups=width)
            self.pointwise = nn.Conv1d(width, width, 1)
            self.norm = nn.BatchNorm1d(width)
            self.drop = nn.Dropout(0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.drop(torch.relu(self.norm(self.pointwise(self.depthwise(x)))))
            return x + y

    class DamageNetwork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers: list[nn.Module] = []
            for inside, outside, kernel, stride in (
                (1, 16, 5, (1, 2)),
                (16, 32, 3, (2, 2)),
                (32, 32, 3, (1, 2)),
            ):
                layers += [nn.Conv2d(inside, outside, kernel, stride, kernel // 2), nn.BatchNorm2d(outside), nn.ReLU()]
            self.front = nn.Sequential(*layers)
            self.squeeze = nn.Sequential(nn.Conv1d(32 * BANDS // 8, 96, 1), nn.BatchNorm1d(96), nn.ReLU())
            self.blocks = nn.Sequential(*(Block(96, dilation) for dilation in (1, 2, 4, 8, 16, 1)))
            self.head = nn.Conv1d(96, 1 + len(KINDS), 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.front(x.unsqueeze(1)).transpose(2, 3).flatten(1, 2)
            out: torch.Tensor = self.head(self.blocks(self.squeeze(y))).transpose(1, 2)
            return out

    return DamageNetwork()


def train(clips: Sequence[Clip], *, seed: int, epochs: int, threads: int, batch: int = 48) -> Any:
    """Fit the network with cross-entropy over steps; steps at a mask's edges do not count."""
    import torch
    from torch.nn import functional as F  # noqa: N812 (torch's own convention)

    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    network = build_network().to(memory_format=torch.channels_last)
    features = np.stack([relative_bands(c.bands_db.astype(np.float32)) for c in clips]).astype(np.float16)
    targets = torch.from_numpy(np.stack([c.target for c in clips]).astype(np.int64))
    weights = torch.tensor([1.0, 2.0, 2.0, 2.0, 2.0])
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=0.02)
    per_epoch = len(clips) // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=epochs * per_epoch, pct_start=0.2)
    rng = np.random.default_rng(seed)
    losses: list[float] = []
    frames = features.shape[1]
    for number in steps(range(epochs * per_epoch), "training", epochs * per_epoch):
        if number % per_epoch == 0:
            order = rng.permutation(len(clips))
        chosen = order[number % per_epoch * batch :][:batch]
        x = features[chosen].astype(np.float32)
        curve = rng.normal(0.0, 3.0 / 20.0, size=(batch, 6))
        x += np.stack([np.interp(np.arange(BANDS), np.linspace(0, BANDS - 1, 6), c) for c in curve])[:, None, :]
        y = targets[chosen]
        if rng.random() < 0.5:  # turns are of any length; the ends are where padding shows
            keep = int(rng.integers(60, frames + 1)) // STRIDE_FRAMES * STRIDE_FRAMES
            first = int(rng.integers(0, (frames - keep) // STRIDE_FRAMES + 1)) * STRIDE_FRAMES
            x = x[:, first : first + keep]
            y = y[:, first // STRIDE_FRAMES : (first + keep) // STRIDE_FRAMES]
        network.train()
        with torch.autocast("cpu", torch.bfloat16):
            out = network(torch.from_numpy(x))
        out = out.float()[:, : y.shape[1]]
        loss = F.cross_entropy(out.reshape(-1, 5), y.reshape(-1), weight=weights, ignore_index=_IGNORE)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 2.0)
        optimiser.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if (number + 1) % per_epoch == 0:
            print(f"epoch {(number + 1) // per_epoch}: loss {np.mean(losses[-per_epoch:]):.4f}", flush=True)
    return network.eval()


@dataclass(frozen=True, slots=True)
class Found:
    """A reported stretch before the threshold: span in samples, kind, score."""

    start: int
    end: int
    kind: DamageKind
    score: float


def find_all(session: Any, clips: Sequence[Clip], thresholds: DamageThresholds) -> list[list[Found]]:
    """Candidate stretches of every clip, whatever their score."""
    out = []
    for clip in clips:
        logits = session.run(None, {"bands": relative_bands(clip.bands_db.astype(np.float32))[None]})[0][0]
        found = []
        for first, last, kind, score in candidate_stretches(softmax(logits), thresholds):
            span = step_span(first, last, _SAMPLES)
            found.append(Found(span.start_sample, span.end_sample, KINDS[kind], score))
        out.append(found)
    return out


def choose_thresholds(session: Any, undamaged: Sequence[Clip]) -> DamageThresholds:
    """Per kind the lowest score that keeps false stretches on undamaged dev speech within the stated rate."""
    draft = DamageThresholds(0.4, dict.fromkeys(KINDS, 0.5), 2, 3)
    found = [f for clip in find_all(session, undamaged, draft) for f in clip]
    minutes = len(undamaged) * CLIP_S / 60.0
    on_at = {}
    for kind in KINDS:
        scores = sorted((f.score for f in found if f.kind is kind), reverse=True)
        allowed = math.floor(_FALSE_PER_MINUTE[kind] * minutes)
        on_at[kind] = max(0.5, scores[allowed] + 1e-6 if len(scores) > allowed else 0.5)
    return DamageThresholds(draft.grow_at, on_at, draft.merge_steps, draft.min_steps)


def measure(session: Any, masked: Sequence[Clip], undamaged: Sequence[Clip], thresholds: DamageThresholds) -> list[str]:
    """Markdown tables: recall and kind by kind and length, by level, precision, and false stretches per minute by
    scene."""
    reported = [
        [f for f in found if f.score >= thresholds.on_at[f.kind]] for found in find_all(session, masked, thresholds)
    ]
    truth = [(m, found) for clip, found in zip(masked, reported, strict=True) for m in clip.masks]
    lines = [
        "**Masks found** (at least half of the masked time reported, whatever the kind; in brackets the right kind)",
        "",
    ]
    lines += ["| mask | " + " | ".join(f"{a * 1000:.0f}-{b * 1000:.0f} ms" for a, b in _LENGTHS_S) + " | all |"]
    lines += ["| --- " * (len(_LENGTHS_S) + 2) + "|"]
    groups: list[tuple[str, Callable[[Mask], bool]]] = []
    for kind in KINDS:
        hows = ("digital", "background") if kind is DamageKind.SILENCE else ("replaced", "covered")
        groups += [(f"{kind}, {how}", _matcher(kind, how)) for how in hows]
    for name, matches in groups:
        cells = []
        for low, high in (*_LENGTHS_S, (0.0, 9.0)):
            chosen = [
                (m, found) for m, found in truth if matches(m) and low <= (m.end - m.start) / SAMPLE_RATE_HZ < high
            ]
            cells.append(_recall(chosen))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "| level over speech, replaced | noise | music | voices |", "| --- | --- | --- | --- |"]
    for low, high in ((-10.0, -3.0), (-3.0, 3.0), (3.0, 10.1)):
        cells = [
            _recall([(m, f) for m, f in truth if m.kind is kind and m.how == "replaced" and low <= m.level_db < high])
            for kind in (DamageKind.NOISE, DamageKind.MUSIC, DamageKind.VOICES)
        ]
        lines.append(f"| {low:+.0f} to {high:+.0f} dB | {' | '.join(cells)} |")
    lines += ["", "**Reported stretches that are right** (at least half inside a mask of any kind)", ""]
    lines += ["| reported as | right | kind right |", "| --- | --- | --- |"]
    for kind in KINDS:
        stretches = [
            (f, clip.masks) for clip, found in zip(masked, reported, strict=True) for f in found if f.kind is kind
        ]
        hits = [max((_overlap(f, m) for m in masks), default=0) >= (f.end - f.start) / 2 for f, masks in stretches]
        kinds = [
            max((_overlap(f, m) for m in masks if m.kind is kind), default=0) >= (f.end - f.start) / 2
            for f, masks in stretches
        ]
        if stretches:
            lines.append(f"| {kind} | {np.mean(hits):.1%} ({len(hits)}) | {np.mean(kinds):.1%} |")
    lines += ["", "**False stretches per minute of undamaged speech**", ""]
    lines += ["| scene | minutes | " + " | ".join(KINDS) + " | all |", "| --- " * (len(KINDS) + 3) + "|"]
    clean = [
        (c.scene, [f for f in found if f.score >= thresholds.on_at[f.kind]])
        for c, found in zip(undamaged, find_all(session, undamaged, thresholds), strict=True)
    ]
    for scene in (*dict.fromkeys((*COMMON, *HARD)), "all"):
        found = [f for s, f in clean if scene in (s, "all")]
        minutes = len(found) * CLIP_S / 60.0
        counts = [sum(f.kind is kind for group in found for f in group) for kind in KINDS]
        cells = [f"{count / max(minutes, 1e-9):.2f}" for count in (*counts, sum(counts))]
        lines.append(f"| {scene} | {minutes:.1f} | {' | '.join(cells)} |")
    return [*lines, ""]


def measure_real(weights: Path, folder: Path) -> list[str]:
    """False stretches on real undamaged recordings that were not trained on, whole files as turns."""
    from models.damage_cnn import DamageCnn

    ear = DamageCnn(weights)
    lines = ["**False stretches on real recordings that nobody damaged** (whole files as turns)", ""]
    lines += [
        "| recordings | minutes | " + " | ".join(KINDS) + " | clipping | per minute |",
        "| --- " * (len(KINDS) + 4) + "|",
    ]
    sets = (
        "alphanumeric",
        "picovoice_speech_to_intent",
        "commands",
        "picovoice_wake_word",
        "librispeech_test_other",
        "vctk",
        "eagle",
        "ami_near_far",
        "ami_meetings",
    )
    for name in sets:
        chosen = [r for r in corpus.recordings(folder) if r.set_name == name and r.part is Part.TEST]
        minutes = sum(len(r.read()) for r in chosen) / SAMPLE_RATE_HZ / 60.0
        kinds = [s.kind for r in chosen for s in ear.find(r.read()) or ()]
        counts = [sum(k is kind for k in kinds) for kind in (*KINDS, DamageKind.CLIPPING)]
        lines.append(f"| {name} | {minutes:.1f} | {' | '.join(map(str, counts))} | {len(kinds) / minutes:.2f} |")
    return [*lines, ""]


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", help="folder of recordings (default: VOICEGATE_DATA)")
    parser.add_argument("--out", type=Path, default=Path("models/weights"))
    parser.add_argument("--card", type=Path, default=Path("models/cards/damage.md"))
    parser.add_argument("--work", type=Path, required=True, help="folder for rendered data (about 0.5 GB)")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--clips", type=int, default=7000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only-measure", action="store_true", help="set thresholds for and measure weights that exist")
    args = parser.parse_args(argv)
    folder = corpus.data_folder(args.data)
    weights = args.out / "damage.onnx"
    if not args.only_measure:
        clips = rendered(folder, Part.TRAIN, args.clips, args.seed, 0.7, COMMON, args.work, args.workers)
        clips += rendered(folder, Part.TRAIN, args.clips // 3, args.seed + 4, 0.4, HARD, args.work, args.workers)
        network = train(clips, seed=args.seed, epochs=args.epochs, threads=args.workers)
        worst = export(network, weights)
        print(f"exported {weights}, largest difference from torch {worst:.1e}")
    session = single_thread_session(weights)
    dev = rendered(folder, Part.DEV, 1500, args.seed + 1, 0.0, COMMON, args.work, args.workers)
    dev += rendered(folder, Part.DEV, 500, args.seed + 5, 0.0, HARD, args.work, args.workers)
    thresholds = choose_thresholds(session, dev)
    meta = {
        "model": "damage",
        "onnx_sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "thresholds": {
            "grow_at": thresholds.grow_at,
            "on_at": {str(kind): value for kind, value in thresholds.on_at.items()},
            "merge_steps": thresholds.merge_steps,
            "min_steps": thresholds.min_steps,
        },
        "target": {f"false {kind} stretches per minute": rate for kind, rate in _FALSE_PER_MINUTE.items()},
        "training": {"clips": args.clips + args.clips // 3, "clip_s": CLIP_S, "epochs": args.epochs, "seed": args.seed},
    }
    weights.with_suffix(".json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
    masked = rendered(folder, Part.TEST, 1500, args.seed + 2, 1.0, COMMON, args.work, args.workers)
    undamaged = rendered(folder, Part.TEST, 900, args.seed + 3, 0.0, COMMON, args.work, args.workers)
    undamaged += rendered(folder, Part.TEST, 400, args.seed + 6, 0.0, HARD, args.work, args.workers)
    lines = measure(session, masked, undamaged, thresholds) + measure_real(weights, folder)
    print("\n".join(lines))
    cards.write_measured(args.card, [cards.facts(meta), *lines])


def rendered(
    folder: Path,
    part: Part,
    count: int,
    seed: int,
    masked: float,
    scenes: Mapping[str, float],
    work: Path,
    workers: int,
) -> list[Clip]:
    """Clips from the cache, or rendered now."""
    path = work / f"damage-{part}-{count}-{seed}-{masked:.2f}.npz"
    if not path.is_file():
        work.mkdir(parents=True, exist_ok=True)
        bank = _room_bank(80, seed)
        arguments = (folder, part, bank, seed, masked, scenes)
        with ProcessPoolExecutor(
            workers, mp_context=get_context("fork"), initializer=_start_worker, initargs=arguments
        ) as pool:
            done = list(steps(pool.map(_render_one, range(count), chunksize=16), f"clips ({part})", count))
        _save(path, done)
    return _load(path)


_renderer: Renderer | None = None


def _start_worker(
    folder: Path, part: Part, bank: Sequence[rooms.Response], seed: int, masked: float, scenes: Mapping[str, float]
) -> None:
    global _renderer
    _renderer = Renderer(folder, part, bank, seed, masked, scenes)


def _render_one(index: int) -> Clip:
    if _renderer is None:
        raise RuntimeError("the worker was not started")
    return _renderer.clip(index)


def _save(path: Path, clips: Sequence[Clip]) -> None:
    temporary = path.with_suffix(".part.npz")
    masks = [[m.start, m.end, str(m.kind), m.level_db, m.how, i] for i, clip in enumerate(clips) for m in clip.masks]
    np.savez(
        temporary,
        bands=np.stack([c.bands_db for c in clips]),
        target=np.stack([c.target for c in clips]),
        scenes=np.array([c.scene for c in clips]),
        masks=np.array(json.dumps(masks)),
    )
    temporary.replace(path)


def _load(path: Path) -> list[Clip]:
    with np.load(path) as data:
        bands, targets, scenes = data["bands"], data["target"], data["scenes"]
        masks: dict[int, list[Mask]] = {}
        for start, end, kind, level_db, how, index in json.loads(str(data["masks"])):
            masks.setdefault(index, []).append(Mask(start, end, DamageKind(kind), level_db, how))
    return [
        Clip(b, t, tuple(masks.get(i, ())), str(scene))
        for i, (b, t, scene) in enumerate(zip(bands, targets, scenes, strict=True))
    ]


def _room_bank(count: int, seed: int) -> list[rooms.Response]:
    bank: list[rooms.Response] = []
    for index in steps(range(count), "rooms", count):
        rng = np.random.default_rng([seed, index])
        room = rooms.draw_room(rng)
        dims = np.array(room.dims_m)
        source, mics = dims * rng.uniform(0.2, 0.8, 3), dims * rng.uniform(0.1, 0.9, (2, 3))
        bank.extend(rooms.impulse_responses(room, source, mics, seed + index))
    return bank


def _dips(active: npt.NDArray[np.bool_], envelope_db: FloatArray) -> npt.NDArray[np.intp]:
    """Frames where the smoothed envelope has a local minimum inside or beside speech: where words may meet."""
    low = np.flatnonzero((envelope_db[1:-1] <= envelope_db[:-2]) & (envelope_db[1:-1] < envelope_db[2:])) + 1
    near = np.convolve(active.astype(np.int8), np.ones(7, dtype=np.int8), mode="same") > 0
    return low[near[low]]


def _word_like(rng: np.random.Generator, speech: FloatArray, active: npt.NDArray[np.bool_]) -> tuple[int, int] | None:
    """A span from dip to dip, 80 to 900 ms, at least 60 % of it speech, with speech within 0.25 s of both ends."""
    frames = len(active)
    energy = np.mean(speech[: frames * 160].reshape(frames, 160) ** 2, axis=1)
    envelope_db = 10.0 * np.log10(np.convolve(energy, np.full(5, 0.2), mode="same") + 1e-9)
    dips = _dips(active, envelope_db)
    for _ in range(30):
        if len(dips) < 2:
            return None
        start = int(dips[int(rng.integers(len(dips) - 1))])
        want = round(100.0 * math.exp(rng.uniform(math.log(0.08), math.log(0.9))))
        later = dips[(dips >= start + 8) & (dips <= start + 90)]
        if len(later) == 0:
            continue
        end = int(later[np.argmin(np.abs(later - start - want))])
        first, last = (round(160 * f + rng.normal(0.0, 160.0)) for f in (start, end))
        if active[start:end].mean() < 0.6 or first < 1600 or last > len(speech) - 1600 or last - first < 1280:
            continue
        if active[max(0, start - 25) : start].mean() > 0.3 and active[end : end + 25].mean() > 0.3:
            return first, last
    return None


def _pauses(active: npt.NDArray[np.bool_], shortest: int) -> list[tuple[int, int]]:
    """Runs of frames without speech, at least that long, not at the ends."""
    edges = np.flatnonzero(np.diff(np.concatenate(([1], active.astype(np.int8), [1]))))
    runs = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
    return [(a, b) for a, b in runs if b - a >= shortest and a > 0 and b < len(active)]


def _pause_near(active: npt.NDArray[np.bool_], frame: int) -> int:
    """The middle of the natural pause nearest to a frame; the frame itself when there is none."""
    pauses = _pauses(active, 8)
    return min(((a + b) // 2 for a, b in pauses), key=lambda middle: abs(middle - frame), default=frame)


def _with_longer_pauses(rng: np.random.Generator, x: FloatArray) -> FloatArray:
    """Natural pauses stretched by digital silence or room tone, as between phrases that were joined afterwards."""
    pauses = _pauses(corpus.voiced_frames(x.astype(np.float32)), 12)
    pieces: list[FloatArray] = []
    at = 0
    for first, last in pauses:
        if rng.random() < 0.6:
            cut = (first + last) // 2 * 160
            gap = np.zeros(round(rng.uniform(0.1, 1.2) * SAMPLE_RATE_HZ))
            if rng.random() < 0.4:
                gap = sounds.room_tone(rng, len(gap)) * 10.0 ** (rng.uniform(-60.0, -35.0) / 20.0)
            pieces += [x[at:cut], gap]
            at = cut
    x = x.copy()
    if pauses and rng.random() < 0.4:  # a recording that was trimmed and padded
        first = sum(pauses[0]) // 2 * 160
        if pieces:
            pieces[0] = np.concatenate([np.zeros(min(first, len(pieces[0]))), pieces[0][first:]])
        else:
            x[:first] = 0.0
    return np.concatenate([*pieces, x[at:]])


def _alone(rng: np.random.Generator, x: FloatArray) -> FloatArray:
    """One stretch of speech of 0.25 to 1.6 s between natural pauses, somewhere in silence; all of it when none fits."""
    active = corpus.voiced_frames(x.astype(np.float32))
    middles = [(a + b) // 2 for a, b in _pauses(active, 6)]
    fits = [(a, b) for i, a in enumerate(middles) for b in middles[i + 1 :] if 25 <= active[a:b].sum() <= 160]
    if not fits:
        return x
    first, last = (160 * frame for frame in fits[int(rng.integers(len(fits)))])
    piece = x[first:last].copy()
    fade = 80
    piece[:fade] *= np.arange(fade) / fade
    piece[-fade:] *= np.arange(fade)[::-1] / fade
    out = np.zeros(len(x))
    start = int(rng.integers(0, len(x) - len(piece) + 1))
    out[start : start + len(piece)] = piece
    return out


def _gated(rng: np.random.Generator, x: FloatArray) -> FloatArray:
    """A noise gate: pauses are turned down, to nothing at times, after a hold of 20 to 120 ms."""
    active = corpus.voiced_frames(x.astype(np.float32), rng.uniform(30.0, 40.0))
    hold = int(rng.integers(2, 13))
    opened = np.convolve(active.astype(np.int8), np.ones(hold + 2, dtype=np.int8))[: len(active)] > 0
    opened[:-2] |= active[2:]
    floor = 0.0 if rng.random() < 0.5 else 10.0 ** (-rng.uniform(12.0, 40.0) / 20.0)
    gain = np.where(opened, 1.0, floor)
    smooth = np.repeat(gain, 160)
    smooth = np.convolve(smooth, np.full(80, 1 / 80), mode="same")
    return np.asarray(x * np.pad(smooth, (0, len(x) - len(smooth)), mode="edge"))


def _matcher(kind: DamageKind, how: str) -> Callable[[Mask], bool]:
    return lambda mask: mask.kind is kind and mask.how == how


def _overlap(found: Found, mask: Mask) -> int:
    return max(0, min(found.end, mask.end) - max(found.start, mask.start))


def _recall(chosen: Sequence[tuple[Mask, list[Found]]]) -> str:
    if not chosen:
        return "-"
    hits = [sum(_overlap(f, m) for f in found) >= (m.end - m.start) / 2 for m, found in chosen]
    kinds = [sum(_overlap(f, m) for f in found if f.kind is m.kind) >= (m.end - m.start) / 2 for m, found in chosen]
    return f"{np.mean(hits):.0%} [{np.mean(kinds):.0%}] ({len(chosen)})"


if __name__ == "__main__":
    main()
