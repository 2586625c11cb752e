"""Operand shapes, and shapes stored in tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te, tirx

from ...errors import RelayTypeError
from ...ir.constants import array_of
from ...ir.dynamic_shape import as_extent, simplified
from ...ir.op_facts import nonzero_rejected
from ..ty import Any as AnyExtent
from ..ty import extent, fresh
from ..type_infer import infer_type, set_type, type_of
from .te_op import kernel
from .typed_relax import op

Extent = Any
"""An int, or a TIR expression of dtype int64 for a symbolic extent."""


def extents(expr: relax.Expr) -> list[Extent]:
    """Shape of a tensor, static extents as integers; RelayTypeError if not of known rank."""
    ty = expr.ty
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        raise RelayTypeError(f"a tensor of known rank is needed, not {type_of(expr)}")
    return [int(v) if isinstance(v, tirx.IntImm) else v for v in ty.shape.values]


def rank(expr: relax.Expr) -> int:
    """Rank of a tensor."""
    return len(extents(expr))


def dtype(expr: relax.Expr) -> str:
    """Dtype of a tensor, such as "float32"."""
    if not isinstance(expr.ty, relax.TensorType):
        raise RelayTypeError(f"a tensor is needed, not {type_of(expr)}")
    return str(expr.ty.dtype)


def is_float(name: str) -> bool:
    """Whether a dtype is a floating-point type."""
    return "float" in name


def tuple_fields(data: relax.Expr) -> list[relax.Expr]:
    """Fields of a tuple as expressions."""
    if isinstance(data, relax.Tuple):
        return [infer_type(field) for field in data.fields]
    if not isinstance(data.ty, relax.TupleType):
        raise RelayTypeError(f"argument data must be a tuple, not {type_of(data)}")
    return [infer_type(relax.TupleGetItem(data, index)) for index in range(len(data.ty.fields))]


def axis_of(axis: Any, ndim: int, what: str = "axis") -> int:
    """Normalize an axis to be non-negative; RelayTypeError if out of range for `ndim`."""
    axis = int(axis)
    if not -ndim <= axis < ndim:
        raise RelayTypeError(f"{what} {axis} is not one of {ndim} dimensions")
    return axis % ndim


def integers(values: Any, count: int | None = None) -> list[int]:
    """Convert an integer or a sequence to a list; an integer is repeated `count` times."""
    if isinstance(values, (int, np.integer, tirx.IntImm)):
        return [int(values)] * (count or 1)
    try:
        return [int(value) for value in values]
    except OverflowError as error:
        raise RelayTypeError(f"{values} are not integers") from error


def number(value: float, name: str) -> relax.Expr:
    """Scalar constant of dtype `name`."""
    return relax.const(value, name)


def constant_value(expr: Any) -> np.ndarray | None:
    """Array of a constant, or None."""
    return array_of(expr) if isinstance(expr, relax.Expr) else None


def same_extent(left: Extent, right: Extent) -> bool:
    """Whether two extents are provably equal."""
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    if isinstance(left, int) or isinstance(right, int):
        return False
    if left.same_as(right) or tvm_ffi.structural_equal(left, right):
        return True
    if isinstance(left, tirx.Var) and isinstance(right, tirx.Var):
        return False
    difference = simplified(left - right)
    return isinstance(difference, int) and difference == 0


def shape_values(value: Any) -> list[Extent] | relax.Expr:
    """Numbers of a shape-like argument if they are static, else its tensor."""
    if isinstance(value, relax.ShapeExpr):
        return list(value.values)
    if isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType):
        array = constant_value(value)
        return value if array is None else [int(item) for item in array.ravel()]
    if isinstance(value, (int, np.integer, tirx.IntImm)):
        return [int(value)]
    return [v if isinstance(v, AnyExtent) else _plain(v) for v in value]


def _plain(value: Any) -> Extent:
    if isinstance(value, tvm.ir.GenericConst):
        return int(value.value.numpy())
    if isinstance(value, (int, np.integer)):
        return int(value)
    return int(value) if isinstance(value, tirx.IntImm) else extent(value)


def with_shape(tensor: relax.Expr, make: Any) -> relax.Expr:
    """Call `make(extents)` with a rank-1 tensor's values, as new symbols bound after the tensor."""
    (length,) = extents(tensor)
    if not isinstance(length, int):
        raise RelayTypeError(f"the length of a shape must be known, not {type_of(tensor)}")
    dims = [fresh("extent") for _ in range(length)]
    shape = op.tensor_to_shape(_as_int64(tensor))
    bound = relax.Var("shape", relax.ShapeType(dims))
    result = infer_type(make(dims))
    variable = relax.Var("shaped", result.ty)
    return set_type(
        relax.SeqExpr(
            [
                relax.BindingBlock(
                    [
                        relax.MatchCast(bound, shape, relax.ShapeType(dims)),
                        relax.VarBinding(variable, result),
                    ]
                )
            ],
            variable,
        ),
        result.ty,
    )


def _as_int64(tensor: relax.Expr) -> relax.Expr:
    return tensor if dtype(tensor) == "int64" else op.astype(tensor, "int64")


def shaped(shape: Any, make: Any) -> relax.Expr:
    """Call `make(extents)` for a shape given as numbers or as a tensor."""
    values = shape_values(shape)
    if isinstance(values, relax.Expr):
        return with_shape(values, make)
    return make([extent(value) for value in values])


def _shape_tensor(data: te.Tensor, dtype: str) -> te.Tensor:
    """Shape of a tensor as a tensor."""

    def value(index: Any) -> Any:
        result: Any = tirx.const(0, dtype)
        for position, size in reversed(list(enumerate(data.shape))):
            size = size.astype(dtype) if isinstance(size, tvm.ir.Expr) else tirx.const(size, dtype)
            result = tirx.Select(index == position, size, result)
        return result

    return te.compute((len(data.shape),), value, name="shape_of")


shape_tensor_kernel = kernel("shape_of", _shape_tensor)


def shape_tensor(data: relax.Expr, name: str) -> relax.Expr:
    """Shape of `data` as a tensor of dtype `name`; a constant if it is static."""
    values = extents(data)
    if all(isinstance(value, int) for value in values):
        return relax.const(np.array(values, name), name)
    return shape_tensor_kernel(data, dtype=name)


def _broadcast_to(data: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """Broadcast with dynamic extents: axes whose extent is 1 at run time are repeated."""
    lead = len(shape) - len(data.shape)

    def value(*indices: Any) -> Any:
        at = []
        for size, index in zip(data.shape, indices[lead:]):
            if isinstance(size, (int, tirx.IntImm)):
                at.append(index if int(size) != 1 else tirx.const(0, "int64"))
            else:
                at.append(tirx.Select(size == 1, tirx.const(0, "int64"), index))
        return data(*at)

    return te.compute(list(shape), value, name="broadcast_to")


def _checked_broadcast_to(data: te.Tensor, misfits: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """Broadcast after checking that all `misfits` are 0."""
    plain = _broadcast_to(data, shape)
    none = misfits[tirx.const(0, "int64")] == 0
    return te.compute(
        plain.shape, lambda *i: tirx.if_then_else(none, plain(*i), tirx.const(0, plain.dtype))
    )


def _misfits(products: Sequence[Any]) -> te.Tensor:
    """1 for each nonzero value, else 0."""

    def value(index: Any) -> Any:
        result: Any = tirx.const(0, "int64")
        for position, product in enumerate(products):
            fits = tirx.Select(product == 0, tirx.const(0, "int64"), tirx.const(1, "int64"))
            result = tirx.Select(index == position, fits, result)
        return result

    return te.compute((len(products),), value, name="misfits")


_checked_broadcast_kernel = kernel(
    "broadcast_that_fits",
    _checked_broadcast_to,
    forbidden=nonzero_rejected(
        "broadcast: extents known at run time do not agree: neither equal nor 1"
    ),
)
_misfits_kernel = kernel("broadcast_shape_func", _misfits)


def broadcast_extents(data: relax.Expr, shape: Sequence[Extent]) -> relax.Expr:
    """Broadcast `data` to `shape`, which may be symbolic."""
    given = extents(data)
    if len(given) == len(shape) and all(same_extent(a, b) for a, b in zip(given, shape)):
        return data
    pairs = zip(given[::-1], list(shape)[::-1])
    differing = [(own, joint) for own, joint in pairs if not same_extent(own, joint)]
    misfits = [(own - 1) * (joint - own) for own, joint in differing if not isinstance(own, int)]
    if not misfits:
        return op.broadcast_to(data, list(shape))
    whole = relax.ShapeExpr(list(shape))
    found = _misfits_kernel(relax.ShapeExpr(misfits))
    return _checked_broadcast_kernel(data, found, whole)


def joint_shape(shapes: Sequence[Sequence[Extent]]) -> list[Extent]:
    """Common broadcast shape; RelayTypeError if two static extents differ and neither is 1.

    Two different symbolic extents become their maximum, or 0 if one is 0: at run time they are
    equal, or one of them is 1.
    """
    result: list[Extent] = []
    for position in range(1, max((len(shape) for shape in shapes), default=0) + 1):
        joint: Extent = 1
        for shape in shapes:
            if position <= len(shape):
                joint = _joint_extent(joint, shape[-position])
        result.append(joint)
    return result[::-1]


def joined_extents(shapes: Sequence[Sequence[Extent]], along: int) -> list[Extent]:
    """Extents of a concatenation; the build inserts a check that the other axes agree."""
    joined = [next((e for e in every if isinstance(e, int)), every[0]) for every in zip(*shapes)]
    first, *others = (shape[along] for shape in shapes)
    joined[along] = simplified(sum(others, first))
    return joined


def _joint_extent(left: Extent, right: Extent) -> Extent:
    if isinstance(left, int) and isinstance(right, int):
        if left != right and 1 not in (left, right):
            raise RelayTypeError(f"extents {left} and {right} do not broadcast")
        return right if left == 1 else left
    for own, other in ((left, right), (right, left)):
        if isinstance(own, int):
            return other if own == 1 else own
    joint = proven_joint(left, right)
    if joint is not None:
        return joint
    whole = tirx.max(left, right) * tirx.min(tirx.min(left, right), tirx.const(1, "int64"))
    return simplified(whole)  # TVM crashes on types with an extent like max(n, n)


def proven_joint(left: Extent, right: Extent) -> Extent | None:
    """The joint of two symbolic extents that broadcast; None if it depends on the symbols.

    It is n for n and max(n, 1), and for n and min(n, m).
    """
    if same_extent(left, right):
        return left
    for joint, other in ((left, right), (right, left)):
        if isinstance(other, tirx.Min | tirx.Max):
            limits = [each for each in (other.a, other.b) if not same_extent(each, joint)]
            is_one = len(limits) == 1 and same_extent(limits[0], as_extent(1))
            if len(limits) == 1 and (is_one or isinstance(other, tirx.Min)):
                return joint
    return None


def assign_type(variable: relax.Expr, shape: Sequence[Extent], name: str) -> relax.Expr:
    """Give an untyped variable the type that its operator requires; return the variable."""
    if variable.ty.is_missing() and isinstance(variable, relax.Var):
        set_type(variable, relax.TensorType(list(shape), name))
    return variable
