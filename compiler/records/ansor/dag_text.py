"""Prints a compute DAG the way Ansor did before it took the MD5 of the text as a workload's key.

    p0 = PLACEHOLDER
    pad_temp(i0, i1, i2, i3) = Op(tir.if_then_else)
    p1 = PLACEHOLDER
    conv2d_nhwc(nn, yy, xx, ff) += (pad_temp[nn, (yy + ry), (xx + rx), rc]*p1[ry, rx, rc, ff])

Names of operators, axes and placeholders are part of it; they changed between TVM's releases, see
`tvm_versions.py`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call, TensorLoad

from ...errors import RecordError
from .dag import ComputeDag, Operation

_INFIX = {
    "Add": ("(", " + ", ")"), "Sub": ("(", " - ", ")"), "Mul": ("(", "*", ")"),
    "Div": ("(", "/", ")"), "Mod": ("(", " % ", ")"),
    "EQ": ("(", " == ", ")"), "NE": ("(", " != ", ")"), "LT": ("(", " < ", ")"),
    "LE": ("(", " <= ", ")"), "GT": ("(", " > ", ")"), "GE": ("(", " >= ", ")"),
    "And": ("(", " && ", ")"), "Or": ("(", " || ", ")"),
    "FloorDiv": ("floordiv(", ", ", ")"), "FloorMod": ("floormod(", ", ", ")"),
    "Min": ("min(", ", ", ")"), "Max": ("max(", ", ", ")"),
}  # fmt: skip
# What was an intrinsic once, and is an operator today.
_ONCE_INTRINSIC = {
    "LShift": "shift_left", "RShift": "shift_right",
    "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
}  # fmt: skip
_REDUCTIONS = {"Add": "+=", "Max": "max=", "Min": "min="}


@dataclass(frozen=True)
class Names:
    """Names of DAG parts in a TVM version."""

    # Operation, and its number among the placeholders (-1 for a compute), to its name
    operation: Callable[[Operation, int], str]
    # Operation to the names of its axes, spatial ones first
    axes: Callable[[Operation], tuple[str, ...]]
    bounds_last: bool = False  # whether element-wise minima and maxima name a constant second


def dag_text(dag: ComputeDag, names: Names, texts: Mapping[str, str] | None = None) -> str:
    """The text that Ansor hashed.

    `texts`: right-hand sides to print as they are, by operation; "@" is its first operand, "@1" for
    its second. Raises RecordError: an expression that Ansor's printer did not have.
    """
    called: dict[Operation, str] = {}
    numbers = operand_numbers(dag)
    lines = []
    for op in dag.operations:
        called[op] = names.operation(op, numbers.get(op, -1))
        if op.is_placeholder:
            lines.append(f"{called[op]} = PLACEHOLDER \n")
            continue
        if op.is_reduction and op.base_name.endswith("_red"):
            called[op] = f"{called[op.producers[0]]}_red"  # TOPI named it after what it reduces
        axes = names.axes(op)
        text = (texts or {}).get(op.base_name)
        if text is None and not op.producers:
            text = _constant_text(op, axes)
        elif text is None:
            printer = _Printer(
                {axis.var: name for axis, name in zip(op.axes, axes, strict=True)},
                [(producer.buffer, called[producer]) for producer in op.producers],
            )
            bounds_last = names.bounds_last and op.base_name in ("T_minimum", "T_maximum")
            text = printer.assignment(op, bounds_last)
        elif op.producers:
            if "@1" in text:
                text = text.replace("@1", called[op.producers[1]])
            text = text.replace("@", called[op.producers[0]])
        spatial = ", ".join(n for n, axis in zip(axes, op.axes) if not axis.is_reduction)
        lines.append(f"{called[op]}({spatial}) {text}\n")
    return "".join(lines)


@functools.lru_cache(maxsize=64)
def _constant_text(op: Operation, axes: tuple[str, ...]) -> str:
    """Text of a constant table, as in Winograd; the same in all TVM versions."""
    return _Printer(dict(zip((axis.var for axis in op.axes), axes)), []).assignment(op)


def operand_numbers(dag: ComputeDag) -> dict[Operation, int]:
    """Relay's numbers of the operands: by the operator that reads them first."""
    numbers: dict[Operation, int] = {}
    for op in dag.operations:
        for producer in op.producers:
            if producer.is_placeholder:
                numbers.setdefault(producer, len(numbers))
    return numbers


def dag_hash(text: str) -> str:
    """First element of a workload key."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


class _Printer:
    def __init__(self, variables: Mapping[Any, str], buffers: list[tuple[Any, str]]) -> None:
        self.variables = variables
        self.buffers = buffers

    def assignment(self, op: Operation, bounds_last: bool = False) -> str:
        value = op.store.value
        if bounds_last and isinstance(value.a, tirx.FloatImm):
            value = type(value)(value.b, value.a)
        if op.is_reduction:
            sign = _REDUCTIONS.get(type(value).__name__)
            if sign is None:
                raise RecordError(f"{op.name} is a reduction that has no hash")
            return f"{sign} {self.expression(value.b)}"
        if isinstance(value, Call):
            return f"= Op(tir.{intrinsic_name(value)})"
        return f"= {self.expression(value)}"

    def expression(self, node: Any) -> str:
        kind = type(node).__name__
        if kind in _INFIX:
            start, between, end = _INFIX[kind]
            return f"{start}{self.expression(node.a)}{between}{self.expression(node.b)}{end}"
        if kind in _ONCE_INTRINSIC:
            operands = f"{self.expression(node.a)}, {self.expression(node.b)}"
            return f"tir.{_ONCE_INTRINSIC[kind]}({operands})"
        if isinstance(node, tirx.Var):
            return self.variables.get(node, str(node.name))
        if isinstance(node, tirx.IntImm):
            dtype = str(node.ty.dtype)
            return str(int(node)) if dtype in ("int32", "int64") else f"({dtype}){int(node)}"
        if isinstance(node, tirx.FloatImm):
            return _float(float(node.value), str(node.ty.dtype))
        if isinstance(node, TensorLoad):
            indices = ", ".join(map(self.expression, node.indices))
            return f"{self._buffer(node.source)}[{indices}]"
        if isinstance(node, Call):
            return f"tir.{intrinsic_name(node)}({', '.join(map(self.expression, node.args))})"
        if isinstance(node, tirx.Cast):
            return f"{node.ty.dtype}({self.expression(node.value)})"
        if isinstance(node, tirx.Select):
            parts = (node.condition, node.true_value, node.false_value)
            return f"select({', '.join(map(self.expression, parts))})"
        if isinstance(node, tirx.Not):
            return f"!{self.expression(node.a)}"
        raise RecordError(f"an expression of kind {kind} has no hash")

    def _buffer(self, buffer: Any) -> str:
        for known, name in self.buffers:
            if known.same_as(buffer):
                return name
        raise RecordError(f"{buffer.name} is read and is not a stage")


def intrinsic_name(call: Call) -> str:
    """An intrinsic's name without the namespace that it has today."""
    return str(call.op.name).rpartition(".")[2] if isinstance(call.op, tvm.ir.Op) else str(call.op)


def _float(value: float, dtype: str) -> str:
    """A number as a C++ stream prints it by default."""
    suffix = {"float32": "f", "float16": "h"}.get(dtype, "")
    return f"{value:.6g}{suffix}"
