"""One operation of a TE schedule: its loops, what is said of them, and where it is computed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tvm import te, tirx
from tvm.ir import Range, StringImm
from tvm.tirx import IterVar

from ...errors import ScheduleError
from .dataflow import loops_of
from .intrin import called_intrin
from .relations import Fuse, Layout, Relation, Singleton, Split, Transform, position

logger = logging.getLogger("baton.te")

# Where a stage is computed; the numbers are those of TVM 0.18's `attach_type`.
ROOT, INLINE, INLINED_ALREADY, SCOPE, SCAN_UPDATE = 1, 2, 3, 4, 5


@dataclass(eq=False)
class LoopMark:
    """Annotations of one loop."""

    # Of `tvm.tirx.IterVar`: `Unrolled`, `Vectorized`, `Parallelized`, `Tensorized`, or the loop's
    # own
    iter_type: int
    bind_thread: Any = None
    pragmas: list[tuple[str, Any]] = field(default_factory=list)
    tensor_intrin: Any = None
    alignment: tuple[int, int] | None = None  # factor and offset of the stride of the axis

    @property
    def pragma_keys(self) -> list[Any]:
        return [StringImm(key) for key, _ in self.pragmas]

    @property
    def pragma_values(self) -> list[Any]:
        return [StringImm(v) if isinstance(v, str) else v for _, v in self.pragmas]


class LoopMarks:
    """Marks by loop; loops without one are left out."""

    def __init__(self) -> None:
        self._marks: dict[Any, LoopMark] = {}

    def __contains__(self, iter_var: Any) -> bool:
        return iter_var.var in self._marks

    def __getitem__(self, iter_var: Any) -> LoopMark:
        return self._marks[iter_var.var]

    def __len__(self) -> int:
        return len(self._marks)

    def get(self, iter_var: Any) -> LoopMark | None:
        return self._marks.get(iter_var.var)

    def forget_intrins(self) -> None:
        """Compute all loops as such."""
        self._marks = {var: mark for var, mark in self._marks.items() if not mark.tensor_intrin}

    def of(self, iter_var: Any) -> LoopMark:
        """The loop's mark, a new one if need be."""
        return self._marks.setdefault(iter_var.var, LoopMark(int(iter_var.iter_type)))


class Stage:
    """An operation in a schedule, or a group of them (`op` is None).

    `op`: what is computed now; `origin_op` is what the script declared. `leaf_iter_vars`: its
    loops, outermost first. `relations`: how the loops came from the axes, in order. `attach_type`,
    `attach_stage`, `attach_ivar`: where it is computed. `num_child_stages`: of a group: how many
    stages and groups lie directly in it. `layouts`: how the tensor's elements lie in its buffer,
    each after those before it.
    """

    def __init__(self, op: Any, name: str = "") -> None:
        self.op = self.origin_op = op
        self._name = name
        self.relations: list[Relation] = []
        self.iter_var_attrs = LoopMarks()
        self.scope = ""
        self.attach_type = ROOT
        self.attach_stage: Stage | None = None
        self.attach_ivar: Any = None
        self.group: Stage | None = None
        self.is_output = False
        self.store_predicate: Any = None
        self.threads: list[Any] = []
        self.num_child_stages = 0
        self.layouts: list[Layout] = []
        self.reset_loops()

    def __repr__(self) -> str:
        return f"stage({self.name})"

    @property
    def name(self) -> str:
        return self._name if self.op is None else str(self.op.name)

    @property
    def axes(self) -> list[Any]:
        """The operation's own axes, spatial ones first."""
        return [] if self.op is None else axes_of(self.op)

    def reset_loops(self) -> None:
        """Loops over the operation's own axes, nothing said of them."""
        self.relations = []
        self.all_iter_vars = self.axes
        self.leaf_iter_vars = self.axes
        self.iter_var_attrs.forget_intrins()
        called = called_intrin(self.op)
        if called is not None:
            self._call(called)

    def _call(self, intrin: Any) -> None:
        """Let the innermost loops be those that an intrinsic computes."""
        spatial, reduced = list(self.op.axis), list(self.op.reduce_axis)
        rank = len(spatial) - len(intrin.op.axis)
        depth = len(reduced) - len(intrin.op.reduce_axis)
        outside, inside = [*spatial[:rank], *reduced[:depth]], [*spatial[rank:], *reduced[depth:]]
        self.leaf_iter_vars = [*outside, *inside]
        mark = self.iter_var_attrs.of(inside[0])
        mark.iter_type, mark.tensor_intrin = IterVar.Tensorized, intrin

    def set_op(self, op: Any) -> None:
        """Compute something else over the same axes."""
        self.op = op

    def _refuse(self, primitive: str, reason: str) -> NoReturn:
        raise ScheduleError(f"{primitive} of stage {self.name}: {reason}")

    def _leaf(self, primitive: str, iter_var: Any) -> int:
        if not isinstance(iter_var, IterVar):
            self._refuse(primitive, f"{iter_var!r} is not an axis")
        index = position(self.leaf_iter_vars, iter_var)
        if index is None:
            names = ", ".join(str(leaf.var.name) for leaf in self.leaf_iter_vars)
            again = position(self.all_iter_vars, iter_var) is not None
            reason = "was split or fused already" if again else "is not a loop of it"
            self._refuse(primitive, f"{iter_var.var.name} {reason}; its loops are {names or '-'}")
        return index

    # --- loops ---------------------------------------------------------------------------

    def split(
        self, parent: Any, factor: Any = None, nparts: Any = None, disable_predication: bool = False
    ) -> tuple[Any, Any]:
        """Split a loop in two, the inner of extent `factor` or the outer of extent `nparts`.

        With `disable_predication` an uneven split runs past the end of the loop, for code that is
        right there.

        Returns outer and inner loop.
        Raises ScheduleError: the loop is gone, a thread's, or both or neither extents are given.
        """
        index = self._leaf("split", parent)
        if (factor is None) == (nparts is None):
            self._refuse("split", "either factor or nparts must be given")
        mark = self.iter_var_attrs.get(parent)
        if mark is not None and mark.bind_thread is not None:
            self._refuse("split", f"{parent.var.name} is bound to a thread")
        outer, inner = self._derived(parent, ".outer"), self._derived(parent, ".inner")
        factor, nparts = (self._length("split", parent, length) for length in (factor, nparts))
        is_checked = not disable_predication
        self.relations.append(Split(parent, outer, inner, factor, nparts, is_checked))
        self.leaf_iter_vars[index : index + 1] = [outer, inner]
        self.all_iter_vars += [outer, inner]
        return outer, inner

    def _length(self, primitive: str, parent: Any, length: Any) -> Any:
        if length is None:
            return None
        if isinstance(length, (int, tirx.IntImm)):
            if int(length) <= 0:
                self._refuse(primitive, f"{int(length)} is not an extent")
            return tirx.const(int(length), str(parent.var.ty.dtype))
        return length

    def _derived(self, parent: Any, suffix: str) -> Any:
        var = tirx.Var(f"{parent.var.name}{suffix}", str(parent.var.ty.dtype))
        return IterVar(None, var, int(parent.iter_type))

    def fuse(self, *args: Any) -> Any:
        """Fuse consecutive loops, outermost first; without any, make a loop of extent 1."""
        if not args:
            unit = IterVar(Range(0, 1), "singleton", IterVar.DataPar)
            self.relations.append(Singleton(unit))
            self.leaf_iter_vars.insert(0, unit)
            self.all_iter_vars.append(unit)
            return unit
        fused = args[0]
        self._leaf("fuse", fused)
        for inner in args[1:]:
            fused = self._fuse_two(fused, inner)
        return fused

    def _fuse_two(self, outer: Any, inner: Any) -> Any:
        first, second = self._leaf("fuse", outer), self._leaf("fuse", inner)
        if first == second + 1:
            outer, inner, first, second = inner, outer, second, first
        if second != first + 1:
            names = f"{outer.var.name} and {inner.var.name}"
            self._refuse("fuse", f"{names} do not follow each other")
        for loop in (outer, inner):
            mark = self.iter_var_attrs.get(loop)
            if mark is not None and mark.bind_thread is not None:
                self._refuse("fuse", f"{loop.var.name} is bound to a thread")
        var = tirx.Var(f"{outer.var.name}.{inner.var.name}.fused", str(outer.var.ty.dtype))
        fused = IterVar(None, var, max(int(outer.iter_type), int(inner.iter_type)))
        self.relations.append(Fuse(outer, inner, fused))
        self.leaf_iter_vars[first : second + 1] = [fused]
        self.all_iter_vars.append(fused)
        return fused

    def reorder(self, *args: Any) -> None:
        """Put loops in this order, in the places that they have together."""
        places = [self._leaf("reorder", iter_var) for iter_var in args]
        if len(set(places)) != len(places):
            self._refuse("reorder", "a loop is named twice")
        for place, iter_var in zip(sorted(places), args):
            self.leaf_iter_vars[place] = iter_var

    def tile(
        self, x_parent: Any, y_parent: Any, x_factor: Any, y_factor: Any
    ) -> tuple[Any, Any, Any, Any]:
        """Split two loops and put the outer halves first: x.outer, y.outer, x.inner, y.inner."""
        x_outer, x_inner = self.split(x_parent, factor=x_factor)
        y_outer, y_inner = self.split(y_parent, factor=y_factor)
        self.reorder(x_outer, y_outer, x_inner, y_inner)
        return x_outer, y_outer, x_inner, y_inner

    def bind(self, ivar: Any, thread_ivar: Any) -> None:
        """Run a loop by a `te.thread_axis`; by the last one, if it is bound again."""
        self._leaf("bind", ivar)
        if not isinstance(thread_ivar, IterVar) or not thread_ivar.thread_tag:
            self._refuse("bind", f"{thread_ivar!r} is not a te.thread_axis")
        self.iter_var_attrs.of(ivar).bind_thread = thread_ivar

    def env_threads(self, threads: Any) -> None:
        """Threads that run the stage as a whole, outside of all its loops."""
        threads = list(threads) if isinstance(threads, Iterable) else [threads]
        if self.threads:
            self._refuse("env_threads", "its threads are set already")
        if self.op is not None and self.op.num_outputs and not hasattr(self.op, "scan_axis"):
            self._refuse("env_threads", "only a scan has threads around it; bind the loops")
        for thread in threads:
            if thread.dom is None:
                self._refuse("env_threads", f"{thread.thread_tag} needs an extent")
        self.threads = threads

    def _mark(self, primitive: str, var: Any, iter_type: int) -> None:
        self._leaf(primitive, var)
        if int(var.iter_type) == IterVar.CommReduce and iter_type == IterVar.Vectorized:
            self._refuse(primitive, f"{var.var.name} is a reduction; rfactor it first")
        self.iter_var_attrs.of(var).iter_type = iter_type

    def unroll(self, var: Any) -> None:
        """Write the loop out."""
        self._mark("unroll", var, IterVar.Unrolled)

    def vectorize(self, var: Any) -> None:
        """Make vector instructions of the loop."""
        self._mark("vectorize", var, IterVar.Vectorized)

    def parallel(self, var: Any) -> None:
        """Run the loop by all CPU threads."""
        self._mark("parallel", var, IterVar.Parallelized)

    def pragma(self, var: Any, pragma_type: str, pragma_value: Any = None) -> None:
        """Put a pragma around the loop's body: `unroll_explicit`, `auto_unroll_max_step`,
        `import_llvm`, `import_c`, `debug_skip_region`; `unroll` and `vectorize` mark the loop."""
        if pragma_type in ("unroll", "vectorize"):
            (self.unroll if pragma_type == "unroll" else self.vectorize)(var)
            return
        self._leaf("pragma", var)
        if isinstance(pragma_value, str):
            pragma_value = StringImm(pragma_value)
        elif isinstance(pragma_value, int):
            pragma_value = tirx.const(pragma_value)
        self.iter_var_attrs.of(var).pragmas.append((pragma_type, pragma_value))

    def tensorize(self, var: Any, tensor_intrin: Any) -> None:
        """Compute a loop and all inside of it by an intrinsic of `te.decl_tensor_intrin`."""
        self._leaf("tensorize", var)
        if called_intrin(self.op) is not None:
            logger.warning("tensorize of stage %s has no effect: it calls an intrinsic", self.name)
            return
        mark = self.iter_var_attrs.of(var)
        if callable(getattr(tensor_intrin, "as_intrin", None)):
            tensor_intrin = tensor_intrin.as_intrin()
        mark.iter_type, mark.tensor_intrin = IterVar.Tensorized, tensor_intrin

    def prefetch(self, tensor: Any, var: Any, offset: Any) -> None:
        """Accepted: a hint that no code generator of TVM takes any more, as the log says."""
        logger.warning("prefetch of %s in stage %s has no effect", tensor.op.name, self.op.name)

    # --- memory --------------------------------------------------------------------------

    def set_scope(self, scope: str) -> Stage:
        """Keep the result in a memory scope: "global", "shared", "local", "warp", "wmma..."."""
        self.scope = scope
        return self

    def set_store_predicate(self, predicate: Any) -> None:
        """Store only where a condition over thread variables holds."""
        self.store_predicate = predicate

    def storage_align(self, axis: Any, factor: int, offset: int) -> None:
        """Make the stride of an axis `k * factor + offset` elements."""
        if position(self.axes, axis) is None:
            self._refuse("storage_align", f"{axis.var.name} is not an axis of the operation")
        self.refuse_layout("storage_align")
        self.iter_var_attrs.of(axis).alignment = (int(factor), int(offset))

    def double_buffer(self) -> None:
        """Nothing, with a warning: one buffer is filled and then read, which is right as well."""
        if self.is_output:
            self._refuse("double_buffer", "an output has one buffer")
        logger.warning("double_buffer of stage %s has no effect: it keeps one buffer", self.name)

    def rolling_buffer(self) -> None:
        """Raises: TE's loops can't be turned into a rolling buffer."""
        self._refuse(
            "rolling_buffer", "use tvm.s_tir.Schedule.rolling_buffer on te.create_prim_func"
        )

    def transform_layout(self, mapping_function: Any) -> list[Any]:
        """Let the elements lie in another order, or in another number of dimensions.

        The tensor is computed as a whole wherever it is computed.

        `mapping_function`: (an index for each dimension) -> indices of the buffer, as for `Layout`.
        Returns the loops over the buffer, which take the place of those over the axes; none for an
        input.
        Raises ScheduleError: the mapping is not one to one, the stage is not a `te.compute` or an
        input, or its loops have been scheduled already.
        """
        tensor = self._only_output("transform_layout")
        is_computed = hasattr(self.op, "axis")
        loops = [loop for loop in self._data_loops() if is_computed]
        places = [self._leaf("transform_layout", loop) for loop in loops]
        marked = [str(loop.var.name) for loop in loops if loop in self.iter_var_attrs]
        if marked or places != list(range(len(places))):
            self._refuse("transform_layout", "its loops are scheduled already; do it before them")
        shape = self.laid_out(tensor.shape)
        dtype = str(loops[0].var.ty.dtype if loops else shape[0].ty.dtype)
        try:
            layout = Layout(mapping_function, shape, dtype)
        except (RuntimeError, TypeError) as error:
            reason = str(error).strip().splitlines()[0]
            self._refuse("transform_layout", f"the mapping is not one to one: {reason}")
        self.layouts.append(layout)
        if not is_computed:
            return []
        made = [
            IterVar(Range(tirx.const(0, dtype), extent), name, IterVar.DataPar)
            for extent, name in zip(layout.shape, layout.names)
        ]
        self.relations.append(Transform(tuple(loops), tuple(made), layout))
        self.leaf_iter_vars[: len(loops)] = made
        self.all_iter_vars += made
        return made

    def _only_output(self, primitive: str) -> Any:
        if (
            self.op is None
            or hasattr(self.op, "scan_axis")
            or hasattr(self.op, "output_placeholders")
        ):
            self._refuse(primitive, "only what te.compute or te.placeholder made has a layout")
        return self.op.output(0)

    def _data_loops(self) -> list[Any]:
        """The loops over the buffer's dimensions, before they are scheduled."""
        done = [each for each in self.relations if isinstance(each, Transform)]
        return list(done[-1].made) if done else list(getattr(self.op, "axis", ()))

    def refuse_layout(self, primitive: str) -> None:
        """Raise a `ScheduleError` where the tensor's layout was transformed."""
        if self.layouts:
            self._refuse(primitive, "do it before transform_layout")

    def laid_out(self, shape: Iterable[Any]) -> list[Any]:
        """The shape of a buffer that holds a tensor of `shape`."""
        return self.layouts[-1].shape if self.layouts else list(shape)

    def physical(self, indices: Iterable[Any]) -> list[Any]:
        """Where an element of the tensor lies in its buffer."""
        place = list(indices)
        for layout in self.layouts:
            place = layout.physical(place)
        return place

    # --- places --------------------------------------------------------------------------

    def compute_at(self, parent: Stage, scope: Any) -> None:
        """Compute the stage inside of a loop of another, as much as is needed there."""
        if self.is_output and self.op is not None:
            self._refuse("compute_at", "an output can't be computed inside of another stage")
        if parent is self:
            self._refuse("compute_at", "a stage can't be computed inside of itself")
        parent._leaf(f"compute_at of stage {self.name} in the loops", scope)
        self._refuse_scan_update("compute_at")
        self.attach_type, self.attach_stage, self.attach_ivar = SCOPE, parent, scope

    def compute_inline(self) -> None:
        """Compute the stage's elements where they are read, without a buffer."""
        self._refuse_scan_update("compute_inline")
        self.attach_type, self.attach_stage, self.attach_ivar = INLINE, None, None

    def compute_root(self) -> None:
        """Compute the stage as a whole before those that read it."""
        self._refuse_scan_update("compute_root")
        self.attach_type, self.attach_stage, self.attach_ivar = ROOT, None, None

    def _refuse_scan_update(self, primitive: str) -> None:
        if self.attach_type == SCAN_UPDATE:
            self._refuse(primitive, "the group of a scan's update stays in the scan")

    def place(self) -> tuple[int, Stage | None, Any]:
        """Where it is computed, as the groups around it say."""
        stage: Stage = self
        while stage.attach_type == ROOT and stage.group is not None:
            stage = stage.group
        around, loop = stage.attach_stage, stage.attach_ivar
        return stage.attach_type, around, around.loop_now(loop) if around is not None else loop

    def loop_now(self, loop: Any) -> Any:
        """The loop that runs as often as one did before it was split, or fused as the inner one."""
        for relation in self.relations:
            if isinstance(relation, Split) and relation.parent.same_as(loop):
                loop = relation.inner
            elif isinstance(relation, Fuse) and relation.inner.same_as(loop):
                loop = relation.fused
        return loop


def axes_of(op: Any) -> list[Any]:
    """An operation's own axes, spatial ones first.

    A hybrid function's are its loops; a placeholder and another external operation have none.
    """
    if hasattr(op, "scan_axis"):
        return [op.scan_axis, *op.spatial_axis_]
    if isinstance(op, te.ExternOp):
        return loops_of(op)
    return [*getattr(op, "axis", ()), *getattr(op, "reduce_axis", ())]
