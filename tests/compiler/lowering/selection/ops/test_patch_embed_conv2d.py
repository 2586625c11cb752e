"""Convolutions whose windows do not overlap, as patches of images have them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import relax

from compiler.lowering.selection.ops.patch_embed_conv2d import windows_of
from schedules.conv2d import Conv2dWorkload

from .test_other_convolutions import HOST, assert_close, run, values

PATCHES = Conv2dWorkload(
    1, 3, 32, 48, 64, (16, 16), (16, 16), (0,) * 4, (1, 1), constant_weight=True
)


def windows(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    (n, c, h, w), (kh, kw) = x.shape, weight.shape[2:]
    h, w = h // kh, w // kw
    cut = x[:, :, : h * kh, : w * kw].reshape(n, c, h, kh, w, kw)
    return np.einsum("nchiwj,ocij->nohw", cut.astype("f8"), weight.astype("f8"))


@pytest.mark.parametrize(
    ("batch", "channels", "image", "kernel", "filters"),
    [
        (1, 3, (64, 48), (16, 16), 64),
        (2, 3, (33, 45), (8, 11), 20),  # pixels that no window has
        (3, 1, (28, 28), (14, 14), 32),
        (1, 4, (20, 24), (4, 6), 9),
    ],
)
def test_windows_are_multiplied_as_one_tap(batch, channels, image, kernel, filters):
    x, weight = values(0, batch, channels, *image), values(1, filters, channels, *kernel)
    result, report = run(relax.op.nn.conv2d, x, weight, strides=kernel)
    assert_close(result, windows(x, weight))
    assert any("windows" in kernel.name for kernel in report.kernels), report


@pytest.mark.parametrize(
    "changes",
    [
        {"strides": (8, 16)},
        {"padding": (1, 1, 1, 1)},
        {"in_channels": 16},
        {"kernel": (2, 2), "strides": (2, 2)},
        {"dilation": (2, 2)},
    ],
)
def test_others_stay_as_they_are(changes):
    assert windows_of(PATCHES, HOST) is not None
    assert windows_of(replace(PATCHES, **changes), HOST) is None
