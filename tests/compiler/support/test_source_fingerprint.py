from __future__ import annotations

import shutil

import pytest
import tvm
from tvm import te

from compiler.lowering.codegen import compile_kernels
from compiler.support import source_fingerprint as module


@pytest.mark.parametrize(
    "name", ["schedules/generic/stages.py", "compiler/lowering/codegen/compile_kernels.py"]
)
def test_the_version_changes_with_any_source(tmp_path, monkeypatch, name):
    copy = tmp_path / name
    copy.parent.mkdir(parents=True)
    shutil.copy(module._ROOT / name, copy)
    monkeypatch.setattr(module, "_ROOT", tmp_path)
    before = module.code_version.__wrapped__()
    assert module.code_version.__wrapped__() == before
    with copy.open("a") as file:
        file.write("\n")
    assert module.code_version.__wrapped__() != before


def test_kernels_of_another_version_are_not_taken(monkeypatch):
    x = te.placeholder((4,), name="x")
    kernel = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1.0)])
    kernel = kernel.with_attr("global_symbol", "add_one")
    target = tvm.target.Target("llvm")
    before = compile_kernels.kernel_key(kernel, target)
    assert compile_kernels.kernel_key(kernel, target) == before
    monkeypatch.setattr(compile_kernels, "code_version", lambda: "another")
    assert compile_kernels.kernel_key(kernel, target) != before
