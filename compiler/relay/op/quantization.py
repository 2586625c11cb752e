"""Integer forms of operators between dequantize and quantize.

A rule receives a call with integer operands and the affine types of expressions; the call's own
type is that of the region's result. It returns the equivalent integer call and the affine type
of its result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax

from ...errors import RelayError
from .. import dialect
from ..transform.build import again, array, constant, dtype, op, shape, tuple_of
from ..type_infer import infer_type
from .affine_type import AffineTypes, TensorAffineType, TupleAffineType

Result = list[Any]
Rule = Callable[[relax.Call, AffineTypes], Result]


@dataclass(frozen=True)
class IntegerForm:
    """Integer form of an operator, for its record; decorator of rules."""

    rule: Rule
    # The operands' affine types determine the result's type, so no quantize is required
    alone: bool = False
    optional: bool = False  # the form loses accuracy and is only used on request


_alone = functools.partial(IntegerForm, alone=True)

_REAL = ("float32", "float64", "float16", "bfloat16")


def equal(left: relax.Expr, right: relax.Expr) -> bool:
    """Whether two scales or zero points are equal up to rounding errors."""
    first, second = array(left), array(right)
    if first is not None and second is not None:
        return bool(np.allclose(first, second))
    return left.same_as(right) or bool(tvm_ffi.structural_equal(left, right))


def _alike(left: TensorAffineType, right: TensorAffineType) -> bool:
    return (
        equal(left.scale, right.scale)
        and equal(left.zero_point, right.zero_point)
        and left.dtype == right.dtype
    )


def _requantized(
    value: relax.Expr, source: TensorAffineType, target: TensorAffineType, out_dtype: str = ""
) -> relax.Expr:
    return op(
        "qnn.requantize",
        value,
        *source.numbers,
        *target.numbers,
        axis=source.axis,
        out_dtype=out_dtype or target.dtype,
    )


def _quantized(value: relax.Expr, affine: TensorAffineType, axis: int = -1) -> relax.Expr:
    """Quantize a floating-point constant."""
    if array(value) is None or dtype(value) not in _REAL:
        raise RelayError("an operand that is not a dequantized value must be a real constant")
    return op("qnn.quantize", value, *affine.numbers, axis=axis, out_dtype=affine.dtype)


def _product(left: relax.Expr, right: relax.Expr) -> relax.Expr:
    """Multiply scales; folded if both are constants."""
    first, second = array(left), array(right)
    if first is None or second is None:
        return op("multiply", left, right)
    return constant(first * second, str(first.dtype))


def _zeros_of(scale: relax.Expr) -> relax.Expr:
    extents = shape(scale)
    if extents is None:
        raise RelayError("the shape of a scale is not known")
    return constant(np.zeros(extents), "int32")


@IntegerForm
def dequantize(call: relax.Call, types: AffineTypes) -> Result:
    return [call.args[0], types[call]]


@IntegerForm
def quantize(call: relax.Call, types: AffineTypes) -> Result:
    value, scale, zero_point = call.args
    attrs = dialect.attributes(call)
    wanted = TensorAffineType(scale, zero_point, str(attrs["out_dtype"]), int(attrs["axis"]))
    own = types[value]
    return [value if _alike(own, wanted) else _requantized(value, own, wanted), wanted]


def _same(call: relax.Call, types: AffineTypes) -> Result:
    return [call, types[call.args[0]]]


same = IntegerForm(_same, alone=True)
same_in_region = IntegerForm(_same)


@IntegerForm
def topk(call: relax.Call, types: AffineTypes) -> Result:
    if call.attrs["ret_type"] != "values":
        raise RelayError("topk of quantized values must return values alone")
    return [call, types[call.args[0]]]


@_alone
def split(call: relax.Call, types: AffineTypes) -> Result:
    sections = dialect.attributes(call)["indices_or_sections"]
    count = len(sections) + 1 if isinstance(sections, list) else int(sections)
    return [call, TupleAffineType([types[call.args[0]]] * count)]


@_alone
def avg_pool2d(call: relax.Call, types: AffineTypes) -> Result:
    data, own = call.args[0], types[call.args[0]]
    # Only the operand of the region's quantize has its scale; others keep the data's scale.
    last = any(
        dialect.is_relay(each)
        and dialect.relay_name(each) == "qnn.quantize"
        and dialect.relay_name(each.args[0]) == "nn.avg_pool2d"
        and str(each.args[0].attrs) == str(call.attrs)
        for each, _ in types.items()
        if dialect.is_relay(each) and dialect.is_relay(each.args[0])
    )
    out = types[call] if last else own
    attrs = dialect.attributes(call)
    attrs["out_layout"] = ""
    return [op("qnn.avg_pool2d", data, *own.numbers, *out.numbers, **attrs), out]


def _mean_pool(call: relax.Call, types: AffineTypes) -> Result:
    """Global average pooling in int32."""
    data, out = call.args[0], types[call]
    own = types[data]
    if _alike(own, out):
        data = op("cast", data, dtype="int32")
    else:
        data = _requantized(data, own, out, "int32")
    return [again(call, [data]), TensorAffineType(out.scale, out.zero_point, "int32", out.axis)]


mean_pool = IntegerForm(_mean_pool)
global_mean = IntegerForm(_mean_pool, alone=True)


@IntegerForm
def mean(call: relax.Call, types: AffineTypes) -> Result:
    own = types[call.args[0]]
    made = again(call, [op("cast", call.args[0], dtype="int32")])
    return [op("cast", made, dtype=own.dtype), own]


@_alone
def bias_add(call: relax.Call, types: AffineTypes) -> Result:
    data, bias = call.args
    own = types[data]
    if bias not in types:
        bias = _quantized(bias, own, axis=0)
    elif not _alike(own, types[bias]):
        given = types[bias]
        source = TensorAffineType(given.scale, given.zero_point, given.dtype, 0)
        bias = _requantized(bias, source, own)
    return [again(call, [data, bias]), own]


@_alone
def convolution(call: relax.Call, types: AffineTypes) -> Result:
    attrs = dialect.attributes(call)
    layout = str(attrs["out_layout"] or attrs["data_layout"])
    return _weighted(call, types, layout.index("C"), attrs)


@_alone
def dense(call: relax.Call, types: AffineTypes) -> Result:
    return _weighted(call, types, 1, dialect.attributes(call))


def _weighted(
    call: relax.Call, types: AffineTypes, axis: int, attrs: Mapping[str, Any] | None = None
) -> Result:
    """A product of both operands; its attributes are these but the dtype of the result."""
    left, right = (types[operand] for operand in call.args)
    attrs = {key: value for key, value in (attrs or {}).items() if key != "out_dtype"}
    scale = _product(left.scale, right.scale)
    numbers = left.zero_point, right.zero_point, left.scale, right.scale
    name = dialect.relay_name(call).replace("nn.", "qnn.", 1)
    made = op(name, *call.args, *numbers, **attrs)
    return [made, TensorAffineType(scale, _zeros_of(scale), dtype(made), axis)]


@_alone
def batch_matmul(call: relax.Call, types: AffineTypes) -> Result:
    attrs = dialect.attributes(call)
    if attrs["transpose_a"] or not attrs["transpose_b"]:
        raise RelayError("qnn.batch_matmul takes its second operand transposed, and it alone")
    return _weighted(call, types, types[call.args[0]].axis)


@IntegerForm
def concatenate(call: relax.Call, types: AffineTypes) -> Result:
    fields, out = types[call.args[0]].types, types[call]
    made = op(
        "qnn.concatenate",
        infer_type(call.args[0]),
        tuple_of([each.scale for each in fields]),
        tuple_of([each.zero_point for each in fields]),
        *out.numbers,
        axis=call.attrs["axis"],
    )
    return [made, out]


def _spread(vector: relax.Expr, extent: int, like: relax.Expr, axis: int) -> relax.Expr:
    """Reshape a scalar or a vector along an axis to broadcast with another tensor."""
    rank = like.ty.ndim
    places = [1] * rank
    places[axis % rank] = -1
    return op("reshape", op("broadcast_to", vector, shape=[extent]), newshape=places)


def _per_channel(affine: TensorAffineType) -> int:
    """Number of scales along an axis; 0 for a scalar."""
    extents = shape(affine.scale)
    if extents is None or len(extents) > 1:
        raise RelayError("a scale must be a number or a vector")
    return extents[0] if extents and extents[0] > 1 else 0


@_alone
def clip(call: relax.Call, types: AffineTypes) -> Result:
    data, own = call.args[0], types[call.args[0]]
    bounds = (float(call.attrs["a_min"]), float(call.attrs["a_max"]))
    scale, zero_point = array(own.scale), array(own.zero_point)
    if scale is not None and zero_point is not None and scale.size == zero_point.size == 1:
        low, high = (int(each / scale.item() + zero_point.item()) for each in bounds)
        return [op("clip", data, a_min=low, a_max=high), own]
    count = _per_channel(own)
    limits = []
    for bound in bounds:
        limit: relax.Expr = constant(bound, "float32")
        if count:
            limit = _spread(limit, count, data, own.axis)
        quantized = op("qnn.quantize", limit, *own.numbers, axis=own.axis, out_dtype=own.dtype)
        limits.append(_computed(quantized))
    return [op("minimum", op("maximum", data, limits[0]), limits[1]), own]


def _computed(expr: relax.Expr) -> relax.Expr:
    from ..transform.constants import folded_constants

    return folded_constants(expr)


@_alone
def relu(call: relax.Call, types: AffineTypes) -> Result:
    data, own = call.args[0], types[call.args[0]]
    count, zero = _per_channel(own), own.zero_point
    if count:
        zero = _spread(zero, count, data, own.axis)
    return [op("maximum", data, _computed(op("cast", zero, dtype=own.dtype))), own]


@_alone
def pad(call: relax.Call, types: AffineTypes) -> Result:
    data, value = call.args
    own = types[data]
    if value not in types:
        value = _quantized(value, own)
    elif not _alike(types[value], own):
        value = _requantized(value, types[value], own)
    return [again(call, [data, value]), own]


def _operand_types(
    call: relax.Call, types: AffineTypes
) -> tuple[list[relax.Expr], list[TensorAffineType], TensorAffineType]:
    """Both operands as integers with their affine types, and the result's affine type."""
    args, known = list(call.args), [types.get(arg) for arg in call.args]
    given = [each for each in known if each is not None]
    if not given:
        raise RelayError(f"no operand of {dialect.relay_name(call)} is quantized")
    args = [
        arg if each is not None else _quantized(arg, given[0]) for arg, each in zip(args, known)
    ]
    found = [each or given[0] for each in known]
    out = types[call] if found[0].dtype == types[call].dtype else found[0]
    return args, found, out


def arithmetic(name: str) -> IntegerForm:
    def rule(call: relax.Call, types: AffineTypes) -> Result:
        args, (left, right), out = _operand_types(call, types)
        zero = array(out.zero_point)
        if (
            name == "qnn.add"
            and left.dtype == "int32"
            and _alike(left, right)
            and equal(left.scale, out.scale)
            and equal(left.zero_point, out.zero_point)
            and zero is not None
            and not zero.any()
        ):
            return [op("add", *args), left]  # bias in the accumulator's type
        for what, value in (("scale", out.scale), ("zero point", out.zero_point)):
            if shape(value) != []:
                raise RelayError(f"{name}: the {what} of the result must be one number")
        made = op(
            name,
            *args,
            *left.numbers,
            *right.numbers,
            *out.numbers,
            lhs_axis=left.axis,
            rhs_axis=right.axis,
        )
        return [made, out]

    return IntegerForm(rule)


@_alone
def extremum(call: relax.Call, types: AffineTypes) -> Result:
    args, found, out = _operand_types(call, types)
    made = [
        arg if own == out or _alike(own, out) else _requantized(arg, own, out)
        for arg, own in zip(args, found)
    ]
    return [again(call, made), out]


def function(name: str, optional: bool = False, has_attributes: bool = False) -> IntegerForm:
    """Integer form of a unary function that has a quantized operator."""

    def rule(call: relax.Call, types: AffineTypes) -> Result:
        data, out = call.args[0], types[call]
        own = types[data]
        attrs = dialect.attributes(call) if has_attributes else {}
        return [op(name, data, *own.numbers, *out.numbers, **attrs), out]

    return IntegerForm(rule, optional=optional)
