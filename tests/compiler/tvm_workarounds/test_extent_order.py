"""Kernels agree on a symbolic extent whichever way TVM wrote it."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax, te, tirx

from compiler.tvm_workarounds.extent_order import constants_last, fuse_kernels


def fused(mod: tvm.IRModule) -> tvm.IRModule:
    return relax.transform.FuseTIR()(relax.transform.FuseOps(fuse_opt_level=2)(mod))


@pytest.fixture
def doubled() -> tvm.IRModule:
    """A repeat, whose result TVM calls (2 * n,), and a kernel that reads (n * 2,)."""
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n], "float32"))
    read = te.placeholder((n * 2,), "float32", "read")
    kernel = te.create_prim_func([read, te.compute((n * 2,), lambda i: read(i) + 1.0)])
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            repeated = builder.emit(relax.op.repeat(x, 2, 0))
            gvar = builder.add_func(kernel, "increment")
            call = relax.call_tir(gvar, [repeated], relax.TensorType([n * 2], "float32"))
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    mod = relax.transform.LegalizeOps()(builder.get())
    return relax.transform.AnnotateTIROpPattern()(mod)


def test_tvm_still_compares_extents_by_structure(doubled):
    with pytest.raises(tvm.error.InternalError, match="Inconsistent buffers"):
        fused(doubled)


def test_kernels_of_one_extent_agree(doubled):
    text = fused(constants_last(doubled)).script()
    assert "n * T.int64(2)" in text and "T.int64(2) * n" not in text


def test_static_modules_stay_as_they_are():
    x = relax.Var("x", relax.TensorType([4], "float32"))
    mod = tvm.IRModule({"main": relax.Function([x], relax.SeqExpr([], x), x.ty)})
    assert constants_last(mod).same_as(mod)


def test_extents_that_differ_are_simplified():
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([(n - 3) // 4 + 1], "float32"))
    read = te.placeholder(((n - 3) // 4 * 2 + 2,), "float32", "read")
    kernel = te.create_prim_func([read, te.compute(read.shape, lambda i: read(i) + 1.0)])
    builder = relax.BlockBuilder()
    with builder.function("main", [x, relax.Var("extent", relax.ShapeType([n]))]):
        with builder.dataflow():
            repeated = builder.emit(relax.op.repeat(x, 2, 0))
            gvar = builder.add_func(kernel, "increment")
            out = relax.TensorType([(n - 3) // 4 * 2 + 2], "float32")
            result = builder.emit_output(relax.call_tir(gvar, [repeated], out))
        builder.emit_func_output(result)
    mod = relax.transform.AnnotateTIROpPattern()(relax.transform.LegalizeOps()(builder.get()))
    text = fuse_kernels(relax.transform.FuseOps(fuse_opt_level=2)(mod)).script()
    assert (
        "T.int64(4) * T.int64(2) + T.int64(2)" in text and "+ T.int64(1)) * T.int64(2)" not in text
    )
