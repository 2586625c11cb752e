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

from compiler import library, relay
from compiler.errors import PartitionCallbackError, PartitionError
from compiler.partition import (
    list_partitioners,
    partition,
    partition_with_report,
    subgraphs,
    unregister,
)
from compiler.runtime import graph_executor
from compiler.symbol import Symbol

EXAMPLES = Path(__file__).parents[2] / "examples" / "partitioner"

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

    def config(option: str) -> list[str]:
        command = [sys.executable, "-m", "tvm_ffi.config", option]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    command = ["g++", f"-I{library.include_dir()}", *config("--cxxflags"), "-O0", "-fPIC"]
    command += ["-fvisibility=hidden", "-shared", *flags, str(file), "-o", str(output)]
    command += [*config("--ldflags"), *config("--libs")] if link else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three worked examples, built by their Makefile."""
    if shutil.which("g++") is None or shutil.which("make") is None:
        pytest.skip("the examples are built with make and g++, and one of them is not installed")
    folder = tmp_path_factory.mktemp("examples")
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    command = ["make", "-j2", "CXXFLAGS=-O0", f"PYTHON={sys.executable}"]
    command += [f"BATON_INCLUDE={library.include_dir()}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("hostile"), HOSTILE)


def test_a_python_file_registers_partitioners(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PYTHON)
    assert library.load(tmp_path / "mine.py") == ["from_file"]


def test_a_python_file_that_fails_leaves_no_partitioner_behind(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PYTHON + "1 / 0\n")
    with pytest.raises(PartitionError, match=r"mine\.py, line 4 raised ZeroDivisionError"):
        library.load(tmp_path / "mine.py")
    assert "from_file" not in list_partitioners()


def test_a_name_that_is_taken_names_the_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PYTHON)
    library.load(tmp_path / "mine.py")
    with pytest.raises(PartitionError, match=r"mine\.py, line 3: .*already registered"):
        library.load(tmp_path / "mine.py")
    assert "from_file" in list_partitioners()


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
        (_ENTRY, "was built with version 99 .* this Baton has version 1"),
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


def test_a_library_partitions_a_symbol_as_it_does_a_module(examples: Path) -> None:
    nodes = [
        {"op": "null", "name": "x", "inputs": []},
        {"op": "exp", "name": "e", "inputs": [[0, 0, 0]]},
        {"op": "log", "name": "l", "inputs": [[1, 0, 0]]},
        {"op": "sin", "name": "s", "inputs": [[2, 0, 0]]},
    ]
    text = json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[3, 0, 0]]})
    library.load(examples / "libexp_log.so")
    result = Symbol.loads(text).optimize_for("exp_log", {"x": X})
    (node,) = (node for node in result.graph.nodes if node.subgraphs)
    assert [inner.op for inner in node.subgraphs[0].nodes] == ["null", "exp", "log"]
    np.testing.assert_allclose(result.eval(x=X)[0], np.sin(X), rtol=1e-5, atol=1e-6)
