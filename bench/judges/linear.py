"""Linear classifiers over named features: logistic regression, its weights in a JSON file that a person can read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
_DIGITS = 6


class WeightsError(ValueError):
    """A weights file is not what this code reads. The message says why."""


@dataclass(frozen=True, eq=False)
class Linear:
    """A fitted classifier.

    Attributes:
        labels: what it tells apart.
        features: the names of what it looks at, in order.
        mean: float64 ``(features,)``, taken off.
        scale: float64 ``(features,)``, divided by.
        weights: float64 ``(labels, features)``.
        bias: float64 ``(labels,)``.
    """

    labels: tuple[str, ...]
    features: tuple[str, ...]
    mean: FloatArray
    scale: FloatArray
    weights: FloatArray
    bias: FloatArray

    def probabilities(self, values: Mapping[str, float]) -> dict[str, float]:
        """How likely each label is.

        Args:
            values: the features by name; exactly those that it was fitted on.

        Raises:
            WeightsError: when they are others.
        """
        if values.keys() != set(self.features):
            strange = sorted(values.keys() ^ set(self.features))
            raise WeightsError(f"the weights are of other features; they differ in {', '.join(strange)}")
        x = np.array([values[name] for name in self.features], np.float64)
        scores = self.weights @ ((x - self.mean) / self.scale) + self.bias
        likely = np.exp(scores - scores.max())
        return dict(zip(self.labels, (likely / likely.sum()).tolist(), strict=True))

    def as_json(self) -> dict[str, Any]:
        """What ``from_json`` reads, numbers rounded to six digits."""
        return {
            "labels": list(self.labels),
            "features": list(self.features),
            "mean": _rounded(self.mean),
            "scale": _rounded(self.scale),
            "weights": [_rounded(row) for row in self.weights],
            "bias": _rounded(self.bias),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Linear:
        """Read one.

        Raises:
            WeightsError: when fields are missing, shapes do not fit or numbers are not finite.
        """
        try:
            out = cls(
                tuple(data["labels"]), tuple(data["features"]),
                *(np.asarray(data[name], np.float64) for name in ("mean", "scale", "weights", "bias")),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise WeightsError(f"no classifier: {error}") from error
        labels, features = len(out.labels), len(out.features)
        shapes = (out.mean.shape, out.scale.shape, out.weights.shape, out.bias.shape)
        if shapes != ((features,), (features,), (labels, features), (labels,)):
            raise WeightsError(f"no classifier: shapes {shapes} do not fit {labels} labels of {features} features")
        if not all(np.isfinite(part).all() for part in (out.mean, out.scale, out.weights, out.bias)):
            raise WeightsError("no classifier: a number is not finite")
        return out


def _rounded(values: FloatArray) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values.tolist()]


def load(path: Path) -> dict[str, Linear]:
    """The classifiers of a weights file, by name.

    Raises:
        WeightsError: when it cannot be read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {name: Linear.from_json(one) for name, one in data["classifiers"].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise WeightsError(f"{path}: {error}") from error


def fit(
    labels: Sequence[str], rows: Sequence[Mapping[str, float]], wanted: Sequence[str], *, strength: float
) -> Linear:
    """Multinomial logistic regression with an L2 penalty, features brought to mean 0 and deviation 1.

    Args:
        labels: all that can be said, in order.
        rows: the features of each example; the same names in each.
        wanted: the label of each example.
        strength: the inverse of the penalty's weight.

    Returns:
        The classifier; the same examples give the same one.
    """
    from scipy.optimize import minimize

    features = tuple(rows[0])
    raw = np.array([[row[name] for name in features] for row in rows], np.float64)
    mean, spread = raw.mean(axis=0), raw.std(axis=0)
    scale = np.where(spread > 1e-9, spread, 1.0)
    x = np.hstack([(raw - mean) / scale, np.ones((len(raw), 1))])
    truth = np.array([[float(label == name) for name in labels] for label in wanted])
    shape = (len(labels), x.shape[1])

    def loss(flat: FloatArray) -> tuple[float, FloatArray]:
        w = flat.reshape(shape)
        scores = x @ w.T
        scores -= scores.max(axis=1, keepdims=True)
        log_likely = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        gradient = (np.exp(log_likely) - truth).T @ x
        gradient[:, :-1] += w[:, :-1] / strength
        penalty = float((w[:, :-1] ** 2).sum()) / (2 * strength)
        return penalty - float((log_likely * truth).sum()), gradient.ravel()

    found = minimize(loss, np.zeros(shape[0] * shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    w = np.asarray(found.x, np.float64).reshape(shape)
    return Linear(tuple(labels), features, mean, scale, w[:, :-1], w[:, -1])
