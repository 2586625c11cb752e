"""Imported networks go to Relax and back, compute what they should, and passes see all of them."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax

from compiler import relay
from compiler.relay import transform
from compiler.relay.nested_expressions import nested
from compiler.relay.op.raising import raisable
from compiler.relay.relay_to_relax import function_of
from compiler.relay.transform import base
from compiler.runtime import graph_executor
from tests.compiler.relay.importers.networks import NETWORKS
from tests.compiler.relay.importers.writers import IMPORTERS, onnx_model

NODE = helper.make_node
RNG = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) / 4).astype("float32")


W = {"w": weights(8, 8, 3, 3), "b": weights(8), "gamma": weights(8), "beta": weights(8)}
PAD = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def proto(nodes: list[onnx.NodeProto], shape: tuple[int, ...]) -> onnx.ModelProto:
    used = {name for node in nodes for name in node.input}
    initializers = {name: value for name, value in W.items() if name in used}
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in initializers.items()],
    )
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@functools.cache
def expected(network: str) -> tuple[np.ndarray, np.ndarray]:
    """An input, and what onnxruntime computes of it."""
    data = np.random.default_rng(1).normal(size=NETWORKS[network][1]).astype("float32")
    session = onnxruntime.InferenceSession(onnx_model(network).SerializeToString())
    return data, session.run(None, {"x": data})[0]


@pytest.mark.parametrize("importer", IMPORTERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_an_imported_network_computes_what_onnxruntime_does(importer: str, network: str) -> None:
    if importer in ("pytorch", "tflite"):
        pytest.importorskip({"pytorch": "torch"}.get(importer, importer))
    load, spelling = IMPORTERS[importer]
    data, wanted = expected(network)
    if data.ndim == 4:
        data = np.ascontiguousarray(data.transpose(["NCHW".index(c) for c in spelling.layout]))
    module = graph_executor.GraphModule(relay.build(load(network), "llvm")["default"](tvm.cpu()))
    module.run(x=data)
    np.testing.assert_allclose(module.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-5)


def written(mod: tvm.IRModule) -> str:
    """The text, with bindings in one order and without the number of inputs."""
    main = mod["main"]
    function = function_of(main.params, nested(main))
    return relay.astext(tvm.IRModule({"main": function}), show_meta_data=False)


@pytest.mark.parametrize("network", NETWORKS)
def test_its_way_to_relax_and_back_changes_nothing(network: str) -> None:
    mod = IMPORTERS["onnx"][0](network)
    plain = relay.to_relax(mod)
    assert all(str(op).startswith("relax.") for op in operators(plain))
    assert written(relay.from_relax(plain)) == written(relay.from_relax(relay.to_relax(mod)))


def operators(mod: tvm.IRModule) -> list[str]:
    found: list[str] = []

    class Visitor(relay.ExprVisitor):
        def visit_call(self, call: relax.Call) -> None:
            if isinstance(call.op, tvm.ir.Op):
                found.append(str(call.op.name))
            super().visit_call(call)

    Visitor().visit(mod["main"])
    return found


def test_batch_norms_fold_into_the_convolutions_before_them() -> None:
    model = proto(
        [
            NODE("Conv", ["x", "w"], ["c"], **PAD),
            NODE("BatchNormalization", ["c", "gamma", "beta", "b", "v"], ["n"]),
            NODE("Relu", ["n"], ["y"]),
        ],
        (1, 8, 4, 4),
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.abs(weights(8)) + 1, "v"))
    mod, _ = relay.frontend.from_onnx(model)
    steps = [transform.SimplifyInference(), transform.FoldConstant(), transform.FoldScaleAxis()]
    with tvm.transform.PassContext(opt_level=3):
        for step in [*steps, transform.FoldConstant()]:
            mod = step(mod)
    names = operators(mod)
    assert names.count("multiply") == 0 and names.count("nn.conv2d") == 1


def test_every_rule_has_a_relay_operator_and_names_a_relax_one() -> None:
    known = {str(name) for name in tvm.ir.Op.list_op_names()}
    names = [name for name in raisable() if not name.startswith("relay.")]
    assert len(names) > 80
    assert [name for name in names if f"relax.{name}" not in known] == []


def test_a_pass_names_once_what_it_does_not_see() -> None:
    model = proto([NODE("Round", ["x"], ["r"]), NODE("Relu", ["r"], ["y"])], (3, 4))
    mod, _ = relay.frontend.from_onnx(model)
    base._NAMED.discard("relax.round")
    with pytest.warns(UserWarning, match=r"SimplifyExpr sees Relay's .* stay .*: relax\.round$"):
        transform.SimplifyExpr()(mod)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        transform.FoldConstant()(mod)
