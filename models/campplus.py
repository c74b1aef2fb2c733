"""CAM++, a speaker network, in torch: used to export it, never by the live loop.

Wang et al., "CAM++: A fast and efficient network for speaker verification using context-aware masking", Interspeech
2023. A small 2-D convolutional front end (FCM) is followed by a densely connected TDNN (D-TDNN) whose every layer
is scaled by a mask computed from the utterance's mean and the mean of its own two-second segment; then mean and
standard deviation over time, and one affine layer. The sizes are those of 3D-Speaker's 200k-speaker Chinese and
English model; parameters carry the names of its published checkpoint.

Shapes: ``T`` frames of 80 mel bins at 100 Hz in, ``F = ceil(T / 2)`` frames at 50 Hz inside.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

MEL_BINS: Final = 80
EMBEDDING_WIDTH: Final = 192
NORM_EPSILON: Final = 1e-5
"""Added to the variance in batch normalisation."""
TRUNK_WIDTH: Final = 512
"""Channels of the frame-level features before pooling."""

_FRONT_CHANNELS: Final = 32
_FIRST_CHANNELS: Final = 128
_GROWTH: Final = 32
_BOTTLENECK: Final = 4 * _GROWTH
_MASK_REDUCTION: Final = 2
_KERNEL: Final = 3
_SEGMENT_FRAMES: Final = 100
"""Frames of 20 ms that share one local context: two seconds."""
_BLOCKS: Final = ((12, 1), (24, 2), (16, 2))
"""Layers and dilation of the three dense blocks."""


class CamPlusPlus(nn.Module):
    """The whole network; :meth:`trunk` and :meth:`pool` are its two exported parts."""

    def __init__(self) -> None:
        super().__init__()
        self.head = _FrontEnd()
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        parts["tdnn"] = _FirstTdnn()
        width = _FIRST_CHANNELS
        for number, (layers, dilation) in enumerate(_BLOCKS, start=1):
            parts[f"block{number}"] = _DenseBlock(width, layers, dilation)
            width += layers * _GROWTH
            parts[f"transit{number}"] = _Transition(width)
            width //= 2
        parts["out_nonlinear"] = _norm_relu(width)
        parts["dense"] = _Embedding(2 * width)
        self.xvector = nn.ModuleDict(parts)

    def trunk(self, fbank: Tensor) -> Tensor:
        """Frame-level features.

        Args:
            fbank: ``(batch, T, 80)`` log mel energies, the mean over ``T`` removed.

        Returns:
            ``(batch, 512, F)``.
        """
        hidden: Tensor = self.head(fbank.transpose(1, 2))
        for name, part in self.xvector.items():
            if name != "dense":
                hidden = part(hidden)
        return hidden

    def pool(self, frames: Tensor) -> Tensor:
        """Embedding of frame-level features: ``(batch, 512, F)``, F at least 2, to ``(batch, 192)``, not normalised."""
        embedding: Tensor = self.xvector["dense"](torch.cat([frames.mean(-1), frames.std(-1, unbiased=True)], dim=-1))
        return embedding

    def forward(self, fbank: Tensor) -> Tensor:
        """``(batch, T, 80)`` to ``(batch, 192)``, not normalised."""
        return self.pool(self.trunk(fbank))


class Trunk(nn.Module):
    """The part before pooling as a module of its own, for export: ``(batch, T, 80)`` to ``(batch, F, 512)``."""

    def __init__(self, network: CamPlusPlus) -> None:
        super().__init__()
        self.network = network

    def forward(self, fbank: Tensor) -> Tensor:
        return self.network.trunk(fbank).transpose(1, 2)


class _FrontEnd(nn.Module):
    """FCM: 2-D residual convolutions that reduce the frequency axis by 8 and keep time."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, _FRONT_CHANNELS, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(_FRONT_CHANNELS)
        self.layer1 = nn.Sequential(_Residual(halve=True), _Residual(halve=False))
        self.layer2 = nn.Sequential(_Residual(halve=True), _Residual(halve=False))
        self.conv2 = nn.Conv2d(_FRONT_CHANNELS, _FRONT_CHANNELS, 3, stride=(2, 1), padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(_FRONT_CHANNELS)

    def forward(self, mel: Tensor) -> Tensor:
        hidden = functional.relu(self.bn1(self.conv1(mel.unsqueeze(1))))
        hidden = self.layer2(self.layer1(hidden))
        hidden = functional.relu(self.bn2(self.conv2(hidden)))
        return hidden.flatten(1, 2)


class _Residual(nn.Module):
    """Two 3x3 convolutions with a shortcut; ``halve`` takes every second frequency."""

    def __init__(self, halve: bool) -> None:
        super().__init__()
        stride = (2, 1) if halve else (1, 1)
        self.conv1 = nn.Conv2d(_FRONT_CHANNELS, _FRONT_CHANNELS, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(_FRONT_CHANNELS)
        self.conv2 = nn.Conv2d(_FRONT_CHANNELS, _FRONT_CHANNELS, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(_FRONT_CHANNELS)
        self.shortcut = nn.Sequential()
        if halve:
            self.shortcut = nn.Sequential(
                nn.Conv2d(_FRONT_CHANNELS, _FRONT_CHANNELS, 1, stride=stride, bias=False),
                nn.BatchNorm2d(_FRONT_CHANNELS),
            )

    def forward(self, hidden: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(hidden)))))
        return functional.relu(inner + self.shortcut(hidden))


class _FirstTdnn(nn.Module):
    """From 100 to 50 frames a second."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Conv1d(_FRONT_CHANNELS * MEL_BINS // 8, _FIRST_CHANNELS, 5, stride=2, padding=2, bias=False)
        self.nonlinear = _norm_relu(_FIRST_CHANNELS)

    def forward(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.nonlinear(self.linear(hidden))
        return out


class _DenseBlock(nn.ModuleDict):
    """Each layer reads everything before it in the block and appends 32 channels."""

    def __init__(self, width: int, layers: int, dilation: int) -> None:
        super().__init__({f"tdnnd{i + 1}": _DenseLayer(width + i * _GROWTH, dilation) for i in range(layers)})

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.values():
            hidden = torch.cat([hidden, layer(hidden)], dim=1)
        return hidden


class _DenseLayer(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.nonlinear1 = _norm_relu(width)
        self.linear1 = nn.Conv1d(width, _BOTTLENECK, 1, bias=False)
        self.nonlinear2 = _norm_relu(_BOTTLENECK)
        self.cam_layer = _MaskedConvolution(dilation)

    def forward(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.cam_layer(self.nonlinear2(self.linear1(self.nonlinear1(hidden))))
        return out


class _MaskedConvolution(nn.Module):
    """Context-aware masking: a convolution over time, scaled channel by channel by its context."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.linear_local = nn.Conv1d(_BOTTLENECK, _GROWTH, _KERNEL, padding=dilation, dilation=dilation, bias=False)
        self.linear1 = nn.Conv1d(_BOTTLENECK, _BOTTLENECK // _MASK_REDUCTION, 1)
        self.linear2 = nn.Conv1d(_BOTTLENECK // _MASK_REDUCTION, _GROWTH, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        frames = hidden.shape[-1]
        # One context a segment: the mask is computed there and repeated, not computed 100 times.
        context = hidden.mean(-1, keepdim=True) + _segment_means(hidden)
        mask = torch.sigmoid(self.linear2(functional.relu(self.linear1(context))))
        mask = mask.repeat_interleave(_SEGMENT_FRAMES, dim=-1)[..., :frames]
        local: Tensor = self.linear_local(hidden)
        return local * mask


def _segment_means(hidden: Tensor) -> Tensor:
    """Mean of each 100-frame segment, the last one over what it has.

    ``(batch, channels, F)`` to ``(batch, channels, ceil(F / 100))``.
    """
    frames = hidden.shape[-1]
    segments = (frames + _SEGMENT_FRAMES - 1) // _SEGMENT_FRAMES
    padding = (0, segments * _SEGMENT_FRAMES - frames)
    by_segment = (-1, _SEGMENT_FRAMES)
    counts = torch.unflatten(functional.pad(torch.ones_like(hidden[:1, :1]), padding), -1, by_segment).sum(-1)
    return torch.unflatten(functional.pad(hidden, padding), -1, by_segment).sum(-1) / counts


class _Transition(nn.Module):
    """Halves the channels after a dense block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.nonlinear = _norm_relu(width)
        self.linear = nn.Conv1d(width, width // 2, 1, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.linear(self.nonlinear(hidden))
        return out


class _Embedding(nn.Module):
    """Affine layer with batch normalisation that has no scale or shift of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Conv1d(width, EMBEDDING_WIDTH, 1, bias=False)
        self.nonlinear = nn.Sequential(
            OrderedDict(batchnorm=nn.BatchNorm1d(EMBEDDING_WIDTH, eps=NORM_EPSILON, affine=False))
        )

    def forward(self, statistics: Tensor) -> Tensor:
        out: Tensor = self.nonlinear(self.linear(statistics.unsqueeze(-1)).squeeze(-1))
        return out


def _norm_relu(width: int) -> nn.Sequential:
    return nn.Sequential(OrderedDict(batchnorm=nn.BatchNorm1d(width), relu=nn.ReLU()))
