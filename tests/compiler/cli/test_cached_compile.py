from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler.cli import cached_compile
from compiler.cli.compile import BuildOptions
from compiler.lowering.cache.kernel_cache import LIMIT_VARIABLE
from compiler.runtime import elf, graph_executor, load_module

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = BuildOptions()
KEPT = "the library"


@pytest.fixture
def model(tmp_path):
    """A product with a weight that lies in another file; the checker misses the result's shape."""
    path = tmp_path / "net.onnx"
    write(path, 1.0)
    return path


def write(path, value, others=True):
    """y = x w, where all of w are one value; a file as old as those that people compile."""
    weight = numpy_helper.from_array(np.full((32, 48), value, "float32"), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 32])],
        [onnx.ValueInfoProto(name="y")],
        [weight],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, path, save_as_external_data=others, location="w.data", size_threshold=0)
    time.sleep(2 * cached_compile._CLOCK_STEP)


def compile_once(model, *options, cache="1000000000", output="net.so"):
    """The command in a process of its own; whether TVM was loaded, and what it printed."""
    script = (
        "import sys; from compiler.cli.app import app\n"
        "code = app(args=sys.argv[1:], standalone_mode=False)\n"
        "print('tvm' in sys.modules)\n"
        "sys.exit(code)"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(model.parent / "cache"),
        LIMIT_VARIABLE: cache,
    }
    made = subprocess.run(
        [sys.executable, "-c", script, "compile", str(model), "-o", output, *options],
        env=environment,
        capture_output=True,
        text=True,
        cwd=model.parent,
        check=True,
    )
    *shown, loaded = made.stdout.splitlines()
    return loaded == "True", shown, made.stderr


def computes(library, value):
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=np.ones((4, 32), "float32"))
    np.testing.assert_allclose(module.get_output(0).numpy(), np.full((4, 48), 32 * value))


def test_the_same_command_writes_the_same_library_without_tvm(model):
    needed_tvm, _, said = compile_once(model)
    first = load_module(model.with_name("net.so"))
    assert needed_tvm and "complains" in said
    first_file = first.origin.read_bytes()
    os.unlink(first.origin)

    needed_tvm, shown, said_again = compile_once(model)
    again = load_module(model.with_name("net.so"))
    assert not needed_tvm
    assert "complains" in said_again  # warnings come again
    assert any("nn.dense" in line for line in shown)
    assert again.report["cache"] == KEPT
    assert again.report["kernels"] == first.report["kernels"]
    computes(again, 1.0)
    # All that differs is the report, which comes behind the code and the weights.
    with open(again.origin, "rb") as file:
        weights = elf.read_sections(file)[".baton.weights"]
    second_file = again.origin.read_bytes()
    assert any(second_file[weights.offset : weights.offset + weights.size])
    head = slice(64, weights.offset + weights.size)  # the header has the place of a table
    assert second_file[head] == first_file[head]


@pytest.mark.parametrize("others", [True, False])
def test_a_model_of_other_contents_is_compiled(model, others):
    write(model, 1.0, others)
    compile_once(model)
    assert not compile_once(model)[0]
    write(model, 2.0, others)
    assert compile_once(model)[0]
    computes(load_module(model.with_name("net.so")), 2.0)
    assert not compile_once(model)[0]
    os.unlink(model.with_name("w.data")) if others else os.truncate(model, 100)
    with pytest.raises(subprocess.CalledProcessError):
        compile_once(model)


def test_what_is_damaged_is_compiled_again(model):
    compile_once(model)
    folder = model.parent / "cache" / "baton" / "kernels"
    for suffix, place in ((".library", 5000), (".library", -100), (".command", -100)):
        (path,) = folder.glob(f"*{suffix}")
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)
        needed_tvm, _, said = compile_once(model)
        assert needed_tvm and "damaged" in said
        computes(load_module(model.with_name("net.so")), 1.0)
        assert not list(model.parent.glob(".baton-*"))
        assert not compile_once(model)[0]


def test_a_missing_folder_is_named_as_by_a_first_build(model):
    compile_once(model)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        compile_once(model, output="missing/net.so")
    assert "'missing' is not a folder" in failed.value.stderr


def test_without_a_cache_nothing_is_kept(model):
    assert compile_once(model, cache="0")[0]
    assert compile_once(model, cache="0")[0]


@pytest.fixture
def without_tvm(monkeypatch):
    """As in a process that did not load it."""
    monkeypatch.delitem(sys.modules, "tvm")


def key(model, options=OPTIONS, output="a.so"):
    return cached_compile.command_key(model, options, Path(output))


def test_the_key_has_options_place_machine_and_environment(model, without_tvm, monkeypatch):
    keys = {
        key(model),
        key(model, BuildOptions(opt_level=2)),
        key(model, BuildOptions(shapes={"x": (1, 2)})),
        key(model.with_name("other.onnx")),
    }
    monkeypatch.setenv("TVM_NUM_THREADS", "77")  # unlike that of a whole run of the tests
    keys.add(key(model))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(99))
    keys.add(key(model))
    monkeypatch.setattr(cached_compile, "code_version", lambda: "another")
    keys.add(key(model))
    assert len(keys) == 7 and all(keys)
    assert key(model) == key(model, output="b.so")


@pytest.mark.parametrize(
    "options",
    [
        {"plugins": ("a.py",)},
        {"backends": ("dnnl",)},
        {"logs": ("a.log",)},
        {"auto_scheduler_logs": ("a.json",)},
        {"target": "cuda"},
        {"target_host": "llvm"},
        {"samples": Path("data"), "precision": "int8"},
    ],
)
def test_a_command_that_reads_more_than_its_model_has_no_key(model, options, without_tvm):
    assert key(model) and not key(model, BuildOptions(**options))


def test_a_process_that_has_loaded_tvm_has_no_key(model):
    assert "tvm" in sys.modules and not key(model)


def test_archives_and_other_models_have_no_key(model, without_tvm):
    assert not key(model, output="a.tar")
    assert not key(model.with_suffix(".relay"))
