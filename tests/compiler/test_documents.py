"""Listings of the public documents that Baton follows; docs/document_statements.md names each."""

from __future__ import annotations

import inspect
import json

import numpy as onp
import pytest
import tvm

from compiler import auto_scheduler, autotvm, partition, relay
from compiler import mxnet as mx
from compiler.errors import BuildError
from compiler.mxnet import gluon, np, npx
from compiler.mxnet.gluon import nn
from compiler.relay.backend.graph_executor_codegen import GraphRuntimeCodegen
from compiler.runtime import graph_executor

X = onp.arange(6, dtype="float32").reshape(2, 3)


@pytest.fixture
def backends():
    """Three back ends that count their passes, and the names of what each sees."""
    calls = []

    def register(name, *operators):
        def supported(graph, ids, options):
            nodes = json.loads(graph)["nodes"]
            calls.append((name, dict(options), nodes))
            for index, node in enumerate(nodes):
                if node["op"] in operators:
                    ids[index] = 1

        def accept(graph, number, options, attrs, args, aux):
            attrs["myKey"] = f"{name}{number}"
            calls.append((name, dict(options), json.loads(graph)["nodes"]))
            return True

        partition.register(name, [partition.Strategy("strategy1", supported, accept)])

    register("firstBackend", "FullyConnected")
    register("secondBackend", "Activation")
    register("myPart", "exp", "log")
    yield calls
    for name in ("firstBackend", "secondBackend", "myPart"):
        partition.unregister(name)


def claimed(symbol) -> list[str]:
    return [graph.nodes[-1].op for node in symbol.graph.nodes for graph in node.subgraphs]


def network():
    block = nn.HybridSequential()
    block.add(nn.Dense(4, activation="relu"), nn.Dense(2))
    block.initialize()
    return block


def test_optimize_for_partitions_and_hybridizes_and_hybridize_only_sets_flags(backends):
    block, x = network(), np.array(X)
    expected = block(x).asnumpy()
    block.hybridize(static_alloc=True)
    block(x)
    assert not backends
    block.optimize_for(x, backend="firstBackend", static_alloc=True)
    first = block.export(None)[0]
    block.optimize_for(x, backend="secondBackend", dedup_subgraph=True)
    assert claimed(first) == ["FullyConnected"] * 2
    assert claimed(block.export(None)[0]) == ["FullyConnected", "Activation", "FullyConnected"]
    assert block.is_active and block.cached_op.flags.static_alloc
    onp.testing.assert_allclose(block(x).asnumpy(), expected, rtol=1e-6)
    block.optimize_for(x, backend="firstBackend", clear=True, backend_opts={"dedup_subgraph": True})
    assert claimed(block.export(None)[0]) == ["FullyConnected"] * 2


def test_flags_of_hybridize_are_documented_one_by_one():
    text = inspect.getdoc(gluon.HybridBlock.hybridize)
    flags = "static_alloc static_shape inline_limit forward_bulk_size backward_bulk_size"
    for flag in flags.split():
        assert f"\n{flag} : " in text, flag
    assert inspect.signature(gluon.HybridBlock.optimize_for).parameters["clear"].default is False


class Dense(gluon.HybridBlock):
    """The layer of the proposal of deferred compute."""

    def __init__(self, units, use_bias=True, dtype="float32", in_units=0):
        super().__init__()
        self._units = units
        self.weight = gluon.Parameter(
            shape=(units, in_units), init=None, dtype=dtype, allow_deferred_init=True
        )
        self.bias = None
        if use_bias:
            self.bias = gluon.Parameter(
                shape=(units,), init="zeros", dtype=dtype, allow_deferred_init=True
            )

    def forward(self, x):
        ctx = x.context
        bias = {} if self.bias is None else {"bias": self.bias.data(ctx)}
        return npx.FullyConnected(
            x,
            self.weight.data(ctx),
            **bias,
            no_bias=self.bias is None,
            num_hidden=self._units,
            flatten=True,
            name="fwd",
        )


class LateDense(Dense):
    def infer_shape(self, x):
        self.weight.shape = (self.weight.shape[0], x.shape[1])


@pytest.mark.parametrize(("layer", "extents"), [(Dense, {"in_units": 3}), (LateDense, {})])
@pytest.mark.parametrize("use_bias", [True, False])
def test_a_layer_written_with_forward_alone_is_traced_and_compiled(layer, extents, use_bias):
    block, x = layer(4, use_bias, **extents), np.array(X)
    block.initialize(mx.init.One())
    eager = block(x).asnumpy()
    onp.testing.assert_allclose(eager, X.sum(1, keepdims=True).repeat(4, 1), rtol=1e-6)
    block.hybridize()
    onp.testing.assert_allclose(block(x).asnumpy(), eager, rtol=1e-6)
    symbol = block.export(None)[0]
    assert symbol.list_arguments() == ["data", "weight", "bias"][: 2 + use_bias]
    assert symbol.list_outputs() == ["fwd_output"]


def test_a_symbol_is_partitioned_with_and_without_values(backends, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a, w = mx.sym.var("a"), mx.sym.var("w")
    sym = mx.sym.log(mx.sym.exp(a * w))
    args = {"a": X, "w": onp.full((2, 3), 2, "float32")}
    sym.save("mymodel-symbol.json")
    mx.nd.save("mymodel-0000.params", {f"arg:{k}": mx.nd.array(v) for k, v in args.items()})
    sym, _, _ = mx.model.load_checkpoint("mymodel", 0)
    for partitioned in (
        sym.optimize_for("myPart"),
        sym.optimize_for("myPart", args, ctx=mx.cpu()),
        sym.get_backend_symbol("myPart"),
    ):
        assert claimed(partitioned) == ["log"]
        onp.testing.assert_allclose(partitioned.eval(**args)[0].asnumpy(), 2 * X, rtol=1e-5)
        (node,) = (each for each in partitioned.graph.nodes if each.subgraphs)
        assert node.attrs["myKey"] == "myPart0"
    for _, _, nodes in backends:  # topological order
        for index, node in enumerate(nodes):
            assert all(producer < index for producer, *_ in node["inputs"])
    block = gluon.SymbolBlock(sym, [a, w])
    block.hybridize()
    assert claimed(block.export(None)[0] if block.is_active else sym) == []
    block.optimize_for(np.array(X), np.array(args["w"]), backend="myPart")
    assert claimed(block.export(None)[0]) == ["log"]


def test_operators_that_read_parameters_are_partitioned_and_their_inputs_named(backends):
    block = network()
    block.optimize_for(np.array(X), backend="firstBackend")
    subgraphs = [nodes for _, _, nodes in backends[1:]]
    named = [n["attrs"]["argName"] for n in subgraphs[0] if n["op"] == "null"]
    assert named == ["data", "0.weight", "0.bias"]


def module():
    x = relay.var("x", shape=(1, 8))
    w = relay.var("w", shape=(4, 8))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    return mod, {"w": onp.ones((4, 8), "float32")}


def test_builds_read_the_log_that_is_active_and_take_no_flag(tmp_path):
    mod, params = module()
    for name in ("autotvm.log", "ansor.json"):
        (tmp_path / name).touch()
    contexts = (
        (autotvm.apply_history_best(str(tmp_path / "autotvm.log")), True),
        (auto_scheduler.ApplyHistoryBest(str(tmp_path / "ansor.json")), False),
    )
    with tvm.transform.PassContext(opt_level=3):
        assert relay.build(mod, target="llvm", params=params).report.use_topi_schedule
    for context, uses_topi in contexts:
        with context, tvm.transform.PassContext(opt_level=3):
            lib = relay.build(mod, target="llvm", params=params)
        assert lib.report.use_topi_schedule is uses_topi
    with pytest.raises(TypeError, match="use_topi_schedule"):
        tvm.transform.PassContext(opt_level=3, use_topi_schedule=False)


def test_main_of_an_optimized_module_is_lowered_to_compute_without_schedules():
    mod, params = module()
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, "llvm")
    assert len(tasks) == len(weights) == 1 and tasks[0].compute_dag is not None
    with tvm.transform.PassContext(opt_level=3):
        optimized, _ = relay.optimize(mod, "llvm", params)
    again, _ = auto_scheduler.extract_tasks(optimized["main"], params, "llvm")
    assert [task.desc for task in again] == [task.desc for task in tasks]
    codegen = GraphRuntimeCodegen(None, "llvm", use_topi_schedule=False)
    _, lowered, _ = codegen.codegen(optimized["main"])
    (kernels,) = lowered.values()
    (function,) = kernels.functions.values()
    assert "T.parallel" not in function.script() and "T.vectorized" not in function.script()
    graph, library, params = GraphRuntimeCodegen(None, "llvm").codegen(optimized)
    executor = graph_executor.create(graph, library, tvm.cpu())
    executor.set_input(**params)
    executor.run(x=onp.ones((1, 8), "float32"))
    onp.testing.assert_allclose(executor.get_output(0).numpy(), onp.full((1, 4), 8.0))


@pytest.mark.parametrize(
    "door",
    [
        lambda main: auto_scheduler.extract_tasks(main, {}, "llvm"),
        lambda main: autotvm.task.extract_from_program(main, target="llvm", params={}),
        lambda main: relay.build(main, "llvm"),
        lambda main: relay.build(tvm.IRModule.from_expr(main), "llvm"),
        lambda main: relay.optimize(main, "llvm"),
        lambda main: relay.vm.compile(main, "llvm"),
        lambda main: relay.create_executor("graph", mod=main),
    ],
    ids=["auto_scheduler", "autotvm", "build", "build a copy", "optimize", "vm", "executor"],
)
def test_main_of_a_partitioned_module_alone_asks_for_the_module(door):
    mod, _ = module()
    main = partition.partition(mod, "llvm", ops="nn.dense")["main"]
    with pytest.raises(BuildError, match=r"main calls 'subgraph_llvm_\w+'.*not mod\['main'\]"):
        door(main)
    door(mod["main"])
