"""Dense layers of float32 whose weights lie in memory as numbers of 16 bits, on x86.

    dense_halves.x86    float16 or bfloat16 weights, widened in registers: few rows

A product of few rows waits for its weights, of which there are half as many bytes. Its sums are
those of weights that were widened when the library was built, to the last bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import DataType, te
from tvm.target import Target, codegen

from ..anchor import register_anchor_rule
from ..config import ConfigEntity
from ..matmul import DenseWorkload
from ..strategy import CLEARLY, Implementation, register
from . import dense
from .machine import Machine
from .matmul_rules import Extents, efficiency, plan
from .matmul_tile import TiledMatmul, panel_reader, register_tile, tiled_product, view

NAME = "dense_halves.x86"

NARROW = {"float16": "f16c", "bfloat16": "sse2"}
"""Types of weights, and the CPU feature with which vectors of them are widened."""


# --- compute -----------------------------------------------------------------------------


def _compute(w: DenseWorkload, config: ConfigEntity, x: te.Tensor, panel: te.Tensor) -> Any:
    """x (*lead, k), weight as packed -> (*lead, n)."""
    read, tile = panel_reader(panel), register_tile(config)
    product = tiled_product(
        *(NAME, config, (None, w.m, w.n, w.k), tile, dense.row_reader(w, x)),
        lambda *index: read(*index).astype(w.dtype),
    )
    return view(product, (*w.lead, w.n), len(w.lead))


class HalvesMatmul(TiledMatmul):
    """Takes a fused function whose anchor is `dense_halves.x86`: the loops of floats."""

    def extents(self, sch: Any, anchor: Any, output: Any, item: int) -> Extents:
        return super().extents(sch, anchor, output, _BYTES)


# --- fallback ----------------------------------------------------------------------------

_BYTES = 2
_OPERATIONS = 2  # by which a vector of weights is widened, again for each row tile


def _extents(w: DenseWorkload, item: int = _BYTES) -> Extents:
    return Extents(1, w.m, w.n, w.k, item)


def _fallback(w: DenseWorkload, target: Target) -> ConfigEntity:
    return plan(_extents(w), target, w.dtype, w.weight)


def _cycles(w: DenseWorkload, item: int, widenings: float, machine: Machine) -> float:
    """Of a core that reads weights of `item` bytes as fast as if it did nothing else.

    Products take longer to read theirs from memory, but a network's may stay in L3.

    Parameters
    ----------
    widenings : float
        Operations on each vector of weights for each of its products.
    """
    e = _extents(w, item)
    vectors = w.m * w.n * w.k / machine.lanes(w.dtype)
    computing = vectors * (1 / efficiency(e, machine) + widenings) / machine.fmas
    return max(computing, machine.weight_cycles(item * w.n * w.k))


def _supports(w: DenseWorkload, target: Target) -> bool:
    """Float32 by constant weights of 16 bits that the CPU can widen."""
    is_own = w.dtype == w.out_dtype == "float32" and w.weight is None
    feature = NARROW.get(w.rhs_dtype)
    return is_own and feature in {str(name) for name in codegen.llvm_get_cpu_features(target)}


def pays(w: DenseWorkload, dtype: str, target: Target) -> bool:
    """Whether float32 weights had better be kept as numbers of a type of 16 bits."""
    short, machine = replace(w, rhs_dtype=dtype), Machine.from_target(target)
    if not _supports(short, target):
        return False
    widenings = _OPERATIONS / int(_fallback(short, target).val("tile_m"))
    narrow = _cycles(w, _BYTES, widenings, machine)
    return narrow < CLEARLY * _cycles(w, DataType(w.dtype).itemsize, 0, machine)


register(
    "nn.dense",
    "cpu",
    Implementation(
        NAME, 15, _supports, _fallback, _compute, DenseWorkload.stored_args, dense.pack_weight
    ),
)
register_anchor_rule(NAME, HalvesMatmul())
