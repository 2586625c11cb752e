"""Upsampling by scale factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ....errors import RelayTypeError
from ....kernels.scalars import by_place
from .. import layout_rules
from ..image import resize_to
from ..op_def import INJECTIVE
from ..registry import dynamic_form, operator
from ..shapes import Extent, constant_value, dtype, extents, with_shape
from ..te_op import kernel
from ..typed_relax import op
from .layouts import spatial_axes

_METHODS = {
    "nearest_neighbor": "nearest_neighbor",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
}


def _scaled(size: Extent, scale: float) -> Extent:
    """round(size * scale), half away from zero."""
    if isinstance(size, int):
        return math.floor(size * scale + 0.5)
    if scale == int(scale):
        return size * int(scale)
    wide = tirx.Cast("float64", size) * tirx.const(scale, "float64")
    return tirx.Cast("int64", tirx.floor(wide + tirx.const(0.5, "float64")))


def _scaled_sizes(data: te.Tensor, scales: te.Tensor, axes: list[int]) -> te.Tensor:
    """Scale the sizes of the given axes and round them."""
    wide = (
        tirx.Cast("float64", data.shape[axis]) * scales(place).astype("float64")
        for place, axis in enumerate(axes)
    )
    half = tirx.const(0.5, "float64")
    return by_place([tirx.Cast("int64", tirx.floor(each + half)) for each in wide], "scaled_sizes")


_scaled_sizes_kernel = kernel("nn.upsampled_sizes", _scaled_sizes)


def _upsample(
    data: relax.Expr, scales: Sequence[Any], layout: str, method: str, mode: str
) -> relax.Expr:
    if method not in _METHODS:
        raise RelayTypeError(f"method must be one of {', '.join(_METHODS)}, not {method!r}")
    axes = spatial_axes(layout)
    known = [constant_value(scale) if isinstance(scale, relax.Expr) else scale for scale in scales]

    def resize(size: list[Extent]) -> relax.Expr:
        return resize_to(data, size, layout, _METHODS[method], mode)

    if any(value is None for value in known):
        vector = op.concat([op.reshape(_as_tensor(scale), [1]) for scale in scales], 0)
        return with_shape(_scaled_sizes_kernel(data, vector, axes=axes), resize)
    factors = [float(np.asarray(value).item()) for value in known]
    return resize([_scaled(extents(data)[axis], factor) for axis, factor in zip(axes, factors)])


def _as_tensor(scale: Any) -> relax.Expr:
    if not isinstance(scale, relax.Expr):
        return relax.const(float(scale), "float32")
    return scale if dtype(scale) == "float32" else op.astype(scale, "float32")


@operator("nn.upsampling", how="direct", pattern=INJECTIVE, layout=layout_rules.upsampling)
def upsampling(
    data: relax.Expr,
    scale_h: Any = 1,
    scale_w: Any = 1,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> relax.Expr:
    """Scale height and width: nearest_neighbor, bilinear or bicubic."""
    mode = "align_corners" if align_corners else "asymmetric"
    return _upsample(data, (scale_h, scale_w), layout, method, mode)


@operator("nn.upsampling3d", how="direct", pattern=INJECTIVE, layout=layout_rules.upsampling)
def upsampling3d(
    data: relax.Expr,
    scale_d: Any = 1,
    scale_h: Any = 1,
    scale_w: Any = 1,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
) -> relax.Expr:
    """Scale depth, height and width: nearest_neighbor or trilinear."""
    scales = (scale_d, scale_h, scale_w)
    return _upsample(data, scales, layout, method, coordinate_transformation_mode)


dynamic_form("nn.upsampling", upsampling, ["data", "scale_h", "scale_w"])
dynamic_form("nn.upsampling3d", upsampling3d, ["data", "scale_d", "scale_h", "scale_w"])
