"""Taps of direct convolutions that meet rows of padding alone, which are left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tvm import te

from schedules.config import option
from schedules.conv2d import Conv2dWorkload
from schedules.x86.conv import conv2d
from schedules.x86.conv.skip_padding import rows_of, share_inside, skipped_flops

from .test_conv2d import BY_NAME, TARGETS, check

SEVEN = Conv2dWorkload(1, 16, 7, 7, 16, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), constant_weight=True)


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({}, 19 / 21),
        ({"height": 14, "padding": (12,) * 4, "dilation": (12, 12)}, 18 / 42),
        ({"strides": (2, 2)}, 10 / 12),
        ({"padding": (0, 1, 0, 1)}, 1),
        ({"kernel": (1, 3), "padding": (0, 1, 0, 1)}, 1),
    ],
)
def test_shares_of_taps_that_meet_the_image(changes, share):
    w = replace(SEVEN, **changes)
    assert share_inside(w) == pytest.approx(share)
    direct = BY_NAME[conv2d.DIRECT]
    shapes = ((1, 1, w.height, w.width, 16), (1, 1, *w.kernel, 16, 16))
    data, weight = (te.placeholder(shape) for shape in shapes)
    out = direct.compute(w, direct.fallback(w, TARGETS[0]), data, weight)
    flops = 2 * w.out_height * w.out_width * 16 * 16 * w.kernel[0] * w.kernel[1]
    func = te.create_prim_func([data, weight, out])
    assert skipped_flops(func) == pytest.approx(flops * (1 - share))


def test_share_of_taps_of_huge_padding_is_not_counted_row_by_row():
    w = replace(SEVEN, padding=(10**12, 1, 10**12, 1))
    assert share_inside(w) == pytest.approx(7 / w.out_height)


def test_what_integers_are_padded_with_counts():
    bytes_ = replace(SEVEN, dtype="uint8", weight_dtype="int8", out_dtype="int32", pad_value=3)
    assert not rows_of(bytes_) and share_inside(bytes_) == 1


def test_weights_that_come_at_run_time_may_be_infinite():
    given = replace(SEVEN, constant_weight=False)
    assert not rows_of(given) and share_inside(given) == 1


@pytest.mark.parametrize("target", TARGETS[:2], ids=lambda t: str(t.attrs["mcpu"]))
@pytest.mark.parametrize("channels_outer", [False, True])
@pytest.mark.parametrize(
    ("ic_block", "changes"),
    [
        (16, {}),
        (1, {"in_channels": 3, "kernel": (5, 5), "padding": (4, 1, 3, 2)}),
        (16, {"batch": 2, "padding": (5,) * 4, "dilation": (5, 5)}),
        (16, {"strides": (3, 3), "padding": (4, 0, 5, 0)}),  # rows of padding alone
    ],
)
def test_convolutions_are_right_without_them(target, channels_outer, ic_block, changes):
    w = replace(SEVEN, **changes)
    knobs = dict(BY_NAME[conv2d.DIRECT].fallback(w, target).knobs)
    knobs |= {"channels_outer": option(channels_outer), "rows": option(1)}
    check(w, conv2d.DIRECT, target, ic_block=ic_block, config=conv2d.ConfigEntity(knobs))
