"""Resizing by weighted neighbors is one kernel for each axis, and as onnxruntime's."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime
import pytest
import tvm

from compiler import PassContext, relay
from compiler.runtime import graph_executor

MODEL = """<ir_version: 8, opset_import: ["": 17]>
resizing (float[1,3,5,4] x) => (float[1,3,10,12] y OUT)
    <float[4] scales = {1.0, 1.0, 2.0, 3.0}>
    { r = Resize<mode = "MODE", coordinate_transformation_mode = "KIND">(x, , scales)
      y = Relu(r) }"""


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("linear", "half_pixel"), ("linear", "align_corners"), ("cubic", "half_pixel")],
)
@pytest.mark.parametrize("result", ["", ", float[1,3,10,12] r"])
def test_each_axis_is_one_kernel(mode, kind, result):
    text = MODEL.replace("MODE", mode).replace("KIND", kind).replace(" OUT", result)
    proto = onnx.parser.parse_model(text)
    x = np.random.default_rng(0).standard_normal((1, 3, 5, 4)).astype("float32")
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    with PassContext(opt_level=3):
        library = relay.build(relay.frontend.from_onnx(proto)[0], "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=x)
    for index, expected in enumerate(session.run(None, {"x": x})):
        np.testing.assert_allclose(module.get_output(index).numpy(), expected, 1e-5, 1e-5)
    operators = [kernel.operators for kernel in library.report.kernels]
    assert sum("interpolate" in each for each in operators) == 2
    assert not any("take" in each for each in operators)


def test_sums_of_different_tensors_or_unknown_places_stay_as_they_are():
    x, other = (relay.var(name, shape=(4, 6)) for name in ("x", "other"))
    places = relay.var("places", shape=(3,), dtype="int32")
    known = relay.const(np.array([0, 2, 3], "int32"))
    half = relay.const(np.full((3, 1), 0.5, "float32"))

    def weighted(data, indices):
        return relay.multiply(relay.take(data, indices, axis=0), half)

    mixed = relay.add(weighted(x, known), weighted(other, known))
    unknown = relay.add(weighted(x, known), weighted(x, places))
    function = relay.Function([x, other, places], relay.Tuple([mixed, unknown]))
    with PassContext(opt_level=3):
        library = relay.build(tvm.IRModule.from_expr(function), "llvm")
    assert not any("interpolate" in kernel.operators for kernel in library.report.kernels)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((4, 6)).astype("float32") for _ in range(2))
    at = np.array([1, 1, 0], "int32")
    module.run(x=a, other=b, places=at)
    kept = [0, 2, 3]
    np.testing.assert_allclose(module.get_output(0).numpy(), (a[kept] + b[kept]) / 2, 1e-6)
    np.testing.assert_allclose(module.get_output(1).numpy(), (a[kept] + a[at]) / 2, 1e-6)
