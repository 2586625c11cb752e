"""`tvm.contrib.target.onnx.to_onnx`: Relay's modules as ONNX models."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import onnxruntime
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


def test_forms_that_onnx_has_otherwise_are_put_together():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (2, 4, 5, 3)).astype("float32")
    x[0, 0, 0] = (-2.5, 0.49999997, 1.5)
    norm = [rng.uniform(0.5, 1, 3).astype("float32") for _ in range(4)]
    with legacy.installed():
        from tvm import relay
        from tvm.contrib.target.onnx import to_onnx

        data = relay.var("data", shape=x.shape)
        made = [
            relay.round(data),
            relay.nn.pad(data, ((0, 0), (1, 2), (0, 1), (3, 0)), pad_value=2.0),
            relay.strided_slice(data, [1, -1, 0], [2, -4, 5], [1, -2, 2]),
            relay.nn.lrn(data, size=3, alpha=0.5, beta=0.7, bias=2.0),
            relay.nn.batch_norm(data, *map(relay.const, norm), axis=3)[0],
        ]
        function = relay.Function([data], relay.Tuple(made))
        run = relay.create_executor("graph", device=tvm.cpu(), target="llvm").evaluate(function)
        expected = [each.numpy() for each in run(x)]
        model = to_onnx(function, None, "forms")
        with pytest.raises(UnsupportedOperatorError, match="axis other than 1"):
            to_onnx(relay.Function([data], relay.nn.lrn(data, axis=3)), None, "lrn")
    found = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"data": x})
    for mine, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)
    assert list(found[0][0, 0, 0]) == [-3, 0, 2]
