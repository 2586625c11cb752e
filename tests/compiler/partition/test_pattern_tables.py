"""Relay's pattern tables as partitioners: the subgraphs of `partition_for_...`, with reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import ir as I
from tvm.script import relax as R

from compiler import relay
from compiler.backends import Unsupported
from compiler.errors import PartitionCallbackError, PartitionError
from compiler.mxnet import symbol as sym
from compiler.partition import (
    Strategy,
    explain,
    partition,
    partition_with_report,
    register,
    subgraphs,
)
from compiler.partition.costs import Rates
from compiler.relay.op import contrib
from compiler.relay.transform.byoc import supports
from compiler.runtime import graph_executor

from .test_driver import Detour

RATES = Rates(gflops=1.0, gbytes=1.0)


def network(ceil_mode: bool = False, layout: str = "NCHW") -> tuple[tvm.IRModule, dict[str, Any]]:
    """conv2d with bias and relu, a pool, a concatenation, an addition of one number, a softmax."""
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(1, 4, 9, 9))
    w, b = relay.var("w", shape=(4, 4, 3, 3)), relay.var("b", shape=(4,))
    conv = relay.nn.bias_add(relay.nn.conv2d(x, w, padding=(1, 1), data_layout=layout), b)
    pool = relay.nn.max_pool2d(
        relay.nn.relu(conv), pool_size=(2, 2), strides=(2, 2), ceil_mode=ceil_mode
    )
    both = relay.concatenate([pool, relay.nn.relu(pool)], axis=1)
    body = relay.nn.softmax(relay.add(both, relay.const(1.0)), axis=1)
    params = {
        "w": rng.standard_normal((4, 4, 3, 3)).astype("float32"),
        "b": rng.standard_normal(4).astype("float32"),
    }
    return tvm.IRModule.from_expr(relay.Function([x, w, b], body)), params


def why(name: str, ceil_mode: bool = False) -> dict[str, str]:
    mod, params = network(ceil_mode)
    found = explain(mod, name, params, rates=RATES)
    return {left.operator: left.reasons[0].reason for left in found.left}


@pytest.mark.parametrize("name", ["dnnl", "tensorrt", "bnns", "clml"])
def test_subgraphs_are_those_of_relays_own_passes(name: str) -> None:
    mod, params = network()
    byoc = getattr(contrib, f"partition_for_{name}")(mod, params)
    byoc = byoc[0] if isinstance(byoc, tuple) else byoc
    expected = [
        function
        for _, function in byoc.functions_items()
        if function.attrs and function.attrs.get("Compiler") == name
    ]
    done = partition(mod, name, params)
    assert len(subgraphs(done)) == len(expected) > 0


def test_a_table_says_why_an_operator_stays() -> None:
    assert why("dnnl") == {
        "concatenate": "dnnl has neither a pattern here nor a check of concatenate alone"
    }
    assert why("dnnl", ceil_mode=True)["nn.max_pool2d"] == (
        "ceil_mode is set; oneDNN rounds the size of the result down"
    )
    assert why("cutlass")["nn.conv2d"] == (
        "pattern cutlass.conv2d: data_layout is NCHW; NHWC works"
    )
    assert why("arm_compute_lib")["nn.conv2d"] == ("data_layout is NCHW; NHWC works")
    # TensorRT's batch is implicit: nothing works along axis 0.
    x = relay.var("x", shape=(2, 8))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(x, axis=0)))
    (left,) = explain(mod, "tensorrt", rates=RATES).left
    assert "it works along axis 0" in left.reasons[0].reason


def test_a_check_without_a_reason_is_shown_with_what_it_looked_at() -> None:
    relay.op.contrib.get_pattern_table("clml")
    x = relay.nn.log_softmax(relay.var("x", shape=(1, 4)))
    tvm.ir.register_op_attr(x.op.name, "target.clml", lambda call: False, 20)
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(x), x))
    (left,) = explain(mod, "clml", rates=RATES).left
    assert left.reasons[0].reason == (
        "the check of nn.log_softmax says no: Tensor[(1, 4), float32], axis=-1"
    )


@I.ir_module
class Alias:
    """The result is another name of a value."""

    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.tanh(a)
            c = b
            R.output(c)
        return c


def test_a_result_may_be_an_alias() -> None:
    assert [each.operators for each in subgraphs(partition(Alias, "dnnl"))] == [("exp", "tanh")]


def test_a_check_registered_by_users_may_give_a_reason() -> None:
    key = "target.reasons_of_mine"
    x = relay.nn.softmax(relay.var("x", shape=(1, 4)))
    tvm.ir.register_op_attr(x.op.name, key, lambda call: Unsupported("no softmax"), 10)
    assert supports("reasons_of_mine", x) == Unsupported("no softmax")
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(x), x))
    annotated = relay.transform.AnnotateTarget("reasons_of_mine")(mod)
    assert len(relay.transform.PartitionGraph()(annotated).functions) == 1


def test_the_build_compiles_the_subgraphs_of_a_table() -> None:
    mod, params = network()
    x = np.random.default_rng(1).standard_normal((1, 4, 9, 9)).astype("float32")
    results = []
    for module in (mod, partition(mod, "dnnl", params)):
        lib = relay.build(module, "llvm", params=params)
        executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
        executor.run(x=x)
        results.append(executor.get_output(0).numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)


def test_a_registered_back_end_takes_the_place_of_the_table() -> None:
    register("dnnl", Strategy("s", check=lambda node, *_: node["op"] == "nn.softmax"))
    mod, params = network()
    assert [each.operators for each in subgraphs(partition(mod, "dnnl", params))] == [
        ("nn.softmax",)
    ]


def test_marks_of_bindings_are_checked() -> None:
    register("short", Strategy("s", function_marks=lambda function, options: [-1]))
    with pytest.raises(PartitionCallbackError, match="must return a list with 5 marks"):
        partition(Detour, "short")
    with pytest.raises(PartitionError, match="partitions modules, not symbols"):
        sym.exp(sym.var("data")).optimize_for("short")
    done = partition_with_report(Detour, "dnnl")
    assert {each.backend for each in done.selections} == {"dnnl"}
