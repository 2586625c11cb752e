"""Legalization with computes that replace TVM's where those violate IEEE 754 or ONNX.

=====================  ==========================================================================
operator               behavior of TVM's compute
=====================  ==========================================================================
multiply, divide       x * 0 and 0 / x are 0, also for NaN and infinities; x / 0 is an error
subtract               x - x is 0 and (x + y) - y is x, also for NaN and infinities
equal, not_equal       x == x, also for NaN
equal, less, ...,      of booleans: float instructions, which LLVM rejects
maximum, minimum
logical_not            not (a < b) becomes a >= b, also for NaN
sign                   0 for NaN; unsupported for unsigned integers
argmax, argmin         -1 if all elements have the lowest value; any index if one is NaN
group_norm, ...        of float64: an error; a group norm cancels (`legalize_normalization`)
sum, softmax, ...      of float16, bfloat16: accumulated in that dtype (`legalize_sums`)
mean                   of integers: a 64-bit integer
max, min, mean,        of no elements: uninitialized memory, or an integer division by 0
variance, std
nn.pad                 reflections by nested selects, on which TVM spends minutes if nested;
                       out of bounds for dynamic shapes
mod, floor_mod         of floats: a quotient that is rounded before it is multiplied
image.grid_sample      the position of each neighbor in a separate expression
vision.roi_align       sample positions recomputed for each channel (`legalize_regions`)
astype                 an error for constants NaN and infinity cast to integers
=====================  ==========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te, tirx, topi

from ...errors import BuildError
from ...ir.constants import array_of, constant, scalar_of, static_shape
from ...kernels import arg_reduce, grid_sample
from ...kernels.mirror_pad import repeating_pad
from . import legalize_indexing, legalize_normalization, legalize_regions, legalize_sums

Legalize = Callable[[Any, relax.Call], relax.Expr]


def legalize_ops() -> tvm.transform.Pass:
    """TVM's pass `LegalizeOps` with the computes of this module."""
    return relax.transform.LegalizeOps(LEGALIZE)


def _stock(name: str) -> Legalize:
    """TVM's own legalization of an operator."""
    return tvm.ir.Op.get(name).get_attr("FLegalize")


def _is_float(expr: relax.Expr) -> bool:
    return str(expr.ty.dtype).startswith(("float", "bfloat"))


def _is_boolean(expr: relax.Expr) -> bool:
    return str(expr.ty.dtype) == "bool"


def _with_zero(name: str, function: Callable[..., te.Tensor], zeros: tuple[int, ...]) -> Legalize:
    """Legalize with operands `zeros` kept as tensors: TVM would simplify with a number 0."""
    stock = _stock(name)

    def legalize(builder: Any, call: relax.Call) -> relax.Expr:
        if not _is_float(call) or all(scalar_of(call.args[place]) != 0.0 for place in zeros):
            return stock(builder, call)
        return builder.call_te(function, *call.args, primfunc_name_hint=function.__name__)

    return legalize


def _alike(builder: Any, left: relax.Expr, right: relax.Expr) -> bool:
    """Whether two operands have the same value: one variable, or kernels with equal computes."""
    if left.same_as(right):
        return True
    values = [_binding(builder, operand) for operand in (left, right)]
    return None not in values and tvm_ffi.structural_equal(*values, map_free_vars=False)


def _binding(builder: Any, operand: relax.Expr) -> relax.Expr | None:
    return builder.lookup_binding(operand) if isinstance(operand, relax.Var) else None


def _is_sum_with(builder: Any, total: relax.Expr, part: relax.Expr) -> bool:
    value = _binding(builder, total)
    if not isinstance(value, tvm.ir.Call) or len(value.args) < 2:
        return False
    kernel, operands = value.args[:2]
    if not isinstance(kernel, tvm.ir.GlobalVar) or not isinstance(operands, relax.Tuple):
        return False
    is_sum = kernel.name_hint.rstrip("0123456789") == "add"
    return is_sum and any(operand.same_as(part) for operand in operands.fields)


def _subtract(builder: Any, call: relax.Call) -> relax.Expr:
    """x - x as |x| * 0, and (x + y) - y with -1 as a factor: TVM cancels x and y, also NaN."""
    left, right = call.args
    if _is_float(call) and _alike(builder, left, right):

        def subtract(x: te.Tensor, zero: te.Tensor) -> te.Tensor:
            return topi.multiply(topi.abs(x), zero)

        return builder.call_te(subtract, left, relax.const(0.0, str(call.ty.dtype)))
    cancels = _is_sum_with(builder, left, right) or _is_sum_with(builder, right, left)
    if _is_float(call) and cancels:

        def value(a: Any, b: Any) -> Any:
            return a + b * tirx.const(-1.0, str(call.ty.dtype))

        return _element_by_element(builder, call, "relax.subtract", value, "subtract")
    return _stock("relax.subtract")(builder, call)


def _astype(builder: Any, call: relax.Call) -> relax.Expr:
    """Cast a non-finite constant to the integer that a kernel would compute."""
    value, dtype = array_of(call.args[0]), str(call.ty.dtype)
    if value is None or "int" not in dtype or bool(np.isfinite(value).all()):
        return _stock("relax.astype")(builder, call)
    with np.errstate(invalid="ignore"):
        return constant(value.astype(dtype))


def _sign(builder: Any, call: relax.Call) -> relax.Expr:
    """-1, 1, or the operand itself: zeros and NaN."""
    if str(call.ty.dtype).startswith("uint"):
        one = tirx.const(1, str(call.ty.dtype))
        return builder.call_te(topi.minimum, call.args[0], one, primfunc_name_hint="tir_sign")
    if not _is_float(call):
        return _stock("relax.sign")(builder, call)

    def sign(x: te.Tensor) -> te.Tensor:
        zero, one = (tirx.const(value, x.dtype) for value in (0.0, 1.0))

        def of(*indices: Any) -> Any:
            value = x(*indices)
            return tirx.Select(value > zero, one, tirx.Select(value < zero, -one, value))

        return te.compute(x.shape, of, name="sign", tag=topi.tag.ELEMWISE)

    return builder.call_te(sign, call.args[0], primfunc_name_hint="tir_sign")


def _logical_not(builder: Any, call: relax.Call) -> relax.Expr:
    """Flip a bit: TIR rewrites not (a < b) to a >= b, which differs for NaN."""
    if not _is_boolean(call.args[0]):
        return _stock("relax.logical_not")(builder, call)

    def logical_not(x: te.Tensor) -> te.Tensor:
        def value(*at: Any) -> Any:
            return tirx.Cast("bool", tirx.Cast("uint8", x(*at)) ^ tirx.const(1, "uint8"))

        return te.compute(x.shape, value, "logical_not", tag=topi.tag.ELEMWISE)

    return builder.call_te(logical_not, call.args[0], primfunc_name_hint="logical_not")


def _arg_reduction(function: Callable[..., te.Tensor]) -> Legalize:
    def legalize(builder: Any, call: relax.Call) -> relax.Expr:
        if _reduces_nothing(call):
            shape = static_shape(call.args[0])
            raise BuildError(
                f"{function.__name__} of a tensor of shape {shape}: there is no element whose "
                "index it could be"
            )
        axis = None if call.attrs.axis is None else int(call.attrs.axis)
        return builder.call_te(
            function, call.args[0], axis, bool(call.attrs.keepdims),
            primfunc_name_hint=function.__name__,
        )  # fmt: skip

    return legalize


def _of_nothing(name: str, value: Callable[[str], Any]) -> Legalize:
    """Legalize a reduction to return `value` of its dtype when it reduces no elements."""
    stock = _stock(name)

    def legalize(builder: Any, call: relax.Call) -> relax.Expr:
        if not _reduces_nothing(call):
            return stock(builder, call)
        dtype = str(call.ty.dtype)
        number = tirx.const(value(dtype), dtype)
        return builder.call_te(topi.full, call.ty.shape.values, dtype, number)

    return legalize


def _mean(builder: Any, call: relax.Call) -> relax.Expr:
    """Compute the mean of integers in 64 bits and truncate it to their dtype."""
    shape, dtype = static_shape(call.args[0]), str(call.ty.dtype)
    if shape is None or "int" not in dtype or _reduces_nothing(call):
        return _of_nothing("relax.mean", _nan)(builder, call)
    axes = [int(axis) for axis in call.attrs.axis or range(len(shape))]
    wide = "uint64" if dtype.startswith("uint") else "int64"
    count = tirx.const(math.prod(shape[axis] for axis in axes), wide)

    def mean(x: te.Tensor) -> te.Tensor:
        total = topi.sum(topi.cast(x, wide), axes, bool(call.attrs.keepdims))
        return topi.cast(topi.divide(total, count), dtype)

    return builder.call_te(mean, call.args[0], primfunc_name_hint="mean")


def _pad(builder: Any, call: relax.Call) -> relax.Expr:
    extents, mode = static_shape(call.args[0]), str(call.attrs.pad_mode)
    if mode == "constant" or (extents is not None and mode != "reflect"):
        return _stock("relax.nn.pad")(builder, call)
    before = [int(width) for width in call.attrs.pad_width[::2]]
    shape = list(call.ty.shape.values)
    return builder.call_te(repeating_pad, call.args[0], before, shape, mode)


def _grid_sample(builder: Any, call: relax.Call) -> relax.Expr:
    names = ("method", "layout", "padding_mode", "align_corners")
    attributes = {name: getattr(call.attrs, name) for name in names}
    return builder.call_te(grid_sample.grid_sample, *call.args, **attributes)


def _reduces_nothing(call: relax.Call) -> bool:
    shape = static_shape(call.args[0])
    if shape is None:
        return False
    axes = call.attrs.axis
    if axes is None:
        return 0 in shape
    axes = [axes] if isinstance(axes, (int, tirx.IntImm)) else axes
    return any(shape[int(axis)] == 0 for axis in axes)


def _lowest(dtype: str) -> Any:
    if dtype.startswith(("float", "bfloat")):
        return -math.inf
    return tirx.min_value(dtype).value if dtype != "bool" else False


def _highest(dtype: str) -> Any:
    if dtype.startswith(("float", "bfloat")):
        return math.inf
    return tirx.max_value(dtype).value if dtype != "bool" else True


def _nan(dtype: str) -> Any:
    return math.nan if dtype.startswith(("float", "bfloat")) else 0


def _remainder(name: str, floor: bool) -> Legalize:
    """The exact remainder of floats; it has the dividend's sign or, with `floor`, the divisor's."""
    stock = _stock(name)

    def value(a: Any, b: Any) -> Any:
        dtype = str(a.ty.dtype)
        wide = "float32" if tvm.DataType(dtype).bits == 16 else dtype
        a, b = a.astype(wide), b.astype(wide)
        rest = tirx.fmod(a, b)
        if floor:
            zero = tirx.const(0, wide)
            other_sign = tirx.Or(tirx.And(rest < zero, b > zero), tirx.And(rest > zero, b < zero))
            rest = tirx.Select(other_sign, rest + b, rest)
        return rest.astype(dtype)

    def legalize(builder: Any, call: relax.Call) -> relax.Expr:
        if not _is_float(call):
            return stock(builder, call)

        return _element_by_element(builder, call, name, value, "remainder")

    return legalize


def _element_by_element(
    builder: Any, call: relax.Call, name: str, value: Callable[[Any, Any], Any], block: str
) -> relax.Expr:
    """A kernel with `value` of each pair of elements of two operands that broadcast."""

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        shape = list(call.ty.shape.values)
        a, b = topi.broadcast_to(a, shape), topi.broadcast_to(b, shape)
        return te.compute(shape, lambda *i: value(a(*i), b(*i)), name=block, tag=topi.tag.BROADCAST)

    return builder.call_te(compute, *call.args, primfunc_name_hint=name.removeprefix("relax."))


def _of_bits(name: str, function: Callable[[Any, Any], Any]) -> Legalize:
    """Compare booleans as integers, and a float with itself by testing for NaN."""

    def value(a: Any, b: Any) -> Any:
        return tirx.Cast("bool", function(tirx.Cast("uint8", a), tirx.Cast("uint8", b)))

    def legalize(builder: Any, call: relax.Call) -> relax.Expr:
        if _is_boolean(call.args[0]):
            return _element_by_element(builder, call, name, value, "bits")
        if name in _OF_ITSELF and _is_float(call.args[0]) and _alike(builder, *call.args):
            return builder.call_te(_OF_ITSELF[name], call.args[0])
        return _stock(name)(builder, call)

    return legalize


def _is_number(x: te.Tensor) -> te.Tensor:
    def of(*at: Any) -> Any:
        return tirx.Not(tirx.isnan(x(*at)))

    return te.compute(x.shape, of, "is_number", tag=topi.tag.ELEMWISE)


_OF_ITSELF = {"relax.equal": _is_number, "relax.not_equal": topi.isnan}
"""Comparisons of a float with itself."""

_OF_BITS = {
    "relax.equal": tirx.EQ,
    "relax.greater": tirx.GT,
    "relax.greater_equal": tirx.GE,
    "relax.less": tirx.LT,
    "relax.less_equal": tirx.LE,
    "relax.maximum": tirx.Max,
    "relax.minimum": tirx.Min,
    "relax.not_equal": tirx.NE,
}


def _full(builder: Any, call: relax.Call) -> relax.Expr:
    """Fill with a constant; TVM fails on infinities and NaN of an open shape."""
    shape, value = call.args[0], scalar_of(call.args[1])
    if value is None or not isinstance(shape, relax.ShapeExpr) or bool(np.isfinite(value)):
        return _stock("relax.full")(builder, call)
    dtype = str(call.ty.dtype)
    return builder.call_te(topi.full, list(shape.values), dtype, value, primfunc_name_hint="full")


LEGALIZE: dict[str, Legalize] = {
    **{name: _of_bits(name, function) for name, function in _OF_BITS.items()},
    **legalize_indexing.LEGALIZE,
    **legalize_normalization.LEGALIZE,
    **legalize_regions.LEGALIZE,
    "relax.astype": _astype,
    "relax.argmax": _arg_reduction(arg_reduce.argmax),
    "relax.argmin": _arg_reduction(arg_reduce.argmin),
    "relax.divide": _with_zero("relax.divide", topi.divide, (0, 1)),
    "relax.full": _full,
    "relax.floor_mod": _remainder("relax.floor_mod", floor=True),
    "relax.image.grid_sample": _grid_sample,
    "relax.logical_not": _logical_not,
    "relax.max": _of_nothing("relax.max", _lowest),
    "relax.mean": _mean,
    "relax.min": _of_nothing("relax.min", _highest),
    "relax.mod": _remainder("relax.mod", floor=False),
    "relax.multiply": _with_zero("relax.multiply", topi.multiply, (0, 1)),
    "relax.nn.conv2d": legalize_sums.grouped_conv2d,
    "relax.nn.pad": _pad,
    "relax.sign": _sign,
    "relax.subtract": _subtract,
    "relax.std": _of_nothing("relax.std", _nan),
    "relax.variance": _of_nothing("relax.variance", _nan),
}
"""Replacements of TVM's legalizations by operator."""
LEGALIZE |= {
    name: legalize_sums.in_float32(name, LEGALIZE.get(name)) for name in legalize_sums.SUMS
}
