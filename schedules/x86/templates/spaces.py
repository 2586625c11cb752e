"""The knobs of every tunable x86 implementation.

AutoTVM's templates have the candidates of TVM 0.18, in its order. Baton's own implementations
have spaces around their fallback values, which are always among the candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tvm.target import Target

from ...config import ConfigEntity, SplitEntity
from ...conv2d import Conv2dWorkload
from ...knob_candidates import divisors
from ...matmul import BatchMatmulWorkload, DenseWorkload, Product
from ...space import ConfigSpace, Define, register_space
from ..conv import conv2d, depthwise, winograd, winograd_polyphase_rules, winograd_rules
from ..conv.register_tile import MIN_BLOCK
from ..machine.cpu import Machine
from ..matmul import batch_matmul, dense, matmul_rules, strassen, strassen_rules

# Longest register tile along a row that AutoTVM's templates tried.
MOST_COLUMNS = 64
MOST_COLUMNS_3D = 8
MOST_INNER_ROWS = 16


def _at_most(most: int) -> Callable[[SplitEntity], bool]:
    return lambda entity: entity.size[-1] <= most


def _multiple_of(step: int) -> Callable[[SplitEntity], bool]:
    return lambda entity: entity.size[-1] % step == 0


# --- AutoTVM's templates -----------------------------------------------------------------


def _conv2d_nchwc(cfg: ConfigSpace, w: Conv2dWorkload, _: Target) -> None:
    # These extents leave the dilation out, as TVM 0.18's did.
    height = (w.height - w.kernel[0] + w.padding[0] + w.padding[2]) // w.strides[0] + 1
    width = (w.width - w.kernel[1] + w.padding[1] + w.padding[3]) // w.strides[1] + 1
    cfg.define_split("tile_ic", w.in_channels)
    cfg.define_split("tile_oc", w.out_channels)
    cfg.define_split("tile_ow", width, policy="verbose", filter=_at_most(MOST_COLUMNS))
    if w.kernel == (1, 1):
        cfg.define_knob("tile_oh", [1, 2] if height > 1 else [1])
    else:
        cfg.define_knob("unroll_kw", [True, False])


def _conv2d_nchwc_int8(cfg: ConfigSpace, w: Conv2dWorkload, _: Target) -> None:
    cfg.define_split("tile_ic", w.in_channels, filter=_multiple_of(4))
    cfg.define_split("tile_oc", w.out_channels, filter=_multiple_of(16))
    cfg.define_split("tile_ow", w.out_width, filter=_at_most(MOST_COLUMNS))
    if w.kernel == (1, 1):
        cfg.define_knob("tile_oh", [1, 2] if w.out_height > 1 else [1])
    else:
        cfg.define_knob("unroll_kw", [True, False])


def _blocked_conv2d(cfg: ConfigSpace, w: Conv2dWorkload, _: Target) -> None:
    cfg.define_split("tile_ic", w.in_channels)
    cfg.define_split("tile_oc", w.out_channels)
    cfg.define_split("tile_ow", w.out_width, filter=_at_most(MOST_COLUMNS))
    cfg.define_knob("unroll_kw", [True, False])


def _conv3d(cfg: ConfigSpace, w: Any, _: Target) -> None:
    # Without dilation, as TVM 0.18 had it.
    width = (w.size[2] + w.padding[2] + w.padding[5] - w.kernel[2]) // w.strides[2] + 1
    cfg.define_split("tile_ic", w.in_channels)
    cfg.define_split("tile_oc", w.out_channels)
    cfg.define_split("tile_ow", width, filter=_at_most(MOST_COLUMNS_3D))
    cfg.define_knob("unroll_kw", [True, False])


def _dense_pack(cfg: ConfigSpace, w: DenseWorkload, _: Target) -> None:
    cfg.define_split("tile_y", w.m, num_outputs=3)
    cfg.define_split("tile_x", w.n, num_outputs=3)
    cfg.define_split("tile_k", w.k)
    cfg.define_split("tile_inner", w.m, filter=_at_most(MOST_INNER_ROWS))


def _lane_reduction(cfg: ConfigSpace, w: DenseWorkload | BatchMatmulWorkload, _: Target) -> None:
    cfg.define_split("tile_y", w.m)
    cfg.define_split("tile_x", w.n)
    cfg.define_split("tile_k", w.k)


# --- Baton's own implementations ---------------------------------------------------------


def _vary(cfg: ConfigSpace, base: ConfigEntity, name: str, others: Iterable[Any]) -> None:
    """Define a knob: the fallback's value first, whatever the rules say, then the others."""
    first = base.val(name)
    cfg.define_knob(name, [first, *(value for value in dict.fromkeys(others) if value != first)])


def _conv2d_direct(cfg: ConfigSpace, w: Conv2dWorkload, target: Target) -> None:
    machine = Machine.from_target(target)
    base = conv2d.direct_fallback(w, target)
    block = base.val("oc_block")
    blocks = [] if w.groups > 1 else [machine.lanes(w.dtype), machine.lanes(w.dtype) // 2]
    _vary(cfg, base, "oc_block", [b for b in blocks if b >= MIN_BLOCK])
    pixels = w.out_height * w.out_width if w.is_pointwise else w.out_width
    _vary(cfg, base, "tile_ow", range(1, min(pixels, 28) + 1))
    chunks = -(-w.out_channels // block)
    if w.groups > 1:
        chunks = max(w.out_channels // w.groups // block, 1)
    _vary(cfg, base, "oc_chunks", [d for d in divisors(chunks) if d <= 8])
    _vary(cfg, base, "channels_outer", [False, True])
    rows = [d for d in divisors(w.out_height) if d <= conv2d.MOST_ROWS]
    _vary(cfg, base, "rows", rows)
    can_be_flat = w.is_pointwise and w.groups == 1
    _vary(cfg, base, "flat", [False, True] if can_be_flat else [])
    _vary(cfg, base, "pixel_parts", [1])
    _vary(cfg, base, "spread", [False, True] if can_be_flat else [])

    def fits(config: ConfigEntity) -> bool:
        channels = -(-w.out_channels // config.val("oc_block"))
        if w.groups > 1:
            channels = chunks
        flat = config.val("flat", False)
        registers = config.val("tile_ow") * config.val("oc_chunks")
        parts = config.val("pixel_parts")
        ragged = flat and w.batch == 1 and parts == 1
        return (
            (channels % config.val("oc_chunks") == 0 or ragged)
            and (parts == 1 or (flat and pixels % (parts * config.val("tile_ow")) == 0))
            and (flat or not (config.val("spread") and config.val("channels_outer")))
            and (config.val("rows", 1) == 1 or not (flat or config.val("channels_outer")))
            and registers <= 2 * machine.vector_registers
            and (config.val("channels_outer") if flat else config.val("tile_ow") <= w.out_width)
        )

    cfg.multi_filter(fits)


def _depthwise_direct(cfg: ConfigSpace, w: Conv2dWorkload, target: Target) -> None:
    machine = Machine.from_target(target)
    base = depthwise.direct_fallback(w, target)
    lanes = machine.lanes(w.dtype)
    blocks = [lanes, lanes // 2]
    _vary(cfg, base, "oc_block", [b for b in blocks if b >= MIN_BLOCK])
    _vary(cfg, base, "tile_oh", _sizes(w.out_height))
    _vary(cfg, base, "tile_ow", range(1, min(w.out_width, 28) + 1))


def _sizes(extent: int) -> list[int]:
    """Divisors and powers of two."""
    return sorted({*divisors(extent), *(1 << bit for bit in range(extent.bit_length()))})


def _winograd(cfg: ConfigSpace, w: Conv2dWorkload, target: Target) -> None:
    machine = Machine.from_target(target)
    base = winograd_rules.fallback(w, target)
    block = base.val("oc_block")
    chunks = w.out_channels // block
    _vary(cfg, base, "m", winograd_rules.candidates(w))
    cfg.define_knob("oc_block", [block])
    _vary(cfg, base, "oc_tile", [n * block for n in (1, 2, 4) if chunks % n == 0])
    rows, columns = winograd.grid(w, 2)
    _vary(cfg, base, "rows", _sizes(rows))
    _vary(cfg, base, "tile_rows", [1, 2, 3, 4, 7])
    _vary(cfg, base, "tile_columns", range(1, min(columns, 28) + 1))
    _vary(cfg, base, "oc_group", divisors(chunks))
    _vary(cfg, base, "channels_outer", [False, True])
    _vary(cfg, base, "split_rows", [False, True])
    _vary(cfg, base, "split_columns", [False, True])
    _vary(cfg, base, "group_columns", [0])
    _vary(cfg, base, "flat", [False, True])

    def fits(config: ConfigEntity) -> bool:
        m, vectors = config.val("m"), config.val("oc_tile") // block
        tile_rows, tile_columns = config.val("tile_rows"), config.val("tile_columns")
        down, across = winograd.grid(w, m)
        pixels = tile_rows * tile_columns
        if config.val("group_columns") % tile_columns:
            return False
        outer, split_rows = config.val("channels_outer"), config.val("split_rows", False)
        if split_rows and not (outer and down % config.val("rows") == 0):
            return False
        if config.val("oc_group") % vectors or config.val("rows") > down:
            return False
        if pixels * vectors > 2 * machine.vector_registers:
            return False
        if config.val("flat", False):
            in_group = across * (down if outer and not split_rows else config.val("rows"))
            is_whole = down % config.val("rows") == 0 and not config.val("split_columns")
            return is_whole and tile_rows == 1 and tile_columns <= in_group
        are_whole = tile_rows == 1 or tile_columns == across
        return are_whole and config.val("rows") % tile_rows == 0 and tile_columns <= across

    cfg.multi_filter(fits)


def _winograd_polyphase(cfg: ConfigSpace, w: Conv2dWorkload, target: Target) -> None:
    machine = Machine.from_target(target)
    base = winograd_polyphase_rules.fallback(w, target)
    block = base.val("oc_block")
    chunks = w.out_channels // block
    rules = winograd_rules if w.strides == (1, 1) else winograd_polyphase_rules
    _vary(cfg, base, "m", rules.candidates(w))
    cfg.define_knob("stride", [w.strides[0]])
    cfg.define_knob("oc_block", [block])
    _vary(cfg, base, "oc_tile", [n * block for n in (1, 2, 4) if chunks % n == 0])
    _vary(cfg, base, "tile_columns", range(1, 15))
    _vary(cfg, base, "oc_group", divisors(chunks))
    # Each row of a plain input is a separate task; the last one is like the others.
    if winograd_polyphase_rules.is_plain(w, machine):
        cfg.define_knob("trim", [False])
    else:
        _vary(cfg, base, "trim", [False, True])

    def fits(config: ConfigEntity) -> bool:
        vectors = config.val("oc_tile") // block
        registers = config.val("tile_columns") * vectors
        return config.val("oc_group") % vectors == 0 and registers <= 2 * machine.vector_registers

    cfg.multi_filter(fits)


def _tiled_product(cfg: ConfigSpace, w: Product, target: Target) -> None:
    """Knobs of `matmul_tile`; `copy_panel` stays as the operands want it."""
    _, m, n, k = w.extents
    base, lanes = matmul_rules.fallback(w, target), Machine.from_target(target).lanes(w.dtype)
    _vary(cfg, base, "tile_m", range(1, min(m, 28) + 1))
    vectors = [count * lanes for count in (1, 2, 3, 4) if count * lanes <= max(n, lanes)]
    _vary(cfg, base, "tile_n", vectors)
    _vary(cfg, base, "block_k", [d for d in divisors(k) if 64 <= d <= k])
    whole = n % lanes == 0
    orders = ["bnm", "bmn"] if whole else []
    _vary(cfg, base, "task_order", orders)
    _vary(cfg, base, "task_rows", _sizes(max(m, 1)))
    if "copy_panel" in base:
        cfg.define_knob("copy_panel", [base.val("copy_panel")])

    def fits(config: ConfigEntity) -> bool:
        row_tiles = -(-m // config.val("tile_m"))
        registers = config.val("tile_m") * -(-config.val("tile_n") // lanes)
        in_place = "copy_panel" in base and not base.val("copy_panel")
        return (
            config.val("task_rows") <= max(row_tiles, base.val("task_rows"))
            and registers <= 40
            and (not in_place or n % config.val("tile_n") == 0)
            and (row_tiles > 1 or config.val("block_k") == base.val("block_k"))
        )

    cfg.multi_filter(fits)


def _strassen(cfg: ConfigSpace, w: Any, target: Target) -> None:
    machine = Machine.from_target(target)
    extents = strassen.extents_of(w)
    is_blocked = isinstance(w, Conv2dWorkload)
    base = strassen_rules.plan(extents, machine, is_blocked)
    lanes = base.val("lanes")
    rows, columns, depth = strassen.halves(extents, lanes)
    cfg.define_knob("lanes", [lanes])
    if is_blocked:
        cfg.define_knob("oc_block", [lanes])
        cfg.define_knob("sums_by_task", [base.val("sums_by_task")])
    _vary(cfg, base, "tile_m", range(1, min(rows, 28) + 1))
    vectors = [d for d in divisors(columns // lanes) if d <= 4]
    _vary(cfg, base, "tile_n", [d * lanes for d in vectors])
    _vary(cfg, base, "block_k", [d for d in divisors(depth) if d >= 64])
    _vary(cfg, base, "group", divisors(columns // lanes))
    _vary(cfg, base, "task_rows", divisors(rows))

    def fits(config: ConfigEntity) -> bool:
        tile_m, tile_n = config.val("tile_m"), config.val("tile_n")
        return (
            tile_m * tile_n // lanes <= 2 * machine.vector_registers
            and tile_m <= config.val("task_rows")
            and columns % (tile_n * config.val("group")) == 0
        )

    cfg.multi_filter(fits)


_SPACES: dict[str, Define] = {
    "conv2d_NCHWc.x86": _conv2d_nchwc,
    "conv2d_NCHWc_int8.x86": _conv2d_nchwc_int8,
    "depthwise_conv2d_NCHWc.x86": _blocked_conv2d,
    "group_conv2d_nchw.x86": _blocked_conv2d,
    "conv3d_ncdhw.x86": _conv3d,
    "conv3d_ndhwc.x86": _conv3d,
    "dense_pack.x86": _dense_pack,
    "dense_nopack.x86": _lane_reduction,
    "batch_matmul.x86": _lane_reduction,
    conv2d.DIRECT: _conv2d_direct,
    depthwise.DIRECT: _depthwise_direct,
    winograd.NAME: _winograd,
    winograd_polyphase_rules.NAME: _winograd_polyphase,
    strassen.DENSE: _strassen,
    strassen.CONV2D: _strassen,
    dense.PACKED: _tiled_product,
    dense.TILED: _tiled_product,
    batch_matmul.TILED: _tiled_product,
}
for _name, _define in _SPACES.items():
    register_space(_name, _define)
