"""Symbol files: what is read, listed, cut and written."""

from __future__ import annotations

import json

import numpy as np
import pytest

from compiler import mxnet as mx
from compiler.errors import FrontendError, UnknownShapeError
from compiler.mxnet.symbol import Symbol, load_checkpoint
from compiler.mxnet_format.operators import is_call

MODELS = [
    *("b01_convnet", "b02_mlp", "b03_attention", "b04_resblock", "b05_mobile", "b06_branches"),
    "b07_embedding_scalars",
]


def graph_json(nodes, heads, **rest):
    """A symbol file with these nodes."""
    variables = [i for i, node in enumerate(nodes) if node["op"] == "null"]
    return json.dumps({"nodes": nodes, "arg_nodes": variables, "heads": heads, **rest})


def variable(name, **attrs):
    return {"op": "null", "name": name, "inputs": [], "attrs": attrs}


@pytest.mark.parametrize("model", MODELS)
def test_a_saved_symbol_equals_the_file_that_mxnet_wrote(model, oracle, tmp_path):
    symbol = Symbol.load(oracle / f"{model}-symbol.json")
    symbol.save(tmp_path / "saved.json")
    assert json.loads((tmp_path / "saved.json").read_text()) == json.loads(
        (oracle / f"{model}-symbol.json").read_text()
    )


@pytest.mark.parametrize("model", MODELS)
def test_internals_are_named_as_in_mxnet(model, oracle):
    symbol = Symbol.load(oracle / f"{model}-symbol.json")
    with np.load(oracle / f"{model}_io.npz") as values:
        expected = {key[4:] for key in values if key.startswith("int:")}
    names = set(symbol.get_internals().list_outputs()) - set(symbol.list_inputs())
    assert names == expected


@pytest.mark.parametrize("case", ["a17_batchnorm_aux", "a22_residual_pool_outside"])
@pytest.mark.parametrize("run", ["plain", "dedup"])
def test_a_partitioned_symbol_keeps_its_subgraphs_and_lists(case, run, oracle):
    record = json.loads((oracle / f"{case}.json").read_text())["runs"][run]
    symbol = Symbol.loads(json.dumps(record["partitioned_symbol"]))
    assert json.loads(symbol.tojson())["nodes"] == record["partitioned_symbol"]["nodes"]
    assert symbol.list_arguments() == record["list_arguments"]
    assert symbol.list_auxiliary_states() == record["list_auxiliary_states"]
    assert symbol.list_outputs() == record["list_outputs"]


def test_a_control_flow_node_keeps_its_body(oracle):
    record = json.loads((oracle / "c_deferred" / "c18_block_foreach.json").read_text())["symbol"]
    assert json.loads(Symbol.loads(json.dumps(record)).tojson())["nodes"] == record["nodes"]


@pytest.mark.parametrize("spelling", ["attr", "param"])
def test_old_spellings_are_read_as_the_new_one(spelling, oracle):
    old = Symbol.load(oracle / f"b01_convnet-legacy_{spelling}-symbol.json")
    new = Symbol.load(oracle / "b01_convnet-symbol.json")
    assert old.list_arguments() == new.list_arguments()
    assert old.list_auxiliary_states() == new.list_auxiliary_states()
    assert old.get_internals()["s1_conv_output"].attr("kernel") == "(3, 3)"
    assert Symbol.loads(old.tojson()).tojson() == old.tojson()


def test_an_annotation_of_an_operator_moves_to_the_variable_it_is_meant_for():
    nodes = [
        variable("x"),
        variable("w"),
        {
            "op": "FullyConnected",
            "name": "fc",
            "inputs": [[0, 0], [1, 0]],
            "attr": {"num_hidden": "2", "no_bias": "True", "weight_lr_mult": "3"},
        },
    ]
    symbol = Symbol.loads(graph_json(nodes, [[2, 0]]))
    assert symbol.attr_dict()["w"] == {"__lr_mult__": "3"}
    assert symbol.attr("num_hidden") == "2"


def test_argmin_of_before_0_9_5_runs_over_all_elements():
    node = {"op": "argmin", "name": "m", "inputs": [[0, 0, 0]], "attrs": {"axis": "-1"}}
    old = graph_json([variable("x"), node], [[1, 0, 0]], attrs={"mxnet_version": ["int", 904]})
    new = graph_json([variable("x"), node], [[1, 0, 0]], attrs={"mxnet_version": ["int", 10000]})
    assert Symbol.loads(old).attr("axis") is None
    assert Symbol.loads(new).attr("axis") == "-1"


def test_outputs_are_taken_by_position_and_by_name(oracle):
    symbol = Symbol.load(oracle / "b06_branches-symbol.json")
    assert symbol.list_outputs() == ["mean_output", "mx_output"]
    assert symbol["mx_output"].list_outputs() == symbol[1].list_outputs() == ["mx_output"]
    assert len(list(symbol)) == 2
    with pytest.raises(KeyError, match="no output named 'nothing'"):
        symbol["nothing"]
    with pytest.raises(IndexError):
        symbol[2]


def test_an_internal_output_needs_only_what_is_before_it(oracle):
    symbol = Symbol.load(oracle / "b02_mlp-symbol.json")
    assert symbol.get_internals()["fc1_output"].list_inputs() == ["data", "fc1_weight", "fc1_bias"]


def test_nodes_may_be_listed_in_any_order():
    nodes = [{"op": "exp", "name": "e", "inputs": [[1, 0, 0]]}, variable("x")]
    symbol = Symbol.loads(graph_json(nodes, [[0, 0, 0]]))
    assert [node.name for node in symbol.graph.nodes] == ["x", "e"]


@pytest.mark.parametrize("model", MODELS)
def test_shapes_of_all_parameters_follow_from_the_data(model, oracle):
    symbol, args, aux = load_checkpoint(str(oracle / model), 0)
    with np.load(oracle / f"{model}_io.npz") as values:
        given = {k[3:]: values[k].shape for k in values if k.startswith("in:")}
        results = [values[f"out:{i}"].shape for i in range(len(symbol))]
    found_args, found_outputs, found_aux = symbol.infer_shape(**given)
    shapes = dict(zip(symbol.list_arguments(), found_args))
    shapes.update(zip(symbol.list_auxiliary_states(), found_aux))
    assert {name: shapes[name] for name in {**args, **aux}} == {
        name: array.shape for name, array in {**args, **aux}.items()
    }
    assert found_outputs == results


def test_a_shape_that_follows_from_nothing_is_asked_for(oracle):
    symbol = Symbol.load(oracle / "b02_mlp-symbol.json")
    with pytest.raises(UnknownShapeError, match="'data'"):
        symbol.infer_shape()


@pytest.mark.parametrize(
    ("names", "subgraphs"),
    [([], 0), (["sin"], 1), (["Convolution"], 1), (["sin", "Convolution"], 1)],
    ids=str,
)
def test_a_shape_follows_back_through_an_elementwise_operator(names, subgraphs):
    weight = mx.sym.sin(mx.sym.var("weight"))
    data = mx.sym.var("data", shape=(3, 3, 10, 10))
    net = mx.sym.Convolution(data=data, weight=weight, kernel=(2, 2), num_filter=4, no_bias=True)
    found = net.optimize_for("default", op_names=names)
    assert sum(map(is_call, found.graph.nodes)) == subgraphs
    assert found.infer_shape() == ([(3, 3, 10, 10), (4, 3, 2, 2)], [(3, 4, 9, 9)], [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("[" * 5000, "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"nodes": [], "arg_nodes": [], "heads": []}', "no outputs"),
        (graph_json([variable("x", k="v")], [[1, 0, 0]]), "refers to node 1"),
        (graph_json([variable("x")], [[0, 3, 0]]), "reads output 3"),
        (graph_json([variable("x")], [[0, 0, 0, 0]]), "triple"),
        (graph_json([variable("x")], [[0, 0, 0]], extra=1), "unknown key 'extra'"),
        (graph_json([variable("x", k=1)], [[0, 0, 0]]), "is not a string"),
        (
            graph_json([{"op": "exp", "name": "e", "inputs": [[0, 0, 0]]}], [[0, 0, 0]]),
            "cycle: node 'e'",
        ),
        (graph_json([variable("x")], [[0, 0, 0]], node_row_ptr=[0]), "node_row_ptr"),
        (graph_json([variable("x")], [[0, 0, 0]], attrs={"v": ["float", 1]}), "type 'float'"),
    ],
)
def test_a_damaged_symbol_is_one_clear_error(text, message):
    with pytest.raises(FrontendError, match=message):
        Symbol.loads(text)


def test_an_output_that_a_subgraph_does_not_have_is_refused():
    body = json.loads(graph_json([variable("a")], [[0, 0, 0]]))
    call = {"op": "_CachedOp", "name": "call", "inputs": [[0, 0, 0]], "subgraphs": [body]}
    with pytest.raises(FrontendError, match="reads output 1 of node 'call', which has 1"):
        Symbol.loads(graph_json([variable("x"), call], [[1, 1, 0]]))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FrontendError, match=r"nothing\.json"):
        Symbol.load(tmp_path / "nothing.json")


def test_a_variable_that_a_subgraph_takes_in_vain_needs_a_shape_of_its_own():
    body = json.loads(graph_json([variable("a"), variable("b")], [[0, 0, 0]]))
    call = {"op": "_CachedOp", "name": "call", "inputs": [[0, 0, 0], [1, 0, 0]]}
    nodes = [variable("data"), variable("unread"), {**call, "subgraphs": [body]}]
    symbol = Symbol.loads(graph_json(nodes, [[2, 0, 0]]))
    with pytest.raises(UnknownShapeError, match="'unread'"):
        symbol.infer_shape(data=(2, 3))
    assert symbol.infer_shape(data=(2, 3), unread=(5,)) == ([(2, 3), (5,)], [(2, 3)], [])
