"""An unscheduled function as plain data, which a process without TVM can evaluate.

    {"tensors": [{"shape", "dtype"}, ...],             operands first, in the order of parameters
     "stages": [{"tensor", "extents", "spatial", "combine", "init", "value"}, ...],
     "results": [tensor, ...]}

`extents` are those of a stage's axes, the first `spatial` of which index what it writes. An
expression is ["int", dtype, value], ["float", value], ["axis", number], ["load", tensor, indices],
["cast", dtype, value], or [operator, dtype, operands]; see `sample.OPERATORS`.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad

from ...errors import RecordError
from ...records.ansor.dag import Operation, read_dag
from ...records.ansor.dag_text import intrinsic_name
from .reference_eval import COMBINERS, OPERATORS

Expr = list[Any]


def plan_of(func: tirx.PrimFunc) -> dict[str, Any]:
    """An unscheduled function as plain data. RecordError: unsupported stages or expressions."""
    dag = read_dag(func)
    params = list(func.params)
    stages = [op for op in dag.operations if not op.is_placeholder]
    results = {id(op): _index(params, op.buffer) for op in dag.outputs}
    inner = [op for op in stages if id(op) not in results]
    buffers = [*params, *(op.buffer for op in inner)]
    return {
        "tensors": [
            {"shape": [int(dim) for dim in buffer.shape], "dtype": str(buffer.dtype)}
            for buffer in buffers
        ],
        "stages": [_stage(op, buffers) for op in stages],
        "results": sorted(results.values()),
    }


def _stage(op: Operation, buffers: list[Any]) -> dict[str, Any]:
    store = op.store
    spatial = [axis.var for axis in op.axes if not axis.is_reduction]
    plain = len(store.indices) == len(spatial) and all(
        index.same_as(var) for index, var in zip(store.indices, spatial)
    )
    if op.axes and not plain:
        raise RecordError(f"{op.name} does not write along its own axes")
    expressions = _Expressions([axis.var for axis in op.axes], buffers)
    combine, init, value = "", None, store.value
    if op.is_reduction:
        combine = type(value).__name__
        own = isinstance(getattr(value, "a", None), TensorLoad) and value.a.source.same_as(
            op.buffer
        )
        if combine not in COMBINERS or not own or not isinstance(op.block.init, tirx.BufferStore):
            raise RecordError(f"{op.name} is a reduction of an unknown kind")
        init, value = expressions.of(op.block.init.value), value.b
    return {
        "tensor": _index(buffers, op.buffer),
        "extents": [axis.extent for axis in op.axes],
        "spatial": len(spatial),
        "combine": combine,
        "init": init,
        "value": expressions.of(value),
    }


class _Expressions:
    def __init__(self, axes: list[Any], buffers: list[Any]) -> None:
        self.axes = axes
        self.buffers = buffers

    def of(self, node: Any) -> Expr:
        if isinstance(node, tirx.IntImm):
            return ["int", str(node.ty.dtype), int(node)]
        if isinstance(node, tirx.FloatImm):
            return ["float", float(node.value)]
        if isinstance(node, tirx.Var):
            return ["axis", _index(self.axes, node)]
        if isinstance(node, TensorLoad):
            return ["load", _index(self.buffers, node.source), [*map(self.of, node.indices)]]
        dtype = str(node.ty.dtype)
        if isinstance(node, tirx.Cast):
            return ["cast", dtype, self.of(node.value)]
        if isinstance(node, Call):
            name, operands = intrinsic_name(node), list(node.args)
        elif isinstance(node, tirx.Select):
            name = "if_then_else"
            operands = [node.condition, node.true_value, node.false_value]
        elif isinstance(node, tirx.Not):
            name, operands = "Not", [node.a]
        else:
            name = type(node).__name__
            operands = [getattr(node, side, None) for side in ("a", "b")]
        if name not in OPERATORS or any(operand is None for operand in operands):
            raise RecordError(f"{name} has no meaning in a plan")
        return [name, dtype, *map(self.of, operands)]


def _index(known: list[Any], wanted: Any) -> int:
    for index, each in enumerate(known):
        if each.same_as(wanted):
            return index
    raise RecordError(f"{wanted.name} is not an operand, stage or axis")
