"""Recurrent layers as one kernel on x86: all steps of a sequence, gates included.

Reading the weight in each step takes most of the time: it is packed in order, and rows share it.
"""

from __future__ import annotations

from typing import Any

from tvm import te
from tvm.target import Target

from ...config import ConfigEntity, options
from ...recurrent import RecurrentWorkload, Tiles, all_steps
from ...strategy import register
from ..injective import PARALLEL_WORK
from ..machine.cpu import Machine

NAME = "recurrent.x86"

# Vectors of sums that hide the latency of a multiply-add: four cycles, two a cycle.
CHAINS = 8
# Registers that hold no sums: a state, a weight, what is left over.
OTHER_REGISTERS = 4
# Minimum work per step for threads, a multiple of the usual minimum: steps are sequential, and each
# waits for all threads.
WORK_PER_STEP = 4 * PARALLEL_WORK


# --- compute -----------------------------------------------------------------------------


def pack_weight(ops: Any, weight: Any, config: ConfigEntity) -> Any:
    """(hidden, gates * hidden) -> (blocks, hidden, gates, tile_h), padded with zeros."""
    hidden, columns = (int(extent) for extent in weight.shape)
    gates, tile = columns // hidden, config.val("tile_h")
    missing = -hidden % tile
    weight = ops.reshape(weight, (hidden, gates, hidden))
    if missing:
        weight = ops.pad(weight, ((0, 0), (0, 0), (0, missing)))
    weight = ops.reshape(weight, (hidden, gates, (hidden + missing) // tile, tile))
    return ops.transpose(weight, (2, 0, 1, 3))


def compute(w: RecurrentWorkload, config: ConfigEntity, *operands: te.Tensor) -> Any:
    """Operands as `RecurrentWorkload` lists them, the weight packed -> its results."""
    tile, rows, lanes = (config.val(name) for name in ("tile_h", "rows", "lanes"))
    tiles = Tiles(tile, rows, lanes, bool(config.val("parallel")), packed=True)
    return all_steps(w, tiles, *operands)


# --- fallback ----------------------------------------------------------------------------


def fallback(w: RecurrentWorkload, target: Target) -> ConfigEntity:
    """Sums that fill the registers, and whether threads share a step.

    rows: as many as leave a vector for each gate, a divisor of the batch.
    tile_h: vectors enough to hide the latency of multiply-adds, no more than registers hold.
    """
    machine = Machine.from_target(target)
    lanes = machine.lanes(w.dtype)
    free = machine.vector_registers - OTHER_REGISTERS
    most = max(free // w.gates, 1)
    rows = next(count for count in range(min(w.batch, most), 0, -1) if w.batch % count == 0)
    vectors = 1
    while (
        rows * w.gates * vectors < CHAINS
        and rows * w.gates * 2 * vectors <= free
        and lanes * vectors < w.hidden
    ):
        vectors *= 2
    blocks = -(-w.hidden // (lanes * vectors))
    work = w.batch * w.gates * w.hidden**2
    parallel = machine.num_cores > 1 and blocks > 1 and work >= WORK_PER_STEP
    return options(tile_h=lanes * vectors, rows=rows, lanes=lanes, parallel=int(parallel))


register(
    "nn.recurrent",
    "cpu",
    NAME,
    10,
    lambda w, _: w.dtype in ("float32", "float64"),
    fallback,
    compute,
    pack=pack_weight,
)
