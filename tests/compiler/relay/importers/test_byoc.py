"""The BYOC flow of old scripts on imported networks: regions counted by hand, right results."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import tvm
import tvm_ffi
from tvm import relax, te

from compiler import relay
from compiler.relay.op.contrib.tables import chain, shape
from scripts.conformance.byoc import (
    OnnxGraph,
    block_table,
    composites,
    layer_table,
    partitioned,
    regions,
    run,
)
from tests.compiler.relay.importers.networks import NETWORKS
from tests.compiler.relay.importers.writers import IMPORTERS, onnx_model

LAYERS = {
    "residual": {"conv_act": 2, "conv": 2, "dense_bias": 1},
    "mobile": {"conv_act": 1, "conv": 2, "dense_bias": 1},
    "transformer": {"dense_bias_gelu": 1, "dense_bias": 1},
}
BLOCKS = {"residual": {"basic_block": 1}, "mobile": {}, "transformer": {"feed_forward": 1}}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("importer", ["onnx", "mxnet"])
def test_tables_find_the_layers_that_the_graph_has(importer: str, network: str) -> None:
    mod = IMPORTERS[importer][0](network)
    layers = LAYERS[network]
    assert composites(partitioned(mod, layer_table())) == layers
    if importer == "onnx":
        assert composites(partitioned(mod, block_table())) == BLOCKS[network]


def test_layers_are_counted_in_onnx_graphs_alike() -> None:
    for network, layers in LAYERS.items():
        graph = OnnxGraph(onnx_model(network))
        assert graph.layers() == layers
        assert graph.blocks() == BLOCKS[network]


@pytest.mark.parametrize("network", NETWORKS)
def test_a_partitioned_network_computes_what_onnxruntime_does(network: str) -> None:
    parts = partitioned(IMPORTERS["onnx"][0](network), layer_table())
    data, expected = expected_of(network)
    result = run(relay.build(parts, "llvm"), {"x": data})
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def expected_of(network: str) -> tuple[np.ndarray, np.ndarray]:
    data = np.random.default_rng(1).normal(size=NETWORKS[network][1]).astype("float32")
    session = onnxruntime.InferenceSession(onnx_model(network).SerializeToString())
    return data, session.run(None, {"x": data})[0]


def test_a_code_generator_compiles_a_region_of_an_imported_network() -> None:
    seen: list[relax.Function] = []

    def generate(function: relax.Function) -> tvm.runtime.Module:
        seen.append(function)
        left, right = (te.placeholder(shape(each), name=each.name) for each in function.params)
        made = te.compute(left.shape, lambda *at: te.max(left(*at) + right(*at), 0.0))
        symbol = str(function.attrs["global_symbol"])
        kernel = te.create_prim_func([left, right, made]).with_attr("global_symbol", symbol)
        return tvm.compile(kernel, "llvm").mod

    tvm.register_global_func("relay.ext.counted", generate, override=True)
    try:
        table = [("counted.sum_relu", chain("add(_) nn.relu"), of_one_shape)]
        parts = partitioned(IMPORTERS["onnx"][0]("residual"), table)
        assert len(regions(parts)) == 1
        data, expected = expected_of("residual")
        result = run(relay.build(parts, "llvm"), {"x": data})
    finally:
        tvm_ffi.registry.remove_global_func("relay.ext.counted")
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    (function,) = seen
    (composite,) = [node.op for node in calls_of(function) if isinstance(node.op, relax.Function)]
    assert str(composite.attrs["Composite"]) == "counted.sum_relu"


def of_one_shape(root: relax.Call) -> bool:
    """Whether a sum is one of images: not that of a batch norm's shift."""
    left, right = root.args[0].args
    return shape(left) == shape(right)


def calls_of(function: relax.Function) -> list[relax.Call]:
    found: list[relax.Call] = []
    relay.analysis.post_order_visit(
        function, lambda node: found.append(node) if isinstance(node, relax.Call) else None
    )
    return found
