"""Kernels as tasks are made of them."""

from __future__ import annotations

import tvm
from tvm import relax

from compiler.lowering.selection.extract import alone, plain_kernels
from compiler.target import parse


def layers():
    """Two dense layers whose results are all called "lv", as importers may name them."""
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    weights = [relax.Var(f"w{i}", relax.TensorType((8, 8), "float32")) for i in range(2)]
    bindings, value = [], x
    builder = relax.BlockBuilder()
    for weight in weights:
        for make in (lambda v, w=weight: relax.op.matmul(v, w), relax.op.nn.relu):
            made = builder.normalize(make(value))
            value = relax.DataflowVar("lv", made.ty)
            bindings.append(relax.VarBinding(value, made))
    out = relax.Var("out", value.ty)
    block = relax.DataflowBlock([*bindings, relax.VarBinding(out, value)])
    function = relax.Function([x, *weights], relax.SeqExpr([block], out), out.ty)
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def test_the_operators_of_a_kernel_are_found_again_whatever_variables_are_called():
    kernels = plain_kernels(layers(), "main", parse("llvm"))
    assert [kernel.operators for kernel in kernels] == [("nn.dense", "nn.relu")] * 2
    names = [name for kernel in kernels for name in kernel.bindings]
    assert len(set(names)) == len(names) == 4
    for kernel in kernels:
        bindings = alone(*kernel.origin)["main"].body.blocks[0].bindings
        called = [b.value.op.name for b in bindings if isinstance(b.value, relax.Call)]
        assert called == ["relax.matmul", "relax.nn.relu"]
