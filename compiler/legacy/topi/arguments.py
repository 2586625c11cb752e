"""TOPI computes with their arguments up to TVM 0.8.

Convolutions had no groups and no kernel layout, so the argument after the dilation was a
layout or the result's dtype; resizing had no region of interest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm

from ..patches import Patches


def patch(patches: Patches) -> None:
    """Let `tvm.topi.nn` and `image` take both."""
    nn = tvm.topi.nn
    for name, adapt in {
        "conv1d": _with_groups,
        "conv2d": _with_layouts,
        "conv3d_ncdhw": _with_groups,
        "conv3d_ndhwc": _with_groups,
        "depthwise_conv2d_nhwc": _without_kernel_layout,
    }.items():
        patches.set(nn, name, adapt(getattr(nn, name)))

    for count in (1, 2, 3):
        name = f"resize{count}d"
        whole = _of_whole_images(getattr(tvm.topi.image, name), count)
        patches.set(tvm.topi.image, name, whole)


def _is_dtype(value: Any) -> bool:
    try:
        np.dtype(str(value))
    except TypeError:
        return str(value) == "bfloat16"
    return True


def _with_groups(function: Callable[..., Any]) -> Callable[..., Any]:
    """`(data, kernel, strides, padding, dilation, [layout,] [out_dtype])`, of one group."""

    def convolution(*args: Any, **options: Any) -> Any:
        if len(args) > 5 and isinstance(args[5], str):
            is_layout = not _is_dtype(args[5])
            names = ("data_layout", "out_dtype") if is_layout else ("out_dtype",)
            options = {**options, **dict(zip(names, args[5:]))}
            args = args[:5]
        if "layout" in options:
            options["data_layout"] = options.pop("layout")
        if len(args) < 6:
            options.setdefault("groups", 1)
        return function(*args, **options)

    return convolution


def _with_layouts(function: Callable[..., Any]) -> Callable[..., Any]:
    """`(data, kernel, strides, padding, dilation, layout, out_dtype)`."""

    def convolution(*args: Any, **options: Any) -> Any:
        if "layout" in options:
            options["data_layout"] = options.pop("layout")
        if len(args) > 6 and _is_dtype(args[6]):
            options["out_dtype"] = args[6]
            args = args[:6]
        return function(*args, **options)

    return convolution


def _without_kernel_layout(function: Callable[..., Any]) -> Callable[..., Any]:
    """`(data, kernel, stride, padding, dilation, out_dtype)`, of a kernel in HWOI."""

    def convolution(*args: Any, **options: Any) -> Any:
        if len(args) > 5 and (args[5] is None or _is_dtype(args[5])):
            options["out_dtype"] = args[5]
            args = args[:5]
        return function(*args, **options)

    return convolution


def _of_whole_images(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """`(data, size, layout, ...)`, without a region of interest."""

    def resize(*args: Any, **options: Any) -> Any:
        has_size = "size" in options or (len(args) > 2 and not isinstance(args[2], str))
        if "roi" not in options and not (has_size and len(args) > 1):
            args = (*args[:1], (0.0,) * (2 * count), *args[1:])
        return function(*args, **options)

    return resize
