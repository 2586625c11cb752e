"""Block queries and inlining shared by the CUDA rules."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import get_root_block
from tvm.s_tir.schedule import SBlockRV

from ..tir_visit import nodes_of

_KINDS = {tirx.IterVar.DataPar: "S", tirx.IterVar.CommReduce: "R"}


@dataclass(frozen=True)
class Stage:
    """One block below the root."""

    block: SBlockRV
    kinds: str  # one letter for each iterator: S (data parallel), R (reduction), O (anything else)
    extents: tuple[int, ...]  # extent of each iterator; -1 where it is not constant
    is_bound: bool  # whether a loop around the block is already bound to a thread
    # Whether the block's loops are one for each iterator, in their order, up to loops and iterators
    # of extent 1, and its body only stores elements. The body of a data-parallel block may have its
    # own loops, as adaptive pooling has.
    is_plain: bool

    @property
    def is_opaque(self) -> bool:
        return "O" in self.kinds or not self.is_plain

    @property
    def is_reduction(self) -> bool:
        return "R" in self.kinds

    @property
    def spatial_extents(self) -> list[int]:
        return [e for e, kind in zip(self.extents, self.kinds, strict=True) if kind == "S"]

    @property
    def reduction_extents(self) -> list[int]:
        return [e for e, kind in zip(self.extents, self.kinds, strict=True) if kind == "R"]


def stages(schedule: s_tir.Schedule) -> list[Stage]:
    """The blocks of the function below its root, in the order of execution."""
    return [
        _stage(schedule, block) for block in schedule.get_child_blocks(get_root_block(schedule))
    ]


def _stage(schedule: s_tir.Schedule, block: SBlockRV) -> Stage:
    iterators = list(schedule.get(block).iter_vars)
    loops = [schedule.get(loop) for loop in schedule.get_loops(block)]
    extents = tuple(_constant(iterator.dom.extent) for iterator in iterators)
    trips = tuple(_constant(loop.extent) for loop in loops)
    is_nest = [trip for trip in trips if trip != 1] == [size for size in extents if size != 1]
    kinds = "".join(_KINDS.get(iterator.iter_type, "O") for iterator in iterators)
    return Stage(
        block,
        kinds,
        extents,
        any(loop.thread_binding is not None for loop in loops),
        is_nest and _is_plain(schedule.get(block).body, bool(kinds) and set(kinds) == {"S"}),
    )


def _is_plain(body: tirx.Stmt, is_parallel: bool) -> bool:
    threads = (tirx.AttrStmt, tirx.Evaluate)
    loops = (tirx.For, tirx.While, s_tir.SBlockRealize)
    return not nodes_of(body, threads if is_parallel else threads + loops)


def _constant(extent: tirx.Expr) -> int:
    return int(extent) if isinstance(extent, tirx.IntImm) else -1


def inline_producers(schedule: s_tir.Schedule, kept: Collection[str] = ()) -> None:
    """Inline every stage that maps elements into the stages that read it, but those named."""
    for stage in stages(schedule):
        is_kept = schedule.get(stage.block).name_hint in kept
        if not (stage.is_reduction or stage.is_opaque or is_kept):
            try:
                schedule.compute_inline(stage.block)
            except s_tir.ScheduleError:
                continue  # it writes an output, or is read in a way that can't be inlined
