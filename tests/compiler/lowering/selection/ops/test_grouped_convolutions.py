"""Groups of a convolution have nothing to do with each other, whatever their values are."""

import numpy as np
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.runtime import graph_executor


def convolution(operator, groups, channels, rank, rng):
    """An ONNX model of 8 outputs a side, and inputs of which one group is NaN, another infinite."""
    weight = rng.normal(size=(groups * channels, channels, *[3] * rank)).astype("float32")
    shape = (1, groups * channels, *[8] * rank)
    data = rng.normal(size=shape).astype("float32")
    data[:, 0], data[:, -1] = np.nan, np.inf
    node = helper.make_node(operator, ["x", "w"], ["y"], group=groups, pads=[1] * 2 * rank)
    graph = helper.make_graph(
        [node],
        "groups",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), data


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("groups,channels,rank", [(4, 4, 1), (4, 4, 2), (3, 6, 2), (2, 4, 3)])
@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_no_group_sees_what_is_in_another(operator, groups, channels, rank, cpu):
    model, data = convolution(operator, groups, channels, rank, np.random.default_rng(0))
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, f"llvm -mcpu={cpu}", params=params)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=data)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (want,) = session.run(None, {"x": data})
    got = module.get_output(0).numpy()
    assert groups == 2 or np.isfinite(want[:, channels:-channels]).all()
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_allclose(got, want, 1e-4, 1e-4)
