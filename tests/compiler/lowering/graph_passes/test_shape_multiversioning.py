"""Kernels of their own for certain extents, in the library for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

from compiler import auto_scheduler, autotvm, relay
from compiler.errors import BuildError
from compiler.runtime import graph_executor, load_module

RNG = np.random.default_rng(0)


def dense() -> tuple[tvm.IRModule, Any]:
    """A dense layer over any number of rows, and what numpy makes of it."""
    x = relay.var("x", shape=("batch", "seq", 48))
    weight = RNG.standard_normal((64, 48)).astype("float32")
    flat = relay.nn.dense(relay.reshape(relay.exp(x), (-1, 48)), relay.const(weight))
    function = relay.Function([x], relay.nn.relu(flat))
    expected = lambda x: np.maximum(np.exp(x).reshape(-1, 48) @ weight.T, 0)  # noqa: E731
    return tvm.IRModule.from_expr(function), expected


def build(mod: tvm.IRModule) -> Any:
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(mod, "llvm")


def compare(library: Any, expected: Any) -> None:
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for batch, seq in ((1, 1), (1, 5), (1, 16), (2, 16), (3, 1), (0, 4)):
        x = RNG.standard_normal((batch, seq, 48)).astype("float32")
        module.run(x=x)
        result = module.get_output(0).numpy()
        np.testing.assert_allclose(result, expected(x), rtol=1e-4, atol=1e-4)


def test_named_sizes_have_kernels_and_share_the_weights(tmp_path):
    mod, expected = dense()
    plain = build(mod)
    library = build(relay.with_sizes(mod, {"seq": [16, 1], "batch": [1]}))
    anchors = [each.implementation for each in library.report.kernels].count("dense_packed.x86")
    assert anchors == 3  # (1, 1), (1, 16), and any other extents
    assert library.report.weights_bytes <= 2 * plain.report.weights_bytes
    assert library.metadata.inputs == plain.metadata.inputs
    compare(library, expected)
    library.export_library(str(tmp_path / "dense.so"))
    compare(load_module(str(tmp_path / "dense.so")), expected)


def test_sizes_within_a_bound():
    mod, expected = dense()
    mod = relay.with_sizes(relay.with_bounds(mod, {"seq": 16, "batch": 4}), {"seq": [16]})
    compare(build(mod), expected)


@pytest.mark.parametrize(
    "sizes, said",
    [
        ({"length": [1]}, "no symbolic extent 'length'; its symbols are: batch, seq"),
        ({"seq": [0]}, "must be a positive integer, not 0"),
        ({"seq": [33]}, "beyond its bound 32"),
        ({"seq": range(1, 18)}, "17 combinations"),
        ({"seq": []}, "0 combinations"),
    ],
)
def test_sizes_that_can_not_be(sizes, said):
    mod = relay.with_bounds(dense()[0], {"seq": 32})
    with pytest.raises(BuildError, match=said):
        relay.with_sizes(mod, sizes)


def test_images_one_by_one_need_no_sizes():
    x = relay.var("x", shape=("batch", 3, 8, 8))
    weight = relay.const(RNG.standard_normal((8, 3, 3, 3)).astype("float32"))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.conv2d(x, weight)))
    library = build(relay.with_sizes(mod, {"batch": [4]}))
    assert any("one by one with static kernels" in note for note in library.report.notes)


def test_tasks_are_those_of_the_named_sizes():
    mod = relay.with_sizes(dense()[0], {"seq": [1, 24], "batch": [2]})
    templates = {task.args[0][1] for task in autotvm.task.extract_from_program(mod, {}, "llvm")}
    assert {(2, 48), (48, 48)} <= templates
    tasks, _ = auto_scheduler.extract_tasks(mod, {}, "llvm")
    assert {task.workload_key.split(".")[-1].split(",")[0] for task in tasks} >= {"2x48", "48x48"}


def test_a_log_of_a_variant_applies_to_it(tmp_path):
    mod, expected = dense()
    mod = relay.with_sizes(mod, {"seq": [24], "batch": [2]})
    tasks = autotvm.task.extract_from_program(mod, {}, "llvm")
    (task,) = [each for each in tasks if each.name == "dense_pack.x86" and each.args[0][1][0] == 48]
    measured = autotvm.MeasureInput(task.target, task, task.config_space.get(1))
    row = autotvm.record.encode(measured, autotvm.MeasureResult([1e-9], 0, 1.0, 1.0))
    log = tmp_path / "dense.log"
    log.write_text(row + "\n")
    with autotvm.apply_history_best(str(log)):
        library = build(mod)
    kernels = [each for each in library.report.kernels if "matmul" in each.name]
    assert [each.source for each in kernels] == ["topi:dense.log:1", "topi:fallback"]
    compare(library, expected)


def test_an_input_of_known_shape_and_a_bias_are_handed_on():
    x, bias = relay.var("x", shape=("rows", 8)), relay.var("bias", shape=(8,))
    mod = tvm.IRModule.from_expr(relay.Function([x, bias], relay.exp(relay.add(x, bias))))
    module = graph_executor.GraphModule(
        build(relay.with_sizes(mod, {"rows": [2]}))["default"](tvm.cpu())
    )
    shift = np.arange(8, dtype="float32")
    for rows in (1, 2):
        module.run(x=np.ones((rows, 8), "float32"), bias=shift)
        expected = np.exp(np.ones((rows, 8)) + shift)
        np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-5)
