"""Names that only TVM 0.6 and older had: `tvm.var`, `tvm.placeholder`, `relay.Module`, `topi`.

TVM 0.7 moved them to `tvm.te`, `tvm.tir` and their kin, where `compiler.legacy` has them for all
eras. They are on for scripts that use one of them (`is_of_the_era`), or by `baton run --era 0.6`.
"""

from __future__ import annotations

import ast
import importlib
from typing import Any

import tvm

from schedules.space import ConfigSpace

from ..module_map import NAMES_OF_06, OF_06
from ..patches import Patches

_RENAMED = {"select": "Select", "Module": "IRModule"}
_DTYPES = (*(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),)
_DTYPES += ("bool", "float16", "float32", "float64", "handle")

_PASSES = ("ModulePass", "Pass", "PassContext", "PassInfo", "PrintIR", "Sequential", "module_pass")
# Names that `tvm.relay` had then.
_RELAY = {
    *("Module", "alpha_equal", "build_module.build_config", "ir_pass", "module"),
    *(f"transform.{name}" for name in _PASSES),
}


def find(name: str) -> Any:
    """Attribute `tvm.<name>` of TVM 0.6. Raises AttributeError: TVM 0.6 had no such name."""
    if name in _DTYPES:
        return name
    if name not in NAMES_OF_06:
        raise AttributeError(f"module 'tvm' has no attribute {name!r}")
    return getattr(importlib.import_module(NAMES_OF_06[name]), _RENAMED.get(name, name))


def change(patches: Patches) -> None:
    """Have functions return what they did, and give Relay the names that it lost."""
    from ... import relay
    from . import build, operators, space

    for owner in (tvm, tvm.driver):
        patches.set(owner, "lower", build.lower)
    for owner in (relay, tvm.ir):
        patches.set(owner, "Module", tvm.IRModule)
    for name in ("ir_pass", "module"):
        patches.set(relay, name, importlib.import_module(OF_06[f"tvm.relay.{name}"]))
    patches.set(ConfigSpace, "get", space.get)
    for owner in (relay.op, relay.op.op):
        patches.set(owner, "register_alter_op_layout", operators.register_alter_op_layout)
    for name in _PASSES:
        patches.set(relay.transform, name, getattr(tvm.transform, name))
    patches.set(relay.build_module, "build_config", relay.build_config)
    for owner in (relay, relay.analysis):
        patches.set(owner, "alpha_equal", tvm.ir.structural_equal)


def is_of_the_era(source: str) -> bool:
    """Whether a script imports or names what only TVM 0.6 and older had."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return any(_only_then(node) for node in ast.walk(tree))


def _only_then(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(_is_module(each.name) for each in node.names)
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        whole = [f"{module}.{each.name}" for each in node.names]
        return _is_module(module) or any(_is_name(each) for each in whole)
    name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
    return not name.startswith("topi.") and _is_name(name)  # `topi` may be imported from tvm


def _is_module(name: str) -> bool:
    return name in OF_06 or name.partition(".")[0] == "topi"


def _is_name(name: str) -> bool:
    package, _, last = name.rpartition(".")
    is_relays = (
        name.partition("relay.")[0] in ("", "tvm.") and name.partition("relay.")[2] in _RELAY
    )
    return _is_module(name) or is_relays or (package == "tvm" and last in NAMES_OF_06)
