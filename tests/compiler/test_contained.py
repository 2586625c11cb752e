"""Importing Baton changes nothing in TVM for others in the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SEEN = """
import importlib, pkgutil, sys, types

def seen():
    "Every attribute of TVM's modules, and of the classes in them, by the object that it is."
    found = {"meta_path": list(sys.meta_path), "path_hooks": list(sys.path_hooks)}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in ("tvm", "tvm_ffi"):
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, types.ModuleType) or key == "__warningregistry__":
                continue
            found[f"{name}.{key}"] = value
            if isinstance(value, type):
                for attribute, member in list(vars(value).items()):
                    found[f"{name}.{key}.{attribute}"] = member
    return found

def changes(before, after):
    "Names of attributes that were there before, or belong to classes that were, and differ."
    differ = [key for key, value in before.items() if key in after and after[key] is not value
              and not isinstance(value, list)]
    differ += [key for key, value in before.items() if isinstance(value, list)
               and value != after[key]]
    differ += [key for key in before if key not in after]
    owners = {key.rpartition(".")[0] for key in before}
    differ += [key for key in after if key not in before and key.rpartition(".")[0] in owners]
    return sorted(differ)
"""
_TVM = "import tvm, tvm.relax, tvm.relax.frontend.onnx, tvm.s_tir.meta_schedule, tvm.testing\n"
_BATON = """
import compiler, schedules
failed = []
for package in (compiler, schedules):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:  # of a peer that is not installed
            failed.append(error.name)
assert not [name for name in failed if name.startswith(("compiler", "schedules"))], failed
"""


def run(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_every_module_changes_nothing_in_tvm():
    program = f"{_SEEN}{_TVM}before = seen()\n{_BATON}print(*changes(before, seen()))"
    assert run(program) == []


@pytest.mark.parametrize("door", ["compiler", "compiler.relay", "compiler.runtime.graph_executor"])
def test_a_door_that_comes_first_leaves_tvm_as_it_is(door):
    """Modules that TVM is imported by leave it as a process has it that never heard of Baton."""
    attributes = """
import tvm_ffi.core, tvm.ir.transform, tvm.relax
print(tvm_ffi.core._object_type_key_to_index, tvm.ir.transform.PassContext.__init__.__module__,
      type(tvm.relax.BlockBuilder._stack).__name__)
"""
    first = run(f"import {door}\n{attributes}")
    assert [each for each in first if "0x" not in each] == [
        each for each in run(attributes) if "0x" not in each
    ]


def test_old_names_leave_classes_alone_and_the_context_takes_all_back():
    program = f"""{_SEEN}{_TVM}
import compiler.legacy
from compiler.legacy import installation
before = seen()
compiler.legacy.install()
from tvm import relay
known = {{"Target.__init__", "PassContext.__init__", "PassContext.__enter__",
         "PassContext.__exit__"}}
owners = {{key for key, value in before.items() if isinstance(value, type)}}
print(*[key for key in changes(before, seen()) if key in before
        and key.rpartition(".")[0] in owners and ".".join(key.split(".")[-2:]) not in known])
compiler.legacy.uninstall()
with compiler.legacy.installed():
    assert tvm.relax.Var("x", tvm.relax.TensorType((2,), "float32")) + 1.0 is not None
    assert changes(before, seen())
print(*changes(before, seen()))
"""
    assert run(program) == []
