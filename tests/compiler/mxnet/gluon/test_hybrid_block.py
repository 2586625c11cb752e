"""Hybrid blocks: arguments, hybridizing, optimizing, caching, errors."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import threading
import warnings

import numpy as onp
import psutil
import pytest
import tvm

from compiler import partition, relay
from compiler.errors import (
    ArrayError,
    BlockArgumentError,
    BlockError,
    DeferredComputeError,
    FrontendError,
    PartitionError,
    UnknownBackendError,
)
from compiler.mxnet import cpu, np, npx
from compiler.mxnet.gluon import Block, HybridBlock, Parameter, SymbolBlock, nn
from compiler.mxnet.symbol import var
from compiler.runtime import graph_executor

RNG = onp.random.default_rng(11)


def claim(*ops):
    def supported(graph, ids, options):
        for index, node in enumerate(json.loads(graph)["nodes"]):
            if node["op"] in ops:
                ids[index] = -1

    return supported


@pytest.fixture
def backends():
    partition.register("dense", [partition.Strategy("dense", claim("FullyConnected"))])
    partition.register("act", [partition.Strategy("act", claim("_npx_relu", "_npi_tanh"))])
    yield
    partition.unregister("dense")
    partition.unregister("act")


class Net(HybridBlock):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(8)
        self.fc2 = nn.Dense(3)
        self.traces = 0

    def forward(self, x):
        self.traces += 1
        return self.fc2(npx.relu(self.fc1(x)))


@pytest.fixture
def net():
    np.random.seed(5)
    block = Net()
    block.initialize()
    return block


def data(*shape):
    return np.array(RNG.uniform(-1, 1, shape).astype("float32"))


def reference(net, x):
    w1, b1, w2, b2 = (p.data().asnumpy() for p in net.collect_params().values())
    return onp.maximum(x.asnumpy() @ w1.T + b1, 0) @ w2.T + b2


def test_every_way_of_running_gives_the_same_numbers(net, backends, tmp_path):
    x = data(2, 5)
    results = [net(x)]
    net.hybridize()
    results.append(net(x))
    net.optimize_for(x, backend="llvm")
    results.append(net(x))
    net.optimize_for(x, backend="dense", clear=True)
    results.append(net(x))
    net.optimize_for(x, backend="act")  # chained
    results.append(net(x))
    symbol, _ = net.export(None)
    assert sum(bool(node.subgraphs) for node in symbol.graph.nodes) == 3
    net.export(tmp_path / "net")
    block = SymbolBlock.imports(
        tmp_path / "net-symbol.json", ["data"], tmp_path / "net-0000.params"
    )
    results.append(block(x))
    net.hybridize(static_alloc=True, static_shape=True)
    results += [net(x), net(x)]
    for result in results:
        onp.testing.assert_allclose(result.asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)


def test_forward_runs_once_for_all_hybridized_calls(net):
    net.hybridize()
    for batch in (1, 2, 1, 4):
        x = data(batch, 5)
        onp.testing.assert_allclose(net(x).asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)
    assert net.traces == 1
    info = net.cached_op.cache_info()
    assert (info.misses, info.hits, info.currsize) == (3, 1, 3)
    assert info.signatures[0].types == (((2, 5), "float32"),)
    assert info.signatures[-1].types == (((4, 5), "float32"),)
    net.hybridize(False)
    net(x)
    assert net.traces == 2 and net.cached_op is None


def test_optimize_for_replaces_nothing_by_default_and_everything_with_clear(net, backends):
    x = data(2, 5)

    def claimed():
        graph = net.export(None)[0].graph
        return [g.nodes[-1].op for n in graph.nodes for g in n.subgraphs]

    net.optimize_for(x, backend="dense")
    assert claimed() == ["FullyConnected"] * 2
    net.optimize_for(x, backend="act")
    assert sorted(claimed()) == ["FullyConnected", "FullyConnected", "_npx_relu"]
    net.optimize_for(x, backend="act", clear=True)
    assert claimed() == ["_npx_relu"]
    net.hybridize()
    net(x)
    assert claimed() == []


def test_optimize_for_runs_nothing_and_leaves_the_flags_of_an_active_block(net, backends):
    x = data(2, 5)
    net.hybridize(static_alloc=True)
    net.optimize_for(x, backend="dense")
    assert net._flags.static_alloc and net.cached_op.cache_info().currsize == 0
    net.optimize_for(x, backend="dense", clear=True, inline_limit=7)
    assert not net._flags.static_alloc and net._flags.inline_limit == 7


def test_flags_of_a_later_optimize_for_take_effect(net, backends):
    x = data(2, 5)
    net.hybridize()
    net.optimize_for(x, backend="dense", static_alloc=True)
    assert net.cached_op.flags.static_alloc
    net.optimize_for(x, backend="act", inline_limit=5, forward_bulk_size=3)
    flags = net.cached_op.flags
    assert (flags.static_alloc, flags.inline_limit, flags.forward_bulk_size) == (True, 5, 3)
    onp.testing.assert_allclose(net(x).asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)


def test_a_failed_optimize_for_leaves_block_and_children_as_they_were(net, backends):
    x = data(2, 5)
    with pytest.raises(PartitionError):
        net.optimize_for(x, backend="dense", min_ops="many")
    assert not any(block.is_active for block in net._descendants())
    net.hybridize(inline_limit=3)
    net(x)
    op = net.cached_op
    with pytest.raises(PartitionError):
        net.optimize_for(x, backend="dense", static_alloc=True, min_ops="many")
    assert net.cached_op is op and not net._flags.static_alloc


def test_a_backends_options_may_have_any_name(net):
    seen = {}

    def supported(graph, ids, options):
        seen.update(options)

    partition.register("asks", [partition.Strategy("s", supported)])
    names = ("ctx", "skip_infer", "args", "aux", "symbol", "known", "shape_dict")
    try:
        net.optimize_for(data(2, 5), backend="asks", **dict.fromkeys(names, 1))
        assert seen == dict.fromkeys(names, "1")
        seen.clear()
        net.optimize_for(data(2, 5), backend="asks", backend_opts={"a": 1}, b=2)
        assert seen == {"a": "1", "b": "2"}
    finally:
        partition.unregister("asks")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"backend": "dense", "static_alloc": "yes"}, "static_alloc must be True or False"),
        ({"backend": "dense", "clear": "no"}, "clear must be True or False"),
        ({"backend": "dense", "static_aloc": True}, "did you mean 'static_alloc'"),
        ({"threshold": 3}, "no backend is given"),
        ({"backend": "dense", "backend_opts": 3}, "backend_opts must be a dict"),
        ({"backend": "dense", "backend_opts": {"a": 1}, "a": 1}, "'a' is in backend_opts too"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(net, backends, arguments, said):
    with pytest.raises(BlockArgumentError, match=said):
        net.optimize_for(data(2, 5), **arguments)
    assert not net.is_active


def test_arrays_without_elements_are_indexed_and_reshaped():
    class First(HybridBlock):
        def forward(self, x):
            return x[0]

    block = First()
    block.hybridize()
    assert block(np.zeros((2, 4, 0, 3))).shape == (4, 0, 3)
    assert block(np.ones((2, 4, 1, 3))).asnumpy().sum() == 12


class ByShape(HybridBlock):
    """Takes its way by the shape of the input."""

    def forward(self, x):
        if x.shape[0] > 2:
            return x * 2
        for _ in range(len(x)):
            x = x + 1
        return x


def test_a_forward_that_reads_shapes_is_traced_for_each():
    net = ByShape()
    inputs = {size: data(size, 3) for size in (1, 2, 3, 4)}
    eager = {size: net(x).asnumpy() for size, x in inputs.items()}
    net.hybridize()
    for size in (2, 3, 1, 4, 3, 2):
        onp.testing.assert_allclose(net(inputs[size]).asnumpy(), eager[size], rtol=1e-6)
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        for size in (3, 2):
            onp.testing.assert_allclose(copied(inputs[size]).asnumpy(), eager[size], rtol=1e-6)


def test_a_partition_of_a_forward_that_reads_shapes_is_of_these_shapes(backends):
    net = ByShape()
    three, one = data(3, 3), data(1, 3)
    net.optimize_for(three, backend="act")
    onp.testing.assert_allclose(net(three).asnumpy(), 2 * three.asnumpy(), rtol=1e-6)
    with pytest.raises(BlockArgumentError, match=r"reads a shape .*test_hybrid_block\.py"):
        net(one)
    net.optimize_for(one, backend="act", clear=True)
    onp.testing.assert_allclose(net(one).asnumpy(), 1 + one.asnumpy(), rtol=1e-6)


def test_options_and_values_reach_the_backend(net):
    seen = {}

    def supported(graph, ids, options):
        seen["options"] = dict(options)
        claim("FullyConnected")(graph, ids, options)

    def accept(graph, number, options, attrs, args, aux):
        seen.setdefault("args", {}).update({k: v.shape for k, v in args.items()})
        attrs["number"] = str(number)
        return number == 0

    partition.register("asks", [partition.Strategy("s", supported, accept)])
    try:
        x = data(2, 5)
        net.optimize_for(x, backend="asks", my_opt=3, flag=True)
        assert seen["options"] == {"my_opt": "3", "flag": "True"}
        assert seen["args"]["fc1.weight"] == (8, 5) and seen["args"]["data"] == (2, 5)
        nodes = [n for n in net.export(None)[0].graph.nodes if n.subgraphs]
        assert [n.attrs["number"] for n in nodes] == ["0"]
        onp.testing.assert_allclose(net(x).asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)
    finally:
        partition.unregister("asks")


def test_small_subgraphs_are_inlined_up_to_the_limit(net, backends):
    x = data(2, 5)
    for limit, inlined in ((0, False), (1, True), (2, True)):
        net.optimize_for(x, backend="dense", clear=True, inline_limit=limit)
        onp.testing.assert_allclose(net(x).asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)
        assert (net.cached_op.library().partition_info() == {}) is inlined
    net.optimize_for(x, backend="dense", clear=True, static_alloc=True)
    net(x)
    assert len(net.cached_op.library().partition_info()) == 2
    assert sum(bool(n.subgraphs) for n in net.export(None)[0].graph.nodes) == 2


def test_kernels_are_dispatched_in_segments_of_the_bulk_size(net):
    x = data(2, 5)
    net.hybridize()
    net(x)
    kernels = len(net.cached_op.library().report.kernels)
    assert kernels > 1
    for size, segments in ((1, kernels), (kernels, 0)):  # one segment is main itself
        net.hybridize(forward_bulk_size=size)
        onp.testing.assert_allclose(net(x).asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)
        code = net.cached_op.library()._executable.as_text()
        assert code.count("@segment_") == segments
    with pytest.raises(BlockArgumentError, match="forward_bulk_size"):
        net.hybridize(forward_bulk_size=0)
    with pytest.raises(BlockArgumentError, match="inline_limit"):
        net.hybridize(inline_limit=-1)


def test_hybridize_takes_a_backend_as_in_mxnet_1_and_no_unknown_argument(net, backends):
    x = data(2, 5)
    with pytest.warns(DeprecationWarning, match=r"optimize_for\(x, backend='dense'\)"):
        net.hybridize(backend="dense", min_ops=1, backend_opts={"max_ops": 9})
    onp.testing.assert_allclose(net(x).asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)
    assert sum(bool(node.subgraphs) for node in net.export(None)[0].graph.nodes) == 2
    with pytest.raises(BlockArgumentError, match="no backend is given"):
        net.hybridize(backend_opts={"min_ops": 1})
    with pytest.raises(TypeError, match="foo"):
        net.hybridize(foo=1)
    with pytest.raises(TypeError, match=r"no argument 'clear'.* optimize_for\(x, backend=.*clear="):
        net.hybridize(backend="dense", clear=False)
    with pytest.raises(TypeError, match=r"not the backend 'dense'; call optimize_for"):
        net.hybridize(True, "dense")


def test_plain_blocks_check_flags(net):
    plain = nn.Sequential()
    plain.add(net)
    with pytest.raises(TypeError, match="no flag 'static_aloc'; did you mean static_alloc"):
        plain.hybridize(static_aloc=True)
    with pytest.raises(BlockArgumentError, match="static_alloc must be True or False"):
        plain.hybridize(static_alloc="yes")
    plain.hybridize(static_alloc=True)
    assert net.is_active


def test_hybridizing_a_parent_says_that_a_childs_partition_is_gone(net, backends):
    net.optimize_for(data(2, 5), backend="dense")
    parent = nn.HybridSequential()
    parent.add(net)
    with pytest.warns(UserWarning, match=r"hybridize\(\) undoes .* partition the outermost block"):
        parent.hybridize()
    parent.optimize_for(data(2, 5), backend="dense")
    assert sum(bool(node.subgraphs) for node in parent.export(None)[0].graph.nodes) == 2


def test_cast_says_that_a_partition_is_gone(net, backends):
    x = data(2, 5)
    net.optimize_for(x, backend="dense")
    with pytest.warns(UserWarning, match=r"cast\(\) undoes what optimize_for"):
        net.cast("float64")
    assert str(net(np.array(x.asnumpy(), "float64")).dtype) == "float64"
    net.optimize_for(np.array(x.asnumpy(), "float64"), backend="dense")
    assert sum(bool(node.subgraphs) for node in net.export(None)[0].graph.nodes) == 2


def test_a_second_optimize_for_takes_as_many_inputs_as_the_first(net, backends):
    x = data(2, 5)
    net.optimize_for(x, backend="dense")
    with pytest.raises(BlockArgumentError, match="structure of Net does not match"):
        net.optimize_for(x, x, backend="act")
    assert sum(bool(node.subgraphs) for node in net.export(None)[0].graph.nodes) == 2


def test_optimize_for_refuses_what_it_can_not_do_and_leaves_the_block_usable(net, backends):
    x = data(2, 5)
    with pytest.raises(TypeError, match="'x'"):
        net.optimize_for()
    with pytest.raises(BlockArgumentError, match="at least one array"):
        net.optimize_for(3, backend="dense")
    with pytest.raises(TypeError, match="must be a str"):
        net.optimize_for(x, backend=3)
    with pytest.raises(UnknownBackendError):
        net.optimize_for(x, backend="nobody")
    assert not net.is_active
    with pytest.raises(BlockArgumentError, match="several devices"):
        net.hybridize()
        net.optimize_for(x, x.to_device(cpu(1)), backend="dense")
    with pytest.raises(TypeError, match="Symbol"):
        net.optimize_for(var("x"), backend="dense")
    onp.testing.assert_allclose(net(x).asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)
    net.optimize_for(x, backend=None)
    assert net.is_active


class Branch(HybridBlock):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x - 1


class Shapes(HybridBlock):
    def forward(self, x):
        while x.shape[0] > 1:
            x = x[: x.shape[0] // 2] + x[x.shape[0] // 2 :]
        return x if x.ndim == 2 else x.reshape(1, -1)


def test_asking_for_a_value_in_a_traced_forward_is_an_error_that_names_the_line():
    block = Branch()
    x = data(4, 2)
    block(x)
    block.hybridize()
    with pytest.raises(DeferredComputeError, match=r"test_hybrid_block\.py:\d+ in forward.*Branch"):
        block(x)
    block.hybridize(False)
    assert block(x).shape == (4, 2)


def test_conditions_on_shapes_can_be_traced():
    block = Shapes()
    block.hybridize()
    x = data(8, 2)
    onp.testing.assert_allclose(block(x).asnumpy(), x.asnumpy().sum(0)[None], rtol=1e-5)


class Optional(HybridBlock):
    def forward(self, a, b=None):
        if a is None:
            return b * 3
        return a * 2 if b is None else a + b


def test_none_among_the_arguments_is_part_of_the_structure():
    x = data(2, 2)
    block = Optional()
    block.hybridize()
    for _ in range(2):
        onp.testing.assert_allclose(block(x, None).asnumpy(), 2 * x.asnumpy())
        onp.testing.assert_allclose(block(x).asnumpy(), 2 * x.asnumpy())
    with pytest.raises(BlockArgumentError, match=r"stored format = \[0, -1\]"):
        block(x, x)
    block = Optional()
    block.hybridize()
    onp.testing.assert_allclose(block(None, x).asnumpy(), 3 * x.asnumpy(), rtol=1e-6)
    with pytest.raises(ValueError, match="structure"):
        block(x, x)
    with pytest.raises(ValueError, match="at least one array"):
        block(None, None)
    with pytest.raises(TypeError):
        block(a=x)


class Anything(HybridBlock):
    def forward(self, x, extra=None):
        if extra == "number":
            return 3
        if extra == "none":
            return [x, None]
        if isinstance(extra, (int, float)):
            return x * extra
        return (x + 1, {"a": x})[0]


def test_scalars_and_dicts_pass_only_while_not_hybridized():
    x = data(2, 2)
    block = Anything()
    onp.testing.assert_allclose(block(x, 2).asnumpy(), 2 * x.asnumpy())
    assert block(x, "number") == 3
    block.hybridize()
    for extra in (2, {"a": x}, "text"):
        with pytest.raises(ValueError, match="input of a HybridBlock"):
            block(x, extra)
    with pytest.raises(ValueError, match="at least one array"):
        block(onp.ones(3))
    with pytest.raises(TypeError, match="Symbol"):
        block(var("x"))


class Returns(HybridBlock):
    def __init__(self, what):
        super().__init__()
        self.what = what

    def forward(self, x):
        return {"number": 3, "dict": {"a": x}, "none": [x, None], "tuple": (x + 1, x)}[self.what]


def test_results_must_be_nested_lists_of_arrays():
    x = data(2)
    for what in ("number", "dict"):
        block = Returns(what)
        block.hybridize()
        with pytest.raises(ValueError, match="output of a HybridBlock"):
            block(x)
    block = Returns("none")
    block.hybridize()
    with pytest.raises(ValueError, match="returns None"):
        block(x)
    block = Returns("tuple")
    assert isinstance(block(x), tuple)
    block.hybridize()
    assert isinstance(block(x), list)


def test_an_error_inside_forward_leaves_the_block_usable():
    class Fails(HybridBlock):
        failing = True

        def forward(self, x):
            if self.failing:
                raise KeyError("inside")
            return x + 1

    block = Fails()
    block.hybridize()
    x = data(2)
    for _ in range(2):
        with pytest.raises(KeyError, match="inside"):
            block(x)
    assert (np.ones(1) + 1).item() == 2  # nothing is being traced any more
    block.failing = False
    onp.testing.assert_allclose(block(x).asnumpy(), x.asnumpy() + 1)


def test_arrays_that_do_not_fit_are_errors_that_name_shapes_and_leave_the_block_usable(net):
    net.hybridize()
    x = data(2, 5)
    net(x)
    with pytest.raises(ArrayError, match=r"data: float32\(2, 7\)"):
        net(data(2, 7))
    onp.testing.assert_allclose(net(x).asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)
    with pytest.raises(BlockArgumentError, match="several devices"):
        Optional.__call__(_hybridized(Optional()), x, x.to_device(cpu(1)))


def _hybridized(block):
    block.hybridize()
    return block


def test_plain_arrays_on_a_block_are_refused_while_tracing():
    class Holds(HybridBlock):
        def __init__(self):
            super().__init__()
            self.held = np.ones(2)

        def forward(self, x):
            return x + self.held

    block = Holds()
    x = data(2)
    block(x)
    block.hybridize()
    with pytest.raises(DeferredComputeError, match=r"forward of Holds.*Parameter or Constant"):
        block(x)


def test_static_shape_needs_static_alloc_and_says_so_at_the_first_call(net):
    net.hybridize(static_shape=True)
    with pytest.raises(BlockError, match="static_alloc must be True"):
        net(data(2, 5))


def test_results_of_earlier_calls_stay_what_they_are(net):
    for flags in ({}, {"static_alloc": True}, {"static_alloc": True, "static_shape": True}):
        net.hybridize(**flags)
        inputs = [data(2, 5) for _ in range(3)]
        results = [net(x) for x in inputs]
        for x, result in zip(inputs, results):
            onp.testing.assert_allclose(result.asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)


def test_static_shape_keeps_one_signature_and_still_takes_others(net):
    net.hybridize(static_alloc=True, static_shape=True)
    for batch in (2, 3, 2):
        x = data(batch, 5)
        onp.testing.assert_allclose(net(x).asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)
        assert net.cached_op.cache_info().currsize == 1


def test_new_parameter_values_are_seen_by_hybridized_calls(net):
    net.hybridize()
    x = data(2, 5)
    net(x)
    for k in range(5):
        net.fc2.bias.set_data(onp.full(3, k, "float32"))
        onp.testing.assert_allclose(net(x).asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)
    misses = net.cached_op.cache_info().misses
    for k in range(3):
        net.fc2.bias.data()[:] = k  # it is an input of the program by now
        onp.testing.assert_allclose(net(x).asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)
    assert net.cached_op.cache_info().misses == misses
    net.initialize(force_reinit=True)
    onp.testing.assert_allclose(net(x).asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)


def test_threads_share_a_hybridized_block(net):
    net(data(1, 5))
    for flags in ({}, {"static_alloc": True}):
        net.hybridize(**flags)
        wrong = []

        def work(wrong=wrong):
            for batch in (1, 2, 1, 3, 2) * 10:
                x = data(batch, 5)
                if not onp.allclose(net(x).asnumpy(), reference(net, x), rtol=1e-4, atol=1e-5):
                    wrong.append(batch)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert net.cached_op.cache_info().misses == 3


def test_ten_thousand_calls_do_not_grow_memory(net):
    x = data(4, 5)
    for flags in ({}, {"static_alloc": True, "static_shape": True}):
        net.hybridize(**flags)
        for _ in range(500):
            net(x)
        gc.collect()
        before = psutil.Process().memory_info().rss
        for _ in range(10_000):
            net(x)
        gc.collect()
        assert psutil.Process().memory_info().rss - before < 2 << 20


def test_the_cache_is_bounded(net):
    from compiler.mxnet.gluon.cached_op import CachedOp

    net.hybridize()
    net(data(1, 5))
    names, symbol = net._cached_graph
    op = CachedOp(symbol, names, net.collect_params(), capacity=2)
    for batch in (1, 2, 1, 3):
        op([data(batch, 5)])
    kept = [signature.types[0][0] for signature in op.cache_info().signatures]
    assert kept == [(1, 5), (3, 5)]


def test_adding_a_child_or_replacing_one_makes_a_new_trace():
    block = nn.HybridSequential(nn.Dense(3), nn.Dense(2))
    block.initialize()
    block.hybridize()
    x = data(2, 4)
    assert block(x).shape == (2, 2)
    with pytest.warns(UserWarning, match="no longer hybridized"):
        block.add(nn.Dense(5))
    block.initialize()
    assert block(x).shape == (2, 5)
    net = Net()
    net.initialize()
    net.hybridize()
    assert net(x).shape == (2, 3)
    with pytest.warns(UserWarning, match="no longer hybridized"):
        net.fc2 = nn.Dense(7)
    net.initialize()
    assert net(x).shape == (2, 7)


def test_cast_makes_a_new_trace(net):
    x = data(2, 5)
    net.hybridize()
    net(x)
    net.cast("float64")
    result = net(x.astype("float64"))
    assert result.dtype == "float64"
    onp.testing.assert_allclose(result.asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)


def test_hooks_run_on_every_eager_call_and_once_when_hybridized(net):
    calls = []
    x = data(2, 5)
    handle = net.fc1.register_forward_hook(lambda block, args, out: calls.append("after"))
    net.fc1.register_forward_pre_hook(lambda block, args: calls.append("before"))
    net(x)
    net(x)
    assert calls == ["before", "after"] * 2
    with pytest.warns(UserWarning, match="hooks"):
        net.hybridize()
    net(x)
    net(x)
    assert calls == ["before", "after"] * 3
    handle.detach()
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        net.hybridize(False)
    net(x)
    assert calls[-1] == "before"


def test_only_hybrid_blocks_can_be_children():
    class Plain(Block):
        pass

    with pytest.raises(ValueError, match="must be HybridBlocks"):
        nn.HybridSequential(Plain())
    with pytest.raises(NotImplementedError, match="forward"):
        HybridBlock()(data(2))


def test_blocks_in_lists_are_warned_of():
    class Lists(HybridBlock):
        def __init__(self):
            super().__init__()
            self.items = [nn.Dense(2)]

    with pytest.warns(UserWarning, match="not registered"):
        Lists()
    with pytest.warns(UserWarning, match="HybridSequential"):
        nn.Sequential(nn.Dense(2)).hybridize()


def test_hybrid_forward_of_old_code_runs():
    class Old(HybridBlock):
        def __init__(self):
            super().__init__()
            self.weight = Parameter("weight", shape=(3, 4))

        def hybrid_forward(self, F, x, weight):
            y = F.FullyConnected(x, weight, num_hidden=3, no_bias=True)
            return F.broadcast_add(F.Activation(y, act_type="tanh"), F.ones((1, 3)))

    block = Old()
    block.initialize()
    x = data(2, 4)
    wanted = onp.tanh(x.asnumpy() @ block.weight.data().asnumpy().T) + 1
    onp.testing.assert_allclose(block(x).asnumpy(), wanted, rtol=1e-5)
    block.hybridize()
    onp.testing.assert_allclose(block(x).asnumpy(), wanted, rtol=1e-5)


def test_own_parameters_of_unknown_shape_need_infer_shape():
    class Unknown(HybridBlock):
        def __init__(self):
            super().__init__()
            self.weight = Parameter("weight", shape=(2, 0), allow_deferred_init=True)

        def forward(self, x):
            return npx.fully_connected(x, self.weight.data())

    class Known(Unknown):
        def infer_shape(self, x):
            self.weight.shape = (2, x.shape[1])

    x = data(3, 4)
    block = Unknown()
    block.initialize()
    with pytest.raises(RuntimeError, match=r"unknown shape \(weight\).*infer_shape"):
        block(x)
    block = Known()
    with pytest.raises(RuntimeError, match="has not been initialized"):
        block(x)
    block.initialize()
    block.hybridize()
    wanted = x.asnumpy() @ block.weight.data().asnumpy().T if block(x) is not None else None
    onp.testing.assert_allclose(block(x).asnumpy(), wanted, rtol=1e-5)


def test_a_symbol_block_in_a_traced_forward_is_part_of_it(net):
    x = data(2, 5)
    net.hybridize()
    net(x)
    symbol, _ = net.export(None)
    inner = SymbolBlock(symbol, var("data"), net.collect_params())
    onp.testing.assert_allclose(inner(x).asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)

    class Outer(HybridBlock):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)

    outer = Outer()
    outer(x)
    outer.hybridize()
    onp.testing.assert_allclose(outer(x).asnumpy(), reference(net, x), rtol=1e-5, atol=1e-6)
    assert outer.export(None)[0].list_arguments()[1] == "inner.fc1.weight"


def test_copies_and_pickles_are_blocks_of_their_own():
    net = nn.HybridSequential(nn.Dense(4, activation="relu"), nn.Dense(2))
    net.initialize()
    net.hybridize()
    x = data(2, 3)
    wanted = net(x).asnumpy()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        onp.testing.assert_allclose(other(x).asnumpy(), wanted, rtol=1e-6)
        other[1].bias.set_data(onp.full(2, 100.0))
        assert (other(x).asnumpy() > 50).all()
        other.hybridize()
        assert (other(x).asnumpy() > 50).all()
        onp.testing.assert_allclose(net(x).asnumpy(), wanted, rtol=1e-6)


def test_summary_prints_shapes_and_counts(net, capsys):
    net.summary(data(2, 5))
    printed = capsys.readouterr().out
    assert "Dense-1" in printed and "(2, 8)" in printed
    assert f"Parameters in total: {5 * 8 + 8 + 8 * 3 + 3}" in printed
    net.hybridize()
    with pytest.raises(BlockError, match="hybridized"):
        net.summary(data(2, 5))


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True}])
def test_writing_to_outputs_that_are_inputs_or_weights_changes_neither(flags):
    class Passing(HybridBlock):
        def __init__(self):
            super().__init__()
            self.weight = Parameter("weight", shape=(128,))

        def forward(self, x):
            return x, self.weight.data(), x + self.weight.data()

    block = Passing()
    block.initialize()
    block.hybridize(**flags)
    x = data(128)
    given, weight = x.asnumpy().copy(), block.weight.data().asnumpy().copy()
    for _ in range(2):
        outputs = block(x)
        for output, expected in zip(outputs, (given, weight, given + weight)):
            onp.testing.assert_array_equal(output.asnumpy(), expected)
            output[:] = -77
    onp.testing.assert_array_equal(x.asnumpy(), given)


def test_a_block_is_imported_with_its_parameters(net):
    x = data(2, 5)
    mod, params = relay.frontend.from_mxnet(net, {"image": (2, 5)})
    assert not net.is_active and net.cached_op is None
    assert str(mod["main"].params[0].name) == "image"
    lib = relay.build(mod, "llvm", params=params)
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(image=x.asnumpy())
    found = executor.get_output(0).numpy()
    onp.testing.assert_allclose(found, reference(net, x), rtol=1e-5, atol=1e-6)
    by_order, _ = relay.frontend.from_mxnet(net, [(2, 5)])
    assert str(by_order["main"].params[0].name) == "data"
    for model, shape, message in (
        (None, {}, "takes a Symbol or a HybridBlock of compiler.mxnet, not NoneType"),
        (net, None, "needs shapes of its inputs"),
    ):
        with pytest.raises(FrontendError, match=message):
            relay.frontend.from_mxnet(model, shape)
    with pytest.raises(FrontendError, match="needs no arg_params"):
        relay.frontend.from_mxnet(net, {"image": (2, 5)}, arg_params={"w": x})


def test_an_imported_block_becomes_a_module_too(net):
    x = data(2, 5)
    net.hybridize()
    net(x)
    symbol, arrays = net.export(None)
    values = {name.partition(":")[2]: value for name, value in arrays.items()}
    block = SymbolBlock(symbol, [var("data")])
    block.load_dict(values)
    mod, params = relay.frontend.from_mxnet(block, {"data": (2, 5)})
    lib = relay.build(mod, "llvm", params=params)
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(data=x.asnumpy())
    found = executor.get_output(0).numpy()
    onp.testing.assert_allclose(found, net(x).asnumpy(), rtol=1e-5, atol=1e-6)
