"""Tensor expressions as trees that read tensors: finding the reads, and replacing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tvm_ffi
from tvm import te, tirx
from tvm.ir import Call, Op
from tvm.te import _ffi_api

from schedules.tir_visit import nodes_of

LOAD = Op.get("te.tensor_load")
# Attributes of operations: a hybrid function's loops, and the intrinsic that a compute calls.
LOOPS = "hybrid_loops"
INTRIN = "tensor_intrin"


def is_load(call: Call) -> bool:
    """Whether a call reads an element of a tensor."""
    return isinstance(call.op, Op) and call.op.same_as(LOAD)


def loops_of(op: Any) -> list[Any]:
    """The loops that an external operation was written with, if a hybrid function made it."""
    is_hybrid = isinstance(op, te.ExternOp) and LOOPS in op.attrs
    return list(op.attrs[LOOPS]) if is_hybrid else []


def loads(expr: Any) -> Iterator[tuple[Any, list[Any]]]:
    """(tensor, indices) of everything that an expression reads."""
    return ((c.args[0], list(c.args[1:])) for c in nodes_of(expr, Call) if is_load(c))


def map_loads(expr: Any, replace: Callable[[Any, list[Any]], Any | None]) -> Any:
    """An expression with reads replaced; `replace(tensor, indices)` gives None to keep one."""

    def visit(call: Call) -> Any:
        if is_load(call):
            new = replace(call.args[0], list(call.args[1:]))
            return call if new is None else new
        return call

    return tvm_ffi.structural_map(expr, (Call, visit))


def substitute(node: Any, values: dict[Any, Any]) -> Any:
    """`node` with variables replaced by the expressions that define them."""
    if not values:
        return node
    return tvm_ffi.structural_map(node, (tirx.Var, lambda var: values.get(var, var)))


def compute_op(
    name: str,
    axis: Sequence[Any],
    body: Sequence[Any],
    like: Any | None = None,
    calls_intrin: bool = True,
) -> Any:
    """A compute operation, with the tag and attributes of another, or but its intrinsic."""
    tag, attrs = (str(like.tag), dict(like.attrs)) if like is not None else ("", {})
    if not calls_intrin:
        attrs.pop(INTRIN, None)
    return _ffi_api.ComputeOp(name, tag, attrs, list(axis), list(body))


def read_elsewhere(op: Any, replace: Callable[[Any], Any | None]) -> Any | None:
    """The operation with other tensors read; None if it reads none of those replaced.

    `replace`: (tensor) -> the tensor to read instead, or None.
    """
    changed = False

    def replace_tensor(tensor: Any) -> Any:
        nonlocal changed
        new = replace(tensor)
        changed = changed or new is not None
        return tensor if new is None else new

    def replace_load(tensor: Any, indices: list[Any]) -> Any | None:
        new = replace_tensor(tensor)
        return None if new.same_as(tensor) else new(*indices)

    if isinstance(op, te.ComputeOp):
        if len(op.body) > 1 and isinstance(op.body[0], tirx.Reduce):
            # Reductions of a tuple share their sources; the outputs must go on sharing them.
            first = map_loads(op.body[0], replace_load)
            body = [reduction_of_tuple(first, index) for index in range(len(op.body))]
        else:
            body = [map_loads(value, replace_load) for value in op.body]
        new_op = compute_op(str(op.name), op.axis, body, op) if changed else None
    elif isinstance(op, te.ExternOp):
        inputs = [replace_tensor(tensor) for tensor in op.inputs]
        new_op = _ffi_api.ExternOp(
            op.name, op.tag, op.attrs, inputs, op.input_placeholders, op.output_placeholders,
            op.body,
        )  # fmt: skip
    elif isinstance(op, te.ScanOp):
        init, update = ([replace_tensor(t) for t in side] for side in (op.init, op.update))
        new_op = _ffi_api.ScanOp(
            op.name, op.tag, op.attrs, op.scan_axis, init, update, op.state_placeholder, op.inputs
        )  # fmt: skip
    else:
        new_op = None
    return new_op if changed else None


def reduction_of_tuple(reduce: Any, index: int) -> Any:
    """The `index`-th result of a reduction of several values."""
    return tirx.Reduce(
        reduce.combiner, reduce.source, reduce.axis, reduce.condition, index, reduce.init
    )


def combine(combiner: Any, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """The reducer's results for two groups of values."""
    values = dict(zip([*combiner.lhs, *combiner.rhs], [*left, *right]))
    return [substitute(result, values) for result in combiner.result]


def store_all(results: Sequence[Any], store: Any) -> Any:
    """Store several results, of which none may change before all are computed."""
    if len(results) == 1:
        return store(0, results[0])
    names = [tirx.Var(f"result{i}", str(value.ty.dtype)) for i, value in enumerate(results)]
    bindings = [tirx.Bind(name, value) for name, value in zip(names, results)]
    return sequence([*bindings, *(store(i, name) for i, name in enumerate(names))])


def sequence(statements: Sequence[Any]) -> Any:
    """Statements one after the other."""
    if not statements:
        return tirx.Evaluate(0)
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def strides_of(buffer: Any) -> list[Any]:
    """The strides of a buffer in elements; of one without, those of a compact array."""
    if len(buffer.strides):
        return list(buffer.strides)
    strides: list[Any] = []
    stride: Any = tirx.const(1, "int32")
    for extent in reversed(list(buffer.shape)):
        strides.insert(0, stride)
        stride = stride * extent
    return strides
