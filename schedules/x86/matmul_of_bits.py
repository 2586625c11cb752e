"""Few rows times weights of a few bits, which are widened in registers: bound by memory."""

from __future__ import annotations

import math
from typing import Any

from tvm import te, tirx
from tvm.target import Target

from ..anchor import AnchorRule, register_anchor_rule
from ..config import ConfigEntity, option
from ..epilogue import inline_epilogue
from ..matmul import BitsWorkload, unravel
from ..strategy import Implementation, anchor_attrs, register
from .machine import Machine
from .matmul_rules import PARALLEL_CYCLES
from .matmul_tile import flatten_rows, view

NAME = "matmul_of_bits.x86"
PARTIAL = "block_products"

# Accumulators of a task: enough to hide the latency of a multiply-add, and half of 32 registers.
MOST_VECTORS, MOST_ROWS = 4, 16

# A float32 of this exponent counts in units of its last place, 2**-23 of it.
UNITS, FRACTION = 2**23, 0x4B000000


# --- compute -----------------------------------------------------------------------------


def pack_weight(ops: Any, packed: Any, config: ConfigEntity) -> Any:
    """(n, blocks, ...) -> (n / lanes, blocks, ..., lanes)."""
    lanes = config.val("lanes")
    n, *others = (int(extent) for extent in packed.shape)
    apart = ops.reshape(packed, (n // lanes, lanes, *others))
    return ops.transpose(apart, (0, *range(2, 2 + len(others)), 1))


def compute(
    w: BitsWorkload, config: ConfigEntity, x: te.Tensor, packed: te.Tensor, scales: te.Tensor,
    *zeros: te.Tensor,
) -> te.Tensor:  # fmt: skip
    """x (*lead, k), the others as packed -> (*lead, n); no zeros where the workload has one.

    A block's sum of products meets the scale once. The zero point is subtracted from each weight:
    less its product with the row's sum, what is infinite or overflows would be NaN.
    """
    panels, blocks, octets, lanes = (int(extent) for extent in packed.shape)
    together = 8 // w.bits

    def row(i: Any, k: Any) -> Any:
        place = (*unravel(i, w.lead), k)
        return x[place]

    octet = te.reduce_axis((0, octets), "octet")
    place = te.reduce_axis((0, together), "place")

    def partial(i: Any, panel: Any, block: Any, lane: Any) -> Any:
        whole = _at(place, packed[panel, block, octet, lane].astype("int32"), w.bits)
        if w.zero is None:
            weight = whole.astype(w.dtype) - zeros[0][panel, block, lane]
        else:  # the last bits of a float, which costs no conversion
            weight = tirx.reinterpret(w.dtype, whole | FRACTION) - float(UNITS + w.zero)
        return te.sum(
            row(i, block * w.block + octet * together + place) * weight, axis=[octet, place]
        )

    products = te.compute((w.m, panels, blocks, lanes), partial, name=PARTIAL)
    block = te.reduce_axis((0, blocks), "block")
    product = te.compute(
        (w.m, panels, lanes),
        lambda i, panel, lane: te.sum(
            scales[panel, block, lane] * products[i, panel, block, lane], axis=[block]
        ),
        name="matmul",
        attrs=anchor_attrs(NAME, config),
    )
    flat = te.compute(
        (w.m, w.n), lambda i, j: product[i, j // lanes, j % lanes], name="matmul_columns"
    )
    return view(flat, (*w.lead, w.n), len(w.lead))


def _at(place: Any, octet: Any, bits: int) -> Any:
    """The number at a place of an octet; shifts by what depends on a loop would have 64 bits."""
    last, mask = 8 // bits - 1, (1 << bits) - 1
    whole = octet >> (last * bits)
    for number in range(last):
        whole = tirx.Select(place == number, (octet >> (number * bits)) & mask, whole)
    return whole


# --- schedule ----------------------------------------------------------------------------


class BitsProduct(AnchorRule):
    """Takes a fused function whose anchor is `matmul_of_bits.x86`.

    parallel panels of `vectors` vectors of columns
      block
        registers[rows, vectors, lanes] = 0
        octet of the block
          unrolled places in it, vectors, rows; vector lanes: widen, subtract, multiply and add
        scale and add to the result
      epilogue
    """

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        lanes, vectors = config.val("lanes"), config.val("vectors")
        parts = inline_epilogue(sch, anchor, keep=(PARTIAL,))
        flatten_rows(sch, parts)
        i, j = sch.get_loops(parts.output)
        panel, vector, lane = sch.split(j, [None, vectors, lanes])
        sch.reorder(panel, i, vector, lane)
        sch.vectorize(lane)
        macs = math.prod(int(sch.get(loop).extent) for loop in sch.get_loops(anchor))
        if macs * int(sch.get(anchor).reads[0].source.shape[-1]) > PARALLEL_CYCLES:
            sch.parallel(panel)
        for block in reversed(parts.repeated):
            sch.compute_at(block, panel, preserve_unit_loops=True)

        sch.compute_at(anchor, panel, preserve_unit_loops=True)
        rows, vector, lane, block = sch.get_loops(anchor)[-4:]
        sch.reorder(block, rows, vector, lane)
        products = sch.get_sblock(PARTIAL)
        sch.compute_at(products, block, preserve_unit_loops=True)
        inner = sch.get_loops(products)[2:]
        rows_, vector_, _, lane_, octet, place = inner
        sch.reorder(octet, place, vector_, rows_, lane_)
        for loop in (place, vector_, rows_, rows, vector):
            sch.unroll(loop)
        for loop in (lane_, lane):
            sch.vectorize(loop)
        sch.decompose_reduction(products, octet)
        sch.decompose_reduction(anchor, block)
        return sch


# --- fallback ----------------------------------------------------------------------------


def fallback(w: BitsWorkload, target: Target) -> ConfigEntity:
    """As many vectors of columns as keep all rows' sums in half of the registers."""
    machine = Machine.from_target(target)
    lanes = machine.lanes(w.dtype)
    vectors = vectors_of(w.m, w.n // lanes, machine)
    return ConfigEntity({"lanes": option(lanes), "vectors": option(vectors)})


def vectors_of(rows: int, panels: int, machine: Machine) -> int:
    """The vectors of columns of a task on so many rows."""
    most = max(min(MOST_VECTORS, machine.vector_registers // 2 // rows), 1)
    return next(count for count in range(most, 0, -1) if panels % count == 0)


def supports(w: BitsWorkload, target: Target) -> bool:
    """Few rows of float32, whole vectors of columns and whole blocks."""
    lanes = Machine.from_target(target).lanes(w.dtype)
    is_whole = w.n % lanes == 0 and w.k % w.block == 0
    return w.dtype == "float32" and w.m <= MOST_ROWS and is_whole


register(
    "nn.matmul_of_bits",
    "cpu",
    Implementation(NAME, 10, supports, fallback, compute, None, pack_weight),
)
register_anchor_rule(NAME, BitsProduct())
