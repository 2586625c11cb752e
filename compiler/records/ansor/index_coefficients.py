"""How an operation reads its operands: offsets and strides of its indices."""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx
from tvm.ir import TensorLoad

from schedules.generic.stages import substitute
from schedules.tir_visit import nodes_of

from .dag import Axis, Operation


def index_of(op: Operation, producer: Operation) -> list[Any]:
    """Indices of the first load of a producer."""
    loads = nodes_of(op.store.value, TensorLoad)
    return next(list(load.indices) for load in loads if load.source.same_as(producer.buffer))


def coefficient(op: Operation, index: Any, axis: Axis) -> int | None:
    """Coefficient of an axis in an index, from axis 0 to 1 with all others 0; None if unknown."""
    first = substitute(index, [(other.var, _number(0, other.var)) for other in op.axes])
    ones = [(other.var, _number(int(other is axis), other.var)) for other in op.axes]
    second = substitute(index, ones)
    grown = sym.Analyzer().simplify(second - first)
    return int(grown) if isinstance(grown, tirx.IntImm) else None


def offset(op: Operation, index: Any) -> int | None:
    """An index where all axes are 0; None if that is not a number."""
    zeros = [(axis.var, _number(0, axis.var)) for axis in op.axes]
    value = sym.Analyzer().simplify(substitute(index, zeros))
    return int(value) if isinstance(value, tirx.IntImm) else None


def _number(value: int, var: Any) -> Any:
    return tirx.const(value, str(var.ty.dtype))
