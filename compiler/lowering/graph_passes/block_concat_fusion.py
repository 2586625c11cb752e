"""Keep operators out of concatenations that can then be done in place, without copying parts.

    before   fused(a, b): concatenate(strided_slice(a), b)       copies both parts
    after    strided_slice(a), concatenate(.., b)                ConcatInPlace drops the second

A concatenation whose only reader could be fused with it stays fusable. The fused kernel is one
pass over the memory, and the reader alone would be one pass, too.
"""

from __future__ import annotations

from collections import Counter

import tvm
from tvm import relax, tirx
from tvm.target import Target

from ...primfuncs.fusion_pattern import INJECTIVE, OPAQUE, callee, op_pattern, with_pattern
from ..codegen.concat_in_place import aligned_offsets, is_profitable

_NAME = "concatenate"


def separate_concatenations(mod: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Give concatenations that can be done in place a pattern that is not fused."""

    def find(mod: tvm.IRModule, function: relax.Function) -> list[relax.Call]:
        return [
            call for call in _in_place(mod, function) if is_profitable(mod[call.args[0]], target)
        ]

    return with_pattern(mod, find, OPAQUE)


def _in_place(mod: tvm.IRModule, function: relax.Function) -> list[relax.Call]:
    """Concatenations with a part that is written by a kernel that exists in any case."""
    bindings = [each for block in function.body.blocks for each in block.bindings]
    reads: Counter[relax.Var] = Counter()
    fusable: set[relax.Var] = set()  # operands of operators that fuse with their producers
    for binding in bindings:
        kernel = callee(mod, binding.value)
        fields = binding.value.args[1].fields if kernel is not None else ()
        for var in fields:
            if isinstance(var, relax.Var):
                reads[var] += 1
                if op_pattern(kernel) <= INJECTIVE:
                    fusable.add(var)
    found, written = [], set()  # variables that a kernel writes regardless of fusion
    for binding in bindings:
        kernel = callee(mod, binding.value)
        if kernel is None:
            continue
        call, var = binding.value, binding.var
        own = [each for each in call.args[1].fields if each in written]
        epilogue = op_pattern(kernel) < INJECTIVE and bool(own)
        if op_pattern(kernel) > INJECTIVE or reads[var] > 1 or epilogue:
            written.add(var)
        alone = reads[var] != 1 or var not in fusable
        if _is_concatenation(call, kernel) and own and alone:
            found.append(call)
            written.add(var)
    return found


def _is_concatenation(call: relax.Call, kernel: tirx.PrimFunc) -> bool:
    name = str(call.args[0].name_hint).rstrip("0123456789")
    return name == _NAME and aligned_offsets(kernel) is not None
