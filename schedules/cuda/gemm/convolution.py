"""Convolutions, and whatever else is a product of two tensors summed over common axes.

The block is rewritten to a batched product of matrices, C[s, i, j] += A[s, k, i] * B[s, k, j],
where i runs over the output positions (batch, height, width), j over the output channels of
one group, k over the input channels of the group and the kernel window, and s over the groups.
Tiles of A are gathered straight from the image, so no im2col buffer exists in global memory:

    blockIdx.z = s, blockIdx.y = tile of j, blockIdx.x = tile of i
      threadIdx.y, threadIdx.x, accumulators acc[i][j] in registers
        for k0:
          A tile -> shared, B tile -> shared       all threads of the block
          for k1, i, j: acc[i][j] += A[k1, i] * B[k1, j]
        out = epilogue(acc)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm import s_tir, tirx
from tvm.s_tir.dlight import ScheduleRule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.target import Target
from tvm.tirx.analysis import undefined_vars

from ..blocks import Stage, stages
from ..stages import bind_stages, fuse_consumers

MIN_GROUP_CHANNELS = 4  # below, a group's product of matrices is too thin for a tile
ENOUGH_BLOCKS = 128  # about one block for each multiprocessor of a large device
TILE_K = 16


@dataclass(frozen=True)
class Tile:
    """Output tile of a block: `threads * registers` positions by as many channels."""

    threads_i: int
    registers_i: int
    threads_j: int
    registers_j: int

    @property
    def size_i(self) -> int:
        return self.threads_i * self.registers_i

    @property
    def size_j(self) -> int:
        return self.threads_j * self.registers_j

    @property
    def threads(self) -> int:
        return self.threads_i * self.threads_j


TILES = (  # largest first
    Tile(16, 8, 16, 4),
    Tile(16, 4, 16, 4),
    Tile(16, 4, 8, 4),
    Tile(16, 2, 8, 4),
    Tile(16, 2, 8, 2),
    Tile(16, 1, 8, 2),
)


class Convolution(ScheduleRule):
    """Functions with one convolution, dense or grouped, and elementwise stages around it."""

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        """Schedule `func`; None when its only reduction is not a convolution."""
        schedule = s_tir.Schedule(func)
        found = reductions_of_product(schedule)
        if len(found) != 1 or not _gathers(schedule, found[0].block):
            return None
        block = found[0].block
        split_groups(schedule, block)
        reads = [schedule.reindex(block, ("read", index)) for index in (0, 1)]
        store = schedule.reindex(block, ("write", 0))
        axes = _matrix_axes(schedule, block)
        if axes is None:
            return None
        extents = _to_matrices(schedule, block, reads, store, axes)
        tile = _choose_tile(extents)
        schedule.pad_einsum(block, [1, tile.size_i, tile.size_j, TILE_K])
        _tile(schedule, block, tile)
        bind_stages(schedule)
        return schedule


def reductions_of_product(schedule: s_tir.Schedule) -> list[Stage]:
    """The reductions of a static function whose first one sums products; none of another."""
    found = stages(schedule)
    if any(stage.is_opaque or -1 in stage.extents for stage in found):
        return []
    reductions = [stage for stage in found if stage.is_reduction]
    for block in (schedule.get(stage.block) for stage in reductions[:1]):
        if len(block.reads) == 2 and len(block.writes) == 1 and _multiplies(block.body):
            return reductions
    return []


def _multiplies(body: tirx.Stmt) -> bool:
    """Whether the body is C[...] = C[...] + a * b, up to casts."""
    value = body.value if isinstance(body, tirx.BufferStore) else None
    if not isinstance(value, tirx.Add):
        return False
    product = value.b
    while isinstance(product, tirx.Cast):
        product = product.value
    return isinstance(product, tirx.Mul)


def _gathers(schedule: s_tir.Schedule, block: SBlockRV) -> bool:
    """Whether an operand is read at a position made of two iterators, as images are."""
    return any(
        len(undefined_vars(axis.min)) > 1
        for region in schedule.get(block).reads
        for axis in region.region
    )


def split_groups(schedule: s_tir.Schedule, block: SBlockRV) -> None:
    """Turn an output channel that is divided by the group's size into (group, channel)."""
    iterators = list(schedule.get(block).iter_vars)
    positions = {iterator.var: index for index, iterator in enumerate(iterators)}
    for region in schedule.get(block).reads:
        for axis in region.region:
            divided = _divided(axis.min)
            if divided is None or divided[0] not in positions:
                continue
            position, size = positions[divided[0]], divided[1]
            if size < MIN_GROUP_CHANNELS or int(iterators[position].dom.extent) % size:
                return

            old = [iterator.var for iterator in iterators]
            at = old[position]
            new = [*old[:position], at // size, at % size, *old[position + 1 :]]
            index_map = tirx.IndexMap(old, new, None)
            schedule.transform_block_layout(block, index_map)
            return


def _divided(index: tirx.Expr) -> tuple[tirx.Var, int] | None:
    """(v, n) for the `v // n` inside an index."""
    if isinstance(index, tirx.FloorDiv) and isinstance(index.b, tirx.IntImm):
        return (index.a, int(index.b)) if isinstance(index.a, tirx.Var) else None
    for name in ("a", "b"):
        part = getattr(index, name, None)
        found = _divided(part) if part is not None else None
        if found is not None:
            return found
    return None


def _matrix_axes(schedule: s_tir.Schedule, block: SBlockRV) -> dict[str, list[int]] | None:
    """Iterators by place in C[s, i, j] += A[s, i, k] B[s, j, k], without unit ones; None if none
    fit.
    """
    statement = schedule.get(block)
    used = [
        {var for axis in region.region for var in undefined_vars(axis.min)}
        for region in (*statement.reads, *statement.writes)
    ]
    names = {"SABC": "s", "SAC": "i", "SBC": "j", "RAB": "k"}
    axes: dict[str, list[int]] = {"s": [], "i": [], "j": [], "k": []}
    for position, iterator in enumerate(statement.iter_vars):
        if int(iterator.dom.extent) == 1:
            continue
        kind = "R" if iterator.iter_type == tirx.IterVar.CommReduce else "S"
        where = "".join(n for n, found in zip("ABC", used, strict=True) if iterator.var in found)
        if kind + where not in names:
            return None
        axes[names[kind + where]].append(position)
    return axes if axes["i"] and axes["j"] and axes["k"] else None


def _to_matrices(
    schedule: s_tir.Schedule,
    block: SBlockRV,
    reads: list[SBlockRV],
    store: SBlockRV,
    axes: dict[str, list[int]],
) -> dict[str, int]:
    """Fuse the iterators to [s, i, j, k]; the extents by letter."""
    iterators = list(schedule.get(block).iter_vars)
    extents = [int(iterator.dom.extent) for iterator in iterators]

    def used_by(region: tirx.Expr) -> list[int]:
        used = [set(undefined_vars(axis.min)) for axis in region.region]
        return [
            position
            for position, iterator in enumerate(iterators)
            if any(iterator.var in found for found in used)
        ]

    def fused(letters: str, positions: list[int]) -> tirx.IndexMap:
        by_position = {p: iterators[p].var for p in positions}
        zero = tirx.IntImm(iterators[0].dom.extent.ty, 0)
        indices = []
        for letter in letters:
            index: tirx.Expr = zero
            for position in axes[letter]:
                index = index * extents[position] + by_position[position]
            indices.append(index)
        return tirx.IndexMap(list(by_position.values()), indices, None)

    statement = schedule.get(block)
    regions = (*statement.reads, statement.writes[0])
    operands = [used_by(region) for region in regions]
    schedule.transform_layout(reads[0], ("write", 0), fused("ski", operands[0]))
    schedule.transform_layout(reads[1], ("write", 0), fused("skj", operands[1]))
    schedule.transform_layout(store, ("read", 0), fused("sij", operands[2]))
    schedule.transform_block_layout(block, fused("sijk", list(range(len(iterators)))))
    return {letter: prod(extents[p] for p in positions) for letter, positions in axes.items()}


def _choose_tile(extents: dict[str, int]) -> Tile:
    """The largest tile that still gives the device enough blocks and wastes little."""

    def blocks(tile: Tile) -> int:
        return extents["s"] * -(-extents["i"] // tile.size_i) * -(-extents["j"] // tile.size_j)

    def waste(tile: Tile) -> float:
        padded = blocks(tile) * tile.size_i * tile.size_j
        return padded / (extents["s"] * extents["i"] * extents["j"])

    least = min(waste(tile) for tile in TILES)
    for tile in TILES:
        if blocks(tile) >= ENOUGH_BLOCKS and waste(tile) <= 1.5 * least:
            return tile
    return max(TILES, key=lambda tile: (blocks(tile) / waste(tile), tile.threads))


def _tile(schedule: s_tir.Schedule, block: SBlockRV, tile: Tile) -> None:
    group, i, j, k = schedule.get_loops(block)
    block_i, registers_i, threads_i = schedule.split(
        i, [None, tile.registers_i, tile.threads_i], preserve_unit_iters=True
    )
    block_j, threads_j, registers_j = schedule.split(
        j, [None, tile.threads_j, tile.registers_j], preserve_unit_iters=True
    )
    k_outer, k_inner = schedule.split(k, [None, TILE_K])
    # Positions of one thread are `threads_i` apart, as virtual threads, so that neighboring
    # threads store neighboring positions.
    grid = (group, block_j, block_i, registers_i, threads_j, threads_i)
    schedule.reorder(*grid, k_outer, k_inner, registers_j)
    tags = ("blockIdx.z", "blockIdx.y", "blockIdx.x", "vthread.x", "threadIdx.y", "threadIdx.x")
    for loop, tag in zip(grid, tags, strict=True):
        schedule.bind(loop, tag)
    schedule.annotate(threads_i, "pragma_auto_unroll_max_step", 256)
    schedule.annotate(threads_i, "pragma_unroll_explicit", 0)  # nvcc unrolls: less source

    store = schedule.cache_write(block, 0, "local")
    schedule.reverse_compute_at(store, threads_i, preserve_unit_loops=True)
    # Neighboring threads fetch neighboring positions of an image ...
    fetch = _fetch(schedule, block, 0, k_outer)
    _spread(schedule, schedule.get_loops(fetch)[-2:], tile)
    # ... and neighboring weights of one channel; the padding keeps rows in distinct banks.
    fetch = _fetch(schedule, block, 1, k_outer)
    schedule.storage_align(fetch, 0, axis=-2, factor=32, offset=4)
    _spread(schedule, schedule.get_loops(fetch)[-2:][::-1], tile)
    fuse_consumers(schedule, store)
    schedule.decompose_reduction(block, k_outer)


def _fetch(schedule: s_tir.Schedule, block: SBlockRV, operand: int, loop: LoopRV) -> SBlockRV:
    """Copy an operand's tile to shared memory, with its padding and the like inlined."""
    fetch = schedule.cache_read(block, operand, "shared")
    schedule.compute_at(fetch, loop, preserve_unit_loops=True)
    pending = list(schedule.get_producers(fetch))
    while pending:
        producer = pending.pop()
        try:
            schedule.compute_inline(producer)
        except s_tir.ScheduleError:
            continue  # a stage that other stages share stays a separate kernel
        pending = list(schedule.get_producers(fetch))
    return fetch


def _spread(schedule: s_tir.Schedule, loops: list[LoopRV], tile: Tile) -> None:
    """Spread the copy of one tile over the threads of the block, the last loop fastest."""
    schedule.reorder(*loops)
    _, threads_j, threads_i = schedule.split(
        schedule.fuse(*loops), [None, tile.threads_j, tile.threads_i]
    )
    schedule.bind(threads_j, "threadIdx.y")
    schedule.bind(threads_i, "threadIdx.x")
