from __future__ import annotations

import gc
import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm

from compiler.errors import IncompatibleDeviceError, LoadError
from compiler.runtime import FactoryModule, elf, graph_executor, load, load_module

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", params=[".so", ".tar"])
def exported(request, network, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("exported") / f"net{request.param}"
    network.library.export_library(path)
    return path


RUN = """
import sys
import numpy as np, tvm
from compiler.runtime import graph_executor, load_module
assert tvm.base._RUNTIME_ONLY == (sys.argv[4] == "runtime-only")
library = load_module(sys.argv[1])
module = graph_executor.GraphModule(library["default"](tvm.cpu()))
inputs = np.load(sys.argv[2])
module.run(x=inputs["x"], y=inputs["y"])
module.benchmark(tvm.cpu(), repeat=1, number=1)
np.save(sys.argv[3], module.get_output(1).numpy())
forbidden = ("tvm.relax", "onnx", "compiler.lowering", "compiler.relay", "schedules.")
loaded = [name for name in sys.modules if name.startswith(forbidden)]
assert sys.argv[4] != "runtime-only" or not loaded, loaded
"""


@pytest.mark.parametrize("installation", ["runtime-only", "full"])
def test_another_process_runs_it_with_tvms_runtime_alone(exported, network, tmp_path, installation):
    inputs = network.inputs(3)
    np.savez(tmp_path / "inputs.npz", **inputs)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if installation == "runtime-only":
        environment["TVM_USE_RUNTIME_LIB"] = "1"
    subprocess.run(
        [
            *(sys.executable, "-c", RUN, exported),
            *(tmp_path / "inputs.npz", tmp_path / "output.npy", installation),
        ],
        check=True,
        env=environment,
        cwd=tmp_path,
    )
    output = np.load(tmp_path / "output.npy")
    np.testing.assert_allclose(output, network.reference(**inputs)[1], rtol=1e-4, atol=1e-4)


def mapped_file(address: int) -> str:
    """The file that this process has mapped at an address, "" for other memory."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            bounds, *_, last = line.split(maxsplit=5)
            start, stop = (int(bound, 16) for bound in bounds.split("-"))
            if start <= address < stop:
                return last.strip() if last.startswith("/") else ""
    return ""


def test_weights_alias_the_mapped_file_and_are_aligned(exported, network):
    params = load_module(exported).get_params()
    assert list(params) == ["p0", "p1"]
    for tensor in params.values():
        assert tensor.data_ptr() % 64 == 0
        assert mapped_file(tensor.data_ptr()) == str(exported)
    np.testing.assert_array_equal(params["p0"].numpy(), network.w)
    np.testing.assert_array_equal(params["p1"].numpy(), network.v)


def test_executors_use_the_mapped_weights_themselves(exported):
    library = load_module(exported)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    assert module.get_input("p0").data_ptr() == library.get_params()["p0"].data_ptr()


def test_writing_into_a_weight_does_not_change_the_file(exported, network):
    before = exported.read_bytes()
    load_module(exported).get_params()["p0"].copyfrom(np.zeros((16, 16), "float32"))
    assert exported.read_bytes() == before
    np.testing.assert_array_equal(load_module(exported).get_params()["p0"].numpy(), network.w)


def test_weights_outlive_the_library_object(exported, network):
    weight = load_module(exported).get_params()["p1"]
    np.testing.assert_array_equal(weight.numpy(), network.v)


def mapped_libraries() -> list[str]:
    """The files that this process has mapped, and which are libraries of these tests."""
    with open("/proc/self/maps") as maps:
        files = [line.split(maxsplit=5)[5].strip() for line in maps if "/" in line]
    return sorted({name for name in files if "/net." in name or "/library.so" in name})


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_the_code_goes_with_the_last_that_uses_it(build_network, tmp_path, suffix):
    before, results = mapped_libraries(), []
    for _ in range(3):
        network = build_network()
        network.library.export_library(tmp_path / f"net{suffix}")
        inputs = network.inputs(0)
        for library in (network.library, load_module(tmp_path / f"net{suffix}")):
            executor = library["default"](tvm.cpu())
            executor.run(**inputs)
            assert len(mapped_libraries()) > len(before)
            results.append(executor.get_output(1))
        del network, library, executor
    gc.collect()
    assert mapped_libraries() == before
    for result in results:  # tensors are the runtime's, not the code's
        np.testing.assert_array_equal(result.numpy(), results[0].numpy())


def test_a_path_has_as_many_libraries_as_are_exported_there(build, tmp_path):
    from tvm import relax

    libraries = []
    for number in range(4):
        library = build(
            [("x", (2,), "float32")],
            lambda builder, x, n=number: builder.emit(relax.op.add(x, relax.const(float(n)))),
        )
        library.export_library(tmp_path / "net.so")
        libraries.append(load_module(tmp_path / "net.so"))
    for number, library in enumerate(libraries):
        executor = library["default"](tvm.cpu())
        executor.run(x=np.zeros(2, "float32"))
        assert executor.get_output(0).numpy().tolist() == [number, number]


@pytest.mark.parametrize("suffix", [".so", ".tar"])
@pytest.mark.parametrize("change", ["replaced", "deleted"])
def test_code_and_weights_are_of_the_file_that_was_opened(
    build, tmp_path, monkeypatch, suffix, change
):
    from tvm import relax

    path, other = tmp_path / f"net{suffix}", tmp_path / f"other{suffix}"
    for target, operator, value in ((path, relax.op.add, 2.0), (other, relax.op.multiply, 5.0)):
        weight = np.full(128, value, "float32")  # large enough to lie outside of the code
        build(
            [("x", (128,), "float32")],
            lambda builder, x, op=operator, w=weight: builder.emit(op(x, relax.const(w))),
        ).export_library(target)

    check_file = load.check_file

    def check_then_change(*arguments):
        checked = check_file(*arguments)
        os.replace(other, path) if change == "replaced" else path.unlink()
        return checked

    with monkeypatch.context() as patch:
        patch.setattr(load, "check_file", check_then_change)
        library = load_module(path)
    executor = library["default"](tvm.cpu())
    executor.run(x=np.full(128, 10, "float32"))
    np.testing.assert_array_equal(executor.get_output(0).numpy(), np.full(128, 12, "float32"))
    if change == "replaced":
        executor = load_module(path)["default"](tvm.cpu())
        executor.run(x=np.full(128, 10, "float32"))
        np.testing.assert_array_equal(executor.get_output(0).numpy(), np.full(128, 50, "float32"))


MEASURE = """
import sys
import numpy as np, tvm
from compiler.runtime import graph_executor, load_module

def resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))

tvm.runtime.tensor(np.zeros(1, "float32"))
files, anonymous = resident("RssFile"), resident("RssAnon")
library = load_module(sys.argv[1])
executors = [library["default"](tvm.cpu()) for _ in range(2)]
for executor in executors:
    executor.run(x=np.zeros((1, 2048), "float32"))
print(resident("RssFile") - files, resident("RssAnon") - anonymous)
"""


def test_a_process_holds_the_weights_once_and_as_pages_of_the_file(build, tmp_path):
    from tvm import relax

    size = 4 * 2048 * 2048
    weight = np.random.default_rng(0).standard_normal((2048, 2048)).astype("float32")

    def emit(builder, x):
        return builder.emit(relax.op.matmul(x, relax.const(weight)))

    library = build([("x", (1, 2048), "float32")], emit)
    library.export_library(tmp_path / "net.so")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, tmp_path / "net.so"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TVM_USE_RUNTIME_LIB": "1"},
    )
    files, anonymous = (int(number) for number in done.stdout.split())
    assert 0.9 * size < files < 1.5 * size
    assert anonymous < 0.5 * size


def test_a_library_is_loaded_from_bytes(exported, network, tmp_path):
    content = exported.read_bytes()
    library = load_module(content)
    session = library.session(num_threads=1)
    found = session.run(network.inputs(3))
    expected = load_module(exported).session(num_threads=1).run(network.inputs(3))
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    library.export_library(tmp_path / f"again{exported.suffix}")
    load_module(tmp_path / f"again{exported.suffix}", verify_weights=True)
    with pytest.raises(LoadError, match="neither a shared library nor"):
        load_module(memoryview(b"no library"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(LoadError, match=r"absent\.so.*No such file"):
        load_module(tmp_path / "absent.so")
    with pytest.raises(LoadError, match="directory"):
        load_module(tmp_path)


@pytest.mark.parametrize("content", [b"", b"x", b"not a library\n" * 100, bytes(5000)])
def test_a_file_that_is_no_library_is_refused(tmp_path, content):
    path = tmp_path / "net.so"
    path.write_bytes(content)
    with pytest.raises(LoadError, match=r"net\.so"):
        load_module(path)


def test_a_library_that_baton_did_not_write_is_refused(network, tmp_path):
    network.library.get_lib().export_library(str(tmp_path / "tvm.so"))
    with pytest.raises(LoadError, match=r"no metadata of Baton's.*tvm\.runtime\.load_module"):
        load_module(tmp_path / "tvm.so")
    with tarfile.open(tmp_path / "other.tar", "w") as archive:
        archive.add(tmp_path / "tvm.so", "tvm.so")
    with pytest.raises(LoadError, match="no metadata of Baton's"):
        load_module(tmp_path / "other.tar")


@pytest.mark.parametrize("fraction", [0.01, 0.3, 0.6, 0.8, 0.95, 0.999])
def test_a_truncated_library_is_refused(exported, tmp_path, fraction):
    data = exported.read_bytes()
    path = tmp_path / exported.name
    end = len(data) if exported.suffix == ".so" else len(data.rstrip(b"\0"))  # tars end with zeros
    path.write_bytes(data[: int(end * fraction)])
    with pytest.raises(LoadError):
        load_module(path)


def test_corrupt_code_is_refused(exported, tmp_path):
    data = bytearray(exported.read_bytes())
    if exported.suffix == ".so":
        with open(exported, "rb") as file:
            position = elf.read_sections(file)[".text"].offset
    else:
        position = 2000
    data[position] ^= 1
    path = tmp_path / exported.name
    path.write_bytes(data)
    with pytest.raises(LoadError, match="corrupt"):
        load_module(path)


def test_corrupt_metadata_are_refused(exported, tmp_path):
    data = exported.read_bytes()
    path = tmp_path / exported.name
    path.write_bytes(data.replace(b'"mod_name":"default"', b'"mod_name":"defect!"'))
    with pytest.raises(LoadError, match="corrupt"):
        load_module(path)


def test_metadata_of_another_format_are_refused(exported, tmp_path):
    path = tmp_path / exported.name
    path.write_bytes(exported.read_bytes().replace(b"BATON\0\0\1", b"BATON\0\0\2"))
    with pytest.raises(LoadError, match="another version"):
        load_module(path)


def test_corrupt_weights_are_found_when_asked_for(exported, network, tmp_path):
    data = exported.read_bytes()
    path = tmp_path / exported.name
    path.write_bytes(data.replace(network.w.tobytes(), bytes(network.w.nbytes)))
    load_module(path)
    with pytest.raises(LoadError, match="weights"):
        load_module(path, verify_weights=True)
    load_module(exported, verify_weights=True)


def test_missing_cpu_features_are_named_before_any_code_is_loaded(network, tmp_path, monkeypatch):
    metadata = replace(
        network.library.metadata,
        cpu_features=("sse2", "avx512f"),
        target='{"kind":"llvm","mcpu":"znver5"}',
    )
    library = FactoryModule(network.library.get_lib(), metadata, network.library.get_params())
    for name in ("net.so", "net.tar"):
        library.export_library(tmp_path / name)

    def never(*_):
        raise AssertionError("the library's code was loaded")

    monkeypatch.setattr(
        "compiler.runtime.cpu.missing_features", lambda names: [n for n in names if n != "sse2"]
    )
    monkeypatch.setattr("compiler.runtime.load.load_code", never)
    monkeypatch.setattr("compiler.runtime.load.link_and_load", never)
    for name in ("net.so", "net.tar"):
        with pytest.raises(IncompatibleDeviceError, match=r"-mcpu=znver5.*avx512f") as error:
            load_module(tmp_path / name)
        assert "sse2" not in str(error.value)


def test_an_archive_without_a_compiler_is_a_load_error(network, tmp_path, monkeypatch):
    network.library.export_library(tmp_path / "net.tar")
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    with pytest.raises(LoadError, match="no-compiler"):
        load_module(tmp_path / "net.tar")


def test_importing_the_package_loads_nothing_heavy():
    program = (
        "import sys, compiler.runtime\n"
        "assert 'tvm' not in sys.modules and 'numpy' not in sys.modules\n"
        "assert 'load_module' in dir(compiler.runtime)\n"
        "from compiler.runtime import graph_executor, load_module\n"
        "assert 'tvm' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_a_library_for_another_processor_is_refused(network, tmp_path):
    path = tmp_path / "net.so"
    network.library.export_library(path)
    with open(path, "r+b") as file:
        file.seek(18)  # e_machine
        file.write((183).to_bytes(2, "little"))
    with pytest.raises(IncompatibleDeviceError, match=r"built for aarch64, and this machine is"):
        load_module(path)


@pytest.mark.parametrize("suffix", [".so", ".tar"])
@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "sparse"])
def test_what_is_no_regular_file_is_a_load_error_without_waiting(tmp_path, suffix, kind):
    path = tmp_path / f"net{suffix}"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    else:
        with open(path, "wb") as file:
            file.truncate(1 << 41)
    with pytest.raises(LoadError, match=r"net\.|zero"):
        load_module(path)


@pytest.mark.parametrize("path", ["net\0.so", "net\ud800.so", None, 3.5])
def test_an_invalid_path_is_a_load_error(path):
    with pytest.raises(LoadError, match="can't open the library"):
        load_module(path)


def test_an_archive_with_a_sparse_member_is_a_load_error(tmp_path):
    info = tarfile.TarInfo("0000-code.o")
    info.pax_headers = {"GNU.sparse.size": str(1 << 41), "GNU.sparse.map": "0,0"}
    with tarfile.open(tmp_path / "net.tar", "w") as archive:
        archive.addfile(info)
    with pytest.raises(LoadError, match="is sparse"):
        load_module(tmp_path / "net.tar")
