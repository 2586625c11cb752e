"""Names that modules of older TVM versions passed on, by attribute or star import."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import tvm

from compiler import legacy
from compiler.errors import LegacyImportError


def test_modules_answer_names_that_they_imported_themselves():
    with legacy.installed():
        from tvm.contrib import graph_runtime

        assert graph_runtime.graph_executor.GraphModule is graph_runtime.GraphModule
        assert tvm.ir.container.Map is not None


def test_star_imports_bring_what_a_module_imported():
    scope: dict[str, object] = {}
    with legacy.installed():
        exec("from tvm.relay.dataflow_pattern import *", scope)
        from tvm import relay

        assert scope["Expr"] is relay.Expr
        assert scope["wildcard"] is relay.dataflow_pattern.wildcard
        assert {"Callable", "Dict", "List", "Optional", "Op", "tvm"} <= set(scope)
        with pytest.raises(LegacyImportError, match="public functions"):
            scope["ffi"].match()  # type: ignore[attr-defined]


def test_names_of_lost_parts_are_refused_by_package():
    with legacy.installed():
        from tvm.relay.op import strategy
        from tvm.topi.cuda import conv2d_winograd  # a module that only some versions had

        with pytest.raises(LegacyImportError, match="relay"):
            conv2d_winograd.winograd_cuda()
        with pytest.raises(LegacyImportError, match="relay"):
            strategy.schedule_injective()
        with pytest.raises(LegacyImportError, match="SearchTask, TaskScheduler"):
            tvm.auto_scheduler.register_task_input_check_func("nn.dense")
        assert tvm.autotvm.task.task.Target is tvm.target.Target  # imported there


def test_lost_modules_do_not_replace_functions_of_their_name():
    with legacy.installed():
        from tvm import topi

        with pytest.raises(LegacyImportError, match=r"from tvm\.topi import argwhere"):
            importlib.import_module("tvm.topi.argwhere")
        assert topi.argwhere.__name__ == "argwhere"


def test_submodules_of_today_come_before_names_that_a_module_imported():
    code = """
from compiler import legacy
legacy.install(everything=True)
from tvm import relay
assert relay.qnn.transform.CanonicalizeOps().info.name == "qnn.CanonicalizeOps"
import tvm.relay.qnn.transform as passes
assert passes is relay.qnn.transform
import tvm
assert isinstance(1, tvm.tir.stmt.Allocate) is False
from tvm.auto_scheduler.measure import local_run
from tvm.runtime import TypeCode
assert TypeCode.INT == 0
from tvm.meta_schedule.tune import extract_task_from_relay
from tvm.relay.testing.mlp import create_workload
assert relay.Prelude and relay.Sequential
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_that_no_version_had_are_not_there():
    with legacy.installed():
        from tvm import relay

        assert not hasattr(relay, "no_such_name") and not hasattr(tvm.topi, "no_such_name")
        with pytest.raises(ImportError):
            importlib.import_module("tvm.relay.no_such_module")


def test_no_state_of_a_name_is_worse_than_recorded():
    root = Path(__file__).parents[3]
    command = [sys.executable, "scripts/conformance/public_names.py", "--check"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == ""
