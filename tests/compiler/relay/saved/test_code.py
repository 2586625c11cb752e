"""Saved modules are data: what could run code of their writer is rejected unless it is trusted."""

from __future__ import annotations

import json

import pytest
import tvm
from tvm import relax, te

from compiler import relay
from compiler.errors import SavedModuleError
from compiler.tvm_workarounds.validate_json import check_no_code


def kernel(compute):
    data = te.placeholder((4,), name="data")
    return te.create_prim_func([data, te.compute((4,), lambda i: compute(data[i]))])


def module_with(emit):
    """A module whose main returns what `emit` makes of a builder and x of four floats."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(emit(builder, x)))
    return builder.get()


TYPE = relax.TensorType((4,), "float32")
WITH_CODE = {
    "a kernel": lambda b, x: relax.call_tir(b.add_func(kernel(te.exp), "k"), [x], TYPE),
    "an extern call": lambda b, x: relax.call_tir(
        b.add_func(kernel(lambda e: tvm.tirx.call_extern("float32", "system", e)), "k"), [x], TYPE
    ),
    "a packed function": lambda _, x: relax.call_dps_packed("runtime.SystemLib", [x], TYPE),
    "a pure packed function": lambda _, x: relax.call_pure_packed("f", x, ty_args=TYPE),
}


@pytest.mark.parametrize("name", WITH_CODE)
def test_a_saved_module_with_code_is_rejected_unless_trusted(name):
    text = tvm.ir.save_json(module_with(WITH_CODE[name]))
    with pytest.raises(SavedModuleError, match="allow_code=True"):
        relay.load_json(text, "model.json")
    assert isinstance(relay.load_json(text, "model.json", allow_code=True), tvm.IRModule)


def test_a_saved_module_of_operators_is_read_without_trust():
    mod = module_with(lambda _, x: relax.op.exp(x))
    tvm.ir.assert_structural_equal(relay.load_json(tvm.ir.save_json(mod)), mod)


@pytest.mark.parametrize("annotation", ["pragma_import_llvm", "pragma_import_c"])
def test_a_workload_of_a_log_may_compute_but_not_import_code(annotation):
    plain = kernel(lambda e: te.exp(e) + te.if_then_else(e > 0, e, -e))
    check_no_code(json.loads(tvm.ir.save_json(plain)), kernels=True)
    schedule = tvm.s_tir.Schedule(plain)
    loop = schedule.get_loops(schedule.get_sblock("compute"))[0]
    schedule.annotate(loop, annotation, "module asm")
    marked = json.loads(tvm.ir.save_json(schedule.mod["main"]))
    with pytest.raises(ValueError, match=annotation):
        check_no_code(marked, kernels=True)
    calls = kernel(lambda e: tvm.tirx.call_extern("float32", "system", e))
    with pytest.raises(ValueError, match="call_extern"):
        check_no_code(json.loads(tvm.ir.save_json(calls)), kernels=True)
