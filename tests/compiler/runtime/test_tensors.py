"""Tensors in any form, by every way into a library: right results or an error, never a crash."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.errors import InputError
from compiler.relay import vm
from compiler.runtime import graph_executor
from compiler.runtime.tensors import fits_kernels

SHAPE = (4, 16)
WEIGHT = np.random.default_rng(1).standard_normal((16, 16)).astype("float32")
VALUES = np.random.default_rng(2).standard_normal(SHAPE).astype("float32")


def misaligned():
    room = np.zeros(64 + 32, "float32")
    start = (-room.ctypes.data % 64) // 4 + 1
    view = room[start : start + 64].reshape(SHAPE)
    view[:] = VALUES
    return view


def strided():
    room = np.zeros((4, 32), "float32")
    room[:, ::2] = VALUES
    return room[:, ::2]


def tensor_of(array):
    return tvm_ffi.from_dlpack(array, require_alignment=0)


def at_offset(count):
    """A view of a tensor with DLPack's byte offset."""
    whole = tvm.runtime.tensor(np.concatenate([np.zeros(count, "float32"), VALUES.ravel()]))
    return whole._create_view(SHAPE, "float32", relative_byte_offset=4 * count)


FORMS = {
    "misaligned array": misaligned,
    "misaligned tensor": lambda: tensor_of(misaligned()),
    "strided array": strided,
    "strided tensor": lambda: tensor_of(strided()),
    "transposed tensor": lambda: tensor_of(np.asfortranarray(VALUES)),
    "view at 64 bytes": lambda: at_offset(16),
    "view at 4 bytes": lambda: at_offset(1),
}
forms = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(scope="module")
def mod():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return relay.frontend.from_onnx(model)


@pytest.fixture(scope="module")
def library(mod):
    return relay.build(mod[0], "llvm", params=mod[1])


def check(result):
    expected = np.maximum(VALUES.astype("float64") @ WEIGHT, 0)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-5)


@forms
def test_an_input_is_copied_from_a_value_of_any_form(library, form):
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.set_input("x", FORMS[form]())
    module.run()
    check(module.get_output(0))


@forms
def test_an_input_that_is_not_copied_has_the_form_that_kernels_take(library, form):
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    with pytest.raises(InputError, match="aligned to 64 bytes"):
        module.set_input_zero_copy("x", FORMS[form]())


@pytest.fixture(scope="module", params=["planned", "static"])
def entry(request, mod):
    required = ["StaticAllocation"] if request.param == "static" else []
    with tvm.transform.PassContext(opt_level=3, required_pass=required):
        return relay.build(mod[0], "llvm", params=mod[1]).entry(tvm.cpu())


@forms
def test_the_bare_entry_refuses_other_forms_than_kernels_take(entry, form):
    with pytest.raises(ValueError, match=r"argument #0.*\n.*x: Tensor\("):
        entry(FORMS[form]())
    check(entry(tvm.runtime.tensor(VALUES)))


@pytest.fixture(scope="module", params=["machine", "saved", "executor"])
def function(request, mod, library):
    if request.param == "executor":
        return relay.create_executor("graph", mod[0], params=mod[1]).evaluate()
    saved = request.param == "saved"
    executable = library if saved else vm.compile(mod[0], "llvm", params=mod[1])
    return vm.VirtualMachine(executable, tvm.cpu()).run


@forms
def test_functions_of_a_module_take_a_value_of_any_form(function, form):
    check(function(FORMS[form]()))


def test_results_are_copied_into_what_callers_give_or_refused(library):
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=VALUES)
    for out in (tvm.runtime.empty(SHAPE, "float32"), tensor_of(misaligned()), at_offset(1)):
        check(module.get_output(0, out))
    np.testing.assert_array_equal(module.get_output(0, strided()), module.get_output(0).numpy())
    np.testing.assert_array_equal(module.get_input("x", strided()), VALUES)
    readonly = np.broadcast_to(np.zeros(16, "float32"), SHAPE)
    wrong = [tensor_of(strided()), tvm.runtime.empty((16, 4), "float32"), [0.0], readonly]
    for out in [*wrong, tvm.runtime.empty(SHAPE, "int32"), np.zeros(SHAPE, "int32")]:
        with pytest.raises(InputError, match="can't be copied into"):
            module.get_output(0, out)
        with pytest.raises(InputError, match="can't be copied into"):
            module.get_input("x", out)


def test_what_fits_kernels_is_not_copied():
    whole = tvm.runtime.tensor(VALUES)
    assert fits_kernels(whole)
    assert fits_kernels(whole._create_view((64,), "float32"))
    assert not any(fits_kernels(FORMS[form]()) for form in FORMS if "array" not in form)
