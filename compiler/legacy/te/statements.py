"""Loops and stores of a schedule: one statement of TIR out of its stages.

for every stage at the root, in order:
  allocate its buffer
  for its loops:
    allocate and compute the stages attached here
    ...
      if the iteration counts: store
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import te, tirx
from tvm.ir import Call, Range
from tvm.tirx import IterVar

from schedules.tir_visit import serial

from ...errors import ScheduleError
from ...primfuncs.query import replace_loop
from .bounds import VIRTUAL_THREADS, Bounds
from .crossthread import cross_thread_reduction, reduces_across_threads
from .dataflow import (
    combine,
    is_load,
    loops_of,
    map_loads,
    sequence,
    store_all,
    strides_of,
    substitute,
)
from .hybrid.loops import scheduled
from .relations import constant, like, roots_of
from .stage import Stage
from .tensorize import tensorized, tensorized_loop

_KINDS = {
    IterVar.Unrolled: tirx.ForKind.UNROLLED,
    IterVar.Vectorized: tirx.ForKind.VECTORIZED,
    IterVar.Parallelized: tirx.ForKind.PARALLEL,
}


class Statements:
    """Makes the statements of a schedule.

    `arguments`: buffers that the caller gives, for the outputs of stages.
    """

    def __init__(self, bounds: Bounds, arguments: dict[tuple[Stage, int], Any]) -> None:
        self.bounds = bounds
        self.schedule = bounds.schedule
        self._buffers = dict(arguments)
        self._bases: dict[Stage, list[Any]] = {}
        self._attached: dict[tuple[Stage, Any], list[Stage]] = {}
        self._at_root: list[Stage] = []
        self._given = set(arguments)
        self._scans = self._alias_scans()

    def make(self) -> Any:
        """The statement that computes all outputs."""
        for stage in self.bounds.computed:
            _, around, loop = stage.place()
            if around is None:
                self._at_root.append(stage)
            else:
                self._attached.setdefault((around, loop.var), []).append(stage)
        return sequence([s for stage in self._at_root for s in self._produce(stage)])

    # --- buffers -------------------------------------------------------------------------

    def _alias_scans(self) -> dict[Stage, list[Stage]]:
        """Let the state, the start and the update of a scan lie in the scan's own buffers."""
        scans: dict[Stage, list[Stage]] = {}
        for stage in self.schedule.stages:
            if isinstance(stage.op, te.ScanOp):
                sides = (stage.op.init, stage.op.update, stage.op.state_placeholder)
                for side in sides:
                    for index, tensor in enumerate(side):
                        part = self.schedule[tensor]
                        key = (part, int(tensor.value_index))
                        self._buffers[key] = self.buffer(stage, index)
                        self._given.add(key)
                scans[stage] = [self.schedule[tensor] for tensor in stage.op.init]
        return scans

    def buffer(self, stage: Stage, index: int) -> Any:
        """Where the `index`-th output of a stage lies."""
        if (stage, index) not in self._buffers:
            self._buffers[stage, index] = self._declare(stage, index)
        return self._buffers[stage, index]

    def _declare(self, stage: Stage, index: int) -> Any:
        if isinstance(stage.op, te.PlaceholderOp):
            raise ScheduleError(f"{stage.name} is an input that is not among the arguments")
        tensor = stage.op.output(index)
        shape = list(tensor.shape)
        if isinstance(stage.op, te.ComputeOp):
            shape = [self.bounds.extents[axis.var] for axis in stage.op.axis]
        shape = stage.laid_out(shape)
        suffix = f".v{index}" if stage.op.num_outputs > 1 else ""
        scope = self.bounds.scope_of(stage)
        return tirx.decl_buffer(
            shape, str(tensor.dtype), f"{stage.name}{suffix}", scope="" if scope == "global" else
            scope, strides=self._strides(stage, shape), layout=None,
        )  # fmt: skip

    def _strides(self, stage: Stage, shape: Sequence[Any]) -> list[Any] | None:
        """Strides, if the stage aligns one."""
        aligned = [
            (mark.alignment if (mark := stage.iter_var_attrs.get(axis)) else None)
            for axis in getattr(stage.op, "axis", ())
        ]
        if not any(aligned):
            return None
        strides: list[Any] = []
        stride: Any = tirx.const(1, "int32")
        for extent, alignment in zip(reversed(list(shape)), reversed(aligned)):
            if alignment is not None:
                factor, offset = alignment
                stride = stride + tirx.floormod(
                    factor + offset - tirx.floormod(stride, factor), factor
                )
            stride = self.bounds.analyzer.simplify(stride)
            strides.insert(0, stride)
            stride = stride * extent
        return strides

    def base(self, stage: Stage, index: int) -> list[Any] | None:
        """The element at which a buffer starts; None for the first."""
        if stage.layouts or (stage, index) in self._given or not isinstance(stage.op, te.ComputeOp):
            return None
        return [self.bounds.low[axis.var] for axis in stage.op.axis]

    def place_in_buffer(self, stage: Stage, index: int, indices: Sequence[Any]) -> list[Any]:
        """Indices into a buffer of an element of the tensor."""
        base = self.base(stage, index)
        simplify = self.bounds.analyzer.simplify
        if base is None:
            return [simplify(i) for i in stage.physical(indices)]
        return [simplify(i - first) for i, first in zip(indices, base)]

    def read(self, expr: Any, values: dict[Any, Any]) -> Any:
        """An expression over tensors as one over buffers."""

        def load(call: Call) -> Any:
            if not is_load(call):
                return call
            tensor, index = call.args[0], int(call.args[0].value_index)
            stage = self.schedule[tensor]
            place = self.place_in_buffer(stage, index, list(call.args[1:]))
            return tirx.BufferLoad(self.buffer(stage, index), place)

        found = map_loads(expr, self._broadcast)
        return tvm_ffi.structural_map(substitute(found, values), (Call, load))

    def _broadcast(self, tensor: Any, indices: list[Any]) -> Any | None:
        """The read of a tensor whose extent may be 1 where an axis goes further.

        Where two symbolic extents meet, the axis has the larger; which one is 1 is dynamic.
        """
        places = [
            tirx.Select(extent == like(extent, 1), like(index, 0), index)
            if _is_larger_of(self.bounds.extents.get(index), extent)
            else index
            for index, extent in zip(indices, tensor.shape)
        ]
        changed = any(place is not index for place, index in zip(places, indices))
        return tensor(*places) if changed else None

    def store(self, stage: Stage, index: int, value: Any, values: dict[Any, Any]) -> Any:
        """Store one element of a stage's output."""
        place = [values[axis.var] for axis in stage.op.axis]
        buffer = self.buffer(stage, index)
        return tirx.BufferStore(buffer, value, self.place_in_buffer(stage, index, place))

    def store_outputs(self, stage: Stage, found: Sequence[Any], values: dict[Any, Any]) -> Any:
        """Store one element of each of a stage's outputs."""
        return sequence([self.store(stage, i, value, values) for i, value in enumerate(found)])

    # --- stages --------------------------------------------------------------------------

    def _produce(self, stage: Stage) -> list[Any]:
        """Allocate a stage's buffers and compute it."""
        statements: list[Any] = []
        for scan, starts in self._scans.items():
            if any(stage is start for start in starts):
                statements += self._allocations(scan)
        statements += self._allocations(stage)
        if isinstance(stage.op, te.ScanOp):
            computing = self._scan(stage)
        elif isinstance(stage.op, te.ExternOp):
            computing = self._extern(stage)
        else:
            computing = self._compute(stage)
        return [*statements, computing]

    def _allocations(self, stage: Stage) -> list[Any]:
        made = []
        for index in range(stage.op.num_outputs):
            if (stage, index) not in self._given:
                made.append(tirx.AllocBuffer(self.buffer(stage, index)))
                if isinstance(stage.op, te.ScanOp):  # with the first of its starts, and only there
                    self._given.add((stage, index))
        return made

    def _scan(self, stage: Stage) -> Any:
        axis = stage.op.scan_axis
        if stage.relations or len(stage.iter_var_attrs):
            raise ScheduleError(
                f"split of stage {stage.name}: schedule the update of a scan, not the scan itself"
            )
        statement: Any = sequence(self._inside(stage, axis))
        statement = self._loop(stage, axis, axis.var, statement)
        for thread in reversed(stage.threads):
            statement = _thread(thread, thread.dom.extent, statement)
        return statement

    def _extern(self, stage: Stage) -> Any:
        op = stage.op
        values: dict[Any, Any] = {}
        pairs = [
            *((placeholder, self.schedule[tensor], int(tensor.value_index))
              for placeholder, tensor in zip(op.input_placeholders, op.inputs)),
            *((placeholder, stage, index)
              for index, placeholder in enumerate(op.output_placeholders)),
        ]  # fmt: skip
        for placeholder, source, index in pairs:
            if source.layouts:
                raise ScheduleError(
                    f"transform_layout of stage {source.name}: {stage.name}, which reads it, takes "
                    "only the layout that it was written for"
                )
            values |= self._bind_buffer(stage, placeholder, self.buffer(source, index))
        body = scheduled(self, stage, op.body) if loops_of(op) else op.body
        return substitute(body, values)

    def _bind_buffer(self, stage: Stage, placeholder: Any, buffer: Any) -> dict[Any, Any]:
        """What stands for the variables of an external operation's buffer."""
        values = {placeholder: buffer}
        said, real = placeholder.ty, buffer.ty
        if len(said.shape) != len(real.shape):
            raise ScheduleError(
                f"stage {stage.name}: its buffer {placeholder.name} has {len(said.shape)} "
                f"dimensions, and the tensor {len(real.shape)}"
            )
        strides = strides_of(real)
        for symbolic, value in [
            *zip(said.shape, real.shape),
            *zip(said.strides, strides),
            (said.elem_offset, real.elem_offset),
        ]:
            if isinstance(symbolic, tirx.Var) and value is not None:
                values[symbolic] = value
        return values

    def _compute(self, stage: Stage) -> Any:
        if not stage.op.axis and not stage.leaf_iter_vars:
            return self._innermost(stage)
        if tensorized_loop(stage) is not None:
            return tensorized(self, stage)
        if reduces_across_threads(self.bounds, stage):
            return cross_thread_reduction(self, stage)
        leaves = stage.leaf_iter_vars
        if not isinstance(self.bounds.bodies[stage][0], tirx.Reduce):
            return self.nest(stage, leaves, self._innermost(stage))
        first = self.first_reduction(stage)
        update = self.nest(stage, leaves[first:], self.update(stage))
        start = self.guard(stage, self.init(stage), lambda is_reduction: not is_reduction)
        init = self.init_nest(stage, leaves[first:], start)
        return self.nest(stage, leaves[:first], sequence([init, update]))

    def first_reduction(self, stage: Stage) -> int:
        """Where the loops of the reduction begin."""
        for index, leaf in enumerate(stage.leaf_iter_vars):
            if self.is_reduction(stage, leaf):
                return index
        return len(stage.leaf_iter_vars)

    def is_reduction(self, stage: Stage, leaf: Any) -> bool:
        """Whether a loop is made from a reduction's axis."""
        roots = roots_of(stage.relations, stage.axes)[leaf.var]
        return any(int(root.iter_type) == IterVar.CommReduce for root in roots)

    def _innermost(self, stage: Stage) -> Any:
        """Store the value of each output."""
        values = self.bounds.axis_values(stage)
        bodies = self.bounds.bodies[stage]
        found = [self.read(body, values) for body in bodies]
        return self.guard(stage, self.store_outputs(stage, found, values), lambda _: True)

    def init_nest(self, stage: Stage, leaves: Sequence[Any], body: Any) -> Any:
        """Separate loops around a statement that sets the results to the identity."""
        fresh = {
            leaf.var: tirx.Var(f"{leaf.var.name}.init", leaf.var.ty)
            for leaf in leaves
            if self.bounds.thread_of(stage, leaf) is None
        }
        for leaf in reversed(leaves):
            if not self._is_only_reduction(stage, leaf):
                body = self._loop(stage, leaf, leaf.var, body)
        return _rename(body, fresh)

    def _is_only_reduction(self, stage: Stage, leaf: Any) -> bool:
        roots = roots_of(stage.relations, stage.axes)[leaf.var]
        return all(int(root.iter_type) == IterVar.CommReduce for root in roots)

    def init(self, stage: Stage) -> Any:
        """Set each result to the reduction's identity, or to what it starts from."""
        reduce, values = self.bounds.bodies[stage][0], self.bounds.axis_values(stage)
        start = list(reduce.init) or list(reduce.combiner.identity_element)
        return self.store_outputs(stage, [self.read(value, values) for value in start], values)

    def update(self, stage: Stage) -> Any:
        """Combine each result with one more value."""
        reduce, values = self.bounds.bodies[stage][0], self.bounds.axis_values(stage)
        place = [values[axis.var] for axis in stage.op.axis]
        before = [
            tirx.BufferLoad(self.buffer(stage, i), self.place_in_buffer(stage, i, place))
            for i in range(len(reduce.source))
        ]
        source = [self.read(value, values) for value in reduce.source]
        results = combine(reduce.combiner, before, source)
        stores = store_all(results, lambda index, value: self.store(stage, index, value, values))
        condition = self.read(reduce.condition, values)
        if constant(condition) != 1:
            stores = tirx.IfThenElse(condition, stores, None)
        return self.guard(stage, stores, lambda _: True)

    # --- loops ---------------------------------------------------------------------------

    def guard(self, stage: Stage, body: Any, applies: Any) -> Any:
        """Let a statement run only where the iteration counts."""
        conditions = [
            tirx.likely(condition)
            for is_reduction, condition in self.bounds.conditions(stage)
            if applies(is_reduction)
        ]
        if stage.store_predicate is not None:
            conditions.append(stage.store_predicate)
        if not conditions:
            return body
        return tirx.IfThenElse(functools.reduce(tirx.And, conditions), body, None)

    def nest(self, stage: Stage, leaves: Sequence[Any], body: Any) -> Any:
        """Loops around a statement, with the stages that are computed in each."""
        for leaf in reversed(leaves):
            attached = self._attached.get((stage, leaf.var), [])
            mark = stage.iter_var_attrs.get(leaf)
            if attached and mark is not None and mark.iter_type == IterVar.Vectorized:
                raise ScheduleError(
                    f"vectorize of stage {stage.name}: {attached[0].name} is computed inside of "
                    f"{leaf.var.name}; compute it at a loop further out"
                )
            body = sequence([*self._inside(stage, leaf), body])
            body = self._loop(stage, leaf, leaf.var, body)
        return body

    def _inside(self, stage: Stage, leaf: Any) -> list[Any]:
        attached = self._attached.get((stage, leaf.var), [])
        return [statement for inner in attached for statement in self._produce(inner)]

    def _loop(self, stage: Stage, leaf: Any, var: Any, body: Any) -> Any:
        extent = self.bounds.extents[leaf.var]
        mark = stage.iter_var_attrs.get(leaf)
        thread = self.bounds.thread_of(stage, leaf)
        if thread is not None:
            if not self.bounds.runs_inside(stage, thread):
                body = _thread(thread, extent, body)
        elif constant(extent) != 1:
            iter_type = mark.iter_type if mark else int(leaf.iter_type)
            kind = _KINDS.get(iter_type, tirx.ForKind.SERIAL)
            if kind == tirx.ForKind.PARALLEL:
                body = serial(body)  # threads start no threads
            if constant(extent) is None:  # may read tensors, and axes that loops were made of
                extent = self.read(extent, self.bounds.axis_values(stage))
            body = tirx.For(var, like(var, 0), extent, kind, body)
        for key, value in reversed(mark.pragmas if mark else []):
            body = tirx.AttrStmt(leaf, f"pragma_{key}", value if value is not None else 1, body)
        return body


def _is_larger_of(whole: Any, extent: Any) -> bool:
    """Whether an axis's extent is the larger of a symbolic extent and something else."""
    if not isinstance(whole, tirx.Max) or isinstance(extent, tirx.IntImm):
        return False
    return any(
        tvm_ffi.structural_equal(side, extent) or _is_larger_of(side, extent)
        for side in (whole.a, whole.b)
    )


def _thread(thread: Any, extent: Any, body: Any) -> Any:
    tag = str(thread.thread_tag)
    dtype = str(thread.var.ty.dtype)
    extent = extent if str(extent.ty.dtype) == dtype else extent.astype(dtype)
    axis = IterVar(Range(like(thread.var, 0), extent), thread.var, IterVar.ThreadIndex, tag)
    key = "virtual_thread" if tag.startswith(VIRTUAL_THREADS) else "thread_extent"
    return tirx.AttrStmt(axis, key, extent, body)


def _rename(statement: Any, names: dict[Any, Any]) -> Any:
    """A copy of a statement with fresh loop variables."""

    def loop(node: Any) -> Any:
        new = names.get(node.loop_var)
        return node if new is None else replace_loop(node, loop_var=new)

    return tvm_ffi.structural_map(substitute(statement, names), (tirx.For, loop))
