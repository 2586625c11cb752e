"""SymbolBlocks of models that MXNet 1.9 wrote."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as onp
import pytest

from compiler.errors import ArrayError, BlockArgumentError, BlockTypeError, FrontendError
from compiler.mxnet import deferred_compute, get_symbol, np, npx, set_variable
from compiler.mxnet import symbol as sym
from compiler.mxnet.gluon import HybridBlock, SymbolBlock
from compiler.mxnet.symbol import var

DATA = Path(__file__).parents[3] / "oracle" / "mxnet"
MODELS = ["b01_convnet", "b02_mlp", "b06_branches", "b07_embedding_scalars"]


def load(name):
    meta = json.loads((DATA / f"{name}.meta.json").read_text())
    arrays = onp.load(DATA / f"{name}_io.npz")
    inputs = {key[3:]: arrays[key] for key in arrays if key.startswith("in:")}
    outputs = [arrays[f"out:{i}"] for i in range(sum(k.startswith("out:") for k in arrays))]
    block = SymbolBlock.imports(
        DATA / f"{name}-symbol.json", list(inputs), DATA / f"{name}-0000.params"
    )
    return meta, block, [np.array(value) for value in inputs.values()], outputs


@pytest.mark.parametrize("name", MODELS)
def test_models_of_mxnet_are_imported_and_compute_its_numbers(name):
    _, block, inputs, outputs = load(name)
    result = block(*inputs)
    results = result if isinstance(result, list) else [result]
    for found, wanted in zip(results, outputs, strict=True):
        onp.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-4, atol=1e-5)


def test_hybridizing_keeps_the_symbol_and_changes_only_how_it_runs():
    _, block, inputs, outputs = load("b02_mlp")
    for flags in ({"static_alloc": True}, {"active": False}, {"forward_bulk_size": 2}):
        block.hybridize(**flags)
        onp.testing.assert_allclose(block(*inputs).asnumpy(), outputs[0], rtol=1e-4, atol=1e-5)


def test_inputs_that_do_not_fit_are_errors():
    _, block, inputs, _ = load("b02_mlp")
    with pytest.raises(BlockArgumentError, match="at least one array"):
        block(None)
    with pytest.raises(BlockArgumentError, match="structure"):
        block(inputs[0], inputs[0])
    block(*inputs)
    with pytest.raises(ArrayError, match="can't be compiled"):
        block(np.ones((1, 1)))
    with pytest.raises(FrontendError):
        SymbolBlock.imports(DATA / "nothing-symbol.json", "data")


def test_a_block_is_made_of_symbols():
    x = np.ones((2, 3))
    set_variable(x, var("x"))
    with deferred_compute():
        y = np.exp(x)
        z = y * 2
    block = SymbolBlock([get_symbol(y), get_symbol(z)], var("x"))
    assert isinstance(block, HybridBlock)
    data = onp.full((2, 3), 0.5, "float32")
    first, second = block(np.array(data))
    onp.testing.assert_allclose(first.asnumpy(), onp.exp(data), rtol=1e-6)
    onp.testing.assert_allclose(second.asnumpy(), 2 * onp.exp(data), rtol=1e-6)
    with pytest.raises(BlockArgumentError, match="variables"):
        SymbolBlock(get_symbol(z), get_symbol(y))


class Around(HybridBlock):
    """A symbol block between operators of its own."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return npx.relu(self.inner(x * 1.0)) + 1


def test_a_symbol_block_becomes_part_of_the_block_around_it(tmp_path):
    _, inner, inputs, outputs = load("b02_mlp")
    wanted = onp.maximum(outputs[0], 0) + 1
    block = Around(inner)
    onp.testing.assert_allclose(block(*inputs).asnumpy(), wanted, rtol=1e-4, atol=1e-5)
    block.hybridize()
    onp.testing.assert_allclose(block(*inputs).asnumpy(), wanted, rtol=1e-4, atol=1e-5)
    names = block.export(None)[0].list_arguments()
    assert names[0] == "data" and all(name.startswith("inner.") for name in names[1:])
    block.optimize_for(*inputs, backend="default", op_names=["FullyConnected"])
    files = block.export(tmp_path / "around")
    again = SymbolBlock.imports(files[0], ["data"], files[1])
    onp.testing.assert_allclose(again(*inputs).asnumpy(), wanted, rtol=1e-4, atol=1e-5)
    onp.testing.assert_allclose(  # partitioned, and around it once more
        Around(again)(*inputs).asnumpy(), wanted + 1, rtol=1e-4, atol=1e-5
    )


def test_clear_goes_back_to_the_symbol_that_was_loaded():
    _, block, inputs, outputs = load("b02_mlp")

    def claimed():
        return sum(bool(node.subgraphs) for node in block.export(None)[0].graph.nodes)

    block.optimize_for(*inputs, backend="default", op_names=["FullyConnected"])
    before = claimed()
    block.hybridize()
    assert before == claimed() > 0
    block.optimize_for(*inputs, backend="default", op_names=["Activation"], clear=True)
    assert {
        node.op for each in block.export(None)[0].graph.nodes for graph in each.subgraphs
        for node in graph.nodes if not node.is_variable
    } == {"Activation"}  # fmt: skip
    onp.testing.assert_allclose(block(*inputs).asnumpy(), outputs[0], rtol=1e-4, atol=1e-5)
    block.optimize_for(*inputs, clear=True)
    assert claimed() == 0


def test_optimize_for_takes_variables_that_declare_their_shapes():
    x = var("x")
    block = SymbolBlock(sym.exp(x) * 2, x)
    block.optimize_for(var("x", shape=(2, 3), dtype="float32"), backend="default", op_names=["exp"])
    assert any(node.subgraphs for node in block.export(None)[0].graph.nodes)
    data = onp.full((2, 3), 0.5, "float32")
    onp.testing.assert_allclose(block(np.array(data)).asnumpy(), 2 * onp.exp(data), rtol=1e-6)
    with pytest.raises(BlockTypeError, match="shape is not known"):
        block.optimize_for(x, backend="default", op_names=["exp"])


def test_parameters_that_are_arrays_are_refused():
    x, w = var("x"), var("w")
    with pytest.raises(BlockTypeError, match=r"params\['w'\] is a ndarray, not a Parameter"):
        SymbolBlock(x * w, [x], params={"w": onp.ones(2, "float32")})
