"""`relay.image`: resizing, cropping, sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx, topi

from ...errors import RelayTypeError
from ...ir.op_facts import index_rules, shape_rules
from ...ir.rewrite import operator_name
from ...kernels import grid_sample as sampling
from . import layout_rules, quantization
from .op_def import FOLLOW, FUSABLE, INJECTIVE
from .raising import Definitions, equivalent_call, from_relax, static_ints
from .registry import dynamic_form, operator
from .shapes import Extent, constant_value, dtype, integers, shaped
from .te_op import kernel

_RESIZE = {1: topi.image.resize1d, 2: topi.image.resize2d, 3: topi.image.resize3d}


def _resize_kernel(count: int) -> Any:
    def compute(
        data: Any, size: list[Any], mode: str, cubic_alpha: float, cubic_exclude: int, **attrs: Any
    ) -> Any:
        cubic = {"bicubic_alpha": cubic_alpha, "bicubic_exclude": cubic_exclude}
        attrs["coordinate_transformation_mode"] = mode
        return _RESIZE[count](data, size=size, **cubic, **attrs)

    return kernel(f"image.resize{count}d", compute)


_RESIZE_KERNELS = {count: _resize_kernel(count) for count in _RESIZE}


def resize_to(
    data: relax.Expr,
    size: Sequence[Extent],
    layout: str,
    method: str,
    mode: str,
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    roi: Sequence[float] = (),
    out_dtype: str = "",
) -> relax.Expr:
    """Resize `data` to `size`, which may be symbolic."""
    count = len(size)
    if method == "nearest_neighbor" and rounding_method == "":
        rounding_method = "round" if mode == "align_corners" else "floor"
    if method == "nearest_neighbor" and rounding_method == "round":
        rounding_method = "round_prefer_ceil"  # same inside the image: round half up
    region = [float(value) for value in roi] or [0.0] * (2 * count)
    return _RESIZE_KERNELS[count](
        data,
        relax.ShapeExpr(list(size)),
        roi=region,
        layout=layout,
        method=method,
        mode=mode,
        rounding_method=rounding_method,
        cubic_alpha=float(cubic_alpha),
        cubic_exclude=int(cubic_exclude),
        extrapolation_value=float(extrapolation_value),
        out_dtype=str(out_dtype or "") or dtype(data),
    )


def _resize(count: int, plain: str, **facts: Any) -> Any:
    def resize(
        data: relax.Expr,
        size: Any,
        roi: Any = None,
        layout: str = plain,
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        cubic_alpha: float = -0.5,
        cubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: str | None = None,
    ) -> relax.Expr:
        region = constant_value(roi) if isinstance(roi, relax.Expr) else roi
        if region is None and roi is not None:
            if coordinate_transformation_mode == "tf_crop_and_resize":
                raise RelayTypeError("the region of interest is known at run time only")
            region = ()
        values = [float(value) for value in (() if region is None else region)]
        return shaped(
            [int(size)] * count if isinstance(size, int) else size,
            lambda extents_: resize_to(
                data, extents_, layout, method, coordinate_transformation_mode, rounding_method,
                cubic_alpha, cubic_exclude, extrapolation_value, values, str(out_dtype or ""),
            ),
        )  # fmt: skip

    doc = f"""`data` resized along {count} axes.

    Methods are nearest_neighbor, linear and cubic; `roi` is the region in relative coordinates
    that tf_crop_and_resize shows.
    """
    facts = {"how": "TOPI", "pattern": INJECTIVE, **facts}
    defaults = {"rounding_method": "round"}
    return operator(f"image.resize{count}d", defaults=defaults, doc=doc, **facts)(resize)


resize1d = _resize(1, "NCW", layout=layout_rules.resize)
resize2d = _resize(
    2, "NCHW", precision=FOLLOW, layout=layout_rules.resize, quantized=quantization.same_in_region
)
resize3d = _resize(3, "NCDHW")
dynamic_form("image.resize2d", resize2d, ["data", "size", "roi"])


def _crop_compute(
    data: te.Tensor,
    boxes: te.Tensor,
    box_indices: te.Tensor,
    crop_size: list[int],
    layout: str,
    method: str,
    extrapolation_value: float,
    out_dtype: str,
) -> te.Tensor:
    """Sample boxes (top, left, bottom, right) of images on a regular grid."""
    rows, columns = layout.index("H"), layout.index("W")
    shape = [boxes.shape[0] if letter == "N" else size for letter, size in zip(layout, data.shape)]
    shape[rows], shape[columns] = crop_size

    def place(box: Any, at: Any, side: int, axis: int, count: int) -> Any:
        """Image coordinate of a row or column of the crop."""
        last = tirx.Cast("float32", data.shape[axis] - 1)
        start, end = boxes(box, side), boxes(box, side + 2)
        if count == 1:
            return (start + end) * tirx.const(0.5, "float32") * last
        step = (end - start) * last / tirx.const(float(count - 1), "float32")
        return start * last + at.astype("float32") * step

    def value(*at: Any) -> Any:
        box = at[layout.index("N")]
        y = place(box, at[rows], 0, rows, crop_size[0])
        x = place(box, at[columns], 1, columns, crop_size[1])

        def pixel(row: Any, column: Any) -> Any:
            where = list(at)
            where[layout.index("N")] = box_indices(box)
            for axis, index in ((rows, row), (columns, column)):
                last = tirx.Cast("int32", data.shape[axis] - 1)
                index = tirx.Cast("int32", index)
                where[axis] = tirx.max(tirx.min(index, last), tirx.const(0, "int32"))
            return data(*where).astype("float32")

        if method == "nearest_neighbor":
            half = tirx.const(0.5, "float32")
            result = pixel(tirx.floor(y + half), tirx.floor(x + half))
        else:
            top, left = tirx.floor(y), tirx.floor(x)
            down, right = y - top, x - left
            one = tirx.const(1.0, "float32")
            upper = pixel(top, left) * (one - right) + pixel(top, left + one) * right
            lower = pixel(top + one, left) * (one - right) + pixel(top + one, left + one) * right
            result = upper * (one - down) + lower * down
        outside = []
        for index, axis in ((y, rows), (x, columns)):
            last = tirx.Cast("float32", data.shape[axis] - 1)
            outside += [index < tirx.const(0.0, "float32"), index > last]
        outer = tirx.const(extrapolation_value, "float32")
        return tirx.if_then_else(tirx.any(*outside), outer, result).astype(out_dtype)

    return te.compute(shape, value, name="crop_and_resize")


_crop_and_resize = kernel("image.crop_and_resize", _crop_compute, indices=index_rules.crop_batches)


@operator("image.crop_and_resize", 3, how="TE", pattern=INJECTIVE)
def crop_and_resize(
    data: relax.Expr,
    boxes: relax.Expr,
    box_indices: relax.Expr,
    crop_size: Any,
    layout: str = "NCHW",
    method: str = "bilinear",
    extrapolation_value: float = 0,
    out_dtype: str | None = None,
) -> relax.Expr:
    """Crop boxes in relative coordinates and resize them to one size."""
    if layout not in ("NCHW", "NHWC"):
        raise RelayTypeError(f"layout must be NCHW or NHWC, not {layout!r}")
    if method not in ("bilinear", "nearest_neighbor"):
        raise RelayTypeError(f"method must be bilinear or nearest_neighbor, not {method!r}")
    return _crop_and_resize(
        data,
        boxes,
        box_indices,
        crop_size=integers(crop_size, 2),
        layout=layout,
        method=method,
        extrapolation_value=float(extrapolation_value),
        out_dtype=str(out_dtype or "") or dtype(data),
    )


def _dilation2d_compute(data: Any, weight: Any, layout: str, **attrs: Any) -> Any:
    function = getattr(topi.image, f"dilation2d_{layout.lower()}")
    return function(
        data, weight, attrs["strides"], attrs["padding"], attrs["dilations"], attrs["out_dtype"]
    )


_dilation2d = kernel("image.dilation2d", _dilation2d_compute)


@operator("image.dilation2d", 2, how="TOPI", pattern=FUSABLE, layout=layout_rules.dilation2d)
def dilation2d(
    data: relax.Expr,
    weight: relax.Expr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilations: Any = (1, 1),
    data_layout: str = "NCHW",
    kernel_layout: str = "IHW",
    out_dtype: str = "",
) -> relax.Expr:
    """Grayscale dilation: the maximum of image plus weight in each window."""
    from .nn.layouts import convert, paddings

    if data_layout not in ("NCHW", "NHWC"):
        raise RelayTypeError(f"data_layout must be NCHW or NHWC, not {data_layout!r}")
    wanted = "IHW" if data_layout == "NCHW" else "HWI"
    return _dilation2d(
        data,
        convert(weight, kernel_layout, wanted),
        layout=data_layout,
        strides=integers(strides, 2),
        padding=paddings(padding, 2),
        dilations=integers(dilations, 2),
        out_dtype=str(out_dtype or "") or dtype(data),
    )


def _affine_grid_compute(data: te.Tensor, size: list[int]) -> te.Tensor:
    """theta * (x, y, 1), where x and y run from -1 to 1."""
    name = data.dtype
    height, width = size
    steps = [tirx.const(2.0 / max(extent - 1, 1), name) for extent in (width, height)]

    def value(batch: Any, axis: Any, row: Any, column: Any) -> Any:
        one = tirx.const(1.0, name)
        x, y = column.astype(name) * steps[0] - one, row.astype(name) * steps[1] - one
        return data(batch, axis, 0) * x + data(batch, axis, 1) * y + data(batch, axis, 2)

    return te.compute((data.shape[0], 2, height, width), value, name="affine_grid")


_affine_grid = kernel("image.affine_grid", _affine_grid_compute)


@operator("image.affine_grid", how="TE", pattern=INJECTIVE)
def affine_grid(data: relax.Expr, target_shape: Any = None) -> relax.Expr:
    """Sampling grid of affine transforms: (batch, 2, height, width)."""
    if target_shape is None:
        raise RelayTypeError("target_shape must be given")
    return _affine_grid(data, size=integers(target_shape))


_grid_sample = kernel(
    "image.grid_sample", sampling.grid_sample, shapes=shape_rules.same_extent(1, 0, of=0, of_axis=0)
)


@operator("image.grid_sample", 2, how="TE", pattern=INJECTIVE)
def grid_sample(
    data: relax.Expr,
    grid: relax.Expr,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> relax.Expr:
    """Sample data at grid positions with coordinates in [-1, 1]."""
    return _grid_sample(
        data,
        grid,
        method=method,
        layout=layout,
        padding_mode=padding_mode,
        align_corners=bool(align_corners),
    )


@from_relax(*(f"relay.image.resize{count}d" for count in _RESIZE))
def _resize_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    data, size = call.args[0], static_ints(call.args[1])
    name, attrs = operator_name(call).removeprefix("relay."), call.attrs
    if size is None:
        return None
    changes: dict[str, Any] = {"size": size, "coordinate_transformation_mode": str(attrs["mode"])}
    if str(attrs["rounding_method"]) == "round_prefer_ceil":
        changes["rounding_method"] = "round"
    if not any(attrs["roi"]):
        changes["roi"] = None
    if str(attrs["out_dtype"]) == dtype(data):
        changes["out_dtype"] = None
    return equivalent_call(name, [data], call, **changes)
