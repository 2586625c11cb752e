"""Replays the steps of an Ansor record on TensorIR.

Two phases, because Ansor's schedules were declarative and TensorIR changes the program at once:
`state.apply_steps` finds what every stage ends up as; here that is carried out, consumers before
producers, so that each `compute_at` sees its consumer's final loops:

    1. changes of the DAG (cache reads and writes, rfactor), in recorded order
    2. inlining
    3. from the last stage to the first: place, split, fuse, reorder, bind to threads
    4. vectorize, unroll, parallel, pragmas
    5. each reduction's initialization is moved before its outermost reduction loop
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlockRealize, Schedule, renew_defs

from schedules.tir_visit import nodes_of

from . import state as model
from . import steps as st
from .dag import ComputeDag
from .state import SPATIAL, Stage, State, StepError, apply_steps

ENTRY = "main"
_THREADS = ("threadIdx", "vthread")
# Unrolling repeats the exchange between threads, which code generation allows once.
_LARGEST_CROSS_THREAD_UNROLL = 16
# Elements that make a vector in CUDA; TVM compiled records of others, and did not vectorize them.
_CUDA_VECTORS = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Replayed:
    """A scheduled function."""

    schedule: Schedule  # with the scheduled function
    blocks: dict[Stage, Any]  # of the schedule
    state: State  # what the steps made of the DAG
    # For each stage its loops, outermost first: name, extent (0 if it is not a constant), and
    # annotation
    loops: dict[str, list[tuple[str, int, str]]]
    notes: tuple[str, ...]  # annotations that TensorIR does not allow there and that were left out

    @property
    def func(self) -> tirx.PrimFunc:
        """The scheduled function, with the operands of the unscheduled one in the same order."""
        return self.schedule.mod[ENTRY]


def replay(dag: ComputeDag, steps: Sequence[st.Step], same_extents: bool = True) -> Replayed:
    """Schedule the DAG's function as the steps say.

    `same_extents`: refuse a split whose recorded extent is not that of the axis. A record whose key
    is the compute's needs no such proof, and one of smaller extents would not pass.
    Raises StepError: a step does not fit the DAG, or TensorIR refuses it; says which and why.
    """
    state = apply_steps(dag, steps, same_extents)
    emitter = _Emitter(dag, state)
    emitter.run()
    return Replayed(
        emitter.schedule, emitter.blocks, state, emitter.loop_nests, tuple(emitter.notes)
    )


class _Schedule(Schedule):
    """A schedule without Python's type checks, which take longer than most primitives."""


for _name, _method in vars(Schedule).items():
    if hasattr(_method, "__wrapped__"):
        setattr(_Schedule, _name, _method.__wrapped__)


class _Emitter:
    def __init__(self, dag: ComputeDag, state: State) -> None:
        self.state = state
        # A schedule may write into nodes that it shares with another function, so it gets its own.
        func = renew_defs(dag.func.with_attr("global_symbol", ENTRY))
        self.schedule = _Schedule(tvm.IRModule({ENTRY: func}), error_render_level="fast")
        self.blocks: dict[Stage, Any] = {}
        self.of_loop: dict[model.Iterator, Any] = {}
        # Loops of blocks that rfactor made, which keep the order from before it.
        self.made_loops: dict[Stage, dict[model.Iterator, Any]] = {}
        # Partial results whose last part is shorter: `compute_at` would forget its guard.
        self.guarded: set[Stage] = set()
        self.in_threads = any("Idx" in it.annotation for s in state.stages for it in s.loops)
        self.names = {op.name: op for op in dag.operations}
        self.loop_nests: dict[str, list[tuple[str, int, str]]] = {}
        self.notes: list[str] = []

    def run(self) -> None:
        self._find_blocks()
        for event in self.state.events:
            self._emit_event(event)
        for stage in self.state.stages:
            if stage.inlined:
                with self._doing("CI", stage):
                    self.schedule.compute_inline(self.blocks[stage])
        computed = [s for s in self.state.stages if not s.is_placeholder and not s.inlined]
        for stage in reversed(computed):
            self._place(stage)
            self._shape(stage, stage.history, self._loops_of(stage))
            self._align(stage)
            self._bind(stage)
        for stage in computed:
            self._annotate(stage)
            self._note_loops(stage)
        for stage in computed:
            self._decompose(stage)

    @contextmanager
    def _doing(self, kind: str, stage: Stage) -> Iterator[None]:
        try:
            yield
        except StepError:
            raise
        except Exception as error:  # TVM's schedule primitives raise what they like
            raise StepError(f"{kind} of {stage.name}: {_reason(error)}") from error

    def _find_blocks(self) -> None:
        for stage in self.state.stages:
            operation = stage.operation
            if operation is not None and not operation.is_placeholder:
                self.blocks[stage] = self.schedule.get_sblock(operation.name)
        # Stages that copy a computation have no operation; their blocks come with the events.

    # --- changes of the DAG --------------------------------------------------------------

    def _emit_event(self, event: model.Event) -> None:
        if isinstance(event, model.CacheReadMade):
            with self._doing("CHR", event.source):
                self._cache_read(event)
        elif isinstance(event, model.CacheWriteMade):
            with self._doing("CHW", event.copy):
                block = self.blocks[event.computing]
                self.blocks[event.copy] = self.schedule.cache_write(block, 0, event.computing.scope)
        else:
            with self._doing("RF", event.final):
                self._rfactor(event)

    def _cache_read(self, event: model.CacheReadMade) -> None:
        if event.source.is_placeholder:
            assert event.source.operation is not None
            name = event.source.operation.buffer.name
            params = list(self.schedule.mod[ENTRY].params)
            buffer = next(param for param in params if param.name == name)
        else:
            buffer = self.schedule.get(self.blocks[event.source]).writes[0].source
        readers = [self.blocks[reader] for reader in event.readers]
        reads = self.schedule.get(readers[0]).reads
        index = next(i for i, read in enumerate(reads) if read.source.same_as(buffer))
        self.blocks[event.stage] = self.schedule.cache_read(
            readers[0], index, event.stage.scope, consumer_blocks=readers
        )

    def _rfactor(self, event: model.RFactorMade) -> None:
        block = self.blocks[event.partial]
        loops = dict(zip(event.history_axes, self.schedule.get_loops(block)))
        self._shape(event.partial, event.history, loops)
        partial = self.schedule.rfactor(self.of_loop[event.factored], event.position)
        self.blocks[event.partial], self.blocks[event.final] = partial, block
        if any(isinstance(c, model.SplitMade) and _is_ragged(c) for c in event.history):
            self.guarded.add(event.partial)
        in_order = [event.leaf_of[leaf] for leaf in event.leaves]
        self._adopt(event.partial, in_order)
        summed = [event.final_of[leaf] for leaf in event.leaves if leaf in event.final_of]
        self._adopt(event.final, summed)

    def _adopt(self, stage: Stage, loops_now: list[model.Iterator]) -> None:
        """Give a block that rfactor made the order of axes that Ansor's stage has."""
        schedule, block = self.schedule, self.blocks[stage]
        handles = dict(zip(loops_now, schedule.get_loops(block), strict=True))
        variables = {str(schedule.get(h).loop_var.name): it for it, h in handles.items()}
        values = _block_values(schedule.mod[ENTRY], schedule.get(block))
        at = {variables[str(value.name)]: i for i, value in enumerate(values)}
        schedule.reorder_block_iter_var(block, [at[axis] for axis in stage.axes])
        schedule.reorder(*(handles[axis] for axis in stage.axes))
        self.made_loops[stage] = handles

    # --- places and loops ----------------------------------------------------------------

    def _place(self, stage: Stage) -> None:
        if stage.attached is None:
            return
        if stage in self.guarded:
            self.notes.append(
                f"CA of {stage.name}: its parts do not divide the reduction; at the root"
            )
            return
        block, loop = self.blocks[stage], self.of_loop[stage.attached[1]]
        with self._doing("CA", stage):
            scope = "" if stage.scope else self._scope_at(stage)
            if scope:
                self.schedule.set_scope(block, 0, scope)
            # The first possible place, so that producers at one loop keep the order of stages.
            self.schedule.compute_at(block, loop, preserve_unit_loops=True, index=-2)
        self.made_loops.pop(stage, None)

    def _scope_at(self, stage: Stage) -> str:
        """Where Ansor kept a stage that names no scope: by the threads around it."""
        around = []
        place = stage.attached
        while place is not None:
            target, iterator = place
            around += [loop.annotation for loop in target.loops[: target.loops.index(iterator) + 1]]
            place = target.attached
        if any(annotation.startswith(_THREADS) for annotation in around):
            return "local"
        return "shared" if any(a.startswith("blockIdx") for a in around) else ""

    def _loops_of(self, stage: Stage) -> dict[model.Iterator, Any]:
        """Handles of the loops over a stage's own axes."""
        if stage in self.made_loops:
            return self.made_loops[stage]
        if not stage.axes:
            return {}
        handles = self.schedule.get_loops(self.blocks[stage])[-len(stage.axes) :]
        return dict(zip(stage.axes, handles, strict=True))

    def _shape(
        self, stage: Stage, history: Sequence[model.Change], loops: dict[model.Iterator, Any]
    ) -> None:
        """Split, fuse and reorder the loops of a stage."""
        schedule = self.schedule
        loops = dict(loops)
        bound = _bound_to_threads(stage, history)
        for change in history:
            if isinstance(change, model.SplitMade):
                with self._doing("SP", stage):
                    loop = loops.pop(change.source)
                    factors = _split_factors(_extent(schedule, loop), change, bound)
                    loops |= zip(change.parts, schedule.split(loop, factors), strict=True)
            elif isinstance(change, model.FuseMade):
                with self._doing("FU", stage):
                    if change.sources:
                        sources = [loops.pop(source) for source in change.sources]
                        loops[change.fused] = schedule.fuse(*sources)
                    else:
                        loops[change.fused] = schedule.add_unit_loop(self.blocks[stage])
            else:
                with self._doing("RE", stage):
                    schedule.reorder(*(loops[iterator] for iterator in change.order))
        self.of_loop |= loops

    def _align(self, stage: Stage) -> None:
        """Storage alignment: Ansor names a loop, TensorIR the dimension it runs over."""
        for iterator, factor, offset in stage.alignments:
            if iterator in stage.spatial and not stage.is_output:
                with self._doing("SA", stage):
                    self.schedule.storage_align(
                        self.blocks[stage], 0, stage.spatial.index(iterator), factor, offset
                    )

    def _bind(self, stage: Stage) -> None:
        for iterator in stage.loops:
            thread = iterator.annotation
            if "Idx" in thread or thread == st.VTHREAD:
                with self._doing("AN", stage):
                    name = "vthread.x" if thread == st.VTHREAD else thread
                    self.schedule.bind(self.of_loop[iterator], name)

    # --- annotations ---------------------------------------------------------------------

    def _annotate(self, stage: Stage) -> None:
        mark: dict[str, Callable[[Any], None]] = {
            st.UNROLL: self.schedule.unroll,
            st.VECTORIZE: self.schedule.vectorize,
            st.PARALLEL: self.schedule.parallel,
        }
        for iterator in stage.loops:
            if iterator.annotation in mark:
                loop = self.of_loop[iterator]
                extent = _extent(self.schedule, loop)
                is_vector = self.in_threads and iterator.annotation == st.VECTORIZE
                if is_vector and extent is not None and extent not in _CUDA_VECTORS:
                    self.notes.append(
                        f"AN of {stage.name}: {extent} elements make no vector of a GPU"
                    )
                    continue
                if extent is None:
                    self.notes.append(
                        f"AN of {stage.name}: loop {iterator.name} has no constant extent; "
                        f"not {iterator.annotation}"
                    )
                    continue
                with self._doing("AN", stage):
                    mark[iterator.annotation](loop)
        crossing = self._crosses_threads(stage)
        for iterator, max_step in stage.pragmas:
            if iterator not in stage.loops:
                continue
            if crossing and max_step > _LARGEST_CROSS_THREAD_UNROLL:
                self.notes.append(f"PR of {stage.name}: threads reduce together; not unrolled")
                continue
            with self._doing("PR", stage):
                loop = self.of_loop[iterator]
                self.schedule.annotate(loop, "pragma_auto_unroll_max_step", max_step)
                self.schedule.annotate(loop, "pragma_unroll_explicit", 1)

    def _crosses_threads(self, stage: Stage) -> bool:
        return any(loop.kind != SPATIAL and "Idx" in loop.annotation for loop in stage.loops)

    def _note_loops(self, stage: Stage) -> None:
        self.loop_nests[stage.name] = [
            (it.name, _extent(self.schedule, self.of_loop[it]) or 0, it.annotation)
            for it in stage.loops
        ]

    def _decompose(self, stage: Stage) -> None:
        reductions = [loop for loop in stage.loops if loop.kind != SPATIAL]
        if not reductions or self._crosses_threads(stage):
            return
        try:
            self.schedule.decompose_reduction(self.blocks[stage], self.of_loop[reductions[0]])
        except Exception as error:  # right without, only slower
            self.notes.append(f"initialization of {stage.name} stays inside: {_reason(error)}")


def _is_ragged(change: model.SplitMade) -> bool:
    """Whether the parts of a split do not divide the loop."""
    extent = change.source.extent
    return extent is None or extent % math.prod(change.lengths) != 0


def _split_factors(
    extent: int | None, change: model.SplitMade, bound: set[model.Iterator]
) -> list[int | None]:
    """Lengths of the parts: Ansor's, but no longer than what is left, unless threads run them."""
    lengths = change.lengths
    if extent is None:
        return [None, *lengths] if change.inner_to_outer else [*lengths, None]
    known = change.parts[1:] if change.inner_to_outer else change.parts[:-1]
    pairs = list(zip(known, lengths, strict=True))
    rest, clamped = extent, []
    for part, length in reversed(pairs) if change.inner_to_outer else pairs:
        taken = length if part in bound else min(length, rest)
        clamped.append(taken)
        rest = -(-rest // taken)
    return [rest, *reversed(clamped)] if change.inner_to_outer else [*clamped, rest]


def _bound_to_threads(stage: Stage, history: Sequence[model.Change]) -> set[model.Iterator]:
    """Loops that end up, as a whole or in part, as a thread's index."""
    bound = {
        loop for loop in stage.loops if "Idx" in loop.annotation or loop.annotation == st.VTHREAD
    }
    for change in reversed(history):
        if isinstance(change, model.SplitMade) and bound.intersection(change.parts):
            bound.add(change.source)
        elif isinstance(change, model.FuseMade) and change.fused in bound:
            bound.update(change.sources)
    return bound


def _extent(schedule: Schedule, loop: Any) -> int | None:
    extent = schedule.get(loop).extent
    return int(extent) if isinstance(extent, tirx.IntImm) else None


def _block_values(func: tirx.PrimFunc, block: Any) -> list[Any]:
    """Binding values of the block's iterators."""
    realized = (each for each in nodes_of(func.body, SBlockRealize) if each.block.same_as(block))
    return [value for realize in realized for value in realize.iter_values]


def _reason(error: Exception) -> str:
    """The telling line of a schedule primitive's error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line or "not" in line]
    return (telling or lines or [type(error).__name__])[-1][:200]
