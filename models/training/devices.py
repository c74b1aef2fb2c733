"""Seeded microphones and codecs: what stands between the air and the samples.

Near and far speech pass through the same chain, so that no property of a device can stand for distance.
"""

from __future__ import annotations

import io
import math

import numpy as np
import numpy.typing as npt

SAMPLE_RATE_HZ = 16_000

FloatArray = npt.NDArray[np.float64]


def through_device(x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """One drawn recording chain: rumble filter, response, band limit, suppressor, compressor, codec, level, 16 bits.

    Args:
        x: ``(samples,)``.
        rng: draws which stages are present and how strong they are.

    Returns:
        ``(samples,)`` at a drawn level between about -38 and -10 dBFS, within [-1, 1].
    """
    if rng.random() < 0.7:
        x = _high_pass(x, math.exp(rng.uniform(math.log(25.0), math.log(250.0))), int(rng.integers(1, 4)))
    if rng.random() < 0.8:
        x = _random_response(x, rng)
    draw = rng.random()
    if draw < 0.35:
        x = _low_pass(x, rng.uniform(3400.0, 7600.0), int(rng.integers(2, 9)))
    elif draw < 0.42:
        x = _high_pass(_low_pass(x, 3400.0, 6), 300.0, 3)
    if rng.random() < 0.15:
        x = _suppress_noise(x, rng)
    if rng.random() < 0.25:
        x = _compress(x, rng)
    x = to_level(x, rng.uniform(-38.0, -10.0))
    draw = rng.random()
    if draw < 0.10:
        x = _coded(x, rng)
    elif draw < 0.14:
        x = _mu_law(x)
    if rng.random() < 0.04:
        x = np.tanh(x * rng.uniform(1.0, 3.0))
    return np.asarray(np.round(np.clip(x, -1.0, 1.0) * 32767.0) / 32768.0, dtype=np.float64)


def to_level(x: FloatArray, dbfs: float) -> FloatArray:
    """The same sound with that RMS level, lowered further where it would exceed full scale."""
    rms = math.sqrt(float(np.mean(x**2)) + 1e-20)
    gain = 10.0 ** (dbfs / 20.0) / rms
    peak = float(np.abs(x).max()) * gain
    return np.asarray(x * (gain / max(1.0, peak)), dtype=np.float64)


def _high_pass(x: FloatArray, hz: float, order: int) -> FloatArray:
    from scipy.signal import butter, sosfilt

    return np.asarray(sosfilt(butter(order, hz, btype="highpass", fs=SAMPLE_RATE_HZ, output="sos"), x))


def _low_pass(x: FloatArray, hz: float, order: int) -> FloatArray:
    from scipy.signal import butter, sosfilt

    return np.asarray(sosfilt(butter(order, hz, btype="lowpass", fs=SAMPLE_RATE_HZ, output="sos"), x))


def _random_response(x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """A smooth response: a tilt of up to +-4 dB an octave within limits, and a few resonances of up to +-9 dB."""
    from scipy.signal import fftconvolve, firwin2

    freqs = np.linspace(0.0, 8000.0, 129)
    octaves = np.log2(np.maximum(freqs, 62.5) / 1000.0)
    gain_db = np.clip(rng.normal(0.0, 1.5), -4.0, 4.0) * octaves
    for _ in range(int(rng.integers(1, 5))):
        centre = rng.uniform(-3.5, 3.0)
        gain_db += rng.uniform(-9.0, 9.0) * np.exp(-0.5 * ((octaves - centre) / rng.uniform(0.15, 0.9)) ** 2)
    taps = firwin2(129, freqs / 8000.0, 10.0 ** (np.clip(gain_db, -24.0, 18.0) / 20.0))
    return np.asarray(fftconvolve(x, taps, mode="same"))


def _suppress_noise(x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """A spectral Wiener gain with a floor of 8 to 24 dB, as phones and conferencing programs apply."""
    from scipy.signal import istft, stft

    _, _, spectrum = stft(x, fs=SAMPLE_RATE_HZ, nperseg=320, noverlap=160)
    power = np.abs(spectrum) ** 2
    noise = np.percentile(power, rng.uniform(5.0, 20.0), axis=1, keepdims=True) * rng.uniform(1.0, 3.0)
    smooth = power.copy()
    for frame in range(1, power.shape[1]):
        smooth[:, frame] = 0.6 * smooth[:, frame - 1] + 0.4 * power[:, frame]
    gain = np.maximum(1.0 - noise / np.maximum(smooth, 1e-20), 10.0 ** (-rng.uniform(8.0, 24.0) / 20.0))
    _, out = istft(spectrum * gain, fs=SAMPLE_RATE_HZ, nperseg=320, noverlap=160)
    return np.asarray(np.pad(out, (0, max(0, len(x) - len(out))))[: len(x)])


def _compress(x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Automatic gain: 10 ms blocks are brought nearer to the loud ones, with a release of 0.1 to 0.6 s."""
    block = 160
    count = math.ceil(len(x) / block)
    padded = np.pad(x, (0, count * block - len(x)))
    level_db = 10.0 * np.log10(np.mean(padded.reshape(count, block) ** 2, axis=1) + 1e-14)
    release = math.exp(-0.01 / rng.uniform(0.1, 0.6))
    envelope = np.empty(count)
    now = level_db[0]
    for i, value in enumerate(level_db):
        now = value if value > now else release * now + (1 - release) * value
        envelope[i] = now
    reference = float(np.percentile(envelope, 95))
    slope = rng.uniform(0.15, 0.5)
    gain_db = np.clip((reference - envelope) * slope, 0.0, rng.uniform(4.0, 12.0))
    gain = np.interp(np.arange(len(x)), (np.arange(count) + 0.5) * block, 10.0 ** (gain_db / 20.0))
    return np.asarray(x * gain)


def _coded(x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Through Opus or MP3 and back, realigned."""
    import soundfile

    # Opus twice as rare as the others: its encoder takes as long as all the rest of the chain.
    kinds = [("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS")] * 2 + [("OGG", "OPUS")]
    container, subtype = kinds[int(rng.integers(len(kinds)))]
    buffer = io.BytesIO()
    soundfile.write(
        buffer, x, SAMPLE_RATE_HZ, format=container, subtype=subtype, compression_level=float(rng.uniform(0.3, 0.99))
    )
    buffer.seek(0)
    out, _ = soundfile.read(buffer)
    out = np.asarray(out, dtype=np.float64)
    return np.pad(out, (0, max(0, len(x) - len(out))))[: len(x)]


def _mu_law(x: FloatArray) -> FloatArray:
    """Eight-bit mu-law, as telephony carries."""
    squeezed = np.sign(x) * np.log1p(255.0 * np.minimum(np.abs(x), 1.0)) / math.log(256.0)
    squeezed = np.round(squeezed * 127.0) / 127.0
    return np.asarray(np.sign(squeezed) * np.expm1(np.abs(squeezed) * math.log(256.0)) / 255.0)
