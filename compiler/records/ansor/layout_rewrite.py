"""Rearranges weights for the tiles of a replayed record, as Ansor did before it measured.

A weight that one computation reads gets its dimensions in the order of the loops that run over
them, split as those are. For a convolution in the tiles of §SSRSRS with 16 output channels inside:

    weight (ry, rx, rc, ff) = (7, 7, 3, 64)      becomes      (4ff, 7ry, 7rx, 3rc, 16ff)

so that it is read from beginning to end. The module's weights are packed so when it is built.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from . import state as model
from .dag_to_primfunc import Candidate
from .index_coefficients import index_of
from .packing import Packing
from .replay import Replayed
from .state import Stage

logger = logging.getLogger("baton.auto_scheduler")

# TOPI's computes whose second operand Ansor was free to rearrange.
_FREE = (
    "conv2d_nhwc", "bgemm", "matmul", "T_matmul_NN", "T_matmul_NT", "T_dense",
    "T_batch_matmul_NT", "T_batch_matmul_NN", "conv3d_ndhwc",
)  # fmt: skip


@dataclass(frozen=True)
class _Piece:
    """Part of an axis of the weight: one loop over it."""

    dim: int
    extent: int


def rewrite_layouts(
    candidate: Candidate, replayed: Replayed, known: frozenset[int]
) -> tuple[tirx.PrimFunc, dict[int, Packing]]:
    """Rearrange weights known at build time; return the function and each input's packing."""
    packings: dict[int, Packing] = {}
    for stage in replayed.state.stages:
        op = stage.operation
        if op is None or op.base_name not in _FREE or stage.inlined:
            continue
        weight = op.producers[-1]
        if not weight.is_placeholder or len(op.producers) != 2:
            continue
        if not any(read.operation is weight for read in stage.reads):
            continue  # it reads a copy
        position = _position(candidate, weight)
        if candidate.operands[position][0] not in known or position in packings:
            continue
        pieces = _pieces(stage, replayed)
        if pieces is None:
            continue
        try:
            _transform(replayed, stage, weight.buffer.name, pieces)
        except Exception as error:  # right without, only slower
            logger.debug("the weight of %s keeps its layout: %s", op.name, error)
            continue
        packings[position] = _packing(weight.shape, pieces)
    return replayed.func, packings


def _position(candidate: Candidate, weight: Any) -> int:
    at = candidate.dag.inputs.index(weight)
    return candidate.dag.input_positions()[at]


def _pieces(stage: Stage, replayed: Replayed) -> list[_Piece] | None:
    """The loops over the weight, outermost first; None if they don't cover it exactly."""
    op = stage.operation
    assert op is not None
    weight = op.producers[-1]
    dim_of: dict[int, int] = {}
    for dim, index in enumerate(index_of(op, weight)):
        at = [i for i, axis in enumerate(op.axes) if axis.var.same_as(index)]
        if at:
            dim_of[at[0]] = dim
        elif not isinstance(index, tirx.IntImm):
            return None
    outer = _loops_around(stage)
    own: list[tuple[model.Iterator, int | None]] = []
    for loop, (_, length, _) in zip(stage.loops, replayed.loops[stage.name], strict=True):
        parts = _parts(stage, loop)
        own += [(loop, length)] if len(parts) == 1 else [(part, part.extent) for part in parts]
    if outer is None or any(len(loop.made_from()) != 1 for loop, _ in own):
        return None
    pieces = [_Piece(dim_of[axis], extent) for axis, extent in outer if axis in dim_of]
    for loop, extent in own:
        axis = stage.axes.index(next(iter(loop.made_from())))
        if axis in dim_of:
            if not extent:
                return None
            pieces.append(_Piece(dim_of[axis], extent))
    pieces = [piece for piece in pieces if piece.extent > 1]
    for dim, extent in enumerate(weight.shape):
        if math.prod(piece.extent for piece in pieces if piece.dim == dim) != extent:
            return None
    in_order = [piece.dim for piece in pieces]
    if in_order == sorted(set(in_order)):
        return None  # that is the layout it has
    return pieces


def _loops_around(stage: Stage) -> list[tuple[int, int]] | None:
    """Axis and extent of each loop of the consumer around a stage; its axes are the consumer's."""
    if stage.attached is None:
        return []
    consumer, last = stage.attached
    if consumer.attached is not None or len(consumer.axes) != len(stage.spatial):
        return None
    found: list[tuple[int, int]] = []
    for loop in consumer.loops[: consumer.loops.index(last) + 1]:
        for part in _parts(consumer, loop):
            if part.extent is None or len(part.made_from()) != 1:
                return None
            found.append((consumer.axes.index(next(iter(part.made_from()))), part.extent))
    return found


def _parts(stage: Stage, loop: model.Iterator) -> Sequence[model.Iterator]:
    """The loops that were fused into one."""
    for change in stage.history:
        if isinstance(change, model.FuseMade) and change.fused is loop:
            return [part for source in change.sources for part in _parts(stage, source)]
    return [loop]


def _transform(replayed: Replayed, stage: Stage, name: str, pieces: list[_Piece]) -> None:
    schedule, block = replayed.schedule, replayed.blocks[stage]
    reads = [str(read.source.name) for read in schedule.get(block).reads]

    def index_map(*indices: Any) -> list[Any]:
        new = []
        for at, piece in enumerate(pieces):
            inside = math.prod(p.extent for p in pieces[at + 1 :] if p.dim == piece.dim)
            outermost = not any(p.dim == piece.dim for p in pieces[:at])
            index = indices[piece.dim] // inside if inside > 1 else indices[piece.dim]
            new.append(index if outermost else index % piece.extent)
        return new

    schedule.transform_layout(block, ("read", reads.index(name)), index_map)


def _packing(shape: Sequence[int], pieces: list[_Piece]) -> Packing:
    split = [
        (at, piece.extent)
        for dim in range(len(shape))
        for at, piece in enumerate(pieces)
        if piece.dim == dim
    ]
    order = [at for at, _ in split]
    return Packing((
        ("reshape", [extent for _, extent in split]),
        ("transpose", [order.index(at) for at in range(len(pieces))]),
    ))  # fmt: skip
