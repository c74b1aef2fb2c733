"""Tells what kind of utterance a text is by examples, from what a frozen language model makes of it.

Each example and each turn is the mean of the model's hidden states over its tokens, standardised over the examples and
scaled to unit length. A kernel ridge classifier over the examples (Rifkin, Yeo and Poggio 2003, "Regularized
least-squares classification"), each class weighted alike, gives the scores. It has a closed form, so there is no
training run: adding an example, or a tool known only by its description, is solving a small system again. That a frozen
model's representations with a few labelled examples beat the labels that it would generate was shown by Xu et al. 2023,
"kNN Prompting".

The scores become probabilities by a softmax whose temperature is fitted on leave-one-out scores, which for ridge
regression need no refitting.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]

RIDGE = 0.5
"""Regularisation, on the scale of unit-length vectors."""

_SHARPNESS = np.geomspace(0.5, 64.0, 36)
_LEAST_DEVIATION = 1e-6


class ExemplarJudge:
    """A classifier over labelled examples. Immutable."""

    def __init__(self, states: FloatArray, labels: Sequence[str], ridge: float = RIDGE) -> None:
        """Solve for the examples.

        Args:
            states: float32 ``(examples, width)``, the pooled state of each example.
            labels: the label of each.
            ridge: regularisation.

        Raises:
            ValueError: when the two differ in number, there are fewer than two labels, or a state is not finite.
        """
        if len(states) != len(labels):
            raise ValueError(f"{len(states)} states for {len(labels)} labels")
        self.labels = tuple(dict.fromkeys(labels))
        if len(self.labels) < 2:
            raise ValueError("examples of at least two kinds are needed")
        if not np.isfinite(states).all():
            raise ValueError("a state is not finite")
        which = np.array([self.labels.index(label) for label in labels])
        self._mean = states.mean(axis=0, dtype=np.float64)
        self._deviation = states.std(axis=0, dtype=np.float64) + _LEAST_DEVIATION
        self._examples = self._placed(states)
        counts = np.bincount(which)
        # A class of few examples pulls as hard as one of many: its examples are regularised less.
        strength = ridge * counts[which] * len(self.labels) / len(labels)
        inverse = np.linalg.inv(self._examples @ self._examples.T + np.diag(strength))
        targets = np.eye(len(self.labels))[which] - 1.0 / len(self.labels)
        self._weights = inverse @ targets
        left_out = targets - self._weights / np.diag(inverse)[:, None]
        self.sharpness = self._fit_sharpness(left_out, which, counts)

    def logprobs(self, state: FloatArray) -> dict[str, float]:
        """Log-probability of each label for one pooled state, float32 ``(width,)``.

        Raises:
            ValueError: when the state is not finite.
        """
        if not np.isfinite(state).all():
            raise ValueError("the state is not finite")
        scores = self._placed(state[None]) @ self._examples.T @ self._weights
        logprobs = _log_softmax(self.sharpness * scores)[0]
        return {label: float(value) for label, value in zip(self.labels, logprobs, strict=True)}

    def _placed(self, states: FloatArray) -> npt.NDArray[np.float64]:
        centred = (states - self._mean) / self._deviation
        length = np.linalg.norm(centred, axis=1, keepdims=True)
        return np.asarray(centred / np.maximum(length, 1e-12), dtype=np.float64)

    @staticmethod
    def _fit_sharpness(
        left_out: npt.NDArray[np.float64], which: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
    ) -> float:
        # The only example of a class cannot be predicted from the others.
        usable = counts[which] > 1
        if not usable.any():
            return 1.0
        weight = 1.0 / counts[which[usable]]
        rows = np.arange(int(usable.sum()))
        fits = [
            float((_log_softmax(sharpness * left_out[usable])[rows, which[usable]] * weight).sum())
            for sharpness in _SHARPNESS
        ]
        return float(_SHARPNESS[int(np.argmax(fits))])


def _log_softmax(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
