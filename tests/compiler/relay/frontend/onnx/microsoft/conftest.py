"""Fixtures of the tests of onnxruntime's own operators."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from compiler import errors
from compiler.relay.frontend import from_onnx
from tests.compiler.relay.frontend.onnx.microsoft.nodes import DOMAINS


@pytest.fixture
def floats(rng):
    """float32 numbers of a shape."""
    return lambda *shape: rng.normal(size=shape).astype("float32")


@pytest.fixture
def computes(model, run):
    """Runs nodes and compares every result with an array."""

    def check(nodes, feeds, expected, weights=None, tolerance=1e-5):
        types = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()}
        types |= {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in expected.items()}
        shapes = {name: value.shape for name, value in feeds.items()}
        proto = model(nodes, shapes, list(expected), weights, 20, DOMAINS, types)
        for got, value in zip(run(*from_onnx(proto), feeds), expected.values(), strict=True):
            assert got.dtype == value.dtype
            np.testing.assert_allclose(got, value, rtol=tolerance, atol=tolerance)

    return check


@pytest.fixture
def as_onnxruntime(model, run):
    """Runs nodes whose results, names that begin with "y", are onnxruntime's.

    Floats may be apart by `tolerance`, integers by `steps`; results are float32 unless `dtypes`
    says otherwise.
    """

    def check(nodes, feeds, weights=None, tolerance=1e-5, steps=0, dtypes=None):
        types = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()}
        types |= {
            n: helper.np_dtype_to_tensor_dtype(np.dtype(d)) for n, d in (dtypes or {}).items()
        }
        shapes = {name: value.shape for name, value in feeds.items()}
        outputs = [name for node in nodes for name in node.output if name.startswith("y")]
        proto = model(nodes, shapes, outputs, weights, 20, DOMAINS, types)
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        results = run(*from_onnx(proto), feeds)
        for name, got, value in zip(outputs, results, session.run(None, feeds), strict=True):
            assert (got.shape, got.dtype) == (value.shape, value.dtype), name
            if value.dtype.kind == "f":
                np.testing.assert_allclose(got, value, tolerance, tolerance, err_msg=name)
            else:
                wide = got.astype("int64"), value.astype("int64")
                np.testing.assert_allclose(*wide, rtol=0, atol=steps, err_msg=name)

    return check


@pytest.fixture
def refusal(model):
    """What the import of one node says."""

    def refuse(node, feeds, weights=None):
        types = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()}
        shapes = {name: value.shape for name, value in feeds.items()}
        proto = model([node], shapes, [node.output[0]], weights, 20, DOMAINS, types)
        with pytest.raises(errors.UnsupportedOperatorError) as caught:
            from_onnx(proto)
        assert caught.value.__cause__ is None
        return str(caught.value)

    return refuse
