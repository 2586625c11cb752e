"""`export_library(..., standalone=True)`: TVM's runtime alone runs the library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te

import compiler.legacy.te
from compiler import relay
from compiler.errors import ExportError
from compiler.runtime import load_module
from compiler.support.cxx import cxx_command

WEIGHT = np.random.default_rng(0).standard_normal((4, 3)).astype("float32")

# The text is of a process that knows nothing of Baton.
PYTHON = """
import sys
import numpy as np
import tvm

library = tvm.runtime.load_module(sys.argv[1])
module = library["default"](tvm.cpu())
x = np.arange(6, dtype="float32").reshape(2, 3)
for rows in (x, np.concatenate([x, x])):
    module["set_input"]("x", tvm.runtime.tensor(rows))
    module["run"]()
    print(module["get_output"](0).numpy().tolist())
    print(module["get_output"](1).numpy().tolist())
copied = tvm.runtime.empty((), "int64")
module["set_input"](1, tvm.runtime.tensor(np.array(5, "int64")))
module["run"]()
module["get_output"](1, copied)
print([copied.numpy().item(), module["get_num_inputs"](), module["get_num_outputs"]()])
for name in ("y", "n"):
    try:
        module["set_input"](name, tvm.runtime.tensor(x))
    except ValueError as error:
        print(error)
assert "compiler" not in sys.modules
"""

# `apps/howto_deploy` of TVM, in today's names.
PROGRAM = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>

#include <cstdio>

namespace ffi = tvm::ffi;

int main(int, char** argv) {
  const ffi::Module library = ffi::Module::LoadFromFile(argv[1]);
  const DLDevice cpu{kDLCPU, 0};
  const ffi::Module module = library->GetFunction("default").value()(cpu).cast<ffi::Module>();
  float values[6] = {0, 1, 2, 3, 4, 5};
  int64_t shape[2] = {2, 3};
  DLTensor x{values, cpu, 2, DLDataType{kDLFloat, 32, 1}, shape, nullptr, 0};
  module->GetFunction("set_input").value()("x", &x);
  module->GetFunction("run").value()();
  const auto y = module->GetFunction("get_output").value()(0).cast<ffi::Tensor>();
  for (int i = 0; i < 8; ++i) std::printf("%.6f ", static_cast<float*>(y.data_ptr())[i]);
}
"""


# The same as it was written up to TVM 0.18, and a function that is linked into the program.
OLD_PROGRAM = """
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <cstdio>

using tvm::runtime::Module;
using tvm::runtime::NDArray;

int main(int, char** argv) {
  const DLDevice cpu{kDLCPU, 0};
  const DLDataType real{kDLFloat, 32, 1};
  Module module = Module::LoadFromFile(argv[1]).GetFunction("default")(cpu);
  ICHECK(module.GetFunction("no_such_function") == nullptr);
  ICHECK(tvm::runtime::Registry::Get("no.such.function") == nullptr);
  Module linked = (*tvm::runtime::Registry::Get("runtime.SystemLib"))();
  DLTensor* counted;
  int64_t shape[2] = {2, 3};
  TVMArrayAlloc(shape, 2, kDLFloat, 32, 1, kDLCPU, 0, &counted);
  for (int i = 0; i < 6; ++i) static_cast<float*>(counted->data)[i] = i - 1.0f;
  NDArray x = NDArray::Empty({2, 3}, real, cpu), y = NDArray::Empty({2, 4}, real, cpu);
  linked.GetFunction("add_one")(counted, x);
  module.GetFunction("set_input")("x", x);
  module.GetFunction("run")();
  module.GetFunction("get_output")(0, y);
  for (int i = 0; i < 8; ++i) std::printf("%.6f ", static_cast<float*>(y->data)[i]);
  TVMArrayFree(counted);
}
"""


@pytest.fixture(scope="module")
def library():
    x = relay.var("x", shape=(relay.Any(), 3))
    n, w = relay.var("n", shape=(), dtype="int64"), relay.var("w", shape=(4, 3))
    body = relay.Tuple([relay.nn.relu(relay.nn.dense(x, w)), n + relay.const(1, "int64")])
    mod = tvm.IRModule.from_expr(relay.Function([x, n, w], body))
    return relay.build(mod, "llvm", params={"w": WEIGHT})


@pytest.fixture(scope="module")
def file(library, tmp_path_factory):
    path = tmp_path_factory.mktemp("standalone") / "net.so"
    library.export_library(path, standalone=True)
    return path


def _expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ WEIGHT.T, 0)


def test_pythons_tvm_runs_it(file, tmp_path):
    script = tmp_path / "deploy.py"
    script.write_text(PYTHON)
    done = subprocess.run(
        [sys.executable, "-P", script, file], capture_output=True, text=True, check=True
    )
    *results, counts, unknown, wrong = done.stdout.splitlines()
    x = np.arange(6, dtype="float32").reshape(2, 3)
    for rows, text, number in zip((x, np.concatenate([x, x])), results[::2], results[1::2]):
        np.testing.assert_allclose(json.loads(text), _expected(rows), rtol=1e-5)
        assert number == "1"  # of an input that is not set, which is 0
    assert counts == "[6, 2, 2]"
    assert "no input y" in unknown
    assert "input n is of another shape or dtype" in wrong


def _built(text: str, tmp_path: Path, *more: str) -> Path:
    """A program that is linked to TVM's runtime."""
    source, program = tmp_path / "deploy.cc", tmp_path / "deploy"
    source.write_text(text)
    libraries = [tvm.libinfo.find_libtvm_runtime(), tvm_ffi.libinfo.find_libtvm_ffi()]
    subprocess.run(
        [
            *(*cxx_command(), "-std=c++17", str(source), "-o", str(program), "-Wl,--no-as-needed"),
            *(*more, f"-I{tvm_ffi.libinfo.find_include_path()}", *map(str, libraries)),
            *(f"-Wl,-rpath,{Path(each).parent}" for each in libraries),
        ],
        check=True,
    )
    return program


def _check_program(program: Path, file: Path) -> None:
    done = subprocess.run([program, file], capture_output=True, text=True, check=True)
    x = np.arange(6, dtype="float32").reshape(2, 3)
    found = np.array(done.stdout.split(), "float32").reshape(2, 4)
    np.testing.assert_allclose(found, _expected(x), rtol=1e-5, atol=1e-6)


def test_a_program_in_cpp_runs_it(file, tmp_path):
    _check_program(_built(PROGRAM, tmp_path), file)


def test_a_program_for_an_older_tvm_runs_it(file, tmp_path):
    x = te.placeholder((2, 3), name="x")
    y = te.compute((2, 3), lambda i, j: x[i, j] + 1.0, name="y")
    runtime = relay.backend.Runtime("cpp", {"system-lib": True})
    built = compiler.legacy.te.build(
        compiler.legacy.te.create_schedule(y.op), [x, y], "llvm", runtime=runtime, name="add_one"
    )
    built.write_to_file(str(tmp_path / "add_one.o"))
    old = Path(compiler.__file__).parent / "include" / "tvm_0_18"
    headers = [
        old,
        Path(tvm.__file__).parent / "include",
        tvm_ffi.libinfo.find_dlpack_include_path(),
    ]
    more = [str(tmp_path / "add_one.o"), *(f"-I{folder}" for folder in headers)]
    _check_program(_built(OLD_PROGRAM, tmp_path, *more), file)


def test_what_can_not_stand_alone_is_refused(library, tmp_path):
    with pytest.raises(ExportError, match=r"as standalone: it is linked here; export to a \.so"):
        library.export_library(tmp_path / "net.tar", standalone=True)
    library.export_library(tmp_path / "net.so")
    with pytest.raises(ExportError, match="it was loaded from a file"):
        load_module(tmp_path / "net.so").export_library(tmp_path / "two.so", standalone=True)
    assert not (tmp_path / "two.so").exists()
