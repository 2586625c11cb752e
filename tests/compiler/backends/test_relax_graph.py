"""What callbacks see of a Relax module."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from compiler.backends.relax_graph import RelaxGraph
from compiler.ir.dataflow_graph import RelaxFunction

from ..partition.conftest import random


@I.ir_module
class Network:
    @R.function
    def main(data: R.Tensor((1, 3, 8, 8), "float32"), weight: R.Tensor((4, 3, 3, 3), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            conv = R.nn.conv2d(data, weight, strides=[2, 2], padding=[1, 1, 1, 1])
            parts = R.split(conv, 2, axis=1)
            pair = (parts[1], parts[0])
            swapped = R.concat(pair, axis=1)
            shape = R.shape([1, 64])
            flat = R.reshape(swapped, shape)
            cut = R.strided_slice(flat, axes=[1], begin=[0], end=[8])
            half = R.astype(cut, "float16")
            bound = R.clip(half, 0, 6)
            R.output(bound, parts)
        return bound, parts


def nodes(mod: tvm.IRModule, params: Any = None) -> dict[str, dict[str, Any]]:
    graph = RelaxGraph(RelaxFunction(mod), params).graph
    loaded = json.loads(graph.to_json())
    names = [node["name"] for node in loaded["nodes"]]
    assert len(set(names)) == len(names)
    for index, node in enumerate(loaded["nodes"]):
        assert all(producer < index for producer, _, _ in node["inputs"])
        assert all(isinstance(value, str) for value in node["attrs"].values())
        node["inputs"] = [[names[producer], output] for producer, output, _ in node["inputs"]]
    found = {node["name"]: node for node in loaded["nodes"]}
    found["heads"] = {"list": [[names[i], output] for i, output, _ in loaded["heads"]]}
    return found


def test_operators_have_relax_names_without_prefix_and_their_parameters_as_strings() -> None:
    conv = nodes(Network)["conv"]
    assert conv["op"] == "nn.conv2d"
    assert conv["inputs"] == [["data", 0], ["weight", 0]]
    assert conv["attrs"] == {
        "strides": "[2, 2]",
        "padding": "[1, 1, 1, 1]",
        "dilation": "[1, 1]",
        "groups": "1",
        "data_layout": "NCHW",
        "kernel_layout": "OIHW",
        "out_layout": "NCHW",
        "out_dtype": "None",
        "shape": "[1, 4, 4, 4]",
        "dtype": "float32",
    }


def test_tuples_leave_no_node_and_inputs_name_the_output_they_read() -> None:
    found = nodes(Network)
    assert "pair" not in found
    assert found["swapped"]["inputs"] == [["parts", 1], ["parts", 0]]
    assert found["parts"]["attrs"]["shape"] == "[[1, 2, 4, 4], [1, 2, 4, 4]]"
    assert found["heads"]["list"] == [["bound", 0], ["parts", 0], ["parts", 1]]


def test_arguments_that_are_no_tensors_become_attributes() -> None:
    found = nodes(Network)
    assert found["flat"]["attrs"]["shape"] == "[1, 64]"
    assert found["flat"]["inputs"] == [["swapped", 0]]
    assert found["cut"]["attrs"]["begin"] == "[0]" and found["cut"]["attrs"]["end"] == "[8]"
    assert found["half"]["attrs"]["dtype"] == "float16"
    assert (found["bound"]["attrs"]["min"], found["bound"]["attrs"]["max"]) == ("0", "6")


def test_parameters_are_told_from_inputs() -> None:
    found = nodes(Network)
    assert found["data"]["attrs"]["param"] == "False"
    assert found["weight"]["attrs"]["param"] == "True"


def test_a_constant_used_twice_is_one_node_with_a_stable_name() -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    weight, other = relax.const(random((4,))), relax.const(random((4,), 1))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.add(x, weight))
            b = builder.emit(relax.op.multiply(a, other))
            out = builder.emit_output(relax.op.add(b, weight))
        builder.emit_func_output(out)
    source = RelaxGraph(RelaxFunction(builder.get()), None)
    variables = [node.name for node in source.graph.nodes if node.op == "null"]
    assert variables == ["x", "const_0", "const_1"]
    assert sorted(source.values) == ["const_0", "const_1"]
    np.testing.assert_array_equal(source.values["const_0"], weight.value.numpy())


def test_values_share_memory_with_constants_and_parameters() -> None:
    weight = tvm.runtime.tensor(random((4, 3, 3, 3)))
    value = RelaxGraph(RelaxFunction(Network), {"weight": weight, "absent": 3}).values["weight"]
    assert value.ctypes.data == np.from_dlpack(weight).ctypes.data
    assert not value.flags.writeable


def test_a_type_that_numpy_has_no_view_of_is_copied() -> None:
    x = relax.Var("x", relax.TensorType((4,), "bfloat16"))
    array = random((4,)).astype(ml_dtypes.bfloat16)
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.add(x, relax.const(tvm.runtime.tensor(array))))
        builder.emit_func_output(out)
    source = RelaxGraph(RelaxFunction(builder.get()), None)
    np.testing.assert_array_equal(source.values["const_0"], array)


def test_two_variables_of_one_name_get_different_node_names() -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    one = relax.DataflowVar("same", x.ty)
    two = relax.Var("same", x.ty)
    bindings = [
        relax.VarBinding(one, relax.BlockBuilder().normalize(relax.op.exp(x))),
        relax.VarBinding(two, relax.BlockBuilder().normalize(relax.op.log(one))),
    ]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], two)
    function = relax.Function([x], body, x.ty).with_attr("global_symbol", "main")
    found = nodes(tvm.IRModule({"main": function}))
    assert found["same_1"]["inputs"] == [["same", 0]]
