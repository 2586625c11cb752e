"""float32 dense layers with weights stored as float16 or bfloat16, on x86.

    dense_halves.x86    float16 or bfloat16 weights, widened in registers: few rows

A matmul of few rows is bound by reading its weights, which this halves. Results are bit-identical
to those of weights widened at build time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tvm.target import Target, codegen

from ...matmul import DenseWorkload, register_dense
from ...strategy import MIN_GAIN
from ..machine.cpu import Machine
from .dense import pack_weight
from .matmul_rules import Extents, efficiency, fallback
from .matmul_tile import TiledMatmul, product

NAME = "dense_halves.x86"

NARROW = {"float16": "f16c", "bfloat16": "sse2"}
"""Weight dtypes, and the CPU feature that widens vectors of them."""


_OPERATIONS = 2
"""Operations that widen a vector of weights, repeated for each row tile."""


def _cycles(w: DenseWorkload, widenings: float, machine: Machine) -> float:
    """Estimate a core's cycles if it reads weights as fast as without computing, as from L3.

    `widenings`: operations on each vector of weights for each of its products.
    """
    e = Extents.of(w)
    vectors = w.m * w.n * w.k / machine.lanes(w.dtype)
    computing = vectors * (1 / efficiency(e, machine) + widenings) / machine.fmas
    return max(computing, machine.weight_cycles(e.item * w.n * w.k))


def _supports(w: DenseWorkload, target: Target) -> bool:
    """Whether data are float32 and weights are 16-bit constants that the CPU can widen."""
    is_own = w.dtype == w.out_dtype == "float32" and w.weight is None
    feature = NARROW.get(w.rhs_dtype)
    return is_own and feature in {str(name) for name in codegen.llvm_get_cpu_features(target)}


def pays(w: DenseWorkload, dtype: str, target: Target) -> bool:
    """Whether storing float32 weights in this 16-bit dtype pays."""
    short, machine = replace(w, rhs_dtype=dtype), Machine.from_target(target)
    if not _supports(short, target):
        return False
    widenings = _OPERATIONS / int(fallback(short, target).val("tile_m"))
    return _cycles(short, widenings, machine) < MIN_GAIN * _cycles(w, 0, machine)


register_dense(
    NAME, 15, _supports, fallback, partial(product, NAME), pack=pack_weight, rule=TiledMatmul()
)
