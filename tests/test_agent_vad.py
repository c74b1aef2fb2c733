from __future__ import annotations

import importlib
import json
import math
import sys
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.frames import FRAME_SAMPLES
from agent.vad import (
    SILENCE_DBFS,
    AboveBackground,
    NoiseFloor,
    Pcm,
    Vad,
    VadConfigError,
    VadInputError,
    VadUnavailableError,
    WebRtcVad,
    level_dbfs,
    make_vad,
)

RATE = 16_000
FORMANTS_HZ = ((500, 80), (1500, 120), (2500, 160))
"""Centre and width of each."""
Audio = npt.NDArray[np.float32]


def voice(seconds: float, peak: float = 0.3) -> Audio:
    """A vowel-like buzz of 120 Hz with three formants, four syllables a second."""
    time = np.arange(int(seconds * RATE)) / RATE
    wave = np.zeros(len(time))
    for hertz in range(120, 4_800, 120):
        gain = sum(1.0 / (1.0 + ((hertz - formant) / width) ** 2) for formant, width in FORMANTS_HZ)
        wave += gain * np.sin(2 * np.pi * hertz * time)
    wave *= np.clip(np.sin(2 * np.pi * 4 * time), 0.0, 1.0)
    scaled: Audio = (peak * wave / np.max(np.abs(wave))).astype(np.float32)
    return scaled


def white(seconds: float, rms: float, seed: int = 0) -> Audio:
    noise = np.random.default_rng(seed).normal(0.0, rms, int(seconds * RATE))
    return np.clip(noise, -1.0, 1.0).astype(np.float32)


def verdicts(vad: Vad, audio: Pcm) -> list[bool]:
    size = vad.frame_samples
    return [vad.is_speech(audio[at : at + size]) for at in range(0, len(audio) - size + 1, size)]


class ScriptedVad:
    """Says what it is told, in turn."""

    frame_samples = FRAME_SAMPLES

    def __init__(self, script: list[bool]) -> None:
        self.script = script
        self.calls = 0

    def is_speech(self, frame: Pcm) -> bool:
        self.calls += 1
        return self.script[self.calls - 1]

    def reset(self) -> None:
        self.calls = 0


def at_level(dbfs: float) -> Audio:
    """One frame of a square wave: its level is its amplitude."""
    return np.resize(np.array([1.0, -1.0], np.float32), FRAME_SAMPLES) * np.float32(10 ** (dbfs / 20))


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(np.zeros(320), id="float64"),
        pytest.param(np.zeros(320, np.int32), id="int32"),
        pytest.param(np.zeros(320, np.uint8), id="u8"),
        pytest.param(np.zeros(320, ">i2"), id="big-endian int16"),
        pytest.param(np.zeros(400, np.float32), id="25 ms"),
        pytest.param(np.zeros(1600, np.float32), id="100 ms"),
        pytest.param(np.zeros(1024, np.float32), id="block of 1024"),
        pytest.param(np.zeros(882, np.int16), id="20 ms at 44.1 kHz"),
        pytest.param(np.zeros(640, np.int16), id="interleaved stereo"),
        pytest.param(np.zeros((320, 2), np.float32), id="stereo"),
        pytest.param(np.zeros((1, 320), np.float32), id="channel axis"),
        pytest.param(np.zeros(0, np.float32), id="empty"),
        pytest.param(bytes(640), id="bytes"),
        pytest.param(bytes(641), id="odd byte"),
        pytest.param([0.0] * 320, id="list"),
        pytest.param(np.full(320, np.nan, np.float32), id="NaN"),
        pytest.param(np.array([0.0] * 319 + [np.inf], np.float32), id="one infinity"),
        pytest.param(np.full(320, 6600.0, np.float32), id="int16 counts as float"),
    ],
)
def test_a_frame_of_another_kind_is_refused_because_the_detector_would_score_it_as_speech(frame: object) -> None:
    with pytest.raises(VadInputError):
        WebRtcVad().is_speech(frame)  # type: ignore[arg-type]


def test_a_refusal_says_what_was_expected_and_what_came() -> None:
    with pytest.raises(VadInputError, match=r"float32 or int16 array of shape \(320,\), mono; got shape \(640,\)"):
        WebRtcVad().is_speech(np.zeros(640, np.int16))


def test_a_frame_at_another_rate_is_refused() -> None:
    vad = WebRtcVad()
    assert vad.is_speech(np.zeros(320, np.float32), sample_rate_hz=16_000) is False
    with pytest.raises(VadInputError, match=r"48000 Hz.*16000 Hz"):
        vad.is_speech(np.zeros(320, np.float32), sample_rate_hz=48_000)


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        ({"frame_ms": 25}, "10, 20, 30"),
        ({"frame_ms": 100}, "10, 20, 30"),
        ({"sample_rate_hz": 44_100}, "8000, 16000, 32000, 48000"),
        ({"mode": 4}, "0, 1, 2, 3"),
        ({"mode": -1}, "0, 1, 2, 3"),
        ({"mode": True}, "0, 1, 2, 3"),
        ({"mode": 1.0}, "0, 1, 2, 3"),
    ],
)
def test_an_impossible_setting_stops_at_start_and_names_what_is_allowed(setting: dict[str, int], allowed: str) -> None:
    with pytest.raises(VadConfigError, match=f"{next(iter(setting))} is .*allowed: {allowed}"):
        WebRtcVad(**setting)


@pytest.mark.parametrize(("rate_hz", "frame_ms"), [(8_000, 10), (16_000, 30), (48_000, 20)])
def test_each_supported_rate_and_frame_length_is_scored(rate_hz: int, frame_ms: int) -> None:
    vad = WebRtcVad(sample_rate_hz=rate_hz, frame_ms=frame_ms)
    assert vad.frame_samples == rate_hz * frame_ms // 1000
    assert vad.is_speech(np.zeros(vad.frame_samples, np.int16)) is False


def test_without_the_extension_the_gate_stops_and_names_the_package_instead_of_running_ungated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "webrtcvad", None)
    with pytest.raises(VadUnavailableError, match="install the package webrtcvad-wheels"):
        make_vad()


def test_the_old_package_that_lost_its_dependency_gets_the_same_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'pkg_resources'")

    monkeypatch.setattr(importlib, "import_module", import_module)
    with pytest.raises(VadUnavailableError, match=r"pkg_resources.*webrtcvad-wheels"):
        WebRtcVad()


def test_a_module_of_that_name_without_a_detector_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "webrtcvad", ModuleType("webrtcvad"))
    with pytest.raises(VadUnavailableError, match="webrtcvad-wheels"):
        WebRtcVad()


def test_only_16_bit_bytes_of_one_frame_reach_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, int]] = []

    class Recorder:
        def __init__(self, mode: int) -> None:
            assert mode == 1

        def is_speech(self, buf: bytes, sample_rate: int) -> bool:
            seen.append((buf, sample_rate))
            return False

    monkeypatch.setitem(sys.modules, "webrtcvad", SimpleNamespace(Vad=Recorder))
    vad = WebRtcVad()
    frame = np.linspace(-1.5, 1.5, 320, dtype=np.float32)
    vad.is_speech(frame)
    vad.is_speech(np.arange(640, dtype=np.int16)[::2])
    assert [(type(data), len(data), rate) for data, rate in seen] == [(bytes, 640, RATE)] * 2
    floats, integers = (np.frombuffer(data, "<i2") for data, _ in seen)
    assert (floats[0], floats[-1]) == (-32768, 32767)
    np.testing.assert_allclose(floats, np.clip(frame * 32768.0, -32768, 32767), atol=0.5)
    np.testing.assert_array_equal(integers, np.arange(0, 640, 2))


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_inaudible_float_noise_is_no_speech_though_its_raw_bytes_would_be(mode: int) -> None:
    noise = white(2.0, 1e-6)
    extension = importlib.import_module("webrtcvad").Vad(mode)
    raw = [extension.is_speech(noise[at : at + 320].tobytes()[:640], RATE) for at in range(0, len(noise), 320)]
    assert sum(raw) > 90, "the harm that the check guards against is gone: the test proves nothing"
    assert not any(verdicts(WebRtcVad(mode), noise))
    assert not any(verdicts(make_vad(mode), noise))


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["zeros", "dither of one bit"])
def test_silence_is_no_speech(mode: int, name: str) -> None:
    dither = np.random.default_rng(1).integers(-1, 2, 32_000).astype(np.int16)
    audio = np.zeros(32_000, np.int16) if name == "zeros" else dither
    assert not any(verdicts(make_vad(mode), audio))


def test_floats_and_integers_of_the_same_audio_get_the_same_verdicts() -> None:
    integers = np.rint(voice(2.0) * 32767).astype(np.int16)
    floats = (integers / 32768.0).astype(np.float32)
    scored = verdicts(WebRtcVad(), integers)
    assert scored == verdicts(WebRtcVad(), floats)
    assert sum(scored) > 50


def test_white_noise_is_speech_to_the_extension_alone_but_not_when_speech_must_stand_out() -> None:
    noise = white(10.0, 1.0)
    assert sum(verdicts(WebRtcVad(1), noise)) > 490
    assert sum(verdicts(make_vad(1), noise)) == 0


def test_a_voice_in_noise_still_stands_out() -> None:
    audio = white(4.0, 0.01)
    audio[2 * RATE : 3 * RATE] += voice(1.0, peak=0.3)
    scored = verdicts(make_vad(), audio)
    assert sum(scored[:100]) == 0
    assert sum(scored[100:150]) >= 25


@pytest.mark.parametrize("offset", [0.5, -0.5])
def test_a_dc_offset_changes_few_verdicts(offset: float) -> None:
    audio = np.concatenate([white(1.0, 1e-4), voice(2.0), white(1.0, 1e-4, seed=1)])
    clean = verdicts(make_vad(), audio)
    shifted = verdicts(make_vad(), (audio + np.float32(offset)).astype(np.float32))
    assert sum(clean) > 50
    assert sum(a != b for a, b in zip(clean, shifted, strict=True)) <= 6


def test_a_quiet_talker_is_heard_at_the_default_mode_and_lost_at_the_highest() -> None:
    quiet = np.rint(voice(3.0, peak=10 ** (-54 / 20)) * 32768).astype(np.int16)
    assert sum(verdicts(make_vad(), quiet)) > 50
    assert sum(verdicts(make_vad(3), quiet)) < sum(verdicts(make_vad(), quiet)) / 2


def test_the_noise_of_one_session_does_not_leak_into_the_next() -> None:
    audio = voice(1.0, peak=0.02)
    fresh = verdicts(make_vad(), audio)
    used = make_vad()
    verdicts(used, white(10.0, 0.1))
    assert verdicts(used, audio) != fresh, "the detector keeps no state: the test proves nothing"
    used.reset()
    assert verdicts(used, audio) == fresh
    assert verdicts(make_vad(), audio) == fresh


def test_speech_passes_only_while_it_stands_out_of_the_background_or_shortly_after() -> None:
    gate = AboveBackground(ScriptedVad([True] * 9), margin_db=6.0, hold_frames=2)
    levels = [-60, -55, -53, -60, -60, -60, -40, -60, -60]
    assert [gate.is_speech(at_level(level)) for level in levels] == [
        False, False, True, True, True, False, True, True, True,
    ]  # fmt: skip


def test_standing_out_makes_no_speech_of_what_the_detector_refused() -> None:
    gate = AboveBackground(ScriptedVad([False] * 3))
    assert [gate.is_speech(at_level(level)) for level in (-80, -20, -20)] == [False, False, False]


def test_the_detector_sees_every_frame_and_a_reset_forgets_the_background() -> None:
    inner = ScriptedVad([True] * 4)
    gate = AboveBackground(inner, hold_frames=0)
    assert [gate.is_speech(at_level(level)) for level in (-50, -10, -50)] == [False, True, False]
    assert inner.calls == 3
    gate.reset()
    assert inner.calls == 0
    assert gate.is_speech(at_level(-10)) is False
    assert gate.frame_samples == FRAME_SAMPLES


def test_frames_below_the_floor_are_never_speech_whatever_the_background() -> None:
    gate = AboveBackground(ScriptedVad([True] * 3), hold_frames=0, floor_dbfs=-85.0)
    assert [gate.is_speech(at_level(level)) for level in (-119, -92, -84)] == [False, False, True]


@pytest.mark.parametrize(
    "setting",
    [{"margin_db": -1.0}, {"margin_db": math.nan}, {"hold_frames": -1}, {"hold_frames": 1.5}, {"floor_dbfs": 1.0}],
)
def test_an_impossible_margin_is_refused_by_name(setting: dict[str, float]) -> None:
    with pytest.raises(VadConfigError, match=next(iter(setting))):
        AboveBackground(ScriptedVad([]), **setting)  # type: ignore[arg-type]


@given(
    levels=st.lists(st.floats(SILENCE_DBFS, 0.0), min_size=1, max_size=60),
    rise=st.floats(0.1, 50.0),
    frame_s=st.floats(0.001, 0.1),
)
@settings(max_examples=60)
def test_the_noise_floor_never_exceeds_the_level_and_rises_no_faster_than_stated(
    levels: list[float], rise: float, frame_s: float
) -> None:
    follower = NoiseFloor(rise)
    floors = [follower.update(level, frame_s) for level in levels]
    assert all(floor <= level for floor, level in zip(floors, levels, strict=True))
    assert all(b - a <= rise * frame_s + 1e-9 for a, b in pairwise(floors))
    assert floors[0] == levels[0]


def test_the_noise_floor_reaches_a_steady_noise() -> None:
    follower = NoiseFloor(rise_db_per_s=4.0)
    follower.update(-70.0, 0.02)
    floors = [follower.update(-50.0, 0.02) for _ in range(251)]
    assert floors[124] == pytest.approx(-60.0)
    assert floors[-1] == -50.0


@pytest.mark.parametrize("rise", [0.0, -1.0, math.inf, math.nan])
def test_a_noise_floor_that_cannot_rise_is_refused(rise: float) -> None:
    with pytest.raises(ValueError, match="rise_db_per_s"):
        NoiseFloor(rise)


def test_level_is_decibels_of_full_scale_without_the_offset() -> None:
    sine = np.sin(2 * np.pi * 50 * np.arange(320) / RATE).astype(np.float32)
    assert level_dbfs(sine) == pytest.approx(-3.01, abs=0.01)
    assert level_dbfs(0.4 * sine + np.float32(0.5)) == pytest.approx(-3.01 + 20 * math.log10(0.4), abs=0.01)
    assert level_dbfs(np.rint(sine * 3276.8).astype(np.int16)) == pytest.approx(-23.01, abs=0.01)
    assert level_dbfs(at_level(-47.0)) == pytest.approx(-47.0, abs=0.01)


@pytest.mark.parametrize("frame", [np.zeros(320, np.float32), np.full(320, 0.5, np.float32), np.zeros(0, np.float32)])
def test_digital_silence_has_a_finite_level_so_that_an_event_can_carry_it(frame: Audio) -> None:
    assert level_dbfs(frame) == SILENCE_DBFS
    json.dumps(level_dbfs(frame), allow_nan=False)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_level_of_audio_that_is_not_finite_is_unknown_not_silence(bad: float) -> None:
    frame = np.zeros(320, np.float32)
    frame[7] = bad
    assert math.isnan(level_dbfs(frame))


@pytest.mark.slow
def test_after_two_hours_of_noise_a_voice_is_found_as_at_the_start() -> None:
    audio = np.concatenate([white(2.0, 1e-4), voice(5.0), white(2.0, 1e-4, seed=3)])
    vad = make_vad()
    first = verdicts(vad, audio)
    for minute in range(120):
        block = white(60.0, 10 ** (-(20 + minute % 40) / 20), seed=minute)
        verdicts(vad, block)
    assert abs(sum(verdicts(vad, audio)) - sum(first)) <= 10
