"""Builds a function anew from a DAG, with some operations replaced.

The new ones are tensor expressions, as TOPI wrote what Ansor tuned; others keep theirs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import te, tirx
from tvm.ir import Call, TensorLoad

from ...errors import RecordError
from .dag import Axis, ComputeDag, Operation, read_dag
from .packing import Packing

_REDUCERS: dict[str, Callable[..., Any]] = {"Add": te.sum, "Max": te.max, "Min": te.min}


@dataclass
class Replacement:
    """Replacement of one operation, and possibly of some of its producers."""

    # From a function that gives the tensor of any operation before, to the new tensor
    build: Callable[[Callable[[Operation], Any]], Any]
    # Placeholders that it wants in another form
    packings: Mapping[Operation, Packing] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """One form of a kernel's compute."""

    dag: ComputeDag
    # For each input of its function, the kernel's parameter it is made from
    operands: tuple[tuple[int, Packing], ...]
    # Right-hand sides of stages whose expression TVM once simplified otherwise, by name
    texts: Mapping[str, str] = field(default_factory=dict)


def unchanged(dag: ComputeDag) -> Candidate:
    """The DAG as it is."""
    count = len(dag.func.params) - len(dag.outputs)
    return Candidate(dag, tuple((index, Packing()) for index in range(count)))


def rebuild(
    dag: ComputeDag,
    replaced: Mapping[Operation, Replacement],
    shapes: Mapping[Operation, tuple[int, ...]],
) -> Candidate:
    """Build the function with some operations replaced.

    `replaced`: by the operation that they take the place of; what is read no more disappears.
    `shapes`: new shapes of placeholders, with the same elements in the same order, one rank for
    another. Raises RecordError: an operation that tensor expressions can't say.
    """
    tensors: dict[Operation, Any] = {}
    made: list[tuple[Operation, Any, Packing]] = []

    def tensor_of(op: Operation) -> Any:
        if op not in tensors:
            if op.is_placeholder:
                tensors[op] = _placeholder(op)
            elif op in replaced:
                tensors[op] = replaced[op].build(tensor_of)
            else:
                tensors[op] = compute(op, {p: tensor_of(p) for p in op.producers}, shapes)
        return tensors[op]

    def _placeholder(op: Operation) -> Any:
        shape, packing = shapes.get(op), Packing()
        if shape is not None:
            packing = packing.then(("reshape", list(shape)))
        for replacement in replaced.values():
            packing = replacement.packings.get(op, packing)
        packed = _packed_shape(op.shape, packing)
        tensor = te.placeholder(packed, str(op.buffer.dtype), op.name)
        made.append((op, tensor, packing))
        return tensor

    if any("int64" in str(op.buffer.dtype) for op in dag.operations):
        raise RecordError("operands of 64-bit integers")
    outputs = [tensor_of(op) for op in dag.outputs]
    positions = dict(zip(dag.inputs, dag.input_positions()))
    made.sort(key=lambda entry: positions[entry[0]])
    func = te.create_prim_func([*(tensor for _, tensor, _ in made), *outputs])
    operands = tuple((positions[op], packing) for op, _, packing in made)
    return Candidate(read_dag(func), operands)


def _packed_shape(shape: Sequence[int], packing: Packing) -> tuple[int, ...]:
    dims = list(shape)
    for kind, *operands in packing.steps:
        if kind == "transpose":
            dims = [dims[axis] for axis in operands[0]]
        elif kind == "reshape":
            dims = list(operands[0])
        else:
            dims[operands[1]] = len(operands[0])
    return tuple(dims)


def compute(
    op: Operation,
    producers: Mapping[Operation, Any],
    shapes: Mapping[Operation, tuple[int, ...]],
    name: str = "",
    expression: Callable[[Mapping[Any, Any]], Any] | None = None,
) -> Any:
    """An operation as a tensor expression.

    `shapes`: of placeholders among them that have other ones now. `name`: if not its own.
    `expression`: from its variables to what it computes, if not its own expression.
    """
    spatial = [axis for axis in op.axes if not axis.is_reduction]
    reduced = [axis for axis in op.axes if axis.is_reduction]
    axes = [te.reduce_axis((0, axis.extent), axis.name) for axis in reduced]

    def body(*variables: Any) -> Any:
        values = {axis.var: var for axis, var in zip(spatial, variables)}
        values |= {axis.var: own.var for axis, own in zip(reduced, axes)}
        value = op.store.value
        if expression is not None:
            return expression(values)
        if not reduced:
            return translate(value, values, producers, shapes, spatial)
        reducer = _REDUCERS.get(type(value).__name__)
        if reducer is None:
            raise RecordError(f"{op.name} is a reduction of an unknown kind")
        return reducer(translate(value.b, values, producers, shapes), axes)

    # The axes of a compute are named after the function's arguments.
    named = _with_names(body, [axis.name for axis in spatial]) if spatial else body
    return te.compute(op.shape, named, name or op.base_name)


def _with_names(body: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """The function as if it had these arguments; te.compute reads them off its signature."""

    def named(*variables: Any) -> Any:
        return body(*variables)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    named.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in names]
    )
    return named


def translate(
    value: Any,
    variables: Mapping[Any, Any],
    producers: Mapping[Operation, Any],
    shapes: Mapping[Operation, tuple[int, ...]],
    axes: Sequence[Axis] = (),
) -> Any:
    """A block's expression in TE, with 32-bit indices; RecordError if TE lacks a part of it."""

    def walk(node: Any) -> Any:
        if isinstance(node, tirx.Var):
            return variables[node]
        if isinstance(node, tirx.IntImm):
            dtype = str(node.ty.dtype)
            return tirx.const(int(node), "int32" if dtype == "int64" else dtype)
        if isinstance(node, tirx.FloatImm):
            return node
        if isinstance(node, TensorLoad):
            return load(node)
        if isinstance(node, Call):
            return Call(node.op, [walk(arg) for arg in node.args], node.attrs, ret_ty=node.ty)
        if isinstance(node, tirx.Cast):
            return tirx.Cast(node.ty.dtype, walk(node.value))
        if isinstance(node, tirx.Select):
            return tirx.Select(walk(node.condition), walk(node.true_value), walk(node.false_value))
        if isinstance(node, tirx.Not):
            return tirx.Not(walk(node.a))
        if hasattr(node, "a") and hasattr(node, "b"):
            return type(node)(walk(node.a), walk(node.b))
        raise RecordError(f"an expression of kind {type(node).__name__} can't be rebuilt")

    def load(node: TensorLoad) -> Any:
        for op, tensor in producers.items():
            if op.buffer.same_as(node.source):
                indices = [walk(index) for index in node.indices]
                own = [(variables[axis.var], axis.extent) for axis in axes]
                return tensor(*_indices(indices, op, shapes.get(op), own))
        raise RecordError(f"{node.source.name} is read and is not a stage")

    return walk(value)


def _indices(
    indices: list[Any], op: Operation, shape: tuple[int, ...] | None, own: list[tuple[Any, int]]
) -> list[Any]:
    """Indices into a placeholder that got leading dimensions of extent 1.

    Where the reader has extent 1 itself, nothing is broadcast, and its own variable is the index.
    """
    if shape is None:
        return indices
    added = own[: len(shape) - len(op.shape)]
    return [var if extent == 1 else 0 for var, extent in added] + indices
