"""Computes that replace TVM's."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.runtime import graph_executor

WIDTHS = ((0, 0), (2, 1), (1, 3))


@pytest.mark.parametrize("mode", ["reflect", "SYMMETRIC"])
def test_reflections_of_several_axes_have_no_nested_choices(mode):
    """In the operand of an exponential they took TVM minutes."""
    x = relay.var("x", shape=(2, 3, 2, 4))
    rows = relay.reshape(relay.transpose(x, [0, 2, 1, 3]), (2, 4, 6))
    padded = (
        relay.nn.pad(rows, WIDTHS, pad_mode=mode)
        if mode == "reflect"
        else relay.nn.mirror_pad(rows, WIDTHS, mode)
    )
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(padded)))
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, "llvm")
    data = np.arange(48, dtype="float32").reshape(2, 3, 2, 4) / 10
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=data)
    rows = data.transpose(0, 2, 1, 3).reshape(2, 4, 6)
    expected = np.exp(np.pad(rows, WIDTHS, mode=mode.lower()))
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, 1e-5)


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_padding_repeats_what_is_there_of_any_extent(mode):
    """More than there is, too: what lay in front of the tensor and behind it was read."""
    x = relay.var("x", shape=("rows", 3))
    widths = ((2, 1), (0, 1))
    library = relay.build(relay.Function([x], relay.nn.pad(x, widths, pad_mode=mode)), "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for rows in (1, 2, 5):
        data = np.arange(3 * rows, dtype="float32").reshape(rows, 3)
        module.run(x=data)
        np.testing.assert_array_equal(module.get_output(0).numpy(), np.pad(data, widths, mode))
    module.run(x=data[:0])
    assert module.get_output(0).shape == (3, 4)
