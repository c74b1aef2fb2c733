"""PyanNet, a segmentation network, in torch: used to export it, never by the live loop.

Bredin, "pyannote.audio 2.1 speaker diarization pipeline", Interspeech 2023, with the powerset output of Plaquet and
Bredin, "Powerset multi-class cross entropy loss for neural speaker diarization", Interspeech 2023. A SincNet front end
(Ravanelli and Bengio, 2018) turns the waveform into a frame every 270 samples; four bidirectional LSTM layers and two
affine layers say of each frame which of up to three voices sound in it. The sizes are those of segmentation-3.0;
parameters carry the names of its published checkpoint.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES: Final = 7
"""Nobody; one of three voices; two of them at once."""

_SINC_PAIRS: Final = 40
_SINC_TAPS: Final = 251
_SINC_STRIDE: Final = 10
_SINC_LOWEST_HZ: Final = 50.0
_SINC_NARROWEST_HZ: Final = 50.0
_NYQUIST_HZ: Final = 8000.0
_CHANNELS: Final = (80, 60, 60)
_KERNEL: Final = 5
_POOL: Final = 3
_HIDDEN: Final = 128
_LSTM_LAYERS: Final = 4


class PyanNet(nn.Module):
    """Waveform in, log-probabilities of the powerset classes out."""

    def __init__(self) -> None:
        super().__init__()
        self.sincnet = _SincNet()
        self.lstm = nn.LSTM(_CHANNELS[-1], _HIDDEN, _LSTM_LAYERS, bidirectional=True, batch_first=True)
        self.linear = nn.ModuleList([nn.Linear(2 * _HIDDEN, _HIDDEN), nn.Linear(_HIDDEN, _HIDDEN)])
        self.classifier = nn.Linear(_HIDDEN, CLASSES)

    def forward(self, waveform: Tensor) -> Tensor:
        """Classes of each frame.

        Args:
            waveform: float ``(batch, samples)`` at 16 kHz, at least 991 samples.

        Returns:
            Log-probabilities ``(batch, frames, 7)``.
        """
        hidden, _ = self.lstm(self.sincnet(waveform[:, None]).transpose(1, 2))
        for layer in self.linear:
            hidden = functional.leaky_relu(layer(hidden))
        return functional.log_softmax(self.classifier(hidden), dim=-1)


class _SincNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wav_norm1d = nn.InstanceNorm1d(1, affine=True)
        first, second, third = _CHANNELS
        self.conv1d = nn.ModuleList(
            [_SincFilters(), nn.Conv1d(first, second, _KERNEL), nn.Conv1d(second, third, _KERNEL)]
        )
        self.norm1d = nn.ModuleList(nn.InstanceNorm1d(width, affine=True) for width in _CHANNELS)

    def forward(self, waveform: Tensor) -> Tensor:
        out: Tensor = self.wav_norm1d(waveform)
        for number, (conv, norm) in enumerate(zip(self.conv1d, self.norm1d, strict=True)):
            out = conv(out)
            if number == 0:
                out = out.abs()
            out = functional.leaky_relu(norm(functional.max_pool1d(out, _POOL)))
        return out


class _SincFilters(nn.Module):
    """Band-pass filters with learnt edges: for each band a cosine and, shifted by a quarter period, a sine."""

    def __init__(self) -> None:
        super().__init__()
        self.filterbank = _SincEdges()

    def forward(self, waveform: Tensor) -> Tensor:
        return functional.conv1d(waveform, self.filterbank.filters(), stride=_SINC_STRIDE)


class _SincEdges(nn.Module):
    low_hz_: Tensor
    band_hz_: Tensor
    window_: Tensor
    n_: Tensor

    def __init__(self) -> None:
        super().__init__()
        half = _SINC_TAPS // 2
        self.low_hz_ = nn.Parameter(torch.zeros(_SINC_PAIRS, 1))
        self.band_hz_ = nn.Parameter(torch.zeros(_SINC_PAIRS, 1))
        self.register_buffer("window_", torch.zeros(half))
        self.register_buffer("n_", torch.zeros(1, half))

    def filters(self) -> Tensor:
        """The taps ``(80, 1, 251)``; only the left half is stored, as time times two pi in ``n_``."""
        low = _SINC_LOWEST_HZ + self.low_hz_.abs()
        high = torch.clamp(low + _SINC_NARROWEST_HZ + self.band_hz_.abs(), _SINC_LOWEST_HZ, _NYQUIST_HZ)
        band = high - low
        half_time = self.n_ / 2.0
        even = (torch.sin(high @ self.n_) - torch.sin(low @ self.n_)) / half_time * self.window_
        odd = (torch.cos(low @ self.n_) - torch.cos(high @ self.n_)) / half_time * self.window_
        cosine = torch.cat([even, 2.0 * band, even.flip(1)], dim=1)
        sine = torch.cat([odd, torch.zeros_like(band), -odd.flip(1)], dim=1)
        return (torch.cat([cosine, sine]) / (2.0 * band.repeat(2, 1)))[:, None]
