"""Simulation of Ansor's steps on a compute DAG: stages, loops and compute locations.

The steps are applied to plain Python objects first, since Ansor's schedules were declarative: where
a stage is computed may be set before its consumers have their final loops. `replay.py` turns the
result into TensorIR primitives. Steps that change the DAG are kept as events, in their order.

Iterators are objects; splitting, fusing and attaching refer to them and not to positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from ...errors import RecordError
from . import steps as st
from .dag import ComputeDag, Operation

SPATIAL, REDUCE, MIXED = "spatial", "reduce", "mixed"


class StepError(RecordError):
    """A step that does not fit the DAG, or can't be translated; names the step."""


@dataclass(eq=False)
class Iterator:
    """One loop of a stage."""

    name: str
    extent: int | None  # None once it depends on where the stage is computed
    kind: str
    annotation: str = "none"
    # The stage's own axes that it was made from; empty for such an axis itself
    roots: frozenset[Iterator] = frozenset()

    def made_from(self) -> frozenset[Iterator]:
        return self.roots or frozenset([self])


@dataclass(frozen=True, eq=False)
class SplitMade:
    """`source` became `parts`, outermost first, of `lengths`."""

    source: Iterator
    parts: tuple[Iterator, ...]
    lengths: tuple[int, ...]
    inner_to_outer: bool


@dataclass(frozen=True, eq=False)
class FuseMade:
    """`sources` became `fused`; without sources it is a new loop of extent 1."""

    sources: tuple[Iterator, ...]
    fused: Iterator


@dataclass(frozen=True, eq=False)
class ReorderMade:
    """All loops of the stage, outermost first."""

    order: tuple[Iterator, ...]


Change = SplitMade | FuseMade | ReorderMade


@dataclass(eq=False)
class Stage:
    """A placeholder or a compute with its loops."""

    name: str
    is_placeholder: bool
    axes: tuple[Iterator, ...]  # its own axes, spatial ones first
    reads: list[Stage]
    operation: Operation | None = None
    is_output: bool = False
    scope: str = ""
    loops: list[Iterator] = field(default_factory=list)  # outermost first
    history: list[Change] = field(default_factory=list)  # how `loops` came from `axes`
    inlined: bool = False
    attached: tuple[Stage, Iterator] | None = None  # where it is computed; None for the root
    pragmas: list[tuple[Iterator, int]] = field(default_factory=list)
    alignments: list[tuple[Iterator, int, int]] = field(default_factory=list)

    @property
    def is_reduction(self) -> bool:
        return any(axis.kind == REDUCE for axis in self.axes)

    @property
    def spatial(self) -> tuple[Iterator, ...]:
        return tuple(axis for axis in self.axes if axis.kind == SPATIAL)


@dataclass(frozen=True, eq=False)
class CacheReadMade:
    """`stage` is a copy of `source` for `readers`."""

    stage: Stage
    source: Stage
    readers: tuple[Stage, ...]


@dataclass(frozen=True, eq=False)
class CacheWriteMade:
    """`computing` has the computation that `copy` had."""

    computing: Stage
    copy: Stage


@dataclass(frozen=True, eq=False)
class RFactorMade:
    """`partial` has partial results over `factored`; `final` adds them up."""

    partial: Stage
    final: Stage
    factored: Iterator
    position: int
    # The stage's axes, their changes, and its loops, before this one
    history_axes: tuple[Iterator, ...]
    history: tuple[Change, ...]
    leaves: tuple[Iterator, ...]
    leaf_of: dict[Iterator, Iterator]  # from the loops before to the axes of `partial`
    final_of: dict[Iterator, Iterator]


Event = CacheReadMade | CacheWriteMade | RFactorMade


@dataclass(eq=False)
class State:
    """Stages in the order of their ids, and the steps that changed the DAG."""

    stages: list[Stage]
    events: list[Event] = field(default_factory=list)

    def consumers(self, stage: Stage) -> list[Stage]:
        """Stages that read a stage, seen through those that are inlined."""
        found: list[Stage] = []
        for reader in self.stages:
            if any(read is stage for read in reader.reads):
                found += self.consumers(reader) if reader.inlined else [reader]
        return found


def apply_steps(dag: ComputeDag, steps: Sequence[st.Step], same_extents: bool = True) -> State:
    """Apply the steps of a record to a DAG.

    `same_extents`: refuse a split whose recorded extent is not that of the axis.
    Raises StepError: a step refers to what is not there, or does what Ansor's rules forbid.
    """
    state = initial(dag)
    simulation = Simulation(state, steps, same_extents)
    for index in range(len(steps)):
        simulation.apply(index)
    simulation.check()
    return state


def initial(dag: ComputeDag) -> State:
    """The stages of a DAG as they are declared."""
    stages: dict[int, Stage] = {}
    for op in dag.operations:
        axes = tuple(Iterator(a.name, a.extent, REDUCE if a.is_reduction else SPATIAL)
                     for a in op.axes)  # fmt: skip
        reads = [stages[id(producer)] for producer in op.producers]
        is_output = any(op is output for output in dag.outputs)
        stages[id(op)] = Stage(
            op.name, op.is_placeholder, axes, reads, op, is_output, loops=list(axes)
        )
    return State(list(stages.values()))


class Simulation:
    """A state and its steps, each applied once; more steps may follow."""

    def __init__(self, state: State, steps: Sequence[st.Step], same_extents: bool) -> None:
        self.same_extents = same_extents
        self.state = state
        self.steps = steps
        self.index = 0
        self._apply = {
            st.Annotate: self._annotate,
            st.Fuse: self._fuse,
            st.Pragma: self._pragma,
            st.Reorder: self._reorder,
            st.Split: self._split,
            st.FollowSplit: self._follow_split,
            st.FollowFusedSplit: self._follow_fused_split,
            st.StorageAlign: self._storage_align,
            st.ComputeAt: self._compute_at,
            st.ComputeInline: self._compute_inline,
            st.ComputeRoot: self._compute_root,
            st.CacheRead: self._cache_read,
            st.CacheWrite: self._cache_write,
            st.RFactor: self._rfactor,
        }

    def apply(self, index: int) -> None:
        """Apply one of the steps."""
        self.index = index
        step = self.steps[index]
        self._apply[type(step)](self._stage(step.stage), step)  # type: ignore[operator]

    def check(self) -> None:
        """Check the final state: every stage is computed where its consumers can read it."""
        for stage in self.state.stages:
            if stage.attached is not None and not stage.inlined:
                target, iterator = stage.attached
                if iterator not in target.loops:
                    self._refuse(f"{stage.name} is computed at a loop that is gone")
                self._check_ancestry(stage)

    def _check_ancestry(self, stage: Stage) -> None:
        seen: list[Stage] = [stage]
        assert stage.attached is not None
        target = stage.attached[0]
        place: tuple[Stage, Iterator] | None = stage.attached
        while place is not None:
            if any(place[0] is other for other in seen):
                self._refuse(f"{stage.name} is computed inside itself")
            seen.append(place[0])
            place = place[0].attached
        for consumer in self.state.consumers(stage):
            at: Stage | None = consumer
            for _ in self.state.stages:
                if at is None or at is target:
                    break
                at = at.attached[0] if at.attached else None
            if at is not target:
                self._refuse(f"{stage.name} is computed where {consumer.name} can't read it")

    def _refuse(self, reason: str) -> NoReturn:
        step = self.steps[self.index]
        raise StepError(f"step {self.index} ({st.kind_of(step)}): {reason}")

    def _stage(self, number: int) -> Stage:
        if number >= len(self.state.stages):
            self._refuse(f"there is no stage {number}")
        stage = self.state.stages[number]
        if stage.is_placeholder and not isinstance(self.steps[self.index], st.CacheRead):
            self._refuse(f"stage {number} ({stage.name}) is a placeholder")
        return stage

    def _loop(self, stage: Stage, number: int) -> Iterator:
        if number >= len(stage.loops):
            self._refuse(f"{stage.name} has {len(stage.loops)} loops, none of number {number}")
        return stage.loops[number]

    # --- loops ---------------------------------------------------------------------------

    def _annotate(self, stage: Stage, step: st.Annotate) -> None:
        loop = self._loop(stage, step.iterator)
        if step.annotation == st.TENSORIZE:
            self._refuse("tensorize names no intrinsic; TVM could not apply it either")
        if step.annotation == "none":
            return
        if loop.annotation != "none":
            self._refuse(f"loop {loop.name} of {stage.name} is {loop.annotation} already")
        loop.annotation = step.annotation

    def _pragma(self, stage: Stage, step: st.Pragma) -> None:
        if step.iterator < len(stage.loops):  # TVM passes over others silently, too
            stage.pragmas.append((stage.loops[step.iterator], step.max_step))

    def _storage_align(self, stage: Stage, step: st.StorageAlign) -> None:
        loop = self._loop(stage, step.iterator)
        stage.alignments.append((loop, step.factor, step.offset))

    def _fuse(self, stage: Stage, step: st.Fuse) -> None:
        loops = [self._loop(stage, number) for number in step.iterators]
        if list(step.iterators) != list(range(*_span(step.iterators))):
            self._refuse(f"loops {list(step.iterators)} are not consecutive")
        if not loops:
            fused = Iterator("unit", 1, SPATIAL)
            stage.loops.insert(0, fused)
            stage.history.append(FuseMade((), fused))
            return
        if len(loops) == 1:
            loops[0].annotation = "none"
            return
        if any(self._is_attach_point(stage, loop) for loop in loops[:-1]):
            self._refuse("a stage is computed between the loops that are fused")
        extents = [loop.extent for loop in loops]
        extent = None if None in extents else math.prod(e for e in extents if e is not None)
        kinds = {loop.kind for loop in loops}
        fused = Iterator(
            "@".join(loop.name for loop in loops) + "@", extent,
            kinds.pop() if len(kinds) == 1 else MIXED,
            roots=frozenset().union(*(loop.made_from() for loop in loops)),
        )  # fmt: skip
        first = step.iterators[0]
        stage.loops[first : first + len(loops)] = [fused]
        stage.history.append(FuseMade(tuple(loops), fused))
        self._move_attachments(stage, loops[-1], fused)

    def _reorder(self, stage: Stage, step: st.Reorder) -> None:
        if sorted(step.order) != list(range(len(stage.loops))):
            self._refuse(
                f"{list(step.order)} is not an order of {len(stage.loops)} loops of {stage.name}"
            )
        stage.loops = [stage.loops[number] for number in step.order]
        stage.history.append(ReorderMade(tuple(stage.loops)))

    def _split(self, stage: Stage, step: st.Split) -> None:
        loop = self._loop(stage, step.iterator)
        # Extents of attached loops and of fused tiles are those before thread binding and before
        # the search changed the tiles; others must agree.
        is_whole = loop.extent == math.prod(root.extent or 0 for root in loop.made_from())
        is_axis = is_whole and stage.attached is None and self.same_extents
        if is_axis and step.extent and loop.extent not in (None, step.extent):
            self._refuse(
                f"loop {loop.name} of {stage.name} has extent {loop.extent}, not {step.extent}"
            )
        self._divide(stage, step.iterator, step.lengths, step.inner_to_outer)

    def _follow_split(self, stage: Stage, step: st.FollowSplit) -> None:
        lengths = self._source_split(step.source).lengths
        if step.parts > len(lengths) + 1:
            self._refuse(f"step {step.source} has no {step.parts} lengths to follow")
        head = lengths[: step.parts - 1]
        self._divide(stage, step.iterator, (*head, math.prod(lengths[step.parts - 1 :])), True)

    def _follow_fused_split(self, stage: Stage, step: st.FollowFusedSplit) -> None:
        length = 1
        for source in step.sources:
            lengths = self._source_split(source).lengths
            if step.level >= len(lengths):
                self._refuse(f"step {source} has no length number {step.level}")
            length *= lengths[step.level]
        self._divide(stage, step.iterator, (length,), step.is_factor)

    def _source_split(self, number: int) -> st.Split:
        source = self.steps[number] if number < self.index else None
        if not isinstance(source, st.Split):
            self._refuse(f"step {number} is not a split before this one")
        return source

    def _divide(
        self, stage: Stage, number: int, lengths: tuple[int, ...], inner_to_outer: bool
    ) -> None:
        loop = self._loop(stage, number)
        rest = None if loop.extent is None else -(-loop.extent // math.prod(lengths))
        extents = (rest, *lengths) if inner_to_outer else (*lengths, rest)
        parts = tuple(
            Iterator(f"{loop.name}.{i}", extent, loop.kind, roots=loop.made_from())
            for i, extent in enumerate(extents)
        )
        stage.loops[number : number + 1] = parts
        stage.history.append(SplitMade(loop, parts, lengths, inner_to_outer))
        self._move_attachments(stage, loop, parts[-1])

    def _is_attach_point(self, stage: Stage, loop: Iterator) -> bool:
        return any(
            other.attached is not None and other.attached[1] is loop and not other.inlined
            for other in self.state.stages
        )

    def _move_attachments(self, stage: Stage, old: Iterator, new: Iterator) -> None:
        for other in self.state.stages:
            if other.attached is not None and other.attached[1] is old:
                other.attached = (stage, new)

    # --- places --------------------------------------------------------------------------

    def _compute_at(self, stage: Stage, step: st.ComputeAt) -> None:
        target = self._stage(step.target)
        if target is stage or stage.is_output:
            self._refuse(f"{stage.name} can't be computed at {target.name}")
        stage.attached, stage.inlined = (target, self._loop(target, step.iterator)), False
        for loop in stage.loops:
            loop.extent = None

    def _compute_inline(self, stage: Stage, step: st.ComputeInline) -> None:
        if stage.is_reduction or stage.is_output:
            self._refuse(f"{stage.name} is a reduction or a result and can't be inlined")
        if any(s.attached is not None and s.attached[0] is stage for s in self.state.stages):
            self._refuse(f"a stage is computed inside {stage.name}, which can't be inlined then")
        stage.inlined, stage.attached = True, None

    def _compute_root(self, stage: Stage, step: st.ComputeRoot) -> None:
        stage.inlined, stage.attached = False, None

    # --- changes of the DAG --------------------------------------------------------------

    def _cache_read(self, source: Stage, step: st.CacheRead) -> None:
        readers = tuple(self.state.stages[n] for n in step.readers if n < len(self.state.stages))
        if len(readers) != len(step.readers) or not readers:
            self._refuse(f"stages {list(step.readers)} are not all there")
        for reader in readers:
            if not any(read is source for read in reader.reads):
                self._refuse(f"{reader.name} does not read {source.name}")
        shape = (
            source.operation.shape if source.operation else [axis.extent for axis in source.spatial]
        )
        axes = tuple(Iterator(f"ax{i}", extent, SPATIAL) for i, extent in enumerate(shape))
        copy = Stage(f"{source.name}.{step.scope}", False, axes, [source], scope=step.scope,
                     loops=list(axes))  # fmt: skip
        for reader in readers:
            reader.reads = [copy if read is source else read for read in reader.reads]
        self.state.stages.insert(self.state.stages.index(source) + 1, copy)
        self.state.events.append(CacheReadMade(copy, source, readers))

    def _cache_write(self, stage: Stage, step: st.CacheWrite) -> None:
        if stage.history or stage.attached or stage.inlined:
            self._refuse(f"{stage.name} is scheduled already")
        computing = Stage(f"{stage.name}.{step.scope}", False, stage.axes, stage.reads,
                          stage.operation, scope=step.scope, loops=list(stage.axes))  # fmt: skip
        axes = tuple(Iterator(axis.name, axis.extent, SPATIAL) for axis in stage.spatial)
        stage.axes, stage.loops, stage.reads, stage.operation = axes, list(axes), [computing], None
        self.state.stages.insert(self.state.stages.index(stage), computing)
        self.state.events.append(CacheWriteMade(computing, stage))

    def _rfactor(self, stage: Stage, step: st.RFactor) -> None:
        factored = self._loop(stage, step.iterator)
        spatial = stage.spatial
        if factored.kind != REDUCE:
            self._refuse(f"loop {factored.name} of {stage.name} is not a reduction")
        if step.position > len(spatial):
            self._refuse(f"{stage.name} has {len(spatial)} spatial axes")
        if any(axis not in stage.loops for axis in spatial):
            self._refuse(f"spatial loops of {stage.name} are split or fused already")
        untouched = [a for a in stage.axes if a.kind == REDUCE and a not in factored.made_from()]
        others = [loop for loop in stage.loops if loop is not factored and loop not in stage.axes
                  and loop.kind == REDUCE]  # fmt: skip
        if factored not in stage.axes and not {
            root for loop in others for root in loop.made_from()
        } <= set(factored.made_from()):
            self._refuse(f"several reductions of {stage.name} are split")
        before = [*spatial[: step.position], factored, *spatial[step.position :]]
        leaf_of = {loop: Iterator(loop.name, loop.extent, SPATIAL) for loop in before}
        leaf_of |= {
            loop: Iterator(loop.name, loop.extent, REDUCE) for loop in (*untouched, *others)
        }
        final_of = {
            loop: Iterator(f"ax{i}", loop.extent, SPATIAL) for i, loop in enumerate(spatial)
        }
        final_of[factored] = Iterator(f"{factored.name}_v", factored.extent, REDUCE)
        axes = tuple(leaf_of.values())
        partial = Stage(f"{stage.name}.rf", False, axes, stage.reads, stage.operation,
                        loops=list(axes))  # fmt: skip
        event = RFactorMade(
            partial, stage, factored, step.position, stage.axes, tuple(stage.history),
            tuple(stage.loops), leaf_of, final_of,
        )  # fmt: skip
        stage.axes = tuple(final_of.values())
        stage.loops, stage.history, stage.reads = list(stage.axes), [], [partial]
        stage.operation, stage.pragmas = None, []
        self.state.stages.insert(self.state.stages.index(stage), partial)
        self.state.events.append(event)


def _span(numbers: Sequence[int]) -> tuple[int, int]:
    return (numbers[0], numbers[0] + len(numbers)) if numbers else (0, 0)
