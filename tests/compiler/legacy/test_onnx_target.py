"""`tvm.contrib.target.onnx.to_onnx`: Relay's modules as ONNX models."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import pytest
import tvm

from compiler import legacy
from compiler.errors import UnsupportedOperatorError


def test_a_module_is_exported_and_computes_the_same(tmp_path):
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s, dtype=np.float32) for s in ((1, 3, 6, 6), (4, 3, 3, 3)))
    with legacy.installed():
        from tvm import relay
        from tvm.contrib.target.onnx import to_onnx

        data, weight = relay.var("data", shape=x.shape), relay.var("weight", shape=w.shape)
        out = relay.nn.relu(relay.nn.conv2d(data, weight, padding=(1, 1), kernel_size=(3, 3)))
        function = relay.Function([data, weight], out)
        params = {"weight": tvm.nd.array(w)}
        path = tmp_path / "net.onnx"
        model = to_onnx(function, params, "net", opset_version=18, path=path)
        run = relay.create_executor("graph", device=tvm.cpu(), target="llvm").evaluate(function)
        expected = run(x, w).numpy()
        with pytest.raises(UnsupportedOperatorError, match="can't be expressed"):
            to_onnx(relay.Function([data], relay.sort(data)), None, "sorted")
        with pytest.raises(UnsupportedOperatorError, match="net in opset 11"):
            to_onnx(function, params, "net", opset_version=11)
    assert model.graph.name == "net" and model.opset_import[0].version == 18
    (found,) = onnx.reference.ReferenceEvaluator(onnx.load(path)).run(None, {"data": x})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
