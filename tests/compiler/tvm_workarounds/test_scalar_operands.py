"""Kernels of extents that none of their tensors has."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax, tirx

from compiler.tvm_workarounds.scalar_operands import separate_scalar_operands


def _module() -> tvm.IRModule:
    """A sum of min(4, m) elements, their signs and another extent, n."""
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x = relax.Var("x", relax.TensorType((n,), "int64"))
    y = relax.Var("y", relax.TensorType((m,), "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            first = builder.emit(relax.op.strided_slice(y, [0], [0], [4]))
            sign = builder.emit(relax.op.less(first, relax.const(0, "int64")))
            count = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([n])))
            total = builder.emit(relax.op.add(first, count))
            result = builder.emit_output(relax.op.where(sign, total, first))
        builder.emit_func_output(result)
    legal = relax.transform.LegalizeOps()(builder.get())
    return relax.transform.AnnotateTIROpPattern()(legal)


def _fused(mod: tvm.IRModule) -> tvm.IRModule:
    return relax.transform.FuseTIR()(relax.transform.FuseOps(fuse_opt_level=2)(mod))


def test_tvm_defines_their_variables_twice():
    with pytest.raises(tvm.error.InternalError, match="VarRemapGet"):
        _fused(_module())


def test_apart_they_are_no_fault():
    names = [
        gvar.name_hint for gvar in _fused(separate_scalar_operands(_module())).get_global_vars()
    ]
    assert any(name.startswith("shape_to_tensor") for name in names)
