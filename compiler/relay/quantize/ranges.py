"""Ranges of tensors, from histograms of samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import RelayError

BINS = 2048
LEVELS = 128  # of magnitudes that int8 holds
SHARE = 0.99999  # of elements within a percentile's range
_STEP = 16  # bins between the ranges that the divergence is asked of


class Histogram:
    """The magnitudes of a tensor's elements over all samples.

    Attributes
    ----------
    least, most : float
        Of the elements themselves.
    top : float
        Up to where the bins go.
    zeros : int
        Elements that are 0, which every scale holds exactly; no bin counts them.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.least, self.most, self.top = math.inf, -math.inf, 0.0
        self.counts = np.zeros(BINS, "int64")
        self.zeros = 0

    def add(self, values: Any) -> None:
        """Count the elements of an array.

        Raises
        ------
        RelayError
            One is infinite or not a number.
        """
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
        """The largest magnitude; 1 where there is none above 0."""
        return max(-self.least, self.most) or 1.0 if self.top else 1.0

    def percentile(self, share: float = SHARE) -> float:
        """The magnitude below which that share of the elements is."""
        if not self.top:
            return 1.0
        wanted = share * (self.counts.sum() + self.zeros) - self.zeros
        within = np.searchsorted(np.cumsum(self.counts), wanted) + 1
        return min(self.largest, float(within) * self.top / BINS)

    def least_divergence(self, levels: int = LEVELS) -> float:
        """The range whose magnitudes, in so many levels, say most about the elements.

        Elements outside count as the last one inside. The measure is the divergence (Kullback and
        Leibler's) of the distribution from its form in levels.
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
