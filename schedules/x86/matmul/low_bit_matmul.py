"""Few rows times weights of a few bits, which are widened in registers: bound by memory.

matmul_of_bits.x86         multiply-adds of float32
matmul_of_bits_int8.x86    the rows rounded to int8 block by block: dot products of bytes
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import te, tirx
from tvm.target import Target

from ...anchor import AnchorRule
from ...config import ConfigEntity, options
from ...epilogue import inline_epilogue
from ...matmul import BitsWorkload, unravel
from ...strategy import anchor_attrs, register
from ..machine.cpu import Machine
from ..machine.dot_product import vnni_lanes
from ..machine.prefetch import stream_panels
from . import low_bit
from .matmul_rules import PARALLEL_CYCLES
from .matmul_tile import flatten_rows, view

FLOATS, INT8 = "matmul_of_bits.x86", "matmul_of_bits_int8.x86"
PARTIAL = "block_products"
ROUNDED, LANE_LARGEST, LARGEST, SUMS = "rounded", "lane_largest", "block_largest", "block_sums"

# Accumulators of a task: enough to hide the latency of a multiply-add, and half of 32 registers.
MOST_VECTORS, MOST_ROWS = 4, 16

INT8_MOST = 127


# --- compute -----------------------------------------------------------------------------


def pack_weight(ops: Any, array: Any, config: ConfigEntity) -> Any:
    """(n, blocks, ...) -> (n / (together lanes), blocks, ..., together, lanes), in a task's read
    order.
    """
    lanes, together = config.val("lanes"), config.val("together")
    n, *others = (int(extent) for extent in array.shape)
    apart = ops.reshape(array, (n // lanes // together, together, lanes, *others))
    return ops.transpose(apart, (0, *range(3, 3 + len(others)), 1, 2))


def _reader(packed: te.Tensor) -> Callable[..., Any]:
    """(panel, ..., lane) -> its element of what `pack_weight` made."""
    together = int(packed.shape[-2])

    def read(panel: Any, *place: Any) -> Any:
        index = (panel // together, *place[:-1], panel % together, place[-1])
        return packed[index]

    return read


def compute_floats(
    w: BitsWorkload, config: ConfigEntity, x: te.Tensor, words: te.Tensor, scales: te.Tensor,
    *zeros: te.Tensor,
) -> te.Tensor:  # fmt: skip
    """x (*lead, k), the others as packed -> (*lead, n); no zeros where the workload has one.

    A block's sum of products meets the scale once. The zero point is subtracted from each weight:
    subtracting its product with the row's sum would turn infinities and overflows into NaN.
    """
    _, blocks, count, _, lanes = (int(extent) for extent in words.shape)
    numbers, panels = low_bit.WORD // w.bits, w.n // lanes
    word_at, scale_at, *zero_at = (_reader(each) for each in (words, scales, *zeros))
    word = te.reduce_axis((0, count), "word")
    place = te.reduce_axis((0, numbers), "place")

    def partial(i: Any, panel: Any, block: Any, lane: Any) -> Any:
        zero = zero_at[0](panel, block, lane) if w.zero is None else w.zero
        weight = low_bit.as_float(word_at(panel, block, word, lane), place, w.bits, zero)
        k = block * w.block + word * numbers + place
        at = (*unravel(i, w.lead), k)
        return te.sum(x[at] * weight, axis=[word, place])

    products = te.compute((w.m, panels, blocks, lanes), partial, name=PARTIAL)
    block = te.reduce_axis((0, blocks), "block")
    product = te.compute(
        (w.m, panels, lanes),
        lambda i, panel, lane: te.sum(
            scale_at(panel, block, lane) * products[i, panel, block, lane], axis=[block]
        ),
        name="matmul",
        attrs=anchor_attrs(FLOATS, config),
    )
    return _columns(w, product, lanes)


def compute_int8(
    w: BitsWorkload, config: ConfigEntity, x: te.Tensor, words: te.Tensor, scales: te.Tensor,
    *zeros: te.Tensor,
) -> te.Tensor:  # fmt: skip
    """As `compute_floats`; each block of a row is rounded to int8 by its largest element.

    A block's zero point times the sum of the row's bytes there is subtracted from its products.
    """
    _, blocks, count, _, lanes = (int(extent) for extent in words.shape)
    panels = w.n // lanes
    word_at, scale_at, *zero_at = (_reader(each) for each in (words, scales, *zeros))
    rounded, unit, sums = _rounded(w, x, blocks)
    word = te.reduce_axis((0, count), "word")
    number = te.reduce_axis((0, low_bit.WORD // w.bits), "number")
    products = te.compute(
        (w.m, panels, blocks, lanes),
        lambda i, panel, b, lane: te.sum(
            rounded[i, b, word, number].astype("int32")
            * low_bit.as_integer(
                word_at(panel, b, word, lane), low_bit.bit_of_step(number, w.bits), w.bits
            ),
            axis=[word, number],
        ),
        name=PARTIAL,
    )
    block = te.reduce_axis((0, blocks), "block")

    def element(i: Any, panel: Any, lane: Any) -> Any:
        whole = products[i, panel, block, lane]
        if w.zero is None:
            own = zero_at[0](panel, block, lane) * sums[i, block].astype("float32")
            centerd = whole.astype("float32") - own
        else:
            centerd = (whole - sums[i, block] * w.zero).astype("float32")
        return te.sum(centerd * (scale_at(panel, block, lane) * unit(i, block)), axis=[block])

    attrs = anchor_attrs(INT8, config)
    product = te.compute((w.m, panels, lanes), element, name="matmul", attrs=attrs)
    return _columns(w, product, lanes)


def _rounded(w: BitsWorkload, x: te.Tensor, blocks: int) -> tuple[te.Tensor, Any, te.Tensor]:
    """Bytes of the rows by the places of their weights in a word, their units, and their sums."""
    numbers = low_bit.WORD // w.bits
    width = math.gcd(w.block, 16)
    group = te.reduce_axis((0, w.block // width), "group")

    def at(i: Any, block: Any, place: Any) -> Any:
        index = (*unravel(i, w.lead), block * w.block + place)
        return x[index]

    apart = te.compute(
        (w.m, blocks, width),
        lambda i, b, lane: te.max(tirx.abs(at(i, b, group * width + lane)), axis=[group]),
        name=LANE_LARGEST,
    )
    lane = te.reduce_axis((0, width), "lane")
    largest = te.compute(
        (w.m, blocks), lambda i, b: te.max(apart[i, b, lane], axis=[lane]), name=LARGEST
    )

    def unit(i: Any, block: Any) -> Any:
        return largest[i, block] * tirx.const(1 / INT8_MOST, "float32")

    def whole(i: Any, b: Any, place: Any) -> Any:
        per_unit = tirx.Select(unit(i, b) == 0.0, tirx.const(0.0, "float32"), 1.0 / unit(i, b))
        near = tirx.nearbyint(at(i, b, place) * per_unit)
        most = tirx.const(float(INT8_MOST), "float32")
        return tirx.max(tirx.min(near, most), -most).astype("int8")

    natural = te.compute((w.m, blocks, w.block), whole, name=f"{ROUNDED}_in_order")
    spread = te.compute(
        (w.m, blocks, w.block // numbers, numbers),
        lambda i, b, word, number: natural[
            i, b, word * numbers + low_bit.bit_of_step(number, w.bits) // w.bits
        ],
        name=ROUNDED,
    )
    place = te.reduce_axis((0, w.block), "place")
    sums = te.compute(
        (w.m, blocks),
        lambda i, b: te.sum(natural[i, b, place].astype("int32"), axis=[place]),
        name=SUMS,
    )
    return spread, unit, sums


def _columns(w: BitsWorkload, product: te.Tensor, lanes: int) -> te.Tensor:
    flat = te.compute(
        (w.m, w.n), lambda i, j: product[i, j // lanes, j % lanes], name="matmul_columns"
    )
    return view(flat, (*w.lead, w.n), len(w.lead))


# --- schedule ----------------------------------------------------------------------------


class BitsProduct(AnchorRule):
    """Schedule a fused function whose anchor is one of these products.

    quantize the rows, if they are rounded
    parallel panels of `vectors` vectors of columns
      block
        registers[rows, vectors, lanes] = 0
        word of the block
          unrolled vectors, rows; vector lanes: widen, subtract, multiply and add
        scale and add to the result
      epilogue
    """

    def __init__(self, step: Callable[[ConfigEntity, Target], str]) -> None:
        self._step = step

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        lanes, vectors = config.val("lanes"), config.val("vectors")
        stages = (PARTIAL, LANE_LARGEST, LARGEST, f"{ROUNDED}_in_order", ROUNDED, SUMS)
        parts = inline_epilogue(sch, anchor, keep=stages)
        flatten_rows(sch, parts)
        for block in parts.before:
            if str(sch.get(block).name_hint) == f"{ROUNDED}_in_order":
                sch.vectorize(sch.split(sch.get_loops(block)[-1], [None, 16])[-1])
            if str(sch.get(block).name_hint) == LANE_LARGEST:
                *_, lane, group = sch.get_loops(block)
                sch.reorder(group, lane)
                sch.vectorize(lane)
                sch.decompose_reduction(block, group)
        i, j = sch.get_loops(parts.output)
        panel, vector, lane = sch.split(j, [None, vectors, lanes])
        sch.reorder(panel, i, vector, lane)
        sch.vectorize(lane)
        products = sch.get_sblock(PARTIAL)
        words = _weights(sch, products)
        macs = math.prod(int(sch.get(loop).extent) for loop in sch.get_loops(products))
        if macs > PARALLEL_CYCLES:
            sch.parallel(panel)
        for block in reversed(parts.repeated):
            sch.compute_at(block, panel, preserve_unit_loops=True)

        sch.compute_at(anchor, panel, preserve_unit_loops=True)
        rows, vector, lane, block = sch.get_loops(anchor)[-4:]
        sch.reorder(block, rows, vector, lane)
        sch.compute_at(products, block, preserve_unit_loops=True)
        rows_, vector_, _, lane_, word, place = sch.get_loops(products)[2:]
        sch.reorder(word, vector_, rows_, lane_, place)
        for loop in (vector_, rows_, rows, vector):
            sch.unroll(loop)
        sch.vectorize(lane)
        if vectors == config.val("together"):
            _, blocks, count, _, _ = (int(extent) for extent in words.shape)
            step = vectors * lanes * low_bit.WORD // 8
            stream_panels(sch, [], [block, word], blocks * count * step, step)
        intrinsic = self._step(config, target)
        if not intrinsic:
            sch.reorder(place, vector_, rows_, lane_)
            sch.unroll(place)
            sch.vectorize(lane_)
        start = sch.decompose_reduction(products, word)
        if intrinsic:
            sch.vectorize(sch.get_loops(start)[-1])
            sch.tensorize(lane_, intrinsic)
        sch.decompose_reduction(anchor, block)
        return sch


def _float_step(config: ConfigEntity, target: Target) -> str:
    """The tensor intrinsic for a word in each lane; "" where vector code does as well."""
    count, zero = config.val("bits"), config.val("zero")
    return low_bit.float_step(count, zero) if low_bit.has_table(target, count) else ""


def _byte_step(config: ConfigEntity, target: Target) -> str:
    return low_bit.byte_step(config.val("bits"), config.val("lanes"), bool(vnni_lanes(target)))


def _weights(sch: Any, products: Any) -> Any:
    """The packed words that the block of products reads."""
    sources = [region.source for region in sch.get(products).reads]
    return next(source for source in sources if str(source.dtype) == "uint32")


# --- fallback ----------------------------------------------------------------------------


def fallback(w: BitsWorkload, target: Target) -> ConfigEntity:
    """As many vectors of columns as keep all rows' sums in half of the registers."""
    machine = Machine.from_target(target)
    lanes = machine.lanes(w.dtype)
    knobs = {
        "lanes": lanes,
        "vectors": vectors_of(w.m, w.n // lanes, machine),
        "together": vectors_of(1, w.n // lanes, machine),
        "bits": w.bits,
        "zero": w.zero,
    }
    return options(**knobs)


def vectors_of(rows: int, panels: int, machine: Machine) -> int:
    """Choose the number of column vectors per task for `rows` rows."""
    most = max(min(MOST_VECTORS, machine.vector_registers // 2 // rows), 1)
    return next(count for count in range(most, 0, -1) if panels % count == 0)


def supports(w: BitsWorkload, target: Target) -> bool:
    """Few rows of float32, whole vectors of columns, whole blocks of whole words."""
    lanes = Machine.from_target(target).lanes(w.dtype)
    is_whole = w.n % lanes == 0 and w.k % w.block == 0 and w.block * w.bits % low_bit.WORD == 0
    return w.dtype == "float32" and w.m <= MOST_ROWS and is_whole


def supports_int8(w: BitsWorkload, target: Target) -> bool:
    """Whether `supports` holds, rows may be quantized to int8, and the target multiplies them."""
    return w.rounds and supports(w, target) and low_bit.multiplies_bytes(target, w.bits)


for _fields, _step in (
    ((FLOATS, 10, supports, fallback, compute_floats, None, pack_weight), _float_step),
    ((INT8, 15, supports_int8, fallback, compute_int8, None, pack_weight), _byte_step),
):
    register("nn.matmul_of_bits", "cpu", *_fields, rule=BitsProduct(_step))
