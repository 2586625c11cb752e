"""Sizes of a library's main function."""

from __future__ import annotations

import pytest
import tvm

from compiler import legacy, relay
from compiler.errors import InputError
from compiler.legacy.function_metadata import MAIN


def build(rows):
    x, w = relay.var("x", shape=(rows, 8)), relay.var("w", shape=(4, 8))
    body = relay.nn.softmax(relay.nn.dense(x, w))
    return relay.build(tvm.IRModule.from_expr(relay.Function([x, w], body)), "llvm")


def test_inputs_results_and_what_lies_between_have_sizes():
    with legacy.installed():
        info = build(2).function_metadata[MAIN]
        io, between, weights = (
            next(iter(sizes.values())).value
            for sizes in (info.io_sizes, info.workspace_sizes, info.constant_sizes)
        )
    assert io == (2 * 8 + 4 * 8 + 2 * 4) * 4
    assert between >= 2 * 4 * 4
    assert weights == 0


def test_sizes_that_running_tells_are_refused():
    with legacy.installed(), pytest.raises(InputError, match="only running tells the size of x"):
        _ = build(relay.Any()).function_metadata
