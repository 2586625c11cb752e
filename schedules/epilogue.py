"""Splits a fused function around its anchor: producers before it, epilogue after it.

prologue -> anchor -> view -> add(bias) -> erf -> ... -> output
`before`    anchor    `repeated` blocks, all others inlined   `output`
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, s_tir
from tvm.tirx import IndexMap

from .anchor import sblocks

# Calls that cost a few cycles at most; any other (exp, erf, ...) is worth computing only once.
CHEAP_CALLS = frozenset(
    (
        *("if_then_else", "likely", "reinterpret"),
        *("fabs", "floor", "ceil", "trunc", "round", "nearbyint"),
        *("shift_left", "shift_right", "bitwise_and", "bitwise_or", "bitwise_xor"),
    )
)


@dataclass(frozen=True)
class Surroundings:
    """Blocks of a fused function besides its anchor."""

    # Blocks whose results the anchor reads, or that such blocks read, in program order
    before: list[Any]
    # Blocks after the anchor that are costly and read more than once, in program order: compute
    # them once per tile
    repeated: list[Any]
    output: Any  # the last block; every other block after the anchor has been inlined into it
    costly_output: bool  # whether the output block calls functions such as exp or erf


def inline_epilogue(sch: s_tir.Schedule, anchor: Any, keep: Collection[str] = ()) -> Surroundings:
    """Inline elementwise blocks, except where that would compute something costly twice.

    A block before the anchor is inlined into the next one, but not into the anchor itself,
    whose inner loop would repeat it.

    `keep`: names of blocks that stay as they are; those after the anchor come with `repeated`.
    """
    anchor_name = str(sch.get(anchor).name_hint)
    names = list(sblocks(sch))
    before = _producers(sch, anchor)
    behind = [name for name in names if name not in before and name != anchor_name]
    *inner, output = behind
    kept_before, repeated = [], []
    for name in names:
        block = sch.get_sblock(name)
        if name in before:
            readers = [str(sch.get(reader).name_hint) for reader in sch.get_consumers(block)]
            if name in keep or anchor_name in readers:
                kept_before.append(block)
            else:
                sch.compute_inline(block)
        elif name in inner:
            if name in keep or (is_costly(sch.get(block)) and _loads(sch, block) > 1):
                repeated.append(block)
            else:
                sch.compute_inline(block)
    last = sch.get_sblock(output)
    return Surroundings(kept_before, repeated, last, is_costly(sch.get(last)))


def with_index(
    sch: s_tir.Schedule,
    repeated: Sequence[Any],
    output: Any,
    new_index: Callable[..., tuple[Any, ...]],
) -> None:
    """Let blocks after an anchor run over other axes, by the bijective `new_index`.

    The results of `repeated` are temporary and get the axes too; that of `output` keeps its shape.
    """
    index_dtype = sch.get(output).iter_vars[0].var.ty.dtype
    rank = len(sch.get_loops(output))
    index_map = IndexMap.from_func(new_index, ndim=rank, index_dtype=str(index_dtype))
    for block in repeated:
        sch.transform_layout(block, ("write", 0), index_map)
    for block in (*repeated, output):
        sch.transform_block_layout(block, index_map)


def is_costly(block: s_tir.SBlock) -> bool:
    """Whether the block calls a function that takes more than a few cycles per element."""
    costly = False

    def visit(call: Any, visitor: Any) -> None:
        nonlocal costly
        name = call.op.name if isinstance(call.op, ir.Op) else ""
        costly = costly or name.rpartition(".")[2] not in CHEAP_CALLS
        visitor.default_visit(call)

    tvm_ffi.structural_visit(block.body, (ir.Call, visit))
    return costly


def _producers(sch: s_tir.Schedule, block: Any) -> set[str]:
    found: set[str] = set()
    for producer in sch.get_producers(block):
        found.add(str(sch.get(producer).name_hint))
        found |= _producers(sch, producer)
    return found


def _loads(sch: s_tir.Schedule, block: Any) -> int:
    """How many times the blocks that read `block` load an element of it, per element."""
    buffer = sch.get(block).writes[0].source
    count = 0

    def visit(load: Any, visitor: Any) -> None:
        nonlocal count
        count += load.source.same_as(buffer)
        visitor.default_visit(load)

    for reader in sch.get_consumers(block):
        tvm_ffi.structural_visit(sch.get(reader).body, (ir.TensorLoad, visit))
    return count
