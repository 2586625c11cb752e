"""Relay's tables of external compilers, on imported networks: regions counted by hand."""

from __future__ import annotations

import importlib
import logging
from collections import Counter
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm
import tvm_ffi
from tvm import relax

from compiler import legacy, relay
from compiler.errors import RelayError, UnsupportedRelayOperatorError
from compiler.relay import transform
from compiler.relay.op import contrib
from compiler.relay.op.contrib.tables import chain
from compiler.runtime import graph_executor
from tests.compiler.relay.importers.networks import NETWORKS
from tests.compiler.relay.importers.writers import IMPORTERS, built, onnx_model


def network(name: str) -> tvm.IRModule:
    return IMPORTERS["onnx"][0](name)


def regions(mod: tvm.IRModule) -> list[relax.Function]:
    return [
        function
        for _, function in mod.functions_items()
        if function.attrs is not None and "Compiler" in function.attrs
    ]


def composites(mod: tvm.IRModule) -> dict[str, int]:
    """How often each pattern of a table was found in the regions."""
    found: Counter[str] = Counter()

    def look(node: Any) -> None:
        if isinstance(node, relax.Function) and "Composite" in (node.attrs or {}):
            found[str(node.attrs["Composite"]).split(".", 1)[1]] += 1

    for function in regions(mod):
        relay.analysis.post_order_visit(function, look)
    return dict(found)


@pytest.mark.parametrize(
    ("library", "name", "count", "expected"),
    [
        (
            "dnnl",
            "residual",
            2,  # in front of the flattening, and behind it
            {"conv2d_bias_relu": 2, "conv2d_bias": 1, "conv2d_bias_sum_relu": 1, "dense_bias": 1},
        ),
        (
            "dnnl",
            "mobile",
            3,  # the layers, the last pool behind the concatenation, the classifier
            {
                "conv2d_bias_clip": 1,
                "conv2d_bias_sigmoid": 1,
                "conv2d_bias_sum": 1,
                "dense_bias": 1,
            },
        ),
        ("cudnn", "residual", 4, {"conv2d": 1, "conv2d_bias_act": 3}),
        ("cudnn", "transformer", 1, {"softmax": 1}),
        ("cublas", "transformer", 7, {"dense": 5, "batch_matmul": 2}),
        ("cutlass", "transformer", 7, {"dense": 5, "batch_matmul": 2}),
        ("cutlass", "residual", 1, {"dense_bias": 1}),
        ("bnns", "residual", 7, {"conv2d_bias": 2, "conv2d_bias_relu": 1}),
        (
            "clml",
            "residual",
            1,  # all but the scale of the image
            {
                "conv2d": 4,
                "max_pool2d": 1,
                "add": 1,
                "relu": 1,
                "global_avg_pool2d": 1,
                "batch_flatten": 1,
                "dense1d": 1,
            },
        ),
    ],
)
def test_a_library_gets_the_layers_that_its_table_names(
    library: str, name: str, count: int, expected: dict[str, int]
) -> None:
    mod = getattr(contrib, f"partition_for_{library}")(network(name))
    assert len(regions(mod)) == count
    assert composites(mod) == expected


def test_tensorrt_takes_whole_networks_and_puts_back_what_it_refuses() -> None:
    whole = contrib.partition_for_tensorrt(network("residual"))
    assert len(regions(whole)) == 1 and not relay.analysis.list_op_freqs(
        tvm.IRModule({"main": whole["main"]})
    )
    assert composites(whole)["nn.conv2d"] == 4
    explicit = {"use_implicit_batch": False, "tensorrt_version": (7, 0, 0)}
    one = contrib.partition_for_tensorrt(network("transformer"), target=explicit)
    assert "erf" in composites(one) and "erf" not in composites(
        contrib.partition_for_tensorrt(network("transformer"))
    )
    left = contrib.partition_for_tensorrt(
        network("transformer"), target={"remove_no_mac_subgraphs": True}
    )
    assert all({"nn.dense", "nn.batch_matmul"} & set(composites_of(f)) for f in regions(left))


def test_unpacking_a_partitioned_module_says_that_it_is_no_pair() -> None:
    with legacy.installed(), pytest.raises(TypeError, match="returns the module alone"):
        _mod, _config = contrib.partition_for_tensorrt(network("residual"))


def composites_of(function: relax.Function) -> dict[str, int]:
    return composites(tvm.IRModule({"region": function}))


def test_cutlass_takes_a_convolution_that_is_added_to_a_field_of_a_split() -> None:
    halves = relay.split(relay.var("x", shape=(1, 8, 8, 16), dtype="float16"), 2, axis=3)
    weight = relay.const(np.ones((8, 3, 3, 8), "float16"))
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    conv = relay.nn.conv2d(halves[0], weight, padding=(1, 1), out_dtype="float16", **layouts)
    biased = relay.nn.bias_add(conv, relay.const(np.ones(8, "float16")), axis=3)
    for block in (relay.add(halves[1], biased), relay.add(biased, halves[1])):
        whole = relay.Function(relay.analysis.free_vars(block), block)
        found = composites(contrib.partition_for_cutlass(tvm.IRModule.from_expr(whole)))
        assert found == {"conv2d_bias_residual_add": 1}


def test_arm_compute_library_takes_nhwc_layers() -> None:
    from tests.compiler.relay.importers.writers import TfliteSpelling

    mod = contrib.partition_for_arm_compute_lib(built("residual", TfliteSpelling))
    assert composites(mod) == {"conv2d": 4, "dense": 1}
    assert composites(contrib.partition_for_arm_compute_lib(network("residual"))) == {"dense": 1}


def test_core_ml_marks_single_operators() -> None:
    mod = transform.AnnotateTarget("coremlcompiler")(network("residual"))
    mod = transform.PartitionGraph()(transform.MergeCompilerRegions()(mod))
    counts = Counter(
        name
        for function in regions(mod)
        for name, times in relay.analysis.list_op_freqs(tvm.IRModule({"main": function})).items()
        for _ in range(times)
    )
    assert counts == {
        "multiply": 1,
        "nn.conv2d": 4,
        "nn.relu": 3,
        "add": 1,
        "nn.global_avg_pool2d": 1,
        "nn.batch_flatten": 1,
    }


def test_a_partitioned_network_computes_the_same_and_the_log_names_the_missing_compiler(
    caplog: Any,
) -> None:
    mod = contrib.partition_for_dnnl(network("residual"))
    with caplog.at_level(logging.WARNING):
        library = relay.build(mod, "llvm")
    assert "no code generator relay.ext.dnnl is registered: TVM compiles its 2" in caplog.text
    data = np.random.default_rng(0).normal(size=NETWORKS["residual"][1]).astype("float32")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=data)
    session = onnxruntime.InferenceSession(onnx_model("residual").SerializeToString())
    (expected,) = session.run(None, {"x": data})
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-5)


LIBRARIES = ("arm_compute_lib", "bnns", "clml", "cublas", "cudnn", "cutlass", "dnnl", "tensorrt")


def count_by_library(mod: tvm.IRModule) -> Counter[str]:
    return Counter(str(function.attrs["Compiler"]) for function in regions(mod))


@pytest.mark.parametrize("first", LIBRARIES)
def test_a_library_leaves_the_regions_of_the_one_before_and_marks_of_none(first: str) -> None:
    name = "transformer" if first == "cutlass" else "residual"
    mod = getattr(contrib, f"partition_for_{first}")(network(name))
    before = count_by_library(mod)
    for second in set(LIBRARIES) - {first}:
        partition = getattr(contrib, f"partition_for_{second}")
        both = partition(mod)
        assert count_by_library(both)[first] == before[first]
        if not before:
            assert count_by_library(both) == count_by_library(partition(network(name)))
        left = relay.astext(tvm.IRModule({"main": both["main"]}), show_meta_data=False)
        assert "annotation." not in left and "Composite=" not in left


def test_scripts_register_tables_and_ask_for_them() -> None:
    names = [row[0] for row in contrib.get_pattern_table("dnnl")]
    assert names.index("dnnl.conv2d_bias_relu") < names.index("dnnl.conv2d_relu")
    assert contrib.get_pattern_table("nobody") is None
    rows = [("mine.relu", chain("nn.relu"))]

    @contrib.register_pattern_table("mine_of_contrib")
    def table() -> list[Any]:
        return rows

    assert contrib.get_pattern_table("mine_of_contrib") is rows


def test_tables_that_are_not_data_and_chains_that_are_none_are_named() -> None:
    with pytest.raises(UnsupportedRelayOperatorError, match="partition_for_vitis_ai is not supp"):
        contrib.partition_for_vitis_ai  # noqa: B018
    with pytest.raises(RelayError, match=r"'nn\.relu\(' is not a step"):
        chain("nn.conv2d(c) nn.relu(")


@pytest.mark.parametrize(
    ("backend", "question"),
    [
        ("tensorrt", "is_tensorrt_runtime_enabled"),
        ("tensorrt", "is_tensorrt_compiler_enabled"),
        ("arm_compute_lib", "is_arm_compute_runtime_enabled"),
        ("clml", "is_clml_runtime_enabled"),
    ],
)
def test_a_back_end_is_enabled_where_its_code_generator_is_registered(
    backend: str, question: str
) -> None:
    module = importlib.import_module(f"compiler.relay.op.contrib.{backend}")
    assert not getattr(module, question)()
    name = f"relay.ext.{backend}"
    tvm.register_global_func(name, lambda function: None)
    try:
        assert getattr(module, question)()
    finally:
        tvm_ffi.registry.remove_global_func(name)
