"""Writes small odd and broken WAV files: one of each kind that recorders, downloads and converters leave behind.

Every file holds the same second of a voice-like sound, so that a reader that gets it wrong shows. Deterministic.
Also a program: ``python tests/make_bad_wavs.py FOLDER``.
"""

from __future__ import annotations

import functools
import struct
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

Signal = npt.NDArray[np.float64]

PCM, FLOAT, MU_LAW, EXTENSIBLE = 1, 3, 7, 0xFFFE
_GUID_REST = bytes.fromhex("000000001000800000aa00389b71")


def voice(rate_hz: int = 16_000, peak: float = 0.2) -> Signal:
    """One second of the same sound at any rate: harmonics under two formants, in three syllables, with that peak."""
    return _syllables(rate_hz) * (peak / _loudest())


@functools.cache
def _loudest() -> float:
    """The sound's peak between samples, so that its level is the same at every rate."""
    return float(np.abs(_syllables(96_000)).max())


def _syllables(rate_hz: int) -> Signal:
    t = np.arange(rate_hz) / rate_hz
    sound = np.zeros_like(t)
    for harmonic in np.arange(110.0, 3_400.0, 110.0):
        formants = np.exp(-(((harmonic - 600) / 300) ** 2)) + 0.4 * np.exp(-(((harmonic - 1_700) / 400) ** 2))
        sound += formants * np.sin(2 * np.pi * harmonic * t + harmonic)
    syllables: Signal = sound * np.sin(np.pi * 3 * t) ** 2
    return syllables


def integers(signal: Signal, bits: int) -> bytes:
    """Little-endian PCM; 8 bits are unsigned, as WAV has it."""
    full = 2 ** (bits - 1)
    values: npt.NDArray[np.int32] = np.clip(np.rint(signal * full), -full, full - 1).astype("<i4")
    if bits == 8:
        return (values + 128).astype("u1").tobytes()
    return values.view("u1").reshape(-1, 4)[:, : bits // 8].tobytes()


def floats(signal: Signal) -> bytes:
    """32-bit floats."""
    return np.asarray(signal, "<f4").tobytes()


def mu_law(signal: Signal) -> bytes:
    """ITU-T G.711 mu-law."""
    values = np.clip(np.rint(signal * 32_768), -32_635, 32_635).astype(int)
    biased = np.abs(values) + 132
    exponent = np.floor(np.log2(biased)).astype(int) - 7
    code: npt.NDArray[np.int64] = ((values < 0) << 7) | (exponent << 4) | ((biased >> (exponent + 3)) & 15)
    return (~code & 0xFF).astype("u1").tobytes()


def interleaved(*channels: Signal) -> Signal:
    """Channels as one signal."""
    return np.stack(channels, axis=1).reshape(-1)


def chunk(name: bytes, body: bytes, claimed: int | None = None, pad: bool = True) -> bytes:
    """One RIFF chunk, with its pad byte."""
    return name + struct.pack("<I", len(body) if claimed is None else claimed) + body + b"\0" * (pad and len(body) % 2)


def fmt(tag: int = PCM, channels: int = 1, rate_hz: int = 16_000, bits: int = 16, align: int | None = None) -> bytes:
    """A ``fmt`` chunk; EXTENSIBLE takes the inner format from the width."""
    align = channels * bits // 8 if align is None else align
    body = struct.pack("<HHIIHH", tag, channels, rate_hz, rate_hz * align, align, bits)
    if tag == EXTENSIBLE:
        inner = FLOAT if bits == 32 else PCM
        body += struct.pack("<HHIH", 22, bits, (1 << channels) - 1, inner) + _GUID_REST
    elif tag == MU_LAW:
        body += b"\0\0"
    return chunk(b"fmt ", body)


def riff(*chunks: bytes, claimed: int | None = None, magic: bytes = b"RIFF") -> bytes:
    """A RIFF/WAVE file of those chunks."""
    body = b"WAVE" + b"".join(chunks)
    return magic + struct.pack("<I", len(body) if claimed is None else claimed) + body


def wav(signal: Signal, rate_hz: int = 16_000, channels: int = 1, bits: int = 16, tag: int = PCM) -> bytes:
    """A sound WAV file."""
    body = mu_law(signal) if tag == MU_LAW else integers(signal, bits)
    return riff(fmt(tag, channels, rate_hz, bits), chunk(b"data", body))


@functools.cache
def make_files() -> dict[str, bytes]:
    """Every file by its name without the ending."""
    sound = voice()
    silent = np.zeros_like(sound)
    header, body = fmt(), integers(sound, 16)
    data = chunk(b"data", body)
    good = riff(header, data)
    odd_tags = b"INFOINAM\x05\0\0\0take1"
    broken = sound.copy()
    broken[8_000] = np.nan
    endless = sound.copy()
    endless[8_000] = np.inf
    float_header = fmt(FLOAT, bits=32)
    noise = np.random.default_rng(20)

    def of_floats(signal: Signal) -> bytes:
        return riff(float_header, chunk(b"data", floats(signal)))

    return {
        "a01_plain": good,
        "a02_44k1": wav(voice(44_100), 44_100),
        "a03_48k_stereo": wav(interleaved(voice(48_000), voice(48_000)), 48_000, channels=2),
        "a04_8k": wav(voice(8_000), 8_000),
        "a05_11k025": wav(voice(11_025), 11_025),
        "b01_u8": wav(sound, bits=8),
        "b02_s24": wav(sound, bits=24),
        "b03_s32": riff(fmt(bits=32), chunk(b"data", integers(sound, 32))),
        "b04_float": of_floats(sound),
        "b05_mu_law_8k": wav(voice(8_000), 8_000, bits=8, tag=MU_LAW),
        "b06_extensible_s16": wav(sound, tag=EXTENSIBLE),
        "b07_extensible_s24_48k_stereo": wav(
            interleaved(voice(48_000), voice(48_000)), 48_000, channels=2, bits=24, tag=EXTENSIBLE
        ),
        "b08_extensible_float": riff(fmt(EXTENSIBLE, bits=32), chunk(b"data", floats(sound))),
        "c01_right_only": wav(interleaved(silent, sound), channels=2),
        "c02_antiphase": wav(interleaved(sound, -sound), channels=2),
        "c03_first_of_six": wav(interleaved(sound, *[silent] * 5), channels=6),
        "d01_zero_bytes": b"",
        "d02_riff_only": riff(),
        "d03_header_cut": good[:30],
        "d04_no_data_chunk": riff(header),
        "d05_no_fmt_chunk": riff(data),
        "d06_zero_samples": riff(header, chunk(b"data", b"")),
        "d07_one_sample": riff(header, chunk(b"data", body[5_332:5_334])),
        "d08_nine_ms": riff(header, chunk(b"data", body[5_332:5_620])),
        "d09_data_size_zero": riff(header, chunk(b"data", body, claimed=0)),
        "d10_streamed_sizes": riff(header, chunk(b"data", body, claimed=0xFFFFFFFF), claimed=0xFFFFFFFF),
        "d11_cut_in_half": good[: 44 + 16_000],
        "d12_cut_in_a_sample": good[: 44 + 16_001],
        "d13_one_byte_too_many": riff(header, chunk(b"data", body + b"\x55", pad=False)),
        "e01_odd_tags": riff(header, chunk(b"LIST", odd_tags), data),
        "e02_odd_tags_unpadded": riff(header, chunk(b"LIST", odd_tags, pad=False), data),
        "e03_tags_at_the_end": riff(header, data, chunk(b"LIST", odd_tags)),
        "e04_garbage_at_the_end": good + b"\xa5" * 37,
        "e05_odd_s24": riff(fmt(bits=24), chunk(b"data", integers(sound[2_000:2_101], 24))),
        "e06_riff_size_of_an_empty_file": riff(header, data, claimed=36),
        "e07_two_data_chunks": riff(header, chunk(b"data", body[:16_000]), chunk(b"data", body[16_000:])),
        "e08_rifx": riff(header, data, magic=b"RIFX"),
        "e09_mp3": b"ID3\x03\0\0\0\0\0\x0a" + b"\xff\xfb\x50\xc4" * 150,
        "e10_html": b"<!DOCTYPE html>\n<html><head><title>Not found</title></head></html>\n",
        "e11_lfs_pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 32044\n",
        "e12_rate_zero": riff(fmt(rate_hz=0), data),
        "e13_channels_zero": riff(fmt(channels=0, align=2), data),
        "e14_block_align_lies": riff(fmt(align=4), data),
        "e15_says_48k_is_16k": riff(fmt(rate_hz=48_000), data),
        "f01_digital_silence": wav(np.zeros(32_000)),
        "f02_one_nan": of_floats(broken),
        "f03_all_nan": of_floats(np.full(16_000, np.nan)),
        "f04_infinity": of_floats(endless),
        "f05_peak_2_6": of_floats(sound / 0.2 * 2.6),
        "f06_peak_1e37": of_floats(sound / 0.2 * 1e37),
        "f07_hard_clipped": wav(np.clip(sound * 30, -1, 1)),
        "f08_dc_half": wav(sound * 0.3 + 0.5),
        "f09_very_quiet": wav(sound / 0.2 * 0.002),
        "f10_one_lsb": wav(noise.integers(-1, 2, 32_000) / 32_768),
        "f11_white_noise": wav(noise.uniform(-1, 1, 32_000)),
        "f12_float_in_int16_range": of_floats(sound * 32_768),
    }


def write_files(folder: Path) -> dict[str, Path]:
    """Write them all; paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: dict[str, Path] = {}
    for name, content in make_files().items():
        paths[name] = folder / f"{name}.wav"
        paths[name].write_bytes(content)
    return paths


if __name__ == "__main__":
    print(len(write_files(Path(sys.argv[1]))), "files")
