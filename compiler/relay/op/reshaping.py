"""`reshape` and its special shape codes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from ...errors import RelayTypeError
from ...ir.constants import static_shape
from ...ir.dynamic_shape import proven_ratio
from ...ir.op_facts import Forbidden
from ...kernels.scalars import by_place
from ..type_infer import type_of
from . import quantization
from .op_def import INJECTIVE, REARRANGEMENT
from .raising import Definitions, from_relax, typed_call
from .registry import dynamic_form, operator
from .shapes import Extent, extents, integers, same_extent, shape_values, with_shape
from .te_op import kernel
from .typed_relax import op


def resolve_reshape(
    shape: Sequence[Extent], codes: Sequence[int], allowzero: bool = False
) -> list[Extent]:
    """Resolve Relay's `reshape` codes to a shape; RelayTypeError if they do not match the shape.

    0 copies an extent, -1 is inferred, -2 copies all remaining extents, -3 merges two extents, -4
    splits an extent into the two factors that follow.
    """
    result: list[Extent] = []
    source, position, inferred = 0, 0, -1
    codes = list(codes)

    def take() -> Extent:
        nonlocal source
        if source >= len(shape):
            raise RelayTypeError(f"newshape {codes} asks for more than {len(shape)} dimensions")
        source += 1
        return shape[source - 1]

    while position < len(codes):
        code = codes[position]
        position += 1
        if not isinstance(code, int) or code > 0 or (code == 0 and allowzero):
            result.append(code)
            source += 1
        elif code == 0:
            result.append(take())
        elif code == -1:
            if inferred >= 0:
                raise RelayTypeError(f"newshape {codes} has more than one -1")
            inferred = len(result)
            result.append(1)
            source += 1
        elif code == -2:
            while source < len(shape):
                result.append(take())
        elif code == -3:
            result.append(take() * take())
        elif code == -4:
            whole = take()
            if position + 2 > len(codes):
                raise RelayTypeError(f"newshape {codes}: two numbers must follow -4")
            first, second = codes[position : position + 2]
            position += 2
            if first == -1:
                first = _quotient([whole], [second])
            elif second == -1:
                second = _quotient([whole], [first])
            result += [first, second]
        else:
            raise RelayTypeError(f"newshape {codes} has the unknown code {code}")
    if inferred >= 0:
        others = result[:inferred] + result[inferred + 1 :]
        result[inferred] = _quotient(list(shape), others)
    return result


def _quotient(numerator: list[Extent], denominator: list[Extent]) -> Extent:
    """Quotient of two products, with common factors canceled first."""
    for factor in list(denominator):
        for place, other in enumerate(numerator):
            if same_extent(factor, other):
                numerator.remove(other)
                denominator.remove(factor)
                break
            times = None if isinstance(factor, int) else proven_ratio(other, factor)
            if times is not None:
                numerator[place] = times
                denominator.remove(factor)
                break
    fixed = [math.prod(v for v in each if isinstance(v, int)) for each in (numerator, denominator)]
    symbolic = [[v for v in each if not isinstance(v, int)] for each in (numerator, denominator)]
    if not symbolic[0] and not symbolic[1]:
        if fixed[1] == 0:
            return 0
        if fixed[0] % fixed[1]:
            raise RelayTypeError(f"{fixed[0]} elements do not divide into rows of {fixed[1]}")
        return fixed[0] // fixed[1]
    above, below = (_product(values) for values in symbolic)
    common = math.gcd(*fixed)
    above, below = above * (fixed[0] // common), below * (fixed[1] // common)
    if isinstance(below, int) and below == 1:
        return above
    return tirx.floordiv(above, below)


def _product(values: Sequence[Extent]) -> Extent:
    result: Extent = 1
    for value in values:
        result = value if isinstance(result, int) and result == 1 else result * value
    return result


def _reshape_codes(data: te.Tensor, codes: te.Tensor, allowzero: bool) -> te.Tensor:
    """Resolve a tensor of reshape codes at run time.

    0 copies an extent, -1 is inferred, -3 merges two extents. -2 and -4 would make the rank unknown
    and are rejected earlier (`check_divisors`).
    """
    count = int(codes.shape[0])

    def extent(place: Any) -> Any:
        result: Any = tirx.const(1, "int64")
        for axis, size in enumerate(data.shape):
            result = tirx.Select(place == axis, tirx.Cast("int64", size), result)
        return result

    def kept(index: int) -> Any:
        code = codes(index).astype("int64")
        place: Any = tirx.const(index, "int32")
        for earlier in range(index):  # an earlier -3 consumed two extents
            place = place + tirx.Select(codes(earlier) == -3, 1, 0)
        own = extent(place)
        zero = tirx.const(0, "int64") if allowzero else own
        result = tirx.Select(code == -3, own * extent(place + 1), tirx.const(1, "int64"))
        return tirx.Select(code < 0, result, tirx.Select(code == 0, zero, code))

    total: Any = tirx.const(1, "int64")
    for size in data.shape:
        total = total * size
    others: Any = tirx.const(1, "int64")
    for index in range(count):
        others = others * kept(index)

    left = tirx.floordiv(total, tirx.max(others, tirx.const(1, "int64")))
    return by_place(
        [tirx.Select(codes(index) == -1, left, kept(index)) for index in range(count)],
        "reshape_codes",
    )


_reshape_codes_kernel = kernel(
    "reshape_codes",
    _reshape_codes,
    forbidden=Forbidden(
        1,
        (-2, -4),
        "reshape: -2 and -4 are not supported in a newshape known only at run time, because they "
        "do not fix the number of extents",
        "InputError",
    ),
)


@operator("reshape", **REARRANGEMENT, quantized=quantization.same, keeps_order=True)
def reshape(data: relax.Expr, newshape: Any, allowzero: bool = False) -> relax.Expr:
    """Reshape to a shape that may contain Relay's special codes."""
    codes = shape_values(newshape)
    if isinstance(codes, relax.Expr):
        resolved = _reshape_codes_kernel(data, codes, allowzero=bool(allowzero))
        return with_shape(resolved, lambda dims: op.reshape(data, dims))
    return reshaped(data, resolve_reshape(extents(data), codes, bool(allowzero)))


dynamic_form("reshape", reshape, ["data", "newshape"])


_empty_kernel = kernel(
    "empty_reshaped",
    lambda data, shape: te.compute(shape, lambda *_: tirx.const(0, data.dtype), name="empty"),
)


def reshaped(data: relax.Expr, shape: Sequence[Extent]) -> relax.Expr:
    """Reshape `data`. Raises RelayTypeError: the number of elements is statically different."""
    known = [all(isinstance(v, int) for v in each) for each in (extents(data), shape)]
    if all(known) and math.prod(extents(data)) != math.prod(shape):
        raise RelayTypeError(
            f"argument data of type {type_of(data)} has {math.prod(extents(data))} elements, the "
            f"shape {tuple(shape)} has {math.prod(shape)}"
        )
    if all(known) and math.prod(shape) == 0:
        return _empty_kernel(data, relax.ShapeExpr(list(shape)))  # Relax interprets 0 as a code
    return op.reshape(data, list(shape))


@operator(
    "contrib_reverse_reshape", defaults={"allowzero": False}, pattern=INJECTIVE, keeps_order=True
)
def reverse_reshape(data: relax.Expr, newshape: Any, allowzero: bool = False) -> relax.Expr:
    """Reshape with codes matched from the right."""
    codes = _reversed_codes(integers(newshape))
    shape = resolve_reshape(extents(data)[::-1], codes, bool(allowzero))
    return reshaped(data, shape[::-1])


def _reversed_codes(codes: list[int]) -> list[int]:
    """Reverse the codes; the three numbers of a split keep their order."""
    groups: list[list[int]] = []
    position = 0
    while position < len(codes):
        size = 3 if codes[position] == -4 else 1
        group = codes[position : position + size]
        groups.append([-4, *group[:0:-1]] if size == 3 else group)
        position += size
    return [code for group in reversed(groups) for code in group]


@operator("reshape_like", 2, pattern=INJECTIVE)
def reshape_like(
    data: relax.Expr,
    shape_like: relax.Expr,
    lhs_begin: int = 0,
    lhs_end: int | None = None,
    rhs_begin: int = 0,
    rhs_end: int | None = None,
) -> relax.Expr:
    """Replace dimensions lhs_begin to lhs_end with the other tensor's rhs_begin to rhs_end."""
    own, other = extents(data), extents(shape_like)
    left = _range(lhs_begin, lhs_end, len(own))
    right = _range(rhs_begin, rhs_end, len(other))
    return reshaped(data, own[: left.start] + other[right] + own[left.stop :])


def _range(begin: Any, end: Any, ndim: int) -> slice:
    first = int(begin)
    last = ndim if end is None else int(end)
    return slice(first + ndim * (first < 0), last + ndim * (last < 0))


@from_relax("reshape", "flatten")
def _reshape_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    shape = static_shape(call)
    if shape is None or 0 in shape or static_shape(call.args[0]) is None:
        return None
    return typed_call("reshape", call.args[:1], call.ty, newshape=list(shape))
