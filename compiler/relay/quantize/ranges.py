"""Tensor ranges from histograms of samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import RelayError

BINS = 2048
LEVELS = 128  # magnitudes of int8
SHARE = 0.99999  # of elements within a percentile range
_STEP = 16  # bins between candidate ranges of the divergence


class Histogram:
    """Histogram of the magnitudes of a tensor's elements over all samples.

    `least`, `most`: smallest and largest element. `top`: upper end of the bins. `zeros`: number of
    zeros, which every scale represents exactly; not in the bins.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.least, self.most, self.top = math.inf, -math.inf, 0.0
        self.counts = np.zeros(BINS, "int64")
        self.zeros = 0

    def add(self, values: Any) -> None:
        """Count the elements of an array. Raises RelayError: an element is infinite or NaN."""
        values = np.asarray(values, "float64").ravel()
        if not values.size:
            return
        if not np.isfinite(values).all():
            raise RelayError(f"{self.name} has elements that are not finite for a sample")
        self.least = min(self.least, float(values.min()))
        self.most = max(self.most, float(values.max()))
        largest = max(-self.least, self.most)
        if self.top == 0.0:
            self.top = largest
        while self.top < largest:
            self.counts = np.pad(self.counts.reshape(-1, 2).sum(1), (0, BINS // 2))
            self.top *= 2
        if self.top > 0.0:
            magnitudes = np.abs(values[values != 0])
            self.counts += np.histogram(magnitudes, BINS, (0.0, self.top))[0]
            self.zeros += values.size - magnitudes.size

    @property
    def largest(self) -> float:
        """Largest magnitude; 1 if all elements are 0."""
        return max(-self.least, self.most) or 1.0 if self.top else 1.0

    def percentile(self, share: float = SHARE) -> float:
        """Magnitude below which this share of the elements lies."""
        if not self.top:
            return 1.0
        wanted = share * (self.counts.sum() + self.zeros) - self.zeros
        within = np.searchsorted(np.cumsum(self.counts), wanted) + 1
        return min(self.largest, float(within) * self.top / BINS)

    def least_divergence(self, levels: int = LEVELS) -> float:
        """Range with the least information loss when quantized to `levels` magnitudes.

        Elements outside are clipped. The loss is the Kullback-Leibler divergence between the
        distribution and its quantized form.
        """
        if not self.top:
            return 1.0
        counts = self.counts.astype("float64")
        ends = range(levels, BINS + 1, _STEP)
        best = min(ends, key=lambda end: _divergence(counts, end, levels))
        return min(self.largest, best * self.top / BINS)


def _divergence(counts: np.ndarray, end: int, levels: int) -> float:
    inside = counts[:end]
    whole = inside.copy()
    whole[-1] += counts[end:].sum()
    level = np.arange(end) * levels // end
    filled = inside > 0
    sums = np.bincount(level, inside, levels)
    places = np.bincount(level, filled, levels)
    spread = np.where(filled, (sums / np.maximum(places, 1))[level], 0.0)
    p, q = whole / max(whole.sum(), 1.0), spread / max(spread.sum(), 1.0)
    known = p > 0
    return float(np.sum(p[known] * np.log(p[known] / np.maximum(q[known], 1e-12))))
