"""Dense layers by AMX: the code that CPUs with it get, and results with tiles in plain loops."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import PassContext, relay
from compiler.lowering.tir_passes import amx as functions
from compiler.runtime import graph_executor
from compiler.runtime.disassembly import assembly
from schedules.x86 import amx, dense_amx
from schedules.x86.dots import OF_BFLOAT16, OF_BYTES

SAPPHIRE_RAPIDS = "llvm -mcpu=sapphirerapids"

_LOOPS = """
define linkonce_odr void @NAME_tiles(
    ptr %c, i64 %of_c, ptr %a, i64 %of_a, ptr %b, i32 %rows, i32 %steps) {
entry:
  %deep = mul i32 %steps, DEPTH
  br label %sum
sum:
  %r = phi i32 [ 0, %entry ], [ %r.next, %part.end ]
  %j = phi i32 [ 0, %entry ], [ %j.next, %part.end ]
  %k = phi i32 [ 0, %entry ], [ %k.next, %part.end ]
  %r64 = zext i32 %r to i64
  %c.row = mul i64 %r64, %of_c
  %c.line = getelementptr i8, ptr %c, i64 %c.row
  %c.at = getelementptr SUM, ptr %c.line, i32 %j
  %a.row = mul i64 %r64, %of_a
  %a.line = getelementptr i8, ptr %a, i64 %a.row
  %a.at = getelementptr ELEMENT, ptr %a.line, i32 %k
  %x = load ELEMENT, ptr %a.at
  %group = udiv i32 %k, SIZE
  %part = urem i32 %k, SIZE
  %g.row = mul i32 %group, 32
  %g.j = add i32 %g.row, %j
  %g.at = mul i32 %g.j, SIZE
  %b.index = add i32 %g.at, %part
  %b.at = getelementptr ELEMENT, ptr %b, i32 %b.index
  %w = load ELEMENT, ptr %b.at
  %old = load SUM, ptr %c.at
  PRODUCT
  store SUM %new, ptr %c.at
  br label %part.end
part.end:
  %k.more = add i32 %k, 1
  %k.over = icmp eq i32 %k.more, %deep
  %k.next = select i1 %k.over, i32 0, i32 %k.more
  %j.more = add i32 %j, 1
  %j.moved = select i1 %k.over, i32 %j.more, i32 %j
  %j.over = icmp eq i32 %j.moved, 32
  %j.next = select i1 %j.over, i32 0, i32 %j.moved
  %r.more = add i32 %r, 1
  %r.next = select i1 %j.over, i32 %r.more, i32 %r
  %r.over = icmp eq i32 %r.next, %rows
  br i1 %r.over, label %end, label %sum
end:
  ret void
}
"""
_OF_BYTES = """%xw = zext i8 %x to i32
  %ww = sext i8 %w to i32
  %p = mul i32 %xw, %ww
  %new = add i32 %old, %p"""
_OF_BFLOAT16 = """%xi = zext i16 %x to i32
  %xs = shl i32 %xi, 16
  %xf = bitcast i32 %xs to float
  %wi = zext i16 %w to i32
  %ws = shl i32 %wi, 16
  %wf = bitcast i32 %ws to float
  %p = fmul float %xf, %wf
  %new = fadd float %old, %p"""


def loops(name: str, element: str, total: str, size: int, product: str) -> str:
    """The tiles of a function as three loops."""
    text = _LOOPS.replace("NAME", name).replace("ELEMENT", element).replace("SUM", total)
    text = text.replace("DEPTH", str(16 * size)).replace("SIZE", str(size))
    return text.replace("PRODUCT", product)


@pytest.fixture
def plain_tiles(monkeypatch):
    """Every CPU has AMX, whose tiles are loops; nothing of it is kept."""
    monkeypatch.setenv("BATON_KERNEL_CACHE_BYTES", "0")
    monkeypatch.setattr(amx, "multiplies", lambda dot, target: True)
    of_bytes, of_bfloat16 = (amx.FUNCTIONS[dot] for dot in (OF_BYTES, OF_BFLOAT16))
    texts = {
        of_bytes: loops(of_bytes, "i8", "i32", 4, _OF_BYTES),
        of_bfloat16: loops(of_bfloat16, "i16", "float", 2, _OF_BFLOAT16),
    }
    monkeypatch.setattr(functions, "TILES", texts)


def product(lead: tuple[int, ...], k: int, n: int, dot: Any) -> tuple[tvm.IRModule, Any, Any]:
    """A dense layer with a bias, data for it, and its result."""
    rng = np.random.default_rng(k)
    if dot is OF_BYTES:
        x = rng.integers(0, 256, (*lead, k)).astype("uint8")
        w = rng.integers(-128, 128, (k, n)).astype("int8")
        bias, total = rng.integers(-99, 99, n).astype("int32"), "int32"
    else:
        x, w = (rng.standard_normal(shape) for shape in ((*lead, k), (k, n)))
        x, w = (each.astype(ml_dtypes.bfloat16) for each in (x, w))
        bias, total = rng.standard_normal(n).astype("float32"), "float32"
    var = relax.Var("x", relax.TensorType(x.shape, dot.data))
    builder = relax.BlockBuilder()
    with builder.function("main", [var]):
        with builder.dataflow():
            weight = relax.const(tvm.runtime.tensor(w))
            sums = builder.emit(relax.op.matmul(var, weight, total))
            out = builder.emit_output(relax.op.add(sums, relax.const(bias)))
        builder.emit_func_output(out)
    exact = "int64" if dot is OF_BYTES else "float64"
    return builder.get(), x, x.astype(exact) @ w.astype(exact) + bias


def built(mod: tvm.IRModule, target: str) -> Any:
    with PassContext(opt_level=3):
        return relay.build(mod, target)


def implementations(library: Any) -> set[str]:
    return {each.implementation for each in library.report.kernels if each.operands}


@pytest.mark.parametrize(
    ("lead", "k", "n", "dot"),
    [
        ((1, 128), 64, 96, OF_BYTES),
        ((24,), 192, 33, OF_BYTES),
        ((22,), 128, 70, OF_BYTES),
        ((64,), 512, 2080, OF_BYTES),
        ((1, 64), 96, 40, OF_BFLOAT16),
        ((9,), 32, 64, OF_BFLOAT16),
    ],
)
def test_products_are_right_with_tiles_in_loops(plain_tiles, lead, k, n, dot):
    mod, x, expected = product(lead, k, n, dot)
    library = built(mod, "llvm")
    assert implementations(library) == {dense_amx.NAMES[dot]}
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=x)
    got = executor.get_output(0).numpy()
    if dot is OF_BYTES:
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("dot", "name"), [(OF_BYTES, "tdpbusd"), (OF_BFLOAT16, "tdpbf16ps")])
def test_cpus_with_amx_get_its_instructions(dot, name):
    mod, _, _ = product((128,), 128, 64, dot)
    library = built(mod, SAPPHIRE_RAPIDS)
    assert implementations(library) == {dense_amx.NAMES[dot]}
    (kernel,) = (each for each in library.report.kernels if each.operands)
    assert kernel.instruction == name
    code = assembly(library.get_lib())
    used = {each for each in re.findall(r"\t([a-z0-9]+)\t", code) if each.startswith(("t", "ldt"))}
    assert {name, "tileloadd", "tilestored", "ldtilecfg"} <= used
    # Of its 32 rows by 32 columns, two loads of each operand serve four products of a step.
    assert code.count(name) >= 4 and "syscall" in code


@pytest.mark.parametrize(
    ("lead", "k", "target"),
    [((1,), 64, SAPPHIRE_RAPIDS), ((31,), 60, SAPPHIRE_RAPIDS), ((32,), 64, "llvm -mcpu=znver4")],
)
def test_few_rows_ragged_steps_and_other_cpus_take_dot_products(lead, k, target):
    mod, _, _ = product(lead, k, 32, OF_BYTES)
    assert implementations(built(mod, target)) == {"dense_packed_int8.x86"}
