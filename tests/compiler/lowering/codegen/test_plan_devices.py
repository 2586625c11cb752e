from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.target import Target

from compiler.lowering.codegen import device_placement
from compiler.lowering.codegen.plan_devices import PlanDevices, has_conditions

CPU, CUDA = Target("llvm"), Target({"kind": "cuda", "arch": "sm_80"})
ALLOCATE = tvm.transform.Sequential(
    [
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
    ]
)


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
    return ALLOCATE(relax.transform.LegalizeOps()(builder.get()))


CHAIN = (op.exp, op.sin, op.tanh, op.sigmoid, op.erf, op.cos, op.sqrt, op.abs)


def on_two_devices():
    """A chain of kernels: two on the CPU, three on the GPU, three on the CPU."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1024,), "float32"))
    with builder.function("main", [x], attrs={"num_input": 1}):
        with builder.dataflow():
            value = x
            for operator in CHAIN:
                value = builder.emit(operator(value))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    mod = relax.transform.LegalizeOps()(builder.get())
    targets = dict.fromkeys(("exp", "sin", "cos", "sqrt", "abs"), CPU)
    functions = {
        gvar: func.with_attr("target", targets.get(gvar.name_hint.removeprefix("tir_"), CUDA))
        if isinstance(func, tvm.tirx.PrimFunc)
        else func
        for gvar, func in mod.functions_items()
    }
    placed = device_placement.place(tvm.IRModule(functions), CPU, {"main": CPU})
    return ALLOCATE(placed)


def storages(mod):
    """Device and bytes of each storage, and the devices of the tensors in it."""
    found, tensors = {}, {}
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            name = str(getattr(getattr(binding.value, "op", None), "name", ""))
            if name == "relax.memory.alloc_storage":
                size, device = binding.value.args[0].values[0], int(binding.value.args[1])
                found[binding.var] = device, int(size)
            elif name == "relax.memory.alloc_tensor":
                vdevice = binding.var.ty.vdevice
                kind = vdevice.target.kind.name if vdevice else "llvm"
                tensors.setdefault(binding.value.args[0], []).append(kind)
    return [(*found[var], tensors[var]) for var in found]


def test_each_device_reuses_its_own_storage():
    planned = PlanDevices()(on_two_devices())
    relax.analysis.well_formed(planned)
    found = storages(planned)
    # The CPU computes exp, sin, cos and sqrt there; the result, abs, gets memory of its own.
    assert sorted(found) == [
        (0, 4096, ["llvm", "llvm"]),
        (0, 4096, ["llvm", "llvm"]),
        (1, 4096, ["cuda"]),
        (1, 4096, ["cuda", "cuda"]),
    ]
    copies = [
        binding.value
        for block in planned["main"].body.blocks
        for binding in block.bindings
        if str(getattr(getattr(binding.value, "op", None), "name", "")) == "relax.to_vdevice"
    ]
    assert len(copies) == 2


def test_tvm_still_gives_a_gpu_the_memory_of_a_cpu():
    planned = relax.transform.StaticPlanBlockMemory()(on_two_devices())
    assert any(len(set(kinds)) > 1 for _, _, kinds in storages(planned))


def test_a_module_with_a_condition_is_not_planned():
    mod = with_condition()
    assert has_conditions(mod)
    assert PlanDevices()(mod).same_as(mod)


def test_tvm_still_gives_a_branch_storage_of_the_other():
    lowered = with_condition()
    relax.analysis.well_formed(lowered)
    planned = relax.transform.StaticPlanBlockMemory()(lowered)
    with pytest.raises(ValueError, match="storage is not defined"):
        relax.analysis.well_formed(planned)
