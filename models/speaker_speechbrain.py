"""Who spoke, with any speaker network that SpeechBrain can load (Ravanelli et al., "SpeechBrain", 2021).

For trying another network, not for speed: it runs on torch. What SpeechBrain leaves to its caller is settled here: nothing is ever fetched,
whatever paths the network's own file names; every array is checked before it gets there; and each is embedded by itself, since padding in a
batch changes the result.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, Embedding, ModelId, SpeakerThresholds
from models.speaker_audio import inside, unfit
from models.speaker_changes import find_changes, window_spans

if TYPE_CHECKING:
    from models.store import Store

MIN_SAMPLES: Final = SAMPLE_RATE_HZ * 5 // 10
"""0.5 s."""

_HYPERPARAMETERS = "hyperparams.yaml"
_CHANGE_HOP_SAMPLES = SAMPLE_RATE_HZ // 4
"""Coarse, since every window is a pass of its own."""


class SpeechBrainLoadError(Exception):
    """The directory is no speaker network of SpeechBrain's, or lacks a file. The message names it."""
