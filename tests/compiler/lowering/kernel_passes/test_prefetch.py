"""Tests of the prefetches that schedules ask for on loops over packed weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, sym, te, tirx
from tvm.ir import Call
from tvm.target import Target
from tvm.tirx.build import codegen_build

from compiler import relay
from compiler.lowering.kernel_passes import pipeline as tir_pipeline
from schedules import dynamic_rows
from schedules.x86.machine.prefetch import PANEL, WHOLE, stream_panels

PANELS, STEPS, LANES = 3, 64, 16
PANEL_BYTES = STEPS * LANES * 4


def product(rows: int, target: Target, fused: bool = False, counted: bool = True) -> tirx.PrimFunc:
    """(rows, PANELS * LANES): a product with packed weights, marked for prefetching."""
    data = te.placeholder((rows, STEPS), name="data")
    weight = te.placeholder((PANELS, STEPS, LANES), name="weight")
    k = te.reduce_axis((0, STEPS), "k")
    out = te.compute(
        (rows, PANELS * LANES),
        lambda i, j: te.sum(data[i, k] * weight[j // LANES, k, j % LANES], axis=[k]),
        name="product",
    )
    sch = s_tir.Schedule(te.create_prim_func([data, weight, out]))
    block = sch.get_sblock("product")
    i, j, k = sch.get_loops(block)
    panel, lane = sch.split(j, [None, LANES])
    sch.reorder(panel, i, k, lane)
    row = sch.fuse(panel, i) if fused else i
    sch.vectorize(lane)
    stream_panels(sch, [(row, rows if counted else WHOLE)], [k], PANEL_BYTES, LANES * 4)
    sch.decompose_reduction(block, k)
    return sch.mod["main"].with_attrs({"global_symbol": "product", "target": target})


def lowered(func: tirx.PrimFunc, target: Target) -> tvm.IRModule:
    pipeline, finalize_host, _ = tirx.get_tir_pipeline(tir_pipeline.PIPELINE)
    mod = tirx.transform.BindTarget(target.with_host(target))(tvm.IRModule({"product": func}))
    return finalize_host()(pipeline(mod))


def assembly(func: tirx.PrimFunc, target: Target) -> str:
    return str(codegen_build(lowered(func, target), target).inspect_source("s"))


AVX512 = Target({"kind": "llvm", "mcpu": "x86-64-v4", "mtriple": "x86_64-linux-gnu"})


def test_accumulators_stay_in_registers_beside_a_prefetch() -> None:
    lines = assembly(product(4, AVX512), AVX512).splitlines()
    at = next(number for number, line in enumerate(lines) if "prefetcht0" in line)
    first = max(n for n in range(at) if lines[n].startswith(".L"))
    last = next(n for n in range(at, len(lines)) if lines[n].strip().startswith("j"))
    stores = [line for line in lines[first:last] if "vmov" in line and line.strip().endswith(")")]
    assert not stores, "\n".join(lines[first:last])


@pytest.mark.parametrize("rows", [1, 3, 5, 6])
@pytest.mark.parametrize("fused", [False, True])
def test_the_rows_of_a_panel_ask_for_the_whole_next_panel(rows: int, fused: bool) -> None:
    asked = prefetched(product(rows, AVX512, fused), rows, fused)
    lines = {offset // 64 for offset in asked}
    first = PANEL_BYTES // 64
    assert lines >= set(range(first, 2 * first))
    # What each row's share is rounded up by may go a little beyond.
    assert first <= min(lines) and max(lines) < 2 * first + first // 8


@pytest.mark.parametrize("rows", [1, 3, 6])
def test_so_do_rows_whose_number_only_running_tells(rows: int) -> None:
    asked = prefetched(product(rows, AVX512, counted=False), rows, fused=False)
    assert asked == prefetched(product(rows, AVX512), rows, fused=False)


def prefetched(func: tirx.PrimFunc, rows: int, fused: bool) -> list[int]:
    """Offsets in bytes that the rows of the first panel ask for, by evaluating the address."""
    bound: dict[str, Any] = {}
    addresses: list[Any] = []

    def bind(node: Any) -> None:
        bound[node.var.name] = node.value

    def call(node: Call) -> None:
        if "baton_prefetch" in str(node.args[:1]):
            addresses.append(node.args[1].args[0].indices[0])

    body = lowered(func, AVX512)["product"].body
    tvm_ffi.structural_walk(body, [(tirx.stmt.Bind, bind), (Call, call)])
    row_loop = "j_0_i_fused" if fused else "i"

    def offset(row: int, step: int) -> int:
        known = {"k": step, row_loop: row, "j_0": 0}

        def value(var: tirx.Var) -> Any:
            name = str(var.name)
            if name in known:
                return tirx.const(known[name], var.ty.dtype)
            return tvm_ffi.structural_map(bound[name], (tirx.Var, value))

        index = tvm_ffi.structural_map(addresses[0], (tirx.Var, value))
        return 4 * int(sym.Analyzer().simplify(index))

    return [offset(row, step) for row in range(rows) for step in range(STEPS)]


def test_a_target_that_is_no_x86_gets_no_x86_instruction() -> None:
    arm = Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})
    body = lowered(product(4, arm), arm)["product"].body
    marks: list[str] = []
    tvm_ffi.structural_map(
        body, (tirx.AttrStmt, lambda node: (marks.append(node.attr_key), node)[1])
    )
    assert not [key for key in marks if key.startswith("pragma_prefetch")]
    text = lowered(product(4, arm), arm).script()
    assert "baton_prefetch" not in text


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_row_tiles_of_a_dynamic_matmul_prefetch_the_next_panel(
    target, tmp_path, monkeypatch
) -> None:
    """On AVX2, one row tile reads its weights at four positions; several prefetch them."""
    marked: dict[int, bool] = {}
    assemble = dynamic_rows.assemble

    def noted(rows: Any, kernels: Any, tilings: Any) -> Any:
        marked.update({size: PANEL in str(kernel) for size, kernel in kernels.items()})
        return assemble(rows, kernels, tilings)

    monkeypatch.setattr(dynamic_rows, "assemble", noted)
    weights = np.ones((3072, 768), "float32")
    x = relay.var("x", shape=(relay.Any(), 768), dtype="float32")
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.const(weights))))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # without kernels of earlier builds
    relay.build(mod, f"llvm -mcpu={target}")
    assert marked
    assert all(has for size, has in marked.items() if 2 * size > max(marked))
