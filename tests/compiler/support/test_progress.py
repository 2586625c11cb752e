"""Progress of builds, as callers and the log see it."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tvm

import compiler
from compiler import relay


def network(extent):
    x = relay.var("x", shape=(1, extent))
    weight = relay.const(np.ones((8, extent), "float32"))
    body = relay.nn.softmax(relay.nn.relu(relay.nn.dense(x, weight)))
    return tvm.IRModule.from_expr(relay.Function([x], body))


def test_a_callback_gets_each_step_and_counts_kernels():
    seen = []
    with compiler.on_progress(seen.append):
        relay.build(network(37), "llvm")
    steps = [each.step for each in seen]
    assert steps.index("simplify") < steps.index("schedule kernels") < steps.index("link")
    counts = [each for each in seen if each.step == "schedule kernels" and each.total]
    assert [each.done for each in counts] == list(range(1, counts[-1].total + 1))
    assert str(counts[0]) == f"schedule kernels 1/{counts[0].total} kernels"
    assert str(seen[0]) == seen[0].step


def test_compiled_kernels_are_counted_up_to_all_of_them():
    seen = []
    with compiler.on_progress(seen.append):
        relay.build(network(41), "llvm")
    done = [each.done for each in seen if each.step == "compile kernels"]
    assert done == sorted(done)
    assert done[-1] == next(each.total for each in seen if each.step == "compile kernels")


def test_nothing_is_called_after_the_context_and_the_innermost_is_called():
    outer, inner = [], []
    with compiler.on_progress(outer.append):
        with compiler.on_progress(inner.append):
            relay.build(network(43), "llvm")
        assert inner and not outer
    relay.build(network(47), "llvm")
    assert not outer


def test_an_error_of_the_callback_ends_the_build():
    def stop(_):
        raise TimeoutError("enough")

    with pytest.raises(TimeoutError, match="enough"), compiler.on_progress(stop):
        relay.build(network(53), "llvm")


def test_the_log_has_the_time_of_each_step(caplog):
    with caplog.at_level(logging.DEBUG, "baton.lowering"):
        relay.build(network(59), "llvm")
    assert any(record.getMessage().startswith("schedule kernels: ") for record in caplog.records)
