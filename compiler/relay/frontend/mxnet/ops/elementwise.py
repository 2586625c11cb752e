"""Arithmetic, comparisons and functions of single elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from compiler.ir.constants import dtype_of

from ..node import SymbolNode

Converter = Callable[[SymbolNode], Any]
op = relax.op


def _floor_mod(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Remainder with the sign of the divisor."""
    if "float" not in dtype_of(a):
        return op.floor_mod(a, b)
    return op.subtract(a, op.multiply(op.floor(op.divide(a, b)), b))


def _true_divide(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    wide = [x if "float" in dtype_of(x) else op.astype(x, "float32") for x in (a, b)]
    return op.divide(*wide)


def binary(function: Callable[..., Any]) -> Converter:
    """A function of the first two inputs."""
    return lambda node: function(node[0], node[1])


def scalar(function: Callable[..., Any], reverse: bool = False) -> Converter:
    """`x op scalar`, or `scalar op x`, with the scalar in x's dtype."""

    def convert(node: SymbolNode) -> relax.Expr:
        data, constant = _with_scalar(node, 1.0)
        return function(constant, data) if reverse else function(data, constant)

    return convert


def _with_scalar(node: SymbolNode, default: float) -> tuple[relax.Expr, relax.Expr]:
    """The first input and the scalar in one dtype, the input's as a rule."""
    value, whole = node.number("scalar", default), node.flag("is_int", True)
    data, dtype = node[0], node.dtype(0)
    if "float" not in dtype and _is_numpy(node) and not whole:
        dtype = "float32"  # a float scalar makes integers float under numpy semantics
        data = node.emit(op.astype(data, dtype))
    return data, relax.const(value if "float" in dtype else int(value), dtype)


def _is_numpy(node: SymbolNode) -> bool:
    return node.op.startswith("_npi_")


def _comparison(function: Callable[..., Any], logical: bool = False) -> Converter:
    """The result has the dtype of the first operand, but is boolean for numpy operators."""

    def convert(node: SymbolNode) -> relax.Expr:
        first, second = node.all() if node.count > 1 else _with_scalar(node, 0.0)
        if logical:
            first, second = _truth(node, first), _truth(node, second)
        result = function(first, second)
        return result if _is_numpy(node) else op.astype(node.emit(result), node.dtype(0))

    return convert


def _truth(node: SymbolNode, value: relax.Expr) -> relax.Expr:
    if dtype_of(value) == "bool":
        return value
    return node.emit(op.not_equal(value, relax.const(0, dtype_of(value))))


def logical_not(node: SymbolNode) -> relax.Expr:
    """1 where the operand is 0."""
    result = node.emit(op.logical_not(_truth(node, node[0])))
    return result if _is_numpy(node) else op.astype(result, node.dtype(0))


def _unary(function: Callable[[Any], Any]) -> Converter:
    return lambda node: function(node[0])


def _root(exponent: float) -> Converter:
    """A root that is negative for negative operands, as the cube root is."""

    def convert(node: SymbolNode) -> relax.Expr:
        size = op.power(op.abs(node[0]), node.scalar(exponent))
        return op.multiply(op.sign(node[0]), size)

    return convert


def _logarithm(base: float) -> Converter:
    return lambda node: op.multiply(op.log(node[0]), node.scalar(1 / math.log(base)))


def round_away(node: SymbolNode) -> relax.Expr:
    """Halves go away from zero."""
    size = op.floor(op.add(op.abs(node[0]), node.scalar(0.5)))
    return op.multiply(op.sign(node[0]), size)


def add_n(node: SymbolNode) -> relax.Expr:
    total, *rest = node.all()
    for value in rest:
        total = node.emit(op.add(total, value))
    return total


def cast(node: SymbolNode) -> relax.Expr:
    return op.astype(node[0], node.dtype_attr())


def amp_multicast(node: SymbolNode) -> list[relax.Expr]:
    """All inputs to the widest, or the narrowest, of their float dtypes."""
    values = node.all()
    found = {dtype_of(value) for value in values}
    if not found <= {"float16", "float32"}:
        raise node.unsupported(f"inputs of the dtypes {sorted(found)}")
    narrow = node.flag("cast_narrow", False)
    wanted = "float16" if found == {"float16"} or (narrow and "float16" in found) else "float32"
    return [value if dtype_of(value) == wanted else op.astype(value, wanted) for value in values]


def clip(node: SymbolNode) -> relax.Expr:
    low = node.number("a_min", -math.inf)
    high = node.number("a_max", math.inf)
    value = node[0]
    if low != -math.inf and high != math.inf:
        dtype = node.dtype(0)
        make = tvm.tirx.FloatImm if "float" in dtype else tvm.tirx.IntImm
        bounds = (low, high) if "float" in dtype else (int(low), int(high))
        return op.clip(value, make(dtype, bounds[0]), make(dtype, bounds[1]))
    if low != -math.inf:
        value = op.maximum(value, node.scalar(low))
    return value if high == math.inf else op.minimum(value, node.scalar(high))


def smooth_l1(node: SymbolNode) -> relax.Expr:
    """Quadratic near zero, linear elsewhere."""
    node.without_effect("is_int")
    square = node.number("scalar", 1.0) ** 2
    size = node.emit(op.abs(node[0]))
    near = op.multiply(node.scalar(square / 2), op.multiply(node[0], node[0]))
    far = op.subtract(size, node.scalar(0.5 / square))
    return op.where(op.less(size, node.scalar(1 / square)), near, far)


def where(node: SymbolNode) -> relax.Expr:
    """Elements of the second or of the third input."""
    return op.where(_truth(node, node[0]), node[1], node[2])


def where_scalar(node: SymbolNode) -> relax.Expr:
    """Elements of the second input, or a number."""
    other = node.scalar(node.number("scalar", 0.0), node.dtype(1))
    return op.where(_truth(node, node[0]), node[1], other)


def dropout(node: SymbolNode) -> relax.Expr:
    """Nothing, as it serves training only; unless it is asked to drop always."""
    node.without_effect("axes")
    if node.text("mode", "training") != "training":
        raise node.unsupported(f"mode {node.text('mode')!r}, which drops elements at inference too")
    return node[0]


def identity(node: SymbolNode) -> relax.Expr:
    return node[0]


BINARY: dict[str, Callable[..., Any]] = {
    "add": op.add,
    "sub": op.subtract,
    "mul": op.multiply,
    "div": op.divide,
    "mod": _floor_mod,
    "power": op.power,
    "maximum": op.maximum,
    "minimum": op.minimum,
    "hypot": lambda a, b: op.sqrt(op.add(op.multiply(a, a), op.multiply(b, b))),
}
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "equal": op.equal,
    "not_equal": op.not_equal,
    "greater": op.greater,
    "greater_equal": op.greater_equal,
    "lesser": op.less,
    "lesser_equal": op.less_equal,
}
_NUMPY_NAMES = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "mod": "mod",
    "power": "power",
    "maximum": "maximum",
    "minimum": "minimum",
}
_SAME_NAME = (
    "abs ceil cos cosh erf exp floor log negative rsqrt sigmoid sign sin sinh sqrt square tan tanh "
    "trunc"
)
_INVERSES = "cos cosh sin sinh tan tanh"
UNARY: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(op, name) for name in _SAME_NAME.split()},
    **{f"arc{name}": getattr(op, f"a{name}") for name in _INVERSES.split()},
    "fix": op.trunc,
    "relu": op.nn.relu,
}

_IDENTITIES = (
    *("_copy", "_copyto", "_np_copy", "_npi_copy", "identity", "BlockGrad", "stop_gradient"),
    *("make_loss", "MakeLoss", "LinearRegressionOutput", "MAERegressionOutput"),
    *("IdentityAttachKLSparseReg", "_identity_with_attr_like_rhs"),
)
"""Operators that do nothing at inference."""

CONVERTERS: dict[str, Converter] = {
    **{f"broadcast_{name}": binary(function) for name, function in BINARY.items()},
    **{f"_npi_{name}": binary(BINARY[key]) for name, key in _NUMPY_NAMES.items()},
    **{f"_npi_{name}_scalar": scalar(BINARY[key]) for name, key in _NUMPY_NAMES.items()},
    **{f"_{name}": binary(BINARY[name]) for name in ("mod", "power", "maximum", "minimum")},
    **{f"_{name}_scalar": scalar(function) for name, function in BINARY.items()},
    **{f"__{name}_scalar__": scalar(BINARY[name]) for name in ("add", "sub", "mul", "div")},
    **{f"elemwise_{name}": binary(BINARY[name]) for name in ("add", "sub", "mul", "div")},
    **{f"_{name}": binary(BINARY[name]) for name in ("add", "sub", "mul", "div")},
    **{f"_{name}": binary(op.add) for name in ("plus", "Plus")},
    **{f"_{name}": binary(op.subtract) for name in ("minus", "Minus")},
    "_Mul": binary(op.multiply),
    "_Div": binary(op.divide),
    "broadcast_plus": binary(op.add),
    "broadcast_minus": binary(op.subtract),
    "_plus_scalar": scalar(op.add),
    "_minus_scalar": scalar(op.subtract),
    "__pow_scalar__": scalar(op.power),
    **{f"_{name}_scalar": scalar(op.subtract, True) for name in ("rminus", "npi_rsubtract")},
    **{f"_{name}_scalar": scalar(op.divide, True) for name in ("rdiv",)},
    **{f"_{name}_scalar": scalar(op.power, True) for name in ("rpower", "npi_rpower")},
    **{f"_{name}_scalar": scalar(_floor_mod, True) for name in ("rmod", "npi_rmod")},
    "__rsub_scalar__": scalar(op.subtract, True),
    "__rdiv_scalar__": scalar(op.divide, True),
    "__rpow_scalar__": scalar(op.power, True),
    "_npi_true_divide": binary(_true_divide),
    "_npi_true_divide_scalar": scalar(_true_divide),
    "_npi_rtrue_divide_scalar": scalar(_true_divide, True),
    **{f"broadcast_{name}": _comparison(function) for name, function in _COMPARISONS.items()},
    **{f"_{name}": _comparison(function) for name, function in _COMPARISONS.items()},
    **{f"_{name}_scalar": _comparison(function) for name, function in _COMPARISONS.items()},
    **{
        f"_npi_{name.replace('lesser', 'less')}{suffix}": _comparison(function)
        for name, function in _COMPARISONS.items()
        for suffix in ("", "_scalar")
    },
    **{
        f"{prefix}logical_{name}": _comparison(function, logical=True)
        for name, function in (
            ("and", op.logical_and),
            ("or", op.logical_or),
            ("xor", op.logical_xor),
        )
        for prefix in ("broadcast_", "_", "_npi_")
    },
    **dict.fromkeys(("logical_not", "_npi_logical_not"), logical_not),
    **{name: _unary(function) for name, function in UNARY.items()},
    **{f"_npi_{name}": _unary(function) for name, function in UNARY.items() if name != "abs"},
    "_npi_absolute": _unary(op.abs),
    "_npx_relu": _unary(op.nn.relu),
    "_npx_sigmoid": _unary(op.sigmoid),
    "cbrt": _root(1 / 3),
    "rcbrt": _root(-1 / 3),
    "log2": _logarithm(2.0),
    "log10": _logarithm(10.0),
    "log1p": lambda node: op.log(op.add(node[0], node.scalar(1.0))),
    "expm1": lambda node: op.subtract(op.exp(node[0]), node.scalar(1.0)),
    "reciprocal": lambda node: op.divide(node.scalar(1.0), node[0]),
    "degrees": lambda node: op.multiply(node[0], node.scalar(180 / math.pi)),
    "radians": lambda node: op.multiply(node[0], node.scalar(math.pi / 180)),
    "round": round_away,
    "rint": lambda node: op.ceil(op.subtract(node[0], node.scalar(0.5))),
    **dict.fromkeys(("add_n", "ElementWiseSum"), add_n),
    **{name: cast for name in ("Cast", "cast", "amp_cast")},
    "amp_multicast": amp_multicast,
    "clip": clip,
    "smooth_l1": smooth_l1,
    **dict.fromkeys(("where", "_npi_where"), where),
    "_npi_where_rscalar": where_scalar,
    **{name: identity for name in _IDENTITIES},
    **dict.fromkeys(("Dropout", "_npx_dropout"), dropout),
    "LogisticRegressionOutput": _unary(op.sigmoid),
}
