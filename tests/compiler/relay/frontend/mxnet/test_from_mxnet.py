"""`from_mxnet` on models and traces of the real MXNet, with its numbers."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
import tvm

from compiler import legacy, relay
from compiler.errors import FrontendError, UnknownShapeError, UnsupportedOperatorError
from compiler.mxnet.symbol import Symbol, load_checkpoint
from compiler.relay.frontend import from_mxnet
from compiler.runtime import graph_executor

ORACLE = pathlib.Path(__file__).parents[4] / "oracle" / "mxnet"
MODELS = [
    *("b01_convnet", "b02_mlp", "b03_attention", "b04_resblock", "b05_mobile", "b06_branches"),
    "b07_embedding_scalars",
]


def run(symbol, inputs, args=None, aux=None):
    """Outputs of a symbol, imported and built."""
    shapes = {name: value.shape for name, value in inputs.items()}
    dtypes = {name: str(value.dtype) for name, value in inputs.items()}
    module, params = from_mxnet(symbol, shapes, dtypes, args, aux)
    library = relay.build(module, "llvm", params=params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    read = {param.name for param in module["main"].params}
    for name, value in inputs.items():
        if name in read:
            executor.set_input(name, value)
    executor.run()
    return [executor.get_output(index).numpy() for index in range(len(symbol))]


def check(found, expected):
    assert len(found) == len(expected)
    for got, want in zip(found, expected):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def arrays(path, prefix):
    with np.load(path) as values:
        return {key[len(prefix) :]: values[key] for key in sorted(values) if key.startswith(prefix)}


@pytest.mark.parametrize("model", MODELS)
def test_a_model_computes_what_mxnet_computed(model):
    symbol, args, aux = load_checkpoint(str(ORACLE / model), 0)
    io = ORACLE / f"{model}_io.npz"
    check(run(symbol, arrays(io, "in:"), args, aux), list(arrays(io, "out:").values()))


@pytest.mark.parametrize("spelling", ["attr", "param"])
def test_a_model_of_an_old_mxnet_computes_the_same(spelling):
    _, args, aux = load_checkpoint(str(ORACLE / "b01_convnet"), 0)
    symbol = Symbol.load(ORACLE / f"b01_convnet-legacy_{spelling}-symbol.json")
    io = ORACLE / "b01_convnet_io.npz"
    check(run(symbol, arrays(io, "in:"), args, aux), list(arrays(io, "out:").values()))


@pytest.mark.parametrize("case", ["a17_batchnorm_aux", "a28_attention"])
def test_subgraph_nodes_compute_what_their_bodies_do(case):
    record = json.loads((ORACLE / f"{case}.json").read_text())["runs"]["plain"]
    symbol = Symbol.loads(json.dumps(record["partitioned_symbol"]))
    inputs = arrays(ORACLE / f"{case}.npz", "in:")
    check(run(symbol, inputs), list(arrays(ORACLE / f"{case}.npz", "plain:").values()))


@pytest.mark.parametrize("case", ["c01_chain_scalars", "c03_indexing", "c15_block_bn"])
def test_a_trace_of_mxnet_2_computes_what_it_recorded(case):
    symbol = Symbol.loads(json.dumps(json.loads((ORACLE / f"{case}.json").read_text())["symbol"]))
    inputs = {**arrays(ORACLE / f"{case}.npz", "in:"), **arrays(ORACLE / f"{case}.npz", "param:")}
    inputs = {name: value for name, value in inputs.items() if name in symbol.list_inputs()}
    check(run(symbol, inputs), list(arrays(ORACLE / f"{case}.npz", "out:").values()))


def test_inputs_come_first_and_parameters_have_their_values():
    symbol, args, aux = load_checkpoint(str(ORACLE / "b01_convnet"), 0)
    module, params = from_mxnet(symbol, [(2, 3, 8, 8)], arg_params=args, aux_params=aux)
    names = [param.name for param in module["main"].params]
    assert names[0] == "data" and module["main"].attrs["num_input"] == 1
    assert set(names[1:]) == set(params)
    # The second batch norm has fix_gamma, so that nothing reads its gamma.
    assert {*args, *aux} - set(params) == {"s2_bn_gamma"}
    np.testing.assert_array_equal(params["fc_weight"].numpy(), args["fc_weight"])
    assert len(module["main"].body.blocks) == 1


def test_an_operator_without_a_conversion_is_refused_by_name():
    record = json.loads((ORACLE / "c_deferred" / "c18_block_foreach.json").read_text())["symbol"]
    symbol = Symbol.loads(json.dumps(record).replace('"_npi_add"', '"no_such_operator"'))
    with pytest.raises(UnsupportedOperatorError, match=r"no_such_operator \(node "):
        from_mxnet(symbol, {"data0": (3, 2), "data1": (2,)})


def test_a_shape_that_contradicts_a_parameter_is_refused():
    symbol, args, aux = load_checkpoint(str(ORACLE / "b02_mlp"), 0)
    with pytest.raises(FrontendError, match="fc1"):
        from_mxnet(symbol, {"data": (3, 9)}, arg_params=args, aux_params=aux)
    with pytest.raises(FrontendError, match="'fc1_bias' has the shape"):
        from_mxnet(symbol, {"data": (3, 7), "fc1_bias": (1,)}, arg_params=args)
    with pytest.raises(FrontendError, match="no input 'image'"):
        from_mxnet(symbol, {"image": (3, 7)}, arg_params=args)
    with pytest.raises(UnknownShapeError, match="'data'"):
        from_mxnet(symbol, arg_params=args)


def test_a_shape_of_no_input_is_ignored_for_old_scripts(caplog):
    symbol, args, aux = load_checkpoint(str(ORACLE / "b02_mlp"), 0)
    with legacy.installed():
        shapes = {"data": (3, 7), "image": (1,)}
        module, _ = from_mxnet(symbol, shapes, arg_params=args, aux_params=aux)
    assert "no input 'image'" in caplog.text
    assert [int(each) for each in module["main"].params[0].ty.shape] == [3, 7]
