from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.relax import op

from compiler.tvm_workarounds.memory_planner import can_plan_memory


def with_condition():
    builder = relax.BlockBuilder()
    condition = relax.Var("condition", relax.TensorType((), "bool"))
    x = relax.Var("x", relax.TensorType((64,), "float32"))

    def branch(function):
        a, b = (relax.Var(name, x.ty) for name in "ab")
        bindings = [relax.VarBinding(a, function(x)), relax.VarBinding(b, function(a))]
        return relax.SeqExpr([relax.BindingBlock(bindings)], b)

    with builder.function("main", [condition, x]):
        y = builder.emit(relax.If(condition, branch(op.exp), branch(op.sin)))
        builder.emit_func_output(builder.emit(op.negative(y)))
    return builder.get()


def test_a_module_with_a_condition_is_not_planned():
    assert not can_plan_memory(with_condition())


def test_tvm_still_gives_a_branch_storage_of_the_other():
    lower = tvm.transform.Sequential(
        [
            relax.transform.LegalizeOps(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
        ]
    )
    lowered = lower(with_condition())
    relax.analysis.well_formed(lowered)
    planned = relax.transform.StaticPlanBlockMemory()(lowered)
    with pytest.raises(ValueError, match="storage is not defined"):
        relax.analysis.well_formed(planned)
