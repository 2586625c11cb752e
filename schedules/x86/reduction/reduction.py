"""Vectorized reductions on x86: the pieces that every rule with a reduction shares.

A reduction along the contiguous axis becomes a chain of partial results, because LLVM must not
reorder floating-point additions by itself:

    lanes * accumulators partial results   vectorized, over the whole axis
    lanes                                  the accumulators put together
    4                                      the quarters of a vector put together
    the result, and then the tail of the axis that no vector divides
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from ...generic.rewrite import is_simple_reduction, merge_axes, peel_reduction, separate_reductions
from ...generic.stages import Iter, Stage, accesses, contiguous_group, stages, stride, uses
from ..machine.cpu import Machine

# Independent accumulators hide the latency of an addition; more than four gain nothing.
ACCUMULATORS = (4, 2, 1)
# Vectors that each accumulator must take in to be worth putting together at the end.
MIN_VECTORS = 2
# Reduction loops up to this extent are unrolled.
MAX_UNROLL = 16
LAST_LANES = 4

_realize = tvm_ffi.get_global_func("s_tir.schedule.GetSBlockRealize")


@dataclass(frozen=True)
class Cut:
    """A contiguous reduction axis in vectors."""

    reduction: str  # the stage as it was
    stage: str  # the stage whose axis the vectors divide: the same one, or its peeled head
    lanes: int
    accumulators: int


def moving(stage: Stage, kind: str) -> list[Iter]:
    """Iterators of the kind with more than one element."""
    return [it for it in stage.iters if it.kind == kind and it.extent > 1]


def find(sch: s_tir.Schedule, name: str) -> Stage:
    """The stage of that name."""
    return next(stage for stage in stages(sch) if stage.name == name)


def walks(stage: Stage, it: Iter) -> bool:
    """Whether some load of the stage is contiguous along the iterator."""
    return any(not access.is_store and stride(access, it.var) == 1 for access in accesses(stage))


def reduces_along_memory(stage: Stage) -> bool:
    """Whether all moved loads are contiguous in the innermost reduction axis, unlike a matmul's."""
    reduced = moving(stage, "R")
    if not reduced:
        return False
    steps = {stride(access, reduced[-1].var) for access in accesses(stage) if not access.is_store}
    return 1 in steps and steps <= {0, 1}


def slides(stage: Stage) -> bool:
    """Whether a load moves with a spatial and a reduction axis, as windows along W do."""
    spatial = moving(stage, "S")
    return bool(spatial) and slides_along(stage, spatial[-1])


def slides_along(stage: Stage, it: Iter) -> bool:
    """Whether a load moves along one dimension with this iterator and a reduction axis."""
    return any(
        uses(index, it.var) and uses(index, axis.var)
        for access in accesses(stage)
        if not access.is_store
        for index in access.indices
        for axis in moving(stage, "R")
    )


def cut_reductions(func: tirx.PrimFunc, machine: Machine) -> tuple[tirx.PrimFunc, list[Cut]]:
    """`cut_inner_axis` for every reduction, of which those with several results are separated."""
    for stage in stages(s_tir.Schedule(func)):
        if stage.is_reduction:
            func = separate_reductions(func, stage)
    cuts = []
    for stage in stages(s_tir.Schedule(func)):
        if stage.is_reduction:
            func, cut = cut_inner_axis(func, stage.name, machine)
            if cut is not None:
                cuts.append(cut)
    return func, cuts


def cut_inner_axis(
    func: tirx.PrimFunc, name: str, machine: Machine
) -> tuple[tirx.PrimFunc, Cut | None]:
    """Prepare the reduction `name` for vectors along its contiguous axis.

    Contiguous reduction axes are merged, and the elements that vectors don't divide are peeled
    off into the stage itself; the vectors are then in the stage "<name>_head".

    Returns the rewritten function, and the stage to pass to `partial_results`; None where the
    reduction is not a sum, product, minimum or maximum, not contiguous, or too short.
    """
    stage = find(s_tir.Schedule(func), name)
    reduced = moving(stage, "R")
    if not is_simple_reduction(stage) or not reduces_along_memory(stage):
        return func, None
    func = merge_axes(func, stage, contiguous_group(stage, reduced))
    stage = find(s_tir.Schedule(func), name)
    reduced = moving(stage, "R")
    extent = reduced[-1].extent
    lanes = _lanes(extent, machine.lanes(stage.outputs[0].dtype))
    if not lanes:
        return func, None
    main = extent // lanes * lanes
    accumulators = next(
        count
        for count in ACCUMULATORS
        if count == 1 or (main % (lanes * count) == 0 and main >= lanes * count * MIN_VECTORS)
    )
    if main == extent:
        return func, Cut(name, name, lanes, accumulators)
    if len(reduced) > 1:
        return func, None
    cut = Cut(name, f"{name}_head", lanes, accumulators)
    return peel_reduction(func, stage, reduced[0], main), cut


def _lanes(extent: int, most: int) -> int:
    """The width that takes the fewest vector and single steps; 0 if none is worth it."""
    candidates = []
    lanes = most
    while lanes >= LAST_LANES:
        if extent // lanes >= MIN_VECTORS:
            candidates.append((extent // lanes + extent % lanes, -lanes, lanes))
        lanes //= 2
    return min(candidates)[-1] if candidates else 0


def partial_results(sch: s_tir.Schedule, cut: Cut) -> list[Any]:
    """Split the reduction into the chain of partial results; the new blocks, first to last."""
    stage = find(sch, cut.stage)
    axis = moving(stage, "R")[-1]
    loop = sch.get_loops(stage.rv)[stage.iters.index(axis)]
    widths = [cut.lanes * cut.accumulators]
    if cut.accumulators > 1:
        widths.append(cut.lanes)
    if cut.lanes > LAST_LANES:
        widths.append(LAST_LANES)
    blocks = []
    for width in widths:
        _, lane = sch.split(loop, [None, width])
        blocks.append(rfactor(sch, lane, len(stage.outputs[0].shape)))
        loop = sch.get_loops(stage.rv)[-1]
    return blocks


def rfactor(sch: s_tir.Schedule, loop: Any, factor_axis: int) -> Any:
    """Reduce the iterations of a loop in a block before; TVM fails next to blocks without loops."""
    for stage in stages(sch):
        if not sch.get_loops(stage.rv):
            sch.add_unit_loop(stage.rv)
    return sch.rfactor(loop, factor_axis)


def loops_of(sch: s_tir.Schedule, block: Any, depth: int) -> list[tuple[Any | None, Any]]:
    """Loops below the `depth` outer ones with their block iterators; unit loops may have none."""
    bindings = list(zip(sch.get(block).iter_vars, _realize(sch, block).iter_values))
    found: list[tuple[Any | None, Any]] = []
    for loop in sch.get_loops(block)[depth:]:
        var = sch.get(loop).loop_var
        driven = [iv for iv, value in bindings if uses(value, var)]
        found.append((driven[0] if driven else None, loop))
    return found


def by_kind(sch: s_tir.Schedule, block: Any, depth: int) -> tuple[list[Any], list[Any]]:
    """Spatial and reduction loops below the `depth` outer ones."""
    spatial: list[Any] = []
    reduced: list[Any] = []
    for iv, loop in loops_of(sch, block, depth):
        is_reduced = iv is not None and iv.iter_type == tirx.IterVar.CommReduce
        (reduced if is_reduced else spatial).append(loop)
    return spatial, reduced


def schedule_partial(sch: s_tir.Schedule, block: Any, depth: int) -> None:
    """Vectorize a block of `partial_results`, whose first iterator is the lanes."""
    vectorize_along(sch, block, depth, sch.get(block).iter_vars[0].var)


def vectorize_along(sch: s_tir.Schedule, block: Any, depth: int, var: Any) -> None:
    """Make the loop that drives the iterator `var` the vector lanes of a reduction."""
    lane = None
    spatial: list[Any] = []
    reduced: list[Any] = []
    for iv, loop in loops_of(sch, block, depth):
        if iv is not None and iv.var.same_as(var):
            lane = loop
        elif iv is not None and iv.iter_type == tirx.IterVar.CommReduce:
            reduced.append(loop)
        else:
            spatial.append(loop)
    reduce_lanes(sch, block, spatial, reduced, lane)


def reduce_lanes(
    sch: s_tir.Schedule,
    block: Any,
    spatial: Sequence[Any],
    reduced: Sequence[Any],
    lane: Any,
    vectors: bool = True,
) -> None:
    """spatial loops { init of lanes; reduction { lanes } }; `vectors` else LLVM vectorizes them."""
    sch.reorder(*spatial, *reduced, lane)
    if vectors:
        sch.vectorize(lane)
        unroll_short(sch, reduced)
    init = sch.decompose_reduction(block, reduced[0])
    if vectors:
        sch.vectorize(sch.get_loops(init)[-1])


def schedule_scalar(sch: s_tir.Schedule, block: Any, depth: int) -> None:
    """Take the initial value out of the reduction loops below the `depth` outer ones."""
    spatial, reduced = by_kind(sch, block, depth)
    if not reduced:
        return
    sch.reorder(*spatial, *reduced)
    if len(sch.get(block).writes) == 1:
        # In search of an index each step waits for the one before, and TVM would simplify the
        # selections of every copy for tens of milliseconds.
        unroll_short(sch, reduced)
    sch.decompose_reduction(block, reduced[0])


def unroll_short(sch: s_tir.Schedule, loops: Sequence[Any]) -> None:
    """Unroll the innermost loops while they make at most MAX_UNROLL copies together."""
    copies = 1
    for loop in reversed(loops):
        copies *= int(sch.get(loop).extent)
        if copies > MAX_UNROLL:
            break
        sch.unroll(loop)
