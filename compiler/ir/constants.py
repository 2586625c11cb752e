"""Relax constants as numpy arrays and back, without needless copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

SHARED_DTYPES = frozenset(["float16", "float32", "float64", "int8", "uint8", "int32", "int64"])
"""Dtypes that numpy can view in a TVM tensor's memory."""

NUMPY_DTYPES = frozenset(
    ["bool", "float16", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
"""Dtypes that numpy has itself."""


def numpy_type(name: str) -> np.dtype:
    """numpy's type of a dtype; that of bfloat16 is the one of ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def array_of(expr: Any) -> np.ndarray | None:
    """A constant's value, read-only because it may share memory; None for other expressions."""
    if not isinstance(expr, tvm.ir.GenericConst):
        return None
    return view_of(expr.value)


def view_of(tensor: tvm.runtime.Tensor) -> np.ndarray:
    """A tensor as an array, which may share its memory: treat it as read-only."""
    if tensor.dtype in SHARED_DTYPES and tensor.device.dlpack_device_type() == 1:
        return np.from_dlpack(tensor)
    return tensor.numpy()


def scalar_of(expr: Any) -> float | None:
    """The number that a constant holds in all its elements; None for anything else."""
    array = array_of(expr)
    if array is None or array.size == 0 or array.dtype.kind not in "fiu":
        return None
    first = array.flat[0]
    return float(first) if array.size == 1 or bool((array == first).all()) else None


def to_tensor(array: np.ndarray) -> tvm.runtime.Tensor:
    """Copy an array once into a TVM tensor on the CPU."""
    if str(array.dtype) not in SHARED_DTYPES:
        return tvm.runtime.tensor(array)
    tensor = tvm.runtime.empty(array.shape, str(array.dtype))
    np.from_dlpack(tensor)[...] = array
    return tensor


def constant(array: np.ndarray) -> relax.Expr:
    """A Relax constant that holds a copy of `array`, with its dtype."""
    return relax.const(to_tensor(np.asarray(array)))


def static_shape(expr: Any) -> tuple[int, ...] | None:
    """The shape of a tensor expression; None unless every extent is a known integer."""
    return shape_of_type(expr.ty)


def shape_of_type(ty: Any) -> tuple[int, ...] | None:
    """The shape of a tensor type; None unless every extent is a known integer."""
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    return integers(ty.shape.values)


def leaf_types(ty: Any) -> list[Any]:
    """Leaf types of nested tuples, in order."""
    if isinstance(ty, relax.TupleType):
        return [leaf for field in ty.fields for leaf in leaf_types(field)]
    return [ty]


def tensor_types(ty: Any) -> list[relax.TensorType]:
    """Tensor types in nested tuples, in order."""
    return [each for each in leaf_types(ty) if isinstance(each, relax.TensorType)]


def static_key(ty: Any) -> tuple[Any, ...] | None:
    """Key of equal static types: ("tuple", *fields) or (shape, dtype); None for dynamic shapes."""
    if isinstance(ty, relax.TupleType):
        keys = tuple(static_key(field) for field in ty.fields)
        return None if None in keys else ("tuple", keys)
    shape = shape_of_type(ty)
    return None if shape is None else (shape, str(ty.dtype))


def dtype_of(expr: Any) -> str:
    """The dtype of a tensor expression, e.g. "float32"; "" when it is unknown."""
    return str(expr.ty.dtype) if isinstance(expr.ty, relax.TensorType) else ""


def integers(values: Any) -> tuple[int, ...] | None:
    """A sequence of integers and integer immediates as a tuple; None if one is symbolic."""
    found = values[:]  # iterating over one of TVM's arrays checks every index
    if all(isinstance(value, (int, tvm.tirx.IntImm)) for value in found):
        return tuple(int(value) for value in found)
    return None
