"""Products of tiles by AMX: 32 columns of a panel, all steps of the reduction at a time.

    sums[rows, 32] += data[rows, k] * panel[k / size, 32, size]

Two rows of tiles by two columns of them are in registers: four sums, two of each operand. A step is
64 bytes of a row: `tdpbusd` multiplies 64 bytes, `tdpbf16ps` 32 bfloat16, for 16 rows and 16
columns. `lowering.tir_passes.amx` has the code of the functions that are called here.
"""

# mypy: disable-error-code="valid-type"

from __future__ import annotations

import functools
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T
from tvm.target import Target, codegen

from .dots import OF_BFLOAT16, OF_BYTES, Dot

STEP_BYTES = 64
ROWS, COLUMNS = 32, 32
"""At most so many rows of one call, and its columns."""

FUNCTIONS = {OF_BYTES: "baton_amx_int8", OF_BFLOAT16: "baton_amx_bf16"}
INSTRUCTIONS = {"baton_amx_int8": "tdpbusd", "baton_amx_bf16": "tdpbf16ps"}
_FEATURES = {OF_BYTES: "amx-int8", OF_BFLOAT16: "amx-bf16"}


def multiplies(dot: Dot, target: Target) -> bool:
    """Whether the target's tiles multiply these element types."""
    features = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    return _FEATURES[dot] in features


def steps_of(dot: Dot) -> int:
    """Elements of a row that one step multiplies."""
    return STEP_BYTES * dot.size // 4


@functools.lru_cache(maxsize=256)
def tile_intrinsic(dot: Dot, rows: int, k: int) -> str:
    """Name of the tensor intrinsic for so many rows, at most 32, and whole steps of k elements."""
    name = f"{FUNCTIONS[dot]}_{rows}_{k}"
    TensorIntrin.register(name, *_tiles(dot, rows, k))
    return name


def _tiles(dot: Dot, rows: int, k: int) -> tuple[Any, Any]:
    size, sums, function = dot.size, dot.sums, FUNCTIONS[dot]
    steps, groups = k // steps_of(dot), k // size
    of_data, of_weight = dot.data, dot.weight

    @T.prim_func(s_tir=True)
    def description(
        A: T.Buffer((rows, k), of_data, offset_factor=1),
        B: T.Buffer((groups, COLUMNS, size), of_weight, offset_factor=1),
        C: T.Buffer((rows, COLUMNS), sums, offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:rows, 0:COLUMNS], A[0:rows, 0:k], B[0:groups, 0:COLUMNS, 0:size])
            T.writes(C[0:rows, 0:COLUMNS])
            for i, j, g, p in T.grid(rows, COLUMNS, groups, size):
                with T.sblock("update"):
                    vi, vj, vg, vp = T.axis.remap("SSRR", [i, j, g, p])
                    C[vi, vj] = C[vi, vj] + T.cast(A[vi, vg * size + vp], sums) * T.cast(
                        B[vg, vj, vp], sums
                    )

    @T.prim_func(s_tir=True)
    def implementation(a: T.handle, b: T.handle, c: T.handle) -> None:
        of_a, of_c = T.int64(), T.int64()
        A = T.match_buffer(a, (rows, k), of_data, offset_factor=1, strides=[of_a, 1])
        B = T.match_buffer(b, (groups, COLUMNS, size), of_weight, offset_factor=1)
        C = T.match_buffer(c, (rows, COLUMNS), sums, offset_factor=1, strides=[of_c, 1])
        with T.sblock("root"):
            T.reads(C[0:rows, 0:COLUMNS], A[0:rows, 0:k], B[0:groups, 0:COLUMNS, 0:size])
            T.writes(C[0:rows, 0:COLUMNS])
            T.evaluate(
                T.call_extern(
                    "int32",
                    function,
                    T.address_of(C[0, 0]),
                    T.cast(of_c * 4, "int64"),
                    T.address_of(A[0, 0]),
                    T.cast(of_a * (4 // size), "int64"),
                    T.address_of(B[0, 0, 0]),
                    T.int32(rows),
                    T.int32(steps),
                )
            )

    return description, implementation
