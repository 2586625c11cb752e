"""Which rule schedules a fused TIR function: its anchor's, or the generic ones in order.

An anchor is a block whose annotation `schedule_rule` names a rule registered in `anchor`; that rule
gets the whole fused function. A function without anchor is tried on the generic rules of the
target's key. TOPI puts its own `schedule_rule` ("meta_schedule...") on pooling blocks;
that is not an anchor.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm import s_tir, tirx
from tvm.error import InternalError
from tvm.target import Target

from . import cuda
from .anchor import (
    ANCHOR_RULES,
    ScheduleRule,
    block_names,
    blocks,
    register_anchor_rule,
    with_annotations,
)
from .strategy import DIRECT
from .x86 import generic_rules as anchorless
from .x86.machine.instructions import instruction_of

__all__ = ["ANCHOR_RULES", "Scheduled", "block_names", "register_anchor_rule", "schedule"]

ANCHOR_ANNOTATIONS = (
    "schedule_rule",
    "schedule_config",
    "schedule_source",
    "schedule_algorithm",
    "image_rows",
)
GENERIC_SOURCE = "topi:fallback"

_LOG = logging.getLogger("baton.schedules")


@dataclass(frozen=True)
class Scheduled:
    """A scheduled function and where its schedule came from."""

    func: tirx.PrimFunc  # has the attribute `tirx.is_scheduled` and no anchor annotations any more
    rule: str  # name of the anchor's rule, or class name of the generic rule
    source: str  # text for the build report: "topi:fallback" or "topi:<log>:<line>"
    # The anchor's, such as "strassen"; "direct" where the definition is followed
    algorithm: str = DIRECT
    # Values of the anchor's knobs as AutoTVM's logs write them, JSON; empty without an anchor
    config: str = ""
    # Element types that the anchor multiplies, such as "uint8 x int8"; empty without an anchor
    operands: str = ""
    instruction: str = ""  # multiplies them, such as "vpdpbusd"; empty if unknown


def schedule(func: tirx.PrimFunc, target: Target) -> Scheduled | None:
    """Schedule one fused function: blocks in their own loop nests, static shapes.

    The target's keys choose the generic rules. Returns None if no rule could take the function;
    each refusal is logged.
    """
    func = func.without_attr("global_symbol") if "global_symbol" in func.attrs else func
    for name, source, rule in _candidates(func, target):
        sch = _attempt(name, source, rule, func, target)
        if sch is not None:
            scheduled = sch.mod["main"].with_attr("tirx.is_scheduled", True)
            plain = without_anchor(scheduled)
            config = _annotation(func, "schedule_config") or ""
            operands = _operands(func)
            made = instruction_of(plain, operands, target) if operands else ""
            return Scheduled(plain, name, source, algorithm(func), config, operands, made)
    _LOG.warning("no schedule rule takes the function with blocks %s", block_names(func))
    return None


def algorithm(func: tirx.PrimFunc) -> str:
    """How the anchor of an unscheduled function computes its result."""
    return _annotation(func, "schedule_algorithm") or DIRECT


def source(func: tirx.PrimFunc) -> str:
    """Source of the config of an unscheduled function's anchor, "topi:fallback" by default."""
    return _annotation(func, "schedule_source") or GENERIC_SOURCE


def _operands(func: tirx.PrimFunc) -> str:
    """Element types that the anchor of an unscheduled function reads."""
    anchor = next((block for block in blocks(func) if "schedule_rule" in block.annotations), None)
    if anchor is None or str(anchor.annotations["schedule_rule"]) not in ANCHOR_RULES:
        return ""
    return " x ".join(dict.fromkeys(str(read.source.dtype) for read in anchor.reads))


def _annotation(func: tirx.PrimFunc, key: str) -> str | None:
    """The value that the first block has which has one."""
    found = (block.annotations.get(key) for block in blocks(func))
    return next((str(value) for value in found if value is not None), None)


def _candidates(func: tirx.PrimFunc, target: Target) -> Iterator[tuple[str, str, ScheduleRule]]:
    for block in blocks(func):
        name = str(block.annotations.get("schedule_rule", ""))
        if name in ANCHOR_RULES:
            source = str(block.annotations.get("schedule_source", GENERIC_SOURCE))
            yield name, source, ANCHOR_RULES[name]
        elif "schedule_config" in block.annotations:
            _LOG.warning("anchor block %s names the unknown rule %r", block.name_hint, name)
    for rule in generic_rules(target):
        yield getattr(rule, "name", type(rule).__name__), GENERIC_SOURCE, rule


def generic_rules(target: Target) -> Sequence[ScheduleRule]:
    """Rules for functions without anchor, most specific first."""
    if "cuda" in target.keys:
        return cuda.rules()
    if target.kind.name == "llvm" and "cpu" in target.keys:
        return anchorless.RULES
    return ()


def _attempt(
    name: str, source: str, rule: ScheduleRule, func: tirx.PrimFunc, target: Target
) -> s_tir.Schedule | None:
    is_recorded = source != GENERIC_SOURCE
    misfits = (s_tir.ScheduleError, InternalError, *(_MISFITS if is_recorded else ()))
    try:
        with target:
            return rule.apply(func, target, False)
    except misfits as error:
        reason = str(error).strip().splitlines()
        record = f"{source}: the record can't be used: " if is_recorded else ""
        _LOG.warning(
            "%srule %s can't schedule the function with blocks %s: %s",
            record,
            name,
            block_names(func),
            reason[-1] if reason else type(error).__name__,
        )
        return None


_MISFITS = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""Exceptions that a rule raises for knobs of a record that do not fit."""


def without_anchor(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Drop the anchor annotations: they have done their work and later passes don't know them."""
    return with_annotations(
        func, lambda found: {k: v for k, v in found.items() if k not in ANCHOR_ANNOTATIONS}
    )
