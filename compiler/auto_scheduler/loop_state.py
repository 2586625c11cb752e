"""Schedules by Ansor's primitives, made by hand: `state.split`, `state.compute_at`...

state = dag.get_init_state()
i, j, k = state[C].iters
outer, inner = state.split(C, i, [16])
schedule, args = dag.apply_steps_from_state(state)

`save_records(log, [MeasureInput(task, state)], results)` keeps one as Ansor's records do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import tvm_ffi
from tvm import te

from ..errors import RecordError
from ..records.ansor import steps as st
from ..records.ansor.dag import read_dag
from ..records.ansor.record import AnsorRecord
from ..records.ansor.replay import replay
from ..records.ansor.state import Iterator as Loop
from ..records.ansor.state import Simulation, Stage, StepError, initial
from ..support.depth_first import depth_first
from ..target import to_cli
from .workload_registry import register_workload_tensors

ROOT, INLINED, AT_ITERATOR = range(3)


@dataclass(frozen=True)
class Range:
    """From where a loop counts, and how often."""

    min: int
    extent: int


@dataclass(frozen=True)
class Iter:
    """A loop of a stage."""

    loop: Loop

    @property
    def name(self) -> str:
        return self.loop.name

    @property
    def range(self) -> Range | None:
        """None while it depends on where the stage is computed."""
        return None if self.loop.extent is None else Range(0, self.loop.extent)

    @property
    def annotation(self) -> int:
        """The number of what the loop is; see `State.ANNOTATION_TRANS_TABLE`."""
        return State.ANNOTATION_TRANS_TABLE[self.loop.annotation]


@dataclass(frozen=True)
class StageView:
    """A stage as it is now."""

    op: Stage

    @property
    def iters(self) -> list[Iter]:
        """Its loops, outermost first."""
        return [Iter(loop) for loop in self.op.loops]

    @property
    def compute_at(self) -> int:
        """0 at the root, 1 inlined, 2 inside of a loop."""
        return INLINED if self.op.inlined else AT_ITERATOR if self.op.attached else ROOT


class State:
    """A schedule, step by step.

    A stage is named by its tensor, its operation, its index, or the value that `cache_write` or a
    related step returned.

    `func`: what is computed. `tensors`: what it was made of; may be empty.
    """

    ANNOTATION_TRANS_TABLE: ClassVar = {name: number for number, name in enumerate(st.ANNOTATIONS)}

    def __init__(self, func: Any, tensors: Sequence[Any] = ()) -> None:
        self._func, self._tensors = func, list(tensors)
        self._dag = read_dag(func)
        self.transform_steps: list[st.Step] = []
        self._run = Simulation(initial(self._dag), self.transform_steps, same_extents=True)
        # By identity: stages of the states that this is a copy of, and operations of TE.
        self._known: dict[int, tuple[Any, Stage]] = {}
        for op, stage in zip(_operations(self._tensors), self._stages):
            self._known[_identity(op)] = (op, stage)

    @staticmethod
    def of_steps(func: Any, tensors: Sequence[Any], steps: Sequence[st.Step]) -> State:
        """State that a record's steps lead to; StepError if they are another computation's."""
        made = State(func, tensors)
        for step in steps:
            made._append(step)
        return made

    def record_of(self, task: Any) -> AnsorRecord:
        """The state as an untimed Ansor record, from whose key `task` can be recovered."""
        key = task.registered_key or register_workload_tensors(
            task.workload_key, self._tensors or self._func
        )
        return AnsorRecord(
            workload_key=key,
            target_text=to_cli(task.target),
            step_rows=[st.to_row(step) for step in self.transform_steps],
            costs=(),
            hardware=task.hardware_params.numbers,
            host_text="" if task.target.host is None else to_cli(task.target.host),
            layout_option=task.layout_rewrite_option,
            input_names=tuple(task.task_input_names),
            steps=tuple(self.transform_steps),
        )

    def is_of(self, func: Any) -> bool:
        """Whether it is a state of this function's computation."""
        return bool(tvm_ffi.structural_equal(self._func, func))

    def __eq__(self, other: object) -> bool:
        """Whether the same steps were done to the same computation, with the same loops found."""
        return (
            isinstance(other, State)
            and self.transform_steps == other.transform_steps
            and str(self) == str(other)
            and self.is_of(other._func)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def _stages(self) -> list[Stage]:
        return self._run.state.stages

    @property
    def stage_ops(self) -> list[Stage]:
        """All stages, in their order."""
        return list(self._stages)

    @property
    def stages(self) -> list[StageView]:
        """All stages, in their order."""
        return list(map(StageView, self._stages))

    def __getitem__(self, stage: Any) -> StageView:
        return StageView(self._stage(stage))

    def copy(self) -> State:
        """Copy the state."""
        made = State(self._func, self._tensors)
        for step in self.transform_steps:
            made._append(step)
        pairs = dict(zip(map(id, self._stages), made._stages))
        for key, (thing, stage) in self._known.items():
            made._known[key] = (thing, pairs[id(stage)])
        for own, other in zip(self._stages, made._stages):
            made._known[id(own)] = (own, other)
        return made

    def bounded(self) -> State:
        """A copy in which all loops have extents."""
        made = self.copy()
        found = replay(self._dag, self.transform_steps).loops
        for stage in made._stages:
            for loop, (_, extent, _) in zip(stage.loops, found.get(stage.name, ())):
                loop.extent = extent or None
        return made

    def schedule(self) -> Any:
        """As a `tvm.s_tir.Schedule`."""
        return replay(self._dag, self.transform_steps).schedule

    # --- loops ---------------------------------------------------------------------------

    def split(
        self, stage: Any, iterator: Iter, lengths: Sequence[int], inner_to_outer: bool = True
    ) -> list[Iter]:
        """Loops of these lengths, and one for the rest: outermost, or else innermost."""
        place = self._loop(stage, iterator)
        extent = self._stage(stage).loops[place].extent or 0
        number = self._number(stage)
        self._append(st.Split(number, place, extent, tuple(lengths), inner_to_outer))
        return self._iters(stage)[place : place + len(lengths) + 1]

    def follow_split(
        self, stage: Any, iterator: Iter, src_step_id: int, n_split: int
    ) -> list[Iter]:
        """Loops as an earlier split made them, the innermost ones joined."""
        place = self._loop(stage, iterator)
        self._append(st.FollowSplit(self._number(stage), place, src_step_id, n_split))
        return self._iters(stage)[place : place + n_split + 1]

    def follow_fused_split(
        self,
        stage: Any,
        iterator: Iter,
        src_step_ids: Sequence[int],
        level: int,
        factor_or_nparts: bool,
    ) -> list[Iter]:
        """Two loops; the length of one is the product of one length of several splits."""
        place, number = self._loop(stage, iterator), self._number(stage)
        sources = tuple(src_step_ids)
        self._append(st.FollowFusedSplit(number, place, sources, level, factor_or_nparts))
        return self._iters(stage)[place : place + 2]

    def fuse(self, stage: Any, iters: Sequence[Iter]) -> Iter:
        """One loop of several that follow each other."""
        places = tuple(self._loop(stage, each) for each in iters)
        self._append(st.Fuse(self._number(stage), places))
        return self._iters(stage)[places[0] if places else 0]

    def reorder(self, stage: Any, order: Sequence[Iter]) -> None:
        """All loops in another order."""
        places = tuple(self._loop(stage, each) for each in order)
        self._append(st.Reorder(self._number(stage), places))

    def parallel(self, stage: Any, iterator: Iter) -> Iter:
        """A loop whose rounds run in threads of the CPU."""
        return self._annotate(stage, iterator, st.PARALLEL)

    def vectorize(self, stage: Any, iterator: Iter) -> Iter:
        """A loop of vector instructions."""
        return self._annotate(stage, iterator, st.VECTORIZE)

    def unroll(self, stage: Any, iterator: Iter, max_unroll: int | None = None) -> Iter:
        """A loop whose rounds are written out; one longer than `max_unroll` stays as it is."""
        extent = self._stage(stage).loops[self._loop(stage, iterator)].extent
        if max_unroll is not None and extent is not None and extent > max_unroll:
            return iterator
        return self._annotate(stage, iterator, st.UNROLL)

    def bind(self, stage: Any, iterator: Iter, thread_name: str) -> Iter:
        """A loop over a GPU's threads: "blockIdx.x", "threadIdx.y", "vthread"..."""
        if thread_name not in self.ANNOTATION_TRANS_TABLE:
            raise RecordError(f"bind: {thread_name!r} is none of a GPU's threads")
        return self._annotate(stage, iterator, thread_name)

    def pragma(self, stage: Any, iterator: Iter, pragma: str) -> None:
        """ "auto_unroll_max_step$64" on a loop."""
        row = ["PR", self._number(stage), self._loop(stage, iterator), pragma]
        self._append(*st.parse_steps([row]))

    def storage_align(self, stage: Any, iterator: Iter, factor: int, offset: int) -> None:
        """Rows of the result that begin at multiples of `factor`, and `offset` more."""
        place = self._loop(stage, iterator)
        self._append(st.StorageAlign(self._number(stage), place, factor, offset))

    # --- places --------------------------------------------------------------------------

    def compute_at(self, stage: Any, target_stage: Any, target_iter: Iter) -> None:
        """Compute a stage inside of a loop of another."""
        place = self._loop(target_stage, target_iter)
        self._append(st.ComputeAt(self._number(stage), self._number(target_stage), place))

    def compute_inline(self, stage: Any) -> None:
        """Compute a stage where it is read."""
        self._append(st.ComputeInline(self._number(stage)))

    def compute_root(self, stage: Any) -> None:
        """Inline a stage into its consumers."""
        self._append(st.ComputeRoot(self._number(stage)))

    # --- changes of the stages -----------------------------------------------------------

    def cache_read(self, stage: Any, scope_name: str, reader_stages: Sequence[Any]) -> Stage:
        """A copy of a stage for some readers."""
        number = self._number(stage)
        readers = tuple(map(self._number, reader_stages))
        self._append(st.CacheRead(number, scope_name, readers))
        return self._stages[number + 1]

    def cache_write(self, stage: Any, scope_name: str) -> Stage:
        """Compute a stage into another one first."""
        number = self._number(stage)
        self._append(st.CacheWrite(number, scope_name))
        return self._stages[number]

    def rfactor(self, stage: Any, iterator: Iter, factor_iter_id: int) -> Stage:
        """Factor one reduction loop into a separate stage of partial results."""
        number, place = self._number(stage), self._loop(stage, iterator)
        self._append(st.RFactor(number, place, factor_iter_id))
        return self._stages[number]

    # --- help ----------------------------------------------------------------------------

    def _append(self, step: st.Step) -> None:
        self.transform_steps.append(step)
        try:
            self._run.apply(len(self.transform_steps) - 1)
        except StepError:
            self.transform_steps.pop()
            raise

    def _annotate(self, stage: Any, iterator: Iter, annotation: str) -> Iter:
        place = self._loop(stage, iterator)
        self._append(st.Annotate(self._number(stage), place, annotation))
        return self._iters(stage)[place]

    def _iters(self, stage: Any) -> list[Iter]:
        return self[stage].iters

    def _stage(self, stage: Any) -> Stage:
        if isinstance(stage, int):
            return self._stages[stage]
        if isinstance(stage, te.Tensor):
            stage = stage.op
        if any(stage is own for own in self._stages):
            return stage
        found = self._known.get(_identity(stage))
        if found is None:
            raise RecordError(f"{getattr(stage, 'name', stage)} is no stage of this state")
        return found[1]

    def _number(self, stage: Any) -> int:
        own = self._stage(stage)
        return next(number for number, each in enumerate(self._stages) if each is own)

    def _loop(self, stage: Any, iterator: Iter) -> int:
        """The place of a loop, which may be one of the state that this is a copy of."""
        loops = self._stage(stage).loops
        same = (n for n, each in enumerate(loops) if each is iterator.loop)
        alike = (n for n, each in enumerate(loops) if each.name == iterator.name)
        place = next(same, next(alike, None))
        if place is None:
            name = self._stage(stage).name
            raise RecordError(f"{iterator.name} is no loop of {name} any more")
        return place

    def __str__(self) -> str:
        names = ", ".join(stage.name for stage in self._stages if stage.is_placeholder)
        lines = [f"Placeholder: {names}"]
        for stage in self._stages:
            if not (stage.is_placeholder or stage.inlined or stage.attached):
                lines += self._lines(stage, 0)
        return "\n".join(lines)

    def _lines(self, stage: Stage, depth: int) -> Iterator[str]:
        """The loops of a stage, with the stages that are computed inside of them."""
        for loop in stage.loops:
            word = "for" if loop.annotation == "none" else loop.annotation
            extent = "(None)" if loop.extent is None else f"(0,{loop.extent})"
            yield f"{'  ' * depth}{word} {loop.name} {extent}"
            depth += 1
            for other in self._stages:
                if other.attached == (stage, loop) and not other.inlined:
                    yield from self._lines(other, depth)
        yield f"{'  ' * depth}{stage.name} = ..."


def _identity(thing: Any) -> int:
    """Identity of a TVM object, shared by its Python wrappers."""
    return hash(thing) if hasattr(thing, "__chandle__") else id(thing)


def _operations(tensors: Sequence[Any]) -> list[Any]:
    """The operations that tensors come from, as Ansor numbered them: what is read first."""
    roots = [each.op for each in tensors if not isinstance(each.op, te.PlaceholderOp)]
    return list(depth_first(roots, lambda op: [tensor.op for tensor in op.input_tensors]))
