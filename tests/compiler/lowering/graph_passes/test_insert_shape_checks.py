"""Operators over extents that only running tells, from ONNX models, with ones that do not agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm

from compiler import relay
from compiler.errors import InputError
from compiler.runtime import graph_executor

HEAD = '<ir_version: 10, opset_import: ["": 17]> test '

CASES = {
    "concat": (
        "(float[n,3] x, float[m,3] y) => (float[a,6] z) { z = Concat<axis: int = 1>(x, y) }",
        {"x": (2, 3), "y": (3, 3)},
        {"x": (2, 3), "y": (2, 3)},
    ),
    "matmul": (
        "(float[2,n] x, float[m,3] y) => (float[2,3] z) { z = MatMul(x, y) }",
        {"x": (2, 5), "y": (4, 3)},
        {"x": (2, 5), "y": (5, 3)},
    ),
    "broadcast of the batches of matmul": (
        "(float[p,2,n] x, float[q,n,3] y) => (float[a,2,3] z) { z = MatMul(x, y) }",
        {"x": (2, 2, 5), "y": (3, 5, 3)},
        {"x": (2, 2, 5), "y": (2, 5, 3)},
    ),
    "reshape of an einsum": (
        """(float[i,n] x, float[m,k] y) => (float[i,k] z)
        { z = Einsum<equation: string = "ij,jk->ik">(x, y) }""",
        {"x": (2, 5), "y": (4, 3)},
        {"x": (2, 5), "y": (5, 3)},
    ),
    "gather": (
        """(float[2,n] x, int64[m,2] i) => (float[a,b] z)
        { z = GatherElements<axis: int = 1>(x, i) }""",
        {"x": (2, 5), "i": (4, 2)},
        {"x": (2, 5), "i": (1, 2)},
    ),
    "gather_nd": (
        """(float[n,4,3] x, int64[m,2,1] i) => (float[a,b,3] z)
        { z = GatherND<batch_dims: int = 1>(x, i) }""",
        {"x": (2, 4, 3), "i": (3, 2, 1)},
        {"x": (2, 4, 3), "i": (2, 2, 1)},
    ),
    "scatter_elements": (
        """(float[n,3] x, int64[m,3] i, float[k,3] u) => (float[n,3] z)
        { z = ScatterElements(x, i, u) }""",
        {"x": (4, 3), "i": (3, 3), "u": (2, 3)},
        {"x": (4, 3), "i": (1, 3), "u": (1, 3)},
    ),
    "reverse_sequence": (
        "(float[n,b,3] x, int64[m] i) => (float[n,b,3] z) { z = ReverseSequence(x, i) }",
        {"x": (3, 4, 3), "i": (2,)},
        {"x": (3, 2, 3), "i": (2,)},
    ),
    "nn.conv2d": (
        "(float[1,c,6,6] x, float[o,d,3,3] w) => (float[1,o,4,4] z) { z = Conv(x, w) }",
        {"x": (1, 5, 6, 6), "w": (2, 3, 3, 3)},
        {"x": (1, 3, 6, 6), "w": (2, 3, 3, 3)},
    ),
    "image.grid_sample": (
        "(float[n,1,4,4] x, float[m,2,2,2] g) => (float[n,1,2,2] z) { z = GridSample(x, g) }",
        {"x": (1, 1, 4, 4), "g": (3, 2, 2, 2)},
        {"x": (2, 1, 4, 4), "g": (2, 2, 2, 2)},
    ),
    "reshape": (
        "(float[n,3] x) => (float[a,2] z) <int64[2] s = {-1,2}> { z = Reshape(x, s) }",
        {"x": (1, 3)},
        {"x": (2, 3)},
    ),
    "reshape to the shape of another": (
        """(float[n,3] x, float[m,2] y) => (float[a,2] z)
        { s = Shape(y) w = Reshape(x, s) z = Exp(w) }""",
        {"x": (1, 3), "y": (3, 2)},
        {"x": (2, 3), "y": (3, 2)},
    ),
    "reshape to depth and space": (
        "(float[1,n,2,2] x) => (float[1,a,4,4] z) { z = DepthToSpace<blocksize: int = 2>(x) }",
        {"x": (1, 5, 2, 2)},
        {"x": (1, 8, 2, 2)},
    ),
    "reshape to stated parts": (
        """(float[n,4] x) => (float[2,4] z, float[3,4] w) <int64[2] s = {2,3}>
        { z, w = Split<axis: int = 0>(x, s) }""",
        {"x": (4, 4)},
        {"x": (5, 4)},
    ),
    "topk": (
        "(float[n] x) => (float[4] z, int64[4] w) <int64[1] k = {4}> { z, w = TopK(x, k) }",
        {"x": (2,)},
        {"x": (7,)},
    ),
    "nn.recurrent": (
        """(float[s,b,2] x, float[1,c,3] h) => (float[s,1,b,3] z)
        <int64[3] p = {1,12,2}, int64[3] q = {1,12,3}>
        { w = ConstantOfShape<value = float[1] {0.1}>(p)
          r = ConstantOfShape<value = float[1] {0.2}>(q)
          z = LSTM<hidden_size: int = 3>(x, w, r, "", "", h) }""",
        {"x": (2, 4, 2), "h": (1, 3, 3)},
        {"x": (2, 4, 2), "h": (1, 4, 3)},
    ),
    "reshape to a computed shape": (
        "(float[n,3] x, int64[2] i) => (float[a,b] z) { w = Reshape(x, i) z = Exp(w) }",
        {"x": (4, 3), "i": np.array([3, 2])},
        {"x": (2, 3), "i": np.array([3, -1])},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_extents_that_do_not_agree_are_an_error(case):
    text, wrong, right = CASES[case]
    model = onnx.parser.parse_model(HEAD + text)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(relay.frontend.from_onnx(model)[0], "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    operator = case.split()[0]
    with pytest.raises(InputError, match=f"{operator}.*: extents known at run time do not agree"):
        module.run(**feeds(wrong))
    given = feeds(right)
    module.run(**given)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, given)[0]
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-5, atol=1e-5)


WINDOWS = {
    "conv2d_transpose needs at least 3 of h": (
        "z = ConvTranspose<pads = [4, 4, 4, 4], strides = [2, 2]>(x, w)",
        (2, 9),
        (3, 9),
    ),
    "conv2d needs at least 5 of h": ("z = Conv(x, w)", (4, 9), (5, 9)),
    "max_pool2d needs at least 3": (
        "z = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(x)",
        (2, 9),
        (3, 9),
    ),
    "avg_pool2d needs at least 1": (
        "z = AveragePool<kernel_shape = [2, 2], pads = [1, 1, 1, 1]>(x)",
        (0, 9),
        (1, 9),
    ),
    "conv2d needs at least 5 of": (
        "p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) z = Conv(p, w)",
        (9, 10),
        (10, 10),
    ),
    "conv2d needs at least 5 of m": (
        "y = Transpose<perm = [0, 1, 3, 2]>(x) z = Conv(y, w)",
        (9, 4),
        (9, 5),
    ),
}


@pytest.mark.parametrize("message", WINDOWS)
def test_a_window_larger_than_its_image_is_an_error(message):
    nodes, wrong, right = WINDOWS[message]
    model = onnx.parser.parse_model(f"{HEAD}(float[b,2,h,m] x) => (float[b,2,k,l] z) {{ {nodes} }}")
    weights = np.random.default_rng(1).random((2, 2, 5, 5)).astype("float32")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(relay.frontend.from_onnx(model)[0], "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    with pytest.raises(InputError, match=message):
        module.run(**feeds({"x": (2, 2, *wrong)}))
    given = feeds({"x": (2, 2, *right)})
    module.run(**given)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, given)[0]
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-5, atol=1e-5)


def feeds(shapes: dict[str, Any]) -> dict[str, np.ndarray]:
    """Operands of these shapes; of `i` all are 0, or they are given."""
    rng = np.random.default_rng(0)
    return {
        name: shape
        if isinstance(shape, np.ndarray)
        else np.zeros(shape, "int64")
        if name == "i"
        else rng.random(shape).astype("float32")
        for name, shape in shapes.items()
    }
