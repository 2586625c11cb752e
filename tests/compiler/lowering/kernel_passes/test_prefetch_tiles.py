"""Tests of the prefetches of a register tile's results and of the next tile's inputs."""

from __future__ import annotations

import pytest
from tvm import s_tir, te, tirx

from compiler.lowering.kernel_passes.prefetch_tiles import with_tile_prefetches
from schedules.x86.machine.prefetch import prefetch_tile

from .test_prefetch_results import TARGET, fetched, lowered

PIXELS, TILE, LANES = 12, 4, 16


def kernel(chunks: int, marked: bool = True) -> tirx.PrimFunc:
    """out (PIXELS, LANES) = x (chunks, PIXELS, LANES) times weight, and y added."""
    x = te.placeholder((chunks, PIXELS, LANES), name="x")
    weight = te.placeholder((chunks * LANES, LANES), name="weight")
    y = te.placeholder((PIXELS, LANES), name="y")
    k = te.reduce_axis((0, chunks * LANES), "k")
    product = te.compute(
        (PIXELS, LANES),
        lambda i, j: te.sum(x[k // LANES, i, k % LANES] * weight[k, j], axis=[k]),
        name="product",
    )
    out = te.compute((PIXELS, LANES), lambda i, j: product[i, j] + y[i, j], name="out")
    sch = s_tir.Schedule(te.create_prim_func([x, weight, y, out]))
    pixel, lane = sch.get_loops(sch.get_sblock("out"))
    tile, inside = sch.split(pixel, [None, TILE])
    sch.vectorize(lane)
    sch.unroll(inside)
    product_block = sch.get_sblock("product")
    sch.compute_at(product_block, tile, preserve_unit_loops=True)
    inside, lane, k = sch.get_loops(product_block)[-3:]
    chunk, k = sch.split(k, [None, LANES])
    sch.reorder(chunk, k, inside, lane)
    sch.unroll(inside)
    sch.vectorize(lane)
    if marked:
        prefetch_tile(sch, chunk)
    sch.decompose_reduction(product_block, chunk)
    return sch.mod["main"].with_attrs({"global_symbol": "kernel", "target": TARGET})


@pytest.mark.parametrize("chunks", [1, 3])
def test_each_tile_asks_for_its_results_and_for_the_inputs_of_the_next(chunks):
    body = with_tile_prefetches(lowered(kernel(chunks)), "fetch")
    asked: dict[str, set[int]] = {}
    for buffer, element in fetched(body):
        asked.setdefault(buffer.split("_")[0], set()).add(element)
    lines = set(range(0, PIXELS * LANES, LANES))
    assert asked["out"] == asked["y"] == lines
    image = PIXELS * LANES
    behind_first = {c * image + at + TILE * LANES for c in range(chunks) for at in lines}
    assert asked["x"] == behind_first
    assert "weight" not in asked


def test_a_kernel_without_a_mark_stays_as_it_is():
    body = lowered(kernel(1, marked=False))
    assert with_tile_prefetches(body, "fetch").same_as(body)
