"""Libraries written for MXNet's interface: operators, graph passes, partitioners, used as there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.backends import Strategy, register, registered, restore
from compiler.errors import (
    ArrayError,
    FrontendError,
    LibraryOperatorError,
    LoadError,
    OutOfScopeError,
    PartitionCallbackError,
    PartitionError,
    UnknownBackendError,
    UnsupportedOperatorError,
)
from compiler.mxnet import library, nd
from compiler.mxnet import np as mxnp
from compiler.mxnet.gluon import HybridBlock, SymbolBlock
from compiler.mxnet.symbol import Symbol
from compiler.partition import list_partitioners, partition, subgraphs
from compiler.runtime import graph_executor
from compiler.support.cxx import include_dir

X = np.array([[1, -2, 3], [-4, 5, -6]], "float32")
W = np.full((2, 3), 2, "float32")
ARGS = {"x": X, "w": W}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of `mxnet_library.cc`, compiled without a warning whatever the visibility."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed; libraries are built with it")
    output = tmp_path_factory.mktemp("mxnet") / "libtested.so"
    source = Path(__file__).parent / "mxnet_library.cc"
    flags = ["-O0", "-Wall", "-Wextra", "-Werror", "-fvisibility=default"]
    return library.build([source], output, flags)


@pytest.fixture(autouse=True)
def loaded(built: Path) -> Iterator[library.Loaded]:
    before = registered()
    yield library.load(built)
    restore(before)


def variable(name: str) -> dict:
    return {"op": "null", "name": name, "inputs": []}


def node(op: str, name: str, *inputs: int, **attrs: str) -> dict:
    entries = [[each, 0, 0] for each in inputs]
    return {"op": op, "name": name, "inputs": entries, "attrs": attrs}


def symbol(*nodes: dict, heads: int | list | None = None) -> Symbol:
    variables = [index for index, each in enumerate(nodes) if each["op"] == "null"]
    entries = heads if isinstance(heads, list) else [[len(nodes) - 1, 0, 0]]
    return Symbol.loads(json.dumps({"nodes": nodes, "arg_nodes": variables, "heads": entries}))


def chain() -> Symbol:
    """log(exp(x * w) + w)"""
    return symbol(
        variable("x"),
        variable("w"),
        node("elemwise_mul", "m", 0, 1),
        node("exp", "e", 2),
        node("elemwise_add", "a", 3, 1),
        node("log", "l", 4),
    )


INSIDE = np.exp(X * W) + W
"""What the library's operator computes of `chain`, which then adds 100."""


def ran(symbol: Symbol, **values: np.ndarray) -> np.ndarray:
    return symbol.eval(**{**ARGS, **values})[0]


# Loading.


def test_loading_says_what_it_found(loaded: library.Loaded, built: Path) -> None:
    assert loaded == ["test_claims", "test_selects", "test_text"]
    assert loaded.passes == ["test_add_input", "test_damage", "test_text_pass"]
    assert {"test_parts", "test_dense", "test_counter", "_test_subgraph"} < set(loaded.operators)
    again = library.load(built)
    assert (again, again.operators) == (loaded, loaded.operators)


def test_a_name_of_another_library_is_refused(built: Path, tmp_path: Path) -> None:
    restore({})
    shutil.copy(built, tmp_path / "libother.so")
    with pytest.raises(PartitionError, match=r"libother\.so: the runtime .* already registered"):
        library.load(tmp_path / "libother.so")
    assert "test_claims" not in list_partitioners()


def test_a_library_may_refuse_the_version(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_REFUSE_MXNET", "1")
    shutil.copy(built, tmp_path / "libother.so")
    message = r"refuses Baton .*initialize\(20000\) returned MX_FAIL: refused by the environment"
    with pytest.raises(PartitionError, match=message):
        library.load(tmp_path / "libother.so")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("int _opVersion() { return 11; }", "built with MXNet's own lib_api.h; build its sources"),
        (
            "int baton_mxnet_abi_version(void) { return 1; }\nvoid baton_mxnet_call(void) {}",
            r"does not define `MXReturnValue initialize\(int version\)`",
        ),
        (
            "int baton_mxnet_abi_version(void) { return 0; }\nvoid baton_mxnet_call(void) {}",
            "built with version 0 of mxnet/lib_api.h",
        ),
    ],
)
def test_libraries_that_lack_something_are_refused(
    tmp_path: Path, source: str, message: str
) -> None:
    (tmp_path / "bad.c").write_text(source)
    command = ["gcc", "-shared", "-fPIC", str(tmp_path / "bad.c"), "-o", str(tmp_path / "bad.so")]
    subprocess.run(command, check=True)
    with pytest.raises(PartitionError, match=message):
        library.load(tmp_path / "bad.so")


# Operators.


def test_an_operator_runs_on_arrays_symbols_and_in_blocks() -> None:
    expected = [np.maximum(3 * X, 0), np.minimum(3 * X, 0)]
    for found, wanted in zip(nd.test_parts(mxnp.array(X), factor=3), expected, strict=True):
        np.testing.assert_array_equal(found.asnumpy(), wanted)
    parts = node("test_parts", "p", 0, factor="3")
    made = symbol(variable("x"), parts, heads=[[1, 1, 0], [1, 0, 0]])
    assert made.list_outputs() == ["p_output1", "p_output0"]
    assert made.infer_shape(x=(4, 5)) == ([(4, 5)], [(4, 5), (4, 5)], [])
    for found, wanted in zip(made.eval(x=X), expected[::-1], strict=True):
        np.testing.assert_array_equal(found, wanted)

    class Net(HybridBlock):
        def forward(self, x):
            positive, negative = nd.test_parts(mxnp.exp(x), factor=-2)
            return positive - negative

    net = Net()
    net.initialize()
    eager = net(mxnp.array(X)).asnumpy()
    net.hybridize()
    np.testing.assert_allclose(eager, 2 * np.exp(X), rtol=1e-5)
    np.testing.assert_allclose(net(mxnp.array(X)).asnumpy(), eager, rtol=1e-6)


def test_the_shape_of_a_weight_is_inferred_by_the_library() -> None:
    made = symbol(variable("x"), variable("w"), node("test_dense", "d", 0, 1, units="4"))
    assert made.infer_shape(x=(2, 3)) == ([(2, 3), (4, 3)], [(2, 4)], [])
    w = np.arange(12, dtype="float32").reshape(4, 3)
    np.testing.assert_allclose(made.eval(x=X, w=w)[0], X @ w.T)


def test_states_belong_to_places_of_a_model_and_to_single_calls() -> None:
    for _ in range(2):
        np.testing.assert_array_equal(nd.test_counter(mxnp.array(X), start=7).asnumpy(), X + 7)
    twice = symbol(
        variable("x"),
        node("test_counter", "a", 0),
        node("test_counter", "b", 0),
        heads=[[1, 0, 0], [2, 0, 0]],
    )
    executor = twice.bind(args={"x": X})
    for call in range(3):
        for found in executor.forward():
            np.testing.assert_array_equal(found, X + call)
    np.testing.assert_array_equal(twice.eval(x=X)[0], X)
    net = SymbolBlock(twice, [Symbol.loads(twice.tojson())["a_output"].get_internals()["x"]])
    net.hybridize(static_alloc=True)
    net(mxnp.array(X))
    np.testing.assert_array_equal(net(mxnp.array(X))[1].asnumpy(), X + 1)


def test_random_generators_go_on() -> None:
    first, second = (nd.test_noise(mxnp.zeros((50, 50))).asnumpy() for _ in range(2))
    assert not np.array_equal(first, second)
    assert abs(first.mean()) < 0.2
    assert 0.9 < first.std() < 1.1


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("throw", "thrown in forward"),
        ("throw int", "not a std::exception"),
        ("gpu memory", "alloc_gpu: operators of libraries run on the CPU"),
        ("return", "forward returned MX_FAIL: first message; second message"),
    ],
)
def test_what_an_operator_raises_while_it_runs_names_it(how: str, message: str) -> None:
    named = f"operator test_fails of libtested.so: .*{message}"
    with pytest.raises(ArrayError, match=rf"test_mxnet_library\.py:\d+ in .*{named}"):
        nd.test_fails(mxnp.array(X), how=how)
    failing = symbol(variable("x"), node("test_fails", "f", 0, how=how)).bind(args={"x": X})
    with pytest.raises(LibraryOperatorError, match=named):
        failing.forward()


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("test_writes", r"writes to its inputs \[0\]"),
        ("test_gpu", "it has no forward for the CPU"),
        ("test_parts", "raised|stof"),
        ("test_dense", "has 1 inputs; it takes 2"),
        ("test_absent", r"not supported: operator test_absent .*compiler\.mxnet\.library\.load"),
    ],
)
def test_operators_that_can_not_run_are_refused(op: str, message: str) -> None:
    with pytest.raises(FrontendError, match=message):
        symbol(variable("x"), node(op, "n", 0, factor="abc")).eval(x=X)


def test_sparse_arrays_are_out_of_scope() -> None:
    with pytest.raises(OutOfScopeError, match=r"test_sparse .*only dense arrays .* makes sparse"):
        nd.test_sparse(mxnp.array(X))


def test_wrong_counts_of_extra_inputs_are_refused() -> None:
    for text, message in (("many", "not a count"), ("2", "has 1 inputs; 2 are to be extra")):
        noise = node("test_noise", "n", 0, __ext_extra_inputs__=text)
        with pytest.raises(FrontendError, match=message):
            symbol(variable("x"), noise).eval(x=X)


def test_a_library_with_operators_is_exported_and_names_what_it_needs(
    built: Path, tmp_path: Path
) -> None:
    made = symbol(variable("x"), node("exp", "e", 0), node("test_counter", "c", 1, start="5"))
    mod, params = relay.frontend.from_mxnet(made, {"x": X.shape})
    relay.build(mod, "llvm", params=params).export_library(tmp_path / "net.so")
    np.save(tmp_path / "x.npy", X)
    run = """
import sys
import numpy as np
from compiler.errors import LoadError
from compiler.runtime import graph_executor, load_engines, load_module
import tvm
folder, built = sys.argv[1:]
executor = graph_executor.GraphModule(load_module(folder + "/net.so")["default"](tvm.cpu()))
x = np.load(folder + "/x.npy")
try:
    executor.run(x=x)
except LoadError as error:
    assert "load libtested.so with compiler.runtime.load_engines" in str(error), error
else:
    raise AssertionError("ran without the library")
assert "test_counter" in load_engines(built)
executor.run(x=x)
executor.run(x=x)
np.save(folder + "/found.npy", executor.get_output(0).numpy())
"""
    command = [sys.executable, "-c", run, str(tmp_path), str(built)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), np.exp(X) + 6, rtol=1e-5)


# Partitioners.


def test_the_librarys_operator_runs_what_its_partitioner_claims() -> None:
    made = chain().optimize_for("test_claims", dict(ARGS), mark=5)
    (claimed,) = (each for each in made.graph.nodes if each.subgraphs)
    assert claimed.op == "_test_subgraph"
    assert (claimed.attrs["id"], claimed.attrs["seen"]) == ("0", "x=1 w=2 w=2 ")
    np.testing.assert_allclose(ran(made), np.log(INSIDE + 105), rtol=1e-5)
    assert made.infer_shape(x=(2, 3)) == ([(2, 3), (2, 3)], [(2, 3)], [])
    shared = chain().optimize_for("test_claims", dict(ARGS), dedup_subgraph=True)
    np.testing.assert_allclose(ran(shared), np.log(INSIDE + 100), rtol=1e-5)
    np.testing.assert_allclose(ran(Symbol.loads(made.tojson())), ran(made))


def test_a_librarys_operator_never_runs_subgraphs_of_other_back_ends(tmp_path: Path) -> None:
    def claims(graph_json: str, ids: list[int], _options: object) -> list[int]:
        nodes = json.loads(graph_json)["nodes"]
        return [
            -1 if node["op"] in ("exp", "elemwise_add") else each for node, each in zip(nodes, ids)
        ]

    register("other", Strategy("s", claims, subgraph_op="_test_subgraph"))
    register("test_claims", Strategy("s", claims, subgraph_op="_test_subgraph"), replace=True)
    replaced = chain().optimize_for("test_claims", dict(ARGS))
    np.testing.assert_allclose(ran(replaced), np.log(INSIDE), rtol=1e-5)
    made = chain().optimize_for("other", dict(ARGS))
    assert [each.op for each in made.graph.nodes if each.subgraphs] == ["_test_subgraph"]
    np.testing.assert_allclose(ran(made), np.log(INSIDE), rtol=1e-5)

    class Net(HybridBlock):
        def forward(self, x, w):
            return nd.log(nd.elemwise_add(nd.exp(nd.elemwise_mul(x, w)), w))

    inputs = (mxnp.array(X), mxnp.array(W))
    for options in ({}, {"inline_limit": 0}):
        net = Net()
        net.optimize_for(*inputs, backend="other", **options)
        np.testing.assert_allclose(net(*inputs).asnumpy(), np.log(INSIDE), rtol=1e-5)
        files = net.export(tmp_path / "net")
        again = SymbolBlock.imports(files[0], ["data0", "data1"], files[1])
        np.testing.assert_allclose(again(*inputs).asnumpy(), np.log(INSIDE), rtol=1e-5)


_FILLING = """
#include "lib_api.h"
using namespace mxnet::ext;
using Attrs = std::unordered_map<std::string, std::string>;

struct Fill : CustomStatefulOp {
  MXReturnValue Forward(std::vector<MXTensor>*, std::vector<MXTensor>* out,
                        const OpResource&) override {
    for (int64_t i = 0; i < out->at(0).size(); ++i) out->at(0).data<float>()[i] = VALUE;
    return MX_SUCCESS;
  }
};
MXReturnValue make(const Attrs&, const MXContext&, const std::vector<std::vector<unsigned>>&,
                   const std::vector<int>, CustomStatefulOp** op) {
  *op = CustomStatefulOp::create<Fill>();
  return MX_SUCCESS;
}
REGISTER_OP(_custom_subgraph_op).setIsSubgraphOp().setCreateOpState(make, "cpu");

MXReturnValue claim(const Graph* graph, std::vector<int>* ids, const Attrs&) {
  for (size_t i = 0; i < graph->size(); ++i) ids->at(i) = graph->getNode(i)->op == OP ? 1 : -2;
  return MX_SUCCESS;
}
REGISTER_PARTITIONER(NAME).addStrategy("s", "_custom_subgraph_op").setSupportedOps("s", claim);
MXReturnValue initialize(int) { return MX_SUCCESS; }
"""


def test_libraries_with_subgraph_operators_of_one_name_run_their_own_subgraphs(
    built: Path, tmp_path: Path
) -> None:
    (tmp_path / "filling.cc").write_text(_FILLING)
    for name, op, value in (("fills_exp", "exp", 42), ("fills_log", "log", 7)):
        flags = ["-O0", f"-DNAME={name}", f'-DOP="{op}"', f"-DVALUE={value}"]
        library.load(library.build([tmp_path / "filling.cc"], tmp_path / f"lib{name}.so", flags))
    made = chain().optimize_for("fills_exp", dict(ARGS))
    np.testing.assert_allclose(ran(made), np.log(42 + W), rtol=1e-5)
    both = made.optimize_for("fills_log", dict(ARGS))
    np.testing.assert_array_equal(ran(Symbol.loads(both.tojson())), np.full((2, 3), 7))
    claimed = [each for each in made.graph.nodes if each.subgraphs]
    plain = json.loads(made.tojson())
    for each in plain["nodes"]:  # as MXNet writes it
        attrs = each.get("attrs", {})
        each["attrs"] = {key: text for key, text in attrs.items() if "baton" not in key}
    assert len(claimed) == 1
    message = r"libfills_exp\.so, libfills_log\.so each have an operator '_custom_subgraph_op'"
    with pytest.raises(LibraryOperatorError, match=message):
        ran(Symbol.loads(json.dumps(plain)))


@pytest.mark.parametrize(("value", "accepted"), [(2, True), (-2, False)])
def test_a_review_sees_values_and_decides(value: float, accepted: bool) -> None:
    args = {"x": X, "w": np.full((2, 3), value, "float32")}
    made = chain().optimize_for("test_claims", args, positive=True)
    assert any(each.subgraphs for each in made.graph.nodes) is accepted
    assert not any(
        each.subgraphs for each in chain().optimize_for("test_claims", positive=True).graph.nodes
    )


def test_a_selector_grows_and_filters() -> None:
    made = chain().optimize_for("test_selects", ops="exp,elemwise_add")
    (claimed,) = (each for each in made.graph.nodes if each.subgraphs)
    assert [each.op for each in claimed.subgraphs[0].nodes if not each.is_variable] == [
        "exp",
        "elemwise_add",
    ]
    np.testing.assert_allclose(ran(made), np.log(INSIDE + 100), rtol=1e-5)
    alone = chain().optimize_for("test_selects", ops="exp")
    assert not any(each.subgraphs for each in alone.graph.nodes)


def test_callbacks_of_mxnet_1_7_get_text_and_all_values() -> None:
    made = chain().optimize_for("test_text", {**ARGS, "more": X})
    (claimed,) = (each for each in made.graph.nodes if each.subgraphs)
    assert claimed.attrs["args"] == "3 0"
    (claimed,) = (each for each in chain().optimize_for("test_text").graph.nodes if each.subgraphs)
    assert claimed.attrs["args"] == "0 0"
    np.testing.assert_allclose(ran(made), np.log(INSIDE + 100), rtol=1e-5)


def test_a_callback_that_fails_is_one_error_with_what_it_said() -> None:
    message = "'test_claims'.*supported_ops raised .*MX_FAIL: not with fail=now"
    with pytest.raises(PartitionCallbackError, match=message):
        chain().optimize_for("test_claims", fail="now")


def test_blocks_are_partitioned_exported_and_imported(tmp_path: Path) -> None:
    class Net(HybridBlock):
        def forward(self, x, w):
            return nd.log(nd.elemwise_add(nd.exp(nd.elemwise_mul(x, w)), w))

    net, inputs = Net(), (mxnp.array(X), mxnp.array(W))
    net.optimize_for(*inputs, backend="test_claims", dedup_subgraph=True)
    expected = np.log(INSIDE + 100)
    np.testing.assert_allclose(net(*inputs).asnumpy(), expected, rtol=1e-5)
    (info,) = net.cached_op.library().partition_info().values()
    assert info["runtime"] == "operator _test_subgraph of test_claims, test_selects, test_text"
    assert info["operators"] == ["elemwise_mul", "exp", "elemwise_add"]
    net.optimize_for(*inputs, backend="test_add_input")
    assert net.collect_params()["_op0_more"].data().asnumpy() == 1000
    expected[0, 0] = np.log(INSIDE[0, 0] + 1100)
    np.testing.assert_allclose(net(*inputs).asnumpy(), expected, rtol=1e-5)
    files = net.export(tmp_path / "net")
    again = SymbolBlock.imports(files[0], ["data0", "data1"], files[1])
    np.testing.assert_allclose(again(*inputs).asnumpy(), expected, rtol=1e-5)


def test_a_module_is_claimed_by_relays_names_and_run_by_the_library() -> None:
    x = relay.var("x", shape=(2, 3))
    inside = relay.add(relay.exp(x), relay.const(np.full((2, 3), 2, "float32")))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.log(inside)))
    parted = partition(mod, "test_claims")
    (info,) = subgraphs(parted)
    assert info.operators == ("exp", "add")
    lib = relay.build(parted, "llvm")
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=X)
    expected = np.log(np.exp(X) + 102)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-5)
    with pytest.raises(UnknownBackendError, match="'test_damage' is a graph pass"):
        partition(mod, "test_damage")


def test_loading_prints_what_it_finds(old: Path, capfd: pytest.CaptureFixture[str]) -> None:
    library.load(old)
    said = capfd.readouterr().out
    assert f"Found operator 'old_scale' in {old}\n" in said
    assert f"Found partitioner 'old_accept' in {old}\n" in said
    library.load(old, verbose=False)
    assert "Found" not in capfd.readouterr().out


# Spellings of MXNet 1.6 to 1.8.


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`mxnet_library_1_6.cc`, built with the command line of MXNet's tutorial and nothing else."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed; libraries are built with it")
    output = tmp_path_factory.mktemp("mxnet") / "libold.so"
    source = Path(__file__).parent / "mxnet_library_1_6.cc"
    command = ["g++", "-shared", "-fPIC", "-std=c++11", str(source), "-o", str(output)]
    headers = include_dir() / "mxnet"
    subprocess.run([*command, "-Wall", "-Wextra", "-Werror", "-I", str(headers)], check=True)
    return output


@pytest.mark.parametrize(
    ("backend", "attrs"),
    [
        ("old_accept", {"my_key": "0"}),
        ("old_args", {"my_key": "x=1 w=2 "}),
        ("old_flags", {"my_key": "2 0"}),
        ("old_review", {}),
    ],
)
def test_partitioners_of_mxnet_1_6_to_1_8_run(
    old: Path, backend: str, attrs: dict[str, str]
) -> None:
    library.load(old)
    made = chain().optimize_for(backend, dict(ARGS), reject=False)
    (claimed,) = (each for each in made.graph.nodes if each.subgraphs)
    assert attrs.items() <= claimed.attrs.items()
    np.testing.assert_allclose(ran(made), np.log(INSIDE + 7), rtol=1e-5)
    rejected = chain().optimize_for(backend, dict(ARGS), reject=True)
    assert not any(each.subgraphs for each in rejected.graph.nodes)


def test_operators_of_mxnet_1_6_run(old: Path) -> None:
    assert "old_scale" in library.load(old).operators
    scaled = nd.old_scale(mxnp.array(X), factor=3)
    np.testing.assert_array_equal(scaled.asnumpy(), 3 * X)


_TWO_OPERATORS = """
#include <cmath>
#include "mxnet/lib_api.h"
using namespace mxnet::ext;
using Attrs = std::unordered_map<std::string, std::string>;

template <int shift>
struct Shifted : CustomStatefulOp {
  MXReturnValue Forward(std::vector<MXTensor>* in, std::vector<MXTensor>* out,
                        const OpResource&) override {
    for (int64_t i = 0; i < in->at(0).size(); ++i) {
      out->at(0).data<float>()[i] = std::fabs(in->at(0).data<float>()[i]) + shift;
    }
    return MX_SUCCESS;
  }
};
template <int shift>
MXReturnValue make(const Attrs&, CustomStatefulOp** op) {
  *op = new Shifted<shift>();
  return MX_SUCCESS;
}
REGISTER_OP(two_first).setIsSubgraphOp().setCreateOpState(make<10>, "cpu");
REGISTER_OP(two_second).setIsSubgraphOp().setCreateOpState(make<20>, "cpu");

MXReturnValue mark(const Graph* graph, std::vector<int>* ids, const std::string& op) {
  for (size_t i = 0; i < graph->size(); ++i) {
    if (graph->getNode(i)->op == op) ids->at(i) = -1;
  }
  return MX_SUCCESS;
}
MXReturnValue exps(const Graph* graph, std::vector<int>* ids, const Attrs&) {
  return mark(graph, ids, "exp");
}
MXReturnValue logs(const Graph* graph, std::vector<int>* ids, const Attrs&) {
  return mark(graph, ids, "log");
}
REGISTER_PARTITIONER(two_own)
    .addStrategy("e", "two_first").setSupportedOps("e", exps)
    .addStrategy("l", "two_second").setSupportedOps("l", logs);
REGISTER_PARTITIONER(two_mixed)
    .addStrategy("e", "two_first").setSupportedOps("e", exps)
    .addStrategy("l", "_CachedOp").setSupportedOps("l", logs);
MXReturnValue initialize(int) { return MX_SUCCESS; }
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    (folder / "two.cc").write_text(_TWO_OPERATORS)
    return library.build([folder / "two.cc"], folder / "libtwo.so", ["-O0"])


@pytest.mark.parametrize(
    ("backend", "expected"),
    [("two_own", np.abs(np.abs(X) + 10) + 20), ("two_mixed", np.log(np.abs(X) + 10))],
)
def test_strategies_of_one_partitioner_may_have_two_operators(
    two: Path, backend: str, expected: np.ndarray
) -> None:
    library.load(two)
    made = symbol(variable("x"), node("exp", "e", 0), node("log", "l", 1))
    np.testing.assert_allclose(made.optimize_for(backend, {"x": X}).eval(x=X)[0], expected)
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.log(relay.exp(x))))
    lib = relay.build(partition(mod, backend), "llvm")
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=X)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-6)


# Graph passes.


@pytest.mark.parametrize("aux", [False, True])
def test_a_pass_adds_inputs_with_values(aux: bool) -> None:
    made = chain().optimize_for("test_claims", dict(ARGS))
    values, states = dict(ARGS), {}
    more = made.optimize_for("test_add_input", values, states, state=aux)
    assert more.list_inputs() == ["x", "w", "_op0_more"]
    (added,) = (states if aux else values).keys() - ARGS.keys()
    expected = np.log(INSIDE + 100)
    expected[0, 0] = np.log(INSIDE[0, 0] + 1100)
    np.testing.assert_allclose(ran(more, **values, **states), expected, rtol=1e-5)
    assert made.list_inputs() == ["x", "w"]
    with pytest.raises(PartitionError, match=f"adds {added}; give a dict as (args|aux)"):
        made.optimize_for("test_add_input", state=aux)


def test_a_pass_of_mxnet_1_7_gets_text_and_values() -> None:
    values = dict(ARGS)
    made = chain().optimize_for("test_text_pass", values)
    assert values["total"] == X[0, 0] + W[0, 0]
    chain().optimize_for("test_text_pass", [X, W])  # "total" is not read
    np.testing.assert_allclose(ran(made), np.log(INSIDE), rtol=1e-5)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("fail", "returned MX_FAIL: no pass today"),
        ("throw", "thrown in a pass"),
        ("allocate", "on gpu, not the CPU"),
        ("out of range", "range"),
        ("cycle", "feeds itself"),
        ("output", "output 70000"),
    ],
)
def test_a_pass_that_fails_or_damages_the_graph_is_one_error(how: str, message: str) -> None:
    before = chain()
    text = before.tojson()
    with pytest.raises(PartitionCallbackError, match=f"graph pass 'test_damage'.*{message}"):
        before.optimize_for("test_damage", dict(ARGS), how=how)
    assert before.tojson() == text


def test_a_pass_may_change_operators_and_a_wrong_one_is_refused_later() -> None:
    made = chain().optimize_for("test_damage", how="log")
    np.testing.assert_allclose(ran(made), ran(chain()), rtol=1e-6)
    with pytest.raises(UnsupportedOperatorError, match="no_such_operator"):
        ran(chain().optimize_for("test_damage", how="operator"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"nodes": [], "heads": [[0, 0, 0]], "arg_nodes": []}', "refers to node 0"),
        (
            '{"nodes": [{"op": "exp", "name": "e", "inputs": [[0, 0, 0]]}], "arg_nodes": [], '
            '"heads": [[0, 0, 0]]}',
            "cycle",
        ),
    ],
)
def test_json_of_a_pass_is_not_trusted(text: str, message: str) -> None:
    with pytest.raises(
        PartitionCallbackError, match=f"'test_text_pass' made what is not a symbol: .*{message}"
    ):
        chain().optimize_for("test_text_pass", dict(ARGS), json=text)


def test_a_library_that_is_gone_is_named() -> None:
    from compiler.runtime.foreign import ExternalCode, load

    with pytest.raises(LoadError, match=r"load libx\.so with"):
        load(ExternalCode("operator gone", b"", "libx.so"))
