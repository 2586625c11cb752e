"""Bindings that need extents which other bindings tell."""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from compiler.tvm_workarounds.order_shape_bindings import in_order


def test_what_needs_an_extent_comes_behind_what_tells_it():
    n = tirx.Var("n", "int64")
    s = relax.Var("s", relax.TensorType((1,), "int64"))
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    shape = relax.DataflowVar("shape", relax.ShapeType(ndim=1))
    known = relax.DataflowVar("known", relax.ShapeType([n]))
    sums = [relax.DataflowVar(name, relax.TensorType((n, 2), "float32")) for name in "ab"]
    wide = relax.op.broadcast_to(x, relax.ShapeExpr([n, 2]))
    block = relax.DataflowBlock(
        [
            relax.VarBinding(sums[0], wide),
            relax.VarBinding(sums[1], relax.op.negative(sums[0])),
            relax.VarBinding(shape, relax.op.tensor_to_shape(s)),
            relax.MatchCast(known, shape, relax.ShapeType([n])),
        ]
    )
    function = relax.Function([x, s], relax.SeqExpr([block], x), x.ty)
    mod = in_order(tvm.IRModule({"main": function}))
    (ordered,) = mod["main"].body.blocks
    names = [binding.var.name for binding in ordered.bindings]
    assert names == ["shape", "known", "a", "b"]
    assert in_order(mod).same_as(mod)
