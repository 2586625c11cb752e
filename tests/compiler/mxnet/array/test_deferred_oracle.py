"""Traces of deferred compute against the symbols and numbers that the real MXNet made of them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as onp
import pytest

from compiler import partition
from compiler.errors import BlockError
from compiler.mxnet import deferred_compute, get_symbol, np, npx, set_variable
from compiler.mxnet.gluon import Constant, HybridBlock, Parameter, nn
from compiler.mxnet.symbol import Symbol, var

DATA = Path(__file__).parents[3] / "oracle" / "mxnet" / "c_deferred"


def read(case):
    meta = json.loads((DATA / f"{case}.json").read_text())
    symbol = meta["symbol"] if isinstance(meta["symbol"], str) else json.dumps(meta["symbol"])
    arrays = onp.load(DATA / f"{case}.npz")
    inputs = {k[3:]: arrays[k] for k in arrays if k.startswith("in:")}
    outputs = [arrays[f"out:{i}"] for i in range(sum(k.startswith("out:") for k in arrays))]
    params = {k[6:]: arrays[k] for k in arrays if k.startswith("param:")}
    return meta, Symbol.loads(symbol), inputs, outputs, params


def wiring(symbol):
    """Operators or variable names, and what each node reads; the same for equivalent symbols."""
    graph = symbol.graph
    nodes = [
        (node.name if node.is_variable else node.op, [(e.node, e.output) for e in node.inputs])
        for node in graph.nodes
    ]
    return nodes, [(h.node, h.output) for h in graph.heads]


def chain(x0):
    y = npx.relu(x0) * 2
    z = 3 - y
    return np.tanh(z) / 4 + x0


def diamond(x0, x1):
    a = x0 * x1
    return np.exp(a) + np.sin(a)


def indexing(x0):
    return [x0[1], x0[-1], x0[1:3], x0[::2], x0[:, 1], x0[1:3, -1]]


def subset(x0):
    parts = np.split(x0, 3, axis=1)
    return [parts[2], parts[0] + 1]


def repeated(x0):
    y = x0 + 1
    return [y, x0, y]


def constants_inside(x0):
    return x0 * np.ones(3) + np.arange(3)


def value_branch(x0):
    return x0 - 1 if x0.sum() > 100 else x0 * 10


def value_read(x0):
    y = x0 * 2
    return y + float(y.max())


def value_loop(x0):
    while x0.sum() < 20:
        x0 = x0 * 2
    return x0


BY_HAND = {
    "c01_chain_scalars": chain,
    "c02_diamond": diamond,
    "c03_indexing": indexing,
    "c04_multi_output_subset": subset,
    "c05_repeated_outputs": repeated,
    "c06_unused_input": lambda x0, x1=None: x0 + 1,
    "c07_constants_inside": constants_inside,
    "c08_value_branch": value_branch,
    "c09_value_read": value_read,
    "c10_value_loop": value_loop,
    "c11_shape_arithmetic": lambda x0: x0.reshape(x0.shape[1], x0.shape[0]) * len(x0),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_traces_made_by_hand_give_the_symbol_and_the_numbers_of_mxnet(case):
    _, expected, inputs, outputs, _ = read(case)
    arrays = [np.array(value) for value in inputs.values()]
    set_variable(arrays, [var(name) for name in inputs])
    with deferred_compute():
        result = BY_HAND[case](*arrays)
    results = result if isinstance(result, list) else [result]
    symbol = get_symbol(results)
    assert wiring(symbol) == wiring(expected)
    assert symbol.list_inputs() == expected.list_inputs()
    for found, wanted in zip(results, outputs, strict=True):
        onp.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-5, atol=1e-6)


def test_frozen_numbers_are_those_of_mxnet():
    _, expected, inputs, _, _ = read("c09_value_read")
    x = np.array(inputs["x0"])
    set_variable(x, var("x0"))
    with deferred_compute():
        symbol = get_symbol(value_read(x))
    found = [float(n.attrs["scalar"]) for n in symbol.graph.nodes if "scalar" in n.attrs]
    wanted = [float(n.attrs["scalar"]) for n in expected.graph.nodes if "scalar" in n.attrs]
    assert found == wanted


class Mlp(HybridBlock):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(4, activation="relu")
        self.fc2 = nn.Dense(2, use_bias=False)

    def forward(self, x):
        return self.fc2(self.fc1(x))


class NestedIo(HybridBlock):
    def forward(self, a, rest):
        b, (c, d) = rest
        return [a + b, [c * 2, d]], a


class WithNone(HybridBlock):
    def forward(self, a, b, c):
        assert b is None
        return a + c


class ConvNet(HybridBlock):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 3, padding=1, use_bias=False)
        self.bn = nn.BatchNorm()
        self.drop = nn.Dropout(0.5)
        self.pool = nn.GlobalAvgPool2D()

    def forward(self, x):
        return self.pool(self.drop(npx.relu(self.bn(self.conv(x)))))


class Shared(HybridBlock):
    def __init__(self):
        super().__init__()
        self.a = nn.Dense(3)
        self.b = nn.Dense(3).share_parameters(self.a.collect_params())

    def forward(self, x):
        return self.b(np.tanh(self.a(x)))


class OwnParams(HybridBlock):
    def __init__(self):
        super().__init__()
        self.w = Parameter("w", shape=(3,))
        self.unused = Parameter("u", shape=(2,))
        self.k = Constant(onp.array([1.0, 2.0, 3.0], "float32"))

    def forward(self, x, _):
        return x * self.w.data() + self.k.data()


class TwoDense(HybridBlock):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(4)
        self.fc2 = nn.Dense(2)

    def forward(self, x):
        return self.fc2(npx.relu(self.fc1(x)))


def flat(value):
    return [leaf for item in value for leaf in flat(item)] if isinstance(value, list) else [value]


def block_of(factory, params):
    block = factory()
    block.initialize()
    block.load_dict(params, allow_missing=True, ignore_extra=True)
    return block


BLOCKS = {
    "c12_block_mlp": (Mlp, lambda i: (i[0],)),
    "c13_block_nested_io": (NestedIo, lambda i: (i[0], [i[1], [i[2], i[3]]])),
    "c14_block_none": (WithNone, lambda i: (i[0], None, i[1])),
    "c15_block_bn": (ConvNet, lambda i: (i[0],)),
    "c16_block_shared": (Shared, lambda i: (i[0],)),
    "c17_block_own_params": (OwnParams, lambda i: (i[0], i[1])),
}


@pytest.mark.parametrize("case", BLOCKS)
def test_blocks_export_the_symbol_of_mxnet_and_compute_its_numbers(case):
    meta, expected, inputs, outputs, params = read(case)
    factory, arrange = BLOCKS[case]
    block = block_of(factory, params)
    assert list(block.collect_params()) == meta["parameter_names"]
    arguments = arrange([np.array(value) for value in inputs.values()])
    eager = block(*arguments)
    block.hybridize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = block(*arguments)
    unused = [str(w.message) for w in caught if "is not used by any computation" in str(w.message)]
    assert len(unused) == len(meta["warnings"])
    symbol, exported = block.export(None)
    assert wiring(symbol) == wiring(expected)
    assert symbol.list_arguments() == meta["list_arguments"]
    assert symbol.list_auxiliary_states() == meta["list_auxiliary_states"]
    assert sorted(exported) == sorted(meta["exported_params"])
    assert block._in_format == meta["in_format"]
    assert block._out_format == meta["out_format"]
    plain = [
        leaf for each in eager for leaf in flat(list(each) if isinstance(each, tuple) else each)
    ]
    plain = plain if isinstance(eager, (list, tuple)) else [eager]
    for found, wanted in zip(flat(result), outputs, strict=True):
        onp.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-4, atol=1e-5)
    for found, wanted in zip(plain, outputs, strict=True):
        onp.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-4, atol=1e-5)


class Loop(HybridBlock):
    def forward(self, x, h):
        return npx.foreach(lambda d, state: (d * 2 + state, d + state), x, h)


def test_foreach_becomes_one_node_whose_body_is_traced_once():
    _, expected, inputs, outputs, _ = read("c18_block_foreach")
    block = Loop()
    block.hybridize()
    arrays = [np.array(value) for value in inputs.values()]
    result = block(*arrays)
    for found, wanted in zip(result, outputs, strict=True):
        onp.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-5)
    symbol, _ = block.export(None)
    loop = next(node for node in symbol.graph.nodes if not node.is_variable)
    theirs = next(node for node in expected.graph.nodes if not node.is_variable)
    assert loop.op == theirs.op
    assert symbol.list_inputs() == expected.list_inputs()
    assert len(symbol) == len(expected)
    # MXNet repeats each input, with a copy of the body's variables, for outputs and for states.
    assert {e.node for e in loop.inputs} == {e.node for e in theirs.inputs}
    ops = [node.op for node in loop.subgraphs[0].nodes if not node.is_variable]
    assert sorted(ops) == sorted(n.op for n in theirs.subgraphs[0].nodes if not n.is_variable)
    again = Symbol.loads(symbol.tojson())
    assert wiring(again) == wiring(symbol)


def test_optimize_for_exports_the_partitioned_symbol_of_mxnet():
    meta, expected, inputs, outputs, params = read("c19_block_optimize_for")

    def supported(graph, ids, options):
        for index, node in enumerate(json.loads(graph)["nodes"]):
            if node["op"] in meta["op_names"]:
                ids[index] = -1

    partition.register("by_name", [partition.Strategy("names", supported, subgraph_op="_CachedOp")])
    try:
        block = block_of(TwoDense, params)
        x = np.array(next(iter(inputs.values())))
        block.optimize_for(x, backend="by_name")
        onp.testing.assert_allclose(block(x).asnumpy(), outputs[0], rtol=1e-4, atol=1e-5)
        symbol, exported = block.export(None)
    finally:
        partition.unregister("by_name")
    assert wiring(symbol) == wiring(expected)
    assert sorted(exported) == meta["exported_params"]
    for ours, theirs in zip(symbol.graph.nodes, expected.graph.nodes, strict=True):
        inner, wanted = ours.subgraphs, theirs.subgraphs
        assert [[n.op for n in g.nodes] for g in inner] == [[n.op for n in g.nodes] for g in wanted]


def test_export_needs_a_trace():
    with pytest.raises(BlockError, match="has not been traced"):
        Mlp().export("never")
