"""Constant folding of Relax operators with numpy: nothing is compiled."""

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

from .constants import NUMPY_DTYPES, array_of, constant, integers, numpy_type, static_shape
from .rewrite import CallRule, expressions_in, operator_name, rewrite_calls

MAX_GROWTH = 4
SMALL_BYTES = 1 << 20
"""A result is kept symbolic if it is larger than this and `MAX_GROWTH` times its operands."""

TOTAL_BYTES = 1 << 30
"""Bytes that folding a function may make, besides `MAX_GROWTH` times those of its constants."""

_OF_ANY_TYPE = frozenset(["astype", "expand_dims", "permute_dims", "reshape", "squeeze"])
"""Operators that are computed for types that numpy lacks, too."""

Folder = Callable[[relax.Call, list[np.ndarray]], Any]


@tvm.transform.module_pass(opt_level=2, name="FoldConstant")
class FoldConstant:
    """Replace operators on constants by their results.

    1. A call of an operator in `FOLDERS` whose tensor operands are all constants becomes a
       constant. Float arithmetic has the precision of its dtype; reductions, matmul and
       transcendental functions are computed in float64 and rounded once.
    2. `shape_of` a tensor of static shape becomes that shape, `shape_to_tensor` of a static shape
       a constant, `tensor_to_shape` of a constant a shape.
    3. What would grow is left alone: results of more than 1 MiB and four times their operands, and
       all results after the first 1 GiB and four times the constants of the function.

    Before::

        lv = permute_dims(const[1000, 512])
        gv = matmul(x, lv)

    After::

        gv = matmul(x, const[512, 1000])

    Importers leave transpositions alone, so that a weight which the model holds transposed is one
    that a dense layer reads as it is. Two of them that undo each other, as between such a weight
    and the layer, leave the constant itself, and nothing is computed.
    """

    def __init__(self, transpose: bool = True) -> None:
        self.transpose = transpose

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Fold constants in every Relax function."""
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
        if name not in FOLDERS or (name == "permute_dims" and not self.transpose):
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
        """Spend bytes of results; False where all results together would exceed the bound."""
        if self._left is None:
            found = expressions_in(self.scope.function, tvm.ir.GenericConst)
            constants = {tvm_ffi.Object.__hash__(each): each for each in found}  # each once
            self._left = TOTAL_BYTES + MAX_GROWTH * sum(map(_nbytes, constants.values()))
        if size > self._left:
            return False
        self._left -= size
        return True

    def _undone_later(self) -> set[Any]:
        """The permuted constants of this function that are only read to be permuted back."""
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
    """What a nested expression over constants is: a constant or a tuple of constants.

    None where numpy has no function for an operator in it, or leaves the result open.
    """
    if isinstance(expr, tvm.ir.GenericConst):
        return expr
    if isinstance(expr, relax.Tuple):
        fields = [value_of(field) for field in expr.fields]
        return None if None in fields else relax.Tuple(fields)
    if isinstance(expr, relax.TupleGetItem):
        whole = value_of(expr.tuple_value)
        return whole.fields[expr.index] if isinstance(whole, relax.Tuple) else None
    if operator_name(expr) not in FOLDERS or not _has_static_result(expr):
        return None
    operands = _arrays(expr, lambda operand: value_of(operand) or operand)
    return None if operands is None else _computed(expr, operands)


def _arrays(
    call: relax.Call, definition: Callable[[relax.Expr], relax.Expr]
) -> list[np.ndarray] | None:
    """Arrays of the tensor arguments, tuples flattened; None if one is not a constant."""
    operands = []
    is_moved = operator_name(call) in _OF_ANY_TYPE
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
    """The result as a constant, or as a tuple of them."""
    with np.errstate(all="ignore"):
        result = FOLDERS[operator_name(call)](call, operands)
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
    """Hashable, the same for the same constant and order of axes."""
    return tvm_ffi.Object.__hash__(call.args[0]), tuple(_order(call))


def _undoes(outer: relax.Call, inner: relax.Call) -> bool:
    """Whether a permutation puts the axes of another's operand where they were."""
    first, second = _order(inner), _order(outer)
    return [first[axis] for axis in second] == list(range(len(first)))


def _order(call: relax.Call) -> list[int]:
    """The axes of a permutation's operand as its result has them."""
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


def _split(call: relax.Call, operands: list[np.ndarray]) -> list[np.ndarray]:
    sections = call.attrs.indices_or_sections
    axis = int(call.attrs.axis)
    if isinstance(sections, (int, tvm.tirx.IntImm)):
        extent = -(-operands[0].shape[axis] // int(sections))
        cuts = [extent * (i + 1) for i in range(int(sections) - 1)]
    else:
        cuts = [int(cut) for cut in sections]
    return np.split(operands[0], cuts, axis=axis)


def _elementwise(function: Callable[..., np.ndarray]) -> Folder:
    return lambda call, operands: function(*operands)


def _in_float64(function: Callable[[np.ndarray], np.ndarray]) -> Folder:
    """A function of one operand, rounded once from float64; None for integers."""

    def fold(call: relax.Call, operands: list[np.ndarray]) -> Any:
        return function(operands[0].astype("float64")) if operands[0].dtype.kind == "f" else None

    return fold


def _reduction(function: Callable[..., np.ndarray], wide: bool) -> Folder:
    def fold(call: relax.Call, operands: list[np.ndarray]) -> Any:
        (data,) = operands
        if data.size == 0 or (function is np.mean and data.dtype.kind != "f"):
            return None
        axis = call.attrs.axis
        axes = None if axis is None else tuple(int(a) for a in axis)
        if wide and data.dtype.kind == "f":
            data = data.astype("float64")
        return function(data, axis=axes, keepdims=bool(call.attrs.keepdims))

    return fold


def _right_shift(call: relax.Call, operands: list[np.ndarray]) -> Any:
    """None where a shift leaves no bit, which TVM does not define."""
    data, places = operands
    within = ((places >= 0) & (places < 8 * data.dtype.itemsize)).all()
    return np.right_shift(data, places) if within else None


def _same_elements(call: relax.Call, operands: list[np.ndarray]) -> np.ndarray:
    return operands[0]


def _astype(call: relax.Call, operands: list[np.ndarray]) -> Any:
    target, data = str(call.ty.dtype), operands[0]
    is_short = {target, str(data.dtype)} <= {"bfloat16", "float32"}
    if not is_short and (target not in NUMPY_DTYPES or str(data.dtype) not in NUMPY_DTYPES):
        return None
    if data.dtype.kind == "f" and target[0] in "iu" and not np.isfinite(data).all():
        return None
    return data.astype(numpy_type(target))


def _divide(call: relax.Call, operands: list[np.ndarray]) -> Any:
    left, right = operands
    if left.dtype.kind == "f":
        return left / right
    if (right == 0).any():
        return None
    quotient = np.abs(left) // np.abs(right)
    return np.where((left < 0) != (right < 0), -quotient, quotient)  # as C truncates


def _integer(function: Callable[..., np.ndarray]) -> Folder:
    """A division, which is left alone where a divisor is 0."""

    def fold(call: relax.Call, operands: list[np.ndarray]) -> Any:
        return function(*operands) if operands[1].all() else None

    return fold


def _repeat(call: relax.Call, operands: list[np.ndarray]) -> Any:
    axis = call.attrs.axis
    return np.repeat(operands[0], int(call.attrs.repeats), None if axis is None else int(axis))


def _leaky_relu(call: relax.Call, operands: list[np.ndarray]) -> Any:
    (data,) = operands
    return np.where(data > 0, data, data * data.dtype.type(call.attrs.alpha))


def _power(call: relax.Call, operands: list[np.ndarray]) -> Any:
    base, exponent = operands
    return base.astype("float64") ** exponent if base.dtype.kind == "f" else None


def _clip(call: relax.Call, operands: list[np.ndarray]) -> Any:
    bounds: list[Any] = [_immediate(argument) for argument in call.args[1:]]
    if None in bounds or operands[0].dtype.kind not in "fi":
        return None
    return np.clip(operands[0], *bounds)


def _take(call: relax.Call, operands: list[np.ndarray]) -> Any:
    if len(operands) != 2:
        return None
    data, indices = operands
    axis = call.attrs.axis
    extent = data.size if axis is None else data.shape[int(axis)]
    if indices.size and not (indices.min() >= 0 and indices.max() < extent):
        return None  # each mode of take has its own answer outside the tensor
    return np.take(data, indices, axis=None if axis is None else int(axis))


def _concat(call: relax.Call, operands: list[np.ndarray]) -> np.ndarray:
    axis = call.attrs.axis
    return np.concatenate(operands, axis=None if axis is None else int(axis))


def _strided_slice(call: relax.Call, operands: list[np.ndarray]) -> Any:
    fields = []
    for argument in call.args[1:]:
        numbers = integers(argument.fields) if isinstance(argument, relax.Tuple) else None
        if numbers is None:
            return None
        fields.append(numbers)
    if len(fields) < 3:
        return None
    axes, begin, end = fields[:3]
    strides = fields[3] if len(fields) > 3 else (1,) * len(axes)
    if min(strides, default=1) < 1:
        return None
    data = operands[0]
    slices = [slice(None)] * data.ndim
    for axis, start, stop, step in zip(axes, begin, end, strides):
        slices[axis] = slice(start, stop, step)
    return data[tuple(slices)]


def _matmul(call: relax.Call, operands: list[np.ndarray]) -> np.ndarray:
    left, right = operands
    wide = "float64" if left.dtype.kind == "f" else str(call.ty.dtype)
    return np.matmul(left.astype(wide), right.astype(wide))


def _permute_dims(call: relax.Call, operands: list[np.ndarray]) -> np.ndarray:
    axes = call.attrs.axes
    return np.transpose(operands[0], None if axes is None else [int(axis) for axis in axes])


def _full(call: relax.Call, operands: list[np.ndarray]) -> np.ndarray:
    return np.broadcast_to(operands[0], static_shape(call) or ())


def _filled(value: int) -> Folder:
    return lambda call, _: np.full(static_shape(call) or (), value, str(call.ty.dtype))


def _arange(call: relax.Call, operands: list[np.ndarray]) -> Any:
    bounds: list[Any] = [_immediate(argument) for argument in call.args]
    return None if None in bounds else np.arange(*bounds).astype(str(call.ty.dtype))


def _pad(call: relax.Call, operands: list[np.ndarray]) -> Any:
    if str(call.attrs.pad_mode) != "constant":
        return None
    widths = [int(width) for width in call.attrs.pad_width]
    pairs = list(zip(widths[::2], widths[1::2]))
    if min(widths, default=0) < 0:
        return None
    return np.pad(operands[0], pairs, constant_values=float(call.attrs.pad_value))


def _tile(call: relax.Call, operands: list[np.ndarray]) -> Any:
    repeats = integers(call.attrs.repeats)
    return None if repeats is None else np.tile(operands[0], repeats)


def _stack(call: relax.Call, operands: list[np.ndarray]) -> np.ndarray:
    return np.stack(operands, axis=int(call.attrs.axis or 0))


def _layout_transform(call: relax.Call, operands: list[np.ndarray]) -> Any:
    """A layout change that only splits and reorders axes, e.g. OIHW to OIHW4i16o."""
    index_map = call.attrs.index_map
    data = operands[0]
    source = {variable: axis for axis, variable in enumerate(index_map.initial_indices)}
    factors: dict[int, int] = {}
    parts: list[tuple[int, int]] = []  # of each new axis: the old axis, and 0 outer or 1 inner
    for index in index_map.final_indices:
        variable, factor, inner = index, None, 0
        if isinstance(index, (tvm.tirx.FloorDiv, tvm.tirx.FloorMod)):
            if not isinstance(index.b, tvm.tirx.IntImm):
                return None
            variable, factor = index.a, int(index.b)
            inner = int(isinstance(index, tvm.tirx.FloorMod))
        axis = source.get(variable) if isinstance(variable, tvm.tirx.Var) else None
        if axis is None or (factor is not None and factors.setdefault(axis, factor) != factor):
            return None
        parts.append((axis, inner))
    complete = {
        (axis, inner) for axis in range(data.ndim) for inner in range(1 + (axis in factors))
    }
    if len(set(parts)) != len(parts) or set(parts) != complete:
        return None
    if any(data.shape[axis] % factor for axis, factor in factors.items()):
        return None  # padded: what it is padded with is the reader's choice
    shape: list[int] = []
    place: dict[tuple[int, int], int] = {}
    for axis, extent in enumerate(data.shape):
        factor = factors.get(axis, 1)
        place[axis, 0] = len(shape)
        shape.append(extent // factor)
        if axis in factors:
            place[axis, 1] = len(shape)
            shape.append(factor)
    return data.reshape(shape).transpose([place[part] for part in parts])


def _immediate(expr: Any) -> float | None:
    return expr.value if isinstance(expr, (tvm.tirx.IntImm, tvm.tirx.FloatImm)) else None


FOLDERS: dict[str, Folder] = {
    "abs": _elementwise(np.abs),
    "acos": _in_float64(np.arccos),
    "acosh": _in_float64(np.arccosh),
    "add": _elementwise(np.add),
    "arange": _arange,
    "asin": _in_float64(np.arcsin),
    "asinh": _in_float64(np.arcsinh),
    "astype": _astype,
    "atan": _in_float64(np.arctan),
    "atanh": _in_float64(np.arctanh),
    "bitwise_and": _elementwise(np.bitwise_and),
    "bitwise_not": _elementwise(np.invert),
    "bitwise_or": _elementwise(np.bitwise_or),
    "bitwise_xor": _elementwise(np.bitwise_xor),
    "broadcast_to": _full,
    "ceil": _elementwise(np.ceil),
    "clip": _clip,
    "concat": _concat,
    "cos": _in_float64(np.cos),
    "cosh": _in_float64(np.cosh),
    "divide": _divide,
    "equal": _elementwise(np.equal),
    "erf": _in_float64(np.vectorize(math.erf, otypes=[float])),
    "exp": _in_float64(np.exp),
    "expand_dims": _same_elements,
    "flatten": _same_elements,
    "flip": lambda call, operands: np.flip(operands[0], int(call.attrs.axis)),
    "floor": _elementwise(np.floor),
    "floor_divide": _integer(np.floor_divide),
    "floor_mod": _integer(np.mod),
    "full": _full,
    "greater": _elementwise(np.greater),
    "greater_equal": _elementwise(np.greater_equal),
    "isfinite": _elementwise(np.isfinite),
    "isinf": _elementwise(np.isinf),
    "isnan": _elementwise(np.isnan),
    "layout_transform": _layout_transform,
    "less": _elementwise(np.less),
    "less_equal": _elementwise(np.less_equal),
    "log": _in_float64(np.log),
    "logical_and": _elementwise(np.logical_and),
    "logical_not": _elementwise(np.logical_not),
    "logical_or": _elementwise(np.logical_or),
    "logical_xor": _elementwise(np.logical_xor),
    "matmul": _matmul,
    "max": _reduction(np.max, wide=False),
    "maximum": _elementwise(np.maximum),
    "mean": _reduction(np.mean, wide=True),
    "min": _reduction(np.min, wide=False),
    "minimum": _elementwise(np.minimum),
    "mod": _integer(np.fmod),
    "multiply": _elementwise(np.multiply),
    "negative": _elementwise(np.negative),
    "nn.batch_flatten": _same_elements,
    "nn.leakyrelu": _leaky_relu,
    "nn.pad": _pad,
    "nn.relu": lambda call, operands: np.maximum(operands[0], 0),
    "not_equal": _elementwise(np.not_equal),
    "ones": _filled(1),
    "permute_dims": _permute_dims,
    "power": _power,
    "prod": _reduction(np.prod, wide=True),
    "repeat": _repeat,
    "reshape": _same_elements,
    "right_shift": _right_shift,
    "rsqrt": _in_float64(lambda data: 1 / np.sqrt(data)),
    "sigmoid": _in_float64(lambda data: 1 / (1 + np.exp(-data))),
    "sign": _elementwise(np.sign),
    "sin": _in_float64(np.sin),
    "sinh": _in_float64(np.sinh),
    "split": _split,
    "sqrt": _in_float64(np.sqrt),
    "square": _elementwise(np.square),
    "squeeze": _same_elements,
    "stack": _stack,
    "strided_slice": _strided_slice,
    "subtract": _elementwise(np.subtract),
    "sum": _reduction(np.sum, wide=True),
    "take": _take,
    "tan": _in_float64(np.tan),
    "tanh": _in_float64(np.tanh),
    "tile": _tile,
    "trunc": _elementwise(np.trunc),
    "where": _elementwise(np.where),
    "zeros": _filled(0),
}
"""Operator name, without "relax.", to the function that computes it; None means: leave it."""
