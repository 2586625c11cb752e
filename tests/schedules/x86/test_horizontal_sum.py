"""Sums of the lanes of vectors by shuffles."""

import numpy as np
import pytest

from schedules.x86.reduction.horizontal_sum import joins, places


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_each_lane_has_the_sum_of_the_vector_of_its_number(lanes):
    vectors = np.random.default_rng(0).integers(0, 100, (lanes, lanes))
    sums = np.empty_like(vectors)
    sums[list(places(lanes))] = vectors
    for left, right, low, high in joins(lanes):
        both = np.concatenate([sums[left], sums[right]])
        sums[left] = both[low] + both[high]
    assert sums[0].tolist() == vectors.sum(1).tolist()
