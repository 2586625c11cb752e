"""Legalizations of scatters and slices that replace incorrect ones of TVM.

=====================  ==========================================================================
operator               behavior of TVM's compute
=====================  ==========================================================================
scatter_elements       assumes that indices are as large as the data along all axes but one
dynamic_strided_slice  a negative extent if the end precedes the beginning
=====================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te, tirx

from ...ir.constants import constant, static_shape
from ...primfuncs.fusion_pattern import ATTRIBUTE, OPAQUE


def _stock(name: str) -> Any:
    return tvm.ir.Op.get(name).get_attr("FLegalize")


def _scatter_elements(builder: Any, call: relax.Call) -> relax.Expr:
    """Lower to `scatter_nd` with full coordinates where extents differ."""
    data, indices, updates = call.args
    if not all(isinstance(each.ty.shape, relax.ShapeExpr) for each in (data, indices)):
        return _stock("relax.scatter_elements")(builder, call)
    shape, wanted = data.ty.shape.values, indices.ty.shape.values
    axis = int(call.attrs.axis) % len(shape)
    if not _narrower(wanted, shape, axis):
        return _stock("relax.scatter_elements")(builder, call)

    def places(index: te.Tensor, scattered: te.Tensor) -> te.Tensor:
        def of(*at: Any) -> Any:
            *element, part = at
            place = index(*element).astype("int64")
            place = tirx.Select(place < 0, place + scattered.shape[axis], place)
            for i, value in enumerate(element):
                if i != axis:
                    place = tirx.Select(part == i, value.astype("int64"), place)
            return place

        return te.compute((*index.shape, len(shape)), of, name="places")

    whole = builder.emit(builder.call_te(places, indices, data, primfunc_name_hint="places"))
    scattered = relax.op.scatter_nd(data, whole, updates, str(call.attrs.reduction))
    return _stock("relax.scatter_nd")(builder, scattered)


def _narrower(wanted: Sequence[Any], shape: Sequence[Any], axis: int) -> bool:
    others = [i for i in range(len(shape)) if i != axis]
    return not all(tvm_ffi.structural_equal(wanted[i], shape[i]) for i in others)


def _dynamic_strided_slice(builder: Any, call: relax.Call) -> relax.Expr:
    """Clamp the end to the beginning if the slice is empty."""
    data, *bounds = call.args

    def ends(begin: te.Tensor, end: te.Tensor, stride: te.Tensor, extents: te.Tensor) -> te.Tensor:
        def of(axis: Any) -> Any:
            backward = stride[axis] < 0
            first, last = (_within(bound[axis], extents[axis], backward) for bound in (begin, end))
            nothing = tirx.Select(backward, first <= last, first >= last)
            return tirx.Select(nothing, begin[axis], end[axis])

        return te.compute(end.shape, of, name="ends")

    places = builder.call_te(
        ends,
        *bounds,
        _extents(builder, data),
        primfunc_name_hint="ends",
        primfunc_attrs={ATTRIBUTE: OPAQUE},  # inlining the extents makes expressions explode
    )
    end = builder.emit(places)
    sliced = relax.op.dynamic_strided_slice(data, bounds[0], end, bounds[2])
    return _stock("relax.dynamic_strided_slice")(builder, sliced)


def _extents(builder: Any, data: relax.Expr) -> relax.Expr:
    """The shape (rank,) as an int64 operand: in an expression it would become selects."""
    shape = static_shape(data)
    if shape is not None:
        return constant(np.array(shape, "int64"))
    return builder.emit(relax.op.shape_to_tensor(data.ty.shape))


def _within(index: Any, extent: Any, backward: Any) -> Any:
    """Clamp an index that may count from the end to [-1, extent]."""
    zero, one = tirx.const(0, "int64"), tirx.const(1, "int64")
    index = tirx.Select(index < 0, index + extent, index)
    low = tirx.Select(backward, -one, zero)
    return tirx.Max(tirx.Min(index, extent + low), low)


LEGALIZE = {
    "relax.dynamic_strided_slice": _dynamic_strided_slice,
    "relax.scatter_elements": _scatter_elements,
}
"""Replacements of TVM's legalizations by operator."""
