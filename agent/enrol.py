"""Enrolment: from a few clips of one near voice to a reference. Bad clips are refused with the measure and the need."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from agent.assemble import Parts, default_profile, load_catalogue, load_parts
from agent.clock import WallClock
from agent.exit_codes import ExitCode
from agent.frames import FRAME_SAMPLES, Frame
from agent.hearing import Ears
from agent.passphrase import passphrase_to_seal
from agent.sealing import Sealer
from agent.session import ENROLMENT, OwnerReference
from agent.settings import Settings
from agent.source_file import FileSource
from agent.sources import Source, SourceGap
from agent.turn_work import DistanceThresholds
from agent.vad import Vad, make_vad
from agent.voices import VoiceError, is_own_voice, load_kokoro, own_voice_reference
from agent.wearer_profile import average, is_encrypted, save_profile
from gate.evidence import SpeakerVerdict
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, Embedding, SpeakerThresholds, SpeakerTrack
from models.store import Store

MIN_SPEECH_S = 3.0
MIN_SNR_DB = 10.0
MAX_CLIPPED_SHARE = 0.001


class ClipRefusedError(Exception):
    """A clip cannot be enrolled from. The message names the measure and what is needed."""


@dataclass(frozen=True, slots=True)
class ClipReport:
    """What a clip was found to be.

    Attributes:
        speech_s: seconds of speech in it.
        snr_db: level of its speech above its pauses.
        near_probability: how near the mouth was.
        embedding: its embedding.
    """

    speech_s: float
    snr_db: float
    near_probability: float
    embedding: Embedding


def check_clip(
    audio: Audio, vad: Vad, ears: Ears, speaker_thresholds: SpeakerThresholds, distance_thresholds: DistanceThresholds
) -> ClipReport:
    """Measure one clip.

    Args:
        audio: float32 mono at 16 kHz, shape ``(samples,)``.
        vad: a fresh detector.
        ears: the session's ears.
        speaker_thresholds: the speaker ear's calibration.
        distance_thresholds: the proximity ear's.

    Raises:
        ClipRefusedError: when the clip is too short, too noisy, clipped, far, or holds more than one voice.
    """
    if not np.all(np.isfinite(audio)):
        raise ClipRefusedError("holds values that are not numbers")
    clipped = float(np.mean(np.abs(audio) > 0.999)) if len(audio) else 0.0
    if clipped > MAX_CLIPPED_SHARE:
        raise ClipRefusedError(
            f"clipped: {clipped:.1%} of samples at full scale, at most {MAX_CLIPPED_SHARE:.1%}; turn the gain down"
        )
    whole = len(audio) // FRAME_SAMPLES
    frames = audio[: whole * FRAME_SAMPLES].reshape(whole, FRAME_SAMPLES)
    speech = np.array([vad.is_speech(frame) for frame in frames], dtype=bool)
    speech_s = float(speech.sum()) * FRAME_SAMPLES / SAMPLE_RATE_HZ
    if speech_s < MIN_SPEECH_S:
        raise ClipRefusedError(f"{speech_s:.1f} s of speech, needs {MIN_SPEECH_S:.0f} s; say a few sentences")
    snr_db = _snr_db(frames, speech)
    if snr_db < MIN_SNR_DB:
        raise ClipRefusedError(f"too noisy: speech is {snr_db:.0f} dB above the pauses, needs {MIN_SNR_DB:.0f} dB")
    voiced = np.flatnonzero(speech)
    span = Span(int(voiced[0]) * FRAME_SAMPLES, (int(voiced[-1]) + 1) * FRAME_SAMPLES)
    near = ears.proximity.track(audio).near(span)
    if near.near_probability is None or not near.near_probability >= distance_thresholds.near_at:
        measured = "unknown" if near.near_probability is None else f"{near.near_probability:.2f}"
        raise ClipRefusedError(
            f"too far away: near probability {measured}, needs {distance_thresholds.near_at:.2f}; speak from 20-40 cm"
        )
    track = ears.speaker.track(audio)
    embedding = track.embed(span)
    if embedding.vector is None:
        raise ClipRefusedError(f"no speaker embedding: {embedding.note}")
    _require_one_voice(track, span, speaker_thresholds)
    return ClipReport(speech_s, snr_db, near.near_probability, embedding)


def _require_one_voice(track: SpeakerTrack, span: Span, thresholds: SpeakerThresholds) -> None:
    """Refuse a clip unless what lies before and after its middle, and each place where the voice may change, is alike.

    A possible change alone refuses nobody: a person who reads with expression seems to change, too.

    Raises:
        ClipRefusedError: when two neighbouring stretches are not surely one voice, or one is too short to tell.
    """
    middle = (span.start_sample + span.end_sample) // 2
    inside = [sample for sample in track.changes() if span.start_sample < sample < span.end_sample]
    for edges in ([middle], inside):
        bounds = [span.start_sample, *edges, span.end_sample]
        stretches = [track.embed(Span(first, last)) for first, last in pairwise(bounds)]
        for before, after in pairwise(stretches):
            at_s = after.span.start_s
            if before.vector is None or after.vector is None:
                raise ClipRefusedError(
                    f"perhaps more than one voice: it seems to change at {at_s:.1f} s, too close to another change or "
                    "an end to tell; speak alone, a few sentences at an even pace"
                )
            score = float(np.dot(before.vector, after.vector))
            verdict, owner_at, _ = thresholds.verdict(score, before.span.duration_s, after.span.duration_s)
            if verdict is not SpeakerVerdict.OWNER:
                raise ClipRefusedError(
                    f"more than one voice: before and after {at_s:.1f} s score {score:.2f}, one voice scores "
                    f"{owner_at:.2f} or more"
                )


def refuse_own_voice(report: ClipReport, own: Sequence[Embedding], thresholds: SpeakerThresholds) -> None:
    """Refuse a clip of the gate's own synthetic voice: enrolled, it would obey itself.

    Args:
        report: of the clip.
        own: what that voice sounds like, from ``agent.voices.own_voice_reference``; none where there is no synthesiser.
        thresholds: the speaker ear's.

    Raises:
        ClipRefusedError: when the clip holds it.
    """
    ours, score = is_own_voice(report.embedding, own, thresholds)
    if ours:
        raise ClipRefusedError(f"the assistant's own voice (score {score:.2f}); silence it and speak yourself")


def make_reference(reports: Sequence[ClipReport], ears: Ears, thresholds: SpeakerThresholds) -> OwnerReference:
    """One reference from several clips.

    Raises:
        ClipRefusedError: when two clips hold different voices.
    """
    for index, first in enumerate(reports):
        for other in reports[index + 1 :]:
            assert first.embedding.vector is not None, "a report's embedding has a vector"
            assert other.embedding.vector is not None, "a report's embedding has a vector"
            score = float(np.dot(first.embedding.vector, other.embedding.vector))
            verdict, owner_at, _ = thresholds.verdict(score, first.speech_s, other.speech_s)
            if verdict is SpeakerVerdict.OTHER:
                raise ClipRefusedError(f"two clips hold different voices: score {score:.2f}, needs {owner_at:.2f}")
    vector = average([report.embedding for report in reports])
    return OwnerReference(vector, sum(report.speech_s for report in reports), ears.speaker.model, ENROLMENT)


def _snr_db(frames: np.ndarray, speech: np.ndarray) -> float:
    power = np.mean(np.square(frames, dtype=np.float64), axis=1) + 1e-12
    floor = float(np.percentile(power, 5)) if speech.all() else float(np.median(power[~speech]))
    return 10.0 * float(np.log10(np.mean(power[speech]) / floor))


async def reference_from_files(
    files: Sequence[Path], parts: Parts, settings: Settings, own: Sequence[Embedding] = ()
) -> OwnerReference:
    """One reference from clips on disk.

    Args:
        files: the clips.
        parts: ears and their thresholds.
        settings: all settings.
        own: as ``refuse_own_voice`` takes it.

    Raises:
        ClipRefusedError: when a clip is refused; names the file.
        SourceError: when a file cannot be read.
    """
    reports = []
    for file in files:
        try:
            audio = await _collect(FileSource(file, channel=settings.source.channel))
            reports.append(_check(audio, parts, settings, own))
        except ClipRefusedError as error:
            raise ClipRefusedError(f"{file}: {error}") from error
    return make_reference(reports, parts.ears, parts.speaker_thresholds)


def _check(audio: Audio, parts: Parts, settings: Settings, own: Sequence[Embedding]) -> ClipReport:
    vad = make_vad(settings.turns.vad_mode)
    report = check_clip(audio, vad, parts.ears, parts.speaker_thresholds, parts.distance_thresholds)
    refuse_own_voice(report, own, parts.speaker_thresholds)
    return report


def _own_voice(parts: Parts, settings: Settings, store: Store) -> tuple[Embedding, ...]:
    """What the gate's voice sounds like; nothing where it has none."""
    try:
        voice = load_kokoro(store, settings.voice.style)
        print("listening to the assistant's own voice, to tell it from yours", flush=True)
        return (own_voice_reference(parts.ears.speaker, voice),)
    except VoiceError:
        return ()


def sealer_for(args: argparse.Namespace, settings: Settings) -> Sealer | None:
    """How the new profile is encrypted, asking for a passphrase if need be; None where it is to be plain.

    What is encrypted stays so: enrolling again, which is also the cure for a damaged profile, bares nobody.

    Raises:
        PassphraseError: when it is to be encrypted and there is no passphrase that can be used.
    """
    wanted = settings.session.encrypt_profile or is_encrypted(_out(args))
    return Sealer(passphrase_to_seal()) if wanted else None


def _out(args: argparse.Namespace) -> Path:
    out: Path | None = args.out
    return out or default_profile()


async def run(args: argparse.Namespace, settings: Settings, store: Store, sealer: Sealer | None = None) -> ExitCode:
    """``voicegate enroll``: from files, or from the microphone.

    Args:
        args: from the command line.
        settings: all settings.
        store: where the models are.
        sealer: from ``sealer_for``.
    """
    parts = await asyncio.to_thread(load_parts, settings, store, load_catalogue(settings))
    own = await asyncio.to_thread(_own_voice, parts, settings, store)
    out = _out(args)
    if args.files:
        reference, clips = await reference_from_files(args.files, parts, settings, own), len(args.files)
    else:
        audio = await _record(args.seconds, settings)
        report = _check(audio, parts, settings, own)
        reference, clips = make_reference([report], parts.ears, parts.speaker_thresholds), 1
    save_profile(out, args.name, reference, clips, sealer)
    print(f"{args.name} is enrolled from {reference.speech_s:.1f} s of speech: {out}{' (encrypted)' if sealer else ''}")
    return ExitCode.OK


async def _record(seconds: float, settings: Settings) -> Audio:
    from agent.source_microphone import MicrophoneSource

    source = MicrophoneSource(settings.source.device, clock=WallClock(), channel=settings.source.channel)
    print(f"recording {seconds:.0f} s: speak in your own words, as near as you will wear it", flush=True)
    return await _collect(source, round(seconds * SAMPLE_RATE_HZ / FRAME_SAMPLES))


async def _collect(source: Source, max_frames: int | None = None) -> Audio:
    """A source's audio as one array, float32 ``(samples,)``; gaps are refused, since the clip would be a splice."""
    frames: list[Audio] = []
    try:
        await source.open()
        async for item in source:
            if isinstance(item, SourceGap):
                raise ClipRefusedError("samples were lost inside the clip; record it again")
            if isinstance(item, Frame):
                frames.append(item.samples)
            if max_frames is not None and len(frames) >= max_frames:
                break
    finally:
        await source.aclose()
    return np.concatenate(frames) if frames else np.zeros(0, np.float32)
