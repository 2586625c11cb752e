"""Branches, loop bodies and local functions, partitioned like `main` by both doors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax

from compiler import partition, relay
from compiler.errors import BuildError
from compiler.ir.rewrite import expressions_in, relax_functions
from compiler.relay import dialect, transform
from compiler.relay.dataflow_pattern import is_op, wildcard
from tests.compiler.relay.oracle import run

VALUE = np.float32([0.1, 0.5, 0.25, 2.0])
CLAIMED = ("exp", "tanh", "add")


def byoc(name: str) -> Callable[[tvm.IRModule], tvm.IRModule]:
    for each in CLAIMED:
        tvm.ir.register_op_attr(dialect.operator(each).name, f"target.{name}", lambda _call: True)
    return tvm.transform.Sequential(
        [
            transform.AnnotateTarget(name),
            transform.MergeCompilerRegions(),
            transform.PartitionGraph(),
        ]
    )


@pytest.fixture(params=["Relay's passes", "partition"])
def partitioned(request: Any) -> Iterator[Callable[[tvm.IRModule], tvm.IRModule]]:
    if request.param != "partition":
        yield byoc(f"scoped_{len(request.node.name)}")
        return

    def claim(text: str, ids: list[int], options: Any) -> None:
        for index, node in enumerate(json.loads(text)["nodes"]):
            ids[index] = -1 if node["op"] in CLAIMED else -2

    partition.register("scoped_too", partition.Strategy("s", claim))
    yield lambda mod: partition.partition(mod, "scoped_too")
    partition.unregister("scoped_too")


def taken(mod: tvm.IRModule) -> list[Counter[str]]:
    """Operators of each subgraph; none of them may be left outside, nor may annotations."""
    found = []
    for _, function in relax_functions(mod):
        calls = filter(dialect.is_relay, expressions_in(function, relax.Call))
        names = Counter(map(dialect.relay_name, calls))
        if any(each in (function.attrs or {}) for each in ("Compiler", "baton.backend")):
            found.append(names)
        else:
            left = [name for name in names if name in CLAIMED or "annotation" in name]
            assert not left
    return found


def condition(name: str) -> relax.Var:
    return relay.var(name, shape=(), dtype="bool")


def test_branches_have_subgraphs_and_shared_operators_are_computed_once(
    partitioned: Callable[[tvm.IRModule], tvm.IRModule],
) -> None:
    x, outer, inner = relay.var("x", shape=(4,)), condition("c"), condition("d")
    shared = relay.exp(x)
    deep = relay.If(inner, relay.tanh(shared), relay.sin(relay.add(shared, x)))
    body = relay.add(relay.If(outer, deep, relay.tanh(relay.cos(x))), shared)
    mod = tvm.IRModule.from_expr(relay.Function([x, outer, inner], body))
    made = partitioned(mod)
    assert sorted(map(sorted, taken(made))) == [["add"], ["add"], ["exp"], ["tanh"], ["tanh"]]
    exp = np.exp(VALUE)
    for c in (True, False):
        for d in (True, False):
            branch = np.tanh(exp) if d else np.sin(exp + VALUE)
            expected = (branch if c else np.tanh(np.cos(VALUE))) + exp
            for each in (mod, made):
                got = run(each, [VALUE, np.array(c), np.array(d)])[0]
                np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_bodies_of_imported_loops_have_subgraphs(
    partitioned: Callable[[tvm.IRModule], tvm.IRModule],
) -> None:
    value, flag = helper.make_tensor_value_info, TensorProto.BOOL
    body = helper.make_graph(
        [
            helper.make_node("Tanh", ["state"], ["t"]),
            helper.make_node("Sin", ["t"], ["s"]),
            helper.make_node("Add", ["s", "w"], ["next"]),
            helper.make_node("Identity", ["more"], ["again"]),
        ],
        "body",
        [value("i", TensorProto.INT64, []), value("more", flag, []), value("state", 1, [4])],
        [value("again", flag, []), value("next", 1, [4])],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Exp", ["x"], ["w"]),
            helper.make_node("Loop", ["n", "", "x"], ["y"], body=body),
        ],
        "graph",
        [value("x", 1, [4]), value("n", TensorProto.INT64, [])],
        [value("y", 1, [4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    mod, _ = relay.frontend.from_onnx(model)
    made = partitioned(mod)
    names = Counter(name for names in taken(made) for name in names)
    assert names["tanh"] == names["exp"] == 1 and names["add"] >= 1
    expected = VALUE
    for _ in range(3):
        expected = np.sin(np.tanh(expected)) + np.exp(VALUE)
    np.testing.assert_allclose(run(made, [VALUE, np.int64(3)])[0], expected, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:TVM compiles the module without schedules")
def test_bodies_of_relays_loops_have_subgraphs(
    partitioned: Callable[[tvm.IRModule], tvm.IRModule],
) -> None:
    x = relay.var("x", shape=(4,))
    first = relay.exp(x)
    loop = relay.loops.while_loop(
        lambda i, _: relay.less(i, relay.const(3)),
        [relay.var("i", shape=(), dtype="int32"), relay.var("state", shape=(4,))],
        lambda i, state: [
            relay.subtract(i, relay.const(-1)),
            relay.add(relay.sin(relay.tanh(state)), first),
        ],
    )
    result = relay.TupleGetItem(relay.Call(loop, [relay.const(0), x]), 1)
    made = partitioned(tvm.IRModule.from_expr(relay.Function([x], result)))
    assert {"tanh", "exp"} <= set().union(*taken(made))
    expected = VALUE
    for _ in range(3):
        expected = np.sin(np.tanh(expected)) + np.exp(VALUE)
    np.testing.assert_allclose(run(made, [VALUE])[0], expected, rtol=1e-5)


def test_local_functions_are_partitioned() -> None:
    x, p = relay.var("x", shape=(4,)), relay.var("p", shape=(4,))
    local = relay.Function([p], relay.sin(relay.tanh(relay.add(p, x))))
    body = relay.add(relay.Call(local, [relay.exp(x)]), relay.Call(local, [x]))
    made = byoc("in_locals")(tvm.IRModule.from_expr(relay.Function([x], body)))
    assert sorted(map(sorted, taken(made))) == [["add"], ["add", "tanh"], ["exp"]]
    expected = np.sin(np.tanh(np.exp(VALUE) + VALUE)) + np.sin(np.tanh(2 * VALUE))
    np.testing.assert_allclose(run(made, [VALUE])[0], expected, rtol=1e-5)


def test_patterns_match_in_branches_and_before_match_casts() -> None:
    x, c = relay.var("x", shape=(4,)), condition("c")
    branch = relay.If(c, relay.exp(relay.add(x, x)), x)
    mod = tvm.IRModule.from_expr(relay.Function([x, c], branch))
    table = [("scoped.pair", is_op("exp")(is_op("add")(wildcard(), wildcard())))]
    merged = transform.MergeComposite(table)(mod)
    assert relay.astext(merged).count('Composite="scoped.pair"') == 1
    np.testing.assert_allclose(run(merged, [VALUE, np.array(True)])[0], np.exp(2 * VALUE), 1e-5)


def test_other_passes_reach_branches_and_duplicate_nothing() -> None:
    x, c = relay.var("x", shape=(4,)), condition("c")
    shared = relay.multiply(relay.exp(x), relay.multiply(relay.const(2.0), relay.const(3.0)))
    folded = relay.add(x, relay.add(relay.const(1.0), relay.const(1.0)))
    mod = tvm.IRModule.from_expr(
        relay.Function([x, c], relay.add(relay.If(c, relay.tanh(shared), folded), shared))
    )
    made = transform.FoldConstant()(mod)
    names = Counter(map(dialect.relay_name, expressions_in(made["main"], relax.Call)))
    assert names == {"exp": 1, "multiply": 1, "tanh": 1, "add": 2}
    six = 6 * np.exp(VALUE)
    np.testing.assert_allclose(run(made, [VALUE, np.array(False)])[0], VALUE + 2 + six, 1e-5)


def test_max_subgraphs_and_ids_count_over_all_branches() -> None:
    x, c = relay.var("x", shape=(4,)), condition("c")
    body = relay.exp(relay.If(c, relay.exp(relay.sin(x)), relay.exp(relay.cos(x))))
    mod = tvm.IRModule.from_expr(relay.Function([x, c], body))

    def claim(text: str, ids: list[int], options: Any) -> None:
        for index, node in enumerate(json.loads(text)["nodes"]):
            ids[index] = -1 if node["op"] == "exp" else -2

    partition.register("counted", partition.Strategy("s", claim))
    try:
        whole = partition.partition_with_report(mod, "counted")
        assert [each.number for each in whole.candidates] == [0, 1, 2]
        some = partition.partition_with_report(mod, "counted", max_subgraphs=2)
        assert [each.accepted for each in some.candidates] == [True, True, False]
    finally:
        partition.unregister("counted")


SCORES = np.linspace(-1, 1, 7).astype("float32")


def hits() -> tuple[relax.Var, relax.Expr]:
    """Indices of scores above a bound: as many as values decide."""
    score = relay.var("score", shape=(7,))
    return score, relay.argwhere(relay.greater(score, relay.const(0.01)))


@pytest.mark.parametrize("reader", ["adv_index", "take"])
def test_extents_found_in_a_composite_reach_its_readers(reader: str) -> None:
    score, found = hits()
    box = relay.var("box", shape=(7, 4))
    index = relay.squeeze(found, axis=[1])
    result = relay.adv_index([box, index]) if reader != "take" else relay.take(box, index, axis=0)
    mod = tvm.IRModule.from_expr(relay.Function([score, box], result))
    pattern = is_op("squeeze")(is_op("argwhere")(is_op("greater")(wildcard(), wildcard())))
    made = transform.MergeComposite([(f"found_{reader}.t", pattern)])(mod)
    value = np.arange(28, dtype="float32").reshape(7, 4)
    for step in (transform.AnnotateTarget(f"found_{reader}"), transform.PartitionGraph()):
        run_main = relay.create_executor("vm", made, tvm.cpu(), "llvm").evaluate()
        np.testing.assert_array_equal(run_main(SCORES, value).numpy(), value[SCORES > 0.01])
        made = step(made)
    assert len(made.functions) == 2
    run_main = relay.create_executor("vm", made, tvm.cpu(), "llvm").evaluate()
    np.testing.assert_array_equal(run_main(SCORES, value).numpy(), value[SCORES > 0.01])


@pytest.mark.parametrize(
    "members", [("argwhere",), ("argwhere", "cast"), ("cast", "abs"), ("abs",)]
)
@pytest.mark.parametrize("door", ["Relay's passes", "partition"])
def test_extents_found_in_a_subgraph_reach_its_readers(door: str, members: tuple[str, ...]) -> None:
    score, found = hits()
    body = relay.negative(relay.abs(relay.cast(found, "float32")))
    mod = tvm.IRModule.from_expr(relay.Function([score], relay.Tuple([body, found])))
    name = "_".join(("extents", *members, door.split()[0].lower().replace("'", "")))
    if door == "partition":

        def claim(text: str, ids: list[int], options: Any) -> None:
            for index, node in enumerate(json.loads(text)["nodes"]):
                ids[index] = -1 if node["op"] in members else -2

        partition.register(name, partition.Strategy("s", claim))
        made = partition.partition(mod, name)
    else:
        for each in members:
            tvm.ir.register_op_attr(dialect.operator(each).name, f"target.{name}", lambda _: True)
        steps = [transform.AnnotateTarget(name), transform.MergeCompilerRegions()]
        made = tvm.transform.Sequential([*steps, transform.PartitionGraph()])(mod)
    assert len(made.functions) == 2
    run_main = relay.create_executor("vm", made, tvm.cpu(), "llvm").evaluate()
    got, indices = run_main(SCORES)
    expected = np.argwhere(SCORES > 0.01)
    np.testing.assert_array_equal(indices.numpy(), expected)
    np.testing.assert_array_equal(got.numpy(), -expected.astype("float32"))


def test_external_code_may_not_return_extents_that_values_decide() -> None:
    tvm.register_global_func("relay.ext.finds", lambda function: None, override=True)
    tvm.ir.register_op_attr(dialect.operator("argwhere").name, "target.finds", lambda _: True)
    score, found = hits()
    mod = tvm.IRModule.from_expr(relay.Function([score], relay.cast(found, "float32")))
    made = tvm.transform.Sequential([transform.AnnotateTarget("finds"), transform.PartitionGraph()])
    with pytest.raises(BuildError, match=r"values decide the extents of result 0 \(argwhere\)"):
        relay.create_executor("vm", made(mod), tvm.cpu(), "llvm").evaluate()(SCORES)


def test_values_that_only_a_branch_of_a_local_function_reads_stay_in_the_function() -> None:
    x, p, c = relay.var("x", shape=(4,)), relay.var("p", shape=(4,)), condition("c")
    inner = relay.tanh(p)
    local = relay.Function([p], relay.If(c, relay.sin(inner), relay.cos(inner)))
    mod = tvm.IRModule.from_expr(relay.Function([x, c], relay.sin(relay.Call(local, [x]))))
    made = byoc("in_local_branches")(mod)
    assert taken(made) == [Counter(["tanh"])]
    for flag, function in ((True, np.sin), (False, np.cos)):
        got = run(made, [VALUE, np.array(flag)])[0]
        np.testing.assert_allclose(got, np.sin(function(np.tanh(VALUE))), rtol=1e-5)
