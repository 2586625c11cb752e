"""Builds on machines where nothing can be kept."""

from __future__ import annotations

import logging
import os
import pwd

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import relay
from compiler.lowering.cache import kernel_cache
from compiler.lowering.cache.kernel_cache import LIMIT_VARIABLE
from compiler.runtime import graph_executor
from compiler.support import atomic_file
from compiler.support.tempdir import open_temp_beside


@pytest.fixture(autouse=True)
def _nothing_was_said(monkeypatch):
    monkeypatch.delenv(LIMIT_VARIABLE, raising=False)
    monkeypatch.setattr(kernel_cache, "_said", set())


def build_and_run():
    """Build x * 2 + 1 twice, check the numbers, and return the last report's `cache`."""
    shape = [3]
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "two"], ["twice"]),
            helper.make_node("Add", ["twice", "one"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor(name, TensorProto.FLOAT, [], [value])
            for name, value in (("two", 2.0), ("one", 1.0))
        ],
    )
    model = helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
    mod, weights = relay.frontend.from_onnx(model, {"x": tuple(shape)})
    for _ in range(2):
        library = relay.build(mod, target="llvm", params=weights)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.set_input("x", np.array([1, 2, 3], "float32"))
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), [3, 5, 7])
    return library.report.cache


def warnings_of(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_build_without_home_and_passwd_entry_keeps_nothing_and_says_so_once(monkeypatch, caplog):
    def unknown(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    report = build_and_run()
    assert "nothing is kept: there is no home folder; set XDG_CACHE_HOME" in report
    assert len(warnings_of(caplog)) == 1


def test_a_build_whose_cache_cannot_be_written_says_so_once(monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/baton")  # refused to root too
    report = build_and_run()
    assert "nothing is kept: can't write to /proc/baton/baton/kernels" in report
    assert len(warnings_of(caplog)) == 1


def test_a_read_only_cache_still_serves_what_it_has(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build_and_run()
    kernels = kernel_cache.user_cache().folder
    (library,) = kernels.glob("*.library")
    library.unlink()
    (kernels / ".baton-draft-0a1b2c3d.tmp").touch()  # of a killed build

    def refusing(function):
        def refuse(path, *args, **options):
            if str(path).startswith(str(tmp_path)):
                raise OSError(30, "Read-only file system", str(path))
            return function(path, *args, **options)

        return refuse

    for name in ("unlink", "rmdir", "utime", "replace"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    monkeypatch.setattr(
        "compiler.support.atomic_file.open_temp_beside", refusing(atomic_file.open_temp_beside)
    )
    monkeypatch.setenv(LIMIT_VARIABLE, "10")  # what is above can't be evicted
    report = build_and_run()
    assert report.startswith("2 of 2 kernels; nothing is kept: can't write to ")
    assert report.endswith(": Read-only file system")


def test_leftover_drafts_of_any_kind_are_no_obstacle(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "baton" / "kernels"
    folder.mkdir(mode=0o700, parents=True)
    (folder / ".draft-old").mkdir()
    (folder / ".baton-draft-0a1b2c3d.tmp").mkdir()
    (folder / ".baton-draft-00000000.tmp").symlink_to("/nowhere")
    descriptor, _ = open_temp_beside(folder, 0o600)
    assert build_and_run() == "the library"
    os.close(descriptor)


def test_a_cache_entry_that_is_a_folder_is_compiled_again(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build_and_run()
    for path in kernel_cache.user_cache().folder.iterdir():
        path.unlink()
        path.mkdir()
    assert "0 of 2 kernels" in build_and_run()
