"""What fails in a step of a build is an error of the build; what callers raise is their own."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.errors import BuildError
from compiler.lowering import pipeline, step_errors


class OwnError(Exception):
    """Of a caller's function."""


def raises_own():
    raise OwnError("mine")


def raised(function):
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_what_tvm_raises_is_not_the_callers():
    assert not step_errors.is_of_a_caller(raised(lambda: tvm.ir.Op.get("no.such")))
    assert not step_errors.is_of_a_caller(raised(lambda: tvm.ir.load_json("{")))


def test_what_a_callers_function_raises_is_the_callers():
    assert step_errors.is_of_a_caller(raised(raises_own))
    assert step_errors.is_of_a_caller(raised(lambda: np.zeros(2).reshape(3)))
    code = "def f():\n    raise KeyError('x')\nf()"
    assert step_errors.is_of_a_caller(raised(lambda: exec(code, {})))


def test_a_callers_error_inside_of_a_tvm_callback_is_the_callers():
    @tvm.transform.module_pass(opt_level=0)
    def own(mod, context):
        raise OwnError("mine")

    error = raised(lambda: own(tvm.IRModule()))
    assert step_errors.is_of_a_caller(error)


def test_a_step_that_fails_is_named(monkeypatch):
    def broken(state):
        tvm.ir.Op.get("no.such")

    step = pipeline.Step("break", broken)
    with pytest.raises(BuildError, match=r"the step .break. failed: .*no\.such"):
        pipeline.run(None, [step])
    with pytest.raises(OwnError, match="mine"):
        pipeline.run(None, [pipeline.Step("call back", lambda state: raises_own())])


def test_pads_that_tvm_cannot_index_are_an_error_of_the_build():
    weight = numpy_helper.from_array(np.ones((1, 1, 3, 3), "float32"), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[10**5] * 4)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1, 4, 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weight],
    )
    mod, params = relay.frontend.from_onnx(helper.make_model(graph))
    with pytest.raises(BuildError):
        relay.build(mod, "llvm", params=params)
