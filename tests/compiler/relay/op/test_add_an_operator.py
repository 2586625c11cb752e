"""Every tool and pass knows an operator added as docs/add_an_operator.md describes."""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.backends.onnx_export import why_inexpressible
from compiler.ir import op_facts
from compiler.ir.constants import array_of, dtype_of, static_shape
from compiler.ir.convert_layout import convert_layout
from compiler.ir.fold_constants import value_of
from compiler.ir.rewrite import expressions_in, operator_name
from compiler.lowering.graph_passes.batch_provenance import provenance
from compiler.lowering.graph_passes.fp32_accumulation import widen_halves
from compiler.lowering.selection.layout_rules import layout_rule
from compiler.relay import analysis, transform
from compiler.relay.dataflow_pattern import is_op, wildcard
from compiler.relay.nested_expressions import nested, post_order
from compiler.relay.op import registry
from compiler.relay.type_infer import infer_type
from compiler.runtime import graph_executor
from compiler.support import source_fingerprint

NAME = "nn.nonpositive"
KERNEL = f"relay.{NAME}"
DOCUMENT = Path(__file__).parents[4] / "docs" / "add_an_operator.md"


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module that the document's code makes; its operator goes again afterwards."""
    registry.names()
    found = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None and NAME not in registry.names()
    path = tmp_path_factory.mktemp("added") / "nonpositive.py"
    path.write_text(found.group(1), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("added_nonpositive", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["added_nonpositive"] = module
    spec.loader.exec_module(module)
    yield module
    del registry.OPERATORS[NAME], registry._BUILDERS[NAME]
    op_facts.withdraw(KERNEL)
    del source_fingerprint.MODULES[KERNEL]  # builds with a foreign operator keep no library
    del sys.modules["added_nonpositive"]


@pytest.fixture
def mod(added: Any) -> tvm.IRModule:
    """conv2d, nonpositive, conv2d."""
    x, w = relay.var("x", shape=(1, 4, 6, 6)), relay.var("w", shape=(4, 4, 3, 3))
    y = relay.nn.conv2d(x, w, padding=(1, 1), channels=4, kernel_size=(3, 3))
    y = relay.nn.nonpositive(y)
    y = relay.nn.conv2d(y, w, padding=(1, 1), channels=4, kernel_size=(3, 3))
    return tvm.IRModule.from_expr(relay.Function([x, w], y))


def calls(mod: tvm.IRModule, name: str = NAME) -> list[relax.Call]:
    body = nested(mod["main"])
    return [
        node
        for node in post_order(body)
        if isinstance(node, relax.Call) and getattr(node.op, "name", "") == name
    ]


def test_builder_types_and_registry_know_it(added: Any, mod: tvm.IRModule) -> None:
    assert relay.nn.nonpositive is added.nonpositive and "nonpositive" in dir(relay.op.nn)
    assert relay.op.get(NAME).get_attr("TOpPattern") == relay.op.op.OpPattern.ELEMWISE
    (call,) = calls(transform.InferType()(mod))
    assert [int(extent) for extent in call.ty.shape.values] == [1, 4, 6, 6]


def test_text_and_json_know_it(mod: tvm.IRModule) -> None:
    text = relay.astext(mod)
    assert "nn.nonpositive(%0)" in text
    for again in (relay.fromtext(text), tvm.ir.load_json(tvm.ir.save_json(mod))):
        assert relay.astext(again) == text and len(calls(again)) == 1


def test_passes_know_it(mod: tvm.IRModule) -> None:
    fused = transform.FuseOps(fuse_opt_level=2)(mod)
    kernels = [node.op for node in post_order(nested(fused["main"])) if hasattr(node, "op")]
    assert len(kernels) == 2  # conv2d with nonpositive, conv2d

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (call,) = calls(transform.ToMixedPrecision("float16", missing_op_mode=0)(mod))
    assert str(call.ty.dtype) == "float16"

    converted = transform.ConvertLayout({"nn.conv2d": ["NHWC", "HWIO"]})(mod)
    (call,) = calls(converted)
    assert [int(extent) for extent in call.ty.shape.values] == [1, 6, 6, 4]
    data_moves = [c for c in calls(converted, "layout_transform") if c.ty.shape.values[0] == 1]
    assert len(data_moves) == 2  # of the input and of the result, none around the nonpositive


def test_analyses_and_patterns_know_it(mod: tvm.IRModule) -> None:
    assert analysis.list_op_freqs(mod) == {"nn.conv2d": 2, NAME: 1}
    pattern = is_op(NAME)(is_op("nn.conv2d")(wildcard(), wildcard()))
    partitioned = tvm.transform.Sequential(
        [
            transform.MergeComposite([("mine.conv_nonpositive", pattern)]),
            transform.AnnotateTarget("mine"),
            transform.MergeCompilerRegions(),
            transform.PartitionGraph(),
        ]
    )(mod)
    assert len(partitioned.get_global_vars()) == 2


def test_lowering_and_raising_keep_it(mod: tvm.IRModule) -> None:
    lowered = relay.to_relax(mod)
    assert not calls(lowered)
    assert len(calls(relay.from_relax(lowered))) == 1


def test_it_builds_and_runs(added: Any) -> None:
    x = relay.var("x", shape=(2, 3))
    function = relay.Function([x], relay.nn.nonpositive(x))
    lib = relay.build(tvm.IRModule.from_expr(function), "llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    data = np.linspace(-2, 2, 6, dtype="float32").reshape(2, 3)
    module.run(x=data)
    np.testing.assert_array_equal(module.get_output(0).numpy(), np.minimum(data, 0))


def test_fake_quantization_computes_it_on_integers(added: Any) -> None:
    x = relay.var("x", shape=(2, 3), dtype="int8")
    scale, zero = relay.const(0.5), relay.const(3)
    y = relay.nn.nonpositive(relay.qnn.op.dequantize(x, scale, zero))
    quantized = relay.qnn.op.quantize(y, scale, zero)
    mod = tvm.IRModule.from_expr(relay.Function([x], quantized))
    integers = transform.FakeQuantizationToInteger()(transform.InferType()(mod))
    assert not calls(integers) and len(calls(integers, "minimum")) == 1


def test_onnx_importer_and_exporter_know_it(added: Any) -> None:
    node = onnx.helper.make_node("Nonpositive", ["x"], ["y"], domain="com.example")
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "xy"
    )
    graph = onnx.helper.make_graph([node], "main", [x], [y])
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("com.example", 1)]
    mod, _ = relay.frontend.from_onnx(onnx.helper.make_model(graph, opset_imports=opsets))
    assert len(calls(mod)) == 1
    assert not why_inexpressible(KERNEL, {})


# --- passes over Relax functions ----------------------------------------------------------


def relax_module(dtype: str = "float32") -> tvm.IRModule:
    """conv2d, the operator, conv2d, over NHWC."""
    x = relax.Var("x", relax.TensorType((2, 6, 6, 16), dtype))
    weight = relax.const(np.ones((3, 3, 16, 16), dtype))

    def convolution(data: relax.Expr) -> relax.Expr:
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        return relax.op.nn.conv2d(data, weight, padding=(1, 1), **layouts)

    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(convolution(x))
            y = builder.emit(op_facts.facts_named(KERNEL).call([y]))
            result = builder.emit_output(convolution(y))
        builder.emit_func_output(result)
    return builder.get()


def kernel_calls(mod: tvm.IRModule, name: str = KERNEL) -> list[relax.Call]:
    return [each for each in expressions_in(mod["main"], relax.Call) if operator_name(each) == name]


def test_layout_conversion_moves_no_data_around_it(added: Any) -> None:
    converted = convert_layout(relax_module(), "main")
    (call,) = kernel_calls(converted)
    assert static_shape(call) == (2, 16, 6, 6)
    assert len(kernel_calls(converted, "permute_dims")) == 2  # of the input and of the result


def test_blocked_layouts_pass_through_it(added: Any) -> None:
    (call,) = kernel_calls(relax_module())
    assert layout_rule(call) is not None


def test_batch_provenance_follows_it(added: Any) -> None:
    mod = convert_layout(relax_module(), "main")
    bindings = [each for block in mod["main"].body.blocks for each in block.bindings]
    convolutions = [each.var for each in bindings if operator_name(each.value) == "nn.conv2d"]
    may_pair = provenance(mod).rows_share_sample(mod["main"], "main")
    assert len(convolutions) == 2 and all(map(may_pair, convolutions))


def test_half_precision_follows_float32_neighbors(added: Any) -> None:
    widened = widen_halves(relax_module("float16"), "main")
    (call,) = kernel_calls(widened)
    assert dtype_of(call) == "float32"


def test_constants_of_it_are_folded_with_numpy(added: Any) -> None:
    data = np.array([-1.0, 2.0], "float32")
    folded = value_of(infer_type(op_facts.facts_named(KERNEL).call([relax.const(data)])))
    np.testing.assert_array_equal(array_of(folded), [-1.0, 0.0])


def test_magnitude_of_quantized_results_is_known(added: Any) -> None:
    facts = op_facts.facts_named(KERNEL)
    assert facts.bounded and facts.is_elementwise
