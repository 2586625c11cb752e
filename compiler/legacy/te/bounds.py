"""Which part of each tensor is computed, and where: the ranges of all loops of a schedule.

Stages are visited consumers first. What a consumer reads of a producer is an interval per
dimension: its index expressions, evaluated over those loops that run while the producer's result
lies in its buffer. These are the loops inside of the producer's place, and the threads that share
the buffer's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tvm import sym, te, tirx
from tvm.ir import Range
from tvm.sym import IntervalSet

from schedules.tir_visit import nodes_of

from ...errors import ScheduleError
from .dataflow import loads, map_loads, substitute
from .relations import (
    Split,
    constant,
    like,
    overruns,
    pass_extents_down,
    pass_values_up,
    position,
    roots_of,
)
from .stage import INLINE, SCAN_UPDATE, SCOPE, Stage

if TYPE_CHECKING:
    from .schedule import Schedule

_SCOPE_RANKS = {"global": 0, "shared": 1, "warp": 2, "local": 3, "wmma": 3, "m16n8k8": 3}
_RANK_NAMES = {-1: "global", 0: "shared", 1: "local"}

VIRTUAL_THREADS = ("vthread", "cthread")


def thread_rank(tag: str) -> int:
    """0 for a block of threads, 1 for a thread."""
    return 0 if tag.startswith("blockIdx") else 1


class Bounds:
    """Ranges of the loops of a schedule.

    `low`: where the region of each axis starts. `extents`: of axes, loops and threads. `bodies`:
    what each stage computes, with inlined stages put in.
    Raises ScheduleError: a stage lies where one that reads it can't, or threads disagree about
    their number.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.analyzer = sym.Analyzer()
        self.low: dict[Any, Any] = {}
        self.extents: dict[Any, Any] = {}
        self.bodies: dict[Stage, list[Any]] = {}
        self._values: dict[Stage, dict[Any, Any]] = {}
        self._loop_vars: set[Any] = set()
        self._inline()
        self.computed = [
            stage
            for stage in schedule.stages
            if stage.place()[0] != INLINE and not isinstance(stage.op, te.PlaceholderOp)
        ]
        self._paths = {stage: self._enclosing(stage) for stage in self.computed}
        self._readers = self._find_readers()
        for stage in reversed(self.computed):
            self._infer(stage)

    # --- what is read --------------------------------------------------------------------

    def _inline(self) -> None:
        for stage in self.schedule.stages:
            if isinstance(stage.op, te.ComputeOp):
                self.bodies[stage] = [map_loads(v, self._inlined) for v in stage.op.body]
                if stage.attach_type == INLINE:
                    self._check_inlined(stage)
            elif stage.attach_type == INLINE and not isinstance(stage.op, te.PlaceholderOp):
                raise ScheduleError(f"compute_inline of stage {stage.name}: it is not a te.compute")

    def _check_inlined(self, stage: Stage) -> None:
        if isinstance(stage.op.body[0], tirx.Reduce):
            raise ScheduleError(f"compute_inline of stage {stage.name}: it is a reduction")
        if stage.is_output:
            raise ScheduleError(f"compute_inline of stage {stage.name}: it is an output")

    def _inlined(self, tensor: Any, indices: list[Any]) -> Any | None:
        producer = self.schedule[tensor]
        if producer.attach_type != INLINE or producer not in self.bodies:
            return None
        axes = [axis.var for axis in producer.op.axis]
        return substitute(self.bodies[producer][int(tensor.value_index)], dict(zip(axes, indices)))

    def reads(self, stage: Stage) -> list[tuple[Stage, Any, list[Any] | None]]:
        """(stage, tensor, indices) of all reads; no indices where it reads the whole."""
        if stage in self.bodies:
            return [
                (self.schedule[tensor], tensor, indices)
                for body in self.bodies[stage]
                for tensor, indices in loads(body)
            ]
        if isinstance(stage.op, te.ScanOp):
            tensors = [*stage.op.init, *stage.op.update]
        else:
            tensors = list(stage.op.input_tensors)
        return [(self.schedule[tensor], tensor, None) for tensor in tensors]

    def _find_readers(self) -> dict[Stage, list[tuple[Stage, Any, list[Any] | None]]]:
        readers: dict[Stage, list[tuple[Stage, Any, list[Any] | None]]] = {}
        for stage in self.computed:
            for producer, tensor, indices in self.reads(stage):
                if producer.attach_type == INLINE:
                    raise ScheduleError(
                        f"compute_inline of stage {producer.name}: {stage.name}, which reads it, "
                        "is not a te.compute"
                    )
                readers.setdefault(producer, []).append((stage, tensor, indices))
        return readers

    # --- places --------------------------------------------------------------------------

    def _enclosing(self, stage: Stage) -> list[tuple[Stage, Any]]:
        """Loops around a stage, innermost first, with the stages that they belong to."""
        path: list[tuple[Stage, Any]] = []
        seen = [stage]
        kind, around, loop = stage.place()
        while around is not None:
            if any(around is other for other in seen):
                raise ScheduleError(f"compute_at of stage {stage.name}: it lies inside of itself")
            seen.append(around)
            if kind == SCAN_UPDATE:
                path.append((around, loop))
            else:
                at = position(around.leaf_iter_vars, loop)
                if at is None:
                    raise ScheduleError(
                        f"compute_at of stage {stage.name}: loop {loop.var.name} of "
                        f"{around.name} was fused later as the outer one; name a loop that is left"
                    )
                path += [(around, leaf) for leaf in reversed(around.leaf_iter_vars[: at + 1])]
            kind, around, loop = around.place()
            if kind not in (SCOPE, SCAN_UPDATE):
                break
        return path

    def thread_of(self, stage: Stage, loop: Any) -> Any | None:
        """The thread that runs a loop."""
        mark = stage.iter_var_attrs.get(loop)
        return None if mark is None else mark.bind_thread

    def runs_inside(self, stage: Stage, thread: Any) -> bool:
        """Whether a stage is computed inside of a loop that the same thread variable runs."""
        around = (self.thread_of(other, loop) for other, loop in self._paths[stage])
        return any(other is not None and other.var.same_as(thread.var) for other in around)

    def scope_of(self, stage: Stage) -> str:
        """Where the result lies; unless the stage says it, by the threads around it."""
        if stage.scope:
            return stage.scope
        highest = -1
        for around, loop in self._paths[stage]:
            thread = self.thread_of(around, loop)
            if thread is not None:
                highest = max(highest, thread_rank(str(thread.thread_tag)))
        return _RANK_NAMES[highest]

    def _is_shared_by(self, stage: Stage, thread: Any) -> bool:
        """Whether all instances of a thread see one buffer of the stage."""
        scope = self.scope_of(stage).partition(".")[0]
        if scope == "warp" and str(thread.thread_tag) == "threadIdx.x":
            return True
        return _SCOPE_RANKS.get(scope, 0) <= thread_rank(str(thread.thread_tag))

    # --- ranges --------------------------------------------------------------------------

    def _infer(self, stage: Stage) -> None:
        for axis in stage.axes:
            self.low[axis.var], self.extents[axis.var] = axis.dom.min, axis.dom.extent
        if isinstance(stage.op, te.ComputeOp) and not (stage.is_output or stage.layouts):
            self._infer_region(stage)
        pass_extents_down(
            stage.relations, self.extents, lambda loop: self._is_fixed(stage, loop), self.analyzer
        )
        for leaf in stage.leaf_iter_vars:
            self._bind(stage, leaf)
        for thread in stage.threads:
            self._bind_var(thread.var, thread.dom.extent)

    def _is_fixed(self, stage: Stage, loop: Any) -> bool:
        """Whether the loop's length was said for a reason: threads or an intrinsic run it."""
        following = [loop]
        for relation in stage.relations:
            if isinstance(relation, Split) and position(following, relation.parent) is not None:
                following += [relation.outer, relation.inner]
        marks = (stage.iter_var_attrs.get(leaf) for leaf in following)
        return any(mark and (mark.bind_thread is not None or mark.tensor_intrin) for mark in marks)

    def _bind(self, stage: Stage, leaf: Any) -> None:
        extent = self.extents[leaf.var]
        thread = self.thread_of(stage, leaf)
        if thread is None:
            self._bind_var(leaf.var, extent)
            return
        said = thread.dom.extent if thread.dom is not None else self.extents.get(thread.var)
        if said is not None and not self.analyzer.can_prove_equal(said, extent):
            raise ScheduleError(
                f"bind of stage {stage.name}: {thread.thread_tag} has {said} threads, and loop "
                f"{leaf.var.name} has extent {extent}"
            )
        self._bind_var(thread.var, said if said is not None else extent)

    def _bind_var(self, var: Any, extent: Any) -> None:
        if var not in self._loop_vars:
            self._loop_vars.add(var)
            self.extents[var] = extent
            if str(extent.ty.dtype) == str(var.ty.dtype):
                self.analyzer.bind(var, Range(like(var, 0), extent))

    def _infer_region(self, stage: Stage) -> None:
        """Set the range of each spatial axis to what is read of it."""
        regions: list[list[tuple[Any, Any]]] = [[] for _ in stage.op.axis]
        for reader, tensor, indices in self._readers.get(stage, []):
            for region, interval in zip(regions, self._region(stage, reader, tensor, indices)):
                region.append(interval)
        for axis, region in zip(stage.op.axis, regions):
            if region:
                self.low[axis.var], self.extents[axis.var] = self._range(axis, region)

    def _region(
        self, stage: Stage, reader: Stage, tensor: Any, indices: list[Any] | None
    ) -> list[tuple[Any, Any]]:
        """First and last index of each dimension that a reader reads."""
        relaxed = self._relaxed(stage, reader)
        whole = [(axis.dom.min, axis.dom.min + axis.dom.extent - 1) for axis in stage.op.axis]
        if isinstance(reader.op, te.ScanOp):
            return self._region_of_scan(reader, tensor, whole)
        if indices is None:
            return whole
        # An axis that is still a loop has one variable for both, which count from different places.
        own = {axis.var: tirx.Var(axis.var.name, axis.var.ty) for axis in reader.axes}
        sets = {}
        for axis in reader.axes:
            value = self.axis_values(reader)[axis.var]
            dom = (axis.dom.min, axis.dom.min + axis.dom.extent - 1)
            sets[own[axis.var]] = IntervalSet(*self._interval(value, relaxed, dom))
        return [
            self._interval(substitute(index, own), sets, dom) for index, dom in zip(indices, whole)
        ]

    @staticmethod
    def _region_of_scan(
        scan: Stage, tensor: Any, whole: list[tuple[Any, Any]]
    ) -> list[tuple[Any, Any]]:
        axis = scan.op.scan_axis
        if any(tensor == init for init in scan.op.init):
            return [(like(axis.var, 0), axis.dom.min - 1), *whole[1:]]
        now = axis.var + axis.dom.min
        return [(now, now), *whole[1:]]

    def _relaxed(self, stage: Stage, reader: Stage) -> dict[Any, Any]:
        """Loops of the reader, and around it, that run while the stage's buffer lives."""
        path = self._paths[stage]
        place = path[0] if path else None
        is_found = False
        relaxed: dict[Any, Any] = {}
        leaves = [(reader, leaf) for leaf in reversed(reader.leaf_iter_vars)]
        for around, loop in [*leaves, *self._paths[reader]]:
            if place is not None and around is place[0] and loop.same_as(place[1]):
                is_found = True
            thread = self.thread_of(around, loop)
            var = loop.var if thread is None else thread.var
            runs = not is_found if thread is None else self._is_shared_by(stage, thread)
            if runs and not isinstance(around.op, te.ScanOp):
                relaxed[var] = IntervalSet(like(var, 0), self.extents[var] - 1)
        if place is not None and not is_found:
            raise ScheduleError(
                f"compute_at of stage {stage.name}: {reader.name}, which reads it, is not computed "
                f"inside of loop {place[1].var.name} of {place[0].name}"
            )
        return relaxed

    def _interval(self, expr: Any, sets: dict[Any, Any], whole: tuple[Any, Any]) -> tuple[Any, Any]:
        """First and last value of an expression, no more than `whole` if that is simply so."""
        if any(True for _ in loads(expr)):
            return whole
        found = self.analyzer.int_set(self.analyzer.simplify(expr), sets)
        first, last = found.min_value, found.max_value
        is_open = _is_infinite(first) or _is_infinite(last)
        if is_open or (
            self.analyzer.can_prove(first <= whole[0]) and self.analyzer.can_prove(last >= whole[1])
        ):
            return whole
        return first, last

    def _range(self, axis: Any, region: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        """First index and extent of the union of intervals; the extent varies with no loop."""
        first, last = region[0]
        for low, high in region[1:]:
            first, last = tirx.min(first, low), tirx.max(last, high)
        simplify = self.analyzer.simplify
        first, extent = simplify(first), simplify(last - first + 1)
        if any(var in self._loop_vars for var in nodes_of(extent, tirx.Var)):
            most = self.analyzer.const_int_bound(extent).max_value
            full = constant(axis.dom.extent)
            if most >= _UNBOUNDED or (full is not None and most >= full):
                return axis.dom.min, axis.dom.extent
            extent = like(axis.var, int(most))
        return first, extent

    # --- indices -------------------------------------------------------------------------

    def loop_value(self, stage: Stage, leaf: Any) -> Any:
        """Value of a loop in index expressions: its variable, its thread's, or 0."""
        if constant(self.extents[leaf.var]) == 1:
            return like(leaf.var, 0)
        thread = self.thread_of(stage, leaf)
        if thread is None:
            return leaf.var
        value = thread.var
        dtype = str(leaf.var.ty.dtype)
        return value if str(value.ty.dtype) == dtype else value.astype(dtype)

    def axis_values(self, stage: Stage) -> dict[Any, Any]:
        """Indices of all axes, and those of intermediate loops, which count from 0."""
        if stage not in self._values:
            values = {leaf.var: self.loop_value(stage, leaf) for leaf in stage.leaf_iter_vars}
            pass_values_up(stage.relations, self.extents, values)
            for axis in stage.axes:
                values[axis.var] = self.analyzer.simplify(values[axis.var] + self.low[axis.var])
            self._values[stage] = values
        return self._values[stage]

    def conditions(self, stage: Stage, of: Sequence[Any] | None = None) -> list[tuple[bool, Any]]:
        """Predicates of a valid iteration.

        `of`: those axes alone. Returns (whether reductions are concerned, condition) each, without
        those that always hold.
        """
        values = self.axis_values(stage)
        found: list[tuple[bool, Any]] = []
        roots = roots_of(stage.relations, stage.axes)
        extents = {
            var: extent if constant(extent) is not None else substitute(extent, values)
            for var, extent in self.extents.items()
            if var in values
        }
        axes = stage.axes if of is None else of
        unchecked = [
            root
            for relation in stage.relations
            if isinstance(relation, Split) and not relation.is_checked
            for root in roots[relation.parent.var]
        ]
        for axis in axes:
            value, low = values[axis.var], self.low[axis.var]
            if value.same_as(axis.var) and self._is_whole(axis):
                continue  # its own loop
            if position(unchecked, axis) is not None:
                continue
            is_reduction = int(axis.iter_type) == tirx.IterVar.CommReduce
            limits = [value - low < extents[axis.var]]
            if not self._is_whole(axis):
                limits += [value >= axis.dom.min, value - axis.dom.min < axis.dom.extent]
            for limit in limits:
                limit = self.analyzer.simplify(limit)
                if not self.analyzer.can_prove(limit):
                    found.append((is_reduction, limit))
        own = [axis.var for axis in stage.axes]
        before = {var: value for var, value in values.items() if var not in own}
        for var, condition in overruns(stage.relations, extents, before, self.analyzer):
            if any(position(axes, root) is None for root in roots[var]):
                continue
            kinds = [int(root.iter_type) == tirx.IterVar.CommReduce for root in roots[var]]
            found.append((any(kinds), self.analyzer.simplify(condition)))
        return found

    def _is_whole(self, axis: Any) -> bool:
        return self._same(self.low[axis.var], axis.dom.min) and self._same(
            self.extents[axis.var], axis.dom.extent
        )

    def _same(self, one: Any, other: Any) -> bool:
        return bool(one.same_as(other) or self.analyzer.can_prove_equal(one, other))


_UNBOUNDED = 1 << 40


def _is_infinite(value: Any) -> bool:
    from tvm.sym.int_set import neg_inf, pos_inf

    return bool(value.same_as(pos_inf()) or value.same_as(neg_inf()))
