"""Imported networks are what the same networks written with the builder are, for every tool."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax

from compiler import relay
from compiler.relay import analysis, transform
from compiler.relay.dataflow_pattern import is_constant, is_op, wildcard
from compiler.relay.flatten import function_of
from compiler.relay.nest import nested
from compiler.relay.op.raising import raisable
from compiler.relay.transform import base
from compiler.runtime import graph_executor

NODE = helper.make_node
RNG = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) / 4).astype("float32")


W = {
    "w1": weights(8, 4, 3, 3),
    "b1": weights(8),
    "w2": weights(8, 8, 3, 3),
    "b2": weights(8),
    "wd": weights(8, 1, 3, 3),
    "fc": weights(5, 8),
    "fcb": weights(5),
    "q": weights(8, 8),
    "up": weights(8, 16),
    "upb": weights(16),
    "gamma": weights(8),
    "beta": weights(8),
}
PAD = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def proto(
    nodes: list[onnx.NodeProto], shape: tuple[int, ...], **shapes: list[int]
) -> onnx.ModelProto:
    used = {name for node in nodes for name in node.input}
    initializers = {name: value for name, value in W.items() if name in used}
    initializers |= {name: np.array(value, "int64") for name, value in shapes.items()}
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in initializers.items()],
    )
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def residual_network() -> onnx.ModelProto:
    nodes = [
        NODE("Conv", ["x", "w1", "b1"], ["c1"], **PAD),
        NODE("Relu", ["c1"], ["r1"]),
        NODE("Conv", ["r1", "w2", "b2"], ["c2"], **PAD),
        NODE("Add", ["c2", "r1"], ["s"]),
        NODE("Relu", ["s"], ["r2"]),
        NODE("GlobalAveragePool", ["r2"], ["g"]),
        NODE("Flatten", ["g"], ["f"]),
        NODE("Gemm", ["f", "fc", "fcb"], ["y"], transB=1),
    ]
    return proto(nodes, (1, 4, 8, 8))


def residual_network_of_the_builder(c: dict[str, relax.Expr]) -> relax.Expr:
    x = relay.var("x", shape=(1, 4, 8, 8))
    conv = {"kernel_size": (3, 3), "channels": 8, "padding": (1, 1)}
    r1 = relay.nn.relu(relay.nn.bias_add(relay.nn.conv2d(x, c["w1"], **conv), c["b1"]))
    c2 = relay.nn.bias_add(relay.nn.conv2d(r1, c["w2"], **conv), c["b2"])
    pooled = relay.nn.global_avg_pool2d(relay.nn.relu(relay.add(c2, r1)))
    flat = relay.reshape(pooled, (1, 8))
    return relay.Function([x], relay.nn.bias_add(relay.nn.dense(flat, c["fc"], units=5), c["fcb"]))


def mobile_network() -> onnx.ModelProto:
    nodes = [
        NODE("Conv", ["x", "wd"], ["d"], group=8, **PAD),
        NODE("Clip", ["d", "low", "high"], ["k"]),
        NODE("Conv", ["k", "w2", "b2"], ["c"], **PAD),
        NODE("Add", ["c", "x"], ["y"]),
    ]
    model = proto(nodes, (1, 8, 6, 6))
    for name, value in (("low", 0.0), ("high", 6.0)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(value), name))
    return model


def mobile_network_of_the_builder(c: dict[str, relax.Expr]) -> relax.Expr:
    x = relay.var("x", shape=(1, 8, 6, 6))
    conv = {"kernel_size": (3, 3), "channels": 8, "padding": (1, 1)}
    depthwise = relay.nn.conv2d(x, c["wd"], groups=8, **conv)
    inner = relay.nn.conv2d(relay.clip(depthwise, 0.0, 6.0), c["w2"], **conv)
    return relay.Function([x], relay.add(relay.nn.bias_add(inner, c["b2"]), x))


def transformer() -> onnx.ModelProto:
    nodes = [
        NODE("MatMul", ["x", "q"], ["p"]),
        NODE("Reshape", ["p", "heads"], ["h"]),
        NODE("Transpose", ["h"], ["a"], perm=[0, 2, 1, 3]),
        NODE("Transpose", ["h"], ["b"], perm=[0, 2, 3, 1]),
        NODE("MatMul", ["a", "b"], ["m"]),
        NODE("Softmax", ["m"], ["s"], axis=-1),
        NODE("MatMul", ["s", "a"], ["v"]),
        NODE("Transpose", ["v"], ["t"], perm=[0, 2, 1, 3]),
        NODE("Reshape", ["t", "rows"], ["r"]),
        NODE("Add", ["r", "x"], ["i"]),
        NODE("LayerNormalization", ["i", "gamma", "beta"], ["n"], axis=-1, epsilon=1e-5),
        NODE("MatMul", ["n", "up"], ["u"]),
        NODE("Add", ["u", "upb"], ["ub"]),
        NODE("Gelu", ["ub"], ["y"]),
    ]
    return proto(nodes, (2, 3, 8), heads=[2, 3, 2, 4], rows=[2, 3, 8])


def transformer_of_the_builder(c: dict[str, relax.Expr]) -> relax.Expr:
    x = relay.var("x", shape=(2, 3, 8))

    def dense(data: relax.Expr, weight: relax.Expr, units: int) -> relax.Expr:
        flat = relay.reshape(data, (6, 8))
        made = relay.nn.dense(flat, relay.transpose(weight, [1, 0]), units=units)
        return relay.reshape(made, (2, 3, units))

    def batched(left: relax.Expr, right: relax.Expr, shape: tuple[int, ...]) -> relax.Expr:
        (a, b, m, k), n = (int(v) for v in left.ty.shape.values), shape[-1]
        flat = relay.reshape(left, (a * b, m, k))
        other = relay.transpose(relay.reshape(right, (a * b, k, n)), [0, 2, 1])
        return relay.reshape(relay.nn.batch_matmul(flat, other), shape)

    heads = relay.reshape(dense(x, c["q"], 8), (2, 3, 2, 4))
    a = relay.transpose(heads, [0, 2, 1, 3])
    scores = relay.nn.softmax(
        batched(a, relay.transpose(heads, [0, 2, 3, 1]), (2, 2, 3, 3)), axis=-1
    )
    mixed = relay.transpose(batched(scores, a, (2, 2, 3, 4)), [0, 2, 1, 3])
    inner = relay.add(relay.reshape(mixed, (2, 3, 8)), x)
    normal = relay.nn.layer_norm(
        inner, c["gamma"], c["beta"], axis=-1, epsilon=float(np.float32(1e-5))
    )
    up = relay.add(dense(normal, c["up"], 16), c["upb"])
    curve = relay.erf(relay.divide(up, relay.const(np.float32(np.sqrt(2)))))
    curve = relay.add(curve, relay.const(np.float32(1)))
    return relay.Function(
        [x], relay.multiply(relay.multiply(up, curve), relay.const(np.float32(0.5)))
    )


NETWORKS = {
    "residual": (residual_network, residual_network_of_the_builder),
    "mobile": (mobile_network, mobile_network_of_the_builder),
    "transformer": (transformer, transformer_of_the_builder),
}


def imported(name: str) -> tvm.IRModule:
    return relay.frontend.from_onnx(NETWORKS[name][0]())[0]


def build_and_run(mod: tvm.IRModule, data: np.ndarray) -> np.ndarray:
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.set_input("x", data)
    module.run()
    return module.get_output(0).numpy()


def input_and_reference(name: str) -> tuple[np.ndarray, np.ndarray]:
    model = NETWORKS[name][0]()
    shape = [each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim]
    data = np.random.default_rng(1).normal(size=shape).astype("float32")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return data, session.run(None, {"x": data})[0]


def written(mod: tvm.IRModule) -> str:
    """The text, with bindings in one order and without the number of inputs."""
    main = mod["main"]
    function = function_of(main.params, nested(main))
    return relay.astext(tvm.IRModule({"main": function}), show_meta_data=False)


@pytest.mark.parametrize("name", NETWORKS)
def test_an_imported_network_reads_as_the_builders(name: str) -> None:
    constants = {key: relay.const(value) for key, value in W.items()}
    builder = tvm.IRModule({"main": NETWORKS[name][1](constants)})
    assert written(imported(name)) == written(builder)


@pytest.mark.parametrize("name", NETWORKS)
def test_its_way_to_relax_and_back_changes_nothing(name: str) -> None:
    mod = imported(name)
    plain = relay.to_relax(mod)
    assert all(str(op).startswith("relax.") for op in operators(plain))
    assert written(relay.from_relax(plain)) == written(relay.from_relax(relay.to_relax(mod)))
    data, expected = input_and_reference(name)
    np.testing.assert_allclose(build_and_run(mod, data), expected, rtol=1e-4, atol=1e-5)


def operators(mod: tvm.IRModule) -> list[str]:
    found: list[str] = []

    class Visitor(relay.ExprVisitor):
        def visit_call(self, call: relax.Call) -> None:
            if isinstance(call.op, tvm.ir.Op):
                found.append(str(call.op.name))
            super().visit_call(call)

    Visitor().visit(mod["main"])
    return found


def test_analyses_and_visitors_see_relays_operators() -> None:
    mod = imported("residual")
    frequencies = {str(k): int(v) for k, v in analysis.list_op_freqs(mod).items()}
    assert frequencies["nn.conv2d"] == 2 and frequencies["nn.bias_add"] == 3
    assert sorted(operators(mod)) == sorted(
        name for name, count in frequencies.items() for _ in range(count)
    )
    pixels, macs = 8 * 8, 8 * (4 + 8) * 9
    assert int(analysis.get_total_mac_number(mod["main"])) == pixels * macs + 5 * 8


def test_old_pattern_tables_find_their_regions_and_the_result_is_right() -> None:
    def with_bias(name: str, activation: str) -> object:
        product = is_op(name)(wildcard(), is_constant())
        biased = is_op("nn.bias_add")(product, is_constant())
        return is_op(activation)(biased) if activation else biased

    table = [
        ("my.conv2d_bias_relu", with_bias("nn.conv2d", "nn.relu")),
        ("my.dense_bias", with_bias("nn.dense", "")),
    ]
    mod = imported("residual")
    for step in (
        transform.MergeComposite(table),
        transform.AnnotateTarget("my"),
        transform.MergeCompilerRegions(),
        transform.PartitionGraph(),
    ):
        mod = step(mod)
    regions = [
        function
        for _, function in mod.functions_items()
        if function.attrs is not None and "Compiler" in function.attrs
    ]
    assert len(regions) == 2


def test_half_precision_reaches_the_products() -> None:
    mod = transform.ToMixedPrecision("float16")(imported("residual"))
    kinds = {
        str(node.ty.dtype)
        for node in nodes_of(mod)
        if isinstance(node.op, tvm.ir.Op) and str(node.op.name) in ("nn.conv2d", "nn.dense")
    }
    assert kinds == {"float16"}


def nodes_of(mod: tvm.IRModule) -> list[relax.Call]:
    found: list[relax.Call] = []
    relax.analysis.post_order_visit(
        mod["main"], lambda node: found.append(node) if isinstance(node, relax.Call) else None
    )
    return found


def test_batch_norms_fold_into_the_convolutions_before_them() -> None:
    model = proto(
        [
            NODE("Conv", ["x", "w2"], ["c"], **PAD),
            NODE("BatchNormalization", ["c", "gamma", "beta", "b1", "v"], ["n"]),
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
