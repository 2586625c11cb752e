"""Tests of the prefetches of what a kernel reads and writes behind its products."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import s_tir, sym, te, tirx
from tvm.ir import Call
from tvm.target import Target

from compiler.lowering.kernel_passes import pipeline as tir_pipeline
from compiler.lowering.kernel_passes import prefetch_results as module
from compiler.lowering.kernel_passes.prefetch_results import with_result_prefetches
from schedules.generic.stages import substitute
from schedules.x86.machine.prefetch import prefetch_results, stream_panels

GROUPS, COLUMNS, LANES, DEPTH = 3, 4, 8, 5
TARGET = Target({"kind": "llvm", "mcpu": "x86-64-v3", "mtriple": "x86_64-linux-gnu"})


def kernel(rows: int, tile: int, marked: bool = True, in_registers: bool = False) -> tirx.PrimFunc:
    """Groups of columns: their products, by tiles of rows, and then the results.

    (rows, GROUPS * COLUMNS * LANES): x weight + y * bias

    Sums of a tile of rows are kept in registers or not, which changes the order of loops.
    """
    n = GROUPS * COLUMNS * LANES
    x, weight = te.placeholder((rows, DEPTH), name="x"), te.placeholder((DEPTH, n), name="weight")
    y, bias = te.placeholder((rows, n), name="y"), te.placeholder((n,), name="bias")
    k = te.reduce_axis((0, DEPTH), "k")
    product = te.compute(
        (rows, n), lambda i, j: te.sum(x[i, k] * weight[k, j], axis=[k]), name="product"
    )
    out = te.compute((rows, n), lambda i, j: product[i, j] + y[i, j] * bias[j], name="out")
    sch = s_tir.Schedule(te.create_prim_func([x, weight, y, bias, out]))
    results, products = sch.get_sblock("out"), sch.get_sblock("product")
    i, j = sch.get_loops(results)
    group, vector, lane = sch.split(j, [None, COLUMNS, LANES])
    sch.reorder(group, vector, i, lane)
    sch.vectorize(lane)
    sch.compute_at(products, group, preserve_unit_loops=True)
    _, row, column, k = sch.get_loops(products)
    row_tile, inside = sch.split(row, [None, tile])
    column, lane = sch.split(column, [None, LANES])
    sch.reorder(column, row_tile, *([k] if in_registers else []), inside, lane)
    if in_registers:
        sch.unroll(inside)
        sch.vectorize(lane)
        sch.decompose_reduction(products, k)
        stream_panels(sch, [(row_tile, -(-rows // tile))], [k], DEPTH * LANES * 4, LANES * 4)
    if rows % tile:
        sch.annotate(row_tile, "pragma_loop_partition_hint", 1)
    if marked:
        prefetch_results(sch, [column, row_tile], [vector, i])
    return sch.mod["main"].with_attrs({"global_symbol": "kernel", "target": TARGET})


def lowered(func: tirx.PrimFunc) -> tirx.Stmt:
    lower, *_ = tirx.get_tir_pipeline(tir_pipeline.PIPELINE)
    mod = tirx.transform.BindTarget(TARGET.with_host(TARGET))(tvm.IRModule({"kernel": func}))
    return lower(mod)["kernel"].body


def body_with_prefetches(func: tirx.PrimFunc) -> tirx.Stmt:
    return with_result_prefetches(lowered(func), "fetch")


def fetched(body: tirx.Stmt) -> list[tuple[str, int]]:
    """Buffer and element of each prefetch that the body would execute."""
    analyzer = sym.Analyzer()
    found: list[tuple[str, int]] = []

    def visit(statement: Any, loops: list[tirx.For]) -> None:
        def call(node: Call) -> None:
            if "fetch" not in str(node.args[0]):
                return
            load = node.args[1].args[0]
            for values in itertools.product(*(range(int(loop.extent)) for loop in loops)):
                variables = (loop.loop_var for loop in loops)
                known = [(v, tirx.const(at, v.ty.dtype)) for v, at in zip(variables, values)]
                index = substitute(load.indices[0], known)
                found.append((load.source.name, int(analyzer.simplify(index))))

        if isinstance(statement, tirx.SeqStmt):
            for part in statement.seq:
                visit(part, loops)
        elif isinstance(statement, tirx.For):
            visit(statement.body, [*loops, statement])
        elif isinstance(statement, tirx.Evaluate):
            tvm_ffi.structural_walk(statement, (Call, call))
        elif hasattr(statement, "body"):
            visit(statement.body, loops)

    visit(body, [])
    return found


@pytest.mark.parametrize(("rows", "tile"), [(12, 4), (14, 4), (9, 1)])
def test_each_line_of_the_results_and_of_what_is_added_is_asked_for(rows: int, tile: int) -> None:
    found = fetched(body_with_prefetches(kernel(rows, tile)))
    n = GROUPS * COLUMNS * LANES
    wanted = {row * n + column for row in range(rows) for column in range(0, n, LANES)}
    assert {element for name, element in found if name.startswith("out")} == wanted
    assert {element for name, element in found if name.startswith("y")} == wanted
    assert {name[0] for name, _ in found} == {"o", "y"}


def test_tiles_share_the_prefetches_evenly() -> None:
    """12 rows of four vectors, twelve tiles: four rows and their vectors each."""
    found = fetched(body_with_prefetches(kernel(12, 4)))
    assert len(found) == len(set(found)) == 2 * GROUPS * 12 * COLUMNS


@pytest.mark.parametrize(("rows", "tile"), [(7, 4), (4, 4), (9, 4)])
def test_no_step_of_a_reduction_prefetches_where_the_loop_over_tiles_is_gone(
    rows: int, tile: int
) -> None:
    """Lowering leaves out loops of one iteration: the only tile, or the narrower last one."""
    found = fetched(body_with_prefetches(kernel(rows, tile, in_registers=True)))
    wanted = {row * COLUMNS * GROUPS * LANES for row in range(rows)}
    assert {element for name, element in found if name.startswith("out")} >= wanted
    share = -(-rows * COLUMNS // (COLUMNS * -(-rows // tile)))
    assert len(found) == 2 * GROUPS * COLUMNS * -(-rows // tile) * share


def test_a_kernel_whose_epilogue_has_no_such_lines_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose results are computed in loops of their own, each of a costly function."""
    monkeypatch.setattr(module, "_lines", lambda *_: [])
    body = body_with_prefetches(kernel(7, 4, in_registers=True))
    assert not fetched(body) and "pragma_prefetch_ahead" not in body.script()


def test_marks_go_and_kernels_without_them_stay() -> None:
    assert "pragma_prefetch" not in body_with_prefetches(kernel(12, 4)).script()
    assert not fetched(body_with_prefetches(kernel(12, 4, marked=False)))
