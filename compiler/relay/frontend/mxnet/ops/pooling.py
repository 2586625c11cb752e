"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from compiler.ir.constants import constant

from ..node import SymbolNode

op = relax.op

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_MAX = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVERAGE = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}


def pooling(node: SymbolNode) -> relax.Expr:
    """Maximum, average, sum or p-norm over windows, or over all spatial axes."""
    rank = len(node.shape(0)) - 2
    kind = node.text("pool_type", "max")
    if rank not in _MAX or kind not in ("max", "avg", "sum", "lp"):
        raise node.unsupported(f"pool_type {kind!r} on data of shape {node.shape(0)}")
    layout = node.text("layout", _LAYOUTS[rank])
    first = 1 if layout == f"N{_LAYOUTS[rank][2:]}C" else 2
    if first == 2 and layout != _LAYOUTS[rank]:
        raise node.unsupported(f"layout {layout!r}")
    node.without_effect("p_value", "count_include_pad")  # but for "lp" and "avg"
    power = node.number("p_value", 2.0) if kind == "lp" else 1.0
    data = node[0]
    if kind == "lp":
        data = node.emit(op.power(op.abs(data), node.scalar(power)))
    if node.flag("global_pool", False):
        node.without_effect("kernel", "stride", "pad", "pooling_convention", "count_include_pad")
        result = _global(data, kind, list(range(first, first + rank)), first)
    else:
        result = _windows(node, data, kind, layout, node.shape(0)[first : first + rank])
    return op.power(result, node.scalar(1 / power)) if kind == "lp" else result


def _global(data: relax.Expr, kind: str, axes: list[int], first: int) -> relax.Expr:
    if kind == "avg" and len(axes) == 2 and first == 2:
        return op.nn.adaptive_avg_pool2d(data, (1, 1))
    reduce = {"max": op.max, "avg": op.mean}.get(kind, op.sum)
    return reduce(data, axes, keepdims=True)


def _windows(
    node: SymbolNode, data: relax.Expr, kind: str, layout: str, extents: Sequence[int]
) -> relax.Expr:
    """Pooling over windows; the "full" convention also takes a last, incomplete one."""
    rank = len(extents)
    kernel = node.spatial("kernel", rank, 1)
    strides = node.spatial("stride", rank, 1)
    pads = node.spatial("pad", rank, 0)
    convention = node.text("pooling_convention", "valid")
    if convention not in ("valid", "full"):
        raise node.unsupported(f"pooling_convention {convention!r}")
    after = list(pads)
    if convention == "full":
        for axis in range(rank):
            rest = (extents[axis] + 2 * pads[axis] - kernel[axis]) % strides[axis]
            after[axis] += strides[axis] - rest if rest else 0
    padding = (*pads, *after)
    if kind == "max":
        return _MAX[rank](data, kernel, strides, padding, layout=layout)
    whole = kind == "avg" and not node.flag("count_include_pad", True)
    result = _AVERAGE[rank](
        data, kernel, strides, padding, count_include_pad=not whole, layout=layout
    )
    if kind != "avg":
        return op.multiply(result, node.scalar(float(math.prod(kernel))))
    if whole or after == list(pads):
        return result
    # Cells beyond the padding, which only incomplete windows have, are not counted.
    counts = np.ones((), "float64")
    for axis in range(rank):
        stop = extents[axis] + 2 * pads[axis]
        starts = np.arange(0, stop + after[axis] - pads[axis] - kernel[axis] + 1, strides[axis])
        inside = np.minimum(starts + kernel[axis], stop) - starts
        counts = counts[..., None] * inside
    scale = (math.prod(kernel) / counts).astype(node.dtype(0))
    scale = scale[..., None] if layout.endswith("C") else scale
    return op.multiply(result, constant(scale))


def adaptive_average(node: SymbolNode) -> relax.Expr:
    size = node.integers("output_size", (1, 1)) or (1, 1)
    return op.nn.adaptive_avg_pool2d(node[0], size * 2 if len(size) == 1 else size)


CONVERTERS = {
    **dict.fromkeys(("Pooling", "Pooling_v1"), pooling),
    "_contrib_AdaptiveAvgPooling2D": adaptive_average,
}
