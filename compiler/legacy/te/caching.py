"""`cache_read` and `cache_write`: stages that hold a copy of a tensor in another memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tvm import sym, te, tirx
from tvm.ir import Range
from tvm.te import Tensor
from tvm.tirx import IterVar

from ...errors import ScheduleError
from .dataflow import compute_op, read_elsewhere, reduction_of_tuple, substitute
from .relations import like, overruns, pass_extents_down, pass_values_down, pass_values_up
from .stage import Stage

if TYPE_CHECKING:
    from .schedule import Schedule


def cache_read(schedule: Schedule, tensor: Any, scope: str, readers: Sequence[Any]) -> Any:
    """Insert a stage that copies `tensor`, and let `readers` read it."""
    source = schedule[tensor]
    index = int(tensor.value_index)
    suffix = f".v{index}" if source.op.num_outputs > 1 else ""
    axes = [_axis(f"ax{i}", extent) for i, extent in enumerate(tensor.shape)]
    body = tensor(*(axis.var for axis in axes))
    name = f"{source.name}{suffix}.{scope}"
    copy = compute_op(name, axes, [body]).output(0)

    def replace(other: Any) -> Any | None:
        is_it = int(other.value_index) == index and schedule[other] is source
        return copy if is_it else None

    for reader in readers:
        stage = schedule[reader]
        op = read_elsewhere(stage.op, replace)
        if op is None:
            raise ScheduleError(
                f"cache_read of {source.name} for stage {stage.name}: it doesn't read it"
            )
        schedule.replace_op(stage, op)
    added = Stage(copy.op)
    added.scope = scope
    added.group = source.group
    schedule.insert(added, schedule.index(source) + 1)
    return copy


def cache_write(schedule: Schedule, tensors: Sequence[Any], scope: str) -> list[Any]:
    """Insert a stage that computes in `scope` what the tensors' stage computed, and copy it."""
    stage = schedule[tensors[0]]
    if not all(isinstance(tensor, Tensor) and schedule[tensor] is stage for tensor in tensors):
        raise ScheduleError(
            f"cache_write of stage {stage.name}: the tensors are of several operations"
        )
    op = stage.op
    if isinstance(op, te.ExternOp):
        return _cache_write_extern(schedule, stage, scope)
    if not isinstance(op, te.ComputeOp):
        raise ScheduleError(
            f"cache_write of stage {stage.name}: only what is computed can be written to a cache"
        )
    if len(tensors) != op.num_outputs:
        raise ScheduleError(
            f"cache_write of stage {stage.name}: it has {op.num_outputs} outputs, which are "
            f"cached together, and {len(tensors)} were given"
        )
    stage.refuse_layout("cache_write")
    axes, values, conditions, places = _cache_axes(stage)
    body = [_guarded(substitute(value, values), conditions) for value in op.body]
    if len(body) > 1 and isinstance(body[0], tirx.Reduce):
        body = [reduction_of_tuple(body[0], index) for index in range(len(body))]
    computing = compute_op(f"{op.name}.{scope}", axes, body, op)
    copies = [computing.output(index)(*places) for index in range(op.num_outputs)]
    copy = compute_op(str(op.name), op.axis, copies, op, calls_intrin=False)
    _insert_writer(schedule, stage, computing, copy, scope)
    return [computing.output(index) for index in range(op.num_outputs)]


def _axis(name: str, extent: Any) -> Any:
    extent = extent if not isinstance(extent, int) else tirx.const(extent, "int32")
    return IterVar(Range(like(extent, 0), extent), name, IterVar.DataPar)


def _cache_axes(stage: Stage) -> tuple[list[Any], dict[Any, Any], list[Any], list[Any]]:
    """Axes of the cache, values of the stage's own axes on them, conditions, and the way back.

    The cache has an axis for each spatial loop of the stage, in their order.
    """
    analyzer = sym.Analyzer()
    extents = {axis.var: axis.dom.extent for axis in stage.op.axis}
    spatial = [r for r in stage.relations if _is_spatial(r)]
    pass_extents_down(spatial, extents, lambda _: False, analyzer)
    leaves = [leaf for leaf in stage.leaf_iter_vars if int(leaf.iter_type) != IterVar.CommReduce]
    axes = [_axis(f"{leaf.var.name}.c", extents[leaf.var]) for leaf in leaves]
    for axis in axes:
        analyzer.bind(axis.var, axis.dom)
    values = {leaf.var: axis.var for leaf, axis in zip(leaves, axes)}
    pass_values_up(spatial, extents, values)
    if not all(axis.var in values for axis in stage.op.axis):
        raise ScheduleError(
            f"cache_write of stage {stage.name}: a loop is fused of an axis and a reduction"
        )
    conditions = [condition for _, condition in overruns(spatial, extents, values, analyzer)]
    places: dict[Any, Any] = {axis.var: axis.var for axis in stage.op.axis}
    pass_values_down(spatial, extents, places)
    return axes, values, conditions, [places[leaf.var] for leaf in leaves]


def _is_spatial(relation: Any) -> bool:
    parent = next(
        getattr(relation, name) for name in ("parent", "fused", "iter") if hasattr(relation, name)
    )
    return int(parent.iter_type) != IterVar.CommReduce


def _guarded(value: Any, conditions: list[Any]) -> Any:
    """A value that is only computed where the conditions hold, as the cache may be larger."""
    if not conditions:
        return value
    condition = tirx.likely(tirx.all(*conditions) if len(conditions) > 1 else conditions[0])
    if isinstance(value, tirx.Reduce):
        return tirx.Reduce(
            value.combiner, value.source, value.axis, tirx.all(value.condition, condition),
            value.value_index, value.init,
        )  # fmt: skip
    zero = tirx.const(0, str(value.ty.dtype))
    return tirx.if_then_else(condition, value, zero)


def _cache_write_extern(schedule: Schedule, stage: Stage, scope: str) -> list[Any]:
    op = stage.op
    if op.num_outputs != 1:
        raise ScheduleError(
            f"cache_write of stage {stage.name}: an external operation needs one output"
        )
    from tvm.te import _ffi_api

    computing = _ffi_api.ExternOp(
        f"{op.name}.{scope}", op.tag, op.attrs, op.inputs, op.input_placeholders,
        op.output_placeholders, op.body,
    )  # fmt: skip
    result = computing.output(0)
    axes = [_axis(f"ax{i}", extent) for i, extent in enumerate(result.shape)]
    copy = compute_op(str(op.name), axes, [result(*(axis.var for axis in axes))])
    _insert_writer(schedule, stage, computing, copy, scope)
    return [result]


def _insert_writer(schedule: Schedule, stage: Stage, computing: Any, copy: Any, scope: str) -> None:
    added = Stage(computing)
    added.scope = scope
    added.group = stage.group
    schedule.insert(added, schedule.index(stage))
    schedule.replace_op(stage, copy)
    stage.reset_loops()
