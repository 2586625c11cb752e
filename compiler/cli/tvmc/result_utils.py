"""Top predictions of a classifier's results."""

from __future__ import annotations

import numpy as np

from .model import TVMCResult


def get_top_results(result: TVMCResult, max_results: int) -> np.ndarray:
    """The largest values of the first output's first sample: their places, and they themselves."""
    row = np.asarray(result.outputs["output_0"])[0].ravel()
    places = row.argsort()[-max_results:][::-1]
    return np.array([places, row[places]])
