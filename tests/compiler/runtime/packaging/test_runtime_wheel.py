"""The wheel of the runtime, unpacked, with nothing else of Baton or TVM in the process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.errors import ExportError
from compiler.runtime.packaging.runtime_wheel import build_runtime_wheel

WEIGHT = np.random.default_rng(0).standard_normal((8, 4)).astype("float32")

PROGRAM = """
import sys
import numpy as np
import baton_tvm
from baton_tvm import ort
from compiler.runtime import graph_executor, load_module
import tvm

x = np.load("x.npy")
session = load_module("net.so").session(num_threads=1)
found = session.run({"x": x})["output0"]
library = load_module("net.tar")
module = graph_executor.GraphModule(library["default"](tvm.cpu(0)))
module.run(x=x)
assert (module.get_output(0).numpy() == found).all()
assert (ort.InferenceSession("net.so").run(None, {"x": x})[0] == found).all()
np.save("y.npy", found)

ours = {name for name in sys.modules if name.split(".")[0] in ("compiler", "tvm", "schedules")}
outside = {n for n in ours if "/baton_runtime/" not in (sys.modules[n].__file__ or "")}
assert not outside, outside
assert not {"onnx", "typer", "rich"} & set(sys.modules)
for attempt in (
    lambda: ort.InferenceSession("net.onnx"),
    lambda: __import__("compiler").relay,
):
    try:
        attempt()
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_runtime_wheel(tmp_path_factory.mktemp("dist"))


def test_libraries_run_without_the_compiler(wheel: Path, tmp_path: Path) -> None:
    x = relay.var("x", shape=(2, 4))
    y = relay.nn.relu(relay.nn.dense(x, relay.const(WEIGHT)))
    library = relay.build(tvm.IRModule.from_expr(relay.Function([x], y)), "llvm")
    for name in ("net.so", "net.tar"):
        library.export_library(str(tmp_path / name))
    value = np.random.default_rng(1).standard_normal((2, 4)).astype("float32")
    np.save(tmp_path / "x.npy", value)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
        folder = archive.read("baton_runtime.pth").decode().strip()
    # Without `site`, packages are found in these folders alone, editable installations nowhere.
    path = os.pathsep.join([str(tmp_path / "site" / folder), sysconfig.get_path("platlib")])
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "TVM_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = np.maximum(value @ WEIGHT.T, 0)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-5, atol=1e-5)
    onnx, relay_missing = done.stdout.splitlines()
    assert re.match("FrontendError .*baton compile model.onnx", onnx)
    assert relay_missing.startswith("ModuleNotFoundError compiler.relay is not in baton-runtime")


def test_the_wheel_says_what_it_needs_and_is_for(wheel: Path) -> None:
    assert wheel.name.endswith("_x86_64.whl")
    with zipfile.ZipFile(wheel) as archive:
        (about,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        needs = re.findall("^Requires-Dist: ([a-z-]+)", archive.read(about).decode(), re.M)
        record = archive.read(about.replace("METADATA", "RECORD")).decode()
        assert {line.split(",")[0] for line in record.splitlines()} == set(archive.namelist())
    assert sorted(needs) == ["apache-tvm-ffi", "numpy"]


def tvm_wheel(folder: Path, name: str, without: str = "") -> Path:
    """A wheel of apache-tvm for aarch64, by its looks."""
    version = name.split("-")[1]
    files = {
        "tvm/lib/libtvm_runtime.so": b"\x7fELF of another machine",
        "tvm/lib/libtvm_compiler.so": b"",
        "tvm/runtime/vm.py": b"",
        "tvm/LICENSE": b"Apache",
        f"apache_tvm-{version}.dist-info/WHEEL": b"Tag: py3-none-manylinux_2_28_aarch64\n",
    }
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, content in files.items():
            if path != without:
                archive.writestr(path, content)
    return folder / name


def test_the_runtime_of_another_processor(tmp_path: Path) -> None:
    name = f"apache_tvm-{metadata.version('apache-tvm')}-py3-none-manylinux_2_28_aarch64.whl"
    made = build_runtime_wheel(tmp_path / "dist", tvm_wheel(tmp_path, name))
    assert made.name.endswith("-py3-none-manylinux_2_28_aarch64.whl")
    with zipfile.ZipFile(made) as archive:
        library = archive.read("baton_runtime/tvm/lib/libtvm_runtime.so")
        assert library == b"\x7fELF of another machine"
        assert not [each for each in archive.namelist() if "libtvm_compiler" in each]


@pytest.mark.parametrize(
    ("name", "without", "said"),
    [
        ("apache_tvm-0.1-py3-none-any.whl", "", r"must be that of apache-tvm 0\.27.* not 0\.1"),
        ("apache_tvm-0.1-py3-none-any.whl", "tvm/runtime/vm.py", "has no tvm/runtime/vm.py"),
        ("apache_tvm-0.1-py3-none-any.whl", "apache_tvm-0.1.dist-info/WHEEL", "read as a wheel"),
        ("other-0.1-py3-none-any.whl", "", "apache_tvm-...whl"),
    ],
)
def test_what_is_not_a_wheel_of_tvm(tmp_path: Path, name: str, without: str, said: str) -> None:
    with pytest.raises(ExportError, match=said):
        build_runtime_wheel(tmp_path, tvm_wheel(tmp_path, name, without))
