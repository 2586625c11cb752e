#!/usr/bin/env python3
"""Predicted times of single products and convolutions, with `mma.sync` and with `wgmma`.

    python -m scripts.reports.gpu_products --archs sm_90 sm_90a

The times are the prices by which tiles are chosen (`schedules.cuda.gemm.gemm_tiles`), not
measurements. Needs neither a GPU nor nvcc.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tvm import te, tirx, topi
from tvm.target import Target

from schedules.cuda import device as devices
from schedules.cuda.gemm.contraction import take_apart
from schedules.cuda.gemm.gemm_tiles import MMA_TILES, WGMMA_TILES, Plan, cheapest

PRODUCTS = ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192))
CONVOLUTIONS = ((1, 256, 14, 256, 3), (32, 256, 14, 256, 3), (32, 64, 56, 64, 3))


def product(m: int, n: int, k: int, dtype: str) -> tirx.PrimFunc:
    """A product of rows by columns; the sums of int8 are int32."""
    a, b = te.placeholder((m, k), dtype, name="a"), te.placeholder((n, k), dtype, name="b")
    result = "int32" if dtype == "int8" else dtype
    r = te.reduce_axis((0, k), name="k")

    def sums(i: tirx.Var, j: tirx.Var) -> te.Tensor:
        return te.sum(a[i, r].astype(result) * b[j, r].astype(result), axis=r)

    return te.create_prim_func([a, b, te.compute((m, n), sums, name="c")])


def convolution(n: int, c: int, size: int, o: int, kernel: int, dtype: str) -> tirx.PrimFunc:
    """A convolution of n images of size by size with its channels last."""
    x = te.placeholder((n, size, size, c), dtype, name="x")
    w = te.placeholder((kernel, kernel, c, o), dtype, name="w")
    y = topi.nn.conv2d_nhwc(x, w, 1, kernel // 2, 1, out_dtype=dtype)
    return te.create_prim_func([x, w, y])


def functions() -> Iterator[tuple[str, str, tirx.PrimFunc]]:
    """Name, dtype and function of each row."""
    for m, n, k in PRODUCTS:
        for dtype in ("float16", "float32", "int8"):
            yield f"product {m} x {n} x {k}", dtype, product(m, n, k, dtype)
    for n, c, size, o, kernel in CONVOLUTIONS:
        name = f"convolution {n} x {c} x {size} x {size} to {o}, {kernel} by {kernel}"
        yield name, "float16", convolution(n, c, size, o, kernel, "float16")


def chosen(func: tirx.PrimFunc, arch: str) -> tuple[Plan, float]:
    """The cheapest plan on an architecture, and its seconds."""
    device = devices.of(Target({"kind": "cuda", "arch": arch}))
    contraction = take_apart(func)
    assert contraction is not None
    tiles = (*MMA_TILES, *(WGMMA_TILES if device.wgmma_bytes else ()))
    plan = cheapest(tiles, contraction, device)
    assert isinstance(plan, Plan), plan
    itemsize = {"float16": 2, "float32": 4, "int8": 1}[contraction.a.dtype]
    return plan, plan.seconds(device, itemsize, contraction.a.dtype == "float32")


def main() -> None:
    """Print the table; float32 is TF32."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--archs", nargs="+", default=["sm_90", "sm_90a"])
    options = parser.parse_args()
    titles = "".join(f" tile | {arch}, us |" for arch in options.archs)
    print(f"| | dtype |{titles}\n|---|---|{'---|---|' * len(options.archs)}")
    for name, dtype, func in functions():
        row = f"| {name} | {'tf32' if dtype == 'float32' else dtype} |"
        for arch in options.archs:
            plan, seconds = chosen(func, arch)
            instruction = "wgmma" if plan.tile.is_wgmma else "mma.sync"
            row += f" {plan.tile.i} x {plan.tile.j}, {instruction} | {1e6 * seconds:.1f} |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
