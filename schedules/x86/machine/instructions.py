"""Detect the multiply instruction of a scheduled kernel and its amount of work."""

from __future__ import annotations

import functools
from typing import Any

from tvm import tirx
from tvm.ir import Call, Op
from tvm.target import Target, codegen

from ...tir_visit import nodes_of
from . import amx
from .cpu import Machine
from .dot_product import OF_BFLOAT16, OF_BYTES

FMA, VNNI, MADD, BF16 = "vfmadd", "vpdpbusd", "vpmaddwd", "vdpbf16ps"
MADD_BYTES = "vpmaddubsw"
INTRINSICS = {
    "llvm.x86.avx512bf16.dpbf16ps.512": BF16,
    **{f"llvm.x86.avx512.vpdpbusd.{bits}": VNNI for bits in (512, 256, 128)},
    "llvm.x86.avx512.pmaddw.d.512": MADD,
    "llvm.x86.avx2.pmadd.wd": MADD,
    "llvm.x86.sse2.pmadd.wd": MADD,
    "llvm.x86.avx512.pmaddubs.w.512": MADD_BYTES,
    "llvm.x86.avx2.pmadd.ub.sw": MADD_BYTES,
    "llvm.x86.ssse3.pmadd.ub.sw.128": MADD_BYTES,
}
"""LLVM names of the instructions that schedules request."""

PRODUCTS = {FMA: 1, MADD: 1, BF16: 2, MADD_BYTES: 4, VNNI: 4}
"""Products that one instruction adds to a lane of 32 bits; `vpmaddwd` makes two, half of bytes',
and `vpmaddubsw` four, two in each half, which a `vpmaddwd` adds up later."""


def instruction_of(func: tirx.PrimFunc, operands: str, target: Target) -> str:
    """Instruction of an anchor's kernel, by the element types of `operands`; "" if unknown."""
    if any(amx.MARK in loop.annotations for loop in nodes_of(func.body, tirx.For)):
        return amx.INSTRUCTIONS[OF_BFLOAT16 if "bfloat16" in operands else OF_BYTES]
    used: set[str] = set()
    for call in nodes_of(func.body, Call):
        name = call.op.name if isinstance(call.op, Op) else ""
        if name == "tirx.call_llvm_pure_intrin":
            used.add(_numbers().get(int(call.args[0]), ""))
    found = sorted(used - {""})
    if found:
        return found[0]
    is_float = operands == "float32" and target.kind.name == "llvm"
    return FMA if is_float and Machine.from_target(target).has_fma else ""


@functools.cache
def _numbers() -> dict[int, str]:
    """Instructions by LLVM's numbers of their intrinsics."""
    look_up: Any = codegen.llvm_lookup_intrinsic_id
    return {int(look_up(name)): instruction for name, instruction in INTRINSICS.items()}
