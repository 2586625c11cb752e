"""Loading partitioners: Python files and C++ libraries, good and bad."""

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
from tvm import relax

from compiler import relay
from compiler.backends import get_partitioner
from compiler.errors import BuildError, PartitionCallbackError, PartitionError
from compiler.mxnet import library
from compiler.mxnet.symbol import Symbol
from compiler.partition import (
    list_partitioners,
    partition,
    partition_with_report,
    register,
    subgraphs,
    unregister,
)
from compiler.runtime import graph_executor, load_engines

EXAMPLES = Path(__file__).parents[3] / "examples" / "partitioner"

PYTHON = """
from compiler.partition import Strategy, register
register("from_file", Strategy("s", lambda text, ids, options: None))
"""

HOSTILE = """
#include <baton/partitioner.h>
namespace {
struct Odd : baton::Selector {
  bool select(int64_t) override { throw 42; }
};
BATON_REGISTER_PARTITIONER("throws").add(baton::Strategy("s").supported_ops(
    [](const baton::Graph&, std::vector<int64_t>&, const baton::Options&) {
      throw std::runtime_error("no such unit");
    }));
BATON_REGISTER_PARTITIONER("throws_int").add(baton::Strategy("s").selector(
    [](const baton::Graph&, const baton::Options&) { return std::make_unique<Odd>(); }));
BATON_REGISTER_PARTITIONER("shortens").add(baton::Strategy("s").supported_ops(
    [](const baton::Graph&, std::vector<int64_t>& ids, const baton::Options&) {
      ids.resize(1);
    }));
}  // namespace
"""


@pytest.fixture(autouse=True)
def _clean_registry() -> Iterator[None]:
    before = set(list_partitioners())
    yield
    for name in set(list_partitioners()) - before:
        unregister(name)


def module() -> tvm.IRModule:
    """log(relu(exp(x) @ w))"""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    w = relax.Var("w", relax.TensorType((8, 8), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit(relax.op.matmul(builder.emit(relax.op.exp(x)), w))
            out = builder.emit_output(relax.op.log(builder.emit(relax.op.nn.relu(y))))
        builder.emit_func_output(out)
    return builder.get()


X = np.random.default_rng(0).random((4, 8)).astype("float32")
W = np.full((8, 8), 0.5, "float32")


def make(folder: Path, source: Path | str, *flags: str, link: bool = True) -> Path:
    """Compile a C++ source, a file or text, to a library."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed; partitioner libraries are built with it")
    file = source if isinstance(source, Path) else folder / "source.cc"
    if isinstance(source, str):
        file.write_text(source)
    output = folder / f"lib{file.stem}.so"

    linked = library.linker_flags() if link else []
    command = ["g++", *library.compiler_flags(), "-O0", *flags, str(file), "-o", str(output)]
    done = subprocess.run([*command, *linked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The worked examples, built by their Makefile."""
    if shutil.which("g++") is None or shutil.which("make") is None:
        pytest.skip("the examples are built with make and g++, and one of them is not installed")
    folder = tmp_path_factory.mktemp("examples")
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    baton = f"{sys.executable} -m compiler"
    command = ["make", "-j2", "CXXFLAGS=-O0", f"BATON={baton}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # The header must compile without warnings whatever the visibility.
    flags = ("-fvisibility=default", "-Wall", "-Wextra", "-Werror")
    return make(tmp_path_factory.mktemp("hostile"), HOSTILE, *flags)


def test_a_python_file_registers_partitioners(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PYTHON)
    assert library.load(tmp_path / "mine.py") == ["from_file"]


def test_a_python_file_that_fails_leaves_no_partitioner_behind(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PYTHON + "1 / 0\n")
    with pytest.raises(PartitionError, match=r"mine\.py, line 4 raised ZeroDivisionError"):
        library.load(tmp_path / "mine.py")
    assert "from_file" not in list_partitioners()


def test_a_name_that_is_taken_names_the_file_and_line(tmp_path: Path) -> None:
    for name in ("mine.py", "other.py"):
        (tmp_path / name).write_text(PYTHON)
    library.load(tmp_path / "mine.py")
    with pytest.raises(PartitionError, match=r"other\.py, line 3: .*already registered"):
        library.load(tmp_path / "other.py")
    assert "from_file" in list_partitioners()


def test_a_file_loaded_again_replaces_what_it_registered(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PYTHON)
    library.load(file)
    first = get_partitioner("from_file")
    file.write_text(PYTHON.replace('"s"', '"second"'))
    assert library.load(file) == ["from_file"]
    assert get_partitioner("from_file").strategies[0].name == "second"
    file.write_text(PYTHON + "1 / 0\n")
    with pytest.raises(PartitionError, match="ZeroDivisionError"):
        library.load(file)
    assert get_partitioner("from_file").strategies[0].name == "second"
    register(first.name, first.strategies, replace=True)  # somebody else's from here on
    file.write_text(PYTHON)
    with pytest.raises(PartitionError, match="already registered"):
        library.load(file)


def test_a_library_loaded_again_is_the_same_and_a_changed_one_is_refused(
    hostile: Path, tmp_path: Path
) -> None:
    path = tmp_path / "again.so"
    shutil.copy(hostile, path)
    names = library.load(path)
    assert names == ["shortens", "throws", "throws_int"]
    assert library.load(path) == names
    shutil.copy(hostile, tmp_path / "new.so")
    (tmp_path / "new.so").replace(path)
    with pytest.raises(PartitionError, match="has changed since this process loaded it"):
        library.load(path)
    assert set(names) <= set(list_partitioners())


def test_a_source_that_does_not_compile_leaves_no_library(tmp_path: Path) -> None:
    (tmp_path / "bad.cc").write_text("#include <baton/partitioner.h>\nint f( {")
    with pytest.raises(PartitionError, match=r"does not compile .*bad\.cc:\n.*bad\.cc:2"):
        library.build([tmp_path / "bad.cc"], tmp_path / "libbad.so", ["-O0"])
    with pytest.raises(PartitionError, match=r"absent\.cc does not exist"):
        library.build([tmp_path / "absent.cc"], tmp_path / "libbad.so")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.cc"]


def chain(x, weight):
    """relu(x * -2) @ weight, then relu of 3 times that, as Relay's operators."""
    data = relay.var("x", shape=x.shape)
    w = relay.var("w", shape=weight.shape)
    first = relay.nn.relu(relay.multiply(data, relay.const(np.float32(-2))))
    result = relay.multiply(relay.nn.relu(relay.nn.dense(first, w)), relay.const(np.float32(3)))
    return relay.Function([data, w], result)


RUN_ELSEWHERE = """
import sys
import numpy as np
from compiler.runtime import graph_executor, load_engines, load_module
folder, engines = sys.argv[1:]
import tvm
executor = graph_executor.GraphModule(load_module(folder + "/net.so")["default"](tvm.cpu()))
x = np.load(folder + "/x.npy")
try:
    executor.run(x=x)
except Exception as error:
    assert "load_engines" in str(error), error
else:
    raise AssertionError("ran without the engine")
assert load_engines(engines) == ["own_engine"]
executor.run(x=x)
np.save(folder + "/found.npy", executor.get_output(0).numpy())
"""


def test_the_engine_example_compiles_and_runs_its_subgraphs(examples: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((4, 8)).astype("float32")
    x[0, 0] = np.nan
    library.load(examples / "libown_engine.so")
    parted = partition(tvm.IRModule.from_expr(chain(x, W)), "own_engine", {"w": W})
    assert [info.operators for info in subgraphs(parted)] == [
        ("multiply", "nn.relu"),
        ("nn.relu", "multiply"),
    ]
    lib = relay.build(parted, "llvm", params={"w": W})
    info = lib.partition_info()["subgraph_own_engine_chains_0"]
    assert (info["runtime"], info["attrs"]["steps"]) == ("partitioner own_engine", "4")
    expected = 3 * np.maximum(np.maximum(-2 * x, 0) @ W.T, 0)
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=x)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-5)
    lib.export_library(tmp_path / "net.so")
    np.save(tmp_path / "x.npy", x)
    command = [sys.executable, "-c", RUN_ELSEWHERE, str(tmp_path)]
    done = subprocess.run(
        [*command, str(examples / "libown_engine.so")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), expected, rtol=1e-5)


def test_the_command_runs_a_library_with_the_engine_of_a_plugin(
    examples: Path, tmp_path: Path
) -> None:
    library.load(examples / "libown_engine.so")
    parted = partition(tvm.IRModule.from_expr(chain(X, W)), "own_engine", {"w": W})
    relay.build(parted, "llvm", params={"w": W}).export_library(tmp_path / "net.so")
    command = [sys.executable, "-m", "compiler", "run", str(tmp_path / "net.so"), "--random"]
    plugin = ["--plugin", str(examples / "libown_engine.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("baton: error: a subgraph needs the runtime")
    done = subprocess.run([*command, *plugin], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


ENGINES = """
#include <baton/partitioner.h>
namespace {
void all(const baton::Graph& graph, std::vector<int64_t>& ids, const baton::Options&) {
  for (size_t id = 0; id < graph.nodes.size(); ++id) ids[id] = baton::kAny;
}
bool keep(baton::Review& review) {
  review.attrs["seen"] = std::to_string(review.args.size());
  return true;
}
// Its code says what compile was given; running fails with that and what it was given itself.
struct Fails : baton::Engine {
  explicit Fails(const baton::Code& code) : code(code) {}
  void run(const std::vector<baton::Tensor>& in, const std::vector<baton::Output>&) override {
    const auto& [bytes, attrs, options] = code;
    throw std::runtime_error(bytes + " seen " + attrs.at("seen") + " mode " + options.at("mode") +
                             " inputs " + std::to_string(in.size()));
  }
  baton::Code code;
};
std::string describe(const baton::Compilation& given) {
  if (given.options.count("refuse")) throw std::runtime_error("not today");
  std::string text(1, '\\0');
  for (int64_t id : given.inputs) text += " input " + given.subgraph.nodes[id].name;
  for (const auto& [name, value] : given.params) text += " param " + name + " " + value.dtype();
  return text.substr(1);
}
BATON_REGISTER_PARTITIONER("engines")
    .add(baton::Strategy("s").supported_ops(all).review(keep))
    .compile(describe, [](const baton::Code& code) { return std::make_unique<Fails>(code); });
}  // namespace
"""


def test_engines_get_inputs_parameters_attributes_and_options(tmp_path: Path) -> None:
    library.load(make(tmp_path, ENGINES))
    parted = partition(
        tvm.IRModule.from_expr(chain(X, W)), "engines", {"w": W, "unread": W}, mode="fast"
    )
    lib = relay.build(parted, "llvm", params={"w": W})
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    with pytest.raises(
        Exception, match=r"input x param .*param w float32 seen \d mode fast inputs 1"
    ):
        executor.run(x=X)
    refused = partition(tvm.IRModule.from_expr(chain(X, W)), "engines", {"w": W}, refuse="yes")
    with pytest.raises(BuildError, match=r"backend 'engines': compile raised .*not today"):
        relay.build(refused, "llvm", params={"w": W})


CHECKS = """
#include <baton/partitioner.h>
namespace {
std::string check(const baton::Graph& graph, int64_t id, const baton::Options& options) {
  const baton::Node& node = graph.nodes[id];
  if (node.op != "exp") return node.op + " is not in " + options.at("set");
  return "";
}
BATON_REGISTER_PARTITIONER("checks").add(baton::Strategy("s").check(check));
}  // namespace
"""


def test_a_check_in_cpp_gives_reasons(tmp_path: Path) -> None:
    library.load(make(tmp_path, CHECKS))
    done = partition_with_report(module(), "checks", {"w": W}, set="the set")
    assert [info.operators for info in subgraphs(done.module)] == [("exp",)]
    (selection,) = done.selections
    reasons = {
        selection.graph.nodes[node].op: (reason.kind, reason.reason)
        for node, reason in selection.claims.reasons.items()
    }
    assert reasons["log"] == ("check", "log is not in the set")
    assert set(reasons) == {"transpose", "nn.dense", "nn.relu", "log"}


def test_a_library_without_an_engine_says_so(examples: Path) -> None:
    with pytest.raises(PartitionError, match="has no engine"):
        load_engines(examples / "libexp_log.so")


def test_the_exp_log_example_claims_and_runs(examples: Path) -> None:
    assert library.load(examples / "libexp_log.so") == ["exp_log"]
    parted = partition(module(), "exp_log", ops="nn.relu")
    found = subgraphs(parted)
    assert [info.operators for info in found] == [("exp",), ("nn.relu", "log")]
    assert [info.subgraph_op for info in found] == ["exp_log_op"] * 2
    assert found[1].attrs["operators"] == "3"
    lib = relay.build(parted, "llvm", params={"w": W})
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    executor.run(x=X)
    expected = np.log(np.exp(X.astype("f8")) @ W)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-5)


def test_options_are_checked_in_cpp(examples: Path) -> None:
    library.load(examples / "libexp_log.so")
    with pytest.raises(PartitionError, match="refuses the options: ops names no operator"):
        partition(module(), "exp_log", ops="")


def test_the_weights_example_looks_at_values(examples: Path) -> None:
    library.load(examples / "libsmall_weights.so")
    (taken,) = partition_with_report(module(), "small_weights", {"w": W}).candidates
    assert taken.accepted
    assert float(taken.attrs["largest"]) == 0.5
    values = W.T.copy()
    values[2, 3] = -7
    # Not contiguous, so that a copy in the right order must be handed over.
    (left,) = partition_with_report(module(), "small_weights", {"w": values.T}).candidates
    assert (left.accepted, left.reason) == (False, "w has the value 7.000000")


def test_the_selector_example_grows_subgraphs(examples: Path) -> None:
    library.load(examples / "libactivations.so")
    (info,) = subgraphs(partition(module(), "activations"))
    assert info.operators == ("nn.dense", "nn.relu")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("throws", "supported_ops raised .*no such unit"),
        ("throws_int", "select of the selector raised .*not a std::exception"),
        ("shortens", "supported_ops left 1 ids for"),
    ],
)
def test_what_cpp_code_throws_or_leaves_is_one_clear_error(hostile, name, message) -> None:
    library.load(hostile)
    mod = module()
    before = tvm.ir.save_json(mod)
    with pytest.raises(PartitionCallbackError, match=f"'{name}'.*{message}"):
        partition(mod, name)
    assert tvm.ir.save_json(mod) == before


def test_a_library_may_refuse_this_version(tmp_path: Path) -> None:
    source = (
        "#include <baton/partitioner.h>\n"
        'BATON_REGISTER_PARTITIONER("late").add(baton::Strategy("s").supported_ops(\n'
        "    [](const baton::Graph&, std::vector<int64_t>&, const baton::Options&) {}));\n"
        'BATON_INITIALIZE(version) { return version < 990000 ? "too old" : ""; }\n'
    )
    with pytest.raises(PartitionError, match=r"libsource\.so refuses Baton .*: too old"):
        library.load(make(tmp_path, source))
    assert "late" not in list_partitioners()


_ENTRY = (
    'extern "C" int __tvm_ffi_baton_abi_version(void*, const void*, int, void* result) {\n'
    "  struct Any { int type; int zero; long long value; };\n"
    "  *static_cast<Any*>(result) = {1, 0, 99};\n"
    "  return 0;\n"
    "}\n"
)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (_ENTRY, "was built with version 99 .* this Baton has version 2"),
        ("int nothing = 0;", "has no function baton_abi_version"),
        ("void absent(); void call() { absent(); }", "can't be loaded: .*undefined symbol"),
    ],
)
def test_libraries_of_other_making_are_refused(tmp_path: Path, source: str, message: str) -> None:
    path = make(tmp_path, source, "-fvisibility=default", link=False)
    with pytest.raises(PartitionError, match=message):
        library.load(path)


def test_files_that_are_no_libraries_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("hello")
    with pytest.raises(PartitionError, match=r"text\.so is not a shared library"):
        library.load(tmp_path / "text.so")
    with pytest.raises(PartitionError, match=r"absent\.so does not exist"):
        library.load(tmp_path / "absent.so")
    with pytest.raises(PartitionError, match=r"neither a \.py nor a \.so"):
        library.load(tmp_path)


def test_a_library_cut_short_is_refused(hostile: Path, tmp_path: Path) -> None:
    data = hostile.read_bytes()
    for keep in (5, 64, 1000, len(data) // 2, len(data) - 1):
        path = tmp_path / f"cut{keep}.so"
        path.write_bytes(data[:keep])
        with pytest.raises(PartitionError, match="not a complete shared library"):
            library.load(path)


@pytest.mark.parametrize("exp", ["exp", "_npi_exp"])
def test_a_library_partitions_a_symbol_as_it_does_a_module(examples: Path, exp: str) -> None:
    nodes = [
        {"op": "null", "name": "x", "inputs": []},
        {"op": exp, "name": "e", "inputs": [[0, 0, 0]]},
        {"op": "log", "name": "l", "inputs": [[1, 0, 0]]},
        {"op": "sin", "name": "s", "inputs": [[2, 0, 0]]},
    ]
    text = json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[3, 0, 0]]})
    library.load(examples / "libexp_log.so")
    result = Symbol.loads(text).optimize_for("exp_log", {"x": X})
    (node,) = (node for node in result.graph.nodes if node.subgraphs)
    assert [inner.op for inner in node.subgraphs[0].nodes] == ["null", exp, "log"]
    np.testing.assert_allclose(result.eval(x=X)[0], np.sin(X), rtol=1e-5, atol=1e-6)
