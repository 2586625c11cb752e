"""Keep chains of operators with exponential code growth out of the epilogues of anchors.

    d = dense(x); y = d * d + d; z = y * y + y; ...      each level triples the expression
    d = dense(x); y = tanh(d); z = tanh(y); ...          TVM's simplifier substitutes `let` values

Schedules of anchors inline their epilogue into one store. A value with several readers is
duplicated for each. A function of a function is a polynomial of a polynomial, whose intermediate
values TVM's analyzer re-derives at each use. An operator that would exceed the limits below starts
a new kernel: the rules for functions without an anchor do not inline a stage that is too large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx
from tvm.ir import TensorLoad

from schedules.epilogue import CHEAP_CALLS

from ...primfuncs.fusion_pattern import INJECTIVE, unfusable_calls, with_pattern

MAX_LOADS = 16
"""Loads of an anchor's result that the inlined epilogue may have."""
MAX_NESTED = 1
"""Functions such as exp or erf that may be applied one to the result of another."""


@dataclass(frozen=True)
class Growth:
    """Size of an inlined element, as loads of an anchor's result, and the element itself."""

    loads: int = 1  # number of loads of the anchor's result; 0 if it is not loaded
    nested: int = 0  # maximum number of costly functions on the path from the anchor's result


def bound_epilogues(mod: tvm.IRModule) -> tvm.IRModule:
    """Give calls beyond the limits a pattern that is not fused after an anchor."""
    return with_pattern(mod, _growing_calls, INJECTIVE)


def _growing_calls(mod: tvm.IRModule, function: relax.Function) -> list[relax.Call]:
    """Elementwise calls that exceed the limits if the calls before them are fused."""

    def behind(_: Any, kernel: tirx.PrimFunc, operands: list[Growth | None]) -> Growth | None:
        growth = _growth(kernel, operands)
        return None if growth.loads > MAX_LOADS or growth.nested > MAX_NESTED else growth

    return unfusable_calls(mod, function, lambda _: Growth(), behind)


def _growth(kernel: tirx.PrimFunc, operands: list[Growth | None]) -> Growth:
    """Growth of the last stage's element; operands that no anchor made are None."""
    stages: list[tuple[Any, Growth]] = [
        (buffer, growth) for buffer, growth in zip(kernel.params, operands) if growth is not None
    ]
    if not stages:
        return Growth(0)

    def of(node: Any) -> Growth:
        loads = nested = 0

        def load(inner: TensorLoad, visitor: Any) -> None:
            nonlocal loads, nested
            for buffer, growth in stages:
                if inner.source.same_as(buffer):
                    loads, nested = loads + growth.loads, max(nested, growth.nested)

        def call(inner: ir.Call, visitor: Any) -> None:
            nonlocal loads, nested
            arguments = [of(argument) for argument in inner.args]
            count = sum(argument.loads for argument in arguments)
            name = inner.op.name if isinstance(inner.op, ir.Op) else ""
            costly = count > 0 and name.rpartition(".")[2] not in CHEAP_CALLS
            depth = max((argument.nested for argument in arguments), default=0)
            loads, nested = loads + count, max(nested, depth + costly)

        tvm_ffi.structural_visit(node, [(TensorLoad, load), (ir.Call, call)])
        return Growth(loads, nested)

    last = Growth(0)

    def block(node: Any, visitor: Any) -> None:
        nonlocal last
        visitor.default_visit(node)
        if isinstance(node.body, tirx.BufferStore):
            stages.append((node.body.buffer, of(node.body.value)))

    tvm_ffi.structural_visit(kernel.body, (s_tir.SBlock, block))
    return last
