"""Conversions that depend on parameters: dense layers over transposed weights; none to sparse."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.errors import UnsupportedRelayOperatorError


@pytest.mark.parametrize("name", ["bsr_dense", "bsr_conv2d"])
def test_a_conversion_says_what_to_do_instead(name):
    conversion = getattr(relay.data_dep_optimization, name)
    with pytest.raises(UnsupportedRelayOperatorError, match=rf"{name}\.convert is not supported"):
        conversion.convert(None, {})


def test_transposed_weights_of_dense_layers_are_transposed_by_value() -> None:
    data = relay.var("data", shape=(2, 4))
    first, second = relay.var("first", shape=(4, 6)), relay.var("second", shape=(6, 3))
    hidden = relay.nn.relu(relay.nn.dense(data, relay.transpose(first, axes=[1, 0])))
    function = relay.Function(
        [data, first, second], relay.nn.dense(hidden, relay.transpose(second))
    )
    rng = np.random.default_rng(0)
    values = {
        "first": rng.standard_normal((4, 6)).astype("float32"),
        "second": rng.standard_normal((6, 3)).astype("float32"),
    }
    params = {name: tvm.runtime.tensor(value) for name, value in values.items()}
    made, turned = relay.data_dep_optimization.simplify_fc_transpose.convert(function, params)
    assert "transpose" not in relay.analysis.list_op_freqs(tvm.IRModule({"main": made}))
    image = rng.standard_normal((2, 4)).astype("float32")
    run = relay.create_executor("graph", tvm.IRModule({"main": made}), params=turned).evaluate()
    expected = np.maximum(image @ values["first"], 0) @ values["second"]
    np.testing.assert_allclose(run(image).numpy(), expected, rtol=1e-5)
