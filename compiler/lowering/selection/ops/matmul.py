"""Lower matmul to an implementation of the schedule library."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tvm import relax, te, tirx
from tvm.ir import GenericConst, Op
from tvm.target import Target

from schedules.matmul import BatchMatmulWorkload, DenseWorkload, Operand
from schedules.x86.machine.dot_product import OF_BYTES, narrow_steps
from schedules.x86.matmul import dense
from schedules.x86.reduction import row_kernels

from ....ir.constants import array_of, constant, static_shape
from ..context import LoweringContext
from ..fp16_weights import narrowed
from ..weight_packing import pack
from .conv2d import operand_types


def lower_matmul(call: relax.Call, at: LoweringContext) -> relax.Expr | None:
    """The chosen implementation of a relax.matmul as a call of a TIR function, not yet emitted.

    A `permute_dims` before an operand is not executed: a constant is packed from the permuted
    array, anything else is read through the permutation. Returns None when the library has no
    implementation for this product on this target, e.g. for integers, vectors or dynamic shapes.
    """
    described = (
        _recorded_stack(at, call) or describe(at.builder, call) or _describe_rows(at.builder, call)
    )
    if described is None:
        return None
    workload = _with_narrow(described, at.target)
    operator = "nn.dense" if isinstance(workload, DenseWorkload) else "nn.batch_matmul"
    chosen = at.choose(operator, workload)
    if chosen is None:
        return None
    shorter = _with_short_weights(at, described) if chosen[1].is_fallback else None
    if shorter is not None:
        described, workload = shorter, shorter.workload
        chosen = at.choose(operator, workload)
        assert chosen is not None, "weights are only made short for what multiplies by them"
    impl, config = chosen
    if described.any_rows and impl.name != dense.PACKED:
        return None
    rhs = described.rhs
    pack_weight = impl.pack
    if pack_weight is not None:

        def packed(ops: Any, array: Any) -> Any:
            permuted = ops.transpose(array, described.rhs_axes)
            return pack_weight(ops, ops.reshape(permuted, (workload.k, workload.n)), config)

        alike = (impl.name, repr(config.knobs), described.rhs_axes, workload.k, workload.n)
        rhs = pack(at.builder, rhs, packed, alike)
    return at.call(
        "matmul",
        lambda x, w: impl.compute(_over_rows(described, x), config, x, w),
        described.lhs,
        rhs,
        operators=operator,
    )


@dataclass(frozen=True)
class Described:
    """A matmul as a workload, and its operands."""

    workload: DenseWorkload | BatchMatmulWorkload
    lhs: relax.Expr
    rhs: relax.Expr
    rhs_axes: tuple[int, ...]  # the right operand is permute_dims(rhs, rhs_axes)
    any_rows: bool = False  # dynamic number of rows: the workload has `NOMINAL_ROWS`


def _with_narrow(described: Described, target: Target) -> DenseWorkload | BatchMatmulWorkload:
    """The workload, with the number of steps by its constant weights that fit int16."""
    workload, weights = described.workload, array_of(described.rhs)
    if weights is None or not isinstance(workload, DenseWorkload):
        return workload
    if not OF_BYTES.takes(workload.dtype, workload.rhs_dtype, workload.out_dtype):
        return workload
    columns = weights.transpose(described.rhs_axes).reshape(workload.k, workload.n).T
    return replace(workload, narrow=narrow_steps(columns, target))


def _with_short_weights(at: LoweringContext, described: Described) -> Described | None:
    """The matmul with float16 weights, where a float32 layer is faster with them."""
    workload, weights = described.workload, array_of(described.rhs)
    if weights is None or described.any_rows or not isinstance(workload, DenseWorkload):
        return None
    if not dense.is_float(workload) or workload.dtype != "float32":
        return None
    short = narrowed(weights, workload, at.target, at.may_round)
    if short is None:
        return None
    workload = replace(workload, rhs_dtype=str(short.dtype))
    return replace(described, workload=workload, rhs=constant(short))


def _describe_rows(builder: relax.BlockBuilder, call: relax.Call) -> Described | None:
    """A dense layer with constant weights over any number of rows; None for anything else."""
    right_shape = static_shape(call.args[1])
    shape = call.args[0].ty.shape
    if right_shape is None or len(right_shape) != 2 or 0 in right_shape:
        return None
    if not isinstance(shape, relax.ShapeExpr) or len(shape.values) < 2:
        return None
    depth = shape.values[-1]
    right, axes = _permuted(builder, call.args[1])
    if not isinstance(depth, tirx.IntImm) or not isinstance(right, GenericConst):
        return None
    dtype, rhs_dtype = operand_types(call)
    rows = (row_kernels.NOMINAL_ROWS,)
    columns, out_dtype = right_shape[-1], str(call.ty.dtype)
    workload = DenseWorkload(rows, columns, int(depth), dtype, out_dtype, rhs_dtype=rhs_dtype)
    return Described(workload, call.args[0], right, axes, any_rows=True)


def _over_rows(described: Described, x: te.Tensor) -> DenseWorkload | BatchMatmulWorkload:
    """The workload, with the leading dimensions of `x` where these are not numbers."""
    workload = described.workload
    if described.any_rows and isinstance(workload, DenseWorkload):
        return replace(workload, lead=tuple(x.shape[:-1]))
    return workload


def describe(builder: relax.BlockBuilder, call: relax.Call) -> Described | None:
    """The workload of a matmul call; None for forms that no implementation takes."""
    left_shape, right_shape = (static_shape(arg) for arg in call.args)
    if left_shape is None or right_shape is None:
        return None
    if min(len(left_shape), len(right_shape)) < 2 or 0 in left_shape + right_shape:
        return None
    dtype, rhs_dtype = operand_types(call)
    out_dtype = str(call.ty.dtype)
    lhs, rhs = call.args
    right, axes = _permuted(builder, rhs)
    if math.prod(right_shape[:-2]) == 1 and len(right_shape) <= len(left_shape):
        columns, k = right_shape[-1], left_shape[-1]
        if isinstance(right, GenericConst):
            dense = DenseWorkload(
                left_shape[:-1], columns, k, dtype, out_dtype, rhs_dtype=rhs_dtype
            )
            return Described(dense, lhs, right, axes)
        right, operand = _readable(rhs, right, axes)
        dense = DenseWorkload(
            left_shape[:-1], columns, k, dtype, out_dtype, operand, rhs_dtype=rhs_dtype
        )
        return Described(dense, lhs, right, operand.axes)
    left, left_operand = _readable(lhs, *_permuted(builder, lhs))
    if out_dtype == "int32" and not left_operand.contiguous_columns:  # steps of several bytes
        left, left_operand = lhs, Operand.plain(left_shape)
    right, operand = _readable(rhs, right, axes)
    stack = BatchMatmulWorkload(left_operand, operand, dtype, out_dtype, rhs_dtype)
    return Described(stack, left, right, operand.axes)


def _recorded_stack(at: LoweringContext, call: relax.Call) -> Described | None:
    """Stacks of one matrix each, if a record has them as a batch_matmul; else a dense layer."""
    shapes = [static_shape(arg) for arg in call.args]
    if at.query is None or any(shape is None or len(shape) != 3 for shape in shapes):
        return None
    if isinstance(call.args[1], GenericConst):
        return None
    dtype, rhs_dtype = operand_types(call)
    left, left_operand = _readable(call.args[0], *_permuted(at.builder, call.args[0]))
    right, operand = _readable(call.args[1], *_permuted(at.builder, call.args[1]))
    out_dtype = str(call.ty.dtype)
    stack = BatchMatmulWorkload(left_operand, operand, dtype, out_dtype, rhs_dtype)
    if math.prod(stack.batch) != 1:
        return None
    chosen = at.choose("nn.batch_matmul", stack)
    if chosen is None or chosen[1].is_fallback:
        return None
    return Described(stack, left, right, operand.axes)


def _readable(
    plain: relax.Expr, tensor: relax.Expr, axes: tuple[int, ...]
) -> tuple[relax.Expr, Operand]:
    """`tensor` read through `axes` if rows or columns stay contiguous, else `plain`."""
    operand = Operand(_shape(tensor), axes)
    if operand.contiguous_columns or operand.contiguous_rows:
        return tensor, operand
    return plain, Operand.plain(_shape(plain))


def _permuted(builder: relax.BlockBuilder, expr: relax.Expr) -> tuple[relax.Expr, tuple[int, ...]]:
    """(tensor, axes) with expr = permute_dims(tensor, axes)."""
    rank = len(_shape(expr))
    axes = tuple(range(rank))
    while True:
        value = builder.lookup_binding(expr) if isinstance(expr, relax.Var) else expr
        if isinstance(value, relax.Var):
            expr = value
        elif isinstance(value, GenericConst):
            return value, axes
        elif isinstance(value, relax.Call) and value.op == Op.get("relax.permute_dims"):
            inner = value.attrs.axes
            inner = tuple(reversed(range(rank))) if inner is None else tuple(map(int, inner))
            axes = tuple(inner[axis] for axis in axes)
            expr = value.args[0]
        else:
            return expr, axes


def _shape(expr: relax.Expr) -> tuple[int, ...]:
    shape = static_shape(expr)
    assert shape is not None, "describe() takes static shapes alone"
    return shape
