"""Operator facts: the record of one operator and the table of all records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tvm

from ..rewrite import operator_name

if TYPE_CHECKING:
    import numpy as np
    from tvm import relax

    from .index_rules import Bounds
    from .shape_rules import ShapeConstraint

UNARY = "unary"
"""Elementwise on one tensor; further operands are scalars."""
BINARY = "binary"
"""Elementwise on two tensors that broadcast."""
PREDICATE = "predicate"
"""Elementwise with a boolean result."""
POOL, REDUCTION = "pool", "reduction"
CONVOLUTION, TRANSPOSED_CONVOLUTION = "convolution", "transposed convolution"
RESHAPE = "reshape"
"""Keeps every element at its position in memory."""
TRANSPOSE, CONCAT, SCATTER, OTHER = "transpose", "concat", "scatter", "other"

FOLLOWS, IN_FLOAT32, SUMS_IN_FLOAT32 = "follows", "float32", "sums in float32"
"""How operators on float16 and bfloat16 are computed.

`FOLLOWS`: in float32 next to operators that need it. `IN_FLOAT32`: always in float32 on CPUs.
`SUMS_IN_FLOAT32`: as that, and with casts inside of the kernel on other targets.
"""

POINTWISE, WINDOW = "pointwise", "window"
"""How a result depends on batch elements; otherwise the attribute that names the reduced axes."""


@dataclass(frozen=True)
class Forbidden:
    """Values that an integer operand must not have."""

    operand: int  # argument number
    values: tuple[int, ...]
    message: str
    kind: str = "DivisionByZeroError"  # error class, as `compiler.runtime.executor` registers it


def nonzero_rejected(message: str) -> Forbidden:
    """Raise InputError with this message where operand 1, an array of flags, has a 1."""
    return Forbidden(1, (1,), message, "InputError")


@dataclass(frozen=True)
class OpFacts:
    """Properties of one Relax operator that passes read."""

    name: str  # without "relax."; operators of Baton's own are named "relay.<name>"
    kind: str = OTHER  # `UNARY` to `OTHER`: how layouts and batches pass through
    relay_name: str = ""  # Relay's name
    # `FOLLOWS`, `IN_FLOAT32` or `SUMS_IN_FLOAT32`; "" to compute in the operands' dtype
    half: str = ""
    # `POINTWISE`, `WINDOW`, or the attribute that names axes; "" if batch elements may mix
    batch: str = ""
    unbounded: bool = False  # whether finite operands may give infinities or NaNs
    selects: bool = False  # whether each element of the result is an element of the first operand
    # Whether no magnitude in the result exceeds the largest one in the first operand
    bounded: bool = False
    bound: float = math.inf  # the largest magnitude in the result, whatever the operands are
    homogeneous: bool = False  # whether f(s x) = s f(x) for every positive s
    sums_products: bool = False  # whether the result is zero if an operand has no elements
    # "quotient" or "remainder" for operators with a divisor, which is the second operand
    division: str = ""
    # Compute the result with numpy from the call and its operands; None to leave the call
    evaluate: Callable[[relax.Call, list[np.ndarray]], Any] | None = None
    any_dtype: bool = False  # whether `evaluate` also takes dtypes that numpy lacks
    # Constraints on the extents of a call's operands
    shapes: Callable[[relax.Call], Iterator[ShapeConstraint]] | None = None
    # Bounds on operands that are indices or lengths
    indices: Callable[[relax.Call], list[Bounds]] | None = None
    indices_of: str = ""  # operator that errors about indices name, where it is another one
    forbidden: Forbidden | None = None
    # ONNX operator with the same operands and no attributes; "domain::Name" if not ONNX's own
    onnx: str = ""

    def call(self, operands: Sequence[relax.Expr]) -> relax.Call:
        """A call of the operator without attributes."""
        if self.name.startswith("relay."):
            attrs = tvm.ir.make_node("ir.DictAttrs")
            return tvm.ir.Call(tvm.ir.Op.get(self.name), list(operands), attrs)
        return tvm.ir.Call(tvm.ir.Op.get(f"relax.{self.name}"), list(operands))

    @property
    def is_elementwise(self) -> bool:
        """Whether it computes numbers element by element."""
        return self.kind in (UNARY, BINARY)

    @property
    def keeps_values(self) -> bool:
        """Whether it only rearranges elements: a reshape, transpose or concatenation."""
        return self.kind in (RESHAPE, TRANSPOSE, CONCAT)


_OF_KIND: dict[str, dict[str, Any]] = {
    UNARY: {"batch": POINTWISE, "half": FOLLOWS},
    BINARY: {"batch": POINTWISE, "half": FOLLOWS},
    PREDICATE: {"batch": POINTWISE},
    POOL: {"batch": WINDOW, "half": SUMS_IN_FLOAT32},
    REDUCTION: {"batch": "axis", "half": SUMS_IN_FLOAT32},
    CONVOLUTION: {"batch": WINDOW, "half": IN_FLOAT32, "sums_products": True},
    TRANSPOSED_CONVOLUTION: {"batch": WINDOW, "half": IN_FLOAT32, "sums_products": True},
    RESHAPE: {"half": FOLLOWS, "selects": True, "any_dtype": True},
    TRANSPOSE: {"half": FOLLOWS, "selects": True, "any_dtype": True},
    CONCAT: {"half": FOLLOWS},
}
"""Facts of an operator that follow from its kind unless they are declared."""

_UNKNOWN = OpFacts("")
_BY_NAME: dict[str, OpFacts] = {}
_BY_RELAY_NAME: dict[str, OpFacts] = {}


def declare(name: str, kind: str = OTHER, **facts: Any) -> None:
    """Declare an operator without "relax."; `facts` default to what is usual for the kind."""
    facts = {"relay_name": name, **_OF_KIND.get(kind, {}), **facts}
    record = OpFacts(name, kind, **facts)
    _BY_NAME[name] = _BY_RELAY_NAME[record.relay_name] = record


def withdraw(name: str) -> None:
    _BY_RELAY_NAME.pop(_BY_NAME.pop(name, _UNKNOWN).relay_name, None)


def facts_named(name: str) -> OpFacts:
    """Facts of an operator by Relax's name without "relax."; empty facts if it is not declared."""
    return _BY_NAME.get(name, _UNKNOWN)


def facts_of(expr: Any) -> OpFacts:
    """Facts of the operator that `expr` calls; empty facts for any other expression."""
    return _BY_NAME.get(operator_name(expr), _UNKNOWN)


def facts_in_relay(name: str) -> OpFacts:
    """Facts of an operator by Relay's name."""
    return _BY_RELAY_NAME.get(name, _UNKNOWN)


def facts_in_onnx(name: str) -> OpFacts:
    """Facts of the operator that an ONNX operator without attributes becomes."""
    return next((each for each in _BY_NAME.values() if each.onnx == name), _UNKNOWN)


def all_facts() -> list[OpFacts]:
    return list(_BY_NAME.values())
