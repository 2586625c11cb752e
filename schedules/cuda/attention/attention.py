"""Attention as one kernel on CUDA: its scores never leave the multiprocessor.

blockIdx.x = (batch and head, tile of queries)
  Q tile -> shared
  for each tile of keys up to a diagonal: the next one's K and V are on their way
    S = Q K^T * scale, masks              `MmaCore`: tensor cores; `FmaCore`: float32
    P = exp(S - highest score so far)     `online_softmax`; O and sums are rescaled
    O += P V
  O / sums -> output
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import DataType, s_tir, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.target import Target

from ...anchor import register_anchor_rule
from ...attention import AttentionWorkload, Heads
from ...config import ConfigEntity, option
from ...matmul import unravel
from ...strategy import anchor_attrs, register
from .. import device as devices
from ..device import Device
from ..gemm import intrinsics
from ..gemm.intrinsics import FIRST_ARCH, pointer
from ..gemm.tile_loops import both, each_vector, where
from ..verify import limit_violation
from .attention_cores import AttentionTile, FmaPair, MmaPair, pair

Expr = Any
NAME = "attention.cuda"
DTYPES = ("float32", "float16", "bfloat16")
LONGEST_VECTOR = 128
"""Elements of a query or value; a thread's registers do not hold a row's share of longer ones."""
STAGES = 2
TILES = tuple(AttentionTile(warps, 16, keys) for warps in (4, 2, 1) for keys in (64, 32))
FMA_TILES = (*TILES, *(AttentionTile(warps, 32, keys) for warps in (4, 2) for keys in (64, 32)))
TYPICAL_EXTENT = 256
"""Number of queries and keys that estimates assume for dynamic extents."""
SOFTMAX_CYCLES = 1 / 8
"""Cycles of a multiprocessor per score: its share of exp, and some ten other instructions."""
SUBPARTITIONS = 4
"""Subpartitions of a multiprocessor; one warp keeps one of them busy."""


# --- choice ------------------------------------------------------------------------------


def supports(w: AttentionWorkload, target: Target) -> bool:
    """Vectors of at most 128 known elements, where one kernel takes less time than three do."""
    device = devices.of(target)
    if device.limits.arch < FIRST_ARCH or w.dtype not in DTYPES:
        return False
    if not all(isinstance(each, int) and each <= LONGEST_VECTOR for each in (w.d, w.c)):
        return False
    found = _cheapest(w, device)
    return found is not None and found[0] <= _seconds_apart(w, device)


def predicted(w: AttentionWorkload, target: Target) -> float:
    """Seconds of the kernel with the cheapest tile."""
    found = _cheapest(w, devices.of(target))
    return math.inf if found is None else found[0]


def fallback(w: AttentionWorkload, target: Target) -> ConfigEntity:
    """The cheapest tile."""
    found = _cheapest(w, devices.of(target))
    assert found is not None
    return knobs(found[1])


def knobs(tile: AttentionTile) -> ConfigEntity:
    """A tile as a config."""
    return ConfigEntity(
        {"warps": option(tile.warps), "rows": option(tile.rows), "keys": option(tile.keys)}
    )


def _cheapest(w: AttentionWorkload, device: Device) -> tuple[float, AttentionTile] | None:
    """(seconds, tile) of the cheapest tile; None where none fits."""
    tiles = FMA_TILES if w.dtype == "float32" else TILES
    priced = [(seconds(w, tile, device), at) for at, tile in enumerate(tiles)]
    least, at = min(priced)
    return None if math.isinf(least) else (least, tiles[at])


def seconds(w: AttentionWorkload, tile: AttentionTile, device: Device) -> float:
    """How long the kernel takes with a tile; infinite where a multiprocessor has no room."""
    cores, limits = pair(w, tile), device.limits
    s, t, heads = (_number(extent) for extent in (w.s, w.t, math.prod(w.batch)))
    registers = cores.scores.count + cores.products.count + 3 * cores.score_rows.count + 72
    resident = limits.resident_blocks(tile.threads, registers, _shared_bytes(w, cores))
    if not resident:
        return math.inf
    blocks = -(-s // tile.queries) * heads
    together = min(resident, -(-blocks // limits.sms))
    waves = -(-blocks // (limits.sms * together))
    size = DataType(w.dtype).itemsize
    rate = 4 * device.fmas if w.dtype == "float32" else device.tensor_bytes
    rate *= min(1.0, together * tile.warps / SUBPARTITIONS)
    scores = together * tile.queries * tile.keys
    copied = together * tile.keys * (w.d + w.c) * size
    step = max(
        scores * ((w.d + w.c) * size / rate + SOFTMAX_CYCLES),
        copied / device.l2_bytes_per_cycle,
        device.latency_cycles,
    )
    cycles = waves * (_mean_steps(w, tile, s, t) * step + 2 * device.latency_cycles)
    return device.launch_seconds + cycles / device.hertz


def _mean_steps(w: AttentionWorkload, tile: AttentionTile, s: int, t: int) -> float:
    """Tiles of keys of a block, on average over the tiles of queries."""
    if w.diagonal is None:
        return -(-t // tile.keys)
    seen = [min(t, first + tile.queries + w.diagonal) for first in range(0, s, tile.queries)]
    return sum(-(-keys // tile.keys) for keys in seen) / len(seen)


def _seconds_apart(w: AttentionWorkload, device: Device) -> float:
    """Lower bound on the time of two matmuls and a softmax as separate kernels."""
    s, t, heads = (_number(extent) for extent in (w.s, w.t, math.prod(w.batch)))
    size = DataType(w.dtype).itemsize
    rate = 4 * device.fmas if w.dtype == "float32" else device.tensor_bytes
    products = heads * s * t * (w.d + w.c) * size / (rate * device.limits.sms * device.hertz)
    traffic = heads * (4 * s * t + (s + t) * (w.d + w.c)) * size / device.l2_bandwidth
    waiting = 6 * device.latency_cycles / device.hertz
    return 3 * device.launch_seconds + products + traffic + waiting


def _number(extent: Any) -> int:
    return int(extent) if isinstance(extent, int | tirx.IntImm) else TYPICAL_EXTENT


def _shared_bytes(w: AttentionWorkload, cores: MmaPair | FmaPair) -> int:
    queries = cores.scores.length("i")
    each = cores.scores.length("j") + cores.products.length("j")
    elements = queries + STAGES * each + cores.weights_length
    return elements * DataType(w.dtype).itemsize


# --- compute -----------------------------------------------------------------------------


def compute(
    w: AttentionWorkload,
    config: ConfigEntity,
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    *masks: te.Tensor,
) -> te.Tensor:
    """q, k, v stored as the workload says, masks of the shapes there -> w.out_shape."""
    tile = AttentionTile(config.val("warps"), config.val("rows"), config.val("keys"))
    tensors = [q, k, v, *masks]
    # Buffers of TVM's own would begin anywhere in memory.
    buffers = [tirx.decl_buffer(each.shape, each.dtype, each.op.name) for each in tensors]
    out = tirx.decl_buffer(w.out_shape, w.dtype, "attention_out")
    return te.extern(
        [w.out_shape],
        tensors,
        lambda ins, outs: _Kernel(w, tile, ins, outs).build(),
        name="attention",
        in_buffers=buffers,
        out_buffers=[out],
        attrs=anchor_attrs(NAME, config),
    )


class _Kernel:
    """Writes the statements."""

    def __init__(
        self, w: AttentionWorkload, tile: AttentionTile, ins: Sequence[Any], outs: Sequence[Any]
    ) -> None:
        self.w, self.tile, self.cores = w, tile, pair(w, tile)
        self.ins, self.outs = ins, outs
        self.s, self.t = _narrow(w.s), _narrow(w.t)

    def build(self) -> Any:
        with IRBuilder() as builder:
            with self._grid():
                self._attend()
            return builder.get()

    @contextmanager
    def _grid(self) -> Iterator[None]:
        heads: Any = 1
        for extent in self.w.batch:
            heads = heads * _narrow(extent)
        tiles = _tiles(self.s, self.tile.queries)
        with (
            T.thread_binding(0, heads * tiles, thread="blockIdx.x") as block,
            T.thread_binding(0, self.tile.threads, thread="threadIdx.x") as thread,
        ):
            self.batch = unravel(tirx.floordiv(block, tiles), self.w.batch)
            at = tirx.floormod(block, tiles)
            if self.w.diagonal is not None:  # blocks with the most keys begin first
                at = tiles - 1 - at
            self.first = at * self.tile.queries
            self.thread = thread
            yield

    def _attend(self) -> None:
        w, cores = self.w, self.cores
        self.q, self.k, self.v, *self.masks = map(T.buffer_proxy, self.ins)
        scores, products = cores.scores, cores.products
        # One array, since TVM would have weights take the place of keys that are still read.
        keys = scores.length("i")
        values = keys + STAGES * scores.length("j")
        weights = values + STAGES * products.length("j")
        shape = (weights + cores.weights_length,)
        self.shared = T.alloc_buffer(shape, w.dtype, scope="shared.dyn")
        key_tiles = self._key_tiles()
        products.begin(self.thread)
        scores.begin(self.thread)
        highest = self._rows(-math.inf)
        totals, factors = self._rows(0.0), self._rows(0.0)
        self._copy(scores, "i", 0, self._query)
        self._copy_step(keys, values, tirx.const(0, "int32"), tirx.const(0, "int32"))
        T.evaluate(intrinsics.commit())
        with T.serial(0, key_tiles) as step:
            stage = step % STAGES
            T.evaluate(intrinsics.wait(STAGES - 2))
            T.evaluate(T.tvm_storage_sync("shared.dyn"))
            ahead = step + (STAGES - 1)
            with T.If(ahead < key_tiles), T.Then():
                self._copy_step(keys, values, ahead, ahead % STAGES)
            T.evaluate(intrinsics.commit())
            scores.clear()
            scores.multiply(self.shared, self.shared, 0, keys + stage * scores.length("j"))
            self._mask(step)
            rows = [pointer(each, 0) for each in (highest, totals, factors)]
            T.evaluate(cores.score_rows.step(pointer(scores.sums, 0), *rows))
            T.evaluate(cores.product_rows.scale(pointer(products.sums, 0), pointer(factors, 0)))
            cores.hand_over(self.shared, weights)
            first = values + stage * products.length("j")
            products.multiply(self.shared, self.shared, weights, first)
        sums = pointer(products.sums, 0), pointer(totals, 0)
        T.evaluate(cores.product_rows.divide(*sums, w.nan_is_zero))
        self._store()

    def _key_tiles(self) -> Any:
        """Tiles of keys that a query of the block sees; all without a causal mask."""
        if self.w.diagonal is None:
            return _tiles(self.t, self.tile.keys)
        seen = tirx.min(self.t, self.first + (self.tile.queries + self.w.diagonal))
        return _tiles(seen, self.tile.keys)

    def _rows(self, value: float) -> Any:
        """A register for each row of a thread."""
        count = self.cores.score_rows.count
        rows = T.alloc_buffer((count,), "float32", scope="local")
        with T.unroll(0, count) as at:
            T.buffer_store(rows, tirx.const(value, "float32"), [at])
        return rows

    # --- copies to shared memory -------------------------------------------------------------

    def _copy_step(self, keys: int, values: int, step: Expr, stage: Expr) -> None:
        """Start to copy a tile of keys and one of values to a stage behind these elements."""
        cores, first = self.cores, step * self.tile.keys

        def key(row: Expr, k: Expr) -> tuple[Expr, list[Expr]]:
            at = first + row
            inside = [
                *self._inside(at, self.t, self.tile.keys),
                *self._inside(k, self.w.d, self.cores.scores.step),
            ]
            return self._element(self.k, self.w.k, k, at), inside

        def value(row: Expr, k: Expr) -> tuple[Expr, list[Expr]]:
            at = first + k
            inside = [
                *self._inside(at, self.t, self.tile.keys),
                *self._inside(row, self.w.c, self.cores.products.tile.j),
            ]
            return self._element(self.v, self.w.v, at, row), inside

        self._copy(cores.scores, "j", keys + stage * cores.scores.length("j"), key)
        self._copy(cores.products, "j", values + stage * cores.products.length("j"), value)

    def _query(self, row: Expr, k: Expr) -> tuple[Expr, list[Expr]]:
        at = self.first + row
        inside = [
            *self._inside(at, self.s, self.tile.queries),
            *self._inside(k, self.w.d, self.cores.scores.step),
        ]
        return self._element(self.q, self.w.q, at, k), inside

    def _element(self, tensor: Any, heads: Heads, row: Expr, column: Expr) -> Expr:
        return tensor[heads.index(self.batch, row, column)]

    def _copy(
        self,
        core: Any,
        letter: str,
        first: Expr,
        element: Callable[[Expr, Expr], tuple[Expr, list[Expr]]],
    ) -> None:
        """Have all threads copy a tile; zeros where there is no element."""
        size = core.operands[letter].lanes * core.itemsize
        with each_vector(core, letter, self.thread) as (row, k):
            to = pointer(self.shared, first + core.place(letter, row, k))
            source, inside = element(row, k)
            if size >= intrinsics.FEWEST_BYTES:
                T.evaluate(intrinsics.copy(size, to, T.address_of(source), both(inside)))
            else:
                zero = tirx.const(0, self.w.dtype)
                value = tirx.if_then_else(both(inside), source, zero) if inside else source
                T.evaluate(intrinsics.store(to, value))

    @staticmethod
    def _inside(at: Expr, extent: Any, tile: int) -> list[Expr]:
        """What must hold at a place of an axis that tiles may exceed."""
        return [] if isinstance(extent, int) and extent % tile == 0 else [at < extent]

    # --- scores and results ------------------------------------------------------------------

    def _mask(self, step: Expr) -> None:
        """Scale the scores and apply the masks; -infinity where there is no key."""
        w, core = self.w, self.cores.scores
        sums = T.buffer_proxy(core.sums)
        for at, i, j in core.places():
            row, column = self.first + i, step * self.tile.keys + j
            score = sums[at]
            if w.scale != 1.0:
                score = score * tirx.const(w.scale, "float32")
            score = w.masked(score, self.masks, self.batch, row, column, "float32")
            inside = self._inside(column, self.t, self.tile.keys)
            if w.masks:
                inside += self._inside(row, self.s, self.tile.queries)
            if inside:
                score = tirx.if_then_else(both(inside), score, tirx.const(-math.inf, "float32"))
            sums[at] = score

    def _store(self) -> None:
        """The products to the output, in vectors of a thread's neighboring ones."""
        w, core = self.w, self.cores.products
        (out,) = map(T.buffer_proxy, self.outs)
        sums = T.buffer_proxy(core.sums)
        lanes = math.gcd(w.c, self.cores.lanes)
        for at, i, j in core.places():
            if at % lanes:
                continue
            row = self.first + i
            inside = self._inside(row, self.s, self.tile.queries)
            with where([*inside, *self._inside(j, w.c, core.tile.j)]):
                if lanes == 1:
                    out[self._out_index(row, j)] = sums[at].astype(w.dtype)
                    continue
                with T.vectorized(0, lanes) as lane:
                    out[self._out_index(row, j + lane)] = sums[at + lane].astype(w.dtype)

    def _out_index(self, row: Expr, column: Expr) -> tuple[Expr, ...]:
        if not self.w.heads_last:
            return (*self.batch, row, column)
        batch, head = self.batch
        return batch, row, head * self.w.c + column


def _narrow(extent: Any) -> Any:
    return extent if isinstance(extent, int) else extent.astype("int32")


def _tiles(extent: Any, tile: int) -> Any:
    """Tiles that cover an extent, an int where it is one."""
    if isinstance(extent, int):
        return -(-extent // tile)
    return tirx.floordiv(extent + (tile - 1), tile)


class _AsWritten(s_tir.dlight.ScheduleRule):
    """Takes the kernel as it is."""

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        """The schedule; None where the kernel does not fit the target."""
        return s_tir.Schedule(func) if limit_violation(func, target) is None else None


for _operator in ("attention", "attention_rows"):
    register(_operator, "cuda", NAME, 10, supports, fallback, compute, seconds=predicted)
register_anchor_rule(NAME, _AsWritten())
