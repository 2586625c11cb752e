"""AMX tile matmuls, generated from nests of plain loops that schedules mark.

    sums = 0                                    for two tiles of rows, two of columns
    mark: reduction, the outermost loop           zero tiles of sums
      other loops of the reduction       -->      all loops of the reduction but k
        rows, columns, k, part                      load tiles of data and weights, multiply
          sums += data * weights                  store tiles of sums

`tdpbusd` multiplies 16 rows of 64 bytes with 16 columns of 64 bytes, `tdpbf16ps` 32 bfloat16.
Weights lie in tiles, those of a step side by side: (columns / 16, k, 16, part). The pass
`lowering.kernel_passes.amx` finds rows, strides and columns in the nest's indices.
"""

from __future__ import annotations

from typing import Any

from tvm.target import Target, codegen

from .dot_product import OF_BFLOAT16, OF_BYTES, Dot

MARK = "pragma_amx_tiles"

TILE_ROWS, TILE_COLUMNS = 16, 16
PAIR = 2
"""Tiles of rows, and of columns, that are multiplied with each other."""
LEAST_CYCLES = 10
"""Minimum cycles of one instruction; otherwise it takes one cycle per row of the data tile."""
GROUP_BYTES = 4
"""Bytes of the neighbors in a row whose products one lane sums."""
STEP_BYTES = 64
"""Bytes of a data row that one instruction multiplies."""

INSTRUCTIONS = {OF_BYTES: "tdpbusd", OF_BFLOAT16: "tdpbf16ps"}
_FEATURES = {OF_BYTES: "amx-int8", OF_BFLOAT16: "amx-bf16"}


def multiplies(dot: Dot, target: Target) -> bool:
    """Whether the target's tiles multiply these element types."""
    if target.kind.name != "llvm":
        return False
    return _FEATURES[dot] in {str(name) for name in codegen.llvm_get_cpu_features(target)}


def steps_of(dot: Dot) -> int:
    """Elements of a row that one instruction multiplies."""
    return STEP_BYTES * dot.size // 4


def channel_block(channels: int, dot: Dot) -> int:
    """The smallest block, of whole tiles, with which as few blocks as possible are needed."""
    blocks, tiles = -(-channels // steps_of(dot)), -(-channels // TILE_COLUMNS)
    return -(-tiles // blocks) * TILE_COLUMNS


def groups_of_tiles(columns: int) -> tuple[int, int]:
    """Groups of columns whose weights are read together, step by step, and tiles of a group."""
    tiles = columns // TILE_COLUMNS
    return (tiles // PAIR, PAIR) if tiles % PAIR == 0 else (1, tiles)


def vector_of(lanes: int) -> int:
    """Lanes that an epilogue computes at a time: LLVM makes several vectors of them."""
    return lanes if lanes & (lanes - 1) == 0 else TILE_COLUMNS


def is_table(block: Any, target: Target) -> bool:
    """Whether what is costly of a block's bytes will be looked up, by the whole vector."""
    features = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    return "avx512vbmi" in features and str(block.writes[0].source.dtype) == "uint8"


def cycles_of_rows(rows: int) -> float:
    """Cycles of multiplying `rows` rows, split into tiles, with one tile of weights."""
    tiles = -(-rows // TILE_ROWS)
    return tiles * max(-(-rows // tiles), LEAST_CYCLES)


def by_tiles(sch: Any, block: Any, reduced: Any) -> None:
    """Finish a block C[rows, lane] += A[rows, k, part] * B[k, lane, part] by tiles.

    Sums are zeroed before `reduced`, the outermost reduction loop.
    """
    sch.annotate(reduced, MARK, 1)
    sch.decompose_reduction(block, reduced)
