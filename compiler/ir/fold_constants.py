"""Constant folding of Relax operators with numpy, without compilation."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from .constants import array_of, constant, integers, numpy_type, static_shape
from .op_facts import facts_named, facts_of
from .rewrite import CallRule, expressions_in, operator_name, rewrite_calls

MAX_GROWTH = 4
SMALL_BYTES = 1 << 20
"""A result is kept symbolic if it is larger than this and `MAX_GROWTH` times its operands."""

TOTAL_BYTES = 1 << 30
"""Bytes that folding a function may make, besides `MAX_GROWTH` times those of its constants."""


@tvm.transform.module_pass(opt_level=2, name="FoldConstant")
class FoldConstant:
    """Replace operators on constants by their results.

    1. A call on constants alone becomes a constant if its operator has an `evaluate` fact. Float
       arithmetic has the precision of its dtype; reductions, matmul and transcendental functions
       are computed in float64 and rounded once.
    2. `shape_of` a tensor of static shape becomes that shape, `shape_to_tensor` of a static shape
       a constant, `tensor_to_shape` of a constant a shape.
    3. Results that would grow the module are not folded: results of more than 1 MiB and four times
       their operands, and all results after 1 GiB and four times the function's constants.

        before   lv = permute_dims(const[1000, 512]); gv = matmul(x, lv)
        after    gv = matmul(x, const[512, 1000])

    Importers keep transpositions, so that a dense layer can read a weight that the model stores
    transposed as it is. Two transpositions that undo each other, as between such a weight and the
    layer, leave the constant itself, and nothing is computed.
    """

    def __init__(self, transpose: bool = True) -> None:
        self.transpose = transpose

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return rewrite_calls(mod, functools.partial(_Fold, self.transpose))


class _Fold(CallRule):
    def __init__(self, transpose: bool) -> None:
        super().__init__()
        self.transpose = transpose
        self._left: int | None = None
        self._undone: set[Any] | None = None

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name in _SHAPE_RULES:
            return _SHAPE_RULES[name](self, call)
        if facts_named(name).evaluate is None or (name == "permute_dims" and not self.transpose):
            return None
        if name == "permute_dims":
            inner = self.scope.definition(call.args[0])
            if _permutes_constant(inner) and _undoes(call, inner):
                return inner.args[0]
            if _permutes_constant(call) and _permuted_constant(call) in self._undone_later():
                return None
        operands = _arrays(call, self.scope.definition)
        if operands is None or not _has_static_result(call) or _grows(call, operands):
            return None
        return _computed(call, operands) if self._may_spend(_size(call, operands)) else None

    def _may_spend(self, size: int) -> bool:
        """Charge bytes of results to the budget; False if that would exceed it."""
        if self._left is None:
            found = expressions_in(self.scope.function, tvm.ir.GenericConst)
            constants = {tvm_ffi.Object.__hash__(each): each for each in found}  # each once
            self._left = TOTAL_BYTES + MAX_GROWTH * sum(map(_nbytes, constants.values()))
        if size > self._left:
            return False
        self._left -= size
        return True

    def _undone_later(self) -> set[Any]:
        """Permuted constants of this function with only readers that permute them back."""
        if self._undone is None:
            permuted: dict[Any, relax.Call] = {}
            made, undone = Counter[Any](), Counter[Any]()
            for block in self.scope.function.body.blocks:
                for binding in block.bindings:
                    call = binding.value
                    if operator_name(call) != "permute_dims":
                        continue
                    if _permutes_constant(call):
                        permuted[binding.var] = call
                        made[_permuted_constant(call)] += 1
                    elif call.args[0] in permuted and self.scope.used_once(call.args[0]):
                        inner = permuted[call.args[0]]
                        undone[_permuted_constant(inner)] += _undoes(call, inner)
            self._undone = {each for each in made if made[each] == undone[each]}
        return self._undone

    def shape_of(self, call: relax.Call) -> relax.Expr | None:
        extents = static_shape(call.args[0])
        return None if extents is None else relax.ShapeExpr(extents)

    def shape_to_tensor(self, call: relax.Call) -> relax.Expr | None:
        shape = self.scope.definition(call.args[0])
        extents = integers(shape.values) if isinstance(shape, relax.ShapeExpr) else None
        return None if extents is None else constant(np.array(extents, "int64"))

    def tensor_to_shape(self, call: relax.Call) -> relax.Expr | None:
        array = array_of(call.args[0])
        return None if array is None else relax.ShapeExpr([int(extent) for extent in array])


_SHAPE_RULES: dict[str, Callable[[_Fold, relax.Call], relax.Expr | None]] = {
    "shape_of": _Fold.shape_of,
    "shape_to_tensor": _Fold.shape_to_tensor,
    "tensor_to_shape": _Fold.tensor_to_shape,
}


def value_of(expr: relax.Expr) -> relax.Expr | None:
    """Fold an expression over constants; None if undefined or without a numpy function."""
    if isinstance(expr, tvm.ir.GenericConst):
        return expr
    if isinstance(expr, relax.Tuple):
        fields = [value_of(field) for field in expr.fields]
        return None if None in fields else relax.Tuple(fields)
    if isinstance(expr, relax.TupleGetItem):
        whole = value_of(expr.tuple_value)
        return whole.fields[expr.index] if isinstance(whole, relax.Tuple) else None
    if facts_of(expr).evaluate is None or not _has_static_result(expr):
        return None
    operands = _arrays(expr, lambda operand: value_of(operand) or operand)
    return None if operands is None else _computed(expr, operands)


def _arrays(
    call: relax.Call, definition: Callable[[relax.Expr], relax.Expr]
) -> list[np.ndarray] | None:
    """Arrays of the tensor arguments, tuples flattened; None if one is not a constant."""
    operands = []
    is_moved = facts_of(call).any_dtype
    for argument in call.args:
        if not isinstance(argument.ty, (relax.TensorType, relax.TupleType)):
            continue
        value = definition(argument)
        for field in value.fields if isinstance(value, relax.Tuple) else [value]:
            item = definition(field)
            if not isinstance(item.ty, relax.TensorType):
                continue
            array = array_of(item)
            if array is None or (array.dtype.kind not in "fiub" and not is_moved):
                return None
            operands.append(array)
    return operands


def _computed(call: relax.Call, operands: list[np.ndarray]) -> relax.Expr | None:
    """The result as a constant, or as a tuple of constants."""
    evaluate = facts_of(call).evaluate
    assert evaluate is not None
    with np.errstate(all="ignore"):
        result = evaluate(call, operands)
        if isinstance(result, list):
            return relax.Tuple([constant(part) for part in result])
        shape = static_shape(call)
        if result is None or shape is None:
            return None
        return constant(
            np.asarray(result).astype(numpy_type(str(call.ty.dtype)), copy=False).reshape(shape)
        )


def _permutes_constant(expr: Any) -> bool:
    return operator_name(expr) == "permute_dims" and isinstance(expr.args[0], tvm.ir.GenericConst)


def _permuted_constant(call: relax.Call) -> Any:
    """A hashable key, equal for the same constant and order of axes."""
    return tvm_ffi.Object.__hash__(call.args[0]), tuple(_order(call))


def _undoes(outer: relax.Call, inner: relax.Call) -> bool:
    first, second = _order(inner), _order(outer)
    return [first[axis] for axis in second] == list(range(len(first)))


def _order(call: relax.Call) -> list[int]:
    """The order of axes of a permutation."""
    axes = call.attrs.axes
    rank = int(call.args[0].ty.ndim)
    return list(range(rank))[::-1] if axes is None else [int(axis) % rank for axis in axes]


def _has_static_result(call: relax.Call) -> bool:
    if isinstance(call.ty, relax.TupleType):
        return True
    return static_shape(call) is not None


def _grows(call: relax.Call, operands: list[np.ndarray]) -> bool:
    if isinstance(call.ty, relax.TupleType):
        return False
    size = _size(call, operands)
    return size > SMALL_BYTES and size > MAX_GROWTH * sum(array.nbytes for array in operands)


def _size(call: relax.Call, operands: list[np.ndarray]) -> int:
    """Bytes of the result; those of a tuple's parts are the operands'."""
    if isinstance(call.ty, relax.TupleType):
        return sum(array.nbytes for array in operands)
    return _nbytes(call)


def _nbytes(expr: relax.Expr) -> int:
    """Bytes of a tensor; 0 if its shape is not static."""
    shape = static_shape(expr)
    return 0 if shape is None else math.prod(shape) * tvm.DataType(str(expr.ty.dtype)).itemsize
