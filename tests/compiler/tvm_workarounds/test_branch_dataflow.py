"""Variables of branches that nothing reads."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax, tirx

from compiler.tvm_workarounds.branch_dataflow import plain_branches


def _module() -> tvm.IRModule:
    """A branch that names an extent, in a dataflow block."""
    n = tirx.Var("n", "int64")
    condition = relax.Var("c", relax.TensorType((), "bool"))
    size = relax.Var("s", relax.TensorType((1,), "int64"))
    shape = relax.DataflowVar("shape", relax.ShapeType(ndim=1))
    known = relax.DataflowVar("known", relax.ShapeType([n]))
    result = relax.Var("t", size.ty)
    block = relax.DataflowBlock(
        [
            relax.VarBinding(shape, relax.op.tensor_to_shape(size)),
            relax.MatchCast(known, shape, relax.ShapeType([n])),
            relax.VarBinding(result, size),
        ]
    )
    branches = [relax.SeqExpr([block], result), relax.SeqExpr([], size)]
    builder = relax.BlockBuilder()
    with builder.function("main", [condition, size]):
        builder.emit_func_output(builder.emit(relax.If(condition, *branches)))
    return builder.get()


def test_tvm_has_no_group_for_a_variable_that_nothing_reads():
    with pytest.raises(tvm.error.InternalError, match="not be found in any group"):
        relax.transform.FuseOps()(_module())


def test_branches_without_dataflow_blocks_are_left_alone():
    mod = plain_branches(_module())
    (binding,) = mod["main"].body.blocks[0].bindings
    (block,) = binding.value.true_branch.blocks
    assert type(block) is relax.BindingBlock
    assert not any(isinstance(each.var, relax.DataflowVar) for each in block.bindings)
    relax.transform.FuseOps()(mod)
