"""Merged groups: the same convolution, said with fewer groups."""

import numpy as np
import pytest
import tvm

from compiler.lowering.selection.ops.grouped_conv2d import groups_to_merge, merge_groups
from schedules.conv2d import Conv2dWorkload

AVX512 = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"})


def workload(groups, per_group, out_per_group, **changes):
    fields = {
        "batch": 1,
        "in_channels": groups * per_group,
        "height": 8,
        "width": 8,
        "out_channels": groups * out_per_group,
        "kernel": (1, 1),
        "strides": (1, 1),
        "padding": (0, 0, 0, 0),
        "dilation": (1, 1),
        "groups": groups,
        "constant_weight": True,
    }
    return Conv2dWorkload(**{**fields, **changes})


@pytest.mark.parametrize(
    "groups,per_group,out_per_group,merged",
    [
        (32, 4, 4, 4),
        (32, 8, 8, 2),
        (32, 16, 16, 1),  # fills a vector as it is
        (8, 4, 12, 4),  # 48 channels in one group
        (8, 6, 6, 8),
        (3, 4, 4, 3),  # 12 channels in the only group left
        (2, 3, 5, 2),
        (34, 2, 3, 2),  # blocks of two
        (33, 2, 3, 1),  # 99 channels for each of 66 inputs would cost more
        (32, 1, 1, 1),  # depthwise
        (1, 4, 4, 1),
    ],
)
def test_groups_are_merged_until_they_fill_vectors(groups, per_group, out_per_group, merged):
    assert groups_to_merge(workload(groups, per_group, out_per_group), AVX512) == merged


def test_weights_that_come_at_run_time_keep_their_groups():
    assert groups_to_merge(workload(32, 4, 4, constant_weight=False), AVX512) == 1


def test_every_output_channel_still_reads_its_own_group_alone():
    rng = np.random.default_rng(0)
    w, weight = workload(6, 2, 3), rng.standard_normal((18, 2, 1, 1))
    merged, filled = merge_groups(w, weight, 3)
    assert (merged.groups, filled.shape) == (2, (18, 6, 1, 1))
    x = rng.standard_normal(12)
    before = np.einsum("goc,gc->go", weight.reshape(6, 3, 2), x.reshape(6, 2)).ravel()
    after = np.einsum("goc,gc->go", filled.reshape(2, 9, 6), x.reshape(2, 6)).ravel()
    np.testing.assert_allclose(after, before, rtol=1e-12)
