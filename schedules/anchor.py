"""Anchor blocks: the rules for them, and what each rule needs to find and clear its anchor."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.target import Target

from .config import ConfigEntity

# Tensors up to this size, and what is padded of them, have indices of 32 bits.
MOST_ELEMENTS = 2**30

ScheduleRule: TypeAlias = Any
"""A `tvm.s_tir.dlight.ScheduleRule`; TVM has no types."""

ANCHOR_RULES: dict[str, ScheduleRule] = {}


class AnchorRule(s_tir.dlight.ScheduleRule):
    """Schedules the functions whose anchor block names it.

    Attributes
    ----------
    narrow_indices : bool
        Whether loops and indices have 32 bits where the tensors are small enough.
    """

    narrow_indices = False

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        """Schedule a whole fused function; None if it has no anchor."""
        sch = s_tir.Schedule(with_narrow_indices(func) if self.narrow_indices else func)
        anchor = find_anchor(sch)
        if anchor is None:
            return None
        return self.schedule(sch, anchor, anchor_config(sch, anchor), target)

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        """The schedule of a function, made of one that has no steps yet.

        Parameters
        ----------
        anchor : block
            Of the operator that the function is about.
        config : ConfigEntity
            The knobs that the strategy chose for it.

        Returns
        -------
        s_tir.Schedule or None
            None where this rule can't schedule the function.
        """
        raise NotImplementedError


def register_anchor_rule(name: str, rule: ScheduleRule) -> ScheduleRule:
    """Let `rule` schedule every function whose anchor block names it in `schedule_rule`.

    Raises
    ------
    ValueError
        Another rule has that name already.
    """
    if name in ANCHOR_RULES:
        raise ValueError(f"schedule rule {name!r} is already registered")
    ANCHOR_RULES[name] = rule
    return rule


def with_narrow_indices(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with indices of 32 bits, where all tensors are small enough for them.

    TVM partitions loops before it narrows the 64-bit indices that Relax has, and finds no
    partition of a 64-bit loop. It narrows no function that computes with integers of 64 bits.
    """
    tensors = [*func.params, *(each for block in blocks(func) for each in block.alloc_buffers)]
    if any(str(tensor.dtype) == "int64" for tensor in tensors):
        return func
    if any(math.prod(map(int, buffer.shape)) > MOST_ELEMENTS for buffer in func.params):
        return func
    mod = tirx.transform.ForceNarrowIndexToInt32()(tvm.IRModule({"main": func}))
    return mod["main"]


def blocks(func: tirx.PrimFunc) -> list[Any]:
    """Every block, outer before inner, in program order."""
    found: list[Any] = []

    def visit(block: Any, visitor: Any) -> None:
        found.append(block)
        visitor.default_visit(block)

    tvm_ffi.structural_visit(func.body, (s_tir.SBlock, visit))
    return found


def block_names(func: tirx.PrimFunc) -> list[str]:
    """Names of the blocks of a function, in program order, without the root."""
    return [str(block.name_hint) for block in blocks(func) if block.name_hint != "root"]


def sblocks(sch: s_tir.Schedule) -> dict[str, Any]:
    """Name to handle of every block below the root, in program order."""
    root = sch.get_sblock("root")
    return {str(sch.get(block).name_hint): block for block in sch.get_child_blocks(root)}


def find_anchor(sch: s_tir.Schedule) -> Any | None:
    """The block that carries the strategy's choice; None if there is none."""
    for block in sblocks(sch).values():
        if "schedule_config" in sch.get(block).annotations:
            return block
    return None


def anchor_config(sch: s_tir.Schedule, anchor: Any) -> ConfigEntity:
    """The knobs that the strategy chose for this anchor."""
    rows = json.loads(str(sch.get(anchor).annotations["schedule_config"]))
    return ConfigEntity.from_entity(rows)


def inline_around(sch: s_tir.Schedule, anchor: Any, keep: Collection[str] = ("data_pad",)) -> Any:
    """Inline everything but the anchor, the blocks named in `keep`, and the output block.

    Returns
    -------
    The output block. Where nothing was fused after the anchor, a copy from a local buffer
    becomes the output block, so that every schedule has the same two parts.
    """
    anchor_name = str(sch.get(anchor).name_hint)
    names = sblocks(sch)
    output_name = list(names)[-1]
    for name, block in names.items():
        if name not in keep and name not in (anchor_name, output_name):
            sch.compute_inline(block)
    if output_name != anchor_name:
        return sch.get_sblock(output_name)
    return sch.cache_write(anchor, 0, "global")


def with_annotations(
    func: tirx.PrimFunc, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> tirx.PrimFunc:
    """The function with other annotations of its blocks: `change` makes them of those there are."""

    def changed(block: Any) -> Any:
        before = dict(block.annotations)
        after = change(before)
        if after == before:
            return block
        return s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            block.body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            after,
        )

    return func.with_body(tvm_ffi.structural_map(func.body, (s_tir.SBlock, changed)))
