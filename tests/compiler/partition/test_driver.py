"""`partition` and `contract` on Relax modules: structure, numbers against numpy, bad callbacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from compiler import relay
from compiler.errors import PartitionCallbackError, PartitionError, UnknownBackendError
from compiler.mxnet import symbol as sym
from compiler.partition import Strategy, contract, partition, register, subgraphs

from .conftest import claim, execute, random


@I.ir_module
class Detour:
    """exp and add claimed, log outside: one region would be cyclic through log."""

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8,), "float32")) -> R.Tensor(
        (4, 8), "float32"
    ):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, w)
            c = R.log(a)
            d = R.add(b, c)
            e = R.add(d, d)
            R.output(e)
        return e


def detour(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    wide = np.exp(x.astype("float64"))
    return 2 * (wide + w + np.log(wide))


X, W = random((4, 8), 1), random((8,), 2)


def text(mod: tvm.IRModule) -> str:
    return mod.script(show_meta=True)


def test_claimed_operators_become_functions_and_the_numbers_stay(
    claiming: Callable[..., str],
) -> None:
    before = text(Detour)
    result = partition(Detour, claiming("exp", "add"))
    assert [info.operators for info in subgraphs(result)] == [("exp", "add"), ("add", "add")]
    np.testing.assert_allclose(execute(result, X, W)[0], detour(X, W), rtol=1e-5)
    assert text(Detour) == before


def test_accepted_functions_carry_the_documented_attributes(claiming: Callable[..., str]) -> None:
    def accept(graph_json, subgraph_id, options, attrs, args, aux) -> bool:
        attrs.update({"target": "llvm -mcpu=x86-64", "precision": options["precision"]})
        return True

    backend = claiming("exp", "add", accept_subgraph=accept, subgraph_op="_mine")
    result = partition(Detour, backend, precision="high")
    first = subgraphs(result)[0]
    attrs = dict(result[first.name].attrs.items())
    assert attrs == {
        "baton.backend": "test",
        "baton.strategy": "by_name",
        "baton.subgraph_op": "_mine",
        "baton.subgraph_id": 0,
        "baton.input_names": '["x", "w"]',
        "target": "llvm -mcpu=x86-64",
        "precision": "high",
    }
    assert first.target == "llvm -mcpu=x86-64"
    assert first.attrs == {"target": "llvm -mcpu=x86-64", "precision": "high"}
    assert first.input_names == ("x", "w")
    assert subgraphs(result)[1].input_names == ("", "")


def test_rejected_subgraphs_stay_in_main_and_keep_their_number(
    claiming: Callable[..., str],
) -> None:
    backend = claiming("exp", "add", accept_subgraph=lambda j, number, *rest: number == 1)
    result = partition(Detour, backend)
    assert [(info.subgraph_id, info.operators) for info in subgraphs(result)] == [
        (1, ("add", "add"))
    ]
    names = [binding.var.name for binding in result["main"].body.blocks[0].bindings]
    assert names == ["a", "b", "c", "e"]
    np.testing.assert_allclose(execute(result, X, W)[0], detour(X, W), rtol=1e-5)


def test_when_everything_is_rejected_the_module_is_equal_and_not_the_same(
    claiming: Callable[..., str],
) -> None:
    result = partition(Detour, claiming("exp", accept_subgraph=lambda *call: False))
    tvm.ir.assert_structural_equal(relay.to_relax(result), Detour)
    assert not result.same_as(Detour)


def test_accept_sees_parameter_values_without_copies(claiming: Callable[..., str]) -> None:
    seen = {}

    def accept(graph_json, subgraph_id, options, attrs, args, aux) -> bool:
        variables = [n for n in json.loads(graph_json)["nodes"] if n["op"] == "null"]
        seen[subgraph_id] = [(n["attrs"]["isArg"], n["attrs"].get("argName")) for n in variables]
        assert np.shares_memory(args["w"], W) and not args["w"].flags.writeable
        assert aux == {}
        return True

    partition(Detour, claiming("exp", "add", accept_subgraph=accept), params={"w": W})
    assert seen == {0: [("True", "x"), ("True", "w")], 1: [("False", None), ("False", None)]}


def test_constants_move_into_the_function_and_are_shown_by_name(
    claiming: Callable[..., str],
) -> None:
    module = relax.transform.BindParams("main", {"w": W})(Detour)
    shown = {}

    def accept(graph_json, subgraph_id, options, attrs, args, aux) -> bool:
        shown.update({name: value.copy() for name, value in args.items()})
        return True

    result = partition(module, claiming("exp", "add", accept_subgraph=accept))
    np.testing.assert_array_equal(shown["const_0"], W)
    first = subgraphs(result)[0]
    assert first.input_names == ("x",)
    assert len(result[first.name].params) == 1
    np.testing.assert_allclose(execute(result, X)[0], detour(X, W), rtol=1e-5)


def test_options_reach_both_callbacks_as_strings() -> None:
    seen = []

    def supported_ops(graph_json, ids, options) -> None:
        seen.append(dict(options))
        claim("exp")(graph_json, ids, options)

    def accept(graph_json, subgraph_id, options, attrs, args, aux) -> bool:
        seen.append(dict(options))
        return True

    register("options", Strategy("s", supported_ops, accept))
    partition(Detour, "options", depth=3, fast=True, name=None)
    assert seen == [{"depth": "3", "fast": "True", "name": "None"}] * 2


def test_partitioners_chain_and_leave_accepted_subgraphs_alone(
    claiming: Callable[..., str],
) -> None:
    claiming("exp", name="first", subgraph_op="_first")
    operators = []

    def everything(graph_json, ids, options) -> list[int]:
        operators.extend(node["op"] for node in json.loads(graph_json)["nodes"])
        return [-1] * len(ids)

    register("second", Strategy("all", everything))
    together = partition(Detour, ["first", "second"])
    assert "_first" in operators and "exp" not in operators
    assert [(i.backend, i.operators) for i in subgraphs(together)] == [
        ("first", ("exp",)),
        ("second", ("add", "log", "add", "add")),
    ]
    tvm.ir.assert_structural_equal(together, partition(partition(Detour, "first"), "second"))
    np.testing.assert_allclose(execute(together, X, W)[0], detour(X, W), rtol=1e-5)
    again = partition(together, "second")
    tvm.ir.assert_structural_equal(again, together)


def test_strategies_of_one_partitioner_run_in_order() -> None:
    register("two", [Strategy("a", claim("exp")), Strategy("b", claim("exp", "log"))])
    found = subgraphs(partition(Detour, "two"))
    assert [(i.strategy, i.operators) for i in found] == [("a", ("exp",)), ("b", ("log",))]
    assert len({i.name for i in found}) == 2


def test_numbered_claims_become_separate_subgraphs() -> None:
    def supported_ops(graph_json, ids, options) -> None:
        number = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1}
        for index, node in enumerate(json.loads(graph_json)["nodes"]):
            ids[index] = number.get(node["name"], -2)

    register("numbered", Strategy("s", supported_ops))
    result = partition(Detour, "numbered")
    assert [i.operators for i in subgraphs(result)] == [("exp", "add"), ("log", "add", "add")]
    np.testing.assert_allclose(execute(result, X, W)[0], detour(X, W), rtol=1e-5)


def test_the_result_is_the_same_on_every_execute(claiming: Callable[..., str]) -> None:
    backend = claiming("exp", "add")
    assert text(partition(Detour, backend)) == text(partition(Detour, backend))


def test_an_unknown_backend_is_named_with_those_that_exist(claiming: Callable[..., str]) -> None:
    claiming("exp", name="known")
    with pytest.raises(UnknownBackendError, match=r"'unknown'.*known"):
        partition(Detour, "unknown")


def test_a_module_without_main_is_refused(claiming: Callable[..., str]) -> None:
    with pytest.raises(PartitionError, match="no Relax function 'main'"):
        partition(tvm.IRModule({}), claiming("exp"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((9,), "float32"), r"shape \[9\].*\[8\]"),
        (np.zeros((8,), "float64"), "float64.*float32"),
        ([0.0] * 8, "is a list"),
    ],
)
def test_a_parameter_value_that_does_not_fit_is_named(
    claiming: Callable[..., str], value: Any, message: str
) -> None:
    with pytest.raises(PartitionError, match=r"params\['w'\].*" + message):
        partition(Detour, claiming("exp"), params={"w": value})


def _raise(*call: Any) -> Any:
    raise KeyError("no such thing")


BAD_CLAIMS = {
    "raises": (_raise, "raised KeyError"),
    "returns too few": (lambda j, ids, o: ids[:-1], "left 6 ids for 7 nodes"),
    "grows the list": (lambda j, ids, o: ids.append(-1), "left 8 ids for 7 nodes"),
    "returns a number": (lambda j, ids, o: 3, "returned 3"),
    "returns text": (lambda j, ids, o: "-------", "returned '-------'"),
    "marks a float": (lambda j, ids, o: [0.5] * len(ids), "id 0.5 for node 0"),
    "marks a bool": (lambda j, ids, o: [True] * len(ids), "id True for node 0"),
    "marks None": (lambda j, ids, o: [None] * len(ids), "id None for node 0"),
}


@pytest.mark.parametrize("case", BAD_CLAIMS)
def test_a_claim_that_is_nonsense_names_backend_and_strategy(case: str) -> None:
    callback, message = BAD_CLAIMS[case]
    before = text(Detour)
    register("bad", Strategy("claims", callback))
    with pytest.raises(PartitionCallbackError) as caught:
        partition(Detour, "bad")
    assert message in str(caught.value)
    assert "'bad'" in str(caught.value) and "'claims'" in str(caught.value)
    assert text(Detour) == before
    if case == "raises":
        assert isinstance(caught.value.__cause__, KeyError)


def _attribute(key: Any, value: Any) -> Callable[..., bool]:
    def accept(graph_json, subgraph_id, options, attrs, args, aux) -> bool:
        attrs[key] = value
        return True

    return accept


BAD_ACCEPTS = {
    "raises": (_raise, "raised KeyError"),
    "returns None": (lambda *call: None, "returned None"),
    "returns 1": (lambda *call: 1, "returned 1"),
    "sets a number": (_attribute("depth", 3), "'depth' to 3"),
    "names it by number": (_attribute(3, "depth"), "attribute 3"),
    "sets a reserved name": (_attribute("global_symbol", "main"), "'global_symbol'"),
    "sets one of Baton's": (_attribute("baton.backend", "me"), "'baton.backend'"),
    "writes to a parameter": (lambda j, n, o, a, args, x: args["w"].fill(0), "raised ValueError"),
}


@pytest.mark.parametrize("case", BAD_ACCEPTS)
def test_an_answer_that_is_nonsense_names_backend_strategy_and_subgraph(
    case: str, claiming: Callable[..., str]
) -> None:
    callback, message = BAD_ACCEPTS[case]
    before, weights = text(Detour), W.copy()
    backend = claiming("exp", "add", name="bad", accept_subgraph=callback)
    with pytest.raises(PartitionCallbackError) as caught:
        partition(Detour, backend, params={"w": W})
    assert message in str(caught.value)
    assert "'bad'" in str(caught.value) and "'by_name'" in str(caught.value)
    assert "subgraph 0" in str(caught.value)
    assert text(Detour) == before
    np.testing.assert_array_equal(W, weights)


def test_numpy_booleans_and_integers_are_taken(claiming: Callable[..., str]) -> None:
    register(
        "numpy",
        Strategy("s", lambda j, ids, o: np.full(len(ids), -1), lambda *call: np.bool_(True)),
    )
    assert [i.operators for i in subgraphs(partition(Detour, "numpy"))] == [
        ("exp", "add", "log", "add", "add")
    ]


def test_contract_outlines_bindings_by_name_with_any_attributes() -> None:
    before = text(Detour)
    result = contract(
        Detour, [["a", "b"], ["d", "e"]], [{"record": "7"}, {"order": 2}], names=["one", "two"]
    )
    assert dict(result["one"].attrs.items()) == {"record": "7"}
    assert int(result["two"].attrs["order"]) == 2
    np.testing.assert_allclose(execute(result, X, W)[0], detour(X, W), rtol=1e-5)
    assert text(Detour) == before


def test_contract_works_inside_another_function() -> None:
    outer = contract(Detour, [["a", "b", "c", "d"]], [{"k": "v"}], names=["inner"])
    result = contract(outer, [["a", "c"]], [{"deep": "1"}], names=["deepest"], function="inner")
    assert dict(result["inner"].attrs.items()) == {"k": "v"}
    assert [b.value.op.name for b in result["deepest"].body.blocks[0].bindings] == [
        "relax.exp",
        "relax.log",
    ]
    np.testing.assert_allclose(execute(result, X, W)[0], detour(X, W), rtol=1e-5)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([["nothing"]], "binds no variable named 'nothing'"),
        ([[]], "is empty"),
        ([["a"], ["a"]], "'a' is in groups 0 and 1"),
        ([["a", "d"]], "cyclic"),
        ([["a", "e"], ["c"]], "cyclic"),
    ],
)
def test_groups_that_cannot_be_contracted_are_refused(
    groups: list[list[str]], message: str
) -> None:
    with pytest.raises(PartitionError, match=message):
        contract(Detour, groups, [{} for _ in groups])


def test_contract_needs_attributes_for_every_group() -> None:
    with pytest.raises(PartitionError, match="as many"):
        contract(Detour, [["a"]], [])


def test_a_function_is_partitioned_as_main(claiming: Callable[..., str]) -> None:
    backend = claiming("exp", "add")
    result = partition(Detour["main"], backend)
    assert subgraphs(result) == subgraphs(partition(Detour, backend)) != []
    with pytest.raises(PartitionError, match="that partition returns, not Function"):
        subgraphs(Detour["main"])


def test_what_is_no_module_is_refused() -> None:
    symbol = sym.exp(sym.var("x"))
    with pytest.raises(PartitionError, match="not Symbol; call its optimize_for"):
        partition(symbol, "llvm")
    with pytest.raises(
        PartitionError, match="subgraphs takes the IRModule that partition returns, not"
    ):
        subgraphs(symbol)
    with pytest.raises(PartitionError, match="not NoneType"):
        partition(None, "llvm")


@pytest.mark.parametrize("frozen", [True, False])
def test_onnx_weights_keep_their_names_on_inputs_of_subgraphs(frozen: bool) -> None:
    weights = {"fc.weight": np.ones((4, 3), "float32"), "fc.bias": np.full(3, 2, "float32")}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "fc.weight"], ["m"], name="layer.1"),
            helper.make_node("Add", ["m", "fc.bias"], ["y"]),
            helper.make_node("Relu", ["y"], ["z"]),
        ],
        "named",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    seen: dict[str, Any] = {}

    def review(text: str, _id: int, _options: Any, _attrs: Any, args: Any, _aux: Any) -> bool:
        seen["named"] = {
            node["attrs"]["argName"]
            for node in json.loads(text)["nodes"]
            if node["op"] == "null" and node["attrs"].get("argName")
        }
        seen["values"] = dict(args)
        return True

    register("named", Strategy("all", lambda _text, ids, _options: [-1] * len(ids), review))
    mod, params = relay.frontend.from_onnx(model, freeze_params=frozen)
    partition(mod, "named", params)
    assert seen["named"] == {"x", "fc.weight", "fc.bias"}
    for name, value in weights.items():
        np.testing.assert_array_equal(seen["values"][name], value)
